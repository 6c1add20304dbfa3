"""What a batch decided, as people and programs see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.decisions.bandits.central import CentralSums
from beam_ldp.decisions.bandits.progress import BanditProgress, Decided
from beam_ldp.decisions.bandits.terms import BatchTerms
from beam_ldp.decisions.commands.pictures import figure_of_rows
from beam_ldp.questions.pictures import ESTIMATE, GREY, shortened
from beam_ldp.questions.tables import LEVEL, PLACE, place_columns
from beam_ldp.release.outputs import as_json
from beam_ldp.release.question import Answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from beam_ldp.pipelines.frequencies.parts import Parts
    from beam_ldp.randomizers.estimate import Estimate

SCHEMA = pa.schema(
    [
        *PLACE,
        ("play", pa.string()),
        ("people", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "standard_error", "low", "high")),
    ]
)
_MOST_DRAWN = 40


class BatchAnswer(Answer):
    """The mean reward of each play, and which actions may still be best.

    Args:
        release: of all plays.
        asked: the batch.
        progress: of the bandit, with this batch decided.
    """

    purposes = {
        "estimates.csv": "the mean reward of each play with its interval",
        "verdict.json": "what was decided: sums, estimates of all actions, and those that are left",
        "plot.png": "estimates of all actions with the widths that decide",
    }

    def __init__(self, release: Parts, asked: BatchTerms, progress: BanditProgress) -> None:
        super().__init__(release, None)
        self.parts, self.asked, self.progress = release, asked, progress

    @property
    def decided(self) -> Decided:
        """This batch."""
        return self.progress.decided[-1]

    @property
    def best(self) -> str:
        """Name of the action with the largest estimate."""
        return self._names[self.progress.best]

    @property
    def _names(self) -> tuple[str, ...]:
        return self.asked.terms.names

    def table(self) -> pa.Table:
        by_play = {part.group: part for part in self.parts.releases}
        estimates = [by_play[play].estimate for play in self.asked.plays]
        columns = place_columns(len(estimates), self.release.question, None, None)
        columns["group"] = columns["play"] = list(self.asked.plays)
        columns["people"] = [by_play[play].num_reports for play in self.asked.plays]
        columns["mean"] = [float(one.value[0]) for one in estimates]
        columns["standard_error"] = [float(one.standard_error[0]) for one in estimates]
        ends = [self._interval(one) for one in estimates]
        columns["low"] = [low for low, _ in ends]
        columns["high"] = [high for _, high in ends]
        return pa.table(columns, schema=SCHEMA)

    def _interval(self, estimate: Estimate) -> tuple[float, float]:
        """Of the mean reward of a play; noise of a server is no normal variable."""
        if not self.asked.terms.trusts_the_server:
            low, high = estimate.confidence_interval(LEVEL)
            return float(low[0]), float(high[0])
        sums = CentralSums(self.asked.terms.bandit.epsilon)
        half, value = sums.half_width(estimate.num_users, LEVEL), float(estimate.value[0])
        return value - half, value + half

    def more_files(self) -> dict[str, bytes]:
        return {"verdict.json": as_json(self.as_json())}

    def as_json(self) -> dict[str, Any]:
        heard, decided, names = self.progress.heard[-1], self.decided, self._names
        left = set(decided.survivors.tolist())
        return {
            "batch": self.asked.number,
            "digest": self.asked.digest,
            "counts": dict(zip(self.asked.plays, heard.counts)),
            "sums": dict(zip(self.asked.plays, heard.sums)),
            "width": decided.batch.width,
            "estimates": {
                names[i]: float(value) for i, value in zip(decided.batch.active, decided.estimates)
            },
            "survivors": [names[i] for i in decided.survivors],
            "dropped": [names[i] for i in decided.batch.active if int(i) not in left],
            "best": self.best,
        }

    def errors(self) -> dict[str, float]:
        decided = self.decided
        return {
            "batch": float(self.asked.number),
            "people_asked": float(self.progress.asked),
            "survivors": float(len(decided.survivors)),
            "width": decided.batch.width,
        }

    def show(self, console: Console) -> None:
        decided, left = self.decided, set(self.decided.survivors.tolist())
        order = np.argsort(-decided.estimates, kind="stable")
        table = Table(
            title=f"Batch {self.asked.number}: {decided.batch.people:,} people",
            title_justify="left", header_style="bold",
        )  # fmt: skip
        table.add_column("action")
        for heading in ("mean reward", "within"):
            table.add_column(heading, justify="right", no_wrap=True)
        table.add_column("may be best", justify="center")
        for place in order[:_MOST_DRAWN]:
            action = int(decided.batch.active[place])
            table.add_row(
                escape(shortened(self._names[action], 40)),
                f"{decided.estimates[place]:+.4f}",
                f"± {decided.batch.width:.4f}",
                "yes" if action in left else "no",
            )
        console.print(table)
        if len(order) > _MOST_DRAWN:
            console.print(f"and {len(order) - _MOST_DRAWN:,} more, in verdict.json", style="dim")

    def plot(self, price: str) -> Figure:
        decided, left = self.decided, set(self.decided.survivors.tolist())
        order = np.argsort(-decided.estimates, kind="stable")[:_MOST_DRAWN]
        actions = decided.batch.active[order]
        figure, axes, places = figure_of_rows(
            f"Batch {self.asked.number}: {len(left):,} of {len(decided.estimates):,} may be best",
            price, [shortened(self._names[i]) for i in actions], 0.3 * max(2, len(order)),
            (0.24, 0.95), "mean reward; left of the dashed line an action is dropped",
        )  # fmt: skip
        stays = np.array([int(action) in left for action in actions])
        value, width = decided.estimates[order], decided.batch.width
        for chosen, colour in ((stays, ESTIMATE), (~stays, GREY)):
            axes.hlines(places[chosen], value[chosen] - width, value[chosen] + width, color=colour,
                        alpha=0.3, linewidth=7, zorder=2)  # fmt: skip
            axes.plot(value[chosen], places[chosen], "o", color=colour, markersize=5, zorder=4)
        axes.axvline(value.max() - 2 * width, color=GREY, linewidth=1, linestyle="--", zorder=1)
        return figure
