"""Bloom codes: short code words that several values may share, and their linear decoding."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.base import check_sampling
from beam_ldp.randomizers.frequency.bit_pairs import bit_witness
from beam_ldp.randomizers.shuffle_pair import ShufflePair

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

    def words(self) -> np.ndarray:
        """Positions of the ones: int64, (cohorts, values, ones)."""
        return _words(self)

    def ones(self) -> np.ndarray:
        """The code words side by side: float64 zeros and ones, (values, cohorts * bits)."""
        return _ones(self)

    def decoder(self) -> np.ndarray:
        """D with D @ ones.T / cohorts = identity, (values, cohorts * bits): least squares.

        Raises:
            ValueError: if no linear decoder is unbiased, since values cannot be told apart.
        """
        return _decoder(self)

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


@functools.lru_cache(maxsize=4)
def _words(code: BloomCode) -> np.ndarray:
    shape = (code.num_cohorts, code.num_values, code.num_ones)
    words = np.empty(shape, dtype=np.int64)
    for cohort in range(code.num_cohorts):
        label = f"beam-ldp bloom {cohort} {code.num_values} {code.num_bits} {code.num_ones}"
        stream = hashlib.shake_128(label.encode()).digest(8 * shape[1] * shape[2])
        draws = np.frombuffer(stream, dtype="<u8").reshape(shape[1:])
        for i in range(code.num_ones):
            # A position among those still free, then moved past the taken ones.
            position = (draws[:, i] % np.uint64(code.num_bits - i)).astype(np.int64)
            for taken in np.sort(words[cohort, :, :i], axis=1).T:
                position += position >= taken
            words[cohort, :, i] = position
    return words


@functools.lru_cache(maxsize=4)
def _ones(code: BloomCode) -> np.ndarray:
    ones = np.zeros((code.num_values, code.num_cohorts, code.num_bits))
    value = np.arange(code.num_values)[None, :, None]
    cohort = np.arange(code.num_cohorts)[:, None, None]
    ones[value, cohort, _words(code)] = 1.0
    return ones.reshape(code.num_values, -1)


@functools.lru_cache(maxsize=4)
def _decoder(code: BloomCode) -> np.ndarray:
    from scipy import linalg  # slow to import, and not needed on devices

    ones = _ones(code)
    try:
        decoder = code.num_cohorts * linalg.solve(ones @ ones.T, ones, assume_a="pos")
    except linalg.LinAlgError:
        raise ValueError(_refusal(code)) from None
    # Least squares of a singular system may pass unnoticed; a biased decoder may not.
    bias = np.abs(decoder @ ones.T / code.num_cohorts - np.eye(code.num_values)).max()
    if not bias < MAX_BIAS:
        raise ValueError(_refusal(code))
    return decoder


def _refusal(code: BloomCode) -> str:
    return (
        f"num_cohorts={code.num_cohorts} filters of num_bits={code.num_bits} bits do not tell "
        f"{code.num_values} values apart, so no linear estimate is unbiased; use more cohorts "
        "or more bits"
    )
