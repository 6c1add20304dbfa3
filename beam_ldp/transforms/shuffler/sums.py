"""Adding reports: inside a bundle, then across bundles. Only sums cross the wire."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import (
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
)
from beam_ldp.transforms.elements.counters import BlockCounters
from beam_ldp.transforms.elements.portable import (
    BLOCK_BYTES,
    PortableRandomizer,
    report_bytes,
    rows_in,
)
from beam_ldp.transforms.elements.stage_types import NO_KEY

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


def split_groups(groups: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Each group that occurs with its rows, in order. O(n log n)."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    bounds = np.flatnonzero(np.diff(ordered)) + 1
    for rows in np.split(order, bounds):
        if len(rows):
            yield int(groups[rows[0]]), rows


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


def _smaller_batch(one: int, other: int) -> int:
    """The smaller of two sizes, of which zero means that there was no batch."""
    return min(one, other) if one and other else max(one, other)


class SumReports(beam.DoFn):
    """`ReportBlock`s or `ShuffledBlock`s to one `(key, StatisticBlock)` per bundle, key and window.

    Args:
        stage: name of the stage, for messages.
        carried: the randomizer.
        keyed: elements are `(key, block)`.
        grouped: blocks hold the reports of many groups; the key is the index of the group.
    """

    def __init__(
        self, stage: str, carried: PortableRandomizer, keyed: bool, grouped: bool = False
    ) -> None:
        self._stage = stage
        self._carried = carried
        self._keyed = keyed
        self._grouped = grouped

    def setup(self) -> None:
        self._randomizer = self._carried.randomizer
        self._digest = self._randomizer.config_digest()
        self._blocks = BlockCounters(self._stage.lower())

    def start_bundle(self) -> None:
        self._sums: dict[Any, RunningSum] = {}

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        key, block = element if self._keyed else (NO_KEY, element)
        check_digest(self._stage, block.mechanism_digest, self._digest)
        self._blocks.add(len(block))
        with self._blocks.timed():
            self._add(key, block, window)

    def _add(self, key: Any, block: Any, window: Any) -> None:
        if isinstance(block, ShuffledBlock):
            self._sum_of(window, key).add(block.reports, block.batch_size, block.simulated)
            return
        check_groups(self._stage, block, self._grouped)
        if self._grouped:
            for group, rows in split_groups(block.groups):
                self._sum_of(window, group).add(block.reports[rows], len(rows), block.simulated)
        else:
            self._sum_of(window, key).add(block.reports, len(block), block.simulated)

    def _sum_of(self, window: Any, key: Any) -> RunningSum:
        found = self._sums.get((window, key))
        if found is None:
            found = self._sums[window, key] = RunningSum(self._randomizer)
        return found

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for (window, key), running in self._sums.items():
            yield WindowedValue((key, running.total()), window.max_timestamp(), [window])
        self._sums = {}


def check_groups(stage: str, block: ReportBlock, grouped: bool) -> None:
    """Stop the run where groups would be mixed."""
    if grouped != (block.groups is not None):
        raise ValueError(
            f"{stage} needs groups=... exactly where blocks hold groups: their reports would be "
            "mixed, or have no group"
        )


class SumStatistics(beam.CombineFn):
    """Adds `StatisticBlock`s or `ShuffledSum`s. Only the first accumulator is changed in place."""

    def __init__(self, carried: PortableRandomizer) -> None:
        self._carried = carried

    def create_accumulator(self) -> StatisticBlock:
        return zero_statistic(self._carried.randomizer)

    def add_input(
        self, accumulator: StatisticBlock, element: StatisticBlock | ShuffledSum
    ) -> StatisticBlock:
        check_digest("Aggregate", element.mechanism_digest, accumulator.mechanism_digest)
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


class _CombineInTree(beam.PTransform):
    """Sums parts of every key, then the parts; Beam's own fan-out would pickle what it sends."""

    def __init__(self, carried: PortableRandomizer) -> None:
        super().__init__()
        self._carried = carried

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        key, block = pcoll.element_type.tuple_types
        part = typehints.Tuple[typehints.Tuple[key, int], block]
        return (
            pcoll
            | "Part" >> beam.ParDo(_ToPart()).with_output_types(part)
            | "Add in parts" >> beam.CombinePerKey(SumStatistics(self._carried))
            | "Drop part"
            >> beam.MapTuple(_drop_part).with_output_types(typehints.Tuple[key, block])
            | "Add parts" >> beam.CombinePerKey(SumStatistics(self._carried))
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
