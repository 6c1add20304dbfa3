"""The picture of several releases: a panel for each, with intervals that hold within it at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from beam_ldp.pipelines.views.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TopList,
    bare,
    figure_with,
    png,
    shortened,
)

_LINES = 8  # of a panel
_ROW = 0.26  # inches of a line
_GAP = 0.85  # inches between rows of panels


@dataclass(frozen=True)
class Panel:
    """One part: what it is about and its most frequent values."""

    caption: str
    top: TopList


def plot_panels(panels: Sequence[Panel], title: str, subtitle: str) -> bytes:
    """PNG with two panels side by side, as many rows as it takes."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    lines = max(1, min(_LINES, max(len(panel.top.labels) for panel in panels)))
    inside, rows = _ROW * lines, -(-len(panels) // 2)
    height = ABOVE + BELOW + rows * inside + (rows - 1) * _GAP + 0.3
    figure = figure_with(title, subtitle, height)
    for i, panel in enumerate(panels):
        row, column = divmod(i, 2)
        bottom = height - ABOVE - 0.3 - inside - row * (inside + _GAP)
        axes = figure.add_axes((0.15 + 0.49 * column, bottom / height, 0.33, inside / height))
        top = panel.top
        count = min(lines, len(top.labels))
        places = range(lines - 1, lines - 1 - count, -1)
        axes.hlines(
            places, top.low[:count], top.high[:count], color=ESTIMATE, alpha=0.3, linewidth=6,
            zorder=2,
        )  # fmt: skip
        axes.plot(top.estimate[:count], places, "o", color=ESTIMATE, markersize=4, zorder=4)
        names = [shortened(label, 14) for label in top.labels[:count]]
        axes.set_yticks(list(places), names, parse_math=False, fontsize=8)
        axes.set_ylim(-0.7, lines - 0.3)
        axes.set_title(shortened(panel.caption, 44), fontsize=9, loc="left", parse_math=False)
        axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
        axes.set_axisbelow(True)
        bare(axes, "top", "right", "left")
        axes.tick_params(axis="x", labelsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    figure.text(
        0.97, 0.14 / height, "people; bars: 95 % intervals, all at once within a panel",
        fontsize=8, color=GREY, ha="right",
    )  # fmt: skip
    return png(figure)
