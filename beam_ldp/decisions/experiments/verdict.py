"""What an experiment found: decided by a plan, from counts of reports."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from beam_ldp.decisions.experiments.arms import (
    ArmCounts,
    effect_interval,
    effect_of,
    fisher_p_value,
    holm,
    simple_p_value,
)
from beam_ldp.decisions.experiments.channel import BitChannel, Interval, share_interval
from beam_ldp.decisions.experiments.looks import (
    CountLaw,
    Floats,
    anytime_p_value,
    binomial_growth,
    binomial_law,
    effect_sequence,
    exit_bounds,
    hypergeometric_growth,
    hypergeometric_law,
    rate_sequence,
    spent,
    tilts_for,
)
from beam_ldp.decisions.experiments.plan import ExperimentPlan

Decision = Literal["effect", "no effect shown", "go on"]
Counts = Mapping[str, ArmCounts]


@dataclass(frozen=True)
class ArmComparison:
    """One arm against the control, or one sample against the known rate.

    Attributes:
        arm: its name.
        people: whose reports were counted, of both sides.
        effect: estimate of the difference, unbiased, in the outcome's unit.
        interval: of the effect; all of the verdict hold at once with its `interval_level`.
        p_value: probability, without an effect, of what was seen or more; of an "anytime" plan at
            any look; None where alpha is spent over looks, whose bounds decide.
        adjusted_p_value: the same for the family of all comparisons; at most alpha: significant.
        significant: whether the effect is decided, at this look or an earlier one.
        power: how often the planned effect would be seen with so many people.
    """

    arm: str
    people: int
    effect: float
    interval: Interval
    p_value: float | None
    adjusted_p_value: float | None
    significant: bool
    power: float


@dataclass(frozen=True)
class ExperimentVerdict:
    """What is decided, and how sure that is.

    Attributes:
        decision: "effect" if any comparison is significant, "no effect shown" if none is after the
            last look, "go on" before it.
        comparisons: one for each arm but the control.
        alpha: probability of deciding any effect where there is none, at most.
        interval_level: of all intervals at once.
        people: whose reports were counted.
        planned: how many the plan asked for.
        look, looks: which look this is, of how many.
        least_people: what no test of this local epsilon, level and power stays below.
        digest: of the plan.
    """

    decision: Decision
    comparisons: tuple[ArmComparison, ...]
    alpha: float
    interval_level: float
    people: int
    planned: int
    look: int
    looks: int
    least_people: float
    digest: str

    @property
    def lower_bound_ratio(self) -> float:
        """People counted over those whom every test needs."""
        return self.people / self.least_people

    def to_json(self) -> dict[str, Any]:
        """For files and programs."""
        return {
            "schema_version": 1,
            **dataclasses.asdict(self),
            "lower_bound_ratio": self.lower_bound_ratio,
        }


def decide(plan: ExperimentPlan, *increments: Counts) -> ExperimentVerdict:
    """What the reports say.

    Recomputed at the number of people who came: the level stays alpha, the power is theirs.

    Args:
        plan: what was fixed before anybody reported.
        increments: for each look so far what came *since the look before*: of each arm how many
            people reported, and how many of their reports are one.

    Raises:
        ValueError: for counts of other arms, or more looks than planned (but with "anytime").
    """
    _check(plan, increments)
    sides = (1,) if plan.sided == "one" else (1, -1)
    directions = tuple(plan.direction * side for side in sides)
    totals = {name: _added(one[name] for one in increments) for name in plan.arms}
    tested = plan.arms if plan.kind != "arms" else plan.arms[1:]
    spends = plan.looks > 1 and plan.spending != "anytime"
    p_values = [_p_value(plan, increments, name, directions) for name in tested]
    adjusted = holm(p_values)
    if spends:
        significant = [
            any(_exceeded(plan, increments, name, way) for way in directions) for name in tested
        ]
    else:
        significant = [p <= plan.alpha for p in adjusted]
    compared = tuple(
        ArmComparison(
            name,
            sum(totals[arm].people for arm in plan.compared_with(name)),
            *_estimated(plan, totals, name),
            None if spends else p_values[i],
            None if spends else adjusted[i],
            significant[i],
            plan.power_of(name, {arm: count.people for arm, count in totals.items()}),
        )
        for i, name in enumerate(tested)
    )
    last = len(increments) >= plan.looks
    decision: Decision = "no effect shown" if last else "go on"
    return ExperimentVerdict(
        "effect" if any(significant) else decision,
        compared,
        plan.alpha,
        1 - 2 * plan.tail_alpha * len(tested),
        sum(count.people for count in totals.values()),
        plan.people,
        len(increments),
        plan.looks,
        plan.least_people.sequential,
        plan.digest,
    )


def _check(plan: ExperimentPlan, increments: Sequence[Counts]) -> None:
    """A ValueError unless these are counts of the arms, of as many looks as were planned."""
    more = plan.spending == "anytime"
    if not increments or (len(increments) > plan.looks and not more):
        raise ValueError(
            f"counts must be of 1 to {plan.looks} looks, got {len(increments)}: "
            "looks are decided in the design"
        )
    for one in increments:
        if set(one) != set(plan.arms):
            raise ValueError(f"counts must be of the arms {', '.join(plan.arms)}")


def _added(counts: Any) -> ArmCounts:
    people, ones = (sum(column) for column in zip(*((c.people, c.ones) for c in counts)))
    return ArmCounts(people, ones)


def _facing(count: ArmCounts, direction: int) -> ArmCounts:
    """Ones, or zeros where the effect is a smaller rate."""
    return count if direction > 0 else ArmCounts(count.people, count.people - count.ones)


def _p_value(
    plan: ExperimentPlan, increments: Sequence[Counts], name: str, directions: Sequence[int]
) -> float:
    """Of all reports so far: the smallest of the directions, times how many there are."""
    totals = {arm: _added(one[arm] for one in increments) for arm in plan.compared_with(name)}
    found = []
    for way in directions:
        if plan.spending == "anytime":
            found.append(_anytime(plan, increments, name, way))
            continue
        arm = _facing(totals[name], way)
        if plan.kind == "arms":
            found.append(fisher_p_value(_facing(totals[plan.arms[0]], way), arm))
        else:
            channel, null = plan.facing(way)
            found.append(simple_p_value(channel, arm.people, arm.ones, null))
    return min(1.0, len(found) * min(found))


def _anytime(
    plan: ExperimentPlan, increments: Sequence[Counts], name: str, direction: int
) -> float:
    """The p-value of one direction that holds at every look."""
    tilts = tilts_for(*plan.reported_rates(direction))

    def growth(counts: Counts) -> Floats:
        arm = _facing(counts[name], direction)
        if plan.kind == "arms":
            control = _facing(counts[plan.arms[0]], direction)
            return hypergeometric_growth(control.ones + arm.ones, arm.people, control.people, tilts)
        return binomial_growth(arm.people, plan.reported_rates(direction)[0], tilts)

    ones = [_facing(counts[name], direction).ones for counts in increments]
    return anytime_p_value(ones, [growth(counts) for counts in increments], tilts)


def _exceeded(
    plan: ExperimentPlan, increments: Sequence[Counts], name: str, direction: int
) -> bool:
    """Whether some look so far was above its bound."""
    laws, people, ones = [], [], []
    for one in increments:
        arm = _facing(one[name], direction)
        laws.append(_null_law(plan, one, name, direction))
        people.append(sum(count.people for count in one.values()))
        ones.append(arm.ones)
    fractions = [done / plan.people for done in accumulate(people)]
    if len(increments) == plan.looks:
        fractions[-1] = 1.0
    allowed = [spent(plan.spending, fraction, plan.tail_alpha) for fraction in fractions]
    bounds = exit_bounds(laws, allowed)
    return any(count > bound for count, bound in zip(accumulate(ones), bounds))


def _null_law(plan: ExperimentPlan, counts: Counts, name: str, direction: int) -> CountLaw:
    """Law of an increment's count without an effect."""
    arm = _facing(counts[name], direction)
    if plan.kind == "arms":
        control = _facing(counts[plan.arms[0]], direction)
        return hypergeometric_law(control.ones + arm.ones, arm.people, control.people)
    channel, null = plan.facing(direction)
    return binomial_law(arm.people, channel.rate(null))


def _estimated(plan: ExperimentPlan, totals: Counts, name: str) -> tuple[float, Interval]:
    """The effect and its interval, in the outcome's unit."""
    channel: BitChannel = plan.channel
    arm, level = totals[name], 1 - plan.tail_alpha * 2 / plan.looks
    tilts = tilts_for(*plan.reported_rates(plan.direction))
    if plan.kind == "arms":
        control = totals[plan.arms[0]]
        effect = effect_of(channel, control, arm)
        if plan.spending == "anytime":
            pair = (control.ones, control.people), (arm.ones, arm.people)
            ends = effect_sequence(*pair, tilts, plan.tail_alpha)
            low, high = (min(max(end / channel.contrast, -1.0), 1.0) for end in ends)
        else:
            low, high = effect_interval(channel, control, arm, level)
    else:
        null = plan.null_share
        effect = channel.share(arm.ones / arm.people) - null
        if plan.spending == "anytime":
            rates = rate_sequence(arm.ones, arm.people, tilts, plan.tail_alpha)
            low, high = (min(max(channel.share(end), 0.0), 1.0) - null for end in rates)
        else:
            low, high = (end - null for end in share_interval(channel, arm.ones, arm.people, level))
    return effect * plan.scale, (low * plan.scale, high * plan.scale)
