"""What a pair of runs does: each is refused, identical, or charged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.federated import EpsilonBudget
from beam_ldp.ledger import BudgetLedger
from beam_ldp.randomizers.mean import PrivUnit
from flower_adapters import ClientMemory, LocallyPrivateFedAvg, LocallyPrivateMod
from flower_adapters.memory import RefusedQuestionError
from flower_adapters.messages import Question, Report
from mlflow_ldp import PrivacyTracker
from tests.flower_adapters.network import TRAINING, Network, app_of, flat, model, node_of, nodes_of

ROOT = Path(__file__).resolve().parents[2]
MECHANISM = PrivUnit(3, local_epsilon=2.0, radius=0.5)
MOD = LocallyPrivateMod(MECHANISM, local_epsilon_limit=100.0)
UPDATES = [(0.1, -0.2, 0.3)] * 4


def run(tmp_path, rounds, budget=None, mechanism=MECHANISM, nodes=None, arrays=None, **settings):
    budget = EpsilonBudget(None, 1e-5) if budget is None else budget
    nodes = nodes_of(MOD, UPDATES, tmp_path) if nodes is None else nodes
    settings = {"training": TRAINING, "min_reports": 3} | settings
    strategy = LocallyPrivateFedAvg(mechanism, budget, **settings)
    return strategy.start(Network(nodes), model() if arrays is None else arrays, rounds, 5.0)


def told(tmp_path):
    return [ClientMemory(tmp_path / f"{i}.db", 100.0).local_epsilon for i in range(len(UPDATES))]


@pytest.fixture
def ledger(tmp_path):
    url = f"sqlite:///{tmp_path}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("digits", epsilon=7.0, delta=1e-5, local_epsilon=100.0)
    return ledger


def tracker(tmp_path, ledger, **settings):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    return PrivacyTracker("digits", 1e-5, ledger=ledger, tracking_uri=uri, **settings)


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


# The server again --------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_server_that_starts_anew_gets_the_same_reports_and_pays_again(tmp_path):
    """One round, and the same question: clients tell nothing new, and the budget is charged."""
    first, second = (run(tmp_path, 1) for _ in range(2))
    np.testing.assert_allclose(flat(first.arrays), flat(second.arrays), rtol=1e-6)
    assert told(tmp_path) == [2.0] * 4


@pytest.mark.exact
def test_a_checkpoint_that_is_put_back_makes_no_round_cheaper(tmp_path, ledger):
    """The ledger holds a round that ran twice, twice; clients repeat their reports."""
    kept = tmp_path / "model.npz"
    for rounds, charged in ((1, 1), (2, 2), (2, 3)):
        with tracker(tmp_path, ledger) as budget:
            last = run(tmp_path, rounds, budget, training="t", checkpoint=kept)
        assert BudgetLedger(ledger.url).status("digits").local_spent == 2.0 * charged
        if rounds == 1:
            old = kept.read_bytes()
        kept.write_bytes(old)
    assert last.train_metrics_clientapp[2]["reports"] == 4 and told(tmp_path) == [4.0] * 4


@pytest.mark.exact
def test_a_server_that_starts_anew_after_later_rounds_is_refused(tmp_path):
    run(tmp_path, 2)
    again = run(tmp_path, 1)
    counts = again.train_metrics_clientapp[1]
    assert (counts["refused"], counts["reports"], counts["result"]) == (4, 0, 0)
    assert told(tmp_path) == [4.0] * 4


@pytest.mark.exact
def test_another_model_under_the_same_name_is_refused(tmp_path):
    run(tmp_path, 1)
    again = run(tmp_path, 1, arrays=model((1.0, 0.0, 0.0)))
    assert again.train_metrics_clientapp[1]["refused"] == 4 and told(tmp_path) == [2.0] * 4


@pytest.mark.exact
def test_a_server_with_another_mechanism_is_refused(tmp_path):
    """It may charge less than what clients would send, or read their reports wrongly."""
    other = PrivUnit(3, local_epsilon=1.0, radius=0.5)
    counts = run(tmp_path, 1, mechanism=other).train_metrics_clientapp[1]
    assert (counts["refused"], counts["result"]) == (4, 0)


@pytest.mark.exact
def test_a_training_goes_on_from_its_checkpoint(tmp_path, ledger, open_umask):
    file = tmp_path / "model.npz"
    for rounds in (2, 3):
        with tracker(tmp_path, ledger) as budget:
            result = run(tmp_path, rounds, budget, checkpoint=file)
    assert (result.rounds, sorted(result.train_metrics_clientapp)) == (1, [3])
    assert told(tmp_path) == [6.0] * 4
    assert ledger.status("digits").local_spent == 6.0
    assert os.stat(file).st_mode & 0o77 == 0
    with tracker(tmp_path, ledger) as budget:
        done = run(tmp_path, 3, budget, checkpoint=file)  # all rounds ran: nobody is asked
    assert done.rounds == 0 and flat(done.arrays).tolist() == flat(result.arrays).tolist()
    assert told(tmp_path) == [6.0] * 4


@pytest.mark.exact
def test_an_older_checkpoint_pays_again_and_gets_what_was_told(tmp_path, ledger):
    """The last round again: the same reports. One before it: refused. Both are charged."""
    file, older = tmp_path / "model.npz", {}
    for rounds in (1, 2):
        with tracker(tmp_path, ledger) as budget:
            result = run(tmp_path, rounds, budget, checkpoint=file)
        older[rounds] = file.read_bytes()
    file.write_bytes(older[1])
    with tracker(tmp_path, ledger) as budget:
        again = run(tmp_path, 2, budget, checkpoint=file)
    np.testing.assert_allclose(flat(again.arrays), flat(result.arrays), rtol=1e-6)
    assert told(tmp_path) == [4.0] * 4
    assert ledger.status("digits").local_spent == 6.0


@pytest.mark.exact
def test_the_checkpoint_of_another_training_is_refused(tmp_path, ledger):
    file = tmp_path / "model.npz"
    with tracker(tmp_path, ledger) as budget:
        run(tmp_path, 1, budget, checkpoint=file)
    other = PrivUnit(3, local_epsilon=1.0, radius=0.5)
    for settings in ({"mechanism": other}, {"min_reports": 2}):
        with (
            tracker(tmp_path, ledger) as budget,
            pytest.raises(ValueError, match="state must be of this process"),
        ):
            run(tmp_path, 2, budget, checkpoint=file, **settings)
    with (
        tracker(tmp_path, ledger) as budget,
        pytest.raises(ValueError, match="checkpoint must be of training 'another'"),
    ):
        run(tmp_path, 2, budget, checkpoint=file, training="another")
    assert told(tmp_path) == [2.0] * 4


@pytest.mark.exact
def test_a_training_does_not_go_on_under_a_budget_that_does_not_hold_its_rounds(tmp_path, ledger):
    file, elsewhere = tmp_path / "model.npz", tmp_path / "elsewhere"
    with tracker(tmp_path, ledger) as budget:
        run(tmp_path, 1, budget, checkpoint=file)
    elsewhere.mkdir()
    another = BudgetLedger.create(f"sqlite:///{elsewhere}/privacy.db")
    another.set_budget("digits", epsilon=7.0, delta=1e-5, local_epsilon=100.0)
    charged_here = pytest.raises(ValueError, match="must be of a training that was charged to this")
    with tracker(tmp_path, another) as budget, charged_here:
        run(tmp_path, 2, budget, checkpoint=file)
    with charged_here:
        run(tmp_path, 2, checkpoint=file)  # a budget of this program's own
    own = tmp_path / "own.npz"
    run(tmp_path, 1, checkpoint=own)
    with pytest.raises(ValueError, match="must hold all rounds that the state has run, 1"):
        run(tmp_path, 2, checkpoint=own)
    assert told(tmp_path) == [2.0] * 4 and another.status("digits").local_committed == 0.0


@pytest.mark.exact
@pytest.mark.parametrize("damage", [lambda whole: whole[:-40], lambda whole: b"", lambda _: b"no"])
def test_a_checkpoint_that_was_cut_is_refused_and_nobody_is_asked(tmp_path, damage):
    file = tmp_path / "model.npz"
    run(tmp_path, 1, checkpoint=file)
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ValueError, match="checkpoint must be one of this version, and whole"):
        run(tmp_path, 2, checkpoint=file)
    assert told(tmp_path) == [2.0] * 4


@pytest.mark.exact
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_where_a_checkpoint_cannot_be_written_the_old_one_stays_and_nobody_sees_the_round(
    tmp_path, ledger, monkeypatch, error
):
    file = tmp_path / "model.npz"
    with tracker(tmp_path, ledger) as budget:
        run(tmp_path, 1, budget, checkpoint=file)
    before, seen = file.read_bytes(), []

    def full(*_, **__):
        raise error

    with monkeypatch.context() as patch, pytest.raises(type(error)):
        patch.setattr(os, "fsync", full)
        with tracker(tmp_path, ledger) as budget:
            strategy = LocallyPrivateFedAvg(
                MECHANISM, budget, training=TRAINING, min_reports=3, checkpoint=file
            )
            strategy.start(
                Network(nodes_of(MOD, UPDATES, tmp_path)), model(), 2, 5.0,
                evaluate_fn=lambda number, _: seen.append(number),
            )  # fmt: skip
    assert file.read_bytes() == before and not seen
    assert not list(tmp_path.glob(".model.npz*"))
    assert ledger.status("digits").local_spent == 4.0  # the round was charged, and stays so


@pytest.mark.exact
def test_it_is_said_that_a_tracker_tells_only_what_it_charged_itself(tmp_path, ledger, caplog):
    file = tmp_path / "model.npz"
    for rounds in (1, 2):
        with tracker(tmp_path, ledger) as budget, caplog.at_level("INFO", "flwr"):
            result = run(tmp_path, rounds, budget, checkpoint=file)
    assert result.spent.local_epsilon == 2.0 and ledger.status("digits").local_spent == 4.0
    assert "what was charged before stands in the ledger" in caplog.text


@pytest.mark.exact
def test_a_round_that_dies_stays_charged(tmp_path, ledger):
    def breaks(message, _):
        raise ConnectionError("the link is gone")

    nodes = nodes_of(MOD, UPDATES, tmp_path) | {999: breaks}
    with pytest.raises(ConnectionError), tracker(tmp_path, ledger) as budget:
        run(tmp_path, 1, budget, nodes=nodes)
    assert ledger.status("digits").local_spent == 2.0


DYING = """
import sys, time
from pathlib import Path
from tests.flower_adapters import test_pairs as here
from tests.flower_adapters.network import nodes_of
folder = Path(sys.argv[1])
nodes = nodes_of(here.MOD, here.UPDATES, folder)
last = nodes[103]
def stops(message, ctx):
    if message.metadata.group_id == "2":
        print("asked", flush=True)
        time.sleep(60)
    return last(message, ctx)
with here.tracker(folder, f"sqlite:///{folder}/privacy.db") as budget:
    here.run(folder, 3, budget, nodes=nodes | {103: stops}, checkpoint=folder / "model.npz")
"""


@pytest.mark.e2e
def test_a_server_that_is_killed_amid_a_round_goes_on_and_that_round_stays_charged(
    tmp_path, ledger
):
    """`kill -9` in the second of three rounds: three of them answered, and nobody has a result."""
    ledger.set_budget("digits", epsilon=20.0, delta=1e-5, local_epsilon=100.0)
    process = subprocess.Popen(
        [sys.executable, "-c", DYING, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    before = ledger.status("digits").local_committed
    assert before >= 4.0  # with what was reserved ahead, and for good
    assert told(tmp_path) == [4.0] * 3 + [2.0]
    with tracker(tmp_path, ledger) as budget:
        more = run(tmp_path, 2, budget, checkpoint=tmp_path / "model.npz")
    assert (more.rounds, sorted(more.train_metrics_clientapp)) == (1, [2])
    assert told(tmp_path) == [4.0] * 4  # three of them sent what they had sent
    assert ledger.status("digits").local_committed == before + 2.0


@pytest.mark.exact
def test_two_servers_share_what_the_ledger_has(tmp_path, ledger):
    """Three rounds of 2.0 fit 7.0: the second server gets one, and nobody is asked after it."""
    with tracker(tmp_path, ledger) as budget:
        assert run(tmp_path, 2, budget).stopped_by == "rounds"
    with tracker(tmp_path, ledger) as budget:
        second = run(tmp_path, 9, budget, training="another")
    assert (second.rounds, second.stopped_by) == (1, "budget")
    assert told(tmp_path) == [6.0] * 4


@pytest.mark.exact
def test_a_server_that_loses_the_race_for_the_last_round_ends_as_if_it_had_come_later(
    tmp_path, ledger, monkeypatch
):
    """Both were told that it fits; the other one reserves it first."""
    asked = PrivacyTracker.would_exceed

    def raced(self, event, count=1):
        answer = asked(self, event, count)
        if self is loser and self.spent.num_charges == 1:
            while not asked(winner, event):
                winner.charge(event)
        return answer

    with tracker(tmp_path, ledger) as winner, tracker(tmp_path, ledger) as loser:
        monkeypatch.setattr(PrivacyTracker, "would_exceed", raced)
        done = run(tmp_path, 9, loser)
    assert (done.rounds, done.stopped_by, done.spent.local_epsilon) == (1, "budget", 2.0)
    assert told(tmp_path) == [2.0] * 4 and ledger.status("digits").local_spent == 6.0


# The same person twice ----------------------------------------------------------------------------


@pytest.mark.exact
def test_a_person_under_two_nodes_counts_once(tmp_path):
    """A SuperNode that connects anew is a new node; its file is the same."""
    nodes = nodes_of(MOD, UPDATES, tmp_path)
    nodes[777] = node_of(app_of(MOD, (0.5, 0.5, 0.5)), 777, tmp_path / "0.db")
    counts = run(tmp_path, 1, nodes=nodes).train_metrics_clientapp[1]
    assert (counts["reports"], counts["repeated"], counts["impossible"]) == (4, 1, 0)
    assert told(tmp_path) == [2.0] * 4


@pytest.mark.exact
def test_a_report_that_was_changed_on_its_way_the_second_time_counts_for_nothing(tmp_path):
    nodes = nodes_of(MOD, UPDATES, tmp_path)
    honest = nodes[100]

    def changed(message, ctx):
        report = Report.of(honest(message, ctx))
        return Report(bytes(reversed(report.payload)), report.identity).reply_to(message)

    counts = run(tmp_path, 1, nodes=nodes | {777: changed}).train_metrics_clientapp[1]
    assert (counts["reports"], counts["impossible"]) == (3, 2)


# The client's file --------------------------------------------------------------------------------

ASKED = Question("t", 1, "m", "c")


def answer(path, question=ASKED, epsilon=1.0, limit=10.0):
    def make():
        time.sleep(0.02)  # so that others come in between, if they can
        return Report(b"x", os.urandom(16))

    return ClientMemory(path, limit).keep(question, epsilon, make)


@pytest.mark.exact
def test_the_file_is_its_owners_alone(tmp_path, open_umask):
    answer(tmp_path / "m.db")
    assert os.stat(tmp_path / "m.db").st_mode & 0o77 == 0


@pytest.mark.exact
def test_of_many_processes_the_first_ones_report_is_everybodys(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        reports = set(pool.map(lambda _: answer(tmp_path / "m.db"), range(32)))
    assert len(reports) == 1 and ClientMemory(tmp_path / "m.db", 10.0).local_epsilon == 1.0


@pytest.mark.exact
def test_many_at_once_do_not_pass_the_limit(tmp_path):
    def ask(number):
        try:
            return answer(tmp_path / "m.db", Question(f"t{number}", 1, "m", "c"))
        except RefusedQuestionError:
            return None

    with ThreadPoolExecutor(8) as pool:
        answered = [report for report in pool.map(ask, range(32)) if report]
    assert len(answered) == 10 and ClientMemory(tmp_path / "m.db", 10.0).local_epsilon == 10.0


@pytest.mark.exact
def test_a_lower_limit_holds_from_now_on_and_limits_are_checked(tmp_path):
    answer(tmp_path / "m.db", epsilon=3.0)
    with pytest.raises(RefusedQuestionError, match="beyond the limit of this client"):
        answer(tmp_path / "m.db", Question("t", 2, "m", "c"), limit=3.5)
    for limit in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="local_epsilon_limit"):
            ClientMemory(tmp_path / "m.db", limit)


@pytest.mark.exact
def test_a_deleted_file_starts_anew_which_nobody_sees(tmp_path):
    """Said on the page: the limit is that of the file."""
    first = answer(tmp_path / "m.db")
    (tmp_path / "m.db").unlink()
    assert answer(tmp_path / "m.db").identity != first.identity


KILLED = """
import os, sys, time
from flower_adapters import ClientMemory
from flower_adapters.messages import Question, Report
def make():
    print("making", flush=True)
    time.sleep(60)
    return Report(b"x", os.urandom(16))
ClientMemory(sys.argv[1], 10.0).keep(Question("t", 1, "m", "c"), 1.0, make)
"""


@pytest.mark.e2e
def test_a_client_that_is_killed_has_told_nothing_and_can_answer(tmp_path):
    """`kill -9` amid the transaction: the file is as it was, and nothing waits for the dead."""
    file = tmp_path / "m.db"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(file)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "making\n"
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert ClientMemory(file, 10.0).local_epsilon == 0.0
    began = time.monotonic()
    answer(file)
    assert time.monotonic() - began < 10 and ClientMemory(file, 10.0).local_epsilon == 1.0
