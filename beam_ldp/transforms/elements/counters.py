"""What the stages count, by name: Beam counters and distributions in the namespace `beam_ldp`.

Every metric stands in `METRICS`, with what it means; no other can be made. None holds data: they
count rows, reports and time, never by value. With `bad_rows="other"` or `"zero"` bad rows leave no
trace in them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

from apache_beam.metrics import Metrics

from beam_ldp.transforms.elements.portable import NAMESPACE

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
        raise KeyError(f"{name} is no {kind} of the list in beam_ldp.transforms.elements.counters")
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
