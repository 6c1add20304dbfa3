"""Decisions that may be taken before all people have reported: bounds that a count has to exceed.

Between two looks an increment of people reports. Without an effect the number of ones among them
(or, of two arms, the number that the variant has of the ones of both) has a known law, and
increments are independent. The bounds follow by the exact recursion over these laws: what has not
exceeded a bound yet goes on. By each look the probability of a false alarm is at most what the
spending function of the design allows until then. The times of looks must not depend on what was
seen; where they may, the design says "anytime" (`anytime.py`) and nothing is spent.

Source: Armitage, McPherson and Rowe 1969 (recursion); Lan and DeMets 1983 (spending).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from beam_ldp.decisions.experiments.anytime import anytime_bounds, tilts_for

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
