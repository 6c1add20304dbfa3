"""Where heads of the ledger are kept while it is used, and what is refused where they do not fit.

A database that is restored from a backup forgets what was spent since, and so would every audit of
it. A *sink* is a place that the restore does not reach: a file on another disk, an object store, a
tracking server. The ledger leaves its head there after each row, and looks there before it writes
one. Where the newest head there is not in the ledger any more, somebody set the ledger back:
nothing is written, and no further head is left, which would make the ledger acceptable again. The
same holds where a named sink is empty. Where it cannot be read, nothing is reserved or begun; what
was reserved may be settled.

A file costs a write to disk for each row, and every row's head is there before the call that wrote
it returns. Where a request for each row is too much, other sinks may lag, by a stated bound: see
`Lag`. Rows within it that a restore takes away are missed by nobody.

A ledger for which no sink is named has a file in this user's state directory
(`XDG_STATE_HOME/beam-ldp/anchors`). It holds what this user's programs on this machine saw of the
ledger, which is less than everything and enough to refuse a database that lacks any of it. Such a
file may be missing or unreadable: the ledger then goes on, and says so.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import os
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from beam_ldp import log_events
from beam_ldp.ledger.rows import NO_HASH, Anchor, ChainHead, Row
from beam_ldp.ledger.store import LedgerUnavailableError
from beam_ldp.whole_files import flush, replace_file

ANCHORS_VARIABLE = "BEAM_LDP_ANCHORS"
NO_ANCHORS = "none"  # as its value
OPENERS = "beam_ldp.anchor_sinks"  # entry points: by scheme, what opens a URL of it
RowAt = Callable[[int], Sequence[Row]]
_NOTHING = "Nothing may be charged to it, settled or released"
_TAIL = 1 << 13  # bytes of a file in which its newest anchors stand, however many wrote at once
_LINES = 1 << 11  # likewise, where they are one ledger's, in order: the last line, and a cut one
_LONGEST = 1 << 20  # bytes of such a file


class AnchorError(LedgerUnavailableError):
    """The ledger does not fit its anchors, or they cannot be read or left: nothing may be spent."""


class RolledBackError(AnchorError):
    """The ledger lacks rows that it had."""


class AnchorSink(Protocol):
    """A place for heads of ledgers that whoever restores the database does not reach."""

    @property
    def name(self) -> str:
        """What it is called in messages; never a password."""

    def last(self, ledger_id: str) -> Anchor | None:
        """The anchor of most rows; None if there is none of this ledger."""

    def put(self, anchor: Anchor) -> None:
        """Keep one; it is there to stay when this returns."""

    def all(self) -> list[Anchor]:
        """All that are there, for audits."""


@dataclass(frozen=True)
class Lag:
    """How far anchors may stay behind the ledger.

    However many programs write, and wherever they are killed, at most `every - 1` rows whose calls
    returned have no anchor; a program that ends by itself leaves none. What cannot be anchored
    within the bound is refused.

    Attributes:
        every: an anchor is left when so many rows have none yet; 1: after each row, before the
            call that wrote it returns.
        rows: with more rows than that without an anchor nothing is written: somebody writes
            without leaving any, or the sink itself was set back. At least `every`.
        seconds: how long a program trusts what it last read from the sink, and goes on while the
            sink is away; when it writes a row, none without an anchor stays that is older. 0: the
            sink is asked each time.
    """

    every: int = 1
    rows: int = 64
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.every <= self.rows:
            raise ValueError(f"every must lie in [1, rows], got {self.every} of {self.rows}")
        if not self.seconds >= 0:
            raise ValueError(f"seconds must be >= 0, got {self.seconds}")


INLINE, REMOTE = Lag(), Lag(every=8, rows=64, seconds=60.0)
_OF_SOME = Lag(rows=1 << 62)  # others write rows that this user's programs do not see


class Anchoring:
    """Leaves a ledger's heads in a sink, and refuses where they do not fit.

    Args:
        sink: where they are kept.
        lag: how far they may stay behind; default: not at all for a file.
        named: whether somebody asked for this sink. One that nobody did may be empty or away.
    """

    def __init__(self, sink: AnchorSink, lag: Lag = INLINE, *, named: bool = True) -> None:
        self._sink, self._lag, self._named = sink, lag, named
        self._known: Anchor | None = None  # the newest one that was read
        self._held: Anchor | None = None  # the newest one that the ledger was seen to hold
        self._asked = 0.0  # when, by this process's clock
        self._bare: tuple[str, ChainHead, RowAt, float] | None = None  # the last head, since when
        if lag.every > 1:
            atexit.register(_leave_last, weakref.ref(self))

    @property
    def sink(self) -> AnchorSink:
        return self._sink

    def check_before_reserve(self, ledger_id: str, head: ChainHead, row_at: RowAt) -> Anchor | None:
        """Refuse unless the ledger still holds what was anchored, and is anchored.

        Args:
            ledger_id: of the ledger.
            head: as it is now.
            row_at: gives the row of a number, and nothing where there is none.

        Returns:
            As `newest`.

        Raises:
            AnchorError: as of `check`, and if the sink cannot be read, or written where it must.
        """
        anchor = self.newest(ledger_id, must=True)
        if anchor is not None:
            self.check(anchor, head, row_at)
            bare = head.count - anchor.count
            if bare >= self._lag.every or (bare and self._age(anchor) > self._lag.seconds):
                self._put(ledger_id, head, row_at)
        return anchor

    def newest(self, ledger_id: str, *, must: bool = False) -> Anchor | None:
        """The newest anchor, of no rows if the sink holds none; None if nobody knows any.

        Of a sink that cannot be read, the one that was read last.

        Raises:
            AnchorError: if a named sink must be read and cannot.
        """
        known = self._known
        if known is not None and known.ledger_id != ledger_id:
            known = None
        if known is not None and time.monotonic() - self._asked <= self._lag.seconds:
            return known
        try:
            found = self._sink.last(ledger_id)
        except Exception as error:
            if not self._named:
                _say_not_anchored(self._sink.name)
            elif must:
                raise AnchorError(
                    f"{self._sink.name} cannot be read ({_why(error)}), so that it is "
                    "unknown what the ledger held. Nothing was reserved: a database that was reset "
                    "would be overspent"
                ) from None
            return known
        self._known, self._asked = found, time.monotonic()
        return found or Anchor(ledger_id, 0, NO_HASH, "")

    def check(self, anchor: Anchor, head: ChainHead, row_at: RowAt) -> None:
        """Refuse a ledger that does not go on from its newest anchor.

        Args:
            anchor: the newest one, read before the head.
            head, row_at: as for `check_before_reserve`.

        Raises:
            RolledBackError: if rows are gone or others.
            AnchorError: if the sink holds no anchor, or more rows lack one than may.
        """
        if head.count - anchor.count > self._lag.rows:  # others may have left anchors since
            self._asked = -math.inf
            anchor = self.newest(anchor.ledger_id, must=True) or anchor
        bare = head.count - anchor.count
        if not anchor.count:
            if head.count > 1 and self._named:
                raise AnchorError(
                    f"{self._sink.name} holds no anchor of ledger {anchor.ledger_id}, which has "
                    f"{head.count:,} rows: it is the wrong place, or was emptied. {_NOTHING}. If "
                    "anchoring begins now, audit the ledger and leave an anchor: `beam-ldp audit "
                    "--write-anchor`"
                )
            return
        self._check_contained(anchor, head, row_at)
        if bare > self._lag.rows:
            raise AnchorError(
                f"{bare:,} rows of ledger {anchor.ledger_id} have no anchor in {self._sink.name} "
                f"(the last one is of {anchor.time}); at most {self._lag.rows} may: somebody "
                f"writes without leaving anchors, or that place was reset. {_NOTHING}. Audit the "
                "ledger, then `beam-ldp audit --write-anchor`"
            )

    def after_append(self, ledger_id: str, head: ChainHead, row_at: RowAt) -> None:
        """Leave the ledger's new head, or wait for more rows if it may lag.

        Raises:
            RolledBackError: if the ledger does not hold the sink's newest anchor.
            AnchorError: if it cannot be left; the rows are written, and nothing may be released.
        """
        known = self._known
        bare = head.count - (known.count if known and known.ledger_id == ledger_id else 0)
        since = time.monotonic() if self._bare is None else self._bare[3]
        self._bare = ledger_id, head, row_at, since
        if bare >= self._lag.every or time.monotonic() - since > self._lag.seconds:
            self._put(ledger_id, head, row_at)

    def leave_last(self) -> None:
        """Leave the last head that this program wrote and has not left; programs do when they end.

        Raises:
            AnchorError: if it cannot be left.
        """
        if self._bare is not None:
            self._put(*self._bare[:3])

    def _check_contained(self, anchor: Anchor, head: ChainHead, row_at: RowAt) -> None:
        said = (
            f"Anchors in {self._sink.name} hold {anchor.count:,} rows of it at {anchor.time}. "
            f"{_NOTHING}: what was spent since would be spent again. Restore the newest "
            "copy of the database; if it is lost, `beam-ldp budget succeed --anchors "
            f"{self._sink.name} --from URL --ledger NEW_URL --why TEXT` makes a ledger that counts "
            "the lost rows at their worst"
        )
        if not self._named:
            said += (
                ". Only if the anchored rows were written to a copy that was made for a trial and "
                "never published anything, remove that file"
            )
        if anchor.count == head.count:
            same = anchor.hash == head.hash
        else:  # also where others appended, and left anchors, after the head was read
            rows = row_at(anchor.count - 1)
            if not rows:
                gone = anchor.count - head.count
                raise RolledBackError(f"the ledger was reset: {gone:,} rows are gone. {said}")
            same = rows[0].hash == anchor.hash
        if not same:
            raise RolledBackError(
                f"the ledger was reset, and continued differently from there. {said}"
            )
        self._held = anchor

    def _put(self, ledger_id: str, head: ChainHead, row_at: RowAt) -> None:
        """Leave a head, unless the sink holds a newer one; it must hold none of another chain."""
        try:
            anchor = self._sink.last(ledger_id)
            if anchor is not None and anchor != self._held:
                self._check_contained(anchor, head, row_at)
            if anchor is None or anchor.count < head.count:
                now = datetime.now(timezone.utc).isoformat(timespec="seconds")
                anchor = Anchor(ledger_id, head.count, head.hash, now)
                self._sink.put(anchor)
        except LedgerUnavailableError:
            raise
        except Exception as error:
            if not self._named:
                _say_not_anchored(self._sink.name)
                return
            raise AnchorError(
                f"{self._sink.name} cannot store an anchor ({_why(error)}): what is in "
                "the ledger stays charged, and nothing may be released until it does"
            ) from None
        self._known = self._held = anchor
        self._asked, self._bare = time.monotonic(), None

    def _age(self, anchor: Anchor) -> float:
        """Seconds since it was left; a time that cannot be read is long ago."""
        try:
            left = datetime.fromisoformat(anchor.time)
            return (datetime.now(timezone.utc) - left).total_seconds()
        except (ValueError, TypeError):
            return float("inf")


def _leave_last(anchoring: weakref.ref[Anchoring]) -> None:
    """When the process ends. Where the sink is away, the next program's reservation leaves it."""
    found = anchoring()
    if found is not None:
        with suppress(LedgerUnavailableError):
            found.leave_last()


# A file -------------------------------------------------------------------------------------------


class FileAnchors:
    """A file of JSON lines: appended under a lock, and on disk when `put` returns.

    Keep it where a restore of the database does not reach it: on another disk, or a mounted share.
    The folder must be there: a mount that is missing must not look like an empty file.

    Args:
        path: of the file.
        of_one: whether the file is one ledger's. Then its last line is that of most rows, and does
            not wait for the disk: what a loss of power takes is anchored again.
    """

    def __init__(self, path: str | Path, *, of_one: bool = False) -> None:
        self._path, self._of_one = Path(path), of_one

    @property
    def name(self) -> str:
        return str(self._path)

    def last(self, ledger_id: str) -> Anchor | None:
        """The anchor of most rows among the newest ones.

        Raises:
            OSError: if the file cannot be read, or its folder is not there.
        """
        if not self._path.parent.is_dir():
            raise FileNotFoundError(self._path.parent)
        if not self._path.exists():
            return None
        with self._path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            for tail in (_LINES if self._of_one else _TAIL, size):  # others may have written since
                file.seek(max(0, size - tail))
                lines = file.read().split(b"\n")[:-1]  # what has no end was cut in the writing
                found = [anchor for line in lines if (anchor := _anchor(line)) is not None]
                ours = [anchor for anchor in found if anchor.ledger_id == ledger_id]
                if ours or tail >= size:
                    break
        return max(ours, key=lambda anchor: anchor.count, default=None)

    def put(self, anchor: Anchor) -> None:
        """Append it.

        Raises:
            OSError: if the file cannot be written.
        """
        line = json.dumps(asdict(anchor)).encode() + b"\n"
        is_new = not self._path.exists()
        handle = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            _lock(handle)
            size = os.fstat(handle).st_size
            last = self.last(anchor.ledger_id) if self._of_one else None
            if last is not None and last.count >= anchor.count:  # another program was faster
                return
            if self._of_one and size > _LONGEST:  # only the last line is ever read
                replace_file(self._path, line, mode=0o644, durable=False)
                return
            if size and os.pread(handle, 1, size - 1) != b"\n":  # a writer was killed in a line
                line = b"\n" + line
            while line:
                line = line[os.write(handle, line) :]
            if not self._of_one:
                os.fsync(handle)
        finally:
            os.close(handle)  # and with it the lock
        if is_new and not self._of_one:
            flush(self._path.parent)

    def all(self) -> list[Anchor]:
        """All anchors of the file.

        A line that its writer was killed in is passed over: it says nothing.

        Raises:
            ValueError: if a whole line is none; it is named by its number.
            OSError: if it cannot be read.
        """
        found = []
        for number, line in enumerate(self._path.read_text("utf-8").splitlines(), 1):
            if not line.strip() or (line.startswith('{"') and not line.rstrip().endswith("}")):
                continue
            anchor = _anchor(line)
            if anchor is None:
                raise ValueError(f"anchors: line {number} of {self._path} is not an anchor")
            found.append(anchor)
        return found


def _anchor(line: str | bytes) -> Anchor | None:
    try:
        found = Anchor(**json.loads(line))
    except (ValueError, TypeError):
        return None
    return found if isinstance(found.count, int) else None


def _lock(handle: int) -> None:
    """Alone with the file; the system lets go when the process ends."""
    with suppress(ImportError):  # Windows: appends of one line are whole there too
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)


# By URL -------------------------------------------------------------------------------------------


def open_anchors(where: str | AnchorSink | Anchoring | None = None) -> Anchoring | None:
    """What a ledger is anchored in.

    Args:
        where: a sink; or a URL: `file:///path`, or of a scheme that an installed package opens
            (entry points `beam_ldp.anchor_sinks`), with `?every=8&rows=64&seconds=60` for a `Lag`;
            default: the environment variable BEAM_LDP_ANCHORS; None if that is not set, or "none".

    Raises:
        ValueError: for a URL of an unknown scheme, or a lag that is none.
    """
    if isinstance(where, Anchoring):
        return where
    where = where or os.environ.get(ANCHORS_VARIABLE) or None
    if where is None or where == NO_ANCHORS:
        return None
    if not isinstance(where, str):
        return Anchoring(where)
    bare, _, query = where.partition("?")
    return Anchoring(open_sink(bare), _lag(query, INLINE if _is_file(bare) else REMOTE))


def usual_anchors(ledger_id: str) -> Anchoring | None:
    """Where a ledger is anchored for which nothing is named; None where that cannot be written."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # as the specification of that variable has it
        state = os.path.expanduser("~/.local/state")
    folder = Path(state) / "beam-ldp" / "anchors"
    # Whoever made the database chose its name, which is no name of a file.
    path = folder / f"{hashlib.sha256(ledger_id.encode()).hexdigest()[:32]}.jsonl"
    if os.environ.get(ANCHORS_VARIABLE) == NO_ANCHORS:
        return None
    try:
        if not folder.is_absolute():  # there is no home
            raise FileNotFoundError
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError:
        _say_not_anchored(str(folder))
        return None
    return Anchoring(FileAnchors(path, of_one=True), _OF_SOME, named=False)


_said: set[str] = set()


def _say_not_anchored(place: str) -> None:
    """Once, that a restored backup would not be noticed."""
    if place not in _said:
        _said.add(place)
        log_events.say(log_events.NOT_ANCHORED, place=place)


def open_sink(url: str) -> AnchorSink:
    """The sink of a URL (a path is a file's), without a lag.

    Raises:
        ValueError: for an unknown scheme.
    """
    if _is_file(url):
        return FileAnchors(_path(url))
    scheme = urlsplit(url).scheme.partition("+")[0]
    for found in metadata.entry_points(group=OPENERS):
        if found.name == scheme:
            opened: AnchorSink = found.load()(url)
            return opened
    raise ValueError(
        f"anchors must be at file:///path or at a URL that an installed package opens, got the "
        f"scheme {scheme[:40]!r}"
    )


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__


def _is_file(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def _path(url: str) -> str:
    return unquote(urlsplit(url).path) if url.startswith("file://") else url


def _lag(query: str, usual: Lag) -> Lag:
    """A lag from the query of a URL."""
    told = {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}
    unknown = sorted(set(told) - {"every", "rows", "seconds"})
    if unknown:
        raise ValueError(
            f"anchors: the URL may give every, rows and seconds, not {unknown[0][:40]}"
        )
    try:
        every = int(told.get("every", usual.every))
        rows = int(told.get("rows", max(every, usual.rows)))
        return Lag(every, rows, float(told.get("seconds", usual.seconds)))
    except ValueError as error:
        raise ValueError(f"anchors: the URL's lag is not valid ({error})") from None
