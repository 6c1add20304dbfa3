"""Curves of whole releases against exact atoms, hockey sticks and enumeration."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import reduce

import mpmath
import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShufflePair,
    SubsampledShuffledDpEvent,
    local_event,
)
from beam_ldp.accounting.composition.loss_curves import (
    _curve,
    _fine_sticks,
    loss_deviation,
    loss_grid,
    renyi_divergences,
)
from beam_ldp.accounting.divergences.curve_losses import log_convex, log_sticks, moments
from beam_ldp.accounting.divergences.hockey_stick import hockey_stick
from beam_ldp.accounting.divergences.hockey_stick import hockey_sticks as sticks_of
from beam_ldp.accounting.divergences.iid_sums import FINE
from beam_ldp.accounting.divergences.loss_grid import hockey_sticks
from beam_ldp.accounting.divergences.moments import binomial_log_pmf
from beam_ldp.ledger.losses import orders_for
from beam_ldp.randomizers.frequency import KRandomizedResponse
from tests.accounting.brute_force import (
    renyi,
    response,
    response_rows,
    shuffled_law,
    two_level_pairs,
)
from tests.accounting.loss_laws import heights_of
from tests.accounting.rdp_curves import direct_atoms, direct_rdp

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(("epsilon", "n", "k"), [(2.0, 60000, 2000), (1.0, 100, 10), (2.0, 8, 5)])
@pytest.mark.parametrize("loss", [0.0, 1e-4, 1e-3, 0.01, 0.05])
def test_subsampled_hockey_stick_is_that_of_the_exact_atoms(epsilon, n, k, loss):
    exact = hockey_sticks(direct_atoms(epsilon, n, k, 60), np.array([loss]))[0]
    low, high = hockey_stick(ShufflePair.clones(epsilon), k, loss, k / n)
    slack = 1e-12
    assert low * (1 - 1e-6) - slack <= exact <= high * (1 + 1e-6) + slack
    assert high - low <= 0.01 * high


def sampled_laws(k: int, n: int, sampled: int, epsilon: float) -> dict:
    channel = response(k, epsilon)
    laws = {}
    for dataset in itertools.combinations_with_replacement(range(k), n):
        law: dict = {}
        subsets = list(itertools.combinations(dataset, sampled))
        for chosen in subsets:
            for histogram, mass in shuffled_law(channel, chosen).items():
                law[histogram] = law.get(histogram, 0.0) + mass / len(subsets)
        laws[dataset] = law
    return laws


@pytest.mark.parametrize(
    ("k", "n", "sampled", "epsilon"), [(3, 5, 3, 2.0), (3, 4, 2, 1.0), (4, 4, 2, 1.5)]
)
def test_own_pair_of_a_subsample_dominates_every_dataset(k, n, sampled, epsilon):
    laws = sampled_laws(k, n, sampled, epsilon)
    pair = KRandomizedResponse(k, epsilon).dominating_pair()
    event = SubsampledShuffledDpEvent(local_event(KRandomizedResponse(k, epsilon)), n, sampled)
    orders = np.array([1.5, 2.0, 10.0])
    bounds = renyi_divergences(event, orders)
    for others in itertools.combinations_with_replacement(range(k), n - 1):
        for x, y in itertools.permutations(range(k), 2):
            first, second = (laws[tuple(sorted((*others, v)))] for v in (x, y))
            for loss in (0.0, 0.2, 0.6):
                stick = sum(max(first[h] - math.exp(loss) * second[h], 0.0) for h in first)
                assert stick <= hockey_stick(pair, sampled, loss, sampled / n).upper + 1e-12
            worst = [renyi(first, second, order) for order in orders]
            assert np.all(worst <= bounds * (1 + 1e-9))


@pytest.mark.parametrize("randomizer", [KRandomizedResponse(2, 1.0), None], ids=["own", "any"])
@pytest.mark.parametrize(
    ("clients", "points", "drawn", "sent"),
    [(3, 2, 2, 1), (3, 2, 1, 1), (2, 3, 2, 1), (2, 3, 1, 2), (3, 2, 2, 2)],
)
def test_two_levels_of_sampling_are_never_underpriced(clients, points, drawn, sent, randomizer):
    """Every data set of clients with several points, and every exchange of one point."""
    truth = two_level_pairs(response_rows(2, 1.0), clients, points, drawn, sent)
    local = LocalRandomizerDpEvent(1.0) if randomizer is None else local_event(randomizer)
    event = SubsampledShuffledDpEvent(
        local, clients, drawn, points_per_client=points, points_sampled=sent
    )
    orders = np.array([1.5, 2.0, 10.0])
    assert np.all(truth.renyi(orders) <= renyi_divergences(event, orders) * (1 + 1e-9))
    curve = _curve(event)
    losses = np.array([0.0, 0.1, 0.3, 0.8])
    priced = heights_of(curve, losses)
    assert np.all(truth.sticks(losses) <= priced + 1e-12)


@pytest.mark.parametrize("order", [2.0, 10.0, 64.0])
def test_divergences_of_the_curve_are_those_of_the_atoms(order):
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2000)
    curve = renyi_divergences(event, np.array([order]))[0]
    exact = direct_rdp(order, 2.0, 60_000, 2000)
    assert exact <= curve <= exact * 1.001


@pytest.mark.parametrize("reports", [5, 300, 10**6])
@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_connected_dots_lie_above_the_hockey_stick(epsilon, reports):
    event = ShuffledDpEvent(LocalRandomizerDpEvent(epsilon), reports)
    grid = loss_grid(event)
    losses = np.linspace(0.0, 6 * loss_deviation(event), 13) + 0.3 * grid.step
    for loss, found in zip(losses, grid.deltas(losses), strict=True):
        truth = hockey_stick(ShufflePair.clones(epsilon), reports, loss)
        assert truth.lower * (1 - 1e-9) <= found <= truth.upper * 1.1 + 1e-16


def test_both_directions_of_a_pair_that_is_no_mirror_image():
    table = (((2.0, 0.6), 0.25), ((0.5, 1.1), 0.5), ((1.0, 1.2), 0.25))
    pair = ShufflePair(0.5, tuple(r for r, _ in table), tuple(p for _, p in table))
    grid = loss_grid(ShuffledDpEvent(LocalRandomizerDpEvent(2.0, pair), 200))
    for loss in (0.05, 0.2):
        truths = [hockey_stick(side, 200, loss).upper for side in (pair, pair.swapped())]
        assert min(truths) < max(truths)
        assert max(truths) <= grid.deltas(np.array([loss]))[0] <= 1.02 * max(truths)


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 4.0])
def test_releases_may_tell_a_value_either_way_round(epsilon):
    """Of four releases of one report the third and fourth may ask for the opposite.

    Composing each direction with itself alone would give 0.752 at epsilon 1, below the truth.
    """
    first, second = np.array([0.5, 0.5]), np.array([0.02, 0.98])
    pair = ShufflePair(1.0, tuple((p / q, 1.0) for p, q in zip(first, second)), tuple(second))
    event = ShuffledDpEvent(LocalRandomizerDpEvent(math.log(25.0), pair), 1)
    priced = ShuffleAccountant().compose(event, 4).get_delta(epsilon)
    for turned in range(5):
        one = reduce(np.multiply.outer, [first] * (4 - turned) + [second] * turned)
        other = reduce(np.multiply.outer, [second] * (4 - turned) + [first] * turned)
        assert np.maximum(one - math.exp(epsilon) * other, 0.0).sum() <= priced


def test_the_largest_loss_is_pure():
    event = ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 50)
    grid = loss_grid(event)
    assert grid.deltas(np.array([1.0 + grid.step]))[0] <= 1e-16
    assert renyi_divergences(event, np.array([1e5]))[0] <= 1.0 + 1e-9


def test_grids_for_compositions_stay_short():
    grid = loss_grid(ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 10**5))
    assert len(grid.mass) < 600 and grid.beyond < 1e-20
    assert np.isfinite(grid.repeated(10**6).epsilon(1e-6))


def test_a_mechanism_that_tells_all_but_hardly_ever_needs_no_long_grid():
    rare = 1e-12
    channel = [[rare, rare / math.e], [rare / math.e, rare], [1 - rare * (1 + 1 / math.e)] * 2]
    pair = ShufflePair.from_channel(channel, 0, 1, "hardly ever")
    event = ShuffledDpEvent(LocalRandomizerDpEvent(1.0, pair), 1)
    order = 40.0
    exact = rare * (math.exp(order - 1) + math.exp(-order) - 1 - 1 / math.e)
    found = renyi_divergences(event, np.array([order]))[0]
    assert math.log1p(exact) / (order - 1) == pytest.approx(found, rel=1e-6)
    grid = loss_grid(event)
    assert len(grid.mass) < 1 << 20
    assert grid.deltas(np.array([0.5]))[0] >= rare * (1 - math.exp(-0.5)) * (1 - 1e-6)


def test_bad_rates_are_refused():
    with pytest.raises(ValueError, match="rate must lie in"):
        hockey_stick(ShufflePair.clones(1.0), 10, 0.1, rate=0.0)


@pytest.mark.parametrize("budget", [1.0, 4.0])
def test_the_divergences_of_a_larger_crowd_are_smaller(budget):
    """Grids end at the largest loss, whatever rounding does: else a release counts as unhidden."""
    orders = np.array([1.05, 3.0, 10.0, 40.0])
    event = local_event(KRandomizedResponse(3, budget))
    crowds = [200, 300, 500, 600, 800, 2000, 5000]
    found = np.array([renyi_divergences(ShuffledDpEvent(event, n), orders) for n in crowds])
    assert (np.diff(found, axis=0) < 0).all()
    assert (found < 0.99 * budget).all()


@pytest.mark.parametrize(
    ("local_epsilon", "n", "known"),
    [
        (0.5, 1000, (0.00608433682001, 0.00202814437818, 0.0182503902201, 0.0608085547189)),
        (1.0, 30, (0.79150863178, 0.419056228298, 0.93195436701, 0.979741744467)),
        (2.0, 10**5, (0.00263659793669, 0.000878862236373, 0.00791010551844, 0.0263794137186)),
        (4.0, 10**4, (0.906737011584, 0.105399962818, 2.9914935771, 3.69975177676)),
        (8.0, 10**6, (2.36041890397, 0.0613855942855, 6.16134973831, 7.45260489997)),
    ],
)
def test_divergences_stay_what_they_were(local_epsilon, n, known):
    """Of ledgers that hold them, so that audits go on believing those: no larger, and near.

    Pinned when sticks were connected more coarsely where they are small: up to 11 % higher.
    """
    orders = np.array(orders_for(1.0, 1e-8)[:4])
    event = ShuffledDpEvent(LocalRandomizerDpEvent(local_epsilon), n)
    found = renyi_divergences(event, orders)
    assert np.all(found <= np.array(known) * (1 + 1e-8))
    assert np.all(found >= np.array(known) * 0.9)


@pytest.mark.parametrize("rate", [1.0, 0.3])
@pytest.mark.parametrize("n", [12, 10**4])
def test_many_hockey_sticks_are_each_by_itself(n, rate):
    pair = ShufflePair.clones(2.0)
    epsilons = np.linspace(0.0, 2.5, 60)
    low, high = sticks_of(pair, n, epsilons, rate)
    for epsilon, *both in zip(epsilons, low, high):
        assert both == pytest.approx(hockey_stick(pair, n, epsilon, rate), rel=1e-9, abs=1e-30)


def clone_divergences(budget: float, n: int, orders: np.ndarray, most: int) -> np.ndarray:
    """Of the clone pair, summed over up to `most` clones and all ways they split: from below."""
    pair = ShufflePair.clones(budget)
    clones = np.arange(min(n, most))
    chances = binomial_log_pmf(clones, n - 1, pair.blanket_mass)
    totals = np.full((len(clones), len(orders)), -np.inf)
    ratio = math.exp(budget)
    for count, chance in zip(clones.tolist(), chances.tolist()):
        ones = np.arange(count + 2)
        first = 2 * (ratio * ones + (count + 1 - ones)) / ((ratio + 1) * (count + 1))
        both = np.log([first, first[::-1]])
        terms = chance + binomial_log_pmf(ones, count + 1, 0.5) + both[1]
        powers = terms + orders[:, None] * (both[0] - both[1])
        totals[count] = np.logaddexp.reduce(powers, axis=1)
    return np.logaddexp.reduce(totals, axis=0) / (orders - 1)


@pytest.mark.parametrize(
    ("budget", "n", "orders"),
    [
        (1.0, 300, [2.0, 64.0, 200.0, 3552.0]),
        (2.0, 1000, [10.0, 64.0, 200.0, 1e5]),
        (1.0, 2000, [64.0, 1000.0]),
        (4.0, 10**5, [1000.0, 3552.0]),
    ],
)
def test_high_orders_are_neither_too_low_nor_much_too_high(budget, n, orders):
    """They were up to 11 % too high; and 33 % too low where sticks vanish from doubles (4, 1e5)."""
    orders = np.array(orders)
    event = ShuffledDpEvent(LocalRandomizerDpEvent(budget), n)
    exact = clone_divergences(budget, n, orders, 2000)
    found = renyi_divergences(event, orders)
    assert np.all(exact <= found * (1 + 1e-11))
    assert np.all(found <= exact * 1.005)


def test_high_orders_against_sixty_digits():
    budget, n, orders = 2.0, 30, np.array([1.5, 8.0, 100.0, 4000.0])
    found = renyi_divergences(ShuffledDpEvent(LocalRandomizerDpEvent(budget), n), orders)
    with mpmath.workdps(60):
        ratio, mass = mpmath.e**budget, mpmath.e**-budget
        moments = [mpmath.mpf(0) for _ in orders]
        for clones in range(n):
            chance = mpmath.binomial(n - 1, clones) * mass**clones * (1 - mass) ** (n - 1 - clones)
            for ones in range(clones + 2):
                zeros = clones + 1 - ones
                weight = chance * mpmath.binomial(clones + 1, ones) / 2 ** (clones + 1)
                weight *= 2 * (ones + ratio * zeros) / ((ratio + 1) * (clones + 1))
                odds = (ratio * ones + zeros) / (ones + ratio * zeros)
                for i, order in enumerate(orders.tolist()):
                    moments[i] += weight * odds**order
        exact = [float(mpmath.log(m) / (a - 1)) for m, a in zip(moments, orders.tolist())]
    assert np.all(exact <= found) and np.all(found <= np.array(exact) * 1.005)


def test_each_pair_bounds_the_curve_where_it_is_the_smaller_one():
    """A pair that uses a tenth of its blanket is the better one for usual losses, not for large."""
    own = KRandomizedResponse(100, 1.0).dominating_pair()
    wasteful = replace(own, blanket_mass=0.1 * own.blanket_mass)
    local = LocalRandomizerDpEvent(1.0, wasteful)
    orders, n = np.array([2.0, 64.0, 300.0]), 300
    best = renyi_divergences(ShuffledDpEvent(local_event(KRandomizedResponse(100, 1.0)), n), orders)
    both = renyi_divergences(ShuffledDpEvent(local, n), orders)
    clones = renyi_divergences(ShuffledDpEvent(LocalRandomizerDpEvent(1.0), n), orders)
    curve = _curve(ShuffledDpEvent(local, n))
    assert curve.pair == wasteful and curve.others == (ShufflePair.clones(1.0),)
    assert np.all(best <= both) and np.all(both <= clones)
    assert both[0] < 0.3 * clones[0] and both[1] < 0.9 * clones[1]
    losses = _fine_sticks(ShuffledDpEvent(local, n))[0]
    logs = log_sticks(curve._replace(others=()), losses, FINE)
    alone = moments(losses, log_convex(losses, logs), orders)
    assert both[1] < 0.9 * alone[1] and np.all(both <= alone * (1 + 1e-12))
