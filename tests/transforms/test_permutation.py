"""The order that leaves the shuffler is uniformly random."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import permutations

import apache_beam as beam
import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers import words
from beam_ldp.transforms import ReportBlock, Shuffle
from beam_ldp.transforms.shuffler.batches import _fisher_yates, permute, scatter
from tests.transforms.helpers import ORACLE, chi_square, run

DRAWS = 24_000
WINDOWS = 400


@pytest.mark.statistical
@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_order_is_equally_likely(size):
    """Chi-square over all orders at 5 sigma: fails by chance once in 3 million runs."""
    counts = Counter(tuple(permute(np.arange(size)).tolist()) for _ in range(DRAWS))
    orders = list(permutations(range(size)))
    found = np.array([counts[order] for order in orders])
    assert found.sum() == DRAWS
    assert chi_square(found, DRAWS / len(orders)) < 5


@pytest.mark.exact
@pytest.mark.parametrize("degrees", [1, 5, 35])
def test_scores_are_as_improbable_as_they_say(degrees):
    """The statistic that a fair shuffle passes once in 3.5 million draws has score 5."""
    statistic = stats.chi2.isf(stats.norm.sf(5), degrees)
    counts = np.full(degrees + 1, 1000.0)
    counts[:2] += np.array([1, -1]) * (statistic * 1000 / 2) ** 0.5
    assert chi_square(counts, 1000) == pytest.approx(5)


@pytest.mark.statistical
@pytest.mark.parametrize("size", [3, 4])
def test_a_biased_shuffle_would_be_noticed(size):
    """Each position exchanged with any other: orders 11 and 13 % off; 17 and 25 sigma."""
    rng = np.random.default_rng(2)
    counts: Counter[tuple[int, ...]] = Counter()
    for swaps in rng.integers(0, size, (DRAWS, size)):
        order = list(range(size))
        for i, j in enumerate(swaps):
            order[i], order[j] = order[j], order[i]
        counts[tuple(order)] += 1
    found = np.array([counts[order] for order in permutations(range(size))])
    assert chi_square(found, DRAWS / len(found)) > 10


@pytest.mark.statistical
def test_positions_are_uniform_beyond_one_chunk_of_words():
    """Every quarter of 2**18 rows lands evenly on every quarter; 5 sigma."""
    size = 1 << 18
    quarter = permute(np.arange(size)) // (size // 4)
    for start in range(4):
        counts = np.bincount(quarter[start * size // 4 : (start + 1) * size // 4], minlength=4)
        assert chi_square(counts, size / 16) < 5


@pytest.mark.exact
@pytest.mark.parametrize("size", [0, 1, 2, (1 << 16) + 1, 200_001])
def test_nothing_is_lost_and_the_input_stays(size):
    reports = np.arange(size)
    assert np.array_equal(np.sort(permute(reports)), reports)
    assert np.array_equal(reports, np.arange(size))


@pytest.mark.exact
def test_rows_of_wide_reports_stay_together_and_messages_part():
    wide = np.repeat(np.arange(1000)[:, None], 3, axis=1)
    shuffled = permute(wide)
    assert (shuffled == shuffled[:, :1]).all()
    parted = permute(wide, messages=3)
    assert (parted[:, 0] != parted[:, 1]).mean() > 0.9
    assert all(np.array_equal(np.sort(parted[:, j]), np.arange(1000)) for j in range(3))


@pytest.mark.statistical
def test_message_columns_are_permuted_independently():
    """The joint law of the orders of two columns of three is uniform on 36 pairs; 5 sigma."""
    rows = np.repeat(np.arange(3)[:, None], 2, axis=1).astype(np.uint8)
    counts = Counter(permute(rows, messages=2).tobytes() for _ in range(DRAWS))
    assert len(counts) == 36
    assert chi_square(np.array(list(counts.values())), DRAWS / 36) < 5


@pytest.mark.exact
def test_one_report_has_one_order():
    assert permute(np.array([[1, 2, 3]]), messages=3).tolist() == [[1, 2, 3]]
    assert permute(np.zeros((0, 3)), messages=3).shape == (0, 3)
    deep = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    parted = permute(deep, messages=3)
    assert np.array_equal(np.sort(parted, axis=0), deep)


@pytest.mark.statistical
def test_shards_are_uniform_and_complete():
    """16 shards of 2**18 words, 5 sigma."""
    words = np.random.default_rng(5).integers(0, 2**64, 1 << 18, dtype=np.uint64)
    order, bounds = scatter(words, 16)
    assert np.array_equal(np.sort(order), np.arange(words.size))
    assert bounds[0] == 0 and bounds[-1] == words.size
    assert chi_square(np.diff(bounds), words.size / 16) < 5
    first = order[bounds[0] : bounds[1]]
    assert (words[first] < 2**60).all() and (np.diff(first) > 0).all()


@pytest.mark.pipeline
@pytest.mark.statistical
@pytest.mark.parametrize("scope", ["batch", "global"])
def test_order_through_the_stage_is_uniform(scope):
    """WINDOWS windows of three reports each through `Shuffle`; 5 sigma, alarm 6e-7.

    A stage that keeps the order it is given is at least 15 sigma away, and one that keeps the
    order of two reports seven times of ten 6.
    """
    reports = [
        beam.window.TimestampedValue(
            ReportBlock(
                np.array([r], dtype=np.uint8), ORACLE.config_digest(), origin=b"%d %d" % (w, r)
            ),
            w,
        )
        for w in range(WINDOWS)
        for r in range(3)
    ]

    def build(pipeline):
        return (
            pipeline
            | beam.Create(reports)
            | beam.Map(lambda block: block).with_output_types(ReportBlock)
            | beam.WindowInto(beam.window.FixedWindows(1))
            | Shuffle(ORACLE, 3, scope=scope, num_shards=4)
            | beam.ParDo(_WithWindow())
        )

    orders: dict[int, list[tuple[int, list[int]]]] = {}
    for window, part in run(build):
        orders.setdefault(window, []).append(part)
    assert len(orders) == WINDOWS
    if scope == "global":  # shards come in any order: what is permuted is the inside of a shard
        pairs = [part for parts in orders.values() for part in parts if len(part) == 2]
        counts = np.array([sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)])
        together = sum(len(part) == 3 for parts in orders.values() for part in parts)
        assert abs(together - WINDOWS / 16) < 5 * (WINDOWS / 16) ** 0.5
    else:
        found = Counter(tuple(parts[0]) for parts in orders.values())
        counts = np.array([found[order] for order in permutations(range(3))])
        assert counts.sum() == WINDOWS
    assert chi_square(counts, counts.sum() / counts.size) < 5


class _WithWindow(beam.DoFn):
    def process(self, block, window=beam.DoFn.WindowParam):
        yield int(window.start), block.reports.tolist()


@pytest.mark.exact
@pytest.mark.parametrize("left", [3, 5, 6, 7])
def test_words_that_would_favour_a_position_are_thrown_away(left):
    """2**64 mod `left` of the words are: those with the smallest low halves of their products."""
    for word in range(2 * left):
        entries = np.arange(left)
        product = word * left
        thrown = product % 2**64 < 2**64 % left
        word_array = np.array([word], dtype=np.uint64)
        found = _fisher_yates(entries[None, :], 0, left, word_array)
        assert found == (0, left if thrown else left - 1)
        assert thrown == (word == 0)
        assert (entries == np.arange(left)).all() == thrown


@pytest.mark.exact
def test_the_same_words_give_the_same_order_in_python(monkeypatch):
    source = np.random.default_rng(4).integers(0, 2**64, 150, dtype=np.uint64)
    source[::50] = 0  # which would make some positions likelier than others: left out

    def ordered():
        columns = np.arange(200).reshape(2, 100).copy()
        return _fisher_yates(columns, 0, 100, source), columns.tolist()

    monkeypatch.setattr(words, "_worked_off", words.FEW)
    compiled = ordered()
    monkeypatch.delitem(sys.modules, "numba")
    monkeypatch.setattr(words, "_worked_off", 0)
    assert ordered() == compiled
