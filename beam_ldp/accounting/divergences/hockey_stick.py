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

Where the size of the crowd is a matter of chance (`CrowdSizes`), all sizes are evaluated at once.

Two ways to evaluate it:

* *Enumeration*, where reports and atoms are few: exact up to rounding.
* *Inversion* of a moment generating function (`iid_sums`), which bounds it from both sides at a
  cost that does not grow with `n`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.divergences.crowd_sizes import Crowd, CrowdSizes, mean_reciprocal
from beam_ldp.accounting.divergences.enumerated import law_of_one, listable, listed_parts
from beam_ldp.accounting.divergences.iid_sums import COARSE, FINE, positive_parts
from beam_ldp.randomizers.checks import check_fraction, check_not_negative
from beam_ldp.randomizers.shuffle_pair import ShufflePair

MAX_REPORTS = 10**12

_LEAST_DELTA = 1e-300  # whose logarithm is looked at
_LISTED_SIZES = 32  # of a crowd whose size is a matter of chance; bounds do for larger ones
_LEAST_LISTED = -600.0  # log of the least sum: terms left out are below e^-700 each
# Relative allowance for rounding of a delta (see `enumerated.listed_configurations`).
ROUNDING = 1e-9

Array = NDArray[np.float64]


class DeltaBounds(NamedTuple):
    """`lower <= delta <= upper` for the pair that was asked about."""

    lower: float
    upper: float


def hockey_stick(
    pair: ShufflePair, num_reports: Crowd, epsilon: float, rate: float = 1.0
) -> DeltaBounds:
    """Bounds of the least delta at `epsilon` for one victim among `num_reports` shuffled reports.

    The direction is that of the pair (first value against second); see `ShufflePair.swapped`.

    Args:
        pair: Dominating pair (the result bounds the mechanism's delta from above) or witness (it
            is that of two concrete data sets, hence bounds it from below).
        num_reports: Reports in the shuffled batch, the victim's included; 1 to 1e12. Or how likely
            there are so many, at a rate of 1.
        epsilon: Central epsilon >= 0.
        rate: Probability in (0, 1] that the victim is among those whose reports were drawn, one
            report per person, in a fixed-size sample that the reader cannot see.

    Returns:
        Lower and upper bound of delta, usually equal to 4 or more digits; of a crowd by chance to
        one or two, for its sizes are in blocks. A few milliseconds whatever `num_reports` is.

    >>> low, high = hockey_stick(ShufflePair.clones(4.0), 100_000, 0.16977)
    >>> 0.999e-6 < low <= high < 1.001e-6
    True
    """
    n = _checked(num_reports)
    check_not_negative("epsilon", epsilon)
    check_fraction("rate", rate, "(]")
    return _delta(pair, n, epsilon, FINE, rate)


def rough_hockey_stick(pair: ShufflePair, num_reports: Crowd, epsilon: float) -> DeltaBounds:
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
    num_reports: Crowd,
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
    n = _checked(num_reports)
    return _log_deltas(pair, n, np.asarray(epsilons), smoothing, rate, lower)


@lru_cache(maxsize=4096)
def _delta(
    pair: ShufflePair, n: Crowd, epsilon: float, smoothing: tuple[float, ...], rate: float = 1.0
) -> DeltaBounds:
    lower, upper = _log_deltas(pair, n, np.array([epsilon]), smoothing, rate)
    return DeltaBounds(math.exp(lower[0]), math.exp(upper[0]))


def _log_deltas(
    pair: ShufflePair,
    n: Crowd,
    epsilons: Array,
    smoothing: tuple[float, ...],
    rate: float,
    lower: bool = True,
) -> tuple[Array, Array]:
    if isinstance(n, CrowdSizes):
        if rate != 1.0:
            raise ValueError(
                f"rate must be 1 where num_reports is a matter of chance, got {rate!r}"
            )
        return n.averaged(lambda sizes: _of_sizes(pair, sizes, epsilons, smoothing, lower))
    law, scale = law_of_one(pair), rate / (n * pair.blanket_mass)
    steps = np.expm1(np.minimum(epsilons, 700.0))[:, None]
    # Not having been drawn makes the laws equal: it takes (1 - rate) * step off the difference.
    absent = (1.0 - rate) * n * pair.blanket_mass / rate
    values = law.difference - steps * law.second - steps * absent / n
    low, high = np.full(len(epsilons), -np.inf), np.full(len(epsilons), -np.inf)
    some = np.flatnonzero(values.max(axis=1) > 0.0)
    listed = len(some) > 0 and listable(pair, n)
    if listed:
        with np.errstate(divide="ignore"):
            low[some] = high[some] = np.log(listed_parts(pair, n, absent, steps[some, 0]))
        some = some[high[some] < _LEAST_LISTED]  # probabilities themselves may vanish
    if len(some):
        below, high[some] = positive_parts(values[some], law.probability, n, smoothing, lower=lower)
        low[some] = low[some] if listed else below
    log_scale = math.log(scale)
    return (
        np.minimum(low + (log_scale + math.log1p(-ROUNDING)), 0.0),
        np.minimum(high + (log_scale + math.log1p(ROUNDING)), 0.0),
    )


def _of_sizes(
    pair: ShufflePair,
    sizes: NDArray[np.int64],
    epsilons: Array,
    smoothing: tuple[float, ...],
    lower: bool,
) -> tuple[Array, Array]:
    """The same of crowds of each of several sizes, of shape `(sizes, epsilons)`."""
    low, high = np.full((2, len(sizes), len(epsilons)), -np.inf)
    few = sizes <= _LISTED_SIZES
    for i in np.flatnonzero(few).tolist():
        low[i], high[i] = _log_deltas(pair, int(sizes[i]), epsilons, smoothing, 1.0, lower)
    law, many = law_of_one(pair), np.flatnonzero(~few)
    values = law.difference - np.expm1(np.minimum(epsilons, 700.0))[:, None] * law.second
    some = np.flatnonzero(values.max(axis=1) > 0.0)
    if len(some) and len(many):
        counts = np.repeat(sizes[many].astype(np.float64), len(some))
        each = np.tile(values[some], (len(many), 1))
        bounds = positive_parts(each, law.probability, counts, smoothing, lower=lower)
        scale = np.log(counts * pair.blanket_mass)
        shape = len(many), len(some)
        at = np.ix_(many, some)
        low[at] = np.reshape(bounds[0] - scale + math.log1p(-ROUNDING), shape)
        high[at] = np.reshape(bounds[1] - scale + math.log1p(ROUNDING), shape)
    return low, np.minimum(high, 0.0)


def epsilon_bounds(pair: ShufflePair, num_reports: Crowd, delta: float) -> tuple[float, float]:
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
def epsilon_bound(pair: ShufflePair, num_reports: Crowd, delta: float, upper: bool) -> float:
    """One of `epsilon_bounds`, at half the cost."""
    n, top = _checked(num_reports), largest_log_ratio(pair)
    if top <= 0.0:
        return 0.0

    def excess(_: NDArray[np.intp], epsilons: Array) -> Array:
        found = _delta(pair, n, float(epsilons[0]), FINE)
        delta_there = found.upper if upper else found.lower
        return np.array([math.log(max(delta_there, _LEAST_DELTA) / delta)])

    guess = gaussian_epsilon(pair, n, delta)
    return float(safe_roots(excess, np.array([guess]), np.array([top]), upper)[0])


def epsilon_uppers(releases: Sequence[tuple[ShufflePair, Crowd, float]]) -> Array:
    """The upper ones of `epsilon_bounds` of many releases at once: pair, reports and delta of each.

    All searches take their steps together: a step costs little more than one of a single search.
    """
    certain = [(pair, n) for pair, n, _ in releases if not isinstance(n, CrowdSizes)]
    if len(certain) < len(releases):  # each takes all its sizes at once
        return np.array([epsilon_bound(*release, upper=True) for release in releases])
    batch = _Batch.of([(pair, check_reports(n)) for pair, n in certain])
    pairs, counts, deltas = zip(*releases, strict=True)
    tops = np.maximum([largest_log_ratio(pair) for pair in pairs], 0.0)
    found, some = np.zeros(len(tops)), np.flatnonzero(tops > 0.0)
    goals = np.log(np.array(deltas, dtype=float))

    def excess(places: NDArray[np.intp], epsilons: Array) -> Array:
        logs = batch.log_uppers(some[places], epsilons)
        return np.maximum(logs, math.log(_LEAST_DELTA)) - goals[some[places]]

    guesses = np.array(list(map(gaussian_epsilon, pairs, counts, deltas)))
    found[some] = safe_roots(excess, guesses[some], tops[some], True)
    return found


class _Batch(NamedTuple):
    """Releases of several pairs, each of so many reports; laws as in `listed.Law`, side by side."""

    releases: Sequence[tuple[ShufflePair, int]]
    difference: Array  # shape (releases, kinds), as the next two
    second: Array
    probability: Array  # 0 of kinds that a law does not have
    n: Array  # shape (releases,)
    log_scale: Array  # from sums to deltas
    listed: NDArray[np.bool_]

    @classmethod
    def of(cls, releases: Sequence[tuple[ShufflePair, int]]) -> _Batch:
        """The laws of these releases."""
        laws = [law_of_one(pair) for pair, _ in releases]
        kinds = max(len(law.probability) for law in laws)

        def rows(table: list[Array], like_the_first: bool) -> Array:
            """As long as the longest, by repeating the first of each row or by zeros."""
            return np.array(
                [
                    np.append(row, np.full(kinds - len(row), row[0] if like_the_first else 0.0))
                    for row in table
                ]
            )

        return cls(
            releases,
            rows([law.difference for law in laws], True),
            rows([law.second for law in laws], True),
            rows([law.probability for law in laws], False),
            np.array([n for _, n in releases], dtype=float),
            -np.log([n * pair.blanket_mass for pair, n in releases]),
            np.array([listable(pair, n) for pair, n in releases]),
        )

    def log_uppers(self, places: NDArray[np.intp], epsilons: Array) -> Array:
        """Logarithms of the upper deltas of some of the releases, each at an epsilon of its own."""
        steps = np.expm1(np.minimum(epsilons, 700.0))[:, None]
        values = self.difference[places] - steps * self.second[places]
        found = np.full(len(places), -np.inf)
        for i in np.flatnonzero(self.listed[places]).tolist():
            delta = _delta(*self.releases[places[i]], float(epsilons[i]), FINE).upper
            found[i] = math.log(delta) if delta > 0.0 else -np.inf
        some = np.flatnonzero(~self.listed[places] & (values.max(axis=1) > 0.0))
        if len(some):
            at = places[some]
            high = positive_parts(values[some], self.probability[at], self.n[at])[1]
            found[some] = np.minimum(high + self.log_scale[at] + math.log1p(ROUNDING), 0.0)
        return found


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


def _checked(num_reports: Crowd) -> Crowd:
    return num_reports if isinstance(num_reports, CrowdSizes) else check_reports(num_reports)


def check_reports(num_reports: int) -> int:
    """The number of reports as an int, or a ValueError."""
    if isinstance(num_reports, bool) or not (
        1 <= num_reports <= MAX_REPORTS and num_reports % 1 == 0
    ):
        raise ValueError(f"num_reports must be an integer in [1, 1e12], got {num_reports!r}")
    return int(num_reports)


def gaussian_epsilon(pair: ShufflePair, n: Crowd, delta: float) -> float:
    """Roughly the Gaussian limit, good enough to start a search from."""
    spread = sum(
        p * (first - second) ** 2
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
    )
    mu = math.sqrt(spread * mean_reciprocal(n) / pair.blanket_mass)
    return mu * math.sqrt(2.0 * math.log(1.0 + 0.4 / delta)) + 0.5 * mu * mu


# Roots of falling curves, many at once: left on the safe side only -----------------------


ABSOLUTE = 1e-15  # allowance of an epsilon: means of the ratios are 1 up to a few units of 1e-16

_NEAR_TOP = 1e-7  # relative: a search nearer to it would take long, and gain nothing
_LARGEST_GUESS = 0.9  # of the top
_USUAL_SLOPE = -25.0  # of log delta in log epsilon, at deltas of about 1e-6 in large crowds
_CLOSE = 1e-10  # relative, of a last step
_FIRST_STRIDE = 0.5  # the longest step of a search that has no bracket yet; then twice that, ...
_MOST_SECANTS = 20  # then the bracket is halved
_MOST_STEPS = 120
_OUTWARD = (3e-10, 3e-9, 3e-8, 3e-7)

Places = NDArray[np.intp]
Excess = Callable[[Places, Array], Array]


def safe_roots(excess: Excess, guesses: Array, tops: Array, upper: bool) -> Array:
    """The epsilons where curves change their sign, never on the unsafe side.

    Args:
        excess: Of the curves at some places, each at an epsilon of its own. Curves fall with
            epsilon, like the logarithm of a delta over a target.
        guesses: Where to look first.
        tops: Epsilons > 0 at which the curves are negative for certain.
        upper: Whether results must be at or above the roots; else at or below.

    Returns:
        Of the shape of `guesses`; 0 where a curve is negative from there on.
    """
    found, low, high = _roots(excess, guesses, tops)
    pending = np.flatnonzero((found > 0.0) & np.isfinite(found))
    roots, safe = found.copy(), high if upper else low
    for away in _OUTWARD:  # a search may end on either side
        if not len(pending):
            break
        moved = roots[pending] * (1.0 + away if upper else 1.0 - away)
        good = (excess(pending, moved) <= 0.0) == upper
        found[pending[good]] = moved[good]
        pending = pending[~good]
    found[pending] = safe[pending]
    beyond = np.isnan(found)
    found[beyond] = tops[beyond] * (1.0 + 1e-12 if upper else 1.0 - _NEAR_TOP)
    outwards = found + ABSOLUTE if upper else np.maximum(found - ABSOLUTE, 0.0)
    return np.where(found > 0.0, outwards, 0.0)


def _roots(excess: Excess, guesses: Array, tops: Array) -> tuple[Array, Array, Array]:
    """Roots, zero or not a number if a curve is negative or positive all the way; and brackets.

    By secants in log(epsilon / (1 - epsilon / top)), within a bracket as soon as there is one. In
    that, the logarithm of a delta is nearly straight at small epsilons and at those near the top.
    """
    most = math.log(1.0 / _NEAR_TOP - 1.0)
    shares = np.clip(guesses / tops, 1e-300, _LARGEST_GUESS)
    place = np.log(shares) - np.log1p(-shares)
    low, high = np.full(len(tops), -np.inf), np.full(len(tops), np.inf)
    before, height = np.full(len(tops), np.nan), np.full(len(tops), np.nan)
    found, pending, stride = place.copy(), np.arange(len(tops)), _FIRST_STRIDE
    for turn in range(_MOST_STEPS):
        now = place[pending]
        heights = excess(pending, _epsilons(now, tops[pending]))
        if turn == 0 and not np.all(heights > 0.0):
            none = heights <= 0.0
            none[none] = excess(pending[none], np.zeros(none.sum())) <= 0.0
            found[none] = -np.inf
            pending, now, heights = pending[~none], now[~none], heights[~none]
        above = heights > 0.0
        low[pending] = np.where(above, now, low[pending])
        high[pending] = np.where(above, high[pending], now)
        with np.errstate(divide="ignore", invalid="ignore"):
            slopes = (heights - height[pending]) / (now - before[pending])
            slopes = np.where(np.isnan(before[pending]), _USUAL_SLOPE, slopes)
            steps = np.where(slopes < 0.0, -heights / slopes, np.where(above, np.inf, -np.inf))
        near = np.abs(steps) <= _CLOSE
        following = np.minimum(now + np.clip(steps, -stride, stride), most)
        left, right = low[pending], high[pending]
        inside = (following > left) & (following < right) & (turn < _MOST_SECANTS)
        bounded = np.isfinite(left) & np.isfinite(right)
        following = np.where(bounded & ~inside & ~near, 0.5 * (left + right), following)
        beyond = above & (now >= most)
        near |= bounded & (right - left <= _CLOSE)
        found[pending] = np.where(beyond, np.nan, following)
        before[pending], height[pending], place[pending] = now, heights, following
        pending, stride = pending[~near & ~beyond], 2.0 * stride
        if not len(pending):
            break
    return _epsilons(found, tops), _epsilons(low, tops), _epsilons(high, tops)


def _epsilons(places: Array, tops: Array) -> Array:
    with np.errstate(over="ignore"):
        return tops / (1.0 + np.exp(-places))
