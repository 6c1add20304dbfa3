"""CLDP-SGD: every data point's clipped gradient is randomized before it leaves its client.

client: s of m points, drawn anew -> gradient of each -> clip -> randomize -> messages
shuffler: messages of all clients and points, permuted
server: mean of the messages -> step -> projection

Thesis, Algorithm 4.3.1. What is protected is one data point of one client, against everybody by
`local_epsilon` per use; against readers of models by the price of the shuffled, sampled reports
(`Sampler.event`).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.federated.samplers import Sampler
from beam_ldp.randomizers.checks import check_positive
from tff_adapters.aggregators import LocallyPrivateMeanFactory, shuffled_ldp_aggregator
from tff_adapters.compat import language, tff
from tff_adapters.kernels import client_generator
from tff_adapters.vectors import (
    check_ball,
    clipped,
    flatten,
    num_entries,
    project_to_l2_ball,
    unflatten,
)


def build_cldp_sgd(
    model_fn: Callable[[], Any],
    *,
    norm: str,
    clip: float,
    local_epsilon: float,
    learning_rate: float | Schedule,
    clip_by: str | None = None,
    points_per_client: int = 1,
    points_sampled: int = 1,
    radius: float | None = None,
    sampler: Sampler | None = None,
    aggregator: Any | None = None,
    **options: Any,
) -> Any:
    """A `tff.learning.templates.LearningProcess` of Algorithm 4.3.1 of the thesis.

    A client takes the first `points_per_client` examples of its dataset, draws `points_sampled` of
    them evenly without replacement, and reports the gradient of each on its own. A client with
    fewer examples fails, and with it the round: its points would be drawn more often than the
    price supposes. No metric leaves a client.

    The model must be a function of one example at a time: the examples of a batch are never seen
    together. Its non-trainable weights stay as they are.

    Args:
        model_fn: makes a `tff.learning.models.VariableModel`.
        norm: in which gradients are clipped: "l2", "linf" or "l1".
        clip: C, the radius of the ball that they are clipped to, public.
        local_epsilon: budget of one data point's one report.
        learning_rate: step size, or a schedule (`tff_adapters.cldp_sgd`).
        clip_by: how, see `tff_adapters.vectors.clipped`: "norm" is what the text says, and in
            "linf" what learns far less.
        points_per_client: m, public; the same for every client.
        points_sampled: s.
        radius: of the l2 ball around zero that weights are projected on; None for none.
        sampler: who takes part: a round that is not as it declares fails, and the events in the
            state (`tff_adapters.privacy_events`) have the credit of its sampling. None: without.
        aggregator: takes the place of `shuffled_ldp_aggregator(norm=..., clip=...,
            local_epsilon=...)`; the three must then be its own.
        **options: of `shuffled_ldp_aggregator`: mechanism, sum_factory, ...

    Raises:
        ValueError: if a parameter is out of range.
    """
    _check(norm, clip, local_epsilon, (points_per_client, points_sampled), radius)
    if aggregator is None:
        several = None if points_sampled == 1 else points_sampled
        declared = None if sampler is None else sampler.declared(points_per_client, points_sampled)
        aggregator = shuffled_ldp_aggregator(
            norm=norm, clip=clip, local_epsilon=local_epsilon, values_per_client=several,
            sampling=declared, **options,
        )  # fmt: skip

    initial_weights = _initial_weights(model_fn)
    weights_type = initial_weights.type_signature.result
    work = build_gradient_work(
        model_fn, weights_type, norm=norm, clip=clip, clip_by=clip_by,
        points_per_client=points_per_client, points_sampled=points_sampled,
        keep_failures=isinstance(aggregator, LocallyPrivateMeanFactory),
    )  # fmt: skip
    step = build_projected_step(weights_type, as_schedule(learning_rate), radius)
    return _composed(initial_weights, work, aggregator, step)


def _check(
    norm: str, clip: float, local_epsilon: float, points: tuple[int, int], radius: float | None
) -> None:
    """Refuse what is out of range; `points`: per client, and of them sampled."""
    check_ball(norm, clip)
    check_positive("local_epsilon", local_epsilon)
    per_client, sampled = points
    if not 1 <= sampled <= per_client:
        raise ValueError(
            f"points_sampled must lie in [1, points_per_client], got {sampled} of {per_client}"
        )
    if radius is not None and not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a finite number > 0 or None, got {radius}")


def _initial_weights(model_fn: Callable[[], Any]) -> Any:
    @tff.tensorflow.computation
    def initial_weights() -> Any:
        return tff.learning.models.ModelWeights.from_model(model_fn())

    return initial_weights


def _composed(initial_weights: Any, work: Any, aggregator: Any, step: Any) -> Any:
    """The learning process of these parts."""
    return tff.learning.templates.compose_learning_process(
        initial_weights,
        tff.learning.templates.build_broadcast_process(initial_weights.type_signature.result),
        work,
        tff.aggregators.as_weighted_aggregator(aggregator).create(
            work.next.type_signature.result.result.member.update, language.TensorType(np.float32)
        ),
        step,
    )


def build_gradient_work(
    model_fn: Callable[[], Any],
    weights_type: Any,
    *,
    norm: str,
    clip: float,
    points_per_client: int,
    points_sampled: int,
    clip_by: str | None = None,
    keep_failures: bool = False,
) -> Any:
    """Client work: gradients of sampled examples, each clipped.

    The update has the structure of the trainable weights; with several points sampled each leaf
    has them along its first axis. A gradient that is not finite is zeros, or with `keep_failures`
    NaN, for an aggregator that reports it as failed.
    """
    specs = tff.types.type_to_tf_tensor_specs(weights_type.trainable)
    data_type = language.SequenceType(tff.types.tensorflow_to_type(_input_spec(model_fn)))

    def clip_each(vectors: Any) -> Any:
        inside = clipped(vectors, norm, clip, clip_by)
        finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
        return tf.where(finite | (not keep_failures), inside, math.nan)

    @tff.tensorflow.computation(weights_type, data_type)
    def client_gradients(weights: Any, dataset: Any) -> Any:
        vectors = _sampled_gradients(
            model_fn(), weights, dataset, num_entries(specs), points_per_client, points_sampled,
            clip_each,
        )  # fmt: skip
        if points_sampled == 1:
            update = unflatten(vectors[0], specs)
        else:
            update = _unflatten_rows(vectors, specs, points_sampled)
        one = tf.constant(1.0, tf.float32)
        return tff.learning.templates.ClientResult(update=update, update_weight=one)

    @language.federated_computation
    def initialize() -> Any:
        return language.federated_value((), language.SERVER)

    @language.federated_computation(
        initialize.type_signature.result,
        language.FederatedType(weights_type, language.CLIENTS),
        language.FederatedType(data_type, language.CLIENTS),
    )
    def advance(state: Any, weights: Any, data: Any) -> Any:
        updates = language.federated_map(client_gradients, (weights, data))
        nothing = language.federated_value((), language.SERVER)
        return tff.templates.MeasuredProcessOutput(state, updates, nothing)

    return tff.learning.templates.ClientWorkProcess(initialize, advance)


def _sampled_gradients(
    model: Any,
    weights: Any,
    dataset: Any,
    size: int,
    points_per_client: int,
    points_sampled: int,
    clip: Callable[[Any], Any],
) -> Any:
    """The clipped gradients of sampled examples at these weights, (points_sampled, size)."""
    generator = client_generator()
    variables = tff.learning.models.ModelWeights.from_model(model)

    @tf.function
    def gradients(weights: Any, dataset: Any) -> Any:
        tf.nest.map_structure(lambda v, w: v.assign(w), variables.trainable, weights.trainable)
        tf.nest.map_structure(
            lambda v, w: v.assign(w), variables.non_trainable, weights.non_trainable
        )
        examples = _first(dataset, points_per_client)
        chosen = draw_without_replacement(generator, points_per_client, points_sampled)

        def of_one(index: Any) -> Any:
            one = tf.nest.map_structure(lambda x: tf.gather(x, index[None]), examples)
            with tf.GradientTape() as tape:
                loss = model.forward_pass(one, training=True).loss
            return flatten(tape.gradient(loss, variables.trainable, unconnected_gradients="zero"))

        if points_sampled == 1:  # a loop costs more than what is in it
            vectors = of_one(chosen[0])[None, :]
        else:
            spec = tf.TensorSpec([size], tf.float64)
            vectors = tf.map_fn(of_one, chosen, fn_output_signature=spec)
        return clip(vectors)

    return gradients(weights, dataset)


def build_projected_step(weights_type: Any, schedule: Schedule, radius: float | None = None) -> Any:
    """Finalizer: theta <- Proj(theta - eta_t g). Its state is the number of rounds so far.

    Measurements: `learning_rate`, that of the round.
    """
    trainable_type = weights_type.trainable

    @tff.tensorflow.computation(np.int32, weights_type, trainable_type)
    def step(rounds: Any, weights: Any, gradient: Any) -> Any:
        rounds += 1
        rate = schedule(tf.cast(rounds, tf.float64))
        moved = [
            tf.cast(tf.cast(w, tf.float64) - rate * tf.cast(g, tf.float64), w.dtype)
            for w, g in zip(tf.nest.flatten(weights.trainable), tf.nest.flatten(gradient))
        ]
        if radius is not None:
            moved = project_to_l2_ball(moved, radius)
        trainable = tf.nest.pack_sequence_as(weights.trainable, moved)
        new = tff.learning.models.ModelWeights(trainable, weights.non_trainable)
        return rounds, new, OrderedDict(learning_rate=rate)

    @language.federated_computation
    def initialize() -> Any:
        return language.federated_value(0, language.SERVER)

    @language.federated_computation(
        initialize.type_signature.result,
        language.FederatedType(weights_type, language.SERVER),
        language.FederatedType(trainable_type, language.SERVER),
    )
    def advance(state: Any, weights: Any, gradient: Any) -> Any:
        state, new, measured = language.federated_map(step, (state, weights, gradient))
        return tff.templates.MeasuredProcessOutput(state, new, measured)

    return tff.learning.templates.FinalizerProcess(initialize, advance)


def draw_without_replacement(generator: Any, population: int, count: int) -> Any:
    """`count` different indices below `population`, every set and order equally likely, int32."""
    if population == 1:
        return tf.zeros([1], tf.int32)
    keys = generator.uniform([population], dtype=tf.float64)
    return tf.math.top_k(keys, count).indices


def _first(dataset: Any, count: int) -> Any:
    """The first `count` examples as one batch; a client with fewer fails."""
    examples = dataset.unbatch().batch(count).take(1).get_single_element()
    found = tf.shape(tf.nest.flatten(examples)[0])[0]
    checked = tf.debugging.assert_equal(
        found, count, "a client must hold at least points_per_client examples"
    )
    with tf.control_dependencies([checked]):
        return tf.nest.map_structure(tf.identity, examples)


def _unflatten_rows(vectors: Any, specs: Any, count: int) -> Any:
    """The structure of `specs` with one more axis in front, for the rows of a matrix."""
    leaves = tf.nest.flatten(specs)
    parts = tf.split(vectors, [spec.shape.num_elements() for spec in leaves], axis=1)
    shaped = [
        tf.cast(tf.reshape(part, [count, *spec.shape]), spec.dtype)
        for part, spec in zip(parts, leaves)
    ]
    return tf.nest.pack_sequence_as(specs, shaped)


def _input_spec(model_fn: Callable[[], Any]) -> Any:
    with tf.Graph().as_default():
        return model_fn().input_spec


# Step sizes, as functions of the round: public, fixed before the training ------------------


Schedule = Callable[[Any], Any]  # round, a float tensor from 1 on -> step size


def constant(rate: float) -> Schedule:
    """The same step in every round."""
    check_positive("rate", rate)
    return lambda t: tf.constant(rate, tf.float64)


def inverse_sqrt(rate: float) -> Schedule:
    """`rate / sqrt(t)`."""
    check_positive("rate", rate)
    return lambda t: rate / tf.sqrt(tf.cast(t, tf.float64))


def convex(diameter: float, gradient_bound: float) -> Schedule:
    """`Dm / (G sqrt(t))`, for which the gap of the last iterate is proved.

    E F(theta_T) - F* <= 2 Dm G (2 + log T) / sqrt(T) for convex F on a set of this diameter
    (thesis, Theorem 4.3.1; Shamir and Zhang 2013; `beam_ldp.planning.convergence`).

    Args:
        diameter: Dm, of the set that is projected on.
        gradient_bound: G, root of `beam_ldp.planning.convergence.second_moment`.
    """
    check_positive("diameter", diameter)
    check_positive("gradient_bound", gradient_bound)
    return inverse_sqrt(diameter / gradient_bound)


def piecewise(pieces: Sequence[tuple[int, float]], last: float) -> Schedule:
    """Constant pieces: `rate` for so many rounds each, then `last`.

    Args:
        pieces: (rounds, rate), in order.
        last: the rate of all rounds after them.

    The papers': 0.3 for 70 epochs, then 0.18; and 12 for 30 epochs, 4 for 30 more, then 3.5.
    """
    ends, rates, end = [], [], 0
    for rounds, rate in pieces:
        if rounds < 1:
            raise ValueError(f"pieces must have rounds >= 1, got {rounds}")
        check_positive("rate", rate)
        end += rounds
        ends.append(float(end))
        rates.append(rate)
    check_positive("last", last)

    def step(t: Any) -> Any:
        before = tf.reduce_sum(tf.cast(tf.cast(t, tf.float64) > ends, tf.int32)) if ends else 0
        return tf.gather(tf.constant([*rates, last], tf.float64), before)

    return step


def as_schedule(rate: float | Schedule) -> Schedule:
    """A number is a constant schedule."""
    return rate if callable(rate) else constant(float(rate))
