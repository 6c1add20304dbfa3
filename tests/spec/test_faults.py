"""Faults that other libraries had, made again in ours: which of our tests sees them.

OpenDP's randomized response of bit vectors drew n - 1 flips for n bits until 0.15.0 (its issue 2707
and pull request 2708): exclusive or took the flip that was missing for a zero, and the last bit was
sent as it is. Vectors of one length, right sizes and estimates of all other bits looked well.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import UnaryEncoding, packed_bits
from tests.randomizers.frequency import exact_checks as checks
from tests.spec import compare

pytestmark = pytest.mark.exact

SIZE, EPSILON = 4, 1.0


def channel_of_flips(flip: Fraction, flips: int) -> np.ndarray:
    """P(report | value), enumerated: each of the first `flips` bits of a one-hot row is flipped by
    itself; what lies beyond is sent as it is."""
    table = np.zeros((1 << SIZE, SIZE))
    for value in range(SIZE):
        for flipped in range(1 << flips):
            ones = flipped.bit_count()
            table[1 << value ^ flipped, value] += float(flip**ones * (1 - flip) ** (flips - ones))
    return table


def one_flip_short(self, values, words, extra, reports):
    """The fault: noise of one bit less, and nothing flips the last one."""
    sound(self, values, words, extra, reports)
    last = self.domain_size - 1
    held = (values == last).astype(np.uint8) << (last & 7)
    reports[:, last >> 3] = reports[:, last >> 3] & ~np.uint8(1 << (last & 7)) | held


sound = UnaryEncoding._randomize_block


def oracle() -> UnaryEncoding:
    return UnaryEncoding(SIZE, EPSILON, optimized=False)


def test_all_flips_make_the_channel_that_we_state():
    flip = Fraction(oracle()._coins[1].threshold, compare.WORDS)
    np.testing.assert_allclose(channel_of_flips(flip, SIZE), oracle().channel(), rtol=1e-14)
    checks.check_channel(oracle())


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_one_flip_less_fails_the_test_of_the_channel(monkeypatch):
    """The one of every oracle, `exact_checks.check_channel`: a report is impossible from one value
    and possible from another, whatever epsilon is declared."""
    flip = Fraction(oracle()._coins[1].threshold, compare.WORDS)
    short = channel_of_flips(flip, SIZE - 1)
    np.testing.assert_allclose(short.sum(axis=0), 1.0)
    for report in range(1 << SIZE):  # the last bit tells whether it is the last value
        assert (short[report, -1] == 0) != (short[report, :-1].max() == 0)
    monkeypatch.setattr(UnaryEncoding, "channel", lambda self: short)
    with pytest.raises(AssertionError):
        checks.check_channel(oracle())


def test_one_flip_less_fails_word_by_word_and_where_reports_are_counted(monkeypatch):
    """The channel that is written down may be right where the code is not: the specification and
    the counts of `check_sampling` see the code."""
    unary, values = oracle(), np.arange(40) % SIZE
    words = compare.words_for(unary.words_per_user, 40, 1)
    compare.check(unary, values, words)
    monkeypatch.setattr(UnaryEncoding, "_randomize_block", one_flip_short)
    with pytest.raises(AssertionError):
        compare.check(unary, values, words)
    with pytest.raises(AssertionError):
        checks.check_sampling(unary, 2_000, seed=3)


def test_one_flip_less_is_not_seen_by_lengths_and_padding(monkeypatch):
    """Which is why it went unnoticed: reports have their shape, and pack and unpack."""
    monkeypatch.setattr(UnaryEncoding, "_randomize_block", one_flip_short)
    checks.check_wire(oracle())
    reports = oracle().randomize(np.arange(40) % SIZE)
    assert packed_bits.whole_rows(reports, SIZE).all()
