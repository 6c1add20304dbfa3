"""Rounds of a learning process under a privacy budget: asked before each, charged before each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import dp_accounting

from beam_ldp.federated.budget import Spending, TrainingBudget
from beam_ldp.federated.flow import Flow, refuse_unpriced
from beam_ldp.federated.record import (
    SamplingMismatchError,
    last_event,
    last_reports,
    planned_event,
    rounds_charged,
    rounds_run,
    same_rounds,
)


@dataclass(frozen=True)
class Round:
    """One round that ran.

    Attributes:
        number: of the round, from 0.
        spent: so far, as the budget tells; None where nothing is priced: a seeded run, no budget.
        metrics: what the process measured.
        state: after the round.
    """

    number: int
    spent: Spending | None
    metrics: Any
    state: Any

    @property
    def epsilon(self) -> float | None:
        """Spent so far, central, proved, at the budget's delta. Worked out when asked for."""
        return None if self.spent is None else self.spent.epsilon

    @property
    def local_epsilon(self) -> float | None:
        """Sum for somebody who took part in every round."""
        return None if self.spent is None else self.spent.local_epsilon


@dataclass(frozen=True)
class Training:
    """What a training came to.

    Attributes:
        state: after the last round.
        rounds: rounds that this call ran.
        stopped_by: "rounds" if all ran; "budget" if the next one would have exceeded the target.
        spent: as the budget tells; None for a seeded run, or without a budget.
        flows: what left clients in each round; nothing was read without a budget.
    """

    state: Any
    rounds: int
    stopped_by: Literal["rounds", "budget"]
    spent: Spending | None
    flows: tuple[Flow, ...] = ()


def train(
    process: Any,
    clients_for: Callable[[int], Sequence[Any]],
    num_rounds: int,
    budget: TrainingBudget | None,
    *,
    state: Any = None,
    on_round: Callable[[Round], None] | None = None,
    release_managers: Sequence[Any] = (),
    flows: Sequence[Flow] = (),
) -> Training:
    """Run rounds until all are done or the next one would exceed the budget.

    Nothing runs if one of `flows` is unpriced. What leaves clients is for a framework's adapter to
    read from its computation: `tff_adapters.train` does.

    Before each round its event is worked out from the record in the state and the number of
    clients, the budget is asked, and charged. After it, the record must say that this is what ran:
    else the result of the round is dropped, and stays charged.

    A client that sends what no honest client can ends nothing: it is left out of the sum. The round
    is then that of a smaller crowd, and is charged once more, as that, before anybody gets its
    result: what was charged before it ran cannot be taken back, so it costs at most about twice
    what it was planned to. Where that exceeds the budget, the result is dropped, and the training
    ends.

    Resumes where `state` is: its rounds count towards `num_rounds`, and the budget must hold what
    they spent (`EpsilonBudget(state=...)`, or a tracker with the ledger that was charged).

    Args:
        process: a learning process (or an aggregation process of client values) whose aggregator
            is one of ours: whatever has `initialize()` and `next(state, clients)`.
        clients_for: the clients of a round, by its number. If the aggregator declares a sampling,
            they must be drawn so.
        num_rounds: rounds in all, those of `state` included.
        budget: see `TrainingBudget`. None: nothing is asked, charged or checked, whatever the
            process releases; for baselines.
        state: to go on from; by default the process's initial state.
        on_round: called after each round.
        release_managers: with a coroutine `release(metrics, number)`, such as
            `tff.program.ReleaseManager`s; they get the metrics, keyed by round.
        flows: what leaves clients in each round.

    Raises:
        UnpricedFlowError: if something leaves clients that nothing prices.
        SamplingMismatchError: if a round is not what was declared, which is found before the round
            is charged; or not what was charged.
        ValueError: if the budget does not know rounds of `state`, or `state` is that of another
            training: one whose rounds do something else.
    """
    if budget is not None:
        refuse_unpriced(flows)
    flows = tuple(flows)
    if state is None:
        state = process.initialize()
    elif budget is not None and not same_rounds(state, process.initialize()):
        raise ValueError(
            "state must be of this process: its record says another mechanism, clip, sampling or "
            "noise, from which the cost of later rounds would follow. Start another training"
        )
    start, seeded = rounds_run(state), False
    if budget is not None:
        _refuse_unknown(budget, rounds_charged(state))
    for number in range(start, num_rounds):
        clients = clients_for(number)
        event = None if budget is None else planned_event(state, len(clients))
        seeded, spent = event is None, None
        if budget is not None and event is not None:
            if event == _NOTHING:
                spent = budget.spent
            elif budget.would_exceed(event):
                return Training(state, number - start, "budget", budget.spent, flows)
            else:
                spent = budget.charge(event, number, num_reports=len(clients))
        output = process.next(state, clients)
        if budget is not None:
            ran = _ran(output.state, event, number, len(clients))
            if ran is not None:
                if budget.would_exceed(ran):
                    return Training(state, number - start, "budget", budget.spent, flows)
                spent = budget.charge(ran, number, num_reports=last_reports(output.state))
        state = output.state
        metrics = output.metrics if hasattr(output, "metrics") else output.measurements
        for manager in release_managers:
            asyncio.run(manager.release(metrics, number))
        if on_round is not None:
            on_round(Round(number, spent, metrics, state))
    rounds = max(0, num_rounds - start)
    known = None if budget is None or seeded else budget.spent
    return Training(state, rounds, "rounds", known, flows)


_NOTHING = dp_accounting.NoOpDpEvent()


def _ran(
    state: Any, event: dp_accounting.DpEvent | None, number: int, num_clients: int
) -> dp_accounting.DpEvent | None:
    """What has to be charged of the last round beside `event`; None where that is what ran.

    Raises:
        SamplingMismatchError: if something else ran than that event, or less of it.
    """
    if rounds_run(state) != number + 1:
        raise SamplingMismatchError(
            f"round {number} is not the last one in the record of its own state; its result is "
            "dropped"
        )
    ran = last_event(state)
    if ran in (event, _NOTHING):
        return None
    if not 0 < last_reports(state) < num_clients:
        raise SamplingMismatchError(
            f"round {number} was charged for the reports of {num_clients} clients, and something "
            "else ran; its result is dropped"
        )
    return ran


def _refuse_unknown(budget: TrainingBudget, rounds: int) -> None:
    if getattr(budget, "charged", False):  # a ledger holds what earlier programs spent
        return
    if budget.spent.num_charges < rounds:
        raise ValueError(
            f"budget must hold the {rounds} rounds that the state has run; it knows of "
            f"{budget.spent.num_charges}"
        )
