"""Rounds of DP-AdaPeD in a simulation: who takes part, what each client keeps, when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.accounting import PrivacyBound, ShuffleAccountant
from tff_adapters.adaped import AdapedProcess, AdapedState
from tff_adapters.adaped_steps import Classifier
from tff_adapters.central_record import round_event
from tff_adapters.compat import tff
from tff_adapters.samplers import FixedSizeSampling

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
    if len(data) != process.num_clients:
        raise ValueError(f"data must hold {process.num_clients} datasets, got {len(data)}")
    sampling = FixedSizeSampling(process.num_clients, process.clients_per_round)
    personal, accountant = PersonalModels.start(process), ShuffleAccountant()
    state, done = process.initialize(), 0
    target = math.inf if target_epsilon is None else target_epsilon
    for number in range(1, rounds + 1):
        event = round_event(state.privacy)
        if accountant.would_exceed(event, epsilon=target, delta=delta):
            break
        clients = sampling.sample(generator).clients
        output = process.next(state, personal.of(clients), [data[client] for client in clients])
        accountant.compose(event)
        state, done = output.state, number
        personal.keep(clients, output.personal)
        if on_round is not None:
            on_round(number, state, personal)
    epsilon = accountant.get_epsilon(delta)
    return AdapedRun(state, personal, done, epsilon, delta, done < rounds, process.reader)


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
