"""From a question to a plan: how many people an experiment needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from beam_ldp.decisions.experiments.arms import arms_design
from beam_ldp.decisions.experiments.channel import NO_NOISE, BitChannel
from beam_ldp.decisions.experiments.compound import Separation
from beam_ldp.decisions.experiments.looks import inflation
from beam_ldp.decisions.experiments.plan import ExperimentPlan
from beam_ldp.decisions.experiments.simple import simple_design, simple_threshold

_GUESS = 2  # people of a plan whose fields are checked before they are worked out


def design_experiment(
    *, local_epsilon: float, null: float, effect: float, alpha: float, power: float,
    delta: float = 1e-8, arms: Sequence[str] = ("control", "variant"),
    shares: Sequence[float] | None = None, **more: Any,
) -> ExperimentPlan:  # fmt: skip
    """The plan with the fewest people.

    Args:
        local_epsilon, null, effect, alpha, power, delta: as `ExperimentPlan` says.
        arms: names, the control first; one name: a sample against the known rate `null`.
        shares: of the people that each arm has; None: equal.
        more: other fields of the plan.

    Raises:
        ValueError: for an argument out of range, or too small an effect.

    >>> plan = design_experiment(
    ...     local_epsilon=2.0, null=0.10, effect=0.01, alpha=0.01, power=0.9, arms=["everybody"]
    ... )
    >>> plan.people, plan.threshold, round(plan.central_epsilon(), 4)
    (35767, 7162, 0.0748)
    """
    kind = "arms" if len(arms) > 1 else "one-sample"
    told = {
        "kind": kind, "local_epsilon": local_epsilon, "delta": delta, "alpha": alpha,
        "power": power, "null": null, "effect": effect, "arms": tuple(arms),
        "shares": tuple(shares or [1 / len(arms)] * len(arms)), **more,
    }  # fmt: skip
    plan = ExperimentPlan(**{"people": max(_GUESS, len(arms)), **told})
    if plan.threshold is not None:
        raise ValueError("threshold is worked out, not given")
    return with_people(plan, people_needed(plan, plan.channel))


def design_compound(
    separation: Separation, *, local_epsilon: float, alpha: float, power: float, **more: Any
) -> ExperimentPlan:
    """The plan that tells two sets of laws apart by the score that `separate_hulls` found.

    Both errors hold whatever laws of its hypothesis each person has.

    >>> from beam_ldp.decisions.experiments.compound import separate_hulls
    >>> found = separate_hulls([[0.7, 0.3], [0.6, 0.4]], [[0.3, 0.7], [0.2, 0.8]])
    >>> design_compound(found, local_epsilon=1.0, alpha=0.05, power=0.95).people
    144
    """
    return design_experiment(
        kind="compound", local_epsilon=local_epsilon, alpha=alpha, power=power,
        null=separation.null, effect=separation.distance, arms=("everybody",),
        scores=tuple(separation.scores.tolist()), **more,
    )  # fmt: skip


def with_people(plan: ExperimentPlan, people: int) -> ExperimentPlan:
    """The same experiment with so many people, whatever its power is then."""
    threshold = None
    if plan.kind != "arms" and not plan.looked and plan.sided == "one":
        channel, null = plan.facing(plan.direction)
        threshold = simple_threshold(people, channel.rate(null), plan.tail_alpha)
    return dataclasses.replace(plan, people=people, threshold=threshold)


def people_needed(plan: ExperimentPlan, channel: BitChannel) -> int:
    """People of all arms who have the plan's power through this channel.

    Looks cost `inflation` times the people; a sample whose power with looks is still below is made
    larger by half a percent until it is not.
    """
    null = plan.facing(plan.direction)[1]
    changed = min(null + abs(plan.effect) / plan.scale, 1.0)
    looked = 1.0
    if plan.looked:
        looked = inflation(plan.looks, plan.spending, plan.tail_alpha, plan.power)
    if plan.kind == "arms":
        needed = []
        for share in plan.shares[1:]:
            pair = arms_design(
                channel, (null, changed), (plan.shares[0], share), plan.tail_alpha, plan.power
            )
            needed.append(max(pair.control / plan.shares[0], pair.variant / share))
        return math.ceil(looked * max(needed))
    people = simple_design(channel, null, changed, plan.tail_alpha, plan.power).people
    if not plan.looked or channel == NO_NOISE:
        return math.ceil(looked * people)
    people = max(plan.looks, math.ceil(looked * people))
    while plan.power_of(plan.arms[0], {plan.arms[0]: people}) < plan.power:
        people += max(1, people // 200)
    return people
