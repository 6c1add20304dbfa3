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
        columns = [permute(reports[:, j]) for j in range(messages)]
        return np.stack(columns, axis=1)
    if reports.ndim == 1:
        out = np.array(reports)
        _shuffle_in_place(out)
        return out
    order = np.arange(len(reports))
    _shuffle_in_place(order)
    return reports[order]


def _shuffle_in_place(array: np.ndarray) -> None:
    source = FreshWords()
    left = len(array)
    while left > 1:
        words = source.words(0, min(left - 1, _CHUNK), 1)[:, 0]
        left = _fisher_yates(array, left, words)


@kernel
def _fisher_yates(array, left, words):  # type: ignore[no-untyped-def]
    """Place one entry per word, from position left - 1 down; the number of entries left."""
    for word in words:
        bound = np.uint64(left)
        low = word * bound
        if low < bound and low < (np.uint64(0) - bound) % bound:
            continue  # a word that would make some positions likelier than others
        j = multiply_high(word, bound)  # type: ignore[arg-type]
        held = array[left - 1]
        array[left - 1] = array[j]
        array[j] = held
        left -= 1
    return left


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
