"""Shuffled bits: the largest hockey stick over all data sets, against lists of all of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    local_epsilon_for,
    shuffle_delta,
    shuffle_epsilon,
    shuffle_epsilons,
    shuffled_event,
)
from beam_ldp.accounting.divergences import bit_counts
from beam_ldp.accounting.divergences.bit_counts import (
    Bit,
    Releases,
    bit_epsilon,
    bit_log_deltas,
    epsilon_bounds,
)
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse
from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, LInfMean, ScalarMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from tests.examples import examples

pytestmark = pytest.mark.exact

_METHOD = "one bit, all data sets"

# Exact epsilons of randomized response of a bit, by branch and bound to 1e-9.
GOLDEN_EPSILONS = [
    (2, 1.0, 0.1, 0.792841238),
    (10, 0.5, 0.01, 0.206592074),
    (20, 1.0, 1e-3, 0.687179630),
    (50, 6.0, 0.01, 5.988617751),
    (100, 2.0, 1e-3, 0.722028778),
    (100, 0.5, 1e-6, 0.202841822),
    (300, 2.0, 1e-6, 0.694151922),
    (1000, 1.0, 1e-6, 0.126614481),
    (1000, 2.0, 1e-6, 0.323323545),
    (1000, 4.0, 1e-6, 1.691006320),
    (3000, 3.0, 1e-8, 0.439929470),
    (10**4, 2.0, 1e-8, 0.112655052),
    (10**4, 4.0, 1e-8, 0.404520897),
    (10**4, 6.0, 1e-6, 1.311146211),
    (10**5, 0.5, 1e-6, 0.004574541),
    (10**5, 4.0, 1e-6, 0.084716176),
    (10**5, 6.0, 1e-10, 0.412016119),
    (10**6, 4.0, 1e-8, 0.031990579),
    (10**9, 5.0, 1e-9, 0.001616454),
]
# Deltas at an epsilon, by convolution of every number of ones.
GOLDEN_DELTAS = [
    (2, 1.0, 0.5, 0.210288369),
    (3, 2.0, 1.0, 0.4319440649),
    (50, 2.0, 0.5, 0.02453189638),
    (200, 3.0, 0.8, 0.004097260693),
    (1000, 2.0, 0.25, 2.457914105e-5),
    (1000, 6.0, 3.0, 0.07991798812),
]
# What a central target allows: (reports, epsilon, delta, local epsilon).
GOLDEN_TARGETS = [
    (300, 1.0, 1e-5, 2.5909),
    (1000, 0.5, 1e-6, 2.5696),
    (3000, 0.3, 1e-6, 2.8053),
    (10**4, 0.5, 1e-8, 4.3328),
    (10**4, 0.1, 1e-6, 2.1960),
    (10**5, 0.1, 1e-8, 3.8356),
    (10**6, 0.5, 1e-8, 8.9110),
]


def response(local_epsilon: float) -> Bit:
    return Bit(1 / (1 + math.exp(-local_epsilon)), 1 / (1 + math.exp(local_epsilon)))


def listed_delta(bit: Bit, ones: int, reports: int, epsilon: float) -> float:
    """The hockey stick of one data set, in one direction, by convolution."""
    others = np.convolve(
        binom.pmf(np.arange(ones + 1), ones, bit.high),
        binom.pmf(np.arange(reports - ones), reports - 1 - ones, bit.low),
    )
    first, second = (np.convolve(others, [1 - p, p]) for p in bit)
    return float(np.maximum(first - math.exp(epsilon) * second, 0.0).sum())


def all_deltas(bit: Bit, reports: int, epsilon: float) -> np.ndarray:
    """Of every number of ones and, where they differ, either direction."""
    return np.array(
        [
            listed_delta(side, ones, reports, epsilon)
            for side in bit.directions
            for ones in range(reports)
        ]
    )


@pytest.mark.parametrize(("reports", "local_epsilon", "delta", "exact"), GOLDEN_EPSILONS)
def test_epsilon_is_that_of_all_data_sets(reports, local_epsilon, delta, exact):
    least, most = bit_epsilon(response(local_epsilon), reports, delta)
    assert exact * (1 - 1e-3) <= least <= exact * (1 + 1e-6)
    assert exact * (1 - 1e-6) <= most <= exact * 1.0003
    bound = shuffle_epsilon(KRandomizedResponse(2, local_epsilon), reports, delta)
    assert most * (1 - 1e-6) <= bound <= most * (1 + 1e-6)
    assert bound.lower * 1.001 >= bound


@pytest.mark.parametrize(
    ("reports", "local_epsilon", "delta", "certified"),
    [(10**8, 6.0, 1e-10, 0.010090542), (10**12, 1.0, 1e-9, 2.8484109e-6),
     (10**12, 10.0, 1e-9, 5.9631711e-4)],
)  # fmt: skip
def test_epsilon_of_many_people(reports, local_epsilon, delta, certified):
    """The golden values are certified to a thousandth themselves."""
    least, most = bit_epsilon(response(local_epsilon), reports, delta)
    assert least <= certified <= most * 1.001 and most <= least * 1.002


@pytest.mark.parametrize(("reports", "local_epsilon", "epsilon", "exact"), GOLDEN_DELTAS)
def test_delta_is_that_of_all_data_sets(reports, local_epsilon, epsilon, exact):
    found = shuffle_delta(KRandomizedResponse(2, local_epsilon), reports, epsilon)
    assert exact * (1 - 1e-8) <= found <= exact * 1.006


def test_both_directions_of_a_bit_that_is_not_its_mirror_image():
    bit = Bit(0.5, 1 / (math.exp(2) + 1))
    one, other = (
        math.exp(bit_log_deltas(side, 500, np.array([0.1]))[0]) for side in bit.directions
    )
    assert one == other  # either is asked for both
    assert 6.6689931e-4 <= one <= 6.6689931e-4 * 1.006
    forth, back = (
        max(listed_delta(side, m, 500, 0.1) for m in range(500)) for side in bit.directions
    )
    assert (forth, back) == pytest.approx((5.4317813e-4, 6.6689931e-4), rel=1e-7)


def test_the_worst_data_set_may_be_in_the_middle():
    """No end may be called the price: there they cost 17 % less."""
    bit = response(6.78)
    middle, end = (listed_delta(bit, ones, 1210, 0.2916) for ones in (844, 1209))
    assert middle > 1.18 * end
    found = math.exp(bit_log_deltas(bit, 1210, np.array([0.2916]))[0])
    assert middle <= found <= middle * 1.006
    least, most = bit_epsilon(bit, 1210, 0.3)
    costs = [[listed_delta(bit, m, 1210, e) for m in range(800, 950, 10)] for e in (least, most)]
    assert max(costs[0]) > 0.2997 and 0.29 < max(costs[1]) <= 0.3


bits = st.builds(
    lambda low, share: Bit(low + (1 - low) * share, low),
    st.floats(0.002, 0.9),
    st.floats(0.02, 0.95),
)


@given(bits, st.integers(2, 8), st.floats(0.0, 0.999))
@examples(150)
def test_every_data_set_of_few_people(bit, reports, share):
    """By listing all answers, not numbers of ones; others may also hold a value between."""
    epsilon = share * bit.top
    found = math.exp(bit_log_deltas(bit, reports, np.array([epsilon]))[0])
    middle = (bit.high + bit.low) / 2
    worst = 0.0
    for others in itertools.combinations_with_replacement((*bit, middle), reports - 1):
        count = np.ones(1)
        for p in others:
            count = np.convolve(count, [1 - p, p])
        first, second = (np.convolve(count, [1 - p, p]) for p in bit)
        for a, b in ((first, second), (second, first)):
            worst = max(worst, np.maximum(a - math.exp(epsilon) * b, 0.0).sum())
    assert worst * (1 - 1e-9) <= found <= worst * (1 + 1e-6) + 1e-15 or share < 0.05
    assert found >= worst * (1 - 1e-9)


@given(st.floats(0.3, 4.0), st.floats(0.2, 8.0), st.floats(-10.0, -1.0), st.integers(0, 2**32 - 1))
@examples(60)
def test_no_data_set_costs_more(size, local_epsilon, log_delta, seed):
    """Of random crowds: of some numbers of ones, by convolution."""
    reports, delta, bit = int(2 + 10**size), 10**log_delta, response(local_epsilon)
    least, most = bit_epsilon(bit, reports, delta)
    if most == math.inf:
        assert reports * bit.low < 100
        return
    assert most <= least * 1.002 or most < 0.3 * bit.deviation(reports)  # delta hardly falls there
    if most >= bit.top:
        return
    rng = np.random.default_rng(seed)
    ends = [0, 1, 2, reports - 3, reports - 2, reports - 1]
    for ones in {*ends, *rng.integers(0, reports, 8).tolist()}:
        if 0 <= ones < reports:
            assert listed_delta(bit, ones, reports, most) <= delta * (1 + 1e-9)


@given(bits, st.integers(40, 3000), st.floats(0.01, 0.99), st.data())
@examples(120)
def test_bound_of_a_block_holds_of_all_in_it(bit, reports, share, data):
    """And it is sharp where the block is short."""
    releases = Releases.of([(bit, reports)])
    epsilon = share * bit.top
    counts = releases.counts(np.array([0]), np.array([epsilon]))
    least = data.draw(st.integers(0, reports - 1))
    most = data.draw(st.integers(least, min(reports - 1, least + reports // 4)))
    bound = counts.log_bounds(np.array([[least]]), np.array([[most]]))[0, 0]
    some = np.unique(np.linspace(least, most, 40).astype(int)).astype(float)[None, :]
    found = counts.log_deltas(some, upper=False).max()
    assert bound >= found
    if least == most and found > -30.0 and counts.spread[0, 0] > 100.0:
        assert bound <= found + 0.05


def test_a_block_is_higher_in_its_middle_than_at_its_ends():
    """Where it bends upwards: a chord alone would be too low."""
    counts = Releases.of([(response(6.78), 1210)]).counts(np.array([0]), np.array([0.2916]))
    least, middle, most = (np.array([[m]]) for m in (300.0, 1090.0, 1209.0))
    ends = max(counts.log_bounds(m, m)[0, 0] for m in (least, most))
    assert ends + 0.005 < counts.log_bounds(middle, middle)[0, 0]
    assert counts.log_bounds(middle, middle)[0, 0] <= counts.log_bounds(least, most)[0, 0]


def test_many_at_once_are_those_alone():
    budgets = np.linspace(0.2, 7.0, 40)
    bits_of = [response(budget) for budget in budgets]
    _, most = epsilon_bounds(Releases.of([(b, 10**5) for b in bits_of]), np.full(40, 1e-7))
    alone = [bit_epsilon(b, 10**5, 1e-7)[1] for b in bits_of]
    assert most == pytest.approx(alone, rel=1e-8)
    found = shuffle_epsilons(budgets, 10**5, 1e-7, randomizer=lambda e: KRandomizedResponse(2, e))
    assert found == pytest.approx(alone, rel=1e-6)


@pytest.mark.parametrize(("reports", "epsilon", "delta", "allowed"), GOLDEN_TARGETS)
def test_local_epsilon_that_a_target_allows(reports, epsilon, delta, allowed):
    found = local_epsilon_for(epsilon, delta, reports, lambda e: KRandomizedResponse(2, e))
    assert allowed * (1 - 5e-4) <= found <= allowed * (1 + 1e-4)


def test_delta_falls_and_is_nothing_at_the_largest_loss():
    bit = response(3.0)
    epsilons = np.array([0.0, 1e-4, 0.01, 0.5, 2.9, 2.999999, 3.0, 4.0])
    logs = bit_log_deltas(bit, 300, epsilons)
    assert np.all(logs[1:] <= logs[:-1])
    assert logs[-2:].tolist() == [-math.inf, -math.inf]
    exact = [all_deltas(bit, 300, e).max() for e in (0.0, 1e-4)]
    assert np.all(np.exp(logs[:2]) >= np.array(exact)) and np.exp(logs[0]) <= exact[0] * 1.006


@pytest.mark.parametrize(
    ("local_epsilon", "reports", "losses"),
    [(5.0, 400, (0.05, 0.222, 0.393, 1.08)), (6.0, 1000, (0.05, 0.876))],
)
def test_worst_data_sets_far_from_either_end_are_not_missed(local_epsilon, reports, losses):
    """A block that is accepted too early hides them: the numbers that are looked at first cost up
    to 5 % less."""
    bit = response(local_epsilon)
    found = np.exp(bit_log_deltas(bit, reports, np.array(losses)))
    exact = np.array([all_deltas(bit, reports, loss).max() for loss in losses])
    assert np.all(found >= exact) and np.all(found <= exact * 1.002)


def test_a_search_that_is_too_long_keeps_the_other_price_and_says_so(monkeypatch):
    mechanism = KRandomizedResponse(2, 5.0)
    monkeypatch.setattr(bit_counts, "_MOST_BLOCKS", 0)
    monkeypatch.setattr(bit_counts, "_FEW", 0)
    monkeypatch.setattr(bit_counts, "_EDGES", np.array([0.0, 1.0]))
    bit_epsilon.cache_clear()
    bound = shuffle_epsilon(mechanism, 20_000, 1e-6)
    bit_epsilon.cache_clear()
    assert bound.method == (
        "own blanket of KRandomizedResponse; of all data sets the search was too long"
    )
    assert 0 < bound.lower < bound < 5.0


# Which mechanisms it is for --------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [
        KRandomizedResponse(2, 2.0),
        LInfMean(1, 2.0),
        L1Mean(1, 2.0),
        BinaryVectorMean(1, 2.0),
        ScalarMean(1, 2.0, cells=1),
        BinaryHadamard(2, 2.0),
    ],
)
def test_one_bit_is_priced_over_all_data_sets(mechanism):
    bound = shuffle_epsilon(mechanism, 1000, 1e-6)
    assert bound == pytest.approx(0.323323545, rel=1e-3) and bound >= 0.32332
    assert bound.method == _METHOD
    assert shuffle_epsilon(shuffled_event(mechanism, 1000).local_event, 1000, 1e-6) == bound


@pytest.mark.parametrize(
    "mechanism",
    [
        KRandomizedResponse(3, 2.0),
        BinaryHadamard(4, 2.0),
        LInfMean(2, 2.0),
        ScalarMean(1, 2.0, cells=2),
    ],
)
def test_more_than_a_bit_is_not(mechanism):
    """A message about a place that is drawn is no bit: what others hold at other places counts."""
    assert "all data sets" not in shuffle_epsilon(mechanism, 1000, 1e-6).method
    assert not mechanism.sends_bits


def test_a_pair_of_two_ratios_is_not_taken_for_a_bit():
    """Vectors whose reports lie in half spaces have one too, and a third value between."""
    event = LocalRandomizerDpEvent(2.0, ShufflePair.two_level(math.exp(2.0), 0.5, 0.0, "halves"))
    assert event.bit is None
    assert "all data sets" not in shuffle_epsilon(event, 1000, 1e-6).method


def test_events_say_so_only_where_it_is_known():
    known, unknown = (shuffled_event(KRandomizedResponse(k, 2.0), 1000) for k in (2, 3))
    assert event_to_json(known)["event"]["local_event"]["outputs"] == 2
    assert "outputs" not in event_to_json(unknown)["event"]["local_event"]
    assert event_from_json(event_to_json(known)) == known
    with pytest.raises(ValueError, match="outputs must be 0 where the pair has 3 reports"):
        LocalRandomizerDpEvent(2.0, unknown.local_event.pair, outputs=2)
    with pytest.raises(ValueError, match="outputs must be 2"):
        LocalRandomizerDpEvent(2.0, known.local_event.pair, outputs=3)
