"""The picture of a release: the most frequent values with intervals that hold for all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.pipelines.views.canvas import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    png,
    shortened,
)
from beam_ldp.randomizers.estimate import Estimate


@dataclass(frozen=True)
class TopList:
    """The `count` largest estimates, in counts of users, with simultaneous 95 % intervals.

    Attributes:
        indices, labels, estimate, low, high: one entry per listed value, largest first.
        truth: true counts in the same order, where they are known.
    """

    indices: np.ndarray
    labels: tuple[str, ...]
    estimate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray | None = None


def top_list(
    estimate: Estimate,
    labels: Sequence[str],
    count: int,
    truth: np.ndarray | None = None,
    leave_out: Sequence[int] = (),
) -> TopList:
    """Ranked by estimate. Values in `leave_out` (such as `other`) are not ranked."""
    counts = estimate.to_counts()
    ranked = np.argsort(-counts.value, kind="stable")
    ranked = ranked[~np.isin(ranked, np.asarray(leave_out, dtype=int))][:count]
    low, high = counts.confidence_interval(0.95, simultaneous=True)
    return TopList(
        ranked,
        tuple(labels[i] for i in ranked),
        counts.value[ranked],
        low[ranked],
        high[ranked],
        None if truth is None else np.asarray(truth)[ranked],
    )


def plot_top(top: TopList, title: str, subtitle: str) -> bytes:
    """PNG of a list: a dot and a bar per value, and a cross where the truth is known."""
    from matplotlib.ticker import FuncFormatter

    inside = 0.3 * max(1, len(top.labels))
    height = ABOVE + BELOW + inside
    figure = figure_with(title, subtitle, height)
    axes = figure.add_axes((0.24, BELOW / height, 0.71, inside / height))
    places = np.arange(len(top.labels))[::-1]
    axes.hlines(places, top.low, top.high, color=ESTIMATE, alpha=0.3, linewidth=7, zorder=2)
    axes.plot(top.estimate, places, "o", color=ESTIMATE, markersize=5, zorder=4, label="estimate")
    axes.plot([], [], color=ESTIMATE, alpha=0.3, linewidth=7, label="95 % interval, all at once")
    if top.truth is not None:
        axes.plot(
            top.truth, places, "x", color=TRUTH, markersize=7, markeredgewidth=1.6, zorder=5,
            label="truth",
        )  # fmt: skip
    axes.set_yticks(places, [shortened(label) for label in top.labels], parse_math=False)
    axes.set_ylim(-0.7, len(top.labels) - 0.3)
    axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right", "left")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("people", color=GREY)
    axes.legend(loc="lower right", frameon=False, fontsize=9)
    return png(figure)
