"""Losses add up at orders that were fixed beforehand; delta is split between them."""

from __future__ import annotations

import math

import dp_accounting
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffleAccountant, ShuffledDpEvent
from beam_ldp.ledger.losses import DEFAULT_ORDERS, as_json, loss_of, no_loss

pytestmark = pytest.mark.exact

SMALL = ShuffledDpEvent(LocalRandomizerDpEvent(0.5), 10_000)
PURE = LocalRandomizerDpEvent(0.25)
OTHER = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 5_000)


def test_nothing_costs_nothing() -> None:
    assert no_loss(DEFAULT_ORDERS).epsilon(DEFAULT_ORDERS, 1e-8) == (0.0, math.inf)


@pytest.mark.parametrize("orders", [(16.0,), DEFAULT_ORDERS])
def test_sums_agree_with_the_adaptive_accountant(orders: tuple[float, ...]) -> None:
    total = loss_of(as_json(SMALL), orders)
    for _ in range(2):
        total += loss_of(as_json(OTHER), orders)
    accountant = ShuffleAccountant(list(orders), adaptive=True)
    accountant.compose(SMALL).compose(OTHER, 2)
    assert total.epsilon(orders, 1e-6)[0] == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)


def test_several_orders_cost_a_split_of_delta() -> None:
    """The order that turns out best is not free: each one is read at delta/m."""
    one = loss_of(as_json(OTHER), (16.0,)).epsilon((16.0,), 1e-6)[0]
    split = loss_of(as_json(OTHER), (16.0, 2.0)).epsilon((16.0, 2.0), 1e-6)[0]
    at_half = loss_of(as_json(OTHER), (16.0,)).epsilon((16.0,), 0.5e-6)[0]
    assert split > one
    assert split <= at_half


def test_one_small_charge_is_read_as_its_pure_epsilon() -> None:
    loss = loss_of(as_json(LocalRandomizerDpEvent(0.1)), DEFAULT_ORDERS)
    assert loss.epsilon(DEFAULT_ORDERS, 1e-8) == (0.1, math.inf)


def test_central_gaussian_charges_have_no_pure_epsilon() -> None:
    event = dp_accounting.GaussianDpEvent(5.0)
    loss = loss_of(as_json(event), DEFAULT_ORDERS)
    assert loss.pure == math.inf
    assert 0 < loss.epsilon(DEFAULT_ORDERS, 1e-6)[0] < 3


def test_what_has_no_price_is_refused() -> None:
    with pytest.raises(ValueError, match="version must be"):
        loss_of(as_json(PURE) | {"version": 99}, DEFAULT_ORDERS)
    poisson = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    with pytest.raises(ValueError, match="kind"):
        loss_of(as_json(poisson), DEFAULT_ORDERS)
