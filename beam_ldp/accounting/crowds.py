"""How many people hide each other, where some reports may be fake."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import attr

from beam_ldp.accounting.reports import ShuffledReports


def hidden_users(num_users: int, honest_fraction: float) -> int:
    """The users whose reports are certainly not fake: those who hide each other."""
    if not 0.0 < honest_fraction <= 1.0:
        raise ValueError(f"honest_fraction must be in (0, 1], got {honest_fraction!r}")
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
    """People among whom a report hides in a shuffled release; the fewest, of several columns."""
    if hasattr(event, "events"):
        return min(map(crowd_of, event.events))
    return int(event.crowd)


def failure_of(event: Any) -> float:
    """What delta must cover besides an event's losses: that a crowd is smaller than supposed."""
    return float(getattr(event, "failure_probability", 0.0))
