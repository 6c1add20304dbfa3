"""Runs whose launcher was lost: what can be proved about them from what they left behind.

A run leaves a note in its staging folder: its name in the ledger, if it is charged, and who
launched it. The folder vanishes when the run ends in any way but a kill, or a job elsewhere whose
end is not known, so a note that is still there is that of a run under way or of a lost one. Of a
lost run nothing was released if no estimate ever left the workers; that is provable where the job
lived in the launcher's own process, which has ended, or where somebody declares that it is over.

A training writes down every round before it begins, so that a lost one is charged for those: in the
ledger, and in the staging folder, of which an older copy may be put back. The largest count is
charged.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apache_beam.io.filesystem import BeamIOError
from apache_beam.io.filesystems import FileSystems

from beam_ldp import whole_files
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.launcher import Ended, Launcher
from beam_ldp.release import outputs
from beam_ldp.release import worker_results as results
from beam_ldp.transforms.files import paths_matching, write_whole

if TYPE_CHECKING:
    from beam_ldp.ledger import Charge

NOTE = "run.json"
BEGUN = "begun"  # one byte for every round that began
WITHHELD = b"-"  # of one to which too few clients came; else "."
_TOKEN = "[0-9a-f]{8}"  # of an output folder: see `outputs`
_BINARY = "application/octet-stream"
_EVEN = 2_000_000_000  # nanoseconds


@dataclass(frozen=True)
class RoundsPrice:
    """What the rounds of a training cost that may be lost.

    Attributes:
        event: of one round, for a person who may be in it, as ledgers store it.
        sent: event of what that person sends in a round, where `event` says only what a trusted
            server publishes; else None.
        most: rounds that count at most: all, or those that one person may be in.
        most_sent: rounds that one person sends something in, at most; None: `most`.
    """

    event: dict[str, Any]
    sent: dict[str, Any] | None
    most: int
    most_sent: int | None = None

    @classmethod
    def reserved(cls, charge: Charge) -> RoundsPrice:
        """What the ledger reserved for a training: an event, repeated once a round."""
        from beam_ldp.ledger.losses import released, repetitions

        event, most = repetitions(released(charge.reserved))
        if charge.local_event is None:
            return cls(event, None, most)
        sent, most_sent = repetitions(charge.local_event)
        return cls(event, sent, most, most_sent)

    def event_of(self, rounds: int) -> dict[str, Any]:
        """What so many rounds released, as ledgers store it."""
        return _repeated(self.event, min(rounds, self.most))

    def sends_in(self, rounds: int) -> int:
        """In how many of them one person sends something, at most."""
        return min(rounds, self.most if self.most_sent is None else self.most_sent)

    def sent_in(self, rounds: int) -> dict[str, Any] | None:
        """What somebody sent who was in as many of them as may be."""
        return None if self.sent is None else _repeated(self.sent, self.sends_in(rounds))


def _repeated(event: dict[str, Any], times: int) -> dict[str, Any]:
    """Inverse of `losses.repetitions`."""
    if times == 1:
        return event
    import dp_accounting  # takes a second to load

    return event_to_json(dp_accounting.SelfComposedDpEvent(event_from_json(event), times))


@dataclass(frozen=True)
class Note:
    """What a run leaves in its staging folder.

    Attributes:
        run_id, ledger_id: its charge; "" where it is not charged.
        ends_with_launcher: whether the job lives in the launcher's process.
        launcher: who runs it.
        rounds: of a training; None of a release.
        attempt: which start of the run; None where there was but one.
        before: the start that this one takes over from, until the ledger says so.
        identity: what it releases, as `ReleaseIdentity.to_json` tells it.
        publications: name of the folder with hashes of its memoized reports, if there is one.
        overwrite: whether its output may replace another one.
    """

    run_id: str
    ledger_id: str
    ends_with_launcher: bool
    launcher: Launcher
    rounds: RoundsPrice | None = None
    attempt: str | None = None
    identity: dict[str, Any] | None = None
    publications: tuple[str, ...] = ()
    overwrite: bool = False
    before: str | None = None

    def write(self, staging: str) -> None:
        """Leave it in one step: the note before it stays until this one is whole."""
        content = outputs.as_json(asdict(self))
        if outputs.is_local(staging):
            path = Path(staging.removeprefix("file://")) / NOTE
            replace_file(path, content, mode=0o666)  # less the umask
            return
        write_whole(f"{staging}/{NOTE}", [content])

    def attempt_of(self, charge: Charge) -> str | None:
        """The start that may end the charge: this one, or the one that it was to take over from."""
        return self.before if charge.attempt == self.before else self.attempt

    @classmethod
    def read(cls, staging: str) -> Note | None:
        """What was left; None where that cannot be read."""
        try:
            with FileSystems.open(f"{staging}/{NOTE}", _BINARY, "uncompressed") as stream:
                told = json.loads(stream.read())
            rounds = told.get("rounds")
            told["rounds"] = None if rounds is None else RoundsPrice(**rounds)
            told["publications"] = tuple(told["publications"])
            return cls(**{**told, "launcher": Launcher(**told["launcher"])})
        except Exception:  # cut in the middle, or somebody else's
            return None


class UnderWayError(ValueError):
    """Another program runs this training, or settles it."""


class BegunRounds:
    """How many rounds of a training began, in its staging folder: on disk before each begins.

    Kept on local disks only. Whoever holds this runs the training, alone: the file is locked until
    it is closed, or until the process ends in whatever way.

    Attributes:
        count: rounds, or shuffled epochs, that began.

    Raises:
        UnderWayError: if somebody else holds it.
    """

    def __init__(self, staging: str) -> None:
        self._kept, self.count = outputs.is_local(staging), 0
        if self._kept:
            path = Path(staging.removeprefix("file://")) / BEGUN
            self._file = path.open("ab", buffering=0)
            if not _locked(self._file.fileno()):
                self._file.close()
                raise UnderWayError("another program runs or settles this training")
            self.count = os.fstat(self._file.fileno()).st_size
            whole_files.flush(path.parent)

    def begin(self, withheld: bool = False) -> None:
        """One more; whether its result will not be released, since too few clients came."""
        self._add(WITHHELD if withheld else b".")

    def raise_to(self, count: int) -> None:
        """Count at least so many: the ledger or the checkpoint knows of them."""
        if count > self.count:
            self._add(b"." * (count - self.count))

    def _add(self, marks: bytes) -> None:
        self.count += len(marks)
        if self._kept:
            self._file.write(marks)
            os.fsync(self._file.fileno())

    def close(self) -> None:
        """Somebody else may go on."""
        if self._kept:
            self._file.close()


def _locked(handle: int) -> bool:
    """Lock an open file, unless somebody else has or it was removed in the meantime."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return os.fstat(handle).st_nlink > 0


def replace_file(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Write a file in one step: there always is one that is whole. By default its owner alone reads
    it.

    Its time of writing is a whole even second, which every file system keeps. Whoever puts a copy
    in its place leaves another one (`was_put_back`).

    Raises:
        OSError: if the disk does not take it; the old one stays.
    """
    written = time.time_ns() // _EVEN * _EVEN
    whole_files.replace_file(
        path, content, mode=mode, time=written, aside=path.with_name(f".{path.name}")
    )


def was_put_back(path: Path) -> bool:
    """Whether a file of `replace_file` was written by another program, as `cp` does."""
    return path.stat().st_mtime_ns % _EVEN != 0


@dataclass(frozen=True)
class InterruptedRun:
    """A run that left its staging folder behind.

    Attributes:
        note: who it is.
        staging: the folder.
        output: where its output would be.
        record: its privacy record, where it was written; the output never appeared.
        is_finished: whether the whole output is there, and only has to be published.
        has_estimate: whether workers have left an estimate.
        declared: whether somebody who knows says that its job is over.
    """

    note: Note
    staging: str
    output: str
    record: dict[str, Any] | None
    is_finished: bool
    has_estimate: bool
    declared: bool = False

    @property
    def ended(self) -> Ended:
        """Whether the job is over: only a job inside a process that has ended surely is, or one of
        which somebody declares it."""
        found = self.note.launcher.ended
        if found == "under way" or self.declared:
            return "under way" if found == "under way" else "ended"
        return "unknown" if not self.note.ends_with_launcher else found

    @property
    def released_nothing(self) -> bool:
        """Whether that is proved."""
        if self.ended != "ended" or self.record is not None:
            return False
        return self.note.rounds is None and not self.has_estimate

    @property
    def begun(self) -> int | None:
        """Rounds of a training that began, as its file counts; None where that is not known.

        A backup that was put back tells of fewer. Most programs that do that set the time of the
        last write, which then is not that of the last change of the file.
        """
        try:
            found = os.stat(self._begun_path)
        except OSError:
            return None
        return found.st_size if found.st_mtime_ns == found.st_ctime_ns else None

    @property
    def _begun_path(self) -> Path:
        return Path(self.staging.removeprefix("file://")) / BEGUN

    @contextmanager
    def held(self) -> Iterator[bool]:
        """In the block nobody goes on with a training; gives whether that is so."""
        try:
            file = self._begun_path.open("rb")
        except OSError:  # no training on a local disk, of which nobody could go on with one
            yield True
            return
        with file:
            yield _locked(file.fileno())

    def remove(self) -> None:
        """Remove all that it left, so that nothing of it can ever be released."""
        self._folder.discard()
        outputs.remove(_beside(self.staging, "partial"))
        outputs.remove(self.staging)

    def publish(self) -> None:
        """The finished output appears.

        Raises:
            OutputError: if another one came there in the meantime.
        """
        self._folder.publish()
        outputs.remove(self.staging)

    @property
    def _folder(self) -> outputs.OutputFolder:
        token = self.staging.rpartition("-")[2]
        return outputs.OutputFolder(self.output, self.note.overwrite, token, checked=False)


def find_interrupted_runs(output: str, *, declared: bool = False) -> list[InterruptedRun]:
    """The runs with this output that left a note. Some may still be under way.

    Args:
        output: of the runs.
        declared: see `InterruptedRun`.
    """
    found = []
    for staging in lost_stagings(output):
        note = Note.read(staging)
        if note is not None:
            releases, _ = results.read_releases(staging)
            finished = _beside(staging, outputs.FINISHED)
            record = _record(finished, note.run_id)
            is_finished = bool(record) and outputs.is_whole(finished)
            if record is None:
                record = _record(_beside(staging, "partial"), note.run_id)
            found.append(
                InterruptedRun(note, staging, output, record, is_finished, bool(releases), declared)
            )
    return found


def unknown_leftovers(output: str) -> list[str]:
    """Folders beside a local output that a run has left of which no note tells whose they are."""
    if not outputs.is_local(output):
        return []
    target = Path(output.rstrip("/").removeprefix("file://")).absolute()
    known = {run.staging.rpartition("-")[2] for run in find_interrupted_runs(output)}
    ours = re.compile(re.escape(f".{target.name}.") + f"(staging|partial)-({_TOKEN})")
    found = [(path, ours.fullmatch(path.name)) for path in target.parent.glob(".*")]
    return sorted(str(path) for path, name in found if name and name[2] not in known)


def _beside(staging: str, kind: str) -> str:
    head, _, token = staging.rpartition(".staging-")
    return f"{head}.{kind}-{token}"


def lost_stagings(output: str) -> list[str]:
    """The staging folders of runs with this output."""
    path = output.rstrip("/")
    if outputs.is_local(path):
        target = Path(path.removeprefix("file://")).absolute()
        ours = re.compile(re.escape(f".{target.name}.staging-") + _TOKEN)
        return sorted(str(p) for p in target.parent.glob("*") if ours.fullmatch(p.name))
    notes = paths_matching(f"{path}.staging-*/{NOTE}", or_none=True)
    folders = (note.rpartition("/")[0] for note in notes)
    ours = re.compile(re.escape(f"{path}.staging-") + _TOKEN)
    return sorted(folder for folder in folders if ours.fullmatch(folder))


def _record(partial: str, run_id: str) -> dict[str, Any] | None:
    """The record that a run had written when it was lost; anything that is there counts."""
    path = f"{partial}/privacy.json"
    try:
        if not FileSystems.exists(path):
            return None
        with FileSystems.open(path, _BINARY, "uncompressed") as stream:
            found = json.loads(stream.read())
    except (ValueError, RecursionError, OSError, BeamIOError):
        return {}
    ours = isinstance(found, dict) and (found.get("run_id") or "") == run_id
    return found if ours else {}
