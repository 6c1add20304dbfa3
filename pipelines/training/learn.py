"""What learns, in TensorFlow Federated: the clients' data, the process, the public accuracy."""

from __future__ import annotations

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import tensorflow as tf

from beam_ldp.federated.samplers import Sampler, sampler_for
from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.training.charge import ModelScore
from beam_ldp.pipelines.training.checkpoints import Resumed, leaves_like
from beam_ldp.pipelines.training.plan import DataFacts, TrainingPlan, known_facts
from beam_ldp.pipelines.training.plans import AdapedPlan, LocalCentralPlan, ReportPlan
from beam_ldp.pipelines.training.settings import TrainSettings
from beam_ldp.pipelines.usage.train import CLDP_SGD
from tff_adapters import EpsilonBudget, Flow, flows_of, no_client_metrics
from tff_adapters.adaped import Variant, build_dp_adaped
from tff_adapters.adaped_steps import Prior
from tff_adapters.aggregators import LocallyPrivateMeanFactory
from tff_adapters.cldp_sgd import Schedule, build_cldp_sgd, piecewise
from tff_adapters.compat import tff
from tff_adapters.data import Clients, DataMissingError, load, load_idx
from tff_adapters.files import BadRowsError, load_files
from tff_adapters.local_central import TwoLedgersBudget, build_local_central
from tff_adapters.models import build_keras_model, evaluate, input_spec, model_fn_for
from tff_adapters.training import PersonalRounds
from tff_adapters.vectors import AdaptiveClip


def load_clients(settings: TrainSettings) -> tuple[Clients, DataFacts]:
    """The clients' data, and what is public of it.

    Raises:
        UsageError: if it cannot be had, or is not as described.
    """
    try:
        if settings.dealt:
            clients = _dealt(settings)
        else:
            clients = _from_files(settings, settings.question.data)
    except (ValueError, DataMissingError) as error:
        bad = isinstance(error, BadRowsError)
        hint = str(error).replace('bad_rows="drop"', "--bad-rows drop") if bad else str(error)
        raise UsageError(f"--data: {hint}") from None
    num_test = 0 if clients.test_labels is None else len(clients.test_labels)
    facts = DataFacts(
        clients.num_clients,
        settings.question.points_per_client,
        clients.shape,
        clients.num_classes,
        num_test,
    )
    if settings.dealt:
        expected = known_facts(settings)
        if facts != expected:
            raise JobError(
                f"{settings.question.data} is not what was expected: {facts} instead of {expected}"
            )
    return clients, facts


def _dealt(settings: TrainSettings) -> Clients:
    """Images of a name or of a folder of IDX files."""
    question = settings.question
    if settings.bundled:
        clients = load(question.data, question.points_per_client)
    else:
        clients = load_idx(question.data, question.points_per_client, settings.num_classes)
    if question.shards_per_client is None:
        return clients
    return in_shards(clients, question.shards_per_client)


def _from_files(settings: TrainSettings, path: str) -> Clients:
    assert settings.question.label is not None
    how: dict[str, Any] = dict(
        features=settings.question.features,
        label=settings.question.label,
        num_classes=settings.num_classes,
        shape=settings.shape,
        scale=settings.question.scale,
        bad_rows=settings.question.bad_rows,
    )
    clients = load_files(
        path,
        client_id=settings.question.client_id,
        points_per_client=settings.question.points_per_client,
        **how,
    )
    if settings.question.test_data is None:
        return clients
    # Public examples: whose they are does not matter.
    test = load_files(settings.question.test_data, client_id=settings.question.client_id, **how)
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


def in_shards(clients: Clients, shards: int) -> Clients:
    """The same examples dealt out anew: sorted by label, cut, `shards` pieces for every client.

    A client then holds about so many labels. The deal is the same in every run.
    """
    count, points = clients.num_clients, clients.points_per_client
    features, labels = np.concatenate(clients.features), np.concatenate(clients.labels)
    order = np.argsort(labels, kind="stable")[: count * points]
    pieces = order.reshape(count * shards, points // shards)
    generator = np.random.default_rng(0)
    dealt = generator.permutation(pieces).reshape(count, points)
    dealt = generator.permuted(dealt, axis=1)  # so that every batch has all of them
    return replace(clients, features=list(features[dealt]), labels=list(labels[dealt]))


tf.get_logger().setLevel("ERROR")

_MODEL_SEED = 1  # of the initial weights, which are public
_UNCLIPPED, _UNCLIPPED_RATE = 1e9, 0.1
_MEASURED = 50  # own models whose accuracy is averaged


class Learner(ABC):
    """One learning process on the plan's data.

    Attributes:
        process: for `tff_adapters.train`.
        budget: what that asks and charges.
        most_messages: sent by one client so far; None where everybody may be in every round.
    """

    process: Any
    budget: EpsilonBudget
    most_messages: int | None = None

    def __init__(self, plan: TrainingPlan, clients: Clients) -> None:
        settings = plan.settings
        self.plan, self.clients = plan, clients
        self.budget = EpsilonBudget(settings.privacy.epsilon, settings.privacy.delta)

    @abstractmethod
    def clients_for(self, number: int) -> Sequence[Any]:
        """Who takes part in a round, as `process` takes them."""

    @abstractmethod
    def weights_to(self, state: Any, made: Any) -> None:
        """Give a Keras model the weights of the shared model."""

    def model(self, state: Any) -> Any:
        """The Keras model as it is now, made anew: building a process invalidates older ones."""
        data = self.plan.data
        made = build_keras_model(self.plan.model, data.shape, data.num_classes)
        self.weights_to(state, made)
        return made

    def measure(self, state: Any, rounds: int) -> ModelScore:
        """On public data."""
        return measured(self.model(state), self.clients, rounds)

    def report(self) -> str:
        """More to be printed with the run."""
        return ""

    def kept_of_clients(self) -> dict[str, np.ndarray]:
        """What the host keeps of clients beside the state, for checkpoints."""
        return {}

    def go_on(self, resumed: Resumed) -> Any:
        """The state to go on from; all rounds that began are charged once more to the budget here.

        Raises:
            CheckpointError: if the state is not that of this process.
        """
        self._recall(resumed)
        start = self.process.initialize()
        return tf.nest.pack_sequence_as(
            start, leaves_like(tf.nest.flatten(start), resumed.checkpoint.state)
        )

    def _recall(self, resumed: Resumed) -> None:
        for _ in range(self.plan.events_of(resumed.rounds_begun)):
            EpsilonBudget.charge(self.budget, self.plan.event)

    def batches(self, client: int) -> Any:
        """The examples of a client who trains on all of them."""
        settings = self.plan.settings
        examples = self.clients.dataset(client).unbatch()
        return examples.repeat(settings.question.local_epochs).batch(settings.question.batch_size)

    def drawn(self, sampler: Sampler, number: int) -> tuple[int, ...]:
        """Clients of a round who came, of a cohort that was checked.

        Raises:
            SamplingMismatchError: if the round is not as declared.
        """
        cohort = sampler.sample(number=number).clients
        sampler.check(cohort)
        dropout = self.plan.question.dropout
        return sampler.arrived(cohort, dropout) if dropout else cohort


def learner_for(plan: TrainingPlan, clients: Clients) -> Learner:
    """What the plan's algorithm learns with."""
    if isinstance(plan, AdapedPlan):
        return AdapedLearner(plan, clients)
    if isinstance(plan, LocalCentralPlan):
        return LocalCentralLearner(plan, clients)
    assert isinstance(plan, ReportPlan)
    return ReportLearner(plan, clients)


def flows_of_plan(plan: TrainingPlan) -> tuple[Flow, ...]:
    """What would leave a client in a round of this plan; no client is asked for it."""
    nobody = cast(Clients, None)  # a process is built from what is public
    return flows_of(learner_for(plan, nobody).process)


def measured(model: Any, clients: Clients, rounds: int) -> ModelScore:
    """A Keras model on the public examples."""
    if clients.test_features is None:
        return ModelScore(rounds, math.nan, math.nan)
    found = evaluate(model, clients.test_features, clients.test_labels)
    return ModelScore(rounds, found["loss"], found["accuracy"])


def sampler_of(plan: TrainingPlan) -> Sampler:
    """Who takes part in a round, as the price supposes."""
    least = plan.least_clients if plan.may_stay_away else None
    return sampler_for(plan.question.sampling, plan.data.num_clients, plan.clients_per_round, least)


# Randomized reports ---------------------------------------------------------------------------


def schedule_of(settings: TrainSettings, rounds_per_epoch: int) -> Schedule:
    """Step sizes by round, of pieces that are given by epoch."""
    pieces, last = settings.rates
    starts = [0, *(until for _, until in pieces)]
    lengths = [until - start for start, (_, until) in zip(starts, pieces)]
    by_round = [(n * rounds_per_epoch, rate) for n, (rate, _) in zip(lengths, pieces)]
    return piecewise(by_round, last)


class ReportLearner(Learner):
    """Clients randomize what they report: `cldp-sgd` and `fedavg`.

    Args:
        plan: what was priced.
        clients: the data.
        aggregator: of updates, for baselines; default: the plan's mechanism.
    """

    def __init__(self, plan: ReportPlan, clients: Clients, aggregator: Any | None = None) -> None:
        super().__init__(plan, clients)
        settings = plan.settings
        self._sampler = sampler_of(plan)
        private = aggregator is None
        fixed = private and not settings.adaptive_clip
        if aggregator is None:
            aggregator = self._aggregator(plan)
        model_fn = model_fn_for(plan.model, plan.data.shape, plan.data.num_classes, _MODEL_SEED)
        if settings.question.algorithm == CLDP_SGD:
            schedule = schedule_of(settings, plan.rounds_per_epoch)
            self.process = build_cldp_sgd(
                model_fn,
                norm=settings.question.norm,
                clip=settings.clip if fixed else _UNCLIPPED,
                local_epsilon=settings.local_epsilon,
                learning_rate=schedule if private else _UNCLIPPED_RATE,
                points_per_client=settings.question.points_per_client,
                points_sampled=settings.question.points_sampled if private else 1,
                aggregator=aggregator,
            )
        else:
            self.process = tff.learning.algorithms.build_unweighted_fed_avg(
                model_fn,
                client_optimizer_fn=tff.learning.optimizers.build_sgdm(
                    settings.question.client_learning_rate
                ),
                server_optimizer_fn=tff.learning.optimizers.build_sgdm(settings.rates[1]),
                model_aggregator=aggregator,
                metrics_aggregator=no_client_metrics,
            )

    def _aggregator(self, plan: ReportPlan) -> Any:
        adaptive = None
        if plan.bit is not None:
            adaptive = AdaptiveClip(plan.bit.local_epsilon, initial=plan.settings.clip)
        return LocallyPrivateMeanFactory(
            plan.mechanism,
            values_per_client=None if plan.points[1] == 1 else plan.points[1],
            sampling=self._sampler.declared(*plan.points),
            adaptive_clip=adaptive,
            drop_colluders=plan.check is not None,
        )

    def clients_for(self, number: int) -> Sequence[Any]:
        cohort = self.drawn(self._sampler, number)
        if self.plan.question.algorithm == CLDP_SGD:
            return self.clients.datasets(cohort)
        return [self.batches(client) for client in cohort]

    def weights_to(self, state: Any, made: Any) -> None:
        self.process.get_model_weights(state).assign_weights_to(made)


# Noise at the server --------------------------------------------------------------------------


class LocalCentralLearner(Learner):
    """Federated averaging with two promises: of messages, and of models."""

    def __init__(self, plan: LocalCentralPlan, clients: Clients) -> None:
        super().__init__(plan, clients)
        settings = plan.settings
        system = build_local_central(
            model_fn_for(plan.model, plan.data.shape, plan.data.num_classes, _MODEL_SEED),
            num_clients=plan.data.num_clients,
            clients_per_round=plan.clients_per_round,
            radius=settings.clip,
            local_epsilon=settings.local_epsilon,
            projection=settings.question.projection,
            noise_multiplier=settings.question.noise_multiplier,
            client_optimizer=tff.learning.optimizers.build_sgdm(
                settings.question.client_learning_rate
            ),
            server_learning_rate=settings.rates[1],
            max_participations=settings.question.max_participations,
        )
        self.process, self._ledgers, self._targets = system.process, system.ledgers, plan.targets
        target = math.inf if settings.privacy.epsilon is None else settings.privacy.epsilon
        self._coins = TwoLedgersBudget(
            system.ledgers, system.sampler, settings.privacy.delta, target
        )
        self.budget = self._coins

    def clients_for(self, number: int) -> Sequence[Any]:
        return [self.batches(client) for client in self._coins.draw()]

    def weights_to(self, state: Any, made: Any) -> None:
        self.process.get_model_weights(state).assign_weights_to(made)

    @property
    def most_messages(self) -> int:  # type: ignore[override]
        return int(self._ledgers.participations.max())

    def kept_of_clients(self) -> dict[str, np.ndarray]:
        return {"messages": self._ledgers.participations}

    def _recall(self, resumed: Resumed) -> None:
        """Nobody knows who was in a round that was lost: everybody may have been."""
        super()._recall(resumed)
        sent = resumed.checkpoint.clients["messages"]
        self._ledgers.recall(sent, resumed.rounds_begun, resumed.lost)

    def report(self) -> str:
        return self._ledgers.report(self.plan.settings.privacy.delta, self._targets)


class AdapedLearner(Learner):
    """Own models that distil a shared one.

    Args:
        plan: what was priced.
        clients: the data.
        alone: nobody learns from anybody: the baseline.
    """

    def __init__(self, plan: AdapedPlan, clients: Clients, *, alone: bool = False) -> None:
        super().__init__(plan, clients)
        settings, data = plan.settings, plan.data
        keras = build_keras_model(plan.model, data.shape, data.num_classes, _MODEL_SEED)
        variant: Variant = "local-only" if alone else "printed" if plan.printed else "safe"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the plan says it
            process = build_dp_adaped(
                tff.learning.models.functional_model_from_keras(
                    keras,
                    tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                    input_spec=input_spec(data.shape),
                ),
                num_clients=data.num_clients,
                clients_per_round=plan.clients_per_round,
                personal_learning_rate=settings.question.personal_learning_rate,
                shared_learning_rate=settings.question.shared_learning_rate,
                psi_learning_rate=settings.question.psi_learning_rate,
                clip=settings.clip,
                psi_clip=settings.question.psi_clip,
                noise_multiplier=settings.question.noise_multiplier,
                psi_noise_multiplier=settings.question.psi_noise_multiplier,
                local_steps=settings.question.local_steps,
                psi=settings.question.psi,
                psi_range=settings.psi_range,
                variant=variant,
                prior=cast(Prior, settings.question.prior),
                points=data.points_per_client,
            )
        self.process = PersonalRounds(process, _Batches(self, data.num_clients))
        self._sampler = sampler_of(plan)

    def clients_for(self, number: int) -> Sequence[int]:
        return self.drawn(self._sampler, number)

    def kept_of_clients(self) -> dict[str, np.ndarray]:
        """Own models, of clients that are simulated here."""
        kept: dict[str, np.ndarray] = self.process.personal.to_arrays()
        return kept

    def _recall(self, resumed: Resumed) -> None:
        super()._recall(resumed)
        self.process.personal.put_back(resumed.checkpoint.clients)

    def weights_to(self, state: Any, made: Any) -> None:
        for variable, weight in zip(made.trainable_weights, state.mu):
            variable.assign(weight)

    def measure(self, state: Any, rounds: int) -> ModelScore:
        """Own models too, where the clients are public."""
        found = super().measure(state, rounds)
        public = self.plan.settings.bundled or self.plan.question.public_clients
        if not public or self.clients.test_labels is None:
            return found
        return ModelScore(found.rounds, found.loss, found.accuracy, self._personal())

    def _personal(self) -> float:
        """Mean accuracy of own models, each on public examples of the labels its client holds."""
        data, labels = self.plan.data, np.asarray(self.clients.test_labels)
        made = build_keras_model(self.plan.model, data.shape, data.num_classes)
        shares = []
        for client in range(min(_MEASURED, self.clients.num_clients)):
            asked = np.isin(labels, self.clients.labels[client])
            if not asked.any():
                continue
            for variable, weight in zip(
                made.trainable_weights, self.process.personal.weights[client]
            ):
                variable.assign(weight)
            assert self.clients.test_features is not None
            guesses = np.argmax(made(self.clients.test_features[asked]), axis=1)
            shares.append(float(np.mean(guesses == labels[asked])))
        return float(np.mean(shares)) if shares else math.nan


class _Batches(Sequence[Any]):
    """The datasets of all clients, each made when it is asked for."""

    def __init__(self, learner: Learner, count: int) -> None:
        self._learner, self._count = learner, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, client: Any) -> Any:
        return self._learner.batches(client)
