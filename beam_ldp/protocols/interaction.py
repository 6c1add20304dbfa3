"""Who was asked what: how a log of it looks, and which questions a promise still allows.

Where values are randomized, records of who was asked what can be left
(`transforms.device.asked`), and questions can be kept from people whose budget they exceed
(`transforms.PerPersonFilter`). The audit of such records is `beam_ldp.research.interactivity`.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_ldp.randomizers.identity import canonical_ids

NANO = 10**9
"""Epsilons are added up in units of 1e-9, each rounded up."""
MOST_EPSILON = 10_000.0  # of a record
ROUNDING = 1e-9
"""Above a budget by this much is rounding of logarithms, not a cost."""
LOG_SCHEMA = pa.schema(
    [
        ("seq", pa.int64()),
        ("user", pa.int64()),
        ("randomizer", pa.string()),
        ("round", pa.int64()),
        ("epsilon", pa.float64()),
        ("delta", pa.float64()),
        ("output", pa.int64()),
        ("assign_seq", pa.int64()),
        ("run", pa.string()),
    ]
)


def nano_of(epsilon: float) -> int:
    """A promise in units of 1e-9, rounded up as what is asked is.

    Raises:
        ValueError: for no epsilon.
    """
    if not 0 < epsilon <= MOST_EPSILON:
        raise ValueError(f"epsilon must be in (0, {MOST_EPSILON:g}], got {epsilon}")
    return math.ceil(epsilon * NANO)


def mixed(values: np.ndarray) -> np.ndarray:
    """A permutation of the 64-bit words that scatters neighbours (the finalizer of splitmix64).

    >>> len(set(mixed(np.arange(1000)).tolist()))
    1000
    """
    words = np.asarray(values).astype(np.uint64)
    words ^= words >> np.uint64(30)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words


def hash_text(text: str | bytes) -> int:
    """A 64-bit word for a text."""
    text = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def hash_texts(texts: Sequence[str | bytes]) -> np.ndarray:
    """A word for each text."""
    return np.fromiter(map(hash_text, texts), np.uint64, len(texts))


def hash_people(users: Sequence[Any] | np.ndarray) -> np.ndarray:
    """A word for each id; ids that are one person (`canonical_id`) have one."""
    ids = canonical_ids(users)
    words = mixed(ids.integers)
    if ids.texts is not None:
        textual = np.array([text is not None for text in ids.texts.tolist()], dtype=bool)
        words[textual] = hash_texts(ids.texts[textual].tolist())
    return words


def check_kernel(kernel: Any, name: str = "kernel") -> np.ndarray:
    """Probabilities of answers as float64 `(inputs, outputs)`: row x is of whose datum is x.

    Raises:
        ValueError: unless rows are probabilities above 0 that sum to 1: an answer that some datum
            excludes has no finite epsilon.

    >>> check_kernel([[0.75, 0.25], [0.25, 0.75]]).shape
    (2, 2)
    """
    rows = np.asarray(kernel, dtype=np.float64)
    if rows.ndim != 2 or not rows.size or not np.all(rows > 0):
        raise ValueError(f"{name} must have one row of probabilities above 0 per input")
    if np.abs(rows.sum(axis=1) - 1).max() > ROUNDING:
        raise ValueError(f"{name} must have rows that sum to 1")
    return rows


def asks_that_fit(states: np.ndarray, logs: np.ndarray, budget: float) -> np.ndarray:
    """Whom of many people a question may be asked, each with answers of their own: bool `(n,)`.

    Args:
        states: `(n, inputs)` log-likelihoods of everybody's answers so far.
        logs: `(inputs, outputs)` logarithms of the kernel.
        budget: most that the range of log-likelihoods may come to, whatever the answer.
    """
    most = np.zeros(len(states))
    for answer in logs.T:
        np.maximum(most, np.ptp(states + answer, axis=1), out=most)
    return np.asarray(most <= budget + ROUNDING)
