"""What comes of numbers: the distribution that agrees with all levels, quantiles, ranges."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.questions.base import Part
from beam_ldp.questions.frequency_view import SCHEMA, FrequencyView, estimate_table
from beam_ldp.questions.parts import DRAWN, SHOWN, PartsView, caption_of
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    bare,
    figure_with,
)
from beam_ldp.questions.pictures import TRUTH as MARK
from beam_ldp.questions.tables import LEVEL, PLACE, as_csv, place_columns
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.hierarchy import Hierarchy, Quantile, RangeEstimate
from beam_ldp.randomizers.questions import Questions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from beam_ldp.questions.bins import NumberQuestion

QUANTILES = pa.schema(
    [
        *PLACE,
        ("quantile", pa.float64()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


class NumberView(PartsView):
    """A distribution: the cells that agree with all levels, its quantiles and ranges.

    Args:
        release: the levels, of each group.
        tree: that they are of.
        question: name of the number.
        wanted: what was asked.
    """

    purposes = {
        "estimates.csv": "bins and ranges that agree with all levels, and the raw levels",
        "quantiles.csv": "quantiles with 95 % intervals",
        "plot.png": "the distribution",
    }

    def __init__(
        self, release: Any, tree: Hierarchy, question: str, wanted: NumberQuestion
    ) -> None:
        self._tree, self._question, self._wanted = tree, question, wanted
        groups: dict[Any, list[Any]] = {}
        for part in release.releases:
            groups.setdefault((part.group, part.window), []).append(part)
        self.levels = list(groups.values())
        self.ranges = [_consistent(tree, levels) for levels in self.levels]
        views = [
            FrequencyView(
                replace(levels[0], question=question, estimate=found.histogram()),
                (*tree.labels,), 10, None,
            )
            for levels, found in zip(self.levels, self.ranges)
        ]  # fmt: skip
        super().__init__(release, views)

    @cached_property
    def quantiles(self) -> list[list[Quantile]]:
        """Of every group."""
        wanted = self._wanted.quantiles
        return [found.quantiles(wanted, LEVEL) if wanted else [] for found in self.ranges]

    def table(self) -> pa.Table:
        found = [super().table()]
        for view, ranges, levels in zip(self.views, self.ranges, self.levels):
            release = view.release
            place = (release.group, release.window)
            names = [f"[{low:g}, {high:g})" for low, high in self._wanted.ranges]
            if names:
                sums = ranges.sums(np.concatenate([_row(ranges, *r) for r in self._wanted.ranges]))
                found.append(estimate_table(sums, names, f"{self._question}, ranges", *place))
            for level, labels in zip(levels, self._tree.level_labels):
                named = f"{level.question}, raw"
                found.append(estimate_table(level.estimate, labels, named, *place))
        return pa.concat_tables(found).cast(SCHEMA)

    def more_files(self) -> dict[str, bytes]:
        return {"quantiles.csv": as_csv(self._quantile_table())}

    def _quantile_table(self) -> pa.Table:
        found = []
        for view, quantiles in zip(self.views, self.quantiles):
            release = view.release
            columns = place_columns(len(quantiles), self._question, release.group, release.window)
            columns["quantile"] = [quantile.level for quantile in quantiles]
            for name in ("value", "low", "high"):
                columns[name] = [getattr(quantile, name) for quantile in quantiles]
            found.append(pa.table(columns, schema=QUANTILES))
        return pa.concat_tables(found)

    def figure(self, price: str) -> Figure:
        drawn = [
            Distribution(caption_of(self.views[i]), self.ranges[i], tuple(self.quantiles[i]))
            for i in self._largest[:DRAWN]
        ]
        return plot_distributions(drawn, f"{self._question}: the distribution", price)

    def show(self, console: Console) -> None:
        for i in self._largest[:SHOWN]:
            console.print(self._shown(i))
        for notice in self.parts.withheld[:SHOWN]:
            console.print(
                f"[yellow]withheld:[/yellow] {escape(str(notice.group))}, "
                f"{notice.num_reports:,} of {notice.min_reports:,} reports"
            )

    def _shown(self, i: int) -> Table:
        table = Table(title=escape(caption_of(self.views[i])), title_justify="left")
        for heading in ("", "estimate", "95 % interval"):
            table.add_column(heading, justify="left" if not heading else "right")
        for quantile in self.quantiles[i]:
            half = (quantile.high - quantile.low) / 2
            value, *ends = (
                readable(number, half) for number in (quantile.value, quantile.low, quantile.high)
            )
            table.add_row(f"quantile {quantile.level:g}", value, " … ".join(ends))
        for low, high in self._wanted.ranges:
            share = self.ranges[i].between(low, high).to_counts()
            start, end = share.confidence_interval(LEVEL)
            table.add_row(
                f"people in \\[{low:g}, {high:g})",
                f"{share.value[0]:,.0f}",
                f"{start[0]:,.0f} … {end[0]:,.0f}",
            )
        return table

    def as_json(self) -> dict[str, Any]:
        return {
            "parts": [
                {
                    "question": self._question,
                    "group": view.release.group,
                    "num_reports": view.release.num_reports,
                    "quantiles": [_finite(quantile) for quantile in quantiles],
                    "ranges": [_between(ranges, *r) for r in self._wanted.ranges],
                }
                for view, ranges, quantiles in zip(self.views, self.ranges, self.quantiles)
            ],
            "withheld": super().as_json()["withheld"],
        }


def _consistent(tree: Hierarchy, levels: Sequence[Part]) -> RangeEstimate:
    people = levels[0].num_reports
    config = levels[0].mechanism
    survey = Questions.from_config(dict(config))
    assert isinstance(survey, Questions)
    answers = [level.answers[0] if level.answers else people for level in levels]
    return tree.consistent(survey.oracles, [level.estimate for level in levels], answers)


def _row(ranges: RangeEstimate, low: float, high: float) -> np.ndarray:
    return ranges.weights_between(low, high)[None, :]


def _between(ranges: RangeEstimate, low: float, high: float) -> dict[str, Any]:
    share = ranges.between(low, high)
    start, end = share.confidence_interval(LEVEL)
    return {
        "low": None if math.isinf(low) else low,
        "high": None if math.isinf(high) else high,
        "frequency": float(share.value[0]),
        "frequency_standard_error": float(share.standard_error[0]),
        "frequency_low": float(start[0]),
        "frequency_high": float(end[0]),
    }


def _finite(quantile: Quantile) -> dict[str, float | None]:
    """Infinities are null: the bins do not reach that far."""
    fields = {"quantile": quantile.level, "value": quantile.value}
    both = {**fields, "low": quantile.low, "high": quantile.high}
    return {name: None if math.isinf(value) else value for name, value in both.items()}


# The picture: the distribution function with its band, and the quantiles --------------------------


_INSIDE = 2.4  # inches of a panel
_GAP = 0.9


@dataclass(frozen=True)
class Distribution:
    """One group: its name, its cells and its quantiles."""

    caption: str
    ranges: RangeEstimate
    quantiles: tuple[Quantile, ...]


def plot_distributions(found: Sequence[Distribution], title: str, subtitle: str) -> Figure:
    """A picture with a panel for each."""
    columns = 1 if len(found) == 1 else 2
    rows = -(-len(found) // columns)
    height = ABOVE + BELOW + rows * _INSIDE + (rows - 1) * _GAP + 0.3
    figure = figure_with(title, subtitle, height)
    for i, one in enumerate(found):
        row, column = divmod(i, columns)
        bottom = height - ABOVE - 0.3 - _INSIDE - row * (_INSIDE + _GAP)
        width = 0.86 if columns == 1 else 0.39
        axes = figure.add_axes((0.09 + 0.48 * column, bottom / height, width, _INSIDE / height))
        edges = np.array(one.ranges.hierarchy.bins.edges)
        below = one.ranges.cumulative
        low, high = below.confidence_interval(0.95)
        axes.fill_between(edges, low, high, color=ESTIMATE, alpha=0.25, linewidth=0)
        axes.plot(edges, below.value, color=ESTIMATE, linewidth=1.4)
        for quantile in one.quantiles:
            ends = np.clip([quantile.low, quantile.high], edges[0], edges[-1])
            axes.hlines(quantile.level, *ends, color=MARK, linewidth=2.2, zorder=4)
            if np.isfinite(quantile.value):
                axes.plot(quantile.value, quantile.level, "o", color=MARK, markersize=5, zorder=5)
        axes.set_ylim(-0.05, 1.05)
        axes.set_title(one.caption, fontsize=9, loc="left", parse_math=False)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
        bare(axes, "top", "right")
    figure.text(
        0.97, 0.14 / height, "people below; band: pointwise 95 %; dots and bars: quantiles",
        fontsize=8, color=GREY, ha="right",
    )  # fmt: skip
    return figure
