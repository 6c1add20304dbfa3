"""The accountant of shuffled and subsampled-shuffled releases, and of all beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, TypeVar

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, PrivacyAccountant, UnsupportedEventError

from beam_ldp.accounting.composition import central
from beam_ldp.accounting.composition.ledger_bounds import (
    CommittedReports,
    Counts,
    class_lower_value,
    event_divergences,
    largest_loss,
    ledger_losses,
    lower_value,
)
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.divergences.moments import rdp_to_delta, rdp_to_epsilon
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import (
    CommittedDpEvent,
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    ShuffledSharesDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.reports import failure_of
from beam_ldp.accounting.shuffle.one_release import (
    MAX_LOCAL_EPSILON,
    shuffle_delta,
    shuffle_epsilon,
)
from beam_ldp.accounting.shuffle.split_and_mix import METHOD, shares_epsilon
from beam_ldp.randomizers.checks import check_fraction, check_integer

STATE_VERSION = 2
_OWN = (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    ShuffledSharesDpEvent,
    SubsampledShuffledDpEvent,
)
_Kind = TypeVar("_Kind")
_FEW_RELEASES = 10**6
_NOTHING = "nothing was released"
_LOSSES = "privacy-loss distributions (fixed schedule)"
_RENYI = "Rényi orders"
_PURE = "local epsilons added up (no amplification)"


def default_orders() -> np.ndarray:
    """Orders from 2 to 3552: trainings need low ones, a few releases high ones."""
    return np.concatenate([np.arange(2.0, 65.0), np.floor(64 * 1.25 ** np.arange(1, 19))])


class ShuffleAccountant(PrivacyAccountant):
    """Cumulative price of releases about one data set, under replace-one.

    Takes `LocalRandomizerDpEvent`, `ShuffledDpEvent`, `ShuffledMessagesDpEvent`,
    `ShuffledSharesDpEvent`, `SubsampledShuffledDpEvent`, every event of dp-accounting that has a
    price under replace-one (see `composition.central`), and compositions of them all. Events with a
    pair of their own are priced by it; those without, by what holds for every randomizer with the
    same local epsilon.

    Two prices are kept. Privacy-loss distributions compose most tightly and are valid where the
    schedule of releases was fixed beforehand (`adaptive=False`).

    Where later releases were chosen after seeing earlier results (`adaptive=True`) it is a
    privacy filter: only Rényi divergences count, at one order that was fixed beforehand
    (`order=`), or at every one of `orders` for an equal part of delta. Fix the budget, and release
    while `would_exceed` says no; then that budget is what all releases cost together. Going on
    while just *some* order fits the whole of delta overspends.

    Some guarantees fail with a small probability: a public group may be smaller than supposed, or
    shuffled shares may tell more than their sum (`failure_probability`). Releases that were fixed
    beforehand have one sum F of such probabilities, whatever is seen: what they do and the same
    without a failure differ with probability at most F, so F is taken off delta. Where releases are
    chosen, the F of what happened to be chosen is not that probability (up to twice delta; see
    `beam_ldp.ledger.losses`, which has the proof of what is done instead): chances may sum to the
    share `chances` of delta, and the orders have the rest. The share is fixed beforehand too. By
    default it is nothing, and events with a chance cost their local epsilons, which always hold. A
    schedule that was fixed beforehand may be one release of such a sequence (`CommittedDpEvent`),
    and the tail of its losses such a chance.

    Args:
        orders: Rényi orders above one.
        adaptive: Whether releases were chosen after seeing earlier ones.
        order: The order fixed with the budget, for adaptive sequences.
        chances: Share of delta, fixed with the budget, for the chances of adaptive sequences;
            in [0, 1).

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> accountant = ShuffleAccountant()
    >>> event = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 1_000_000)
    >>> bound = accountant.compose(event, count=100).get_epsilon(1e-8)
    >>> round(bound, 3), bound.method
    (0.196, 'privacy-loss distributions (fixed schedule)')
    >>> accountant.would_exceed(event, count=10, epsilon=0.2, delta=1e-8)
    True
    """

    def __init__(
        self,
        orders: np.ndarray | list[float] | None = None,
        *,
        adaptive: bool = False,
        order: float | None = None,
        chances: float = 0.0,
    ) -> None:
        super().__init__(NeighboringRelation.REPLACE_ONE)
        chosen = default_orders() if orders is None else np.asarray(orders, dtype=float)
        if order is not None:
            chosen = np.array([float(order)])
        if chosen.ndim != 1 or not chosen.size or not np.all(chosen > 1):
            raise ValueError("orders must be numbers > 1")
        if not 0 <= chances < 1 or (chances and not adaptive):
            raise ValueError(f"chances must lie in [0, 1), and be 0 if not adaptive, got {chances}")
        self._orders = chosen
        self._chances = float(chances)
        self._adaptive = adaptive
        self._counts: Counts = {}

    # Composition -------------------------------------------------------------------------

    def _maybe_compose(
        self, event: dp_accounting.DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        if not do_compose:
            return _refused(event)
        self._counts = self._with(event, count)
        return None

    # Prices ------------------------------------------------------------------------------

    def get_epsilon(self, target_delta: float) -> PrivacyBound:
        """The smallest proved epsilon at `target_delta`, with lower bounds beside it.

        `.lower` is what concrete data sets cost with these very mechanisms; `.class_lower` what
        binary and ternary randomized response of the same local epsilons cost on this schedule.
        """
        check_fraction("target_delta", target_delta, "[]")
        shares = self._only(ShuffledSharesDpEvent)
        if shares is not None and target_delta < 1:
            return shares_epsilon(shares, target_delta)
        single = self._single_shuffle()
        if single is not None and target_delta < 1:
            return shuffle_epsilon(single.local_event, single.num_honest, target_delta)
        value, method = self._upper(self._counts, target_delta)
        counts = _opened(self._counts)  # those of now: more may be composed before it is read

        def lower() -> tuple[float, str]:
            found, how = lower_value(counts, target_delta)
            return min(value, found), how

        return PrivacyBound(
            value,
            lower=lower,
            class_lower=lambda: class_lower_value(counts, target_delta),
            method=method,
        )

    def get_delta(self, target_epsilon: float) -> PrivacyBound:
        """The smallest proved delta at `target_epsilon`."""
        if math.isnan(target_epsilon) or target_epsilon < 0:
            raise ValueError(f"target_epsilon must be >= 0, got {target_epsilon}")
        total, losses = _pure(self._counts), self._losses(self._counts)
        if target_epsilon >= total and math.isfinite(total):
            return PrivacyBound(0.0, method=_PURE if self._counts else _NOTHING)
        shares = self._only(ShuffledSharesDpEvent)
        if shares is not None:
            return PrivacyBound(shares.losses.delta(target_epsilon), method=METHOD)
        single = self._single_shuffle()
        if single is not None:
            return shuffle_delta(single.local_event, single.num_honest, target_epsilon)
        candidates: list[tuple[float, str]] = []
        if losses is not None:
            candidates.append((float(losses.deltas(np.array([target_epsilon]))[0]), _LOSSES))
        hardly = losses is not None and candidates[0][0] <= 2.0 * losses.beyond
        if losses is None or hardly or _orders_may_tell_more(self._counts):
            orders = self.divergences()
            if np.isinf(orders).all() and not candidates and math.isinf(total):
                return PrivacyBound(1.0, method="no privacy")
            delta = 0.0
            if math.isfinite(target_epsilon):
                delta, _ = rdp_to_delta(self._orders, orders, target_epsilon)
            if self._adaptive:
                return PrivacyBound(min(1.0, self._with_chances(delta)), method=_RENYI)
            candidates.append((delta, _RENYI))
        value, method = min(candidates)
        return PrivacyBound(min(1.0, value + self.failure_probability), method=method)

    def would_exceed(
        self, event: dp_accounting.DpEvent, count: int = 1, *, epsilon: float, delta: float
    ) -> bool:
        """Whether composing `event` would take the price above `epsilon` at `delta`.

        Cheap enough to ask before every round: what an event costs is kept, and one more of it is
        one more power of the same transform.

        Raises:
            UnsupportedEventError: if the event has no price here.
        """
        if not (epsilon >= 0 and 0 <= delta < 1):
            raise ValueError("epsilon must be >= 0 and delta lie in [0, 1)")
        error = _refused(event)
        if error is not None:
            raise UnsupportedEventError(error.error_message)
        after = self._with(event, count)
        return self._upper(after, delta, enough=epsilon)[0] > epsilon

    def copy(self) -> ShuffleAccountant:
        """An accountant with the same past and a future of its own."""
        twin = ShuffleAccountant(self._orders, adaptive=self._adaptive, chances=self._chances)
        if self._counts:
            twin.compose(self.ledger)
        return twin

    @property
    def orders(self) -> np.ndarray:
        """The Rényi orders."""
        return self._orders

    @property
    def local_epsilon(self) -> float:
        """Sum of the local epsilons of one person who took part in everything."""
        counts = _opened(self._counts)
        own = {event: n for event, n in counts.items() if isinstance(event, _OWN)}
        return sum(n * getattr(e, "points_sampled", 1) * e.local_epsilon for e, n in own.items())

    @property
    def failure_probability(self) -> float:
        """What delta must cover besides the losses: that a crowd is smaller than supposed."""
        return _failures(self._counts)

    def divergences(self) -> np.ndarray:
        """Rényi divergence of everything composed, at each of `orders`."""
        return self._divergences(self._counts)

    # State -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was composed, as JSON-able values without loss."""
        return {
            "version": STATE_VERSION,
            "orders": self._orders.tolist(),
            "adaptive": self._adaptive,
            "chances": self._chances,
            "ledger": event_to_json(self.ledger),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Become the accountant that `state_dict` described.

        Raises:
            ValueError: on a version that this library does not know; nothing is changed then.
        """
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"version must be {STATE_VERSION}, got {state.get('version')!r}")
        fresh = ShuffleAccountant(
            state["orders"], adaptive=state["adaptive"], chances=state["chances"]
        )
        ledger = event_from_json(state["ledger"])
        if not isinstance(ledger, dp_accounting.NoOpDpEvent):
            fresh.compose(ledger)
        self.__dict__.update(fresh.__dict__)

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> ShuffleAccountant:
        """The accountant that `state_dict` described; see `load_state_dict`."""
        accountant = cls()
        accountant.load_state_dict(state)
        return accountant

    # Inside ------------------------------------------------------------------------------

    def _with(self, event: dp_accounting.DpEvent, count: int) -> Counts:
        """The counts with so many more: of what a schedule holds, where all was fixed."""
        return counts_of(event, count, self._counts, whole=self._adaptive)

    def _for_losses(self, counts: Counts, delta: float) -> float:
        """What is left of delta at each order; at most 0 where chances take more than theirs.

        Orders of a filter have equal parts: choosing the best one after the fact is not free.
        """
        failures = _failures(counts)
        if not self._adaptive:
            return delta - failures
        if failures > self._chances * delta:
            return 0.0
        return (1 - self._chances) * delta / len(self._orders)

    def _with_chances(self, at_each_order: float) -> float:
        """The delta of a filter of which each order gets so much: inverse of `_for_losses`."""
        failures, share = self.failure_probability, self._chances
        if failures and not share:
            return 1.0
        for_chances = failures / share if failures else 0.0
        return max(len(self._orders) * at_each_order / (1 - share), for_chances)

    def _upper(self, counts: Counts, delta: float, enough: float = -1.0) -> tuple[float, str]:
        """The smallest proved epsilon and its method; any that is at most `enough` will do."""
        best = (_pure(counts), _PURE if counts else _NOTHING)
        if delta == 1:
            known = math.isfinite(best[0]) or np.isfinite(self._divergences(counts)).any()
            losses = None if known else self._losses(counts)
            known = known or (losses is not None and math.isfinite(losses.epsilon(1.0)))
            return (0.0, "delta = 1 allows everything") if known else best
        delta = self._for_losses(counts, delta)
        if delta <= 0 or best[0] <= enough:
            return best
        losses = self._losses(counts)
        found = math.inf if losses is None else losses.epsilon(delta)
        best = min(best, (found, _LOSSES))
        if math.isfinite(found) and not _orders_may_tell_more(counts):
            return best
        orders = self._divergences(counts)
        epsilon, order = rdp_to_epsilon(self._orders, orders, delta)
        return min(best, (epsilon, f"{_RENYI} (order {order:g})"))

    def _divergences(self, counts: Counts) -> np.ndarray:
        orders = tuple(self._orders.tolist())
        total = np.zeros(len(orders))
        for event, count in counts.items():
            total += float(count) * event_divergences(event, orders)
        return total

    def _losses(self, counts: Counts) -> LossGrid | None:
        """The composed losses, where they are valid and known."""
        return None if self._adaptive else ledger_losses(counts)

    def _single_shuffle(self) -> ShuffledDpEvent | None:
        """The release, if it is but one, which needs no composition."""
        event = self._only(ShuffledDpEvent)
        return event if event is not None and event.local_epsilon <= MAX_LOCAL_EPSILON else None

    def _only(self, kind: type[_Kind]) -> _Kind | None:
        """The release, if it is but one and of this kind."""
        if self._adaptive or list(self._counts.values()) != [1]:
            return None
        (event,) = self._counts
        return event if isinstance(event, kind) else None


def _pure(counts: Counts) -> float:
    return math.fsum(n * largest_loss(event) for event, n in counts.items())


def _orders_may_tell_more(counts: Counts) -> bool:
    """Than losses: of vectors whose length is known, and of so many releases that rounding counts.

    A single grid of losses is else at most a few 1e-4 from the truth, and orders never so near.
    """
    alone = [getattr(event, "local_event", event) for event in counts]
    lengths = any(getattr(event, "squared_change", None) is not None for event in alone)
    return lengths or sum(counts.values()) > _FEW_RELEASES


def _failures(counts: Counts) -> float:
    """What delta must cover besides the losses: that a crowd is smaller than supposed."""
    return math.fsum(n * failure_of(event) for event, n in counts.items())


def counts_of(
    event: dp_accounting.DpEvent,
    count: int = 1,
    before: Counts | None = None,
    *,
    whole: bool = False,
) -> dict[dp_accounting.DpEvent, int]:
    """How often it holds each kind of release.

    Args:
        event: composed of them.
        count: how often.
        before: counts that these are added to.
        whole: a committed schedule is one kind, and not what it holds.
    """
    after = dict(before or {})
    for part, times in _leaves(event, count, whole):
        after[part] = after.get(part, 0) + times
    return after


def _opened(counts: Counts) -> dict[dp_accounting.DpEvent, int]:
    """The counts with schedules taken apart."""
    found: dict[dp_accounting.DpEvent, int] = {}
    for event, count in counts.items():
        parts = event.parts if isinstance(event, CommittedReports) else [(event, 1)]
        for part, times in parts:
            found[part] = found.get(part, 0) + count * times
    return found


def _leaves(
    event: dp_accounting.DpEvent, count: int, whole: bool = False
) -> Iterator[tuple[dp_accounting.DpEvent, int]]:
    """What an event is composed of, hashable, and how often."""
    check_integer("count", count, 0)
    if isinstance(event, dp_accounting.SelfComposedDpEvent):
        yield from _leaves(event.event, event.count * count, whole)
    elif isinstance(event, dp_accounting.ComposedDpEvent):
        for part in event.events:
            yield from _leaves(part, count, whole)
    elif isinstance(event, CommittedDpEvent):
        if whole and count:
            yield CommittedReports(tuple(counts_of(event.event).items()), event.delta), count
        elif not whole:
            yield from _leaves(event.event, count)
    elif count and not isinstance(event, dp_accounting.NoOpDpEvent):
        yield event if isinstance(event, _OWN) else central.canonical(event), count


def _refused(
    event: dp_accounting.DpEvent,
) -> PrivacyAccountant.CompositionErrorDetails | None:
    """Which part of an event has no price, and why."""
    for part, _ in _leaves(event, 1):
        reason = None if isinstance(part, _OWN) else central.refusal(part)
        if reason is not None:
            return PrivacyAccountant.CompositionErrorDetails(part, reason)
    return None
