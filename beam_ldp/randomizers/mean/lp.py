"""Means of vectors of other norm balls, through the mechanism that fits best."""

from __future__ import annotations

import math
from typing import Any

from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.l1 import L1Mean
from beam_ldp.randomizers.mean.l2 import L2Mean
from beam_ldp.randomizers.mean.linf import LInfMean


def lp_mean(
    dimension: int, local_epsilon: float, p: float, radius: float = 1.0, **options: Any
) -> BlockMean:
    """The local mechanism with the least predicted error for the l_p ball of `radius`.

    The ball lies inside larger balls of the norms that mechanisms exist for: for p < 2 in the l2
    ball of the same radius and in the l1 ball of radius * d^(1 - 1/p); for p > 2 in the cube of
    the same radius and in the l2 ball of radius * d^(1/2 - 1/p). (Remark 3.4.1 of the thesis has
    the inclusion of the l_p balls in the l1 ball the wrong way round.)

    Args:
        dimension: coordinates per vector.
        local_epsilon: local budget.
        p: norm, from 1 to `math.inf`.
        radius: of the l_p ball. Vectors are clipped to the larger ball only.
        **options: passed on (clipping, preset).

    >>> type(lp_mean(100, 1.0, p=1.9)).__name__, type(lp_mean(100, 1.0, p=1.05)).__name__
    ('L2Mean', 'L1Mean')
    """
    candidates = _enclosing(dimension, p, radius)
    built = [cls(dimension, local_epsilon, outer, **options) for cls, outer in candidates]
    return min(built, key=lambda mechanism: mechanism.mean_squared_error(1))


def lp_mean_for_shuffle(
    dimension: int,
    epsilon: float,
    delta: float,
    num_users: int,
    p: float,
    radius: float = 1.0,
    **options: Any,
) -> BlockMean:
    """The same in the multi-message shuffle model, for a central (epsilon, delta)."""
    candidates = _enclosing(dimension, p, radius)
    built = [
        cls.for_shuffle(dimension, epsilon, delta, num_users, radius=outer, **options)
        for cls, outer in candidates
    ]
    return min(built, key=lambda mechanism: mechanism.mean_squared_error(num_users))


def _enclosing(dimension: int, p: float, radius: float) -> list[tuple[type[BlockMean], float]]:
    if not p >= 1:
        raise ValueError(f"p must be a number >= 1, got {p}")
    if p <= 2:
        return [(L2Mean, radius), (L1Mean, radius * dimension ** (1 - 1 / p))]
    inverse = 0.0 if p == math.inf else 1 / p
    return [(LInfMean, radius), (L2Mean, radius * dimension ** (0.5 - inverse))]
