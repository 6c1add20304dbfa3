"""Integers below a bound, tails of the binomial law, choices of places: without any bias."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers.mean.priv_unit_inf import (
    agreements_above,
    below,
    choose_places,
    ones_in,
)
from beam_ldp.randomizers.words import WORD_VALUES, kernel


@kernel
def _draw_below(bound, words, out):
    at = 0
    for i in range(out.size):
        out[i], at = below(bound, words, at)
    return at


@kernel
def _draw_agreements(t, d, words, out):
    at = 0
    for i in range(out.size):
        out[i], at = agreements_above(t, d, words, at)
    return at


@kernel
def _count_ones(words, out):
    for i in range(out.size):
        out[i] = ones_in(words[i])


@kernel
def _draw_places(count, d, words, out):
    at = 0
    for i in range(len(out)):
        at = choose_places(count, d, words, at, out[i])
    return at


@pytest.mark.exact
def test_integers_below_a_bound_reject_the_words_that_would_favour_one():
    """2^64 = 1 modulo 3 and modulo 5: one word is refused, the others are as many each."""
    out = np.empty(2, dtype=np.int64)
    third = -(-WORD_VALUES // 3)
    words = np.array([0, third, WORD_VALUES - 1], dtype=np.uint64)
    assert _draw_below(np.uint64(3), words, out) == 3
    assert out.tolist() == [1, 2]
    assert _draw_below(np.uint64(4), words, out) == 2
    assert out.tolist() == [0, 1]
    assert _draw_below(np.uint64(3), words[:1], out) > 1
    counts = np.empty(4, dtype=np.int64)
    _count_ones(np.array([0, 1, WORD_VALUES - 1, 0xF0F0 << 40], dtype=np.uint64), counts)
    assert counts.tolist() == [0, 1, 64, 8]


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "t"), [(1, 1), (10, 5), (10, 10), (101, 51), (400, 235)])
def test_agreements_follow_the_tail_of_the_binomial_law(d, t):
    """50,000 draws: chi-square p-value above 1e-6."""
    n = 50_000
    words = np.random.default_rng(d + t).integers(0, 2**64, 300 * n, dtype=np.uint64)
    out = np.empty(n, dtype=np.int64)
    assert _draw_agreements(t, d, words, out) <= words.size
    law = stats.binom.pmf(np.arange(t, d + 1), d, 0.5)
    expected = n * law / law.sum()
    seen = np.bincount(out - t, minlength=expected.size)
    assert seen.size == expected.size
    bulk = expected > 10
    seen = np.append(seen[bulk], seen[~bulk].sum())
    expected = np.append(expected[bulk], expected[~bulk].sum())
    statistic = np.sum((seen - expected) ** 2 / np.maximum(expected, 1e-300))
    assert stats.chi2.sf(statistic, max(1, bulk.sum())) > 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "count"), [(5, 2), (5, 0), (5, 5), (70, 1)])
def test_every_choice_of_places_is_as_likely(d, count):
    """30,000 draws: every one of the C(d, count) choices within 5 s.e."""
    n, choices = 30_000, math.comb(d, count)
    words = np.random.default_rng(d).integers(0, 2**64, d * n + 9, dtype=np.uint64)
    out = np.empty((n, -(-d // 64)), dtype=np.uint64)
    assert _draw_places(count, d, words, out) == d * n
    rows, seen = np.unique(out, axis=0, return_counts=True)
    assert len(rows) == choices
    expected = n / choices
    assert (np.abs(seen - expected) <= 5 * math.sqrt(expected)).all()
