"""What an attacker does to the digest of envelopes that earlier versions took.

It was the sum modulo 2**128 of CBC-MACs under AES, by a key that follows from the public identity:
whoever knows the release computes the id under which any report has any summand.
"""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import derive_key


def old_sum(identity: ReleaseIdentity, ids: np.ndarray, packed: np.ndarray) -> int:
    """The digest as it was.

    Args:
        identity: of the release.
        ids: uint8 `(n, 16)`.
        packed: uint8 `(n, bytes)`.
    """
    aes = _cipher(identity).encryptor()
    total = 0
    for one, report in zip(ids, packed):
        state = aes.update(one.tobytes())
        for block in _blocks(report):
            state = aes.update(_xor(state, block))
        total += int.from_bytes(state, "little")
    return total % (1 << 128)


def forged_id(identity: ReleaseIdentity, target: int, packed: np.ndarray) -> np.ndarray:
    """The id under which this one report has that summand."""
    aes = _cipher(identity).decryptor()
    state = target.to_bytes(16, "little")
    for block in reversed(_blocks(packed)):
        state = _xor(aes.update(state), block)
    return np.frombuffer(aes.update(state), np.uint8)


def _cipher(identity: ReleaseIdentity) -> Cipher[modes.ECB]:
    return Cipher(algorithms.AES(derive_key(identity.digest, b"envelopes")), modes.ECB())


def _blocks(report: np.ndarray) -> list[bytes]:
    padded = report.tobytes() + bytes(-len(report) % 16)
    return [bytes(16), *(padded[i : i + 16] for i in range(0, len(padded), 16))]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other))
