"""Published rules and errors that ours are compared with."""

from __future__ import annotations

import math

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.mean.codebooks import best_count, top_sum
from beam_ldp.randomizers.special import brentq
from beam_ldp.randomizers.spherical_caps import log_gamma_half_step


def published_num_blocks(domain_size: int, local_epsilon: float) -> int:
    """The number of blocks of Acharya, Sun and Zhang: about half of min(E, 2 k).

    >>> published_num_blocks(1000, 1.0), published_num_blocks(1000, 5.0)
    (2, 128)
    """
    size = min(math.exp(min(local_epsilon, 40.0)), 2.0 * domain_size)
    return 1 if size <= 2 else 1 << (math.ceil(math.log2(size)) - 1)


def published_message_bits(domain_size: int, local_epsilon: float) -> int:
    """The rule of Chen, Kairouz and Ozgur: local_epsilon in bits, rounded up.

    >>> published_message_bits(1000, 1.0), published_message_bits(1000, 4.0)
    (2, 6)
    """
    bits = math.ceil(local_epsilon * math.log2(math.e))
    return max(1, min(bits, (domain_size - 1).bit_length()))


def rotated_simplex_marginal(dimension: int, epsilon: float, index_bits: int) -> float:
    """M of the best k-closest mechanism on randomly rotated simplices (needs M <= dimension).

    The codebook of Isik et al. 2023, for comparison: slightly better than independent directions,
    at O(dimension M^2) to rotate.
    """
    candidates = 1 << index_bits
    if candidates > dimension:
        raise ValueError(f"index_bits must be at most log2 of dimension {dimension}")
    x = np.linspace(-12, 12, 8001)
    weight = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    tail = special.ndtr(-x)
    length = math.sqrt(2) * math.exp(log_gamma_half_step(dimension / 2))
    scale = math.sqrt(candidates / (candidates - 1)) / length

    def top(k: int, among: int) -> float:
        return scale * top_sum(x, weight, tail, k, among)

    return best_count(epsilon, candidates, top)[1]


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
