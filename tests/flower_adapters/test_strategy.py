"""Rounds of the strategy: charged first, whoever comes, and what of it counts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flwr.app import ConfigRecord, MetricRecord

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffleAccountant, local_event
from beam_ldp.accounting.events import ShuffledDpEvent, SubsampledShuffledDpEvent
from beam_ldp.federated import DeclaredSampling, EpsilonBudget, ShuffledEpochs, privacy_events
from beam_ldp.randomizers.mean import LInfMean, PrivUnit
from flower_adapters import LocallyPrivateFedAvg, LocallyPrivateMod
from flower_adapters.checkpoint import read_checkpoint
from flower_adapters.strategy import _one_more, _Rounds
from tests.flower_adapters.network import (
    TRAINING,
    Network,
    failing,
    flat,
    forged,
    model,
    nodes_of,
    unreachable,
)

MECHANISM = PrivUnit(3, local_epsilon=4.0, radius=0.5)
MOD = LocallyPrivateMod(MECHANISM, local_epsilon_limit=100.0)
UPDATE = (0.1, -0.2, 0.3)


class Seeded(LocallyPrivateMod):
    """Reports that can be drawn again: for tests of estimates only."""

    generator = np.random.default_rng(20_24)

    def _report(self, update):
        drawn = self.mechanism.randomize(update[None], rng=self.generator)
        real = super()._report(update)
        return type(real)(self.mechanism.pack_each(drawn)[0].tobytes(), real.identity)


class Charges(EpsilonBudget):
    """A budget that tells the order of charges and messages."""

    def __init__(self, epsilon, **settings):
        super().__init__(epsilon, 1e-5, **settings)
        self.events, self.order = [], []

    def charge(self, event, step=None, *, num_reports=None):
        self.events.append(event)
        self.order.append(("charged", step, num_reports))
        return super().charge(event, step, num_reports=num_reports)


def epsilon_of(event, count):
    accountant = ShuffleAccountant()
    accountant.compose(event, count)
    return float(accountant.get_epsilon(1e-5))


def strategy_of(budget=None, mechanism=MECHANISM, **settings):
    budget = Charges(None) if budget is None else budget
    settings = {"training": TRAINING, "min_reports": 3} | settings
    return LocallyPrivateFedAvg(mechanism, budget, **settings)


def network_of(tmp_path, clients=4, extra=(), mod=MOD, update=UPDATE):
    nodes = nodes_of(mod, [update] * clients, tmp_path)
    return Network(nodes | {900 + i: answer for i, answer in enumerate(extra)})


@pytest.mark.exact
def test_a_round_is_charged_before_anybody_is_asked(tmp_path):
    budget = Charges(None)
    network = network_of(tmp_path)
    send = network.send_and_receive

    def noted(messages, *, timeout=None):
        budget.order.append(("asked", len(messages)))
        return send(messages, timeout=timeout)

    network.send_and_receive = noted
    result = strategy_of(budget).start(network, model(), num_rounds=2)
    assert budget.order == [("charged", 0, 3), ("asked", 4), ("charged", 1, 3), ("asked", 4)]
    assert (result.rounds, result.stopped_by) == (2, "rounds")
    assert [m.metadata.group_id for m in network.sent] == ["1"] * 4 + ["2"] * 4
    assert {m.metadata.ttl for m in network.sent} == {3600.0}


@pytest.mark.exact
def test_where_the_budget_is_spent_nobody_is_asked(tmp_path):
    network = network_of(tmp_path)
    result = strategy_of(Charges(8.0)).start(network, model(), num_rounds=9, timeout=5.0)
    assert (result.rounds, result.stopped_by) == (2, "budget")
    assert len(network.sent) == 2 * 4 and sorted(result.train_metrics_clientapp) == [1, 2]
    assert result.spent.local_epsilon == 8.0 and result.spent.num_charges == 2


@pytest.mark.exact
def test_the_price_is_the_local_one_unless_the_server_is_trusted(tmp_path):
    """Against whoever sees senders, a crowd and a draw are worth nothing."""
    local, shuffled, drawn = Charges(None), Charges(None), Charges(None)
    sampling = DeclaredSampling(4, 3)
    strategy_of(local).start(network_of(tmp_path), model(), 1)
    strategy_of(local, sampling=sampling, training="b").start(network_of(tmp_path), model(), 1)
    strategy_of(shuffled, reader="shuffled", training="c").start(network_of(tmp_path), model(), 1)
    strategy_of(drawn, reader="shuffled", training="d", sampling=sampling).start(
        network_of(tmp_path), model(), 1
    )
    assert local.events == [local_event(MECHANISM)] * 2
    assert local.spent.epsilon == pytest.approx(epsilon_of(local_event(MECHANISM), 2))
    assert 7.99 < local.spent.epsilon <= 8.0
    assert [type(e) for e in shuffled.events] == [ShuffledDpEvent]
    assert shuffled.events[0].num_reports == 3  # not the four who came
    (event,) = drawn.events
    assert isinstance(event, SubsampledShuffledDpEvent)
    assert (event.num_users, event.num_drawn) == (4, 3)
    assert local.spent.local_epsilon == 2 * shuffled.spent.local_epsilon == 8.0


@pytest.mark.exact
def test_dropouts_liars_and_refusals_are_counted_and_change_nothing_else(tmp_path):
    """Seven who are not there, do not want, or lie; the model moves by the mean of the others."""
    size = -(-MECHANISM.bits_per_report // 8)
    liars = [
        None,
        unreachable,
        failing,
        forged(b"\xff" * size, b"1" * 16),  # a vector that is too long
        forged(b"\x00" * (size + 1), b"2" * 16),  # of another length
        forged(b"\x00" * size, b"short"),
        lambda message, _: type(message)(message.content, reply_to=message),  # the model itself
    ]
    network = network_of(tmp_path, extra=liars)
    result = strategy_of().start(network, model(), num_rounds=1, timeout=5.0)
    counts = dict(result.train_metrics_clientapp[1])
    assert counts["asked"] == 11 and counts["reports"] == 4 and counts["result"] == 1
    assert (counts["missing"], counts["refused"], counts["impossible"]) == (2, 1, 4)
    assert (counts["repeated"], counts["spare"]) == (0, 0)
    longest = MECHANISM.reach + 1e-6
    assert np.linalg.norm(flat(result.arrays)) <= longest  # a mean of honest reports


@pytest.mark.exact
def test_too_few_reports_give_no_result_and_stay_charged(tmp_path):
    for reader in ("local", "shuffled"):
        budget = Charges(None)
        network = network_of(tmp_path, clients=2, extra=[None, failing])
        strategy = strategy_of(budget, reader=reader, training=reader)
        result = strategy.start(network, model((1.0, 2.0, 3.0)), num_rounds=2, timeout=5.0)
        assert flat(result.arrays).tolist() == [1.0, 2.0, 3.0]
        assert [m["result"] for m in result.train_metrics_clientapp.values()] == [0, 0]
        assert len(budget.events) == 2 and result.rounds == 2


@pytest.mark.exact
def test_a_node_that_answers_twice_is_no_honest_client(tmp_path):
    """Flower's SuperLink takes one reply to a message; a grid that takes more changes nothing."""
    nodes = nodes_of(MOD, [UPDATE] * 5, tmp_path)
    first, second = nodes[103], nodes[104]
    twice = {103: lambda m, c: [first(m, c), first(m, c)]}
    result = strategy_of().start(Network(nodes | twice), model(), num_rounds=1)
    assert result.train_metrics_clientapp[1]["reports"] == 5  # the same report, once
    two = {103: lambda m, c: [_from(first(m, c), 103), _from(second(m, c), 103)]}
    result = strategy_of(training="b").start(Network(nodes | two), model(), num_rounds=1)
    counts = result.train_metrics_clientapp[1]
    assert (counts["reports"], counts["impossible"]) == (4, 1)


def _from(message, node):
    message.metadata.__dict__["_src_node_id"] = node
    return message


@pytest.mark.exact
def test_a_reply_of_a_node_that_was_not_asked_does_not_count(tmp_path):
    nodes = nodes_of(MOD, [UPDATE] * 4, tmp_path)
    answer = nodes[103]
    stranger = {103: lambda m, c: [answer(m, c), _from(answer(m, c), 555)]}
    result = strategy_of().start(Network(nodes | stranger), model(), num_rounds=1)
    counts = result.train_metrics_clientapp[1]
    assert (counts["reports"], counts["impossible"], counts["missing"]) == (4, 1, 0)


@pytest.mark.exact
@pytest.mark.parametrize("reader", ["local", "shuffled"])
def test_what_comes_late_of_another_round_does_not_count(tmp_path, reader):
    """A grid that gives out old replies too: a report, and an error, of the round before."""
    nodes = nodes_of(MOD, [UPDATE] * 4, tmp_path)
    answer, kept = nodes[103], []

    def late(message, ctx):
        kept.append(answer(message, ctx))
        return kept[:-1]

    def error_late(message, ctx):
        kept_errors.append(failing(message, ctx))
        return kept_errors[:-1]

    kept_errors = []
    network = Network(nodes | {103: late, 104: error_late})
    result = strategy_of(reader=reader).start(network, model(), num_rounds=2)
    for number, impossible in ((1, 0), (2, 1)):
        counts = result.train_metrics_clientapp[number]
        assert (counts["reports"], counts["impossible"], counts["missing"]) == (3, impossible, 2)
        assert counts["refused"] == 0


@pytest.mark.exact
def test_an_error_of_a_node_that_was_not_asked_is_nobodys_refusal(tmp_path):
    nodes = nodes_of(MOD, [UPDATE] * 4, tmp_path) | {104: None}
    answer = nodes[103]
    stranger = {103: lambda m, c: [answer(m, c), _from(failing(m, c), 555)]}
    result = strategy_of().start(Network(nodes | stranger), model(), num_rounds=1)
    counts = result.train_metrics_clientapp[1]
    assert (counts["reports"], counts["refused"], counts["missing"]) == (4, 0, 1)


@pytest.mark.exact
def test_over_selection_keeps_as_many_as_declared_whoever_reads_and_goes_on(tmp_path):
    """Of three who come two are kept; the record is one that its sampling gives."""
    sampling = DeclaredSampling(4, 3, least_received=2, most_received=2)
    file = tmp_path / "model.npz"
    for rounds in (1, 2):
        budget = Charges(None)
        for _ in range(rounds - 1):
            budget.charge(local_event(MECHANISM))
        strategy = strategy_of(budget, sampling=sampling, min_reports=None, checkpoint=file)
        result = strategy.start(network_of(tmp_path), model(), rounds)
        counts = result.train_metrics_clientapp[rounds]
        assert (counts["asked"], counts["reports"], counts["spare"]) == (3, 2, 1)


@pytest.mark.statistical
def test_the_model_moves_by_the_mean_of_the_clipped_updates_as_declared(tmp_path):
    """120 clients with one of two updates, one of them clipped: within 4.5 standard errors in each
    of three coordinates (false alarms 2e-5), which is also what `predicted-error` says. An update
    that is not clipped would be 39 of them off, two coordinates that are swapped 4 or more."""
    mod = Seeded(MECHANISM, local_epsilon_limit=4.0)
    clients = nodes_of(mod, [UPDATE, (3.0, 0.0, 4.0)] * 60, tmp_path)
    strategy = strategy_of(min_reports=120, learning_rate=0.5)
    result = strategy.start(Network(clients), model((1.0, 1.0, 1.0)), num_rounds=1)
    truth = (np.array(UPDATE) + np.array([0.3, 0.0, 0.4])) / 2
    error = result.train_metrics_clientapp[1]["predicted-error"]
    assert error == pytest.approx(math.sqrt(MECHANISM.mean_squared_error(120)))
    off = (flat(result.arrays) - 1.0) / 0.5 - truth
    assert (np.abs(off) < 4.5 * error / math.sqrt(3)).all()


@pytest.mark.exact
def test_a_draw_is_of_as_many_as_declared_and_new_in_every_round(tmp_path):
    """20 of 40: two equal draws of ten have a chance below 1e-9."""
    sampling = DeclaredSampling(40, 20, least_received=15)
    network = Network({i: None for i in range(40)})
    strategy = strategy_of(min_reports=None, sampling=sampling, reader="shuffled")
    assert strategy.min_reports == 15
    strategy.start(network, model(), num_rounds=3, timeout=5.0)
    drawn = [
        frozenset(m.metadata.dst_node_id for m in network.sent if m.metadata.group_id == str(n))
        for n in (1, 2, 3)
    ]
    assert [len(d) for d in drawn] == [20] * 3 and len(set(drawn)) == 3


@pytest.mark.exact
def test_more_reports_than_were_priced_are_spare_against_readers_of_models(tmp_path):
    strategy = strategy_of(reader="shuffled", min_reports=3)
    result = strategy.start(network_of(tmp_path, clients=5), model(), num_rounds=1)
    counts = result.train_metrics_clientapp[1]
    assert (counts["reports"], counts["spare"], counts["missing"]) == (3, 2, 0)


@pytest.mark.exact
def test_it_waits_until_enough_are_connected(tmp_path, monkeypatch):
    network, waited = network_of(tmp_path, clients=2), []

    def later(_seconds):
        waited.append(1)
        network.nodes |= nodes_of(MOD, [UPDATE] * 4, tmp_path)

    monkeypatch.setattr("flower_adapters.strategy.time.sleep", later)
    result = strategy_of().start(network, model(), num_rounds=1)
    assert waited == [1] and result.train_metrics_clientapp[1]["reports"] == 4


@pytest.mark.exact
def test_evaluation_is_of_public_data_and_reaches_the_tracker(tmp_path):
    logged = []

    class Tracking(EpsilonBudget):
        def log(self, values, step):
            logged.append((step, dict(values)))

    strategy = strategy_of(Tracking(None, 1e-5))
    seen = []

    def evaluate(number, arrays):
        seen.append(number)
        return MetricRecord({"loss": float(number), "labels": [1, 2]})

    result = strategy.start(network_of(tmp_path), model(), num_rounds=2, evaluate_fn=evaluate)
    assert seen == [0, 1, 2] and sorted(result.evaluate_metrics_serverapp) == [0, 1, 2]
    steps = [step for step, values in logged if "public.loss" in values]
    assert steps == [0, 1] and logged[0][1]["round.reports"] == 4.0
    assert not strategy.configure_evaluate(1, model(), ConfigRecord(), network_of(tmp_path))
    assert strategy.aggregate_evaluate(1, []) is None
    with pytest.raises(ValueError, match="evaluate_config must be None"):
        strategy.start(network_of(tmp_path), model(), evaluate_config=ConfigRecord())


@pytest.mark.exact
def test_rounds_outside_of_start_are_refused(tmp_path):
    strategy = strategy_of()
    with pytest.raises(RuntimeError, match="charged and run by start"):
        strategy.configure_train(1, model(), ConfigRecord(), network_of(tmp_path))
    with pytest.raises(RuntimeError, match="asked last"):
        strategy.aggregate_train(1, [])
    strategy.start(network_of(tmp_path), model(), num_rounds=1)
    with pytest.raises(RuntimeError, match="charged and run by start"):
        strategy.configure_train(1, model(), ConfigRecord(), network_of(tmp_path))


@pytest.mark.exact
def test_settings_of_a_round_reach_clients_and_the_given_record_stays_as_it_was(tmp_path):
    config = ConfigRecord({"learning-rate": 0.5})
    network = network_of(tmp_path)
    strategy_of().start(network, model(), num_rounds=1, train_config=config)
    assert dict(network.sent[0].content["config"]) == {"learning-rate": 0.5, "server-round": 1}
    assert dict(config) == {"learning-rate": 0.5}


@pytest.mark.exact
def test_the_record_tells_what_ran(tmp_path):
    strategy = strategy_of()
    rounds = _Rounds(strategy, network_of(tmp_path), model(), ConfigRecord())
    state = rounds.initialize()
    for _ in range(2):
        state = rounds.next(state, range(3)).state
    assert state.record.rounds.tolist() == [[4, 2]]
    ((event, times),) = privacy_events(state, "local")
    assert isinstance(event, LocalRandomizerDpEvent) and times == 2
    ((event, times),) = privacy_events(state)
    assert (event.num_reports, times) == (4, 2)
    assert _one_more(state.record.rounds, 3).tolist() == [[4, 2], [3, 1]]


@pytest.mark.exact
def test_a_budget_takes_over_the_rounds_of_a_state_at_the_readers_price(tmp_path):
    rounds = _Rounds(strategy_of(), network_of(tmp_path), model(), ConfigRecord())
    state = rounds.next(rounds.initialize(), range(3)).state
    local = local_event(MECHANISM)
    for reader, event in (("local", local), ("shuffled", ShuffledDpEvent(local, 4))):
        budget = EpsilonBudget(None, 1e-5, state=state, reader=reader)
        assert budget.spent.epsilon == pytest.approx(epsilon_of(event, 1))


@pytest.mark.exact
def test_the_log_says_what_counts(tmp_path, caplog):
    network = network_of(tmp_path, extra=[None, failing])
    with caplog.at_level("INFO", "flwr"):
        strategy_of(Charges(4.0)).start(network, model(), num_rounds=2, timeout=5.0)
    said = "\n".join(record.message for record in caplog.records)
    assert "the server sees who sent what, and that is what is charged" in said
    assert "[ROUND 1/2] reports 4 of 6, 1 missing, 1 refused; error 0.328; spent: " in said
    assert "the budget does not hold another round: nobody was asked" in said


@pytest.mark.exact
def test_other_mechanisms_and_dtypes(tmp_path):
    """Bits about coordinates: reports of different clients are often equal, and count."""
    mechanism = LInfMean(3, 2.0, radius=0.1)
    mod = LocallyPrivateMod(mechanism, local_epsilon_limit=2.0)
    network = network_of(tmp_path, clients=30, mod=mod)
    result = strategy_of(mechanism=mechanism).start(network, model(), num_rounds=1)
    counts = result.train_metrics_clientapp[1]
    assert (counts["reports"], counts["repeated"]) == (30, 0)
    assert {array.dtype for array in result.arrays.values()} == {"float32"}


@pytest.mark.exact
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"training": ""}, "training must be a name"),
        ({"reader": "everybody"}, "reader must be"),
        ({"min_reports": None}, "min_reports must be given"),
        ({"min_reports": 0}, "min_reports"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"sampling": DeclaredSampling(9, 4, least_received=2), "min_reports": 5}, "in \\[2, 4\\]"),
        ({"sampling": DeclaredSampling(9, 4, sampling="self")}, "without_replacement"),
        ({"sampling": DeclaredSampling(9, 4, 50), "min_reports": 4}, "points_per_client=1"),
        ({"sampling": ShuffledEpochs(9, 3).declared()}, "without_replacement"),
    ],
)
def test_refused_settings(settings, reason):
    with pytest.raises((ValueError, TypeError), match=reason):
        strategy_of(**settings)


@pytest.mark.exact
def test_a_model_of_another_size_is_refused_before_anything_is_charged(tmp_path):
    budget = Charges(None)
    with pytest.raises(ValueError, match="for the 4 numbers of initial_arrays"):
        strategy_of(budget).start(network_of(tmp_path), model((0.0,) * 4), num_rounds=1)
    assert budget.events == []


@pytest.mark.statistical
def test_nodes_that_send_the_same_direction_are_left_out(tmp_path):
    """Eight of 28, all with a report that the mechanism can make: the model is that of the others.

    They are counted, and where too few are left the round has no result: it stands in the record as
    one of the least number, since that depends on the reports of those who came. (An honest node is
    left out once in 1e9 rounds; all eight are in one half three times on end once in 1e6.)
    """
    mechanism = PrivUnit(600, local_epsilon=4.0)
    mod = LocallyPrivateMod(mechanism, local_epsilon_limit=100.0)
    payload = mechanism.pack_each(mechanism.randomize(np.ones((1, 600))))[0].tobytes()
    liars = [forged(payload, bytes([i]) * 16) for i in range(8)]
    values = [0.0] * 600

    def run(training, gone=0, **settings):
        network = network_of(tmp_path, 20, [*liars, *[None] * gone], mod, np.zeros(600))
        strategy = strategy_of(mechanism=mechanism, training=training, **settings)
        result = strategy.start(network, model(values), num_rounds=1, timeout=5.0)
        return dict(result.train_metrics_clientapp[1]), flat(result.arrays)

    direction = mechanism.unpack(payload, 1)[0] * mechanism.fixed_point.step
    pulled, plain = run("plain")
    assert pulled["reports"] == 28 and pulled["colluding"] == 0 and "agreement" not in pulled
    counts, checked = run("checked", drop_colluders=True)
    assert (counts["reports"], counts["colluding"], counts["asked"]) == (20, 8, 28)
    length = np.linalg.norm(direction)
    along = [moved @ direction / length**2 for moved in (plain, checked)]
    assert along[0] > 0.2 and abs(along[1]) < 0.06
    assert 0.9 < counts["agreement"] / length < 2.0
    for reader, least, recorded in (("local", 21, 21), ("shuffled", 21, 21), ("shuffled", 29, 0)):
        told = {"training": f"{reader} {least}", "reader": reader, "min_reports": least}
        kept = tmp_path / f"{reader}{least}.npz"
        few, same = run(**told, gone=1, drop_colluders=True, checkpoint=kept)
        assert few["result"] == 0 and not same.any()
        _, record = read_checkpoint(kept, told["training"], "")
        assert record.rounds.tolist() == [[recorded, 1]]  # 0 where too few came, whoever is left


@pytest.mark.exact
def test_a_mechanism_whose_reports_are_alike_is_not_checked():
    with pytest.raises(ValueError, match="as PrivUnit does: LInfMean"):
        strategy_of(mechanism=LInfMean(600, 4.0), drop_colluders=True)
