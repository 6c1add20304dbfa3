"""What every way to shuffle shares: the gate, and sums of reports, inside a bundle and across.

Only sums cross the wire. What a mechanism adds up, squares for error bars included, is a function
of the multiset of reports, and so is whatever is computed from it: the price of a shuffled release
is that of the multiset itself, and covers it. (No sum of squares is asked of a secure sum, which is
trusted with nothing but the sum.)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import (
    ReportBlock,
    ShuffledSum,
    StatisticBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.portable import (
    BLOCK_BYTES,
    PortableDomain,
    PortableRandomizer,
    report_bytes,
    rows_in,
)
from beam_ldp.transforms.elements.stages import (
    NO_KEY,
    TOO_FEW,
    BlockCounters,
    Element,
    counter,
    group_name,
    is_global,
)

FOLD_BYTES = BLOCK_BYTES  # of reports that wait to be counted together
LARGE_STATISTIC = 1 << 18  # entries from which sums are combined in a tree
TREE_PARTS = 8


class MismatchError(ValueError):
    """Reports of one mechanism met the stage of another."""


def check_digest(stage: str, found: bytes, expected: bytes) -> None:
    """Stop the run where reports of one mechanism meet the stage of another."""
    if found != expected:
        raise MismatchError(
            f"{stage}: the reports were made by another mechanism or with other parameters than "
            "the randomizer of this stage"
        )


# What comes into a stage, and what it lets out ----------------------------------------------


@dataclass(frozen=True, eq=False)
class Gate:
    """Which reports come into a stage, and how many of them may leave it together.

    Attributes:
        stage: its name, for messages and counters.
        carried: the mechanism that made the reports.
        element: what comes in: blocks, with or without keys.
        min_reports: of a group and window; fewer release nothing.
        groups: the public list of groups, where blocks hold the reports of many. Inside the stage
            the index of a group is the key, and its name outside.
    """

    stage: str
    carried: PortableRandomizer
    element: Element
    min_reports: int = 1
    groups: PortableDomain | None = None

    @property
    def grouped(self) -> bool:
        """Whether blocks hold the reports of many groups."""
        return self.groups is not None

    def inside(self, kind: Any) -> Any:
        """Type of `(key, kind)` inside the stage."""
        return typehints.Tuple[int if self.grouped else self.element.key or str, kind]

    def outside(self, kind: Any) -> Any:
        """Type of `(key, kind)` that leaves the stage."""
        return typehints.Tuple[str if self.grouped else self.element.key or str, kind]


@dataclass(eq=False)
class TakesReports(beam.DoFn):
    """A step that takes blocks of reports in: of its own mechanism, and of groups where it has any.

    Args:
        gate: of the stage.
    """

    gate: Gate

    def setup(self) -> None:
        self.randomizer = self.gate.carried.randomizer
        self.digest = self.randomizer.config_digest()
        self.blocks = BlockCounters(self.gate.stage.lower())

    def accepted(self, element: Any) -> tuple[Any, Any]:
        """The key and the block, checked and counted.

        Raises:
            MismatchError: for reports of another mechanism.
            ValueError: where groups would be mixed.
        """
        key, block = element if self.gate.element.keyed else (NO_KEY, element)
        check_digest(self.gate.stage, block.mechanism_digest, self.digest)
        if isinstance(block, ReportBlock) and self.gate.grouped != (block.groups is not None):
            raise ValueError(
                f"{self.gate.stage} needs groups=... exactly where blocks hold groups: their "
                "reports would be mixed, or have no group"
            )
        self.blocks.add(block.num_reports)
        return key, block


def parts_of(key: Any, block: Any) -> Iterator[tuple[Any, Any]]:
    """`(key, rows)` of a block: each group that occurs by its index; all rows where it has none."""
    groups = getattr(block, "groups", None)
    return iter(((key, slice(None)),)) if groups is None else split_groups(groups)


class Exit:
    """Counts what leaves a stage and what does not, and names its group. Made on the worker."""

    def __init__(self, gate: Gate) -> None:
        self._least = gate.min_reports
        self._labels = None if gate.groups is None else gate.groups.load().labels
        self._released = counter("reports_released")
        self._withheld = counter("reports_withheld")

    def let_out(self, key: Any, count: int, what: Any) -> tuple[Any, Any]:
        """What leaves, under the public name of its group."""
        self._released.inc(count)
        return self._name(key), what

    def withhold(
        self,
        key: Any,
        count: int,
        bounds: tuple[int, int] | None,
        reason: str = TOO_FEW,
        late: bool = False,
    ) -> WithheldRelease:
        """What is said about reports of a group and window that are not released."""
        self._withheld.inc(count)
        group = None if key == NO_KEY else group_name(self._name(key))
        return WithheldRelease(count, self._least, reason, group=group, window=bounds, late=late)

    def _name(self, key: Any) -> Any:
        return key if self._labels is None else self._labels[key]


@dataclass(eq=False)
class LetsOut(beam.DoFn):
    """A step that lets reports out, or says why not.

    Args:
        gate: of the stage.
    """

    gate: Gate

    def setup(self) -> None:
        self.exit = Exit(self.gate)


def with_none(
    pcoll: beam.PCollection, gate: Gate, kind: type, none: Callable[[LocalRandomizer], Any]
) -> beam.PCollection:
    """The collection with an element of no reports: so none are withheld too, and said to be.

    Only where there is one crowd; elsewhere nobody knows of groups and windows without reports.

    Args:
        pcoll: `(key, kind)`s.
        gate: of the stage.
        kind: what stands for reports.
        none: makes one of no report.
    """
    if gate.element.keyed or gate.grouped or not is_global(pcoll):
        return pcoll
    one = beam.Map(_of_none, none, gate.carried).with_output_types(gate.inside(kind))
    start = pcoll.pipeline | "Start" >> beam.Impulse() | "No reports" >> one
    return (pcoll, start) | "With start" >> beam.Flatten()


def _of_none(
    _: bytes, none: Callable[[LocalRandomizer], Any], carried: PortableRandomizer
) -> tuple[str, Any]:
    return NO_KEY, none(carried.randomizer)


def split_groups(groups: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each group that occurs with its rows, in order. O(n log n)."""
    order = np.argsort(groups, kind="stable")
    bounds = np.flatnonzero(np.diff(groups[order])) + 1
    for rows in np.split(order, bounds):
        if len(rows):
            yield int(groups[rows[0]]), rows


# Sums of reports ----------------------------------------------------------------------------


def fold_at(randomizer: LocalRandomizer) -> int:
    """Reports that are counted together: as many as fit, or as repay adding a large statistic."""
    size = report_bytes(randomizer)
    statistic = int(np.prod(randomizer.statistic_shape)) * randomizer.statistic_dtype.itemsize
    return max(rows_in(FOLD_BYTES, size), statistic // (2 * size))


class RunningSum:
    """The sum of the reports of one key and window within a bundle.

    Reports wait until there are enough to make `accumulate` worth its fixed cost.
    """

    def __init__(self, randomizer: LocalRandomizer) -> None:
        self._randomizer = randomizer
        self._waiting: list[np.ndarray] = []
        self._num_waiting = 0
        self._sum: np.ndarray | None = None
        self._num_reports = 0
        self._smallest = 0
        self._simulated = False
        self._fold_at = fold_at(randomizer)

    def add(self, reports: np.ndarray, batch_size: int, simulated: bool) -> None:
        self._simulated |= simulated
        if not len(reports):
            return
        self._waiting.append(reports)
        self._num_waiting += len(reports)
        self._smallest = _smaller_batch(self._smallest, batch_size)
        if self._num_waiting >= self._fold_at:
            self._fold()

    def _fold(self) -> None:
        if not self._waiting:
            return
        single = len(self._waiting) == 1
        reports = self._waiting[0] if single else np.concatenate(self._waiting)
        part = self._randomizer.accumulate(reports)
        if self._sum is None:
            self._sum = np.array(part, dtype=self._randomizer.statistic_dtype)
        else:
            self._sum += part
        self._num_reports += self._num_waiting
        self._waiting, self._num_waiting = [], 0

    def total(self) -> StatisticBlock:
        self._fold()
        if self._sum is None:
            return zero_statistic(self._randomizer)
        return StatisticBlock(
            self._sum,
            self._num_reports,
            self._smallest,
            self._randomizer.config_digest(),
            self._simulated,
        )


def zero_statistic(randomizer: LocalRandomizer) -> StatisticBlock:
    """The sum of no reports."""
    zeros = np.zeros(randomizer.statistic_shape, dtype=randomizer.statistic_dtype)
    return StatisticBlock(zeros, 0, 0, randomizer.config_digest())


def as_released(total: StatisticBlock, late: bool = False) -> ShuffledSum:
    """A sum as it leaves the shuffler."""
    return ShuffledSum(
        total.statistic, total.num_reports, total.mechanism_digest, total.simulated, late
    )


def _smaller_batch(one: int, other: int) -> int:
    """The smaller of two sizes, of which zero means that there was no batch."""
    return min(one, other) if one and other else max(one, other)


class SumReports(TakesReports):
    """`ReportBlock`s or `ShuffledBlock`s to one `(key, StatisticBlock)` per bundle, key and window;
    with groups the key is the index of the group.
    """

    def start_bundle(self) -> None:
        self._sums: dict[Any, RunningSum] = {}

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        key, block = self.accepted(element)
        with self.blocks.timed():
            for part, rows in parts_of(key, block):
                running = self._sums.get((window, part))
                if running is None:
                    running = self._sums[window, part] = RunningSum(self.randomizer)
                reports = block.reports[rows]
                size = getattr(block, "batch_size", len(reports))
                running.add(reports, size, block.simulated)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for (window, key), running in self._sums.items():
            yield WindowedValue((key, running.total()), window.max_timestamp(), [window])
        self._sums = {}


@dataclass(eq=False)
class SumStatistics(beam.CombineFn):
    """Adds `StatisticBlock`s or `ShuffledSum`s. Only the first accumulator is changed in place."""

    carried: PortableRandomizer

    def create_accumulator(self) -> StatisticBlock:
        return zero_statistic(self.carried.randomizer)

    def add_input(
        self, accumulator: StatisticBlock, element: StatisticBlock | ShuffledSum
    ) -> StatisticBlock:
        check_digest("Aggregate", element.mechanism_digest, accumulator.mechanism_digest)
        if element.statistic.shape != accumulator.statistic.shape:
            raise MismatchError(
                f"Aggregate: a sum of shape {element.statistic.shape}, which another version of "
                f"beam-ldp made, does not add to one of {accumulator.statistic.shape}: finish what "
                "one version began with that version"
            )
        accumulator.statistic[...] += element.statistic
        smallest = getattr(element, "smallest_batch", element.num_reports)
        return replace(
            accumulator,
            num_reports=accumulator.num_reports + element.num_reports,
            smallest_batch=_smaller_batch(accumulator.smallest_batch, smallest),
            simulated=accumulator.simulated or element.simulated,
        )

    def merge_accumulators(self, accumulators: Iterable[StatisticBlock]) -> StatisticBlock:
        iterator = iter(accumulators)
        first = next(iterator, None)
        if first is None:
            return self.create_accumulator()
        for accumulator in iterator:
            first = self.add_input(first, accumulator)
        return first

    def extract_output(self, accumulator: StatisticBlock) -> StatisticBlock:
        return accumulator

    def get_accumulator_coder(self) -> BlockCoder:
        return BlockCoder(StatisticBlock)


def combine_sums(carried: PortableRandomizer, label: str) -> beam.PTransform:
    """`(key, StatisticBlock)`s to one per key; large ones in a tree, so that no worker sums all."""
    if int(np.prod(carried.randomizer.statistic_shape)) >= LARGE_STATISTIC:
        return label >> _CombineInTree(carried)
    return label >> beam.CombinePerKey(SumStatistics(carried))


@dataclass(eq=False, repr=False)
class _CombineInTree(beam.PTransform):
    """Sums parts of every key, then the parts; Beam's own fan-out would pickle what it sends."""

    carried: PortableRandomizer

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        key, block = pcoll.element_type.tuple_types
        part = typehints.Tuple[typehints.Tuple[key, int], block]
        return (
            pcoll
            | "Part" >> beam.ParDo(_ToPart()).with_output_types(part)
            | "Add in parts" >> beam.CombinePerKey(SumStatistics(self.carried))
            | "Drop part"
            >> beam.MapTuple(_drop_part).with_output_types(typehints.Tuple[key, block])
            | "Add parts" >> beam.CombinePerKey(SumStatistics(self.carried))
        )


class _ToPart(beam.DoFn):
    """Spreads the sums of a key over its parts, one after the other from a random one on."""

    def start_bundle(self) -> None:
        self._next = random.randrange(TREE_PARTS)

    def process(self, element: tuple[Any, StatisticBlock]) -> Iterator[Any]:
        key, total = element
        self._next = (self._next + 1) % TREE_PARTS
        yield (key, self._next), total


def _drop_part(place: tuple[Any, int], total: StatisticBlock) -> tuple[Any, StatisticBlock]:
    return place[0], total
