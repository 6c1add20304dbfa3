"""Where random words come from: fresh, memoized, or simulated.

Every randomizer consumes uniform 64-bit words addressed by (user, position) and turns them into
reports by integer comparisons, so its law is exact. Three sources supply the words:

* fresh (the default): AES-CTR under a new key from the operating system for every call. Nothing
  is kept, so forked processes, threads and retries never share a draw.
* memoized (`UserRandomness`): a pseudo-random function of a secret key, the user, *the value* and
  the identity of the release (`ReleaseIdentity`: data set, name, question, mechanism, key). A retry
  or a re-run gives the same report, which therefore cannot be averaged away; any other value,
  question, mechanism or release draws independent words. Whoever holds the key can undo every
  report: one key per release, kept from collector and analyst, destroyed afterwards.
* simulated (a `numpy.random.Generator`): for tests and experiments. It protects nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Protocol

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from beam_ldp.randomizers.identity import (
    AnyIds,
    ReleaseIdentity,
    UserIds,
    canonical_ids,
    length_prefixed,
)

MIN_KEY_BYTES = 32
_AES_BLOCK_WORDS = 2
_ZERO_BYTES = np.zeros(1 << 19, dtype=np.uint8)


class WordSource(Protocol):
    """Uniform 64-bit words addressed by (user, position)."""

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        """Positions 0 .. per_user-1 of users start .. stop-1: uint64, (stop - start, per_user)."""

    def extra(self, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """One word per entry, for the rare draw that needs more than `per_user` words.

        `positions` lie at or above `per_user`, so that no word is used twice.
        """


class FreshWords:
    """Words from a generator keyed anew by the operating system. Never shared, never stored."""

    def __init__(self) -> None:
        self._encryptor = Cipher(algorithms.AES(os.urandom(16)), modes.CTR(bytes(16))).encryptor()

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        return self._draw((stop - start) * per_user).reshape(stop - start, per_user)

    def extra(self, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return self._draw(len(users))

    def _draw(self, count: int) -> np.ndarray:
        out = np.empty(count + _AES_BLOCK_WORDS, dtype=np.uint64)
        target = memoryview(out).cast("B")
        for begin in range(0, 8 * count, _ZERO_BYTES.size):
            zeros = _ZERO_BYTES[: 8 * count - begin]
            self._encryptor.update_into(zeros.data, target[begin:])
        return out[:count]


class SimulatedWords:
    """Words from a NumPy generator: reproducible, for tests and experiments only."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        shape = (stop - start, per_user)
        return self._generator.integers(0, 2**64, shape, dtype=np.uint64, endpoint=False)

    def extra(self, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
        return self._generator.integers(0, 2**64, len(users), dtype=np.uint64, endpoint=False)


@dataclass(frozen=True)
class UserRandomness:
    """Memoized words: the same user and value in the same release always give the same report.

    Protects against averaging over retries and re-runs. It does not hide that a value *changed*
    within one release, and the holder of `key` can undo every report of that release.

    Args:
        key: secret bytes, at least 32. Never printed, compared or stored with results.
        user_ids: one id per value: an integer array, or a sequence of `str` or `bytes`.
        identity: of the release; another one, in whatever it may be, draws independent words. Only
            its group makes no difference: a person reports in one.

    Raises:
        ValueError: if the key is too short, or the identity is committed to another one.
    """

    key: bytes = field(repr=False, compare=False)
    user_ids: AnyIds = field(repr=False, compare=False)
    identity: ReleaseIdentity

    def __post_init__(self) -> None:
        check_key(self.key)
        if not isinstance(self.identity, ReleaseIdentity):
            raise TypeError("identity must be a ReleaseIdentity")
        object.__setattr__(self, "identity", self.identity.committed(self.key))
        if not isinstance(self.user_ids, np.ndarray):
            object.__setattr__(self, "user_ids", list(self.user_ids))

    def words_for(self, mechanism_digest: bytes, values: np.ndarray) -> MemoizedWords:
        """The words of these users holding these values under one mechanism."""
        secret = derive_key(self.key, b"words", drawn_under(self.identity), mechanism_digest)
        users = canonical_ids(self.user_ids)
        if len(users) != len(values):
            raise ValueError("user_ids must hold one id per value")
        return MemoizedWords(secret, users, values)


class MemoizedWords:
    """Words expanded from one 128-bit tag per user by AES (CBC-MAC over tag input, counter).

    Tags are made for the users that are asked for: few at a time, in memory that stays warm.
    """

    def __init__(self, secret: bytes, users: UserIds, values: np.ndarray) -> None:
        self._cipher = Cipher(algorithms.AES(derive_key(secret, b"expand")), modes.ECB())
        self._secret, self._users, self._values = secret, users, values

    def words(self, start: int, stop: int, per_user: int) -> np.ndarray:
        tags = self._tags(slice(start, stop))
        counters = np.arange(-(-per_user // _AES_BLOCK_WORDS), dtype=np.uint64)
        out = self._encrypt(tags[:, None, :], counters[None, :])
        return np.ascontiguousarray(out.reshape(stop - start, -1)[:, :per_user])

    def extra(self, users: np.ndarray, positions: np.ndarray) -> np.ndarray:
        positions = np.asarray(positions, dtype=np.uint64)
        out = self._encrypt(self._tags(users), positions // np.uint64(_AES_BLOCK_WORDS))
        return out[np.arange(len(out)), (positions % np.uint64(_AES_BLOCK_WORDS)).astype(np.intp)]

    def _tags(self, rows: slice | np.ndarray) -> np.ndarray:
        return _tags(self._secret, self._users[rows], self._values[rows])

    def _encrypt(self, tags: np.ndarray, counters: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(tags.shape[:-1], counters.shape)
        blocks = np.empty((*shape, 2), dtype=np.uint64)
        blocks[...] = tags
        blocks[..., 0] ^= counters
        return encrypt_blocks(self._cipher, blocks)


def word_source(
    rng: np.random.Generator | UserRandomness | None, mechanism_digest: bytes, values: np.ndarray
) -> WordSource:
    """The source that an `rng` argument stands for."""
    if rng is None:
        return FreshWords()
    if isinstance(rng, UserRandomness):
        return rng.words_for(mechanism_digest, values)
    if isinstance(rng, np.random.Generator):
        return SimulatedWords(rng)
    raise TypeError(
        "rng must be None (fresh secure words), UserRandomness (memoized) or a "
        f"numpy.random.Generator (simulation), got {type(rng).__name__}"
    )


def contribution_ranks(
    key: bytes,
    user_ids: AnyIds,
    positions: Iterable[bytes],
    identity: ReleaseIdentity,
) -> np.ndarray:
    """Pseudo-random rank of each row of each user: the least one is the row that counts.

    Args:
        key: the secret key of the release.
        user_ids: one id per row.
        positions: where each row stands in the source, as bytes: unique per row, the same on
            every retry.
        identity: of the release, as in `UserRandomness`.

    Returns:
        uint64 array, one rank per row.
    """
    check_key(key)
    secret = derive_key(key, b"contribution", drawn_under(identity.committed(key)))
    ids = _as_bytes(canonical_ids(user_ids))
    digests = b"".join(_keyed(secret, i, p) for i, p in zip(ids, positions, strict=True))
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2)[:, 0].astype(np.uint64)


def envelope_ids(
    key: bytes,
    user_ids: AnyIds,
    identity: ReleaseIdentity,
) -> np.ndarray:
    """16 bytes for each user by which a collector knows copies of one user's envelope.

    The same on every re-run, whatever the user's value; without the key, and in another release,
    they are unrelated random bytes.

    Args:
        key: the secret key of the release.
        user_ids: one id per envelope.
        identity: of the release, as in `UserRandomness`.

    Returns:
        uint8 `(n, 16)`.
    """
    return _of_users(b"envelope", key, user_ids, identity)


def assignment_words(key: bytes, user_ids: AnyIds, identity: ReleaseIdentity) -> np.ndarray:
    """One uniform word for each user, which decides what that user is asked: uint64, `(n,)`.

    Arguments as in `envelope_ids`. The same on every re-run, whatever the user's value, so that
    nobody is asked twice; only whoever holds the key can tell who was asked what.
    """
    found = _of_users(b"assignment", key, user_ids, identity)
    return found.view("<u8")[:, 0].astype(np.uint64)


def _of_users(
    purpose: bytes, key: bytes, user_ids: AnyIds, identity: ReleaseIdentity
) -> np.ndarray:
    """16 pseudo-random bytes for each user of a release, whatever the user's value."""
    check_key(key)
    secret = derive_key(key, purpose, drawn_under(identity.committed(key)))
    users = canonical_ids(user_ids)
    found = np.empty((len(users), 16), dtype=np.uint8)
    for rows, ids in users.kinds():
        if ids.texts is None:
            blocks = np.zeros((len(ids), 2), dtype=np.uint64)
            blocks[:, 0] = ids.integers.astype(np.uint64)
            cipher = Cipher(algorithms.AES(derive_key(secret, b"integer ids")), modes.ECB())
            found[rows] = encrypt_blocks(cipher, blocks).view(np.uint8).reshape(-1, 16)
        else:
            digests = b"".join(_keyed(secret, i) for i in _as_bytes(ids))
            found[rows] = np.frombuffer(digests, dtype=np.uint8).reshape(-1, 16)
    return found


def report_ids(
    key: bytes, user_ids: AnyIds, values: np.ndarray, identity: ReleaseIdentity
) -> np.ndarray:
    """16 bytes for each user who holds a value: as `envelope_ids`, but others for another value.

    For envelopes whose id is an input of a pseudo-random function: never one of two values.

    Args:
        key, identity: of the release.
        user_ids: one id per value.
        values: `(n,)` integers.

    Returns:
        uint8 `(n, 16)`.
    """
    check_key(key)
    secret = derive_key(key, b"report ids", drawn_under(identity.committed(key)))
    tags = _tags(secret, canonical_ids(user_ids), np.asarray(values))
    return tags.astype("<u8").view(np.uint8).reshape(-1, 16)


def drawn_under(identity: ReleaseIdentity) -> bytes:
    """Digest of what memoized randomness is drawn under: the release, whatever the group."""
    return replace(identity, group="").digest


def check_key(key: bytes) -> None:
    """A ValueError if a secret key is too short. Never quotes it."""
    if not isinstance(key, bytes) or len(key) < MIN_KEY_BYTES:
        raise ValueError(f"key must be at least {MIN_KEY_BYTES} secret bytes")


def derive_key(key: bytes, *labels: bytes) -> bytes:
    """A 32-byte key for one purpose: HMAC-SHA256 over the length-prefixed labels."""
    return hmac.digest(key, length_prefixed(*labels), "sha256")


def encrypt_blocks(cipher: Cipher[modes.ECB], blocks: np.ndarray) -> np.ndarray:
    """AES of every 16-byte block of a uint64 array whose last axis has length two."""
    blocks = np.ascontiguousarray(blocks)
    if not blocks.size:
        return blocks
    out = np.empty(blocks.size + _AES_BLOCK_WORDS, dtype=np.uint64)
    cipher.encryptor().update_into(memoryview(blocks).cast("B"), memoryview(out).cast("B"))
    return out[: blocks.size].reshape(blocks.shape)


def _as_bytes(ids: UserIds) -> list[bytes]:
    return [
        b"b" + i if isinstance(i, bytes) else b"i" + i.to_bytes(8, "little", signed=True)
        for i in ids
    ]


def _tags(secret: bytes, users: UserIds, values: np.ndarray) -> np.ndarray:
    """One 128-bit tag per (user, value): uint64, (n, 2)."""
    if values.dtype.kind in "iu":
        values = values.astype(np.int64)  # an index is one value, in whatever array it stands
    if values.ndim > 1 or values.dtype.kind not in "iu":
        return _tags_of_bytes(secret, users, values)
    if users.texts is None:
        blocks = np.empty((len(users), 2), dtype=np.uint64)
        blocks[:, 0] = users.integers.astype(np.uint64)
        blocks[:, 1] = values.astype(np.uint64)
        cipher = Cipher(algorithms.AES(derive_key(secret, b"integer ids")), modes.ECB())
        return encrypt_blocks(cipher, blocks)
    tags = np.empty((len(users), 2), dtype=np.uint64)
    for rows, ids in users.kinds():  # an integer has one tag, alone or among texts
        tag = _tags if ids.texts is None else _tags_of_bytes
        tags[rows] = tag(secret, ids, values[rows])
    return tags


def _tags_of_bytes(secret: bytes, users: UserIds, values: np.ndarray) -> np.ndarray:
    keyed = derive_key(secret, b"byte ids")
    if values.dtype.kind == "f":
        values = values + 0.0  # -0.0 and 0.0 are one value
    rows = np.ascontiguousarray(values.astype(values.dtype.newbyteorder("<")))
    digests = b"".join(
        _keyed(keyed, user, row.tobytes()) for user, row in zip(_as_bytes(users), rows, strict=True)
    )
    return np.frombuffer(digests, dtype="<u8").reshape(-1, 2).astype(np.uint64)


def _keyed(key: bytes, *parts: bytes) -> bytes:
    return hashlib.blake2b(length_prefixed(*parts), key=key, digest_size=16).digest()


# Keyed hashes of memoized reports: is a second publication the same one, and if not, what
# changed?
#
# One hash per report, a pseudo-random function of the release's key, its identity, the person and
# the report: never of the value. The set digest of all hashes (`set_digest`) is one of who sent
# what: without the key it tells nothing. It is no sum of them: who holds the key, as whoever
# publishes does, finds a thousand made-up people whose hashes add up to any number.


_BLOCK = 16  # bytes of AES, and of a hash


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
