"""DP-AdaPeD: every client keeps a model of its own and distils a shared one, at a priced cost.

server: mu, psi --------------> K of n clients, drawn anew
client: theta_i, data, mu, psi --tau local steps--> theta_i stays; changes of mu and psi, clipped
server: sum of changes + noise --> mu, psi

theta_i never leaves its client: no computation here aggregates it or shows it to the server. TFF
has no place where a client keeps something between rounds. In a simulation the structure that
`next` takes from the clients and gives back to them is kept on the host (`PersonalModels`); on
devices it is a file.

Variants:

"safe", the default: local steps are plain; what a client's copies of mu and psi moved in the
whole round is clipped to `clip` and `psi_clip`; the server adds up exactly `clients_per_round`
such changes (other numbers fail), adds Gaussian noise of `noise_multiplier * clip` and
`psi_noise_multiplier * psi_clip` to the sums, and divides. Protected is all data of one client
(replace-one) against readers of mu and psi, and of other clients' models, who do not see who
takes part. The server is trusted: it sees changes before the noise.

"printed": every local step's gradients of mu and psi are clipped and get that noise on the
client; the server averages. The printed price is false for more than one local step, and needs
a server that sees averages only. What is charged is what is proved: the price of a client's
own message, round by round, for a server that sees it. A warning says what that is.

With `prior="gaussian"` or "laplace" a client pulls its own model to the shared one itself, in the
place of distillation (thesis, (4.14), (4.15)); what leaves it, and what that costs, is the same.

"local-only": no shared model at all, and nothing is sent. The baseline without which accuracy
of personal models says nothing about learning together.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import dp_accounting
import numpy as np
import tensorflow as tf

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.two_ledgers import adaped_message_event, adaped_round_event
from beam_ldp.federated.record import CentralRecord, one_more, start_record
from beam_ldp.randomizers.checks import check_integer, check_positive
from tff_adapters.adaped_steps import (
    PRIORS,
    SCALES,
    Classifier,
    Local,
    Prior,
    Rates,
    StepNoise,
    clipped,
    local_only_step,
    local_step,
    prior_step,
)
from tff_adapters.compat import language, tff
from tff_adapters.flows import mark
from tff_adapters.kernels.base import client_generator

Variant = Literal["safe", "printed", "local-only"]

_WARNED_DELTA = 1e-5
_PROTECTION: dict[Variant, str] = {
    "safe": "clipped; the server is trusted with it, and adds noise to the sum",
    "printed": "each step clipped, with noise",
    "local-only": "zeros",
}


class AdapedState(NamedTuple):
    """What the server knows.

    Attributes:
        mu: weights of the shared model.
        psi: scale of the distillation, float32: how far own models are from the shared one.
        privacy: events so far, see `beam_ldp.federated.record`.
    """

    mu: Any
    psi: Any
    privacy: CentralRecord


class AdapedOutput(NamedTuple):
    """Result of a round.

    Attributes:
        state: of the server.
        personal: own weights, placed at the clients, in the order they came in.
        measurements: `clients`, the number that took part. Nothing else is measured: loss and
            accuracy of clients would have to be paid for.
    """

    state: Any
    personal: Any
    measurements: Any


@dataclass(frozen=True)
class AdapedProcess:
    """Computations of DP-AdaPeD.

    Attributes:
        initialize: `() -> AdapedState@SERVER`.
        next: `(AdapedState@SERVER, {personal}@CLIENTS, {data}@CLIENTS) -> AdapedOutput`.
        personal: weights that every client starts with (public).
        num_clients: n.
        clients_per_round: K.
        event: of one round.
        reader: whom the event is about, in words.
    """

    initialize: Any
    next: Any
    personal: list[np.ndarray]
    num_clients: int
    clients_per_round: int
    event: dp_accounting.DpEvent
    reader: str


def build_dp_adaped(
    model: Any,
    *,
    num_clients: int,
    clients_per_round: int,
    personal_learning_rate: float,
    shared_learning_rate: float,
    psi_learning_rate: float,
    clip: float,
    psi_clip: float,
    noise_multiplier: float,
    psi_noise_multiplier: float | None = None,
    local_steps: int = 10,
    psi: float | None = None,
    psi_range: tuple[float, float] | None = None,
    variant: Variant = "safe",
    prior: Prior = "distillation",
    points: int = 1,
) -> AdapedProcess:
    """Personalisation with adaptive distillation (thesis, Algorithm 4.4.1), private for clients.

    What is protected, and against whom, is the variant's: see above.

    Noise comes from TensorFlow's generator, which is not cryptographic, in floating point
    (docs/federated.md).

    Args:
        model: a `tff.learning.models.FunctionalModel` that maps a batch `(x, y)` of its
            `input_spec` to logits, y being classes; all its weights trainable.
        num_clients: n.
        clients_per_round: K, drawn without replacement.
        personal_learning_rate, shared_learning_rate, psi_learning_rate: eta1, eta2, eta3.
        clip: of a client's change of mu in a round; printed: of one step's gradient.
        psi_clip: likewise of psi.
        noise_multiplier: of mu; see above.
        psi_noise_multiplier: of psi; by default ten times that, which adds 1 % to the price.
        local_steps: tau; a client's data is repeated until it has that many batches.
        psi: at the start; by default what suits the prior.
        psi_range: psi is kept inside, on clients and on the server. The text is silent. The least
            is what keeps own models apart: with none, all of them end at the shared one.
        variant: as above.
        prior: what ties own models to the shared one: "distillation" of its predictions, or its
            weights, as "gaussian" or "laplace" (`adaped_steps`), for "safe" only.
        points: number of data points of a client, public: a Gaussian or Laplace prior counts as one
            more of them.

    Raises:
        ValueError: if a parameter is out of range, or the model has weights that are not trained.
    """
    if psi_noise_multiplier is None:
        psi_noise_multiplier = 10 * noise_multiplier
    multipliers = noise_multiplier, psi_noise_multiplier
    if prior not in PRIORS:
        raise ValueError(f"prior must be one of {', '.join(PRIORS)}, got {prior!r}")
    if prior != "distillation" and variant == "printed":
        raise ValueError('prior must be "distillation" with variant="printed"')
    check_integer("points", points, 1)
    psi = SCALES[prior][0] if psi is None else psi
    psi_range = SCALES[prior][1] if psi_range is None else psi_range
    rates = Rates(personal_learning_rate, shared_learning_rate, psi_learning_rate, psi_range)
    _check(variant, (clip, psi_clip), multipliers, local_steps, psi, psi_range)
    event, reader = _price(variant, num_clients, clients_per_round, local_steps, *multipliers)
    classifier = Classifier(model)
    noise = StepNoise(clip, noise_multiplier * clip, psi_clip, psi_noise_multiplier * psi_clip)
    client_work = _client_work(classifier, rates, variant, local_steps, noise, prior, points)
    start = _start(classifier, psi, event, clients_per_round)
    finish = _server_work(start, client_work, variant, noise, clients_per_round, psi_range)

    own = classifier.initial
    computations = _initialize(start), _round(start.type_signature.result, client_work, finish)
    return AdapedProcess(*computations, own, num_clients, clients_per_round, event, reader)


def _check(
    variant: Variant,
    clips: tuple[float, float],
    multipliers: tuple[float, float],
    local_steps: int,
    psi: float,
    psi_range: tuple[float, float],
) -> None:
    """Refuse what is out of range."""
    if variant not in ("safe", "printed", "local-only"):
        raise ValueError(f'variant must be "safe", "printed" or "local-only", got {variant!r}')
    names = ("clip", "psi_clip", "noise_multiplier", "psi_noise_multiplier")
    for name, number in zip(names, (*clips, *multipliers)):
        check_positive(name, number)
    check_integer("local_steps", local_steps, 1)
    if not psi_range[0] <= psi <= psi_range[1]:
        raise ValueError(f"psi must lie in psi_range, got {psi}")


def _start(
    classifier: Classifier, psi: float, event: dp_accounting.DpEvent, clients_per_round: int
) -> Any:
    """() -> state, before the first round."""

    @tff.tensorflow.computation
    def start() -> Any:
        mu = tuple(map(tf.constant, classifier.initial))
        return AdapedState(mu, tf.constant(psi, tf.float32), start_record(event, clients_per_round))

    return start


def _initialize(start: Any) -> Any:
    """The same at the server."""

    @language.federated_computation
    def initialize() -> Any:
        return language.federated_eval(start, language.SERVER)

    return initialize


def _server_work(
    start: Any,
    client_work: Any,
    variant: Variant,
    noise: StepNoise,
    clients_per_round: int,
    psi_range: tuple[float, float],
) -> Any:
    """(state, sum of messages, clients) -> state: the mean change, with noise if it is "safe"."""
    message_type = client_work.type_signature.result[1]

    @tff.tensorflow.computation(start.type_signature.result, message_type, np.int32)
    def finish(state: Any, total: Any, clients: Any) -> Any:
        right = tf.debugging.assert_equal(
            clients, clients_per_round, "a round must have exactly clients_per_round clients"
        )
        with tf.control_dependencies([right]):
            record = one_more(state.privacy)
        if variant == "local-only":
            return AdapedState(state.mu, state.psi, record)
        change, psi_change = list(total[:-1]), total[-1]
        if variant == "safe":
            generator = client_generator()
            deviation = noise.deviation
            change = [t + generator.normal(t.shape, 0.0, deviation, tf.float64) for t in change]
            psi_change += generator.normal([], 0.0, noise.psi_deviation, tf.float64)
        mu = tuple(m + tf.cast(c / clients_per_round, m.dtype) for m, c in zip(state.mu, change))
        moved = state.psi + tf.cast(psi_change / clients_per_round, tf.float32)
        return AdapedState(mu, tf.clip_by_value(moved, *psi_range), record)

    return finish


def _round(state_type: Any, client_work: Any, finish: Any) -> Any:
    """A round: (state, own models, data) -> `AdapedOutput`."""
    personal_type, data_type = client_work.type_signature.parameter[2:4]

    @tff.tensorflow.computation(state_type)
    def shared(state: Any) -> Any:
        return state.mu, state.psi

    @language.federated_computation(
        language.FederatedType(state_type, language.SERVER),
        language.FederatedType(personal_type, language.CLIENTS),
        language.FederatedType(data_type, language.CLIENTS),
    )
    def advance(state: Any, personal: Any, data: Any) -> Any:
        sent = language.federated_broadcast(language.federated_map(shared, state))
        done = language.federated_map(client_work, (sent[0], sent[1], personal, data))
        total = language.federated_sum(done[1])
        clients = language.federated_sum(language.federated_value(1, language.CLIENTS))
        new = language.federated_map(finish, (state, total, clients))
        return AdapedOutput(new, done[0], language.federated_zip(OrderedDict(clients=clients)))

    return advance


def _client_work(
    classifier: Classifier,
    rates: Rates,
    variant: Variant,
    local_steps: int,
    noise: StepNoise,
    prior: Prior,
    points: int,
) -> Any:
    """(mu, psi, theta, data) -> (theta, message): changes of mu, then of psi, float64."""
    weights_type = tff.to_type(tuple(tff.TensorType(w.dtype, w.shape) for w in classifier.initial))
    data_type = language.SequenceType(tff.types.tensorflow_to_type(classifier.model.input_spec))

    @tff.tensorflow.computation(
        weights_type, language.TensorType(np.float32), weights_type, data_type
    )
    def work(mu: Any, psi: Any, theta: Any, data: Any) -> Any:
        generator = client_generator()
        seeds = tf.transpose(generator.make_seeds(2 * local_steps))
        seeds = tf.reshape(seeds, [local_steps, 2, 2])

        @tf.function
        def run(mu: Any, psi: Any, theta: Any, data: Any, seeds: Any) -> Any:
            batches = data.repeat().take(local_steps)
            if variant == "local-only":
                theta = batches.reduce(
                    theta,
                    lambda t, batch: tuple(
                        local_only_step(classifier, list(t), batch, rates.personal)
                    ),
                )
                nothing = [tf.zeros(w.shape, tf.float64) for w in mu]
                return theta, (*nothing, tf.constant(0.0, tf.float64))

            def step(at: Any, batch: Any) -> Any:
                index, held = at
                local = Local(list(held.theta), list(held.mu), held.psi)
                if prior == "distillation":
                    its_noise = noise if variant == "printed" else None
                    after = local_step(classifier, local, batch, rates, its_noise, seeds[index])
                else:
                    after = prior_step(classifier, local, batch, rates, prior, points)
                return index + 1, Local(tuple(after.theta), tuple(after.mu), after.psi)

            steps, after = batches.reduce((tf.constant(0), Local(theta, mu, psi)), step)
            change = [tf.cast(b, tf.float64) - tf.cast(a, tf.float64) for a, b in zip(mu, after.mu)]
            psi_change = tf.cast(after.psi, tf.float64) - tf.cast(psi, tf.float64)
            if variant == "safe":
                change = clipped(change, noise.clip)
                (psi_change,) = clipped([psi_change], noise.psi_clip)
            if variant == "printed":
                # Without data there were no steps: the noise of those that are missing.
                missing = tf.sqrt(tf.cast(local_steps - steps, tf.float64))
                for i, c in enumerate(change):
                    deviation = rates.shared * noise.deviation * missing
                    change[i] = c + deviation * generator.normal(c.shape, dtype=tf.float64)
                deviation = rates.psi * noise.psi_deviation * missing
                psi_change += deviation * generator.normal([], dtype=tf.float64)
            return after.theta, (*change, psi_change)

        return run(mu, psi, theta, data, seeds)

    mark(work, "a client's own model, given back to that client alone", at=(0,))
    return mark(work, _PROTECTION[variant], at=(1,))


def _price(
    variant: Variant,
    num_clients: int,
    clients_per_round: int,
    local_steps: int,
    z: float,
    psi_z: float,
) -> tuple[dp_accounting.DpEvent, str]:
    safe = adaped_round_event(num_clients, clients_per_round, z, psi_z)
    if variant == "local-only":
        return dp_accounting.NoOpDpEvent(), "nobody sees anything"
    if variant == "safe":
        return safe, "readers of mu and psi, who do not see who takes part; the server is trusted"
    message = adaped_message_event(local_steps, z, psi_z)
    warnings.warn(
        "the printed DP-AdaPeD has no proved privacy cost but that of each client's own messages: "
        f"epsilon {float(event_epsilon(message, _WARNED_DELTA)):.4g} at delta {_WARNED_DELTA:g} "
        'for every round that a client takes part in (docs/federated.md); variant="safe" '
        "adds the noise once",
        stacklevel=3,
    )
    return message, "the server, which sees every client's messages; taking part in every round"
