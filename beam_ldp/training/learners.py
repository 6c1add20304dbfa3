"""What each algorithm learns with; `learner_for` says which a plan asks for."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import tensorflow as tf

from beam_ldp.training.charge import ModelScore
from beam_ldp.training.checkpoints import Resumed
from beam_ldp.training.learner import MODEL_SEED, Learner, sampler_of
from beam_ldp.training.plan import TrainingPlan
from beam_ldp.training.report_plan import ReportPlan
from beam_ldp.training.server_plans import AdapedPlan, LocalCentralPlan
from beam_ldp.training.settings import TrainSettings
from beam_ldp.training.usage import CLDP_SGD
from tff_adapters import Flow, flows_of, no_client_metrics
from tff_adapters.adaped import Variant, build_dp_adaped
from tff_adapters.adaped_steps import Prior
from tff_adapters.aggregators import FailureReportingFactory, LocallyPrivateMeanFactory
from tff_adapters.cldp_sgd import Schedule, build_cldp_sgd, piecewise
from tff_adapters.compat import tff
from tff_adapters.data import Clients
from tff_adapters.local_central import TwoLedgersBudget, build_local_central
from tff_adapters.models import build_keras_model, input_spec, model_fn_for
from tff_adapters.training import PersonalRounds
from tff_adapters.vectors import AdaptiveClip

_UNCLIPPED, _UNCLIPPED_RATE = 1e9, 0.1
_MEASURED = 50  # own models whose accuracy is averaged


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


# Randomized reports ---------------------------------------------------------------------------


def _schedule_of(settings: TrainSettings, rounds_per_epoch: int) -> Schedule:
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
        model_fn = model_fn_for(plan.model, plan.data.shape, plan.data.num_classes, MODEL_SEED)
        if settings.question.algorithm == CLDP_SGD:
            schedule = _schedule_of(settings, plan.rounds_per_epoch)
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
            weighted = (
                FailureReportingFactory if private else tff.aggregators.as_weighted_aggregator
            )
            self.process = tff.learning.algorithms.build_weighted_fed_avg(
                model_fn,
                client_optimizer_fn=tff.learning.optimizers.build_sgdm(
                    settings.question.client_learning_rate
                ),
                server_optimizer_fn=tff.learning.optimizers.build_sgdm(settings.rates[1]),
                client_weighting=tff.learning.ClientWeighting.UNIFORM,
                model_aggregator=weighted(aggregator),
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
            model_fn_for(plan.model, plan.data.shape, plan.data.num_classes, MODEL_SEED),
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
        """Nobody knows who was in a round after the checkpoint: everybody may have been."""
        super()._recall(resumed)
        sent, rounds = resumed.checkpoint.clients["messages"], resumed.rounds_begun
        self._ledgers.recall(sent, rounds, rounds - resumed.checkpoint.begun)

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
        keras = build_keras_model(plan.model, data.shape, data.num_classes, MODEL_SEED)
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
