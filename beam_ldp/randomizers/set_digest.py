"""The digest of a set of envelopes: equal sets have equal digests, and nobody can set it.

Two collections of one release are published for one charge only where they hold the same
envelopes. Whoever sends envelopes chooses their bytes, and the release is public, so equality must
not rest on a key, nor on a sum, which one forged envelope (or a few thousand, where the summand is
one-way) sets to any value. Here records are put into 4,096 buckets by the first 12 bits of their
id, sorted, and hashed; two sets of one digest are a collision of SHA-256:

    D_b = SHA-256("beam-ldp set bucket 1\\n" + identity digest + b (2) + n_b (8) + records of b)
    D   = SHA-256("beam-ldp set root 1\\n" + identity digest + n (8) + D_0 + ... + D_4095)

A record is id (16), column (2), count (4) and the packed report, or its SHA-256 where that is more
than 32 bytes; integers are big-endian. Copies count: this is the digest of a multiset. Buckets can
be digested on different workers, each in one place.

About 20 ns an envelope where records are sorted already, half a microsecond where they are not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.wire import ID_BYTES, ONLY_COLUMN

NUM_BUCKETS = 1 << 12
AT_A_TIME = 1 << 21  # records that are sorted at a time, in twice their own memory
PREFIX = "set1:"  # of the text of a digest
OLD_DIGEST = (
    "these reports were published by an earlier version, whose digest one forged envelope can set: "
    "nothing proves that they are the same. Copy the files that were published then, or collect "
    "new reports under a release id of their own"
)
_BUCKET, _ROOT = b"beam-ldp set bucket 1\n", b"beam-ldp set root 1\n"
_HEAD_BYTES = ID_BYTES + 2 + 4
_DIGEST_BYTES = _LONGEST = 32
_FIRST_BITS = np.uint64(52)
Blocks = Callable[[], Iterable[np.ndarray]]


def same_set(one: str | None, other: str | None) -> bool:
    """Whether two digests prove that the same reports were taken; those of old versions do not."""
    return one is not None and one.startswith(PREFIX) and one == other


def is_old(digest: str | None) -> bool:
    """Whether this is a digest of an earlier version, which proves nothing."""
    return digest is not None and not digest.startswith(PREFIX)


def set_records(ids: np.ndarray, packed: np.ndarray, column: int = ONLY_COLUMN) -> np.ndarray:
    """What is hashed of envelopes of one report each.

    Args:
        ids: uint8 `(n, 16)`.
        packed: uint8 `(n, bytes)`, as `LocalRandomizer.pack_each` gives it; of more than 32 bytes
            the SHA-256 is taken (1.4 us each).
        column: message column of the envelopes.

    Returns:
        uint8 `(n, 22 + min(bytes, 32))`.
    """
    if packed.shape[1] > _LONGEST:
        hashed = b"".join(hashlib.sha256(row).digest() for row in np.ascontiguousarray(packed))
        packed = np.frombuffer(hashed, np.uint8).reshape(-1, _DIGEST_BYTES)
    found = np.empty((len(ids), _HEAD_BYTES + packed.shape[1]), np.uint8)
    found[:, :ID_BYTES], found[:, _HEAD_BYTES:] = ids, packed
    found[:, ID_BYTES:_HEAD_BYTES] = [*column.to_bytes(2, "big"), *(1).to_bytes(4, "big")]
    return found


def scattered(records: np.ndarray, num_parts: int) -> Iterator[tuple[int, np.ndarray]]:
    """The records of each part of the buckets.

    Args:
        records: of `set_records`.
        num_parts: a power of two up to `NUM_BUCKETS`; each part is whole buckets.
    """
    if num_parts == 1:
        yield 0, records
        return
    numbers = _buckets_of(records) // (NUM_BUCKETS // num_parts)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    yield from zip(found.tolist(), np.split(records[order], starts[1:]))


class Bucket(NamedTuple):
    """A bucket that is not empty: its number, how many records, and D_b."""

    number: int
    size: int
    digest: bytes


def bucket_digests(identity: ReleaseIdentity, blocks: Blocks) -> Iterator[Bucket]:
    """Digests of all buckets that records are in.

    Args:
        identity: of the release.
        blocks: gives all records of these buckets, in any order, each time it is called: several
            times where there are more than `AT_A_TIME`.
    """
    sizes = np.zeros(NUM_BUCKETS, np.int64)
    for block in blocks():
        sizes += np.bincount(_buckets_of(block), minlength=NUM_BUCKETS)
    begun: dict[int, Any] = {}
    for records in _in_order(blocks, 0, (1 << 8 * ID_BYTES) - 1):
        found, starts = np.unique(_buckets_of(records), return_index=True)
        for number, own in zip(found.tolist(), np.split(records, starts[1:])):
            if number not in begun:
                begun[number] = _begun(identity, number, int(sizes[number]))
            begun[number].update(own)
    for number, digest in begun.items():
        yield Bucket(number, int(sizes[number]), digest.digest())


def _in_order(blocks: Blocks, first: int, last: int) -> Iterator[np.ndarray]:
    """The records with ids from `first` to `last`, sorted, some of them at a time."""
    held, count = [], 0
    for block in blocks():
        if last - first + 1 < 1 << 8 * ID_BYTES:
            ids = np.ascontiguousarray(block[:, :ID_BYTES]).view(f"S{ID_BYTES}")[:, 0]
            low, high = (end.to_bytes(ID_BYTES, "big") for end in (first, last))
            block = block[(low <= ids) & (ids <= high)]
        held.append(block)
        count += len(block)
        if count > AT_A_TIME and first < last:
            del held, block
            middle = (first + last) // 2
            yield from _in_order(blocks, first, middle)
            yield from _in_order(blocks, middle + 1, last)
            return
    if count:
        yield _sorted(np.concatenate(held))


def _sorted(records: np.ndarray) -> np.ndarray:
    """As bytes. Their first eight order them, but for copies and ids that somebody chose."""
    words = _first_words(records)
    order = np.argsort(words)
    words = words[order]
    if not (words[1:] == words[:-1]).any():
        return records[order]
    rows = np.ascontiguousarray(records).view(f"S{records.shape[1]}")  # compared unsigned
    return np.sort(rows[:, 0]).view(np.uint8).reshape(records.shape)


def root_digest(identity: ReleaseIdentity, buckets: Iterable[Bucket]) -> str:
    """The digest of a set, `set1:` and 64 hexadecimal digits.

    Args:
        identity: of the release.
        buckets: all that are not empty, each once, in any order.

    Raises:
        ValueError: if one was digested in two places.
    """
    listed = list(buckets)
    digests = {bucket.number: bucket.digest for bucket in listed}
    if len(digests) < len(listed):
        raise ValueError("buckets must each be digested in one place")
    total = sum(bucket.size for bucket in listed).to_bytes(8, "big")
    root = hashlib.sha256(_ROOT + identity.digest + total)
    for number in range(NUM_BUCKETS):
        root.update(digests.get(number) or _begun(identity, number, 0).digest())
    return PREFIX + root.hexdigest()


def set_digest(identity: ReleaseIdentity, records: np.ndarray) -> str:
    """The digest of the records that are all in one place."""
    return root_digest(identity, bucket_digests(identity, lambda: [records]))


def _begun(identity: ReleaseIdentity, number: int, size: int) -> Any:
    """The hash of a bucket before its records."""
    head = number.to_bytes(2, "big") + size.to_bytes(8, "big")
    return hashlib.sha256(_BUCKET + identity.digest + head)


def _first_words(records: np.ndarray) -> np.ndarray:
    """The first eight bytes of each id: they order records almost always."""
    return np.ascontiguousarray(records[:, :8]).view(">u8")[:, 0].astype(np.uint64)


def _buckets_of(records: np.ndarray) -> np.ndarray:
    return (_first_words(records) >> _FIRST_BITS).astype(np.int64)
