"""Clipping: by scaling, per example; or at a norm that follows a quantile of the clients' norms."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from beam_ldp.randomizers.checks import check_fraction, check_positive
from beam_ldp.randomizers.mean import BinaryVectorMean
from beam_ldp.randomizers.mean.base import Norm

_ORDERS = {"l1": 1, "l2": 2, "linf": math.inf}


def check_ball(norm: str, radius: float) -> None:
    """Raises ValueError unless `norm` is known and `radius` is a finite number above zero."""
    if norm not in _ORDERS:
        raise ValueError(f"norm must be one of {', '.join(_ORDERS)}, got {norm!r}")
    check_positive("radius", radius)


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
    order = {"l1": 1, "l2": 2, "linf": math.inf}[norm]
    return tf.cast(tf.norm(scaled, ord=order, axis=1, keepdims=True) <= 1.0, tf.float64)
