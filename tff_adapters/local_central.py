"""Local randomizers against whoever sees messages, central noise against whoever sees models.

client: update --flatten--> vector --clip to radius, randomize (SeparatedMean)--> message
server: messages --decode, project to a ball--> sum, + Gaussian noise, / (q N)--> update

Two promises, two prices (`accounting.two_ledgers`): each message is locally private, with
a large epsilon that protects against reconstruction; models are centrally private. Projecting
after the noise of clients costs nothing and bounds what one client can do to the sum.

Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, section 3.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
import tensorflow as tf

from beam_ldp.accounting.reconstruction import Target
from beam_ldp.accounting.two_ledgers import TwoLedgers, central_round_event
from beam_ldp.federated.record import CentralRecord, one_more, start_record
from beam_ldp.federated.samplers import SelfSampling
from beam_ldp.federated.training import Charges, EpsilonBudget
from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from tff_adapters.compat import language, tff
from tff_adapters.flows import mark, no_client_metrics
from tff_adapters.kernels import ClientKernel, client_generator, kernel_for
from tff_adapters.kernels.base import clip_to_ball
from tff_adapters.training import train
from tff_adapters.vectors import flatten, num_entries, unflatten

MechanismFor = Callable[[int], MeanRandomizer]


class LocalCentralState(NamedTuple):
    """State of the aggregation.

    Attributes:
        privacy: the central events so far (`beam_ldp.federated.record`). What messages cost
            depends on who took part how often: `TwoLedgers` counts that.
    """

    privacy: CentralRecord


class _Total(NamedTuple):
    """Of a round: sum of projected messages, and how many were added up, and dropped."""

    sum: Any
    reports: Any
    impossible: Any


class LocalCentralFactory(tff.aggregators.UnweightedAggregationFactory):
    """The noisy mean of randomized and projected updates of clients who joined by a coin.

    The result is (sum of projected messages + N(0, (z rho)^2 I)) / (q N). The divisor is fixed: the
    number of clients that came is not used. A round without clients is noise. A message that no
    honest client can send is dropped. Nothing is measured but how many were added up (`reports`)
    and dropped (`impossible`), which says nothing about data; it is not protected.

    The server's noise comes from TensorFlow's generator, in floating point (docs/federated.md).

    Args:
        mechanism: a mean mechanism of the l2 ball that has a kernel, or a function that makes it
            for a number of entries.
        num_clients: N.
        sampling_rate: q, every client's coin.
        projection: rho, length of a projected message at most.
        noise_multiplier: z, of the noise of the sum, in units of rho.

    Raises:
        ValueError: if a parameter is out of range; from `create`, if the mechanism's dimension is
            not the number of entries.
        TypeError: from `create`, if values are not structures of floats.
    """

    def __init__(
        self,
        mechanism: MeanRandomizer | MechanismFor,
        *,
        num_clients: int,
        sampling_rate: float,
        projection: float,
        noise_multiplier: float,
    ) -> None:
        check_integer("num_clients", num_clients, 1)
        for name, number in [("projection", projection), ("noise_multiplier", noise_multiplier)]:
            check_positive(name, number)
        self.event = central_round_event(sampling_rate, noise_multiplier)
        self.num_clients, self.sampling_rate = num_clients, sampling_rate
        self.projection, self.noise_multiplier = projection, noise_multiplier
        self._mechanism = mechanism

    def mechanism_for(self, num_entries: int) -> MeanRandomizer:
        """What clients randomize updates of so many entries with."""
        mechanism = self._mechanism
        made = mechanism(num_entries) if callable(mechanism) else mechanism
        if made.norm != "l2":
            raise ValueError(f"mechanism must be one of the l2 ball, got {type(made).__name__}")
        if made.dimension != num_entries:
            raise ValueError(
                f"values have {num_entries} entries, but the mechanism's dimension is "
                f"{made.dimension}"
            )
        return made

    def create(self, value_type: Any) -> Any:
        """The aggregation process for values of this type."""
        if not tff.types.is_structure_of_floats(value_type):
            raise TypeError(f"value_type must be a structure of floats, got {value_type}")
        specs = tff.types.type_to_tf_tensor_specs(value_type)
        size = num_entries(specs)
        kernel = kernel_for(self.mechanism_for(size))
        message = _message(kernel, value_type)
        adding = _adding(kernel, message.type_signature.result, size, self.projection)
        nothing = adding[0]
        total_type = nothing.type_signature.result
        deviation = self.noise_multiplier * self.projection
        divisor = self.sampling_rate * self.num_clients

        @tff.tensorflow.computation(total_type)
        def release(total: Any) -> Any:
            noise = client_generator().normal([size], 0.0, deviation, tf.float64)
            return unflatten((total.sum + noise) / divisor, specs)

        @tff.tensorflow.computation(total_type)
        def measure(total: Any) -> Any:
            return OrderedDict(reports=total.reports, impossible=total.impossible)

        @tff.tensorflow.computation
        def start() -> Any:
            return LocalCentralState(start_record(self.event))

        @tff.tensorflow.computation(start.type_signature.result)
        def next_state(state: Any) -> Any:
            return LocalCentralState(one_more(state.privacy))

        @language.federated_computation
        def initialize() -> Any:
            return language.federated_eval(start, language.SERVER)

        @language.federated_computation(
            initialize.type_signature.result, language.FederatedType(value_type, language.CLIENTS)
        )
        def advance(state: Any, values: Any) -> Any:
            sent = language.federated_map(message, values)
            total = language.federated_aggregate(sent, nothing(), *adding[1:])
            return tff.templates.MeasuredProcessOutput(
                language.federated_map(next_state, state),
                language.federated_map(release, total),
                language.federated_map(measure, total),
            )

        return tff.templates.AggregationProcess(initialize, advance)


def _message(kernel: ClientKernel, value_type: Any) -> Any:
    """What runs on a client: value -> message."""

    @tff.tensorflow.computation(value_type)
    def message(value: Any) -> Any:
        return kernel.randomize(flatten(value)[None, :], client_generator())[0]

    randomizer = kernel.mechanism
    told = f"{type(randomizer).__name__}, local epsilon = {randomizer.local_epsilon:g}"
    mark(message, f"{told}; the server adds noise")
    return message


def _adding(
    kernel: ClientKernel, message_type: Any, size: int, projection: float
) -> tuple[Any, Any, Any, Any]:
    """What adds up projected messages: nothing yet, with one more, two as one, and the end."""

    @tff.tensorflow.computation
    def nothing() -> Any:
        return _Total(tf.zeros([size], tf.float64), tf.constant(0), tf.constant(0))

    total_type = nothing.type_signature.result

    @tff.tensorflow.computation(total_type, message_type)
    def accumulate(total: Any, sent: Any) -> Any:
        possible = tf.cast(kernel.possible(sent[None, ...])[0], tf.int32)
        decoded = kernel.decode(kernel.accumulate(sent[None, ...]), tf.constant(1))
        short = clip_to_ball(decoded[None, :], "l2", projection)[0]
        return _Total(
            total.sum + tf.cast(possible, tf.float64) * short,
            total.reports + possible,
            total.impossible + 1 - possible,
        )

    @tff.tensorflow.computation(total_type, total_type)
    def merge(first: Any, second: Any) -> Any:
        return _Total(*(one + other for one, other in zip(first, second)))

    @tff.tensorflow.computation(total_type)
    def report(total: Any) -> Any:
        return total

    return nothing, accumulate, merge, report


@dataclass(frozen=True)
class LocalCentral:
    """A learning process and the ledgers of its two readers.

    Attributes:
        process: a `tff.learning.templates.LearningProcess`.
        ledgers: local and central; `train` charges them.
        sampler: the coins.
    """

    process: Any
    ledgers: TwoLedgers
    sampler: SelfSampling

    def train(
        self,
        data: Sequence[Any],
        *,
        rounds: int,
        delta: float,
        target_epsilon: float = math.inf,
        targets: Iterable[Target] = (),
        show: Callable[[str], None] = print,
        generator: np.random.Generator | None = None,
    ) -> Any:
        """Rounds until they are over, or one more would exceed the central target.

        Args:
            data: one `tf.data.Dataset` per client.
            rounds: at most so many.
            delta: delta of the central epsilon.
            target_epsilon: the central budget; asked before each round.
            targets: what the reconstruction audit asks about.
            show: gets the report of both ledgers and the audit at the end.
            generator: throws the coins, for simulations only.

        Returns:
            The state of the learning process.

        Raises:
            ValueError: if there are not as many datasets as clients.
        """
        budget = TwoLedgersBudget(
            self.ledgers, self.sampler, delta, target_epsilon, generator=generator
        )
        if len(data) != self.sampler.num_clients:
            raise ValueError(f"data must hold {self.sampler.num_clients} datasets, got {len(data)}")
        training = train(
            self.process, lambda _: [data[client] for client in budget.draw()], rounds, budget
        )
        show(self.ledgers.report(delta, targets))
        return training.state


class TwoLedgersBudget(EpsilonBudget):
    """Draws who joins, and charges both ledgers: a budget for `tff_adapters.train`.

    Args:
        ledgers: to charge; what they hold counts.
        sampler: the coins.
        delta: delta of the central epsilon.
        epsilon: the central target; infinite for none.
        generator: throws the coins, for simulations only.
    """

    def __init__(
        self,
        ledgers: TwoLedgers,
        sampler: SelfSampling,
        delta: float,
        epsilon: float = math.inf,
        *,
        generator: np.random.Generator | None = None,
    ) -> None:
        super().__init__(epsilon if math.isfinite(epsilon) else None, delta)
        self.ledgers, self._sampler, self._generator = ledgers, sampler, generator
        self._drawn: list[int] = []
        for _ in range(ledgers.rounds):
            super().charge(ledgers.round_event)

    def draw(self) -> list[int]:
        """Who joins the next round: of those whose coin says so, who may send one more message."""
        self._drawn = self.ledgers.allowed(self._sampler.sample(self._generator).clients)
        return self._drawn

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Charges:
        """One round of those who were drawn last."""
        self.ledgers.charge(self._drawn)
        return super().charge(event, step, num_reports=num_reports)

    @property
    def spent(self) -> Charges:
        """The central price, and the sum of local epsilons of whoever sent most."""
        accountant, local = self._accountant.copy(), self.ledgers.local_epsilon
        return Charges(accountant, self.delta, self._charges, local)


def build_local_central(
    model_fn: Any,
    *,
    num_clients: int,
    clients_per_round: int,
    radius: float,
    local_epsilon: float,
    projection: float,
    noise_multiplier: float,
    client_optimizer: Any,
    server_learning_rate: float = 1.0,
    max_participations: int | None = None,
    **options: Any,
) -> LocalCentral:
    """Federated averaging under local and central privacy at once.

    Clients train on their data, send the change of their weights through `SeparatedMean`, and the
    server proceeds as `LocalCentralFactory` says. No metric leaves a client.

    Args:
        model_fn: for `tff.learning.algorithms.build_unweighted_fed_avg`.
        num_clients: N.
        clients_per_round: q N, clients that join on average, each by its own coin.
        radius: r_max, of the ball that changes are clipped to, on the client.
        local_epsilon: of one message.
        projection: rho, of decoded messages, on the server.
        noise_multiplier: z of the server's noise.
        client_optimizer: a `tff.learning.optimizers.Optimizer`.
        server_learning_rate: of the step along the noisy mean.
        max_participations: messages that a client sends at most.
        **options: of `SeparatedMean`: typical_length, magnitude_epsilon, preset, ...

    Raises:
        ValueError: if a parameter is out of range.
    """

    def mechanism(num_entries: int) -> SeparatedMean:
        return SeparatedMean(num_entries, local_epsilon, radius=radius, **options)

    sampler = SelfSampling(num_clients, clients_per_round)
    factory = LocalCentralFactory(
        mechanism, num_clients=num_clients, sampling_rate=sampler.join_probability,
        projection=projection, noise_multiplier=noise_multiplier,
    )  # fmt: skip
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        model_fn, client_optimizer, tff.learning.optimizers.build_sgdm(server_learning_rate),
        model_aggregator=factory, metrics_aggregator=no_client_metrics,
    )  # fmt: skip
    update_type = process.get_model_weights.type_signature.result.trainable
    size = num_entries(tff.types.type_to_tf_tensor_specs(update_type))
    ledgers = TwoLedgers(
        factory.mechanism_for(size), factory.event, num_clients, max_participations
    )
    return LocalCentral(process, ledgers, sampler)


def projected_share(mechanism: SeparatedMean, length: float, projection: float) -> float:
    """Chance that the server projects a message about an update of this length.

    Where it is near 1, the server averages noisy directions of equal length: the mean keeps its
    direction and loses its scale. Computed, not observed: a count of projected messages would tell
    about clients. Only for messages of direction times length ("product").

    Raises:
        ValueError: if the mechanism's messages are made otherwise.
    """
    if mechanism.strategy != "product":
        raise ValueError(f'strategy must be "product", got {mechanism.strategy!r}')
    response = mechanism.magnitude.response
    points = response.points
    lengths = np.abs(response.decoded) / mechanism.direction.marginal
    cell = int(np.clip(np.searchsorted(points, length, side="right") - 1, 0, len(points) - 2))
    upper = float(np.clip((length - points[cell]) / (points[cell + 1] - points[cell]), 0.0, 1.0))
    own = np.zeros(len(points))
    own[cell], own[cell + 1] = 1 - upper, upper
    law = response.other + response.gain * own
    return float(law[lengths > projection].sum())
