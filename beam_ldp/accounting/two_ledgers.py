"""Two promises kept apart: what each message tells, and what models tell.

Clients randomize their updates (local epsilon); the server projects every message to a ball, adds
up those of clients who joined by a coin, and adds Gaussian noise (central epsilon, delta). Whoever
sees messages reads the first ledger, whoever sees models only the second. Neither follows from the
other. Coins are credited against readers who do not see who joined; for one who does, a client's
rounds are counted.

Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, section 3. Its closed forms of the
central noise are wrong (docs/errata.md); divergences are computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation

from beam_ldp.accounting.composition.accountant import ShuffleAccountant
from beam_ldp.accounting.composition.sampled_gaussian import SampledGaussian
from beam_ldp.accounting.divergences.curve_losses import STEPS_PER_DEVIATION
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.reconstruction import Target
from beam_ldp.accounting.reconstruction_audit import ReconstructionAudit, audit_messages
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.mean.base import MeanRandomizer

_MOST_NOISE = 1e100  # its square is a number
_MOST_LOSSES = 1 << 18  # of a grid


def central_round_event(sampling_rate: float, noise_multiplier: float) -> dp_accounting.DpEvent:
    """One round: everybody joins by a coin, unseen; the noisy sum of projected messages is shown.

    Args:
        sampling_rate: q in (0, 1], the coin.
        noise_multiplier: standard deviation of the noise of the sum, in radii of the projection.

    >>> central_round_event(0.1, 2.0).sampling_probability
    0.1
    """
    check_fraction("sampling_rate", sampling_rate, "(]")
    if not 0 < noise_multiplier <= _MOST_NOISE:
        raise ValueError(
            f"noise_multiplier must be > 0 and <= {_MOST_NOISE:g}, got {noise_multiplier}"
        )
    gaussian = dp_accounting.GaussianDpEvent(noise_multiplier)
    return dp_accounting.PoissonSampledDpEvent(sampling_rate, gaussian)


def multiplier_of_average(deviation: float, projection: float, expected_clients: float) -> float:
    """Noise multiplier, from the noise of the averaged update: sigma q N / rho.

    Papers print `deviation` with a batch that they assume for privacy and another that they
    train with. Give each, and compare.

    >>> multiplier_of_average(0.005, 100.0, 20_000), multiplier_of_average(0.005, 100.0, 200)
    (1.0, 0.01)
    """
    return deviation * expected_clients / projection


def add_remove_epsilon(event: dp_accounting.DpEvent, rounds: int, delta: float) -> float:
    """Price of so many rounds where somebody is added or removed: for comparison.

    By the distributions of losses, as `ShuffleAccountant` prices replacing somebody, which is what
    everything else here protects. Papers print this one, by Rényi orders, which cost up to three
    times as much where few join. It supposes that nobody sees how many did.

    Args:
        event: of one round (`central_round_event`).
        rounds: how often.
        delta: in (0, 1).

    >>> round(add_remove_epsilon(central_round_event(0.002, 1.0), 100, 1e-9), 3)
    0.552
    """
    from dp_accounting.pld import PLDAccountant  # takes a while to load

    # Whoever is added is in the sum or it is as without them: two places, as in a fixed sample.
    one = SampledGaussian(event.sampling_probability, 1 / event.event.noise_multiplier, False)
    step = max(one.deviation / STEPS_PER_DEVIATION, one.largest_loss / _MOST_LOSSES)
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, step)
    return float(accountant.compose(event, rounds).get_epsilon(delta))


@dataclass
class TwoLedgers:
    """What a training has cost so far, for both readers.

    A client that has reached `max_participations` does not join any more, whatever its coin says.
    That makes no round dearer (`composition.sampled_gaussian` has the proof).

    Attributes:
        mechanism: with which every message is randomized.
        round_event: of one round (`central_round_event`).
        num_clients: N.
        max_participations: messages that one client sends at most; None for no limit.

    Raises:
        ValueError: if a number is out of range.
    """

    mechanism: MeanRandomizer
    round_event: dp_accounting.DpEvent
    num_clients: int
    max_participations: int | None = None
    participations: np.ndarray = field(init=False)
    rounds: int = field(init=False, default=0)
    _central: ShuffleAccountant = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if self.num_clients < 1:
            raise ValueError(f"num_clients must be >= 1, got {self.num_clients}")
        if self.max_participations is not None and self.max_participations < 1:
            raise ValueError(f"max_participations must be >= 1, got {self.max_participations}")
        self.participations = np.zeros(self.num_clients, np.int64)
        self._central = ShuffleAccountant()

    def allowed(self, clients: Sequence[int]) -> list[int]:
        """Those of the drawn clients who may send one more message."""
        if self.max_participations is None:
            return list(clients)
        return [c for c in clients if self.participations[c] < self.max_participations]

    def would_exceed(self, epsilon: float, delta: float) -> bool:
        """Whether one more round would cost readers of models more than this."""
        return self._central.would_exceed(self.round_event, epsilon=epsilon, delta=delta)

    def charge(self, clients: Sequence[int]) -> None:
        """One round in which these clients sent a message each.

        Raises:
            ValueError: if a client is there twice or is unknown, or has sent too many.
        """
        if len(set(clients)) < len(clients) or self.allowed(clients) != list(clients):
            raise ValueError("clients must be different and below max_participations")
        if any(not 0 <= c < self.num_clients for c in clients):
            raise ValueError(f"clients must lie in [0, {self.num_clients})")
        self.participations[list(clients)] += 1
        self._central.compose(self.round_event)
        self.rounds += 1

    def recall(self, participations: np.ndarray, rounds: int, lost: int) -> None:
        """Go on where another program ended, of whose last rounds nobody knows who joined.

        Args:
            participations: messages that each client sent before those.
            rounds: that began, all of them.
            lost: the last of them: everybody counts as having joined each, as far as she may have.

        Raises:
            ValueError: if those are not so many clients, or something was charged here already.
        """
        if participations.shape != self.participations.shape or self.rounds:
            raise ValueError(f"participations must be of {self.num_clients} clients, once")
        most = np.inf if self.max_participations is None else self.max_participations
        self.participations[:] = np.minimum(participations + lost, most)
        self._central.compose(self.round_event, rounds)
        self.rounds = rounds

    @property
    def local_epsilon(self) -> float:
        """Of the client who sent most messages, against whoever sees them: budgets add."""
        return float(self.participations.max()) * self.mechanism.local_epsilon

    def central_epsilon(self, delta: float) -> PrivacyBound:
        """Against readers of all models, who do not see who joined (replace-one)."""
        return self._central.get_epsilon(delta)

    def seen_epsilon(self, delta: float) -> PrivacyBound:
        """Against readers of all models who see who joined, for the client that sent most.

        No coin hides anybody from them (replace-one).
        """
        accountant, most = ShuffleAccountant(), int(self.participations.max())
        if most:
            accountant.compose(self.round_event.event, most)
        return accountant.get_epsilon(delta)

    def audit(self, targets: Iterable[Target]) -> ReconstructionAudit:
        """Chances of rebuilding targets from all messages of the client who sent most."""
        return audit_messages(self.mechanism, targets, max(1, int(self.participations.max())))

    def report(self, delta: float, targets: Iterable[Target] = ()) -> str:
        """Both ledgers and the audit, to be printed with a run."""
        most, mean = int(self.participations.max()), self.participations.mean()
        hidden, seen = self.central_epsilon(delta), self.seen_epsilon(delta)
        compared = add_remove_epsilon(self.round_event, self.rounds, delta) if self.rounds else 0.0
        lines = [
            f"Messages, to whoever sees them with their sender: local epsilon "
            f"{self.local_epsilon:g} ({most} of {self.mechanism.local_epsilon:g} each at most; "
            f"mean {mean:.3g})",
            f"Models of {self.rounds} rounds, epsilon at delta {delta:g}, by "
            f"{hidden.method.partition(' (')[0]}:",
            f"  to whoever sees no message and not who joined: {float(hidden):.4g} if a client is "
            f"replaced, {compared:.4g} if one is added or removed",
            f"  to whoever sees no message, but who joined: {float(seen):.4g} if the client of "
            f"most rounds ({most}) is replaced; that a client joined is not protected",
        ]
        targets = list(targets)
        return "\n".join(lines + ([str(self.audit(targets))] if targets else []))


# What personalisation with adaptive distillation (DP-AdaPeD) costs.
#
# Every round K of n clients take tau local steps and send what they did to a shared model mu and
# to a scale psi. Protected is all data of one client (replace-one, participation not).
# Multipliers count, as dp-accounting's do, from one client's largest length: noise of standard
# deviation z C on the sum of changes of length C at most.


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
    check_integer("local_steps", local_steps, 1)
    joint = joint_multiplier(noise_multiplier, psi_noise_multiplier)
    return dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(joint), local_steps)
