"""What a training would be and cost, before anything is trained. Needs no TensorFlow.

`TrainingPlan`: what every algorithm says of itself, and what follows from that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import dp_accounting
from scipy import stats

from beam_ldp.accounting import PrivacyBound, ShuffleAccountant
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.schedule import UNLIKELY
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.randomizers.identity import ReleaseIdentity, config_digest
from beam_ldp.release.interrupted_runs import RoundsPrice
from beam_ldp.training.facts import DataFacts
from beam_ldp.training.settings import TrainSettings
from beam_ldp.training.usage import DISTILLATION, SHUFFLED_EPOCHS, TrainingQuestion

_ROWS = 10  # of a printed price list


@dataclass(frozen=True)
class PricePoint:
    """The price after so many rounds, by three accountants.

    Attributes:
        epoch, rounds: after which.
        epsilon: ours, for this mechanism.
        any_mechanism: ours, for every mechanism of this local epsilon.
        thesis: by Theorem 5.4.1 of the thesis (5.3.1 without sampling); None where it does not
            apply.
    """

    epoch: int
    rounds: int
    epsilon: float
    any_mechanism: float | None
    thesis: float | None


@dataclass(frozen=True)
class TrainingPlan(ABC):
    """A training, priced.

    Attributes:
        settings: the flags.
        data: its public facts.
        model: name.
        dimension: parameters of the model.
        rounds: that will run; fewer than `planned_rounds` where the target comes first.
    """

    settings: TrainSettings
    data: DataFacts
    model: str
    dimension: int
    rounds: int

    # What an algorithm says of itself

    @property
    @abstractmethod
    def event(self) -> dp_accounting.DpEvent:
        """What one round (or a shuffled epoch) releases."""

    @property
    @abstractmethod
    def reader(self) -> str:
        """Against whom `epsilon_of` holds, in words."""

    @property
    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The mechanism, for records."""

    @property
    @abstractmethod
    def mechanism_words(self) -> str:
        """The mechanism, briefly, for people."""

    @property
    @abstractmethod
    def report_epsilon(self) -> float | None:
        """What one report promises against everybody; None where a server is trusted with it."""

    @abstractmethod
    def local_epsilon_of(self, rounds: int) -> float | None:
        """What somebody who takes part as often as may be loses to whoever sees all reports."""

    @abstractmethod
    def seen_epsilon_of(self, rounds: int) -> float | None:
        """The price against a reader who sees who takes part; None where that is no other."""

    @property
    @abstractmethod
    def bits_per_report(self) -> int:
        """Of one message."""

    @property
    def compression(self) -> float:
        """How many times as long as a message its vector is, in 32 bits a coordinate."""
        return 32 * self.dimension / self.bits_per_report

    @property
    def forged(self) -> dict[str, float] | None:
        """How far liars move the mean of a round at most, by their share; None: not bounded so."""
        return None

    @property
    def check(self) -> CollusionCheck | None:
        """What leaves out reports that point one way together, if anything."""
        return None

    @property
    def forged_words(self) -> str:
        """The same, for people; empty where nothing is said."""
        return ""

    exactness = "real-arithmetic"
    counts_are_public = True  # whether readers may see how many reports came in a round
    pricing_note = ""  # on how it is priced, where that is worth a line of the plan

    # What follows

    @property
    def question(self) -> TrainingQuestion:
        """What is trained, as it was asked for."""
        return self.settings.question

    @property
    def clients_per_round(self) -> int:
        return self.question.clients_per_round or self.data.num_clients

    @property
    def least_clients(self) -> int:
        """Of those drawn in a round, how many come at least; what a round falls short of seldom."""
        drawn, asked = self.clients_per_round, self.question.least_clients
        if asked is not None or not self.question.dropout:
            return asked or drawn
        return max(1, int(stats.binom.ppf(_SELDOM, drawn, 1 - self.question.dropout)))

    @property
    def may_stay_away(self) -> bool:
        """Whether rounds are released to which fewer came than were drawn."""
        return self.least_clients < self.clients_per_round or bool(self.question.dropout)

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds in which a client comes once, on average; in shuffled epochs, at most once."""
        if self.question.sampling == SHUFFLED_EPOCHS:
            return self.data.num_clients // self.clients_per_round
        return max(1, round(self.data.num_clients / self.clients_per_round))

    @property
    def rounds_per_event(self) -> int:
        """Rounds that `event` is of, and that are charged at once."""
        return self.rounds_per_epoch if self.question.sampling == SHUFFLED_EPOCHS else 1

    def events_of(self, rounds: int) -> int:
        """How often `event` is charged for so many rounds."""
        return -(-rounds // self.rounds_per_event)

    @property
    def planned_rounds(self) -> int:
        return self.question.epochs * self.rounds_per_epoch

    @property
    def reports_per_round(self) -> int:
        return self.clients_per_round

    @property
    def least_reports(self) -> int:
        """Reports of a round to which as few came as may."""
        return self.reports_per_round // self.clients_per_round * self.least_clients

    @property
    def charged_event(self) -> dp_accounting.DpEvent:
        """What a ledger is charged for a round: priced by Rényi orders, as ledgers do."""
        return self.event

    def charged_event_of(self, rounds: int) -> dp_accounting.DpEvent:
        """What a ledger is charged for so many rounds."""
        return event_from_json(self.stored_event_of(rounds))

    def stored_event_of(self, rounds: int) -> dict[str, Any]:
        """The same, as ledgers store it."""
        return self.round_price.event_of(self.events_of(rounds))

    def charged_epsilon_of(self, rounds: int) -> float | None:
        """What `charged_event_of` costs, where that is not the event of the price."""
        if self.charged_event == self.event:
            return None
        return float(composed(self.charged_event_of(rounds), 1, self.settings.privacy.delta))

    def epsilon_of(self, rounds: int) -> PrivacyBound:
        """The central price of so many rounds: proved, for this mechanism."""
        return composed(self.event, self.events_of(rounds), self.settings.privacy.delta)

    def price_after(self, rounds: int) -> PricePoint:
        """By every accountant that applies."""
        epoch = -(-rounds // self.rounds_per_epoch)
        return PricePoint(epoch, rounds, float(self.epsilon_of(rounds)), None, None)

    def price_list(self, rows: int = _ROWS) -> list[PricePoint]:
        """Prices along the training."""
        epochs = -(-self.rounds // self.rounds_per_epoch)
        chosen = sorted({math.ceil(epochs * (i + 1) / rows) for i in range(rows)})
        return [
            self.price_after(min(self.rounds, epoch * self.rounds_per_epoch)) for epoch in chosen
        ]

    @property
    def asked(self) -> dict[str, Any]:
        """The mechanism as far as it makes a training another one: not how messages travel."""
        return self.config

    def identity(self, release_id: str) -> ReleaseIdentity:
        """What a training of this name is: its data, model, mechanism, and all that clients do.

        How long it goes on, and where its files go, is no part of it.
        """
        told = asdict(self.question) | self.settings.meant
        asked = {name: value for name, value in told.items() if name not in _NOT_ASKED}
        asked |= {"parameters": self.dimension, "clients": self.data.num_clients}
        if asked["prior"] == DISTILLATION:
            del asked["prior"]  # as of trainings from before there were others
        if not asked["drop_colluders"]:
            del asked["drop_colluders"]  # likewise
        return ReleaseIdentity(
            self.settings.dataset,
            release_id,
            mechanism=config_digest(self.asked).hex(),
            columns=("train", self.question.algorithm, self.model),
            values=config_digest(asked).hex(),
            privacy_unit=self.settings.charge.privacy_unit,
        )

    def for_release(self, identity: ReleaseIdentity) -> TrainingPlan:
        """The plan of one release, with the public seeds that follow from its identity."""
        return self

    @cached_property
    def round_price(self) -> RoundsPrice:
        """What a ledger is told of rounds that began, should this program be lost."""
        event = event_to_json(self.charged_event)
        return RoundsPrice(event, None, max(1, self.events_of(self.rounds)))

    @property
    def busiest(self) -> int:
        """Rounds that nobody comes in more of, but with a chance of one in a million."""
        n, k = self.data.num_clients, self.clients_per_round
        return max(1, int(stats.binom.isf(UNLIKELY / n, max(1, self.rounds), k / n)))


_SELDOM = 1e-9

# Settings that say where things are, or for how long: another of them is the same training.
_NOT_ASKED = frozenset(
    (
        "data",
        "test_data",
        "bad_rows",
        "epochs",
        "audit",
        "baselines",
        "public_clients",
        "resume",
        "least_clients",
        "dropout",
    )
)


def composed(event: dp_accounting.DpEvent, rounds: int, delta: float) -> PrivacyBound:
    """The price of so many equal releases."""
    return ShuffleAccountant().compose(event, rounds).get_epsilon(delta)
