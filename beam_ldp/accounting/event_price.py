"""What one event costs, whatever its kind."""

from __future__ import annotations

from typing import Any

from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.accounting.reports import ShuffledMessages, ShuffledReports
from beam_ldp.accounting.shuffle.mean_price import messages_epsilon
from beam_ldp.accounting.shuffle.one_release import shuffle_epsilon


def event_epsilon(event: Any, delta: float) -> PrivacyBound:
    """The central epsilon at `delta` of one event: the smallest value that is proved for it.

    Protects one person's value (replace-one) against the reader that the event's class names.

    Args:
        event: Any event that `ShuffleAccountant` takes, or what such events are made of
            (`beam_ldp.accounting.reports`).
        delta: In [0, 1).

    Raises:
        dp_accounting.UnsupportedEventError: For an event that has no price under replace-one.

    >>> from beam_ldp.accounting import shuffled_event
    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> event = shuffled_event(KRandomizedResponse(1000, 4.0), 100_000)
    >>> round(event_epsilon(event, 1e-6), 4)
    0.0243
    """
    if isinstance(event, ShuffledReports):
        return shuffle_epsilon(event.local_event, event.num_honest, delta)
    if isinstance(event, ShuffledMessages):
        return messages_epsilon(event, delta)
    from beam_ldp.accounting.composition.accountant import ShuffleAccountant  # loads dp_accounting
    from beam_ldp.accounting.events import as_event

    return ShuffleAccountant().compose(as_event(event)).get_epsilon(delta)
