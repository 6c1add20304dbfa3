"""Intervals of estimates that a public rotation may have shifted by a bias known on average.

Truncation after a public rotation shifts the estimate by a bias that depends on the rotation. What
is proved is its average over rotations (`rotation.truncation_bias`), for all vectors that were not
chosen for the rotation. Rotations exist, if few, at which some vectors are shifted far, so an
interval that is widened by the average alone covers less often than it says: at an average of a
tenth of the standard error, 93.4 % is all that is certain of "95 %". The half width here is proved.

With h the half width, S the largest shift of all components and g(S) = min(1, sum over components
of the chance that noise and a shift of S leave the interval), the chance to miss any component is
E g(S) over rotations, at most. g grows in S, so

    g(S) <= g(0) + S * slope,   slope = sup over s > 0 of (g(s) - g(0)) / s,

and E g(S) <= g(0) + slope * E S: no other property of the law of S plays a part, and laws of two
values attain it. h is the smallest at which that is what the level leaves.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.roots import brentq

_POINTS = 2000  # at which the slope is looked for
_BEYOND = 9.0  # standard errors past the half width: there g is one
_SAFETY = 1e-3  # relative: more than the slope can be missed by between two points


def half_width(miss: float, error: np.ndarray, expected_bias: float, count: int = 1) -> np.ndarray:
    """Half of an interval of each component, all of which are left with at most probability `miss`.

    Args:
        miss: over noise and public randomness, in (0, 1).
        error: standard error of each component, normal noise.
        expected_bias: of the component that is shifted most, on average over public randomness.
        count: components that must be covered at once; 1: each by itself.
    """
    least = float(np.min(error, initial=math.inf))
    if not 0 < least < math.inf:  # nothing to compare the bias with: Markov's inequality
        return np.asarray(-special.ndtri(miss / 4 / count) * error + 2 * expected_bias / miss)
    return np.asarray(_widths(miss, expected_bias / least, count) * error)


@lru_cache(maxsize=256)
def _widths(miss: float, bias: float, count: int) -> float:
    """Half the width in standard errors, for a bias in standard errors."""

    def excess(half: float) -> float:
        shifts = np.linspace(0.0, half + _BEYOND, _POINTS)
        outside = special.ndtr(shifts - half) + special.ndtr(-shifts - half)
        left = np.minimum(1.0, count * outside)
        slope = float(np.max((left[1:] - left[0]) / shifts[1:]))
        return float(left[0]) + slope * (1 + _SAFETY) * bias - miss

    low = float(-special.ndtri(min(0.5, miss / 2 / count)))
    high = low + 1 + 4 * bias / miss
    while excess(high) > 0:
        high *= 2
    return brentq(excess, low - 1e-9, high, xtol=1e-9) + 1e-9
