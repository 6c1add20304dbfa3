"""Normals from words: their law, their addressing, and what happens when words run out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers import normals
from beam_ldp.randomizers.normals import next_gamma, next_normal, run_rows, spare_words
from beam_ldp.randomizers.randomness import SimulatedWords, UserRandomness
from beam_ldp.randomizers.words import kernel
from tests.identities import identity


def draw(n, count, seed=1, per_row=None):
    source = SimulatedWords(np.random.default_rng(seed))
    words = source.words(0, n, per_row or spare_words(count))
    return normals.standard_normals(words, count, source.extra)


@pytest.mark.exact
def test_layers_have_equal_areas():
    edges = normals.WIDTHS * 2.0**52
    heights = normals.DENSITY
    strips = edges[1:] * (heights[2:] - heights[1:-1])
    base = edges[0] * heights[1]
    assert np.allclose(strips, base, rtol=1e-9)
    assert edges[1] == normals.TAIL_START
    assert (np.diff(edges) < 0).all()
    tail = math.sqrt(math.pi / 2) * math.erfc(normals.TAIL_START / math.sqrt(2))
    assert base == pytest.approx(normals.TAIL_START * heights[1] + tail, rel=1e-12)


@pytest.mark.statistical
def test_law_of_two_million_normals():
    """Kolmogorov-Smirnov and chi-square over 4000 cells; false alarms 1e-6 each."""
    x = draw(2000, 1000).ravel()
    assert stats.kstest(x, "norm").pvalue > 1e-6
    cells = np.bincount((stats.norm.cdf(x) * 4000).astype(int), minlength=4000)
    assert stats.chisquare(cells).pvalue > 1e-6


@pytest.mark.statistical
def test_tail_beyond_the_last_layer():
    """Five million normals, 1290 expected in the tail; five standard deviations, 1e-6 each."""
    x = draw(1000, 5000, seed=2).ravel()
    tail = x[np.abs(x) > normals.TAIL_START]
    expected = x.size * 2 * stats.norm.sf(normals.TAIL_START)
    assert abs(tail.size - expected) < 5 * math.sqrt(expected)
    assert abs(np.mean(tail > 0) - 0.5) < 5 * 0.5 / math.sqrt(tail.size)
    law = stats.norm.sf(np.abs(tail)) / stats.norm.sf(normals.TAIL_START)
    assert stats.kstest(law, "uniform").pvalue > 1e-6


@pytest.mark.statistical
def test_one_by_one_draws_and_gammas():
    """Kolmogorov-Smirnov per law; false alarms 1e-6 each."""
    words = np.random.default_rng(3).integers(0, 2**64, 2_000_000, dtype=np.uint64)
    assert stats.kstest(_normals_one_by_one(words, 200_000), "norm").pvalue > 1e-6
    for shape in (0.5, 1.0, 4.5, 500.0):
        x = _gammas(shape, words, 100_000)
        assert stats.kstest(x, stats.gamma(shape).cdf).pvalue > 1e-6


@pytest.mark.exact
def test_a_row_that_runs_out_gets_more_of_its_own_words():
    source = UserRandomness(b"k" * 32, np.arange(50), identity("r")).words_for(
        b"m", np.zeros(50, dtype=int)
    )
    plenty = source.words(0, 50, 400)
    expected = normals.standard_normals(plenty, 100, source.extra)
    scarce = normals.standard_normals(plenty[:, :101], 100, source.extra)
    assert np.array_equal(expected, scarce)


@pytest.mark.exact
def test_only_rows_that_ran_out_are_repeated():
    calls = []

    def rows_done(rows, words):
        calls.append((rows.tolist(), words.shape))
        return (rows % 2 == 0) | (words.shape[1] >= 16)

    words = np.arange(16, dtype=np.uint64).reshape(4, 4)
    run_rows(rows_done, words, lambda rows, at: (100 * rows + at).astype(np.uint64))
    assert calls == [([0, 1, 2, 3], (4, 4)), ([1, 3], (2, 8)), ([1, 3], (2, 16))]


@pytest.mark.statistical
def test_spare_words_suffice():
    """One row in 1e9 would need more: none of 20,000 does."""

    def never(rows, positions):
        raise AssertionError("a row ran out of words")

    for count in (1, 10, 1000):
        words = np.random.default_rng(4).integers(
            0, 2**64, (20_000_000 // 1000, spare_words(count)), dtype=np.uint64
        )
        normals.standard_normals(words[: 20_000 if count < 1000 else 4_000], count, never)


@pytest.mark.exact
def test_a_row_does_not_depend_on_its_neighbours():
    words = np.random.default_rng(5).integers(0, 2**64, (9, spare_words(30)), dtype=np.uint64)
    together = normals.standard_normals(words, 30, lambda r, p: p)
    alone = [normals.standard_normals(words[i : i + 1], 30, lambda r, p: p)[0] for i in range(9)]
    assert np.array_equal(together, np.array(alone))


@pytest.mark.exact
def test_python_and_compiled_code_agree():
    words = np.random.default_rng(6).integers(0, 2**64, 4000, dtype=np.uint64)
    at, plain = 0, []
    for _ in range(1000):
        x, at = next_normal(words, at)
        plain.append(x)
    assert np.array_equal(plain, _normals_one_by_one(words, 1000))


@kernel
def _normals_one_by_one(words, count):
    out = np.empty(count)
    at = 0
    for i in range(count):
        out[i], at = next_normal(words, at)
    return out


@kernel
def _gammas(shape, words, count):
    out = np.empty(count)
    at = 0
    for i in range(count):
        out[i], at = next_gamma(shape, words, at)
    return out


@kernel
def _uniforms(words, out):  # type: ignore[no-untyped-def]
    for i in range(words.size):
        out[i] = normals.uniform(words[i])


@pytest.mark.exact
def test_uniform_numbers_are_middles_of_cells_and_never_reach_zero_or_one():
    last = (1 << 64) - 1
    words = np.array([0, (1 << 12) - 1, 1 << 12, 1 << 63, last - (1 << 12), last], dtype=np.uint64)
    out = np.empty(words.size)
    _uniforms(words, out)
    cell = 2.0**-52
    expected = [cell / 2, cell / 2, 1.5 * cell, 0.5 + cell / 2, 1 - 1.5 * cell, 1 - cell / 2]
    assert out.tolist() == expected
    assert out.min() > 0 and out.max() < 1
    assert (out + out[::-1] == 1.0)[[0, 5]].all()
