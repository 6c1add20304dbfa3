"""Rounds under a budget, of a process that no framework made: asked before, stopped, resumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import dp_accounting
import numpy as np
import pytest

from beam_ldp.accounting import ShuffleAccountant, local_event, shuffled_event
from beam_ldp.accounting.two_ledgers import central_round_event
from beam_ldp.federated import (
    DeclaredSampling,
    EpsilonBudget,
    Flow,
    SamplingMismatchError,
    ShuffledEpochs,
    UnpricedFlowError,
    planned_event,
    privacy_events,
    train,
)
from beam_ldp.federated.record import CentralRecord, RoundsRecord, start_record
from beam_ldp.randomizers.mean import LInfMean
from tests.federated.records import record

DELTA = 1e-5
CLIENTS = 40
MECHANISM = LInfMean(3, 2.0, messages=(1,), message_epsilons=(2.0,))


class State(NamedTuple):
    total: np.ndarray
    privacy: RoundsRecord


class Output(NamedTuple):
    state: State
    metrics: dict[str, Any]


class Summing:
    """Adds up what clients send, in NumPy; `lost` clients are not in the sum."""

    def __init__(self, sampling: DeclaredSampling | None = None, lost: int = 0) -> None:
        self._start, self._lost = record([MECHANISM], [], sampling=sampling), lost

    def initialize(self) -> State:
        return State(np.zeros(3), self._start)

    def next(self, state: State, clients: Sequence[np.ndarray]) -> Output:
        reports = MECHANISM.randomize(np.stack(clients[self._lost :]), np.random.default_rng(5))
        ran = np.array([[len(reports), 1]])
        told = state.privacy._replace(rounds=np.concatenate([state.privacy.rounds, ran]))
        return Output(State(state.total + MECHANISM.accumulate(reports).sum(), told), {"n": 1})


def clients(_number: int, count: int = CLIENTS) -> list[np.ndarray]:
    return [np.zeros(3)] * count


def price(event: dp_accounting.DpEvent, count: int) -> float:
    return float(ShuffleAccountant().compose(event, count).get_epsilon(DELTA))


@pytest.mark.exact
def test_a_training_needs_no_framework_stops_before_its_target_and_resumes():
    """The target lies between the prices of 3 and 4 rounds."""
    event = shuffled_event(MECHANISM, CLIENTS)
    target, seen = (price(event, 3) + price(event, 4)) / 2, []
    first = train(Summing(), clients, 2, EpsilonBudget(target, DELTA), on_round=seen.append)
    assert (first.rounds, first.stopped_by) == (2, "rounds")
    assert [r.epsilon for r in seen] == [price(event, 1), price(event, 2)]
    budget = EpsilonBudget(target, DELTA, state=first.state)
    more = train(Summing(), clients, 100, budget, state=first.state)
    assert (more.rounds, more.stopped_by) == (1, "budget")
    assert more.spent is not None and more.spent.epsilon == price(event, 3)


@pytest.mark.exact
def test_a_round_is_kept_before_anybody_gets_its_result():
    told = []

    class Manager:
        async def release(self, metrics, number):
            told.append(("released", number))

    train(
        Summing(), clients, 2, EpsilonBudget(None, DELTA), release_managers=[Manager()],
        keep=lambda done: told.append(("kept", done.number)),
        on_round=lambda done: told.append(("shown", done.number)),
    )  # fmt: skip
    assert told == [(what, n) for n in (0, 1) for what in ("kept", "released", "shown")]


def test_a_round_that_lost_a_report_is_charged_as_that_too():
    budget = EpsilonBudget(None, DELTA)
    train(Summing(lost=1), clients, 1, budget)
    both = ShuffleAccountant()
    for n in (CLIENTS, CLIENTS - 1):
        both.compose(shuffled_event(MECHANISM, n))
    assert budget.spent.num_charges == 2
    assert budget.spent.epsilon == float(both.get_epsilon(DELTA))


@pytest.mark.exact
def test_an_epoch_is_asked_and_charged_once_and_goes_on_from_its_end_only():
    """Four rounds of 40 are everybody; the target lies between the prices of 2 and 3 epochs."""
    sampler = ShuffledEpochs(4 * CLIENTS, CLIENTS)
    sampling = sampler.declared()
    epoch = sampling.event(local_event(MECHANISM), 1)
    target, met = (price(epoch, 2) + price(epoch, 3)) / 2, []

    def clients_for(number):
        met.extend(sampler.sample(number=number).clients)
        return clients(number)

    process, budget = Summing(sampling), EpsilonBudget(target, DELTA)
    first = train(process, clients_for, 4, budget)
    assert sorted(met) == list(range(4 * CLIENTS)) and budget.spent.num_charges == 1
    budget = EpsilonBudget(target, DELTA, state=first.state)
    more = train(process, clients_for, 100, budget, state=first.state)
    assert (more.rounds, more.stopped_by) == (4, "budget")
    assert budget.spent.num_charges == 2 and budget.spent.local_epsilon == 4.0
    assert budget.spent.epsilon == price(epoch, 2)
    amid = train(process, lambda n: clients(n), 6, EpsilonBudget(None, DELTA)).state
    with pytest.raises(ValueError, match="end of an epoch of 4 rounds, and is of 2 more"):
        train(process, clients_for, 9, EpsilonBudget(None, DELTA, state=amid), state=amid)


@pytest.mark.exact
def test_an_epoch_deals_out_everybody_once_and_never_half_a_round():
    sampler, generator = ShuffledEpochs(10, 3), np.random.default_rng(1)
    for start in (0, 3, 6):
        met = [
            i for n in range(start, start + 3) for i in sampler.sample(generator, number=n).clients
        ]
        assert len(set(met)) == 9 and set(met) <= set(range(10))
    assert sampler == ShuffledEpochs(10, 3)  # what it remembers is no part of what it is
    for number in (10, 11):
        with pytest.raises(SamplingMismatchError, match="begin an epoch of 3 rounds, got"):
            sampler.sample(number=number)
    sampler.sample(number=9)
    with pytest.raises(SamplingMismatchError, match="go on where an epoch ended"):
        sampler.sample(number=9 + 2)
    again = [sampler.sample(number=n).clients for n in (12, 13)]
    assert not set(again[0]) & set(again[1])
    sampler.check(again[0])
    with pytest.raises(ValueError, match=r"cohort_size must lie in \[1, 10\]"):
        ShuffledEpochs(10, 11)


class Shared(EpsilonBudget):
    """Room for one round, which another program has in between."""

    taken = False

    def would_exceed(self, event, count=1):
        return self.taken

    def charge(self, event, step=None, *, num_reports=None):
        self.taken = num_reports == CLIENTS
        raise ValueError("it does not fit")


@pytest.mark.exact
def test_whose_budget_another_program_uses_up_ends_as_one_whose_budget_is_used_up():
    """Any other refusal of a charge stays one."""
    done = train(Summing(), clients, 3, Shared(None, DELTA))
    assert (done.rounds, done.stopped_by, done.spent.num_charges) == (0, "budget", 0)
    with pytest.raises(ValueError, match="it does not fit"):
        train(Summing(), lambda n: clients(n, 5), 3, Shared(None, DELTA))


@pytest.mark.exact
def test_clients_that_were_not_drawn_as_declared_are_never_asked():
    budget = EpsilonBudget(None, DELTA)
    with pytest.raises(SamplingMismatchError, match=r"sampling gives 5\. Draw a new set"):
        train(Summing(DeclaredSampling(100, 5)), lambda n: clients(n, 6), 1, budget)
    assert budget.spent.num_charges == 0


@pytest.mark.exact
def test_nothing_runs_where_something_leaves_clients_without_a_price():
    budget = EpsilonBudget(None, DELTA)
    ours = Flow("sum of 0", "sum", "float32[3]", "ours")
    flows = [ours, Flow("loss", "sum", "float32", "unpriced")]
    with pytest.raises(UnpricedFlowError, match="this is neither: loss, of type float32"):
        train(Summing(), clients, 1, budget, flows=flows)
    assert budget.spent.num_charges == 0
    assert train(Summing(), clients, 1, budget, flows=[ours]).flows == (ours,)


@pytest.mark.exact
def test_the_state_of_another_training_is_refused():
    state = Summing(DeclaredSampling(100, CLIENTS)).initialize()
    with pytest.raises(ValueError, match="state must be of this process"):
        train(Summing(), clients, 1, EpsilonBudget(None, DELTA), state=state)


@pytest.mark.exact
def test_refused_budgets():
    for options in ({"epsilon": 0.0, "delta": DELTA}, {"epsilon": math.inf, "delta": DELTA}):
        with pytest.raises(ValueError, match="epsilon must be a finite number > 0 or None"):
            EpsilonBudget(**options)
    with pytest.raises(ValueError, match="delta must lie in"):
        EpsilonBudget(1.0, 0.0)


class Counting(EpsilonBudget):
    """Counts how often its accountant is asked."""

    asked = 0

    def _fits(self, event, count):
        self.asked += 1
        return super()._fits(event, count)


@pytest.mark.exact
def test_many_equal_rounds_take_few_evaluations():
    """3,000 rounds: about two evaluations per doubling, and one search at the end."""
    event = DeclaredSampling(60_000, 2_000).event(local_event(MECHANISM), 1)
    target = price(event, 3000) * (1 + 1e-9)
    budget = Counting(target, DELTA)
    rounds = 0
    while rounds < 4000 and not budget.would_exceed(event):
        budget.charge(event)
        rounds += 1
    assert rounds == 3000 and budget.spent.epsilon <= target
    assert budget.asked <= 60


@pytest.mark.exact
def test_what_is_remembered_is_of_the_event_that_is_asked_about():
    small, large = (shuffled_event(MECHANISM, n) for n in (4000, 40))
    budget = Counting(price(large, 1) * 1.001, DELTA)
    for _ in range(5):
        assert not budget.would_exceed(small)
        budget.charge(small)
    assert budget.would_exceed(large)
    assert not budget.would_exceed(small) and not budget.would_exceed(small, 2)
    budget.charge(small)
    fresh = EpsilonBudget(budget.epsilon, DELTA)
    for _ in range(6):
        fresh.charge(small)
    for count in (1, 3, 300, 10_000):
        assert budget.would_exceed(small, count) == fresh.would_exceed(small, count)


@pytest.mark.exact
def test_another_event_takes_room_from_the_first():
    small, large = (shuffled_event(MECHANISM, n) for n in (4000, 40))
    budget = EpsilonBudget(price(small, 100), DELTA)
    for _ in range(60):
        assert not budget.would_exceed(small)
        budget.charge(small)
    budget.charge(large)  # whatever it was asked
    assert budget.would_exceed(small)


@pytest.mark.exact
def test_records_of_servers_that_add_noise_are_read_in_the_same_ways():
    event = dp_accounting.GaussianDpEvent(3.0)
    start = start_record(event)
    state = {"aggregator": CentralRecord(start.event, np.int64(2), np.int64(0))}
    assert planned_event(state, 7) == event and privacy_events(state) == [(event, 2)]
    budget = EpsilonBudget(None, DELTA, state=state)
    assert budget.spent.num_charges == 2 and budget.spent.epsilon == price(event, 2)
    with pytest.raises(ValueError, match='reader must be "shuffled"'):
        planned_event(state, 7, "local")


def test_an_adaptive_budget_knows_a_servers_coins():
    """Rounds whose sizes are chosen on the way need orders, which coins had none of."""
    budget = EpsilonBudget(1.0, DELTA, adaptive=True)
    round_event = central_round_event(0.01, 2.0)
    while not budget.would_exceed(round_event, 50):
        for _ in range(50):
            budget.charge(round_event)
    fixed = ShuffleAccountant().compose(round_event, budget.spent.num_charges)
    assert budget.spent.num_charges > 100
    assert fixed.get_epsilon(DELTA) < budget.spent.epsilon <= 1.0


@pytest.mark.exact
def test_a_reader_who_sees_senders_is_charged_the_local_price_whatever_came():
    """Also where fewer reports came than were charged: to that reader a crowd is worth nothing."""

    class Listing(EpsilonBudget):
        def charge(self, event, step=None, *, num_reports=None):
            assert event == local_event(MECHANISM)
            return super().charge(event, step, num_reports=num_reports)

    for lost in (0, 1):
        training = train(Summing(lost=lost), clients, 3, Listing(None, 1e-6), reader="local")
        assert training.spent.num_charges == 3
        assert training.spent.local_epsilon == 3 * MECHANISM.local_epsilon
        resumed = EpsilonBudget(None, 1e-6, state=training.state, reader="local")
        assert resumed.spent.epsilon == training.spent.epsilon
        assert EpsilonBudget(None, 1e-6, state=training.state).spent.epsilon < resumed.spent.epsilon
