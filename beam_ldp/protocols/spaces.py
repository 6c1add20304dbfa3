"""Where people's rows live, and the coordinates in which a protocol looks for them.

A device brings its rows into a public set (a box, or a ball about zero), averages them, and speaks
about the coordinates of that average, which lie in [-1, 1]. The collector takes what it finds in
those coordinates back into the unit of the data.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from beam_ldp.randomizers.base import check_integer
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean.balls import check_radius, clip_to_ball
from beam_ldp.randomizers.mean.base import MeanEstimate
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.mean.rotation import (
    hadamard,
    hadamard_back,
    padded_size,
    public_signs,
    rotation_seed_of,
    union_cutoff,
)

_MAX_DIMENSION = 1 << 24


class Space(Protocol):
    """A public set of rows with coordinates of its own."""

    def for_release(self, identity: ReleaseIdentity) -> Space:
        """The space of one release, with the public seed that follows from its name."""

    @property
    def dimension(self) -> int:
        """Numbers per row."""

    @property
    def num_coordinates(self) -> int:
        """Coordinates that messages speak about."""

    @property
    def scale(self) -> np.ndarray:
        """Coordinates per unit of the data: one number per column, or one for all directions."""

    def failure_probability(self, num_users: int) -> float:
        """That the coordinates of any of so many means leave [-1, 1] and are clipped."""

    @property
    def ranges(self) -> CoordinateRanges | None:
        """Public ranges of the columns, where there are any; rows are then scaled by them."""

    def inside(self, rows: np.ndarray) -> np.ndarray:
        """Rows `(n, dimension)`, scaled by `ranges` if there are any, moved into the unit set."""

    def unit(self, rows: np.ndarray) -> np.ndarray:
        """Rows `(n, dimension)` in the unit of the data, moved into the unit set."""

    def coordinates(self, means: np.ndarray) -> np.ndarray:
        """Means of such rows as coordinates in [-1, 1]: `(n, num_coordinates)`."""

    def restore(self, estimate: MeanEstimate) -> MeanEstimate:
        """An estimate of coordinates, in the unit of the data."""


@dataclass(frozen=True)
class Box:
    """Rows whose numbers lie in public ranges; a number outside its range is clipped to it.

    Args:
        ranges: one range per column, or one for all.
        dimension: number of columns.

    Raises:
        ValueError: if the ranges do not fit the columns.

    >>> box = Box(CoordinateRanges((0, -1), (10, 1)), dimension=2)
    >>> box.unit(np.array([[12.0, 0.5]])).tolist()
    [[1.0, 0.5]]
    """

    ranges: CoordinateRanges
    dimension: int = 1

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, 1, _MAX_DIMENSION)
        if len(self.ranges) not in (1, self.dimension):
            raise ValueError(
                f"ranges must hold one range or {self.dimension}, got {len(self.ranges)}"
            )

    @property
    def num_coordinates(self) -> int:
        return self.dimension

    @property
    def scale(self) -> np.ndarray:
        return 2 / (np.array(self.ranges.high) - np.array(self.ranges.low))

    def for_release(self, identity: ReleaseIdentity) -> Box:
        return self

    def failure_probability(self, num_users: int) -> float:
        return 0.0

    def inside(self, rows: np.ndarray) -> np.ndarray:
        return np.clip(rows, -1.0, 1.0)

    def unit(self, rows: np.ndarray) -> np.ndarray:
        return self.inside(self.ranges.encode(rows))

    def coordinates(self, means: np.ndarray) -> np.ndarray:
        return np.asarray(means, dtype=np.float64)

    def restore(self, estimate: MeanEstimate) -> MeanEstimate:
        return self.ranges.decode(estimate)


@dataclass(frozen=True)
class Ball:
    """Rows of bounded Euclidean length, in coordinates that a public rotation has evened out.

    No coordinate of a rotated vector is much longer than its length over the root of their number;
    what still exceeds `cutoff` times that is clipped. Longer rows are scaled onto the ball.

    Source: thesis, remark 3.7.4 and section 3.6, with the radius of Hoeffding's inequality in the
    place of the printed one.

    Args:
        dimension: numbers per row.
        radius: of the ball, in the unit of the data.
        cutoff: see above.
        rotation_seed: public; None: that of the release (`for_release`), else 0.
    """

    dimension: int
    radius: float = 1.0
    cutoff: float = 6.0
    rotation_seed: int | None = None

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, 1, _MAX_DIMENSION)
        check_radius(self.radius)
        if not (math.isfinite(self.cutoff) and self.cutoff > 0):
            raise ValueError(f"cutoff must be a finite number > 0, got {self.cutoff!r}")

    def for_release(self, identity: ReleaseIdentity) -> Ball:
        if self.rotation_seed is not None:
            return self
        return replace(self, rotation_seed=rotation_seed_of(identity))

    def failure_probability(self, num_users: int) -> float:
        """That any coordinate of so many vectors exceeds the cutoff, over the public signs."""
        if self.half == 1.0:
            return 0.0
        return min(1.0, 2 * num_users * self.num_coordinates * math.exp(-(self.cutoff**2) / 2))

    @classmethod
    def for_users(
        cls,
        dimension: int,
        radius: float,
        num_users: int,
        failure_probability: float,
        rotation_seed: int | None = None,
    ) -> Ball:
        """The ball that clips no coordinate of so many vectors, but for that probability."""
        cutoff = union_cutoff(num_users * padded_size(dimension), failure_probability)
        return cls(dimension, radius, cutoff, rotation_seed)

    @property
    def num_coordinates(self) -> int:
        return padded_size(self.dimension)

    @property
    def half(self) -> float:
        """The largest coordinate, in units of the radius; none exceeds the vector's length."""
        return min(1.0, self.cutoff / math.sqrt(self.num_coordinates))

    @property
    def scale(self) -> np.ndarray:
        return np.array([1 / (self.half * self.radius)])

    @property
    def ranges(self) -> None:
        return None

    def inside(self, rows: np.ndarray) -> np.ndarray:
        return clip_to_ball(np.asarray(rows, dtype=np.float64) / self.radius, "l2", 1.0, "clip")

    def unit(self, rows: np.ndarray) -> np.ndarray:
        return self.inside(rows)

    def coordinates(self, means: np.ndarray) -> np.ndarray:
        rotated = hadamard(means, public_signs(self.dimension, self.rotation_seed or 0))
        return np.clip(rotated / self.half, -1.0, 1.0)

    def restore(self, estimate: MeanEstimate) -> MeanEstimate:
        scale = self.half * self.radius
        signs = public_signs(self.dimension, self.rotation_seed or 0)
        # All entries of the rotation are 1/sqrt(size): errors average, biases may add up.
        error = scale * math.sqrt(float(np.mean(estimate.standard_error**2)))
        return replace(
            estimate,
            value=hadamard_back(scale * estimate.value, self.dimension, signs),
            standard_error=np.full(self.dimension, error),
            mean_squared_error=scale**2 * estimate.mean_squared_error,
            bias_bound=scale * math.sqrt(self.num_coordinates) * estimate.bias_bound,
            expected_bias=scale * math.sqrt(self.num_coordinates) * estimate.expected_bias,
        )
