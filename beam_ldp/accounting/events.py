"""Privacy events of locally randomized, shuffled releases, for `dp_accounting` ledgers.

Each is what `beam_ldp.accounting.reports` describes, and a `dp_accounting.DpEvent`. Wherever a
price is asked for, either will do, and gives the same; `as_event` makes one of the other.
"""

from __future__ import annotations

import math
from typing import Any

import attr
import dp_accounting

from beam_ldp.accounting.reports import (
    POISSON,
    SELF,
    UNKNOWN_GROUPS,
    WITHOUT_REPLACEMENT,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)

__all__ = [
    "POISSON",
    "SELF",
    "UNKNOWN_GROUPS",
    "WITHOUT_REPLACEMENT",
    "LocalRandomizerDpEvent",
    "ShuffledDpEvent",
    "ShuffledMessagesDpEvent",
    "SubsampledShuffledDpEvent",
    "as_event",
]


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LocalRandomizerDpEvent(LocalReports, dp_accounting.DpEvent):
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
    """

    def shuffled(self, num_reports: int) -> ShuffledDpEvent:
        return ShuffledDpEvent(self, num_reports)

    def sampled(self, num_users: int, num_drawn: float, **how: Any) -> SubsampledShuffledDpEvent:
        return SubsampledShuffledDpEvent(self, num_users, num_drawn, **how)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledDpEvent(ShuffledReports, dp_accounting.DpEvent):
    """The shuffled reports of `num_reports` people (or any function of their multiset).

    Neighbouring data sets differ in the value of one person (replace-one).

    Attributes:
        local_event: How each report was randomized.
        num_reports: Well-formed reports received.
        num_fakes: Of them, as many as may be fake, at most: those hide nobody.
    """

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "local_event", as_event(self.local_event))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledMessagesDpEvent(ShuffledMessages, dp_accounting.DpEvent):
    """The shuffled messages of `num_reports` people, several each, every column permuted alone.

    Each message is a two-response report: a noisy bit, about a place that does not depend on the
    data. Nothing links a person's messages. Neighbouring data sets differ in the value of one
    person (replace-one), hence in one message per column.

    Attributes:
        messages: `(count, message_epsilon)`: so many columns of that local budget each.
        num_reports: Honest people whose messages each shuffler permuted.
        squared_change: For vectors of bounded length, how far they can be apart (see
            `beam_ldp.accounting.shuffle.mean_price`); None if all of a person's bits may flip.
        local_epsilon: The declared local budget of all messages of one person; by default the sum.
        witness: A concrete pair of data sets, for lower bounds: `(count, first, second)`, so many
            columns in which the victim's bit is one with probability `first` or `second`, and
            everybody else's with `second`. Empty where none is known.
    """


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SubsampledShuffledDpEvent(SampledReports, dp_accounting.DpEvent):
    """A shuffle of the reports of a random sample.

    The credit for sampling holds against readers who see how many reports there are but not who
    took part. Against one who sees that, a round costs `ShuffledDpEvent(local_event, reports)` to
    everybody who took part in it.

    Neighbouring data sets differ in the value of one data point (replace-one), for every sampling:
    the number of clients is public, and that somebody is a client is not hidden.

    * "without_replacement": a uniformly random set of `num_drawn` clients; each sends a report
      about each of `points_sampled` of its `points_per_client` data points, drawn likewise.
    * "self": every client joins by its own coin, of probability `num_drawn / num_users`, and
      reports one of its points, drawn evenly.
    * "poisson": every data point is reported by its own coin, `num_drawn` on average.

    Several messages of one person count as one report here, of the sum of their local epsilons.

    Attributes:
        local_event: How each report was randomized; not one whose crowd splits.
        num_users: Clients to draw from.
        num_drawn: Clients drawn; with coins, how many reports there are on average.
        num_received: Of those drawn, whose reports came; None: all. Fewer have no price yet.
        num_fakes: Reports received that may be fake, at most. Other than 0 has no price yet.
        points_per_client: Data points that each client holds.
        points_sampled: Data points that a drawn client reports; 1 with coins.
        sampling: As above.
    """

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "local_event", as_event(self.local_event))


_KINDS: dict[type, type[dp_accounting.DpEvent]] = {
    LocalReports: LocalRandomizerDpEvent,
    ShuffledReports: ShuffledDpEvent,
    ShuffledMessages: ShuffledMessagesDpEvent,
    SampledReports: SubsampledShuffledDpEvent,
}


def as_event(reports: Any) -> Any:
    """The event of such a record; an event is left as it is."""
    if type(reports) not in _KINDS:
        return reports
    fields = {f.name: getattr(reports, f.name) for f in attr.fields(type(reports))}
    return _KINDS[type(reports)](**{name: as_event(value) for name, value in fields.items()})


# What one person's reports lose, by an event, to whoever sees them and knows whose they are.


_LOCAL = (LocalRandomizerDpEvent, ShuffledDpEvent, ShuffledMessagesDpEvent)


def local_epsilon_of(event: dp_accounting.DpEvent) -> float:
    """The local epsilon of somebody who takes part in everything that the event holds.

    Protects one person's value (replace-one) against a reader who sees every report of that person
    before the shuffle: no crowd and no coin helps, so the reports of all rounds add up, and of all
    points that a client may report in one.

    Args:
        event: any event. Central mechanisms have no local epsilon: their curator is trusted.

    Returns:
        A number >= 0; infinite where something central is in it; 0 only where nothing is released.

    >>> event = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 1000)
    >>> local_epsilon_of(dp_accounting.SelfComposedDpEvent(event, 3))
    6.0
    """
    if isinstance(event, dp_accounting.NoOpDpEvent):
        return 0.0
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return event.count * local_epsilon_of(event.event) if event.count else 0.0
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return math.fsum(map(local_epsilon_of, event.events))
    if isinstance(event, SubsampledShuffledDpEvent):
        return event.points_sampled * event.local_epsilon
    if isinstance(event, _LOCAL):
        return event.local_epsilon
    return math.inf


def releases_nothing(event: dp_accounting.DpEvent) -> bool:
    """Whether the event is empty, however it is wrapped.

    >>> releases_nothing(dp_accounting.SelfComposedDpEvent(dp_accounting.NoOpDpEvent(), 3))
    True
    """
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        return not event.count or releases_nothing(event.event)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return all(map(releases_nothing, event.events))
    return isinstance(event, dp_accounting.NoOpDpEvent)
