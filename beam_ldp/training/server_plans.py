"""The plans of trainings whose server adds noise: `adaped` and `local-central`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import dp_accounting

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.reconstruction import DiffuseTarget, SparseTarget, Target
from beam_ldp.accounting.reconstruction_audit import ReconstructionAudit, audit_messages
from beam_ldp.accounting.two_ledgers import (
    adaped_message_event,
    adaped_round_event,
    central_round_event,
    joint_multiplier,
)
from beam_ldp.randomizers.mean import SeparatedMean
from beam_ldp.release.interrupted_runs import RoundsPrice
from beam_ldp.training.plan import TrainingPlan, composed
from beam_ldp.training.settings import target_of
from beam_ldp.training.usage import DISTILLATION
from beam_ldp.wording import number

_FLOAT_BITS = 64  # of each number that a client of `adaped` sends


@dataclass(frozen=True)
class AdapedPlan(TrainingPlan):
    """Every client keeps a model of its own and distils a shared one.

    "safe": the server is trusted with what clients send and adds the noise. "printed": clients add
    noise, and what is charged is what their own messages tell the server.
    """

    @property
    def _multipliers(self) -> tuple[float, float]:
        return self.question.noise_multiplier, self.question.psi_noise_multiplier

    @property
    def printed(self) -> bool:
        return self.question.preset == "printed"

    @cached_property
    def event(self) -> dp_accounting.DpEvent:
        if self.printed:
            return adaped_message_event(self.question.local_steps, *self._multipliers)
        return adaped_round_event(self.data.num_clients, self.clients_per_round, *self._multipliers)

    @property
    def reader(self) -> str:
        if self.printed:
            return "the server, which sees every client's messages, in every round"
        sampled = self.clients_per_round < self.data.num_clients
        hidden = ", who do not see who took part" if sampled else ""
        return f"readers of shared models{hidden}; the server is trusted"

    @property
    def config(self) -> dict[str, Any]:
        names = ("preset", "noise_multiplier", "psi_noise_multiplier", "psi_clip", "local_steps")
        told = {name: getattr(self.question, name) for name in names}
        if self.question.prior != DISTILLATION:
            told["prior"] = self.question.prior
        return {"mechanism": "adaped", "clip": self.settings.clip, **told}

    @property
    def mechanism_words(self) -> str:
        who = "clients, in every step" if self.printed else "the server"
        z, psi_z = self._multipliers
        return f"Gaussian noise of {who}: {z:g} (psi {psi_z:g}) times the clipping norm"

    @property
    def report_epsilon(self) -> None:
        return None

    @property
    def bits_per_report(self) -> int:
        return _FLOAT_BITS * (self.dimension + 1)

    @property
    def pricing_note(self) -> str:  # type: ignore[override]
        if not self.printed:
            return ""
        return (
            "warning: the cost printed in the thesis for this preset is false; what is charged is "
            "the proved cost of a client's own messages, without any credit for sampling"
        )

    def local_epsilon_of(self, rounds: int) -> None:
        return None

    def seen_epsilon_of(self, rounds: int) -> float | None:
        if self.printed or self.clients_per_round == self.data.num_clients:
            return None
        noise = dp_accounting.GaussianDpEvent(joint_multiplier(*self._multipliers))
        busiest = replace(self, rounds=rounds).busiest
        return float(composed(noise, busiest, self.settings.privacy.delta))


@dataclass(frozen=True)
class LocalCentralPlan(TrainingPlan):
    """Messages with a large local epsilon, projected and noised by the server.

    Attributes:
        mechanism: of one message.
    """

    mechanism: SeparatedMean

    counts_are_public = False  # the price of coins supposes that nobody counts who joined

    @cached_property
    def event(self) -> dp_accounting.DpEvent:
        rate = self.clients_per_round / self.data.num_clients
        return central_round_event(rate, self.question.noise_multiplier)

    @cached_property
    def _noise(self) -> dp_accounting.DpEvent:
        """One round for somebody who is known to be in it."""
        return dp_accounting.GaussianDpEvent(self.question.noise_multiplier)

    @cached_property
    def _by_limit(self) -> bool:
        """Whether a limit on messages bounds the price better than the coins do."""
        if self.question.max_participations is None:
            return False
        delta, rounds = self.settings.privacy.delta, max(1, self.rounds)
        often = self.messages_of(rounds)
        return composed(self._noise, often, delta) < composed(self.event, rounds, delta)

    @property
    def charged_event(self) -> dp_accounting.DpEvent:
        """The coins of all rounds; where it costs less, the noise of those one client may be in.

        Both are proved: who joined when does not depend on data.
        """
        return self._noise if self._by_limit else self.event

    @property
    def reader(self) -> str:
        return "readers of models, who see neither messages nor who took part"

    @property
    def config(self) -> dict[str, Any]:
        names = ("projection", "noise_multiplier", "max_participations")
        told = {name: getattr(self.question, name) for name in names}
        return {**self.mechanism.to_config(), **told}

    @property
    def mechanism_words(self) -> str:
        own = type(self.mechanism).__name__
        return (
            f"{own}, local epsilon = {number(self.mechanism.local_epsilon)}; projection to "
            f"{self.question.projection:g} and noise of {self.question.noise_multiplier:g} "
            "times that by the server"
        )

    @property
    def report_epsilon(self) -> float:
        return self.mechanism.local_epsilon

    @property
    def bits_per_report(self) -> int:
        return self.mechanism.bits_per_report

    @property
    def exactness(self) -> str:  # type: ignore[override]
        return self.mechanism.exactness

    @property
    def pricing_note(self) -> str:  # type: ignore[override]
        if not self._by_limit:
            return ""
        return (
            "a ledger is charged the noise of the rounds that one client may be in, without the "
            "credit for coins: that costs less here, also against readers who see who took part"
        )

    def messages_of(self, rounds: int) -> int:
        """That one client sends at most."""
        most = self.question.max_participations
        return rounds if most is None else min(rounds, most)

    def local_epsilon_of(self, rounds: int) -> float:
        """A client that sends as many messages as it may."""
        return self.messages_of(rounds) * self.mechanism.local_epsilon

    def seen_epsilon_of(self, rounds: int) -> float | None:
        busiest = min(replace(self, rounds=rounds).busiest, self.messages_of(rounds))
        return float(composed(self._noise, busiest, self.settings.privacy.delta))

    @cached_property
    def round_price(self) -> RoundsPrice:
        sent = event_to_json(LocalRandomizerDpEvent(self.mechanism.local_epsilon))
        rounds = max(1, self.rounds)
        often = self.messages_of(rounds)
        most = often if self._by_limit else rounds
        return replace(super().round_price, sent=sent, most=most, most_sent=often)

    @property
    def targets(self) -> list[Target]:
        """What the audit of messages asks about."""
        if self.settings.targets:
            return [target_of(kind, numbers) for kind, numbers in self.settings.targets]
        features = 1
        for side in self.data.shape:
            features *= side
        sizes = [size for size in (self.dimension, features) if size >= 2]
        diffuse: list[Target] = [DiffuseTarget(size, 0.5) for size in sizes]
        return [*diffuse, SparseTarget(20, 2000, 0.5, 0.5)]

    def audit(self, messages: int) -> ReconstructionAudit:
        """Chances of rebuilding targets from so many messages of one client."""
        return audit_messages(self.mechanism, self.targets, messages)
