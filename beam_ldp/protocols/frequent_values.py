"""Frequent values of a public list, time after time: who is told, and who never is.

Each time everybody reports anew with noise of their own, so a report costs one local epsilon, and
a person who reports every time as many as there are times. A value is told where its estimate is at
least 2 err, err being what no estimate of any value at any time is off by: then no value below err
is ever told, and every one of at least 3 err is told every time.

Source: thesis, section 7.6; frequency-and-randomness, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.estimate import Estimate


@dataclass(frozen=True)
class FrequentValues:
    """Rules of a list over time, made before any data are seen.

    Attributes:
        oracle: that makes every report; one whose support is pure.
        num_users: people who report each time, at least.
        times: how many times.
        miss: probability that anything is told or kept wrongly, at any time (beta).

    Raises:
        ValueError: for an argument out of range.
        NotImplementedError: for an oracle that does not say how likely a report supports a value.

    >>> from beam_ldp.randomizers.frequency import SubsetSelection
    >>> rules = FrequentValues(SubsetSelection(1000, 2.0), num_users=1_000_000, times=52)
    >>> print(f"{rules.error:.3%} {rules.threshold:.3%} {rules.surely_told:.3%}")
    0.708% 1.416% 2.124%
    >>> rules.event_level, rules.user_level
    (2.0, 104.0)
    """

    oracle: FrequencyOracle
    num_users: int
    times: int = 1
    miss: float = 0.05

    def __post_init__(self) -> None:
        check_integer("num_users", self.num_users, 1)
        check_integer("times", self.times, 1)
        check_fraction("miss", self.miss)
        _ = self.error

    @property
    def error(self) -> float:
        """err: with probability 1 - `miss` no estimate of any value at any time is off by more.

        Hoeffding's inequality for each, about the people who reported, and a union bound: supports
        are bits, independent of one another, that count 1/(p - q) each.
        """
        p, q = self.oracle.support_probabilities
        ways = 2 * self.oracle.domain_size * self.times / self.miss
        return math.sqrt(math.log(ways) / (2 * self.num_users)) / (p - q)

    @property
    def threshold(self) -> float:
        """What an estimate must reach, theta = 2 err; what is told has at least err."""
        return 2 * self.error

    @property
    def surely_told(self) -> float:
        """3 err: a value of this frequency is told every time."""
        return 3 * self.error

    @property
    def event_level(self) -> float:
        """Local epsilon of a person's value at one time."""
        return self.oracle.local_epsilon

    @property
    def user_level(self) -> float:
        """Local epsilon of all values of a person who reports every time."""
        return self.times * self.oracle.local_epsilon

    def told(self, estimate: Estimate) -> np.ndarray:
        """Values that are frequent, the most frequent first: int64 indices.

        Args:
            estimate: of the oracle, at one time.

        Raises:
            ValueError: where fewer people reported than the rules suppose.
        """
        if estimate.num_users < self.num_users:
            raise ValueError(
                f"estimate must be of at least {self.num_users:,} people, got "
                f"{estimate.num_users:,}: make rules for fewer"
            )
        value = estimate.raw.value
        found = np.flatnonzero(value >= self.threshold)
        return found[np.argsort(-value[found], kind="stable")]
