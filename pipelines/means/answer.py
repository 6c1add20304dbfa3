"""Means as people and programs see them: the table of a release, its largest coordinates."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.means.view import MeanView, decimals, interval_name, plot_mean
from beam_ldp.pipelines.outputs import LEVEL, PLACE, errors_against, place_columns
from beam_ldp.pipelines.question import Answer
from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.views.pictures import shortened
from beam_ldp.transforms.elements.blocks import Release

SCHEMA = pa.schema(
    [
        *PLACE,
        ("coordinate", pa.string()),
        *((name, pa.float64()) for name in ("mean", "standard_error", "low", "high")),
    ]
)


class MeanAnswer(Answer):
    """The mean of vectors, in the unit of the data.

    Args:
        release: the mean; its estimate is a `MeanEstimate`.
        view: the same, ready to be shown.
        length: coordinates to list.
        comparison: half a sentence on how far the error is from the best possible.
    """

    purposes = {
        "estimates.csv": "every coordinate with mean, standard error and interval",
        "plot.png": "the mean with its intervals",
    }

    def __init__(self, release: Release, view: MeanView, length: int, comparison: str) -> None:
        super().__init__(release, view.truth)
        self.view = view
        self._length = length
        self._comparison = comparison

    @cached_property
    def mean_squared_error(self) -> float:
        """Predicted squared error of the whole vector, for the worst values."""
        return float(getattr(self.release.estimate, "mean_squared_error", math.nan))

    def table(self) -> pa.Table:
        return mean_table(self.release, self.view.labels)

    def plot(self, price: str) -> bytes:
        size = f", {len(self.view):,} coordinates" if len(self.view) > 1 else ""
        asked = shortened(self.release.question, 60)
        return plot_mean(self.view, f"Mean of {asked}{size}", price)

    def show(self, console: Console) -> None:
        console.print(coordinate_table(self.view, self._length))
        said = [self._comparison] if self._comparison else []
        one_unit = self.view.ranges is None
        if one_unit and len(self.view) > 1 and math.isfinite(self.mean_squared_error):
            root = math.sqrt(self.mean_squared_error)
            said.insert(
                0,
                "Predicted for the worst values: root mean squared error of the whole vector "
                f"{number(root)} (mean squared error {self.mean_squared_error:.3g}).",
            )
        if said:
            console.print(" ".join(said), highlight=False)

    def as_json(self) -> dict[str, Any]:
        view, squared = self.view, self.mean_squared_error
        return {
            "coordinates": [
                {
                    "coordinate": view.labels[i],
                    "mean": float(view.value[i]),
                    "standard_error": float(view.error[i]),
                    "low_simultaneous": float(view.low[i]),
                    "high_simultaneous": float(view.high[i]),
                }
                for i in view.largest(self._length)
            ],
            "predicted_mean_squared_error": squared if math.isfinite(squared) else None,
            "comparison": self._comparison,
        }

    def errors(self) -> dict[str, float]:
        if self.truth is None:
            return {}
        return errors_against(self.release.estimate, self.truth)


def mean_table(release: Release, labels: tuple[str, ...]) -> pa.Table:
    """One row per coordinate, in its order, with pointwise 95 % intervals."""
    estimate = release.estimate
    low, high = estimate.confidence_interval(LEVEL)
    columns = place_columns(len(labels), release.question, release.group, release.window)
    columns["coordinate"] = list(labels)
    columns["mean"] = estimate.value
    columns["standard_error"] = estimate.standard_error
    columns["low"], columns["high"] = low, high
    return pa.table(columns, schema=SCHEMA)


def coordinate_table(view: MeanView, length: int) -> Table:
    """Coordinates with intervals that hold for all at once, and the truth where it is known."""
    listed = view.largest(length)
    caption = f"All {len(view):,} coordinates"
    if len(listed) < len(view):
        caption = f"The {len(listed)} largest of {len(view):,} coordinates"
    table = Table(
        title="The mean" if len(view) == 1 else caption, title_justify="left", header_style="bold"
    )
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


def _cells(view: MeanView, i: int) -> list[str]:
    form = f",.{decimals(view.error[i])}f"
    cells = [escape(shortened(view.labels[i], 40))]
    if view.truth is not None:
        cells.append(format(view.truth[i], form))
    cells += [
        format(view.value[i], form),
        format(view.error[i], form),
        f"{view.low[i]:{form}} … {view.high[i]:{form}}",
    ]
    if view.ranges is not None:
        cells.append("{:g} … {:g}".format(*view.ranges[i]))
    if view.truth is not None:
        cells.append("yes" if view.held[i] else "[red]no[/red]")
    return cells
