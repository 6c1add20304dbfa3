"""Frequencies as people and programs see them: the table of a release, its top list, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.questions.base import Part, View
from beam_ldp.questions.pictures import TopList, plot_top, shortened, top_list
from beam_ldp.questions.tables import LEVEL, PLACE, errors_against, place_columns
from beam_ldp.randomizers.estimate import Estimate

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = pa.schema(
    [
        *PLACE,
        ("value", pa.string()),
        *(
            (f"{scale}{part}", pa.float64())
            for scale in ("count", "frequency")
            for part in ("", "_standard_error", "_low", "_high")
        ),
    ]
)

POSTPROCESSED = pa.schema(
    [
        *SCHEMA,
        *((name, pa.float64()) for name in ("count_raw", "frequency_raw")),
        ("postprocess", pa.string()),
    ]
)


class FrequencyView(View):
    """Frequencies of the values of a public list.

    Args:
        release: the frequencies.
        labels: name of each value, `other` last.
        length: of the top list.
        truth: true counts per value, where they are known.
    """

    purposes = {
        "estimates.csv": "every value with counts, frequencies and intervals",
        "plot.png": "the most frequent values",
    }

    def __init__(
        self, release: Part, labels: Sequence[str], length: int, truth: np.ndarray | None
    ) -> None:
        super().__init__(release, truth)
        self.labels = tuple(labels)
        self._length = length

    @cached_property
    def top(self) -> TopList:
        """The most frequent values."""
        other = len(self.labels) - 1
        return top_list(self.release.estimate, self.labels, self._length, self.truth, [other])

    def table(self) -> pa.Table:
        return estimate_table(
            self.release.estimate,
            self.labels,
            self.release.question,
            self.release.group,
            self.release.window,
        )

    def figure(self, price: str) -> Figure:
        title = f"{self.release.question}: the {len(self.top.labels)} most frequent values"
        return plot_top(self.top, title, price)

    def show(self, console: Console) -> None:
        caption = f"The {len(self.top.labels)} most frequent of {len(self.labels) - 1:,} values"
        console.print(self.listed(caption))

    def listed(self, caption: str) -> Table:
        return top_table(self.top, caption)

    def as_json(self) -> dict[str, Any]:
        top = self.top
        return {
            "top": [
                {
                    "value": label,
                    "count": float(top.estimate[i]),
                    **({"count_raw": float(top.raw[i])} if top.step else {}),
                    "count_low_simultaneous": float(top.low[i]),
                    "count_high_simultaneous": float(top.high[i]),
                }
                for i, label in enumerate(top.labels)
            ]
        }

    def errors(self) -> dict[str, float]:
        if self.truth is None:
            return {}
        shares = np.asarray(self.truth, dtype=float) / max(1, self.release.num_reports)
        return errors_against(self.release.estimate, shares)


def estimate_table(
    estimate: Estimate,
    labels: Sequence[str],
    question: str,
    group: str | None = None,
    window: tuple[int, int] | None = None,
) -> pa.Table:
    """One row per value of the domain, in its order, with pointwise 95 % intervals.

    Post-processed estimates have the raw ones, whose intervals these are, in columns of their own.

    Args:
        estimate: frequencies.
        labels: the name of each value.
        question, group: public names.
        window: start and end in microseconds since 1970; None for all of the input.
    """
    columns = place_columns(len(labels), question, group, window)
    columns["value"] = list(labels)
    for scale, shown in (("count", estimate.to_counts()), ("frequency", estimate)):
        low, high = shown.confidence_interval(LEVEL)
        columns[scale] = shown.value
        columns[f"{scale}_standard_error"] = shown.standard_error
        columns[f"{scale}_low"] = low
        columns[f"{scale}_high"] = high
    if not estimate.postprocessed:
        return pa.table(columns, schema=SCHEMA)
    columns["count_raw"] = estimate.to_counts().raw.value
    columns["frequency_raw"] = estimate.raw.value
    columns["postprocess"] = [estimate.postprocessed] * len(labels)
    return pa.table(columns, schema=POSTPROCESSED)


def top_table(top: TopList, caption: str) -> Table:
    """The most frequent values with simultaneous intervals, and the truth where it is known."""
    table = Table(title=caption, title_justify="left", header_style="bold")
    table.add_column("#", justify="right", style="dim")
    table.add_column("value")
    if top.truth is not None:
        table.add_column("truth", justify="right")
    for heading in top.headings:
        table.add_column(heading, justify="right")
    if top.truth is not None:
        table.add_column("inside", justify="center")
    for i, label in enumerate(top.labels):
        cells = [str(i + 1), escape(shortened(label, 40))]
        if top.truth is not None:
            cells.append(f"{top.truth[i]:,.0f}")
        cells.append(f"{top.estimate[i]:,.0f}")
        cells += [f"{top.raw[i]:,.0f}"] if top.step else []
        cells.append(f"{top.low[i]:,.0f} … {top.high[i]:,.0f}")
        if top.truth is not None:
            cells.append("yes" if top.low[i] <= top.truth[i] <= top.high[i] else "[red]no[/red]")
        table.add_row(*cells)
    return table
