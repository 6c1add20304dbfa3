"""Rényi moments of likelihood ratios, without cancellation.

The divergences of shuffled releases are as small as 1e-14, far below the rounding error of a sum
of probabilities. With a ratio written as 1 + x and E[x] = 0, the moment E[(1 + x)^a] - 1 equals
E[(1 + x)^a - 1 - a x], whose terms are all non-negative for a > 1 and for a < 0: nothing cancels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from beam_ldp.accounting.divergences import binomials
from beam_ldp.randomizers import special

_LARGE_EXPONENT = 300.0
_TAIL_DEVIATIONS = 11.0
_LONGEST_WINDOW = 1 << 17
_LARGEST_OF_SCIPY = 10**6


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
    """log-probabilities, to 1e-9 even for 1e12 trials, where SciPy's lose the third digit."""
    if np.max(trials) <= _LARGEST_OF_SCIPY:
        return binomials.log_pmf(counts, trials, probability)
    return _large_binomial_log_pmf(counts, trials, probability)


def _large_binomial_log_pmf(
    counts: np.ndarray, trials: np.ndarray | int, probability: float
) -> np.ndarray:
    """The same by the saddle-point expansion of Loader 2000."""
    k, n = np.broadcast_arrays(np.asarray(counts, float), np.asarray(trials, float))
    log_other = math.log1p(-probability)
    result = np.where(k == 0, n * log_other, n * math.log(probability))  # where nobody, or all
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
