"""Direction and length apart: PrivUnit's direction times the scalar mechanism's length."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.randomizers.mean.separated_mean import SeparatedMean
from tff_adapters.kernels.directions import FixedPointKernel, PrivUnitKernel
from tff_adapters.kernels.scalar import ScalarKernel


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
