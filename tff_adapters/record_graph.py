"""The privacy record as the server's computations keep it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from beam_ldp.federated.record import RoundConfig, RoundsRecord
from tff_adapters.compat import tff


def record_type() -> Any:
    """The type of a record in a state."""
    return tff.to_type(RoundsRecord(np.str_, tff.TensorType(np.int64, (None, 2))))


def empty_record(config: RoundConfig) -> RoundsRecord:
    """The record before the first round."""
    nothing = tf.zeros([0, 2], tf.int64)
    # A number of rows that the type does not tell: it grows.
    rounds = tf.raw_ops.PlaceholderWithDefault(input=nothing, shape=[None, 2])
    return RoundsRecord(tf.constant(config.to_json()), rounds)


def add_round(record: RoundsRecord, reports: Any) -> RoundsRecord:
    """The record after one more round, which received the reports of so many clients."""
    reports = tf.cast(reports, tf.int64)
    last = record.rounds[-1:]
    again = tf.reduce_any(tf.equal(last[:, 0], reports))  # false where there is no last
    longer = tf.concat([record.rounds[:-1], last + tf.constant([[0, 1]], tf.int64)], axis=0)
    added = tf.stack([reports, tf.constant(1, tf.int64)])[None, :]
    rounds = tf.cond(again, lambda: longer, lambda: tf.concat([record.rounds, added], axis=0))
    return RoundsRecord(record.config, tf.ensure_shape(rounds, [None, 2]))
