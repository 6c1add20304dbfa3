"""Optimal budgets: against brute force and against the constants of the theory."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import optimize

from beam_ldp.randomizers.mean import allocation

pytestmark = pytest.mark.exact


def worst(num_coordinates, messages, epsilons):
    weights = allocation.level_weights(len(messages)) ** 2
    sizes = [allocation.squared_block_sizes(num_coordinates, s) for s in messages]
    noise = weights * sizes @ allocation.bit_cost(np.array(epsilons))
    return noise - num_coordinates / 4 * weights[:-1].sum()


def test_best_message_epsilon():
    best = allocation.BEST_MESSAGE_EPSILON
    assert math.sinh(best) == pytest.approx(2 * best, rel=1e-12)
    # 0.858 d^2/(n eps0): the constant of the continuous optimum.
    assert allocation.bit_cost(best) * best == pytest.approx(0.858, abs=5e-4)
    assert allocation.best_local(1000, 100.0, max_levels=1)[0] == (46,)


def test_level_constants():
    """C1(m) = 1, .5, .375, .344 -> 1/3 and K(m) = 1, 2, 2.886, 3.559, 4.033, 4.353 -> 4.934."""
    squares = [allocation.level_weights(m) ** 2 for m in range(1, 7)]
    assert [c.sum() for c in squares[:4]] == pytest.approx([1, 0.5, 0.375, 0.34375])
    k = [(c ** (1 / 3)).sum() ** 3 for c in squares]
    assert k == pytest.approx([1, 2, 2.886, 3.559, 4.033, 4.353], abs=1e-3)
    assert (allocation.level_weights(40) ** (2 / 3)).sum() ** 3 == pytest.approx(4.934, abs=1e-3)


def test_shuffle_shape_makes_levels_free():
    """Sum c_k/x_k^2 at sum x_k^2 = 1 is exactly 1 for every number of levels."""
    for levels in (1, 2, 5, 9):
        x = allocation.shuffle_shape(levels)
        x /= math.sqrt(x @ x)
        cost = (allocation.level_weights(levels) ** 2 / x**2).sum()
        assert cost == pytest.approx(1.0)
        printed = allocation.level_weights(levels) ** (2 / 3)
        printed /= math.sqrt(printed @ printed)
        assert (allocation.level_weights(levels) ** 2 / printed**2).sum() >= cost - 1e-12


@pytest.mark.parametrize("budget", [0.3, 2.0, 9.0, 40.0])
def test_split_is_the_constrained_minimum(budget):
    rng = np.random.default_rng(0)
    for _ in range(5):
        costs, messages = rng.uniform(0.01, 2, 4), rng.integers(1, 9, 4).astype(float)
        mine = allocation.split_budget(costs, messages, budget)
        assert messages @ mine == pytest.approx(budget, rel=1e-12)

        def cost(logits, costs=costs, messages=messages):
            share = np.exp(logits - logits.max())
            return costs @ allocation.bit_cost(share / (messages @ share) * budget)

        found = optimize.minimize(cost, np.log(mine) + 0.1 * rng.normal(size=4), tol=1e-14)
        assert costs @ allocation.bit_cost(mine) <= found.fun * (1 + 1e-9)


@pytest.mark.parametrize(("d", "budget"), [(1, 5.0), (2, 4.0), (3, 10.0), (5, 8.0)])
def test_no_small_allocation_is_better(d, budget):
    messages, epsilons = allocation.best_local(d, budget)
    mine = worst(d, messages, epsilons)
    for levels in (1, 2, 3):
        weights = allocation.level_weights(levels) ** 2
        for tried in itertools.product(range(1, d + 1), repeat=levels):
            sizes = np.array([allocation.squared_block_sizes(d, s) for s in tried])
            split = allocation.split_budget(weights * sizes, np.array(tried, float), budget)
            assert mine <= worst(d, tried, split) * 1.002


@pytest.mark.parametrize("d", [1, 3, 100, 10_000])
@pytest.mark.parametrize("budget", [1e-3, 0.5, 2.5, 30.0])
def test_budget_is_never_exceeded(d, budget):
    for plan in (allocation.best_local, allocation.printed_local):
        messages, epsilons = plan(d, budget)
        total = math.fsum(s * e for s, e in zip(messages, epsilons))
        assert total <= budget
        assert plan is allocation.printed_local or total >= budget * (1 - 1e-12)


def test_rotation_hides_digits_and_makes_levels_useless_until_every_coordinate_is_reached():
    assert len(allocation.best_local(64, 20.0)[0]) > 1
    assert len(allocation.best_local(64, 20.0, rotated=True)[0]) == 1
    assert len(allocation.best_local(2, 20.0, rotated=True)[0]) > 1


def test_printed_choice():
    messages, epsilons = allocation.printed_local(10, 2.5, 3)
    assert messages == (3, 3, 3)
    share = np.array([4 ** (-1 / 3), 4 ** (-2 / 3), 4 ** (-2 / 3)])
    parameters = 2.5 * share / share.sum() / 3
    assert epsilons == pytest.approx(2 * np.arcsinh(parameters / 2))
    assert allocation.printed_local(2, 9.0)[0] == (2,)


def test_levels_of_the_shuffle_model_follow_base_four():
    levels = [allocation.shuffle_levels(1, n, 0.2) for n in (10, 10**3, 10**5, 10**7)]
    assert levels[0] < levels[1] < levels[2] < levels[3]
    assert levels[3] - levels[2] in (3, 4)  # log4(100) = 3.3
    assert allocation.shuffle_levels(10**6, 10, 0.2) == 1
    for n in (10**4, 10**6):
        m = allocation.shuffle_levels(7, n, 0.3)
        privacy, rounding = 49 / (n**2 * 0.09), 7 / (n * 4**m)
        assert rounding <= 0.05 * privacy < 4 * rounding
