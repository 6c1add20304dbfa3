"""Keyed hashes of memoized reports: is a second publication the same one, and if not, what changed?

One hash per report, a pseudo-random function of the release's key, its identity, the person and the
report: never of the value. The sum of all hashes modulo 2**128 is a digest of who sent what, in
whatever order and blocks: it can be added up on many workers, and without the key it tells nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.randomness import check_key, derive_key, drawn_under, encrypt_blocks
from beam_ldp.randomizers.user_ids import AnyIds, canonical_ids

_BLOCK = 16  # bytes of AES, and of a hash
_LOW = np.uint64(0xFFFFFFFF)


def report_hashes(
    key: bytes,
    user_ids: AnyIds,
    packed: np.ndarray,
    identity: ReleaseIdentity,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """A hash of each report.

    CBC-MAC with AES over the person and the report, whose length the identity fixes. About 170 ns a
    report of few bytes and an integer id; a microsecond more where ids are texts.

    Args:
        key: the secret key of the release.
        user_ids: one id per report.
        packed: the reports in whole bytes of their own, as `LocalRandomizer.pack_each` gives them.
        identity: of the release.
        groups: `(n,)` integers: the public group that each person reported in.

    Returns:
        `(n, 2)` uint64.

    Raises:
        ValueError: if the key is too short, or the identity is committed to another one, or there
            is not one report per id.
    """
    check_key(key)
    release = drawn_under(identity.committed(key))
    secret = derive_key(key, b"report hashes", release, b"%d" % packed.shape[1])
    users = canonical_ids(user_ids)
    if len(users) != len(packed):
        raise ValueError("user_ids must hold one id per report")
    state = np.zeros((len(users), 2), dtype=np.uint64)
    for rows, ids in users.kinds():
        if ids.texts is None:
            state[rows, 0] = ids.integers.astype(np.uint64)
            state[rows] = encrypt_blocks(_cipher(secret, b"integers"), state[rows])
        else:
            state[rows] = _of_texts(derive_key(secret, b"texts"), ids)
    cipher = _cipher(secret, b"reports")
    for block in _blocks(packed, groups):
        state = encrypt_blocks(cipher, state ^ block)
    return state


def _cipher(secret: bytes, purpose: bytes) -> Cipher[modes.ECB]:
    return Cipher(algorithms.AES(derive_key(secret, purpose)), modes.ECB())


def _of_texts(secret: bytes, ids: Iterable[int | bytes]) -> np.ndarray:
    digests = b"".join(blake2b(bytes(i), key=secret, digest_size=_BLOCK).digest() for i in ids)
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _blocks(packed: np.ndarray, groups: np.ndarray | None) -> Iterable[np.ndarray]:
    """What is hashed beside the person, in blocks of two words: group, then report."""
    group = np.zeros((len(packed), 2), dtype=np.uint64)
    if groups is not None:
        group[:, 0] = np.asarray(groups).astype(np.uint64)
        group[:, 1] = 1
    yield group
    for start in range(0, packed.shape[1], _BLOCK):
        part = np.zeros((len(packed), _BLOCK), dtype=np.uint8)
        piece = packed[:, start : start + _BLOCK]
        part[:, : piece.shape[1]] = piece
        yield part.view("<u8").astype(np.uint64)


def digest_of_hashes(hashes: np.ndarray) -> int:
    """The digest of some reports, in [0, 2**128); those of disjoint parts add up modulo that."""
    low, high = hashes[:, 0], hashes[:, 1]
    total = int((low & _LOW).sum(dtype=np.uint64))  # exact for less than 2**32 reports
    total += int((low >> np.uint64(32)).sum(dtype=np.uint64)) << 32
    total += int(high.sum(dtype=np.uint64)) << 64
    return total % (1 << 128)


def add_digests(digests: Iterable[int]) -> int:
    """The digest of all parts together."""
    return sum(digests) % (1 << 128)


def digest_text(digest: int) -> str:
    """As ledgers and files hold it: 32 hexadecimal digits."""
    return f"{digest:032x}"
