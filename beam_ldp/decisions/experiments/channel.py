"""What randomized response does to a rate, what is read back of it, and what a device sends."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from beam_ldp.randomizers.base import Rng
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.randomness import word_source
from beam_ldp.randomizers.words import TwoLevelLaw

Interval = tuple[float, float]


@dataclass(frozen=True)
class BitChannel:
    """A channel from a bit to a bit: how often a report is one.

    The bit may itself be drawn: of a person whose bit is one with probability `phi`, the report is
    one with probability `rate(phi)`.

    Args:
        zero: probability that the report of a zero is one.
        one: the same of a one; larger.

    >>> channel = BitChannel.implemented(1.0)
    >>> print(f"{channel.zero:.4f} {channel.one:.4f} {channel.contrast:.4f}")
    0.2689 0.7311 0.4621
    """

    zero: float
    one: float

    def __post_init__(self) -> None:
        check_fraction("zero", self.zero, "[]")
        check_fraction("one", self.one, "[]")
        if self.one <= self.zero:
            raise ValueError(f"one must be above zero, got {self.one!r} and {self.zero!r}")

    @classmethod
    def implemented(cls, local_epsilon: float) -> BitChannel:
        """The channel that devices run: probabilities of integer thresholds, not ideal ones."""
        one, zero = KRandomizedResponse(2, local_epsilon).support_probabilities
        return cls(zero, one)

    @property
    def contrast(self) -> float:
        """What is left of a difference of two rates."""
        return self.one - self.zero

    def rate(self, share: float) -> float:
        """How often reports are one where `share` of the bits are."""
        return self.zero + self.contrast * share

    def share(self, rate: float) -> float:
        """The inverse of `rate`; not clipped, so that it is unbiased."""
        return (rate - self.zero) / self.contrast


NO_NOISE = BitChannel(0.0, 1.0)


def clopper_pearson(ones: int, people: int, level: float) -> Interval:
    """Interval of a rate that holds with probability `level` at least, whatever the rate.

    Source: Clopper and Pearson 1934.

    >>> low, high = clopper_pearson(8, 10, 0.95)
    >>> print(f"{low:.3f} {high:.3f}")
    0.444 0.975
    """
    check_integer("people", people, 1)
    check_integer("ones", ones, 0, people)
    check_fraction("level", level)
    tail = (1 - level) / 2
    low = stats.beta.ppf(tail, ones, people - ones + 1) if ones else 0.0
    high = stats.beta.isf(tail, ones + 1, people - ones) if ones < people else 1.0
    return float(low), float(high)


def share_interval(channel: BitChannel, ones: int, people: int, level: float) -> Interval:
    """The same of the share of bits that are one, within [0, 1].

    >>> low, high = share_interval(BitChannel.implemented(1.0), 500, 1000, 0.95)
    >>> print(f"{low:.3f} {high:.3f}")
    0.432 0.568
    """
    low, high = clopper_pearson(ones, people, level)
    return (
        min(max(channel.share(low), 0.0), 1.0),
        min(max(channel.share(high), 0.0), 1.0),
    )


# What a device sends ------------------------------------------------------------------------------


_WORDS = 1 << 64


def bit_thresholds(local_epsilon: float) -> tuple[int, int]:
    """Of 2**64 words, how many make the report of a zero, and of a one, a one.

    Both they and what is left over have a ratio of e**local_epsilon at most.

    >>> zero, one = bit_thresholds(1.0)
    >>> print(f"{zero / 2**64:.4f} {one / 2**64:.4f}")
    0.2689 0.7311
    """
    law = TwoLevelLaw(num_outputs=2, num_favoured=1, local_epsilon=local_epsilon)
    one = (law.threshold + _WORDS) // 2
    return _WORDS - one, one


def randomize_scores(local_epsilon: float, scores: ArrayLike, rng: Rng = None) -> NDArray[np.uint8]:
    """One bit per person, which is one with probability `BitChannel.rate(score)`.

    Randomized response of a bit that is one with probability `score`, drawn in one step: by one
    word and an integer threshold, rounded to 2**-32 of the score. A score of 0 or 1 is a plain bit.
    Protects the score, and so the value that it belongs to, against everybody who sees the bit.

    Args:
        local_epsilon: of the bit, > 0.
        scores: (n,), within [0, 1].
        rng: as for `LocalRandomizer.randomize`: None draws fresh secure words.

    Raises:
        ValueError: if a score lies outside (it is never quoted).

    >>> randomize_scores(1.0, [0.0, 0.5, 1.0]).shape
    (3,)
    """
    told = np.asarray(scores, dtype=np.float64)
    if told.ndim != 1 or not bool(np.all((told >= 0) & (told <= 1))):
        raise ValueError("scores must be numbers within [0, 1], one for each person")
    zero, one = bit_thresholds(local_epsilon)
    steps = np.round(told * 2**32).astype(np.uint64)
    step = np.uint64((one - zero) >> 32)
    thresholds = np.uint64(zero) + steps * step
    thresholds = np.where(steps == 2**32, np.uint64(one), thresholds)
    named = json.dumps(["experiment bit", local_epsilon]).encode()
    digest = hashlib.sha256(named).digest()[:16]
    words = word_source(rng, digest, told).words(0, told.size, 1)[:, 0]
    return (words < thresholds).astype(np.uint8)
