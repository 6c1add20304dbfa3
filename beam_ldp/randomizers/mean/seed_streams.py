"""Long random vectors from short seeds: AES-128 in counter mode.

A seed of three words is a key (128 bits) and a public-size nonce (up to 64 bits). Nobody without
the seed can tell its stream from random words: that is the usual assumption on AES, and what
sending a seed instead of a vector rests on.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.normals import spare_words, standard_normals

SECURITY_BITS = 128
SEED_WORDS = 3
_BLOCK_WORDS = 2


def stream_words(seeds: np.ndarray, count: int) -> np.ndarray:
    """The first `count` words of the stream of each seed; a longer stream starts the same.

    Args:
        seeds: uint64 `(n, 3)`: two words of key, one of nonce.

    Returns:
        uint64 `(n, count)`, the same on every platform.
    """
    zeros = bytes(8 * count)
    out = np.empty(len(seeds) * count + _BLOCK_WORDS, dtype="<u8")
    target = memoryview(out).cast("B")
    for i, seed in enumerate(seeds.astype("<u8").view("V24").ravel().tolist()):
        encryptor = Cipher(algorithms.AES(seed[:16]), modes.CTR(seed[16:] + bytes(8))).encryptor()
        encryptor.update_into(zeros, target[8 * i * count :])  # a block too long is overwritten
    return out[: len(seeds) * count].reshape(len(seeds), count).astype(np.uint64, copy=False)


def seed_normals(seeds: np.ndarray, count: int) -> np.ndarray:
    """Standard normals that seeds stand for: float64 `(n, count)`."""

    def further(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        longer = stream_words(seeds[np.unique(rows)], int(positions.max()) + 1)
        return longer[np.searchsorted(np.unique(rows), rows), positions]

    return standard_normals(stream_words(seeds, spare_words(count)), count, further)
