"""Messages as bytes: integers of fixed widths without gaps, as `pack` of the NumPy mechanisms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

Runs = Sequence[tuple[int, int]]  # so many columns of so many bits each

_WHOLE_BYTES = (8, 16, 32)


def bytes_of(runs: Runs) -> int:
    """Bytes of one row: its bits, zero-padded to a byte."""
    return -(-sum(columns * bits for columns, bits in runs) // 8)


def runs_of(widths: np.ndarray) -> list[tuple[int, int]]:
    """Widths, column by column, as runs of equal ones."""
    starts = np.concatenate(([0], np.flatnonzero(np.diff(widths)) + 1))
    lengths = np.diff(np.concatenate((starts, [len(widths)])))
    return [(int(n), int(widths[at])) for at, n in zip(starts, lengths)]


def pack_rows(rows: Any, runs: Runs) -> Any:
    """Each row of unsigned integers `(n, columns)` as uint8 `(n, bytes_of(runs))`.

    Most significant bit first, without gaps between columns.
    """
    if _is_whole(runs):
        return _whole_bytes(rows, *runs[0])
    bits, at = [], 0
    for columns, width in runs:
        part = tf.cast(rows[:, at : at + columns], tf.uint32)
        shifts = tf.constant(np.arange(width - 1, -1, -1), tf.uint32)
        digits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(part[:, :, None], shifts), 1)
        bits.append(tf.reshape(tf.cast(digits, tf.uint8), [-1, columns * width]))
        at += columns
    row = tf.concat(bits, axis=1)
    size = bytes_of(runs)
    padded = tf.pad(row, [[0, 0], [0, 8 * size - row.shape[1]]])
    octets = tf.reshape(padded, [-1, size, 8])
    return tf.reduce_sum(octets * tf.constant(2 ** np.arange(7, -1, -1), tf.uint8), axis=2)


def unpack_rows(packed: Any, runs: Runs) -> Any:
    """Inverse of `pack_rows`: uint32 `(n, columns)`."""
    if _is_whole(runs):
        return _from_whole_bytes(packed, *runs[0])
    shifts = tf.constant(np.arange(7, -1, -1), tf.uint8)
    row = tf.bitwise.bitwise_and(tf.bitwise.right_shift(packed[:, :, None], shifts), 1)
    row = tf.reshape(row, [-1, 8 * bytes_of(runs)])
    parts, at = [], 0
    for columns, width in runs:
        digits = tf.reshape(row[:, at : at + columns * width], [-1, columns, width])
        weights = tf.constant(2 ** np.arange(width - 1, -1, -1), tf.uint32)
        parts.append(tf.reduce_sum(tf.cast(digits, tf.uint32) * weights, axis=2))
        at += columns * width
    return tf.concat(parts, axis=1)


def _is_whole(runs: Runs) -> bool:
    """Whether every column takes one, two or four bytes: no bit has to be looked at."""
    return len(runs) == 1 and runs[0][1] in _WHOLE_BYTES


def _whole_bytes(rows: Any, columns: int, width: int) -> Any:
    octets = tf.bitcast(_swapped(tf.cast(rows, _WORDS[width]), width), tf.uint8)
    return tf.reshape(octets, [-1, columns * width // 8])


def _from_whole_bytes(packed: Any, columns: int, width: int) -> Any:
    size = width // 8
    words = (
        packed if size == 1 else tf.bitcast(tf.reshape(packed, [-1, columns, size]), _WORDS[width])
    )
    return tf.cast(_swapped(words, width), tf.uint32)


def _swapped(words: Any, width: int) -> Any:
    """Bytes of each word in the other order: words are little-endian in memory."""
    if width == 8:
        return words
    left, right, only = tf.bitwise.left_shift, tf.bitwise.right_shift, tf.bitwise.bitwise_and
    either = tf.bitwise.bitwise_or
    eight = tf.constant(8, words.dtype)
    if width == 16:
        return either(left(words, eight), right(words, eight))
    low = tf.constant(0x00FF00FF, words.dtype)
    pairs = either(left(only(words, low), eight), only(right(words, eight), low))
    sixteen = tf.constant(16, words.dtype)
    return either(left(pairs, sixteen), right(pairs, sixteen))


_WORDS = {8: tf.uint8, 16: tf.uint16, 32: tf.uint32}
