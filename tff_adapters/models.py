"""The networks of the papers and two small models, in Keras.

The sources print d = 13,170, which fits neither network that they describe (docs/errata.md). The
counts of `PARAMETERS` are those of 28 x 28 images of ten classes, and tested.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from tff_adapters.compat import tff

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
