"""Trainings whose clients randomize what they report, and a shuffler between them and the server:
`cldp-sgd` and `fedavg`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import dp_accounting

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    PrivacyBound,
    local_event,
    shuffled_event,
)
from beam_ldp.accounting.literature.comparison import price_of, schedule_epsilon
from beam_ldp.accounting.literature.methods import DEFAULT
from beam_ldp.accounting.literature.schedule import Sampling, Schedule
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.training.flags import CLDP_SGD
from beam_ldp.pipelines.training.plan import PricePoint, TrainingPlan, composed
from beam_ldp.pipelines.training.settings import TrainSettings
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer

SHARE_OF_BIT = 0.1  # of the local epsilon, for the bit that an adaptive clip asks for

_THESIS = ("thesis, Theorem 5.4.1", "thesis, Theorem 5.3.1")
_L2 = (PrivUnit, PrivUnitGaussian, SeparatedMean, L2Mean)
_SAMPLING = {"fixed": "without_replacement", "full": "without_replacement", "self": "self"}


def mechanism_for(settings: TrainSettings, dimension: int) -> MeanRandomizer:
    """The mechanism of one report: one message, so that its own pair prices it.

    Raises:
        UsageError: if the name is none of its norm, or the parameters do not fit.
    """
    epsilon, radius = settings.local_epsilon, settings.clip
    if settings.adaptive_clip:  # the norm of a round scales it
        epsilon, radius = epsilon - SHARE_OF_BIT * epsilon, 1.0
    by_name = {kind.__name__: kind for kind in _L2}
    if settings.norm != "l2":
        by_name = {"LInfMean": LInfMean} if settings.norm == "linf" else {"L1Mean": L1Mean}  # type: ignore[dict-item]
    name = next(iter(by_name)) if settings.mechanism == "auto" else settings.mechanism
    if name not in by_name:
        raise UsageError(
            f"--mechanism must be auto or one of {', '.join(by_name)} with --norm {settings.norm}, "
            f"got {name}"
        )
    one: dict[str, Any] = {}
    if settings.norm == "linf":
        one = {"messages": (1,), "message_epsilons": (epsilon,)}
    try:
        return by_name[name](dimension, epsilon, radius=radius, **one)
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
        if self.settings.algorithm == CLDP_SGD:
            return self.settings.points_per_client, self.settings.points_sampled
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
            cast("Sampling", _SAMPLING[self.settings.sampling]),
            self.mechanism if self.bit is None else None,
        )

    @property
    def _by_message(self) -> bool:
        """Whether vector and bit are priced as two shuffled messages: only without sampling."""
        return self.bit is not None and not self.schedule.sampled

    @cached_property
    def event(self) -> dp_accounting.DpEvent:
        if self._by_message:
            return dp_accounting.ComposedDpEvent(
                [shuffled_event(part, self.reports_per_round) for part in self.parts]
            )
        if self.bit is not None:
            return self.schedule.event(LocalRandomizerDpEvent(self.report_epsilon))
        return self.schedule.event(local_event(self.mechanism))

    @property
    def reader(self) -> str:
        hidden = ", who do not see who took part" if self.schedule.sampled else ""
        return f"readers of models{hidden}"

    @property
    def config(self) -> dict[str, Any]:
        return dict(self.mechanism.to_config())

    @property
    def mechanism_words(self) -> str:
        bit = ""
        if self.bit is not None:
            bit = f" and a bit about the norm, local epsilon = {number(self.bit.local_epsilon)}"
        own = type(self.mechanism).__name__
        return f"{own}, local epsilon = {number(self.mechanism.local_epsilon)}{bit}"

    @property
    def report_epsilon(self) -> float:
        return sum(part.local_epsilon for part in self.parts)

    @property
    def bits_per_report(self) -> int:
        return sum(part.bits_per_report for part in self.parts)

    @property
    def exactness(self) -> str:  # type: ignore[override]
        return self.mechanism.exactness

    @property
    def pricing_note(self) -> str:  # type: ignore[override]
        if self.bit is None:
            return ""
        if self._by_message:
            return "the report and the bit about its norm are two shuffled messages"
        return (
            "the report and the bit about its norm come from one sample: what is proved for them "
            "is the price of every mechanism with the sum of their local epsilons"
        )

    def local_epsilon_of(self, rounds: int) -> float:
        """A client that is drawn in every round."""
        return rounds * self.points[1] * self.report_epsilon

    def epsilon_of(self, rounds: int) -> PrivacyBound:
        if self._by_message:
            return composed(self.event, rounds, self.settings.delta)
        return schedule_epsilon(replace(self.schedule, rounds=rounds), self.settings.delta)

    def seen_epsilon_of(self, rounds: int) -> float | None:
        schedule = replace(self.schedule, rounds=rounds)
        if not schedule.sampled:
            return None
        return float(schedule_epsilon(schedule.seen, self.settings.delta))

    def price_after(self, rounds: int) -> PricePoint:
        """By all three accountants."""
        schedule, delta = replace(self.schedule, rounds=rounds), self.settings.delta
        thesis = (price_of(name, schedule, delta) for name in _THESIS)
        return replace(
            super().price_after(rounds),
            any_mechanism=price_of(DEFAULT, schedule, delta),
            thesis=next((found for found in thesis if found is not None), None),
        )
