"""The plan of an experiment: everything that is fixed before anybody reports, as one value.

From a question to a plan: how many people an experiment needs.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

from beam_ldp.decisions.experiments.arms import (
    arms_design,
    arms_power,
    simple_design,
    simple_power,
    simple_threshold,
)
from beam_ldp.decisions.experiments.channel import (
    NO_NOISE,
    BitChannel,
    LeastPeople,
    least_people,
    least_people_apart,
    least_people_of_arms,
)
from beam_ldp.decisions.experiments.compound import Separation
from beam_ldp.decisions.experiments.looks import (
    Spending,
    binomial_law,
    exit_probability,
    increments,
    inflation,
    looked_bounds,
)
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.domain import written
from beam_ldp.randomizers.frequency import KRandomizedResponse

if TYPE_CHECKING:
    from beam_ldp.accounting.lower import PrivacyBound


Kind = Literal["one-sample", "arms", "compound"]
Sided = Literal["one", "two"]
SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class ExperimentPlan:
    """What is tested, of whom, how sure, and with what noise. `design_experiment` makes it.

    Every person sends one report: randomized response of the outcome, a bit. It protects the
    outcome against everybody who sees the report, by `local_epsilon`; the arm is public. A numeric
    outcome within `value_range` is a bit that is one with a probability linear in it.

    Attributes:
        kind: "one-sample" (one rate against a known one), "arms" (variants against a control) or
            "compound" (one sample; each rate of `null` or less against `effect` more).
        local_epsilon: of one report.
        delta: of the central epsilon.
        alpha: probability of deciding any effect where there is none, at most.
        power: probability of deciding the planned effect, at least.
        null: rate (or mean) without an effect; of arms the control's.
        effect: what is to be seen on top of it; below zero for a smaller rate.
        sided: whether effects of the other sign are looked for too.
        arms: their names, the control first; one name for one sample.
        shares: of the people that each arm has; sum to one.
        people: whose reports are asked for, of all arms.
        threshold: of one sample without looks: the effect is decided if more reports are one (of a
            negative effect: zero).
        looks: how often the counts may be looked at, after equal increments of people.
        spending: how alpha is spent over the looks; or "anytime": looks may be timed by what was
            seen, and there may be more of them, at a price for smaller increments.
        value_range: of a numeric outcome; None for a bit.
        scores: compound: probability of a one for each value of the outcome.
        memoized: whether a retry sends the same report (it should); otherwise noise is fresh.
    """

    kind: Kind
    local_epsilon: float
    delta: float
    alpha: float
    power: float
    null: float
    effect: float
    people: int
    sided: Sided = "one"
    arms: tuple[str, ...] = ("control", "variant")
    shares: tuple[float, ...] = (0.5, 0.5)
    threshold: int | None = None
    looks: int = 1
    spending: Spending = "obrien-fleming"
    value_range: tuple[float, float] | None = None
    scores: tuple[float, ...] | None = None
    memoized: bool = True

    def __post_init__(self) -> None:
        for name, allowed in (("kind", Kind), ("sided", Sided), ("spending", Spending)):
            if getattr(self, name) not in get_args(allowed):
                choices = ", ".join(get_args(allowed))
                raise ValueError(f"{name} must be one of {choices}, got {getattr(self, name)!r}")
        for name in ("local_epsilon", "delta", "alpha", "power", "null", "effect"):
            object.__setattr__(self, name, float(getattr(self, name)))  # 2 and 2.0 are one plan
        check_positive("local_epsilon", self.local_epsilon)
        for name in ("delta", "alpha", "power"):
            check_fraction(name, getattr(self, name))
        if self.power <= self.alpha:
            raise ValueError(f"power must be above alpha, got {self.power!r} and {self.alpha!r}")
        check_integer("people", self.people, len(self.arms))
        check_integer("looks", self.looks, 1, 100)
        self._check_range()
        self._check_rates()
        self._check_arms()

    def _check_range(self) -> None:
        low, high = self.value_range or (0.0, 1.0)
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(f"value_range must be two rising numbers, got {self.value_range!r}")
        if self.scores is not None:
            for score in self.scores:
                check_fraction("scores", score, "[]")
        if (self.kind == "compound") != (self.scores is not None):
            raise ValueError("scores go with kind compound")

    def _check_rates(self) -> None:
        low, high = self.value_range or (0.0, 1.0)
        if not (math.isfinite(self.effect) and self.effect):
            raise ValueError(f"effect must be a finite number other than 0, got {self.effect!r}")
        for name, rate in (("null", self.null), ("null + effect", self.null + self.effect)):
            if not low <= rate <= high:
                raise ValueError(f"{name} must lie from {low:g} to {high:g}, got {rate!r}")

    def _check_arms(self) -> None:
        object.__setattr__(self, "arms", written(self.arms, "arms"))
        least = 2 if self.kind == "arms" else 1
        several = len(self.arms) >= 2
        if len(self.arms) < least or (several and self.kind != "arms"):
            raise ValueError(f"arms must be {least} or more names for {self.kind}: {self.arms!r}")
        if len(set(self.arms)) < len(self.arms) or not all(self.arms):
            raise ValueError(f"arms must be different names, got {self.arms!r}")
        for share in self.shares:
            check_fraction("shares", share, "(]")
        if len(self.shares) != len(self.arms) or abs(sum(self.shares) - 1) > 1e-9:
            raise ValueError("shares must be one for each arm, and sum to 1")

    # What follows from the plan ---------------------------------------------------------

    @cached_property
    def channel(self) -> BitChannel:
        """What reports go through, as devices run it."""
        return BitChannel.implemented(self.local_epsilon)

    def randomizer(self) -> KRandomizedResponse:
        """What devices run on the bit."""
        return KRandomizedResponse(2, self.local_epsilon)

    @property
    def scale(self) -> float:
        """Units of the outcome to a share of 1."""
        low, high = self.value_range or (0.0, 1.0)
        return high - low

    @property
    def null_share(self) -> float:
        """The null as a share of ones."""
        return (self.null - (self.value_range or (0.0, 1.0))[0]) / self.scale

    @property
    def direction(self) -> int:
        """1 where the planned effect is a larger rate, -1 where it is a smaller one."""
        return 1 if self.effect > 0 else -1

    def facing(self, direction: int) -> tuple[BitChannel, float]:
        """Channel and null with zeros for ones, where the direction is -1."""
        if direction > 0:
            return self.channel, self.null_share
        return BitChannel(1 - self.channel.one, 1 - self.channel.zero), 1 - self.null_share

    @property
    def tail_alpha(self) -> float:
        """What one direction of one comparison may use of alpha, without Holm's steps."""
        return self.alpha / max(1, len(self.arms) - 1) / (1 if self.sided == "one" else 2)

    def compared_with(self, arm: str) -> tuple[str, ...]:
        """The arms of one comparison."""
        return (self.arms[0], arm) if self.kind == "arms" else (arm,)

    def arm_people(self) -> dict[str, int]:
        """Reports that each arm needs.

        Rounded up, so that their sum may be above `people` by less than one for each arm.
        """
        return {
            arm: math.ceil(self.people * share - 1e-6) for arm, share in zip(self.arms, self.shares)
        }

    def crowd(self) -> int:
        """Honest reports among which the report of a person is hidden, as planned.

        Arms are public, and so is who reported between which looks: the smallest increment of the
        smallest arm.
        """
        return min(self.arm_people().values()) // self.looks

    def central_epsilon(self, crowd: int | None = None) -> PrivacyBound:
        """Cost of one person's outcome, against readers of all shuffled reports.

        Args:
            crowd: honest reports of the smallest increment of the smallest arm; None: as planned.
        """
        from beam_ldp.accounting import shuffled_event
        from beam_ldp.accounting.prices import event_epsilon

        hidden_among = self.crowd() if crowd is None else crowd
        return event_epsilon(shuffled_event(self.randomizer(), hidden_among), self.delta)

    @cached_property
    def least_people(self) -> LeastPeople:
        """What no test of this local epsilon, level and power stays below, of all arms."""
        null, changed = self.null_share, self.null_share + self.effect / self.scale
        if self.kind == "compound":
            return least_people_apart(
                self.local_epsilon, abs(changed - null), self.alpha, self.power
            )
        if self.kind != "arms":
            laws = (1 - null, null), (1 - changed, changed)
            return least_people(self.local_epsilon, *laws, self.alpha, self.power)
        return max(
            (
                least_people_of_arms(
                    self.local_epsilon,
                    (null, changed),
                    (self.shares[0], share),
                    self.alpha,
                    self.power,
                )
                for share in self.shares[1:]
            ),
            key=lambda bound: bound.sequential,
        )

    @property
    def looked(self) -> bool:
        """Whether the counts may be looked at before everybody has reported."""
        return self.looks > 1 or self.spending == "anytime"

    def reported_rates(self, direction: int) -> tuple[float, float]:
        """How often reports are one (zero, if the direction is -1): null, and planned effect."""
        channel, null = self.facing(direction)
        return channel.rate(null), channel.rate(min(null + abs(self.effect) / self.scale, 1.0))

    def power_of(self, arm: str, people: Mapping[str, int]) -> float:
        """How often the planned effect of an arm is seen at this many people of each arm.

        Exact without looks and for one sample; of arms with looks the people are divided by what
        the looks cost (`inflation`).
        """
        channel, null = self.facing(self.direction)
        changed = null + abs(self.effect) / self.scale
        if self.kind == "arms":
            cost = 1.0
            if self.looked:
                cost = inflation(self.looks, self.spending, self.tail_alpha, self.power)
            counted = tuple(max(1, math.floor(people[one] / cost)) for one in (self.arms[0], arm))
            return arms_power(channel, (counted[0], counted[1]), (null, changed), self.tail_alpha)
        if not self.looked:
            return simple_power(channel, people[arm], null, changed, self.tail_alpha)
        sizes = increments(people[arm], self.looks)
        rates = self.reported_rates(self.direction)
        bounds = looked_bounds(self.spending, sizes, rates, self.tail_alpha)
        return exit_probability([binomial_law(n, rates[1]) for n in sizes], bounds)

    # As a file --------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """For `from_json`; also what `digest` is of."""
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ExperimentPlan:
        """The plan of a file.

        Raises:
            ValueError: for another version, a missing or unknown field, a value out of range.
        """
        told = dict(stored)
        if (version := told.pop("schema_version", None)) != SCHEMA_VERSION:
            raise ValueError(f"schema_version must be {SCHEMA_VERSION}, got {version!r}")
        told.pop("digest", None)
        fields = {field.name for field in dataclasses.fields(cls)}
        if wrong := sorted(set(told) ^ fields):
            raise ValueError(f"a plan has the fields {', '.join(sorted(fields))}: see {wrong}")
        told = {name: tuple(v) if isinstance(v, list) else v for name, v in told.items()}
        try:
            plan = cls(**told)
        except TypeError as error:
            raise ValueError(f"a field of the plan has the wrong type ({error})") from None
        if stored.get("digest", plan.digest) != plan.digest:
            raise ValueError("digest must be that of the plan: a field was changed by hand")
        return plan

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the plan: its identity. Two plans that differ in anything differ in it."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()


# How many people a plan needs ---------------------------------------------------------------------


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
