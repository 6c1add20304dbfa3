"""Rényi moments of likelihood ratios, without cancellation, and the (epsilon, delta) they prove.

The divergences of shuffled releases are as small as 1e-14, far below the rounding error of a sum
of probabilities. With a ratio written as 1 + x and E[x] = 0, the moment E[(1 + x)^a] - 1 equals
E[(1 + x)^a - 1 - a x], whose terms are all non-negative for a > 1 and for a < 0: nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction

_LARGE_EXPONENT = 300.0
_TAIL_DEVIATIONS = 11.0
_LONGEST_WINDOW = 1 << 17
_MOST_OF_SCIPY = 1000  # trials


@dataclass(frozen=True)
class Atoms:
    """Finitely many outcomes of two laws P and Q, by their density against a base law.

    Attributes:
        log_mass: log of the base law's probability of each outcome.
        first: density of P against the base.
        second: density of Q against the base.
    """

    log_mass: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def swapped(self) -> Atoms:
        return Atoms(self.log_mass, self.second, self.first)

    def renyi(self, order: float) -> float:
        """Rényi divergence of P from Q of a real order above one."""
        log_second = self.log_mass + np.log(self.second)
        excess = (self.first - self.second) / self.second
        return log_moment(log_second, excess, order) / (order - 1)

    def worst_renyi(self, order: float) -> float:
        """The larger of the two directions."""
        return max(self.renyi(order), self.swapped().renyi(order))


def log_moment(log_mass: np.ndarray, excess: np.ndarray, power: float) -> float:
    """Log E[(1 + excess)^power] for a mean-zero `excess`, to full relative accuracy.

    Args:
        log_mass: log-probabilities of the outcomes.
        excess: ratio minus one, above -1, of mean zero under the same law.
        power: above one or below zero.
    """
    if 0 <= power <= 1:
        raise ValueError(f"power must be > 1 or < 0, got {power}")
    exponent = power * np.log1p(excess)
    large = exponent > _LARGE_EXPONENT
    small = ~large
    terms = np.exp(log_mass[small]) * (np.expm1(exponent[small]) - power * excess[small])
    moment = float(np.log1p(np.sum(np.maximum(terms, 0.0))))
    if not large.any():
        return moment
    return float(np.logaddexp(moment, log_sum(log_mass[large] + exponent[large])))


def log_sum(terms: np.ndarray | list[float]) -> float:
    """Log of the sum of exponentials; terms far below the largest may vanish without a warning.

    As `scipy.special.logsumexp` adds them up, which takes five times as long for a few.
    """
    every = np.asarray(terms, float)
    top = float(every.max())
    if not math.isfinite(top):
        return top
    largest = every == top
    count = np.count_nonzero(largest)
    with np.errstate(over="ignore", under="ignore"):
        rest = np.exp(np.where(largest, -np.inf, every - top)).sum() / count
    return float(np.log1p(rest) + np.log(count)) + top


def binomial_window(trials: int, probability: float, tilt: float) -> np.ndarray:
    """The counts that matter for moments of orders up to `tilt`; the rest is below 1e-22."""
    mean = trials * probability
    reach = _TAIL_DEVIATIONS * (np.sqrt(mean * (1 - probability)) + 1) + 3 * tilt
    return np.arange(max(0, int(mean - reach)), min(trials, int(mean + reach) + 1) + 1)


def binomial_bins(trials: int, probability: float, tilt: float) -> tuple[np.ndarray, np.ndarray]:
    """The counts of `binomial_window` with their log-probabilities; of long windows, bins.

    A bin stands for its counts by its middle and by no more than their mass: by its width times the
    smaller of the probabilities at its ends, which is the least in it.
    """
    mean = trials * probability
    reach = _TAIL_DEVIATIONS * (math.sqrt(mean * (1 - probability)) + 1) + 3 * tilt
    low, high = max(0, int(mean - reach)), min(trials, int(mean + reach) + 1)
    width = 1 + (high - low) // _LONGEST_WINDOW
    first = np.arange(low, high + 1, width)
    last = np.minimum(first + width - 1, high)
    ends = (binomial_log_pmf(edge, trials, probability) for edge in (first, last))
    return (first + last) / 2, np.minimum(*ends) + np.log(last - first + 1)


def binomial_log_pmf(
    counts: np.ndarray, trials: np.ndarray | int, probability: float
) -> np.ndarray:
    """Log Pr[Bin(trials, probability) = counts] where it is above -700: to 1e-11 for 1e6 trials.

    Where log-factorials are large their difference loses digits (1e-8 of a probability at 3e5
    trials), so there it is Loader's saddle-point expansion, whose terms have one sign. For 1e12
    trials what is left is the rounding of the mean: 1e-8 at forty deviations from it.
    """
    if np.max(trials) <= _MOST_OF_SCIPY or not 0.0 < probability < 1.0:
        return _small_binomial_log_pmf(counts, trials, probability)
    return _large_binomial_log_pmf(counts, trials, probability)


def _large_binomial_log_pmf(
    counts: np.ndarray, trials: np.ndarray | int, probability: float
) -> np.ndarray:
    """The same by the saddle-point expansion of Loader 2000.

    Its exponent is minus the sum of two deviances, neither negative, each good to a few units u of
    the last place: 1e-12 above -700. The mean is rounded to u of itself, which moves the exponent
    by u |k - mean| / (1 - p), hence the rarer outcome is counted: 2 u |k - mean|, 3e-12 at forty
    deviations of 1e6 trials. The series of `_deviance` ends below 1e-20, `_stirling_error` 2e-14.
    """
    if probability > 0.5:
        others = np.subtract(trials, counts)
        return _large_binomial_log_pmf(others, trials, 1.0 - probability)
    k, n = np.broadcast_arrays(np.asarray(counts, float), np.asarray(trials, float))
    log_other = math.log1p(-probability)
    result = np.where(k == 0, n * log_other, n * math.log(probability))  # where nobody, or all
    result[(k < 0) | (k > n)] = -np.inf
    inner = (k > 0) & (k < n)
    k, n = k[inner], n[inner]
    mean, rest = n * probability, n * (1 - probability)
    deviance = mean * _deviance((k - mean) / mean) + rest * _deviance((mean - k) / rest)
    stirling = _stirling_error(n) - _stirling_error(k) - _stirling_error(n - k)
    result[inner] = stirling - deviance + 0.5 * np.log(n / (2 * np.pi * k * (n - k)))
    return result


def _deviance(excess: np.ndarray) -> np.ndarray:
    """(1 + x) log(1 + x) - x, also where that cancels."""
    series = np.zeros_like(excess)
    for i in range(10, 1, -1):
        series = (1 / (i * (i - 1)) - series) * excess
    return np.where(
        np.abs(excess) < 0.01, series * excess, special.xlog1py(1 + excess, excess) - excess
    )


def _stirling_error(n: np.ndarray) -> np.ndarray:
    """Log n! less Stirling's formula for it."""
    small = np.minimum(n, 16)
    exact = special.gammaln(small + 1) - (small + 0.5) * np.log(small) + small
    square = 1 / n**2
    series = (1 / 12 - (1 / 360 - (1 / 1260 - square / 1680) * square) * square) / n
    return np.where(n < 16, exact - 0.5 * math.log(2 * math.pi), series)


# The binomial distribution, by `scipy.special` alone: `scipy.stats` takes half a second to load.
#
# The same numbers as `scipy.stats.binom` (tested): to the last bit, but for the lower tail's, and
# quantiles also of chances below 1e-16, where those of SciPy 1.17 are the number of trials.


Array = NDArray[np.float64]


def _small_binomial_log_pmf(counts: ArrayLike, trials: ArrayLike, probability: float) -> Array:
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


def binomial_cdf(counts: ArrayLike, trials: int, probability: float) -> Array:
    """Pr[Bin(trials, probability) <= counts]."""
    return _tail(special.betaincc, counts, trials, probability, 0.0, 1.0)


def binomial_sf(counts: ArrayLike, trials: int, probability: float) -> Array:
    """Pr[Bin(trials, probability) > counts], without the cancellation of one less the other."""
    return _tail(special.betainc, counts, trials, probability, 1.0, 0.0)


def binomial_ppf(chance: float, trials: int, probability: float) -> int:
    """The least count that is not exceeded with this chance."""
    return _first(lambda count: float(binomial_cdf(count, trials, probability)) >= chance, trials)


def binomial_isf(chance: float, trials: int, probability: float) -> int:
    """The least count that is exceeded with no more than this chance."""
    return _first(lambda count: float(binomial_sf(count, trials, probability)) <= chance, trials)


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


# Between Rényi DP and (epsilon, delta)-DP -------------------------------------------------


_LEAST_ORDER = 1.01


def rdp_to_epsilon(
    orders: Sequence[float] | np.ndarray, rdp: Sequence[float] | np.ndarray, delta: float
) -> tuple[float, float]:
    """The smallest epsilon at `delta` that the Rényi curve proves, and the order that proves it.

    Args:
        orders: real orders above one.
        rdp: divergence at each order, in nats; infinite where unknown.
        delta: in (0, 1).

    Returns:
        `(epsilon, order)`; epsilon is at least 0.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12; thesis, Lemma 2.1.3 (its second
    formula is not legible in print).
    """
    check_fraction("delta", delta)
    order, value = _usable(orders, rdp)
    epsilon = value + epsilon_above_rdp(order, delta)
    best = int(np.argmin(epsilon))
    return max(0.0, float(epsilon[best])), float(order[best])


def epsilon_above_rdp(order: np.ndarray, delta: float) -> np.ndarray:
    """What the conversion adds to the divergence at an order: a constant, which may be negative."""
    return (np.log(1 / delta) + (order - 1) * np.log1p(-1 / order) - np.log(order)) / (order - 1)


def rdp_to_delta(
    orders: Sequence[float] | np.ndarray, rdp: Sequence[float] | np.ndarray, epsilon: float
) -> tuple[float, float]:
    """The smallest delta at `epsilon` that the Rényi curve proves, and the order that proves it.

    The inverse of `rdp_to_epsilon`, order by order.
    """
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be >= 0, got {epsilon}")
    order, value = _usable(orders, rdp)
    log_delta = (order - 1) * (value - epsilon) - np.log(order - 1) + order * np.log1p(-1 / order)
    best = int(np.argmin(log_delta))
    return float(np.exp(min(0.0, float(log_delta[best])))), float(order[best])


def interpolate_order(order: float, below: float, above: float) -> float:
    """Bound at a real order from bounds at the integers below and above it.

    (a - 1) times the divergence is convex in the order a, so the chord between two integer orders
    lies above it. Source: thesis, Remark 5.3.2.

    Args:
        order: real order above one.
        below: divergence bound at floor(order).
        above: divergence bound at ceil(order).
    """
    low, high = np.floor(order), np.ceil(order)
    weight = high - order
    if low == high:
        return below
    return float((weight * (low - 1) * below + (1 - weight) * (high - 1) * above) / (order - 1))


def closed_form_epsilon(rho: float, delta: float) -> float:
    """Epsilon where the divergence is at most `rho` times the order, for every order.

    Source: thesis, Lemma 2.1.5: rho + 2 sqrt(rho log(1/delta)).
    """
    check_fraction("delta", delta)
    return float(rho + 2 * np.sqrt(rho * np.log(1 / delta)))


def default_orders(guess: float) -> np.ndarray:
    """Integers 2..64, then a geometric ladder up to eight times the order expected to be best."""
    top = max(64.0, min(8 * guess, 1e5))
    ladder = np.floor(64 * 1.25 ** np.arange(1, 1 + np.ceil(np.log(top / 64) / np.log(1.25))))
    return np.concatenate([np.arange(2, 65), ladder])


def _usable(
    orders: Sequence[float] | np.ndarray, rdp: Sequence[float] | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    order, value = np.asarray(orders, dtype=float), np.asarray(rdp, dtype=float)
    if order.shape != value.shape:
        raise ValueError("orders and rdp must have the same length")
    if np.isnan(value).any():
        raise ValueError("rdp must not be NaN")
    keep = (order >= _LEAST_ORDER) & np.isfinite(order)
    if not keep.any():
        raise ValueError(f"orders must hold a finite order >= {_LEAST_ORDER}")
    return order[keep], value[keep]
