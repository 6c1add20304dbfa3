"""The verdict of an experiment, as people and programs see it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.decisions import ArmCounts, ExperimentPlan, ExperimentVerdict, decide
from beam_ldp.decisions.commands.pictures import figure_of_rows
from beam_ldp.decisions.experiments.channel import share_interval
from beam_ldp.questions.pictures import ESTIMATE, GREY, TRUTH, shortened
from beam_ldp.questions.tables import LEVEL, PLACE, place_columns
from beam_ldp.release.outputs import as_json
from beam_ldp.release.question import Answer
from beam_ldp.release.terminal import printable
from beam_ldp.transforms.elements.blocks import Release

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCHEMA = pa.schema(
    [
        *PLACE,
        ("arm", pa.string()),
        ("people", pa.int64()),
        ("reports_of_one", pa.int64()),
        *((f"rate{part}", pa.float64()) for part in ("", "_low", "_high")),
    ]
)


class ExperimentAnswer(Answer):
    """What is decided, and the rate of each arm.

    Args:
        release: of all arms.
        plan: of the experiment.
        increments: counts of the looks so far, this one last.
    """

    purposes = {
        "estimates.csv": "the rate of each arm with its interval",
        "verdict.json": "what was decided, with effects, intervals and p-values",
        "plot.png": "the effects with their intervals",
    }

    def __init__(
        self,
        release: Release,
        plan: ExperimentPlan,
        increments: tuple[Mapping[str, ArmCounts], ...],
    ) -> None:
        super().__init__(release, None)
        self.plan, self.increments = plan, increments

    @cached_property
    def verdict(self) -> ExperimentVerdict:
        """What is decided, from all looks so far."""
        return decide(self.plan, *self.increments)

    @property
    def counts(self) -> Mapping[str, ArmCounts]:
        """Of the people of this look."""
        return self.increments[-1]

    def table(self) -> pa.Table:
        plan, asked = self.plan, self.release.question
        columns = place_columns(len(plan.arms), asked, None, None)
        columns["group"] = columns["arm"] = list(plan.arms)
        told = [self.counts[arm] for arm in plan.arms]
        columns["people"] = [count.people for count in told]
        columns["reports_of_one"] = [count.ones for count in told]
        columns["rate"] = [plan.channel.share(count.ones / count.people) for count in told]
        ends = [share_interval(plan.channel, count.ones, count.people, LEVEL) for count in told]
        columns["rate_low"], columns["rate_high"] = zip(*ends)
        return pa.table(columns, schema=SCHEMA)

    def more_files(self) -> dict[str, bytes]:
        return {"verdict.json": as_json(self.as_json())}

    def as_json(self) -> dict[str, Any]:
        looks = [
            {arm: {"people": count.people, "ones": count.ones} for arm, count in one.items()}
            for one in self.increments
        ]
        return {**self.verdict.to_json(), "counts": looks}

    def errors(self) -> dict[str, float]:
        told = {"decided": float(self.verdict.decision == "effect")}
        for one in self.verdict.comparisons:
            told[f"effect.{one.arm}"] = one.effect
            if one.p_value is not None:
                told[f"p_value.{one.arm}"] = one.p_value
        return told

    def show(self, console: Console) -> None:
        verdict = self.verdict
        colour = {"effect": "green", "no effect shown": "yellow", "go on": "cyan"}
        look = f", look {verdict.look} of {verdict.looks}" if self.plan.looked else ""
        console.print(
            f"[bold {colour[verdict.decision]}]{verdict.decision}[/]{look}: "
            f"{verdict.people:,} people of {verdict.planned:,} planned, alpha {verdict.alpha:g}",
            highlight=False,
        )
        console.print(self._comparisons())
        console.print(
            f"intervals hold at once with {verdict.interval_level:.4g}; people counted: "
            f"{verdict.lower_bound_ratio:.1f} times those that any test of this privacy needs",
            style="dim", highlight=False,
        )  # fmt: skip

    def _comparisons(self) -> Table:
        table = Table(header_style="bold", padding=(0, 0, 0, 1))  # 80 columns hold it
        against = "arm" if self.plan.kind == "arms" else "sample"
        names = [printable(one.arm) for one in self.verdict.comparisons]
        table.add_column(against, no_wrap=True)
        several = len(self.verdict.comparisons) > 1
        p_values = ("p-value", "adjusted") if several else ("p-value",)
        for heading in ("people", "effect", "interval", *p_values, "power"):
            table.add_column(heading, justify="right", no_wrap=heading != "interval")
        table.add_column("shown", justify="center", no_wrap=True)
        for name, one in zip(names, self.verdict.comparisons, strict=True):
            low, high = one.interval
            told = (one.p_value, one.adjusted_p_value) if several else (one.p_value,)
            table.add_row(
                escape("\n".join(name[i : i + 24] for i in range(0, len(name), 24))),  # never cut
                f"{one.people:,}",
                f"{one.effect:+.4f}",
                f"{low:+.4f} … {high:+.4f}",
                *("by bounds" if p is None else f"{p:.2g}" for p in told),
                f"{one.power:.3f}",
                "yes" if one.significant else "no",
            )
        return table

    def plot(self, price: str) -> Figure:
        told, plan = self.verdict.comparisons, self.plan
        asked = shortened(self.release.question, 50)
        named = [one.arm if plan.kind == "arms" else asked for one in told]
        against = "the control" if plan.kind == "arms" else f"{plan.null:g}"
        level = f"{100 * self.verdict.interval_level:.3g} %"
        figure, axes, places = figure_of_rows(
            f"{asked}: {self.verdict.decision}", price, [shortened(name, 20) for name in named],
            0.5 * len(told) + 0.3, (0.2, 0.92),
            f"effect against {against}; intervals hold at once with {level}",
        )  # fmt: skip
        lows, highs = zip(*(one.interval for one in told))
        axes.hlines(places, lows, highs, color=ESTIMATE, alpha=0.3, linewidth=8, zorder=2)
        axes.plot([one.effect for one in told], places, "o", color=ESTIMATE, zorder=4)
        axes.axvline(0, color=GREY, linewidth=1, zorder=1)
        axes.axvline(plan.effect, color=TRUTH, linewidth=1, linestyle="--", zorder=1)
        axes.annotate(
            "planned effect", (plan.effect, 1), xycoords=("data", "axes fraction"),
            xytext=(4, -4), textcoords="offset points", color=TRUTH, fontsize=8, va="top",
        )  # fmt: skip
        return figure
