"""Uniformly random order, from secure words. Exactly uniform: no draw is rounded.

Fisher-Yates, backwards: position i swaps with a position drawn from [0, i]. The draw is the high
half of word * (i + 1); the few words that would favour a position are thrown away (Lemire 2019).
"""

from __future__ import annotations

import numpy as np

from beam_ldp.randomizers.jit import kernel, multiply_high
from beam_ldp.randomizers.randomness import FreshWords

_CHUNK = 1 << 16


def permute(reports: np.ndarray, messages: int = 1) -> np.ndarray:
    """The reports in uniformly random order, in a new array.

    Args:
        reports: `(n, ...)` array; with several messages per user `(n, messages, ...)`, whose
            columns are permuted independently, so that nothing ties a person's messages together.
        messages: messages per user.

    O(n) time and memory, one secure word per report and message.
    """
    if messages > 1:
        columns = np.ascontiguousarray(np.moveaxis(reports, 1, 0))
        if columns.ndim == 2:
            _shuffle_in_place(columns)
        else:
            columns = np.stack([permute(column) for column in columns])
        return np.ascontiguousarray(np.moveaxis(columns, 0, 1))
    if reports.ndim == 1:
        out = np.array(reports)
        _shuffle_in_place(out[None, :])
        return out
    order = np.arange(len(reports))
    _shuffle_in_place(order[None, :])
    return reports[order]


def _shuffle_in_place(columns: np.ndarray) -> None:
    """Every row of a C-contiguous array `(columns, n)` by itself."""
    count, length = columns.shape
    source = FreshWords()
    column, left = 0, length
    while column < count and length > 1:
        needed = (count - column - 1) * (length - 1) + left - 1
        words = source.words(0, min(needed, _CHUNK), 1)[:, 0]
        column, left = _fisher_yates(columns, column, left, words)


@kernel
def _fisher_yates(columns, column, left, words):  # type: ignore[no-untyped-def]
    """Place one entry per word, from position left - 1 of the column down.

    Returns the column and the number of its entries where the next word goes on.
    """
    for word in words:
        bound = np.uint64(left)
        low = word * bound
        if low < bound and low < (np.uint64(0) - bound) % bound:
            continue  # a word that would make some positions likelier than others
        j = multiply_high(word, bound)  # type: ignore[arg-type]
        held = columns[column, left - 1]
        columns[column, left - 1] = columns[column, j]
        columns[column, j] = held
        left -= 1
        if left == 1:
            column += 1
            left = columns.shape[1]
    return column, left


def scatter(words: np.ndarray, num_shards: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows ordered by a random shard each; a power of two of shards makes it exactly uniform.

    Returns:
        `(order, bounds)`: rows `order[bounds[s] : bounds[s + 1]]` go to shard s.
    """
    order = np.empty(len(words), dtype=np.int64)
    bounds = np.zeros(num_shards + 1, dtype=np.int64)
    _scatter(words, np.uint64(num_shards), order, bounds)
    return order, bounds


@kernel
def _scatter(words, num_shards, order, bounds):  # type: ignore[no-untyped-def]
    for word in words:
        bounds[multiply_high(word, num_shards) + 1] += 1
    for s in range(bounds.size - 1):
        bounds[s + 1] += bounds[s]
    at = bounds[:-1].copy()
    for i in range(words.size):
        s = multiply_high(words[i], num_shards)
        order[at[s]] = i
        at[s] += 1
