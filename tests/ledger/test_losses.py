"""Losses add up at orders that were fixed beforehand; delta is split between them."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.divergences.moments import rdp_to_epsilon
from beam_ldp.accounting.reports import failure_of
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, audit
from beam_ldp.ledger.accounts import ExactLoss
from beam_ldp.ledger.losses import (
    CHANCES,
    Loss,
    as_json,
    exceeds,
    loss_of,
    no_loss,
    orders_for,
    shares,
    times,
)
from beam_ldp.ledger.rows import ChainHead, next_row
from beam_ldp.randomizers.frequency import BinaryHadamard
from tests.ledger.asked import asked

pytestmark = pytest.mark.exact

SMALL = ShuffledDpEvent(LocalRandomizerDpEvent(0.5), 10_000)
ORDERS = orders_for(1.0, 1e-6)
PURE = LocalRandomizerDpEvent(0.25)
OTHER = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 5_000)


def test_nothing_costs_nothing() -> None:
    assert no_loss(ORDERS).epsilon(ORDERS, 1e-8) == (0.0, math.inf)


@pytest.mark.parametrize("order", [2.5, 16.0, 300.0])
def test_sums_agree_with_the_adaptive_accountant(order: float) -> None:
    orders = (order,)
    total = loss_of(as_json(SMALL), orders)
    for _ in range(2):
        total += loss_of(as_json(OTHER), orders)
    accountant = ShuffleAccountant(order=order, adaptive=True)
    accountant.compose(SMALL).compose(OTHER, 2)
    found = total.epsilon(orders, 1e-6 / 0.95)[0]
    assert found == pytest.approx(accountant.get_epsilon(1e-6), rel=1e-9)


def test_several_orders_cost_a_share_of_delta() -> None:
    """The order that turns out best is not free: each one is read at a share."""
    one = loss_of(as_json(OTHER), (16.0,))
    split = loss_of(as_json(OTHER), (16.0, 2.0)).epsilon((16.0, 2.0), 1e-6)
    assert split[0] == pytest.approx(one.epsilon((16.0,), 0.9e-6 / 0.95)[0], rel=1e-12)
    assert split[0] > one.epsilon((16.0,), 1e-6)[0]
    other = loss_of(as_json(OTHER), (2.0, 16.0)).epsilon((2.0, 16.0), 1e-6)
    last = one.epsilon((16.0,), 0.05e-6 / 0.95)[0]  # of one order: all but the share of chances
    assert other[0] == pytest.approx(last, rel=1e-12)
    fixed = loss_of(as_json(OTHER), (16.0, 2.0)).epsilon((16.0, 2.0), 1e-6, adaptive=False)
    assert fixed == one.epsilon((16.0,), 1e-6, adaptive=False)
    for share in (CHANCES, 0.0, 0.5, 0.9):
        assert sum(shares(5, share)) + share == pytest.approx(1.0, rel=1e-15)
        assert sum(shares(1, share)) + share == 1.0


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-8, 1e-12])
def test_many_small_losses_fill_the_budget_within_three_percent(
    epsilon: float, delta: float
) -> None:
    """Against the best order of all, which an adaptive filter may not choose afterwards."""
    orders = orders_for(epsilon, delta)
    fine = np.concatenate([np.linspace(1.01, 10, 2000), np.geomspace(10, 1e6, 4000)])
    low, high = 1e-12, 100.0
    for _ in range(100):
        rho = (low * high) ** 0.5
        loss = Loss(tuple(rho * order for order in orders), math.inf)
        low, high = (rho, high) if loss.epsilon(orders, delta)[0] < epsilon else (low, rho)
    best = float(rdp_to_epsilon(fine, low * fine, delta)[0])
    assert 0.97 * epsilon < best <= epsilon * (1 + 1e-9)


def test_one_small_charge_is_read_as_its_pure_epsilon() -> None:
    loss = loss_of(as_json(LocalRandomizerDpEvent(0.1)), ORDERS)
    assert loss.epsilon(ORDERS, 1e-8) == (0.1, math.inf)


def test_central_gaussian_charges_have_no_pure_epsilon() -> None:
    event = dp_accounting.GaussianDpEvent(5.0)
    loss = loss_of(as_json(event), ORDERS)
    assert loss.pure == math.inf
    assert 0 < loss.epsilon(ORDERS, 1e-6)[0] < 3


def test_what_has_no_price_is_refused() -> None:
    with pytest.raises(ValueError, match="version must be"):
        loss_of(as_json(PURE) | {"version": 99}, ORDERS)
    with pytest.raises(ValueError, match="kind"):
        as_json(dp_accounting.UnsupportedDpEvent())
    nothing_left = loss_of(as_json(dp_accounting.NonPrivateDpEvent()), ORDERS)
    assert nothing_left.epsilon(ORDERS, 1e-6)[0] == math.inf


@pytest.mark.parametrize("local", [1e-13, 1e-9, 8.0])
def test_no_loss_is_below_zero(local: float) -> None:
    """Rounding made divergences of the smallest losses negative: a row of them is no row."""
    loss = loss_of(as_json(LocalRandomizerDpEvent(local)), (1.05, 2.0, 300.0))
    assert min(loss.divergences) >= 0 and Loss.from_json(loss.to_json()) == loss


MORE_FAKES = SubsampledShuffledDpEvent(
    BinaryHadamard(2, 4.0).dp_event(), 40_000, 20_000, num_fakes=20_000
)


def test_the_chance_of_a_smaller_crowd_is_taken_off_delta() -> None:
    """Fakes are drawn at random: what is proved but for a chance is no more than that.

    One such charge took nothing off delta, and a million of them nothing either.
    """
    event = MORE_FAKES
    assert failure_of(event) > 0
    one = loss_of(as_json(event), ORDERS)
    assert one.failure == failure_of(event)
    assert Loss.from_json(one.to_json()) == one and "failure" in one.to_json()
    sound = Loss(one.divergences, one.pure)
    delta = 4 * one.failure
    assert one.epsilon(ORDERS, delta, adaptive=False) == sound.epsilon(
        ORDERS, delta - one.failure, adaptive=False
    )
    for many in (times(one, 4), one + one + one + one):
        assert many.failure == pytest.approx(delta)
        assert many.epsilon(ORDERS, delta * (1 - 1e-9), adaptive=False) == (
            4 * one.pure, math.inf,
        )  # fmt: skip
    share = 20 * delta  # of which a twentieth is for chances
    for many in (one, times(one, 4)):
        alone = Loss(many.divergences, many.pure)
        assert many.epsilon(ORDERS, share) == alone.epsilon(ORDERS, share)
    more = one + times(one, 4)
    assert more.epsilon(ORDERS, share) == (5 * one.pure, math.inf)
    assert more.epsilon(ORDERS, share)[0] > times(one, 4).epsilon(ORDERS, share)[0]
    assert exceeds(one, sound) and not exceeds(sound, one)
    total = ExactLoss(len(ORDERS))
    total.add(one, 3)
    assert total.loss.figures == pytest.approx(times(one, 3).figures, rel=1e-14)
    assert ExactLoss.from_json(total.to_json()).loss == total.loss


def _renyi(p: np.ndarray | float, q: np.ndarray | float, order: float) -> np.ndarray:
    """Of two laws of two values."""
    with np.errstate(over="ignore"):
        total = p**order * q ** (1 - order) + (1 - p) ** order * (1 - q) ** (1 - order)
    return np.asarray(np.log(total) / (order - 1))


class TwoCharges:
    """A first report by a coin of epsilon 0.1; what is charged next depends on what it said.

    Where it said what the neighbour says more often: something that tells all, by a chance. Where
    it said the other: two values, as telling as the order lets them be. All laws are enumerated.
    """

    order, first, epsilon, delta = 40.0, 0.1, 1.0, 1e-3

    def __init__(self) -> None:
        self.likely = math.exp(self.first) / (1 + math.exp(self.first))
        self.spent = float(_renyi(self.likely, 1 - self.likely, self.order))

    def read(self, divergence: float) -> float:
        """Delta at which a divergence is epsilon: inverse of the conversion."""
        at = (self.order - 1) * (divergence - self.epsilon + math.log1p(-1 / self.order))
        return math.exp(at) / self.order

    def left(self, delta: float) -> float:
        """Divergence that may still be spent when all is read at delta."""
        low, high = 0.0, 10.0
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if self.read(middle + self.spent) <= delta else (low, middle)
        return low

    def delta_of(self, chance: float, divergence: float) -> float:
        """The hockey stick of both charges at epsilon, for the best two values."""
        grow, p = math.exp(self.epsilon), np.geomspace(1e-4, 0.5, 300)[:, None]
        q = p * np.exp(-np.linspace(0.01, 8, 1200))
        stick = np.maximum(0, self.likely * p - grow * (1 - self.likely) * q) + np.maximum(
            0, self.likely * (1 - p) - grow * (1 - self.likely) * (1 - q)
        )
        allowed = _renyi(p, q, self.order) <= divergence
        return float(np.max(np.where(allowed, stick, 0))) + (1 - self.likely) * chance


def test_chances_of_the_path_alone_do_not_pay_for_charges_that_were_chosen() -> None:
    """Divergences read at delta less the chances so far: 1.47 delta, by enumeration."""
    case = TwoCharges()
    chance = case.delta - case.read(case.spent)  # what such a filter allows where little is told
    assert chance > 0.99 * case.delta
    assert case.delta_of(chance, case.left(case.delta)) > 1.4 * case.delta


def test_a_share_of_their_own_pays_for_chances() -> None:
    case = TwoCharges()
    chance = CHANCES * case.delta
    divergence = case.left(shares(1)[0] * case.delta)
    found = case.delta_of(chance, divergence)
    assert 0.9 * case.delta < found <= case.delta
    filled = Loss((case.spent + divergence,), math.inf, chance)
    assert filled.epsilon((case.order,), case.delta)[0] == pytest.approx(case.epsilon, rel=1e-9)
    beyond = Loss(filled.divergences, math.inf, 1.001 * chance)
    assert math.isinf(beyond.epsilon((case.order,), case.delta)[0])


def test_a_budget_whose_delta_is_used_up_by_chances_is_spent(ledger: BudgetLedger) -> None:
    """And the audit reads the same; a row that does not state the chance is told."""
    event = MORE_FAKES
    delta = 20 * 3.5 * failure_of(event)  # a twentieth is for chances
    ledger.set_budget("visits", epsilon=7.9, delta=delta, orders=(8.0, 3.0))
    plain = Loss(loss_of(as_json(event), (8.0, 3.0)).divergences, math.inf)
    assert times(plain, 4).epsilon((8.0, 3.0), delta)[0] < 7.9
    for i in range(3):
        ledger.reserve("visits", f"run {i}", event, identity=asked("visits", f"run {i}"))
    with pytest.raises(BudgetExceededError):
        ledger.reserve("visits", "run 3", event, identity=asked("visits", "run 3"))
    report = audit(ledger.rows())
    assert report.clean
    committed = ledger.status("visits").committed
    assert report.curves["visits"][-1].committed == pytest.approx(committed, rel=1e-12)
    row = ledger.rows()[-1]
    less = {"divergences": row.body["loss"]["divergences"], "pure": row.body["loss"]["pure"]}
    forged = next_row(ChainHead(row.number, row.previous), row.kind, {**row.body, "loss": less})
    report = audit([*ledger.rows()[:-1], forged])
    assert any("smaller loss" in finding for c in report.checks for finding in c.findings)


@pytest.mark.parametrize("divergence", [0.0, 1e-300, 0.3, 7.0, 1e308, math.inf])
def test_a_reading_is_the_conversion_at_its_order_and_share(divergence: float) -> None:
    """The adaptive reading looks the constant up: bit for bit what the conversion gives."""
    orders, delta = orders_for(1.0, 1e-6), 1e-6
    loss = Loss((divergence,) * len(orders), math.inf)
    found = min(
        rdp_to_epsilon([order], [divergence], share * delta)
        for order, share in zip(orders, shares(len(orders)), strict=True)
    )
    assert loss.epsilon(orders, delta) == (found if found[0] < math.inf else (math.inf, math.inf))


def test_a_divergence_that_is_no_number_is_no_reading() -> None:
    orders = orders_for(1.0, 1e-6)
    with pytest.raises(ValueError, match="NaN"):
        Loss((math.nan,) * len(orders), 1.0).epsilon(orders, 1e-6)
