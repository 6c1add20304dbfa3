"""Releases that are chosen after seeing earlier ones: what a filter promises, and what breaks it.

The adversary below asks eight questions of randomized response, and then one more that is chosen
by the answers so as to fit the budget at the order that has most of it left. Its privacy is a
finite sum, so the promise of each policy can be checked to the last digit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShufflePair,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.conversions import rdp_to_epsilon

pytestmark = pytest.mark.exact

EPSILON, DELTA = 2.0, 1e-5
ORDERS = (2.0, 3.0, 5.0, 8.0, 16.0, 40.0)
QUESTIONS, BUDGET = 8, 0.2 / math.sqrt(8)
WALK = LocalRandomizerDpEvent(BUDGET)
_MARGIN = 0.999  # of rounding


class Last(NamedTuple):
    """Says x or x' rarely, at a ratio of e^loss, and nothing otherwise."""

    loss: float
    rare: float  # probability of the telling answer under the other value

    @property
    def event(self) -> ShuffledDpEvent:
        often = math.exp(self.loss) * self.rare
        none = 1 - often - self.rare
        channel = [[often, self.rare], [self.rare, often], [none, none]]
        pair = ShufflePair.from_channel(channel, 0, 1, "rare answers")
        return ShuffledDpEvent(LocalRandomizerDpEvent(self.loss, pair), 1)

    def delta(self, epsilon: float) -> float:
        often = math.exp(self.loss) * self.rare
        laws = [(often, self.rare), (self.rare, often), (1 - often - self.rare,) * 2]
        return sum(max(p - math.exp(epsilon) * q, 0.0) for p, q in laws)


@cache
def walk_divergence(order: float) -> float:
    accountant = ShuffleAccountant([order], adaptive=True).compose(WALK, QUESTIONS)
    return float(accountant.divergences()[0])


def strongest(order: float, delta: float, epsilon: float) -> Last | None:
    """The last question that fits the budget at `order` and is worst at the epsilon left over."""
    most = EPSILON + 9.0 - rdp_to_epsilon([order], [9.0], delta)[0]
    left = most - walk_divergence(order)
    if left <= 0:
        return None
    losses = max(epsilon, 0.0) + np.geomspace(0.01, 5.0, 400)
    growth = np.exp(order * losses) + np.exp((1 - order) * losses) - np.exp(losses) - 1
    rare = np.minimum(math.expm1((order - 1) * left) / growth, 0.49 / (1 + np.exp(losses)))
    gains = (np.exp(losses) - math.exp(epsilon)) * rare
    best = int(np.argmax(gains))
    return Last(float(losses[best]), _MARGIN * float(rare[best]))


def adversary(orders: Sequence[float], delta: float) -> list[tuple[float, float, Last]]:
    """For each number of true answers: its chance, the loss so far, the last question."""
    truth = 1 / (1 + math.exp(-BUDGET))
    branches = []
    for true in range(QUESTIONS + 1):
        loss = (2 * true - QUESTIONS) * BUDGET
        choices = [strongest(order, delta, EPSILON - loss) for order in orders]
        best = max((c for c in choices if c), key=lambda c: c.delta(EPSILON - loss))
        branches.append((float(stats.binom.pmf(true, QUESTIONS, truth)), loss, best))
    return branches


def spent(branches: list[tuple[float, float, Last]]) -> float:
    """The true delta at the printed epsilon, all branches together."""
    return sum(chance * last.delta(EPSILON - loss) for chance, loss, last in branches)


@pytest.fixture(scope="module")
def greedy() -> list[tuple[float, float, Last]]:
    return adversary(ORDERS, DELTA)


def test_going_on_while_some_order_fits_overspends(greedy):
    """Every branch looks affordable; together they cost almost twice the printed delta."""
    for _, _, last in greedy:
        accountant = ShuffleAccountant(list(ORDERS)).compose(WALK, QUESTIONS).compose(last.event)
        assert rdp_to_epsilon(ORDERS, accountant.divergences(), DELTA)[0] <= EPSILON
    assert spent(greedy) > 1.58 * DELTA


def test_the_filter_over_several_orders_stops_it(greedy):
    accountant = ShuffleAccountant(list(ORDERS), adaptive=True).compose(WALK, QUESTIONS)
    refused = [
        accountant.would_exceed(last.event, epsilon=EPSILON, delta=DELTA) for *_, last in greedy
    ]
    assert any(refused)
    assert spent([branch for branch, no in zip(greedy, refused, strict=True) if not no]) <= DELTA


@pytest.mark.parametrize(
    ("orders", "delta"),
    [(ORDERS, DELTA / len(ORDERS)), *(((a,), DELTA) for a in (8.0, 16.0, 40.0))],
)
def test_what_filters_allow_keeps_the_promise(orders, delta):
    """An equal part of delta for each order, or one order that was fixed beforehand."""
    branches = adversary(orders, delta)
    accountant = ShuffleAccountant(list(orders), adaptive=True).compose(WALK, QUESTIONS)
    for *_, last in branches:
        assert not accountant.would_exceed(last.event, epsilon=EPSILON, delta=DELTA)
    assert 0.2 * DELTA < spent(branches) <= DELTA


def test_a_filter_knows_nothing_of_distributions():
    event = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2_000)
    fixed = ShuffleAccountant().compose(event, 6000).get_epsilon(1e-5)
    one = ShuffleAccountant(adaptive=True, order=18).compose(event, 6000)
    many = ShuffleAccountant(adaptive=True).compose(event, 6000)
    assert one.get_epsilon(1e-5).method == "Rényi orders (order 18)"
    assert fixed < one.get_epsilon(1e-5) < many.get_epsilon(1e-5) < 1.6 * fixed
    price = float(one.get_epsilon(1e-5))
    assert one.would_exceed(event, epsilon=price, delta=1e-5)
    assert not one.would_exceed(event, epsilon=1.01 * price, delta=1e-5)


def test_the_whole_run_under_a_filter_stops_where_its_price_says():
    event = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 100_000)
    accountant = ShuffleAccountant(adaptive=True, order=12.0)
    while not accountant.would_exceed(event, 25, epsilon=1.0, delta=1e-6):
        accountant.compose(event, 25)
    last = accountant.get_epsilon(1e-6)
    assert last <= 1.0 < accountant.compose(event, 25).get_epsilon(1e-6)
