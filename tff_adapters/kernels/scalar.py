"""One number per person: unbiased rounding to a grid, then randomized response over its points.

`SeparatedKernel` sends direction and length apart: PrivUnit's direction times such a number.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from tff_adapters.kernels.base import ClientKernel, bytes_of, heads, pack_rows, uniform, unpack_rows
from tff_adapters.kernels.directions import FixedPointKernel, PrivUnitKernel


class ScalarKernel(ClientKernel):
    """The kernel of `ScalarMean`.

    Reports are `(n,)` indices of grid points; the statistic is their histogram, int32.
    """

    statistic_dtype: ClassVar[Any] = tf.int32

    def respond(self, vectors: Any, generator: Any) -> Any:
        values = vectors[:, 0]
        if not self.mechanism.signed:
            values = tf.maximum(values, 0.0)
        rounded = self.round(values, uniform(generator, tf.shape(values)))
        anything = generator.uniform(tf.shape(values), 0, self._num_points, dtype=tf.int64)
        keeps = heads(generator, tf.shape(values), self.mechanism._law.threshold)
        index = tf.where(keeps, rounded, anything)
        return tf.cast(index, tf.as_dtype(self.mechanism.report_dtype))

    def round(self, values: Any, coins: Any) -> Any:
        """Index of one of the two neighbouring points, without bias for uniform `coins`."""
        points = tf.constant(self.mechanism.points)
        cell = tf.searchsorted(points, values, side="right", out_type=tf.int64) - 1
        cell = tf.clip_by_value(cell, 0, self._num_points - 2)
        low, high = tf.gather(points, cell), tf.gather(points, cell + 1)
        return cell + tf.cast(coins * (high - low) < values - low, tf.int64)

    @property
    def _num_points(self) -> int:
        return len(self.mechanism.points)

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self._num_points,)

    @property
    def statistic_limit(self) -> int:
        return 1

    def accumulate(self, reports: Any) -> Any:
        size = self._num_points
        counts = tf.math.bincount(tf.cast(reports, tf.int32), minlength=size, maxlength=size)
        return tf.ensure_shape(counts, [size])

    @property
    def message_bytes(self) -> int:
        return bytes_of(self._widths)

    def pack(self, reports: Any) -> Any:
        return pack_rows(reports[:, None], self._widths)

    def unpack(self, packed: Any) -> Any:
        indices = unpack_rows(packed, self._widths)[:, 0]
        return tf.cast(indices, tf.as_dtype(self.mechanism.report_dtype))

    def possible(self, reports: Any) -> Any:
        return tf.cast(reports, tf.int64) < self._num_points

    @property
    def _widths(self) -> list[tuple[int, int]]:
        return [(1, self.mechanism.bits_per_report)]

    def decode(self, statistic: Any, num_reports: Any) -> Any:
        decoded = tf.constant(self.mechanism.response.decoded)
        total = tf.reduce_sum(tf.cast(statistic, tf.float64) * decoded, keepdims=True)
        return tf.math.divide_no_nan(total, tf.cast(num_reports, tf.float64))


class SeparatedKernel(FixedPointKernel):
    """The kernel of `SeparatedMean`, made of the kernels of its parts."""

    def __init__(self, mechanism: SeparatedMean) -> None:
        super().__init__(mechanism)
        self.direction = PrivUnitKernel(mechanism.direction)
        self.magnitude = (
            ScalarKernel(mechanism.magnitude) if mechanism.strategy == "product" else None
        )

    def respond(self, vectors: Any, generator: Any) -> Any:
        mechanism, direction = self.mechanism, self.mechanism.direction
        length = tf.minimum(tf.norm(vectors, axis=1, keepdims=True), mechanism.radius)
        stand_in = vectors
        if mechanism.strategy == "lift":
            last = tf.sqrt((mechanism.radius - length) * (mechanism.radius + length))
            stand_in = tf.concat([vectors, last], axis=1)
        elif mechanism.strategy == "sign_flip":
            stand_in = vectors / mechanism.radius
        drawn = self.direction.respond(stand_in, generator)[:, : mechanism.dimension]
        factor = mechanism.fixed_point.largest / direction.fixed_point.largest
        reports = tf.cast(drawn, tf.float64) * factor
        if self.magnitude is not None:
            decoded = mechanism.magnitude.response.decoded
            index = tf.cast(self.magnitude.respond(length, generator), tf.int32)
            reports *= tf.gather(tf.constant(decoded / np.abs(decoded).max()), index)[:, None]
        return tf.cast(tf.round(reports), tf.as_dtype(mechanism.report_dtype))
