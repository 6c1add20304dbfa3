"""Clipping by scaling, per example: what bounds one data point's part in a gradient."""

from __future__ import annotations

import math
from typing import Any

import tensorflow as tf

_ORDERS = {"l1": 1, "l2": 2, "linf": math.inf}


def check_ball(norm: str, radius: float) -> None:
    """Raises ValueError unless `norm` is known and `radius` is a finite number above zero."""
    if norm not in _ORDERS:
        raise ValueError(f"norm must be one of {', '.join(_ORDERS)}, got {norm!r}")
    if not (math.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be a finite number > 0, got {radius}")


def clip_by_norm(vectors: Any, norm: str, radius: float) -> Any:
    """`g / max(1, ||g|| / radius)` for each row: the direction is kept, in every norm.

    Thesis, Algorithm 4.3.1. Mechanisms clip "linf" coordinate by coordinate, which turns a
    gradient; scaled beforehand it is left as it is. Rows with entries that are not finite count as
    zero: a client that refused would say something about itself.

    Args:
        vectors: (n, d) floats.
        norm: "l1", "l2" or "linf".
        radius: C, public.

    Returns:
        (n, d) float64, each row in the ball but for the last digit of floating point.
    """
    check_ball(norm, radius)
    vectors = tf.cast(vectors, tf.float64)
    finite = tf.reduce_all(tf.math.is_finite(vectors), axis=1, keepdims=True)
    vectors = tf.where(finite, vectors, tf.zeros_like(vectors))
    # Relative to the largest entry, so that no square overflows or vanishes.
    largest = tf.reduce_max(tf.abs(vectors), axis=1, keepdims=True)
    shape = vectors / tf.where(largest > 0, largest, tf.ones_like(largest))
    length = tf.norm(shape, ord=_ORDERS[norm], axis=1, keepdims=True)
    outside = length * largest > radius
    onto = shape * (radius / tf.where(length > 0, length, tf.ones_like(length)))
    return tf.where(outside, onto, vectors)


def project_to_l2_ball(values: list[Any], radius: float) -> list[Any]:
    """Tensors, taken together as one vector, moved to the nearest point of the ball around zero."""
    length = tf.linalg.global_norm(values)
    scale = tf.minimum(1.0, radius / tf.maximum(length, 1e-30))
    return [value * tf.cast(scale, value.dtype) for value in values]
