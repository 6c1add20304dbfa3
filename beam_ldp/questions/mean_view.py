"""Means as people and programs see them: table, largest coordinates in their units, pictures."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.questions.base import Part, View
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    WIDTH,
    TopList,
    bare,
    figure_with,
    shortened,
)
from beam_ldp.questions.tables import LEVEL, PLACE, errors_against, place_columns
from beam_ldp.randomizers.estimate import Estimate, readable
from beam_ldp.randomizers.mean.base import MEASURED, WORST_CASE, ErrorBars, MeanEstimate
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = pa.schema(
    [
        *PLACE,
        ("coordinate", pa.string()),
        *((name, pa.float64()) for name in ("mean", "standard_error", "low", "high")),
        ("error_bars", pa.string()),
    ]
)

_SAID = {MEASURED: "Measured", WORST_CASE: "Predicted for the worst values"}


class MeanView(View):
    """The mean of vectors, in the unit of the data.

    Args:
        release: the mean; its estimate is a `MeanEstimate`.
        labels: of the coordinates.
        length: coordinates to list.
        truth: the mean as it is, where that is known.
        ranges: public ranges of the coordinates, if each has its own.
        shape: height and width, where the coordinates are the pixels of a picture.
        compared: half a sentence on how far the error is from the best possible.
    """

    purposes = {
        "estimates.csv": "every coordinate with mean, standard error and interval",
        "plot.png": "the mean with its intervals",
    }
    unit = "in the unit of the data"
    shows = "the largest coordinates"

    def __init__(
        self,
        release: Part,
        labels: Sequence[str],
        length: int,
        truth: Any = None,
        ranges: CoordinateRanges | None = None,
        shape: tuple[int, int] | None = None,
        compared: str = "",
    ) -> None:
        self.shown = shown_mean(release.estimate, labels, truth, ranges, shape)
        super().__init__(release, self.shown.truth)
        self._length, self._compared = length, compared

    @property
    def top(self) -> TopList:
        """The largest coordinates."""
        shown, listed = self.shown, self.shown.largest(self._length)
        value, labels = shown.value[listed], tuple(shown.labels[i] for i in listed)
        truth = None if shown.truth is None else shown.truth[listed]
        return TopList(listed, labels, value, shown.low[listed], shown.high[listed], value, truth)

    @cached_property
    def mean_squared_error(self) -> float:
        """Squared error of the whole vector: measured, or predicted for the worst values."""
        return float(getattr(self.release.estimate, "mean_squared_error", math.nan))

    @property
    def error_bars(self) -> ErrorBars:
        """Whose errors these are."""
        return cast(MeanEstimate, self.release.estimate).error_bars

    def table(self) -> pa.Table:
        return mean_table(self.release, self.shown.labels)

    def figure(self, price: str) -> Figure:
        size = f", {len(self.shown):,} coordinates" if len(self.shown) > 1 else ""
        asked = shortened(self.release.question, 60)
        return plot_mean(self.shown, f"Mean of {asked}{size}", price)

    def listed(self, caption: str) -> Table:
        return coordinate_table(self.shown, self._length, caption)

    def show(self, console: Console) -> None:
        console.print(coordinate_table(self.shown, self._length))
        said = [self._compared] if self._compared else []
        one_unit = self.shown.ranges is None
        if one_unit and len(self.shown) > 1 and math.isfinite(self.mean_squared_error):
            root = math.sqrt(self.mean_squared_error)
            said.insert(
                0,
                f"{_SAID[self.error_bars]}: root mean squared error of the whole vector "
                f"{readable(root)} (mean squared error {readable(self.mean_squared_error)}).",
            )
        if said:
            console.print(" ".join(said), highlight=False)

    def as_json(self) -> dict[str, Any]:
        shown, squared = self.shown, self.mean_squared_error
        return {
            "coordinates": [
                {
                    "coordinate": shown.labels[i],
                    "mean": float(shown.value[i]),
                    "standard_error": float(shown.error[i]),
                    "low_simultaneous": float(shown.low[i]),
                    "high_simultaneous": float(shown.high[i]),
                }
                for i in shown.largest(self._length)
            ],
            "error_bars": self.error_bars,
            "mean_squared_error": squared if math.isfinite(squared) else None,
            "comparison": self._compared,
        }

    def errors(self) -> dict[str, float]:
        if self.truth is None:
            return {}
        return errors_against(self.release.estimate, self.truth)


def mean_table(release: Part, labels: tuple[str, ...]) -> pa.Table:
    """One row per coordinate, in its order, with pointwise 95 % intervals."""
    estimate = release.estimate
    low, high = estimate.confidence_interval(LEVEL)
    columns = place_columns(len(labels), release.question, release.group, release.window)
    columns["coordinate"] = list(labels)
    columns["mean"] = estimate.value
    columns["standard_error"] = estimate.standard_error
    columns["low"], columns["high"] = low, high
    columns["error_bars"] = [cast(MeanEstimate, estimate).error_bars] * len(labels)
    return pa.table(columns, schema=SCHEMA)


def coordinate_table(view: ShownMean, length: int, title: str = "") -> Table:
    """Coordinates with intervals that hold for all at once, and the truth where it is known."""
    listed = view.largest(length)
    caption = f"All {len(view):,} coordinates"
    if len(listed) < len(view):
        caption = f"The {len(listed)} largest of {len(view):,} coordinates"
    title = title or ("The mean" if len(view) == 1 else caption)
    table = Table(title=title, title_justify="left", header_style="bold")
    table.add_column("coordinate")
    headings = ["mean", "standard error", interval_name(view)]
    if view.ranges is not None:
        headings.append("public range")
    if view.truth is not None:
        headings = ["truth", *headings]
    for heading in headings:
        table.add_column(heading, justify="right")
    if view.truth is not None:
        table.add_column("inside", justify="center")
    for i in listed:
        table.add_row(*_cells(view, int(i)))
    return table


def _cells(view: ShownMean, i: int) -> list[str]:
    error = view.error[i]
    cells = [escape(shortened(view.labels[i], 40))]
    if view.truth is not None:
        cells.append(readable(view.truth[i], error))
    cells += [
        readable(view.value[i], error),
        readable(error, error),
        f"{readable(view.low[i], error)} … {readable(view.high[i], error)}",
    ]
    if view.ranges is not None:
        cells.append("{:.12g} … {:.12g}".format(*view.ranges[i]))
    if view.truth is not None:
        cells.append("yes" if view.held[i] else "[red]no[/red]")
    return cells


# Pictures: bars for a few coordinates, a band for many, an image where they are one ---------------


MOST_BARS = 40
_MOST_ERRORS = 30.0  # standard errors that colours still tell apart


def plot_mean(view: ShownMean, title: str, subtitle: str) -> Figure:
    """Picture of a mean, in the form that suits its coordinates."""
    if view.shape is not None:
        return _images(view, view.shape, title, subtitle)
    if len(view) <= MOST_BARS:
        return _bars(view, title, subtitle)
    return _band(view, title, subtitle)


def _bars(view: ShownMean, title: str, subtitle: str) -> Figure:
    """A dot and a bar per coordinate; with own units as places in their ranges, written beside."""
    inside = 0.3 * max(2, len(view))
    height = ABOVE + BELOW + inside
    figure = figure_with(title, subtitle, height)
    width = 0.71 if view.ranges is None else 0.52
    axes = figure.add_axes((0.24, BELOW / height, width, inside / height))
    value, low, high, truth = _on_one_axis(view)
    places = np.arange(len(view))[::-1]
    axes.hlines(places, low, high, color=ESTIMATE, alpha=0.3, linewidth=7, zorder=2)
    axes.plot(value, places, "o", color=ESTIMATE, markersize=5, zorder=4, label="estimate")
    axes.plot([], [], color=ESTIMATE, alpha=0.3, linewidth=7, label=interval_name(view))
    if truth is not None:
        axes.plot(
            truth, places, "x", color=TRUTH, markersize=7, markeredgewidth=1.6, zorder=5,
            label="truth",
        )  # fmt: skip
    axes.set_yticks(places, [shortened(label) for label in view.labels], parse_math=False)
    axes.set_ylim(-0.7, len(view) - 0.3)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right", "left")
    if view.ranges is None:
        if low.min() <= 0 <= high.max():
            axes.axvline(0, color=GREY, linewidth=0.8, zorder=1)
        axes.set_xlabel("mean", color=GREY)
    else:
        axes.set_xlim(0, 1)
        axes.set_xlabel("place of the mean in its public range", color=GREY)
        for place, text in zip(places, _in_own_units(view)):
            axes.text(1.03, place, text, transform=axes.get_yaxis_transform(), va="center",
                      fontsize=8, color=GREY, parse_math=False)  # fmt: skip
    _legend(figure, axes, height)
    return figure


def _on_one_axis(view: ShownMean) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    if view.ranges is None:
        return view.value, view.low, view.high, view.truth
    start, size = view.ranges[:, 0], view.ranges[:, 1] - view.ranges[:, 0]
    truth = None if view.truth is None else (view.truth - start) / size
    return (view.value - start) / size, (view.low - start) / size, (view.high - start) / size, truth


def _in_own_units(view: ShownMean) -> list[str]:
    """Each mean with half of its interval, and its range."""
    assert view.ranges is not None
    texts = []
    for value, half, (low, high) in zip(view.value, (view.high - view.low) / 2, view.ranges):
        said = f"{readable(value, half)} ± {readable(half, half)}"
        texts.append(f"{said}  in [{low:.12g}, {high:.12g}]")
    return texts


def _band(view: ShownMean, title: str, subtitle: str) -> Figure:
    """Coordinates in their order: a line of estimates within the band of their intervals."""
    height = ABOVE + BELOW + 3.6
    figure = figure_with(title, subtitle, height)
    axes = figure.add_axes((0.09, BELOW / height, 0.87, 3.6 / height))
    value, low, high, truth = _on_one_axis(view)
    order = np.arange(len(view))
    axes.fill_between(order, low, high, color=ESTIMATE, alpha=0.25, linewidth=0, zorder=2,
                      label=interval_name(view))  # fmt: skip
    axes.plot(order, value, color=ESTIMATE, linewidth=0.9, zorder=3, label="estimate")
    if truth is not None:
        axes.plot(order, truth, color=TRUTH, linewidth=0.9, zorder=4, label="truth")
    axes.axhline(0, color=GREY, linewidth=0.8, zorder=1)
    axes.grid(axis="y", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    axes.set_xlim(0, len(view) - 1)
    bare(axes, "top", "right")
    first, last = shortened(view.labels[0]), shortened(view.labels[-1])
    axes.set_xlabel(f"coordinate, from {first} to {last}", color=GREY, parse_math=False)
    axes.set_ylabel("mean" if view.ranges is None else "place in its range", color=GREY)
    _legend(figure, axes, height)
    return figure


def _images(view: ShownMean, shape: tuple[int, int], title: str, subtitle: str) -> Figure:
    """The estimate as an image, the truth before it where it is known, and how sure a pixel is."""
    lowest, highest = float(view.value.min()), float(view.value.max())
    sure = view.value / np.maximum(view.error, np.finfo(float).tiny)
    panels = [("estimate", view.value, lowest, highest, "gray_r")]
    if view.truth is None:
        most = float(max(3.0, min(_MOST_ERRORS, np.abs(sure).max())))
        panels.append(("standard errors away from zero", sure, -most, most, "RdBu_r"))
    else:
        lowest, highest = min(lowest, view.truth.min()), max(highest, view.truth.max())
        off = (view.value - view.truth) / np.maximum(view.error, np.finfo(float).tiny)
        panels = [
            ("truth", view.truth, lowest, highest, "gray_r"),
            ("estimate", view.value, lowest, highest, "gray_r"),
            ("off by, in standard errors", off, -4.0, 4.0, "RdBu_r"),
        ]
    each = 0.94 / len(panels)
    side = 0.8 * each * WIDTH  # inches
    tall = min(side * shape[0] / shape[1], 1.6 * side)
    height = ABOVE + tall + 0.5
    figure = figure_with(title, subtitle, height)
    for i, (heading, pixels, low, high, colours) in enumerate(panels):
        axes = figure.add_axes((0.03 + i * each, 0.3 / height, 0.8 * each, tall / height))
        image = axes.imshow(pixels.reshape(shape), cmap=colours, vmin=low, vmax=high)
        axes.set_title(heading, fontsize=10, color=GREY)
        axes.set_xticks([])
        axes.set_yticks([])
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.04)
        bar.ax.tick_params(labelsize=8, colors=GREY)
        bar.outline.set_visible(False)
    return figure


def _legend(figure: Any, axes: Any, height: float) -> None:
    """Above the axes, on the right, where no mark can be."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="upper right", bbox_to_anchor=(0.97, 1 - 0.8 / height),
                  ncols=len(names), frameon=False, fontsize=8)  # fmt: skip


_LEAST_SIDE = 7  # of a square that is taken for a picture unasked


@dataclass(frozen=True)
class ShownMean:
    """An estimated mean with intervals that hold for all coordinates at once.

    Attributes:
        labels: name of each coordinate.
        value, error, low, high: `(d,)`, in the unit of the data.
        truth: likewise, where it is known.
        ranges: `(d, 2)`, where each coordinate has a public range of its own; None where all
            coordinates share one unit.
        shape: height and width, where the coordinates are the pixels of a picture, row by row.
    """

    labels: tuple[str, ...]
    value: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray | None = None
    ranges: np.ndarray | None = None
    shape: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def largest(self, count: int) -> np.ndarray:
        """Which coordinates to list: all where they fit, else the `count` largest."""
        if len(self) <= count:
            return np.arange(len(self))
        return np.argsort(-np.abs(self.value), kind="stable")[:count]

    @property
    def held(self) -> np.ndarray:
        """Whether each interval holds the truth, which must be known."""
        assert self.truth is not None
        return (self.low <= self.truth) & (self.truth <= self.high)


def shown_mean(
    estimate: Estimate,
    labels: Sequence[str],
    truth: np.ndarray | None = None,
    ranges: CoordinateRanges | None = None,
    shape: tuple[int, int] | None = None,
) -> ShownMean:
    """What there is to show of an estimate."""
    low, high = estimate.confidence_interval(LEVEL, simultaneous=True)
    own = None
    if ranges is not None and (min(ranges.low), min(ranges.high)) != (
        max(ranges.low), max(ranges.high),
    ):  # fmt: skip
        own = np.stack([ranges.low, ranges.high], axis=1)
    known = None if truth is None else np.asarray(truth, dtype=float)
    return ShownMean(
        tuple(labels), estimate.value, estimate.standard_error, low, high, known, own, shape
    )


def interval_name(view: ShownMean) -> str:
    """What the intervals of a view are."""
    return f"{LEVEL:.0%} interval".replace("%", " %") + ", all at once" * (len(view) > 1)


def picture_shape(labels: Sequence[str]) -> tuple[int, int] | None:
    """The square that the coordinates fill, where their names only number them.

    >>> picture_shape([f"pixel_{i}" for i in range(64)])
    (8, 8)
    >>> picture_shape(["age", "income"]) is None
    True
    """
    side = math.isqrt(len(labels))
    if side < _LEAST_SIDE or side * side != len(labels):
        return None
    stems = {re.sub(r"\d+", "#", label) for label in labels}
    return (side, side) if len(stems) == 1 and "#" in stems.pop() else None
