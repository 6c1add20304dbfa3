"""Means as people see them: which coordinates, with which intervals, in which unit."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.pipelines.views.tables import LEVEL
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

_LEAST_SIDE = 7  # of a square that is taken for a picture unasked


@dataclass(frozen=True)
class MeanView:
    """An estimated mean with intervals that hold for all coordinates at once.

    Attributes:
        labels: name of each coordinate.
        value, error, low, high: `(d,)`, in the unit of the data.
        truth: likewise, where it is known.
        ranges: `(d, 2)`, where each coordinate has a public range of its own; None where all
            coordinates share one unit.
        shape: height and width, where the coordinates are the pixels of a picture, row by row.
    """

    labels: tuple[str, ...]
    value: np.ndarray
    error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    truth: np.ndarray | None = None
    ranges: np.ndarray | None = None
    shape: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def largest(self, count: int) -> np.ndarray:
        """Which coordinates to list: all where they fit, else the `count` largest."""
        if len(self) <= count:
            return np.arange(len(self))
        return np.argsort(-np.abs(self.value), kind="stable")[:count]

    @property
    def held(self) -> np.ndarray:
        """Whether each interval holds the truth, which must be known."""
        assert self.truth is not None
        return (self.low <= self.truth) & (self.truth <= self.high)


def mean_view(
    estimate: Estimate,
    labels: Sequence[str],
    truth: np.ndarray | None = None,
    ranges: CoordinateRanges | None = None,
    shape: tuple[int, int] | None = None,
) -> MeanView:
    """What there is to show of an estimate."""
    low, high = estimate.confidence_interval(LEVEL, simultaneous=True)
    own = None
    if ranges is not None and (min(ranges.low), min(ranges.high)) != (
        max(ranges.low), max(ranges.high),
    ):  # fmt: skip
        own = np.stack([ranges.low, ranges.high], axis=1)
    known = None if truth is None else np.asarray(truth, dtype=float)
    return MeanView(
        tuple(labels), estimate.value, estimate.standard_error, low, high, known, own, shape
    )


def interval_name(view: MeanView) -> str:
    """What the intervals of a view are."""
    return f"{LEVEL:.0%} interval".replace("%", " %") + ", all at once" * (len(view) > 1)


def picture_shape(labels: Sequence[str]) -> tuple[int, int] | None:
    """The square that the coordinates fill, where their names only number them.

    >>> picture_shape([f"pixel_{i}" for i in range(64)])
    (8, 8)
    >>> picture_shape(["age", "income"]) is None
    True
    """
    side = math.isqrt(len(labels))
    if side < _LEAST_SIDE or side * side != len(labels):
        return None
    stems = {re.sub(r"\d+", "#", label) for label in labels}
    return (side, side) if len(stems) == 1 and "#" in stems.pop() else None


def decimals(error: float) -> int:
    """Digits after the point with which a figure of that error is written: two of the error's.

    >>> decimals(0.0123), decimals(3.4), decimals(250.0)
    (3, 1, 0)
    """
    if not (math.isfinite(error) and error > 0):
        return 3
    return max(0, min(12, 1 - math.floor(math.log10(error))))
