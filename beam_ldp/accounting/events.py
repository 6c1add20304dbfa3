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
    ComposedReports,
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shares import ShuffledShares
from beam_ldp.randomizers.checks import check_fraction


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LocalRandomizerDpEvent(LocalReports, dp_accounting.DpEvent):
    """Everything that one person sends in one release, seen by somebody who knows whose it is.

    Attributes, and what they mean: `beam_ldp.accounting.reports.LocalReports`.
    """

    def shuffled(self, num_reports: int) -> ShuffledDpEvent:
        return ShuffledDpEvent(self, num_reports)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledDpEvent(ShuffledReports, dp_accounting.DpEvent):
    """The shuffled reports of `num_reports` people (or any function of their multiset).

    Attributes, and who is protected: `beam_ldp.accounting.reports.ShuffledReports`.
    """

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "local_event", as_event(self.local_event))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledMessagesDpEvent(ShuffledMessages, dp_accounting.DpEvent):
    """The shuffled messages of `num_reports` people, several each, every column permuted alone.

    Attributes, and who is protected: `beam_ldp.accounting.reports.ShuffledMessages`.
    """


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledSharesDpEvent(ShuffledShares, dp_accounting.DpEvent):
    """The shuffled additive shares of the noisy vectors of `num_reports` people, or their sum.

    Attributes, and who is protected: `beam_ldp.accounting.shares.ShuffledShares`. Its local epsilon
    is infinite: nothing but the shufflers protects anybody.
    """


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SubsampledShuffledDpEvent(SampledReports, dp_accounting.DpEvent):
    """A shuffle of the reports of a random sample.

    Attributes, samplings, and against whom: `beam_ldp.accounting.reports.SampledReports`.
    """

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "local_event", as_event(self.local_event))


def _chance(instance: Any, attribute: Any, value: float) -> None:
    check_fraction("delta", value)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class CommittedDpEvent(dp_accounting.DpEvent):
    """A schedule of releases that was fixed before the first of them, charged as one.

    Protects what its releases protect. A filter reads Rényi divergences, since what is released
    next may depend on what was seen; of a schedule nothing is chosen meanwhile, so that all of it
    has one distribution of privacy losses. Losses in its tail, of a hockey stick of `delta`, are
    left to chance, and the rest has smaller divergences. Whoever reads it must have a share of
    delta for chances (`ShuffleAccountant(chances=...)`, the `chances` of a ledger's budget), and
    the schedule is charged whole, wherever it ends: to stop by what was seen is a choice.

    Attributes:
        event: All that the schedule releases.
        delta: The chance, in (0, 1): at most what the reader has left for chances.

    >>> step = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 100_000)
    >>> CommittedDpEvent(dp_accounting.SelfComposedDpEvent(step, 500), 1e-7).delta
    1e-07
    """

    event: dp_accounting.DpEvent
    delta: float = attr.ib(converter=float, validator=_chance)


_KINDS: dict[type, type[dp_accounting.DpEvent]] = {
    LocalReports: LocalRandomizerDpEvent,
    ShuffledReports: ShuffledDpEvent,
    ShuffledMessages: ShuffledMessagesDpEvent,
    ShuffledShares: ShuffledSharesDpEvent,
    SampledReports: SubsampledShuffledDpEvent,
}


def as_event(reports: Any) -> Any:
    """The event of such a record; an event is left as it is."""
    if isinstance(reports, ComposedReports):
        return dp_accounting.ComposedDpEvent([as_event(one) for one in reports.events])
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
        A number >= 0; infinite where something central is in it, or shares that the shuffler alone
        hides; 0 only where nothing is released.

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
    if isinstance(event, CommittedDpEvent):
        return local_epsilon_of(event.event)
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
    if isinstance(event, CommittedDpEvent):
        return releases_nothing(event.event)
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return all(map(releases_nothing, event.events))
    return isinstance(event, dp_accounting.NoOpDpEvent)
