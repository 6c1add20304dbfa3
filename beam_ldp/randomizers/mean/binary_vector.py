"""Means of binary vectors: the share of users who hold each bit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.mean.balls import Norm
from beam_ldp.randomizers.mean.block_mean import BlockMean


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

    @classmethod
    def _coordinates_for(cls, dimension: int) -> int:
        return dimension

    @property
    def _half_range(self) -> float:
        return 0.5

    @property
    def _affine(self) -> tuple[float, float]:
        return 0.0, 1.0

    def _rotate(self, vectors: np.ndarray) -> np.ndarray:
        return vectors

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
