"""What programs gave once, and a world in which they give it again: the clock stands still.

A test runs a case in `world(folder)` and hands what it gave to `Golden.check`. Goldens are kept in
pairs of files of this folder, one case a line:

* `NAME_numbers.json`: numbers, channels, prices, digests, names of files, exit codes, flags,
  persisted rows. Keys are the test's own, so a product that renames its keys leaves it alone.
* `NAME_text.json`: what people read, keys and their order. New wording makes this file anew:
  `python -m tests.golden.record text`.

Nothing here depends on random numbers of the operating system: ids are counted and written as
`<id 1>`, `<id 2>`, ... in the order in which they appear (`Plain`), and floating-point numbers are
equal within `TOLERANCE`, as NumPy and SciPy sum in another order on another processor.
"""

from __future__ import annotations

import datetime as datetime_module
import functools
import getpass
import hashlib
import importlib
import io
import itertools
import json
import math
import os
import pkgutil
import re
import shutil
import socket
import sqlite3
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

HERE = Path(__file__).parent
RECORD = "BEAM_LDP_RECORD_GOLDEN"  # "numbers", "text", "all" or "old": written, not compared
NOW = datetime_module.datetime(2026, 3, 1, 12, tzinfo=datetime_module.timezone.utc)
LOGIN, HOST = "golden", "localhost"
TOLERANCE = 1e-9  # relative, of floating-point numbers; `NOTHING` beside zero
NOTHING = 1e-15
DIGITS = 12  # significant ones of a frozen number
NUMBERS, TEXT = "numbers", "text"
OLD = "old"  # all, and what later versions must read: ledgers, envelopes, records, folders

# A UUID that a product made in `world`: eight digits that count, the rest the same in each.
_MADE = "1d1d-41d1-81d1-1d1d1d1d1d1d"
_IDS = re.compile("([0-9a-f]{8})(?:1d1d41d181d11d1d1d1d1d1d|-" + _MADE + "|1d1d)")
_ROOMS = ("beam_ldp", "beam_ldp.pipelines", "mlflow_ldp")  # the second stands in another folder
_TOOK = re.compile(r"^[a-z][^\n:]*: (?:\d+(?:\.\d+)? s|<time>)(?:, [^\n]*)?\n", re.MULTILINE)
# "reading 1 file: 2.3 s": said, or not, by how long it takes


# The world -----------------------------------------------------------------------------------


class _Type(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, datetime_module.datetime)


class Clock(datetime_module.datetime, metaclass=_Type):
    """`datetime`, of which it is always `Clock.time`."""

    time_now = NOW

    @classmethod
    def now(cls, tz: datetime_module.tzinfo | None = None) -> Any:
        return cls.time_now.astimezone(tz) if tz else cls.time_now.replace(tzinfo=None)

    @classmethod
    def utcnow(cls) -> Any:
        return cls.time_now.replace(tzinfo=None)


@cache
def import_everything() -> None:
    """All modules of the product that can be imported here: those imported in a frozen world would
    keep its clock."""
    for room in _ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            try:
                importlib.import_module(module.name)
            except ImportError:  # an extra that is not installed
                continue


@contextmanager
def place() -> Iterator[Path]:
    """A new folder, gone afterwards. Tables are as wide as its path, which is always as long."""
    folder = Path(tempfile.mkdtemp(prefix="golden-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def world(folder: Path, *, now: datetime_module.datetime = NOW) -> Iterator[pytest.MonkeyPatch]:
    """Run what is inside in `folder`, at `now`, as `LOGIN` on `HOST`, with ids that are counted.

    `Clock.time_now` may be set inside. Pictures are written as a few bytes; nothing asks MLflow's
    environment. Monotonic clocks run on, as waiting needs them.
    """
    import_everything()
    folder.mkdir(parents=True, exist_ok=True)
    counted = itertools.count(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(Clock, "time_now", now)
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] in _ROOMS:
                for key, value in list(vars(module).items()):
                    if value is datetime_module.datetime:
                        patch.setattr(module, key, Clock)
        patch.setattr(uuid, "uuid4", lambda: uuid.UUID(f"{next(counted):08x}-{_MADE}"))
        patch.setattr(getpass, "getuser", lambda: LOGIN)
        patch.setattr(socket, "gethostname", lambda: HOST)
        patch.setattr(Figure, "savefig", _drawn)
        patch.setenv("XDG_STATE_HOME", str(folder / ".state"))
        for name, value in {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "TZ": "UTC"}.items():
            patch.setenv(name, value)
        for name in ("MLFLOW_TRACKING_URI", "BEAM_LDP_ANCHORS", "BEAM_LDP_WRITER_KEY"):
            patch.delenv(name, raising=False)
        yield patch


def _drawn(_: Figure, where: Any, **__: Any) -> None:
    said = b"\x89PNG\r\n\x1a\n, not drawn"
    where.write(said) if hasattr(where, "write") else Path(where).write_bytes(said)


def memoized_reports(patch: pytest.MonkeyPatch) -> Callable[[], list[dict[str, Any]]]:
    """Writes down what is memoized from here on; the function that it returns says it.

    Of each mechanism and identity, a round or a level of a release, how many people reported and
    the digest of what they sent, in the order of their ids: blocks and retries make no difference.
    """
    from beam_ldp.randomizers.base import LocalRandomizer
    from beam_ldp.randomizers.randomness import UserRandomness, canonical_ids

    sent: dict[str, dict[str, str]] = {}
    inside = threading.local()

    def watched(randomize: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(randomize)
        def watch(self: Any, values: Any, rng: Any = None) -> Any:
            if not isinstance(rng, UserRandomness) or getattr(inside, "one", False):
                return randomize(self, values, rng)
            inside.one = True
            try:
                reports = randomize(self, values, rng)
            finally:
                inside.one = False
            told = {"identity": rng.identity.to_json(), "mechanism": self.to_config()}
            people = sent.setdefault(json.dumps(told, sort_keys=True), {})
            for user, report in zip(canonical_ids(rng.user_ids), np.asarray(reports)):
                people[repr(user)] = digest(str(report.dtype) + report.tobytes().hex())
            return reports

        return watch

    for kind in (LocalRandomizer, *_kinds(LocalRandomizer)):
        if "randomize" in vars(kind):
            patch.setattr(kind, "randomize", watched(vars(kind)["randomize"]))

    def said() -> list[dict[str, Any]]:
        found = []
        for about, people in sorted(sent.items()):
            told = json.loads(about)
            found.append(
                {
                    "identity": digest(json.dumps(told["identity"], sort_keys=True)),
                    "part": told["identity"]["part"],
                    "mechanism": told["mechanism"]["mechanism"],
                    "people": len(people),
                    "reports": digest(json.dumps(sorted(people.items()))),
                }
            )
        return found

    return said


def _kinds(base: type) -> Iterator[type]:
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


@dataclass(frozen=True)
class Ran:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str


def command(*arguments: str, stdin: str = "") -> Ran:
    """`beam-ldp` in this process, by the entry point that a shell calls."""
    from beam_ldp.pipelines.cli import main

    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    code: Any = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["beam-ldp", *arguments])
        patch.setattr(sys, "stdin", io.StringIO(stdin))
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    said = [stream.buffer.getvalue().decode() for stream in (out, err)]
    return Ran(code if isinstance(code, int) else int(code is not None), *said)


# What cannot stand still ---------------------------------------------------------------------


@dataclass
class Plain:
    """Says of one case what differs between two runs of it in the same words.

    Attributes:
        folder: its folder, `<folder>` in what is said.
        patterns: of what else differs, and what stands there instead.
    """

    folder: Path | None = None
    patterns: Mapping[str, str] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)

    def __call__(self, value: Any) -> Any:
        """The same with made-up ids, folders and `patterns` replaced; keys of mappings too."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self(key): self(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self(one) for one in value]
        return value

    def _text(self, text: str) -> str:
        if self.folder is not None:
            text = text.replace(str(self.folder.resolve()), "<folder>")
            text = text.replace(str(self.folder), "<folder>")
        for pattern, instead in self.patterns.items():
            text = re.sub(pattern, instead, text)
        return _IDS.sub(self._name, _TOOK.sub("", text))

    def _name(self, found: re.Match[str]) -> str:
        return self._names.setdefault(found[1], f"<id {len(self._names) + 1}>")


def digest(content: bytes | str) -> str:
    """What stands in a golden for what is large."""
    content = content.encode() if isinstance(content, str) else content
    return hashlib.sha256(content).hexdigest()[:24]


def tree(folder: Path) -> list[str]:
    """The files below a folder, by their paths from there."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())


def ledger_rows(database: str | Path) -> list[dict[str, Any]]:
    """The rows of a ledger in SQLite as they are kept, but for the process that wrote them and
    their hashes, which are checked here.

    Hashes follow from ids that differ: each must be that of its row, in canonical JSON, and of the
    row before.
    """
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        found = connection.execute(
            "SELECT number, kind, body, previous, hash FROM beam_ldp_ledger ORDER BY number"
        ).fetchall()
    rows, last = [], "0" * 64
    for number, kind, body, previous, own in found:
        rest = f'"kind":"{kind}","number":{number},"previous":"{previous}","version":2}}'
        hashed = hashlib.sha256(f'{{"body":{body},{rest}'.encode()).hexdigest()
        assert previous == last and own == hashed, f"row {number} of {database}"
        rows.append({"kind": kind, **_of_no_process(json.loads(body))})
        last = own
    return rows


def _of_no_process(body: dict[str, Any]) -> dict[str, Any]:
    about = body.get("about")
    if isinstance(about, dict) and isinstance(about.get("launcher"), dict):
        launcher = {key: "<process>" for key in about["launcher"] if key != "host"}
        body["about"] = {**about, "launcher": {**about["launcher"], **launcher}}
    return body


# What was given once -------------------------------------------------------------------------


class Differs(AssertionError):
    """What a case gives is not what is frozen of it."""


@dataclass(frozen=True)
class Golden:
    """A pair of files of what cases gave."""

    name: str

    def path(self, part: str) -> Path:
        """The file of a part, `NUMBERS` or `TEXT`."""
        return HERE / f"{self.name}_{part}.json"

    def kept(self, part: str, case: str) -> Any:
        """What is frozen of a case."""
        return _kept(self.path(part)).get(case, {})

    def check(self, part: str, case: str, given: Any, *, recorded: bool = True) -> None:
        """Compare what a case gave, or write it down where it is recorded.

        Args:
            part: `NUMBERS` or `TEXT`.
            case: its name.
            given: JSON, and bytes, of which the digest is kept.
            recorded: False for another way to the same, which is only compared.

        Raises:
            Differs: names the first key that differs, and what is and was there.
        """
        given = json.loads(json.dumps(_rounded(given)))
        kept = _kept(self.path(part))
        if recorded and os.environ.get(RECORD) in (part, "all", OLD):
            kept[case] = given
            _write(self.path(part), {**_read(self.path(part)), case: given})
            return
        assert case in kept, f"{self.path(part).name} knows no case {case!r}: {_HINT}"
        found = list(differences(kept[case], given))
        if found:
            where, old, new = found[0]
            more = f"\n  and {len(found) - 1} more: " + ", ".join(w for w, _, _ in found[1:6])
            raise Differs(
                f"{self.path(part).name}, case {case!r}, at {where or 'the whole'}:\n"
                f"  frozen: {old}\n  now:    {new}{more if len(found) > 1 else ''}\n({_HINT})"
            )

    def check_cases(self, cases: Iterable[str], part: str) -> None:
        """Nothing is frozen that no test makes any more; recording takes it out."""
        cases, kept = set(cases), _kept(self.path(part))
        left = sorted(set(kept) - cases)
        if left and os.environ.get(RECORD) in (part, "all", OLD):
            now = _read(self.path(part))
            _write(self.path(part), {case: now[case] for case in now if case in cases})
            return
        assert not left, f"{self.path(part).name} has cases that no test makes: {left}"


_HINT = "if that is meant: python -m tests.golden.record numbers, or text"


@cache
def _kept(path: Path) -> dict[str, Any]:
    return _read(path)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def _write(path: Path, kept: Mapping[str, Any]) -> None:
    lines = [
        f"{json.dumps(case)}: {json.dumps(given, ensure_ascii=False, separators=(',', ':'))}"
        for case, given in sorted(kept.items())
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")


def _rounded(value: Any) -> Any:
    """JSON with `DIGITS` significant digits; bytes as their digest."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(one) for one in value]
    return digest(value) if isinstance(value, bytes) else value


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, str, str]]:
    """Where two JSON values differ, with what stands there: keys in any order, numbers within
    `TOLERANCE`, of long texts the first line that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            place = f"{where}.{key}" if where else key
            if key not in new or key not in old:
                yield place, _short(old.get(key, "(absent)")), _short(new.get(key, "(absent)"))
            else:
                yield from differences(old[key], new[key], place)
    elif isinstance(old, list) and isinstance(new, list):
        for i, (one, other) in enumerate(zip(old, new)):
            yield from differences(one, other, f"{where}[{i}]")
        if len(old) != len(new):
            yield f"{where}.length", str(len(old)), str(len(new))
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            lines = itertools.zip_longest(old.splitlines(), new.splitlines(), fillvalue="(absent)")
            pairs = [(i, a, b) for i, (a, b) in enumerate(lines, 1) if a != b]
            line, a, b = pairs[0] if pairs else (1, repr(old[-40:]), repr(new[-40:]))
            yield f"{where}:{line}" if "\n" in old else where, _short(a), _short(b)
    elif not _same(old, new):
        yield where, _short(old), _short(new)


def _same(old: Any, new: Any) -> bool:
    numbers = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (old, new))
    if not numbers:
        return type(old) is type(new) and bool(old == new)
    if isinstance(old, int) and isinstance(new, int):
        return old == new
    if math.isnan(old) or math.isnan(new):
        return math.isnan(old) and math.isnan(new)
    return math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=NOTHING)


def _short(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= 300 else f"{said[:300]}... ({len(said)} characters)"
