"""Every data set of a few people against every proved claim: nothing that happens exceeds one."""

from __future__ import annotations

import math
from functools import reduce

import numpy as np
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffleAccountant, ShuffledDpEvent
from beam_ldp.accounting.lower import class_lower_epsilon
from beam_ldp.research.published import renyi
from tests.accounting import rdp_curves
from tests.accounting.brute_force import (
    Pairs,
    channel_pairs,
    crowd_law,
    response,
    response_rows,
    sampled_law,
    shuffled_law,
    two_level_law,
    two_level_pairs,
)
from tests.accounting.proof.claims import ORDERS, Setting, claimed, refuted

pytestmark = pytest.mark.exact

BUDGETS = (0.1, 1.0, 3.0)
# Clients, points of each, clients drawn, points sent by a drawn one.
TWO_LEVEL = [(3, 2, 2, 1), (3, 2, 1, 1), (2, 3, 2, 1), (2, 3, 1, 2), (3, 3, 2, 2), (2, 3, 2, 2)]


def releases() -> list[tuple[int, int]]:
    """Up to six people, of whom few, nearly all or all report."""
    return [(n, k) for n in range(1, 7) for k in range(1, n + 1) if k in (1, 2, n - 1, n)]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("values", [2, 3, 4])
def test_randomized_response(values, budget):
    """All reports of up to six people, and those of every random part of them."""
    rows = response_rows(values, budget)
    for n, k in releases():
        assert refuted(channel_pairs(rows, n, k), Setting(budget, n, k)) == {}, (n, k)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("shape", TWO_LEVEL)
def test_clients_with_several_points(budget, shape):
    clients, points, drawn, sent = shape
    for values in (2, 3):
        pairs = two_level_pairs(response_rows(values, budget), clients, points, drawn, sent)
        assert refuted(pairs, Setting(budget, clients, drawn, points, sent)) == {}


def test_claims_are_made_where_they_should_be():
    """An empty list of claims would agree with everything."""
    whole, part, two = Setting(1.0, 4, 4), Setting(1.0, 4, 2), Setting(1.0, 2, 1, 3, 2)
    both = {"local epsilon", "curve of the event", "dots of the event", "accountant"}
    everywhere = both | {"clone pair", "direct pair", "Theorem 5.4.1"}
    for setting, names in ((whole, everywhere), (part, everywhere), (two, both)):
        for name in names:
            found = claimed(name, setting)
            assert found is not None and np.isfinite(found).sum() >= 5, (name, setting)
    for name in ("clones", "the thesis' reduction, exact", "Theorem 5.3.1", "shuffle_delta"):
        assert claimed(name, whole) is not None and claimed(name, part) is None


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("values", [2, 3])
def test_lower_bounds_are_reached_by_a_dataset(values, budget):
    rows = response_rows(values, budget)
    lower = {2: renyi.two_response_lower, 3: rdp_curves.three_response_lower}[values]
    for n in range(1, 7):
        worst = channel_pairs(rows, n).renyi(ORDERS)
        claim = np.array([lower(order, budget, n) for order in ORDERS])
        assert np.all(claim <= worst * (1 + 1e-9))
        if values == 2:
            assert claim == pytest.approx(worst, rel=1e-9), "exact for binary responses"


@pytest.mark.parametrize("direction", [False, True])
def test_subsampled_lower_bounds_are_reached_by_a_dataset(direction):
    for budget in BUDGETS:
        for n, k in releases():
            worst = channel_pairs(response_rows(2, budget), n, k).renyi(ORDERS)
            claim = [
                renyi.two_response_direction(a, budget, k, k / n, reverse=direction) for a in ORDERS
            ]
            assert np.all(np.array(claim) <= worst * (1 + 1e-9))


@pytest.mark.parametrize(
    ("budget", "n", "rounds", "delta"),
    [(1.0, 3, 2, 1e-2), (0.3, 4, 3, 1e-3), (2.0, 3, 4, 1e-4), (2.0, 1, 5, 1e-3)],
)
def test_compositions(budget, n, rounds, delta):
    """Lower <= exact <= proved for several releases about the same few people."""
    event = ShuffledDpEvent(LocalRandomizerDpEvent(budget), n)
    accountant = ShuffleAccountant().compose(event, rounds)
    bound = accountant.get_epsilon(delta)
    found = {}
    for values in (2, 3):
        once = channel_pairs(response_rows(values, budget), n)
        if len(once.first[0]) ** rounds > 20_000:
            continue
        many = reduce(Pairs.times, [once] * rounds)
        worst = many.renyi(ORDERS)
        assert np.all(worst <= rounds * claimed("curve of the event", Setting(budget, n, n)) + 1e-9)
        assert many.sticks([bound])[0] <= delta * (1 + 1e-9)
        for epsilon in (0.0, 0.2 * bound, 0.8 * bound):
            assert many.sticks([epsilon])[0] <= accountant.get_delta(epsilon) * (1 + 1e-9)
        found[values] = many.sticks([bound.class_lower])[0]
    assert max(found.values()) >= delta * (1 - 1e-6), "class_lower is what some randomizer costs"
    direct = class_lower_epsilon(budget, n, 1.0, rounds, delta)
    assert direct == pytest.approx(bound.class_lower, rel=1e-6)


def test_different_releases_compose():
    one, other = response_rows(2, 1.5), response_rows(2, 0.5)
    pairs = channel_pairs(one, 4).times(channel_pairs(other, 4, 2))
    accountant = ShuffleAccountant().compose(Setting(1.5, 4, 4).event)
    accountant.compose(Setting(0.5, 4, 2).event)
    for delta in (0.2, 0.01, 1e-4):
        epsilon = accountant.get_epsilon(delta)
        assert pairs.sticks([epsilon])[0] <= delta * (1 + 1e-9)
        assert pairs.sticks([0.5 * epsilon])[0] > delta or epsilon < 1e-9


def test_the_judge_counts_as_one_counts_by_hand():
    rows = response_rows(3, 0.8)
    for dataset in ((0,), (0, 1), (2, 0, 2), (1, 1, 0, 2)):
        plain = shuffled_law(response(3, 0.8), dataset)
        law = crowd_law(rows[list(dataset)])
        assert law.sum() == pytest.approx(1.0, abs=1e-14)
        assert sorted(law[law > 0]) == pytest.approx(sorted(plain.values()), rel=1e-12)
    whole = crowd_law(rows[[0, 1, 2]])
    assert sampled_law(rows[[0, 1, 2]], 3) == pytest.approx(whole)
    single = sampled_law(rows[[0, 1]], 1)
    assert single == pytest.approx((crowd_law(rows[[0]]) + crowd_law(rows[[1]])) / 2)
    clients = [rows[[0, 1]], rows[[2, 2]]]
    assert two_level_law(clients, 2, 2) == pytest.approx(crowd_law(rows[[0, 1, 2, 2]]))
    alone = [crowd_law(point[None, :]) for held in clients for point in held]
    assert two_level_law(clients, 1, 1) == pytest.approx(np.mean(alone, axis=0))


def test_the_worst_of_known_pairs():
    one = channel_pairs(response_rows(2, 1.0), 1)
    truth = math.e / (math.e + 1)
    assert one.sticks([0.0, 0.5]) == pytest.approx(
        [2 * truth - 1, truth - math.exp(0.5) * (1 - truth)]
    )
    order = 3.0
    moment = truth**order * (1 - truth) ** (1 - order) + (1 - truth) ** order * truth ** (1 - order)
    assert one.renyi([order]) == pytest.approx([math.log(moment) / 2])
    twice = one.times(one)
    assert twice.renyi([order]) == pytest.approx(2 * one.renyi([order]))
