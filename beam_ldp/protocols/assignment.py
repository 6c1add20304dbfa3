"""Which part of a protocol a person plays: a public function of the person's id.

It need not be secret, since it does not depend on the data; it must be the same on every retry, so
that nobody plays two parts. It hides nothing, and an id is no secret key.
"""

from __future__ import annotations

import hashlib

import numpy as np

from beam_ldp.randomizers.user_ids import AnyIds, UserIds, canonical_ids

_MIX = (np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))  # splitmix64


def public_words(user_ids: AnyIds, salt: str = "") -> np.ndarray:
    """One 64-bit word per id, spread evenly over ids that nobody chose for it: uint64, (n,).

    Args:
        user_ids: integers, or text or bytes.
        salt: public; another one spreads the ids anew.

    >>> public_words(np.array([7, 8])) == public_words(np.array([7, 8]))
    array([ True,  True])
    """
    ids = canonical_ids(user_ids)
    start = hashlib.blake2b(b"beam-ldp part " + salt.encode(), digest_size=16).digest()
    words = np.empty(len(ids), dtype=np.uint64)
    for rows, of_kind in ids.kinds():
        words[rows] = (
            _of_integers(of_kind, start) if of_kind.texts is None else _of_texts(of_kind, start)
        )
    return words


def _of_texts(ids: UserIds, start: bytes) -> np.ndarray:
    assert ids.texts is not None
    digests = (hashlib.blake2b(i, key=start, digest_size=8).digest() for i in ids.texts.tolist())
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _of_integers(ids: UserIds, start: bytes) -> np.ndarray:
    words = ids.integers.astype(np.uint64) ^ np.frombuffer(start, dtype="<u8")[0]
    for _ in range(2):
        words = words + np.frombuffer(start, dtype="<u8")[1]
        for shift, factor in zip((30, 27), _MIX):
            words = (words ^ (words >> np.uint64(shift))) * factor
        words = words ^ (words >> np.uint64(31))
    return words
