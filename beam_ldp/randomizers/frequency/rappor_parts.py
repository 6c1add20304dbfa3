"""What RAPPOR is made of: code words that values may share, and noise that outlives a release."""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from beam_ldp.randomizers.base import check_sampling
from beam_ldp.randomizers.frequency.packed_bits import bit_witness
from beam_ldp.randomizers.randomness import UserRandomness, WordSource, derive_key
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.words import WORD_VALUES, exp_lower

# Bloom codes: short code words that several values may share, and their linear decoding.


MAX_ENTRIES = 1 << 24  # of the decoding matrix: 128 MiB
MAX_BIAS = 1e-9  # of an estimate, as a fraction; rounding stays far below


@dataclass(frozen=True)
class BloomCode:
    """One public Bloom filter per cohort: `num_ones` of `num_bits` bits for every value.

    The bits of a value in a cohort are read from a public hash (SHAKE-128 of the cohort's number
    and the sizes), distinct within a code word. Nothing here is secret or drawn from data.

    Attributes:
        num_values, num_cohorts, num_bits, num_ones: the sizes.
    """

    num_values: int
    num_cohorts: int
    num_bits: int
    num_ones: int

    @functools.lru_cache(maxsize=4)  # noqa: B019  (codes are few, and equal ones share a table)
    def words(self) -> np.ndarray:
        """Positions of the ones: int64, (cohorts, values, ones)."""
        shape = (self.num_cohorts, self.num_values, self.num_ones)
        words = np.empty(shape, dtype=np.int64)
        for cohort in range(self.num_cohorts):
            label = f"beam-ldp bloom {cohort} {self.num_values} {self.num_bits} {self.num_ones}"
            stream = hashlib.shake_128(label.encode()).digest(8 * shape[1] * shape[2])
            draws = np.frombuffer(stream, dtype="<u8").reshape(shape[1:])
            for i in range(self.num_ones):
                # A position among those still free, then moved past the taken ones.
                position = (draws[:, i] % np.uint64(self.num_bits - i)).astype(np.int64)
                for taken in np.sort(words[cohort, :, :i], axis=1).T:
                    position += position >= taken
                words[cohort, :, i] = position
        return words

    @functools.lru_cache(maxsize=4)  # noqa: B019  (codes are few, and equal ones share a table)
    def ones(self) -> np.ndarray:
        """The code words side by side: float64 zeros and ones, (values, cohorts * bits)."""
        ones = np.zeros((self.num_values, self.num_cohorts, self.num_bits))
        value = np.arange(self.num_values)[None, :, None]
        cohort = np.arange(self.num_cohorts)[:, None, None]
        ones[value, cohort, self.words()] = 1.0
        return ones.reshape(self.num_values, -1)

    @functools.lru_cache(maxsize=4)  # noqa: B019  (codes are few, and equal ones share a table)
    def decoder(self) -> np.ndarray:
        """D with D @ ones.T / cohorts = identity, (values, cohorts * bits): least squares.

        Raises:
            ValueError: if no linear decoder is unbiased, since values cannot be told apart.
        """
        from scipy import linalg  # slow to import, and not needed on devices

        ones = self.ones()
        try:
            decoder = self.num_cohorts * linalg.solve(ones @ ones.T, ones, assume_a="pos")
        except linalg.LinAlgError:
            raise ValueError(self._refusal()) from None
        # Least squares of a singular system may pass unnoticed; a biased decoder may not.
        bias = np.abs(decoder @ ones.T / self.num_cohorts - np.eye(self.num_values)).max()
        if not bias < MAX_BIAS:
            raise ValueError(self._refusal())
        return decoder

    def _refusal(self) -> str:
        return (
            f"num_cohorts={self.num_cohorts} filters of num_bits={self.num_bits} bits do not tell "
            f"{self.num_values} values apart, so no linear estimate is unbiased; use more cohorts "
            "or more bits"
        )

    def second_moments(self, zero_variance: float, one_variance: float) -> np.ndarray:
        """E[Z_x**2 | value x'], (values, values): Z_x is one user's term of the estimate of x.

        Z_x = sum_i D[x, (c, i)] s_i in a uniform cohort c, with independent s_i of mean 0 or 1
        and the given variance, as bit i of the code word of x' is 0 or 1.
        """
        decoder, ones = self.decoder(), self.ones()
        squares = decoder**2
        total = zero_variance * squares.sum(axis=1, keepdims=True)
        total = total + (one_variance - zero_variance) * (squares @ ones.T)
        for cohort in range(self.num_cohorts):
            part = slice(cohort * self.num_bits, (cohort + 1) * self.num_bits)
            total += (decoder[:, part] @ ones[:, part].T) ** 2
        return total / self.num_cohorts

    def variance(
        self, zero_variance: float, one_variance: float, truth: np.ndarray | None, sampling: str
    ) -> np.ndarray:
        """Exact variance of every component of the estimate, times the number of users.

        `truth` is scaled to sum one; None stands for the worst truth of each component.
        """
        check_sampling(sampling)
        moments = self.second_moments(zero_variance, one_variance)
        if truth is None:
            own, other = np.diagonal(moments).copy(), moments
            np.fill_diagonal(other, -np.inf)
            other = other.max(axis=1)
            if sampling == "fixed":
                return np.maximum(own - 1, other)
            share = np.clip((own - other) / 2, 0.0, 1.0)  # maximum of a concave parabola
            return share * own + (1 - share) * other - share**2
        total = truth.sum()
        truth = truth / total if total > 0 else np.full(self.num_values, 1 / self.num_values)
        return moments @ truth - (truth if sampling == "fixed" else truth**2)

    def witness(self, p: float, q: float) -> ShufflePair:
        """The values 0 and 1, the others holding 1: a mixture over the cohorts."""
        words = self.words()[:, :2]
        shared = (words[:, 0, :, None] == words[:, 1, None, :]).sum(axis=(1, 2))
        own, cohorts = np.unique(self.num_ones - shared, return_counts=True)
        parts = [bit_witness(p, q, int(count)) for count in own]
        weights = (cohorts / self.num_cohorts).tolist()
        return ShufflePair(
            1.0,
            tuple(both for part in parts for both in part.ratios),
            tuple(w * chance for part, w in zip(parts, weights) for chance in part.probabilities),
            "proved",
            "others hold one of the two values",
        )


# Permanent and instantaneous noise: the exact law of a bit, and words that outlive a release.


@dataclass(frozen=True)
class RapporLaw:
    """Integer thresholds of the two stages of noise, within both budgets.

    Attributes:
        local_epsilon: budget of one report.
        longitudinal_epsilon: budget of the permanent response.
        num_hashes: ones per code word; two code words differ in at most twice as many bits.
        report_probabilities: given rates of the instantaneous response, or None for the best.
    """

    local_epsilon: float
    longitudinal_epsilon: float
    num_hashes: int
    report_probabilities: tuple[float, float] | None

    @cached_property
    def flip(self) -> int:
        """Words of 2**64 on which the permanent response flips a bit."""
        odds = exp_lower(min(self.longitudinal_epsilon / (2 * self.num_hashes), 60.0))
        return min(math.ceil(WORD_VALUES / (1 + odds)), WORD_VALUES // 2 - 1)

    @cached_property
    def rates(self) -> tuple[int, int]:
        """Words of 2**64 on which a permanent zero, or one, is reported as one."""
        if self.report_probabilities is not None:
            zero, one = (Fraction(rate) for rate in self.report_probabilities)
        else:
            zero, one = self._best_rates()
        return (
            math.ceil(zero * WORD_VALUES),
            min(math.floor(one * WORD_VALUES), WORD_VALUES - 1),
        )

    def _best_rates(self) -> tuple[Fraction, Fraction]:
        """Rates of least noise: those of optimized unary encoding if the permanent noise leaves
        room for them, else no ones at all on permanent zeros."""
        flip = Fraction(self.flip, WORD_VALUES)
        keep = (1 - flip) / flip
        # A hair below the budget: the thresholds' own rounding then stays within it.
        odds = exp_lower(min(self.local_epsilon / self.num_hashes, 60.0)) * (1 - Fraction(1, 2**36))
        one, zero = Fraction(1, 2), 1 / (1 + odds)
        if one > keep * zero:
            zero = (odds - keep) / (keep * (odds - 1))
            one = keep * zero
        scale = 1 - 2 * flip
        zero_rate = ((1 - flip) * zero - flip * one) / scale
        one_rate = ((1 - flip) * one - flip * zero) / scale
        return max(zero_rate, Fraction(0)), min(one_rate, Fraction(1))

    @cached_property
    def bits(self) -> tuple[Fraction, Fraction]:
        """Probability of reporting one for a one of the code word, and for a zero."""
        flip = Fraction(self.flip, WORD_VALUES)
        zero, one = (Fraction(rate, WORD_VALUES) for rate in self.rates)
        return flip * zero + (1 - flip) * one, (1 - flip) * zero + flip * one

    def report_log_ratio(self) -> float:
        """The implemented budget of one report."""
        one, zero = self.bits
        ratio = one * (1 - zero) / (zero * (1 - one))
        return self.num_hashes * math.log1p(float(ratio - 1))

    def permanent_log_ratio(self) -> float:
        """The implemented budget of the permanent response."""
        ratio = Fraction(WORD_VALUES - self.flip, self.flip)
        # The ratio is below its bound in rational numbers; its logarithm is rounded.
        rounded = 2 * self.num_hashes * math.log1p(float(ratio - 1))
        return min(self.longitudinal_epsilon, rounded)


@dataclass(frozen=True)
class LongitudinalRandomness(UserRandomness):
    """Words of which the first ones do not depend on the release."""

    permanent_words: int = 0
    permanent_stop: int = 0  # positions from here on belong to the release, below it (but for
    # the release's share of the first words) to the permanent response

    def words_for(self, mechanism_digest: bytes, values: np.ndarray) -> WordSource:  # type: ignore[override]
        key = derive_key(self.key, b"permanent response")
        identity = replace(self.identity.permanent, key="")
        permanent = UserRandomness(key, self.user_ids, identity)
        return _TwoSources(
            permanent.words_for(mechanism_digest, values),
            super().words_for(mechanism_digest, values),
            self.permanent_words,
            self.permanent_stop,
        )


@dataclass(frozen=True)
class _TwoSources:
    permanent: WordSource
    release: WordSource
    permanent_words: int
    permanent_stop: int

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        split = self.permanent_words
        parts = (
            self.permanent.words(start, stop, split),
            self.release.words(start, stop, per_user - split),
        )
        return np.concatenate(parts, axis=1)

    def extra(self, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
        words = np.empty(len(users), dtype=np.uint64)
        kept = positions < self.permanent_stop
        for source, rows in ((self.permanent, kept), (self.release, ~kept)):
            words[rows] = source.extra(users[rows], positions[rows])
        return words
