"""The set digest of reports that lie on many workers (`beam_ldp.randomizers.set_digest`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, starmap
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.set_digest import (
    AT_A_TIME,
    NUM_BUCKETS,
    Bucket,
    bucket_digests,
    root_digest,
    scattered,
)

# Pieces that carry their bytes, and pieces that say where these are kept, which Beam pickles.
PIECE = typehints.Tuple[int, typehints.Tuple[typehints.Tuple[int, int], bytes]]
KEPT_PIECE = typehints.Tuple[int, Any]
_BUCKETS = typehints.Tuple[str, typehints.Iterable[typehints.Tuple[int, int, bytes]]]
_Content = Any  # bytes, or what has `read() -> bytes`
_Piece = tuple[tuple[int, ...], _Content]  # the shape of some records, and themselves


def pieces_of(
    records: np.ndarray, num_parts: int, keep: Callable[[bytes], _Content] = bytes
) -> Iterator[tuple[int, _Piece]]:
    """What `DigestSet` takes of some records.

    Args:
        records: of `set_records`; may be empty.
        num_parts: how many workers can share the digest, rounded up to a power of two; the same
            for all records of a set.
        keep: puts the bytes elsewhere, and gives what has `read() -> bytes`.
    """
    power = min(NUM_BUCKETS, 1 << (num_parts - 1).bit_length())
    for part, own in scattered(records, power):
        yield part, (own.shape, keep(own.tobytes()))


@dataclass(eq=False, repr=False)
class DigestSet(beam.PTransform):
    """In: what `pieces_of` gives. Out: one text (as bytes) for each window; none of nothing.

    Every bucket is gathered, sorted and hashed on one worker, some records at a time whatever ids
    somebody chose, and hands up 42 bytes.

    Args:
        identity: of the release.
    """

    identity: ReleaseIdentity

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "By bucket" >> beam.GroupByKey()
            | "Digest buckets" >> beam.Map(_digest, self.identity).with_output_types(_BUCKETS)
            | "Bring buckets together" >> beam.GroupByKey()
            | "Digest root" >> beam.Map(_root, self.identity).with_output_types(bytes)
        )


def _digest(
    element: tuple[int, Iterable[_Piece]], identity: ReleaseIdentity
) -> tuple[str, list[Bucket]]:
    """Of the buckets of a part, under a key that Beam need not pickle."""
    pieces = list(element[1])

    def blocks() -> Iterator[np.ndarray]:
        for shape, kept in pieces:
            content = kept if isinstance(kept, bytes) else kept.read()
            yield np.frombuffer(content, np.uint8).reshape(shape)

    if sum(shape[0] for shape, _ in pieces) > AT_A_TIME:
        return "", list(bucket_digests(identity, blocks))
    read = list(blocks())
    return "", list(bucket_digests(identity, lambda: read))


def _root(
    element: tuple[str, Iterable[Iterable[tuple[int, int, bytes]]]], identity: ReleaseIdentity
) -> bytes:
    return root_digest(identity, starmap(Bucket, chain.from_iterable(element[1]))).encode()
