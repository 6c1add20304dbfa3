"""What a stream leaves: for each release one folder with its table and its price, never changed.

    OUT/stream.json                                               what is asked, by which run
    OUT/2026-11-21T20-00-00Z--2026-11-21T20-01-00Z/estimates.csv  the table of a window
    OUT/2026-11-21T20-00-00Z--2026-11-21T20-01-00Z/privacy.json   its price and its identity
    OUT/….berlin-1f2e3d4c/                                        of a group
    OUT/….late/                                                   of reports that came late
    OUT/….sum/                                                    of a sliding window
    OUT/….withheld-….json                                         what was not released, and why
    OUT.private/bad_rows/….jsonl                                  for the owner of the data alone

A release appears whole, in one step that fails where one is there already: its folder is written
aside and takes its name, and no folder takes the name of one that holds something. So price and
table never disagree, two workers that race leave one answer, and a step that an engine repeats
leaves the first one: nobody sees two noisy answers about the same reports. Single files take their
names as hard links, which fail likewise; on a file system without links a notice that was not there
a moment ago is renamed.

A stream whose launcher was lost goes on in its folder, as the run that it was, if it asks the very
same: then memoized noise is what it was, and what was released stays. Anything else in the same
folder, or under the same name, would be other reports of the same people beside the first ones.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import pyarrow as pa

from beam_ldp import whole_files
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.questions.base import Choice, finite
from beam_ldp.questions.tables import as_csv
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release.gates import BadRows
from beam_ldp.release.interrupted_runs import Note
from beam_ldp.release.outputs import (
    SCHEMA_VERSION,
    as_json,
    private_folder,
    write_private,
)
from beam_ldp.release.parts import Parts
from beam_ldp.release.run import Run
from beam_ldp.release.worker_results import bad_row_lines
from beam_ldp.settings import Charge, Output, SettingError
from beam_ldp.transforms.elements.blocks import BadRowBlock, Release, ValueBlock, WithheldRelease
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stages import LATE_PART, part_of
from beam_ldp.transforms.elements.windows import LATE, TOO_LATE

if TYPE_CHECKING:
    from beam_ldp.ledger import BudgetLedger

OPENED = ".opened"  # folder with one empty file per window that a row was seen of
_COMPLETE = "complete"  # file in it that shows that no mark is missing: see `_expect_marks`
_AT_ONCE = 2 * 10**9  # nanoseconds
BAD_ROWS = "bad_rows"
TABLE, PRICE = "estimates.csv", "privacy.json"
STREAM = "stream.json"
WRITING = ".writing"  # folder of what is not finished; only its owner may look into it


class WriteWindows(beam.PTransform):
    """Writes `Release`s of all questions, each as a folder with its table and its price; gives the
    folders.

    Args:
        folder: of the stream.
        run: how releases are priced and shown.
        identity: of the stream, if it has one.
    """

    def __init__(self, folder: str, run: Run, identity: ReleaseIdentity | None) -> None:
        super().__init__()
        self._doer = WriteRelease(folder, run, identity)

    def expand(self, releases: beam.PCollection) -> beam.PCollection:
        return releases | "Write" >> beam.ParDo(self._doer).with_output_types(str)


class WriteRelease(beam.DoFn):
    """What `WriteWindows` does. Workers are told neither lists, which they read, nor addresses."""

    def __init__(self, folder: str, run: Run, identity: ReleaseIdentity | None) -> None:
        job, choice = run.job, run.choice
        self._folder, self._identity, self._usage = folder, identity, run.usage
        self._job = replace(job, charge=Charge(), output=Output(top=job.output.top), files=())
        self._asked = run.asked.portable
        self._mechanism = PortableRandomizer(choice.mechanism)
        self._expected = choice.num_reports, choice.predicted_error

    def setup(self) -> None:
        num_reports, error = self._expected
        self._run = Run(self._usage, self._job, self._asked)
        self._run.choice = Choice(self._mechanism.randomizer, num_reports, None, error)
        self._run.asked = self._asked

    def process(self, release: Release) -> Iterator[str]:
        run, asked = self._run, self._asked
        found = release
        if asked.split is not None:
            parts = asked.split(run.choice.mechanism, release, asked.names)
            found = replace(Parts.of(parts, (), asked.name), group=release.group)
        view = run.view(found)
        table = view.table()
        for column in ("late", "derived"):
            value = pa.array([getattr(release, column)] * table.num_rows)
            table = table.append_column(column, value)
        told = told_of(found, run, self._identity)
        files = {TABLE: as_csv(table), **view.more_files(), PRICE: as_json(told)}
        yield publish_once(self._folder, name_of(release), files)


def told_of(release: Release, run: Run, identity: ReleaseIdentity | None) -> dict[str, Any]:
    """The price of a release, for programs. A sum of releases has none: its parts carry it."""
    bound, event = None, None
    if release.ran is not None:
        price = run.price(release)
        bound, event = price.bound, price.ran
    start, end = release.window or (0, 0)
    part = identity and part_of(identity, release)
    told = {
        "schema_version": SCHEMA_VERSION,
        "identity": None if part is None else part.to_json(),
        "identity_digest": None if part is None else part.digest.hex(),
        "question": release.question,
        **({} if release.group is None else {"group": release.group}),
        "window_start": iso(start),
        "window_end": iso(end),
        "late": release.late,
        "derived": release.derived,
        "simulated": release.simulated,
        "num_reports": release.num_reports,
        "local_epsilon": run.choice.mechanism.local_epsilon if event is not None else None,
        "epsilon": None if bound is None else float(bound),
        "delta": run.job.privacy.delta,
        "reader": "whoever sees the released tables",
        "method": None if bound is None else str(bound.method),
        "proof_status": None if bound is None else str(bound.proof_status),
        "mechanism": dict(release.mechanism),
        "postprocess": "none",
        **_facts(release, run),
        "event": None if event is None else event_to_json(event),
    }
    return certified(told)


_OF_PARTS = ("kind", "group_by", "parts", "withheld")  # what records of several releases tell


def _facts(release: Release, run: Run) -> dict[str, Any]:
    """What releases of its kind tell; of a sum only what holds without a price."""
    own = run.asked.facts(run.job, run.choice, release)
    return {
        name: finite(fact) if isinstance(fact, float) else fact
        for name, fact in (own if release.derived else run.facts(release)).items()
        if name not in _OF_PARTS
    }


class WriteWithheldReleases(beam.DoFn):
    """Writes what was not released, and why; counts, never rows.

    A window has one notice of each kind, so a step that an engine repeats leaves the first. Rows
    that are too late come again and again; each notice of them has a name of its own.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def process(self, withheld: WithheldRelease) -> None:
        told = asdict(withheld)
        start, end = told.pop("window")
        told |= {"window_start": iso(start), "window_end": iso(end)}
        kind = [told[part] for part in ("question", "group", "reason", "late")]
        again = uuid.uuid4().hex if withheld.reason in (LATE, TOO_LATE) else ""
        tag = hashlib.sha256(f"{kind}{again}".encode()).hexdigest()[:12]
        write_once(f"{self._folder}/{span(start, end)}.withheld-{tag}.json", as_json(told))


class WriteStreamBadRows(beam.DoFn):
    """Writes blocks of bad rows beside the stream's folder, one file each, for its owner alone."""

    def __init__(self, folder: str) -> None:
        self._folder = f"{private_folder(folder)}/{BAD_ROWS}"

    def process(self, rows: BadRowBlock) -> None:
        content = ("\n".join(bad_row_lines(rows)) + "\n").encode()
        name = (
            f"{hashlib.sha256(content).hexdigest()[:24]}.jsonl"  # a repeated step writes it again
        )
        write_private(f"{self._folder}/{name}", content)


class LeftOut:
    """The rows of a stream that could not be used since now, as workers list them.

    Args:
        folder: of the stream.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = Path(private_folder(str(folder)), BAD_ROWS)
        self._seen = {path.name for path in self._folder.glob("*.jsonl")}
        self._lines = b""

    def look(self) -> bool:
        """Take in what is new; whether there was any."""
        new = {path.name: path for path in self._folder.glob("*.jsonl")}
        new = {name: path for name, path in new.items() if name not in self._seen}
        self._lines += b"".join(path.read_bytes() for path in new.values())
        self._seen |= new.keys()
        return bool(new)

    @property
    def rows(self) -> BadRows:
        """All of them."""
        return BadRows.of(self._lines)


class MarkOpenWindows(beam.DoFn):
    """Leaves a mark of every window before the first of its values is randomized.

    So the launcher knows for how many windows people may have sent reports when it ends.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._marked: set[str] = set()

    def process(
        self, block: ValueBlock, window: Any = beam.DoFn.WindowParam
    ) -> Iterator[ValueBlock]:
        self.mark(window.start.micros, window.end.micros)
        yield block

    def mark(self, start: int, end: int) -> None:
        """Mark one window, by the name of its part of the stream, by which the ledger knows it."""
        name = ReleaseIdentity("stream", "stream").of_window(start, end).part
        if name not in self._marked:
            path = Path(self._folder, OPENED, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self._marked.add(name)


def _expect_marks(folder: Path) -> None:
    """Make the folder of marks before any worker starts, with a file that shows it is this one.

    A folder that workers made anew lacks the file, and in a copy, put back or not, the file has
    another inode or was changed later than it says: marks may be missing there.
    """
    (folder / OPENED).mkdir(exist_ok=True)
    with (folder / OPENED / _COMPLETE).open("x") as file:
        json.dump([os.fstat(file.fileno()).st_ino, time.time_ns()], file)


def _opened_windows(folder: Path) -> set[str] | None:
    """The windows that rows were seen of; None where marks may be missing."""
    proof = folder / OPENED / _COMPLETE
    try:
        inode, written = json.loads(proof.read_text("utf-8"))
        found = proof.stat()
        if found.st_ino != inode or abs(found.st_ctime_ns - written) > _AT_ONCE:
            return None
        return set(os.listdir(folder / OPENED)) - {_COMPLETE}
    except (OSError, ValueError, TypeError):
        return None


def publish_once(folder: str, name: str, files: dict[str, bytes]) -> str:
    """A folder of whole files, or nothing; one that is there stays as it is. Its path.

    Of two that write it at once one succeeds, and readers see either nothing or all of its files:
    a folder cannot be renamed to one that holds files.
    """
    target = Path(folder, name)
    if target.exists():  # so that no second answer is written at all, not even aside
        return str(target)
    aside = _aside(folder)
    try:
        aside.mkdir()
        for each, content in files.items():
            whole_files.write_new(aside / each, content, mode=0o666, durable=True)
        os.rename(aside, target)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return str(target)


def write_once(path: str, content: bytes) -> bool:
    """A whole file, or nothing; a file that is there stays as it is. Whether it was not there."""
    target = Path(path)
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    return whole_files.write_once(target, content, aside=_aside(str(target.parent)))


def leave_note(folder: Path, note: Note) -> None:
    """Leave word of who runs the stream, for `beam-ldp finalize` if this launcher is lost."""
    _aside(str(folder))
    note.write(str(folder / WRITING))


def note_of(folder: str) -> Note | None:
    """What the newest start of a stream left; None where that is not known."""
    return Note.read(f"{folder.rstrip('/').removeprefix('file://')}/{WRITING}")


def give_back_rest(ledger: BudgetLedger, run_id: str, folder: str, attempt: str | None) -> int:
    """Give back the windows that a stream did not use; how many.

    People of windows that were opened may have randomized: these keep their local part, and so do
    all where it is not known which were opened. Nothing is left of the stream then, so its marks
    are removed; before that, workers of a job that goes on may need them.

    Args:
        ledger, run_id, folder: of the stream.
        attempt: the start that gives back; one that was overtaken cannot.
    """
    charge, place = ledger.charge(run_id), Path(folder.removeprefix("file://"))
    left, opened = charge.count, _opened_windows(place)
    parts = ledger.state.population_of(charge.dataset).charges.values()
    ended = {p.identity.part for p in parts if p.group == run_id and not p.is_block} - {""}
    if opened is None or any(part.removesuffix(LATE_PART) not in opened for part in ended):
        still_open = left
    else:  # late reports are another part of a window, and no other window
        still_open = min(left, len(opened - ended))
    for count, randomized in ((still_open, True), (left - still_open, False)):
        if count:
            ledger.abandon(
                run_id,
                count=count,
                randomized=randomized,
                why="the stream was ended",
                attempt=attempt,
            )
    shutil.rmtree(place / OPENED, ignore_errors=True)
    return left


def forget_unfinished(folder: Path) -> None:
    """Remove what writers that were killed have left aside; only while nothing is written."""
    shutil.rmtree(folder / WRITING, ignore_errors=True)


def _aside(folder: str) -> Path:
    """A place of one's own beside the results."""
    place = Path(folder, WRITING)
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    return place / uuid.uuid4().hex


def name_of(release: Release) -> str:
    """The name of a release's folder."""
    start, end = release.window or (0, 0)
    kind = ".sum" if release.derived else ".late" if release.late else ""
    return span(start, end) + _slug(release.group) + kind


def _slug(group: str | None) -> str:
    """A group in a file name: what can be read of it, and what no other group has."""
    if group is None:
        return ""
    readable = re.sub(r"[^\w-]+", "-", group)[:40].strip("-")
    return f".{readable}-{hashlib.sha256(group.encode()).hexdigest()[:8]}"


def span(start: int, end: int) -> str:
    """A window in a file name."""
    return f"{_for_files(start)}--{_for_files(end)}"


def iso(micros: int) -> str:
    """A time in UTC."""
    moment = datetime.fromtimestamp(micros // 10**6, tz=timezone.utc)
    fraction = f".{micros % 10**6:06d}" if micros % 10**6 else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _for_files(micros: int) -> str:
    return iso(micros).replace(":", "-")


def read_folder(folder: Path, known: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """New releases and notices: `(name, content)` of prices, by their folders, and of notices.

    In the order in which they were written, so that who reads it all later has them alike.
    """
    new = []
    names = os.listdir(folder) if folder.is_dir() else []
    for name in set(names) - known:  # what is known is not looked at again
        notice = ".withheld-" in name and name.endswith(".json")
        path = folder / name if notice else folder / name / PRICE
        if not name.startswith(".") and path.is_file():
            new.append((path.stat().st_mtime_ns, name, path))
    for _, name, path in sorted(new):
        known.add(name)
        yield name, json.loads(path.read_text("utf-8"))


# Whose folder it is ---------------------------------------------------------------------------


def run_that_goes_on(
    folder: Path, identity: ReleaseIdentity | None, run_id: str | None
) -> str | None:
    """The run whose folder it is; None where it is a new one.

    Args:
        folder: of the output.
        identity: of the stream as it is asked for now; with a commitment to the key where noise is
            memoized.
        run_id: as it is asked for now, if it is.

    Raises:
        SettingError: if the folder holds anything else.
    """
    if not folder.exists() or not any(folder.iterdir()):
        return None
    told = _asked_in(folder)
    if told is None:
        raise SettingError(
            f"--output {folder} is not empty; a stream only adds files, so give it a new folder"
        )
    first = told["identity"] and ReleaseIdentity.from_json(told["identity"])
    if first is None or identity is None or not (first.key and identity.key):
        raise SettingError(
            f"--output {folder} holds a stream, which only memoized noise (--memoize-key-file) can "
            "continue: with fresh noise the same people would send second reports"
        )
    if first != identity:
        differs = ", ".join(first.differences(identity))
        raise SettingError(
            f"--output {folder} holds another stream: it differs in its {differs}. Give this one a "
            "new folder and a new release id"
        )
    if run_id not in (None, told["run_id"]):
        raise SettingError(
            f"--output {folder} belongs to run {told['run_id']}: a stream continues under its own "
            "--run-id"
        )
    return str(told["run_id"])


def begin(
    folder: Path, identity: ReleaseIdentity | None, run_id: str, *, marked: bool = False
) -> None:
    """Say whose folder it is, before anything is read.

    Args:
        folder, identity, run_id: of the stream.
        marked: whether workers will mark every window that they open.

    Raises:
        SettingError: if another stream began here in the meantime.
    """
    folder.mkdir(parents=True, exist_ok=True)
    told = {
        "schema_version": SCHEMA_VERSION,
        "run_id": run_id,
        "identity": None if identity is None else identity.to_json(),
    }
    if write_once(str(folder / STREAM), as_json(told)):
        if marked:
            _expect_marks(folder)
    elif _asked_in(folder) != told:
        raise SettingError(f"--output {folder}: another stream started here at the same moment")


def has_left_nothing(folder: str) -> bool:
    """Whether a stream ended as it should: one that was lost has left its note, or its marks."""
    place = Path(folder.removeprefix("file://"))
    return not ((place / WRITING).exists() or (place / OPENED).exists())


def run_of(folder: str) -> str | None:
    """The run of a stream; None for any other folder.

    Raises:
        SettingError: if it cannot be read.
    """
    told = _asked_in(Path(folder.removeprefix("file://")))
    return None if told is None else str(told["run_id"])


def _asked_in(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((folder / STREAM).read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise SettingError(f"{folder / STREAM} cannot be read") from None
    return found
