"""Local and central prices kept apart: golden figures, caps, refusals."""

from __future__ import annotations

import dp_accounting
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant
from scipy import special

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.composition.accountant import default_orders
from beam_ldp.accounting.literature.two_ledgers import (
    TwoLedgers,
    add_remove_epsilon,
    central_round_event,
    multiplier_of_average,
)
from beam_ldp.accounting.reconstruction import DiffuseTarget, breach_probability
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
    assert add_remove_epsilon(event, rounds, 1e-9) < 0.85 * epsilon, "today's conversion"
    trained = {20_000: 200, 15_000: 75}[batch]
    honest = central_round_event(rate, multiplier_of_average(deviation, projection, trained))
    assert add_remove_epsilon(honest, rounds, 1e-9) > 1e5


@pytest.mark.parametrize(
    ("rate", "z", "rounds", "delta", "epsilon"),
    [
        (0.01, 1.0, 1000, 1e-5, 2.1078),
        (0.001, 0.7, 100, 1e-9, 3.0488),
        (0.02, 1.1, 2000, 1e-6, 5.7209),
        (1e-4, 0.5, 200, 1e-9, 4.6739),
    ],
)
def test_golden_figures(rate, z, rounds, delta, epsilon):
    """Integer orders; real ones are better by 1e-3 at most."""
    found = add_remove_epsilon(central_round_event(rate, z), rounds, delta)
    assert found == pytest.approx(epsilon, rel=2e-3)


def hockey_stick(first, second, epsilon):
    """H(P || Q) of two mixtures of unit Gaussians, given as {shift: weight}."""
    x = np.linspace(-30, 30, 20_001)

    def density(mixture):
        return sum(w * np.exp(-((x - s) ** 2) / 2) for s, w in mixture.items()) / np.sqrt(2 * np.pi)

    over = np.maximum(density(first) - np.exp(epsilon) * density(second), 0.0)
    return float((over[1:] + over[:-1]).sum() / 2 * (x[1] - x[0]))


@pytest.mark.parametrize("z", [0.5, 1.0, 4.0])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_leaving_the_crowd_early_costs_nothing(z, rate):
    """Somebody who has reached the limit joins less often, in both worlds, not equally often.

    H is convex in the two chances (a, b) of having joined, so its largest value over [0, q]^2 is
    at a corner; none of them exceeds (q, q), which is what is charged.
    """
    for epsilon in (0.0, 0.05, 0.5, 2.0):
        charged = hockey_stick({0.0: 1 - rate, 1 / z: rate}, {0.0: 1 - rate, -1 / z: rate}, epsilon)
        for a, b in [(0.0, rate), (rate, 0.0), (rate / 2, rate), (rate, rate / 2)]:
            corner = hockey_stick({0.0: 1 - a, 1 / z: a}, {0.0: 1 - b, -1 / z: b}, epsilon)
            assert corner <= charged + 1e-9
    full = hockey_stick({1 / z: 1.0}, {-1 / z: 1.0}, 0.0)
    assert full == pytest.approx(special.erf(1 / z / np.sqrt(2)), abs=1e-6), "the check itself"


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
    assert f"epsilon {spent:.4g} at delta 1e-05 after 4 rounds (replace-one)" in lines[1]
    assert lines[3].startswith("Reconstruction: 2 messages of one person, local epsilon 16 in all")


def test_empty_rounds_and_no_limit():
    ledgers = TwoLedgers(MECHANISM, central_round_event(0.5, 3.0), 4)
    assert ledgers.local_epsilon == 0.0 and ledgers.central_epsilon(1e-5) == 0.0
    assert ledgers.allowed([3, 1]) == [3, 1]
    assert "after 0 rounds" in ledgers.report(1e-5)


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
