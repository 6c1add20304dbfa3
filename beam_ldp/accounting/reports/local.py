"""Everything that one person sends in one release, and how an event holds a mechanism's pair."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import attr

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.shuffle_pair import ProofStatus, ShufflePair, smallest_group

if TYPE_CHECKING:
    from beam_ldp.accounting.reports.sampled import SampledReports
    from beam_ldp.accounting.reports.shuffled import ShuffledMessages, ShuffledReports

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


# One person's reports ----------------------------------------------------------------------


def positive(instance: Any, attribute: Any, value: float) -> None:
    """A validator of numbers above 0."""
    check_positive(attribute.name, value)


def whole_number(least: int) -> Any:
    """A validator of integers of at least that."""

    def check(instance: Any, attribute: Any, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{attribute.name} must be an integer >= {least}, got {value!r}")

    return check


def _one_pair(instance: Any, attribute: Any, value: PackedPair | None) -> None:
    """A pair that contradicts the local epsilon describes another mechanism: neither is trusted."""
    if value is not None:
        unpack_pair(value).check_local_epsilon(instance.local_epsilon)


def _all_pairs(instance: Any, attribute: Any, value: tuple[PackedPair, ...]) -> None:
    for witness in value:
        _one_pair(instance, attribute, witness)


def as_messages(messages: Iterable[Any]) -> tuple[tuple[int, float], ...]:
    """A converter of `(count, message_epsilon)` of each kind of message."""
    return tuple((int(count), float(budget)) for count, budget in messages)


def some_messages(instance: Any, attribute: Any, value: tuple[tuple[int, float], ...]) -> None:
    """A validator of what `as_messages` makes: at least one kind, each with a budget."""
    good = all(count >= 1 and 0 < budget < math.inf for count, budget in value)
    if not value or not good:
        raise ValueError(f"{attribute.name} must hold counts >= 1 with finite message epsilons > 0")


def _columns(instance: Any, attribute: Any, value: tuple[tuple[int, float], ...]) -> None:
    if not value:
        return
    some_messages(instance, attribute, value)
    if sum(count for count, _ in value) != instance.messages:
        raise ValueError(
            f"columns must be as many as messages ({instance.messages}), got {value!r}"
        )


def some_change(instance: Any, attribute: Any, value: float | None) -> None:
    """A validator of how far a person's messages can change together: None, or above 0."""
    if value is not None:
        positive(instance, attribute, value)


def some_places(instance: Any, attribute: Any, value: int) -> None:
    """A validator of how many places a message speaks about one of."""
    check_integer(attribute.name, value, 1)


def _change_of_columns(instance: Any, attribute: Any, value: float | None) -> None:
    some_change(instance, attribute, value)
    if value is not None and not instance.columns:
        raise ValueError("squared_change must be None where columns are not known")


def _places_of_change(instance: Any, attribute: Any, value: int) -> None:
    some_places(instance, attribute, value)
    if value != 1 and instance.squared_change is None:
        raise ValueError("places must be 1 where squared_change is None")


UNKNOWN_GROUPS = 0  # the mechanism splits the crowd by a rule that an event cannot hold


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LocalReports:
    """Everything that one person sends in one release, seen by somebody who knows whose it is.

    It holds all of a mechanism that its shuffle is priced by, so that an event around it costs what
    the mechanism does.

    Attributes:
        local_epsilon: The declared local budget.
        pair: The mechanism's own dominating pair (a `ShufflePair`, stored as `pack_pair` does), or
            None if only the local epsilon is known. Refused where one of its reports tells two
            values apart by more than `local_epsilon`.
        witnesses: Its witness pairs, for lower bounds (stored likewise, refused likewise).
        public_groups: Groups that split a crowd: everybody is in one of them, at random, for all to
            see (see `LocalRandomizer.public_groups`). `UNKNOWN_GROUPS` where the crowd splits by a
            rule of the mechanism's own: then only a counted crowd has a price.
        messages: Messages that all this is, each permuted on its own.
        columns: Of two-response messages, `(count, message_epsilon)` of each kind, as
            `ShuffledMessages` has them; empty where they are not known.
        squared_change: How far the messages of all columns can change together, as
            `ShuffledMessages` has it; None if all of them may flip.
        places: Likewise, of how many places, at most, each message speaks about one.
    """

    local_epsilon: float = attr.ib(converter=float, validator=positive)
    pair: PackedPair | None = attr.ib(default=None, converter=pack_pair, validator=_one_pair)
    witnesses: tuple[PackedPair, ...] = attr.ib(
        default=(), converter=pack_pairs, validator=_all_pairs
    )
    public_groups: int = attr.ib(default=1, validator=whole_number(UNKNOWN_GROUPS))
    messages: int = attr.ib(default=1, validator=whole_number(1))
    columns: tuple[tuple[int, float], ...] = attr.ib(
        default=(), converter=as_messages, validator=_columns
    )
    squared_change: float | None = attr.ib(
        default=None, converter=attr.converters.optional(float), validator=_change_of_columns
    )
    places: int = attr.ib(default=1, validator=_places_of_change)

    def dominating_pair(self) -> ShufflePair:
        """The own pair, or the one that holds for every randomizer with this local epsilon."""
        if self.pair is None:
            return ShufflePair.clones(self.local_epsilon)
        return unpack_pair(self.pair)

    @property
    def mixed(self) -> int:
        """Of a crowd of several budgets, the others that the pair is for; else 0."""
        return 0 if self.pair is None else self.pair[1] // 2

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        """Concrete pairs of data sets (see `beam_ldp.randomizers.shuffle_pair`)."""
        return tuple(map(unpack_pair, self.witnesses))

    def in_columns(self, num_reports: int, points: int = 1) -> ShuffledMessages:
        """The messages of so many people, of several points each, every column permuted alone."""
        from beam_ldp.accounting.reports.shuffled import ShuffledMessages  # which holds these

        columns = tuple((points * count, budget) for count, budget in self.columns)
        change = None if self.squared_change is None else points * self.squared_change
        return ShuffledMessages(columns, num_reports, change, places=self.places)

    def shuffled(self, num_reports: int) -> ShuffledReports:
        """The shuffled reports of so many people."""
        from beam_ldp.accounting.reports.shuffled import ShuffledReports  # which hold these

        return ShuffledReports(self, num_reports)

    def sampled(self, num_users: int, num_drawn: float, **how: Any) -> SampledReports:
        """The shuffled reports of a random sample of people."""
        from beam_ldp.accounting.reports.sampled import SampledReports  # which hold these

        return SampledReports(self, num_users, num_drawn, **how)

    def crowd_size(self, num_reports: int) -> int:
        """Of so many honest reports, those among which one hides: the smallest group's.

        Raises:
            ValueError: If the mechanism splits the crowd by a rule of its own.
        """
        if self.public_groups == UNKNOWN_GROUPS:
            raise ValueError(
                "local_event must not split the crowd by a rule of its own: make the event with "
                "beam_ldp.accounting.shuffled_event(randomizer, num_reports)"
            )
        return smallest_group(check_reports(num_reports), self.public_groups)


def of_one_person(instance: Any, attribute: Any, value: Any) -> None:
    """A validator of what holds the reports of one person."""
    if not isinstance(value, LocalReports):
        raise ValueError(
            f"{attribute.name} must be a LocalRandomizerDpEvent, got {type(value).__name__} "
            "(reports that are private but for a delta, such as Gaussian noise of devices, have "
            "prices but no event: beam_ldp.accounting.shuffle.other_crowds)"
        )
