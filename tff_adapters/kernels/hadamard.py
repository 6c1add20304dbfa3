"""The Walsh-Hadamard transform and the public rotation of the Euclidean mechanisms."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy.linalg import hadamard as hadamard_matrix

_LARGEST_FACTOR = 128  # a matrix product of this size is as fast as butterflies of one level


def walsh_hadamard(rows: Any, size: int) -> Any:
    """Orthonormal transform of each row of `rows` (n, size), size a power of two.

    The matrix is a Kronecker product of small ones, each applied along an axis of its own:
    O(size log size) with the constant of matrix products.
    """
    done = 1
    while done < size:
        factor = min(size // done, _LARGEST_FACTOR)
        matrix = tf.constant(hadamard_matrix(factor) / np.sqrt(factor), rows.dtype)
        grid = tf.reshape(rows, [-1, size // done // factor, factor, done])
        rows = tf.reshape(tf.einsum("nafb,fg->nagb", grid, matrix), [-1, size])
        done *= factor
    return rows


def rotate(vectors: Any, size: int, signs: Any | None) -> Any:
    """Rows of H D x: signs (or None), zero-padding to `size`, transform."""
    signed = vectors if signs is None else vectors * signs
    padding = size - vectors.shape[1]
    return walsh_hadamard(tf.pad(signed, [[0, 0], [0, padding]]), size)


def rotate_back(vector: Any, dimension: int, size: int, signs: Any | None) -> Any:
    """Transpose of `rotate`, for one vector (size,)."""
    out = walsh_hadamard(vector[None, :], size)[0, :dimension]
    return out if signs is None else out * signs


def signs_from_bits(signs: np.ndarray) -> Any:
    """Signs +-1 (d,) float64, which the graph holds in one bit each."""
    packed = tf.constant(np.packbits(signs < 0))
    shifts = tf.constant(np.arange(7, -1, -1), tf.uint8)
    bits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(packed[:, None], shifts), 1)
    return 1.0 - 2.0 * tf.cast(tf.reshape(bits, [-1])[: len(signs)], tf.float64)
