"""The training itself, in TensorFlow Federated: rounds, evaluation on public data, baselines."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import dp_accounting
import numpy as np
import tensorflow as tf

from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.train_plan import DataFacts, Plan, bundled_facts
from beam_ldp.pipelines.train_settings import CLDP_SGD, TrainSettings
from beam_ldp.pipelines.watch import JobError
from tff_adapters import no_client_metrics, schedules
from tff_adapters.aggregators import LocallyPrivateMeanFactory
from tff_adapters.cldp_sgd import build_cldp_sgd
from tff_adapters.compat import tff
from tff_adapters.data import BadRowsError, Clients, DataMissingError, load, load_files
from tff_adapters.models import build_keras_model, evaluate, model_fn_for
from tff_adapters.samplers import Sampler, sampler_for

tf.get_logger().setLevel("ERROR")

_MODEL_SEED = 1  # of the initial weights, which are public
_LOCAL_ONLY = 20  # clients whose own models are averaged over


class BaselineError(Exception):
    """A baseline that cannot be had with these settings."""


@dataclass(frozen=True)
class Measured:
    """A model on public data, after so many rounds."""

    rounds: int
    loss: float
    accuracy: float


def load_clients(settings: TrainSettings) -> tuple[Clients, DataFacts]:
    """The clients' data, and what is public of it.

    Raises:
        UsageError: if it cannot be had, or is not as described.
    """
    try:
        if settings.bundled:
            clients = load(settings.data, settings.points_per_client)
        else:
            clients = _from_files(settings, settings.data)
    except (ValueError, DataMissingError) as error:
        bad = isinstance(error, BadRowsError)
        hint = str(error).replace('bad_rows="drop"', "--bad-rows drop") if bad else str(error)
        raise UsageError(f"--data: {hint}") from None
    num_test = 0 if clients.test_labels is None else len(clients.test_labels)
    facts = DataFacts(
        clients.num_clients,
        settings.points_per_client,
        clients.shape,
        clients.num_classes,
        num_test,
    )
    if settings.bundled:
        expected = bundled_facts(settings.data, settings.points_per_client)
        if facts != expected:
            raise JobError(f"{settings.data} is not as expected: {facts} instead of {expected}")
    return clients, facts


def _from_files(settings: TrainSettings, path: str) -> Clients:
    assert settings.label is not None and settings.classes is not None
    how: dict[str, Any] = dict(
        features=settings.features,
        label=settings.label,
        num_classes=settings.classes,
        shape=settings.shape,
        scale=settings.scale,
        bad_rows=settings.bad_rows,
    )
    clients = load_files(
        path, client_id=settings.client_id, points_per_client=settings.points_per_client, **how
    )
    if settings.test_data is None:
        return clients
    # Public examples: whose they are does not matter.
    test = load_files(settings.test_data, client_id=settings.client_id, **how)
    if test.shape != clients.shape:
        raise ValueError("--test-data has examples of another shape")
    return Clients(
        clients.name,
        clients.features,
        clients.labels,
        clients.num_classes,
        np.concatenate(test.features),
        np.concatenate(test.labels),
        clients.left_out,
    )


def schedule_of(settings: TrainSettings, rounds_per_epoch: int) -> schedules.Schedule:
    """Step sizes by round, of pieces that are given by epoch."""
    pieces, last = settings.learning_rate
    starts = [0, *(until for _, until in pieces)]
    lengths = [until - start for start, (_, until) in zip(starts, pieces)]
    by_round = [(n * rounds_per_epoch, rate) for n, (rate, _) in zip(lengths, pieces)]
    return schedules.piecewise(by_round, last)


class Training:
    """One learning process on the plan's data.

    Args:
        plan: what was priced.
        clients: the data.
        aggregator: of updates; default: the plan's mechanism.
    """

    def __init__(self, plan: Plan, clients: Clients, aggregator: Any | None = None) -> None:
        settings = plan.settings
        self.plan, self.clients = plan, clients
        private = aggregator is None
        if aggregator is None:
            aggregator = LocallyPrivateMeanFactory(
                plan.mechanism,
                values_per_client=None if plan.points[1] == 1 else plan.points[1],
                sampling=sampler_of(plan).declared(*plan.points),
            )
        model_fn = model_fn_for(plan.model, plan.data.shape, plan.data.num_classes, _MODEL_SEED)
        schedule = schedule_of(settings, plan.rounds_per_epoch)
        if settings.algorithm == CLDP_SGD:
            self.process = build_cldp_sgd(
                model_fn,
                norm=settings.norm,
                clip=settings.clip if private else 1e9,
                local_epsilon=settings.local_epsilon,
                learning_rate=schedule if private else _UNCLIPPED_RATE,
                points_per_client=settings.points_per_client,
                points_sampled=settings.points_sampled if private else 1,
                aggregator=aggregator,
            )
        else:
            self.process = tff.learning.algorithms.build_unweighted_fed_avg(
                model_fn,
                client_optimizer_fn=tff.learning.optimizers.build_sgdm(
                    settings.client_learning_rate
                ),
                server_optimizer_fn=tff.learning.optimizers.build_sgdm(settings.learning_rate[1]),
                model_aggregator=aggregator,
                metrics_aggregator=no_client_metrics,
            )
        self.state = self.process.initialize()
        self.rounds = 0

    def round(self, sampler: Sampler) -> dict[str, Any]:
        """One round: who takes part is drawn, checked and counted.

        Returns:
            TensorFlow Federated's measurements.

        Raises:
            SamplingMismatchError: if the round is not as declared.
        """
        cohort = sampler.sample().clients
        sampler.check(cohort)
        output = self.process.next(self.state, self._datasets(cohort))
        self.state = output.state
        self.rounds += 1
        return dict(output.metrics)

    def measure(self) -> Measured:
        """On public data."""
        return _measured(self.model(), self.clients, self.rounds)

    def model(self) -> Any:
        """The Keras model as it is now, made anew: building a process invalidates older ones."""
        data = self.plan.data
        made = build_keras_model(self.plan.model, data.shape, data.num_classes)
        self.process.get_model_weights(self.state).assign_weights_to(made)
        return made

    def _datasets(self, cohort: tuple[int, ...]) -> list[Any]:
        settings = self.plan.settings
        datasets = self.clients.datasets(cohort)
        if settings.algorithm == CLDP_SGD:
            return datasets
        size = settings.batch_size
        return [d.unbatch().repeat(settings.local_epochs).batch(size) for d in datasets]


_UNCLIPPED_RATE = 0.1


def sampler_of(plan: Plan) -> Sampler:
    """Who takes part in a round, as the price supposes."""
    return sampler_for(plan.settings.sampling, plan.data.num_clients, plan.clients_per_round)


def central_noise(plan: Plan, epsilon: float) -> float:
    """TFF's noise multiplier whose central price is at most `epsilon`, same delta, replace-one.

    TFF's is relative to what adding a client changes; replacing one changes twice that.
    """
    settings, data = plan.settings, plan.data
    k = plan.clients_per_round

    def make(noise: float) -> dp_accounting.DpEvent:
        event: dp_accounting.DpEvent = dp_accounting.GaussianDpEvent(noise / 2)
        if k < data.num_clients:
            event = dp_accounting.SampledWithoutReplacementDpEvent(data.num_clients, k, event)
        return dp_accounting.SelfComposedDpEvent(event, plan.rounds)

    def accountant() -> Any:
        return dp_accounting.rdp.RdpAccountant(
            neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
        )

    bracket = dp_accounting.ExplicitBracketInterval(1e-2, 1e4)
    found = dp_accounting.calibrate_dp_mechanism(
        accountant, make, epsilon, settings.delta, bracket, tol=1e-3
    )
    return float(found)


def baseline(name: str, plan: Plan, clients: Clients, epsilon: float) -> Iterator[Measured]:
    """What else could be done with this data, measured after every epoch.

    * "non-private": the same algorithm without clipping and noise.
    * "central-dp": TFF's `dp_aggregator` (adaptive clipping), noise for the same epsilon.
    * "local-only": every client trains on its own data alone; the mean accuracy of a few of them.

    Raises:
        BaselineError: if TFF cannot do this one with so few clients in a round.
    """
    if name == "local-only":
        yield _local_only(plan, clients)
        return
    aggregator: Any = tff.aggregators.UnweightedMeanFactory()
    if name == "central-dp":
        noise = central_noise(plan, epsilon)
        try:
            aggregator = tff.learning.dp_aggregator(noise, plan.clients_per_round, zeroing=False)
        except ValueError:  # the noise multiplier must be below a tenth of the clients in a round
            raise BaselineError("it needs more clients per round") from None
    training, sampler = Training(plan, clients, aggregator), sampler_of(plan)
    yield training.measure()
    while training.rounds < plan.rounds:
        training.round(sampler)
        if training.rounds % plan.rounds_per_epoch == 0 or training.rounds == plan.rounds:
            yield training.measure()


def _local_only(plan: Plan, clients: Clients) -> Measured:
    found = []
    for client in range(min(_LOCAL_ONLY, clients.num_clients)):
        model = build_keras_model(plan.model, plan.data.shape, plan.data.num_classes, _MODEL_SEED)
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(tf.keras.optimizers.legacy.SGD(0.1), loss)
        model.fit(clients.features[client], clients.labels[client], epochs=20, verbose=0)
        found.append(_measured(model, clients, plan.rounds))
    mean: Callable[[list[float]], float] = lambda values: float(np.mean(values))  # noqa: E731
    return Measured(plan.rounds, mean([m.loss for m in found]), mean([m.accuracy for m in found]))


def _measured(model: Any, clients: Clients, rounds: int) -> Measured:
    if clients.test_features is None:
        return Measured(rounds, math.nan, math.nan)
    found = evaluate(model, clients.test_features, clients.test_labels)
    return Measured(rounds, found["loss"], found["accuracy"])
