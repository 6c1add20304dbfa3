"""What learns, in TensorFlow Federated, whatever the algorithm: `Learner`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.federated.samplers import Sampler, sampler_for
from beam_ldp.training.charge import ModelScore
from beam_ldp.training.checkpoints import Resumed, leaves_like
from beam_ldp.training.plan import TrainingPlan
from tff_adapters import EpsilonBudget
from tff_adapters.data import Clients
from tff_adapters.models import build_keras_model, evaluate

tf.get_logger().setLevel("ERROR")

MODEL_SEED = 1  # of the initial weights, which are public


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
