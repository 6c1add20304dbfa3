"""k-ary randomized response: tell the truth with some probability, else name anything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.randomizers.words import multiply_high, short_kernel


@dataclass(frozen=True)
class KRandomizedResponse(SymbolOracle):
    """k-ary randomized response, also known as generalized or direct randomized response.

    The report is one of the `domain_size` values: the own one with probability
    E/(E + k - 1), any other with probability 1/(E + k - 1), E = e**local_epsilon. It protects the
    value against everybody who sees the report. Best when E is of the order of the domain or
    larger; for larger domains the error grows with the domain size.

    Reports are `(n,)` unsigned integers of ceil(log2 k) bits; the statistic is their histogram,
    int64 `(domain_size,)`. Cost: one random word per report; O(k) memory and time to estimate.

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
    >>> print(oracle.estimate(statistic, num_users=5).value.sum().round(9))
    1.0
    """

    also_known_as: ClassVar[str] = "GRR, k-RR, direct encoding"
    decoding: ClassVar[str] = "O(k)"

    @property
    def num_symbols(self) -> int:
        return self.domain_size

    @property
    def num_favoured(self) -> int:
        return 1

    def favoured(self, values: np.ndarray) -> np.ndarray:
        return np.asarray(values, dtype=np.int64)[:, None]

    @property
    def overlap(self) -> int:
        return 0

    @property
    def triple_overlaps(self) -> tuple[int, ...]:
        return (0,) if self.domain_size > 2 else ()

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        _respond(
            values,
            words[:, 0],
            np.uint64(self.domain_size),
            np.uint64(self._law.threshold),
            reports,
        )

    @property
    def support_probabilities(self) -> tuple[float, float]:
        return self._law.favoured_probability, self._law.other_probability

    @property
    def pair_support(self) -> tuple[float, float]:
        """A report supports one value."""
        return 0.0, 0.0


@short_kernel
def _respond(values, words, num_outputs, threshold, reports):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        # Both are worked out, so that one is chosen without a branch that nobody can predict.
        value, other = np.uint64(values[i]), multiply_high(words[i], num_outputs)
        reports[i] = value if words[i] * num_outputs < threshold else other
