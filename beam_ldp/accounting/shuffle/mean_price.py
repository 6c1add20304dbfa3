"""The central price of several shuffled messages per user, whichever way proves the least."""

from __future__ import annotations

from typing import Any

from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.accounting.reports import ShuffledMessages
from beam_ldp.accounting.shuffle.l2_messages import l2_messages_epsilon
from beam_ldp.accounting.shuffle.multi_message import Method, multi_message_epsilon, witness_epsilon
from beam_ldp.accounting.shuffle.randomizer_events import shuffled_messages

_BOUNDED_LENGTH = "blanket, bounded length"
_NO_PAIR = "none: the event names no concrete pair of data sets"
_WITNESS = "one vector against its opposite, which all others hold"
_PURE = "local epsilon (no amplification)"


def mean_epsilon(
    randomizer: Any, num_reports: int, delta: float, method: Method | str = "auto"
) -> PrivacyBound:
    """What the shuffled messages of a mean mechanism cost, every column permuted on its own.

    Args:
        randomizer: `BinaryVectorMean`, `L1Mean`, `LInfMean` or `L2Mean`.
        num_reports: users whose messages each shuffler permuted: those received, not those asked.
        delta: in [0, 1); at 0 nothing but the local epsilon holds.
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
    return messages_epsilon(shuffled_messages(randomizer, num_reports), delta, method)


def messages_epsilon(
    event: ShuffledMessages, delta: float, method: Method | str = "auto"
) -> PrivacyBound:
    """The same from the event of the release."""
    local, reports, change = event.local_epsilon, event.num_reports, event.squared_change
    if method == "l2" and change is None:
        raise ValueError('method "l2" needs L2Mean with one level and whole bits per coordinate')
    if delta == 0.0:
        return PrivacyBound(local, method=_PURE, lower_method=_NO_PAIR)
    found: list[tuple[float, str]] = []
    if method in ("auto", "l2") and change is not None:
        ((columns, budget),) = event.messages
        value = l2_messages_epsilon(budget, change, reports, delta)
        found.append((min(value, local), _BOUNDED_LENGTH))
        if method == "auto" and change < columns / 2:
            method = "l2"  # far from flipping every bit: the general price is higher
    if method != "l2":
        general: Any = method
        value = multi_message_epsilon(event.messages, reports, delta, general)
        found.append((value, "blanket" if method == "auto" else method))
    epsilon, way = min(found)
    lower, pair = 0.0, _NO_PAIR
    if event.witness:
        lower, pair = witness_epsilon(event.witness, reports, delta), _WITNESS
        if lower > epsilon * (1 + 1e-6):
            raise ArithmeticError(
                f"the upper bound {epsilon!r} ({way}) is below the lower bound {lower!r}: the "
                "event's messages and its witness contradict each other"
            )
    return PrivacyBound(epsilon, lower=min(lower, epsilon), method=way, lower_method=pair)
