"""What one person's reports lose, by an event, to whoever sees them and knows whose they are."""

from __future__ import annotations

import math

import dp_accounting

from beam_ldp.accounting.events import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
)

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
