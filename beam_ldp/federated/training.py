"""Rounds of a learning process under a privacy budget: asked before each, charged before each.

`Flow` is what leaves clients in a round, as whoever reads the computation tells it; `EpsilonBudget`
is a target that a training must not exceed; `train` runs the rounds.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import dp_accounting

from beam_ldp.accounting import PrivacyBound, ShuffleAccountant
from beam_ldp.federated.record import (
    Reader,
    last_event,
    last_reports,
    last_withheld,
    least_clients,
    planned_event,
    privacy_events,
    round_configs,
    rounds_charged,
    rounds_per_epoch,
    rounds_run,
    same_rounds,
    unfinished_epoch,
)
from beam_ldp.federated.samplers import SamplingMismatchError, TooFewCameError
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.mean.failures import Failures

OURS, COUNT, PUBLIC, UNPRICED = "ours", "count", "public", "unpriced"


class UnpricedFlowError(ValueError):
    """Something leaves clients that nothing prices and nobody declared public."""


@dataclass(frozen=True)
class Flow:
    """One thing that leaves clients.

    Attributes:
        name: aggregation and what of a client it depends on; what `public_flows` declares.
        aggregation: how it comes to the server, in the framework's words.
        type: of what one client sends.
        verdict: "ours", "count", "public" or "unpriced".
        protection: what was done to it on the client, or the reason why it is public.
    """

    name: str
    aggregation: str
    type: str
    verdict: str
    protection: str = ""

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def refuse_unpriced(flows: Sequence[Flow]) -> None:
    """Refuse flows that nothing prices.

    Raises:
        UnpricedFlowError: naming each of them.
    """
    unpriced = [flow for flow in flows if flow.verdict == UNPRICED]
    if unpriced:
        told = "; ".join(f"{flow.name}, of type {flow.type}" for flow in unpriced)
        raise UnpricedFlowError(
            "what leaves clients must be accounted for or declared public, and this is neither: "
            f"{told}. Leave it out (metrics_aggregator=tff_adapters.no_client_metrics, an "
            f"aggregator of tff_adapters), or give public_flows={{name: reason}}"
        )


class Spending(Protocol):
    """What was charged so far."""

    @property
    def epsilon(self) -> float: ...
    @property
    def local_epsilon(self) -> float: ...
    @property
    def num_charges(self) -> int: ...


class TrainingBudget(Protocol):
    """What a training asks and charges: an `EpsilonBudget`, or `mlflow_ldp.PrivacyTracker`.

    `charge` may raise a `ValueError` where others have charged the same budget since it was asked;
    nothing is charged then.
    """

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
        reader: whom the rounds of `state` are priced against, as `train` was told.

    Raises:
        ValueError: if a parameter is out of range, or the state was made with a seed.
    """

    def __init__(
        self,
        epsilon: float | None,
        delta: float,
        *,
        state: Any = None,
        adaptive: bool = False,
        reader: Reader = "shuffled",
    ) -> None:
        if epsilon is not None and not (math.isfinite(epsilon) and epsilon > 0):
            raise ValueError(f"epsilon must be a finite number > 0 or None, got {epsilon}")
        check_fraction("delta", delta)
        self.epsilon, self.delta = epsilon, float(delta)
        self._accountant = ShuffleAccountant(adaptive=adaptive)
        self._charges = 0
        self._room: tuple[dp_accounting.DpEvent | None, int] = (None, 0)  # so many more of it fit
        if state is not None:
            events = privacy_events(state, reader)
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


@dataclass(frozen=True)
class Round:
    """One round that ran.

    Attributes:
        number: of the round, from 0.
        spent: so far, as the budget tells; None where nothing is priced: a seeded run, no budget.
        metrics: what the process measured.
        state: after the round.
        withheld: whether it has no result, since a check left too few of its reports.
    """

    number: int
    spent: Spending | None
    metrics: Any
    state: Any
    withheld: bool = False

    @property
    def epsilon(self) -> float | None:
        """Spent so far, central, proved, at the budget's delta. Worked out when asked for."""
        return None if self.spent is None else self.spent.epsilon

    @property
    def local_epsilon(self) -> float | None:
        """Sum for somebody who took part in every round."""
        return None if self.spent is None else self.spent.local_epsilon


StoppedBy = Literal["rounds", "budget", "failures"]


@dataclass(frozen=True)
class Training:
    """What a training came to.

    Attributes:
        state: after the last round.
        rounds: rounds that this call ran, and that have a result.
        stopped_by: "rounds" if all ran; "budget" if the next one would have exceeded the target;
            "failures" if training failed on most clients in three rounds in a row.
        spent: as the budget tells; None for a seeded run, or without a budget.
        flows: what left clients in each round; nothing was read without a budget.
        withheld: rounds beside `rounds` to which too few came, or of whose reports a check left too
            few: charged, and not released.
    """

    state: Any
    rounds: int
    stopped_by: StoppedBy
    spent: Spending | None
    flows: tuple[Flow, ...] = ()
    withheld: int = 0


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
    keep: Callable[[Round], None] | None = None,
    reader: Reader = "shuffled",
) -> Training:
    """Run rounds until all are done or the next one would exceed the budget.

    Nothing runs if one of `flows` is unpriced. What leaves clients is for a framework's adapter to
    read from its computation: `tff_adapters.train` does.

    Before each round its event is worked out from the record in the state and the number of
    clients, the budget is asked, and charged. After it, the record must say that this is what ran:
    else the result of the round is dropped, and stays charged.

    Where the sampling declares how many come at least (`DeclaredSampling(least_received=...)`), a
    round to which fewer come is not released, and the model stays what it was. It counts among
    `num_rounds`, and stays charged, at the price of that least number: readers of models learn
    nothing from it (who comes depends on nobody's value), but its reports were sent. The next one
    has clients of its own. In shuffled epochs, whose price supposes as many in every round, a
    training ends there, and the epoch stays charged, whole.

    Where a check of reports (`drop_colluders`) leaves fewer than that number, the round is not
    released either. It is one of the rounds in the state, its result is zeros, and it is charged as
    one of that least number, in epochs too, which go on: who is left depends on the reports, and so
    does that it was withheld. Readers learn that much, unlike of a round to which too few came.

    Where the process measures `failing`, the estimated share of clients whose update was not
    finite, the training ends with `stopped_by="failures"` once that share exceeds a half in three
    rounds in a row (`beam_ldp.randomizers.mean.failures.Failures`). Seeded rounds are not tested.

    Resumes where `state` is: its rounds count towards `num_rounds`, and the budget must hold what
    they spent (`EpsilonBudget(state=...)`, or a tracker with the ledger that was charged).

    Args:
        process: a learning process (or an aggregation process of client values) whose aggregator
            is one of ours: whatever has `initialize()` and `next(state, clients)`.
        clients_for: the clients of a round who came, by its number. If the aggregator declares a
            sampling, they must be drawn so.
        num_rounds: rounds in all, those of `state` and those that are not released included.
        budget: see `TrainingBudget`. None: nothing is asked, charged or checked, whatever the
            process releases; for baselines.
        state: to go on from; by default the process's initial state.
        on_round: called after each round.
        release_managers: with a coroutine `release(metrics, number)`, such as
            `tff.program.ReleaseManager`s; they get the metrics, keyed by round.
        flows: what leaves clients in each round.
        keep: called after each round before anybody gets its result: writes a checkpoint.
        reader: whom a round is priced against. "shuffled" sees shuffled messages, or their sums,
            and models; "local" sees reports with their senders, as the server of a framework does
            through which no shuffler comes.

    Raises:
        UnpricedFlowError: if something leaves clients that nothing prices.
        SamplingMismatchError: if a round is not what was declared, which is found before the round
            is charged; or not what was charged.
        TooFewCameError: at such a round of a shuffled epoch.
        ValueError: if the budget does not know rounds of `state`, or `state` is that of another
            training: one whose rounds do something else; or amid an epoch of `ShuffledEpochs`.
    """
    rounds = _Rounds(process, budget, on_round, release_managers, keep, reader)
    if budget is not None:
        refuse_unpriced(flows)
    state = rounds.start(state)
    number = rounds_run(state)
    for _ in range(number, num_rounds):
        after = rounds.run(number, state, clients_for(number))
        if after is None:
            spent = None if budget is None else budget.spent
            return rounds.ended(state, "budget", spent, flows)
        number += after is not state
        state = after
        if rounds.failures is not None and rounds.failures.share is not None:
            return rounds.ended(state, "failures", rounds.known, flows)
    return rounds.ended(state, "rounds", rounds.known, flows)


@dataclass
class _Rounds:
    """Rounds of a process, each asked and charged before it runs; the parameters are `train`'s.

    A client that sends what no honest client can ends nothing: it is left out of the sum. The round
    is then that of a smaller crowd, and is charged once more, as that, before anybody gets its
    result: what was charged before it ran cannot be taken back, so it costs at most about twice
    what it was planned to. Where that exceeds the budget, the result is dropped, and the training
    ends.
    """

    process: Any
    budget: TrainingBudget | None
    on_round: Callable[[Round], None] | None
    release_managers: Sequence[Any]
    keep: Callable[[Round], None] | None = None
    reader: Reader = "shuffled"
    seeded: bool = False  # whether the last round was that of a simulation
    released: int = 0
    withheld: int = 0  # rounds to which too few came, or of which too few were left
    failures: Failures | None = None  # once the process has measured them

    @property
    def known(self) -> Spending | None:
        """What was spent, as the budget tells; None where nothing is priced."""
        return None if self.budget is None or self.seeded else self.budget.spent

    def start(self, state: Any) -> Any:
        """The state to go on from.

        Raises:
            ValueError: if it is that of another training, or the budget does not know its rounds.
        """
        if state is None:
            state = self.process.initialize()
        elif self.budget is not None:
            refuse_another_training(state, self.process.initialize())
        if self.budget is not None:
            _refuse_unknown(self.budget, rounds_charged(state))
            refuse_half_an_epoch(state)
        return state

    def run(self, number: int, state: Any, clients: Sequence[Any]) -> Any:
        """The state after a round, the same one if too few came; None beyond the budget."""
        budget = self.budget
        least = 0 if budget is None else least_clients(state)
        asked = max(least, len(clients))
        event = None if budget is None else planned_event(state, asked, self.reader)
        self.seeded, spent = event is None, None
        if budget is not None and event is not None:
            spent = self._charged(event, number, len(clients))
            if spent is None:
                return None
        if len(clients) < least:
            if rounds_per_epoch(state) > 1:
                raise TooFewCameError(
                    f"{len(clients)} clients came to a round of a shuffled epoch, whose price "
                    f"supposes at least {least} in each of its rounds: the training ends, and the "
                    "whole epoch stays charged"
                )
            self.withheld += 1
            return state
        output = self.process.next(state, clients)
        withheld = budget is not None and last_withheld(output.state)
        if budget is not None:
            ran = _ran(output.state, event, number, len(clients), self.reader)
            if ran is not None:  # a smaller crowd than was charged
                spent = self._charged(ran, number, last_reports(output.state))
                if spent is None:
                    return None
        self.withheld += withheld
        self.released += not withheld
        if spent is not None and not withheld:
            self._add_failures(output)
        self._tell(Round(number, spent, _metrics(output), output.state, withheld))
        return output.state

    def ended(
        self,
        state: Any,
        stopped_by: StoppedBy,
        spent: Spending | None,
        flows: Sequence[Flow],
    ) -> Training:
        """What it came to."""
        return Training(state, self.released, stopped_by, spent, tuple(flows), self.withheld)

    def _charged(self, event: dp_accounting.DpEvent, number: int, reports: int) -> Spending | None:
        """What is spent with this event; None where it does not fit, and is not charged."""
        assert self.budget is not None
        if event == _NOTHING:
            return self.budget.spent
        if self.budget.would_exceed(event):
            return None
        try:
            return self.budget.charge(event, number, num_reports=reports)
        except ValueError:
            if self.budget.would_exceed(event):  # another program had the last of it in between
                return None
            raise

    def _add_failures(self, output: Any) -> None:
        share = measured(_metrics(output), "failing", float)
        reports, configs = last_reports(output.state), round_configs(output.state)
        if share is None or not reports or len(configs) != 1:  # else, whose share it is is unknown
            return
        if self.failures is None:
            self.failures = Failures(configs[0].randomizers()[0], "")
        self.failures.add_share(share, reports * configs[0].values_per_client)

    def _tell(self, done: Round) -> None:
        if self.keep is not None:
            self.keep(done)
        for manager in self.release_managers:
            asyncio.run(manager.release(done.metrics, done.number))
        if self.on_round is not None:
            self.on_round(done)


def _metrics(output: Any) -> Any:
    """What a process measured, of a learning process or of an aggregation."""
    return output.metrics if hasattr(output, "metrics") else output.measurements


def measured(metrics: Any, what: str, kind: Any = int) -> Any:
    """What the metrics of a round hold under this name, at any depth; None if nothing."""
    if not hasattr(metrics, "items"):
        return None
    for name, value in metrics.items():
        found = kind(value) if name == what else measured(value, what, kind)
        if found is not None:
            return found
    return None


_NOTHING = dp_accounting.NoOpDpEvent()


def _ran(
    state: Any,
    event: dp_accounting.DpEvent | None,
    number: int,
    num_clients: int,
    reader: Reader = "shuffled",
) -> dp_accounting.DpEvent | None:
    """What has to be charged of the last round beside `event`; None where that is what ran.

    Raises:
        SamplingMismatchError: if something else ran than that event, or less of it.
    """
    if rounds_run(state) != number + 1:
        raise SamplingMismatchError(
            f"round {number} is not the last round in the record of its own state; its result is "
            "dropped"
        )
    ran = last_event(state, reader)
    if ran in (event, _NOTHING):
        return None
    if not (last_withheld(state) or 0 < last_reports(state) < num_clients):
        raise SamplingMismatchError(
            f"round {number} was charged for the reports of {num_clients} clients, and something "
            "else ran; its result is dropped"
        )
    return ran


def refuse_another_training(state: Any, start: Any) -> None:
    """The price of a round follows from the record in the state: it must be of what runs.

    Raises:
        ValueError: if the rounds of `state` are not those of the process that starts with `start`.
    """
    if not same_rounds(state, start):
        raise ValueError(
            "state must be of this process: its record says another mechanism, clip, sampling "
            "or noise, from which the cost of later rounds would follow. Start another training"
        )


def refuse_half_an_epoch(state: Any) -> None:
    """The order of its other clients is lost: a new one would take some of them twice.

    Raises:
        ValueError: if the state is amid an epoch of `ShuffledEpochs`.
    """
    ran, each = unfinished_epoch(state)
    if ran:
        raise ValueError(
            f"state must be of the end of an epoch of {each} rounds, and is of {ran} more: who was "
            "in them is not known. Go on from the last state that ended an epoch"
        )


def _refuse_unknown(budget: TrainingBudget, rounds: int) -> None:
    if getattr(budget, "charged", False):  # a ledger holds what earlier programs spent
        return
    if budget.spent.num_charges < rounds:
        raise ValueError(
            f"budget must hold all rounds that the state has run, {rounds}; it holds "
            f"{budget.spent.num_charges}"
        )
