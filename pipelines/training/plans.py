"""The plans of all algorithms, and `make_plan`, which makes that of a training's flags.

* `ReportPlan` (`cldp-sgd`, `fedavg`): clients randomize what they report, and a shuffler stands
  between them and the server.
* `AdapedPlan` (`adaped`): the server adds the noise.
* `LocalCentralPlan` (`local-central`): so does it, and clients do too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import attr
import dp_accounting

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    PrivacyBound,
    shuffled_event,
)
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.literature.methods import DEFAULT, price_of, schedule_epsilon
from beam_ldp.accounting.literature.schedule import Sampling, Schedule
from beam_ldp.accounting.literature.two_ledgers import (
    adaped_message_event,
    adaped_round_event,
    central_round_event,
    joint_multiplier,
)
from beam_ldp.accounting.reconstruction import DiffuseTarget, SparseTarget, Target
from beam_ldp.accounting.reconstruction_audit import ReconstructionAudit, audit_messages
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.federated.record import joint_event
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.records.forging import (
    ONE_WAY,
    forged_in_rounds,
    forged_list,
    forged_moves,
    forged_usually,
)
from beam_ldp.pipelines.records.lost_runs import LostRoundsPrice
from beam_ldp.pipelines.records.wording import number
from beam_ldp.pipelines.training.plan import (
    DataFacts,
    PricePoint,
    TrainingPlan,
    check_fits,
    composed,
    count_parameters,
    cut_to_target,
    model_of,
)
from beam_ldp.pipelines.training.settings import TrainSettings, target_of
from beam_ldp.pipelines.usage.train import (
    ADAPED,
    CLDP_SGD,
    DISTILLATION,
    LOCAL_CENTRAL,
    SHUFFLED_EPOCHS,
)
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
    compact_mean,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.rounded_directions import RoundedDirectionMean
from beam_ldp.settings.sections import MOST_PROMISED

SHARE_OF_BIT = 0.1  # of the local epsilon, for the bit that an adaptive clip asks for

_THESIS = ("thesis, Theorem 5.4.1", "thesis, Theorem 5.3.1")
_L2 = (PrivUnit, PrivUnitGaussian, SeparatedMean, L2Mean)
_OF_ONE_SAMPLE = "{} come from one sample: composed among those drawn, and then sampled"
_SAMPLING = {"fixed": "without_replacement", "full": "without_replacement", "self": "self",
             SHUFFLED_EPOCHS: "shuffled_epochs"}  # fmt: skip


def mechanism_for(settings: TrainSettings, dimension: int) -> MeanRandomizer:
    """The mechanism of one report, with as many messages as it was asked for.

    By default a vector of `linf` goes in one message; of the other norms the mechanism chooses.

    Raises:
        UsageError: if the name is none of its norm, or the parameters do not fit.
    """
    epsilon, radius, norm = settings.local_epsilon, settings.clip, settings.question.norm
    if settings.adaptive_clip:  # the norm of a round scales it
        epsilon, radius = epsilon - SHARE_OF_BIT * epsilon, 1.0
    by_name = {kind.__name__: kind for kind in _L2}
    if norm != "l2":
        by_name = {"LInfMean": LInfMean} if norm == "linf" else {"L1Mean": L1Mean}  # type: ignore[dict-item]
    name = next(iter(by_name)) if settings.mechanism.name == "auto" else settings.mechanism.name
    if name not in by_name:
        raise UsageError(
            f"--mechanism must be auto or one of {', '.join(by_name)} with --norm {norm}, "
            f"got {name}"
        )
    kind, count = by_name[name], settings.mechanism.messages
    own: dict[str, Any] = {}
    if count is not None and not issubclass(kind, BlockMean):
        raise UsageError(f"--messages is for LInfMean, L1Mean and L2Mean, not for {name}")
    if count is not None or norm == "linf":
        count = count or 1
        if count > dimension:
            raise UsageError(
                f"--messages must be at most {dimension:,}, the parameters of the model, "
                f"got {count:,}"
            )
        own = {"messages": (count,), "message_epsilons": (epsilon / count,)}
    try:
        return compact_mean(kind, dimension, local_epsilon=epsilon, radius=radius, **own)
    except ValueError as error:
        raise UsageError(f"--mechanism {name}: {error}") from None


def bit_for(local_epsilon: float) -> BinaryVectorMean:
    """What randomizes a client's bit about its norm, with an adaptive clip of that budget."""
    return BinaryVectorMean(1, local_epsilon, messages=(1,), message_epsilons=(local_epsilon,))


@dataclass(frozen=True)
class ReportPlan(TrainingPlan):
    """A training whose clients send randomized reports.

    Attributes:
        mechanism: of one report.
        bit: of the bit about its norm; None where clipping is fixed.
    """

    mechanism: MeanRandomizer
    bit: BinaryVectorMean | None = None

    def for_release(self, identity: ReleaseIdentity) -> ReportPlan:
        return replace(self, mechanism=self.mechanism.for_release(identity))

    @property
    def points(self) -> tuple[int, int]:
        """Data points per client, and of them sampled, as far as the price knows of them."""
        if self.question.algorithm == CLDP_SGD:
            return self.question.points_per_client, self.question.points_sampled
        return 1, 1

    @property
    def reports_per_round(self) -> int:
        return self.clients_per_round * self.points[1]

    @property
    def parts(self) -> tuple[MeanRandomizer, ...]:
        """What a report is made of: the vector, and the bit about its norm if there is one."""
        return (self.mechanism,) if self.bit is None else (self.mechanism, self.bit)

    @cached_property
    def schedule(self) -> Schedule:
        """What runs, for the methods of accounting. Two messages are one of their summed budget."""
        return Schedule(
            self.report_epsilon,
            self.data.num_clients,
            self.clients_per_round,
            max(1, self.rounds),
            *self.points,
            cast("Sampling", _SAMPLING[self.question.sampling]),
            self.mechanism if self.bit is None else None,
        )

    @property
    def _by_message(self) -> bool:
        """Whether vector and bit are priced as two shuffled messages: only without sampling."""
        return self.bit is not None and not self.schedule.sampled

    @cached_property
    def event(self) -> dp_accounting.DpEvent:
        if not self.schedule.sampled and (self.bit is not None or self.messages > 1):
            events = [shuffled_event(part, self.least_reports) for part in self.parts]
            return events[0] if self.bit is None else dp_accounting.ComposedDpEvent(events)
        return self._event_of(joint_event(self.parts))

    @property
    def _loses_clients(self) -> bool:
        return self.least_clients < self.clients_per_round

    def _event_of(self, local: LocalRandomizerDpEvent) -> dp_accounting.DpEvent:
        """A round (or an epoch) of reports of this kind, to which as few come as may."""
        event: Any = self.schedule.event(local)
        if not self._loses_clients:
            return event
        if not self.schedule.sampled:
            return attr.evolve(event, num_reports=self.least_reports)
        return attr.evolve(event, num_received=self.least_clients)

    @property
    def reader(self) -> str:
        hidden = ", who do not see who took part" if self.schedule.sampled else ""
        return f"readers of models{hidden}"

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.mechanism.to_config())

    @property
    def asked(self) -> dict[str, Any]:
        if isinstance(self.mechanism, RoundedDirectionMean):
            return dict(self.mechanism.unrounded.to_config())
        return self.config

    @property
    def mechanism_words(self) -> str:
        bit = ""
        if self.bit is not None:
            bit = f" and a bit about the norm, local epsilon = {number(self.bit.local_epsilon)}"
        own = type(self.mechanism).__name__
        many = f" in {self.messages:,} messages" if self.messages > 1 else ""
        return f"{own}, local epsilon = {number(self.mechanism.local_epsilon)}{many}{bit}"

    @property
    def messages(self) -> int:
        """Of one vector."""
        return self.mechanism.messages_per_user

    @property
    def report_epsilon(self) -> float:
        return sum(part.local_epsilon for part in self.parts)

    @property
    def forged(self) -> dict[str, float] | None:
        return forged_moves(self.mechanism, 1)

    @cached_property
    def check(self) -> CollusionCheck | None:
        if not self.question.drop_colluders:
            return None
        try:
            return CollusionCheck(self.mechanism)
        except ValueError as error:
            raise UsageError(f"--drop-colluders: {error}") from None

    @property
    def forged_words(self) -> str:
        clip = None if self.settings.adaptive_clip else self.settings.clip
        said = forged_in_rounds(self.mechanism, self.question.norm, clip)
        if self.check is None:
            return said
        moves = forged_usually(self.check, self.clients_per_round)
        return (
            f"{said}; {ONE_WAY}: then by about {forged_list(moves)}, and each round tells a bound"
        )

    @property
    def bits_per_report(self) -> int:
        return sum(part.bits_per_report for part in self.parts)

    @property
    def exactness(self) -> str:  # type: ignore[override]
        return self.mechanism.exactness

    @property
    def pricing_note(self) -> str:  # type: ignore[override]
        if self.bit is None:
            sampled = self.messages > 1 and self.schedule.sampled
            return _OF_ONE_SAMPLE.format("the messages of a report") if sampled else ""
        if self._by_message:
            return "the report and the bit about its norm are two shuffled messages"
        if joint_event(self.parts).columns:
            return _OF_ONE_SAMPLE.format("the report and the bit about its norm")
        return (
            "the report and the bit about its norm come from one sample: the cost proved for them "
            "is that of any mechanism with the sum of their local epsilons"
        )

    def local_epsilon_of(self, rounds: int) -> float:
        """A client that is drawn in every round, or takes part in every epoch."""
        return self.events_of(rounds) * self.points[1] * self.report_epsilon

    def epsilon_of(self, rounds: int) -> PrivacyBound:
        if self.bit is not None or self.rounds_per_event > 1 or self._loses_clients:
            return super().epsilon_of(rounds)
        return schedule_epsilon(replace(self.schedule, rounds=rounds), self.settings.privacy.delta)

    def seen_epsilon_of(self, rounds: int) -> float | None:
        schedule = replace(self.schedule, rounds=rounds)
        if not schedule.sampled:
            return None
        seen, few = schedule.seen, self.least_reports
        if self._loses_clients:
            seen = replace(seen, num_users=few, num_sampled=few)
        return float(schedule_epsilon(seen, self.settings.privacy.delta))

    def price_after(self, rounds: int) -> PricePoint:
        """By all three accountants."""
        schedule, delta = replace(self.schedule, rounds=rounds), self.settings.privacy.delta
        if self._loses_clients:  # which the thesis has no theorem for
            event = self._event_of(LocalRandomizerDpEvent(self.report_epsilon))
            any_mechanism = float(composed(event, self.events_of(rounds), delta))
            return replace(super().price_after(rounds), any_mechanism=any_mechanism)
        thesis = (price_of(name, schedule, delta) for name in _THESIS)
        return replace(
            super().price_after(rounds),
            any_mechanism=price_of(DEFAULT, schedule, delta),
            thesis=next((found for found in thesis if found is not None), None),
        )


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
    def round_price(self) -> LostRoundsPrice:
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


def make_plan(settings: TrainSettings, data: DataFacts) -> TrainingPlan:
    """The plan of these flags, with as many rounds as the target allows.

    Raises:
        UsageError: if the flags do not fit the data.
        NothingReleasedError: if the target does not allow a single round.
    """
    check_fits(settings, data)
    model = model_of(settings.question.model, data.shape)
    about = settings, data, model, count_parameters(model, data.shape, data.num_classes), 0
    try:
        plan = cut_to_target(_plan(settings, about))
        plan.epsilon_of(1)  # what has no price is refused here
    except ValueError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None
    _check_local(plan)
    _check_least(plan)
    return plan


def _check_local(plan: TrainingPlan) -> None:
    """A UsageError where a client loses more in one round than the settings allow."""
    local, privacy = plan.local_epsilon_of(1), plan.settings.privacy
    if local is not None and local > privacy.local_limit * (1 + 1e-9):
        flag = "--max-local-epsilon" if local <= MOST_PROMISED else "--trust-shuffler"
        raise UsageError(
            f"a client's reports of one round have a local epsilon of {number(local)} together, "
            f"above the limit of {privacy.local_limit:g}: choose less, or allow it with {flag}"
        )


def _check_least(plan: TrainingPlan) -> None:
    """A UsageError where one report that is left out would end the training."""
    may_lose = plan.question.sampling == "self" or plan.least_clients < plan.clients_per_round
    if plan.check is not None and not may_lose:
        raise UsageError(
            "--drop-colluders needs --least-clients below the clients of a round: whoever is left "
            "out hides nobody, so rounds are priced as those of so few"
        )


def _plan(
    settings: TrainSettings, about: tuple[TrainSettings, DataFacts, str, int, int]
) -> TrainingPlan:
    dimension = about[3]
    if settings.question.algorithm == ADAPED:
        return AdapedPlan(*about)
    if settings.question.algorithm == LOCAL_CENTRAL:
        mechanism = SeparatedMean(dimension, settings.local_epsilon, radius=settings.clip)
        return LocalCentralPlan(*about, mechanism)
    bit = bit_for(SHARE_OF_BIT * settings.local_epsilon) if settings.adaptive_clip else None
    return ReportPlan(*about, mechanism_for(settings, dimension), bit)
