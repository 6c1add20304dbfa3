"""Structures of float tensors as vectors, and back; and the metrics of clients: none."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from tff_adapters.compat import language, tff


def flatten(value: Any) -> Any:
    """The entries of a structure of float tensors, in order, as one vector of float64."""
    return flatten_rows(tf.nest.map_structure(lambda part: tf.expand_dims(part, 0), value))[0]


def flatten_rows(values: Any) -> Any:
    """The same for each of s structures, whose leaves have a leading dimension s: (s, entries)."""
    parts = tf.nest.flatten(values)
    if len({part.dtype for part in parts}) > 1:
        parts = [tf.cast(part, tf.float64) for part in parts]
    rows = [tf.reshape(part, [tf.shape(part)[0], _size(part.shape[1:])]) for part in parts]
    return tf.cast(tf.concat(rows, axis=1), tf.float64)


def unflatten(vector: Any, specs: Any) -> Any:
    """The structure of `specs` whose entries are those of the vector, each in its own dtype."""
    leaves = tf.nest.flatten(specs)
    parts = tf.split(vector, [_size(spec.shape) for spec in leaves])
    shaped = [tf.cast(tf.reshape(p, s.shape), s.dtype) for p, s in zip(parts, leaves)]
    return tf.nest.pack_sequence_as(specs, shaped)


def num_entries(specs: Any) -> int:
    """Entries of all tensors together."""
    return sum(_size(spec.shape) for spec in tf.nest.flatten(specs))


def value_specs(value_type: Any, values_per_client: int | None) -> Any:
    """TensorFlow's specs of one value of a client, without the leading dimension of several.

    Raises:
        TypeError: if the type is not a structure of floats of known shapes, or has no leading
            dimension of that size.
    """
    allowed = isinstance(value_type, (language.TensorType, language.StructWithPythonType))
    if not (allowed and tff.types.is_structure_of_floats(value_type)):
        raise TypeError(f"value_type must be a tensor or a structure of floats, got {value_type}")
    specs = tff.types.type_to_tf_tensor_specs(value_type)
    leaves = tf.nest.flatten(specs)
    if not all(spec.shape.is_fully_defined() for spec in leaves):
        raise TypeError(f"value_type must have shapes that are fully known, got {value_type}")
    if values_per_client is None:
        return specs
    if not all(spec.shape.rank and spec.shape[0] == values_per_client for spec in leaves):
        raise TypeError(
            f"value_type must have a leading dimension of values_per_client={values_per_client} "
            f"everywhere, got {value_type}"
        )
    return tf.nest.map_structure(lambda spec: tf.TensorSpec(spec.shape[1:], spec.dtype), specs)


def _size(shape: Any) -> int:
    return int(shape.num_elements())


def no_client_metrics(metric_finalizers: Any, local_metrics_type: Any = None) -> Any:
    """A `metrics_aggregator` for `tff.learning.algorithms` that lets no metric leave a client.

    By default learning processes of TensorFlow Federated sum the exact loss, accuracy and number
    of examples of every client, which no privacy budget covers. Evaluate the model on public data
    instead, or price what you release.
    """
    del metric_finalizers, local_metrics_type

    @language.federated_computation
    def nothing(client_metrics: Any) -> Any:
        del client_metrics
        return language.federated_value((), language.SERVER)

    return nothing
