"""Shuffling data that never end: what belongs to one group and window is released when it closes.

Partial sums, or reports, of a group wait together in one place until their window ends. There they
are added up, or permuted together, and released if there are enough.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints import typehints
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.transforms.elements.blocks import (
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.counters import BlockCounters, counter
from beam_ldp.transforms.elements.portable import PortableRandomizer
from beam_ldp.transforms.elements.stage_types import NO_KEY, TOO_FEW, Element, GroupNames
from beam_ldp.transforms.elements.windows import (
    SHUFFLE_EARLY,
    AddWindow,
    Bounds,
    CloseWindows,
    RestoreWindows,
    WindowEnd,
    WindowRules,
    WindowSchedule,
    keep_state_whole,
)
from beam_ldp.transforms.shuffler.batches import permute
from beam_ldp.transforms.shuffler.sums import (
    SumReports,
    SumStatistics,
    check_digest,
    check_groups,
    split_groups,
)


class _GatherReports(beam.DoFn):
    """`ReportBlock`s to one `(key, ReportBlock)` per bundle, key and window; nothing else stays."""

    def __init__(self, carried: PortableRandomizer, keyed: bool, grouped: bool) -> None:
        self._carried = carried
        self._keyed = keyed
        self._grouped = grouped

    def setup(self) -> None:
        self._digest = self._carried.randomizer.config_digest()
        self._blocks = BlockCounters("shuffle")

    def start_bundle(self) -> None:
        self._held: dict[Any, list[ReportBlock]] = defaultdict(list)

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        key, block = element if self._keyed else (NO_KEY, element)
        check_digest("Shuffle", block.mechanism_digest, self._digest)
        check_groups("Shuffle", block, self._grouped)
        self._blocks.add(len(block))
        with self._blocks.timed():
            self._hold(key, block, window)

    def _hold(self, key: Any, block: ReportBlock, window: Any) -> None:
        if block.groups is None:
            self._held[window, key].append(block)
            return
        for group, rows in split_groups(block.groups):
            part = ReportBlock(block.reports[rows], self._digest, simulated=block.simulated)
            self._held[window, group].append(part)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for (window, key), blocks in self._held.items():
            yield WindowedValue((key, _concatenate(blocks)), window.max_timestamp(), [window])
        self._held = defaultdict(list)


def _concatenate(blocks: list[ReportBlock]) -> ReportBlock:
    """The reports of several blocks, without their origins and groups."""
    return ReportBlock(
        np.concatenate([block.reports for block in blocks]),
        blocks[0].mechanism_digest,
        simulated=any(block.simulated for block in blocks),
    )


class _Release(CloseWindows[Any]):
    """Lets the reports of a window out, or their sum, if there are enough.

    A window that ends with too few waits for late reports. They count together then, as one release
    at the price of all of them.
    """

    def __init__(
        self,
        schedule: WindowSchedule,
        carried: PortableRandomizer,
        min_reports: int,
        names: GroupNames,
    ) -> None:
        super().__init__(schedule)
        self._carried = carried
        self._min_reports = min_reports
        self._names = names

    def setup(self) -> None:
        self._names.load()
        self._released = counter("reports_released")
        self._kept = counter("reports_withheld")

    def add_up(self, blocks: list[Any]) -> Any:
        if len(blocks) == 1:
            return blocks[0]
        if isinstance(blocks[0], ReportBlock):
            return _concatenate(blocks)
        adder = SumStatistics(self._carried)
        return adder.merge_accumulators([adder.create_accumulator(), *blocks])

    def close(
        self, key: Any, bounds: Bounds, block: Any, last: bool, late: bool
    ) -> WindowEnd[Any] | None:
        count = _count(block)
        if count >= self._min_reports:
            self._released.inc(count)
            return WindowEnd([(bounds, (self._names.name(key), self._as_released(block, late)))])
        return WindowEnd([self._withheld(key, bounds, block, TOO_FEW, late)]) if last else None

    def refuse(self, key: Any, bounds: Bounds, block: Any, reason: str) -> Iterator[Any]:
        yield self._withheld(key, bounds, block, reason, True)

    def _withheld(
        self, key: Any, bounds: Bounds, block: Any, reason: str, late: bool
    ) -> TaggedOutput:
        count = _count(block)
        self._kept.inc(count)
        said = self._names.notice(key, count, self._min_reports, reason, bounds, late)
        return TaggedOutput("withheld", (bounds, said))

    def _as_released(self, block: Any, late: bool) -> ShuffledSum | ShuffledBlock:
        if isinstance(block, StatisticBlock):
            return ShuffledSum(
                block.statistic, block.num_reports, block.mechanism_digest, block.simulated, late
            )
        reports = permute(block.reports, self._carried.randomizer.messages_per_user)
        return ShuffledBlock(reports, block.mechanism_digest, len(reports), block.simulated, late)


def _count(block: StatisticBlock | ReportBlock) -> int:
    return block.num_reports if isinstance(block, StatisticBlock) else len(block)


def shuffle_in_windows(
    pcoll: beam.PCollection,
    carried: PortableRandomizer,
    min_reports: int,
    element: Element,
    inner: Element,
    names: GroupNames,
    output: Literal["reports", "statistic"],
    rules: WindowRules,
) -> tuple[list[beam.PCollection], beam.PCollection]:
    """`([released], withheld)`: `(name, ShuffledSum or ShuffledBlock)`s, and `WithheldRelease`s."""
    keep_state_whole(pcoll)
    keyed, grouped = element.keyed, names.grouped
    kind: type
    left: type
    if output == "statistic":
        gather: beam.DoFn = SumReports("Shuffle", carried, keyed, grouped)
        kind, left = StatisticBlock, ShuffledSum
    else:
        gather = _GatherReports(carried, keyed, grouped)
        kind, left = ReportBlock, ShuffledBlock
    place: Any = typehints.Tuple[int, int]
    named = typehints.Tuple[names.key_type(inner.key), left]
    closed = (
        pcoll
        | "Gather" >> beam.ParDo(gather).with_output_types(typehints.Tuple[inner.key, kind])
        | "Add window"
        >> beam.ParDo(AddWindow()).with_output_types(
            typehints.Tuple[inner.key, typehints.Tuple[int, int, kind]]
        )
        | "Outside of windows" >> beam.WindowInto(GlobalWindows())
        | "Close windows"
        >> beam.ParDo(
            _Release(WindowSchedule.of(pcoll, rules, SHUFFLE_EARLY), carried, min_reports, names)
        ).with_outputs("withheld", main="released")
    )
    closed.released.element_type = typehints.Tuple[place, named]
    closed.withheld.element_type = typehints.Tuple[place, WithheldRelease]
    released = closed.released | "Released" >> RestoreWindows(pcoll.windowing.windowfn, named)
    withheld = closed.withheld | "Withheld" >> RestoreWindows(
        pcoll.windowing.windowfn, WithheldRelease
    )
    return [released], withheld
