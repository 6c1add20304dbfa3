"""Errors of older mechanisms on a unit vector, one report: for comparison and planning."""

from __future__ import annotations

import math

from beam_ldp.randomizers import special
from beam_ldp.randomizers.roots import brentq
from beam_ldp.randomizers.spherical_caps import SphericalCap, expit


def hemisphere_error(dimension: int, epsilon: float, copies: int = 1) -> float:
    """PrivHS on a unit vector (Duchi, Jordan and Wainwright); the mean of copies at eps/copies."""
    cap = SphericalCap(dimension, 0.0)
    marginal = cap.expected_marginal(expit(epsilon / copies))
    return (1 / marginal**2 - 1) / copies


def repeated_hemisphere_error(dimension: int, epsilon: float) -> float:
    """RePrivHS with the best number of copies (Feldman and Talwar 2021)."""
    return min(hemisphere_error(dimension, epsilon, k) for k in range(1, 2 + math.ceil(epsilon)))


def laplace_error(dimension: int, epsilon: float) -> float:
    """Euclidean Laplace noise on the unit ball: 4 d (d + 1) / eps^2."""
    return 4 * dimension * (dimension + 1) / epsilon**2


def gaussian_error(dimension: int, epsilon: float, delta: float) -> float:
    """Normal noise with the exact (eps, delta) calibration (Balle and Wang 2018), sensitivity 2."""

    def excess(sigma: float) -> float:
        shift, slope = 1 / sigma, epsilon * sigma / 2
        tail = math.exp(epsilon + float(special.log_ndtr(-shift - slope)))
        return float(special.ndtr(shift - slope)) - tail - delta

    return dimension * brentq(excess, 1e-3, 1e3 / min(1.0, epsilon)) ** 2
