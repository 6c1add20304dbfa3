"""Rounds under a budget: asked before, stopped on the exact round, resumed; what MLflow is told."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from dataclasses import replace

import mlflow
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.accounting import ShuffleAccountant, local_event, shuffled_event
from beam_ldp.federated import FixedSizeSampling, ShuffledEpochs
from beam_ldp.ledger import BudgetExceededError, BudgetLedger
from beam_ldp.randomizers.mean import LInfMean
from mlflow_ldp import PrivacyTracker
from tff_adapters import (
    ChargedProcess,
    ClientKernel,
    DeclaredSampling,
    EpsilonBudget,
    LocallyPrivateMeanFactory,
    PrivacyReleaseManager,
    SamplingMismatchError,
    build_cldp_sgd,
    planned_event,
    privacy_events,
    train,
)
from tff_adapters.models import model_fn_for

DELTA = 1e-5
CLIENTS = 40
MECHANISM = LInfMean(3, 2.0, messages=(1,), message_epsilons=(2.0,))
FLOATS3 = tff.TensorType(np.float32, (3,))


@pytest.fixture(scope="module")
def process():
    return LocallyPrivateMeanFactory(MECHANISM).create(FLOATS3)


def clients(_number, count=CLIENTS):
    return [np.zeros(3, np.float32)] * count


def price(event, count):
    return float(ShuffleAccountant().compose(event, count).get_epsilon(DELTA))


@pytest.mark.exact
def test_stops_before_the_round_that_would_exceed(process):
    """The target lies between the prices of 3 and 4 rounds."""
    event = shuffled_event(MECHANISM, CLIENTS)
    target = (price(event, 3) + price(event, 4)) / 2
    seen = []
    training = train(process, clients, 100, EpsilonBudget(target, DELTA), on_round=seen.append)
    assert (training.rounds, training.stopped_by) == (3, "budget")
    assert training.state.privacy.rounds.tolist() == [[CLIENTS, 3]]
    assert [r.number for r in seen] == [0, 1, 2]
    assert [r.epsilon for r in seen] == pytest.approx([price(event, n) for n in (1, 2, 3)])
    assert [r.local_epsilon for r in seen] == [2.0, 4.0, 6.0]
    assert training.spent.epsilon == seen[-1].epsilon <= target < price(event, 4)
    assert seen[0].metrics["mean"]["reports"] == CLIENTS


@pytest.mark.exact
def test_a_target_that_is_met_exactly_is_not_exceeded(process):
    event = shuffled_event(MECHANISM, CLIENTS)
    training = train(process, clients, 3, EpsilonBudget(price(event, 2), DELTA))
    assert (training.rounds, training.stopped_by) == (2, "budget")


@pytest.mark.exact
def test_resumes_with_what_was_spent(process):
    event = shuffled_event(MECHANISM, CLIENTS)
    target = (price(event, 3) + price(event, 4)) / 2
    first = train(process, clients, 2, EpsilonBudget(target, DELTA))
    assert (first.rounds, first.stopped_by) == (2, "rounds")
    with pytest.raises(ValueError, match="must hold all rounds that the state has run, 2"):
        train(process, clients, 9, EpsilonBudget(target, DELTA), state=first.state)
    numbers = []
    budget = EpsilonBudget(target, DELTA, state=first.state)
    second = train(
        process, clients, 9, budget, state=first.state, on_round=lambda r: numbers.append(r.number)
    )
    assert (numbers, second.stopped_by) == ([2], "budget")
    assert second.spent.epsilon == pytest.approx(price(event, 3))


@pytest.mark.exact
@pytest.mark.parametrize(
    "other",
    [
        LocallyPrivateMeanFactory(LInfMean(3, 8.0, messages=(1,), message_epsilons=(8.0,))),
        LocallyPrivateMeanFactory(replace(MECHANISM, radius=5.0)),
        LocallyPrivateMeanFactory(MECHANISM, sampling=DeclaredSampling(100, CLIENTS)),
        LocallyPrivateMeanFactory(MECHANISM, min_reports=30),
    ],
    ids=["mechanism", "clip", "sampling", "min_reports"],
)  # fmt: skip
def test_the_state_of_another_training_is_refused(process, other):
    """Its record would have priced every further round by the mechanism that ran before."""
    first = train(process, clients, 1, EpsilonBudget(None, DELTA))
    budget = EpsilonBudget(None, DELTA, state=first.state)
    with pytest.raises(ValueError, match="state must be of this process"):
        train(other.create(FLOATS3), clients, 2, budget, state=first.state)
    assert budget.spent.num_charges == 1
    again = LocallyPrivateMeanFactory(MECHANISM).create(FLOATS3)
    assert train(again, clients, 2, budget, state=first.state).spent.num_charges == 2


@pytest.mark.exact
def test_a_short_round_leaves_the_ledger_as_it_was(tmp_path):
    """Too few to be a sample, too few for the threshold: known before, charged never."""
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path}/ledger.db")
    ledger.set_budget("people", epsilon=1e6, delta=DELTA)
    before = ledger.status("people").committed
    for options, message in (
        (
            {"sampling": DeclaredSampling(100, 5)},
            "a round of 4 clients has no privacy cost: .*Draw a new",
        ),
        ({"min_reports": 5}, "a round of 4 clients gives no result: min_reports is 5. Wait until"),
    ):
        process = LocallyPrivateMeanFactory(MECHANISM, **options).create(FLOATS3)
        with PrivacyTracker(
            "people", DELTA, ledger=ledger, tracking_uri=f"sqlite:///{tmp_path}/mlflow.db"
        ) as tracker:
            with pytest.raises(SamplingMismatchError, match=message):
                train(process, lambda n: clients(n, 4), 1, tracker)
            assert tracker.spent.num_charges == 0
    assert BudgetLedger(ledger.url).status("people").committed == before


@pytest.mark.exact
def test_rounds_of_drawn_clients_some_of_whom_stay_away():
    """40 of 400 drawn, 30 % stay away, at least 25 come or the round is not released: charged all
    the same, before it runs; what is released is the mean of those who came."""
    sampler = FixedSizeSampling(400, 40, 25)
    process = LocallyPrivateMeanFactory(MECHANISM, sampling=sampler.declared()).create(FLOATS3)
    generator, came, shown = np.random.default_rng(1), [], []

    def clients_for(number):
        arrived = sampler.arrived(sampler.sample(generator).clients, 0.3, generator)
        came.append(len(arrived))
        return clients(number, len(arrived))

    budget = EpsilonBudget(None, DELTA)
    training = train(process, clients_for, 12, budget, on_round=shown.append)
    enough = [count for count in came if count >= 25]
    assert 0 < training.withheld == 12 - len(enough) and training.rounds == len(enough)
    assert [int(done.metrics["mean"]["reports"]) for done in shown] == enough
    whole = ShuffleAccountant()
    for count in came:
        lost = 40 - max(25, count)
        whole.compose(sampler.declared().event(local_event(MECHANISM), 1, lost))
    assert budget.spent.num_charges == 12
    assert budget.spent.epsilon == pytest.approx(float(whole.get_epsilon(DELTA)), rel=1e-9)
    # The aggregation itself refuses what no plan asked it about.
    with pytest.raises(Exception, match="gives 25 to 40"):
        process.next(training.state, clients(0, 24))


@pytest.mark.exact
def test_empty_rounds_cost_nothing(process):
    training = train(process, lambda n: clients(n, 0 if n % 2 else 5), 4, EpsilonBudget(9e9, DELTA))
    assert training.rounds == 4 and training.spent.num_charges == 2


class Losing:
    """A process that loses the last client of every round."""

    def __init__(self, process):
        self.initialize, self._process = process.initialize, process
        self.computation = process.next

    def next(self, state, values):
        return self._process.next(state, values[:-1])


class Gaining(Losing):
    """One that has another client than those that were charged."""

    def next(self, state, values):
        return self._process.next(state, [*values, values[0]])


@pytest.mark.exact
def test_a_round_that_received_more_than_charged_stops_the_run(process):
    told = []
    budget = EpsilonBudget(None, DELTA)
    with pytest.raises(SamplingMismatchError, match="round 0 was charged for the reports of 40"):
        train(Gaining(process), clients, 3, budget, on_round=told.append)
    assert told == [] and budget.spent.num_charges == 1


@pytest.mark.exact
def test_a_round_that_received_fewer_is_charged_as_that_too(process):
    """What was charged before it ran is not taken back."""
    training = train(Losing(process), clients, 2, EpsilonBudget(None, DELTA))
    both = ShuffleAccountant()
    for count in (CLIENTS, CLIENTS - 1):
        both.compose(shuffled_event(MECHANISM, count), 2)
    assert training.rounds == 2 and training.spent.num_charges == 4
    assert training.spent.epsilon == pytest.approx(float(both.get_epsilon(DELTA)))


@pytest.fixture
def nonsense(monkeypatch):
    """The first client that the shuffler sees sent what no honest client can."""
    whole = ClientKernel.unpack_possible

    def without_first(self, packed):
        reports, possible = whole(self, packed)
        return reports, possible & (tf.range(tf.shape(possible)[0]) > 0)

    monkeypatch.setattr(ClientKernel, "unpack_possible", without_first)


DRAWN = DeclaredSampling(100, 5)


@pytest.mark.exact
def test_a_client_of_a_sample_that_sends_nonsense_ends_nothing(nonsense):
    """It was drawn and came: the round goes on without it, as that of a crowd of four."""
    process = LocallyPrivateMeanFactory(MECHANISM, sampling=DRAWN).create(FLOATS3)
    told, budget = [], EpsilonBudget(None, DELTA)
    training = train(process, lambda n: clients(n, 5), 3, budget, on_round=told.append)
    assert training.rounds == len(told) == 3 and training.stopped_by == "rounds"
    assert told[0].metrics["mean"]["reports"] == 4
    assert told[0].metrics["shuffle"]["impossible"] == 1
    rest = DRAWN.event(local_event(MECHANISM), 1, 1)
    assert privacy_events(training.state) == [(rest, 3)]
    both = ShuffleAccountant()
    for event in (rest, DRAWN.event(local_event(MECHANISM), 1)):
        both.compose(event, 3)
    assert training.spent.epsilon == told[-1].epsilon
    assert training.spent.epsilon == pytest.approx(float(both.get_epsilon(DELTA)))


@pytest.mark.exact
def test_what_nonsense_costs_stays_within_the_target(nonsense):
    """Its result is dropped: nobody gets it, and the state is that of before."""
    process = LocallyPrivateMeanFactory(MECHANISM, sampling=DRAWN).create(FLOATS3)
    target = price(DRAWN.event(local_event(MECHANISM), 1), 1) * 1.001
    told, budget = [], EpsilonBudget(target, DELTA)
    training = train(process, lambda n: clients(n, 5), 3, budget, on_round=told.append)
    assert (training.rounds, training.stopped_by, told) == (0, "budget", [])
    assert budget.spent.num_charges == 1 and budget.spent.epsilon <= target
    assert privacy_events(training.state) == []


@pytest.mark.exact
def test_who_does_not_come_ends_the_round_of_a_sample():
    """Not even one client fewer has a price: whoever stays away may do so for a reason."""
    process = LocallyPrivateMeanFactory(MECHANISM, sampling=DRAWN).create(FLOATS3)
    with pytest.raises(Exception, match="the declared sampling gives 5 to 5 clients"):
        train(Losing(process), lambda n: clients(n, 5), 1, EpsilonBudget(None, DELTA))


@pytest.mark.exact
def test_too_few_honest_ones_give_no_result(nonsense):
    process = LocallyPrivateMeanFactory(MECHANISM, sampling=DRAWN, min_reports=5).create(FLOATS3)
    with pytest.raises(Exception, match="min_reports is 5"):
        train(process, lambda n: clients(n, 5), 1, EpsilonBudget(None, DELTA))


@pytest.mark.exact
def test_clients_that_were_not_drawn_as_declared_are_never_asked():
    declared = DeclaredSampling(100, 5)
    process = LocallyPrivateMeanFactory(MECHANISM, sampling=declared).create(FLOATS3)
    budget = EpsilonBudget(None, DELTA)
    with pytest.raises(SamplingMismatchError, match=r"sampling gives 5\. Draw a new set"):
        train(process, lambda n: clients(n, 6), 3, budget)
    assert budget.spent.num_charges == 0
    training = train(process, lambda n: clients(n, 5), 2, budget)
    assert training.spent.epsilon < price(shuffled_event(MECHANISM, 5), 2)


@pytest.mark.exact
def test_seeded_runs_are_not_charged():
    process = LocallyPrivateMeanFactory(MECHANISM, seed=1).create(FLOATS3)
    seen = []
    budget = EpsilonBudget(0.1, DELTA)
    training = train(process, clients, 2, budget, on_round=seen.append)
    assert training.spent is None and [r.epsilon for r in seen] == [None, None]
    assert budget.spent.num_charges == 0
    with pytest.raises(ValueError, match="state must not be of a seeded run"):
        EpsilonBudget(0.1, DELTA, state=training.state)


@pytest.mark.exact
def test_without_a_budget_nothing_is_asked_or_charged(process):
    seen = []
    training = train(process, clients, 2, None, on_round=seen.append)
    assert training.spent is None and [r.epsilon for r in seen] == [None, None]
    assert training.state.privacy.rounds.tolist() == [[CLIENTS, 2]]


class Stuck:
    """A process whose state does not count its second round."""

    def __init__(self, process):
        self.initialize, self._process, self._first = process.initialize, process, None
        self.computation = process.next

    def next(self, state, values):
        output = self._process.next(state, values)
        self._first = self._first or output
        return self._first


@pytest.mark.exact
def test_a_round_that_its_own_record_does_not_count_stops_the_run(process):
    with pytest.raises(SamplingMismatchError, match="round 1 is not the last round"):
        train(Stuck(process), clients, 3, EpsilonBudget(None, DELTA))


# Programs with a loop of their own ----------------------------------------------------------------


class Charges(list):
    """A tracker that knows whom it was told of."""

    def charge(self, event, step=None, *, num_reports=None):
        self.append((event, num_reports))


@pytest.mark.exact
def test_no_round_of_an_epoch_is_repeated_without_a_charge():
    """Two of four clients in a round. Nobody but its own program goes on amid an epoch, and that
    not with a round that was begun already: its clients would report twice at the price of once."""
    sampling = ShuffledEpochs(4, 2).declared()
    process = build_cldp_sgd(
        model_fn_for("logistic", (2,), 2, 1), norm="linf", clip=0.1, local_epsilon=2.0,
        learning_rate=0.1, aggregator=LocallyPrivateMeanFactory(
            LInfMean(6, 2.0, 0.1, messages=(1,), message_epsilons=(2.0,)), sampling=sampling),
    )  # fmt: skip
    rows = np.ones((1, 2), np.float32), np.zeros(1, np.int32)
    two = [tf.data.Dataset.from_tensor_slices(rows).batch(1)] * 2
    charges = Charges()
    program = ChargedProcess(process, charges)
    start = program.initialize()
    amid = program.next(start, two).state
    end = program.next(amid, two).state
    assert len(charges) == 1
    for again in (program, ChargedProcess(process, charges)):
        with pytest.raises(ValueError, match="of the end of an epoch of 2"):
            again.next(amid, two)
    assert len(charges) == 1
    ChargedProcess(process, charges).next(end, two)
    program.next(start, two)
    assert [reports for _, reports in charges] == [2, 2, 2]


@pytest.mark.exact
def test_a_saved_state_of_another_mechanism_is_not_gone_on_with_at_its_price():
    """Started anew at a local epsilon of 8, in the folder of a training at 1: each round would be
    charged as the record in the state says, at 1."""

    def program(local_epsilon):
        process = build_cldp_sgd(
            model_fn_for("logistic", (2,), 2, 1), norm="linf", clip=0.1,
            local_epsilon=local_epsilon, learning_rate=0.1,
        )  # fmt: skip
        return ChargedProcess(process, charges)

    charges = Charges()
    rows = np.ones((1, 2), np.float32), np.zeros(1, np.int32)
    two = [tf.data.Dataset.from_tensor_slices(rows).batch(1)] * 2
    state = program(1.0).next(program(1.0).initialize(), two).state
    with pytest.raises(ValueError, match="its record says another mechanism"):
        program(8.0).next(state, two)
    assert len(charges) == 1


# MLflow -----------------------------------------------------------------------------------------


@pytest.fixture
def server(tmp_path):
    return f"sqlite:///{tmp_path}/mlflow.db"


def history(server, run_id, name):
    client = mlflow.MlflowClient(server)
    return [(m.step, m.value) for m in client.get_metric_history(run_id, name)]


@pytest.mark.e2e
def test_training_is_charged_and_recorded(process, server, tmp_path):
    """A limit with room for 3 rounds: the training stops there, MLflow has both curves."""
    event = shuffled_event(MECHANISM, CLIENTS)
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path}/ledger.db")
    ledger.set_budget("people", epsilon=1e6, delta=DELTA)
    with PrivacyTracker(
        "people", DELTA, ledger=ledger, local_epsilon_limit=7.0, tracking_uri=server
    ) as tracker:
        training = train(
            process, clients, 9, tracker, release_managers=[PrivacyReleaseManager(tracker)]
        )
        run_id = tracker.mlflow_run_id
    assert (training.rounds, training.stopped_by) == (3, "budget")
    reports = history(server, run_id, "mean/reports")
    assert reports == [(n, CLIENTS) for n in range(3)]
    steps = history(server, run_id, "privacy.local_epsilon")
    assert steps == [(0, 2.0), (1, 4.0), (2, 6.0)]
    assert training.spent.local_epsilon == 6.0 and event == planned_event(training.state, CLIENTS)


class Recorder:
    """A tracker that has room for so many charges."""

    def __init__(self, room):
        self.room, self.charged, self.logged = room, [], []

    def charge(self, event, step=None, *, num_reports=None):
        if len(self.charged) == self.room:
            raise BudgetExceededError("full")
        self.charged.append((event, step, num_reports))

    def log(self, values, step):
        self.logged.append((step, dict(values)))


@pytest.mark.exact
def test_release_manager_charges_rounds_once_and_logs_numbers(process):
    tracker = Recorder(2)
    state = process.initialize()
    manager = PrivacyReleaseManager(tracker, state, process=process)
    assert isinstance(manager, tff.program.ReleaseManager)

    def metrics(reports):
        measured = OrderedDict(reports=np.int32(reports), predicted_error=math.inf)
        return OrderedDict(
            aggregator=OrderedDict(mean=measured), text="x", array=np.zeros(3), loss=[0.5]
        )

    for key in (0, 1, 1):
        asyncio.run(manager.release(metrics(CLIENTS), key))
    event = shuffled_event(MECHANISM, CLIENTS)
    assert tracker.charged == [(event, 0, CLIENTS), (event, 1, CLIENTS)]
    numbers = {"aggregator/mean/reports": CLIENTS, "loss/0": 0.5}
    assert tracker.logged == [(0, numbers), (1, numbers), (1, numbers)]
    with pytest.raises(BudgetExceededError):
        asyncio.run(manager.release(metrics(CLIENTS), 2))
    assert len(tracker.logged) == 3
    going_on = Recorder(9)
    asyncio.run(
        PrivacyReleaseManager(going_on, state, process=process).release(metrics(CLIENTS), 5)
    )
    assert going_on.charged == [(event, 4, None), (event, 5, CLIENTS)]
    asyncio.run(manager.release({"accuracy": 0.9}, 7))  # no round
    assert tracker.logged[-1] == (7, {"accuracy": 0.9})
    with pytest.raises(ValueError, match="state must hold one privacy record"):
        PrivacyReleaseManager(tracker, OrderedDict(a=1))
