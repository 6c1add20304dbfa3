"""Composition by privacy-loss distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting.divergences.loss_grid import (
    connected_losses,
    hockey_sticks,
    loss_spread,
    lower_epsilon,
)
from beam_ldp.accounting.divergences.moments import (
    Atoms,
    default_orders,
    log_moment,
    rdp_to_epsilon,
)
from beam_ldp.accounting.lower import class_lower_epsilon, two_response_atoms
from tests.accounting.rdp_curves import direct_atoms

pytestmark = pytest.mark.exact


def composed_epsilon(atoms: Atoms, count: int, delta: float) -> float:
    one = connected_losses(atoms, loss_spread(atoms) / 40)
    return one.repeated(count).epsilon(delta)


def randomized_response(epsilon: float) -> Atoms:
    truth = 1 / (1 + math.exp(-epsilon))
    base = np.log([0.5, 0.5])
    return Atoms(base, 2 * np.array([truth, 1 - truth]), 2 * np.array([1 - truth, truth]))


@pytest.mark.parametrize(
    ("n", "k", "epsilon", "delta", "rounds", "clones", "strong"),
    [
        (10**6, 10**3, 2.0, 1e-8, 10**5, 0.196, 0.146),
        (60000, 10**4, 1.5, 1e-5, 1200, 0.550, 0.421),
        (60000, 2000, 2.0, 1e-5, 6000, 0.882, 0.647),
        (60000, 10**4, 2.0, 1e-5, 480, 0.535, 0.393),
    ],
)
def test_training_runs(n, k, epsilon, delta, rounds, clones, strong):
    atoms = direct_atoms(epsilon, n, k, tilt=30)
    assert composed_epsilon(atoms, rounds, delta) == pytest.approx(clones, abs=6e-4)
    tighter = direct_atoms(epsilon, n, k, 30, 2 / (math.exp(epsilon) + 1))
    assert composed_epsilon(tighter, rounds, delta) == pytest.approx(strong, abs=6e-4)


def test_never_below_the_truth_and_close_to_it():
    """Randomized response composed by enumeration."""
    epsilon, count, delta = 0.3, 12, 1e-3
    composed = composed_epsilon(randomized_response(epsilon), count, delta)
    truth = 1 / (1 + math.exp(-epsilon))

    def hockey(total: float) -> float:
        excess = 0.0
        for heads in range(count + 1):
            ways = math.comb(count, heads)
            p = ways * truth**heads * (1 - truth) ** (count - heads)
            q = ways * truth ** (count - heads) * (1 - truth) ** heads
            excess += max(p - math.exp(total) * q, 0.0)
        return excess

    assert hockey(composed) <= delta
    assert hockey(composed * 0.97) > delta
    below = lower_epsilon([(count, randomized_response(epsilon))], delta)
    assert hockey(below) >= delta * (1 - 1e-9)
    assert below > 0.9 * composed


@pytest.mark.parametrize("count", [1, 30, 3000])
def test_pooling_certifies_from_below_and_is_close(count):
    """Both sides of one concrete pair: everything lies between them."""
    atoms = two_response_atoms(1.0, 5000, 0.3)
    below = lower_epsilon([(count, atoms)], 1e-6)
    above = composed_epsilon(atoms, count, 1e-6)
    assert 0.997 * above < below < above


def test_lower_bound_of_the_class_takes_three_responses_where_they_are_worse():
    two = lower_epsilon([(5, two_response_atoms(3.0, 1000))], 1e-6)
    assert class_lower_epsilon(3.0, 1000, 1.0, 5, 1e-6) > 1.05 * two


def test_one_release_is_its_hockey_stick():
    atoms = direct_atoms(1.0, 300, 300, tilt=60)
    epsilon = composed_epsilon(atoms, 1, 1e-4)
    sticks = hockey_sticks(atoms, np.array([epsilon * 0.98, epsilon * 1.001]))
    assert sticks[0] > 1e-4 >= sticks[1]


def test_renyi_orders_are_never_tighter():
    rounds, delta = 1000, 1e-6
    atoms = direct_atoms(1.0, 10**5, 1000, tilt=600)
    orders = default_orders(60)
    curve = [rounds * atoms.renyi(a) for a in orders]
    by_rdp, _ = rdp_to_epsilon(orders, curve, delta)
    by_loss = composed_epsilon(atoms, rounds, delta)
    assert 0.8 * by_rdp < by_loss < by_rdp


def test_moments_refuse_powers_between_zero_and_one():
    with pytest.raises(ValueError, match="power must be"):
        log_moment(np.log([1.0]), np.array([0.0]), 0.5)


def test_huge_exponents_are_summed_in_logarithms():
    """Clipping at e^700 would be a silent error."""
    atoms = randomized_response(5.0)
    order = 400.0
    truth = 1 / (1 + math.exp(-5.0))
    exact = (order * math.log(truth) + (1 - order) * math.log(1 - truth)) / (order - 1)
    assert atoms.renyi(order) == pytest.approx(exact, rel=1e-12)
