"""Permanent and instantaneous noise: the exact law of a bit, and words that outlive a release."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from beam_ldp.randomizers.jit import WORD_VALUES
from beam_ldp.randomizers.randomness import UserRandomness, WordSource, derive_key
from beam_ldp.randomizers.thresholds import exp_lower


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
