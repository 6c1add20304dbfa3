"""Compositions on a grid, against sums that can be written down."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting.divergences.loss_grid import LossGrid, together
from tests.accounting.loss_laws import response

pytestmark = pytest.mark.exact


def test_upper_bounds_are_exact_sums_and_no_less():
    """Digits far into the tail: see `test_convolution`."""
    grid = response(2.0).repeated(3)
    assert grid.mass.sum() == pytest.approx(1.0, abs=1e-11)
    truth = 1 / (1 + math.exp(-2.0))
    assert grid.mass[-1] == pytest.approx(truth**3, rel=1e-11) and grid.mass[-1] >= truth**3


def test_the_window_holds_all_mass_and_little_else():
    grid = response(0.05).repeated(1000)
    assert grid.mass.sum() == pytest.approx(1.0, abs=1e-7)
    assert grid.beyond < 1e-60
    assert len(grid.mass) < 35 * 10 * math.sqrt(1000)


def test_composing_is_adding():
    one, two = response(0.4), LossGrid(0.04, -5, np.full(11, 1 / 11), 1e-9)
    both = together([(one, 1), (two, 1)])
    assert both.lowest == -15 and both.mass.sum() == pytest.approx(1.0)
    assert both.beyond == pytest.approx(1e-9)
    with pytest.raises(ValueError, match="same step"):
        together([(one, 1), (response(0.5), 1)])


def test_epsilons_undo_deltas():
    grid = response(0.2).repeated(50)
    for delta in (1e-9, 1e-4, 0.1):
        epsilon = grid.epsilon(delta)
        assert grid.deltas(np.array([epsilon]))[0] == pytest.approx(delta, rel=1e-6)
    assert grid.epsilon(1.0) == 0.0
    assert LossGrid(0.1, -1, np.array([0.5, 0.0, 0.4]), 0.1).epsilon(0.05) == math.inf


def test_losses_without_bound_are_kept():
    grid = LossGrid(0.1, -1, np.array([0.45, 0.0, 0.549]), 0.001)
    assert grid.repeated(7).beyond == pytest.approx(1 - 0.999**7, rel=2e-9)
    assert grid.deltas(np.array([50.0]))[0] == 0.001


@pytest.mark.parametrize("scale", [1e-18, 1e-9, 1.0, 30.0])
def test_sticks_of_tiny_and_of_large_losses_keep_their_digits(scale):
    """A loss of 1e-18 is no ratio that a double holds: its stick is no difference of two sums."""
    grid = response(scale)
    truth = grid.mass[-1]
    for share in (0.0, 0.25, 0.999):
        exact = truth * -math.expm1(-(1 - share) * scale)
        found = float(grid.deltas(np.array([share * scale]))[0])
        assert exact * (1 - 1e-12) <= found <= exact * (1 + 1e-8)
        if share and exact < 0.9:  # next to one it says nothing of epsilon
            assert grid.epsilon(exact) == pytest.approx(share * scale, rel=1e-6)


def test_lower_bounds_round_down_and_leave_out_what_is_unbounded():
    up = LossGrid(0.1, -1, np.array([0.45, 0.0, 0.549]), 0.001)
    down = LossGrid(0.1, -1, up.mass, 0.001, upward=False)
    assert down.repeated(50).beyond == 0.0
    middle = np.array([0.5])
    both = [grid.repeated(50).deltas(middle)[0] for grid in (down, up)]
    assert both[0] + 0.04 < both[1] < both[0] + 0.06
    lost = LossGrid(0.1, -1, np.zeros(3), upward=False)
    assert together([(down, 3), (lost, 1)]).epsilon(1e-9) == 0.0
