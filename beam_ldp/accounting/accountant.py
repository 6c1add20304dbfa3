"""The accountant of shuffled and subsampled-shuffled releases, and of all beside them."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import numpy as np
from dp_accounting import NeighboringRelation, PrivacyAccountant
from dp_accounting.rdp import RdpAccountant

from beam_ldp.accounting.class_lower import class_lower_epsilon
from beam_ldp.accounting.conversions import rdp_to_delta, rdp_to_epsilon
from beam_ldp.accounting.events import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.loss_curves import (
    STEPS_PER_DEVIATION,
    loss_deviation,
    loss_distribution,
    message_columns,
    messages_divergences,
    renyi_divergences,
)
from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.accounting.shuffle import shuffle_epsilon

STATE_VERSION = 1
_OWN = (ShuffledDpEvent, ShuffledMessagesDpEvent, SubsampledShuffledDpEvent)
_LARGEST_GRID = 1 << 22
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
    `SubsampledShuffledDpEvent`, every event of dp-accounting that its Rényi accountant supports
    under replace-one (Gaussian, sampled without replacement, ...), and compositions of them all.
    Events with a pair of their own are priced by it; those without, by what holds for every
    randomizer with the same local epsilon.

    Two prices are kept. Privacy-loss distributions compose most tightly and are valid where the
    schedule of releases was fixed beforehand (`adaptive=False`). Where later releases were chosen
    after seeing earlier results (`adaptive=True`) only Rényi divergences are used, and the
    conversion counts one order that was fixed beforehand (`order=`), or splits delta over all
    orders.

    Args:
        orders: Rényi orders above one.
        adaptive: Whether releases were chosen after seeing earlier ones.
        order: The order fixed with the budget, for adaptive sequences.

    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> accountant = ShuffleAccountant()
    >>> event = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 1_000_000)
    >>> bound = accountant.compose(event, count=100).get_epsilon(1e-8)
    >>> round(bound, 3), bound.method
    (0.196, 'privacy-loss distributions (fixed schedule)')
    """

    def __init__(
        self,
        orders: np.ndarray | list[float] | None = None,
        *,
        adaptive: bool = False,
        order: float | None = None,
    ) -> None:
        super().__init__(NeighboringRelation.REPLACE_ONE)
        chosen = default_orders() if orders is None else np.asarray(orders, dtype=float)
        if order is not None:
            chosen = np.array([float(order)])
        if chosen.ndim != 1 or not chosen.size or not np.all(chosen > 1):
            raise ValueError("orders must be numbers > 1")
        self._orders = chosen
        self._adaptive = adaptive
        self._counts: dict[dp_accounting.DpEvent, int] = {}
        self._others = RdpAccountant(chosen, NeighboringRelation.REPLACE_ONE)
        self._has_others = False

    # Composition -------------------------------------------------------------------------

    def _maybe_compose(
        self, event: dp_accounting.DpEvent, count: int, do_compose: bool
    ) -> PrivacyAccountant.CompositionErrorDetails | None:
        if isinstance(event, dp_accounting.SelfComposedDpEvent):
            return self._maybe_compose(event.event, event.count * count, do_compose)
        if isinstance(event, dp_accounting.ComposedDpEvent):
            for part in event.events:
                error = self._maybe_compose(part, count, do_compose)
                if error is not None:
                    return error
            return None
        if isinstance(event, (LocalRandomizerDpEvent, *_OWN)):
            if do_compose and count:
                self._counts[event] = self._counts.get(event, 0) + count
            return None
        error = self._others._maybe_compose(event, count, False)
        if error is None and do_compose and count:
            self._others._maybe_compose(event, count, True)
            self._has_others |= not isinstance(event, dp_accounting.NoOpDpEvent)
        return error

    # Prices ------------------------------------------------------------------------------

    def get_epsilon(self, target_delta: float) -> PrivacyBound:
        """The smallest proved epsilon at `target_delta`, with lower bounds beside it.

        `.lower` is that of the dearest single release (no composition costs less than its parts);
        `.class_lower` is given where all releases are of one kind.
        """
        if not 0 <= target_delta <= 1:
            raise ValueError(f"target_delta must lie in [0, 1], got {target_delta}")
        candidates = [(self._pure_epsilon(), _PURE if self._counts else _NOTHING)]
        if 0 < target_delta < 1:
            candidates += self._amplified(target_delta)
        elif target_delta == 1 and not math.isinf(candidates[0][0]):
            candidates.append((0.0, "delta = 1 allows everything"))
        value, method = min(candidates)
        return PrivacyBound(
            value,
            lower=min(value, self._largest_single(target_delta)),
            class_lower=self._class_lower(target_delta),
            method=method,
            lower_method="dearest release alone",
        )

    def get_delta(self, target_epsilon: float) -> PrivacyBound:
        """The smallest proved delta at `target_epsilon`."""
        if math.isnan(target_epsilon) or target_epsilon < 0:
            raise ValueError(f"target_epsilon must be >= 0, got {target_epsilon}")
        total = self._pure_epsilon()
        if math.isinf(total) and not np.isfinite(self.divergences()).any():
            return PrivacyBound(1.0, method="no privacy")
        if target_epsilon >= total:
            return PrivacyBound(0.0, method=_PURE if self._counts else _NOTHING)
        if math.isinf(target_epsilon):
            return PrivacyBound(0.0, method=_RENYI)
        delta, _ = rdp_to_delta(self._orders, self.divergences(), target_epsilon)
        candidates = [(min(1.0, delta * self._split), _RENYI)]
        distribution = self._losses()
        if distribution is not None:
            found = float(distribution.get_delta_for_epsilon(target_epsilon))
            candidates.append((found, _LOSSES))
        value, method = min(candidates)
        return PrivacyBound(value, method=method)

    def would_exceed(
        self, event: dp_accounting.DpEvent, count: int = 1, *, epsilon: float, delta: float
    ) -> bool:
        """Whether composing `event` would take the price above `epsilon` at `delta`."""
        return bool(self.copy().compose(event, count).get_epsilon(delta) > epsilon)

    def copy(self) -> ShuffleAccountant:
        """An accountant with the same past and a future of its own."""
        twin = ShuffleAccountant(self._orders, adaptive=self._adaptive)
        if not isinstance(self.ledger, dp_accounting.NoOpDpEvent):
            twin.compose(self.ledger)
        return twin

    @property
    def orders(self) -> np.ndarray:
        """The Rényi orders."""
        return self._orders

    @property
    def local_epsilon(self) -> float:
        """Sum of the local epsilons of one person who took part in everything."""
        return sum(n * _local_epsilon(event) for event, n in self._counts.items())

    # State -------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What was composed, as JSON-able values without loss."""
        from beam_ldp.accounting.event_json import event_to_json

        return {
            "version": STATE_VERSION,
            "orders": self._orders.tolist(),
            "adaptive": self._adaptive,
            "ledger": event_to_json(self.ledger),
        }

    @classmethod
    def from_state_dict(cls, state: dict[str, Any]) -> ShuffleAccountant:
        """The accountant that `state_dict` described.

        Raises:
            ValueError: on a version that this library does not know.
        """
        from beam_ldp.accounting.event_json import event_from_json

        if state.get("version") != STATE_VERSION:
            raise ValueError(f"version must be {STATE_VERSION}, got {state.get('version')!r}")
        accountant = cls(state["orders"], adaptive=state["adaptive"])
        ledger = event_from_json(state["ledger"])
        if not isinstance(ledger, dp_accounting.NoOpDpEvent):
            accountant.compose(ledger)
        return accountant

    # Inside ------------------------------------------------------------------------------

    @property
    def _split(self) -> int:
        """Orders over which delta is split: choosing the best one after the fact is not free."""
        return len(self._orders) if self._adaptive else 1

    def _pure_epsilon(self) -> float:
        if not self._has_others:
            return sum(n * _largest_loss(event) for event, n in self._counts.items())
        return math.inf

    def _amplified(self, delta: float) -> list[tuple[float, str]]:
        epsilon, order = rdp_to_epsilon(self._orders, self.divergences(), delta / self._split)
        candidates = [(epsilon, f"{_RENYI} (order {order:g})")]
        distribution = self._losses()
        if distribution is not None:
            candidates.append((float(distribution.get_epsilon_for_delta(delta)), _LOSSES))
        return candidates

    def divergences(self) -> np.ndarray:
        """Rényi divergence of everything composed, at each of `orders`."""
        total = np.array(self._others._rdp, dtype=float)
        for event, count in self._counts.items():
            if isinstance(event, LocalRandomizerDpEvent):
                total += count * _randomized_response(event.local_epsilon, self._orders)
            elif isinstance(event, ShuffledMessagesDpEvent):
                total += count * messages_divergences(event, self._orders)
            else:
                total += count * renyi_divergences(event, self._orders)
        return total

    def _losses(self) -> Any:
        """The composed privacy-loss distribution, where it is valid and its grid is of a size."""
        if self._adaptive or self._has_others or not self._counts:
            return None
        own: dict[Any, int] = {}
        for event, count in self._counts.items():
            if isinstance(event, LocalRandomizerDpEvent):
                return None
            parts = [(1, event)]
            if isinstance(event, ShuffledMessagesDpEvent):
                parts = message_columns(event)
            for columns, part in parts:
                own[part] = own.get(part, 0) + columns * count
        step = min(loss_deviation(event) for event in own) / STEPS_PER_DEVIATION
        if sum(_largest_loss(event) for event in own) / step > _LARGEST_GRID:
            return None
        total = None
        with np.errstate(over="ignore"):  # vanishing terms of the library's tail bounds
            for event, count in own.items():
                part = loss_distribution(event, step, whole=False)
                part = part.self_compose(count) if count > 1 else part
                total = part if total is None else total.compose(part)
        return total

    def _class_lower(self, delta: float) -> float:
        """What eps0 alone cannot prove less than, where all releases are of one kind."""
        if len(self._counts) != 1 or self._has_others or not 0 < delta < 1:
            return 0.0
        ((event, count),) = self._counts.items()
        if isinstance(event, (LocalRandomizerDpEvent, ShuffledMessagesDpEvent)):
            return 0.0
        rate = 1.0
        if isinstance(event, SubsampledShuffledDpEvent):
            if event.points_per_client > 1:
                return 0.0
            rate = event.num_sampled / event.num_users
        local = event.local_event.local_epsilon
        return class_lower_epsilon(local, event.num_reports, rate, count, delta)

    def _largest_single(self, delta: float) -> float:
        """No composition costs less than the dearest of its parts."""
        singles = [0.0]
        for event in self._counts:
            if isinstance(event, ShuffledDpEvent) and 0 < delta < 1:
                local = event.local_event
                singles.append(shuffle_epsilon(local, event.num_reports, delta).lower)
        return max(singles)


def _local_epsilon(event: Any) -> float:
    points = event.points_sampled if isinstance(event, SubsampledShuffledDpEvent) else 1
    return float(points * event.local_epsilon)


def _largest_loss(event: Any) -> float:
    """Pure epsilon of one release: of one data point, hence one report."""
    local = float(event.local_epsilon)
    if not isinstance(event, SubsampledShuffledDpEvent):
        return local
    if event.points_sampled == 1:
        rate = event.num_sampled / (event.num_users * event.points_per_client)
    else:
        rate = event.points_sampled / event.points_per_client
    return math.log1p(rate * math.expm1(local))


def _randomized_response(local_epsilon: float, orders: np.ndarray) -> np.ndarray:
    """The largest divergence of any mechanism with this epsilon: binary randomized response."""
    truth, lie = -np.log1p(np.exp(-local_epsilon)), -np.log1p(np.exp(local_epsilon))
    first = orders * truth + (1 - orders) * lie
    second = orders * lie + (1 - orders) * truth
    return np.minimum(np.logaddexp(first, second) / (orders - 1), local_epsilon)
