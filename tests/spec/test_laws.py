"""The whole numbers of every law: a word more or less is seen by no report, but here."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import (
    PairwiseIndependentRappor,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.frequency.rappor_parts import RapporLaw
from beam_ldp.randomizers.mean.two_response import BitLaw
from beam_ldp.randomizers.words import TwoLevelLaw
from spec import frequency as laws

pytestmark = pytest.mark.exact

EPSILONS = [1e-9, 1e-6, 1e-3, 20.0, 25.0, *np.random.default_rng(2).uniform(0.01, 12, 60).tolist()]


def test_two_levels():
    generator = np.random.default_rng(3)
    for epsilon in EPSILONS[2:]:
        symbols, power = int(generator.integers(2, 5000)), 1 << int(generator.integers(1, 20))
        for v, s in ((symbols, 1), (2 * symbols, symbols), (power, max(1, power // 4)), (7, 3)):
            if s < v and epsilon < 15:
                assert (
                    laws.two_level_threshold(v, s, epsilon) == TwoLevelLaw(v, s, epsilon).threshold
                )


def test_bits():
    for epsilon in EPSILONS:
        for optimized in (True, False):
            coins = UnaryEncoding(2, epsilon, optimized)._coins
            told = laws.unary_thresholds(epsilon, optimized)
            assert told == tuple(coin.threshold for coin in coins)


def test_permanent_bits():
    """With room for the rates of unary encoding, and without."""
    for epsilon in EPSILONS[2:3] + EPSILONS[5:]:
        for longer in (1.01, 1.5, 2.0, 3.0):
            law = RapporLaw(epsilon, longer * epsilon, 1, None)
            assert laws.permanent_thresholds(epsilon, longer * epsilon) == (law.flip, *law.rates)


def test_fields():
    """Of PI-RAPPOR: primes, digits and ones, where all of them are chosen anew."""
    for epsilon in EPSILONS[2:]:
        for size in (2, 3, 10, 149, 5000):
            for compact in (False, True):
                try:
                    oracle = PairwiseIndependentRappor(size, epsilon, compact)
                except ValueError:  # beyond the resolution of words
                    assert epsilon > 20
                    continue
                told = laws.field(size, epsilon, compact)
                assert told == (oracle.prime, oracle.length, oracle.num_ones)


def test_sets():
    for epsilon in EPSILONS[:2] + EPSILONS[5:]:
        for size, members in ((2, 1), (12, 3), (1000, 7)):
            if epsilon < 10:
                heads = SubsetSelection(size, epsilon, members)._law.coin.threshold
                assert laws.coin_threshold(members, size - members, epsilon) == heads


def test_messages():
    """Rounded once, as two-response bits are, is what rounding unary encoding's gives."""
    for epsilon in EPSILONS[1:]:
        for width in (1, 2, 3, 64, 1000):
            low = laws.unary_thresholds(epsilon, True)[1] + width
            assert low == BitLaw(width, epsilon).low
