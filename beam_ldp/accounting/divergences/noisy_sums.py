"""What a sum with discrete Gaussian noise in shares costs: a Gaussian mechanism, but for little."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.discrete_noise import (
    DRAW_DISTANCE,
    ROUNDED_VARIANCE,
    drawn_log_ratio,
    rounding_log_ratio,
    sum_log_ratio,
)

_REACH = 16.0  # deviations of the summed noise, within which it is compared with its ideal


class SumLosses(NamedTuple):
    """What a release loses: as much as a Gaussian mechanism, but for little.

    Attributes:
        mu: how far one person moves the sum, in deviations of the Gaussian.
        apart: logarithm of the ratio of densities to those of the Gaussian, at most.
        chance: that this does not hold.
    """

    mu: float
    apart: float
    chance: float

    def delta(self, epsilon: float) -> float:
        """The hockey stick at `epsilon`, at most."""
        return min(1.0, self.certain_delta(epsilon) + self.chance)

    def certain_delta(self, epsilon: float) -> float:
        """The same but for the chance."""
        if not (self.apart < 1 and 0 < self.mu < math.inf):
            return 1.0
        stick = gaussian_delta(epsilon - 2 * self.apart, self.mu)
        return min(1.0, math.exp(self.apart) * stick)

    def divergences(self, orders: np.ndarray) -> np.ndarray:
        """Renyi divergences at orders above one, but for the chance."""
        if not self.apart < 1:
            return np.full(len(orders), math.inf)
        return orders * self.mu**2 / 2 + self.apart * (2 * orders - 1) / (orders - 1)


NOTHING_HIDES = SumLosses(math.inf, math.inf, 1.0)


def noisy_sum_losses(
    sensitivity: float, deviation: float, num_people: int, coordinates: int
) -> SumLosses:
    """What a sum of integer vectors loses to which everybody adds discrete Gaussians.

    Args:
        sensitivity: Euclidean length, at most, of what replacing one person changes of the sum.
        deviation: of each person's noise in each coordinate.
        num_people: those who add noise, at least. More people, and what else is added, is harmless.
        coordinates: of the vectors.
    """
    variance = num_people * deviation**2 - ROUNDED_VARIANCE
    if not variance > 0:
        return NOTHING_HIDES
    mu = sensitivity / math.sqrt(variance)
    ideal = sum_log_ratio(deviation, num_people) + rounding_log_ratio()
    drawn = drawn_log_ratio(deviation, num_people, _REACH)
    if not (mu < _REACH and coordinates * (ideal + drawn) < 1):
        return NOTHING_HIDES
    further = 2 * math.exp(-((_REACH - mu) ** 2) / 2)
    chance = coordinates * (num_people * DRAW_DISTANCE + further)
    return SumLosses(mu, coordinates * (ideal + drawn), chance)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism whose sensitivity is `mu` standard deviations, exactly.

    Source: Balle and Wang 2018. The inverse is `gaussian_mu`.
    """
    first = float(special.ndtr(mu / 2 - epsilon / mu))
    second = math.exp(epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu)))
    return max(0.0, first - second) + 1e-14 * first  # for rounding
