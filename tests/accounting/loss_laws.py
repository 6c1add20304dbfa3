"""Losses whose compositions can be written down."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np

from beam_ldp.accounting.divergences.iid_sums import FINE
from beam_ldp.accounting.divergences.loss_grid import LossGrid


def response(epsilon: float, parts: int = 10) -> LossGrid:
    """Randomized response on a grid of so many steps up to its only loss."""
    truth = 1 / (1 + math.exp(-epsilon))
    mass = np.zeros(2 * parts + 1)
    mass[[0, -1]] = 1 - truth, truth
    return LossGrid(epsilon / parts, -parts, mass)


def exact_delta(epsilon: float, count: int, total: float) -> mpmath.mpf:
    """The hockey stick at `total` of so many of these, masses as rounded, by 60 digits.

    Sums end where terms fall below 1e-20 of the sum.
    """
    with mpmath.workdps(60):
        lie, truth = (mpmath.mpf(float(each)) for each in response(epsilon).mass[[0, -1]])
        heads = max(0, math.floor((total / epsilon + count) / 2))
        term = mpmath.binomial(count, heads) * truth**heads * lie ** (count - heads)
        found = mpmath.mpf(0)
        while heads <= count:
            loss = (2 * heads - count) * mpmath.mpf(epsilon)
            found += term * max(0, -mpmath.expm1(total - loss))
            if found > 0 and term < found * mpmath.mpf(10) ** -20:
                break
            term *= mpmath.mpf(count - heads) / (heads + 1) * truth / lie
            heads += 1
        return found


def heights_of(curve: Any, losses: np.ndarray) -> np.ndarray:
    """The upper delta of a release's curve at each loss."""
    return np.exp(curve.log_heights(losses, FINE))
