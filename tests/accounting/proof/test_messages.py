"""Prices of several messages per person against the laws of all that a few people send."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.accounting.shuffle import mean_price
from beam_ldp.accounting.shuffle.bounded_change import BoundedMessages
from beam_ldp.accounting.shuffle.multi_message import multi_message_rdp
from beam_ldp.accounting.shuffle.one_release import mean_epsilon
from beam_ldp.randomizers.mean import LInfMean
from tests.accounting.brute_force import Array, Pairs, crowd_law
from tests.accounting.rdp_curves import multi_message_delta

pytestmark = pytest.mark.exact

DELTAS = (0.2, 1e-2, 1e-4)
ORDERS = (1.5, 3.0, 8.0)


def column(vectors: Array, places: tuple[int, ...], budget: float) -> Array:
    """Laws of one message: a random place of the block, and the noisy bit of what is there."""
    ones = 0.5 + math.tanh(budget / 2) * vectors[:, places] / 2
    return np.concatenate([ones, 1 - ones], axis=1) / len(places)


def releases(victims: Array, others: Array, columns: list[tuple[tuple[int, ...], float]]) -> Array:
    """The law of everything that arrives, for each vector of the victim."""
    laws = []
    for victim in victims:
        everybody = np.vstack([victim, others])
        law = np.ones(1)
        for places, budget in columns:
            law = np.outer(law, crowd_law(column(everybody, places, budget))).reshape(-1)
        laws.append(law)
    return np.array(laws)


def all_exchanges(victims: Array, others: Array, columns) -> Pairs:
    laws = releases(victims, others, columns)
    pairs = list(itertools.permutations(range(len(laws)), 2))
    return Pairs(laws[[i for i, _ in pairs]], laws[[j for _, j in pairs]])


CORNERS = np.array(list(itertools.product((-1.0, 1.0), repeat=2)))
SHAPES = [
    # Columns of the mechanism, its messages per level, their budgets.
    ([((0,), 1.0), ((1,), 1.0)], (2,), (1.0,)),
    ([((0,), 2.5), ((1,), 2.5)], (2,), (2.5,)),
    ([((0, 1), 1.5)], (1,), (1.5,)),
]


@pytest.mark.parametrize("people", [1, 2, 3, 4])
@pytest.mark.parametrize("shape", SHAPES, ids=["two of 1", "two of 2.5", "a block of two"])
def test_every_dataset_of_corners(shape, people):
    """The mechanism's price, its curve and its delta, for all data of the others and the victim."""
    columns, messages, budgets = shape
    local = sum(budget for _, budget in columns)
    mechanism = LInfMean(2, local, messages=messages, message_epsilons=budgets)
    kinds = [(len(columns), budgets[0])]
    prices = {delta: mean_epsilon(mechanism, people, delta) for delta in DELTAS}
    curve = multi_message_rdp(kinds, people, ORDERS)
    for others in itertools.combinations_with_replacement(CORNERS, people - 1):
        rest = np.array(others).reshape(-1, 2)
        pairs = all_exchanges(CORNERS, rest, columns)
        assert np.all(pairs.renyi(ORDERS) <= curve * (1 + 1e-9))
        for delta, price in prices.items():
            assert pairs.sticks([price])[0] <= delta * (1 + 1e-9)
        for epsilon in (0.0, 0.3 * local):
            bound = multi_message_delta(kinds, people, epsilon)
            assert pairs.sticks([epsilon])[0] <= bound * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("people", [1, 2, 4])
def test_vectors_between_the_corners_cost_no_more(people):
    rng = np.random.default_rng(people)
    columns, messages, budgets = SHAPES[0]
    mechanism = LInfMean(2, 2.0, messages=messages, message_epsilons=budgets)
    prices = {delta: mean_epsilon(mechanism, people, delta) for delta in DELTAS}
    for _ in range(40):
        victims, others = rng.uniform(-1, 1, (2, 2)), rng.uniform(-1, 1, (people - 1, 2))
        pairs = all_exchanges(victims, others, columns)
        for delta, price in prices.items():
            assert pairs.sticks([price])[0] <= delta * (1 + 1e-9)


def test_columns_are_not_forgotten():
    """The harness can fail: the price of one column is not that of two."""
    columns, *_ = SHAPES[0]
    price = mean_epsilon(LInfMean(2, 2.0, messages=(2,), message_epsilons=(1.0,)), 3, 1e-2)
    one = mean_epsilon(LInfMean(1, 1.0, messages=(1,), message_epsilons=(1.0,)), 3, 1e-2)
    pairs = all_exchanges(CORNERS, CORNERS[[0, 3]], columns)
    assert pairs.sticks([one])[0] > 1e-2 > pairs.sticks([price])[0]


@pytest.mark.parametrize("people", [1, 2, 3])
@pytest.mark.parametrize(("budget", "cutoff"), [(1.0, 1.0), (2.0, 1.5), (0.6, 0.8)])
def test_vectors_of_bounded_length(people, budget, cutoff):
    """A grid of directions for everybody: the price that counts lengths holds for all of them."""
    angles = np.linspace(0, 2 * math.pi, 8, endpoint=False)
    circle = np.column_stack([np.cos(angles), np.sin(angles)])
    circle = np.clip(circle / cutoff, -1, 1)  # what the bits speak of: coordinates over the cutoff
    messages = BoundedMessages(2, budget, 1 / cutoff**2)
    prices = {d: mean_price.l2_messages_epsilon(messages, people, d) for d in DELTAS}
    curve = [mean_price.l2_messages_rdp(messages, people, order) for order in (3.0, 8.0)]
    columns, tightest = [((0,), budget), ((1,), budget)], 0.0
    for others in itertools.combinations_with_replacement(circle, people - 1):
        pairs = all_exchanges(circle, np.array(others).reshape(-1, 2), columns)
        truth = pairs.renyi([3.0, 8.0])
        assert np.all(truth <= np.array(curve) * (1 + 1e-9))
        tightest = max(tightest, float(np.max(truth / curve)))
        for delta, price in prices.items():
            assert pairs.sticks([price])[0] <= delta * (1 + 1e-9)
    assert tightest > 0.1
