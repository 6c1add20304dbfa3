"""Envelopes one after the other, as in a file: taken apart again whatever lies between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from beam_ldp.randomizers.wire import (
    HEADER_BYTES,
    MAGIC,
    MAX_ENVELOPE_BYTES,
    PREFIX_BYTES,
    ReleaseTerms,
    count_of,
)
from beam_ldp.randomizers.wire_groups import GroupTerms

AnyTerms = ReleaseTerms | GroupTerms

_READ_BYTES = 1 << 22


def split_stream(terms: AnyTerms, read: Callable[[int], bytes]) -> Iterator[tuple[int, bytes]]:
    """Where each envelope of a stream begins, and its bytes, to be decoded one by one.

    All envelopes of a release begin with the same 54 bytes, which no payload holds by chance: after
    bytes that are no envelope of this release, or one that is cut short, reading goes on at the
    next one. Such bytes come as pieces of their own, to be refused and counted.

    Args:
        terms: of the release, or of the releases of all groups.
        read: gives up to so many next bytes; none at the end.

    Time and memory: linear in the stream, and a few of the longest envelopes at a time.
    """
    window = MAX_ENVELOPE_BYTES + PREFIX_BYTES  # what must be at hand to place the next piece
    data, start, at, ended = b"", 0, 0, False
    while True:
        while not ended and len(data) - at < window:
            more = read(_READ_BYTES)
            ended = not more
            data, start, at = data[at:] + more, start + at, 0
        stop = len(data) if ended else len(data) - window + 1
        while at < stop:
            length = _length_at(terms, data, at, ended)
            yield start + at, data[at : at + length]
            at += length
        if ended:
            return


def _length_at(terms: AnyTerms, data: bytes, at: int, ended: bool) -> int:
    """Bytes from here to where the next piece begins."""
    left = len(data) - at
    if not terms.begins_at(data, at):
        following = data.find(MAGIC, at + 1)
        if following >= 0:
            return following - at
        return left if ended else left - len(MAGIC) + 1  # what may be the begin of another
    length = min(left, HEADER_BYTES)
    if _next_begin(terms, data, at, length) < 0 and left >= HEADER_BYTES:
        said = terms.envelope_bytes(count_of(data, at))
        length = min(left, said) if said <= MAX_ENVELOPE_BYTES else HEADER_BYTES
    following = _next_begin(terms, data, at, length)
    return length if following < 0 else following - at


def _next_begin(terms: AnyTerms, data: bytes, at: int, length: int) -> int:
    """Where another envelope begins inside of this one, which is then cut short; -1 if nowhere."""
    return terms.find_begin(data, at + 1, at + length + PREFIX_BYTES - 1)
