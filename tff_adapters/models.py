"""The networks of the papers and two small models, in Keras, and their training in memory.

The sources print d = 13,170, which fits neither network that they describe (docs/errata.md). The
counts of `PARAMETERS` are those of 28 x 28 images of ten classes, and tested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean.base import MeanRandomizer
from tff_adapters.cldp_sgd import Schedule, as_schedule
from tff_adapters.compat import tff
from tff_adapters.kernels import client_generator, kernel_for
from tff_adapters.vectors import clip_by_norm, project_to_l2_ball

Shape = tuple[int, ...]

# For 28 x 28 images and ten classes.
PARAMETERS = {"cnn-32": 13_722, "cnn-16": 13_706, "cnn-papernot": 26_010, "logistic": 7_850,
              "mlp": 25_450}  # fmt: skip


def build_keras_model(name: str, shape: Shape, num_classes: int, seed: int | None = None) -> Any:
    """A Keras model that gives logits.

    * "cnn-32", 13,722 parameters (thesis, Table 4.1; 'same' padding, pools of stride 2):
      16 filters 8x8, stride 2 - pool 2x2 - 32 filters 4x4, stride 2 - pool 2x2 - 32 - classes.
    * "cnn-16", 13,706 (arXiv version, Table 1): 16 filters 8x8, stride 2, 'same' - pool 2x2,
      stride 1 - 16 filters 4x4, stride 2, 'valid' - pool 2x2, stride 1 - 32 - classes.
    * "cnn-papernot", 26,010 (Papernot et al. 2020): "cnn-16" with 32 filters in the second layer.
    * "logistic": one linear layer. "mlp": one hidden layer of 32.

    Args:
        name: of the model.
        shape: of one example: (height, width, channels), or (features,).
        num_classes: outputs.
        seed: of the initial weights, which are public.

    Raises:
        ValueError: if the name is unknown, or the shape is too small for its filters.
    """
    if name not in _LAYERS:
        raise ValueError(f"model must be one of {', '.join(_LAYERS)}, got {name!r}")
    if name.startswith("cnn") and (len(shape) != 3 or min(shape[:2]) < 16):
        raise ValueError(f"model {name!r} takes images of 16 x 16 and more, got shape {shape}")
    seeds = iter(range(1000 * (seed or 0), 1000 * (seed or 0) + 1000))

    def start() -> Any:
        return tf.keras.initializers.GlorotUniform(None if seed is None else next(seeds))

    layers = [tf.keras.layers.InputLayer(shape), *_LAYERS[name](start, num_classes)]
    return tf.keras.Sequential(layers, name=name.replace("-", "_"))


def count_parameters(name: str, shape: Shape, num_classes: int) -> int:
    """Trainable parameters: the dimension of an update."""
    weights = build_keras_model(name, shape, num_classes).trainable_weights
    return sum(int(weight.shape.num_elements()) for weight in weights)


def input_spec(shape: Shape) -> tuple[Any, Any]:
    """Batches of examples: float32 features, and int32 labels."""
    return tf.TensorSpec([None, *shape], tf.float32), tf.TensorSpec([None], tf.int32)


def model_fn_for(
    name: str, shape: Shape, num_classes: int, seed: int | None = None
) -> Callable[[], Any]:
    """A `model_fn` for `tff.learning`: cross-entropy on integer labels, and no metrics."""

    def model_fn() -> Any:
        return tff.learning.models.from_keras_model(
            build_keras_model(name, shape, num_classes, seed),
            loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            input_spec=input_spec(shape),
            metrics=[],
        )

    return model_fn


def evaluate(model: Any, features: Any, labels: Any, batch_size: int = 1000) -> dict[str, float]:
    """Mean cross-entropy and accuracy of a Keras model of logits, on public data."""
    logits = tf.concat(
        [model(features[i : i + batch_size]) for i in range(0, len(features), batch_size)], axis=0
    )
    losses = tf.keras.losses.sparse_categorical_crossentropy(labels, logits, from_logits=True)
    right = tf.cast(tf.argmax(logits, axis=1), tf.int64) == tf.cast(labels, tf.int64)
    return dict(
        loss=float(tf.reduce_mean(losses)),
        accuracy=float(tf.reduce_mean(tf.cast(right, tf.float64))),
    )


def _cnn(filters: int, stride: int | None, padding: str) -> Callable[..., list[Any]]:
    def layers(start: Callable[[], Any], num_classes: int) -> list[Any]:
        keras = tf.keras.layers
        return [
            keras.Conv2D(16, 8, 2, "same", activation="relu", kernel_initializer=start()),
            keras.MaxPool2D(2, stride),
            keras.Conv2D(filters, 4, 2, padding, activation="relu", kernel_initializer=start()),
            keras.MaxPool2D(2, stride),
            keras.Flatten(),
            keras.Dense(32, activation="relu", kernel_initializer=start()),
            keras.Dense(num_classes, kernel_initializer=start()),
        ]

    return layers


def _logistic(start: Callable[[], Any], num_classes: int) -> list[Any]:
    return [
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(num_classes, kernel_initializer="zeros"),
    ]


def _mlp(start: Callable[[], Any], num_classes: int) -> list[Any]:
    return [
        tf.keras.layers.Flatten(),
        tf.keras.layers.Dense(32, activation="relu", kernel_initializer=start()),
        tf.keras.layers.Dense(num_classes, kernel_initializer=start()),
    ]


_LAYERS: dict[str, Callable[..., list[Any]]] = {
    "cnn-32": _cnn(32, 2, "same"),
    "cnn-16": _cnn(16, 1, "valid"),
    "cnn-papernot": _cnn(32, 1, "valid"),
    "logistic": _logistic,
    "mlp": _mlp,
}


# CLDP-SGD on one machine, a round in one graph ---------------------------------------------
#
# The same law as `build_cldp_sgd`, much faster. TensorFlow Federated's runtime starts a computation
# per client and round. Where only the outcome is wanted (curves over many seeds), the clients of a
# round are one batch here: gradients, clipping and the same kernels on rows. No shuffle is
# simulated: a sum does not depend on the order of reports.


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
