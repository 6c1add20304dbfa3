"""The stage that cuts the link between reports and people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, Literal

import apache_beam as beam
import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.elements.blocks import (
    ReportBlock,
    ShuffledBlock,
    ShuffledSum,
    StatisticBlock,
    WithheldRelease,
)
from beam_ldp.transforms.elements.portable import (
    PortableDomain,
    PortableRandomizer,
    check_min_reports,
    report_bytes,
    task_of,
)
from beam_ldp.transforms.elements.stages import (
    TOO_FEW,
    check_fires_once,
    check_streamed,
    check_windows,
    expect,
    fires_once,
    is_streamed,
    typed_outputs,
    window_bounds,
)
from beam_ldp.transforms.elements.windows import (
    DEFAULT_RULES,
    SHUFFLE_EARLY,
    Bounds,
    CloseWindows,
    WindowEnd,
    WindowRules,
    WindowSchedule,
    close_windows,
)
from beam_ldp.transforms.shuffler.batches import permute, shuffle_in_batches
from beam_ldp.transforms.shuffler.exchange import (
    LARGE_BATCH_BYTES,
    exchanges_for,
    shards_for,
    shuffle_globally,
)
from beam_ldp.transforms.shuffler.sums import (
    Exit,
    Gate,
    LetsOut,
    SumReports,
    SumStatistics,
    TakesReports,
    as_released,
    combine_sums,
    parts_of,
    with_none,
    zero_statistic,
)


@dataclass(eq=False, repr=False)
class Shuffle(beam.PTransform):
    """Drops ids, order and times of the reports and releases them, or their sum, together.

    Each report hides among all that are released with it, from everybody who sees the output of
    this stage; not from whoever sees inside the runner. A declared public group and the window
    stay; the timestamp becomes the window's end. Fewer than `min_reports` reports of a group and
    window release nothing: `.withheld` of the result says so.

    In: `ReportBlock`s or `(key, ReportBlock)`s, where the key is a public group.
    Out: `ShuffledBlock`s for `output="reports"`, `ShuffledSum`s for `output="statistic"`; with keys
    where the input has them, or with the names of `groups`. The collection has an attribute
    `withheld`: a collection of `WithheldRelease`.

    Args:
        randomizer: the mechanism that made the reports.
        min_reports: least number of reports that may be released together.
        output: "reports" permutes the reports and releases them one by one; "statistic" releases
            only their sum, which does not depend on their order: no report is exchanged.
        scope: for reports: "batch" permutes within batches of at least `min_reports`, inside the
            worker where it can; each report hides among its batch. "global" permutes all reports of
            a group and window together, by exchange between workers; for mechanisms of one
            message per user. (Several messages per user are permuted column by column, each on its
            own, within the batch.)
        groups: the public list of groups (as `EncodeRows` takes it) where blocks hold the reports
            of many groups.
        num_shards: for scope="global": shards of the exchange, a power of two; default: as many as
            keep a shard of `min_reports` reports below 64 MiB, and up to 1,024 as keep it below
            2 MiB; at least 64. A worker holds one shard at a time. (Shards of so many reports are
            exchanged in parts of 256 MiB, at most 16: some engines hold all of an exchange in
            memory, several times.)
        windows: for unbounded data and sessions: when windows close, and what becomes of late
            reports. All reports of such a window and group are then permuted together, by one
            worker.

    Raises:
        StageError: if the input is not the output of `Randomize`.
        ValueError: for sliding windows, accumulating panes, and session windows whose bounds are
            not declared public; for triggers of unbounded data; with scope="global" for windows
            that fire more than once, and for several messages per user.
    """

    randomizer: LocalRandomizer
    min_reports: int
    output: Literal["reports", "statistic"] = "reports"
    scope: Literal["batch", "global"] = "batch"
    _: KW_ONLY
    groups: Domain | PortableDomain | str | Path | None = None
    num_shards: int | None = None
    windows: WindowRules = DEFAULT_RULES

    def __post_init__(self) -> None:
        self._carried = PortableRandomizer(self.randomizer)
        self.min_reports = check_min_reports(self.min_reports)
        output, scope, num_shards = self.output, self.scope, self.num_shards
        if output not in ("reports", "statistic"):
            raise ValueError(f'output must be "reports" or "statistic", got {output!r}')
        if scope not in ("batch", "global"):
            raise ValueError(f'scope must be "batch" or "global", got {scope!r}')
        if output == "reports" and scope == "global" and self.randomizer.messages_per_user > 1:
            raise ValueError(
                'scope="global" takes mechanisms of one message per user, got '
                f"{self.randomizer.messages_per_user}: the shard of a user would link the user's "
                'messages. Use output="statistic", where every report hides among all, or '
                'scope="batch"'
            )
        if num_shards is not None and (num_shards < 1 or num_shards & (num_shards - 1)):
            raise ValueError(f"num_shards must be a power of two, got {num_shards}")
        self._groups = None if self.groups is None else PortableDomain.of(self.groups)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        parts, withheld = self.parts(pcoll)
        result = parts[0] if len(parts) == 1 else parts | "All batches" >> beam.Flatten()
        result.withheld = withheld
        return result

    def parts(self, pcoll: beam.PCollection) -> tuple[list[beam.PCollection], beam.PCollection]:
        """The released collections, whose union is the output of the stage, and the withheld one.

        An engine may copy a union of collections; what is added up afterwards can be added up part
        by part, where the reports are.
        """
        task = task_of(self.randomizer)
        element = expect("Shuffle", pcoll, ReportBlock, task=task)
        check_windows("Shuffle", pcoll, self.windows.public_bounds)
        grouped = self._groups is not None
        if grouped and element.keyed:
            raise ValueError("groups must be None where elements are (key, block)")
        gate = Gate("Shuffle", self._carried, element, self.min_reports, self._groups)
        if is_streamed(pcoll):
            check_streamed("Shuffle", pcoll)
            parts, withheld = shuffle_in_windows(pcoll, gate, self.output, self.windows)
        elif self.output == "statistic":
            parts, withheld = _sum_all(pcoll, gate)
        elif self.scope == "batch" and not self._together(pcoll):
            parts, withheld = shuffle_in_batches(pcoll, gate)
        else:
            check_fires_once(
                'Shuffle with scope="global"',
                pcoll,
                "a late report would be counted with a crowd that has left already. The other "
                "forms of output count every firing by itself",
            )
            randomizer = self.randomizer
            shards = self.num_shards or shards_for(randomizer, self.min_reports)
            exchanges = min(shards, exchanges_for(randomizer, self.min_reports))
            parts, withheld = shuffle_globally(pcoll, gate, shards, exchanges)
        if not (grouped or element.keyed):
            kind = ShuffledSum if self.output == "statistic" else ShuffledBlock
            parts = [
                part | f"Drop key {i}" >> beam.Values().with_output_types(kind)
                for i, part in enumerate(parts)
            ]
        return parts, withheld

    def _together(self, pcoll: beam.PCollection) -> bool:
        """Whether a batch is more than a worker should hold, and can be permuted by an exchange."""
        randomizer = self.randomizer
        large = self.min_reports * report_bytes(randomizer) > LARGE_BATCH_BYTES
        return large and randomizer.messages_per_user == 1 and fires_once(pcoll)

    def display_data(self) -> dict[str, Any]:
        return {
            "min_reports": self.min_reports,
            "output": self.output,
            "scope": self.scope if self.output == "reports" else "sum",
        }


@dataclass(eq=False, repr=False)
class ShuffleInParts(beam.PTransform):
    """A `Shuffle` whose output is the tuple of its parts; the first one has `withheld`."""

    shuffle: Shuffle

    def expand(self, pcoll: beam.PCollection) -> tuple[beam.PCollection, ...]:
        parts, withheld = self.shuffle.parts(pcoll)
        parts[0].withheld = withheld
        return tuple(parts)

    def display_data(self) -> dict[str, Any]:
        return self.shuffle.display_data()


def _sum_all(
    pcoll: beam.PCollection, gate: Gate
) -> tuple[list[beam.PCollection], beam.PCollection]:
    """`([released], withheld)`: `(name, ShuffledSum)`s, and `WithheldRelease`s."""
    summing = beam.ParDo(SumReports(gate)).with_output_types(gate.inside(StatisticBlock))
    parts = with_none(pcoll | "Sum reports" >> summing, gate, StatisticBlock, zero_statistic)
    sums = parts | combine_sums(gate.carried, "Add sums")
    released, withheld = typed_outputs(
        sums,
        "Gate",
        beam.ParDo(_ReleaseSum(gate)),
        gate.outside(ShuffledSum),
        withheld=WithheldRelease,
    )
    return [released], withheld


class _ReleaseSum(LetsOut):
    """Lets a sum out if it is one of enough reports."""

    def process(
        self, element: tuple[Any, StatisticBlock], window: Any = beam.DoFn.WindowParam
    ) -> Iterator[Any]:
        key, total = element
        if total.num_reports < self.gate.min_reports:
            said = self.exit.withhold(key, total.num_reports, window_bounds(window))
            yield beam.pvalue.TaggedOutput("withheld", said)
        else:
            yield self.exit.let_out(key, total.num_reports, as_released(total))


# Data that never end: what belongs to one group and window is released when it closes --------
#
# Partial sums, or reports, of a group wait together in one place until their window ends. There
# they are added up, or permuted together, and released if there are enough.


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


@dataclass(eq=False)
class _Release(CloseWindows[Any]):
    """Lets the reports of a window out, or their sum, if there are enough.

    A window that ends with too few waits for late reports. They count together then, as one release
    at the price of all of them.
    """

    gate: Gate

    def setup(self) -> None:
        self._exit = Exit(self.gate)

    def add_up(self, blocks: list[Any]) -> Any:
        if len(blocks) == 1:
            return blocks[0]
        if isinstance(blocks[0], ReportBlock):
            return _concatenate(blocks)
        adder = SumStatistics(self.gate.carried)
        return adder.merge_accumulators([adder.create_accumulator(), *blocks])

    def close(
        self, key: Any, bounds: Bounds, block: Any, last: bool, late: bool
    ) -> WindowEnd[Any] | None:
        if block.num_reports >= self.gate.min_reports:
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
        reports = permute(block.reports, self.gate.carried.randomizer.messages_per_user)
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
