"""Real coordinates as integers, so that reports have a length and sums have no order."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

_MAX_REPORT_BITS = 62


@dataclass(frozen=True)
class FixedPoint:
    """Real coordinates of at most `limit` as signed integers of `bits` bits.

    Rounding is to nearest and deterministic, a function of the randomized report alone: it costs
    no privacy, and it makes sums exact int64 that do not depend on order. One coordinate is off
    by at most half a `step`, an error that does not average out over users.

    >>> grid = FixedPoint(limit=2.0, bits=16)
    >>> float(abs(grid.decode(grid.encode(np.array([1.234]))) - 1.234)[0]) <= grid.step / 2
    True
    """

    limit: float
    bits: int = 32

    def __post_init__(self) -> None:
        if not (math.isfinite(self.limit) and self.limit > 0):
            raise ValueError(f"limit must be a finite number > 0, got {self.limit}")
        if not 2 <= self.bits <= _MAX_REPORT_BITS:
            raise ValueError(f"bits must lie in [2, {_MAX_REPORT_BITS}], got {self.bits}")

    @property
    def largest(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        """The unit of the integers, in the unit of the coordinates."""
        return self.limit / self.largest

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.min_scalar_type(-self.largest - 1)

    @property
    def max_users(self) -> int:
        """Users whose reports an int64 sum holds without overflow."""
        return (2**63 - 1) // self.largest

    def encode(self, coordinates: np.ndarray) -> np.ndarray:
        scaled = np.rint(coordinates / self.step)
        return np.clip(scaled, -self.largest, self.largest).astype(self.dtype)

    def decode(self, integers: np.ndarray) -> np.ndarray:
        return integers * self.step
