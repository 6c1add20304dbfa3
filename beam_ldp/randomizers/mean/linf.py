"""Means of vectors whose coordinates lie in an interval."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.mean.balls import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean


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

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return dimension

    @property
    def _half_range(self) -> float:
        return self.radius

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return 2 * self.radius * coordinates
