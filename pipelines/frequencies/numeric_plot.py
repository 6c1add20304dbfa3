"""The picture of a number: the distribution function with its band, and the quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.pipelines.views.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    bare,
    figure_with,
    png,
)
from beam_ldp.pipelines.views.pictures import TRUTH as MARK
from beam_ldp.randomizers.hierarchy import Quantile, RangeEstimate

_INSIDE = 2.4  # inches of a panel
_GAP = 0.9


@dataclass(frozen=True)
class Distribution:
    """One group: its name, its cells and its quantiles."""

    caption: str
    ranges: RangeEstimate
    quantiles: tuple[Quantile, ...]


def plot_distributions(found: Sequence[Distribution], title: str, subtitle: str) -> bytes:
    """PNG with a panel for each."""
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
    return png(figure)
