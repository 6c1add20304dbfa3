"""Windows that never end, each released once: when they close, what is late, what is said of it.

Beam drops late rows at every grouping, without a word. So nothing is grouped by Beam here: what
belongs to one group waits in one state outside of Beam's windows, and timers on the watermark close
the windows one by one. A window is released at most twice, with different people's reports: what
came in time, and what came late, each above the threshold or not at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

import apache_beam as beam
from apache_beam import coders
from apache_beam.coders.coders import IntervalWindowCoder
from apache_beam.options.pipeline_options import DebugOptions
from apache_beam.transforms import window as beam_windows
from apache_beam.transforms.timeutil import TimeDomain
from apache_beam.transforms.trigger import (
    AccumulationMode,
    AfterCount,
    AfterWatermark,
)
from apache_beam.transforms.userstate import (
    BagStateSpec,
    ReadModifyWriteStateSpec,
    TimerSpec,
    on_timer,
)
from apache_beam.transforms.window import IntervalWindow, TimestampedValue
from apache_beam.typehints import typehints
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Timestamp

from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import CandidateBlock, ReportBlock, StatisticBlock
from beam_ldp.transforms.elements.stages import typed_outputs

MILLISECOND = 1000  # microseconds; what engines count time in
SECOND = 1000 * MILLISECOND
# Milliseconds by which stages close early, see `WindowSchedule`.
SHUFFLE_EARLY, BOUNDING_EARLY = 2, 4
KEPT_FOR = 30 * 24 * 3600  # seconds in which groupings of releases take late ones in
COMPACT_AT = 64  # waiting blocks that are added up
_BEFORE_START = -(2**62)  # a clock that nothing has moved

TOO_LATE = "later than the allowed lateness"
LATE = "late, and late reports are not released"
Bounds = tuple[int, int]  # start and end of a window in microseconds since 1970
B = TypeVar("B")


@dataclass(frozen=True)
class WindowRules:
    """When windows of unbounded data close, and what becomes of late rows.

    How late a row may be is said where windows are made:
    `beam.WindowInto(FixedWindows(60), allowed_lateness=300)`.

    Args:
        late: "release" gathers the late reports of a window until its allowed lateness is over and
            then releases them, if there are enough, as a release of their own with its own price.
            "dead_letter" releases none of them. In both every late report that is not released is
            counted in `withheld`, with the reason.
        delay: seconds for which a window stays open after the watermark has passed its end, for
            sources whose watermark is a clock.
        public_bounds: declares that anybody may know when single rows were sent. Session windows
            need it: they begin and end at the time of one row.

    Raises:
        ValueError: for other values.
    """

    late: Literal["release", "dead_letter"] = "release"
    delay: float = 0.0
    public_bounds: bool = False

    def __post_init__(self) -> None:
        if self.late not in ("release", "dead_letter"):
            raise ValueError(f'late must be "release" or "dead_letter", got {self.late!r}')
        if not (math.isfinite(self.delay) and self.delay >= 0):
            raise ValueError(f"delay must be >= 0 seconds, got {self.delay}")


DEFAULT_RULES = WindowRules()


def keep_state_whole(pcoll: beam.PCollection) -> None:
    """Forbid Prism to split bundles; other engines do not know this experiment.

    Prism 2.77 hands the rest of a slow bundle to another worker while the first one still works on
    the same key, with a state that lacks what the first one adds: state would be lost.
    """
    pcoll.pipeline._options.view_as(DebugOptions).add_experiment("prism_disable_sdf_split")


@dataclass(frozen=True)
class WindowSchedule:
    """When a window closes and when it is forgotten.

    Attributes:
        delay: microseconds after its end until it closes.
        lateness: microseconds until late reports are released; 0: never.
        gather_late: whether late reports are released at all.
        early: microseconds by which all of it happens before. Timers hold the watermark: with two
            milliseconds more at every stage before, that stage's output is not late at this one.
        merging: windows that overlap are one: sessions.
    """

    delay: int
    lateness: int
    gather_late: bool
    early: int
    merging: bool

    @classmethod
    def of(
        cls, pcoll: beam.PCollection, rules: WindowRules, early_milliseconds: int
    ) -> WindowSchedule:
        gather = rules.late == "release"
        lateness = int(pcoll.windowing.allowed_lateness.micros) if gather else 0
        return cls(
            round(rules.delay * SECOND),
            lateness,
            gather,
            early_milliseconds * MILLISECOND,
            isinstance(pcoll.windowing.windowfn, beam_windows.Sessions),
        )

    def closes(self, bounds: Bounds) -> int:
        return bounds[1] + self.delay - self.early

    def expires(self, bounds: Bounds) -> int:
        return self.closes(bounds) + self.lateness

    def merged(
        self, waiting: Iterable[tuple[int, int, B]], closed: Iterable[Bounds] = ()
    ) -> list[tuple[Bounds, list[B]]]:
        """The blocks of each window, in the order of their starts.

        What is late stays apart, also where a late row reaches from a session that was released to
        one that is open: its person may report again there, and would be in one release twice.
        """
        parts: tuple[list[tuple[int, int, B]], ...] = [], []
        known = list(closed)
        for entry in waiting:
            parts[self.is_late(entry[:2], known)].append(entry)
        return sorted((*self._joined(parts[0]), *self._joined(parts[1])), key=lambda part: part[0])

    def _joined(self, waiting: Iterable[tuple[int, int, B]]) -> list[tuple[Bounds, list[B]]]:
        found: list[tuple[Bounds, list[B]]] = []
        for start, end, block in sorted(waiting, key=lambda entry: entry[:2]):
            last = found[-1][0] if found else None
            if last == (start, end) or (self.merging and last is not None and start < last[1]):
                found[-1] = ((last[0], max(last[1], end)), [*found[-1][1], block])
            else:
                found.append(((start, end), [block]))
        return found

    def is_late(self, bounds: Bounds, closed: Iterable[Bounds]) -> bool:
        """Whether something of this window was released already."""
        if self.merging:
            return any(start < bounds[1] and bounds[0] < end for start, end in closed)
        return bounds in closed


class AddWindow(beam.DoFn):
    """`(key, block)` to `(key, (start, end, block))`: the window as data."""

    def process(
        self, element: tuple[Any, Any], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        key, block = element
        yield key, (window.start.micros, window.end.micros, block)


class _WaitingCoder(coders.Coder):
    """One of the blocks that may wait, behind a byte that says which."""

    _kinds = (StatisticBlock, ReportBlock, CandidateBlock)

    def encode(self, value: Any) -> bytes:
        kind = self._kinds.index(type(value))
        return bytes([kind]) + BlockCoder(type(value)).encode(value)

    def decode(self, encoded: bytes) -> Any:
        return BlockCoder(self._kinds[encoded[0]]).decode(encoded[1:])

    def is_deterministic(self) -> bool:
        return True


_INTEGER = coders.VarIntCoder()
_ENTRY = coders.TupleCoder((_INTEGER, _INTEGER, _WaitingCoder()))
_DUE = TimerSpec("due", TimeDomain.WATERMARK)
WAITING = beam.DoFn.StateParam(BagStateSpec("waiting", _ENTRY))
NUM_WAITING = beam.DoFn.StateParam(ReadModifyWriteStateSpec("num_waiting", _INTEGER))
CLOSED = beam.DoFn.StateParam(BagStateSpec("closed", coders.TupleCoder((_INTEGER, _INTEGER))))
CLOCK = beam.DoFn.StateParam(ReadModifyWriteStateSpec("clock", _INTEGER))
DUE = beam.DoFn.TimerParam(_DUE)
# When the timer is set for. There is one per key, for the first of what is to come: Flink keeps
# every tag that a timer ever had in all its later checkpoints.
PLANNED = beam.DoFn.StateParam(ReadModifyWriteStateSpec("planned", _INTEGER))


@dataclass(frozen=True)
class WindowEnd(Generic[B]):
    """What becomes of a window that ends.

    Attributes:
        leaving: elements to put out.
        rest: what is kept until the allowed lateness is over.
    """

    leaving: list[Any]
    rest: B | None = None


@dataclass(eq=False)
class CloseWindows(beam.DoFn, Generic[B]):
    """What waits for the end of its window, per key; subclasses say what is done with it then.

    A window's end is judged by the key's own clock: the last of its timers. A window of which the
    key has seen nothing is not late, whenever it comes; what was released before is known until the
    allowed lateness is over, and from then on the clock tells. So no key releases anything of a
    window more than twice, and nothing but the open windows is kept.
    """

    schedule: WindowSchedule

    # What subclasses say ------------------------------------------------------------------------

    def add_up(self, blocks: list[B]) -> B:
        """Several blocks as one."""
        raise NotImplementedError

    def close(
        self, key: Any, bounds: Bounds, block: B, last: bool, late: bool
    ) -> WindowEnd[B] | None:
        """What leaves when a window ends, or its lateness; None to wait, unless it is the last."""
        raise NotImplementedError

    def refuse(self, key: Any, bounds: Bounds, block: B, reason: str) -> Iterator[Any]:
        """What is said of a block that came too late."""
        raise NotImplementedError

    # The clockwork ------------------------------------------------------------------------------

    def process(
        self,
        element: tuple[Any, tuple[int, int, B]],
        waiting: Any = WAITING,
        num_waiting: Any = NUM_WAITING,
        closed: Any = CLOSED,
        clock: Any = CLOCK,
        planned: Any = PLANNED,
        due: Any = DUE,
    ) -> Iterator[Any]:
        key, (start, end, block) = element
        bounds, now = (start, end), self._now(clock)
        if self.schedule.expires(bounds) <= now:
            reason = TOO_LATE if self.schedule.gather_late else LATE
            yield from self.refuse(key, bounds, block, reason)
            return
        waiting.add((start, end, block))
        count = (num_waiting.read() or 0) + 1
        if count >= COMPACT_AT:
            merged = self.schedule.merged(waiting.read(), closed.read())
            self._keep(waiting, num_waiting, [(b, self.add_up(blocks)) for b, blocks in merged])
        else:
            num_waiting.write(count)
        first, known = self._next([bounds], now), planned.read()
        if first is not None and (known is None or first < known):
            self._plan(due, planned, first)

    @on_timer(_DUE)
    def when_due(
        self,
        key: Any = beam.DoFn.KeyParam,
        time: Timestamp = beam.DoFn.TimestampParam,
        waiting: Any = WAITING,
        num_waiting: Any = NUM_WAITING,
        closed: Any = CLOSED,
        clock: Any = CLOCK,
        planned: Any = PLANNED,
        due: Any = DUE,
    ) -> Iterator[Any]:
        """Every window that is due by now."""
        now = max(self._now(clock), time.micros)
        clock.write(now)
        done: list[Bounds] = list(closed.read())
        left: list[tuple[Bounds, B]] = []
        for bounds, blocks in self.schedule.merged(waiting.read(), done):
            block = self.add_up(blocks)
            late = self.schedule.is_late(bounds, done)
            last = self.schedule.expires(bounds) <= now
            found = None
            if last or (self.schedule.closes(bounds) <= now and not late):
                found = self.close(key, bounds, block, last, late)
            rest = block if found is None else found.rest
            if rest is not None and not last:
                left.append((bounds, rest))
            if found is not None:
                if not late:
                    done.append(bounds)
                yield from found.leaving
        self._keep(waiting, num_waiting, left)
        closed.clear()
        coming = [bounds for bounds, _ in left]
        for bounds in done:
            waited_for = any(self.schedule.is_late(place, [bounds]) for place, _ in left)
            if self.schedule.expires(bounds) > now or waited_for:
                closed.add(bounds)
                coming.append(bounds)
        self._plan(due, planned, self._next(coming, now))

    def _now(self, clock: Any) -> int:
        found = clock.read()
        return _BEFORE_START if found is None else int(found)

    def _next(self, windows: Iterable[Bounds], now: int) -> int | None:
        """The first time after now at which one of the windows closes or is forgotten."""
        times = (
            at for bounds in windows for at in (self.schedule.closes(bounds),
                                                self.schedule.expires(bounds))
        )  # fmt: skip
        return min((at for at in times if now < at < MAX_TIMESTAMP.micros), default=None)

    def _plan(self, due: Any, planned: Any, at: int | None) -> None:
        """Set the timer anew. One in the past fires at once."""
        if at is None:
            planned.clear()
            return
        planned.write(at)
        due.set(Timestamp(micros=at))

    def _keep(self, waiting: Any, num_waiting: Any, left: list[tuple[Bounds, B]]) -> None:
        waiting.clear()
        for (start, end), block in left:
            waiting.add((start, end, block))
        num_waiting.write(len(left))


class _BoundsOfElement(beam_windows.NonMergingWindowFn):
    """The window that an element of `RestoreWindows` names."""

    def assign(self, context: beam_windows.WindowFn.AssignContext) -> list[IntervalWindow]:
        (start, end), _ = context.element
        return [IntervalWindow(Timestamp(micros=start), Timestamp(micros=end))]

    def get_window_coder(self) -> coders.Coder:
        return IntervalWindowCoder()


_AT_ONCE: dict[str, Any] = {
    "trigger": AfterWatermark(late=AfterCount(1)),
    "accumulation_mode": AccumulationMode.DISCARDING,
    "allowed_lateness": KEPT_FOR,
}


class RestoreWindows(beam.PTransform):
    """`((start, end), element)`s as elements of these windows, stamped with the window's end.

    Args:
        windows: the fixed windows that they are; others are taken from the elements.
        kind: the type of the elements.
        lateness: of the windows that come out. None, for releases: what groups them again must not
            lose late ones, so they may be a month late and leave at once.
    """

    def __init__(
        self, windows: beam_windows.WindowFn | None, kind: Any, lateness: Any = None
    ) -> None:
        super().__init__()
        self._how = _AT_ONCE if lateness is None else {"allowed_lateness": lateness}
        fixed = isinstance(windows, beam_windows.FixedWindows)
        self._windows = windows if fixed else _BoundsOfElement()
        self._kind = kind

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "Stamp" >> beam.Map(_at_end)
            | "Window" >> beam.WindowInto(self._windows, **self._how)
            | "Element" >> beam.Values().with_output_types(self._kind)
        )


def _at_end(element: tuple[Bounds, Any]) -> TimestampedValue:
    return TimestampedValue(element, Timestamp(micros=element[0][1] - MILLISECOND))


def close_windows(
    keyed: beam.PCollection,
    closing: CloseWindows[Any],
    *,
    leaving: tuple[str, Any],
    refused: tuple[str, str, Any],
    add_window: AddWindow | None = None,
    lateness: Any = None,
) -> list[beam.PCollection]:
    """`(key, block)`s of windows that never end to what leaves them and what is said of the rest.

    Args:
        keyed: `(key, block)`s; one key is held in one place.
        closing: what is done with a window that closes.
        leaving: label and type of what leaves.
        refused: tag of the rest in `closing`, label and type.
        add_window: how the window becomes data, where that is more than its bounds.
        lateness: as in `RestoreWindows`, of what leaves.
    """
    key, kind = keyed.element_type.tuple_types
    bounds: Any = typehints.Tuple[int, int]
    told = typehints.Tuple[key, typehints.Tuple[int, int, kind]]
    keep_state_whole(keyed)
    waiting = (
        keyed
        | "Add window" >> beam.ParDo(add_window or AddWindow()).with_output_types(told)
        | "Outside of windows" >> beam.WindowInto(beam_windows.GlobalWindows())
    )
    (label, type_), (tag, other_label, other_type) = leaving, refused
    closed, rest = typed_outputs(
        waiting,
        "Close windows",
        beam.ParDo(closing),
        typehints.Tuple[bounds, type_],
        **{tag: typehints.Tuple[bounds, other_type]},
    )
    windows = keyed.windowing.windowfn
    return [
        closed | label >> RestoreWindows(windows, type_, lateness),
        rest | other_label >> RestoreWindows(windows, other_type),
    ]
