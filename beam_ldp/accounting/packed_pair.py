"""A `ShufflePair` as numbers and tuples: what an event can carry through named tuples and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, cast

from beam_ldp.randomizers.shuffle_pair import ProofStatus, ShufflePair

PackedPair = tuple[float, int, tuple[tuple[float, float, float], ...], tuple[int, ...]]


def pack_pair(pair: ShufflePair | Sequence[Any] | None) -> PackedPair | None:
    """A `ShufflePair` as numbers: mass, 1 if proved, (first, second, probability) rows, source.

    >>> unpack_pair(pack_pair(ShufflePair.clones(1.0))) == ShufflePair.clones(1.0)
    True
    """
    if pair is None:
        return None
    if isinstance(pair, ShufflePair):
        rows = zip(pair.ratios, pair.probabilities, strict=True)
        return (
            pair.blanket_mass,
            int(pair.proof_status == "proved"),
            tuple((first, second, p) for (first, second), p in rows),
            tuple(map(ord, pair.source)),
        )
    mass, proved, table, source = pair
    return (
        float(mass),
        int(proved),
        cast(Any, tuple(tuple(float(x) for x in row) for row in table)),
        tuple(int(c) for c in source),
    )


def unpack_pair(packed: PackedPair) -> ShufflePair:
    """Inverse of `pack_pair`."""
    mass, proved, table, source = packed
    status: ProofStatus = "proved" if proved else "conjectured"
    return ShufflePair(
        mass,
        tuple((first, second) for first, second, _ in table),
        tuple(p for *_, p in table),
        status,
        "".join(map(chr, source)),
    )


def pack_pairs(pairs: Iterable[Any]) -> tuple[PackedPair, ...]:
    """Each of them, packed."""
    return tuple(cast(PackedPair, pack_pair(pair)) for pair in pairs)
