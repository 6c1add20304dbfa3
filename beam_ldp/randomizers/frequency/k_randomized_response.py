"""k-ary randomized response: tell the truth with some probability, else name anything."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle, check_below
from beam_ldp.randomizers.bits import bits_for, smallest_uint
from beam_ldp.randomizers.jit import kernel, multiply_high
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.thresholds import TwoLevelLaw


@dataclass(frozen=True)
class KRandomizedResponse(FrequencyOracle):
    """k-ary randomized response, also known as generalized or direct randomized response.

    The report is one of the `domain_size` values: the own one with probability
    E/(E + k - 1), any other with probability 1/(E + k - 1), E = e**local_epsilon. It protects the
    value against everybody who sees the report. Best when E is of the order of the domain or
    larger; for larger domains the error grows with the domain size.

    Reports are `(n,)` unsigned integers of ceil(log2 k) bits; the statistic is their histogram.
    Cost: one random word per report; O(k) memory and time to estimate.

    Source: Kairouz, Bonawitz and Ramage 2016; thesis, chapter 7, Table 7.1.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = KRandomizedResponse(domain_size=4, local_epsilon=1.0)
    >>> reports = oracle.randomize(np.array([0, 1, 2, 3, 3]))
    >>> statistic = oracle.accumulate(reports)
    >>> int(statistic.sum()), oracle.bits_per_report
    (5, 2)
    >>> oracle.estimate(statistic, num_users=5).value.sum().round(9)
    1.0
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._law  # refuses parameters that the words cannot resolve

    @cached_property
    def _law(self) -> TwoLevelLaw:
        return TwoLevelLaw(self.domain_size, 1, self.local_epsilon)

    @property
    def bits_per_report(self) -> int:
        return bits_for(self.domain_size)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return smallest_uint(self.domain_size)

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.domain_size,)

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        _respond(
            values, words[:, 0], np.uint64(self.domain_size), np.uint64(self._law.threshold), reports
        )

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        return np.bincount(reports, minlength=self.domain_size)

    @property
    def support_probabilities(self) -> tuple[float, float]:
        return self._law.favoured_probability, self._law.other_probability

    def channel(self) -> np.ndarray:
        p, q = self.support_probabilities
        return np.where(np.eye(self.domain_size, dtype=bool), p, q)

    def dominating_pair(self) -> ShufflePair:
        """The own blanket: with mass k/(E + k - 1) a report is uniform, whatever the value."""
        return self._law.shuffle_pair(overlap=0)

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return self._law.witness_pairs(overlap=0, third_value=self.domain_size > 2)

    def _check_reports(self, reports: np.ndarray) -> np.ndarray:
        return check_below(reports, self.domain_size)


@kernel
def _respond(values, words, num_outputs, threshold, reports):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        if words[i] * num_outputs < threshold:
            reports[i] = values[i]
        else:
            reports[i] = multiply_high(words[i], num_outputs)
