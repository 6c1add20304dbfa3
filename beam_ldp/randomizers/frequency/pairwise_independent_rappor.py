"""Pairwise independent RAPPOR: unary encoding whose bits are spanned by a short random seed."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers import finite_fields
from beam_ldp.randomizers.base import check_below
from beam_ldp.randomizers.entropy import binary_entropy
from beam_ldp.randomizers.finite_fields import is_prime, next_prime
from beam_ldp.randomizers.frequency.local_hashing import SeededOracle
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.words import (
    WORD_VALUES,
    CoinLaw,
    check_resolution,
    kernel,
    multiply_high,
)

_MAX_CHANNEL_ENTRIES = 1 << 22
_MAX_CENTRE = 1 << 16  # larger budgets make do with this field: its inverses stay a small table


@dataclass(frozen=True)
class PairwiseIndependentRappor(SeededOracle):
    """A report is a seed; the seed spans one bit per category, the own bit more often one.

    The value is a vector x over the field of `prime` = P elements, the seed a vector a and a shift
    b; the bit of x is one where <a, x> + b < `num_ones`. Over all seeds these bits are pairwise
    independent with mean q = num_ones / P. With probability p = Eq / (Eq + 1 - q),
    E = e**local_epsilon, the seed is uniform among those that give the own value a one, else among
    the others. It protects the value against everybody who sees the report. The error is that of
    optimized unary encoding as far as q can come near 1/(E + 1); the report is just the seed.

    * `compact=False`: one field element per value, P the least prime that the domain needs, and
      num_ones near P / (E + 1): the smaller error.
    * `compact=True`: P near E + 1, num_ones = 1 and vectors: the shorter report for large domains,
      (t + 1) log2 P bits with P**t >= domain_size.

    Reports are `(n,)` unsigned integers; the statistic counts the ones of each category. Sampling
    is exact (integer thresholds, seeds uniform without remainder). Cost: two random words per
    report. Decoding: O(n k q), less for many reports (equal slopes, or equal seeds, are counted
    together); memory O(k + P).

    Source: Feldman and Talwar 2021; here with the exact budget rather than p = 1/2.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        compact: which of the two settings.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = PairwiseIndependentRappor(domain_size=1000, local_epsilon=1.0)
    >>> oracle.prime, oracle.num_ones, oracle.bits_per_report
    (1009, 271, 20)
    >>> small = PairwiseIndependentRappor(domain_size=1000, local_epsilon=1.0, compact=True)
    >>> small.prime, small.length, small.bits_per_report
    (3, 7, 13)
    >>> oracle.accumulate(oracle.randomize(np.array([1, 7]))).shape
    (1000,)
    """

    domain_size: int
    local_epsilon: float
    compact: bool = False

    seed_word: ClassVar[int] = 1
    also_known_as: ClassVar[str] = "PI-RAPPOR"
    decoding: ClassVar[str] = "O(k log k), transform over a finite field"

    @classmethod
    def variants(cls, domain_size: int) -> Iterable[dict[str, Any]]:
        return ({}, {"compact": True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.compact, (bool, np.bool_)):
            raise ValueError(f"compact must be True or False, got {self.compact!r}")
        object.__setattr__(self, "compact", bool(self.compact))
        if self.prime >= finite_fields.MAX_PRIME or self._num_reports > WORD_VALUES:
            raise ValueError(
                f"domain_size={self.domain_size} at local_epsilon={self.local_epsilon:g} does not "
                "fit seeds of 64 bits; choose a smaller domain or budget"
            )
        check_resolution(self.local_epsilon, self.log_ratio_max())

    @cached_property
    def prime(self) -> int:
        """P, the size of the field."""
        centre = min(_MAX_CENTRE, round(math.exp(min(self.local_epsilon, 30.0))) + 1)
        if not self.compact or centre >= self.domain_size:
            return next_prime(max(self.domain_size, centre))
        above = below = centre
        above = next_prime(above)
        while not is_prime(below):
            below -= 1
        return min((below, above), key=lambda prime: self._noise(1 / prime))

    @cached_property
    def num_ones(self) -> int:
        """Residues that make a bit one."""
        if self.length > 1:
            return 1
        centre = int(self.prime / (1 + math.exp(min(self.local_epsilon, 30.0))))
        return min((max(1, centre), centre + 1), key=lambda ones: self._noise(ones / self.prime))

    @cached_property
    def length(self) -> int:
        """t, the field elements per value."""
        length = 1
        while self.prime**length < self.domain_size:
            length += 1
        return length

    def _noise(self, q: float) -> float:
        odds = math.exp(min(self.local_epsilon, 30.0)) * q
        p = odds / (odds + 1 - q)
        return q * (1 - q) / (p - q) ** 2

    @property
    def _num_reports(self) -> int:
        return self.prime ** (self.length + 1)

    @cached_property
    def _law(self) -> CoinLaw:
        """Heads: the own bit is one."""
        return CoinLaw(self.num_ones, self.prime - self.num_ones, self.local_epsilon)

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    def _draw(
        self, values: np.ndarray, noise: np.ndarray, seeds: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        ones, zeros = self.num_ones, self.prime - self.num_ones
        slopes = self.prime**self.length
        uneven = np.zeros(len(values), dtype=np.bool_)
        _draw_seeds(
            values,
            noise,
            seeds,
            np.uint64(self._law.coin.threshold),
            np.uint64(self.prime),
            np.uint64(slopes),
            np.uint64(ones),
            np.array([WORD_VALUES % (slopes * n) for n in (zeros, ones)], dtype=np.uint64),
            reports,
            uneven,
        )
        return uneven

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        check_below(reports, self._num_reports)
        if self.length == 1:
            slopes, shifts = np.divmod(reports.astype(np.int64), self.prime)
            widths = np.full(len(reports), self.num_ones, dtype=np.int64)
            return finite_fields.support_counts(
                slopes, shifts, widths, self.prime, self.domain_size
            )
        seeds, weights = reports, np.ones(len(reports), dtype=np.int64)
        if self._num_reports <= 2 * len(reports):  # equal seeds are counted together
            histogram = np.bincount(reports.astype(np.int64), minlength=self._num_reports)
            seeds = np.flatnonzero(histogram)
            weights = histogram[seeds]
        counts = np.zeros(self.domain_size, dtype=np.int64)
        inverse = finite_fields.inverses(self.prime)
        _count_hyperplanes(
            seeds.astype(np.uint64), weights, np.uint64(self.prime), self.length, inverse, counts
        )
        return counts

    @property
    def cond_entropy_bits(self) -> float:
        """The coin, and one of the seeds that show its side."""
        heads, zeros = self._law.coin.probability, self.prime - self.num_ones
        seeds = heads * math.log2(self.num_ones) + (1 - heads) * math.log2(zeros)
        return binary_entropy(heads) + seeds + self.length * math.log2(self.prime)

    @property
    def support_probabilities(self) -> tuple[float, float]:
        return self._law.coin.probability, self.num_ones / self.prime

    def channel(self) -> np.ndarray:
        """P(report | value) where the table has at most four million entries."""
        if self._num_reports * self.domain_size > _MAX_CHANNEL_ENTRIES:
            return super().channel()
        heads = self._law.coin.probability
        own = heads / (self.num_ones * self.prime**self.length)
        other = (1 - heads) / ((self.prime - self.num_ones) * self.prime**self.length)
        slopes, image = np.divmod(np.arange(self._num_reports)[:, None], self.prime)
        values = np.arange(self.domain_size)
        for _ in range(self.length):
            image = (image + slopes % self.prime * (values % self.prime)) % self.prime
            slopes, values = slopes // self.prime, values // self.prime
        return np.where(image < self.num_ones, own, other)

    @property
    def two_levels(self) -> TwoLevels:
        """Uniform seeds. A value's bit is one with chance q, two values' bits with chance q**2, for
        every pair of values because the bits are pairwise independent."""
        q = self.num_ones / self.prime
        source = "pairwise independent RAPPOR's own blanket"
        return TwoLevels(float(self._law.ratio), q, q * q, source)

    @property
    def triple_shares(self) -> tuple[float, ...]:
        """With 1 or 2 as the value of the others (on one line of the field)."""
        if self.domain_size == 2 or self.prime == 2:
            return ()
        return (finite_fields.triple_overlap(self.prime, self.num_ones),)


@kernel
def _draw_seeds(  # type: ignore[no-untyped-def]
    values, coins, seeds, threshold, prime, slopes, ones, excess, reports, uneven
):
    for i in range(values.size):
        # The slope and one of the residues that fit, as two digits of mixed base from one word.
        slope = multiply_high(seeds[i], slopes)
        rest = seeds[i] * slopes
        if coins[i] < threshold:
            image = multiply_high(rest, ones)
            uneven[i] = rest * ones < excess[1]
        else:
            image = ones + multiply_high(rest, prime - ones)
            uneven[i] = rest * (prime - ones) < excess[0]
        product, left, value = np.uint64(0), slope, np.uint64(values[i])
        while value != np.uint64(0):
            product = (product + left % prime * (value % prime)) % prime
            left //= prime
            value //= prime
        shift = image - product if image >= product else image + prime - product
        reports[i] = slope * prime + shift


@kernel
def _count_hyperplanes(  # type: ignore[no-untyped-def]
    seeds, weights, prime, length, inverse, counts
):
    # A seed's ones form the hyperplane <a, x> = -b: every prefix of x (all digits but the last and
    # most significant) leaves one last digit, or with a zero last coefficient all or none.
    modulus = np.int64(prime)
    prefixes = modulus ** (length - 1)
    digits = np.zeros(length, dtype=np.int64)
    coefficients = np.zeros(length, dtype=np.int64)
    for i in range(seeds.size):
        left = seeds[i]
        rest = left // prime
        image = np.int64(left - rest * prime)
        for j in range(length):
            quotient = rest // prime
            coefficients[j] = np.int64(rest - quotient * prime)
            rest = quotient
        last = coefficients[length - 1]
        factor = inverse[last]
        # What one step of each digit adds to the solution (or to the image where last is zero).
        if last:
            solution = (modulus - image) * factor % modulus
            for j in range(length - 1):
                coefficients[j] = (modulus - coefficients[j]) * factor % modulus
        else:
            solution = image
        digits[:] = 0
        for prefix in range(min(prefixes, counts.size)):
            if last:
                value = prefix + solution * prefixes
                if value < counts.size:
                    counts[value] += weights[i]
            elif solution == 0:
                for value in range(prefix, counts.size, prefixes):
                    counts[value] += weights[i]
            for j in range(length - 1):
                digits[j] += 1
                solution += coefficients[j]
                if solution >= modulus:
                    solution -= modulus
                if digits[j] < modulus:
                    break
                # A full turn of the digit has added the prime times its coefficient: nothing.
                digits[j] = 0
