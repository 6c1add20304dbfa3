"""What a training would be and cost, before anything is trained. Needs no TensorFlow.

What is public of it before it runs: the data's sizes, the model's parameters (`DataFacts`). What
every algorithm says of itself, and what follows from that: `TrainingPlan`.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import dp_accounting
from scipy import stats

from beam_ldp.accounting import PrivacyBound, ShuffleAccountant
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.literature.schedule import UNLIKELY
from beam_ldp.federated.collusion import CollusionCheck
from beam_ldp.federated.idx import IdxError, IdxFolder
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.records.gates import NothingReleasedError
from beam_ldp.pipelines.records.lost_runs import LostRoundsPrice
from beam_ldp.pipelines.training.settings import TrainSettings
from beam_ldp.pipelines.usage.train import DISTILLATION, SHUFFLED_EPOCHS, TrainingQuestion
from beam_ldp.randomizers.identity import ReleaseIdentity

Shape = tuple[int, ...]


@dataclass(frozen=True)
class DataFacts:
    """What is public of the data before a row is read.

    Attributes:
        num_clients: n.
        points_per_client: m, what each has at least.
        shape: of one example.
        num_classes: of the labels.
        num_test: public examples.
    """

    num_clients: int
    points_per_client: int
    shape: Shape
    num_classes: int
    num_test: int


# Examples to learn from, public ones, shape; ten classes each.
_BUNDLED: dict[str, tuple[int, int, Shape]] = {
    "digits": (1437, 360, (8, 8, 1)),
    "mnist5k": (4000, 1000, (28, 28, 1)),
    "mnist": (60_000, 10_000, (28, 28, 1)),
    "emnist-synthetic": (20, 10, (28, 28, 1)),
}


def bundled_facts(name: str, points_per_client: int) -> DataFacts:
    """The facts of data that has a name of ours.

    Raises:
        UsageError: if a client would have more examples than there are.

    >>> bundled_facts("mnist5k", 1).num_clients
    4000
    """
    examples, test, shape = _BUNDLED[name]
    count = 2 if name == "emnist-synthetic" else examples // points_per_client
    if count * points_per_client > examples or count < 1:
        raise UsageError(f"--points-per-client must be at most {examples:,} for {name}")
    return DataFacts(count, points_per_client, shape, 10, test)


def known_facts(settings: TrainSettings) -> DataFacts:
    """The facts of data that is dealt out to clients: of a name, or of a folder of IDX files.

    Raises:
        UsageError: if the folder is not as it should be, or a client would have more than there is.
    """
    name, points = settings.question.data, settings.question.points_per_client
    if settings.bundled:
        return bundled_facts(name, points)
    try:
        found = IdxFolder.open(name)
    except IdxError as error:
        raise UsageError(f"--data: {error}") from None
    count = found.num_examples // points
    if count < 1:
        raise UsageError(f"--points-per-client must be at most {found.num_examples:,} for {name}")
    return DataFacts(count, points, found.shape, settings.num_classes, found.num_test)


def count_parameters(model: str, shape: Shape, num_classes: int) -> int:
    """Trainable parameters of a model of `tff_adapters.models`, without building it.

    >>> count_parameters("cnn-16", (28, 28, 1), 10), count_parameters("cnn-32", (28, 28, 1), 10)
    (13706, 13722)
    """
    inputs = math.prod(shape)
    if model == "logistic":
        return (inputs + 1) * num_classes
    if model == "mlp":
        return (inputs + 1) * 32 + 33 * num_classes
    if len(shape) != 3 or min(shape[:2]) < 16:
        raise UsageError(f"--model {model} takes images of 16 x 16 and more (--shape HxWxC)")
    small = model == "cnn-32"  # 'same' padding and pools of stride 2
    filters = 16 if model == "cnn-16" else 32

    def after(side: int) -> int:
        side = -(-side // 2)
        side = side // 2 if small else side - 1
        side = -(-side // 2) if small else (side - 4) // 2 + 1
        return side // 2 if small else side - 1

    flat = after(shape[0]) * after(shape[1]) * filters
    convolutions = (64 * shape[2] + 1) * 16 + (16 * 16 + 1) * filters
    return convolutions + (flat + 1) * 32 + 33 * num_classes


def model_of(name: str, shape: Shape) -> str:
    """The model that `auto` stands for; any other name as it is."""
    if name != "auto":
        return name
    images = len(shape) == 3 and min(shape[:2]) >= 16
    return "cnn-16" if images else "logistic"


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
            mechanism=_digest(self.asked).hex(),
            columns=("train", self.question.algorithm, self.model),
            values=_digest(asked).hex(),
            privacy_unit=self.settings.charge.privacy_unit,
        )

    def for_release(self, identity: ReleaseIdentity) -> TrainingPlan:
        """The plan of one release, with the public seeds that follow from its identity."""
        return self

    @cached_property
    def round_price(self) -> LostRoundsPrice:
        """What a ledger is told of rounds that began, should this program be lost."""
        event = event_to_json(self.charged_event)
        return LostRoundsPrice(event, None, max(1, self.events_of(self.rounds)))

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


def _digest(told: Any) -> bytes:
    """16 bytes that identify JSON-able values; of a mechanism's configuration, its own digest."""
    canonical = json.dumps(told, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).digest()[:16]


def composed(event: dp_accounting.DpEvent, rounds: int, delta: float) -> PrivacyBound:
    """The price of so many equal releases."""
    return ShuffleAccountant().compose(event, rounds).get_epsilon(delta)


_P = TypeVar("_P", bound=TrainingPlan)


def cut_to_target(plan: _P) -> _P:
    """The plan with as many rounds as the target allows.

    Raises:
        NothingReleasedError: if that is not even one.
    """
    plan = replace(plan, rounds=plan.planned_rounds)
    target = plan.settings.privacy.epsilon
    if target is not None:
        plan = replace(plan, rounds=rounds_within(plan, target))
    if plan.rounds == 0:
        raise NothingReleasedError(
            f"--epsilon {target:g} does not allow one round, which costs "
            f"{float(plan.epsilon_of(1)):.4g}: nothing was trained"
        )
    return plan


def check_fits(settings: TrainSettings, data: DataFacts) -> None:
    """Refuses flags that do not fit the data.

    Raises:
        UsageError: naming the flag.
    """
    if (settings.question.clients_per_round or 1) > data.num_clients:
        raise UsageError(f"--clients-per-round must be at most {data.num_clients:,}, the clients")
    if (settings.question.least_clients or 1) > data.num_clients:
        raise UsageError(f"--least-clients must be at most {data.num_clients:,}, the clients")
    sampling = settings.question.sampling
    if (
        sampling in ("self", SHUFFLED_EPOCHS)
        and settings.question.clients_per_round == data.num_clients
    ):
        raise UsageError(
            f"--sampling {sampling} needs fewer --clients-per-round than there are clients"
        )
    if settings.question.points_per_client > data.points_per_client:
        raise UsageError(f"--points-per-client must be at most {data.points_per_client:,}")


def rounds_within(plan: TrainingPlan, target: float) -> int:
    """The most rounds, of those planned, whose price does not exceed the target."""
    accountant = ShuffleAccountant()

    def exceeds(rounds: int) -> bool:
        return accountant.would_exceed(
            plan.event, plan.events_of(rounds), epsilon=target, delta=plan.settings.privacy.delta
        )

    most = plan.planned_rounds
    if not exceeds(most):
        return most
    fits, least = 0, most
    while least - fits > 1:
        middle = (fits + least) // 2
        fits, least = (fits, middle) if exceeds(middle) else (middle, least)
    return fits
