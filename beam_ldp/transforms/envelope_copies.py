"""Copies of envelopes: each id counts once, in the order of files and offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from beam_ldp.randomizers.wire_stream import Part
from beam_ldp.transforms.aside import Aside, StoredBytes

DUPLICATE = "sent before: another envelope has its id"
_ENTRY = 3  # words of an id and its place
_THIRTY_TWO = np.uint64(32)


def named_before(ids: np.ndarray) -> np.ndarray:
    """Which of these ids stand further up already: bool `(n,)`.

    Args:
        ids: uint8 `(n, 16)`; zeros are no id, and never a copy.
    """
    return _before(np.ascontiguousarray(ids).view("<u8").reshape(-1, 2))


def _before(words: np.ndarray) -> np.ndarray:
    """The same of ids as two words each. Sorting one word tells where to look closer: ids are
    random, and two share a word where they are equal, or somebody chose them to."""
    found = np.zeros(len(words), dtype=bool)
    ordered = np.sort(words[:, 0])
    shared = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(shared):
        return found
    rows = np.flatnonzero(np.isin(words[:, 0], shared) & words.any(axis=1))
    rows = rows[np.lexsort((rows, words[rows, 1], words[rows, 0]))]
    found[rows[1:]] = (words[rows[1:]] == words[rows[:-1]]).all(axis=1)
    return found


def listed_ids(part: Part, num_parts: int, routing: bytes) -> Iterator[tuple[int, bytes]]:
    """Ids and offsets of envelopes that have one, each once, for every group of ids one piece.

    Args:
        part: what was read.
        num_parts: into how many groups ids are put.
        routing: 16 secret bytes by which they are.
    """
    ids = np.ascontiguousarray(part.ids).view("<u8").reshape(-1, 2)
    rows = np.flatnonzero(ids.any(axis=1) & ~_before(ids))
    entries = np.empty((len(rows), _ENTRY), dtype="<u8")
    entries[:, 0], entries[:, 1:] = part.offsets[rows].view("<u8"), ids[rows]
    numbers = _route(entries[:, 1:], num_parts, routing)
    order = np.argsort(numbers, kind="stable")
    found, starts = np.unique(numbers[order], return_index=True)
    for number, own in zip(found.tolist(), np.split(entries[order], starts[1:])):
        yield number, own.tobytes()


def _route(ids: np.ndarray, num_parts: int, routing: bytes) -> np.ndarray:
    """The group of each id: multiply-shift (Dietzfelbinger 1996), under secret multipliers."""
    first, second = np.frombuffer(routing, dtype="<u8") | np.uint64(1)
    mixed = ids[:, 0] * first + ids[:, 1] * second
    high = (mixed ^ (mixed >> _THIRTY_TWO)) * first >> _THIRTY_TWO
    return (high * np.uint64(num_parts) >> _THIRTY_TWO).astype(np.int32)


def copies_of(
    element: tuple[int, Iterable[tuple[str, int, int, StoredBytes]]], aside: Aside
) -> Iterator[tuple[tuple[str, int], StoredBytes]]:
    """Of every part of a file the offsets of the envelopes whose id came before, in this group."""
    pieces = sorted(element[1], key=lambda piece: piece[:2])
    read = [np.frombuffer(kept.read(), "<u8").reshape(-1, _ENTRY) for *_, kept in pieces]
    entries = np.concatenate(read)
    bounds = np.cumsum([len(piece) for piece in read])
    del read
    again = _before(entries[:, 1:])
    for (path, _, start, _), own in zip(pieces, np.split(np.arange(len(entries)), bounds[:-1])):
        if again[own].any():
            yield (path, start), aside.keep(entries[own[again[own]], 0].tobytes())
