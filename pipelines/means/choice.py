"""Which mean mechanism runs, and what is expected of it before any data is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from beam_ldp.accounting import PrivacyBound
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.means.settings import parts_messages
from beam_ldp.pipelines.mechanisms import mechanism_of
from beam_ldp.pipelines.question import Choice
from beam_ldp.pipelines.records.gates import Price, expected_price
from beam_ldp.planning import MeanPlan, plan_means
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

if TYPE_CHECKING:
    from beam_ldp.pipelines.means.settings import MeanSettings

LOCAL = "no credit for shuffling"


@dataclass(frozen=True)
class MeanChoice(Choice):
    """A mean mechanism with its expected price and error.

    Attributes:
        plan: the plan that it comes from: errors of the whole vector, inside the unit ball of
            the mechanism, and how far they are from the best possible. None where somebody else
            chose the mechanism.
        predicted_error: largest standard error of a coordinate, in the unit of the data.
        relative_error: the same as a share of half the range, or of the radius.
    """

    plan: MeanPlan | None
    relative_error: float

    @property
    def against_the_best(self) -> tuple[float, str]:
        """How many times a lower bound the squared error is, and which; NaN where not known."""
        if self.plan is None:
            return math.nan, ""
        return self.plan.times_lower_bound, self.plan.lower_bound_name


def choose(settings: MeanSettings, dimension: int, ranges: CoordinateRanges | None) -> MeanChoice:
    """The mechanism for these flags.

    Args:
        settings: checked flags.
        dimension: numbers per person.
        ranges: public ranges, where vectors are in units of their own.

    Raises:
        UsageError: if the mechanism's name is unknown, or none fits.
    """
    plan = _plan(settings, dimension, ranges)
    randomizer = plan.randomizer
    assert randomizer is not None
    randomizer = replace(randomizer, clipping=settings.question.outside)
    return chosen(settings, randomizer, ranges, plan)


def chosen(
    settings: MeanSettings,
    randomizer: MeanRandomizer,
    ranges: CoordinateRanges | None,
    plan: MeanPlan | None,
) -> MeanChoice:
    """A mechanism, with what is expected of it."""
    n = settings.planned_reports
    error = np.sqrt(randomizer.variance(n, None, settings.sampling))
    half = np.ones(1) if ranges is None else np.array(ranges.high) / 2 - np.array(ranges.low) / 2
    return MeanChoice(
        randomizer=randomizer,
        num_reports=n,
        price=None if settings.noise.seed is not None else _price(settings, randomizer, n),
        predicted_error=float(np.max(error * half)),
        plan=plan,
        relative_error=float(np.max(error)) / _half_range(randomizer),
    )


def _half_range(randomizer: MeanRandomizer) -> float:
    return 0.5 if randomizer.norm == "binary" else randomizer.radius


def local_price(local_epsilon: float) -> Price:
    """What a release costs where nobody but the device is trusted: the local promise."""
    bound = PrivacyBound(local_epsilon, method=LOCAL, lower_method=LOCAL)
    return Price(bound, 1, LocalReports(local_epsilon))


def _price(settings: MeanSettings, randomizer: MeanRandomizer, num_reports: int) -> Price:
    if settings.privacy.model == "local":
        return local_price(randomizer.local_epsilon)
    return expected_price(
        randomizer, num_reports, settings.privacy.delta, settings.privacy.honest_fraction
    )


def _plan(settings: MeanSettings, dimension: int, ranges: CoordinateRanges | None) -> MeanPlan:
    name = "auto" if settings.mechanism.name == "auto" else _named(settings.mechanism.name)
    only = None if ranges is None else _for_ranges()
    if name != "auto":
        if only is not None and name not in only:
            raise UsageError(
                f"--mechanism {settings.mechanism.name} takes no ranges; choose auto or one of "
                f"{', '.join(only)}"
            )
        only = [name]
    try:
        plans = plan_means(
            settings.planned_reports,
            dimension,
            settings.question.norm,
            radius=settings.question.radius,
            epsilon=settings.privacy.epsilon,
            local_epsilon=settings.privacy.local_epsilon,
            delta=settings.privacy.delta or None,
            max_bits=settings.mechanism.max_bits,
            max_local_epsilon=settings.privacy.max_local_epsilon,
            model=settings.privacy.model,
            honest_fraction=settings.privacy.honest_fraction,
            only=only,
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    usable = [plan for plan in plans if not plan.excluded]
    fitting = [plan for plan in usable if plan.messages_per_user == 1 or parts_messages(settings)]
    if fitting:
        return fitting[0]
    if usable:
        raise UsageError(
            "--scope global with --shuffle-output reports takes one message per person, and "
            f"{usable[0].mechanism} sends {usable[0].messages_per_user:,}: the shard of a person "
            "would link them. Use --shuffle-output statistic or --scope batch"
        )
    if settings.mechanism.name == "auto":
        raise UsageError("no mechanism fits these flags (see `beam-ldp plan mean`)")
    reason = f"not for norm {settings.question.norm} in dimension {dimension:,}"
    if plans:
        reason = plans[0].excluded
    raise UsageError(f"--mechanism {settings.mechanism.name}: {reason}")


def _named(name: str) -> str:
    try:
        return mechanism_of(name, "mean", auto=True).__name__
    except ValueError as error:
        raise UsageError(str(error)) from None


def _for_ranges() -> list[str]:
    """Mechanisms whose values are the cube."""
    return [kind.__name__ for kind in registry.offered("mean") if kind.norm == "linf"]
