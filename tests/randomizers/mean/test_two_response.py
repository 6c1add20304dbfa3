"""Noisy bits: exact laws of the words, layouts, packing."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.randomizers.mean.two_response import (
    BitLaw,
    MessageLayout,
    count_bits,
    pack_columns,
    respond,
    unpack_columns,
)
from beam_ldp.randomizers.words import WORD_VALUES

pytestmark = pytest.mark.exact


def words_per_place(size, threshold):
    """Number of words that name each place, and of those that then fall below the threshold."""
    named, ones = [], []
    for place in range(size):
        first = -(-place * WORD_VALUES // size)
        last = -(-(place + 1) * WORD_VALUES // size)
        named.append(last - first)
        least = first * size - place * WORD_VALUES  # the low half of the first such word
        ones.append(max(0, min(last - first, -(-(threshold - least) // size))))
    return named, ones


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, 1000])
@pytest.mark.parametrize("budget", [1e-6, 0.1, 1.0, 2.1773, 8.0])
def test_no_threshold_shows_more_than_the_budget(size, budget):
    """Counts words exactly, for every place and both bits."""
    law = BitLaw(size, budget)
    named, low = words_per_place(size, law.low)
    _, high = words_per_place(size, WORD_VALUES - law.low)
    largest = max(max(Fraction(h, w), Fraction(n - w, n - h)) for n, w, h in zip(named, low, high))
    assert math.log(largest) <= law.log_ratio_max * (1 + 1e-12) <= budget * (1 + 1e-12)
    assert law.log_ratio_max >= budget - 1e-8
    between = words_per_place(size, WORD_VALUES // 3)[1] if law.low < WORD_VALUES // 3 else low
    assert all(w <= b <= h for w, b, h in zip(low, between, high))


@settings(max_examples=60, deadline=None)
@given(budget=st.floats(1e-4, 12.0), size=st.integers(1, 10**6))
def test_identities_of_the_bit(budget, size):
    """V = 1/x^2, x = 2 sinh(e/2) = (1 - 2p)/sqrt(p(1-p)), 1 - 2p = tanh(e/2)."""
    law = BitLaw(size, budget)
    x = 2 * math.sinh(budget / 2)
    assert law.contrast == pytest.approx(math.tanh(budget / 2), rel=1e-6)
    assert law.bit_variance == pytest.approx(1 / x**2, rel=1e-6)
    assert 0.25 + law.bit_variance == pytest.approx(0.25 / math.tanh(budget / 2) ** 2, rel=1e-6)


def test_printed_flip_probability_spends_less():
    """Lemma 2.4.1: the printed p is exactly 2 asinh(v/2)-private, and has variance 1/v^2."""
    for v in (0.1, 1.0, 3.0, 8.0):
        p = 0.5 * (1 - math.sqrt(v**2 / (v**2 + 4)))
        assert math.log((1 - p) / p) == pytest.approx(2 * math.asinh(v / 2))
        assert 2 * math.asinh(v / 2) < v
        assert p * (1 - p) / (1 - 2 * p) ** 2 == pytest.approx(1 / v**2)


@pytest.mark.parametrize(("size", "budget"), [(1, 41.0), (1, 700.0), (10**6, 1e-15), (1, math.nan)])
def test_budgets_beyond_64_bits_are_refused(size, budget):
    with pytest.raises(ValueError, match="resolution|message_epsilons"):
        MessageLayout(size, (1,), (budget,))
        BitLaw(size, budget)


def run(unit, words, layout):
    c = layout.columns
    dtype = np.uint32
    reports = np.empty((len(unit), layout.num_messages), dtype=dtype)
    respond(
        unit, 0.0, 1.0, words, c.level, c.start, c.size, c.low, c.span, c.scale,
        layout.num_levels, reports,
    )  # fmt: skip
    return reports


def test_kernel_compares_as_the_law_says_at_its_edges():
    layout = MessageLayout(1, (1,), (1.0,))
    low = layout.law(0, 1).low
    edge = [0, low - 1, low, WORD_VALUES - low - 1, WORD_VALUES - low, WORD_VALUES - 1]
    words = np.array(edge, dtype=np.uint64)[:, None]
    zeros = run(np.zeros((6, 1)), words, layout)[:, 0]
    ones = run(np.ones((6, 1)), words, layout)[:, 0]
    assert zeros.tolist() == [1, 1, 0, 0, 0, 0]
    assert ones.tolist() == [1, 1, 1, 1, 0, 0]


@pytest.mark.parametrize("value", [0.0, 0.25, 0.3, 0.5, 0.7, 1.0, -0.2, 1.3])
def test_fractions_move_the_threshold_linearly_and_are_truncated(value):
    """An even grid of words stands for the uniform law."""
    layout = MessageLayout(1, (1,), (1.3,))
    words = np.linspace(0, WORD_VALUES - 2048, 100_001).astype(np.uint64)[:, None]
    bits = run(np.full((len(words), 1), value), words, layout) & 1
    law = layout.law(0, 1)
    expected = law.flip_probability + law.contrast * min(max(value, 0.0), 1.0)
    assert bits.mean() == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("levels", [1, 2, 3, 6])
def test_binary_digits_add_up(levels):
    """Digits with the weights 1/2, 1/4, ... and the fraction of the last: the value again."""
    values = np.array([0.0, 1.0, 0.5, 0.25, 0.75, 1 / 3, 0.999999, 1e-9, 0.625])
    layout = MessageLayout(1, (1,) * levels, (20.0,) * levels)
    # A word in the middle shows the digits as they are; thresholds of the last level by a grid.
    middle = np.full((len(values), levels), WORD_VALUES // 2, dtype=np.uint64)
    digits = run(values[:, None], middle, layout)[:, : levels - 1] & 1
    whole = digits @ 0.5 ** np.arange(1, levels) if levels > 1 else np.zeros(len(values))
    grid = np.linspace(0, WORD_VALUES - 2048, 20_001).astype(np.uint64)
    for value, start in zip(values, whole):
        words = np.repeat(grid[:, None], levels, axis=1)
        last = run(np.full((len(grid), 1), value), words, layout)[:, -1] & 1
        assert start + 0.5 ** (levels - 1) * last.mean() == pytest.approx(value, abs=1e-4)


@settings(max_examples=80, deadline=None)
@given(size=st.integers(1, 50), count=st.integers(1, 50), padded=st.booleans())
def test_blocks_cover_every_coordinate_once(size, count, padded):
    count = min(size, count)
    layout = MessageLayout(size, (count,), (1.0,), padded)
    starts, sizes = layout.blocks(0)
    assert len(starts) == count and starts[0] == 0
    assert np.array_equal(starts[1:], np.cumsum(sizes)[:-1])
    if padded:
        assert set(sizes.tolist()) == {math.ceil(size / count)}
    else:
        assert sizes.sum() == size and sizes.max() - sizes.min() <= 1
    assert len(layout.coordinate_laws(0)[0]) == size


def test_padded_blocks_of_the_text_are_mostly_dummies():
    """d = 300: 200 and 250 messages both mean blocks of two, 50 and 100 of them about nothing."""
    for count, dummies in ((200, 50), (250, 100)):
        starts, sizes = MessageLayout(300, (count,), (1.0,), padded=True).blocks(0)
        assert set(sizes.tolist()) == {2} and np.count_nonzero(starts >= 300) == dummies


def test_repeats_speak_about_every_coordinate_as_often():
    columns = MessageLayout(3, (6, 3), (1.0, 0.5)).columns
    assert columns.start.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2]
    assert columns.level.tolist() == [0] * 6 + [1] * 3
    assert columns.widths.tolist() == [1] * 9


@pytest.mark.parametrize("messages", [(0,), (4,), (7,), (1, 2)])
def test_layouts_that_make_no_sense_are_refused(messages):
    with pytest.raises(ValueError, match="messages"):
        MessageLayout(3, messages, (1.0,))


@settings(max_examples=50, deadline=None)
@given(
    size=st.integers(1, 40),
    counts=st.lists(st.integers(1, 40), min_size=1, max_size=3),
    users=st.integers(0, 9),
    seed=st.integers(0, 99),
)
def test_packing_is_tight_and_inverts(size, counts, users, seed):
    messages = tuple(min(c, size) for c in counts)
    layout = MessageLayout(size, messages, (1.0,) * len(messages))
    columns = layout.columns
    sizes = columns.size.astype(np.int64)
    reports = np.random.default_rng(seed).integers(0, 2 * sizes, (users, len(sizes)))
    data = pack_columns(reports.astype(np.uint32), columns.widths)
    bits = sum(math.ceil(math.log2(s)) + 1 for s in sizes.tolist())
    assert len(data) == math.ceil(users * bits / 8)
    assert np.array_equal(unpack_columns(data, columns.widths, users), reports)


def test_unpacking_refuses_wrong_lengths_and_dirty_padding():
    widths = MessageLayout(5, (2,), (1.0,)).columns.widths
    data = pack_columns(np.array([[3, 1]], dtype=np.uint32), widths)
    with pytest.raises(ValueError, match="bytes"):
        unpack_columns(data + b"\0", widths, 1)
    with pytest.raises(ValueError, match="padded"):
        unpack_columns(bytes([data[0] | 1]), widths, 1)


def test_counting_reports_the_impossible_and_skips_the_padding():
    layout = MessageLayout(3, (2,), (1.0,), padded=True)  # blocks {0, 1} and {2, nothing}
    columns = layout.columns
    counts = np.zeros((1, 3, 2), dtype=np.int64)
    reports = np.array([[1, 0], [2, 3]], dtype=np.uint8)
    assert count_bits(reports, columns.level, columns.start, columns.size, 3, counts) == 0
    assert counts.tolist() == [[[0, 1], [1, 0], [1, 0]]]
    bad = np.array([[4, 0]], dtype=np.uint8)
    assert count_bits(bad, columns.level, columns.start, columns.size, 3, counts) == 1
