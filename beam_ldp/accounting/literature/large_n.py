"""What a shuffle costs in the limit of large crowds: targets to check against, not bounds.

Each report's loss is then one of very many small ones, so that compositions tend to Gaussian
differential privacy.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from beam_ldp.accounting.divergences.shuffle_rdp import leading_constant
from beam_ldp.accounting.divergences.validity import require
from beam_ldp.randomizers.roots import brentq
from beam_ldp.randomizers.shuffle_pair import ShufflePair


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


def two_response_expansion(
    order: float, local_epsilon: float, num_reports: int, *, reverse: bool = False
) -> float:
    """Shuffled binary randomized response up to terms of order n^-2. An approximation.

    Args:
        order: real order above one.
        local_epsilon: eps0.
        num_reports: n.
        reverse: the other direction, as in `two_response_direction`.

    Raises:
        OutOfRangeError: where the next terms are no longer small (order^2 v > 0.1).

    >>> round(two_response_expansion(10, 1.0, 10_000) * 1e4, 6)
    5.427361
    """
    spread = math.expm1(local_epsilon) ** 2 / (num_reports * math.exp(local_epsilon))
    require(order**2 * spread <= 0.1, "order^2 (E - 1)^2 / (n E) <= 0.1: use the exact sum")
    third = math.expm1(local_epsilon) ** 4 / (num_reports * math.exp(local_epsilon)) ** 2
    power = 1 - order if reverse else order
    moment = (
        _binomial(power, 2) * spread
        + _binomial(power, 3) * third
        + 3 * _binomial(power, 4) * spread**2
    )
    return float(np.log1p(moment) / (order - 1))


def _binomial(power: float, chosen: int) -> float:
    """The generalised binomial coefficient, also of negative numbers."""
    return math.prod((power - i) / (i + 1) for i in range(chosen))
