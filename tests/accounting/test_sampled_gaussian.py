"""Noisy sums over a sample: whole curves by integration, every small data set, and all orders."""

from __future__ import annotations

import itertools
import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from scipy import stats

from beam_ldp.accounting import ShuffleAccountant, central_gaussian
from beam_ldp.accounting.composition.accountant import default_orders
from beam_ldp.accounting.composition.central import canonical, loss_grid
from beam_ldp.accounting.composition.sampled_gaussian import SampledGaussian

pytestmark = pytest.mark.exact

EPSILONS = np.array([0.0, 0.01, 0.3, 2.0])
NOISE = dp_accounting.GaussianDpEvent(1.0)
# Of the paper on protection against reconstruction: 100 rounds of a coin of 0.002, multiplier 1.
COINS = dp_accounting.PoissonSampledDpEvent(0.002, NOISE)
SETS = dp_accounting.SampledWithoutReplacementDpEvent(50_000, 100, NOISE)


def gaussians(mixture, places):
    """Density of a mixture of unit Gaussians, given as (weight, centre) pairs."""
    return sum(w * stats.norm.pdf(places - c) for w, c in mixture)


def pair(noise):
    """The pair whose curve is charged, as mixtures."""
    q, m = noise.rate, noise.shift / 2
    if noise.coins:
        return [(1 - q, 0.0), (q, m)], [(1 - q, 0.0), (q, -m)]
    return [(1 - q, 0.0), (q, 2 * m)], [(1.0, 0.0)]


def hockey_sticks(first, second, cell, epsilons=EPSILONS):
    """Both directions at once: the higher of E[(P - e^eps Q)+], by the midpoints of cells."""
    return np.array(
        [
            max(
                np.maximum(first - math.exp(e) * second, 0).sum(),
                np.maximum(second - math.exp(e) * first, 0).sum(),
            )
            * cell
            for e in epsilons
        ]
    )


@pytest.mark.parametrize("coins", [True, False], ids=["coins", "sets"])
@pytest.mark.parametrize("shift", [0.1, 2.0, 8.0])
@pytest.mark.parametrize("rate", [0.002, 0.5, 1.0])
def test_hockey_sticks_are_those_of_the_pair_by_integration(rate, shift, coins):
    noise = SampledGaussian(rate, shift, coins)
    places = np.arange(-20.0, 30.0, 1e-3)
    found = hockey_sticks(*(gaussians(side, places) for side in pair(noise)), 1e-3)
    np.testing.assert_allclose(noise.sticks(EPSILONS), found, rtol=1e-3, atol=1e-13)
    dense = np.linspace(0.0, 3.0, 200)
    assert np.all(np.diff(noise.sticks(dense)) <= 1e-16)


# Every data set of three people ----------------------------------------------------------------


def mechanism(values, rate, size, m, places):
    """The law of the noisy sum over a sample: every subset, with its chance."""
    n = len(values)
    chosen = (
        [(s, 1 / math.comb(n, size)) for s in itertools.combinations(range(n), size)]
        if size
        else [
            (s, rate ** len(s) * (1 - rate) ** (n - len(s)))
            for k in range(n + 1)
            for s in itertools.combinations(range(n), k)
        ]
    )
    return gaussians([(w, m * sum(values[i] for i in s)) for s, w in chosen], places)


@pytest.mark.parametrize("size", [0, 1, 2], ids=["coins", "one of three", "two of three"])
def test_no_data_set_of_three_people_costs_more_and_one_costs_as_much(size):
    rate, m = (0.4, 0.8) if not size else (size / 3, 0.8)
    noise = SampledGaussian(rate, 2 * m, not size)
    places = np.arange(-12.0, 12.0, 4e-3)
    values = (-1.0, 0.0, 0.5, 1.0)
    law = {
        v: mechanism(v, rate, size, m, places) for v in itertools.product(values, repeat=3)
    }  # symmetric in people: replacing the first is replacing any
    worst = np.zeros(len(EPSILONS))
    for others in itertools.combinations_with_replacement(values, 2):
        for one, other in itertools.combinations(values, 2):
            two = law[(one, *others)], law[(other, *others)]
            worst = np.maximum(worst, hockey_sticks(*two, 4e-3))
    charged = noise.sticks(EPSILONS)
    assert np.all(worst <= charged * (1 + 1e-4))
    np.testing.assert_allclose(worst, charged, rtol=2e-3)


def test_vectors_that_are_not_opposite_cost_less():
    """Two dimensions, on a grid: coins at (0, u, v), sets at (w, u, v)."""
    side, few = np.arange(-7.0, 7.0, 0.05), EPSILONS[:3]
    x, y = np.meshgrid(side, side)

    def law(rate, away, there):
        return sum(
            w * np.exp(-((x - c[0]) ** 2 + (y - c[1]) ** 2) / 2) / (2 * math.pi)
            for w, c in ((1 - rate, away), (rate, there))
        )

    turns = [(math.cos(a), math.sin(a)) for a in np.linspace(0, 2 * math.pi, 9)[:-1]]
    for rate in (0.1, 0.7):
        coins, sets = (SampledGaussian(rate, 2.0, c).sticks(few) for c in (True, False))
        base = turns[0]
        for u, v in itertools.combinations(turns, 2):
            by_coins = hockey_sticks(law(rate, (0, 0), u), law(rate, (0, 0), v), 0.05**2, few)
            by_sets = hockey_sticks(law(rate, base, u), law(rate, base, v), 0.05**2, few)
            opposite = abs(u[0] * v[0] + u[1] * v[1] + 1) < 1e-9
            assert np.all(by_coins <= coins * (1 + 1e-3))
            assert np.all(by_sets <= sets * (1 + 1e-3))
            assert opposite or by_coins[2] < 0.97 * coins[2]


def test_a_limit_on_participations_makes_no_round_dearer():
    """Two rounds, two people who come once at most; the second round goes by what was seen.

    Who has come stays away, which nobody sees: after the first round both worlds know a different
    chance of it. Here both rounds are enumerated, coins and all.
    """
    rate, m, step = 0.5, 1.0, 0.1
    seen = np.arange(-8.0, 8.0, step)
    first, second = seen[:, None], seen[None, :]
    turned = np.where(first > 0, -1.0, 1.0)  # gradients that follow from the first model

    def law(mine, theirs):
        total = np.zeros((len(seen), len(seen)))
        for a, b, c, d in itertools.product((0, 1), repeat=4):  # coins: mine, theirs; twice
            chance = math.prod(rate if coin else 1 - rate for coin in (a, b, c, d))
            again = turned * m * (mine * (c and not a) + theirs * (d and not b))
            density = stats.norm.pdf(first - m * (mine * a + theirs * b))
            total += chance * density * stats.norm.pdf(second - again)
        return total

    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(1 / m))
    charged = [ShuffleAccountant().compose(event, 2).get_delta(e) for e in EPSILONS]
    for theirs in (-1.0, 0.0, 1.0):
        for other in (-1.0, 0.0):
            found = hockey_sticks(law(1.0, theirs), law(other, theirs), step**2)
            assert np.all(found <= np.array(charged) * (1 + 1e-6))
    assert found[1] > 0.2 * charged[1], "the check itself"


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("m", [0.25, 1.0, 2.0])
def test_of_all_chances_of_having_come_the_largest_cost_most(rate, m):
    places = np.arange(-14.0, 14.0, 2e-3)
    charged = SampledGaussian(rate, 2 * m, True).sticks(EPSILONS)
    chances = np.linspace(0.0, rate, 5)
    for a, b in itertools.product(chances, repeat=2):
        first = gaussians([(1 - a, 0.0), (a, m)], places)
        second = gaussians([(1 - b, 0.0), (b, -m)], places)
        found = np.maximum(first - np.exp(EPSILONS)[:, None] * second, 0).sum(axis=1) * 2e-3
        assert np.all(found <= charged * (1 + 1e-4) + 1e-13)


# Renyi orders ----------------------------------------------------------------------------------


def log_moment(first, second, order, cell):
    """log E_Q[(P/Q)^order] from logs of densities at midpoints."""
    exponent = order * first + (1 - order) * second
    top = exponent.max()
    return top + math.log(np.exp(exponent - top).sum() * cell)


def log_gaussians(mixture, places):
    with np.errstate(divide="ignore"):
        return np.logaddexp.reduce([np.log(w) + stats.norm.logpdf(places - c) for w, c in mixture])


@pytest.mark.parametrize("order", [1.5, 4.0, 60.0])
@pytest.mark.parametrize(("rate", "shift"), [(0.05, 0.5), (0.4, 2.0), (0.9, 6.0)])
def test_divergences_of_coins_are_exact_and_those_of_sets_hold(rate, shift, order):
    places = np.arange(-30.0, 30.0 + order * shift, 5e-3)
    orders = np.array([order])
    coins = SampledGaussian(rate, shift, True)
    first, second = (log_gaussians(side, places) for side in pair(coins))
    (found,) = coins.divergences(orders)
    assert found == pytest.approx(log_moment(first, second, order, 5e-3) / (order - 1), rel=1e-6)
    sets = SampledGaussian(rate, shift, False)
    first, second = (log_gaussians(side, places) for side in pair(sets))
    (charged,) = sets.divergences(orders)
    both = [log_moment(*two, order, 5e-3) for two in ((first, second), (second, first))]
    assert max(both) / (order - 1) <= charged * (1 + 1e-9)
    # Somebody else between both values: none of the points costs more than the curve.
    between = log_gaussians([(1 - rate, shift / 2), (rate, 0.0)], places)
    other = log_gaussians([(1 - rate, shift / 2), (rate, shift)], places)
    assert log_moment(between, other, order, 5e-3) / (order - 1) <= charged * (1 + 1e-9)


@pytest.mark.parametrize("coins", [True, False], ids=["coins", "sets"])
@pytest.mark.parametrize("order", [1.2, 2.0, 9.0])
def test_divergences_are_those_of_the_curve(order, coins):
    """a (a - 1) times the integral of (t^(a - 2) + t^(-a - 1)) h(t) over t > 1."""
    noise = SampledGaussian(0.2, 1.5, coins)
    losses = np.arange(0.0, 60.0, 5e-4) + 2.5e-4
    weights = np.exp((order - 1) * losses) + np.exp(-order * losses)
    integral = order * (order - 1) * np.sum(weights * noise.sticks(losses)) * 5e-4
    found = math.log1p(integral) / (order - 1)
    assert noise.divergences(np.array([order]))[0] == pytest.approx(found, rel=1e-5)


def test_divergences_at_the_ends():
    orders = default_orders()
    for coins in (True, False):
        for rate, shift in ((1e-9, 4.0), (1e-3, 1e-8), (0.5, 1e3), (1.0, 2.0), (0.3, math.inf)):
            found = SampledGaussian(rate, shift, coins).divergences(orders)
            assert np.all(found >= 0) and np.all(found <= orders * shift**2 / 2)
            assert np.all(np.diff(found[np.isfinite(found)]) >= -1e-9 * found[1])
        tiny = SampledGaussian(1e-3, 1e-8, coins).divergences(np.array([2.0]))[0]
        assert tiny == pytest.approx(1e-22, rel=0.2), "nothing cancels"


# Prices ----------------------------------------------------------------------------------------


def test_what_was_charged_without_the_credit_for_coins():
    """36.2 against the reader who sees who came; 0.563 against all who do not, both ways alike."""
    bound = ShuffleAccountant().compose(COINS, 100).get_epsilon(1e-9)
    assert bound == pytest.approx(0.5631, abs=1e-4)
    assert 0.9995 * bound < bound.lower <= bound
    theirs = PLDAccountant(NeighboringRelation.REPLACE_ONE, 1e-3).compose(COINS, 100)
    assert bound == pytest.approx(theirs.get_epsilon(1e-9), rel=5e-4)
    seen = ShuffleAccountant().compose(NOISE, 5).get_epsilon(1e-9)
    assert seen == pytest.approx(36.198, abs=1e-2)
    fixed = ShuffleAccountant().compose(SETS, 100).get_epsilon(1e-9)
    assert 0.99 * fixed < fixed.lower <= fixed and fixed == pytest.approx(6.94, abs=0.01)


@pytest.mark.parametrize(
    ("rate", "noise", "rounds", "delta"),
    [(0.01, 1.0, 1000, 1e-5), (0.3, 5.0, 50, 1e-6), (1.0, 5.0, 50, 1e-6), (1e-4, 0.5, 200, 1e-9)],
)
def test_own_losses_and_those_of_dp_accounting_agree(rate, noise, rounds, delta):
    event = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(noise))
    own = ShuffleAccountant().compose(event, rounds).get_epsilon(delta)
    theirs = PLDAccountant(NeighboringRelation.REPLACE_ONE, 1e-3).compose(event, rounds)
    assert own == pytest.approx(theirs.get_epsilon(delta), rel=1e-3)
    by_orders = ShuffleAccountant(adaptive=True, order=12.0).compose(event, rounds)
    assert own < by_orders.get_epsilon(delta) < math.inf


def test_gaussians_under_one_coin_are_one():
    both = dp_accounting.ComposedDpEvent([NOISE, dp_accounting.SelfComposedDpEvent(NOISE, 3)])
    event = canonical(dp_accounting.PoissonSampledDpEvent(0.1, both))
    assert event.event.noise_multiplier == pytest.approx(0.5)
    (priced,) = loss_grid(event, 0.01).deltas(np.array([0.5]))
    assert priced == pytest.approx(SampledGaussian(0.1, 4.0, True).sticks(np.array([0.5]))[0])


def test_the_event_of_either_sample():
    coins = central_gaussian(30.0, 15.0, num_users=1000, num_sampled=2.5, sampling="poisson")
    assert coins == dp_accounting.PoissonSampledDpEvent(0.0025, dp_accounting.GaussianDpEvent(2.0))
    for wrong, message in (
        ({"sampling": "self"}, "sampling must be"),
        ({"num_sampled": 2.5}, "must be whole"),
        ({"num_sampled": 0.0, "sampling": "poisson"}, "must be > 0"),
        ({"num_sampled": 11, "sampling": "poisson"}, "at most num_users"),
    ):
        with pytest.raises(ValueError, match=message):
            central_gaussian(1.0, 1.0, **{"num_users": 10, "num_sampled": 5, **wrong})


def test_noise_that_is_next_to_nothing_costs_without_bound():
    event = dp_accounting.GaussianDpEvent(1e-160)
    assert ShuffleAccountant().compose(event).get_epsilon(1e-5) == math.inf
