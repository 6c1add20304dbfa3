"""How close together people's means lie, by public assumptions. Privacy never depends on them.

All lengths are in coordinates of [-1, 1]. A radius is a distance from a common centre, the mean of
the population that rows come from, which nobody knows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from beam_ldp.protocols.spaces import Ball

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
