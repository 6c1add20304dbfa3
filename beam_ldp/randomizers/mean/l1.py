"""Means of vectors of an l1 ball: histograms, sparse updates, distributions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.mean.balls import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.rotation import hadamard, hadamard_back, padded_size


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

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return padded_size(dimension)

    @property
    def _half_range(self) -> float:
        return self.radius / math.sqrt(self.num_coordinates)

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return hadamard(vectors)

    def _decode(self, coordinates: np.ndarray) -> np.ndarray:
        return hadamard_back(2 * self._half_range * coordinates, self.dimension)

    def _rotate_back(self, rows: np.ndarray) -> np.ndarray:
        return hadamard(rows)[:, : self.dimension]
