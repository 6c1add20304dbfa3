"""Where people's rows live, and the coordinates in which a protocol looks for them.

A device brings its rows into a public set (a box, or a ball about zero), averages them, and speaks
about the coordinates of that average, which lie in [-1, 1]. The collector takes what it finds in
those coordinates back into the unit of the data.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np

from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean.base import MeanEstimate, check_radius, clip_to_ball
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.walsh_hadamard import (
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
        check_positive("cutoff", self.cutoff)

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
            skewness=float(np.max(estimate.skewness)) / math.sqrt(self.num_coordinates),
            bias_bound=scale * math.sqrt(self.num_coordinates) * estimate.bias_bound,
            expected_bias=scale * math.sqrt(self.num_coordinates) * estimate.expected_bias,
        )


# How close together people's means lie, by public assumptions. Privacy never depends on them.
#
# All lengths are in coordinates of [-1, 1]. A radius is a distance from a common centre, the mean
# of the population that rows come from, which nobody knows.


_NARROWEST, _STEPS = 1.7, 24  # of the bins tried, in deviations of one person's mean


class Radii(NamedTuple):
    """Two distances from the centre, coordinate by coordinate.

    Attributes:
        near: half the width of a bin: most people are this near.
        far: everybody is this near, but for a failure.
        beyond: the probability that one person is farther than `near` in one coordinate.
    """

    near: float
    far: float
    beyond: float


class Concentration(Protocol):
    """An assumption about people's means."""

    def radii(self, num_users: int, num_coordinates: int, failure: float) -> Iterator[Radii]:
        """Pairs of radii whose `far` holds for so many people but for that probability."""

    def failure_probability(self, far: float, num_users: int, num_coordinates: int) -> float:
        """That somebody is farther than `far` in some coordinate."""

    @property
    def variance(self) -> float:
        """The variance of one coordinate of people's means, at most."""


@dataclass(frozen=True)
class SubGaussian:
    """Every coordinate of every person's mean is sub-Gaussian about the centre.

    Rows in [-1, 1] are sub-Gaussian with variance proxy 1 (Hoeffding's lemma), the mean of m
    independent ones with 1/m; people who differ add the proxy of their own means.

    Args:
        proxy: variance proxy of one person's mean.
    """

    proxy: float

    def radii(self, num_users: int, num_coordinates: int, failure: float) -> Iterator[Radii]:
        deviation = math.sqrt(self.proxy)
        far = deviation * math.sqrt(2 * math.log(2 * num_users * num_coordinates / failure))
        narrow = _NARROWEST * deviation
        for step in range(_STEPS + 1):
            near = narrow * (far / narrow) ** (step / _STEPS)
            yield Radii(near, far, min(1.0, 2 * math.exp(-(near**2) / (2 * self.proxy))))

    def failure_probability(self, far: float, num_users: int, num_coordinates: int) -> float:
        tail = math.exp(-(far**2) / (2 * self.proxy))
        return min(1.0, 2 * num_users * num_coordinates * tail)

    @property
    def variance(self) -> float:
        return self.proxy


@dataclass(frozen=True)
class RotatedMeans:
    """Means of m independent rows of a ball, rotated: nothing but the length of rows is known.

    The length of a mean's deviation is at most (1 + sqrt(2 log(2n/failure)))/sqrt(m) for all of n
    people (McDiarmid's inequality), and the public signs spread it over the coordinates
    (Hoeffding's).

    Args:
        rows: rows per person, at least.
        space: the ball.
    """

    rows: int
    space: Ball

    def radii(self, num_users: int, num_coordinates: int, failure: float) -> Iterator[Radii]:
        far = self._length(num_users, failure / 2) * self._spread(
            num_users, num_coordinates, failure / 2
        )
        yield Radii(far, far, 0.0)  # beyond it only with the failure

    def failure_probability(self, far: float, num_users: int, num_coordinates: int) -> float:
        low, high = -700.0, 0.0  # logarithms; the radius falls with the failure allowed
        for _ in range(60):
            middle = (low + high) / 2
            (radii,) = self.radii(num_users, num_coordinates, math.exp(middle))
            low, high = (low, middle) if radii.far <= far else (middle, high)
        return math.exp(high)

    @property
    def variance(self) -> float:
        return min(1.0, 1 / (self.rows * self.space.half**2))

    def _length(self, num_users: int, failure: float) -> float:
        return (1 + math.sqrt(2 * math.log(num_users / failure))) / math.sqrt(self.rows)

    def _spread(self, num_users: int, num_coordinates: int, failure: float) -> float:
        tail = math.sqrt(2 * math.log(2 * num_users * num_coordinates / failure))
        return min(1.0, tail / math.sqrt(num_coordinates)) / self.space.half
