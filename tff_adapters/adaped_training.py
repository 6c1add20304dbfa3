"""Rounds of DP-AdaPeD in a simulation: who takes part, what each client keeps, when to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.accounting import PrivacyBound
from beam_ldp.federated.budget import EpsilonBudget
from beam_ldp.federated.samplers import FixedSizeSampling
from beam_ldp.federated.training import Round
from tff_adapters.adaped import AdapedOutput, AdapedProcess, AdapedState
from tff_adapters.adaped_steps import Classifier
from tff_adapters.compat import tff
from tff_adapters.training import train

Weights = list[np.ndarray]


@dataclass
class PersonalModels:
    """What devices would keep in a file: their own weights, here in the host's memory.

    Only `AdapedProcess.next` takes them, at the clients, and gives them back there.
    """

    weights: list[Weights]

    @classmethod
    def start(cls, process: AdapedProcess) -> PersonalModels:
        """Everybody begins with the same public weights."""
        return cls([process.personal] * process.num_clients)

    def of(self, clients: Sequence[int]) -> list[Weights]:
        return [self.weights[client] for client in clients]

    def keep(self, clients: Sequence[int], personal: Sequence[Any]) -> None:
        for client, own in zip(clients, personal):
            self.weights[client] = list(own)


class PersonalRounds:
    """DP-AdaPeD as `tff_adapters.train` runs it: clients are given by number, and keep their own.

    Args:
        process: from `build_dp_adaped`.
        data: one `tf.data.Dataset` of batches per client, all n.

    Attributes:
        personal: own models.

    Raises:
        ValueError: if there are not as many datasets as clients.
    """

    def __init__(self, process: AdapedProcess, data: Sequence[Any]) -> None:
        if len(data) != process.num_clients:
            raise ValueError(f"data must hold {process.num_clients} datasets, got {len(data)}")
        self._process, self._data = process, data
        self.personal = PersonalModels.start(process)

    @property
    def computation(self) -> Any:
        """What a round runs, and what therefore leaves clients."""
        return self._process.next

    def initialize(self) -> AdapedState:
        state: AdapedState = self._process.initialize()
        return state

    def next(self, state: AdapedState, clients: Sequence[int]) -> AdapedOutput:
        """A round of these clients."""
        chosen = [self._data[client] for client in clients]
        output: AdapedOutput = self._process.next(state, self.personal.of(clients), chosen)
        self.personal.keep(clients, output.personal)
        return output


@dataclass(frozen=True)
class AdapedRun:
    """What a training left behind.

    Attributes:
        state: of the server.
        personal: own models of the clients.
        rounds: that ran.
        epsilon: spent, at `delta`; zero for "local-only".
        delta: of the price.
        stopped: whether the target came before the planned end.
        reader: whom the price is about.
    """

    state: AdapedState
    personal: PersonalModels
    rounds: int
    epsilon: PrivacyBound
    delta: float
    stopped: bool
    reader: str


def train_adaped(
    process: AdapedProcess,
    data: Sequence[Any],
    *,
    rounds: int,
    delta: float,
    target_epsilon: float | None = None,
    on_round: Callable[[int, AdapedState, PersonalModels], None] | None = None,
    generator: np.random.Generator | None = None,
) -> AdapedRun:
    """Runs rounds until they are over, or until one more would exceed the target.

    Args:
        process: from `build_dp_adaped`.
        data: one `tf.data.Dataset` of batches per client, all n.
        rounds: at most so many.
        delta: of the price.
        target_epsilon: the budget: the round that would exceed it does not run.
        on_round: called after each round, with its number, the server's state and the own models.
            What it shows of own models is priced by nothing: for simulations on public data.
        generator: draws clients, for simulations only; by default the operating system does.

    Raises:
        ValueError: if there are not as many datasets as clients.
    """
    rounds_of = PersonalRounds(process, data)
    sampling = FixedSizeSampling(process.num_clients, process.clients_per_round)
    budget = EpsilonBudget(target_epsilon, delta)

    def tell(done: Round) -> None:
        if on_round is not None:
            on_round(done.number + 1, done.state, rounds_of.personal)

    training = train(
        rounds_of, lambda _: sampling.sample(generator).clients, rounds, budget, on_round=tell
    )
    return AdapedRun(
        training.state,
        rounds_of.personal,
        training.rounds,
        budget.spent.bound,
        delta,
        training.stopped_by == "budget",
        process.reader,
    )


def build_accuracy(model: Any) -> Callable[[Sequence[Any], np.ndarray, np.ndarray], float]:
    """`(weights, x, y)` to the share of examples that the model with these weights gets right.

    Of a client's own examples it is about that client: nothing here prices it.
    """
    classifier = Classifier(model)
    weights_type = tff.to_type(tuple(tff.TensorType(w.dtype, w.shape) for w in classifier.initial))
    x_type, y_type = tff.types.tensorflow_to_type(classifier.model.input_spec)

    @tff.tensorflow.computation(weights_type, x_type, y_type)
    def share(weights: Any, x: Any, y: Any) -> Any:
        guess = tf.argmax(classifier.logits(weights, x, training=False), axis=-1)
        return tf.reduce_mean(tf.cast(tf.equal(guess, tf.cast(y, guess.dtype)), tf.float32))

    return lambda weights, x, y: float(share(tuple(weights), x, y))
