"""What one shuffled release costs: epsilon at a delta, or delta at an epsilon.

The value returned is the smallest one that is *proved* for the mechanism at hand: the local
epsilon itself (shuffling never hurts), the clone pair (every local randomizer), the mechanism's
own blanket. Beside it stand two lower bounds; see `PrivacyBound`. First comes what a randomizer
tells of itself, as a record that can be priced.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import attr
import numpy as np

from beam_ldp.accounting.divergences.bit_counts import Bit, bit_epsilon, bit_log_deltas
from beam_ldp.accounting.divergences.crowd_sizes import Crowd, of_groups
from beam_ldp.accounting.divergences.hockey_stick import (
    check_reports,
    directions,
    epsilon_bound,
    hockey_stick,
    largest_log_ratio,
    rough_hockey_stick,
)
from beam_ldp.accounting.lower import (
    PrivacyBound,
    class_lower_epsilon,
    three_response_witnesses,
    two_response_witnesses,
)
from beam_ldp.accounting.reports import (
    UNKNOWN_GROUPS,
    LocalReports,
    ShuffledMessages,
    ShuffledReports,
)
from beam_ldp.accounting.shuffle.mean_price import messages_epsilon
from beam_ldp.accounting.shuffle.multi_message import (
    MessageMethod,
    check_protects_alone,
    messages_of,
)
from beam_ldp.randomizers.base import own_crowd_rule
from beam_ldp.randomizers.checks import check_fraction, check_not_negative
from beam_ldp.randomizers.shuffle_pair import ShufflePair

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
    splits, how many messages it is. Of several messages the local epsilons alone are known here.

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
    check_protects_alone(randomizer)
    groups, messages = _groups(randomizer), messages_per_user(randomizer)
    telling = _telling(randomizer, groups)
    outputs = 2 if sends_bits(randomizer) else 0
    if messages != 1:
        layout = getattr(randomizer, "layout", None)
        if layout is None or groups != 1:
            return LocalReports(randomizer.local_epsilon, None, (), groups, messages)
        columns, together = messages_of(randomizer), bounded_change(randomizer)
        return LocalReports(
            randomizer.local_epsilon, None, (), 1, messages, columns, *together, outputs=outputs
        )
    witnesses = getattr(randomizer, "witness_pairs", tuple)
    pair = randomizer.dominating_pair()
    return LocalReports(
        randomizer.local_epsilon,
        pair,
        witnesses(),
        groups,
        telling_groups=telling,
        outputs=outputs,
    )


def _telling(randomizer: Any, groups: int) -> int | None:
    """In how many of its public groups two values can be told apart; None: in all of them."""
    telling = getattr(randomizer, "telling_groups", None)
    return None if telling is None or groups <= 1 or telling == groups else int(telling)


def _groups(randomizer: Any) -> int:
    """Its public groups, if they are the whole of its rule about crowds.

    Raises:
        ValueError: If it has public groups, which are of random sizes, and a rule beside them,
            which holds for certain.
    """
    groups = int(getattr(randomizer, "public_groups", 1))
    if not own_crowd_rule(randomizer):
        return groups
    if groups != 1:
        raise ValueError(
            "randomizer must have public_groups 1 where crowd_size is its own: a rule that holds "
            "for certain"
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
    tied to the user splits the crowd. It is priced by all sizes that the user's part may have.
    Where the smallest was counted, `reports.with_crowd(event, count)` has the price of that.

    Raises:
        ValueError: If each user sends several messages and does not describe them, or sends them
            in public groups, or has public groups and a `crowd_size` of its own.

    >>> from beam_ldp.randomizers.frequency import BinaryHadamard
    >>> shuffled_event(BinaryHadamard(1000, 4.0, row="public"), 100_000).crowd
    98
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
    """What `shuffled_event` is the event of; of columns that differ, the event itself; of shares,
    which the shuffler alone protects, those of so many honest people."""
    columns = getattr(randomizer, "message_randomizers", None)
    if not getattr(randomizer, "protects_alone", True):
        from beam_ldp.accounting.shuffle.split_and_mix import shares_of  # only few ask for it

        return shares_of(randomizer, num_reports)
    if columns is not None:
        import dp_accounting  # takes a second to load

        return dp_accounting.ComposedDpEvent([shuffled_event(c, num_reports) for c in columns])
    if messages_per_user(randomizer) != 1:
        return shuffled_messages(randomizer, num_reports)
    local = local_reports(randomizer)
    if local.public_groups == UNKNOWN_GROUPS:
        counted = attr.evolve(local, public_groups=1)
        return ShuffledReports(counted, crowd_by_rule(randomizer, num_reports))
    return ShuffledReports(local, num_reports)


def shuffled_messages(randomizer: Any, num_reports: int) -> ShuffledMessages:
    """The same for a mechanism that sends two-response messages, one or several."""
    if getattr(randomizer, "public_groups", 1) != 1:
        raise ValueError(
            "randomizer must have public_groups 1 where each user sends several messages"
        )
    change, places = bounded_change(randomizer)
    return ShuffledMessages(
        messages_of(randomizer),
        crowd_by_rule(randomizer, num_reports),
        change,
        randomizer.local_epsilon,
        getattr(randomizer, "message_witness", tuple)(),
        places,
        2 if sends_bits(randomizer) else 0,
    )


def bounded_change(randomizer: Any) -> tuple[float | None, int]:
    """How far a person's messages can change together, if that is known, and about how many places
    each of them speaks."""
    change = getattr(randomizer, "squared_change", None)
    return change, getattr(randomizer, "places_per_message", 1) if change else 1


def sends_bits(randomizer: Any) -> bool:
    """Whether each message is one bit, of which the price over all data sets is known."""
    return bool(getattr(randomizer, "sends_bits", False))


def messages_per_user(randomizer: Any) -> int:
    """Messages that one user sends, each to a shuffler of its own."""
    return int(getattr(randomizer, "messages_per_user", 1))


def crowd(randomizer: Any, num_reports: int) -> Crowd:
    """Reports among which one hides: so many for certain, or by chance where groups are random."""
    if isinstance(randomizer, LocalReports):
        return randomizer.hiding(num_reports)
    groups = _groups(randomizer)
    if groups == UNKNOWN_GROUPS:
        return crowd_by_rule(randomizer, num_reports)
    return of_groups(check_reports(num_reports), groups, _telling(randomizer, groups))


def crowd_by_rule(randomizer: Any, num_reports: int) -> int:
    """The same of one group, or by the randomizer's own rule; at least 1 (oneself)."""
    n = check_reports(num_reports)
    return max(1, min(n, int(randomizer.crowd_size(n)))) if own_crowd_rule(randomizer) else n


MAX_LOCAL_EPSILON = 30.0  # beyond it a report is the value itself
_CLEARLY_LESS = 1.0 - 1e-6  # than the root of one direction that of another must be

_PURE = "local epsilon (no amplification)"
_BITS = "one bit, all data sets"
_TOO_LONG = "; of all data sets the search was too long"
_RATIO_ROUNDING = 1e-12  # of the logarithm of the largest ratio
_NO_WITNESS = "none: the mechanism offers no concrete pair of data sets"


def shuffle_epsilon(
    local: float | Randomizer | LocalReports,
    num_reports: int,
    delta: float,
    *,
    conjectured: bool = False,
) -> PrivacyBound:
    """Central epsilon at `delta` of `num_reports` shuffled reports.

    Protects one person's value (replace-one; participation is not hidden) against a reader of the
    shuffled reports, or of any function of them, who knows everybody else's value.

    Args:
        local: A local epsilon (the result holds for every such randomizer), a randomizer, or its
            event. Several messages per user are permuted column by column: see `mean_epsilon`.
        num_reports: Honest reports received; 1 to 1e12. Where a randomizer splits the crowd into
            public groups, they are of all groups, and the price is an average over the size of one.
        delta: In [0, 1). At 0 nothing but the local epsilon holds.
        conjectured: Also admit pairs that are not proved (the strong clone pair for any
            randomizer); the result's `proof_status` then says which kind won.

    Returns:
        Upper value, certified lower ones, method and proof status.

    >>> bound = shuffle_epsilon(4.0, 100_000, 1e-6)
    >>> round(bound, 5), round(bound.class_lower, 4), bound.method
    (0.16977, 0.117, 'clones')
    """
    if messages_per_user(local) != 1:
        return mean_epsilon(local, num_reports, delta)
    target, n = price_target(local, num_reports)
    check_delta(delta)
    pure = target.local_epsilon
    if delta <= 0.0:
        return _bound(pure, _PURE, "proved", target, _largest, pure)

    def upper(pair: ShufflePair, most: float) -> float:
        """The least epsilon of a pair; infinity where it is certainly above `most`."""
        sides = directions(pair)
        if most < pure and any(rough_hockey_stick(side, n, most).lower > delta for side in sides):
            return math.inf
        found = epsilon_bound(sides[0], n, delta, upper=True)
        for side in sides[1:]:
            if rough_hockey_stick(side, n, found * _CLEARLY_LESS).upper > delta:
                found = max(found, epsilon_bound(side, n, delta, upper=True))
        return found

    def exceeds(pair: ShufflePair, value: float) -> bool:
        return hockey_stick(pair, n, value).lower > delta

    def lower(pair: ShufflePair) -> float:
        return epsilon_bound(pair, n, delta, upper=False)

    def class_lower() -> float:
        return min(pure, class_lower_epsilon(pure, n, 1.0, 1, delta))

    if target.bit is None:
        best = _least(target, conjectured, (pure, _PURE), upper)
        return _bound(*best, target, lower, class_lower, exceeds)
    least, most = bit_epsilon(target.bit, n, delta)
    value, method, status = _least(target, conjectured, min((pure, _PURE), (most, _BITS)), upper)
    method += _TOO_LONG if most == math.inf else ""
    return _bound(value, method, status, target, lower, class_lower, exceeds, (least, _BITS))


def shuffle_delta(
    local: float | Randomizer | LocalReports,
    num_reports: int,
    epsilon: float,
    *,
    conjectured: bool = False,
) -> PrivacyBound:
    """Central delta at `epsilon` of `num_reports` shuffled reports; see `shuffle_epsilon`.

    >>> bound = shuffle_delta(4.0, 100_000, 0.16977)
    >>> 0.999e-6 < bound < 1.001e-6
    True
    """
    target, n = price_target(local, num_reports)
    check_epsilon(epsilon)
    value, method, status = upper_delta(target, n, epsilon, conjectured)

    def lower(pair: ShufflePair) -> float:
        return hockey_stick(pair, n, epsilon).lower

    def exceeds(pair: ShufflePair, most: float) -> bool:
        # Ratios are rounded, so that at the largest of them a witness may be left with a little.
        return hockey_stick(pair, n, epsilon * (1 + _RATIO_ROUNDING)).lower > most

    def class_lower() -> float:
        budget = target.local_epsilon
        witnesses = (*two_response_witnesses(budget), *three_response_witnesses(budget))
        return max(lower(witness) for witness in witnesses)

    return _bound(value, method, status, target, lower, class_lower, exceeds)


@dataclass(frozen=True)
class PricedReports:
    """What is priced."""

    local_epsilon: float
    own: ShufflePair | None
    witnesses: tuple[ShufflePair, ...]
    bit: Bit | None = None

    def pairs(self, conjectured: bool) -> Iterator[tuple[int, ShufflePair]]:
        """The pairs that apply, each with its place where two prove the same, the best first."""
        generic = ShufflePair.clones(self.local_epsilon)
        own = self.own
        if own is not None and own != generic and (conjectured or own.proof_status == "proved"):
            yield 2, own
        yield 1, generic
        if conjectured:
            yield 3, ShufflePair.clones(self.local_epsilon, strong=True)


def price_target(
    local: Any, num_reports: int, with_witnesses: bool = True
) -> tuple[PricedReports, Crowd]:
    """What is priced, and among how many reports it hides."""
    if isinstance(local, ShuffledReports):
        raise ValueError("local must be a local epsilon, a randomizer or a LocalRandomizerDpEvent")
    if isinstance(local, (int, float)):
        if not (math.isfinite(local) and 0.0 < local <= MAX_LOCAL_EPSILON):
            raise ValueError(f"local_epsilon must be in (0, {MAX_LOCAL_EPSILON}], got {local!r}")
        return PricedReports(float(local), None, ()), check_reports(num_reports)
    if isinstance(local, LocalReports) and local.messages != 1:
        raise ValueError(
            f"local must be of one message, got an event of {local.messages}: price the randomizer "
            "itself, each message of which is permuted on its own"
        )
    n = crowd(local, num_reports)
    if not isinstance(local, LocalReports):
        if messages_per_user(local) != 1:
            raise ValueError("local must send one message per user; price each message column")
        if with_witnesses:
            local = local_reports(local)
        else:  # they can take long to find, and a search for an upper value has no use for them
            outputs = 2 if sends_bits(local) else 0
            local = LocalReports(local.local_epsilon, local.dominating_pair(), outputs=outputs)
    if local.local_epsilon > MAX_LOCAL_EPSILON:
        raise ValueError(
            f"local_epsilon must be in (0, {MAX_LOCAL_EPSILON}], got {local.local_epsilon!r}"
        )
    own = local.dominating_pair() if local.pair is not None else None
    return PricedReports(local.local_epsilon, own, local.witness_pairs(), local.bit), n


def upper_delta(
    target: PricedReports, n: Crowd, epsilon: float, conjectured: bool
) -> tuple[float, str, str]:
    """The smallest proved delta, its method and its status."""
    if epsilon >= target.local_epsilon:
        return 0.0, _PURE, "proved"

    def upper(pair: ShufflePair, most: float) -> float:
        """The least delta of a pair; infinity where it is certainly above `most`."""
        sides = directions(pair)
        if most < 1.0 and any(rough_hockey_stick(side, n, epsilon).lower > most for side in sides):
            return math.inf
        found = hockey_stick(sides[0], n, epsilon).upper
        for side in sides[1:]:
            if rough_hockey_stick(side, n, epsilon).upper > found:
                found = max(found, hockey_stick(side, n, epsilon).upper)
        return found

    known = (1.0, "trivial")
    if target.bit is not None:
        found = math.exp(bit_log_deltas(target.bit, n, np.array([epsilon]))[0])
        known = min(known, (found, _BITS))
    return _least(target, conjectured, known, upper)


def _least(
    target: PricedReports,
    conjectured: bool,
    known: tuple[float, str],
    upper: Callable[[ShufflePair, float], float],
) -> tuple[float, str, str]:
    """The smallest value that a pair proves, its method and its status.

    The mechanism's own pair is nearly always the best: it comes first, so that of most others a
    glance tells that they are worse.

    Args:
        known: What holds without any pair, and its method.
        upper: What a pair proves, if that is no more than the value given.
    """
    best, rank = (*known, "proved"), 0
    for place, pair in target.pairs(conjectured):
        found = upper(pair, best[0])
        if (found, place) < (best[0], rank):
            best, rank = (found, pair.source, pair.proof_status), place
    return best


def _largest(pair: ShufflePair) -> float:
    return max(0.0, largest_log_ratio(pair))


def _bound(
    value: float,
    method: str,
    status: str,
    target: PricedReports,
    lower: Callable[[ShufflePair], float],
    class_lower: float | Callable[[], float],
    exceeds: Callable[[ShufflePair, float], bool] | None = None,
    known: tuple[float, str] = (0.0, _NO_WITNESS),
) -> PrivacyBound:
    """The value with its lower bounds, which take longer and are found when they are read.

    Args:
        lower: Of one direction of a witness.
        exceeds: Whether that is above a value, where that is known sooner than `lower`.
        known: What a data set costs that no witness is of, and which.
    """
    sides = [(side, pair.source) for pair in target.witnesses for side in directions(pair)]
    most = value * (1.0 + 1e-6) + 1e-300
    for side, source in sides if status == "proved" else ():
        if exceeds(side, most) if exceeds is not None else lower(side) > most:
            raise ArithmeticError(
                f"the upper bound {value!r} ({method}) is below the lower bound {lower(side)!r} "
                f"({source}): the mechanism's dominating_pair() and witness_pairs() contradict "
                "each other"
            )

    def largest() -> tuple[float, str]:
        found = [(lower(side), source) for side, source in sides]
        best, source = max([*found, known], key=lambda one: one[0])
        return min(best, value), source

    return PrivacyBound(
        value, lower=largest, class_lower=class_lower, method=method, proof_status=status
    )


def check_delta(delta: float) -> None:
    """A ValueError unless `delta` lies in [0, 1)."""
    check_fraction("delta", delta, "[)")


def check_epsilon(epsilon: float) -> None:
    """A ValueError unless `epsilon` is a finite number >= 0."""
    check_not_negative("epsilon", epsilon)


def mean_epsilon(
    randomizer: Any, num_reports: int, delta: float, method: MessageMethod | str = "auto"
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
    'bits, all data sets'
    """
    return messages_epsilon(shuffled_messages(randomizer, num_reports), delta, method)
