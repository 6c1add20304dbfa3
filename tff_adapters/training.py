"""Rounds of a learning process under a privacy budget: asked before each, charged before each."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import dp_accounting

from beam_ldp.accounting import ShuffleAccountant
from tff_adapters.record import (
    SamplingMismatchError,
    last_event,
    planned_event,
    privacy_events,
    rounds_charged,
    rounds_run,
)


class Spent(Protocol):
    """What was charged so far."""

    @property
    def epsilon(self) -> float: ...
    @property
    def local_epsilon(self) -> float: ...
    @property
    def num_charges(self) -> int: ...


class Budget(Protocol):
    """What a training asks and charges: an `EpsilonBudget`, or `mlflow_ldp.PrivacyTracker`."""

    def would_exceed(self, event: dp_accounting.DpEvent, count: int = 1) -> bool: ...
    def charge(
        self,
        event: dp_accounting.DpEvent,
        step: int | None = None,
        *,
        num_reports: int | None = None,
    ) -> Spent: ...
    @property
    def spent(self) -> Spent: ...


@dataclass(frozen=True)
class Charges:
    """What an `EpsilonBudget` was charged: the proved price, the sum per person, how often."""

    epsilon: float
    local_epsilon: float
    num_charges: int


class EpsilonBudget:
    """A target (epsilon, delta) of one training, kept by a `ShuffleAccountant`.

    Nothing is held across programs: for that, use a `PrivacyTracker` with a ledger.

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
        target = {"epsilon": self.epsilon, "delta": self.delta}
        return self._accountant.would_exceed(event, count, **target)

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
        return self.spent

    @property
    def spent(self) -> Charges:
        """What was charged so far."""
        epsilon = float(self._accountant.get_epsilon(self.delta))
        return Charges(epsilon, float(self._accountant.local_epsilon), self._charges)


@dataclass(frozen=True)
class Round:
    """One round that ran.

    Attributes:
        number: of the round, from 0.
        epsilon: spent so far, central, proved, at the budget's delta; None for a seeded run.
        local_epsilon: sum for somebody who took part in every round; None likewise.
        metrics: what the process measured.
        state: after the round.
    """

    number: int
    epsilon: float | None
    local_epsilon: float | None
    metrics: Any
    state: Any


@dataclass(frozen=True)
class Training:
    """What a training came to.

    Attributes:
        state: after the last round.
        rounds: rounds that this call ran.
        stopped_by: "rounds" if all ran; "budget" if the next one would have exceeded the target.
        spent: as the budget tells; None for a seeded run.
    """

    state: Any
    rounds: int
    stopped_by: Literal["rounds", "budget"]
    spent: Spent | None


def train(
    process: Any,
    clients_for: Callable[[int], Sequence[Any]],
    num_rounds: int,
    budget: Budget,
    *,
    state: Any = None,
    on_round: Callable[[Round], None] | None = None,
    release_managers: Sequence[Any] = (),
) -> Training:
    """Run rounds until all are done or the next one would exceed the budget.

    Before each round its event is worked out from the record in the state and the number of
    clients, the budget is asked, and charged. After it, the record must say that this is what ran:
    else the result of the round is dropped, and stays charged.

    Resumes where `state` is: its rounds count towards `num_rounds`, and the budget must hold what
    they spent (`EpsilonBudget(state=...)`, or a tracker with the ledger that was charged).

    Args:
        process: a learning process (or an aggregation process of client values) whose aggregator
            is one of ours.
        clients_for: the clients of a round, by its number. If the aggregator declares a sampling,
            they must be drawn so.
        num_rounds: rounds in all, those of `state` included.
        budget: see `Budget`.
        state: to go on from; by default the process's initial state.
        on_round: called after each round.
        release_managers: `tff.program.ReleaseManager`s that get the metrics, keyed by round.

    Raises:
        SamplingMismatchError: if a round is not what was declared or charged.
        ValueError: if the budget does not know rounds of `state`.
    """
    state = process.initialize() if state is None else state
    start = rounds_run(state)
    _refuse_unknown(budget, rounds_charged(state))
    seeded = False
    for number in range(start, num_rounds):
        clients = clients_for(number)
        event = planned_event(state, len(clients))
        seeded = event is None
        spent = None
        if event is not None and not isinstance(event, dp_accounting.NoOpDpEvent):
            if budget.would_exceed(event):
                return Training(state, number - start, "budget", budget.spent)
            spent = budget.charge(event, number, num_reports=len(clients))
        output = process.next(state, clients)
        ran = last_event(output.state)
        if ran != event:
            raise SamplingMismatchError(
                f"round {number} was charged for the reports of {len(clients)} clients, and "
                "received those of another number; its result is dropped"
            )
        state = output.state
        metrics = output.metrics if hasattr(output, "metrics") else output.measurements
        for manager in release_managers:
            asyncio.run(manager.release(metrics, number))
        if on_round is not None:
            on_round(_round(number, spent, None if seeded else budget, metrics, state))
    rounds = max(0, num_rounds - start)
    return Training(state, rounds, "rounds", None if seeded else budget.spent)


def _round(
    number: int, spent: Spent | None, budget: Budget | None, metrics: Any, state: Any
) -> Round:
    if budget is None:
        return Round(number, None, None, metrics, state)
    known = budget.spent if spent is None else spent
    return Round(number, known.epsilon, known.local_epsilon, metrics, state)


def _refuse_unknown(budget: Budget, rounds: int) -> None:
    if getattr(budget, "charged", False):  # a ledger holds what earlier programs spent
        return
    if budget.spent.num_charges < rounds:
        raise ValueError(
            f"budget must hold the {rounds} rounds that the state has run; it knows of "
            f"{budget.spent.num_charges}"
        )
