"""The rounds of a mean in two rounds: what devices answer, what the collector makes of it.

The first round searches where most means lie, the second estimates within that range. `UserMean`
(in `user_means`) is the plan that they follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from scipy import optimize

from beam_ldp.protocols.rounds import History, Received, Round
from beam_ldp.protocols.spaces import Radii
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import BinaryHadamard, SubsetSelection
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean.base import WORST_CASE, ErrorBars, MeanEstimate, MeanRandomizer

if TYPE_CHECKING:
    from beam_ldp.protocols.user_means import UserMean

# Where do most people's means lie? Bins, a frequency oracle, and how often its answer is wrong.
#
# [-1, 1] is cut into bins, each person reports the bin of one coordinate, and the fullest bin wins.
# Bins are exactly twice `near` wide: whoever is within `near` of the centre lies in one of at most
# two neighbouring bins. (With the last bin shortened to fit, or all of them narrowed, it could be
# three, of which none need win.) The winner's middle is then within 2 `near` of the centre, and
# whoever is within `far` of the centre lies within 2 `near` + `far` of that middle.
#
# The thesis takes near = far. Far bounds everybody and grows with their logarithm; for the vote it
# is enough that most people are near, so narrower bins give a shorter interval.
#
# Source: thesis, Algorithms 3.7.1 and 3.7.2 and Lemma 3.7.1, whose failure bound (exponent
# n (e^eps - 1)^2/(200 (e^eps + 1)^2), times 2 bins) asks for some ten times as many people.


Oracle = Literal["subset_selection", "binary_hadamard"]
ORACLES: dict[str, type[FrequencyOracle]] = {
    "subset_selection": SubsetSelection,
    "binary_hadamard": BinaryHadamard,
}

MAX_BINS = 1 << 20
_MOST_BINS_OF_SUBSETS = 1 << 13  # beyond it, sets take too long to add up
_LARGEST_SEARCH_EPSILON = 20.0


@dataclass(frozen=True)
class SearchBins:
    """[-1, 1] in bins of width exactly 2 `near`; the last one may overhang.

    >>> bins = SearchBins(near=0.3)
    >>> bins.count, bins.of(np.array([-1.0, -0.41, 0.99, 1.0])).tolist()
    (4, [0, 0, 3, 3])
    >>> bins.middles.round(2).tolist()
    [-0.7, -0.1, 0.5, 1.1]
    """

    near: float

    def __post_init__(self) -> None:
        if not 1 / MAX_BINS <= self.near <= 1:
            raise ValueError(f"near must lie in [{1 / MAX_BINS:.2g}, 1], got {self.near!r}")

    @property
    def count(self) -> int:
        return math.ceil(1 / self.near * (1 - 1e-12))

    @property
    def middles(self) -> np.ndarray:
        return -1 + (2 * np.arange(self.count) + 1) * self.near

    def of(self, coordinates: np.ndarray) -> np.ndarray:
        """The bin of each coordinate."""
        index = np.floor((coordinates + 1) / (2 * self.near))
        return np.clip(index, 0, self.count - 1).astype(np.int64)


class Vote(NamedTuple):
    """What one report says between the fullest bin and one rival: for, against, or neither.

    Attributes:
        right: probability that it speaks for the own bin, where that is one of the two.
        wrong: that it speaks against it.
        stray: that it speaks for the one of the two (and for the other), where it is neither.
    """

    right: float
    wrong: float
    stray: float

    @classmethod
    def of(cls, oracle: FrequencyOracle) -> Vote:
        """The law of one report's vote, exactly."""
        k = oracle.domain_size
        if isinstance(oracle, SubsetSelection):
            p, w = oracle.support_probabilities[0], int(oracle.subset_size or 1)
            right, wrong = p * (k - w) / (k - 1), (1 - p) * w / (k - 1)
            if k == 2:
                return cls(right, wrong, 0.0)
            both = p * (w - 1) * (k - w) + (1 - p) * w * (k - 1 - w)
            return cls(right, wrong, both / ((k - 1) * (k - 2)))
        if isinstance(oracle, BinaryHadamard):
            order = 1 << (k - 1).bit_length()
            tells = order / 2 / oracle.num_rows  # rows in which two values differ
            truth = 1 / (1 + math.exp(-oracle.log_ratio_max()))
            return cls(tells * truth, tells * (1 - truth), tells / 2)
        raise ValueError(f"oracle must be one of {', '.join(ORACLES)}, got {type(oracle).__name__}")

    def log_moments(self, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Moments E exp(-weight vote) less one, of a report for, for the rival, and for neither."""
        down, up = np.expm1(-weight), np.expm1(weight)
        return (
            self.right * down + self.wrong * up,
            self.wrong * down + self.right * up,
            self.stray * (down + up),
        )


_WEIGHTS = np.geomspace(1e-4, 12.0, 400)  # of the exponential bound; the best of them


def failure_bound(
    oracle: FrequencyOracle, num_bins: int, num_users: float, beyond: float, outliers: float = 0.0
) -> float:
    """Probability, at most, that a bin wins which holds nobody who is near the centre.

    Chernoff's bound on the votes between the fuller one of the two bins about the centre, which
    has at least half of those who are near, and each rival. All who are not near are supposed to
    sit in one rival. It holds for independent people, and for given people where `beyond` is the
    share that is not near.

    Args:
        oracle: of the bins.
        num_bins: bins.
        num_users: people who report.
        beyond: probability that a person is not near the centre.
        outliers: share of the people about whom nothing is assumed.
    """
    if num_bins <= 2:
        return 0.0
    share = (1 - outliers) * (1 - beyond) / 2
    stray = (1 - outliers) * beyond + outliers
    if stray >= share:
        return 1.0
    own, rival, neither = Vote.of(oracle).log_moments(_WEIGHTS)

    def bound(in_rival: float) -> float:
        moment = share * own + in_rival * rival + (1 - share - in_rival) * neither
        return math.exp(num_users * float(np.log1p(moment).min()))

    return min(1.0, bound(stray) + max(0, num_bins - 3) * bound(0.0))


@dataclass(frozen=True)
class RangeSearch:
    """The first round: which oracle asks for which bins.

    Attributes:
        radii: `near` and `far`.
        local_epsilon: budget of the round.
        oracle_name: "subset_selection", which errs least at every budget (of few bins it is k-ary
            randomized response), or "binary_hadamard": the text's, one bit and a row.
        outliers: share of the people about whom nothing is assumed.
    """

    radii: Radii
    local_epsilon: float
    oracle_name: Oracle = "subset_selection"
    outliers: float = 0.0

    @property
    def bins(self) -> SearchBins:
        return SearchBins(self.radii.near)

    @cached_property
    def oracle(self) -> FrequencyOracle:
        return ORACLES[self.oracle_name](max(2, self.bins.count), self.local_epsilon)

    @property
    def half_width(self) -> float:
        """Half the interval that is found, before it is cut at the ends of [-1, 1]."""
        return 2 * self.radii.near + self.radii.far

    def failure_probability(self, num_users: float) -> float:
        """That the winner of one coordinate, asked of so many people, holds nobody near."""
        return failure_bound(
            self.oracle, self.bins.count, num_users, self.radii.beyond, self.outliers
        )

    def interval(self, frequencies: np.ndarray) -> tuple[float, float]:
        """The interval about the fullest bin, inside [-1, 1]."""
        middle = float(self.bins.middles[int(np.argmax(frequencies[: self.bins.count]))])
        return max(-1.0, middle - self.half_width), min(1.0, middle + self.half_width)


def oracle_for(num_bins: int) -> Oracle:
    """Subset selection, but for so many bins that adding up sets would take too long."""
    return "subset_selection" if num_bins <= _MOST_BINS_OF_SUBSETS else "binary_hadamard"


def least_epsilon(
    radii: Radii, oracle: Oracle, num_users: float, failure: float, outliers: float, most: float
) -> float | None:
    """The smallest budget up to `most` whose failure probability is at most `failure`."""

    def excess(log_epsilon: float) -> float:
        search = RangeSearch(radii, math.exp(log_epsilon), oracle, outliers)
        return search.failure_probability(num_users) - failure

    low, high = math.log(1e-6), math.log(min(most, _LARGEST_SEARCH_EPSILON))
    if excess(high) > 0:
        return None
    if excess(low) <= 0:
        return math.exp(low)
    root = float(optimize.bisect(excess, low, high, xtol=1e-4))
    while excess(root) > 0:
        root += 1e-4
    return min(math.exp(root), math.exp(high))


def least_users(search: RangeSearch, failure: float, most: float) -> float | None:
    """The smallest number of people up to `most` that keeps the failure at most `failure`."""
    if search.failure_probability(most) > failure:
        return None

    def excess(users: float) -> float:
        return search.failure_probability(users) - failure

    if excess(1.0) <= 0:
        return 1.0
    return math.ceil(float(optimize.bisect(excess, 1.0, most, xtol=0.5))) + 1.0


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
class RoundOne(Round):
    """Before any answer: everybody who takes part reports the bin of one coordinate."""

    protocol: UserMean
    search: RangeSearch
    name = "round one"

    @property
    def cells(self) -> int:  # type: ignore[override]
        """One for each coordinate."""
        return self.protocol.space.num_coordinates

    @property
    def randomizer(self) -> FrequencyOracle:
        """What devices run on `encode`, with `search.local_epsilon`."""
        return self.search.oracle

    def encode(self, means: np.ndarray, coordinate: np.ndarray) -> np.ndarray:
        """On the device: the bin of each person's coordinate. Means are those of `space.unit`."""
        coordinates = self.protocol.space.coordinates(means)
        return self.search.bins.of(np.take_along_axis(coordinates, coordinate[:, None], 1)[:, 0])

    def identity(self, release: ReleaseIdentity) -> ReleaseIdentity:
        return release.of_round(0)

    def values(self, held: np.ndarray, cell: np.ndarray, state: Any) -> np.ndarray:
        return self.encode(held, cell)

    def advance(
        self, state: Any, sums: Sequence[np.ndarray], received: Sequence[Received], before: History
    ) -> Found:
        counted = zip(sums, received)
        return self.decide([self.randomizer.estimate(s, n.num_reports) for s, n in counted]).found

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
class FinalRound(Round):
    """The mean itself, asked about what round one found, or about the whole range."""

    protocol: UserMean
    name = "round two"

    @property
    def randomizer(self) -> MeanRandomizer:
        return self.protocol.final

    def identity(self, release: ReleaseIdentity) -> ReleaseIdentity:
        return release.of_round(1)

    def values(self, held: np.ndarray, cell: np.ndarray, state: Found | None) -> np.ndarray:
        return self.protocol.round_two(state).encode(held)

    def advance(
        self,
        state: Found | None,
        sums: Sequence[np.ndarray],
        received: Sequence[Received],
        before: History,
    ) -> MeanEstimate:
        estimate = self.randomizer.estimate(sums[0], received[0].num_reports)
        return self.protocol.round_two(state).finish(estimate)


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
        return self.finish_error(
            estimate.value, estimate.standard_error, estimate.num_users, estimate.error_bars
        )

    def finish_error(
        self,
        value: np.ndarray,
        error: np.ndarray,
        num_users: int,
        error_bars: ErrorBars = WORST_CASE,
    ) -> MeanEstimate:
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
            error_bars=error_bars,
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
