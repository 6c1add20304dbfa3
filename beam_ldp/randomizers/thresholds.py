"""Integer thresholds: how a stated epsilon becomes an exact law of 64-bit words.

A uniform word is compared with an integer threshold, so every probability of an implemented
mechanism is a known integer over 2**64. Thresholds are rounded toward more privacy: the
implemented ratio never exceeds e**local_epsilon, and wastes less than `MAX_WASTE` of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from fractions import Fraction

from beam_ldp.randomizers.jit import WORD_VALUES

MAX_WASTE = 1e-8


def exp_lower(local_epsilon: float) -> Fraction:
    """A rational just below e**local_epsilon (closer than one part in 2**50)."""
    return Fraction(math.exp(local_epsilon)) * (1 - Fraction(1, 2**51))


@dataclass(frozen=True)
class TwoLevelLaw:
    """`num_favoured` of `num_outputs` outputs are e**local_epsilon times as likely as the others.

    Drawn from one word: `word * num_outputs` has a high half that is uniform over the outputs and
    a low half that decides whether to use it. Below `threshold`, which happens for exactly
    `threshold` of the 2**64 words, the report is a uniform favoured output instead (where there
    are several, chosen by a second word). Rounding shifts any output's probability by at most
    2**-63, which the threshold allows for.

    Source: thesis, section 7.2 (two-level channels); the word-exact rounding is our own.

    Raises:
        ValueError: if the sizes make no channel, or if 64 bits cannot spend local_epsilon to
            within `MAX_WASTE`.
    """

    num_outputs: int
    num_favoured: int
    local_epsilon: float

    def __post_init__(self) -> None:
        if not 0 < self.num_favoured < self.num_outputs:
            raise ValueError("num_favoured must lie strictly between 0 and num_outputs")
        if self.local_epsilon - self.log_ratio_max > MAX_WASTE:
            raise ValueError(
                f"local_epsilon={self.local_epsilon:g} with {self.num_outputs} outputs is beyond "
                "the resolution of 64-bit words; choose a smaller local_epsilon or domain"
            )

    @cached_property
    def threshold(self) -> int:
        v, s, ratio = self.num_outputs, self.num_favoured, exp_lower(self.local_epsilon)
        slope = Fraction(1, s) + Fraction(1, WORD_VALUES) + (ratio - 1) / v
        largest = (Fraction(WORD_VALUES, v) * (ratio - 1) - (ratio + 1)) / slope
        step = math.gcd(v, WORD_VALUES)
        return max(0, math.floor(largest)) // step * step

    @property
    def other_probability(self) -> float:
        """Probability of one output outside the favoured set."""
        return float(Fraction(WORD_VALUES - self.threshold, self.num_outputs * WORD_VALUES))

    @property
    def favoured_probability(self) -> float:
        """Probability of one favoured output."""
        return self.other_probability + self.threshold / WORD_VALUES / self.num_favoured

    @property
    def log_ratio_max(self) -> float:
        """Log of the largest ratio that the words can show, all rounding included."""
        v, s, threshold = self.num_outputs, self.num_favoured, self.threshold
        uniform = Fraction(WORD_VALUES - threshold, v)
        favoured = Fraction(threshold, s) + Fraction(threshold, WORD_VALUES)
        return math.log1p(float((favoured + 2) / (uniform - 1)))


@dataclass(frozen=True)
class Coin:
    """A biased coin: heads for exactly `threshold` of the 2**64 words."""

    threshold: int

    @classmethod
    def at_least(cls, probability: Fraction | float) -> Coin:
        return cls(min(WORD_VALUES, math.ceil(Fraction(probability) * WORD_VALUES)))

    @classmethod
    def at_most(cls, probability: Fraction | float) -> Coin:
        return cls(max(0, math.floor(Fraction(probability) * WORD_VALUES)))

    @property
    def probability(self) -> float:
        return self.threshold / WORD_VALUES
