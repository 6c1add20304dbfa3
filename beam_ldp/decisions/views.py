"""What people see of decisions: the plan of an experiment, its verdict, and that of a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.decisions.bandits.noise import CentralSums
from beam_ldp.decisions.bandits.progress import BanditProgress, BatchTerms, Decided
from beam_ldp.decisions.experiments.arms import ArmCounts, normal_arms, normal_people
from beam_ldp.decisions.experiments.channel import NO_NOISE, BitChannel, share_interval
from beam_ldp.decisions.experiments.plan import ExperimentPlan, people_needed
from beam_ldp.decisions.experiments.verdict import ExperimentVerdict, decide
from beam_ldp.questions.base import Part, View
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    logarithmic,
    png,
    shortened,
)
from beam_ldp.questions.tables import LEVEL, PLACE, place_columns
from beam_ldp.release.outputs import as_json
from beam_ldp.release.terminal import printable
from beam_ldp.wording import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from beam_ldp.randomizers.estimate import Estimate

RATES = pa.schema(
    [
        *PLACE,
        ("arm", pa.string()),
        ("people", pa.int64()),
        ("reports_of_one", pa.int64()),
        *((f"rate{part}", pa.float64()) for part in ("", "_low", "_high")),
    ]
)
MEANS = pa.schema(
    [
        *PLACE,
        ("play", pa.string()),
        ("people", pa.int64()),
        *((name, pa.float64()) for name in ("mean", "standard_error", "low", "high")),
    ]
)
_MOST_DRAWN = 40


class OutcomeView(View):
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
        release: Part,
        plan: ExperimentPlan,
        increments: tuple[Mapping[str, ArmCounts], ...],
    ) -> None:
        super().__init__(release)
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
        return pa.table(columns, schema=RATES)

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

    def figure(self, price: str) -> Figure:
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


class RewardView(View):
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

    def __init__(self, release: Any, asked: BatchTerms, progress: BanditProgress) -> None:
        super().__init__(release)
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
        return pa.table(columns, schema=MEANS)

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

    def figure(self, price: str) -> Figure:
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


def figure_of_rows(
    title: str,
    subtitle: str,
    labels: Sequence[str],
    inside: float,
    sides: tuple[float, float],
    across: str,
) -> tuple[Any, Any, np.ndarray]:
    """A figure with a labelled row for each of several values, the first on top.

    Args:
        title, subtitle: of the figure.
        labels: of the rows.
        inside: height of the rows together, in inches.
        sides: where they begin and end, as shares of the width.
        across: what the horizontal axis says.

    Returns:
        The figure, its axes, and where the rows are.
    """
    height = ABOVE + BELOW + inside
    figure = figure_with(title, subtitle, height)
    axes = figure.add_axes((sides[0], BELOW / height, sides[1] - sides[0], inside / height))
    places = np.arange(len(labels))[::-1]
    axes.set_yticks(places, labels, parse_math=False)
    axes.set_ylim(-0.7, len(labels) - 0.3)
    axes.grid(axis="x", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right", "left")
    axes.set_xlabel(across, color=GREY)
    return figure, axes, places


# The plan of an experiment: people, price, bounds, and the effects seen --------------------------

_POINTS, _HEIGHT = 25, 5.0  # inches


def plan_json(plan: ExperimentPlan) -> dict[str, Any]:
    """What is printed for programs."""
    least = plan.least_people
    return {
        "schema_version": 1,
        "plan": {**plan.to_json(), "digest": plan.digest},
        "people": plan.people,
        "arms": plan.arm_people(),
        "crowd": plan.crowd(),
        "central_epsilon": float(plan.central_epsilon()),
        "people_without_noise": people_needed(plan, NO_NOISE),
        "least_people": {"sequential": least.sequential, "interactive": least.interactive},
    }


def show_plan(plan: ExperimentPlan, output: Path | None, plot: Path | None) -> None:
    """The table that `ab-test design` prints."""
    console = Console()
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    least = plan.least_people
    table.add_row("people needed", f"[bold]{plan.people:,}[/bold]", _asked(plan))
    if len(plan.arms) > 1:
        for arm, people in plan.arm_people().items():
            table.add_row(f"  {escape(printable(arm))}", f"{people:,}", "")
    table.add_row("decided by", "", _rule(plan))
    table.add_row(
        "privacy cost", number(plan.central_epsilon()),
        f"central epsilon at delta {plan.delta:g}, shuffled among {plan.crowd():,}; local epsilon "
        f"{plan.local_epsilon:g} without a shuffler",
    )  # fmt: skip
    table.add_row(
        "without noise", f"{people_needed(plan, NO_NOISE):,}", "people, if outcomes were collected"
    )
    table.add_row(
        "lower bound", f"{math.ceil(least.sequential):,}",
        "people, of every test whose reports have this local epsilon",
    )  # fmt: skip
    table.add_row(
        "", f"{math.ceil(least.interactive):,}", "people, even if they were asked again and again"
    )
    console.print(table)
    if output is not None:
        console.print(f"plan {plan.digest[:12]} in {escape(str(output))}", soft_wrap=True)
    if plot is not None:
        console.print(f"effects against people in {escape(str(plot))}", soft_wrap=True)


def _asked(plan: ExperimentPlan) -> str:
    side = "" if plan.sided == "one" else ", both signs"
    return (
        f"to see {plan.effect:+g} on {plan.null:g} with probability {plan.power:g}, "
        f"false alarms {plan.alpha:g}{side}"
    )


def _rule(plan: ExperimentPlan) -> str:
    if plan.spending == "anytime":
        return f"evidence of 1/alpha at any look; people as for {plan.looks} equal increments"
    if plan.looks > 1:
        return f"{plan.looks} looks, exact bounds at each ({plan.spending})"
    if plan.threshold is not None:
        what = "one" if plan.effect > 0 else "zero"
        return f"an effect if more than {plan.threshold:,} reports are {what}"
    if plan.kind == "arms":
        corrected = " with Holm's correction" if len(plan.arms) > 2 else ""
        return f"Fisher's exact test of the reports{corrected}"
    return "the exact binomial test on both sides"


def people_by_effect(
    plan: ExperimentPlan, channel: BitChannel, effects: NDArray[np.float64]
) -> list[float]:
    """People who see each effect (a share, above zero), by the normal approximation."""
    null = plan.facing(plan.direction)[1]
    found = []
    for effect in effects.tolist():
        if plan.kind == "arms":
            shares = plan.shares[0], min(plan.shares[1:])
            rates = channel.rate(null), channel.rate(null + effect)
            found.append(normal_arms(rates, shares, plan.tail_alpha, plan.power))
        else:
            told = (null, null + effect, plan.tail_alpha, plan.power)
            found.append(float(normal_people(channel, *told)))
    return found


def draw_plan(plan: ExperimentPlan) -> Any:
    """The least effect that is seen, against the people: with noise, without, and at best."""
    figure = figure_with("Which effect is seen with how many people", _subtitle(plan), _HEIGHT)
    axes = figure.add_axes((0.11, BELOW / _HEIGHT, 0.86, 1 - (ABOVE + BELOW) / _HEIGHT))
    planned = abs(plan.effect) / plan.scale
    most = min(4 * planned, 0.999 * (1 - plan.facing(plan.direction)[1]))
    effects = np.geomspace(planned / 4, most, _POINTS)
    signed = [plan.direction * plan.scale * effect for effect in effects.tolist()]
    least = [replace(plan, effect=effect).least_people.sequential for effect in signed]
    for people, name, colour, style in (
        (people_by_effect(plan, plan.channel, effects), "with this local epsilon", ESTIMATE, "-"),
        (people_by_effect(plan, NO_NOISE, effects), "without noise", GREY, "-"),
        (least, "lower bound at this local epsilon", ESTIMATE, ":"),
    ):
        axes.plot(people, effects * plan.scale, style, color=colour, linewidth=2, label=name)
    told = f"the plan: {plan.people:,} people"
    axes.plot([plan.people], [planned * plan.scale], "o", color=TRUTH, label=told)
    upward = "effect" if plan.effect > 0 else "effect, below zero"
    logarithmic(axes, "people of all arms", upward)
    return figure


def _subtitle(plan: ExperimentPlan) -> str:
    return (
        f"null {plan.null:g}, local epsilon {plan.local_epsilon:g}, power {plan.power:g}, false "
        f"alarms {plan.alpha:g}; one look, normal approximation"
    )


def plot_people(plan: ExperimentPlan) -> bytes:
    """The same as a PNG."""
    return png(draw_plan(plan))
