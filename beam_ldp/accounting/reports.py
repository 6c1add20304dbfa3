"""What people sent and how it was shuffled: inert records of what ran, not of what it costs.

Prices are computed from these alone. Each is a privacy event too (`beam_ldp.accounting.events`), of
a class derived from the one here, once an event is asked for: `dp_accounting` takes a second to
load. They hold numbers and tuples only, because dp-accounting 0.6 takes strings apart when it turns
an event into a named tuple; text travels as code points.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import attr

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.shuffle_pair import (
    SMALLER_GROUP_CHANCE,
    ProofStatus,
    ShufflePair,
    smallest_group,
)

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


def _positive(instance: Any, attribute: Any, value: float) -> None:
    check_positive(attribute.name, value)


def _as_text(value: Any) -> str:
    """A string, also where dp-accounting's named tuples made a list of its letters, in text."""
    while value.startswith("["):  # once on the way out and once on the way in
        value = "".join(ast.literal_eval(value))
    return str(value)


def _local(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, LocalReports):
        raise ValueError(
            f"{attribute.name} must be a LocalRandomizerDpEvent, got {type(value).__name__} "
            "(reports that are private but for a delta, such as Gaussian noise of devices, have "
            "prices but no event: beam_ldp.accounting.shuffle.other_crowds)"
        )


def _whole(least: int) -> Any:
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


def _as_messages(messages: Iterable[Any]) -> tuple[tuple[int, float], ...]:
    return tuple((int(count), float(budget)) for count, budget in messages)


def _messages(instance: Any, attribute: Any, value: tuple[tuple[int, float], ...]) -> None:
    good = all(count >= 1 and 0 < budget < math.inf for count, budget in value)
    if not value or not good:
        raise ValueError(f"{attribute.name} must hold counts >= 1 with finite message epsilons > 0")


def _columns(instance: Any, attribute: Any, value: tuple[tuple[int, float], ...]) -> None:
    if not value:
        return
    _messages(instance, attribute, value)
    if sum(count for count, _ in value) != instance.messages:
        raise ValueError(
            f"columns must be as many as messages ({instance.messages}), got {value!r}"
        )


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
    """

    local_epsilon: float = attr.ib(converter=float, validator=_positive)
    pair: PackedPair | None = attr.ib(default=None, converter=pack_pair, validator=_one_pair)
    witnesses: tuple[PackedPair, ...] = attr.ib(
        default=(), converter=pack_pairs, validator=_all_pairs
    )
    public_groups: int = attr.ib(default=1, validator=_whole(UNKNOWN_GROUPS))
    messages: int = attr.ib(default=1, validator=_whole(1))
    columns: tuple[tuple[int, float], ...] = attr.ib(
        default=(), converter=_as_messages, validator=_columns
    )

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

    def shuffled(self, num_reports: int) -> ShuffledReports:
        """The shuffled reports of so many people."""
        return ShuffledReports(self, num_reports)

    def sampled(self, num_users: int, num_drawn: float, **how: Any) -> SampledReports:
        """The shuffled reports of a random sample of people."""
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


def _shuffled_local(instance: Any, attribute: Any, value: Any) -> None:
    _local(instance, attribute, value)
    if value.messages != 1:
        raise ValueError(
            f"{attribute.name} must be of one message, got one of {value.messages}, each of which "
            "is permuted on its own: make the event with "
            "beam_ldp.accounting.shuffled_event(randomizer, num_reports)"
        )


def _fakes(instance: Any, attribute: Any, value: int) -> None:
    _whole(0)(instance, attribute, value)
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
    instance.local_event.crowd_size(1)  # refuses one that has no rule


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
        """Honest reports among which one hides, by the mechanism's own rule."""
        return self.local_event.crowd_size(self.num_honest)

    @property
    def failure_probability(self) -> float:
        """That the crowd is smaller than `crowd`: delta must cover it."""
        return SMALLER_GROUP_CHANCE if self.local_event.public_groups > 1 else 0.0

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


def _places(instance: Any, attribute: Any, value: int) -> None:
    check_integer("places", value, 1)


def _squared_change(instance: Any, attribute: Any, value: float | None) -> None:
    if value is None:
        return
    _positive(instance, attribute, value)


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
        places: Of how many places, or more, each message speaks about one that is drawn.
    """

    messages: tuple[tuple[int, float], ...] = attr.ib(converter=_as_messages, validator=_messages)
    num_reports: int = attr.ib(converter=check_reports)
    squared_change: float | None = attr.ib(
        default=None, converter=attr.converters.optional(float), validator=_squared_change
    )
    local_epsilon: float = attr.ib(
        default=attr.Factory(_sum_of_messages, takes_self=True),
        converter=float,
        validator=_positive,
    )
    witness: tuple[tuple[int, float, float], ...] = attr.ib(
        default=(), converter=_as_witness, validator=_witness
    )
    places: int = attr.ib(default=1, validator=_places)

    @property
    def crowd(self) -> int:
        """People among whom one hides."""
        return self.num_reports


WITHOUT_REPLACEMENT = "without_replacement"
SELF = "self"
POISSON = "poisson"
SHUFFLED_EPOCHS = "shuffled_epochs"
_SAMPLINGS = (WITHOUT_REPLACEMENT, SELF, POISSON, SHUFFLED_EPOCHS)
_RANDOM_ALLOCATION = "random_allocation"


def _as_number(value: Any) -> float:
    """A positive number; an int where it is whole."""
    if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise ValueError(f"num_drawn must be a finite number > 0, got {value!r}")
    return int(value) if value % 1 == 0 else float(value)


def _sampling(instance: Any, attribute: Any, value: str) -> None:
    if value == _RANDOM_ALLOCATION:
        raise ValueError(
            f'sampling must not be "{value}": of several rounds that each person chooses alone, no '
            f'price is proved where one value is replaced; "{SHUFFLED_EPOCHS}" has one for as many'
        )
    if value not in _SAMPLINGS:
        names = ", ".join(f'"{name}"' for name in _SAMPLINGS)
        raise ValueError(f"sampling must be one of {names}, got {value!r}")
    points, drawn = instance.points_per_client, instance.points_sampled
    most, name = instance.num_users, "num_users"
    if value == POISSON:
        most, name = most * points, "the number of data points"
    if instance.num_drawn > most:
        raise ValueError(f"num_drawn must be at most {name}, got {instance.num_drawn}")
    if instance.fixed_size:
        if instance.num_drawn % 1 != 0:
            raise ValueError(f"num_drawn must be an integer, got {instance.num_drawn!r}")
        check_reports(int(instance.num_drawn))
    if value != WITHOUT_REPLACEMENT and drawn != 1:
        raise ValueError(f'points_sampled must be 1 for sampling="{value}", got {drawn}')
    if drawn > points:
        raise ValueError(f"points_sampled must be at most points_per_client, got {drawn}")


def _one_crowd(instance: Any, attribute: Any, value: Any) -> None:
    """A sample of a crowd that splits has no price: the drawn of a group are no uniform sample."""
    _local(instance, attribute, value)
    if value.public_groups != 1:
        raise ValueError(
            f"{attribute.name} must not split the crowd by something public where people are "
            "sampled: price ShuffledDpEvent(local_event, num_drawn), without credit for sampling"
        )
    if value.mixed:
        raise ValueError(
            f"{attribute.name} must not be that of a crowd of several budgets: which of them a "
            "sample holds is not the same for everybody. Price the crowd without sampling"
        )


def _received(instance: Any, attribute: Any, value: Any) -> None:
    if value is None or value == instance.num_drawn:
        return
    if not instance.fixed_size:
        raise ValueError(
            f'num_received must be None for sampling="{instance.sampling}", got {value!r}: the '
            "price is the average over how many come; who may never come counts in num_fakes"
        )
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole and 1 <= value <= instance.num_drawn):
        raise ValueError(
            f"num_received must be None or in [1, num_drawn = {instance.num_drawn}], got {value!r}"
        )


def _sampled_fakes(instance: Any, attribute: Any, value: Any) -> None:
    _whole(0)(instance, attribute, value)
    if not value:
        return
    if value >= instance.num_users:
        raise ValueError(f"num_fakes must be below num_users ({instance.num_users}), got {value}")
    fits = instance.num_drawn <= instance.num_users  # else `_sampling` refuses it
    if instance.fixed_size and fits and instance.num_hiding < 1:
        raise ValueError(
            f"num_fakes must leave somebody among those received ({instance.came_in_all}), got "
            f"{value}: price the local epsilon"
        )


def _rounds(instance: Any, attribute: Any, value: Any) -> None:
    if value is None:
        return
    if instance.sampling != SHUFFLED_EPOCHS:
        raise ValueError(f'rounds must be None for sampling="{instance.sampling}", got {value!r}')
    whole, most = isinstance(value, int) and not isinstance(value, bool), instance.whole_epoch
    if not (whole and 1 <= value <= most):
        raise ValueError(f"rounds must be None or in [1, {most}], those of an epoch, got {value!r}")


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SampledReports:
    """A shuffle of the reports of a random sample.

    The credit for sampling holds against readers who see how many reports there are but not who
    took part. Against one who sees that, a round costs `ShuffledReports(local_event, reports)` to
    everybody who took part in it.

    Neighbouring data sets differ in the value of one data point (replace-one), for every sampling:
    the number of clients is public, and that somebody is a client is not hidden.

    * "without_replacement": a uniformly random set of `num_drawn` clients; each sends a report
      about each of `points_sampled` of its `points_per_client` data points, drawn likewise.
    * "self": every client joins by its own coin, of probability `num_drawn / num_users`, and
      reports one of its points, drawn evenly.
    * "poisson": every data point is reported by its own coin, `num_drawn` on average.
    * "shuffled_epochs": the event is one *epoch*, however its rounds depend on each other: all
      clients in random order, and the first `num_drawn` are the first round, the next as many the
      second, to the end of the epoch or to the round that is the last (`rounds`). A client is in
      one round at most. An epoch costs what one shuffle of everybody who was in a round does, and
      of fewer rounds what one sample of so many does; see docs/accounting.md for the proof.

    How likely somebody is drawn and how many hide them are two numbers. Where fewer come than were
    drawn, the price supposes `condition`: whether people come depends neither on anybody's value
    nor on who else was drawn, and `least_available` of them could have come. Those who come are
    then a uniform sample of those who could, so a person is among them with probability
    `num_received` over those who could, which is at most `num_drawn / num_users`. Silence that
    depends on the value has no finite cost: devices then send an answer such as `other` instead.

    Fakes obey neither coins nor dropouts, hide nobody, and know of each other who was drawn. With
    coins the honest people are a sample of their own. With a fixed size all of those received may
    be honest, or all but as many as there are likely fakes among the drawn (but with a chance of
    1e-12, which delta covers): the price is the rate of the one and the crowd of the other.

    Several messages of one person come from one sample. Where they are two-response messages
    (`LocalReports.columns`), columns are composed as shuffles among those drawn, and then sampled;
    in an epoch, as if it were seen who is in a round. Others count as one report of the sum of
    their local epsilons, and so do these where that is less.

    Attributes:
        local_event: How each report was randomized; not one whose crowd splits.
        num_users: Clients to draw from.
        num_drawn: Clients drawn (in each round); with coins, how many reports there are on average.
        num_received: Of those drawn, whose reports came, in the round of an epoch in which the
            fewest did; None: all. None with coins.
        num_fakes: Of the clients to draw from, as many as may be fake, or never come, at most.
        points_per_client: Data points that each client holds.
        points_sampled: Data points that a drawn client reports; 1 with coins.
        sampling: As above.
        rounds: Of an epoch, as many as ran; None: all that it has. None for other samplings.
    """

    local_event: LocalReports = attr.ib(validator=_one_crowd)
    num_users: int = attr.ib(converter=check_reports)
    num_drawn: float = attr.ib(converter=_as_number)
    num_received: int | None = attr.ib(default=None, validator=_received)
    num_fakes: int = attr.ib(default=0, validator=_sampled_fakes)
    points_per_client: int = attr.ib(default=1, converter=check_reports)
    points_sampled: int = attr.ib(default=1, converter=check_reports)
    sampling: str = attr.ib(default=WITHOUT_REPLACEMENT, converter=_as_text, validator=_sampling)
    rounds: int | None = attr.ib(default=None, validator=_rounds)

    @property
    def fixed_size(self) -> bool:
        """Whether so many are drawn, rather than by coins."""
        return self.sampling in (WITHOUT_REPLACEMENT, SHUFFLED_EPOCHS)

    @property
    def whole_epoch(self) -> int:
        """Rounds of an epoch, all of them; 1 for other samplings."""
        if self.sampling != SHUFFLED_EPOCHS:
            return 1
        return max(1, self.num_users // max(1, int(self.num_drawn)))

    @property
    def drawn_in_all(self) -> float:
        """Clients drawn, in all rounds of an epoch together."""
        return self.num_drawn * (self.whole_epoch if self.rounds is None else self.rounds)

    @property
    def came(self) -> float:
        """Clients whose reports came; with coins, on average; of an epoch, in each round."""
        return self.num_drawn if self.num_received is None else self.num_received

    @property
    def came_in_all(self) -> float:
        """Clients whose reports came, in all rounds of an epoch together, at least.

        Where not all came, of a whole epoch: no round is then known to be that of a sample.
        """
        if self._epoch_lost_people:
            return self.came * self.whole_epoch
        return self.came if self.sampling != SHUFFLED_EPOCHS else self.drawn_in_all

    @property
    def _epoch_lost_people(self) -> bool:
        return self.sampling == SHUFFLED_EPOCHS and self.came < self.num_drawn

    @property
    def num_honest(self) -> int:
        """Clients to draw from that are certainly not fake."""
        return self.num_users - self.num_fakes

    @property
    def num_hiding(self) -> float:
        """Honest clients whose reports came; with coins, on average."""
        if not self.fixed_size:
            return self.num_drawn * self.num_honest / self.num_users
        if self._epoch_lost_people:
            return self.came_in_all - self.num_fakes
        return self.came_in_all - _fakes_drawn(
            self.num_users, self.num_fakes, int(self.drawn_in_all)
        )

    @property
    def num_reports(self) -> int:
        """Honest reports in the shuffled batch; with coins, on average, rounded down."""
        return max(1, int(self.num_hiding * self.points_sampled))

    @property
    def drawn_rate(self) -> float:
        """How likely a given honest client is drawn, at most; of points with Poisson's coins."""
        if self._epoch_lost_people:
            return 1.0
        if self.fixed_size:  # of the honest ones who could have come
            honest = self.num_users * self.came_in_all - self.num_fakes * self.drawn_in_all
            received = self.came_in_all * self.drawn_in_all
            return received / honest if honest > received else 1.0
        points = self.points_per_client if self.sampling == POISSON else 1
        return self.num_drawn / (self.num_users * points)

    @property
    def rate(self) -> float:
        """How likely a given data point is reported."""
        if self.sampling == POISSON:
            return self.drawn_rate
        return self.drawn_rate * self.points_sampled / self.points_per_client

    @property
    def failure_probability(self) -> float:
        """That more fakes are drawn than hide nobody by the price: delta must cover it."""
        most = min(self.num_fakes, self.drawn_in_all)
        certain = not self.fixed_size or self.came_in_all - self.num_hiding >= most
        return 0.0 if certain else SMALLER_GROUP_CHANCE

    @property
    def least_available(self) -> int:
        """How many of the clients must have been able to come, for the price to hold."""
        share = Fraction(self.num_users) * Fraction(self.came) / Fraction(self.num_drawn)
        return math.ceil(share)

    @property
    def condition(self) -> str:
        """What the price supposes of those who did not come; empty where all came."""
        if self.came == self.num_drawn:
            return ""
        epoch = self.sampling == SHUFFLED_EPOCHS
        return (
            f"{self.came:,} of {self.num_drawn:,} came: supposes that whether people come depends "
            "neither on anybody's value nor on who else was drawn"
            f"{' nor on the round of an epoch' if epoch else ''}, and that at least "
            f"{self.least_available:,} of {self.num_users:,} could have come"
        )

    @property
    def local_epsilon(self) -> float:
        """What protects one data point against whoever sees the reports before the shuffle."""
        return self.local_event.local_epsilon


@lru_cache(maxsize=256)
def _fakes_drawn(num_users: int, num_fakes: int, num_drawn: int) -> int:
    """More fakes than that are in a uniform sample with a chance of at most 1e-12."""
    if not num_fakes:
        return 0
    from scipy import stats  # takes half a second to load, and only fakes in samples ask for it

    likely = stats.hypergeom(num_users, num_fakes, num_drawn).isf(SMALLER_GROUP_CHANCE)
    return min(num_fakes, num_drawn, int(likely))


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


def with_crowd(event: Any, crowd: int) -> Any:
    """The event of a shuffled release in which a report hides among so many honest ones, counted.

    In every column of messages; the mechanism's own rule is not applied to that number again.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> with_crowd(ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10), 7).crowd
    7
    """
    if hasattr(event, "events"):  # dp_accounting's ComposedDpEvent
        return attr.evolve(event, events=[with_crowd(part, crowd) for part in event.events])
    if not isinstance(event, ShuffledReports):
        return attr.evolve(event, num_reports=crowd)
    return attr.evolve(event.local_event, public_groups=1).shuffled(crowd)


def crowd_of(event: Any) -> int:
    """People among whom a report hides in a shuffled release; the fewest, of several columns; one
    where none of them is shuffled, as where a server adds noise."""
    if hasattr(event, "events"):
        return min(map(crowd_of, event.events))
    return int(getattr(event, "crowd", 1))


def failure_of(event: Any) -> float:
    """What delta must cover besides an event's losses: that a crowd is smaller than supposed."""
    return float(getattr(event, "failure_probability", 0.0))
