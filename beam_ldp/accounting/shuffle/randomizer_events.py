"""The events of a randomizer: what it tells of itself, as a record that can be priced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attr

from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports import (
    UNKNOWN_GROUPS,
    LocalReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.multi_message import messages_of
from beam_ldp.randomizers.base import own_crowd_rule
from beam_ldp.randomizers.shuffle_pair import SMALLER_GROUP_CHANCE, ShufflePair, smallest_group

if TYPE_CHECKING:
    import dp_accounting

    from beam_ldp.accounting.events import (
        LocalRandomizerDpEvent,
        ShuffledDpEvent,
        ShuffledMessagesDpEvent,
    )


class Randomizer(Protocol):
    """What the accountant asks of a local randomizer."""

    @property
    def local_epsilon(self) -> float: ...

    def dominating_pair(self) -> ShufflePair: ...


def local_event(randomizer: Randomizer) -> LocalRandomizerDpEvent:
    """The event of everything that one person sends in one release of `randomizer`.

    It holds all that a shuffled or sampled event around it is priced by: the pair, how the crowd
    splits, how many messages it is. Of several messages the local epsilon alone is known here.

    >>> from beam_ldp.randomizers.frequency import BinaryHadamard
    >>> event = local_event(BinaryHadamard(1000, 4.0, row="public"))
    >>> event.local_epsilon, event.public_groups
    (4.0, 1023)
    """
    from beam_ldp.accounting.events import as_event  # loads dp_accounting

    event: LocalRandomizerDpEvent = as_event(local_reports(randomizer))
    return event


def local_reports(randomizer: Randomizer) -> LocalReports:
    """What `local_event` is the event of."""
    groups, messages = _groups(randomizer), messages_per_user(randomizer)
    if messages != 1:
        return LocalReports(randomizer.local_epsilon, None, (), groups, messages)
    witnesses = getattr(randomizer, "witness_pairs", tuple)
    return LocalReports(randomizer.local_epsilon, randomizer.dominating_pair(), witnesses(), groups)


def _groups(randomizer: Any) -> int:
    """Its public groups, if they are the whole of its rule about crowds.

    Raises:
        ValueError: If it has public groups, which are large enough but for a chance, and a rule
            beside them: whether delta covers what the rule says cannot be told.
    """
    groups = int(getattr(randomizer, "public_groups", 1))
    if not own_crowd_rule(randomizer):
        return groups
    if groups != 1:
        raise ValueError(
            "randomizer must have public_groups 1 where crowd_size is its own: let counted_group "
            "say what was counted, or crowd_size be a rule that holds for certain"
        )
    return UNKNOWN_GROUPS


def shuffled_event(
    randomizer: Randomizer, num_reports: int
) -> ShuffledDpEvent | ShuffledMessagesDpEvent | dp_accounting.ComposedDpEvent:
    """The event of a shuffled batch of the reports of `num_reports` people.

    Where the messages of a person come from mechanisms of their own (`message_randomizers`), each
    column is a shuffled batch by itself, and the release is their composition.

    Where `crowd_size` is the randomizer's own, it is taken at its word for this number of reports,
    and for no other: see `LocalRandomizer.crowd_size`.

    The event knows among how many of them one really hides (`event.crowd`): a public row that is
    tied to the user splits the crowd. Where the smallest group was counted, use
    `crowds.with_crowd(event, count)`.

    Raises:
        ValueError: If each user sends several messages and does not describe them, or sends them
            in public groups, or has public groups and a `crowd_size` of its own.

    >>> from beam_ldp.randomizers.frequency import BinaryHadamard
    >>> shuffled_event(BinaryHadamard(1000, 4.0, row="public"), 100_000).crowd
    31
    >>> from beam_ldp.randomizers.mean import LInfMean
    >>> mechanism = LInfMean(9, 2.5, messages=(2,), message_epsilons=(1.25,))
    >>> [(count, round(budget, 6)) for count, budget in shuffled_event(mechanism, 1000).messages]
    [(2, 1.25)]
    """
    from beam_ldp.accounting.events import as_event  # loads dp_accounting

    event: ShuffledDpEvent | ShuffledMessagesDpEvent | dp_accounting.ComposedDpEvent
    event = as_event(shuffled_reports(randomizer, num_reports))
    return event


def shuffled_reports(randomizer: Any, num_reports: int) -> Any:
    """What `shuffled_event` is the event of; of columns that differ, the event itself."""
    columns = getattr(randomizer, "message_randomizers", None)
    if columns is not None:
        import dp_accounting  # takes a second to load

        return dp_accounting.ComposedDpEvent([shuffled_event(c, num_reports) for c in columns])
    if messages_per_user(randomizer) != 1:
        return shuffled_messages(randomizer, num_reports)
    local = local_reports(randomizer)
    if local.public_groups == UNKNOWN_GROUPS:
        counted = attr.evolve(local, public_groups=1)
        return ShuffledReports(counted, crowd(randomizer, num_reports))
    return ShuffledReports(local, num_reports)


def shuffled_messages(randomizer: Any, num_reports: int) -> ShuffledMessages:
    """The same for a mechanism that sends two-response messages, one or several."""
    if getattr(randomizer, "public_groups", 1) != 1:
        raise ValueError(
            "randomizer must have public_groups 1 where each user sends several messages"
        )
    messages = messages_of(randomizer)
    change = getattr(randomizer, "squared_change", None)
    return ShuffledMessages(
        messages,
        crowd(randomizer, num_reports),
        change if len(messages) == 1 else None,
        randomizer.local_epsilon,
        getattr(randomizer, "message_witness", tuple)(),
    )


def messages_per_user(randomizer: Any) -> int:
    """Messages that one user sends, each to a shuffler of its own."""
    return int(getattr(randomizer, "messages_per_user", 1))


def smaller_crowd_chance(randomizer: Any) -> float:
    """That a crowd is smaller than the randomizer's rule says, where it is a matter of chance."""
    return SMALLER_GROUP_CHANCE if getattr(randomizer, "public_groups", 1) > 1 else 0.0


def crowd(randomizer: Any, num_reports: int) -> int:
    """Reports among which one hides, at least 1 (oneself)."""
    n = check_reports(num_reports)
    size = getattr(randomizer, "crowd_size", None)
    if size is None:
        return smallest_group(n, int(getattr(randomizer, "public_groups", 1)))
    return max(1, min(n, int(size(n))))
