"""Round one: bins, votes, and how often the wrong bin wins."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.protocols.range_search import (
    RangeSearch,
    SearchBins,
    Vote,
    failure_bound,
    least_epsilon,
    least_users,
    oracle_for,
)
from beam_ldp.protocols.spaces import Radii
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse, SubsetSelection

# Bins ----------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("near", "count"), [(1.0, 1), (0.6, 2), (0.5, 2), (0.499, 3), (0.25, 4), (1 / 3, 3), (0.3, 4)]
)
def test_bins_have_exactly_their_width_and_the_last_one_overhangs(near, count):
    bins = SearchBins(near)
    assert bins.count == count
    np.testing.assert_allclose(np.diff(bins.middles), 2 * near)
    assert bins.middles[0] == -1 + near
    assert bins.middles[-1] + near >= 1 - 1e-12  # covers the range
    assert bins.middles[-1] - near < 1  # and no bin lies beyond it


@pytest.mark.exact
def test_both_ends_of_the_range_have_a_bin():
    bins = SearchBins(0.3)
    assert bins.of(np.array([-1.0, 1.0])).tolist() == [0, 3]
    assert bins.of(np.array([-1.5, 1.5])).tolist() == [0, 3]  # rounding beyond the ends is harmless


@pytest.mark.exact
def test_whoever_is_near_lies_in_at_most_two_bins_about_the_centre():
    """Not so for narrower bins: with the last one shortened to fit, three of them can be met."""
    for near in (0.07, 0.11, 0.3):
        bins = SearchBins(near)
        narrow = 1 / bins.count  # half the width of as many bins that fit the range exactly
        met_by_narrow = 0
        for centre in np.linspace(-1 + near, 1 - near, 997):
            people = np.linspace(centre - near, centre + near, 41)
            winners = np.unique(bins.of(people))
            assert len(winners) <= 2
            for winner in winners:  # the interval about any of them holds everybody within `far`
                assert abs(bins.middles[winner] - centre) <= 2 * near + 1e-12
            cut = np.unique(np.floor((people + 1) / (2 * narrow)))
            met_by_narrow = max(met_by_narrow, len(cut))
        assert met_by_narrow == 3


@pytest.mark.exact
@pytest.mark.parametrize("near", [0.0, -0.1, 1.1, math.nan])
def test_bins_refuse_widths_out_of_range(near):
    with pytest.raises(ValueError, match="near must lie in"):
        SearchBins(near)


# Votes ---------------------------------------------------------------------------------------


def enumerated_vote(oracle, own, winner, rival):
    """P(+1), P(-1) of one report's vote, from the channel."""
    channel = oracle.channel()[:, own]
    reports = oracle.channel_reports()
    votes = []
    for report in reports:
        estimate = oracle.estimate(oracle.accumulate(report[None]), 1).value
        votes.append(estimate[winner] - estimate[rival])
    votes = np.array(votes)
    big = 1e-9 * np.abs(votes).max()
    return channel[votes > big].sum(), channel[votes < -big].sum()


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("k", [2, 3, 4, 7])
@pytest.mark.parametrize("kind", [SubsetSelection, BinaryHadamard])
def test_vote_is_that_of_the_channel(kind, k, epsilon):
    oracle = kind(k, epsilon)
    vote = Vote.of(oracle)
    right, wrong = enumerated_vote(oracle, 0, 0, 1)
    assert vote.right == pytest.approx(right, rel=1e-9)
    assert vote.wrong == pytest.approx(wrong, rel=1e-9)
    assert enumerated_vote(oracle, 1, 0, 1) == pytest.approx((wrong, right), rel=1e-9)
    if k > 2:
        assert enumerated_vote(oracle, 2, 0, 1) == pytest.approx((vote.stray,) * 2, rel=1e-9)


@pytest.mark.exact
def test_vote_refuses_oracles_that_it_does_not_know():
    with pytest.raises(ValueError, match="subset_selection, binary_hadamard"):
        Vote.of(KRandomizedResponse(4, 1.0))


# How often it fails -----------------------------------------------------------------------------


def exact_failure(oracle, values, winners):
    """P(the fullest bin is none of `winners`), ties broken against them: all report profiles."""
    k = oracle.domain_size
    reports = [oracle.accumulate(report[None]) for report in oracle.channel_reports()]
    channel = oracle.channel()
    laws = {(0,) * k: 1.0}
    for value in values:
        following: dict[tuple[int, ...], float] = {}
        for total, probability in laws.items():
            for report, chance in zip(reports, channel[:, value]):
                key = tuple(np.add(total, report))
                following[key] = following.get(key, 0.0) + probability * chance
        laws = following
    return sum(
        p
        for total, p in laws.items()
        if max(total[i] for i in winners) <= max(total[i] for i in range(k) if i not in winners)
    )


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 4.0])
def test_bound_holds_for_every_placement_of_few_people(epsilon):
    """Against enumeration: 6 people of whom a share sits elsewhere, 4 bins."""
    oracle = SubsetSelection(4, epsilon)
    for away in range(3):
        for near in itertools.combinations_with_replacement((0, 1), 6 - away):
            values = [*near, *[3] * away]
            bound = failure_bound(oracle, 4, 6, beyond=away / 6)
            assert exact_failure(oracle, values, (0, 1)) <= bound + 1e-12


@pytest.mark.exact
def test_bound_beats_bernsteins_and_the_printed_one():
    """Thesis, Lemma 3.7.1: its bound on a probability is 83 where ours is a quarter."""
    n, k, epsilon = 400, 64, 1.0
    printed = 2 * k * math.exp(-n * math.tanh(epsilon / 2) ** 2 / 200)
    c = 1 / math.tanh(epsilon / 2)
    bernstein = (k - 2) * math.exp(-n / (16 * c**2 + 4 / 3 * (2 * c + 1)))
    ours = failure_bound(BinaryHadamard(k, epsilon), k, n, 0.0)
    assert printed == pytest.approx(83.5, abs=0.1)
    assert ours < bernstein < 1 < printed
    assert failure_bound(SubsetSelection(k, epsilon), k, n, 0.0) < ours


@pytest.mark.exact
def test_bound_grows_with_people_who_are_elsewhere_and_falls_with_people_who_are_not():
    oracle = SubsetSelection(16, 1.0)
    bounds = [failure_bound(oracle, 16, 2000, beyond) for beyond in (0.0, 0.05, 0.1, 0.2, 0.3)]
    assert bounds == sorted(bounds) and bounds[0] < 1e-10 and bounds[-1] > 1e-3
    assert failure_bound(oracle, 16, 2000, 0.0, outliers=0.2) > bounds[0]
    assert failure_bound(oracle, 16, 4000, 0.1) < bounds[2]
    assert failure_bound(oracle, 16, 10**9, 0.34) == 1.0  # a rival may be as full as the winner
    assert failure_bound(oracle, 2, 1, 0.0) == 0.0  # two bins: both are next to the centre


def failures(oracle, values, winners, runs, seed):
    rng = np.random.default_rng(seed)
    count = 0
    for _ in range(runs):
        reports = oracle.randomize(values, rng)
        value = oracle.estimate(oracle.accumulate(reports), len(values)).value
        count += int(np.argmax(value)) not in winners
    return count


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("n", "k", "hadamard", "subsets"), [(200, 16, 1.2e-2, 4e-3), (400, 64, 1.0e-3, 1e-4)]
)
def test_failure_rates_are_the_known_ones(n, k, hadamard, subsets):
    """Budget 1, people in two bins. 4,000 runs each, 5 sigma: 1 false alarm in 10^6."""
    values, runs = np.repeat([5, 6], n // 2), 4000
    for oracle, rate in (
        (BinaryHadamard(k, 1.0, drop_trivial=False), hadamard),
        (SubsetSelection(k, 1.0), subsets),
    ):
        count = failures(oracle, values, (5, 6), runs, 11)
        assert abs(count - rate * runs) <= 5 * math.sqrt(rate * runs) + 1
        assert count / runs <= failure_bound(oracle, k, n, 0.0)


@pytest.mark.statistical
def test_coordinates_split_over_people_instead_of_budget():
    """4,000 people, 8 coordinates, 16 bins: 0.187 wrong against none. 400 runs, 5 sigma."""
    runs = 400
    all_answer = BinaryHadamard(16, 1 / 8, drop_trivial=False)
    wrong = failures(all_answer, np.repeat([5, 6], 2000), (5, 6), runs, 3)
    assert abs(wrong / runs - 0.187) <= 5 * math.sqrt(0.187 * 0.813 / runs)
    each_one = BinaryHadamard(16, 1.0, drop_trivial=False)
    assert failures(each_one, np.repeat([5, 6], 250), (5, 6), runs, 4) == 0


# The search as a whole --------------------------------------------------------------------------


@pytest.mark.exact
def test_interval_is_about_the_winner_and_cut_at_the_ends():
    search = RangeSearch(Radii(0.1, 0.15, 0.0), 1.0)
    frequencies = np.zeros(10)
    frequencies[0] = 1.0
    assert search.interval(frequencies) == pytest.approx((-1.0, -0.9 + 0.35))
    frequencies[6] = 2.0
    assert search.interval(frequencies) == pytest.approx((0.3 - 0.35, 0.3 + 0.35))


@pytest.mark.exact
def test_ties_go_to_one_of_the_tied():
    search = RangeSearch(Radii(0.1, 0.1, 0.0), 1.0)
    frequencies = np.array([0, 0, 0.5, 0.5, 0, 0, 0, 0, 0, 0])
    low, high = search.interval(frequencies)
    for centre in (-0.5, -0.4, -0.3):  # wherever the two bins' people may come from
        assert low <= centre - 0.1 + 1e-12 and centre + 0.1 <= high + 1e-12


@pytest.mark.exact
def test_padding_bins_of_an_oracle_never_win():
    """Bins beyond the range: one bin alone has an oracle of two values, whose second is nothing."""
    search = RangeSearch(Radii(1.0, 0.2, 0.0), 1.0)
    assert search.bins.count == 1 and search.oracle.domain_size == 2
    assert search.interval(np.array([0.0, 9.0])) == (-1.0, 1.0)


@pytest.mark.exact
@pytest.mark.parametrize("oracle", ["subset_selection", "binary_hadamard"])
def test_least_epsilon_meets_the_target_and_no_less_does(oracle):
    radii = Radii(0.05, 0.1, 0.1)
    found = least_epsilon(radii, oracle, 5000, 1e-3, 0.0, 4.0)
    assert RangeSearch(radii, found, oracle).failure_probability(5000) <= 1e-3
    assert RangeSearch(radii, found * 0.999, oracle).failure_probability(5000) > 1e-3
    assert least_epsilon(radii, oracle, 5000, 1e-3, 0.0, found * 0.99) is None


@pytest.mark.exact
def test_least_users_meets_the_target_and_no_fewer_do():
    search = RangeSearch(Radii(0.05, 0.1, 0.1), 1.0)
    found = least_users(search, 1e-3, 1e6)
    assert search.failure_probability(found) <= 1e-3
    assert search.failure_probability(found - 3) > 1e-3
    assert least_users(search, 1e-3, found - 3) is None


@pytest.mark.exact
def test_very_many_bins_take_an_oracle_that_adds_up_fast():
    assert (oracle_for(100), oracle_for(1 << 14)) == ("subset_selection", "binary_hadamard")
