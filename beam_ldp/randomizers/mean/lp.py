"""Means of vectors of the other lp balls, and of bits: presets of the block family."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.mean.base import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.l2_mean import L2Mean

# Means of vectors of an l1 ball: histograms, sparse updates, distributions ----------------


@dataclass(frozen=True)
class L1Mean(BlockMean):
    """Mean of vectors whose absolute entries add up to at most `radius`.

    A user sends noisy bits of Walsh-Hadamard coefficients, each of which is at most `radius` for
    every vector of the ball (an extreme point of the ball makes all of them equally large).

    Cost: one transform per user, O(size log size), `size` the next power of two; one transform
    to read back.

    Source: thesis, Algorithm 3.4.1, Theorems 3.4.1 and 3.4.2.

    >>> mechanism = L1Mean(dimension=1000, local_epsilon=1.0)
    >>> mechanism.messages_per_user, mechanism.bits_per_report
    (1, 11)
    """

    norm: ClassVar[Norm] = "l1"
    decoding: ClassVar[str] = "O(d log d), Walsh-Hadamard"
    rotates: ClassVar[bool] = True

    @property
    def _half_range(self) -> float:
        return self.radius / math.sqrt(self.num_coordinates)


# Means of vectors whose coordinates lie in an interval ------------------------------------


@dataclass(frozen=True)
class LInfMean(BlockMean):
    """Mean of vectors with coordinates in [-radius, radius] (dimension 1: a scalar).

    Coordinates are written as binary numbers, the last digit rounded at random; every digit is
    one level of noisy bits. One level suffices until the budget reaches every coordinate.

    Cost: one word and a few nanoseconds per message; reading back is linear in the coordinates.

    Source: thesis, Algorithms 3.5.1 and 3.5.2, Theorems 3.5.1 and 3.5.2.

    >>> mechanism = LInfMean(dimension=3, local_epsilon=2.0)
    >>> reports = mechanism.randomize(np.array([[0.5, -1.0, 0.0]] * 1000))
    >>> estimate = mechanism.estimate(mechanism.accumulate(reports), 1000)
    >>> estimate.value.shape, mechanism.messages_per_user
    ((3,), 1)
    """

    norm: ClassVar[Norm] = "linf"
    decoding: ClassVar[str] = "O(d)"

    @property
    def _half_range(self) -> float:
        return self.radius


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


# Means of binary vectors: the share of users who hold each bit ----------------------------


@dataclass(frozen=True)
class BinaryVectorMean(BlockMean):
    """Mean of vectors of {0, 1}^dimension: any number of yes/no answers per user.

    Every message names one coordinate of its block and carries its bit through randomized
    response. `radius` has no meaning here and must stay 1.

    Source: thesis, Algorithms 3.3.1 and 3.3.2, Theorems 3.3.1 and 3.3.2.

    >>> mechanism = BinaryVectorMean(dimension=4, local_epsilon=1.7)
    >>> mechanism.messages_per_user, mechanism.bits_per_report
    (1, 3)
    """

    norm: ClassVar[Norm] = "binary"
    decoding: ClassVar[str] = "O(d)"
    max_levels: ClassVar[int | None] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.radius != 1.0:
            raise ValueError(f"radius must be 1 for binary vectors, got {self.radius}")

    @property
    def _half_range(self) -> float:
        return 0.5

    @property
    def _affine(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return coordinates + 0.5

    def channel(self) -> np.ndarray:
        """P(report | value) of a small mechanism, by enumeration.

        Columns are the 2^dimension binary vectors, coordinate 0 the most significant digit; rows
        are the rows of messages in mixed radix, column 0 the most significant.
        """
        values = (np.arange(2**self.dimension)[:, None] >> np.arange(self.dimension)[::-1]) & 1
        table = np.ones((1, len(values)))
        for t, size in enumerate(self.layout.columns.size.tolist()):
            low = self.layout.columns.low[t] / 2.0**64
            start = int(self.layout.columns.start[t])
            held = np.zeros((size, len(values)), dtype=bool)
            known = values.T[start : start + size].astype(bool)
            held[: len(known)] = known
            one = np.where(held, 1 - low, low) / size
            rows = np.stack([1 / size - one, one], axis=1).reshape(2 * size, -1)
            table = (table[:, None, :] * rows[None]).reshape(-1, len(values))
        return table
