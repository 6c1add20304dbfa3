"""What one person sends, batches of it that a shuffler mixes, and who hides in them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import attr

from beam_ldp.accounting.divergences.bit_counts import Bit
from beam_ldp.accounting.divergences.crowd_sizes import STEPS, Crowd, of_groups
from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports.packing import (
    PackedPair,
    as_messages,
    pack_pair,
    pack_pairs,
    positive,
    some_change,
    some_messages,
    some_places,
    unpack_pair,
    whole_number,
)
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.shuffle_pair import ShufflePair


def _one_pair(instance: Any, attribute: Any, value: PackedPair | None) -> None:
    """A pair that contradicts the local epsilon describes another mechanism: neither is trusted."""
    if value is not None:
        unpack_pair(value).check_local_epsilon(instance.local_epsilon)


def _all_pairs(instance: Any, attribute: Any, value: tuple[PackedPair, ...]) -> None:
    for witness in value:
        _one_pair(instance, attribute, witness)


def _columns(instance: Any, attribute: Any, value: tuple[tuple[int, float], ...]) -> None:
    if not value:
        return
    some_messages(instance, attribute, value)
    if sum(count for count, _ in value) != instance.messages:
        raise ValueError(
            f"columns must be as many as messages ({instance.messages}), got {value!r}"
        )


def _change_of_columns(instance: Any, attribute: Any, value: float | None) -> None:
    some_change(instance, attribute, value)
    if value is not None and not instance.columns:
        raise ValueError("squared_change must be None where columns are not known")


def _places_of_change(instance: Any, attribute: Any, value: int) -> None:
    some_places(instance, attribute, value)
    if value != 1 and instance.squared_change is None:
        raise ValueError("places must be 1 where squared_change is None")


def _some_groups(instance: Any, attribute: Any, value: int | None) -> None:
    if value is not None:
        whole_number(1)(instance, attribute, value)
        if value > instance.public_groups:
            raise ValueError(
                f"telling_groups must be at most public_groups ({instance.public_groups}), got "
                f"{value}"
            )


def _outputs(instance: Any, attribute: Any, value: int) -> None:
    if value not in (0, 2):
        raise ValueError(f"{attribute.name} must be 2, or 0 where it is not known, got {value!r}")
    pair = getattr(instance, "pair", None)
    if value and pair is not None and instance.messages == 1 and len(pair[2]) != 2:
        raise ValueError(f"{attribute.name} must be 0 where the pair has {len(pair[2])} reports")


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
        telling_groups: Of the public groups, those in which reports of two values can differ, at
            most (see `LocalRandomizer.telling_groups`); None: all.
        outputs: 2 where each message is one of two reports, whoever sends it, and two values of
            the domain are the ends of what it can tell (`LocalRandomizer.sends_bits`); else 0.
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
    telling_groups: int | None = attr.ib(default=None, validator=_some_groups)
    outputs: int = attr.ib(default=0, validator=_outputs)

    def dominating_pair(self) -> ShufflePair:
        """The own pair, or the one that holds for every randomizer with this local epsilon."""
        if self.pair is None:
            return ShufflePair.clones(self.local_epsilon)
        return unpack_pair(self.pair)

    @property
    def mixed(self) -> int:
        """Of a crowd of several budgets, the others that the pair is for; else 0."""
        return 0 if self.pair is None else self.pair[1] // 2

    @property
    def bit(self) -> Bit | None:
        """The chances of a one, where all that is sent is one bit."""
        if self.outputs != 2 or self.messages != 1 or self.pair is None:
            return None
        return Bit.of([(first, second, p) for first, second, p in self.pair[2]])

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        """Concrete pairs of data sets (see `beam_ldp.randomizers.shuffle_pair`)."""
        return tuple(map(unpack_pair, self.witnesses))

    def in_columns(self, num_reports: int, points: int = 1) -> ShuffledMessages:
        """The messages of so many people, of several points each, every column permuted alone."""
        columns = tuple((points * count, budget) for count, budget in self.columns)
        change = None if self.squared_change is None else points * self.squared_change
        return ShuffledMessages(
            columns, num_reports, change, places=self.places, outputs=self.outputs
        )

    def shuffled(self, num_reports: int) -> ShuffledReports:
        """The shuffled reports of so many people."""
        return ShuffledReports(self, num_reports)

    def hiding(self, num_reports: int, steps: int = STEPS) -> Crowd:
        """Of so many honest reports, those among which one hides; of groups, by their chances.

        Args:
            num_reports: Honest ones, in all groups together.
            steps: Blocks that sizes of a group are put in.

        Raises:
            ValueError: If the mechanism splits the crowd by a rule of its own.
        """
        if self.public_groups == UNKNOWN_GROUPS:
            raise ValueError(
                "local_event must not split the crowd by a rule of its own: make the event with "
                "beam_ldp.accounting.shuffled_event(randomizer, num_reports)"
            )
        groups, telling = self.public_groups, self.telling_groups
        return of_groups(check_reports(num_reports), groups, telling, steps)


def of_one_person(instance: Any, attribute: Any, value: Any) -> None:
    """A validator of what holds the reports of one person."""
    if not isinstance(value, LocalReports):
        raise ValueError(
            f"{attribute.name} must be a LocalRandomizerDpEvent, got {type(value).__name__} "
            "(reports that are private but for a delta, such as Gaussian noise of devices, have "
            "prices but no event: beam_ldp.accounting.shuffle.heterogeneous)"
        )


# Batches ----------------------------------------------------------------------------------


def _shuffled_local(instance: Any, attribute: Any, value: Any) -> None:
    of_one_person(instance, attribute, value)
    if value.messages != 1:
        raise ValueError(
            f"{attribute.name} must be of one message, got one of {value.messages}, each of which "
            "is permuted on its own: make the event with "
            "beam_ldp.accounting.shuffled_event(randomizer, num_reports)"
        )


def _fakes(instance: Any, attribute: Any, value: int) -> None:
    whole_number(0)(instance, attribute, value)
    mixed = instance.local_event.mixed
    if mixed and (value or instance.num_reports > mixed + 1):
        raise ValueError(
            "num_reports and num_fakes of a crowd of several budgets follow from its people: make "
            "the event with beam_ldp.accounting.mixed_shuffled_event(kinds, num_fakes)"
        )
    if value >= instance.num_reports:
        raise ValueError(
            f"num_fakes must be below num_reports ({instance.num_reports}), got {value}"
        )
    instance.local_event.hiding(1)  # refuses one that has no rule


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledReports:
    """The shuffled reports of `num_reports` people (or any function of their multiset).

    Neighbouring data sets differ in the value of one person (replace-one).

    Attributes:
        local_event: How each report was randomized.
        num_reports: Well-formed reports received.
        num_fakes: Of them, as many as may be fake, at most: those hide nobody.
    """

    local_event: LocalReports = attr.ib(validator=_shuffled_local)
    num_reports: int = attr.ib(converter=check_reports)
    num_fakes: int = attr.ib(default=0, validator=_fakes)

    @property
    def num_honest(self) -> int:
        """Reports that are certainly not fake."""
        return self.num_reports - self.num_fakes

    @property
    def crowd(self) -> int:
        """Honest reports among which one hides; about as many as a public group has."""
        return -(-self.num_honest // self.local_event.public_groups)

    def hiding(self, steps: int = STEPS) -> Crowd:
        """The same as a price needs it: by the chances of all sizes."""
        return self.local_event.hiding(self.num_honest, steps)

    @property
    def local_epsilon(self) -> float:
        """What protects a person against whoever sees the report before the shuffle."""
        return self.local_event.local_epsilon


def _as_witness(witness: Iterable[Any]) -> tuple[tuple[int, float, float], ...]:
    return tuple((int(count), float(first), float(second)) for count, first, second in witness)


def _witness(instance: Any, attribute: Any, value: tuple[tuple[int, float, float], ...]) -> None:
    if not all(n >= 1 and 0 < first < 1 and 0 < second < 1 for n, first, second in value):
        raise ValueError("witness must hold counts >= 1 with two probabilities in (0, 1)")


def _sum_of_messages(event: Any) -> float:
    return math.fsum(count * budget for count, budget in event.messages)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledMessages:
    """The shuffled messages of `num_reports` people, several each, every column permuted alone.

    Each message is a two-response report: a noisy bit, about a place that does not depend on the
    data. Nothing links a person's messages. Neighbouring data sets differ in the value of one
    person (replace-one), hence in one message per column.

    Attributes:
        messages: `(count, message_epsilon)`: so many columns of that local budget each.
        num_reports: Honest people whose messages each shuffler permuted.
        squared_change: For vectors of bounded length, how far they can be apart (see
            `beam_ldp.accounting.shuffle.bounded_change`); None if all of a person's bits may flip.
        local_epsilon: The declared local budget of all messages of one person; by default the sum.
        witness: A concrete pair of data sets, for lower bounds: `(count, first, second)`, so many
            columns in which the victim's bit is one with probability `first` or `second`, and
            everybody else's with `second`. Empty where none is known.
        places: Of how many places, at most, each message speaks about one that is drawn.
        outputs: 2 where each message is about one place, which everybody knows: one of two reports.
            Else 0.
    """

    messages: tuple[tuple[int, float], ...] = attr.ib(
        converter=as_messages, validator=some_messages
    )
    num_reports: int = attr.ib(converter=check_reports)
    squared_change: float | None = attr.ib(
        default=None, converter=attr.converters.optional(float), validator=some_change
    )
    local_epsilon: float = attr.ib(
        default=attr.Factory(_sum_of_messages, takes_self=True),
        converter=float,
        validator=positive,
    )
    witness: tuple[tuple[int, float, float], ...] = attr.ib(
        default=(), converter=_as_witness, validator=_witness
    )
    places: int = attr.ib(default=1, validator=some_places)
    outputs: int = attr.ib(default=0, validator=_outputs)

    @property
    def crowd(self) -> int:
        """People among whom one hides."""
        return self.num_reports


# How many people hide each other, where some reports may be fake --------------------------


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ComposedReports:
    """Several records about the same people, whose costs add up.

    Attributes:
        events: the records.
    """

    events: tuple[Any, ...]


def hidden_users(num_users: int, honest_fraction: float) -> int:
    """The users whose reports are certainly not fake: those who hide each other."""
    check_fraction("honest_fraction", honest_fraction, "(]")
    # The fraction as written: floor(0.1 * 10) must be 1 and floor(0.29 * 100) must be 29.
    return max(1, math.floor(num_users * Fraction(repr(float(honest_fraction)))))


def with_reports(event: Any, honest: int) -> Any:
    """The event of a shuffled release of so many honest reports, in every column of messages.

    They are in public groups as those of the event are.
    """
    if hasattr(event, "events"):  # dp_accounting's ComposedDpEvent
        return attr.evolve(event, events=[with_reports(part, honest) for part in event.events])
    if not isinstance(event, ShuffledReports):
        return attr.evolve(event, num_reports=honest)
    return event.local_event.shuffled(honest)


def honest_part(event: Any, honest_fraction: float) -> Any:
    """The event of those reports of a shuffled release alone that are certainly not fake."""
    return with_reports(event, hidden_users(_fewest(event), honest_fraction))


def _fewest(event: Any) -> int:
    """Reports that are not known to be fake; of columns, in the one that has the fewest."""
    if hasattr(event, "events"):
        return min(map(_fewest, event.events))
    return int(event.num_honest if isinstance(event, ShuffledReports) else event.num_reports)


def with_crowd(event: Any, crowd: int) -> Any:
    """The event of a shuffled release in which a report hides among so many honest ones, counted.

    In every column of messages. Where there are public groups it is the smallest of them, of which
    nothing is left to chance.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> with_crowd(ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10), 7).crowd
    7
    """
    if hasattr(event, "events"):  # dp_accounting's ComposedDpEvent
        return attr.evolve(event, events=[with_crowd(part, crowd) for part in event.events])
    if not isinstance(event, ShuffledReports):
        return attr.evolve(event, num_reports=crowd)
    local = attr.evolve(event.local_event, public_groups=1, telling_groups=None)
    return local.shuffled(crowd)


def crowd_of(event: Any) -> int:
    """People among whom a report hides in a shuffled release; the fewest, of several columns; one
    where none of them is shuffled, as where a server adds noise."""
    if hasattr(event, "events"):
        return min(map(crowd_of, event.events))
    return int(getattr(event, "crowd", 1))


def failure_of(event: Any) -> float:
    """What delta must cover besides an event's losses: that less hides a person than supposed."""
    return float(getattr(event, "failure_probability", 0.0))
