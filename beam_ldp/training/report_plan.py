"""The plan of trainings whose clients randomize what they report: `cldp-sgd` and `fedavg`.

A shuffler stands between them and the server.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import attr
import dp_accounting

from beam_ldp.accounting import LocalRandomizerDpEvent, PrivacyBound, shuffled_event
from beam_ldp.accounting.schedule import Sampling, Schedule
from beam_ldp.accounting.schedule_prices import CLONES, THESIS, THESIS_SAMPLED, schedule_epsilon
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.federated.record import joint_event
from beam_ldp.questions.forging import (
    ONE_WAY,
    forged_in_rounds,
    forged_list,
    forged_moves,
    forged_usually,
)
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import BinaryVectorMean
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.rounded_directions import RoundedDirectionMean
from beam_ldp.settings import SettingError
from beam_ldp.training.plan import PricePoint, TrainingPlan, composed
from beam_ldp.training.usage import CLDP_SGD, SHUFFLED_EPOCHS
from beam_ldp.wording import number

_OF_ONE_SAMPLE = "{} come from one sample: composed among those drawn, and then sampled"
_SAMPLING = {"fixed": "without_replacement", "full": "without_replacement", "self": "self",
             SHUFFLED_EPOCHS: "shuffled_epochs"}  # fmt: skip


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
            raise SettingError(f"--drop-colluders: {error}") from None

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
        thesis = (one.epsilon(schedule, delta)[0] for one in (THESIS_SAMPLED, THESIS))
        return replace(
            super().price_after(rounds),
            any_mechanism=CLONES.epsilon(schedule, delta)[0],
            thesis=next((found for found in thesis if found is not None), None),
        )
