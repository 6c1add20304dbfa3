"""Subset selection."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import SubsetSelection
from beam_ldp.randomizers.frequency.subset_selection import best_subset_size
from tests.randomizers.frequency import exact_checks as checks

ORACLES = [
    pytest.param(SubsetSelection(k, eps), id=f"{k}-{eps}")
    for k in (2, 3, 5, 8, 12)
    for eps in (0.1, 1.0, 3.0, 6.0)
] + [pytest.param(SubsetSelection(7, 1.0, size), id=f"7-1.0-size-{size}") for size in (1, 3, 6)]


@pytest.mark.exact
@pytest.mark.parametrize("oracle", ORACLES)
def test_channel_and_shuffle_pairs(oracle):
    checks.check_channel(oracle)
    num_sets = len(oracle.channel())
    checks.check_blanket(oracle, np.full(num_sets, 1 / num_sets))
    checks.check_witnesses(oracle)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("eps", "size", "noise"),
    [
        (math.log(2), 333, 7.982),
        (1, 269, 3.6733),
        (2, 119, 0.72061),
        (3, 47, 0.21812),
        (4, 18, 0.073872),
        (5, 7, 0.025324),
    ],
)
def test_golden_noise(eps, size, noise):
    """n times the variance of a value that nobody holds, k = 1000."""
    oracle = SubsetSelection(1000, eps)
    assert oracle.subset_size == size
    assert oracle.variance(1, np.zeros(1000))[0] == pytest.approx(noise, rel=2e-5)


@pytest.mark.exact
@pytest.mark.parametrize("k", [2, 3, 12, 100, 999])
@pytest.mark.parametrize("eps", [0.1, 1.0, 3.0, 5.0, 8.0])
def test_default_size_is_the_best_of_all(k, eps):
    def total_error(size):
        return SubsetSelection(k, eps, size).variance(1, np.eye(k)[0]).sum()

    best = min(total_error(size) for size in range(1, k))
    assert total_error(best_subset_size(k, eps)) == pytest.approx(best, rel=1e-9)


@pytest.mark.exact
@pytest.mark.parametrize("eps", [1e-3, 1.0, 6.0, 12.0, 20.0])
def test_threshold_spends_the_budget_and_no_more(eps):
    oracle = SubsetSelection(1000, eps)
    assert eps - 1e-8 <= oracle.log_ratio_max() <= eps


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("k", "eps", "size"), [(5, 1.0, 2), (7, 1.0, 3), (12, 3.0, 1), (6, 1.0, 5)]
)
def test_sampling_of_sets(k, eps, size):
    """Every set of every value has its probability; false alarm below 1e-5 per case."""
    checks.check_sampling(SubsetSelection(k, eps, size), 20_000, seed=k)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("k", "eps", "num_users"),
    [(1000, 5.0, 100_000), (300, 1.0, 30_000), (1000, 3.0, 30_000), (4000, 4.5, 20_000)],
    ids=["short lists", "bits", "long lists", "longer lists"],
)
def test_estimates(k, eps, num_users):
    """False alarm about 1e-5 per case."""
    checks.check_estimates(SubsetSelection(k, eps), num_users, seed=k)


@pytest.mark.statistical
def test_pairs_of_members_are_evenly_spread():
    """Given the value 0, all pairs of other members are equally likely (5 sigma of 105 counts)."""
    oracle = SubsetSelection(16, 1.0, 5)
    reports = oracle.randomize(np.zeros(60_000, dtype=int), np.random.default_rng(4))
    holds = np.unpackbits(reports, axis=1, count=16, bitorder="little").astype(np.int64)
    pairs = (holds.T @ holds)[np.triu_indices(16, 1)][15:]  # those without the value itself
    assert np.abs(pairs - pairs.mean()).max() < 5 * math.sqrt(pairs.mean())


@pytest.mark.exact
@pytest.mark.parametrize(("k", "eps"), [(1000, 5.0), (1000, 3.0)])
def test_lists_do_not_show_the_order_of_drawing(k, eps):
    oracle = SubsetSelection(k, eps)
    reports = oracle.randomize(np.full(3000, k - 1), np.random.default_rng(0)).astype(int)
    assert (np.diff(reports, axis=1) > 0).all()
    reports = reports.astype(oracle.report_dtype)
    with pytest.raises(ValueError, match="distinct values in increasing order"):
        oracle.unpack(oracle.pack(reports[:, ::-1]), 3000)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("k", "size", "form"), [(1000, 7, (7,)), (1000, 100, (125,)), (1000, 99, (99,)), (9, 2, (2,))]
)
def test_the_shorter_form_is_sent(k, size, form):
    oracle = SubsetSelection(k, 3.0, size)
    assert oracle.report_shape == form
    assert oracle.bits_per_report == min(k, size * (k - 1).bit_length())
    checks.check_everything_but_the_channel(oracle)


@pytest.mark.exact
def test_impossible_reports_are_refused():
    lists, bits = SubsetSelection(1000, 5.0, 3), SubsetSelection(12, 1.0, 4)
    outside = np.array([[1, 2, 1000]], dtype=np.uint16)
    with pytest.raises(ValueError, match="must lie in"):
        lists.accumulate(outside)
    with pytest.raises(ValueError, match="must be sets of 3 distinct values"):
        lists.unpack(lists.pack(outside), 1)
    with pytest.raises(ValueError, match="must be sets of 4 distinct values"):
        bits.unpack(b"\x07\x00", 1)


@pytest.mark.exact
@pytest.mark.parametrize("size", [2, 5])
def test_words_that_would_make_a_draw_uneven_are_replaced(size):
    """A zero word leaves the remainder zero, below 2**64 mod 11: the set, not the coin, is redone.

    All other words point at the middle of their range.
    """
    oracle = SubsetSelection(12, 1.0, size)
    words = np.full((3, size + 1), (1 << 63) + 12345, dtype=np.uint64)
    words[:, 0] = [0, 2**64 - 1, 0]  # holds the own value, does not, does
    words[1:, -2] = 0
    asked = []

    def extra(rows, positions):
        asked.extend(zip(rows.tolist(), positions.tolist()))
        return np.full(len(rows), (1 << 63) + 12345, dtype=np.uint64)

    reports = np.zeros((3, *oracle.report_shape), dtype=oracle.report_dtype)
    oracle._randomize_block(np.array([3, 3, 3]), words, extra, reports)
    assert sorted({row for row, _ in asked}) == [1, 2]
    assert min(position for _, position in asked) >= oracle.words_per_user
    assert len(set(asked)) == len(asked)
    counts = [oracle.accumulate(reports[i : i + 1]) for i in range(3)]
    assert [int(c.sum()) for c in counts] == [size] * 3
    assert [int(c[3]) for c in counts] == [1, 0, 1]


@pytest.mark.exact
def test_channel_reports_are_the_sets_in_order():
    oracle = SubsetSelection(6, 1.0, 2)
    for row, members in zip(oracle.channel_reports(), combinations(range(6), 2)):
        assert np.flatnonzero(oracle.accumulate(row[None])).tolist() == list(members)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((4, 1.0, 0), "subset_size must be an integer from 1 to 3, got 0"),
        ((4, 1.0, 4), "subset_size must be an integer from 1 to 3, got 4"),
        ((4, 1.0, 1.5), "subset_size must be an integer from 1 to 3, got 1.5"),
        ((4, 1.0, True), "subset_size must be an integer"),
        ((4, 1.0, "2"), "subset_size must be an integer"),
        ((4, -1.0), "local_epsilon must be a finite number > 0"),
        ((4, 60.0), "beyond the resolution"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        SubsetSelection(*arguments)
