"""What a stage accepts, checked when the pipeline is built, and what it counts when it runs.

Beam lets an untyped collection through every check. After `Randomize` that would let raw values
reach the collector, so the later stages refuse anything whose type is not the one they take, and
say which stage is missing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.transforms import window as windows
from apache_beam.transforms.trigger import AccumulationMode, AfterWatermark, DefaultTrigger
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import typehints

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.transforms.elements.blocks import (
    Release,
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    ValueBlock,
    WithheldRelease,
)

Task = Literal["frequency", "mean"]

# Each type with the stage that makes it, in the order of the pipeline: the stage for frequencies
# and the one for means, where they differ.
_MADE_BY: tuple[tuple[tuple[type, ...], str, str], ...] = (
    ((ValueBlock,), "EncodeRows", "EncodeVectors"),
    ((ReportBlock,), "Randomize", "Randomize"),
    ((ShuffledBlock, ShuffledSum), "Shuffle", "Shuffle"),
    ((StatisticBlock,), "Aggregate", "Aggregate"),
    ((Release,), "EstimateFrequencies", "EstimateMean"),
)
_KEYS = (str, int, bytes)
_MAIN = "main"


class StageError(TypeError):
    """A stage was given what it does not take; the message names the missing stage."""


@dataclass(frozen=True)
class Element:
    """The declared element type of a collection.

    Attributes:
        kind: the block class, or whatever else was declared.
        key: type of the key; None where elements are not `(key, block)`.
    """

    kind: Any
    key: Any = None

    @property
    def keyed(self) -> bool:
        return self.key is not None

    @property
    def is_any(self) -> bool:
        return self.kind == typehints.Any

    def of(self, kind: type) -> Any:
        """The type hint of the same element with another block in it."""
        return typehints.Tuple[self.key, kind] if self.keyed else kind


def element_of(pcoll: beam.PCollection) -> Element:
    """The declared type, taken apart into key and block."""
    hint = pcoll.element_type
    parts = getattr(hint, "tuple_types", None)
    if parts is not None and len(parts) == 2:
        return Element(parts[1], parts[0])
    return Element(typehints.Any if hint is None or hint is object else hint)


def expect(
    stage: str, pcoll: beam.PCollection, *accepted: type, task: Task | None = None
) -> Element:
    """The element type of `pcoll`, which must be one of `accepted`, with or without a key.

    `task` is what the pipeline asks for, where the stage knows it; it names the missing stages.

    Raises:
        StageError: otherwise; untyped collections are refused.
    """
    element = element_of(pcoll)
    if element.kind in accepted:
        check_key(stage, element)
        return element
    names = " or ".join(kind.__name__ for kind in accepted)
    raise StageError(
        f"{stage} takes {names}, got {_name(element.kind)}: {_advice(element, accepted, task)}"
    )


def expect_unshuffled(stage: str, pcoll: beam.PCollection) -> None:
    """Refuse what has left a shuffler: to say whose it is would undo the shuffle.

    Raises:
        StageError: for the blocks of `Shuffle` and of the stages behind it.
    """
    element = element_of(pcoll)
    if element.kind in (ShuffledBlock, ShuffledSum, StatisticBlock, Release, WithheldRelease):
        raise StageError(
            f"{stage} belongs before the shuffle, got {_name(element.kind)}: behind it, reports "
            "would have to be linked to people again"
        )


def typed_outputs(
    pcoll: beam.PCollection, label: str, doer: beam.ParDo, main: Any, **others: Any
) -> list[beam.PCollection]:
    """What a step puts out: the main collection, then those with a tag, each of its declared type.

    Args:
        pcoll: what goes in.
        label: of the step.
        doer: what it does.
        main: type of the elements without a tag.
        **others: tags, with the types of their elements.
    """
    out = pcoll | label >> doer.with_outputs(*others, main=_MAIN)
    found = []
    for tag, kind in {_MAIN: main, **others}.items():
        out[tag].element_type = kind
        found.append(out[tag])
    return found


def check_key(stage: str, element: Element) -> None:
    """Refuse keys by which an engine cannot group."""
    if element.keyed and element.key not in _KEYS:
        raise StageError(
            f"{stage} takes keys of type str, int or bytes, got {_name(element.key)}: NumPy "
            "and other keys do not group reliably"
        )


def _made_by(rank: int, task: Task | None) -> str:
    _, frequency, mean = _MADE_BY[rank]
    if task is None and frequency != mean:
        return f"{frequency} or {mean}"
    return mean if task == "mean" else frequency


def _advice(element: Element, accepted: tuple[type, ...], task: Task | None) -> str:
    target = _rank(accepted[0])
    if element.is_any:
        return (
            f"only the typed output of {_made_by(target, task)} goes in; apply it first, and "
            "declare the type after a step of your own with .with_output_types(...)"
        )
    found = _rank(element.kind)
    if found > target:
        return f"these elements are already past {_made_by(target + 1, task)}"
    first = max(found + 1, min(target, 1))
    missing = [_made_by(rank, task) for rank in range(first, target + 1)]
    return f"put {' and then '.join(missing)} before it"


def _rank(kind: type) -> int:
    for i, (kinds, *_) in enumerate(_MADE_BY):
        if kind in kinds:
            return i
    return -1


def _name(hint: Any) -> str:
    return (
        "elements of undeclared type"
        if hint == typehints.Any
        else getattr(hint, "__name__", str(hint))
    )


def check_windows(stage: str, pcoll: beam.PCollection, public_bounds: bool = False) -> None:
    """Refuse windows in which one report would be released more than once.

    `public_bounds` says that the bounds of sessions are declared public.

    Raises:
        ValueError: for sliding windows, for session windows whose bounds are not public, and for
            accumulating panes.
    """
    windowing = pcoll.windowing
    if isinstance(windowing.windowfn, windows.SlidingWindows):
        raise ValueError(
            f"{stage} refuses sliding windows: overlapping releases expose the difference of two "
            "of them. Use FixedWindows(period) and add the panes with SlidingSums(size, period)"
        )
    if isinstance(windowing.windowfn, windows.Sessions) and not public_bounds:
        raise ValueError(
            f"{stage} refuses session windows: their bounds are the times of single events. Use "
            "FixedWindows, or declare these times public with WindowRules(public_bounds=True)"
        )
    if windowing.accumulation_mode == AccumulationMode.ACCUMULATING:
        raise ValueError(
            f"{stage} refuses accumulating panes: they would release the same reports twice. "
            "Use accumulation_mode=AccumulationMode.DISCARDING"
        )


def check_fires_once(stage: str, pcoll: beam.PCollection, otherwise: str) -> None:
    """Refuse windows that fire more than once, where all rows must meet before the first leaves.

    Args:
        stage: name of the stage, for messages.
        pcoll: its input.
        otherwise: what would go wrong.

    Raises:
        ValueError: for early and late firings, and for allowed lateness.
    """
    if not fires_once(pcoll):
        raise ValueError(
            f"{stage} needs windows that fire once, without allowed_lateness and without triggers "
            f"before or after the window's end: {otherwise}"
        )


def fires_once(pcoll: beam.PCollection) -> bool:
    """Whether every window gives all it has at once."""
    return _has_plain_trigger(pcoll) and not pcoll.windowing.allowed_lateness > 0


def _has_plain_trigger(pcoll: beam.PCollection) -> bool:
    trigger = pcoll.windowing.triggerfn
    return isinstance(trigger, DefaultTrigger) or (
        isinstance(trigger, AfterWatermark) and trigger.early is None and trigger.late is None
    )


def is_streamed(pcoll: beam.PCollection) -> bool:
    """Whether windows are closed by the timers of `elements.windows`.

    Bounded data have no late rows: Beam's own grouping does there, but for sessions, which would
    be merged anew at every grouping.
    """
    sessions = isinstance(pcoll.windowing.windowfn, windows.Sessions)
    return sessions or not pcoll.is_bounded


def check_streamed(stage: str, pcoll: beam.PCollection) -> None:
    """Refuse unbounded data of which a report could be released twice, or never.

    Raises:
        ValueError: for windows without an end, and for triggers of one's own.
    """
    windowing = pcoll.windowing
    if not isinstance(windowing.windowfn, (windows.FixedWindows, windows.Sessions)):
        raise ValueError(
            f"{stage} needs FixedWindows for unbounded data, got "
            f"{type(windowing.windowfn).__name__}: the threshold and the privacy cost are per "
            "window, which must end before anything can be released"
        )
    if not _has_plain_trigger(pcoll):
        raise ValueError(
            f"{stage} refuses triggers for unbounded data: an early pane would be a separate "
            "release of few reports, with its own privacy cost, and late rows are gathered until "
            "allowed_lateness is over and then released once. Do not set a trigger"
        )


def is_global(pcoll: beam.PCollection) -> bool:
    """Whether all elements share one window."""
    return isinstance(pcoll.windowing.windowfn, windows.GlobalWindows)


# Which part of a release something is, and what is said about one that did not happen -----


NO_KEY = ""  # the key of collections without keys
USED_UP = "the windows of the budget are used up"
TOO_FEW = "fewer reports than min_reports"


def window_bounds(window: Any) -> tuple[int, int] | None:
    """Start and end in microseconds since 1970; None for the global window."""
    if isinstance(window, GlobalWindow):
        return None
    return window.start.micros, window.end.micros


LATE_PART = " late"  # behind the name of a window: the part of its late reports


def part_of(identity: ReleaseIdentity, said: Release | WithheldRelease) -> ReleaseIdentity:
    """The identity of a window of a release: late reports of it, and sums of panes, are others.

    Memoized noise is drawn under that of the window, late or not: a person reports in it once.
    """
    if said.window is None:
        return identity
    window = identity.of_window(*said.window)
    kind = " sum" if getattr(said, "derived", False) else LATE_PART if said.late else ""
    return replace(window, part=window.part + kind)


def group_name(key: Any) -> str:
    """A key as the name of a public group."""
    return key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key)


# What the stages count, by name: Beam counters and distributions in a namespace of ours ----
#
# Every metric stands in `METRICS`, with what it means; no other can be made. None holds data: they
# count rows, reports and time, never by value. With `bad_rows="other"` or `"zero"` bad rows leave
# no trace in them.


NAMESPACE = "beam_ldp"  # of all Beam metrics
BY_REASON = "_by_reason"  # end of the names that stand for one counter per reason


class Metric(NamedTuple):
    """One metric.

    Attributes:
        name: in the namespace `beam_ldp`; an end of `_by_reason` stands for every reason.
        kind: a sum, or count, sum, least and greatest.
        stage: that has it.
        meaning: what one of it is.
    """

    name: str
    kind: Literal["counter", "distribution"]
    stage: str
    meaning: str


METRICS = (
    Metric("rows_read", "counter", "encode", "rows that came in"),
    Metric("bad_rows", "counter", "encode", "rows that cannot be used and are listed"),
    Metric("bad_rows_by_reason", "counter", "encode", "the same, one counter per reason"),
    Metric("encode_block_rows", "distribution", "encode", "rows of a block that was encoded"),
    Metric("encode_microseconds", "distribution", "encode", "time for a thousand rows or more"),
    Metric("users", "counter", "BoundContributions", "persons, each with one row"),
    Metric("asks_left_out", "counter", "PerPersonFilter", "rows of people whose budget the "
           "question would exceed"),
    Metric("reports_randomized", "counter", "Randomize", "reports made, attempts that an engine "
           "threw away included where it counts those"),
    Metric("randomize_block_reports", "distribution", "Randomize", "reports of a block"),
    Metric("randomize_microseconds", "distribution", "Randomize", "time for a thousand reports or "
           "more"),
    Metric("reports_written", "counter", "WriteReports", "reports packed into envelopes"),
    Metric("envelopes_read", "counter", "ReadReports", "sound envelopes, copies included"),
    Metric("envelopes_refused", "counter", "ReadReports", "envelopes that were "
           "refused, and ranges of other bytes"),
    Metric("envelopes_refused_by_reason", "counter", "ReadReports", "the same, one per reason"),
    Metric("envelopes_repeated", "counter", "ReadReports", "copies, not counted again"),
    Metric("reports_received", "counter", "ReadReports", "reports that went on to the shuffle"),
    Metric("shuffle_reports_in", "counter", "Shuffle", "reports that came in"),
    Metric("shuffle_block_reports", "distribution", "Shuffle", "reports of a block that came in"),
    Metric("shuffle_microseconds", "distribution", "Shuffle", "time for a block that came in"),
    Metric("reports_released", "counter", "Shuffle", "reports that left, or whose sum did"),
    Metric("reports_withheld", "counter", "Shuffle", "reports of crowds that were too small"),
    Metric("shuffled_reports_written", "counter", "WriteShuffledReports", "shuffled reports put "
           "into files"),
    Metric("aggregate_reports_in", "counter", "Aggregate", "reports, or reports behind the sums, "
           "that came in"),
    Metric("aggregate_block_reports", "distribution", "Aggregate", "reports of a block, or behind "
           "a sum"),
    Metric("aggregate_microseconds", "distribution", "Aggregate", "time for a block or sum"),
    Metric("releases", "counter", "estimate", "releases"),
    Metric("estimates_withheld", "counter", "estimate", "sums of too few reports"),
    Metric("estimate_microseconds", "distribution", "estimate", "time for a release"),
    Metric("unsettled", "counter", "ChargeTo", "releases that could not be settled because the "
           "ledger could not be reached: they stay charged at their worst case"),
)  # fmt: skip

_KINDS = {metric.name: metric.kind for metric in METRICS}


def counter(name: str) -> Any:
    """A counter of the list. Raises KeyError for any other name."""
    return Metrics.counter(NAMESPACE, _of_kind(name, "counter"))


def distribution(name: str) -> Any:
    """A distribution of the list. Raises KeyError for any other name."""
    return Metrics.distribution(NAMESPACE, _of_kind(name, "distribution"))


def _of_kind(name: str, kind: str) -> str:
    if _KINDS.get(name) != kind:
        raise KeyError(f"{name} is no {kind} of the list in beam_ldp.transforms.elements.stages")
    return name


def reason_name(name: str, reason: str) -> str:
    """Name of the counter of one reason.

    >>> reason_name("bad_rows_by_reason", "no user id")
    'bad_rows_no_user_id'
    """
    return name.removesuffix(BY_REASON) + "_" + re.sub(r"[^a-z0-9]+", "_", reason.lower())


class ReasonCounters:
    """One counter per reason. Reasons are fixed phrases."""

    def __init__(self, name: str) -> None:
        self._name = _of_kind(name, "counter")

    def inc(self, reason: str, count: int = 1) -> None:
        """So many more for this reason."""
        Metrics.counter(NAMESPACE, reason_name(self._name, reason)).inc(count)


CROWD = 1000  # rows or reports whose time is told as one, where it is work on raw values


class Stopwatch:
    """Times what runs inside of `with timed():`, in whole microseconds.

    Args:
        name: of the distribution.
        least: tell no time of fewer rows or reports than these: what falls short is told together
            with what follows. The time of one person's report could tell their value.
    """

    def __init__(self, name: str, least: int = 1) -> None:
        self._found = distribution(name)
        self._least = least
        self._nanoseconds = self._waiting = 0

    @contextmanager
    def __call__(self, count: int = 1) -> Iterator[None]:
        """Time work on `count` rows or reports."""
        began = time.perf_counter_ns()
        yield
        self._nanoseconds += time.perf_counter_ns() - began
        self._waiting += count
        if self._waiting >= self._least:
            self._found.update(self._nanoseconds // 1000)
            self._nanoseconds = self._waiting = 0


class BlockCounters:
    """What a stage counts of the blocks that come in.

    Args:
        stage: "shuffle" or "aggregate".
    """

    def __init__(self, stage: str) -> None:
        self._reports = counter(f"{stage}_reports_in")
        self._sizes = distribution(f"{stage}_block_reports")
        self.timed = Stopwatch(f"{stage}_microseconds")

    def add(self, num_reports: int) -> None:
        """One more block."""
        self._reports.inc(num_reports)
        self._sizes.update(num_reports)
