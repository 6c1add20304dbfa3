"""Rows of many clients, one client after another, without copying all of them for each.

What was gathered is a tuple: `LEVELS` levels of `SLOTS` tensors `(rows, columns)` uint8, and one
tensor more. A client's rows go into the first level, the others one slot on; a level that is full
becomes one tensor of the next. A row is copied once per level, that is, a logarithmic number of
times, where a running concatenation copies it once for every client that comes after.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from tff_adapters.compat import tff

SLOTS, LEVELS = 8, 5  # beyond 8**5 clients the last tensor grows by 8**5 at a time


def spec(columns: int) -> Any:
    """TFF's type of what was gathered."""
    return (tff.TensorType(np.uint8, (None, columns)),) * (SLOTS * LEVELS + 1)


def nothing(columns: int) -> Any:
    """Before the first client."""
    return (_none(columns),) * (SLOTS * LEVELS + 1)


def with_one(gathered: Any, rows: Any) -> Any:
    """With the rows of one more client, at least one."""
    *slots, rest = gathered
    levels = [tuple(slots[i : i + SLOTS]) for i in range(0, SLOTS * LEVELS, SLOTS)]
    return _put(levels, rest, rows)


def merged(both: Any) -> Any:
    """Two gatherings as one."""
    joined = tf.concat([rows(one) for one in both], axis=0)
    return (*nothing(joined.shape[1])[:-1], joined)


def rows(gathered: Any) -> Any:
    """All rows, as one tensor."""
    return tf.concat(list(gathered), axis=0)


def _put(levels: list[Any], rest: Any, part: Any) -> Any:
    """The same with `part` put into the first of these levels."""
    if not levels:
        return (tf.concat([rest, part], axis=0),)
    first, *others = levels
    moved = (part, *first[:-1])
    kept = tuple(tensor for level in others for tensor in level)

    def full() -> Any:
        empty = (_none(part.shape[1]),) * SLOTS
        return (*empty, *_put(others, rest, tf.concat(list(moved), axis=0)))

    def room() -> Any:
        return (*moved, *kept, rest)

    return tf.cond(tf.shape(moved[-1])[0] > 0, full, room)


def _none(columns: int | None) -> Any:
    """No rows, of a number that the type does not tell."""
    empty = tf.zeros([0, columns], tf.uint8)
    return tf.raw_ops.PlaceholderWithDefault(input=empty, shape=[None, columns])
