"""What leaves a client: one report of its update, once, and nothing else."""

from __future__ import annotations

import logging
import os
import random
import re
import sqlite3
import sys

import flwr.serverapp.strategy as flower
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message

from beam_ldp.randomizers.mean import BinaryVectorMean, L2Mean, LInfMean, PrivUnit, SplitAndMixMean
from beam_ldp.randomizers.randomness import FreshWords
from flower_adapters import ClientMemory, LocallyPrivateMod
from flower_adapters.messages import Report
from tests.flower_adapters.network import (
    Network,
    app_of,
    context,
    model,
    nodes_of,
    question_to,
    training,
)

MECHANISM = PrivUnit(3, local_epsilon=4.0, radius=0.5)
MOD = LocallyPrivateMod(MECHANISM, local_epsilon_limit=12.0)
SECRET = "a value of somebody"


def report_of(message: Message) -> np.ndarray:
    """The report in a reply, as the mechanism reads it."""
    report = Report.of(message)
    assert report is not None
    reports, possible = MECHANISM.unpack_each(np.frombuffer(report.payload, np.uint8)[None])
    assert possible.all()
    return reports[0]


def ask(memory, update=(0.1, 0.0, 0.0), mod=MOD, **question):
    message = question_to(mod.mechanism, **question)
    return app_of(mod, update)(message, context(11, memory))


@pytest.mark.exact
def test_one_report_leaves_and_nothing_else(tmp_path):
    reply = ask(tmp_path / "m.db")
    assert list(reply.content) == ["report"] and not reply.content.array_records
    assert set(reply.content["report"]) == {"payload", "identity"}
    assert not reply.content.metric_records  # neither the loss nor the number of examples
    assert len(reply.content["report"]["payload"]) == -(-MECHANISM.bits_per_report // 8)
    report_of(reply)


@pytest.mark.exact
def test_the_update_is_what_training_changed_in_the_order_of_the_arrays():
    message = question_to(MECHANISM, arrays=model((1.0, 2.0, 3.0)))
    changed = MOD._update(message, context(1, None), training((0.25, -0.5, 0.125)))
    assert changed.dtype == np.float64 and changed.tolist() == [0.25, -0.5, 0.125]


def fails(*_):
    raise ValueError(SECRET)


def leaves(*_):
    sys.exit(SECRET)


def overflows(before):
    return ArrayRecord({name: Array(a.numpy() * np.nan) for name, a in before.items()})


def other_keys(before):
    return ArrayRecord({"bias": before["bias"], "weights": before["weights"]})


def longer(before):
    return ArrayRecord({name: Array(np.tile(a.numpy(), 2)) for name, a in before.items()})


@pytest.mark.exact
@pytest.mark.parametrize("update", [fails, leaves, overflows, other_keys, longer])
def test_a_training_that_fails_is_no_update_and_its_reason_stays(update, tmp_path, caplog):
    """Without the mod Flower sends the text of the exception."""
    message = question_to(MECHANISM, arrays=model((1.0, 2.0, 3.0)))  # another order is no update
    assert MOD._update(message, context(1, None), training(update)) is None
    with caplog.at_level(logging.ERROR, "flwr"):
        reply = ask(tmp_path / "m.db", update)
    assert not reply.has_error() and SECRET.encode() not in reply.content["report"]["payload"]
    report_of(reply)


@pytest.mark.exact
def test_an_answer_of_another_length_is_no_update_though_numpy_could_subtract():
    """A model of one number, from which NumPy takes as many as come: no error, another length."""
    mod = LocallyPrivateMod(LInfMean(1, 4.0), local_epsilon_limit=4.0)
    one = ArrayRecord({"bias": Array(np.ones(1))})
    message = question_to(mod.mechanism, arrays=one)
    assert mod._update(message, context(1, None), training(longer)) is None


@pytest.mark.exact
def test_an_app_may_train_in_the_arrays_that_it_got():
    def in_place(before):
        before["bias"] = Array(before["bias"].numpy() + np.float32(0.25))
        return before

    message = question_to(MECHANISM, arrays=model((1.0, 2.0, 3.0)))
    changed = MOD._update(message, context(1, None), training(in_place))
    assert changed.tolist() == [0.0, 0.0, 0.25]


@pytest.mark.exact
@pytest.mark.parametrize("fault", ["nowhere", "no database", "mechanism"])
def test_of_a_clients_own_fault_the_server_learns_that_there_was_one(
    fault, tmp_path, monkeypatch, caplog
):
    """Paths name people, and Flower sends the text of what a mod raises."""
    memory = tmp_path / "alice.db"
    if fault == "nowhere":
        memory = tmp_path / "alice" / "m.db"
    elif fault == "no database":
        memory.write_text("somebody's letter, and no database " * 20)
    else:
        monkeypatch.setattr(PrivUnit, "randomize", fails)
    with caplog.at_level(logging.ERROR, "flwr"):
        reply = ask(memory)
    assert reply.has_error()
    assert reply.error.reason == "a fault of this client, which stands in its log"
    assert "Traceback" in caplog.text


@pytest.mark.exact
def test_the_same_question_gets_the_same_report(tmp_path):
    """From another process, under another node, of another run; whatever was trained since."""
    first = ask(tmp_path / "m.db")
    again = ask(tmp_path / "m.db", (0.5, 0.5, 0.5), node=12)
    assert Report.of(first) == Report.of(again)
    assert Report.of(first) != Report.of(ask(tmp_path / "other.db"))


@pytest.mark.exact
@pytest.mark.parametrize(
    "other", [{"arrays": model((1.0, 0.0, 0.0))}, {"learning-rate": 0.5}], ids=["model", "settings"]
)
def test_another_question_under_the_name_of_a_round_is_refused(other, tmp_path):
    ask(tmp_path / "m.db")
    reply = ask(tmp_path / "m.db", **other)
    assert reply.has_error() and "asked something else" in reply.error.reason
    assert not ask(tmp_path / "m.db", number=2, **other).has_error()


@pytest.mark.exact
def test_a_client_adds_up_over_trainings_and_stops_at_its_own_limit(tmp_path):
    """Three rounds of local epsilon 4 fit a limit of 12, whatever they are called."""
    trained = []

    def counts(before):
        trained.append(1)
        return before

    memory = tmp_path / "m.db"
    for name, number in (("a", 1), ("a", 2), ("b", 1)):
        assert not ask(memory, counts, training=name, number=number).has_error()
    refused = ask(memory, counts, training="c")
    assert refused.has_error() and "beyond the limit of this client" in refused.error.reason
    assert not re.search(r"12|16", refused.error.reason)  # what it told to others is not told
    assert len(trained) == 3  # a refused question costs no training
    assert not ask(memory, counts, training="b").has_error()  # the same report again
    old = ask(memory, counts, training="a", number=1)  # whose report is gone
    assert old.has_error() and "later rounds were since" in old.error.reason


@pytest.mark.exact
@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (question_to(MECHANISM, kind="evaluate"), "nothing prices"),
        (question_to(PrivUnit(3, 40.0, radius=0.5)), "another mechanism"),
        (question_to(MECHANISM, arrays=model((0.0, 0.0, 0.0, 0.0))), "4 numbers"),
        (question_to(MECHANISM, number=0), "number of a round"),
        (question_to(MECHANISM, training=""), "name of a training"),
    ],
    ids=["evaluate", "mechanism", "size", "round", "name"],
)
def test_what_a_client_refuses(message, reason, tmp_path):
    reply = app_of(MOD, (0.0,) * 3)(message, context(11, tmp_path / "m.db"))
    assert reply.has_error() and reason in reply.error.reason
    with sqlite3.connect(tmp_path / "m.db") as database:
        assert database.execute("SELECT COUNT(*) FROM reports").fetchone() == (0,)


@pytest.mark.exact
@pytest.mark.parametrize("name", ["FedAvg", "FedMedian", "Krum"])
def test_another_strategy_ends_in_words(name, tmp_path):
    """Flower passes over errors: it ran all rounds, and ended with no model and no word."""
    nodes = nodes_of(MOD, [(0.1, 0.0, 0.0)] * 3, tmp_path)
    strategy = getattr(flower, name)(fraction_evaluate=0.0)
    with pytest.raises(TypeError, match="LocallyPrivateMod answer .*LocallyPrivateFedAvg"):
        strategy.start(Network(nodes), model(), num_rounds=1)
    assert not any(ClientMemory(f, 9.0).local_epsilon for f in tmp_path.glob("*.db"))


@pytest.mark.exact
def test_a_node_without_a_memory_tells_nothing():
    reply = app_of(MOD, (0.0,) * 3)(question_to(MECHANISM), context(11, None))
    assert reply.has_error() and "privacy-memory" in reply.error.reason


@pytest.mark.exact
def test_a_memory_that_depends_on_where_the_node_was_started_is_refused(tmp_path, monkeypatch):
    """Started from another folder, it would begin a new file, and count from nothing."""
    monkeypatch.chdir(tmp_path)
    reply = ask("told.db")
    assert reply.has_error() and "must be an absolute path" in reply.error.reason
    assert not list(tmp_path.iterdir())


@pytest.mark.exact
def test_noise_comes_from_the_cryptographic_generator_of_the_clients_process(tmp_path, monkeypatch):
    """No seed of NumPy's or of Python's repeats a report."""

    def seeded(name):
        for seed in (np.random.seed, random.seed):  # of generators that all programs share
            seed(1)
        return Report.of(ask(tmp_path / name)).payload

    assert seeded("a.db") != seeded("b.db")
    keyed, start = [], FreshWords.__init__
    monkeypatch.setattr(FreshWords, "__init__", lambda w: keyed.append(os.getpid()) or start(w))
    seeded("c.db")
    assert keyed == [os.getpid()]  # anew for each report


@pytest.mark.exact
def test_a_message_without_arrays_is_refused(tmp_path):
    message = question_to(MECHANISM)
    del message.content["arrays"]
    reply = app_of(MOD, (0.0,) * 3)(message, context(11, tmp_path / "m.db"))
    assert reply.has_error() and "one record of arrays" in reply.error.reason


@pytest.mark.exact
@pytest.mark.parametrize(
    "mechanism",
    [LInfMean(3, 2.0, radius=0.1), L2Mean(3, 2.0, radius=0.1), PrivUnit(3, 2.0)],
    ids=lambda m: type(m).__name__,
)
def test_every_local_mechanism_of_vectors_fits(mechanism, tmp_path):
    mod = LocallyPrivateMod(mechanism, local_epsilon_limit=2.0)
    payload = ask(tmp_path / "m.db", mod=mod).content["report"]["payload"]
    _, possible = mechanism.unpack_each(np.frombuffer(payload, np.uint8)[None])
    assert possible.all()


@pytest.mark.exact
def test_mechanisms_that_do_not_fit_are_refused():
    with pytest.raises(TypeError, match="mechanism must be one of"):
        LocallyPrivateMod("PrivUnit", local_epsilon_limit=1.0)
    with pytest.raises(ValueError, match="real vectors"):
        LocallyPrivateMod(BinaryVectorMean(3, 1.0), local_epsilon_limit=1.0)
    with pytest.raises(ValueError, match="clipping"):
        LocallyPrivateMod(PrivUnit(3, 1.0, clipping="raise"), local_epsilon_limit=1.0)
    mix = SplitAndMixMean.for_shuffle(4, 1.0, 1e-6, 1000)
    with pytest.raises(ValueError, match="by itself"):
        LocallyPrivateMod(mix, local_epsilon_limit=1.0)
