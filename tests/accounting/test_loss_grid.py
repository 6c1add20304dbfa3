"""Compositions on a grid, against sums that can be written down."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting.divergences.loss_grid import LossGrid

pytestmark = pytest.mark.exact


def response(epsilon: float, parts: int = 10) -> LossGrid:
    """Randomized response on a grid of so many steps up to its only loss."""
    truth = 1 / (1 + math.exp(-epsilon))
    mass = np.zeros(2 * parts + 1)
    mass[[0, -1]] = 1 - truth, truth
    return LossGrid(epsilon / parts, -parts, mass)


def exact_delta(epsilon: float, count: int, total: float) -> float:
    heads = np.arange(count + 1)
    mass = stats.binom.pmf(heads, count, 1 / (1 + math.exp(-epsilon)))
    return float(mass @ -np.expm1(np.minimum(total - (2 * heads - count) * epsilon, 0.0)))


@pytest.mark.parametrize(("epsilon", "count"), [(0.3, 100), (0.05, 1000), (2.0, 3), (0.01, 40_000)])
def test_powers_are_binomial_sums(epsilon, count):
    grid = response(epsilon).repeated(count)
    deviation = math.sqrt(count) * epsilon
    for deviations in (0.5, 2.0, 4.0, 6.0):
        total = count * epsilon * math.tanh(epsilon / 2) + deviations * deviation
        exact = exact_delta(epsilon, count, total)
        found = float(grid.deltas(np.array([total]))[0])
        assert abs(found - grid.beyond - exact) <= grid.rounding
        if exact > 1e3 * grid.rounding:
            assert grid.epsilon(exact) == pytest.approx(total, rel=1e-4)


def test_what_is_allowed_for_rounding_is_little():
    grid = response(0.01).repeated(40_000)
    assert 0 < grid.rounding < 1e-11 and grid.beyond < 1e-20
    assert response(1.0).repeated(1).rounding == 0.0


def test_the_window_holds_all_mass_and_little_else():
    grid = response(0.05).repeated(1000)
    assert grid.mass.sum() == pytest.approx(1.0, abs=1e-12)
    assert len(grid.mass) < 30 * 10 * math.sqrt(1000)


def test_composing_is_adding():
    one, two = response(0.4), LossGrid(0.04, -5, np.full(11, 1 / 11), 1e-9)
    both = one.composed(two)
    assert both.lowest == -15 and both.mass.sum() == pytest.approx(1.0)
    assert both.beyond == pytest.approx(1e-9)
    with pytest.raises(ValueError, match="same step"):
        one.composed(response(0.5))


def test_epsilons_undo_deltas():
    grid = response(0.2).repeated(50)
    for delta in (1e-9, 1e-4, 0.1):
        epsilon = grid.epsilon(delta)
        assert grid.deltas(np.array([epsilon]))[0] == pytest.approx(delta, rel=1e-6)
    assert grid.epsilon(1.0) == 0.0
    assert LossGrid(0.1, -1, np.array([0.5, 0.0, 0.4]), 0.1).epsilon(0.05) == math.inf


def test_losses_without_bound_are_kept():
    grid = LossGrid(0.1, -1, np.array([0.45, 0.0, 0.549]), 0.001)
    assert grid.repeated(7).beyond == pytest.approx(1 - 0.999**7, rel=1e-9)
    assert grid.deltas(np.array([50.0]))[0] == 0.001
