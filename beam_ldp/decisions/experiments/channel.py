"""One bit of a person through randomized response, and how many people any such channel needs.

How many people any locally private test needs: bounds for every mechanism of a local epsilon.

Sequential: each person answers once, questions may depend on earlier answers. Interactive: people
may be asked again and again, local epsilon in all. Pure local privacy. Groups of people with laws
of their own (the arms of an experiment) are allowed: the information of one person is then the mean
over the people.

Source: Joseph, Mao, Neel and Roth, section 5, with sharper constants (spec: interactivity,
section 8; enumerated in tests/decisions/experiments/test_lower_bounds.py).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from beam_ldp.randomizers.base import Rng
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
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


# How many people any test needs -------------------------------------------------------------------


# Product of (1 - 2**-l) over l >= 1: what cutting and pasting of transcripts leaves.
PASTING = 0.2887880950866024


@dataclass(frozen=True)
class LeastPeople:
    """What no test of a local epsilon stays below.

    Attributes:
        sequential: people needed where each answers once.
        interactive: people needed where they may be asked again.
    """

    sequential: float
    interactive: float


@dataclass(frozen=True)
class GroupLaws:
    """People of one law: their share of all, their law without and with the effect."""

    share: float
    null: tuple[float, ...]
    alternative: tuple[float, ...]


def information(local_epsilon: float, distance: float) -> float:
    """The most that one report tells two laws apart, in both directions of the KL divergence.

    Half of it bounds each direction.

    Args:
        local_epsilon: of the report, > 0.
        distance: total variation of the two laws, in [0, 1].

    >>> round(information(1.0, 0.1), 10)
    0.0146551287
    """
    check_positive("local_epsilon", local_epsilon)
    check_fraction("distance", distance, "[]")
    return (
        2 * math.tanh(local_epsilon / 2) * distance
        * math.log1p(math.expm1(local_epsilon) * distance)
    )  # fmt: skip


def least_people(
    local_epsilon: float,
    null: ArrayLike,
    alternative: ArrayLike,
    alpha: float,
    power: float,
) -> LeastPeople:
    """Bounds for a test of one law against another, both known.

    Args:
        local_epsilon: of all that one person sends, > 0.
        null, alternative: probabilities of the values, shape (k,).
        alpha: false alarms.
        power: effects seen, above `alpha`.

    >>> least = least_people(1.0, [0.5, 0.5], [0.4, 0.6], 0.05, 0.95)
    >>> print(f"{least.sequential:.1f} {least.interactive:.1f}")
    361.6 88.9
    """
    laws = [tuple(np.asarray(law, dtype=float).tolist()) for law in (null, alternative)]
    return least_people_of_groups(local_epsilon, [GroupLaws(1.0, *laws)], alpha, power)


def least_people_of_groups(
    local_epsilon: float, groups: Sequence[GroupLaws], alpha: float, power: float
) -> LeastPeople:
    """The same where public groups of people have laws of their own; people of all groups."""
    ahead, back, decided = _of_decisions(alpha, power)
    told = forward = backward = apart = 0.0  # means over the people
    for group in groups:
        first, second = np.array(group.null), np.array(group.alternative)
        distance = min(float(np.abs(first - second).sum()) / 2, 1.0)
        told += group.share * information(local_epsilon, distance)
        forward += group.share * _kl(first, second)
        backward += group.share * _kl(second, first)
        apart += group.share * (1 - float(np.sqrt(first * second).sum()))
    if told <= 0:
        raise ValueError("alternative must differ from null")
    return LeastPeople(
        max(2 * max(ahead, back) / told, ahead / forward, back / backward),
        PASTING * decided * max(8 / told, 1 / apart),
    )


def least_people_apart(
    local_epsilon: float, distance: float, alpha: float, power: float
) -> LeastPeople:
    """Bounds that know the total variation of the two nearest laws alone, of two hypotheses.

    >>> print(f"{least_people_apart(1.0, 0.1, 0.05, 0.95).sequential:.1f}")
    361.6
    """
    ahead, back, decided = _of_decisions(alpha, power)
    told = information(local_epsilon, distance)
    return LeastPeople(2 * max(ahead, back) / told, 8 * PASTING * decided / told)


def least_people_of_arms(
    local_epsilon: float,
    rates: tuple[float, float],
    shares: tuple[float, float],
    alpha: float,
    power: float,
) -> LeastPeople:
    """Bounds for control against variant, the common rate of the null not known.

    A test that keeps its level at every common rate keeps it at the one that is hardest to tell
    from the two rates; each common rate gives a bound, the largest of a grid is taken.

    Args:
        local_epsilon: of all that one person sends, > 0.
        rates: of control and variant under the effect.
        shares: of the people that each has; of all arms, 1.
        alpha, power: as for `least_people`.

    >>> least = least_people_of_arms(1.0, (0.45, 0.55), (0.5, 0.5), 0.05, 0.95)
    >>> print(f"{least.sequential:.0f}")
    1391
    """
    found = [
        least_people_of_groups(
            local_epsilon,
            [GroupLaws(w, (1 - c, c), (1 - r, r)) for w, r in zip(shares, rates)],
            alpha,
            power,
        )
        for c in np.linspace(*rates, 65)[1:-1].tolist()
    ]
    return LeastPeople(max(b.sequential for b in found), max(b.interactive for b in found))


def _of_decisions(alpha: float, power: float) -> tuple[float, float, float]:
    """How far apart decisions are without and with the effect: KL both ways, squared Hellinger."""
    check_fraction("alpha", alpha)
    check_fraction("power", power)
    if power <= alpha:
        raise ValueError(f"power must be above alpha, got {power!r} and {alpha!r}")
    without, effect = np.array([1 - alpha, alpha]), np.array([1 - power, power])
    apart = 1 - float(np.sqrt(without * effect).sum())
    return _kl(without, effect), _kl(effect, without), apart


def _kl(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Kullback-Leibler divergence; infinite where only the second law excludes a value."""
    seen = first > 0
    if np.any(second[seen] <= 0):
        return math.inf
    return float(np.sum(first[seen] * np.log(first[seen] / second[seen])))
