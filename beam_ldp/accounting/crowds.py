"""How many people hide each other, where some reports may be fake."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import attr
import dp_accounting


def hidden_users(num_users: int, honest_fraction: float) -> int:
    """The users whose reports are certainly not fake: those who hide each other."""
    if not 0.0 < honest_fraction <= 1.0:
        raise ValueError(f"honest_fraction must be in (0, 1], got {honest_fraction!r}")
    # The fraction as written: floor(0.1 * 10) must be 1 and floor(0.29 * 100) must be 29.
    return max(1, math.floor(num_users * Fraction(repr(float(honest_fraction)))))


def with_crowd(event: Any, num_reports: int) -> Any:
    """The event of a shuffled release with another number of people, in every column of messages.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> with_crowd(ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10), 7).num_reports
    7
    """
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return attr.evolve(event, events=[with_crowd(part, num_reports) for part in event.events])
    return attr.evolve(event, num_reports=num_reports)


def crowd_of(event: Any) -> int:
    """People among whom a report hides in a shuffled release; the fewest, of several columns."""
    if isinstance(event, dp_accounting.ComposedDpEvent):
        return min(map(crowd_of, event.events))
    return int(event.num_reports)
