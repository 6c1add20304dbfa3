"""Two-response bits about blocks of coordinates: BinaryVectorMean, LInfMean, L1Mean, L2Mean.

The Euclidean ones rotate publicly before, by the Walsh-Hadamard transform.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from scipy.linalg import hadamard as hadamard_matrix

from beam_ldp.randomizers.mean.allocation import level_weights
from beam_ldp.randomizers.mean.block_mean import BlockMean
from beam_ldp.randomizers.mean.l2_mean import L2Mean
from beam_ldp.randomizers.mean.lp import BinaryVectorMean
from tff_adapters.kernels.base import (
    ClientKernel,
    bytes_of,
    pack_rows,
    random_order,
    random_words,
    runs_of,
    unpack_rows,
)

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


class BlockKernel(ClientKernel):
    """The kernel of the block mechanisms.

    Reports are `(n, messages)` integers as the mechanism's: twice the place in the block plus the
    noisy bit. The probability of every bit is the mechanism's integer over 2**64; places are drawn
    apart from bits, independently of the data. The statistic counts ones less zeros,
    `(levels, coordinates)` int32.
    """

    statistic_dtype: ClassVar[Any] = tf.int32

    def __init__(self, mechanism: BlockMean) -> None:
        super().__init__(mechanism)
        if mechanism.preset is not None:
            raise ValueError(f"preset must be None, got {mechanism.preset!r}")

    # On the client -----------------------------------------------------------------------------

    def respond(self, vectors: Any, generator: Any) -> Any:
        layout, columns = self.mechanism.layout, self.mechanism.layout.columns
        unit = self.encode(vectors)
        words = random_words(generator, [tf.shape(vectors)[0], layout.num_messages])
        if layout.covers:
            once = self.thresholds(unit, columns.low[0], columns.span[0], columns.scale[0])
            thresholds = tf.tile(once, [1, layout.repeats(0)])
            return tf.cast(words < thresholds, self._report_dtype)
        size = tf.constant(columns.size.astype(np.int64))
        draws = random_words(generator, tf.shape(words))
        place = tf.cast(tf.bitwise.right_shift(draws, tf.constant(1, tf.uint64)), tf.int64) % size
        held = tf.gather(unit, place + columns.start, batch_dims=1)
        thresholds = self.thresholds(self._bits(held), columns.low, columns.span, columns.scale)
        return tf.cast(2 * place + tf.cast(words < thresholds, tf.int64), self._report_dtype)

    def encode(self, vectors: Any) -> Any:
        """Vectors of the ball as `(n, coordinates)` values in [0, 1]."""
        offset, factor = self.mechanism._affine
        if self.mechanism.rotates:
            vectors = rotate(vectors, self.mechanism.num_coordinates, self._signs())
        return tf.clip_by_value(offset + factor * vectors, 0.0, 1.0)

    def thresholds(self, means: Any, low: Any, span: Any, scale: Any) -> Any:
        """Words below which a bit is one, for probabilities `means` before it is flipped."""
        partial = tf.cast(means * scale, tf.uint64)
        return low + tf.where(means >= 1.0, tf.broadcast_to(span, tf.shape(partial)), partial)

    def _bits(self, held: Any) -> Any:
        """Probability that a message's own bit is one: a binary digit, or what is left of it."""
        digits = self.mechanism.layout.num_levels - 1
        level = self.mechanism.layout.columns.level
        scaled = held * 2.0**digits
        whole = tf.minimum(tf.floor(scaled), 2.0**digits - 1)
        digit = tf.floor(whole / 2.0 ** (digits - 1 - level)) % 2.0
        return tf.where(level < digits, digit, scaled - whole)

    def _signs(self) -> Any | None:
        if not isinstance(self.mechanism, L2Mean):
            return None
        return signs_from_bits(self.mechanism.signs)

    @property
    def _report_dtype(self) -> Any:
        return tf.as_dtype(self.mechanism.report_dtype)

    # What sums ---------------------------------------------------------------------------------

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.mechanism.layout.num_levels, self.mechanism.num_coordinates)

    @property
    def statistic_limit(self) -> int:
        layout = self.mechanism.layout
        return max(layout.repeats(level) for level in range(layout.num_levels))

    def accumulate(self, reports: Any) -> Any:
        layout, columns = self.mechanism.layout, self.mechanism.layout.columns
        levels, coordinates = self.statistic_shape
        reports = tf.cast(reports, tf.int64)
        signed = tf.cast(2 * (reports % 2) - 1, tf.int32)
        if layout.covers:
            return tf.reduce_sum(tf.reshape(signed, [-1, 1, coordinates]), axis=0)
        at = reports // 2 + (columns.level * coordinates + columns.start)
        counts = tf.math.unsorted_segment_sum(
            tf.reshape(signed, [-1]), tf.reshape(at, [-1]), levels * coordinates
        )
        return tf.reshape(counts, self.statistic_shape)

    # The messages themselves -------------------------------------------------------------------

    @cached_property
    def _widths(self) -> list[tuple[int, int]]:
        return runs_of(self.mechanism.layout.columns.widths)

    @property
    def message_bytes(self) -> int:
        return bytes_of(self._widths)

    def pack(self, reports: Any) -> Any:
        return pack_rows(reports, self._widths)

    def unpack(self, packed: Any) -> Any:
        return tf.cast(unpack_rows(packed, self._widths), self._report_dtype)

    def possible(self, reports: Any) -> Any:
        size = tf.constant(self.mechanism.layout.columns.size.astype(np.int64))
        return tf.reduce_all(tf.cast(reports, tf.int64) // 2 < size, axis=1)

    def permute(self, reports: Any, generator: Any) -> Any:
        if self.mechanism.messages_per_user == 1:
            return super().permute(reports, generator)
        columns = tf.transpose(reports)
        orders = random_order(generator, tf.shape(columns))
        return tf.transpose(tf.gather(columns, orders, batch_dims=1))

    # Reading back ------------------------------------------------------------------------------

    def decode(self, statistic: Any, num_reports: Any) -> Any:
        layout = self.mechanism.layout
        centred = tf.zeros([self.mechanism.num_coordinates], tf.float64)
        for level, weight in enumerate(level_weights(layout.num_levels)):
            sizes, contrast, _ = layout.coordinate_laws(level)
            gain = runs(weight * sizes / (2 * contrast * layout.repeats(level)))
            centred += gain * tf.cast(statistic[level], tf.float64)
        centred = tf.math.divide_no_nan(centred, tf.cast(num_reports, tf.float64))
        if isinstance(self.mechanism, BinaryVectorMean):
            return tf.where(num_reports > 0, centred + 0.5, tf.zeros_like(centred))
        mean = 2 * self.mechanism._half_range * centred
        if not self.mechanism.rotates:
            return mean
        coordinates = self.mechanism.num_coordinates
        return rotate_back(mean, self.mechanism.dimension, coordinates, self._signs())


def runs(values: np.ndarray) -> Any:
    """The values (k,), which the graph holds as runs of equal ones."""
    starts = np.flatnonzero(np.concatenate(([True], np.diff(values) != 0)))
    lengths = np.diff(np.concatenate((starts, [len(values)])))
    return tf.repeat(tf.constant(values[starts]), lengths, axis=0)
