"""The binomial distribution, by `scipy.special` alone: `scipy.stats` takes half a second to load.

The same numbers as `scipy.stats.binom` (tested): to the last bit, but for the lower tail's, and
quantiles also of chances below 1e-16, where those of SciPy 1.17 are the number of trials.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers import special

Array = NDArray[np.float64]


def log_pmf(counts: ArrayLike, trials: ArrayLike, probability: float) -> Array:
    """Log Pr[Bin(trials, probability) = counts]."""
    k, n = np.asarray(counts, float), np.asarray(trials, float)
    with np.errstate(invalid="ignore"):  # outside, where nothing of it is kept
        choices = special.gammaln(n + 1) - (special.gammaln(k + 1) + special.gammaln(n - k + 1))
        if 0.0 < probability < 1.0:  # the logarithms once, not for every count
            yes = k * special.xlogy(1.0, probability)
            no = (n - k) * special.xlog1py(1.0, -probability)
        else:
            yes, no = special.xlogy(k, probability), special.xlog1py(n - k, -probability)
        return np.where((k >= 0) & (k <= n), choices + yes + no, -np.inf)


def cdf(counts: ArrayLike, trials: int, probability: float) -> Array:
    """Pr[Bin(trials, probability) <= counts]."""
    return _tail(special.betaincc, counts, trials, probability, 0.0, 1.0)


def sf(counts: ArrayLike, trials: int, probability: float) -> Array:
    """Pr[Bin(trials, probability) > counts], without the cancellation of one less the other."""
    return _tail(special.betainc, counts, trials, probability, 1.0, 0.0)


def ppf(chance: float, trials: int, probability: float) -> int:
    """The least count that is not exceeded with this chance."""
    return _first(lambda count: float(cdf(count, trials, probability)) >= chance, trials)


def isf(chance: float, trials: int, probability: float) -> int:
    """The least count that is exceeded with no more than this chance."""
    return _first(lambda count: float(sf(count, trials, probability)) <= chance, trials)


def _tail(
    function: Callable[..., Array],
    counts: ArrayLike,
    trials: int,
    probability: float,
    below: float,
    above: float,
) -> Array:
    k = np.asarray(counts, float)
    inside = (k >= 0) & (k < trials)
    known = np.where(inside, k, 0.0)
    with np.errstate(invalid="ignore"):
        found = function(known + 1, trials - known, probability)
    return np.where(inside, found, np.where(k < 0, below, above))


def _first(holds: Callable[[int], bool], top: int) -> int:
    """The least integer in [0, top] at which a condition holds that stays true from there on."""
    low, high = 0, top
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low
