"""Coins instead of fixed sizes: against enumeration, and against averages over the count."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShufflePair,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_event,
)
from beam_ldp.accounting.composition.loss_curves import _curve, renyi_divergences
from beam_ldp.accounting.divergences.hockey_stick import hockey_stick
from beam_ldp.accounting.shuffle.report_curves import thinned
from beam_ldp.randomizers.frequency import KRandomizedResponse
from tests.accounting.brute_force import Pairs, response_rows, two_level_pairs
from tests.accounting.loss_laws import heights_of
from tests.accounting.rdp_curves import direct_rdp, self_sampling_rdp

pytestmark = pytest.mark.exact

ORDERS = np.array([1.5, 2.0, 10.0])
LOSSES = np.array([0.0, 0.1, 0.3, 0.8, 1.5])


@pytest.mark.parametrize(("n", "join", "loss"), [(10, 0.4, 0.1), (60, 0.2, 0.05), (300, 0.1, 0.02)])
def test_a_thinned_pair_is_the_average_over_the_visible_count(n, join, loss):
    pair = ShufflePair.clones(1.0)
    chances = stats.binom.pmf(np.arange(1, n + 1), n, join)
    fixed = [hockey_stick(pair, k, loss, k / n) for k in range(1, n + 1)]
    low, high = (float(chances @ [bounds[side] for bounds in fixed]) for side in (0, 1))
    found = hockey_stick(thinned(pair, join), n, loss)
    assert found.lower <= high * (1 + 1e-9) and low <= found.upper * (1 + 1e-9)
    assert found.upper == pytest.approx(high, rel=1e-4)


def with_visible_count(by_count: list[Pairs], chances: np.ndarray) -> Pairs:
    sides = zip(*by_count, strict=True)
    first, second = (np.hstack([c * law for c, law in zip(chances, s)]) for s in sides)
    none = np.full((len(first), 1), 1 - chances.sum())
    return Pairs(np.hstack([first, none]), np.hstack([second, none]))


@pytest.mark.parametrize("randomizer", [KRandomizedResponse(3, 1.0), None], ids=["own", "any"])
@pytest.mark.parametrize(
    ("clients", "points", "join", "sampling"),
    [(3, 1, 0.5, "self"), (3, 2, 0.4, "self"), (4, 1, 0.3, "self"), (2, 2, 0.4, "poisson")],
)
def test_coins_are_never_underpriced(clients, points, join, sampling, randomizer):
    """Every data set of a few clients whose reports, and whose number, are seen."""
    people, held = (clients * points, 1) if sampling == "poisson" else (clients, points)
    counts = np.arange(1, people + 1)
    truth = with_visible_count(
        [two_level_pairs(response_rows(3, 1.0), people, held, k, 1) for k in counts],
        stats.binom.pmf(counts, people, join),
    )
    local = LocalRandomizerDpEvent(1.0) if randomizer is None else local_event(randomizer)
    event = SubsampledShuffledDpEvent(
        local, clients, join * people, points_per_client=points, sampling=sampling
    )
    assert np.all(truth.renyi(ORDERS) <= renyi_divergences(event, ORDERS) * (1 + 1e-9))
    curve = _curve(event)
    priced = heights_of(curve, np.array(LOSSES))
    assert np.all(truth.sticks(LOSSES) <= priced + 1e-12)


def test_the_published_training_run():
    """0.60409637 with coins against 0.60409626 with a fixed number, by orders."""
    prices = {}
    for sampling in ("without_replacement", "self"):
        event = SubsampledShuffledDpEvent(
            LocalRandomizerDpEvent(1.5), 60_000, 10_000, sampling=sampling
        )
        accountant = ShuffleAccountant(adaptive=True, order=27.0).compose(event, 1200)
        prices[sampling] = accountant.get_epsilon(1e-5)
    assert prices["self"] == pytest.approx(0.604, abs=5e-4)
    assert 0 < prices["self"] / prices["without_replacement"] - 1 < 1e-6


def test_the_average_of_orders_is_that_of_the_counts():
    def fixed(count: int) -> float:
        return direct_rdp(8.0, 1.0, 200, count)

    averaged = self_sampling_rdp(8.0, 200, 0.2, fixed)
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(1.0), 200, 40, sampling="self")
    assert averaged <= renyi_divergences(event, np.array([8.0]))[0] <= averaged * 1.002


def test_coins_over_points_are_coins_over_as_many_people():
    local = LocalRandomizerDpEvent(2.0)
    points = SubsampledShuffledDpEvent(local, 600, 200, points_per_client=10, sampling="poisson")
    people = SubsampledShuffledDpEvent(local, 6000, 200, sampling="self")
    assert event_epsilon(points, 1e-6) == event_epsilon(people, 1e-6)


@pytest.mark.parametrize("points", [1, 10])
def test_fewer_points_per_client_cost_more_and_sampling_less(points):
    local = LocalRandomizerDpEvent(2.0)
    prices = [
        event_epsilon(
            SubsampledShuffledDpEvent(
                local, n // points, 2000, points_per_client=points, sampling="self"
            ),
            1e-6,
        )
        for n in (20_000, 60_000, 200_000)
    ]
    assert prices == sorted(prices, reverse=True)


def test_everybody_joining_is_no_thinning():
    pair = ShufflePair.clones(1.0)
    assert thinned(pair, 1.0) == pair
    witness = thinned(ShufflePair(1.0, ((2.0, 1.0), (0.5, 1.0)), (1 / 3, 2 / 3)), 0.25)
    assert witness.is_witness and math.fsum(witness.probabilities) == pytest.approx(1.0)
    for wrong in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="join must"):
            thinned(pair, wrong)
