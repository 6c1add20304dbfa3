"""A target that a training must not exceed: asked before each round, charged before each."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, Protocol

import dp_accounting

from beam_ldp.accounting import PrivacyBound, ShuffleAccountant
from beam_ldp.federated.record import privacy_events, rounds_charged


class Spending(Protocol):
    """What was charged so far."""

    @property
    def epsilon(self) -> float: ...
    @property
    def local_epsilon(self) -> float: ...
    @property
    def num_charges(self) -> int: ...


class TrainingBudget(Protocol):
    """What a training asks and charges: an `EpsilonBudget`, or `mlflow_ldp.PrivacyTracker`."""

    def would_exceed(self, event: dp_accounting.DpEvent, count: int = 1) -> bool: ...
    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Spending: ...
    @property
    def spent(self) -> Spending: ...


class Charges:
    """What an `EpsilonBudget` was charged: the proved price, the sum per person, how often.

    Prices are worked out when they are asked for.

    Args:
        accountant: that holds them, and gets no more.
        delta: of the price.
        num_charges: how many there were.
        local_epsilon: where the accountant does not know who took part how often.
    """

    def __init__(
        self,
        accountant: ShuffleAccountant,
        delta: float,
        num_charges: int,
        local_epsilon: float | None = None,
    ) -> None:
        self._accountant, self._delta, self.num_charges = accountant, delta, num_charges
        self._local_epsilon = local_epsilon

    @cached_property
    def bound(self) -> PrivacyBound:
        """The central price, with its method and what it cannot be below."""
        return self._accountant.get_epsilon(self._delta)

    @property
    def epsilon(self) -> float:
        return float(self.bound)

    @property
    def local_epsilon(self) -> float:
        known = self._local_epsilon
        return float(self._accountant.local_epsilon if known is None else known)


class EpsilonBudget:
    """A target (epsilon, delta) of one training, kept by a `ShuffleAccountant`.

    Nothing is held across programs: for that, use a `PrivacyTracker` with a ledger.

    `would_exceed` works out how many more equal rounds fit, up to as many as there were, and
    remembers it: n equal rounds take some 2 log2(n) evaluations of the accountant. What is
    remembered is sound: if m more rounds cost at most the target, fewer do not cost more.

    Args:
        epsilon: target; None for no limit, to see what is spent.
        delta: in (0, 1).
        state: of a process that ran before: what it spent counts.
        adaptive: whether rounds are chosen (sizes, mechanisms) after seeing earlier results.

    Raises:
        ValueError: if a parameter is out of range, or the state was made with a seed.
    """

    def __init__(
        self, epsilon: float | None, delta: float, *, state: Any = None, adaptive: bool = False
    ) -> None:
        if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"epsilon must be a finite number > 0 or None, got {epsilon}")
        if not 0 < delta < 1:
            raise ValueError(f"delta must lie in (0, 1), got {delta}")
        self.epsilon, self.delta = epsilon, float(delta)
        self._accountant = ShuffleAccountant(adaptive=adaptive)
        self._charges = 0
        self._room: tuple[dp_accounting.DpEvent | None, int] = (None, 0)  # so many more of it fit
        if state is not None:
            events = privacy_events(state)
            if events is None:
                raise ValueError("state must not be of a seeded run: it has no epsilon")
            for event, times in events:
                self._accountant.compose(event, times)
            self._charges = rounds_charged(state)

    def would_exceed(self, event: dp_accounting.DpEvent, count: int = 1) -> bool:
        """Whether so many more of this event would go beyond the target."""
        if self.epsilon is None:
            return False
        known, room = self._room
        if count <= room and event == known:
            return False
        if not self._fits(event, count):
            return True
        if count == 1:
            self._room = event, self._fitting(event)
        return False

    def _fits(self, event: dp_accounting.DpEvent, count: int) -> bool:
        assert self.epsilon is not None
        return not self._accountant.would_exceed(
            event, count, epsilon=self.epsilon, delta=self.delta
        )

    def _fitting(self, event: dp_accounting.DpEvent) -> int:
        """How many more fit, one being known to; at most as many as were charged so far."""
        fits, exceeds = 1, max(2, self._charges) + 1
        if self._fits(event, exceeds - 1):
            return exceeds - 1
        while exceeds - fits > 1:
            middle = (fits + exceeds) // 2
            fits, exceeds = (middle, exceeds) if self._fits(event, middle) else (fits, middle)
        return fits

    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Charges:
        """Charge one event."""
        del step, num_reports
        self._accountant.compose(event)
        self._charges += 1
        known, room = self._room
        self._room = (event, room - 1) if event == known and room else (None, 0)
        return self.spent

    @property
    def spent(self) -> Charges:
        """What was charged so far."""
        return Charges(self._accountant.copy(), self.delta, self._charges)
