"""Published closed forms of the price of one shuffle, each with the condition it was proved under.

All are replace-one statements about `num_reports` reports of any randomizer with the given local
epsilon, unless a docstring says otherwise. They are for comparison: the clone pair evaluated
exactly (`shuffle_epsilon`) is below every one of them. None returns more than the local epsilon.

Raises:
    OutOfRangeError: outside the condition, with the condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from beam_ldp.accounting.divergences.validity import require
from beam_ldp.randomizers.roots import brentq

_LEAST_EPSILON = 1e-12


def erlingsson_2019_epsilon(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Erlingsson, Feldman, Mironov, Raghunathan, Talwar and Thakurta 2019 (thesis, Lemma 2.3.1).

    12 eps0 sqrt(log(1/delta) / n), for eps0 <= 1/2, delta < 1/100 and n >= 1000.

    >>> round(erlingsson_2019_epsilon(0.5, 10_000, 1e-6), 4)
    0.223
    """
    require(local_epsilon <= 0.5, "local epsilon <= 0.5")
    require(num_reports >= 1000, "at least 1000 reports")
    require(delta < 0.01, "delta < 0.01")
    amplified = 12 * local_epsilon * math.sqrt(math.log(1 / delta) / num_reports)
    return min(local_epsilon, amplified)


def feldman_2021_epsilon(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Feldman, McMillan and Talwar 2021, Theorem 3.1: three to five times the clone pair's price.

    For eps0 <= log(n / (16 log(2/delta))).

    >>> round(feldman_2021_epsilon(4.0, 100_000, 1e-6), 4)
    0.5346
    """
    return _hidden_among(math.exp(-local_epsilon), local_epsilon, num_reports, delta)


def feldman_2023_epsilon(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Feldman, McMillan and Talwar 2023, Theorem 3.2, for eps0 <= log(n / (8 log(2/delta)) - 1).

    The form of 2021 with clone probability 2 / (E + 1). Its proof was withdrawn for randomizers in
    general; it stands where the strong clone pair is proved, such as binary randomized response.

    >>> round(feldman_2023_epsilon(4.0, 100_000, 1e-6), 4)
    0.4078
    """
    return _hidden_among(2 / (math.exp(local_epsilon) + 1), local_epsilon, num_reports, delta)


def _hidden_among(clones: float, local_epsilon: float, num_reports: int, delta: float) -> float:
    """Feldman et al.'s form for others who blend in with probability `clones`."""
    largest = num_reports / (16 * math.log(2 / delta))
    require(1 / clones <= largest, f"more reports for this local epsilon (1/q <= {largest:.3g})")
    crowd = clones * num_reports
    step = 8 * math.sqrt(math.log(4 / delta) / crowd) + 8 / crowd
    return min(local_epsilon, math.log1p(math.tanh(local_epsilon / 2) * step))


def balle_2019_hoeffding(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Balle, Bell, Gascon and Nissim 2019, generic blanket, by Hoeffding's inequality.

    The blanket's mass is at least 1/E and at most 1. The first enters as the crowd, the second
    as the range of the privacy amplification variable: 1/E in both places would not be a bound.

    >>> round(balle_2019_hoeffding(0.5, 10_000, 1e-6), 3)
    0.054
    """

    def log_delta(epsilon: float) -> float:
        drift = math.expm1(epsilon)
        width = (math.exp(epsilon) + 1) * 2 * math.sinh(local_epsilon)
        exponent = 2 * (drift / width) ** 2
        return math.log(width**2 / (4 * drift)) + _log_crowd(local_epsilon, num_reports, exponent)

    return _least_epsilon(log_delta, local_epsilon, delta)


def balle_2019_bennett(local_epsilon: float, num_reports: int, delta: float) -> float:
    """The same by Bennett's inequality, which also knows the second moment.

    >>> round(balle_2019_bennett(4.0, 1_000_000, 1e-6), 3)
    0.363
    """
    ratio = math.exp(local_epsilon)

    def log_delta(epsilon: float) -> float:
        drift, grown = math.expm1(epsilon), math.exp(epsilon)
        largest = ratio - grown / ratio
        square = ratio * (grown**2 + 1) - 2 * grown / ratio**3
        tilt = math.log1p(drift * largest / square)
        exponent = square / largest**2 * _bennett(drift * largest / square)
        return math.log(largest / tilt) + _log_crowd(local_epsilon, num_reports, exponent)

    return _least_epsilon(log_delta, local_epsilon, delta)


def _bennett(u: float) -> float:
    """(1 + u) log(1 + u) - u, also where that cancels."""
    return u * u / 2 - u**3 / 6 if u < 1e-4 else (1 + u) * math.log1p(u) - u


def _log_crowd(local_epsilon: float, num_reports: int, exponent: float) -> float:
    """Log of E[exp(-exponent * M)] / (n / E) for a crowd M ~ Bin(n, 1/E)."""
    blanket = math.exp(-local_epsilon)
    spared = num_reports * math.log1p(blanket * math.expm1(-exponent))
    return spared - math.log(num_reports * blanket)


def _least_epsilon(
    log_delta: Callable[[float], float], local_epsilon: float, delta: float
) -> float:
    """Where a decreasing bound of log delta meets the target; the local epsilon if nowhere."""

    def excess(epsilon: float) -> float:
        return log_delta(epsilon) - math.log(delta)

    below = local_epsilon * (1 - 1e-9)
    if excess(below) >= 0:
        return local_epsilon
    if excess(_LEAST_EPSILON) <= 0:
        return _LEAST_EPSILON
    return float(brentq(excess, _LEAST_EPSILON, below, xtol=1e-12)) * (1 + 1e-9)
