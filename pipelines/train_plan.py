"""What a training would be and cost, before anything is trained. Needs no TensorFlow."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import dp_accounting

from beam_ldp.accounting import PrivacyBound, ShuffleAccountant, local_event
from beam_ldp.accounting.comparison import price_of, schedule_epsilon
from beam_ldp.accounting.methods import DEFAULT
from beam_ldp.accounting.schedule import Sampling, Schedule
from beam_ldp.pipelines.gates import NothingReleasedError
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.train_settings import CLDP_SGD, TrainSettings
from beam_ldp.randomizers.mean import (
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    SeparatedMean,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer

Shape = tuple[int, ...]

_THESIS = ("thesis, Theorem 5.4.1", "thesis, Theorem 5.3.1")
_ROWS = 10  # of a printed price list
_L2 = (PrivUnit, PrivUnitGaussian, SeparatedMean, L2Mean)
_SAMPLING = {"fixed": "without_replacement", "full": "without_replacement", "self": "self"}


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


def mechanism_for(settings: TrainSettings, dimension: int) -> MeanRandomizer:
    """The mechanism of one report: one message, so that its own pair prices it.

    Raises:
        UsageError: if the name is none of its norm, or the parameters do not fit.
    """
    epsilon, radius = settings.local_epsilon, settings.clip
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
class Plan:
    """A training, priced.

    Attributes:
        settings: the flags.
        data: its public facts.
        model: name.
        dimension: parameters of the model.
        mechanism: of one report.
        rounds: that will run; fewer than `planned_rounds` where the target comes first.
    """

    settings: TrainSettings
    data: DataFacts
    model: str
    dimension: int
    mechanism: MeanRandomizer
    rounds: int

    @property
    def clients_per_round(self) -> int:
        return self.settings.clients_per_round or self.data.num_clients

    @property
    def rounds_per_epoch(self) -> int:
        """Rounds in which a client comes once, on average."""
        return max(1, round(self.data.num_clients / self.clients_per_round))

    @property
    def planned_rounds(self) -> int:
        return self.settings.epochs * self.rounds_per_epoch

    @property
    def points(self) -> tuple[int, int]:
        """Data points per client, and of them sampled, as far as the price knows of them."""
        if self.settings.algorithm == CLDP_SGD:
            return self.settings.points_per_client, self.settings.points_sampled
        return 1, 1

    @property
    def reports_per_round(self) -> int:
        return self.clients_per_round * self.points[1]

    @cached_property
    def schedule(self) -> Schedule:
        """What runs, for the methods of accounting."""
        return Schedule(
            self.mechanism.local_epsilon,
            self.data.num_clients,
            self.clients_per_round,
            max(1, self.rounds),
            *self.points,
            cast("Sampling", _SAMPLING[self.settings.sampling]),
            self.mechanism,
        )

    @cached_property
    def event(self) -> dp_accounting.DpEvent:
        """What one round releases."""
        return self.schedule.event(local_event(self.mechanism))

    def event_of(self, rounds: int) -> dp_accounting.DpEvent:
        """What so many rounds release."""
        if rounds == 1:
            return self.event
        return dp_accounting.SelfComposedDpEvent(self.event, rounds)

    def local_epsilon_of(self, rounds: int) -> float:
        """What a client that is drawn in every round loses to whoever sees all its reports."""
        return rounds * self.points[1] * self.mechanism.local_epsilon

    def epsilon_of(self, rounds: int) -> PrivacyBound:
        """The central price of so many rounds: proved, for this mechanism."""
        return schedule_epsilon(replace(self.schedule, rounds=rounds), self.settings.delta)

    def seen_epsilon_of(self, rounds: int) -> float | None:
        """The price against a reader who sees who takes part; None where nobody is sampled."""
        schedule = replace(self.schedule, rounds=rounds)
        if not schedule.sampled:
            return None
        return float(schedule_epsilon(schedule.seen, self.settings.delta))

    def price_after(self, rounds: int) -> PricePoint:
        """By all three accountants."""
        schedule, delta = replace(self.schedule, rounds=rounds), self.settings.delta
        thesis = (price_of(name, schedule, delta) for name in _THESIS)
        return PricePoint(
            -(-rounds // self.rounds_per_epoch),
            rounds,
            float(self.epsilon_of(rounds)),
            price_of(DEFAULT, schedule, delta),
            next((found for found in thesis if found is not None), None),
        )

    def price_list(self, rows: int = _ROWS) -> list[PricePoint]:
        """Prices along the training."""
        epochs = -(-self.rounds // self.rounds_per_epoch)
        chosen = sorted({math.ceil(epochs * (i + 1) / rows) for i in range(rows)})
        return [
            self.price_after(min(self.rounds, epoch * self.rounds_per_epoch)) for epoch in chosen
        ]


def make_plan(settings: TrainSettings, data: DataFacts) -> Plan:
    """The plan of these flags, with as many rounds as the target allows.

    Raises:
        UsageError: if the flags do not fit the data.
        NothingReleasedError: if the target does not allow a single round.
    """
    if (settings.clients_per_round or 1) > data.num_clients:
        raise UsageError(f"--clients-per-round must be at most {data.num_clients:,}, the clients")
    if settings.points_per_client > data.points_per_client:
        raise UsageError(f"--points-per-client must be at most {data.points_per_client:,}")
    model = settings.model
    if model == "auto":
        images = len(data.shape) == 3 and min(data.shape[:2]) >= 16
        model = "cnn-16" if images else "logistic"
    dimension = count_parameters(model, data.shape, data.num_classes)
    try:
        plan = Plan(settings, data, model, dimension, mechanism_for(settings, dimension), 0)
        plan = replace(plan, rounds=plan.planned_rounds)
        if settings.target_epsilon is not None:
            plan = replace(plan, rounds=rounds_within(plan, settings.target_epsilon))
    except ValueError as error:
        raise error if isinstance(error, UsageError) else UsageError(str(error)) from None
    if plan.rounds == 0:
        least = float(plan.epsilon_of(1))
        raise NothingReleasedError(
            f"--target-epsilon {settings.target_epsilon:g} does not allow one round, which costs "
            f"{least:.4g}: nothing was trained"
        )
    return plan


def rounds_within(plan: Plan, target: float) -> int:
    """The most rounds, of those planned, whose price does not exceed the target."""
    accountant = ShuffleAccountant()

    def exceeds(rounds: int) -> bool:
        return accountant.would_exceed(
            plan.event, rounds, epsilon=target, delta=plan.settings.delta
        )

    most = plan.planned_rounds
    if not exceeds(most):
        return most
    fits, least = 0, most
    while least - fits > 1:
        middle = (fits + least) // 2
        fits, least = (fits, middle) if exceeds(middle) else (middle, least)
    return fits
