"""DP-AdaPeD: its price as printed and as proved."""

from __future__ import annotations

import math

import dp_accounting
import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.rdp import RdpAccountant

from beam_ldp.accounting import ShuffleAccountant, event_epsilon
from beam_ldp.accounting.two_ledgers import (
    adaped_message_event,
    adaped_round_event,
    joint_multiplier,
)
from beam_ldp.research.published.renyi import adaped_rdp_printed
from tests.accounting.rdp_curves import adaped_rdp_safe

pytestmark = pytest.mark.exact

ORDERS = np.array([2.0, 3.0, 8.0, 32.0])
PRINTED = {"clip": 1.0, "noise": 2.0, "psi_clip": 0.5, "psi_noise": 3.0}


def test_printed_theorem():
    """(K/n)^2 6 (T/tau) alpha (C1^2/(K s1^2) + C2^2/(K s2^2)), by hand."""
    found = adaped_rdp_printed(
        ORDERS, num_clients=60, clients_per_round=20, steps=100, local_steps=10, **PRINTED
    )
    np.testing.assert_allclose(found, ORDERS / 9 * 60 * (1 / 80 + 0.25 / 180))


def test_printed_theorem_lies_below_the_truth_for_many_local_steps():
    """Noiseless gradients all one way, everybody present: the sum of tau steps is one Gaussian.

    One client's part moves by 2 tau C (replace-one), the sum's noise has variance K tau s^2. Six
    times the exact constant hides the missing tau below 12 (here 4 for replace-one: below 3).
    """
    n, order = 50, 4.0
    for tau, below in ((1, False), (2, False), (4, True), (100, True)):
        (printed,) = adaped_rdp_printed(
            [order], num_clients=n, clients_per_round=n, steps=tau, local_steps=tau,
            clip=1.0, noise=2.0, psi_clip=1.0, psi_noise=math.inf,
        )  # fmt: skip
        truth = order * (2 * tau) ** 2 / (2 * n * tau * 2.0**2)
        assert (printed < truth) == below
        assert truth / printed == pytest.approx(tau / 3)


def test_averages_protect_nobody_from_the_server():
    """A server that sees messages pays the message's price, K times the printed variance."""
    n = 50
    (printed,) = adaped_rdp_printed(
        [4.0], num_clients=n, clients_per_round=n, steps=10, local_steps=10,
        clip=1.0, noise=2.0, psi_clip=1.0, psi_noise=2.0,
    )  # fmt: skip
    seen = RdpAccountant([4.0]).compose(adaped_message_event(10, 2.0 / 2, 2.0 / 2)).rdp[0]
    assert seen == pytest.approx(printed * n * 10 / 3)


def test_safe_price_is_below_dp_accountings_own():
    """Its multiplier is that of the largest change: half of ours under replace-one.

    Its bound for samples (Wang, Balle and Kasiviswanathan 2019) takes a factor of up to four away.
    """
    settings = {"noise_multiplier": 6.0, "psi_noise_multiplier": 8.0}
    z = joint_multiplier(6.0, 8.0)
    for k in (50, 10):
        found = adaped_rdp_safe(ORDERS, num_clients=50, clients_per_round=k, rounds=7, **settings)
        noise = dp_accounting.GaussianDpEvent(z / 2)
        event = noise if k == 50 else dp_accounting.SampledWithoutReplacementDpEvent(50, k, noise)
        theirs = RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE).compose(event, 7)
        assert np.all(found <= np.array(theirs.rdp) * (1 + 1e-9)) and np.all(
            found > 0.24 * np.array(theirs.rdp)
        )
    full = adaped_rdp_safe(ORDERS, num_clients=50, clients_per_round=50, rounds=7, **settings)
    np.testing.assert_allclose(full, 7 * ORDERS * (2 / z) ** 2 / 2)


def test_two_releases_cost_what_their_joint_gaussian_costs():
    pair = [dp_accounting.GaussianDpEvent(z) for z in (6.0, 8.0)]
    apart = event_epsilon(dp_accounting.ComposedDpEvent(pair), 1e-5)
    joint = event_epsilon(adaped_round_event(50, 50, 6.0, 8.0), 1e-5)
    assert joint == pytest.approx(apart, rel=1e-3)


def test_a_whole_training_is_priced_and_sampling_helps():
    prices = []
    for k in (50, 10):
        accountant = ShuffleAccountant()
        accountant.compose(adaped_round_event(50, k, 4.0, 40.0), 20)
        prices.append(accountant.get_epsilon(1e-5))
    assert prices[1] < prices[0]
    curve = adaped_rdp_safe(
        ORDERS, num_clients=50, clients_per_round=50, rounds=20, noise_multiplier=4.0,
        psi_noise_multiplier=40.0,
    )  # fmt: skip
    assert prices[0] < min(curve + math.log(1e5) / (ORDERS - 1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: joint_multiplier(1.0, 0.0), "multipliers must be"),
        (lambda: joint_multiplier(), "multipliers must be"),
        (lambda: adaped_round_event(10, 11, 1.0, 1.0), r"clients_per_round must lie in \[1, 10\]"),
        (lambda: adaped_message_event(0, 1.0, 1.0), "local_steps must be"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()
