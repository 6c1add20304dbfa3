"""Frequencies as people and programs see them: the table of a release, its top list, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.frequencies.parts import Parts, withheld_as_json
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.release.outputs import LEVEL, PLACE, errors_against, place_columns
from beam_ldp.release.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TopList,
    bare,
    figure_with,
    plot_top,
    shortened,
    top_list,
)
from beam_ldp.release.question import Answer
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.wording import many

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


class FrequencyAnswer(Answer):
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
        self, release: Release, labels: Sequence[str], length: int, truth: np.ndarray | None
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

    def plot(self, price: str) -> Figure:
        title = f"{self.release.question}: the {len(self.top.labels)} most frequent values"
        return plot_top(self.top, title, price)

    def show(self, console: Console) -> None:
        caption = f"The {len(self.top.labels)} most frequent of {len(self.labels) - 1:,} values"
        console.print(top_table(self.top, caption))

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


# Several answers shown as one ---------------------------------------------------------------------


SHOWN = 4  # parts on the screen; all of them are in the files
DRAWN = 8  # parts in the picture


class PartsAnswer(Answer):
    """The answers of all parts.

    Args:
        release: the parts.
        answers: of each of them, in the same order.
    """

    purposes = {
        "estimates.csv": "every value of every part with counts, frequencies and intervals",
        "plot.png": "the most frequent values of the largest parts",
    }

    def __init__(self, release: Parts, answers: Sequence[FrequencyAnswer]) -> None:
        super().__init__(release, None)
        self.parts = release
        self.answers = tuple(answers)
        self._largest = sorted(
            range(len(answers)), key=lambda i: -answers[i].release.num_reports
        )  # stable: questions of one group stay in their order

    def table(self) -> pa.Table:
        return pa.concat_tables([answer.table() for answer in self.answers])

    def plot(self, price: str) -> Figure:
        drawn = [self.answers[i] for i in self._largest[:DRAWN]]
        panels = [Panel(caption_of(answer), answer.top) for answer in drawn]
        left = len(self.answers) - len(drawn)
        more = f" ({len(drawn)} of {len(self.answers)} parts)" if left else ""
        return plot_panels(
            panels, f"{self.release.question}: the most frequent values{more}", price
        )

    def show(self, console: Console) -> None:
        for i in self._largest[:SHOWN]:
            answer = self.answers[i]
            console.print(top_table(answer.top, escape(caption_of(answer))))
        left = len(self.answers) - SHOWN
        if left > 0:
            console.print(f"… and {many(left, 'more part')} in estimates.csv", style="dim")
        for notice in self.parts.withheld[:SHOWN]:
            console.print(
                f"[yellow]withheld:[/yellow] {escape(str(notice.group))}, "
                f"{many(notice.num_reports, 'report')} of {notice.min_reports:,} needed"
            )
        if len(self.parts.withheld) > SHOWN:
            rest = len(self.parts.withheld) - SHOWN
            console.print(f"… and {rest:,} more withheld, see privacy.json", style="dim")

    def as_json(self) -> dict[str, Any]:
        return {
            "parts": [
                {
                    "question": answer.release.question,
                    "group": answer.release.group,
                    "num_reports": answer.release.num_reports,
                    **answer.as_json(),
                }
                for answer in self.answers
            ],
            "withheld": list(withheld_as_json(self.parts.withheld)),
        }

    def errors(self) -> dict[str, float]:
        found = [answer.errors() for answer in self.answers]
        return {
            name: float(np.mean([one[name] for one in found if name in one]))
            for name in dict.fromkeys(name for one in found for name in one)
        }


def caption_of(answer: FrequencyAnswer) -> str:
    """Question, group and size of a part."""
    release = answer.release
    named = release.question if release.group is None else f"{release.question}, {release.group}"
    return f"{named}: {many(release.num_reports, 'report')}"


# The picture: a panel for each, with intervals that hold within it at once ------------------------


_LINES = 8  # of a panel
_ROW = 0.26  # inches of a line
_GAP = 0.85  # inches between rows of panels


@dataclass(frozen=True)
class Panel:
    """One part: what it is about and its most frequent values."""

    caption: str
    top: TopList


def plot_panels(panels: Sequence[Panel], title: str, subtitle: str) -> Figure:
    """A picture with two panels side by side, as many rows as it takes."""
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
    step = panels[0].top.step if panels else ""
    whose = f"of the raw estimate, dots: {step}, " if step else ""
    figure.text(
        0.97, 0.14 / height, f"people; bars: 95 % intervals {whose}all at once within a panel",
        fontsize=8, color=GREY, ha="right",
    )  # fmt: skip
    return figure
