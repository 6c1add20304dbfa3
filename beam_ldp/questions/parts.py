"""Several releases that are shown as one: a part for each group, question or window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape

from beam_ldp.questions.base import View
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TopList,
    bare,
    figure_with,
    shortened,
)
from beam_ldp.wording import many

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 4  # parts on the screen; all of them are in the files
DRAWN = 8  # parts in the picture


class PartsView(View):
    """The views of all parts.

    Args:
        release: the parts.
        views: of each of them, in the same order.
    """

    def __init__(self, release: Any, views: Sequence[View]) -> None:
        super().__init__(release, None)
        self.parts = release
        self.views = tuple(views)
        self._largest = sorted(
            range(len(views)), key=lambda i: -views[i].release.num_reports
        )  # stable: questions of one group stay in their order

    @property
    def purposes(self) -> dict[str, str]:  # type: ignore[override]
        one = self.views[0]
        every = one.purposes["estimates.csv"].replace(" with ", " of every part with ", 1)
        return {"estimates.csv": every, "plot.png": f"{one.shows} of the largest parts"}

    def table(self) -> pa.Table:
        return pa.concat_tables([view.table() for view in self.views])

    def figure(self, price: str) -> Figure:
        drawn = [self.views[i] for i in self._largest[:DRAWN]]
        panels = [Panel(caption_of(view), view.top) for view in drawn]
        left = len(self.views) - len(drawn)
        more = f" ({len(drawn)} of {len(self.views)} parts)" if left else ""
        kind = type(self.views[0])
        title = f"{self.release.question}: {kind.shows}{more}"
        return plot_panels(panels, title, price, kind.unit)

    def show(self, console: Console) -> None:
        for i in self._largest[:SHOWN]:
            view = self.views[i]
            console.print(view.listed(escape(caption_of(view))))
        left = len(self.views) - SHOWN
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
                    "question": view.release.question,
                    "group": view.release.group,
                    "num_reports": view.release.num_reports,
                    **view.as_json(),
                }
                for view in self.views
            ],
            "withheld": list(withheld_as_json(self.parts.withheld)),
        }

    def errors(self) -> dict[str, float]:
        found = [view.errors() for view in self.views]
        return {
            name: float(np.mean([one[name] for one in found if name in one]))
            for name in dict.fromkeys(name for one in found for name in one)
        }


def withheld_as_json(withheld: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """What was not released, for the record."""
    return tuple(
        {
            "group": notice.group,
            "num_reports": notice.num_reports,
            "min_reports": notice.min_reports,
            "reason": notice.reason,
        }
        for notice in withheld
    )


def caption_of(view: View) -> str:
    """Question, group and size of a part."""
    release = view.release
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


def plot_panels(panels: Sequence[Panel], title: str, subtitle: str, unit: str = "people") -> Figure:
    """A picture with two panels side by side, as many rows as it takes; `unit`: what they show."""
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
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.12g}"))
    step = panels[0].top.step if panels else ""
    whose = f"of the raw estimate, dots: {step}, " if step else ""
    figure.text(
        0.97, 0.14 / height, f"{unit}; bars: 95 % intervals {whose}all at once within a panel",
        fontsize=8, color=GREY, ha="right",
    )  # fmt: skip
    return figure
