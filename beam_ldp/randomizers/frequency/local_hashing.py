"""Local hashing: hash the value with a fresh random function, then randomize the hash.

Reports that hold the seed of such a function (`SeededOracle`) are read alike, here and in
pairwise independent RAPPOR.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers import finite_fields
from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle, check_below
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.entropy import entropy_bits
from beam_ldp.randomizers.finite_fields import is_prime
from beam_ldp.randomizers.report_format import NumberedReports
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.words import (
    WORD_VALUES,
    TwoLevelLaw,
    multiply_high,
    short_kernel,
)

_MAX_BUCKETS = 1 << 16
_RESIDUES_PER_BUCKET = 16
_MAX_CHANNEL_ENTRIES = 1 << 22
_ONE = np.uint64(1)


@dataclass(frozen=True)
class SeededOracle(NumberedReports, FrequencyOracle):
    """An oracle whose report holds the seed of a pairwise independent hash over a prime field.

    Residues cannot be drawn from whole words without remainder. The few words that would make a
    draw uneven are replaced: the seed is drawn anew, and the noise, whose word has fallen, is not.

    Attributes:
        seed_word: which of a report's two words is the seed's; the other one is the noise's.
    """

    seed_word: ClassVar[int]

    @property
    def words_per_user(self) -> int:
        return 2

    @abstractmethod
    def _draw(
        self, values: np.ndarray, noise: np.ndarray, seeds: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        """Fill `reports` by a word of noise and one of the seed each; which of them are uneven."""

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        noise, seeds = words[:, 1 - self.seed_word], words[:, self.seed_word].copy()
        position = self.words_per_user
        while len(redo := np.flatnonzero(self._draw(values, noise, seeds, reports))):
            seeds[redo] = extra(redo, np.full(len(redo), position))
            position += 1


@dataclass(frozen=True)
class LocalHashing(SeededOracle):
    """The value is hashed to one of `num_buckets` buckets, and the bucket randomized.

    Every report draws its own hash function, x -> floor(((a x + b) mod P) g / P) with (a, b)
    uniform, and sends (a, b) with the bucket after g-ary randomized response. It protects the
    value against everybody who sees the report. The error equals that of optimized unary
    encoding, the report is a few dozen bits.

    The hash is pairwise independent over the residues, exactly. The g buckets share P residues
    as evenly as they can, so two values collide with probability C = sum (n_y / P)**2, a little
    above 1/g; the estimator uses C and is unbiased without remainder. The seed is drawn afresh for
    every report and travels in it: nothing about it is tied to a person.

    Reports are `(n,)` unsigned integers (a P + b) g + bucket; the statistic counts the reports
    that support each value. Cost: two random words per report. Decoding: O(n k / g), or
    O(n + P (P + k)) once many reports share a slope a; memory O(P).

    Source: Wang, Blocki, Li and Jha 2017 (optimized local hashing); the residue counts are ours.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        num_buckets: g, at least 2; by default round(E) + 1 with E = e**local_epsilon, the best.
            `num_buckets=2` is binary local hashing.
        prime: P, at least `domain_size` and `num_buckets`; by default the least such prime that
            is next to a multiple of g and at least 16 g, which keeps C near 1/g.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = LocalHashing(domain_size=1000, local_epsilon=1.0)
    >>> oracle.num_buckets, oracle.prime, oracle.bits_per_report
    (4, 1009, 22)
    >>> oracle.estimate(oracle.accumulate(oracle.randomize(np.array([1, 7]))), 2).value.shape
    (1000,)
    """

    domain_size: int
    local_epsilon: float
    num_buckets: int | None = None
    prime: int | None = None

    seed_word: ClassVar[int] = 0
    also_known_as: ClassVar[str] = "OLH; BLH (two buckets)"
    decoding: ClassVar[str] = "O(n k / g), or O(P (P + k)) for very large n"

    def __post_init__(self) -> None:
        super().__post_init__()
        buckets = self.num_buckets
        if buckets is None:
            buckets = min(_MAX_BUCKETS, round(math.exp(min(self.local_epsilon, 30.0))) + 1)
        buckets = check_integer("num_buckets", buckets, 2, _MAX_BUCKETS)
        object.__setattr__(self, "num_buckets", buckets)
        prime = self.prime
        if prime is None:
            prime = _balanced_prime(self._buckets, self.domain_size)
        least = max(3, self.domain_size, self._buckets)
        if not is_prime(check_integer("prime", prime, least, WORD_VALUES - 1)):
            raise ValueError(f"prime must be a prime number >= {least}, got {prime}")
        object.__setattr__(self, "prime", int(prime))
        if self._prime >= finite_fields.MAX_PRIME or self._num_reports > WORD_VALUES:
            raise ValueError(
                f"domain_size={self.domain_size} with {self._buckets} buckets does not fit reports "
                "of 64 bits; choose a smaller domain or fewer buckets"
            )
        if not self._law.log_ratio_max > 0:
            raise ValueError("local_epsilon is too small for 64-bit words")

    @property
    def _buckets(self) -> int:
        assert self.num_buckets is not None
        return self.num_buckets

    @property
    def _prime(self) -> int:
        assert self.prime is not None
        return self.prime

    @property
    def _num_reports(self) -> int:
        return self._prime**2 * self._buckets

    @cached_property
    def _law(self) -> TwoLevelLaw:
        return TwoLevelLaw(self._buckets, 1, self.local_epsilon)

    @cached_property
    def _collision(self) -> Fraction:
        """Chance that two values share a bucket."""
        small, larger = divmod(self._prime, self._buckets)
        squares = (self._buckets - larger) * small**2 + larger * (small + 1) ** 2
        return Fraction(squares, self._prime**2)

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    @property
    def cond_entropy_bits(self) -> float:
        """The seed, and randomized response about the bucket."""
        law, others = self._law, self._buckets - 1
        bucket = entropy_bits([law.favoured_probability])
        bucket += others * entropy_bits([law.other_probability])
        return 2 * math.log2(self._prime) + bucket

    def _draw(
        self, values: np.ndarray, noise: np.ndarray, seeds: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        uneven = np.zeros(len(values), dtype=np.bool_)
        _hash_and_respond(
            values,
            seeds,
            noise,
            np.uint64(self._prime),
            np.uint64(self._buckets),
            np.uint64(self._law.threshold),
            np.uint64(WORD_VALUES % self._prime**2),
            reports,
            uneven,
        )
        return uneven

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        check_below(reports, self._num_reports)
        columns = np.empty((3, len(reports)), dtype=np.int64)
        _split(reports, np.uint64(self._prime), np.uint64(self._buckets), columns)
        return finite_fields.support_counts(
            columns[0], columns[1], columns[2], self._prime, self.domain_size
        )

    @property
    def support_probabilities(self) -> tuple[float, float]:
        p, other = self._law.favoured_probability, self._law.other_probability
        collision = float(self._collision)
        return p, p * collision + other * (1 - collision)

    def channel(self) -> np.ndarray:
        """P(report | value) where the table has at most four million entries."""
        if self._num_reports * self.domain_size > _MAX_CHANNEL_ENTRIES:
            return super().channel()
        prime, buckets = self._prime, self._buckets
        slope, shift, bucket, value = np.ogrid[:prime, :prime, :buckets, : self.domain_size]
        hashed = (slope * value + shift) % prime * buckets // prime
        law = self._law
        table = np.where(hashed == bucket, law.favoured_probability, law.other_probability)
        return table.reshape(-1, self.domain_size) / prime**2

    @property
    def two_levels(self) -> TwoLevels:
        """Seed and bucket uniform. Whatever the seed, a bucket is the own one or not: a value
        favours it with chance 1/g, two with chance C/g, the same for every pair of values because
        the hash is pairwise independent."""
        ratio = self._law.favoured_probability / self._law.other_probability
        overlap = float(self._collision) / self._buckets
        return TwoLevels(ratio, 1 / self._buckets, overlap, "local hashing's own blanket")

    @property
    def triple_shares(self) -> tuple[float, ...]:
        """With 1 or 2 as the value of the others."""
        if self.domain_size == 2:
            return ()
        small, larger = divmod(self._prime, self._buckets)
        triple = (self._buckets - larger) * finite_fields.triple_overlap(self._prime, small)
        triple += larger * finite_fields.triple_overlap(self._prime, small + 1)
        return (triple / self._buckets,)


def _balanced_prime(buckets: int, domain_size: int) -> int:
    """The least prime next to a multiple of `buckets` that is large enough."""
    multiple = -(-max(domain_size, _RESIDUES_PER_BUCKET * buckets) // buckets) * buckets
    while True:
        for candidate in (multiple - 1, multiple + 1):
            if candidate >= domain_size and is_prime(candidate):
                return candidate
        multiple += buckets


@short_kernel
def _hash_and_respond(  # type: ignore[no-untyped-def]
    values, seeds, words, prime, buckets, threshold, excess, reports, uneven
):
    for i in range(values.size):
        # Two digits of base `prime` from one word: a, then b from what a leaves over.
        slope = multiply_high(seeds[i], prime)
        rest = seeds[i] * prime
        shift = multiply_high(rest, prime)
        uneven[i] = rest * prime < excess
        hashed = (slope * np.uint64(values[i]) + shift) % prime * buckets // prime
        if words[i] * buckets >= threshold:
            hashed = multiply_high(words[i], buckets)
        reports[i] = (slope * prime + shift) * buckets + hashed


@short_kernel
def _split(reports, prime, buckets, columns):  # type: ignore[no-untyped-def]
    for i in range(reports.size):
        report = np.uint64(reports[i])
        seed = report // buckets
        bucket = report - seed * buckets
        slope = seed // prime
        shift = seed - slope * prime
        start = (bucket * prime + buckets - _ONE) // buckets
        stop = ((bucket + _ONE) * prime + buckets - _ONE) // buckets
        columns[0, i] = slope
        columns[1, i] = shift - start if shift >= start else shift + prime - start
        columns[2, i] = stop - start
