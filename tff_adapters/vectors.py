"""Structures of float tensors as vectors, and back; and vectors clipped.

By scaling, per example; or at a norm that follows a quantile of the clients' norms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from beam_ldp.randomizers.checks import check_fraction, check_positive
from beam_ldp.randomizers.mean import BinaryVectorMean
from beam_ldp.randomizers.mean.base import Norm
from tff_adapters.compat import language, tff

ORDERS = {"l1": 1, "l2": 2, "linf": math.inf}
CLIP_BY = ("norm", "coordinate")


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


def check_ball(norm: str, radius: float) -> None:
    """Raises ValueError unless `norm` is known and `radius` is a finite number above zero."""
    if norm not in ORDERS:
        raise ValueError(f"norm must be one of {', '.join(ORDERS)}, got {norm!r}")
    check_positive("radius", radius)


def clip_by_of(clip_by: str | None, norm: str) -> str:
    """How vectors are clipped in this norm: as asked for, or by default as mechanisms do it.

    Raises:
        ValueError: if there is no such way in this norm.
    """
    if clip_by is None:
        return "coordinate" if norm == "linf" else "norm"
    if clip_by not in CLIP_BY:
        raise ValueError(f"clip_by must be one of {', '.join(CLIP_BY)} or None, got {clip_by!r}")
    if clip_by == "coordinate" and norm != "linf":
        raise ValueError(f'clip_by="coordinate" is for the norm "linf", not for {norm!r}')
    return clip_by


def clipped(vectors: Any, norm: str, radius: float, clip_by: str | None = None) -> Any:
    """Each row in the ball. One with entries that are not finite counts as zero.

    A client that refused would say something about itself.

    Args:
        vectors: (n, d) floats.
        norm: "l1", "l2" or "linf".
        radius: C, public.
        clip_by: "norm": `g / max(1, ||g|| / C)`, which keeps the direction (thesis, Algorithm
            4.3.1). "coordinate", of "linf" alone: each entry to [-C, C], the nearest point of the
            ball, which keeps far more of a gradient of which few entries are large. By default as
            mechanisms clip: "coordinate" in "linf", otherwise "norm".

    Returns:
        (n, d) float64, each row in the ball but for the last digit of floating point.

    Raises:
        ValueError: if the norm, the radius or `clip_by` is none.
    """
    check_ball(norm, radius)
    vectors = tf.cast(vectors, tf.float64)
    finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
    vectors = tf.where(finite, vectors, tf.zeros_like(vectors))
    if clip_by_of(clip_by, norm) == "coordinate":
        return tf.clip_by_value(vectors, -radius, radius)
    # Relative to the largest entry, so that no square overflows or vanishes.
    largest = tf.reduce_max(tf.abs(vectors), axis=1, keepdims=True)
    shape = vectors / tf.where(largest > 0, largest, tf.ones_like(largest))
    length = tf.norm(shape, ord=ORDERS[norm], axis=1, keepdims=True)
    outside = length * largest > radius
    onto = shape * (radius / tf.where(length > 0, length, tf.ones_like(length)))
    return tf.where(outside, onto, vectors)


def project_to_l2_ball(values: list[Any], radius: float) -> list[Any]:
    """Tensors, taken together as one vector, moved to the nearest point of the ball around zero."""
    length = tf.linalg.global_norm(values)
    scale = tf.minimum(1.0, radius / tf.maximum(length, 1e-30))
    return [value * tf.cast(scale, value.dtype) for value in values]


_LARGEST, _SMALLEST = 1e30, 1e-30


@dataclass(frozen=True)
class AdaptiveClip:
    """Follows the `quantile` of the norms of clients' values, geometrically.

    Each client sends one more bit about each value, whether its norm is at most the round's
    clipping norm, through binary randomized response of `local_epsilon`. The server multiplies the
    norm by `exp(-learning_rate * (share of ones - quantile))`, with the unbiased share brought
    into [0, 1]. The norm of a round is public and was fixed before it.

    Args:
        local_epsilon: budget of the bit; it adds to the mechanism's.
        initial: norm of the first round, public.
        quantile: share of values that shall not be clipped.
        learning_rate: of the logarithm of the norm.

    Source: Andrew et al., Differentially Private Learning with Adaptive Clipping (2021), with the
    bits randomized on the client instead of Gaussian noise on their sum.

    Raises:
        ValueError: if a parameter is out of range.
    """

    local_epsilon: float
    initial: float = 0.1
    quantile: float = 0.5
    learning_rate: float = 0.2

    def __post_init__(self) -> None:
        for name in ("local_epsilon", "initial", "learning_rate"):
            check_positive(name, getattr(self, name))
        check_fraction("quantile", self.quantile)

    @property
    def mechanism(self) -> BinaryVectorMean:
        """What randomizes the bit."""
        budgets = (self.local_epsilon,)
        return BinaryVectorMean(1, self.local_epsilon, messages=(1,), message_epsilons=budgets)

    def next_norm(self, norm: Any, share: Any, num_values: Any) -> Any:
        """The norm of the next round, of the estimated share of ones; unchanged by an empty one."""
        share = tf.clip_by_value(share, 0.0, 1.0)
        moved = norm * tf.exp(-self.learning_rate * (share - self.quantile))
        return tf.where(num_values > 0, tf.clip_by_value(moved, _SMALLEST, _LARGEST), norm)


def norm_at_most(vectors: Any, norm: Norm, limit: Any) -> Any:
    """Whether the norm of each row is at most `limit`, as 0.0 or 1.0: `(n, 1)` float64.

    A row that is not finite counts as zero, as it does where it is randomized.
    """
    finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
    scaled = tf.where(finite, vectors, tf.zeros_like(vectors)) / limit
    return tf.cast(tf.norm(scaled, ord=ORDERS[norm], axis=1, keepdims=True) <= 1.0, tf.float64)
