"""Local and central prices kept apart: golden figures, caps, refusals."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from beam_ldp.accounting import ShuffleAccountant, event_epsilon
from beam_ldp.accounting.composition.accountant import default_orders
from beam_ldp.accounting.reconstruction import DiffuseTarget, breach_probability
from beam_ldp.accounting.two_ledgers import (
    TwoLedgers,
    add_remove_epsilon,
    central_round_event,
    multiplier_of_average,
)
from beam_ldp.randomizers.mean import SeparatedMean

pytestmark = pytest.mark.exact

MECHANISM = SeparatedMean(20, 8.0)


@pytest.mark.parametrize(
    ("rate", "rounds", "batch", "projection", "deviation", "epsilon"),
    [
        (0.002, 100, 20_000, 100.0, 0.005, 1.8902),
        (0.0015, 200, 15_000, 30.0, 0.002, 1.7579),
    ],
    ids=["mnist", "cifar"],
)
def test_the_papers_central_budgets(rate, rounds, batch, projection, deviation, epsilon):
    """Its figures hold for batches that it assumes, with noise 1; not for those it trains with."""
    z = multiplier_of_average(deviation, projection, batch)
    assert z == pytest.approx(1.0)
    event = central_round_event(rate, z)
    accountant = RdpAccountant(default_orders()).compose(event, rounds)
    classic = min(accountant.rdp + np.log(1e9) / (default_orders() - 1))
    assert classic == pytest.approx(epsilon, abs=5e-5)
    assert add_remove_epsilon(event, rounds, 1e-9) < 0.3 * epsilon, "by losses"
    trained = {20_000: 200, 15_000: 75}[batch]
    honest = central_round_event(rate, multiplier_of_average(deviation, projection, trained))
    assert add_remove_epsilon(honest, rounds, 1e-9) > 3e4


@pytest.mark.parametrize(
    ("rate", "z", "rounds", "delta", "by_losses", "by_orders"),
    [
        (0.002, 1.0, 100, 1e-9, 0.5522, 1.5773),
        (0.01, 1.0, 1000, 1e-5, 1.8281, 2.1078),
        (0.001, 0.7, 100, 1e-9, 1.8908, 3.0488),
        (0.02, 1.1, 2000, 1e-6, 5.2912, 5.7209),
    ],
)
def test_golden_figures(rate, z, rounds, delta, by_losses, by_orders):
    """Rényi orders cost up to three times as much: the two columns of a report need one method."""
    event = central_round_event(rate, z)
    found = add_remove_epsilon(event, rounds, delta)
    assert found == pytest.approx(by_losses, rel=5e-4) and found >= by_losses * (1 - 1e-4)
    orders = RdpAccountant(default_orders()).compose(event, rounds).get_epsilon(delta)
    assert orders == pytest.approx(by_orders, rel=2e-3)
    replaced = ShuffleAccountant().compose(event, rounds).get_epsilon(delta)
    assert found < replaced < 4 * found


def test_the_report_of_the_papers_setting():
    """36.2 was charged; 0.5632 stood beside 1.577."""
    ledgers = TwoLedgers(MECHANISM, central_round_event(0.002, 1.0), 50_000, max_participations=5)
    for number in range(100):
        ledgers.charge([0] if number < 5 else [])
    assert ledgers.central_epsilon(1e-9) == pytest.approx(0.5631, abs=1e-4)
    assert ledgers.seen_epsilon(1e-9) == pytest.approx(36.2, abs=0.01)
    told = ledgers.report(1e-9)
    assert "Models of 100 rounds, epsilon at delta 1e-09, by privacy-loss distributions:" in told
    assert "not who joined: 0.5631 if a client is replaced, 0.5523 if one is added" in told
    assert "but who joined: 36.2 if the client of most rounds (5) is replaced" in told


def test_both_ledgers_count_what_happened():
    ledgers = TwoLedgers(MECHANISM, central_round_event(0.5, 3.0), 4, max_participations=2)
    for clients in ([0, 1], [0], [], [1, 2]):
        ledgers.charge(clients)
    assert ledgers.participations.tolist() == [2, 2, 1, 0] and ledgers.rounds == 4
    assert ledgers.local_epsilon == 16.0
    composed = dp_accounting.SelfComposedDpEvent(central_round_event(0.5, 3.0), 4)
    assert ledgers.central_epsilon(1e-5) == pytest.approx(event_epsilon(composed, 1e-5), rel=1e-6)
    assert ledgers.allowed([0, 1, 2, 3]) == [2, 3]
    spent = float(ledgers.central_epsilon(1e-5))
    assert ledgers.would_exceed(spent, 1e-5) and not ledgers.would_exceed(2 * spent, 1e-5)
    target = DiffuseTarget(20, 0.9)
    (row,) = ledgers.audit([target]).rows
    assert row.bound == breach_probability(target, 16.0)
    lines = ledgers.report(1e-5, [target]).splitlines()
    assert lines[0].startswith("Messages, to whoever sees them with their sender: local epsilon 16")
    assert lines[1].startswith("Models of 4 rounds, epsilon at delta 1e-05, by privacy-loss dist")
    assert f"not who joined: {spent:.4g} if a client is replaced" in lines[2]
    seen = dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(3.0), 2)
    assert ledgers.seen_epsilon(1e-5) == pytest.approx(event_epsilon(seen, 1e-5), rel=1e-6)
    assert lines[4].startswith("Reconstruction: 2 messages of one person, local epsilon 16 in all")


def test_empty_rounds_and_no_limit():
    ledgers = TwoLedgers(MECHANISM, central_round_event(0.5, 3.0), 4)
    assert ledgers.local_epsilon == 0.0 and ledgers.central_epsilon(1e-5) == 0.0
    assert ledgers.allowed([3, 1]) == [3, 1]
    assert ledgers.seen_epsilon(1e-5) == 0.0 and "Models of 0 rounds" in ledgers.report(1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: central_round_event(0.0, 1.0), r"sampling_rate must lie in \(0, 1\]"),
        (lambda: central_round_event(0.5, 0.0), "noise_multiplier must be > 0"),
        (lambda: TwoLedgers(MECHANISM, central_round_event(0.5, 1.0), 0), "num_clients must be"),
        (lambda: TwoLedgers(MECHANISM, central_round_event(0.5, 1.0), 4, 0), "max_participations"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("clients", [[1, 1], [0], [4]])
def test_refused_rounds(clients):
    ledgers = TwoLedgers(MECHANISM, central_round_event(0.5, 1.0), 4, max_participations=1)
    ledgers.charge([0])
    with pytest.raises((ValueError, IndexError), match="clients must|out of bounds"):
        ledgers.charge(clients)
    assert ledgers.rounds == 1 and ledgers.participations.sum() == 1


def test_a_ledger_that_goes_on_supposes_everybody_in_rounds_that_were_lost():
    """Nobody knows who joined: each may have, as far as the limit of messages lets her."""
    before = TwoLedgers(MECHANISM, central_round_event(0.5, 1.0), 3, max_participations=2)
    before.charge([0, 1])
    before.charge([0])
    after = TwoLedgers(MECHANISM, central_round_event(0.5, 1.0), 3, max_participations=2)
    after.recall(before.participations, 3, 1)
    assert after.participations.tolist() == [2, 2, 1] and after.rounds == 3
    before.charge([2])
    assert after.central_epsilon(1e-5) == before.central_epsilon(1e-5)
    with pytest.raises(ValueError, match="of 3 clients, once"):
        after.recall(before.participations, 3, 1)
