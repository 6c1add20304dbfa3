"""`beam_ldp.federated.collusion` as TensorFlow graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.federated.collusion import FLAT, LEAST, QUIET, SAFETY, CollusionCheck


def examine(check: CollusionCheck, reports: Any, deal: Callable[[Any], Any]) -> tuple[Any, Any]:
    """Which of the reports `(n, dimension)` are not left out, and how far those agree (float64).

    Args:
        check, reports: as in NumPy.
        deal: puts indices (int64) into random order.
    """
    numbers, limits = check.limits_in_steps()
    size = tf.shape(reports)[0]
    limit = tf.gather(limits, tf.searchsorted(numbers.astype(np.int32), size[None])[0])
    rows = tf.cast(reports, tf.float32)
    gram = tf.cast(tf.matmul(rows, rows, transpose_b=True), tf.float64)

    def leave_out(kept: Any, quiet: Any) -> tuple[Any, Any]:
        left = deal(tf.where(kept)[:, 0])
        middle = (tf.shape(left)[0] + 1) // 2
        first, second = left[:middle], left[middle:]
        found = tf.concat(
            [
                tf.boolean_mask(other, _points_beyond(gram, half, other, limit))
                for half, other in ((first, second), (second, first))
            ],
            axis=0,
        )
        out = tf.scatter_nd(found[:, None], tf.ones_like(found), tf.cast(size, tf.int64)[None])
        return kept & tf.equal(out, 0), tf.where(tf.size(found) > 0, 0, quiet + 1)

    def goes_on(kept: Any, quiet: Any) -> Any:
        return (quiet < QUIET) & (tf.math.count_nonzero(kept) >= LEAST)

    start = tf.ones([size], tf.bool), tf.constant(0)
    shapes = tf.TensorShape([None]), tf.TensorShape([])
    kept, _ = tf.while_loop(goes_on, leave_out, start, shapes)
    left = tf.where(kept)[:, 0]
    squares = tf.linalg.eigvalsh(tf.gather(tf.gather(gram, left), left, axis=1))
    largest = tf.reduce_max(tf.concat([squares, tf.zeros([1], tf.float64)], axis=0))
    return kept, tf.sqrt(largest) * check.step * SAFETY


def _points_beyond(gram: Any, half: Any, other: Any, limit: Any) -> Any:
    squares, left = tf.linalg.eigh(tf.gather(tf.gather(gram, half), half, axis=1))
    large = squares > FLAT * squares[-1]
    scale = tf.where(large, tf.math.rsqrt(tf.maximum(squares, 1e-300)), tf.zeros_like(squares))
    along = tf.matmul(tf.gather(tf.gather(gram, other), half, axis=1), left * scale)
    return tf.reduce_any(tf.abs(along) > limit, axis=1)
