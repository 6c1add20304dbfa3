"""CLDP-SGD on one machine, a round in one graph: the same law as `build_cldp_sgd`, much faster.

TensorFlow Federated's runtime starts a computation per client and round. Where only the outcome is
wanted (curves over many seeds), the clients of a round are one batch here: gradients, clipping and
the same kernels on rows. No shuffle is simulated: a sum does not depend on the order of reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean.base import MeanRandomizer
from tff_adapters.kernels import client_generator, kernel_for
from tff_adapters.schedules import Schedule, as_schedule
from tff_adapters.vectors import clip_by_norm, project_to_l2_ball


class SimulatedTraining:
    """A Keras model of logits, trained by CLDP-SGD in memory.

    Args:
        model: changed in place.
        mechanism: its norm and radius are the clipping; None for the plain mean of gradients.
        learning_rate: as for `build_cldp_sgd`.
        radius: of the l2 ball around zero that weights are projected on.
        norm, clip: of the clipping where there is no mechanism; None for none.
        seed: of the noise, which makes a simulation repeatable; by default it is fresh.
        block: examples whose gradients are held in memory together.
    """

    def __init__(
        self,
        model: Any,
        mechanism: MeanRandomizer | None,
        learning_rate: float | Schedule,
        *,
        radius: float | None = None,
        norm: str | None = None,
        clip: float | None = None,
        seed: int | None = None,
        block: int = 500,
    ) -> None:
        self.model = model
        self.rounds = 0
        self._schedule = as_schedule(learning_rate)
        self._radius, self._block = radius, block
        self._kernel = None if mechanism is None else kernel_for(mechanism)
        self._generator = client_generator() if seed is None else simulation_generator(seed)
        if mechanism is not None:
            norm, clip = str(mechanism.norm), mechanism.radius
        self._norm, self._clip = norm, clip
        self._graph = tf.function(self._of_block, reduce_retracing=True)

    def round(self, features: np.ndarray, labels: np.ndarray) -> None:
        """One step along the mean of the reports about these examples, (n, *shape) and (n,)."""
        self.rounds += 1
        if not len(labels):
            return
        total: Any = 0
        for start in range(0, len(labels), self._block):
            stop = start + self._block
            total += self._graph(tf.constant(features[start:stop]), tf.constant(labels[start:stop]))
        if self._kernel is None:
            mean = total / len(labels)
        else:
            mean = self._kernel.decode(total, tf.constant(len(labels), tf.int32))
        self._step(mean)

    def _of_block(self, features: Any, labels: Any) -> Any:
        """The sum of the statistics of these examples; without a mechanism of their gradients."""
        vectors = per_example_gradients(self.model, features, labels)
        if self._norm is not None and self._clip is not None:
            vectors = clip_by_norm(vectors, self._norm, self._clip)
        if self._kernel is None:
            return tf.reduce_sum(tf.cast(vectors, tf.float64), axis=0)
        return self._kernel.accumulate(self._kernel.randomize(vectors, self._generator))

    def _step(self, mean: Any) -> None:
        weights: Sequence[Any] = self.model.trainable_weights
        rate = self._schedule(tf.constant(self.rounds, tf.float64))
        parts = tf.split(rate * mean, [int(w.shape.num_elements()) for w in weights])
        moved = [
            tf.cast(tf.cast(w, tf.float64) - tf.reshape(part, w.shape), w.dtype)
            for w, part in zip(weights, parts)
        ]
        if self._radius is not None:
            moved = project_to_l2_ball(moved, self._radius)
        for weight, new in zip(weights, moved):
            weight.assign(new)


def simulation_generator(seed: int) -> Any:
    """For simulation only: a generator whose stream has nothing to do with that of another seed.

    `tf.random.Generator.from_seed` takes the seed as the place in one stream: those of seeds 1 and
    2 are the same numbers, two places apart, and sums over clients hardly differ.
    """
    state = np.random.SeedSequence(seed).generate_state(3, np.uint64).view(np.int64)
    return tf.random.Generator.from_state(state, alg="philox")


def per_example_gradients(model: Any, features: Any, labels: Any) -> Any:
    """Gradients of the cross-entropy of each example, (n, d)."""
    weights = model.trainable_weights

    def of_one(example: tuple[Any, Any]) -> Any:
        one, label = example
        with tf.GradientTape() as tape:
            loss = tf.nn.sparse_softmax_cross_entropy_with_logits(
                label[None], model(one[None], training=True)
            )[0]
        parts = tape.gradient(loss, weights, unconnected_gradients="zero")
        return tf.concat([tf.reshape(part, [-1]) for part in parts], axis=0)

    return tf.vectorized_map(of_one, (features, labels))
