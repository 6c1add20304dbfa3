"""Crowds of several budgets, and reports private but for a delta: every small case enumerated."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShufflePair,
    SubsampledShuffledDpEvent,
    event_epsilon,
    shuffle_epsilon,
)
from beam_ldp.accounting.certificates import certified
from beam_ldp.accounting.divergences.hockey_stick import hockey_stick
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.reports import with_crowd
from beam_ldp.accounting.shuffle.heterogeneous import (
    approximate_shuffle_delta,
    approximate_shuffle_epsilon,
    binomial_below,
    gaussian_shuffle_epsilon,
    mixed_shuffled_event,
)
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    HadamardResponse,
    KRandomizedResponse,
    LocalHashing,
    SubsetSelection,
)
from tests.accounting.brute_force import channel_pairs, mixed_pairs

pytestmark = pytest.mark.exact

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("domain", "budgets"),
    [
        (2, (0.5, 2.0)),
        (2, (0.5, 0.5, 2.0)),
        (2, (0.3, 1.0, 1.0, 3.0, 3.0)),
        (3, (0.5, 2.0, 2.0)),
        (3, (0.2, 1.0, 1.0, 4.0)),
    ],
)
def test_no_data_set_of_people_with_several_budgets_costs_more(domain, budgets):
    people = [KRandomizedResponse(domain, budget) for budget in budgets]
    kinds = {budget: budgets.count(budget) for budget in budgets}
    event = mixed_shuffled_event([(KRandomizedResponse(domain, b), n) for b, n in kinds.items()])
    assert event.num_reports <= len(budgets) and event.local_epsilon == max(budgets)
    pairs = mixed_pairs([person.channel().T for person in people])
    pair = event.local_event.dominating_pair()
    charged = [
        max(hockey_stick(side, event.num_reports, e).upper for side in (pair, pair.swapped()))
        for e in EPSILONS
    ]
    worst = pairs.sticks(EPSILONS)
    assert np.all(worst <= np.array(charged) * (1 + 1e-9))
    assert worst[1] > 0.4 * charged[1], "the bound is not idle"
    accountant = ShuffleAccountant().compose(event)
    assert np.all(worst <= [accountant.get_delta(e) + 1e-12 for e in EPSILONS])
    if len(budgets) == 3:  # twice about the same people, and by Renyi orders
        twice = ShuffleAccountant().compose(event, 2)
        again = pairs.times(pairs).sticks(EPSILONS)
        assert np.all(again <= [twice.get_delta(e) + 1e-12 for e in EPSILONS])
        orders = [2.0, 7.0, 30.0]
        by_orders = ShuffleAccountant(orders, adaptive=True).compose(event).divergences()
        assert np.all(pairs.renyi(orders) <= by_orders + 1e-12)


def test_the_crowd_of_the_mean_mass_would_cost_too_little():
    """Prices are not convex in the number of draws: two sure ones are worse than four at a half."""
    kinds = [KRandomizedResponse(2, budget) for budget in (8.0, 8.0, 8.0, 1e-3, 1e-3)]
    masses = [kind.dominating_pair().blanket_mass for kind in kinds[1:]]
    table = kinds[0].dominating_pair()
    mean = ShufflePair(sum(masses) / 4, table.ratios, table.probabilities, mixed=4)
    worst = mixed_pairs([kind.channel().T for kind in kinds]).sticks([0.0])[0]
    assert hockey_stick(mean, 5, 0.0).upper < 0.99 * worst


def test_a_binomial_law_below():
    rng = np.random.default_rng(5)
    for _ in range(40):
        kinds = [(float(rng.uniform(0.01, 0.99)), int(rng.integers(1, 6))) for _ in range(3)]
        law = np.array([1.0])
        for mass, count in kinds:
            law = np.convolve(law, stats.binom.pmf(np.arange(count + 1), count, mass))
        mass, trials = binomial_below(kinds)
        assert 0 <= trials <= len(law) - 1
        below = stats.binom.sf(np.arange(len(law)) - 1, trials, mass)
        assert np.all(below <= np.cumsum(law[::-1])[::-1] + 1e-12)
    assert binomial_below([(0.3, 10)]) == (pytest.approx(0.3), 10)


def test_the_price_of_a_crowd_lies_between_those_of_one_budget():
    few, many = KRandomizedResponse(10, 1.0), KRandomizedResponse(10, 4.0)
    event = mixed_shuffled_event([(few, 60_000), (many, 40_000)])
    bound = event_epsilon(event, 1e-6)
    alone, alike = (shuffle_epsilon(many, n, 1e-6) for n in (40_000, 100_000))
    assert bound == pytest.approx(0.0566, abs=1e-4) and bound < alike < alone
    assert bound.proof_status == "proved" and bound.method.endswith("several budgets")
    same = mixed_shuffled_event([(many, 40_000), (many, 60_000)])
    assert same.num_reports == 100_000
    assert event_epsilon(same, 1e-6) == pytest.approx(alike, rel=1e-6)
    faked = mixed_shuffled_event([(few, 60_000), (many, 40_000)], num_fakes=60_000)
    assert event_epsilon(faked, 1e-6) == pytest.approx(alone, rel=1e-4)
    assert event_from_json(event_to_json(event)) == event
    stated = {"epsilon": float(bound), "delta": 1e-6, "proof_status": "proved"}
    certificate = certified({**stated, "event": event_to_json(event)})["certificate"]
    assert certificate["kind"] == "shuffle"
    composed = ShuffleAccountant().compose(event, 10).get_epsilon(1e-6)
    assert bound < composed < 10 * bound


@pytest.mark.parametrize("make", [KRandomizedResponse, BinaryHadamard, HadamardResponse])
def test_mechanisms_of_two_budgets_have_one_blanket(make):
    """And the smaller budget's is a mixture of the larger one's and the blanket, so no worse."""
    blocks = {"num_blocks": 2} if make is HadamardResponse else {}
    small, large = (make(5, budget, **blocks).channel() for budget in (0.5, 2.0))
    for table in (small, large):
        blanket = table.min(axis=1)
        np.testing.assert_allclose(blanket, blanket[0])
    share = (small - 1 / len(small)) / (large - 1 / len(large))
    np.testing.assert_allclose(share, share[0, 0], rtol=1e-9)
    assert 0 < share[0, 0] < 1
    mixed_shuffled_event([(make(5, budget, **blocks), 10) for budget in (0.5, 2.0)])


def test_what_has_no_common_blanket_is_refused_by_name():
    one = KRandomizedResponse(5, 1.0)
    for kinds, message in (
        ([(one, 5), (KRandomizedResponse(6, 1.0), 5)], "one class, domain and alphabet"),
        ([(one, 5), (BinaryHadamard(5, 2.0), 5)], "one class, domain and alphabet"),
        ([(BinaryHadamard(n, 1.0), 5) for n in (5, 6)], "one class, domain and alphabet"),
        ([(HadamardResponse(50, 1.0), 5), (HadamardResponse(50, 4.0), 5)], "one class, domain"),
        ([(SubsetSelection(5, 1.0), 5)], "SubsetSelection of different budgets has no blanket"),
        ([(LocalHashing(5, 1.0), 5)], "LocalHashing of different budgets has no blanket"),
        ([(BinaryHadamard(5, 1.0, row="public"), 5)], "without a public row"),
        ([(one, 0)], "count must be"),
    ):
        with pytest.raises(ValueError, match=message):
            mixed_shuffled_event(kinds)
    with pytest.raises(ValueError, match="num_fakes must be below"):
        mixed_shuffled_event([(one, 5), (KRandomizedResponse(5, 2.0), 5)], num_fakes=10)
    alone = mixed_shuffled_event([(one, 5), (KRandomizedResponse(5, 2.0), 5)], num_fakes=9)
    assert event_epsilon(alone, 1e-6) == pytest.approx(2.0, rel=1e-5) and alone.num_reports == 1
    event = mixed_shuffled_event([(one, 50), (KRandomizedResponse(5, 2.0), 50)])
    with pytest.raises(ValueError, match="a crowd of several budgets"):
        SubsampledShuffledDpEvent(event.local_event, 100, 10)
    for more in (
        lambda: event.local_event.shuffled(event.num_reports + 1),
        lambda: with_crowd(event, 101),
        lambda: ShuffledDpEvent(event.local_event, 50, 1),
    ):
        with pytest.raises(ValueError, match="follow from its people"):
            more()
    with pytest.raises(ValueError, match="GaussianDpEvent .*heterogeneous"):
        ShuffledDpEvent(dp_accounting.GaussianDpEvent(1.0), 100)


# Private but for a delta -----------------------------------------------------------------------


def approximate_channel(rng, epsilon, share):
    """Rows of some randomizer of three values and reports, and its delta at `epsilon`."""
    rows = np.exp(rng.uniform(0.0, epsilon, (3, 3)))
    rows /= rows.sum(axis=1, keepdims=True)
    rows = (1 - share) * rows + share * np.eye(3)[rng.permutation(3)]
    delta = max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in
                itertools.permutations(rows, 2))  # fmt: skip
    return rows, float(delta)


@pytest.mark.parametrize("epsilon", [0.5, 1.5])
@pytest.mark.parametrize("people", [1, 2, 4])
def test_no_randomizer_that_is_private_but_for_a_delta_costs_more(people, epsilon):
    rng, exceeded = np.random.default_rng(people), 0
    losses = (0.0, 0.3, 0.99 * epsilon, epsilon, 2 * epsilon)
    for share in (0.01, 0.1, 0.4):
        for _ in range(8):
            rows, delta = approximate_channel(rng, epsilon, share)
            worst = channel_pairs(rows, people).sticks(losses)
            for loss, found in zip(losses, worst):
                charged = approximate_shuffle_delta(epsilon, delta, people, loss)
                assert found <= charged * (1 + 1e-9)
                pure = approximate_shuffle_delta(epsilon, 0.0, people, loss)
                exceeded += found > pure * (1 + 1e-9)
    assert exceeded > 5, "what delta adds is needed"


def test_approximate_prices():
    pure = shuffle_epsilon(2.0, 10_000, 1e-6)
    assert approximate_shuffle_epsilon(2.0, 0.0, 10_000, 1e-6) == pytest.approx(pure, rel=1e-6)
    bound = approximate_shuffle_epsilon(2.0, 1e-11, 10_000, 1e-6)
    assert pure < bound < 1.02 * pure
    assert approximate_shuffle_delta(2.0, 1e-11, 10_000, float(bound)) <= 1e-6 * (1 + 1e-9)
    assert approximate_shuffle_epsilon(2.0, 1e-7, 10_000, 1e-6) == 2.0, "too large to amplify"
    assert approximate_shuffle_epsilon(2.0, 1e-5, 10_000, 1e-6) == math.inf
    for wrong in ((0.0, 0.0), (31.0, 0.0), (1.0, 1.0)):
        with pytest.raises(ValueError, match="local_"):
            approximate_shuffle_delta(*wrong, 10, 0.1)


def test_gaussian_reports():
    """Two and three people, integrated: the smallest crowd that hides anybody at all."""
    assert gaussian_shuffle_epsilon(2.0, 10**6, 1e-6) == pytest.approx(0.2095, abs=1e-3)
    assert gaussian_shuffle_epsilon(1.0, 100, 1e-6).method.startswith("local epsilon and delta")
    assert gaussian_shuffle_epsilon(4.0, 10, 0.0) == math.inf
    several = [
        gaussian_shuffle_epsilon(z, n, 1e-6) for z, n in ((4, 10**4), (8, 10**4), (8, 10**6))
    ]
    assert several == sorted(several, reverse=True)
    sum_alone = ShuffleAccountant().compose(dp_accounting.GaussianDpEvent(8.0 * 1e3))
    assert several[2] > sum_alone.get_epsilon(1e-6).lower, "whoever reads the sum only"
    y = np.arange(-7.0, 7.0, 0.1)
    one, other = (stats.norm.pdf(y - m) for m in (0.25, -0.25))  # noise of 4 lengths
    for rest in (one, other, stats.norm.pdf(y)):
        first, second = (np.multiply.outer(v, rest) for v in (one, other))
        first, second = (t + t.T for t in (first, second))  # whose is whose is not seen
        delta = np.maximum(first - math.exp(0.3) * second, 0).sum() / 2 * 0.01
        assert gaussian_shuffle_epsilon(4.0, 2, float(delta)) >= 0.3
    assert LocalRandomizerDpEvent(1.0).dominating_pair().mixed == 0
