"""How records of what ran hold a mechanism's pair, and what their fields may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast

from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.shuffle_pair import ProofStatus, ShufflePair

# A `ShufflePair` as numbers and tuples: what an event can carry through named tuples and JSON.


PackedPair = tuple[float, int, tuple[tuple[float, float, float], ...], tuple[int, ...]]


def pack_pair(pair: ShufflePair | Sequence[Any] | None) -> PackedPair | None:
    """A `ShufflePair` as numbers: mass, 1 if proved, (first, second, probability) rows, source.

    To the second number, twice the people are added that the pair of a mixed crowd is for.

    >>> unpack_pair(pack_pair(ShufflePair.clones(1.0))) == ShufflePair.clones(1.0)
    True
    """
    if pair is None:
        return None
    if isinstance(pair, ShufflePair):
        rows = zip(pair.ratios, pair.probabilities, strict=True)
        return (
            pair.blanket_mass,
            int(pair.proof_status == "proved") + 2 * pair.mixed,
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
    status: ProofStatus = "proved" if proved % 2 else "conjectured"
    return ShufflePair(
        mass,
        tuple((first, second) for first, second, _ in table),
        tuple(p for *_, p in table),
        status,
        "".join(map(chr, source)),
        proved // 2,
    )


def pack_pairs(pairs: Iterable[Any]) -> tuple[PackedPair, ...]:
    """Each of them, packed."""
    return tuple(cast(PackedPair, pack_pair(pair)) for pair in pairs)


# Validators and converters -----------------------------------------------------------------


def positive(instance: Any, attribute: Any, value: float) -> None:
    """A validator of numbers above 0."""
    check_positive(attribute.name, value)


def whole_number(least: int) -> Any:
    """A validator of integers of at least that."""

    def check(instance: Any, attribute: Any, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{attribute.name} must be an integer >= {least}, got {value!r}")

    return check


def as_messages(messages: Iterable[Any]) -> tuple[tuple[int, float], ...]:
    """A converter of `(count, message_epsilon)` of each kind of message."""
    return tuple((int(count), float(budget)) for count, budget in messages)


def some_messages(instance: Any, attribute: Any, value: tuple[tuple[int, float], ...]) -> None:
    """A validator of what `as_messages` makes: at least one kind, each with a budget."""
    good = all(count >= 1 and 0 < budget < math.inf for count, budget in value)
    if not value or not good:
        raise ValueError(f"{attribute.name} must hold counts >= 1 with finite message epsilons > 0")


def some_change(instance: Any, attribute: Any, value: float | None) -> None:
    """A validator of how far a person's messages can change together: None, or above 0."""
    if value is not None:
        positive(instance, attribute, value)


def some_places(instance: Any, attribute: Any, value: int) -> None:
    """A validator of how many places a message speaks about one of."""
    check_integer(attribute.name, value, 1)
