"""Unary encoding: one noisy bit per category."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle
from beam_ldp.randomizers.entropy import binary_entropy
from beam_ldp.randomizers.frequency import packed_bits
from beam_ldp.randomizers.frequency.packed_bits import bit_dominating_pair, one_hot_witnesses
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.words import WORD_VALUES, Coin, check_resolution, exp_lower

_MAX_CHANNEL_BITS = 12


@dataclass(frozen=True)
class UnaryEncoding(packed_bits.BitRows, FrequencyOracle):
    """One bit per category: the own one is set with probability p, any other with probability q.

    It protects the value against everybody who sees the report. The bits are independent, so the
    error at a given epsilon does not depend on the domain size; the report is `domain_size` bits
    long. Reports are `(n, ceil(domain_size / 8))` uint8, category x in bit x % 8 (least
    significant first) of byte x // 8; the statistic counts the ones of each category.

    With E = e**local_epsilon:

    * `optimized=True`: p = 1/2, q = 1/(E + 1); noise of a rare category 4E / (n (E - 1)**2), the
      least that independent bits allow (optimized unary encoding).
    * `optimized=False`: p = 1 - q = sqrt(E) / (sqrt(E) + 1) (symmetric unary encoding, also known
      as basic one-time RAPPOR); noise sqrt(E) / (n (sqrt(E) - 1)**2).

    Every bit is drawn exactly: the implemented probabilities are integers over 2**64.
    Cost: O(domain_size / 8) random words per report; O(domain_size) memory.

    Source: Wang, Blocki, Li and Jha 2017; Erlingsson, Pihur and Korolova 2014.

    Args:
        domain_size: number of categories, at least 2.
        local_epsilon: local budget, > 0.
        optimized: which of the two settings.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = UnaryEncoding(domain_size=1000, local_epsilon=1.0)
    >>> reports = oracle.randomize(np.array([3, 3, 999]))
    >>> reports.shape, oracle.bits_per_report
    ((3, 125), 1000)
    >>> oracle.estimate(oracle.accumulate(reports), num_users=3).value.shape
    (1000,)
    """

    domain_size: int
    local_epsilon: float
    optimized: bool = True

    mixes: ClassVar[bool] = True
    also_known_as: ClassVar[str] = "OUE; SUE (optimized=False), basic one-time RAPPOR"
    decoding: ClassVar[str] = "O(k) sums, but O(n k) bits to add up"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.optimized, (bool, np.bool_)):
            raise ValueError(f"optimized must be True or False, got {self.optimized!r}")
        object.__setattr__(self, "optimized", bool(self.optimized))
        check_resolution(self.local_epsilon, self.log_ratio_max())

    @cached_property
    def _coins(self) -> tuple[Coin, Coin]:
        """Coins of the own bit and of any other bit, rounded toward each other."""
        if self.optimized:
            other = Coin.at_least(1 / (1 + exp_lower(min(self.local_epsilon, 60.0))))
            return Coin(WORD_VALUES // 2), other
        root = exp_lower(min(self.local_epsilon, 60.0) / 2)
        own = Coin.at_most(root / (1 + root))
        return own, Coin(WORD_VALUES - own.threshold)

    def log_ratio_max(self) -> float:
        own, other = (Fraction(coin.threshold, WORD_VALUES) for coin in self._coins)
        ratio = own * (1 - other) / (other * (1 - own))
        # The ratio is below e**local_epsilon in rational numbers; its logarithm is rounded.
        return min(self.local_epsilon, math.log1p(float(ratio - 1)))

    @property
    def cond_entropy_bits(self) -> float:
        own, other = map(binary_entropy, self.support_probabilities)
        return own + (self.domain_size - 1) * other

    @property
    def bits_per_report(self) -> int:
        return self.domain_size

    @property
    def words_per_user(self) -> int:
        return packed_bits.random_words_for(self.domain_size)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        own, other = self._coins
        rows = packed_bits.noisy_rows(
            packed_bits.one_hot_rows(values, self.domain_size),
            self.domain_size,
            (other.threshold, own.threshold),
            words,
            extra,
            self.words_per_user,
        )
        packed_bits.write_rows(rows, reports)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        return packed_bits.column_sums(reports, self.domain_size)

    @property
    def support_probabilities(self) -> tuple[float, float]:
        own, other = self._coins
        return own.probability, other.probability

    @property
    def pair_support(self) -> tuple[float, float]:
        """The bits are independent."""
        p, q = self.support_probabilities
        return p * q, q * q

    def channel(self) -> np.ndarray:
        """P(report | value) for up to 12 categories; row r has the binary digits of r as bits."""
        if self.domain_size > _MAX_CHANNEL_BITS:
            return super().channel()
        p, q = self.support_probabilities
        bits = packed_bits.all_rows(self.domain_size)
        ones = bits.sum(axis=1, keepdims=True, dtype=np.int64) - bits
        others = q**ones * (1 - q) ** (self.domain_size - 1 - ones)
        return np.where(bits == 1, p, 1 - p) * others

    def dominating_pair(self) -> ShufflePair:
        """The own blanket: all bits q-biased, with mass (1-p)/(1-q); two bits tell x from x'."""
        return bit_dominating_pair(*self.support_probabilities, 1, "unary encoding's own blanket")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return one_hot_witnesses(*self.support_probabilities, self.domain_size)
