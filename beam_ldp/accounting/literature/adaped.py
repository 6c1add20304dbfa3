"""What personalisation with adaptive distillation (DP-AdaPeD) costs, as printed and as proved.

Every round K of n clients take tau local steps and send what they did to a shared model mu and to a
scale psi. Protected is all data of one client (replace-one, participation not). Multipliers count,
as dp-accounting's do, from one client's largest length: noise of standard deviation z C on the sum
of changes of length C at most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import dp_accounting
import numpy as np

from beam_ldp.accounting.composition.central import canonical, divergences


def adaped_rdp_printed(
    orders: Sequence[float] | np.ndarray,
    *,
    num_clients: int,
    clients_per_round: int,
    steps: int,
    local_steps: int,
    clip: float,
    noise: float,
    psi_clip: float,
    psi_noise: float,
) -> np.ndarray:
    """Theorem 4.5.1 of the thesis as printed. **Not a bound**: for comparison only.

    It understates by the factor `local_steps` (tau aligned steps move a sum by tau C, not by
    sqrt(tau) C), treats noise in the middle of other clients' trainings as if it were added at the
    end, and supposes that nobody sees a single client's message.

    Args:
        orders: Rényi orders above one.
        num_clients: n.
        clients_per_round: K.
        steps: T, local steps in all.
        local_steps: tau, between two synchronisations.
        clip: C1, of one step's gradient of mu.
        noise: standard deviation added to it.
        psi_clip: C2, of one step's derivative in psi.
        psi_noise: standard deviation added to it.

    Returns:
        The printed divergence at each order, in nats.
    """
    rounds = steps / local_steps
    k = clients_per_round
    squares = clip**2 / (k * noise**2) + psi_clip**2 / (k * psi_noise**2)
    return np.asarray(orders, float) * (k / num_clients) ** 2 * 6 * rounds * squares


def joint_multiplier(*multipliers: float) -> float:
    """The one Gaussian mechanism that several about the same data amount to: z^-2 = sum z_i^-2.

    >>> joint_multiplier(3.0, 4.0)
    2.4
    """
    if not multipliers or not all(z > 0 for z in multipliers):
        raise ValueError("multipliers must be numbers > 0")
    return sum(z**-2 for z in multipliers) ** -0.5


def adaped_round_event(
    num_clients: int, clients_per_round: int, noise_multiplier: float, psi_noise_multiplier: float
) -> dp_accounting.DpEvent:
    """One round of the safe variant, for readers of the models who do not see who took part.

    The changes of mu and psi over the whole round are clipped once, their sums over K clients get
    noise once, from the server.

    >>> adaped_round_event(50, 50, 3.0, 4.0)
    GaussianDpEvent(noise_multiplier=2.4)
    """
    if not 1 <= clients_per_round <= num_clients:
        raise ValueError(f"clients_per_round must lie in [1, {num_clients}]")
    noise = dp_accounting.GaussianDpEvent(joint_multiplier(noise_multiplier, psi_noise_multiplier))
    if clients_per_round == num_clients:
        return noise
    return dp_accounting.SampledWithoutReplacementDpEvent(num_clients, clients_per_round, noise)


def adaped_rdp_safe(
    orders: Sequence[float] | np.ndarray,
    *,
    num_clients: int,
    clients_per_round: int,
    rounds: int,
    noise_multiplier: float,
    psi_noise_multiplier: float,
) -> np.ndarray:
    """Rényi divergence of `rounds` rounds of the safe variant: see `adaped_round_event`.

    >>> adaped_rdp_safe(
    ...     [2.0], num_clients=50, clients_per_round=50, rounds=10, noise_multiplier=3.0,
    ...     psi_noise_multiplier=4.0,
    ... ).round(3)
    array([6.944])
    """
    event = adaped_round_event(
        num_clients, clients_per_round, noise_multiplier, psi_noise_multiplier
    )
    return rounds * divergences(canonical(event), np.asarray(orders, float))


def adaped_message_event(
    local_steps: int, noise_multiplier: float, psi_noise_multiplier: float
) -> dp_accounting.DpEvent:
    """One message of the printed algorithm, for whoever sees it and knows the sender.

    Each of tau steps is clipped and gets noise on the client: tau Gaussian mechanisms that choose
    what they ask after seeing earlier answers. This is the part of the printed guarantee that is
    proved for every tau; sampling earns nothing against this reader.

    Args:
        local_steps: tau.
        noise_multiplier: noise of one step's gradient of mu, in units of its clipping norm.
        psi_noise_multiplier: likewise of the derivative in psi.

    >>> adaped_message_event(10, 3.0, 4.0)
    SelfComposedDpEvent(event=GaussianDpEvent(noise_multiplier=2.4), count=10)
    """
    if local_steps < 1 or not math.isfinite(local_steps):
        raise ValueError(f"local_steps must be an integer >= 1, got {local_steps}")
    joint = joint_multiplier(noise_multiplier, psi_noise_multiplier)
    return dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(joint), local_steps)
