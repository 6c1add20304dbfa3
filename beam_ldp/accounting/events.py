"""Privacy events of locally randomized, shuffled releases, for `dp_accounting` ledgers.

Events are inert records: what ran, not what it costs. They hold numbers and tuples only, because
dp-accounting 0.6 takes strings apart when it turns an event into a named tuple; text travels as
code points.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import attr
import dp_accounting

from beam_ldp.accounting.hockey_stick import check_reports
from beam_ldp.randomizers.shuffle_pair import ProofStatus, ShufflePair

PackedPair = tuple[float, int, tuple[tuple[float, float, float], ...], tuple[int, ...]]


class Randomizer(Protocol):
    """What the accountant asks of a local randomizer."""

    @property
    def local_epsilon(self) -> float: ...

    def dominating_pair(self) -> ShufflePair: ...


def pack_pair(pair: ShufflePair | Sequence[Any] | None) -> PackedPair | None:
    """A `ShufflePair` as numbers: mass, 1 if proved, (first, second, probability) rows, source.

    >>> unpack_pair(pack_pair(ShufflePair.clones(1.0))) == ShufflePair.clones(1.0)
    True
    """
    if pair is None:
        return None
    if isinstance(pair, ShufflePair):
        rows = zip(pair.ratios, pair.probabilities, strict=True)
        return (
            pair.blanket_mass,
            int(pair.proof_status == "proved"),
            tuple((first, second, p) for (first, second), p in rows),
            tuple(map(ord, pair.source)),
        )
    mass, proved, table, source = pair
    return (
        float(mass),
        int(proved),
        cast(Any, tuple(tuple(float(x) for x in row) for row in table)),
        tuple(int(c) for c in source),
    )


def unpack_pair(packed: PackedPair) -> ShufflePair:
    """Inverse of `pack_pair`."""
    mass, proved, table, source = packed
    status: ProofStatus = "proved" if proved else "conjectured"
    return ShufflePair(
        mass,
        tuple((first, second) for first, second, _ in table),
        tuple(p for *_, p in table),
        status,
        "".join(map(chr, source)),
    )


def _pack_all(pairs: Iterable[Any]) -> tuple[PackedPair, ...]:
    return tuple(cast(PackedPair, pack_pair(pair)) for pair in pairs)


def _positive(instance: Any, attribute: Any, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError(f"{attribute.name} must be a finite number > 0, got {value!r}")


def _as_text(value: Any) -> str:
    """A string, also where dp-accounting's named tuples made a list of its letters, in text."""
    while value.startswith("["):  # once on the way out and once on the way in
        value = "".join(ast.literal_eval(value))
    return str(value)


def _local(instance: Any, attribute: Any, value: Any) -> None:
    if not isinstance(value, LocalRandomizerDpEvent):
        raise ValueError(
            f"{attribute.name} must be a LocalRandomizerDpEvent, got {type(value).__name__}"
        )


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LocalRandomizerDpEvent(dp_accounting.DpEvent):
    """One report of one person, seen by somebody who knows whose it is.

    Attributes:
        local_epsilon: The declared local budget.
        pair: The mechanism's own dominating pair (a `ShufflePair`, stored as `pack_pair` does), or
            None if only the local epsilon is known.
        witnesses: Its witness pairs, for lower bounds (stored likewise).
    """

    local_epsilon: float = attr.ib(converter=float, validator=_positive)
    pair: PackedPair | None = attr.ib(default=None, converter=pack_pair)
    witnesses: tuple[PackedPair, ...] = attr.ib(default=(), converter=_pack_all)

    def dominating_pair(self) -> ShufflePair:
        """The own pair, or the one that holds for every randomizer with this local epsilon."""
        if self.pair is None:
            return ShufflePair.clones(self.local_epsilon)
        return unpack_pair(self.pair)

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        """Concrete pairs of data sets (see `beam_ldp.randomizers.shuffle_pair`)."""
        return tuple(map(unpack_pair, self.witnesses))


@attr.s(frozen=True, slots=True, auto_attribs=True)
class ShuffledDpEvent(dp_accounting.DpEvent):
    """The shuffled reports of `num_reports` people (or any function of their multiset).

    Neighbouring data sets differ in the value of one person (replace-one).

    Attributes:
        local_event: How each report was randomized.
        num_reports: Honest, well-formed reports received, among which one hides.
    """

    local_event: LocalRandomizerDpEvent = attr.ib(validator=_local)
    num_reports: int = attr.ib(converter=check_reports)


def _sampling(instance: Any, attribute: Any, value: str) -> None:
    if instance.num_sampled > instance.num_users:
        raise ValueError(f"num_sampled must be at most num_users, got {instance.num_sampled}")
    if instance.points_sampled > instance.points_per_client:
        raise ValueError(
            f"points_sampled must be at most points_per_client, got {instance.points_sampled}"
        )
    if instance.sampling != WITHOUT_REPLACEMENT:
        raise ValueError(f"sampling must be {WITHOUT_REPLACEMENT!r}")


WITHOUT_REPLACEMENT = "without_replacement"


@attr.s(frozen=True, slots=True, auto_attribs=True)
class SubsampledShuffledDpEvent(dp_accounting.DpEvent):
    """A shuffle of the reports of a uniformly random set of clients, fixed in size.

    The credit for sampling holds against readers who cannot see who took part. Against one who
    can, a round costs `ShuffledDpEvent(local_event, num_sampled * points_sampled)` to everybody
    who took part in it. Neighbouring data sets differ in one data point (replace-one).

    Attributes:
        local_event: How each report was randomized.
        num_users: Clients to draw from.
        num_sampled: Clients drawn, without replacement.
        points_per_client: Data points that each client holds.
        points_sampled: Data points that a drawn client draws, without replacement, and reports.
        sampling: How clients are drawn; only "without_replacement" has a price as yet.
    """

    local_event: LocalRandomizerDpEvent = attr.ib(validator=_local)
    num_users: int = attr.ib(converter=check_reports)
    num_sampled: int = attr.ib(converter=check_reports)
    points_per_client: int = attr.ib(default=1, converter=check_reports)
    points_sampled: int = attr.ib(default=1, converter=check_reports)
    sampling: str = attr.ib(default=WITHOUT_REPLACEMENT, converter=_as_text, validator=_sampling)

    @property
    def num_reports(self) -> int:
        """Reports in the shuffled batch."""
        return self.num_sampled * self.points_sampled


def local_event(randomizer: Randomizer) -> LocalRandomizerDpEvent:
    """The event of one report of `randomizer`.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> event = local_event(KRandomizedResponse(1000, 4.0))
    >>> event.local_epsilon
    4.0
    """
    witnesses = getattr(randomizer, "witness_pairs", tuple)
    return LocalRandomizerDpEvent(
        randomizer.local_epsilon, randomizer.dominating_pair(), witnesses()
    )


def shuffled_event(randomizer: Randomizer, num_reports: int) -> ShuffledDpEvent:
    """The event of a shuffled batch of `num_reports` reports of `randomizer`.

    The event counts the reports among which one really hides (`randomizer.crowd_size`): a public
    row that is tied to the user splits the crowd.

    Raises:
        ValueError: If each user sends several messages (each column is then a shuffled event).

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> shuffled_event(KRandomizedResponse(1000, 4.0), 100_000).num_reports
    100000
    """
    if getattr(randomizer, "messages_per_user", 1) != 1:
        raise ValueError(
            "randomizer must send one message per user; compose one shuffled event per message"
        )
    return ShuffledDpEvent(local_event(randomizer), crowd(randomizer, num_reports))


def crowd(randomizer: Any, num_reports: int) -> int:
    """Reports among which one hides, at least 1 (oneself)."""
    n = check_reports(num_reports)
    size = getattr(randomizer, "crowd_size", None)
    return n if size is None else max(1, min(n, int(size(n))))
