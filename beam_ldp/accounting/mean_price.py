"""The central price of a mean mechanism's shuffled messages, whichever way proves the least."""

from __future__ import annotations

from typing import Any

import dp_accounting

from beam_ldp.accounting.events import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.accounting.hockey_stick import largest_log_ratio
from beam_ldp.accounting.l2_messages import l2_messages_epsilon
from beam_ldp.accounting.multi_message import Method, messages_of, multi_message_epsilon
from beam_ldp.accounting.privacy_bound import PrivacyBound

_BOUNDED_LENGTH = "blanket, bounded length"
_NO_PAIR = "no pair of data sets is priced for several messages"


def mean_epsilon(
    randomizer: Any, num_reports: int, delta: float, method: Method | str = "auto"
) -> PrivacyBound:
    """What the shuffled messages of a mean mechanism cost, every column permuted on its own.

    Args:
        randomizer: `BinaryVectorMean`, `L1Mean`, `LInfMean` or `L2Mean`.
        num_reports: users whose messages each shuffler permuted: those received, not those asked.
        delta: in (0, 1).
        method: "auto", "l2" (`L2Mean` with one level and whole bits per coordinate), or one of
            `multi_message.METHODS`.

    Returns:
        A proved upper bound; its `method` says which way it was proved.

    Raises:
        ValueError: if the method does not apply.

    >>> from beam_ldp.randomizers.mean import LInfMean
    >>> mean_epsilon(LInfMean(1, 1.0), 1000, 1e-6).method
    'blanket'
    """
    change = getattr(randomizer, "squared_change", None)
    if method == "l2" and change is None:
        raise ValueError('method "l2" needs L2Mean with one level and whole bits per coordinate')
    found: list[tuple[float, str]] = []
    if method in ("auto", "l2") and change is not None:
        (budget,) = randomizer.message_epsilons
        value = l2_messages_epsilon(budget, change, num_reports, delta)
        found.append((min(value, randomizer.local_epsilon), _BOUNDED_LENGTH))
    if method != "l2":
        general: Any = method
        value = multi_message_epsilon(messages_of(randomizer), num_reports, delta, general)
        found.append((value, "blanket" if method == "auto" else method))
    epsilon, way = min(found)
    return PrivacyBound(epsilon, method=way, lower_method=_NO_PAIR)


def mean_event(randomizer: Any, num_reports: int) -> dp_accounting.ComposedDpEvent:
    """The shuffled message columns of one release as a `dp_accounting` event.

    One shuffled event per column, equal ones counted. It holds for every vector and is therefore
    dearer than `mean_epsilon` where that knows the length of the vectors (`method="l2"`).

    Args:
        randomizer: a mechanism that describes its `message_pairs`.
        num_reports: users whose messages each shuffler permuted.

    >>> from beam_ldp.randomizers.mean import LInfMean
    >>> len(mean_event(LInfMean(9, 2.5), 1000).events)
    1
    """
    events = []
    for count, pair in randomizer.message_pairs():
        local = LocalRandomizerDpEvent(largest_log_ratio(pair), pair)
        one = ShuffledDpEvent(local, num_reports)
        events.append(dp_accounting.SelfComposedDpEvent(one, count))
    return dp_accounting.ComposedDpEvent(events)
