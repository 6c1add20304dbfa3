"""Databases that are kept as text, who wrote them, and goldens whose cases have much in common."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.launcher import Launcher
from tests.golden import frozen
from tests.golden.frozen import NUMBERS, Golden

RECORDING = os.environ.get(frozen.RECORD) in (NUMBERS, "all")
SHARED, LARGE = "shared", 120  # a case of its own; characters of a value that goes there


def lose_launchers(patch: pytest.MonkeyPatch) -> None:
    """What is written is signed by a process of a life of this machine that is over."""
    gone = Launcher(frozen.HOST, "a life that is over", "", 4242, "1")
    patch.setattr(Launcher, "of", classmethod(lambda *_: gone))


def spend_ids() -> None:
    """Go on counting where no file that was kept has an id."""
    for _ in range(1000):
        uuid.uuid4()


def dump(database: Path, kept: Path) -> None:
    """A database in SQLite as text."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(database) as connection:
        kept.write_text("\n".join(connection.iterdump()) + "\n", "utf-8")


def restore(kept: Path, database: Path) -> None:
    """Inverse of `dump`."""
    with sqlite3.connect(database) as connection:
        connection.executescript(kept.read_text("utf-8"))


@dataclass(frozen=True)
class Sharing(Golden):
    """A golden whose numbers hold the same events, rows and identities many times: each is kept
    once, in a case of its own, and stands elsewhere as `#` and its digest."""

    def check(self, part: str, case: str, given: Any) -> None:
        if part != NUMBERS:
            super().check(part, case, given)
        elif RECORDING:
            shared = dict(_read(self.path(part)).get(SHARED, {}))
            short = _short(given, shared)
            super().check(part, SHARED, shared)
            super().check(part, case, short)
        else:
            kept = _kept(self.path(part))
            assert case in kept, f"{self.path(part).name} knows no case {case!r}"
            old = _whole(kept[case], kept[SHARED])
            found = list(frozen.differences(old, json.loads(json.dumps(given))))
            if found:
                told = "\n".join(f"  {w}\n    frozen: {a}\n    now:    {b}" for w, a, b in found[:5])
                raise AssertionError(
                    f"{self.path(part).name}, case {case!r}, {len(found)} differences:\n{told}"
                )

    def check_cases(self, cases: Iterable[str], part: str) -> None:
        if part != NUMBERS:
            return super().check_cases(cases, part)
        super().check_cases({*cases, SHARED}, part)
        kept = _read(self.path(part))
        shared = kept.pop(SHARED)
        named: set[str] = set()
        while (more := set(_names([kept, *(shared[n] for n in named)]))) != named:
            named = more
        if RECORDING:
            return super().check(part, SHARED, {name: shared[name] for name in named})
        assert named == set(shared), "there are shared values that no case has"


def _short(value: Any, shared: dict[str, Any]) -> Any:
    """With large parts put into `shared`, the smallest ones first."""
    if isinstance(value, dict):
        short: Any = {str(key): _short(one, shared) for key, one in value.items()}
    elif isinstance(value, (list, tuple)):
        short = [_short(one, shared) for one in value]
    else:
        return value
    text = json.dumps(short, sort_keys=True)
    if len(text) < LARGE:
        return short
    name = "#" + hashlib.sha256(text.encode()).hexdigest()[:12]
    shared[name] = short
    return name


def _whole(value: Any, shared: dict[str, Any]) -> Any:
    if isinstance(value, str):
        return _whole(shared[value], shared) if value in shared else value
    if isinstance(value, dict):
        return {key: _whole(one, shared) for key, one in value.items()}
    return [_whole(one, shared) for one in value] if isinstance(value, list) else value


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and value.startswith("#"):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _names(one)


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


@cache
def _kept(path: Path) -> dict[str, Any]:
    return _read(path)
