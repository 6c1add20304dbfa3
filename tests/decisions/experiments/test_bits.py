"""The bit that a device sends: its law by its thresholds, and that devices draw it."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from beam_ldp.decisions.experiments.bits import bit_thresholds, randomize_scores
from beam_ldp.decisions.experiments.channel import BitChannel

pytestmark = pytest.mark.exact


class Words:
    """A source of words that a test chooses, in place of a generator."""

    def __init__(self, words: list[int]) -> None:
        self._words = np.array(words, dtype=np.uint64)

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        return self._words[start:stop, None]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 2.0, 8.0])
def test_thresholds_spend_the_epsilon_and_no_more(epsilon):
    zero, one = bit_thresholds(epsilon)
    assert zero + one == 2**64
    ratio = Fraction(one, zero)
    assert ratio <= Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
    assert math.log(ratio) == pytest.approx(epsilon, abs=1e-9)
    channel = BitChannel.implemented(epsilon)
    assert (zero / 2**64, one / 2**64) == pytest.approx((channel.zero, channel.one), abs=1e-15)


def test_a_score_is_drawn_by_its_threshold(monkeypatch):
    """The words around the thresholds of 0, 1/2 and 1, one by one."""
    zero, one = bit_thresholds(1.0)
    half = zero + 2**31 * ((one - zero) >> 32)
    words = [zero - 1, zero, half - 1, half, one - 1, one]
    monkeypatch.setattr("beam_ldp.decisions.experiments.bits.word_source", lambda *_: Words(words))
    drawn = randomize_scores(1.0, [0, 0, 0.5, 0.5, 1, 1])
    assert drawn.tolist() == [1, 0] * 3
    assert half / 2**64 == pytest.approx(BitChannel.implemented(1.0).rate(0.5), abs=1e-9)


@pytest.mark.statistical
def test_rates_of_bits():
    """Within 4.5 sigma (7e-6 for each of five scores) over 200,000 people each."""
    people, channel, rng = 200_000, BitChannel.implemented(2.0), np.random.default_rng(8)
    for score in (0.0, 0.1, 0.5, 0.9, 1.0):
        rate = channel.rate(score)
        seen = randomize_scores(2.0, np.full(people, score), rng).mean()
        assert abs(seen - rate) < 4.5 * np.sqrt(rate * (1 - rate) / people)


@pytest.mark.parametrize("scores", [[1.1], [-0.1], [math.nan], [[0.5]]])
def test_what_is_no_score_is_refused_and_not_quoted(scores):
    with pytest.raises(ValueError, match=r"^scores must be numbers within \[0, 1\], one for each"):
        randomize_scores(1.0, scores)
