"""Where do most people's means lie? Bins, a frequency oracle, and how often its answer is wrong.

[-1, 1] is cut into bins, each person reports the bin of one coordinate, and the fullest bin wins.
Bins are exactly twice `near` wide: whoever is within `near` of the centre lies in one of at most
two neighbouring bins. (With the last bin shortened to fit, or all of them narrowed, it could be
three, of which none need win.) The winner's middle is then within 2 `near` of the centre, and
whoever is within `far` of the centre lies within 2 `near` + `far` of that middle.

The thesis takes near = far. Far bounds everybody and grows with their logarithm; for the vote it is
enough that most people are near, so narrower bins give a shorter interval.

Source: thesis, Algorithms 3.7.1 and 3.7.2 and Lemma 3.7.1, whose failure bound (exponent
n (e^eps - 1)^2/(200 (e^eps + 1)^2), times 2 bins) asks for some ten times as many people.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
from scipy import optimize

from beam_ldp.protocols.spaces import Radii
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.frequency import BinaryHadamard, SubsetSelection

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
