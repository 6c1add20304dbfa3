"""PrivUnit and PrivUnitG: a noisy direction with real coordinates, sent as fixed point.

`ScalarKernel` sends one number per person: unbiased rounding to a grid, then randomized response
over its points. `SeparatedKernel` sends direction and length apart: PrivUnit's direction times such
a number.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from tff_adapters.kernels.base import (
    ClientKernel,
    bytes_of,
    exponential,
    first_accepted,
    heads,
    normal,
    pack_rows,
    uniform,
    unpack_rows,
)

_SMALL_TAIL = 0.5  # normal thresholds below it: draw until it is exceeded


class FixedPointKernel(ClientKernel):
    """Reports of real coordinates, `(n, dimension)` signed integers; they sum in int64."""

    statistic_dtype: ClassVar[Any] = tf.int64

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.mechanism.dimension,)

    @property
    def statistic_limit(self) -> int:
        return int(self.mechanism.fixed_point.largest)

    def accumulate(self, reports: Any) -> Any:
        return tf.reduce_sum(tf.cast(reports, tf.int64), axis=0)

    @property
    def _widths(self) -> list[tuple[int, int]]:
        return [(self.mechanism.dimension, self.mechanism.fixed_point.bits)]

    @property
    def message_bytes(self) -> int:
        return bytes_of(self._widths)

    def pack(self, reports: Any) -> Any:
        """Offset binary: the least integer is all zeros. Unsigned words wrap, as they should."""
        words = tf.bitcast(tf.cast(reports, tf.int32), tf.uint32)
        return pack_rows(words + self._offset, self._widths)

    def unpack(self, packed: Any) -> Any:
        words = unpack_rows(packed, self._widths)
        signed = tf.bitcast(words - self._offset, tf.int32)
        return tf.cast(signed, tf.as_dtype(self.mechanism.report_dtype))

    def possible(self, reports: Any) -> Any:
        """Vectors of a length that the mechanism sends, without a coordinate beyond the grid."""
        exact = tf.cast(reports, tf.float64)
        lengths, slack = map(tf.constant, self.mechanism._lengths_sent)
        near = tf.abs(tf.norm(exact, axis=1)[:, None] - lengths) <= slack
        largest = float(self.mechanism.fixed_point.largest)
        return tf.reduce_any(near, axis=1) & (tf.reduce_max(tf.abs(exact), axis=1) <= largest)

    @property
    def _offset(self) -> Any:
        return tf.constant(1 << (self.mechanism.fixed_point.bits - 1), tf.uint32)

    def decode(self, statistic: Any, num_reports: Any) -> Any:
        total = tf.cast(statistic, tf.float64) * self.mechanism.fixed_point.step
        return tf.math.divide_no_nan(total, tf.cast(num_reports, tf.float64))


class DirectionKernel(FixedPointKernel):
    """A noisy direction, of a direction that stands for the vector."""

    def respond(self, vectors: Any, generator: Any) -> Any:
        length = tf.norm(vectors, axis=1)
        zero = tf.equal(length, 0.0)
        first_axis = tf.one_hot([0], self.mechanism.dimension, dtype=tf.float64)
        vectors = tf.cond(  # a vector of zeros: any direction will do
            tf.reduce_any(zero),
            lambda: tf.where(zero[:, None], first_axis, vectors),
            lambda: vectors,
        )
        sign = self._sign(length, zero, generator)
        drawn = self._draw(vectors, tf.where(zero, tf.ones_like(length), length), sign, generator)
        limit = float(self.mechanism.fixed_point.largest)
        if self.mechanism.rounding == "random":
            coins = uniform(generator, tf.shape(drawn))
            integers = tf.floor(tf.clip_by_value(drawn, -limit, limit) + coins)
        else:
            integers = tf.clip_by_value(tf.round(drawn), -limit, limit)
        return tf.cast(integers, tf.as_dtype(self.mechanism.report_dtype))

    @abstractmethod
    def _draw(self, vectors: Any, length: Any, sign: Any, generator: Any) -> Any:
        """Reports (n, dimension) of the directions `sign * vectors / length`, not yet rounded.

        In units of the fixed point. Rows are long: what is per row is multiplied out first, so
        that few passes over coordinates are left.
        """

    def _sign(self, length: Any, zero: Any, generator: Any) -> Any:
        """Signs (n,) with which directions stand for vectors of the ball without bias."""
        if self.mechanism.inputs == "sphere":
            share = tf.ones_like(length)
        else:
            share = tf.minimum(length / self.mechanism.radius, 1.0)
        kept = 0.5 + 0.5 * tf.where(zero, tf.zeros_like(length), share)
        up = uniform(generator, tf.shape(length)) < kept
        return 2.0 * tf.cast(up, tf.float64) - 1.0


class PrivUnitKernel(DirectionKernel):
    """The kernel of `PrivUnit`."""

    def _draw(self, vectors: Any, length: Any, sign: Any, generator: Any) -> Any:
        normals = normal(generator, tf.shape(vectors))
        along = _products(normals, vectors) / length
        # Their part across the direction, whose length may be small: not by Pythagoras.
        rest = tf.math.squared_difference(normals, (along / length)[:, None] * vectors)
        height = self.heights(tf.shape(vectors)[0], generator)
        across = tf.sqrt((1 - height) * (1 + height) / tf.reduce_sum(rest, axis=1))
        both = (height * sign - across * along) / length, across
        own, noise = (part[:, None] * self.mechanism._length for part in both)
        return own * vectors + noise * normals

    def heights(self, count: Any, generator: Any) -> Any:
        """Inner products (n,) of drawn and own direction."""
        inside = heads(generator, [count], self.mechanism.coin.threshold)
        g = self.mechanism.cap.threshold
        return tf.where(
            inside,
            _in_cap(g, self.mechanism.dimension, count, generator),
            _off_cap(g, self.mechanism.dimension, count, generator),
        )


class PrivUnitGaussianKernel(DirectionKernel):
    """The kernel of `PrivUnitGaussian`."""

    def _draw(self, vectors: Any, length: Any, sign: Any, generator: Any) -> Any:
        normals = normal(generator, tf.shape(vectors))
        along = _products(normals, vectors) / length
        height = self.heights(tf.shape(vectors)[0], generator)
        unit = self.mechanism.marginal * self.mechanism._unit_step
        own = (height * sign - along) / (length * unit)
        return own[:, None] * vectors + normals / unit

    def heights(self, count: Any, generator: Any) -> Any:
        """Heights (n,) of drawn reports, before scaling."""
        inside = heads(generator, [count], self.mechanism.coin.threshold)
        t = self.mechanism.tail.threshold
        above, below = _normal_above(t, count, generator), _normal_below(t, count, generator)
        return tf.where(inside, above, below)


def _products(first: Any, second: Any) -> Any:
    """Inner products (n,) of rows."""
    return tf.linalg.matmul(first[:, None, :], second[:, :, None])[:, 0, 0]


def _sphere_heights(dimension: int, count: Any, generator: Any) -> Any:
    """Inner products (n,) of uniform unit vectors with an axis."""
    z = normal(generator, [count])
    seed = generator.make_seeds(1)[:, 0]
    half = tf.constant((dimension - 1) / 2, tf.float64)
    rest = 2 * tf.random.stateless_gamma([count], seed, half, dtype=tf.float64)
    return z / tf.sqrt(z * z + rest)


def _in_cap(g: float, dimension: int, count: Any, generator: Any) -> Any:
    """`_sphere_heights`, given that they are at least g."""
    if g * g * dimension < 1.0:

        def propose() -> tuple[Any, Any]:
            height = _sphere_heights(dimension, count, generator)
            return height, height >= g
    else:

        def propose() -> tuple[Any, Any]:
            w = exponential(generator, [count]) * (2 / (dimension - 1))
            height = tf.sqrt(g * g - (1 - g) * (1 + g) * tf.math.expm1(-w))
            return tf.minimum(height, 1.0), uniform(generator, [count]) * height < g

    return first_accepted(propose, count)


def _off_cap(g: float, dimension: int, count: Any, generator: Any) -> Any:
    """`_sphere_heights`, given that they are below g."""

    def propose() -> tuple[Any, Any]:
        height = _sphere_heights(dimension, count, generator)
        return height, height < g

    return first_accepted(propose, count)


def _normal_above(t: float, count: Any, generator: Any) -> Any:
    """Standard normals (n,), given that they are at least t >= 0."""
    if t < _SMALL_TAIL:

        def propose() -> tuple[Any, Any]:
            x = normal(generator, [count])
            return x, x >= t
    else:

        def propose() -> tuple[Any, Any]:
            x = tf.sqrt(t * t + 2 * exponential(generator, [count]))
            return x, uniform(generator, [count]) * x < t

    return first_accepted(propose, count)


def _normal_below(t: float, count: Any, generator: Any) -> Any:
    """Standard normals (n,), given that they are below t >= 0."""

    def propose() -> tuple[Any, Any]:
        x = normal(generator, [count])
        return x, x < t

    return first_accepted(propose, count)


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
        exact = tf.cast(drawn, tf.float64) * (mechanism._length / direction.fixed_point.largest)
        if self.magnitude is not None:
            decoded = mechanism.magnitude.response.decoded
            index = tf.cast(self.magnitude.respond(length, generator), tf.int32)
            exact *= tf.gather(tf.constant(decoded / np.abs(decoded).max()), index)[:, None]
        if mechanism.rounding == "random":
            exact += uniform(generator, tf.shape(exact)) + uniform(generator, tf.shape(exact)) - 1.0
        limit = float(mechanism.fixed_point.largest)
        reports = tf.clip_by_value(tf.round(exact), -limit, limit)
        return tf.cast(reports, tf.as_dtype(mechanism.report_dtype))
