"""Two public arms whose bits go through one channel: how many people, and what is decided.

A channel that both arms share turns equal rates into equal rates, so Fisher's exact test of the
randomized bits keeps its level at *every* common rate, known or not. Given the ones of both arms
together, the number of ones of the variant is hypergeometric whatever that rate is. Where people
differ and arms were drawn at random, it is so too, as long as the arm changes nobody's bit.

Spec: interactivity, section 10.2.

One sample of randomized bits against a known rate: how many people, and what is decided.

A person's bit is one with probability tau0 under the hypothesis of no effect, and tau1 under the
effect; the report is randomized response of it. The effect is decided if *more than* a threshold of
reports are one. Everything is an exact binomial probability. Where people differ, it holds as long
as they are independent and nobody's rate is above tau0 (under the effect: below tau1).

Source: Joseph, Mao, Neel and Roth, section 5.1, whose rule (more than half) is wrong: the threshold
has to lie between the two rates of reports (docs/errata.md). Spec: interactivity, section 7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from beam_ldp.decisions.experiments.channel import BitChannel, Interval, clopper_pearson
from beam_ldp.randomizers.checks import check_fraction, check_integer

MOST_EXACT = 1_000_000  # people of two arms up to which the power is computed and not approximated
MOST_PEOPLE = 10**10


@dataclass(frozen=True)
class ArmCounts:
    """Reports of one arm.

    Args:
        people: who reported.
        ones: of their reports that are one.
    """

    people: int
    ones: int

    def __post_init__(self) -> None:
        check_integer("people", self.people, 1)
        check_integer("ones", self.ones, 0, self.people)


@dataclass(frozen=True)
class ArmsDesign:
    """How many people each of two arms needs, and how often the effect is then seen."""

    control: int
    variant: int
    power: float


def fisher_p_value(control: ArmCounts, variant: ArmCounts) -> float:
    """Probability, without an effect, of so many ones of the variant or more.

    >>> round(fisher_p_value(ArmCounts(1000, 400), ArmCounts(1000, 450)), 4)
    0.0133
    """
    people, ones = control.people + variant.people, control.ones + variant.ones
    return float(stats.hypergeom.sf(variant.ones - 1, people, ones, variant.people))


def effect_of(channel: BitChannel, control: ArmCounts, variant: ArmCounts) -> float:
    """The variant's share of ones less the control's: unbiased."""
    difference = variant.ones / variant.people - control.ones / control.people
    return difference / channel.contrast


def effect_interval(
    channel: BitChannel, control: ArmCounts, variant: ArmCounts, level: float
) -> Interval:
    """An interval of the effect, within [-1, 1].

    Limits of both rates are put together by their squares (Newcombe 1998), the limits being those
    of Clopper and Pearson. Approximate; its coverage is enumerated in its tests and stays above
    the level there.

    >>> low, high = effect_interval(
    ...     BitChannel.implemented(2.0), ArmCounts(5000, 1000), ArmCounts(5000, 1300), 0.95
    ... )
    >>> print(f"{low:.3f} {high:.3f}")
    0.057 0.101
    """
    first, second = (arm.ones / arm.people for arm in (control, variant))
    low_1, high_1 = clopper_pearson(control.ones, control.people, level)
    low_2, high_2 = clopper_pearson(variant.ones, variant.people, level)
    below = math.hypot(second - low_2, high_1 - first)
    above = math.hypot(high_2 - second, first - low_1)
    ends = (
        (second - first - below) / channel.contrast,
        (second - first + above) / channel.contrast,
    )
    return max(ends[0], -1.0), min(ends[1], 1.0)


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values of several comparisons: one at most alpha is a false alarm of the family
    with probability alpha at most, however they depend on each other.

    Source: Holm 1979.

    >>> holm([0.04, 0.01, 0.5])
    [0.08, 0.03, 0.5]
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    for rank, i in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p_values[i]))
        adjusted[i] = largest
    return adjusted


def chi_square_p_value(reports: NDArray[np.int64]) -> float:
    """Whether arms differ in an outcome of k values, from reports of k-ary randomized response.

    Pearson's chi-square of the table of *reports*: one channel leaves equal laws equal.
    Approximate: tables want five or more reports expected in each cell.

    Args:
        reports: int64, (arms, k): how many reports of each arm name each value.

    >>> round(chi_square_p_value(np.array([[30, 30, 40], [50, 30, 20]])), 4)
    0.0029
    """
    if reports.ndim != 2 or min(reports.shape) < 2 or np.any(reports < 0):
        raise ValueError("reports must be counts of shape (arms, k), at least two of each")
    seen = reports[:, reports.sum(axis=0) > 0]
    if seen.shape[1] < 2:
        return 1.0
    return float(stats.chi2_contingency(seen, correction=False).pvalue)


def fisher_power(control: int, variant: int, rates: tuple[float, float], alpha: float) -> float:
    """How often Fisher's test sees that the variant's rate is the larger one.

    Exact but for tables whose ones are 6.5 standard deviations off, which count as not seen, and
    for rounding (1e-8). O(people) memory and time, 30 ms for 140,000 people.

    Args:
        control, variant: people of each arm.
        rates: of *reports* that are one, control and variant.
        alpha: false alarms.

    >>> round(fisher_power(1448, 1448, (0.4769, 0.5231), 0.05), 2)
    0.79
    """
    totals = _totals(control, variant, rates)
    # A table with `a` ones of the control and `b` of the variant is significant if b >= c(a + b),
    # that is if a <= m - c(m) at m = a + b, which does not fall as m grows.
    most_of_control = totals - _least_significant(totals, control, variant, alpha)
    first = np.arange(max(0, totals[0] - variant), min(control, totals[-1]) + 1)
    at = np.searchsorted(most_of_control, first)
    found = at < totals.size
    first, needed = first[found], totals[at[found]] - first[found]
    seen = stats.binom.sf(needed - 1, variant, rates[1])
    return float(stats.binom.pmf(first, control, rates[0]) @ seen)


def _totals(control: int, variant: int, rates: tuple[float, float]) -> NDArray[np.int64]:
    """Ones of both arms together that occur."""
    mean = control * rates[0] + variant * rates[1]
    spread = control * rates[0] * (1 - rates[0]) + variant * rates[1] * (1 - rates[1])
    far = 6.5 * math.sqrt(spread) + 3
    most = control + variant
    return np.arange(max(0, math.floor(mean - far)), min(most, math.ceil(mean + far)) + 1)


def _least_significant(
    totals: NDArray[np.int64], control: int, variant: int, alpha: float
) -> NDArray[np.int64]:
    """For each number of ones the smallest count of the variant that Fisher's test rejects.

    One more than possible where none is.
    """
    people = control + variant
    mean = totals * (variant / people)
    deviation = np.sqrt(mean * (control / people) * (people - totals) / max(people - 1, 1))
    start = np.floor(mean + (stats.norm.isf(alpha) - 1.5) * deviation - 4).astype(np.int64)
    width = math.ceil(9.5 * float(deviation.max()) + 30)
    counts = start[:, None] + np.arange(width)
    others = totals[:, None] - counts
    possible = (counts >= 0) & (others >= 0) & (counts <= variant) & (others <= control)
    logs = (
        _log_choose(variant, counts) + _log_choose(control, others)
        - _log_choose(people, totals)[:, None]
    )  # fmt: skip
    masses = np.where(possible, np.exp(np.where(possible, logs, -np.inf)), 0.0)
    tails = np.cumsum(masses[:, ::-1], axis=1)[:, ::-1]
    rejected = (tails <= alpha) & (counts >= 0)
    return np.minimum(start + np.argmax(rejected, axis=1), np.minimum(totals, variant) + 1)


def _log_choose(total: int, part: NDArray[np.int64]) -> NDArray[np.float64]:
    """Logarithm of a binomial coefficient, by a table over the parts that occur."""
    low, high = max(0, int(part.min())), min(total, int(part.max()))
    parts = np.arange(low, max(low, high) + 1)
    table = (
        special.gammaln(total + 1) - special.gammaln(parts + 1)
        - special.gammaln(np.maximum(total - parts, 0) + 1)
    )  # fmt: skip
    return table[np.clip(part - low, 0, table.size - 1)]


def normal_arms(
    rates: tuple[float, float], shares: tuple[float, float], alpha: float, power: float
) -> float:
    """People of two arms by the normal approximation; `shares` sum to at most one: of all arms."""
    pooled = (rates[0] * shares[0] + rates[1] * shares[1]) / sum(shares)
    null = pooled * (1 - pooled) * (1 / shares[0] + 1 / shares[1])
    effect = sum(rate * (1 - rate) / share for rate, share in zip(rates, shares))
    wide = stats.norm.isf(alpha) * math.sqrt(null) + stats.norm.ppf(power) * math.sqrt(effect)
    return float((wide / (rates[1] - rates[0])) ** 2)


@lru_cache(maxsize=256)
def arms_power(
    channel: BitChannel, people: tuple[int, int], rates: tuple[float, float], alpha: float
) -> float:
    """Power of control against variant of these true rates, the variant's being larger.

    Exact (`fisher_power`) for up to a million people, a normal approximation beyond.
    """
    reported = channel.rate(rates[0]), channel.rate(rates[1])
    if sum(people) <= MOST_EXACT:
        return fisher_power(*people, reported, alpha)
    pooled = (reported[0] * people[0] + reported[1] * people[1]) / sum(people)
    null = pooled * (1 - pooled) * (1 / people[0] + 1 / people[1])
    effect = sum(rate * (1 - rate) / count for rate, count in zip(reported, people))
    needed = stats.norm.isf(alpha) * math.sqrt(null) - (reported[1] - reported[0])
    return float(stats.norm.sf(needed / math.sqrt(effect)))


def arms_design(
    channel: BitChannel,
    rates: tuple[float, float],
    shares: tuple[float, float],
    alpha: float,
    power: float,
) -> ArmsDesign:
    """The fewest people (within 0.1 %) of two arms by whom the larger rate of the variant is seen.

    Args:
        channel: what reports of both arms go through.
        rates: share of ones of control and variant; the variant's larger.
        shares: of all people that these two arms have.
        alpha: the most that a false alarm may have, at any common rate.
        power: the least that this effect must have of being seen.

    >>> arms_design(BitChannel.implemented(1.0), (0.45, 0.55), (0.5, 0.5), 0.05, 0.8)
    ArmsDesign(control=1480, variant=1480, power=0.80...)
    """
    if not 0 <= rates[0] < rates[1] <= 1:
        raise ValueError(f"rates must be rising, within 0 and 1, got {rates!r}")
    about = normal_arms((channel.rate(rates[0]), channel.rate(rates[1])), shares, alpha, power)
    if about > MOST_PEOPLE:
        raise ValueError(f"effect: more than {MOST_PEOPLE:.0e} people would be needed")

    def arms(people: int) -> tuple[int, int]:
        return math.ceil(people * shares[0]), math.ceil(people * shares[1])

    def seen(people: int) -> float:
        return arms_power(channel, arms(people), rates, alpha)

    few, enough = math.floor(0.98 * about), max(4, math.ceil(1.02 * about))
    while seen(enough) < power:
        few, enough = enough, math.ceil(1.1 * enough) + 2
    while enough - few > max(1, enough // 1000):
        middle = (enough + few) // 2
        few, enough = (few, middle) if seen(middle) >= power else (middle, enough)
    return ArmsDesign(*arms(enough), seen(enough))


# One sample against a rate that is known ----------------------------------------------------------


MOST_PEOPLE = 10**10
_STEPS_BACK = 200  # the least number is saw-toothed: what is searched below the bisection's answer


@dataclass(frozen=True)
class SimpleDesign:
    """How many people, and the threshold.

    Attributes:
        people: whose reports are counted.
        threshold: the effect is decided if more reports than this are one.
        level: probability of that without an effect.
        power: probability of it with one.
    """

    people: int
    threshold: int
    level: float
    power: float


def simple_threshold(people: int, rate: float, alpha: float) -> int:
    """The smallest count that reports exceed with probability `alpha` at most.

    >>> simple_threshold(1201, 0.5924234, 0.05)
    739
    """
    check_integer("people", people, 1)
    check_fraction("alpha", alpha)
    return int(stats.binom.isf(alpha, people, rate))


def simple_design(
    channel: BitChannel, null: float, alternative: float, alpha: float, power: float
) -> SimpleDesign:
    """The fewest people (within about 2 %) who tell the two shares apart.

    Args:
        channel: what reports go through.
        null: share of ones without an effect.
        alternative: the same with it; larger. For a smaller one count the zeros.
        alpha: the most that a false alarm may have.
        power: the least that an effect must have of being seen.

    Raises:
        ValueError: for an argument out of range, or if 1e10 people are too few.

    >>> simple_design(  # doctest: +ELLIPSIS
    ...     BitChannel.implemented(1.0), 0.7, 0.8, 0.05, 0.95
    ... )
    SimpleDesign(people=1201, threshold=739, level=0.0497..., power=0.950...)
    """
    for name, share in (("null", null), ("alternative", alternative)):
        check_fraction(name, share, "[]")
    if alternative <= null:
        raise ValueError(f"alternative must be above null, got {alternative!r} and {null!r}")
    check_fraction("alpha", alpha)
    check_fraction("power", power)
    rates = channel.rate(null), channel.rate(alternative)
    enough = 1
    while not _at(enough, rates, alpha).power >= power:
        enough *= 2
        if enough > MOST_PEOPLE:
            raise ValueError(f"effect: more than {MOST_PEOPLE:.0e} people would be needed")
    few = enough // 2
    while enough - few > 1:
        middle = (enough + few) // 2
        if _at(middle, rates, alpha).power >= power:
            enough = middle
        else:
            few = middle
    tried = (_at(n, rates, alpha) for n in range(max(1, enough - _STEPS_BACK), enough + 1))
    return next(design for design in tried if design.power >= power)


def _at(people: int, rates: tuple[float, float], alpha: float) -> SimpleDesign:
    threshold = simple_threshold(people, rates[0], alpha)
    level, power = (float(stats.binom.sf(threshold, people, rate)) for rate in rates)
    return SimpleDesign(people, threshold, level, power)


def simple_power(
    channel: BitChannel, people: int, null: float, alternative: float, alpha: float
) -> float:
    """The power at this many people, the threshold recomputed for them."""
    return _at(people, (channel.rate(null), channel.rate(alternative)), alpha).power


def simple_p_value(channel: BitChannel, people: int, ones: int, null: float) -> float:
    """Probability of so many ones, or more, without an effect.

    >>> round(simple_p_value(BitChannel.implemented(1.0), 1201, 740, 0.7), 4)
    0.0497
    """
    check_integer("ones", ones, 0, people)
    return float(stats.binom.sf(ones - 1, people, channel.rate(null)))


def normal_people(
    channel: BitChannel, null: float, alternative: float, alpha: float, power: float
) -> int:
    """What the normal approximation says; beside the exact number."""
    rates = channel.rate(null), channel.rate(alternative)
    wide = [
        stats.norm.isf(tail) * math.sqrt(rate * (1 - rate))
        for tail, rate in zip((alpha, 1 - power), rates)
    ]
    return math.ceil((sum(wide) / (rates[1] - rates[0])) ** 2)
