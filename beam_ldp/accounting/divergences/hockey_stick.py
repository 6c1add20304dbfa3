"""The hockey-stick divergence of a shuffled batch, with a certified value on either side.

For a `ShufflePair` and `n` reports let `L = first ratio - e^eps * second ratio` under the blanket
law, and let `S` be the sum of `n` independent copies of `B * L`, `B ~ Bernoulli(blanket_mass)`.
Then

    delta(eps) = E[max(S, 0)] / (n * blanket_mass),

because the weight `1 / M` of the mixture over the crowd size `M = 1 + Bin(n - 1, blanket_mass)`
size-biases a `Bin(n, blanket_mass)`. So one sum of independent, identically distributed variables
with a handful of atoms is all there is to evaluate.

Where the reports are those of a random sample of people, one of whom may be the victim (`rate`),
the remaining reports come from a uniformly random set of the others whether or not the victim was
drawn. So the densities are `rate * S_1 / (n * blanket_mass) + 1 - rate` and likewise the second,
which shifts `S`.

Two ways to evaluate it:

* *Enumeration*, where reports and atoms are few: exact up to rounding.
* *Inversion* of a moment generating function (`iid_sums`), which bounds it from both sides at a
  cost that does not grow with `n`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.divergences.iid_sums import COARSE, FINE, positive_parts
from beam_ldp.accounting.divergences.moments import binomial_log_pmf
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_not_negative
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.special import brentq

MAX_REPORTS = 10**12

_ENUMERATED = 350_000  # configurations: 8 MB
_LEAST_LISTED = -600.0  # log of the least sum: terms left out are below e^-700 each
_FEW = 8  # steps for which it does not pay to sort them
# Relative allowance for floating-point rounding of a delta (see `listed_configurations`).
_ROUNDING = 1e-9

Array = NDArray[np.float64]


class DeltaBounds(NamedTuple):
    """`lower <= delta <= upper` for the pair that was asked about."""

    lower: float
    upper: float


class _Law(NamedTuple):
    """The atoms of `B * (first, second)`; the likeliest atom comes first."""

    difference: Array  # first - second, kept apart since it may be tiny
    first: Array
    second: Array
    probability: Array


def hockey_stick(
    pair: ShufflePair, num_reports: int, epsilon: float, rate: float = 1.0
) -> DeltaBounds:
    """Bounds of the least delta at `epsilon` for one victim among `num_reports` shuffled reports.

    The direction is that of the pair (first value against second); see `ShufflePair.swapped`.

    Args:
        pair: Dominating pair (the result bounds the mechanism's delta from above) or witness (it
            is that of two concrete data sets, hence bounds it from below).
        num_reports: Reports in the shuffled batch, the victim's included; 1 to 1e12.
        epsilon: Central epsilon >= 0.
        rate: Probability in (0, 1] that the victim is among those whose reports were drawn, one
            report per person, in a fixed-size sample that the reader cannot see.

    Returns:
        Lower and upper bound of delta, usually equal to 4 or more digits. The cost is a
        few milliseconds whatever `num_reports` is.

    >>> low, high = hockey_stick(ShufflePair.clones(4.0), 100_000, 0.16977)
    >>> 0.999e-6 < low <= high < 1.001e-6
    True
    """
    n = check_reports(num_reports)
    check_not_negative("epsilon", epsilon)
    check_fraction("rate", rate, "(]")
    return _delta(pair, n, epsilon, FINE, rate)


def rough_hockey_stick(pair: ShufflePair, num_reports: int, epsilon: float) -> DeltaBounds:
    """The same, wider apart and several times sooner: it tells most pairs from each other."""
    return _delta(pair, num_reports, epsilon, COARSE)


def hockey_sticks(
    pair: ShufflePair, num_reports: int, epsilons: Array, rate: float = 1.0
) -> tuple[Array, Array]:
    """The same at many epsilons: lower and upper bounds, of the shape of `epsilons`."""
    low, high = log_hockey_sticks(pair, num_reports, epsilons, rate)
    return np.exp(low), np.exp(high)


def log_hockey_sticks(
    pair: ShufflePair,
    num_reports: int,
    epsilons: Array,
    rate: float = 1.0,
    smoothing: tuple[float, ...] = FINE,
    *,
    lower: bool = True,
) -> tuple[Array, Array]:
    """Logarithms of the same at many epsilons: lower and upper bounds, of the shape of `epsilons`.

    Deltas that no double holds have a logarithm, and weigh in moments of high orders. Where `lower`
    bounds are not wanted they may be missing, and only the first width of `smoothing` is tried.
    """
    n = check_reports(num_reports)
    return _log_deltas(pair, n, np.asarray(epsilons), smoothing, rate, lower)


@lru_cache(maxsize=4096)
def _delta(
    pair: ShufflePair, n: int, epsilon: float, smoothing: tuple[float, ...], rate: float = 1.0
) -> DeltaBounds:
    lower, upper = _log_deltas(pair, n, np.array([epsilon]), smoothing, rate)
    return DeltaBounds(math.exp(lower[0]), math.exp(upper[0]))


def _log_deltas(
    pair: ShufflePair,
    n: int,
    epsilons: Array,
    smoothing: tuple[float, ...],
    rate: float,
    lower: bool = True,
) -> tuple[Array, Array]:
    law, scale = _law(pair), rate / (n * pair.blanket_mass)
    steps = np.expm1(np.minimum(epsilons, 700.0))[:, None]
    # Not having been drawn makes the laws equal: it takes (1 - rate) * step off the difference.
    absent = (1.0 - rate) * n * pair.blanket_mass / rate
    values = law.difference - steps * law.second - steps * absent / n
    low, high = np.full(len(epsilons), -np.inf), np.full(len(epsilons), -np.inf)
    some = np.flatnonzero(values.max(axis=1) > 0.0)
    listed = len(some) > 0 and listed_configurations(pair, n) is not None
    if listed:
        exact = _listed_parts if len(some) < _FEW else _ranked_parts
        with np.errstate(divide="ignore"):
            low[some] = high[some] = np.log(exact(pair, n, absent, steps[some, 0]))
        some = some[high[some] < _LEAST_LISTED]  # probabilities themselves may vanish
    if len(some):
        below, high[some] = positive_parts(values[some], law.probability, n, smoothing, lower=lower)
        low[some] = low[some] if listed else below
    log_scale = math.log(scale)
    return (
        np.minimum(low + (log_scale + math.log1p(-_ROUNDING)), 0.0),
        np.minimum(high + (log_scale + math.log1p(_ROUNDING)), 0.0),
    )


def epsilon_bounds(pair: ShufflePair, num_reports: int, delta: float) -> tuple[float, float]:
    """Bounds of the least epsilon at `delta` (> 0) for the pair, lower and upper.

    >>> low, high = epsilon_bounds(ShufflePair.clones(4.0), 100_000, 1e-6)
    >>> round(high, 5), (high - low) / high < 1e-4
    (0.16977, True)
    """
    return (
        epsilon_bound(pair, num_reports, delta, upper=False),
        epsilon_bound(pair, num_reports, delta, upper=True),
    )


@lru_cache(maxsize=4096)
def epsilon_bound(pair: ShufflePair, num_reports: int, delta: float, upper: bool) -> float:
    """One of `epsilon_bounds`, at half the cost."""
    n, top = check_reports(num_reports), largest_log_ratio(pair)
    excess = _excess(pair, n, delta, upper)

    def guide(epsilon: float) -> float:
        found = rough_hockey_stick(pair, n, epsilon)
        return math.log(max(found.upper, 1e-300) / delta)

    if top <= 0.0 or excess(0.0) <= 0.0:
        return 0.0
    guess = min(0.9 * top, gaussian_epsilon(pair, n, delta))
    if listed_configurations(pair, n) is None and guide(0.0) > 0.0:
        low, high = bracket(guide, guess, top, 1.5)
        if low < high:
            guess = brentq(guide, low, high, rtol=1e-5)
    return safe_root(excess, guess, top, upper)


def epsilon_near(pair: ShufflePair, num_reports: int, delta: float, guess: float) -> float:
    """The upper one of `epsilon_bounds` where it is known roughly."""
    n, top = check_reports(num_reports), largest_log_ratio(pair)
    excess = _excess(pair, n, delta, True)
    root = secant_root(excess, guess, top)
    found = None if root is None else outward(excess, root, True)
    return epsilon_bound(pair, n, delta, upper=True) if found is None else found + ABSOLUTE


def _excess(pair: ShufflePair, n: int, delta: float, upper: bool) -> Callable[[float], float]:
    """Log of the hockey stick at an epsilon over `delta`."""

    def excess(epsilon: float) -> float:
        found = _delta(pair, n, epsilon, FINE)
        return math.log(max(found.upper if upper else found.lower, 1e-300) / delta)

    return excess


def largest_log_ratio(pair: ShufflePair) -> float:
    """The least epsilon at delta = 0: every report may be the telling one."""
    return max(
        math.log(first / second) if second > 0.0 else math.inf
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
        if p > 0.0 and first > 0.0
    )


def directions(pair: ShufflePair) -> tuple[ShufflePair, ...]:
    """Both directions, or one where the pair is its own mirror image."""
    mirrored = pair.swapped()
    forth, back = (
        sorted(zip(side.ratios, side.probabilities, strict=True)) for side in (pair, mirrored)
    )
    same = all(
        math.isclose(a, b, rel_tol=1e-12, abs_tol=1e-300)
        for (one, p), (two, q) in zip(forth, back, strict=True)
        for a, b in ((*zip(one, two, strict=True), (p, q)))
    )
    return (pair,) if same else (pair, mirrored)


def check_reports(num_reports: int) -> int:
    """The number of reports as an int, or a ValueError."""
    if isinstance(num_reports, bool) or not (
        1 <= num_reports <= MAX_REPORTS and num_reports % 1 == 0
    ):
        raise ValueError(f"num_reports must be an integer in [1, 1e12], got {num_reports!r}")
    return int(num_reports)


def gaussian_epsilon(pair: ShufflePair, n: int, delta: float) -> float:
    """Roughly the Gaussian limit, good enough to start a search from."""
    spread = sum(
        p * (first - second) ** 2
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
    )
    mu = math.sqrt(spread / (n * pair.blanket_mass))
    return mu * math.sqrt(2.0 * math.log(1.0 + 0.4 / delta)) + 0.5 * mu * mu


@lru_cache(maxsize=4096)
def _law(pair: ShufflePair) -> _Law:
    ratios = np.array(pair.ratios, dtype=np.float64)
    probability = np.array(pair.probabilities, dtype=np.float64)
    kept = probability > 0.0
    ratios, probability = ratios[kept], probability[kept] / probability[kept].sum()
    ratios = ratios / (probability @ ratios)  # means of exactly 1 up to the last bit
    first, second = ratios[:, 0], ratios[:, 1]
    if not pair.is_witness:
        first, second = np.append(first, 0.0), np.append(second, 0.0)
        probability = np.append(probability * pair.blanket_mass, 1.0 - pair.blanket_mass)
    order = np.argsort(-probability, kind="stable")
    return _Law((first - second)[order], first[order], second[order], probability[order])


class Configurations(NamedTuple):
    """Every configuration of the rarer atoms: sums and probabilities."""

    difference: Array  # first - second, which keeps its digits where both are nearly equal
    first: Array
    second: Array
    probability: Array


class _Ranked(NamedTuple):
    """Configurations in the order of the step up to which they count, largest first."""

    steps: Array  # negated, so that they ascend
    difference: Array
    second: Array
    probability: Array


def _listed_parts(pair: ShufflePair, n: int, absent: float, steps: Array) -> Array:
    """E[max(difference - step * (second + absent), 0)] at each of a few steps."""
    listed = listed_configurations(pair, n)
    assert listed is not None
    sums = (np.maximum(listed.difference - s * (listed.second + absent), 0.0) for s in steps)
    return np.array([np.sum(each * listed.probability) for each in sums])


def _ranked_parts(pair: ShufflePair, n: int, absent: float, steps: Array) -> Array:
    """The same at many steps: configurations that do not count are not looked at."""
    ranked, found = _ranked(pair, n, absent), np.zeros(len(steps))
    for i, count in enumerate(np.searchsorted(ranked.steps, -steps, side="left").tolist()):
        sums = ranked.difference[:count] - steps[i] * ranked.second[:count]
        found[i] = np.sum(np.maximum(sums, 0.0) * ranked.probability[:count])
    return found


@lru_cache(maxsize=16)
def _ranked(pair: ShufflePair, n: int, absent: float) -> _Ranked:
    """What can happen, ranked, where `absent` is added to the second density (see the module)."""
    listed = listed_configurations(pair, n)
    assert listed is not None
    second = listed.second + absent
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(listed.difference > 0.0, listed.difference / second, 0.0)
    order = np.argsort(-steps, kind="stable")[: np.count_nonzero(steps > 0.0)]
    return _Ranked(
        -steps[order],
        listed.difference[order],
        second[order],
        listed.probability[order],
    )


@lru_cache(maxsize=16)
def listed_configurations(pair: ShufflePair, n: int) -> Configurations | None:
    """All that a batch of `n` reports can look like; None where that is too much to list.

    Rounding of a probability is at most 2e-11 of itself. Two kinds of reports: `binomial_log_pmf`.
    More kinds are listed up to 835 reports, where log n! is below 5000, and an exponent adds no
    more than a dozen terms that are no larger, each off by a few 1e-16 of that. Sums of `n` ratios
    lose n 1e-16 of a term, 4e-11. All of it is well within `_ROUNDING`.
    """
    law = _law(pair)
    rare = float(law.probability[1:].sum())  # 1 - probability[0] would lose digits
    kinds = len(law.probability) - 1
    if math.comb(n + kinds, kinds) > _ENUMERATED:
        return None
    if kinds == 1:
        rarer = np.arange(n + 1)
        return Configurations(
            (n - rarer) * law.difference[0] + rarer * law.difference[1],
            (n - rarer) * law.first[0] + rarer * law.first[1],
            (n - rarer) * law.second[0] + rarer * law.second[1],
            np.exp(binomial_log_pmf(rarer, n, rare)),
        )
    counts = np.arange(n + 1.0)
    log_factorial = special.gammaln(counts + 1.0)
    sums = np.zeros((3, 1))
    of_kind = np.stack([law.difference, law.first, law.second])
    log_weight = np.full(1, log_factorial[n])
    room = np.array([n])
    for kind in range(1, kinds + 1):
        choices = room + 1
        owner = np.repeat(np.arange(len(room)), choices)
        taken = np.arange(len(owner)) - np.repeat(np.cumsum(choices) - choices, choices)
        term = counts * math.log(law.probability[kind]) - log_factorial
        log_weight = log_weight[owner] + term[taken]
        sums = sums[:, owner] + of_kind[:, kind, None] * counts[taken]
        room = room[owner] - taken
    term = (counts * math.log1p(-rare) if kinds else 0.0) - log_factorial
    difference, first, second = sums + of_kind[:, 0, None] * room
    return Configurations(difference, first, second, np.exp(log_weight + term[room]))


# Roots of falling curves, found quickly and left on the safe side only --------------------


ABSOLUTE = 1e-15  # allowance of an epsilon: means of the ratios are 1 up to a few units of 1e-16

_MOST_SECANTS = 12
_USUAL_SLOPE = -25.0  # of log delta in log epsilon, at deltas of about 1e-6 in large crowds


def safe_root(excess: Callable[[float], float], guess: float, top: float, upper: bool) -> float:
    """The epsilon where `excess` changes its sign, never on the unsafe side.

    Args:
        excess: Falls with epsilon, through zero.
        guess: Where to look first; below `top`.
        top: Epsilon at which it is negative for certain.
        upper: Whether the result must be at or above the root; else at or below.
    """
    root = secant_root(excess, guess, top)
    found = None if root is None else outward(excess, root, upper)
    near = top * (1.0 - 1e-7)
    if found is None and excess(near) > 0.0:  # a search would take long, and gain nothing
        return top * (1.0 + 1e-12) + ABSOLUTE if upper else near
    if found is None:
        low, high = bracket(excess, guess, top, 1.001)
        if low == high:
            return top * (1.0 + 1e-12) + ABSOLUTE if upper else top * (1.0 - 1e-9)
        root = brentq(excess, low, high, xtol=1e-10 * high, rtol=1e-10)
        found = outward(excess, root, upper)
    if found is None:
        found = high if upper else low
    return found + ABSOLUTE if upper else max(0.0, found - ABSOLUTE)


def secant_root(excess: Callable[[float], float], guess: float, top: float) -> float | None:
    """The root by a few secants in the logarithm of epsilon, or None if they do not find it."""
    position = math.log(max(guess, 1e-300))
    last: tuple[float, float] | None = None
    slope = _USUAL_SLOPE
    for _ in range(_MOST_SECANTS):
        if not math.exp(position) < top * (1.0 - 1e-9):
            return None
        found = excess(math.exp(position))
        if last is not None:
            slope = (found - last[1]) / (position - last[0])
        if not slope < 0.0:
            return None
        step = -found / slope
        if abs(step) < 1e-10:
            return math.exp(position + step)
        last = (position, found)
        position += max(-0.5, min(0.5, step))
    return None


def outward(excess: Callable[[float], float], root: float, upper: bool) -> float | None:
    """A few steps to the safe side of a root that a finder may have left on either."""
    for away in (3e-10, 3e-9, 3e-8, 3e-7):
        moved = root * (1.0 + away if upper else 1.0 - away)
        if (excess(moved) <= 0.0) == upper:
            return moved
    return None


def bracket(
    excess: Callable[[float], float], guess: float, top: float, growth: float
) -> tuple[float, float]:
    """Two epsilons around the root; twice `top` if only pure privacy reaches it."""
    low = high = guess
    if excess(guess) > 0.0:
        while True:
            low, high, growth = high, min(top, high * growth), min(1.5, growth**2)
            if high >= top:
                inside = top * (1.0 - 1e-9)
                return (top, top) if low >= inside or excess(inside) > 0.0 else (low, inside)
            if excess(high) <= 0.0:
                return low, high
    while True:
        low, high, growth = low / growth, low, min(1.5, growth**2)
        if excess(low) > 0.0:
            return low, high
