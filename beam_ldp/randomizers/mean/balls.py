"""Norm balls: vectors are brought into them on the device, estimates on request."""

from __future__ import annotations

from typing import Literal

import numpy as np

Norm = Literal["l1", "l2", "linf", "binary"]
Clipping = Literal["clip", "raise"]

NORM_TOLERANCE = 1e-9  # relative; what the rounding of a normalized vector may exceed
SMALLEST, LARGEST = 1e-100, 1e100  # lengths whose squares, summed, neither vanish nor overflow
_SAFE_SQUARE = 1e-280


def check_radius(radius: float) -> None:
    """A ValueError unless the radius is a usable length."""
    if not SMALLEST <= radius <= LARGEST:
        raise ValueError(f"radius must lie in [{SMALLEST:g}, {LARGEST:g}], got {radius!r}")


def clip_to_ball(vectors: np.ndarray, norm: Norm, radius: float, clipping: Clipping) -> np.ndarray:
    """The vectors `(n, d)` inside the ball: as they are, clipped, or refused.

    Raises:
        ValueError: on NaN or infinite entries; under "raise", if a vector lies outside by more
            than rounding; for "binary" always, if an entry is neither 0 nor 1.
    """
    if norm == "binary":
        if not ((vectors == 0) | (vectors == 1)).all():
            raise ValueError("values must be 0 or 1")
        return vectors
    # NaN fails the comparison, and so does every vector whose squares overflow.
    outside = ~(_quick_norm(vectors, norm) <= radius)
    if not outside.any():
        return vectors
    result = vectors.copy()
    result[outside] = _clip_rows(vectors[outside], norm, radius, clipping)
    return result


def _quick_norm(vectors: np.ndarray, norm: Norm) -> np.ndarray:
    """Norm of every row in one pass; too large or NaN, never too small, where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        if norm == "l2":
            squares = np.einsum("ij,ij->i", vectors, vectors)
            # Below this, squares of entries that matter may have vanished.
            return np.where(squares > _SAFE_SQUARE, np.sqrt(squares), np.inf)
        if norm == "l1":
            return np.abs(vectors).sum(axis=1)
        return np.maximum(vectors.max(axis=1), -vectors.min(axis=1))


def _clip_rows(vectors: np.ndarray, norm: Norm, radius: float, clipping: Clipping) -> np.ndarray:
    """The careful path: rows that may lie outside, of any magnitude."""
    if not np.isfinite(vectors).all():
        raise ValueError("values must be finite numbers")
    # Relative to the largest entry, so that no square overflows or vanishes.
    largest = np.abs(vectors).max(axis=1)
    scale = np.where(largest > 0, largest, 1.0)[:, None]
    shape = vectors / scale
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    length = np.linalg.norm(shape, ord=order, axis=1, keepdims=True)
    if clipping == "raise" and (length > radius * (1 + NORM_TOLERANCE) / scale).any():
        raise ValueError(f"values must lie in the {norm} ball of radius {radius:g}")
    if norm == "linf":
        return np.clip(vectors, -radius, radius)
    outside = length > radius / scale
    shrink = np.where(outside, (radius / scale) / np.where(length > 0, length, 1.0), 1.0)
    return vectors * shrink


def nearest_in_ball(vector: np.ndarray, norm: Norm, radius: float) -> np.ndarray:
    """Euclidean projection of one vector on the ball. O(d log d)."""
    if norm == "binary":
        return np.clip(vector, 0.0, 1.0)
    if norm == "linf":
        return np.clip(vector, -radius, radius)
    if norm == "l2":
        length = float(np.linalg.norm(vector))
        return vector if length <= radius else vector * (radius / length)
    magnitude = np.abs(vector)
    if magnitude.sum() <= radius:
        return vector
    descending = np.sort(magnitude)[::-1]
    shift = (np.cumsum(descending) - radius) / np.arange(1, vector.size + 1)
    kept = np.count_nonzero(descending > shift)
    return np.sign(vector) * np.maximum(magnitude - shift[kept - 1], 0.0)
