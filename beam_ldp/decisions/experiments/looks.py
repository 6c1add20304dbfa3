"""Decisions that may be taken before all people have reported: bounds that a count has to exceed.

Between two looks an increment of people reports. Without an effect the number of ones among them
(or, of two arms, the number that the variant has of the ones of both) has a known law, and
increments are independent. The bounds follow by the exact recursion over these laws: what has not
exceeded a bound yet goes on. By each look the probability of a false alarm is at most what the
spending function of the design allows until then. The times of looks must not depend on what was
seen; where they may, the design says "anytime" (`anytime.py`) and nothing is spent.

Source: Armitage, McPherson and Rowe 1969 (recursion); Lan and DeMets 1983 (spending).

Decisions at any time, after any number of looks: evidence that is a martingale.

Between two looks an increment of people reports, whose ones have a known law without an effect
(binomial; of two arms hypergeometric, given the ones of both). For a tilt t, e^(t * ones) over its
mean under that law is 1 on average whatever came before, so that their product over increments is a
martingale, and so is the mean of several tilts' products: the evidence. Without an effect it ever
reaches 1/alpha with probability alpha at most (Ville 1939), however looks are timed and whenever
one stops. Where nobody's rate is above the null's, it is a supermartingale and the same holds.

Of a sample the product is the likelihood ratio of a rate whose odds are e^t times the null's; of
arms the conditional one of an odds ratio of e^t. Source: Robbins 1970; Ramdas, Gruenwald, Vovk and
Shafer 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, signal, special, stats

# At any time --------------------------------------------------------------------------------------


Interval = tuple[float, float]
Floats = NDArray[np.float64]

# Of the logarithm of the planned odds ratio. Small tilts see small effects and see late; these two
# cost about 1.7 times the people of one look, and see half the planned effect at 1.8 times its.
TILTS = (0.4, 0.8)
_ROUNDING = 1e-6  # of logarithms of evidence, more than what large binomial coefficients lose


def tilts_for(null: float, planned: float) -> Floats:
    """Tilts for a planned rate of reports above the null's, both within (0, 1)."""
    return np.array(TILTS) * float(special.logit(planned) - special.logit(null))


def binomial_growth(people: int, rate: float, tilts: Floats) -> Floats:
    """Logarithm of the mean of e^(t * ones), for each tilt, of so many people."""
    return people * np.log1p(rate * np.expm1(tilts))


def hypergeometric_growth(ones: int, variant: int, control: int, tilts: Floats) -> Floats:
    """The same of the variant's ones, given the ones of both arms.

    O(sqrt(people)) for each tilt: what is summed is around the largest term, 12 standard deviations
    to both sides at least.
    """
    low, high = max(0, ones - control), min(ones, variant)
    reach = math.ceil(6 * math.sqrt(min(ones, variant)) + 60)
    found = []
    for tilt in tilts.tolist():
        odds = math.exp(tilt)
        # The largest term: x (control - ones + x) = odds (variant - x) (ones - x).
        linear, constant = control - ones + odds * (variant + ones), odds * variant * ones
        root = math.sqrt(linear**2 + 4 * (1 - odds) * constant)
        mode = 2 * constant / (linear + root) if constant else 0.0
        first = min(max(low, math.floor(mode) - reach), high)
        counts = np.arange(first, min(high, math.ceil(mode) + reach) + 1)
        masses = stats.hypergeom.logpmf(counts, variant + control, ones, variant)
        found.append(float(special.logsumexp(masses + tilt * counts)))
    return np.array(found)


def log_evidence(ones: int, growth: Floats, tilts: Floats) -> float:
    """Logarithm of the evidence for more ones.

    Args:
        ones: of all increments.
        growth: of all increments, added up.
        tilts: fixed before the first report.
    """
    return float(special.logsumexp(tilts * ones - growth)) - math.log(tilts.size) - _ROUNDING


def anytime_p_value(ones: Iterable[int], growths: Iterable[Floats], tilts: Floats) -> float:
    """One over the largest evidence so far: at most alpha, ever, with probability alpha at most.

    Args:
        ones: of each increment so far.
        growths: of each.
        tilts: fixed before the first report.

    >>> tilts = tilts_for(0.5, 0.6)
    >>> looks = [40, 33, 35], [binomial_growth(people, 0.5, tilts) for people in (60, 50, 50)]
    >>> print(f"{anytime_p_value(*looks, tilts):.5f}")
    0.00176
    """
    total, growth, largest = 0, np.zeros(tilts.size), 0.0
    for one, grown in zip(ones, growths):
        total, growth = total + one, growth + grown
        largest = max(largest, log_evidence(total, growth, tilts))
    return math.exp(-largest)


def anytime_bounds(sizes: Sequence[int], rate: float, tilts: Floats, alpha: float) -> list[int]:
    """For each look at a sample what the ones so far have to exceed for a p-value of alpha.

    All people where no count is enough.

    >>> anytime_bounds([100, 100], 0.5, tilts_for(0.5, 0.6), 0.05)
    [64, 118]
    """
    bounds, people = [], 0
    for size in sizes:
        people += size
        growth = binomial_growth(people, rate, tilts)
        low, high = -1, people + 1  # evidence rises with the ones: enough at `high`
        while high - low > 1:
            middle = (low + high) // 2
            if log_evidence(middle, growth, tilts) >= -math.log(alpha):
                high = middle
            else:
                low = middle
        bounds.append(high - 1)
    return bounds


def rate_sequence(ones: int, people: int, tilts: Floats, alpha: float) -> Interval:
    """An interval of a rate that holds at all times at once; each end fails with alpha at most.

    The rates against which there is less evidence than 1/alpha, on either side.

    >>> low, high = rate_sequence(5_000, 10_000, tilts_for(0.5, 0.53), 0.025)
    >>> print(f"{low:.3f} {high:.3f}")
    0.485 0.515
    """
    return (
        _lower_limit(ones, people, tilts, alpha),
        1 - _lower_limit(people - ones, people, tilts, alpha),
    )


def _lower_limit(ones: int, people: int, tilts: Floats, alpha: float) -> float:
    """The smallest rate that is not rejected for a smaller one: evidence falls as it rises."""

    def beyond(rate: float) -> float:
        evidence = log_evidence(ones, binomial_growth(people, rate, tilts), tilts)
        return evidence + math.log(alpha)

    if beyond(0.0) < 0:
        return 0.0
    if beyond(1.0) >= 0:
        return 1.0
    return max(0.0, float(optimize.brentq(beyond, 0.0, 1.0, xtol=1e-13)) - 1e-12)


def effect_sequence(
    control: tuple[int, int], variant: tuple[int, int], tilts: Floats, alpha: float
) -> Interval:
    """The same of the difference of two rates, the variant's less the control's.

    Both arms' evidence against a pair of rates is multiplied; an effect is left out if all pairs of
    that difference are.

    Args:
        control, variant: ones and people of each.
        tilts: fixed before the first report.
        alpha: of each end.

    >>> arms = (2_000, 10_000), (2_600, 10_000)
    >>> low, high = effect_sequence(*arms, tilts_for(0.2, 0.25), 0.025)
    >>> print(f"{low:.3f} {high:.3f}")
    0.027 0.092
    """
    flipped = [(people - ones, people) for ones, people in (control, variant)]
    return (
        _lower_effect(control, variant, tilts, alpha),
        -_lower_effect(flipped[0], flipped[1], tilts, alpha),
    )


def _lower_effect(
    control: tuple[int, int], variant: tuple[int, int], tilts: Floats, alpha: float
) -> float:
    """The smallest effect that is not rejected for a smaller one."""
    (first, before), (ones, after) = control, variant

    def evidence(rate: float, effect: float) -> float:
        """For more ones of the variant and fewer of the control; convex in the control's rate."""
        growth = binomial_growth(before, 1 - rate, tilts)
        growth += binomial_growth(after, min(max(rate + effect, 0.0), 1.0), tilts)
        return log_evidence(before - first + ones, growth, tilts)

    def beyond(effect: float) -> float:
        ends = max(0.0, -effect), min(1.0, 1.0 - effect)
        found = optimize.minimize_scalar(
            evidence, args=(effect,), method="bounded", options={"xatol": 1e-9}, bounds=ends
        )
        least = min(float(found.fun), *(evidence(end, effect) for end in ends))
        return least + math.log(alpha)

    if beyond(-1.0) < 0:
        return -1.0
    if beyond(1.0) >= 0:
        return 1.0
    return float(optimize.brentq(beyond, -1.0, 1.0, xtol=1e-10)) - 1e-9


# Looks that were planned --------------------------------------------------------------------------


Spending = Literal["pocock", "obrien-fleming", "anytime"]

_BEYOND = 1e-14  # more than what laws cut off, and what rounding may hide


@dataclass(frozen=True)
class CountLaw:
    """Probabilities of a count, from `first` on; less than 1e-30 is cut off.

    Attributes:
        first: the smallest count.
        masses: float64, (counts,).
    """

    first: int
    masses: NDArray[np.float64]

    def plus(self, other: CountLaw) -> CountLaw:
        """The law of the sum of two independent counts."""
        if not self.masses.size:
            return self
        direct = self.masses.size * other.masses.size < 10**7
        method = "direct" if direct else "fft"
        masses = signal.convolve(self.masses, other.masses, method=method)
        return CountLaw(self.first + other.first, np.maximum(masses, 0.0))

    def split(self, bound: int) -> tuple[CountLaw, float]:
        """The part that does not exceed a bound, and the probability of what does."""
        kept = min(max(bound + 1 - self.first, 0), self.masses.size)
        return CountLaw(self.first, self.masses[:kept]), float(self.masses[kept:].sum())


def _window(mean: float, deviation: float, least: int, most: int) -> NDArray[np.int64]:
    """Counts that a sum of bits leaves with probability below 1e-30 (Bernstein)."""
    far = 12 * deviation + 60
    return np.arange(max(least, math.floor(mean - far)), min(most, math.ceil(mean + far)) + 1)


def binomial_law(people: int, rate: float) -> CountLaw:
    """Ones of so many people."""
    deviation = math.sqrt(people * rate * (1 - rate))
    counts = _window(people * rate, deviation, 0, people)
    return CountLaw(int(counts[0]), stats.binom.pmf(counts, people, rate))


def hypergeometric_law(ones: int, variant: int, control: int) -> CountLaw:
    """Ones of the variant, given the ones of both arms: their law at every common rate."""
    people = variant + control
    mean = ones * variant / people
    deviation = math.sqrt(mean * (control / people) * (people - ones) / max(people - 1, 1))
    counts = _window(mean, deviation, max(0, ones - control), min(ones, variant))
    return CountLaw(int(counts[0]), stats.hypergeom.pmf(counts, people, ones, variant))


def spent(spending: Spending, fraction: float, alpha: float) -> float:
    """What of `alpha` may be spent once this fraction of the planned people has reported.

    >>> round(spent("pocock", 0.5, 0.05), 4), round(spent("obrien-fleming", 0.5, 0.05), 4)
    (0.031, 0.0056)
    >>> spent("pocock", 1.0, 0.05)
    0.05
    """
    if fraction >= 1:
        return alpha
    if spending == "pocock":
        return alpha * math.log1p((math.e - 1) * fraction)
    if spending == "obrien-fleming":
        return float(2 * stats.norm.sf(stats.norm.isf(alpha / 2) / math.sqrt(fraction)))
    allowed = ", ".join(get_args(Spending)[:2])
    raise ValueError(f"spending must be one of {allowed} to be spent, got {spending!r}")


def exit_bounds(laws: Sequence[CountLaw], allowed: Sequence[float]) -> list[int]:
    """For each look the smallest bound whose excess is allowed.

    The effect is decided at the first look at which the sum of all counts so far exceeds its bound.

    Args:
        laws: of the count of each increment, without an effect.
        allowed: probability that some bound was exceeded until then, for each look; not falling.

    >>> exit_bounds([binomial_law(100, 0.5)], [0.05])  # one look: the binomial test
    [58]
    >>> exit_bounds([binomial_law(100, 0.5)] * 2, [0.025, 0.05])
    [60, 112]
    """
    going_on, used = CountLaw(0, np.ones(1)), 0.0
    bounds = []
    for law, limit in zip(laws, allowed):
        now = going_on.plus(law)
        above = np.cumsum(now.masses[::-1])[::-1]  # probability of this count or a larger one
        fits = np.flatnonzero(above <= limit - used - _BEYOND)
        first = int(fits[0]) if fits.size else now.masses.size
        bounds.append(now.first + first - 1)
        going_on, exceeded = now.split(bounds[-1])
        used += exceeded
    return bounds


def exit_probability(laws: Sequence[CountLaw], bounds: Sequence[int]) -> float:
    """Probability that the sum exceeds some bound, whatever the laws of the increments."""
    going_on, used = CountLaw(0, np.ones(1)), 0.0
    for law, bound in zip(laws, bounds):
        going_on, exceeded = going_on.plus(law).split(bound)
        used += exceeded
    return used


def increments(people: int, looks: int) -> list[int]:
    """People of each increment: as equal as can be, the larger ones first.

    >>> increments(11, 3)
    [4, 4, 3]
    """
    return [people // looks + (i < people % looks) for i in range(looks)]


@lru_cache
def inflation(looks: int, spending: Spending, alpha: float, power: float) -> float:
    """How many times the people of a test without looks are planned for.

    Worked out for a fair coin of 200,000 tosses, which a test of any small effect is near to.

    >>> round(inflation(5, "obrien-fleming", 0.025, 0.9), 2)
    1.02
    """
    tosses = 200_000
    sizes = increments(tosses, looks)
    last = exit_bounds([binomial_law(tosses, 0.5)], [alpha])

    def drift(sizes: list[int], bounds_for: Callable[[float], list[int]]) -> float:
        """The effect that is seen with that power."""

        def seen(rate: float) -> bool:
            laws = [binomial_law(size, rate) for size in sizes]
            return exit_probability(laws, bounds_for(rate)) >= power

        return _least(seen, 0.5, 0.6) - 0.5

    looked = drift(sizes, lambda rate: looked_bounds(spending, sizes, (0.5, rate), alpha))
    return (looked / drift([tosses], lambda _: last)) ** 2


@lru_cache(maxsize=256)
def _spent_bounds(
    spending: Spending, sizes: tuple[int, ...], null: float, alpha: float
) -> list[int]:
    fractions = np.cumsum(sizes) / sum(sizes)
    allowed = [spent(spending, fraction, alpha) for fraction in fractions.tolist()]
    return exit_bounds([binomial_law(size, null) for size in sizes], allowed)


def looked_bounds(
    spending: Spending, sizes: Sequence[int], rates: tuple[float, float], alpha: float
) -> list[int]:
    """For each look at a sample what the reports that are one have to exceed.

    Args:
        spending: how alpha is spent.
        sizes: people of each increment.
        rates: of reports, without and with the planned effect.
        alpha: of all looks.
    """
    if spending == "anytime":
        return anytime_bounds(sizes, rates[0], tilts_for(*rates), alpha)
    return _spent_bounds(spending, tuple(sizes), rates[0], alpha)


def _least(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where a statement that holds for all larger numbers starts to hold."""
    for _ in range(22):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
