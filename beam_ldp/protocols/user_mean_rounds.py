"""The states of a mean in two rounds: what devices answer, what the collector makes of it.

`UserMean` (in `user_means`) is the plan that they follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from beam_ldp.protocols.range_search import RangeSearch
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.mean.base import MeanEstimate, MeanRandomizer

if TYPE_CHECKING:
    from beam_ldp.protocols.user_means import UserMean


class Found(NamedTuple):
    """What round one found, per coordinate, and how sure that is.

    Attributes:
        low, high: the interval, in coordinates.
        failure_probability: that it does not hold the means of all to whom the assumption applies.
        num_users: people who took part.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    failure_probability: float
    num_users: int


@dataclass(frozen=True)
class RoundOne:
    """Before any answer: everybody who takes part reports the bin of one coordinate."""

    protocol: UserMean
    search: RangeSearch

    @property
    def randomizer(self) -> FrequencyOracle:
        """What devices run on `encode`, with `search.local_epsilon`."""
        return self.search.oracle

    def encode(self, means: np.ndarray, coordinate: np.ndarray) -> np.ndarray:
        """On the device: the bin of each person's coordinate. Means are those of `space.unit`."""
        coordinates = self.protocol.space.coordinates(means)
        return self.search.bins.of(np.take_along_axis(coordinates, coordinate[:, None], 1)[:, 0])

    def decide(self, estimates: Sequence[Estimate]) -> RoundTwo:
        """At the collector: the frequencies of bins, coordinate by coordinate, steer round two.

        Raises:
            ValueError: unless there is one estimate per coordinate, of at least one person.
        """
        if len(estimates) != self.protocol.space.num_coordinates:
            raise ValueError(
                f"estimates must be {self.protocol.space.num_coordinates}, one per coordinate, "
                f"got {len(estimates)}"
            )
        if not all(estimate.num_users for estimate in estimates):
            raise ValueError("estimates must be of at least one person each")
        users = [estimate.num_users for estimate in estimates]
        low, high = zip(*(self.search.interval(estimate.value) for estimate in estimates))
        everybody = round(sum(users) / self.protocol.search_share)
        failure = self.protocol._failure(users, everybody)
        return self.protocol.round_two(Found(low, high, failure, sum(users)))


@dataclass(frozen=True)
class RoundTwo:
    """After round one: everybody who takes part reports the mean, clipped to the interval."""

    protocol: UserMean
    found: Found

    @property
    def randomizer(self) -> MeanRandomizer:
        """What devices run on `encode`. It does not depend on what was found."""
        return self.protocol.final

    @property
    def _centre(self) -> np.ndarray:
        return (np.array(self.found.low) + np.array(self.found.high)) / 2

    @property
    def _half_width(self) -> np.ndarray:
        return (np.array(self.found.high) - np.array(self.found.low)) / 2

    def encode(self, means: np.ndarray) -> np.ndarray:
        """On the device: the mean's place in the interval, [-1, 1] in every coordinate."""
        place = (self.protocol.space.coordinates(means) - self._centre) / self._half_width
        return np.clip(place, -1.0, 1.0)

    def finish(self, estimate: MeanEstimate) -> MeanEstimate:
        """At the collector: the mean of people's means, in the unit of the data.

        The error is about the people of both rounds. Its interval includes what outliers can move
        by being clipped, and leaves out of its level the probability that round one failed.
        """
        return self.finish_error(estimate.value, estimate.standard_error, estimate.num_users)

    def finish_error(self, value: np.ndarray, error: np.ndarray, num_users: int) -> MeanEstimate:
        """As `finish`, from an estimate in [-1, 1] and its standard error."""
        half = self._half_width
        variance = (half * error) ** 2
        if self.protocol.split == "users":  # those asked stand for those who were asked before
            others = self.found.num_users
            variance = variance + self._spread * others / (num_users * (num_users + others))
        centred = MeanEstimate(
            self._centre + half * value,
            np.sqrt(variance),
            num_users,
            mean_squared_error=float(variance.sum()),
            bias_bound=self._bias,
            failure_probability=self.found.failure_probability,
        )
        return self.protocol.space.restore(centred)

    @property
    def _spread(self) -> np.ndarray:
        """Variance of the clipped means: by the assumption, and never more than the interval's."""
        outliers = self.protocol.outliers
        assumed = self.protocol.concentration.variance + outliers * (2 * self._half_width) ** 2
        return np.minimum(assumed, self._half_width**2)

    @property
    def _bias(self) -> float:
        """What clipping outliers to the interval can move one coordinate's mean by, at most."""
        below = np.array(self.found.low) + 1
        above = 1 - np.array(self.found.high)
        return self.protocol.outliers * float(np.maximum(below, above).max())
