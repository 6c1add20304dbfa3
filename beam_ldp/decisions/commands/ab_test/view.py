"""What people see of the plan of an experiment: people, price, bounds, and the effects seen."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.decisions.experiments.arms import normal_arms
from beam_ldp.decisions.experiments.channel import NO_NOISE, BitChannel
from beam_ldp.decisions.experiments.designing import people_needed
from beam_ldp.decisions.experiments.simple import normal_people
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    TRUTH,
    figure_with,
    logarithmic,
    png,
)
from beam_ldp.release.terminal import printable
from beam_ldp.wording import number

if TYPE_CHECKING:
    from beam_ldp.decisions import ExperimentPlan

_POINTS, _HEIGHT = 25, 5.0  # inches


def as_json(plan: ExperimentPlan) -> dict[str, Any]:
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


def show(plan: ExperimentPlan, output: Path | None, plot: Path | None) -> None:
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


def draw(plan: ExperimentPlan) -> Any:
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
    return png(draw(plan))
