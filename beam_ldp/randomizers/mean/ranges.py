"""Public ranges of coordinates: the data's units outside, the cube [-1, 1]^d inside."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, cast

import numpy as np

from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.mean.base import LARGEST, SMALLEST, MeanEstimate, MeanRandomizer

_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class CoordinateRanges:
    """The range [low, high] of every coordinate, for mechanisms of norm "linf" and radius 1.

    Ranges are public: they are chosen without looking at the data. A coordinate outside its range
    is outside the cube, where the mechanism's `clipping` says what happens.

    Args:
        low, high: one number for all coordinates, or one per coordinate; low < high.

    Raises:
        ValueError: unless both are finite, fit each other, and low < high everywhere.

    >>> ranges = CoordinateRanges(low=(0, 18), high=(1440, 98))
    >>> ranges.encode(np.array([[720, 98], [0, 38]])).tolist()
    [[0.0, 1.0], [-1.0, -0.5]]
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, _as_floats(name, getattr(self, name)))
        if len(self.low) != len(self.high):
            if 1 not in (len(self.low), len(self.high)):
                raise ValueError(
                    f"low and high must have one length, got {len(self.low)} and {len(self.high)}"
                )
            size = max(len(self.low), len(self.high))
            for name in ("low", "high"):
                bounds = getattr(self, name)
                object.__setattr__(self, name, bounds * (size // len(bounds)))
        if not (self._half > 0).all():
            raise ValueError("low must be below high in every coordinate")
        if not ((self._half >= SMALLEST) & (self._half <= LARGEST)).all():
            raise ValueError(f"high - low must lie in [{2 * SMALLEST:g}, {2 * LARGEST:g}]")

    @property
    def digest(self) -> bytes:
        """16 bytes that identify all bounds."""
        return digest_of(b"ranges", *(repr(bound).encode() for bound in (*self.low, *self.high)))

    def __len__(self) -> int:
        """Number of coordinates; 1 also where one range is that of all."""
        return len(self.low)

    @property
    def _half(self) -> np.ndarray:
        return np.array(self.high) / 2 - np.array(self.low) / 2

    @property
    def _middle(self) -> np.ndarray:
        return np.array(self.high) / 2 + np.array(self.low) / 2

    def check_fits(self, randomizer: MeanRandomizer) -> None:
        """A ValueError unless the mechanism takes the cube [-1, 1]^d of as many coordinates."""
        name = type(randomizer).__name__
        if randomizer.norm != "linf" or not getattr(randomizer, "signed", True):
            raise ValueError(
                f'ranges need a mechanism for vectors with coordinates in [-1, 1] (norm "linf", '
                f"signed), got {name}"
            )
        if randomizer.radius != 1.0:
            raise ValueError(f"ranges need a mechanism of radius 1, got {randomizer.radius:g}")
        if len(self) not in (1, randomizer.dimension):
            raise ValueError(
                f"ranges must hold one range or {randomizer.dimension}, got {len(self)}"
            )

    def encode(self, vectors: np.ndarray) -> np.ndarray:
        """Vectors `(n, d)` in the unit of the data as float64 vectors of the cube."""
        with np.errstate(over="ignore"):
            scaled = (np.asarray(vectors, dtype=np.float64) - self._middle) / self._half
        return np.clip(scaled, -_LARGEST, _LARGEST, out=scaled)

    def decode(self, estimate: MeanEstimate) -> MeanEstimate:
        """The estimated mean, its errors and its bias bound, in the unit of the data.

        `mean_squared_error` stays an upper bound: the smaller one of the sum of the squared
        standard errors, and of the error inside the cube times the widest range.
        """
        half = self._half
        error = half * estimate.standard_error
        widest = float(half.max())
        total = float(np.sum(error**2))
        raw = cast(MeanEstimate, estimate.raw)
        return replace(
            estimate,
            value=self._middle + half * estimate.value,
            standard_error=error,
            mean_squared_error=min(total, widest**2 * estimate.mean_squared_error),
            bias_bound=widest * estimate.bias_bound,
            expected_bias=widest * estimate.expected_bias,
            _raw=None if raw is estimate else self.decode(raw),
        )


def _as_floats(name: str, bounds: Any) -> tuple[float, ...]:
    listed = tuple(bounds) if isinstance(bounds, Iterable) else (bounds,)
    if not listed or not all(isinstance(bound, Real) for bound in listed):
        raise ValueError(f"{name} must be a number, or one number per coordinate")
    floats = tuple(map(float, listed))
    if not np.isfinite(floats).all():
        raise ValueError(f"{name} must hold finite numbers")
    return floats
