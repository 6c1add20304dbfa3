"""Arms whose outcomes are numbers: one by finer reports than a bit, several at once, and ratios.

A numeric outcome can be one randomized bit (`ExperimentPlan.value_range`), whose test is exact.
From a local epsilon of about 1.5 on, reports of `ScalarMean` say more (a variance of 0.25 for 0.43
of the squared range at 2), and Welch's test of them is approximate. Several outcomes of everybody
go through `LInfMean`, where each report is a bit about one of them, drawn at random: Fisher's test
is exact for each.

Spec: interactivity, section 10.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from beam_ldp.decisions.experiments.arms import (
    ArmCounts,
    effect_interval,
    effect_of,
    fisher_p_value,
    holm,
)
from beam_ldp.decisions.experiments.channel import BitChannel, Interval, share_interval
from beam_ldp.randomizers.checks import check_fraction, check_positive
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean, ScalarMean

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class MeanComparison:
    """The mean of one outcome, the variant's less the control's.

    Attributes:
        effect: estimate, unbiased (`several_outcomes`: given how many reported on it), in the
            outcome's unit.
        interval: of the effect, two-sided.
        p_value: two-sided.
        adjusted_p_value: of all outcomes that were compared (Holm); of one the same.
    """

    effect: float
    interval: Interval
    p_value: float
    adjusted_p_value: float


# One outcome -------------------------------------------------------------------------------


def welch(
    mechanism: ScalarMean, control: Counts, variant: Counts, alpha: float = 0.05
) -> MeanComparison:
    """Welch's t-test of decoded reports: people differ, and so do their noise and their arms.

    No variance is supposed to be below that of the noise alone.

    Approximate, as for any numbers that are not normal; the level is enumerated for few people in
    its tests. Where it has to be a bound, use `ExperimentPlan.value_range`.

    Args:
        mechanism: what everybody's outcome went through.
        control, variant: int64, `statistic_shape`: how many reports named each point.
        alpha: the interval has level 1 - alpha.

    Raises:
        ValueError: for another shape, or fewer than two reports of an arm.

    >>> mechanism = ScalarMean(1, local_epsilon=2.0, radius=50.0)
    >>> told = welch(mechanism, np.array([600, 250, 150]), np.array([540, 260, 200]))
    >>> print(f"{told.effect:.2f}, p = {told.p_value:.4f}")
    4.04, p = 0.0013
    """
    check_fraction("alpha", alpha)
    points, least = mechanism.response.decoded, float(mechanism.response.point_variance.min())
    means, errors, freedom = [], [], []
    for name, counts in (("control", control), ("variant", variant)):
        people = int(counts.sum()) if counts.shape == points.shape else 0
        if people < 2 or counts.min() < 0:
            raise ValueError(f"{name} must count two or more reports, shape {points.shape}")
        mean = float(counts @ points) / people
        found = float(counts @ (points - mean) ** 2) / (people - 1)
        square = max(found, least) / people
        means.append(mean)
        errors.append(square)
        freedom.append(square**2 / (people - 1))
    effect, error = means[1] - means[0], math.sqrt(sum(errors))
    law = stats.t(sum(errors) ** 2 / sum(freedom))
    p_value = float(2 * law.sf(abs(effect) / error))
    reach = error * float(law.isf(alpha / 2))
    return MeanComparison(effect, (effect - reach, effect + reach), p_value, p_value)


def welch_people(
    mechanism: ScalarMean, effect: float, spread: float, *, alpha: float, power: float,
    share: float = 0.5,
) -> int:  # fmt: skip
    """People of both arms by whom a two-sided Welch test sees an effect; normal approximation.

    Supposes the worst noise that any outcome has, so that the power is that or more if the spread
    is right.

    Args:
        mechanism: what outcomes go through.
        effect: difference of the means, in the outcome's unit, not 0.
        spread: standard deviation of outcomes, in their unit; a guess.
        alpha, power: false alarms, and effects seen.
        share: of the people that the variant has.

    >>> mechanism = ScalarMean(1, local_epsilon=2.0, radius=50.0)
    >>> welch_people(mechanism, 2.0, 8.0, alpha=0.05, power=0.9)
    7240
    """
    check_fraction("share", share)
    check_fraction("alpha", alpha)
    check_fraction("power", power)
    if not (math.isfinite(effect) and effect):
        raise ValueError(f"effect must be a finite number other than 0, got {effect!r}")
    if spread:
        check_positive("spread", spread)
    wide = float(stats.norm.isf(alpha / 2) + stats.norm.ppf(power))
    variance = mechanism.response.worst_variance() + spread**2
    return math.ceil((wide / effect) ** 2 * variance * (1 / share + 1 / (1 - share)))


# Several outcomes at once ------------------------------------------------------------------


def several_outcomes(count: int, local_epsilon: float) -> LInfMean:
    """What devices run on so many outcomes, scaled to [-1, 1] (`CoordinateRanges.encode`).

    One report: which outcome it is about, drawn at random, and a randomized bit of it. It protects
    all outcomes of a person together by `local_epsilon`.
    """
    return LInfMean(count, local_epsilon, messages=(1,), message_epsilons=(local_epsilon,))


def bit_channel(mechanism: LInfMean) -> BitChannel:
    """What each bit went through."""
    _check_one_bit(mechanism)
    contrast = float(mechanism.layout.coordinate_laws(0)[1][0])
    return BitChannel((1 - contrast) / 2, (1 + contrast) / 2)


def outcome_counts(mechanism: LInfMean, statistic: Counts) -> tuple[ArmCounts, ...]:
    """Reports about each outcome in one arm. How many each has tells nothing about anybody.

    Raises:
        ValueError: for another shape, or an outcome that nobody reported on.
    """
    _check_one_bit(mechanism)
    if statistic.shape != mechanism.statistic_shape:
        raise ValueError(f"statistic must have shape {mechanism.statistic_shape}")
    return tuple(ArmCounts(int(row.sum()), int(row[1])) for row in statistic[0])


def compare_outcomes(
    mechanism: LInfMean, control: Counts, variant: Counts, *, alpha: float = 0.05,
    ranges: CoordinateRanges | None = None,
) -> tuple[MeanComparison, ...]:  # fmt: skip
    """Fisher's test for each outcome, Holm's correction for all.

    Exact: given how many people reported on an outcome, its bits are independent and equal rates
    stay equal. An adjusted p-value is at most alpha for an outcome without an effect with
    probability alpha at most, whatever outcomes have to do with each other. Intervals hold together
    (each at alpha over their number) and are those of `effect_interval`, approximate.

    Args:
        mechanism: of `several_outcomes`.
        control, variant: int64, statistics of both arms' reports.
        alpha: of intervals together.
        ranges: of the outcomes; None: they were within [-1, 1].

    >>> mechanism = several_outcomes(2, local_epsilon=2.0)
    >>> arms = [np.array([[[300, 200], [250, 250]]]), np.array([[[240, 260], [255, 245]]])]
    >>> told = compare_outcomes(mechanism, *arms)
    >>> [f"{one.effect:+.3f} {one.adjusted_p_value:.4f}" for one in told]
    ['+0.315 0.0004', '-0.026 0.8003']
    """
    channel, arms = bit_channel(mechanism), []
    for statistic in (control, variant):
        arms.append(outcome_counts(mechanism, statistic))
    scales = np.full(mechanism.dimension, 2.0)
    if ranges is not None:
        scales = np.subtract(ranges.high, ranges.low)
    p_values = [min(1.0, 2 * min(_both_ways(*pair))) for pair in zip(*arms)]
    found = []
    for pair, scale, p_value, adjusted in zip(zip(*arms), scales, p_values, holm(p_values)):
        low, high = effect_interval(channel, pair[0], pair[1], 1 - alpha / len(p_values))
        effect = effect_of(channel, pair[0], pair[1]) * float(scale)
        found.append(
            MeanComparison(effect, (low * float(scale), high * float(scale)), p_value, adjusted)
        )
    return tuple(found)


def _both_ways(control: ArmCounts, variant: ArmCounts) -> tuple[float, float]:
    flipped = (ArmCounts(arm.people, arm.people - arm.ones) for arm in (control, variant))
    return fisher_p_value(control, variant), fisher_p_value(*flipped)


def ratio_interval(
    mechanism: LInfMean, statistic: Counts, numerator: int, denominator: int, *,
    alpha: float = 0.05, ranges: CoordinateRanges,
) -> Interval:  # fmt: skip
    """An interval of the ratio of two means (what was spent for each visit), of one arm.

    A bound: exact intervals of both means, each at alpha/2, and all ratios within them. The
    difference of two arms' ratios lies between the differences of opposite ends, with both
    intervals at alpha/2.

    Args:
        mechanism: of `several_outcomes`.
        statistic: int64, of the arm's reports.
        numerator, denominator: which outcomes.
        alpha: probability that the ratio is outside, at most.
        ranges: of the outcomes; the denominator's from 0 or more on.

    Returns:
        The ends; infinite if the denominator's mean may be 0.
    """
    channel, counts = bit_channel(mechanism), outcome_counts(mechanism, statistic)
    if ranges.low[denominator] < 0:
        raise ValueError(f"ranges: the denominator's must be from 0 on, got {ranges.low}")
    ends: list[Any] = []
    for which in (numerator, denominator):
        one, low, high = counts[which], ranges.low[which], ranges.high[which]
        shares = share_interval(channel, one.ones, one.people, 1 - alpha / 2)
        ends.append(tuple(low + share * (high - low) for share in shares))
    if ends[1][0] <= 0:
        return -math.inf if ends[0][0] < 0 else ends[0][0] / ends[1][1], math.inf
    ratios = [top / bottom for top in ends[0] for bottom in ends[1]]
    return min(ratios), max(ratios)


def _check_one_bit(mechanism: LInfMean) -> None:
    if mechanism.messages != (1,) or mechanism.preset is not None:
        raise ValueError("mechanism must be one of several_outcomes: one message of one bit")
