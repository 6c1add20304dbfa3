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
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.transforms.elements.blocks import (
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.stage_types import TOO_FEW
from beam_ldp.transforms.elements.windows import (
    SHUFFLE_EARLY,
    Bounds,
    CloseWindows,
    WindowEnd,
    WindowRules,
    WindowSchedule,
    close_windows,
)
from beam_ldp.transforms.shuffler.batches import permute
from beam_ldp.transforms.shuffler.sums import (
    Exit,
    Gate,
    SumReports,
    SumStatistics,
    TakesReports,
    as_released,
    parts_of,
)


class _GatherReports(TakesReports):
    """`ReportBlock`s to one `(key, ReportBlock)` per bundle, key and window; nothing else stays."""

    def start_bundle(self) -> None:
        self._held: dict[Any, list[ReportBlock]] = defaultdict(list)

    def process(self, element: Any, window: Any = beam.DoFn.WindowParam) -> None:
        key, block = self.accepted(element)
        with self.blocks.timed():
            for part, rows in parts_of(key, block):
                reports = ReportBlock(block.reports[rows], self.digest, simulated=block.simulated)
                self._held[window, part].append(reports)

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

    def __init__(self, schedule: WindowSchedule, gate: Gate) -> None:
        super().__init__(schedule)
        self._gate = gate

    def setup(self) -> None:
        self._exit = Exit(self._gate)

    def add_up(self, blocks: list[Any]) -> Any:
        if len(blocks) == 1:
            return blocks[0]
        if isinstance(blocks[0], ReportBlock):
            return _concatenate(blocks)
        adder = SumStatistics(self._gate.carried)
        return adder.merge_accumulators([adder.create_accumulator(), *blocks])

    def close(
        self, key: Any, bounds: Bounds, block: Any, last: bool, late: bool
    ) -> WindowEnd[Any] | None:
        if block.num_reports >= self._gate.min_reports:
            leaving = self._exit.let_out(key, block.num_reports, self._as_released(block, late))
            return WindowEnd([(bounds, leaving)])
        return WindowEnd([self._withheld(key, bounds, block, TOO_FEW, late)]) if last else None

    def refuse(self, key: Any, bounds: Bounds, block: Any, reason: str) -> Iterator[Any]:
        yield self._withheld(key, bounds, block, reason, True)

    def _withheld(
        self, key: Any, bounds: Bounds, block: Any, reason: str, late: bool
    ) -> TaggedOutput:
        said = self._exit.withhold(key, block.num_reports, bounds, reason, late)
        return TaggedOutput("withheld", (bounds, said))

    def _as_released(self, block: Any, late: bool) -> ShuffledSum | ShuffledBlock:
        if isinstance(block, StatisticBlock):
            return as_released(block, late)
        reports = permute(block.reports, self._gate.carried.randomizer.messages_per_user)
        return ShuffledBlock(reports, block.mechanism_digest, len(reports), block.simulated, late)


def shuffle_in_windows(
    pcoll: beam.PCollection,
    gate: Gate,
    output: Literal["reports", "statistic"],
    rules: WindowRules,
) -> tuple[list[beam.PCollection], beam.PCollection]:
    """`([released], withheld)`: `(name, ShuffledSum or ShuffledBlock)`s, and `WithheldRelease`s."""
    gather: TakesReports = SumReports(gate) if output == "statistic" else _GatherReports(gate)
    kind, left = (
        (StatisticBlock, ShuffledSum) if output == "statistic" else (ReportBlock, ShuffledBlock)
    )
    released, withheld = close_windows(
        pcoll | "Gather" >> beam.ParDo(gather).with_output_types(gate.inside(kind)),
        _Release(WindowSchedule.of(pcoll, rules, SHUFFLE_EARLY), gate),
        leaving=("Released", gate.outside(left)),
        refused=("withheld", "Withheld", WithheldRelease),
    )
    return [released], withheld
