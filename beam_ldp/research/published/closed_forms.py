"""Published closed forms by name, each with the condition it was proved under.

Prices of one shuffle, compositions of (epsilon, delta) guarantees, and limits of large crowds. They
are for comparison: the clone pair evaluated exactly (`shuffle_epsilon`) is below every bound here.

Raises:
    OutOfRangeError: outside the condition, with the condition.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from beam_ldp.accounting.divergences.moments import (
    binomial_cdf,
    binomial_log_pmf,
    binomial_sf,
    binomial_window,
)
from beam_ldp.accounting.divergences.shuffle_rdp import leading_constant
from beam_ldp.accounting.schedule_prices import hidden_among, require
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.special import brentq

# One shuffle: replace-one statements about `num_reports` reports of any randomizer with the given
# local epsilon, unless a docstring says otherwise. None returns more than the local epsilon


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


def feldman_2023_epsilon(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Feldman, McMillan and Talwar 2023, Theorem 3.2, for eps0 <= log(n / (8 log(2/delta)) - 1).

    The form of 2021 with clone probability 2 / (E + 1). Its proof was withdrawn for randomizers in
    general; it stands where the strong clone pair is proved, such as binary randomized response.

    >>> round(feldman_2023_epsilon(4.0, 100_000, 1e-6), 4)
    0.4078
    """
    return hidden_among(2 / (math.exp(local_epsilon) + 1), local_epsilon, num_reports, delta)


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


# Composition and subsampling of (epsilon, delta) guarantees, each named after its source.
#
# These are the baselines that Rényi and privacy-loss accounting are compared with. All are valid
# for adaptively chosen mechanisms with fixed guarantees.


def compose_basic(epsilon: float, delta: float, count: int) -> tuple[float, float]:
    """Guarantees add up."""
    return count * epsilon, min(1.0, count * delta)


def compose_basic_with(
    epsilon: float, delta: float, count: int, slack: float
) -> tuple[float, float]:
    """The same where part of delta was kept for the composition, which does not need it."""
    return compose_basic(epsilon, delta, count)


def compose_strong(epsilon: float, delta: float, count: int, slack: float) -> tuple[float, float]:
    """Dwork, Rothblum and Vadhan 2010; thesis, Lemma 2.1.2. `slack` is added to delta."""
    strong = np.sqrt(2 * count * np.log(1 / slack)) * epsilon + count * epsilon * np.expm1(epsilon)
    return float(min(strong, count * epsilon)), min(1.0, count * delta + slack)


def compose_kov(epsilon: float, delta: float, count: int, slack: float) -> tuple[float, float]:
    """Kairouz, Oh and Viswanath 2015, closed form (Theorem 3.4)."""
    drift = count * epsilon * np.tanh(epsilon / 2)
    spread = np.sqrt(count) * epsilon
    composed = min(
        count * epsilon,
        drift + spread * np.sqrt(2 * np.log(np.e + spread / slack)),
        drift + spread * np.sqrt(2 * np.log(1 / slack)),
    )
    return float(composed), _kov_delta(delta, count, slack)


def compose_kov_exact(
    epsilon: float, delta: float, count: int, slack: float
) -> tuple[float, float]:
    """Kairouz, Oh and Viswanath 2015, the optimal composition of equal guarantees.

    The worst pair is `count` binary randomized responses; its hockey stick is one binomial sum.
    """
    truth = 1 / (1 + np.exp(-epsilon))
    truths = binomial_window(count, truth, 0.0)
    mass = np.exp(binomial_log_pmf(truths, count, truth))
    losses = (2 * truths - count) * epsilon
    left_out = float(binomial_cdf(truths[0] - 1, count, truth))
    left_out += float(binomial_sf(truths[-1], count, truth))

    def excess(total: float) -> float:
        gaps = np.minimum(total - losses, 0.0)
        return float(np.sum(mass * -np.expm1(gaps))) + left_out - slack

    if excess(0.0) <= 0:
        return 0.0, _kov_delta(delta, count, slack)
    composed = brentq(excess, 0.0, count * epsilon, xtol=1e-12, rtol=1e-12)
    return float(composed), _kov_delta(delta, count, slack)


def subsample(epsilon: float, delta: float, rate: float) -> tuple[float, float]:
    """A guarantee for a uniformly drawn fixed-size fraction; thesis, Lemma 2.1.1 (replace-one)."""
    check_fraction("rate", rate, "(]")
    return float(np.log1p(rate * np.expm1(epsilon))), rate * delta


def _kov_delta(delta: float, count: int, slack: float) -> float:
    return float(-np.expm1(count * np.log1p(-delta) + np.log1p(-slack)))


# What a shuffle costs in the limit of large crowds: targets to check against, not bounds.
#
# Each report's loss is then one of very many small ones, so that compositions tend to Gaussian
# differential privacy.


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at `delta` of mu-Gaussian differential privacy (Dong, Roth and Su 2022).

    >>> round(gaussian_epsilon(1.0, 1e-5), 4)
    4.3772
    """

    def excess(epsilon: float) -> float:
        first = special.log_ndtr(mu / 2 - epsilon / mu)
        second = epsilon + special.log_ndtr(-mu / 2 - epsilon / mu)
        gap = second - first
        return float(first + (np.log(-np.expm1(gap)) if gap < 0 else -np.inf) - math.log(delta))

    if excess(0.0) <= 0:
        return 0.0
    high = mu * math.sqrt(-2 * math.log(delta)) + mu * mu / 2
    return float(brentq(excess, 0.0, high, xtol=1e-14, rtol=1e-10))


def crowd_constant(local: float | ShufflePair) -> float:
    """V such that a large shuffle of n reports has the Rényi divergence `order * V / (2 n)`.

    Of a local epsilon: the worst randomizer's. Of a pair: that pair's own.

    >>> round(crowd_constant(2.0), 3), round(crowd_constant(ShufflePair.clones(2.0)), 3)
    (8.695, 17.143)
    """
    if not isinstance(local, ShufflePair):
        return leading_constant(local)
    table = zip(local.ratios, local.probabilities, strict=True)
    return sum(p * (first - second) ** 2 for (first, second), p in table) / local.blanket_mass


def large_crowd_epsilon(
    constant: float, num_reports: int, rate: float, rounds: int, delta: float
) -> float:
    """Gaussian limit of `rounds` shuffles: mu^2 = rounds rate^2 V / n. An approximation.

    Args:
        constant: V, as `crowd_constant` gives it.
        num_reports: reports in each batch.
        rate: probability that a person is drawn for a batch; 1 without sampling.
        rounds: releases.
        delta: in (0, 1).
    """
    return gaussian_epsilon(rate * math.sqrt(rounds * constant / num_reports), delta)
