"""`beam-ldp train` as a user runs it: on digits, piped, charged, compared, on own clients."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest
import tensorflow as tf
from mlflow.tracking import MlflowClient

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import programs, train
from beam_ldp.training.charge import ModelScore
from beam_ldp.training.checkpoints import Checkpoint
from beam_ldp.training.clients import in_shards
from beam_ldp.training.learners import ReportLearner
from beam_ldp.training.rounds import check_events, diverged
from tests.idx_files import write_folder
from tests.tff_adapters.train_flags import QUICK, charged_flags, plan_of
from tff_adapters import (
    AdaptiveClip,
    privacy_events,
)
from tff_adapters.data import load
from tff_adapters.training import PersonalModels

pytestmark = pytest.mark.e2e


def target_of(rounds):
    """A target that allows exactly so many rounds."""
    plan = plan_of(f"{QUICK} --dry-run")
    low, high = (float(plan.epsilon_of(r)) for r in (rounds, rounds + 1))
    assert low < high
    return (low + high) / 2


def test_a_training_stops_at_its_target_is_charged_logged_and_its_pipe_ends(tmp_path):
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=9.0, delta=1e-5, local_epsilon=100.0)
    target, out = target_of(3), tmp_path / "out"
    flags = (
        f"train {QUICK} --epsilon {target} --output {out} --dataset d --run-id one "
        f"--ledger {ledger.url} --format json"
    )
    program = f"{sys.executable} -m beam_ldp.pipelines.cli {flags} | tail -n 10000"
    run = subprocess.run(
        ["bash", "-o", "pipefail", "-c", program], capture_output=True, text=True, timeout=280
    )
    assert run.returncode == 0, run.stderr[-2000:]
    told = json.loads(run.stdout)
    record = told["privacy"]
    assert (record["rounds"], record["stopped"], record["run_id"]) == (3, "target", "one")
    assert record["epsilon"] <= target
    assert record == json.loads((out / "privacy.json").read_text())
    charge = BudgetLedger(ledger.url).charge("one")
    assert charge.identity.to_json() == record["identity"]
    assert charge.identity.digest.hex() == record["identity_digest"]
    (flow,) = record["flows"]
    assert flow["verdict"] == "ours" and flow["protection"] == "PrivUnit, local epsilon = 4"
    assert "## What leaves a client\n" in (out / "privacy.md").read_text()
    assert BudgetLedger(ledger.url).status("d").local_spent == 12.0  # three rounds of 4
    row = told["curves"]["training"][-1]
    assert row["rounds"] == 3 and row["epsilon"] == record["epsilon"]
    files = {path.name for path in out.iterdir()}
    assert files == {"model.keras", "privacy.json", "privacy.md", "curve.csv", "curves.json",
                     "plot.png", "mlflow"}  # fmt: skip
    model = tf.keras.models.load_model(out / "model.keras")
    assert model.count_params() == 650 and any(np.any(w) for w in model.get_weights())
    _check_mlflow(out / "mlflow" / "mlflow.db", told["mlflow_run_id"], record["identity_digest"])


@pytest.mark.parametrize(
    ("more", "names"),
    [
        ("", ["federated_aggregate of protected values"]),
        ("--algorithm fedavg", ["federated_aggregate of protected values"]),
        (
            "--algorithm adaped --noise-multiplier 4 --local-epsilon 0 --points-per-client 20",
            [
                "federated_sum of protected values",
                "federated_sum of nothing of a client",
                "result at clients of protected values",
            ],
        ),
    ],
)
def test_a_dry_run_shows_what_would_leave_a_client(more, names, capsys):
    flags = f"{QUICK} {more} --dry-run --format json"
    if "adaped" in more:
        flags = flags.replace("--local-epsilon 4 ", "").replace("--local-epsilon 0 ", "")
    assert train.main(flags.split()) == programs.DONE
    flows = json.loads(capsys.readouterr().out)["flows"]
    assert [flow["name"] for flow in flows] == names
    assert {flow["verdict"] for flow in flows} <= {"ours", "count"}
    assert train.main(flags.replace("--format json", "").split()) == programs.DONE
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "What leaves a client in a round" in out


def test_a_training_on_a_folder_of_idx_files(tmp_path, capfd):
    """Trained, and measured on the 50 public images; labels that are no class stop it before."""
    folder = write_folder(tmp_path / "rows", 300, 50, ".gz")
    flags = (
        f"--data {folder} --local-epsilon 8 --clients-per-round 100 --epochs 2 --delta 1e-5 "
        f"--no-ledger --no-mlflow --format json --output {tmp_path / 'out'}"
    )
    assert train.main(f"{flags} --classes 9".split()) == programs.MISUSED
    assert "30 of 300 labels are no class" in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "out").exists()
    assert train.main(flags.split()) == programs.DONE
    told = json.loads(capfd.readouterr().out)
    assert told["privacy"]["rounds"] == 6
    right = 50 * told["curves"]["training"][-1]["accuracy"]
    assert right == pytest.approx(round(right), abs=1e-6) and 0 <= right <= 50
    assert tf.keras.models.load_model(tmp_path / "out" / "model.keras").count_params() == 650


def test_metrics_that_somebody_lets_out_end_the_training_before_a_round(tmp_path, monkeypatch):
    """A process whose clients tell their loss: nothing runs, and nothing is charged."""
    from beam_ldp.training import learners

    monkeypatch.setattr(
        learners, "no_client_metrics", learners.tff.learning.metrics.sum_then_finalize
    )
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=99.0, delta=1e-5, local_epsilon=1e4)
    flags = (
        f"{QUICK} --algorithm fedavg --output {tmp_path / 'out'} --dataset d --no-mlflow "
        f"--ledger {ledger.url}"
    )
    assert train.main(flags.split()) == programs.FAILED
    assert BudgetLedger(ledger.url).status("d").local_spent == 0.0
    assert not (tmp_path / "out").exists()


def _check_mlflow(database, run_id, identity):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    run = client.get_run(run_id)
    for name in ("privacy.epsilon", "aggregator/mean/reports"):  # the tracker's, the manager's
        found = client.get_metric_history(run_id, name)
        assert [metric.step for metric in found] == [0, 1, 2]
    assert client.get_metric_history(run_id, "train.epsilon")[-1].step == 2
    assert set(run.data.metrics) >= {"train.accuracy", "train.loss", "train.epsilon"}
    assert run.data.tags["privacy.identity"] == identity
    assert run.data.params["privacy.charged"] == run.data.tags["privacy.charged"] == "yes"


def test_own_clients_baselines_and_two_points_of_each(tmp_path, capfd):
    generator = np.random.default_rng(1)
    x = generator.normal(size=(60, 2))
    frame = pd.DataFrame({"uid": np.repeat([f"c{i}" for i in range(15)], 4), "f0": x[:, 0],
                          "f1": x[:, 1], "y": (x[:, 0] > 0).astype(int)})  # fmt: skip
    frame.to_parquet(tmp_path / "rows.parquet")
    frame.loc[3, "f0"] = np.nan
    frame.to_csv(tmp_path / "bad.csv", index=False)
    rows = tmp_path / "rows.parquet"
    usual = (
        "--local-epsilon 2 --clients-per-round 12 --epochs 2 --delta 1e-3 --client-id uid "
        f"--features f* --label y --classes 2 --no-mlflow --test-data {rows} --format json"
    )
    flags = (
        f"{usual} --data {rows} --output {tmp_path / 'out'} --points-per-client 4 "
        "--points-sampled 2 --max-local-epsilon 12 --norm linf "
        "--baselines non-private,local-only"
    ).split()
    assert train.main(flags) == programs.DONE
    printed = capfd.readouterr()
    told = json.loads(printed.out)
    assert told["privacy"]["unit"] == "example" and told["mlflow_run_id"] is None
    assert (told["privacy"]["rounds"], told["privacy"]["num_reports"]) == (2, 24)
    beside = told["curves"]["baselines"]
    assert set(beside) == {"non-private", "local-only"}
    assert beside["non-private"][-1]["accuracy"] > 0.5
    bad = f"{usual} --data {tmp_path / 'bad.csv'} --output {tmp_path / 'out2'}"
    assert train.main(bad.split()) == programs.MISUSED
    assert "row 3" in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "out2").exists()


def test_federated_averaging_runs_in_shuffled_epochs(tmp_path, capfd):
    """Of 71 clients 30 are in a round: two epochs of two rounds, each charged once."""
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=90.0, delta=1e-5, local_epsilon=1000.0)
    flags = f"{QUICK} --algorithm fedavg --points-per-client 20 --clients-per-round 30 --no-mlflow"
    flags += f" --epochs 2 --sampling shuffled-epochs --dataset d --ledger {ledger.url}"
    assert train.main([*flags.split(), "--output", str(tmp_path / "out")]) == programs.DONE
    assert "one user" in capfd.readouterr().out
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["rounds"], record["local_epsilon"]) == (4, 8.0)
    assert record["event"]["event"]["count"] == 2
    assert BudgetLedger(ledger.url).status("d").local_spent == 8.0


# Dies when its third round has begun.
KILLED = """
import os, signal, sys
from beam_ldp.release import interrupted_runs
from beam_ldp.pipelines.train import main

begin, calls = interrupted_runs.BegunRounds.begin, []

def dying(self, *told):
    begin(self, *told)
    calls.append(self)
    if len(calls) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

interrupted_runs.BegunRounds.begin = dying
main(sys.argv[1:])
"""


@pytest.mark.exact
def test_a_model_that_gets_worse_is_said_once():
    def said(*losses):
        return diverged([ModelScore(i, loss, 0.1) for i, loss in enumerate(losses)])

    assert said(2.85, 3.2, 4.0) and said(2.5, 2.4, 2.6, 2.7, 2.8)
    assert not said(2.85, 3.2, 4.0, 5.66), "it was said before"
    assert not said(2.5, 2.6) and not said(2.5, 2.6, 2.55) and not said()
    assert not said(2.5, 2.0, 2.1, 2.2), "it is still better than at first"
    assert not said(math.nan, math.nan, math.nan)


def living(group):
    """Names of the processes of a group after a second; those that have ended may be zombies."""
    time.sleep(1.0)
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.name())
    return found


def killed_in_its_third(tmp_path, flags):
    """Run it until its third round, or epoch, has been charged; its worker dies with it."""
    with (tmp_path / "said").open("w") as said:
        run = subprocess.Popen(
            [sys.executable, "-c", KILLED, *flags], stdout=said, stderr=said, start_new_session=True
        )
        try:
            code = run.wait(timeout=280)
            assert not living(run.pid)  # the kernel ended its worker
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
    assert code == -signal.SIGKILL, (tmp_path / "said").read_text()[-2000:]


def test_a_training_that_was_killed_goes_on(tmp_path, capfd):
    """Its worker dies with it; the round under way stays charged, and a backup is not gone on with.

    Killed in the third of four rounds: two are in the checkpoint, one is lost, one more is run.
    Interrupted before that, it can still go on; and it does in the MLflow run that it began.
    """
    ledger, flags = charged_flags(tmp_path)
    store = f"sqlite:///{tmp_path}/mlflow.db"
    flags[flags.index("--clients-per-round") + 1] = "360"
    flags[flags.index("--no-mlflow")] = f"--mlflow-uri={store}"
    killed_in_its_third(tmp_path, flags)
    assert "no ledger" not in (tmp_path / "said").read_text()
    assert BudgetLedger(ledger.url).charge("one").status == "reserved"
    (staging,) = tmp_path.glob(".out.staging-*")
    shutil.copytree(staging, tmp_path / "backup")
    going_on = ["--resume", str(tmp_path / "out"), "--ledger", ledger.url]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_ldp.training.run.learner_for", interrupted)
        assert train.main(going_on) == programs.INTERRUPTED
    assert "its checkpoint is kept" in " ".join(capfd.readouterr().err.split())
    assert BudgetLedger(ledger.url).charge("one").status == "reserved"
    assert train.main(going_on) == programs.DONE
    assert "going on after round 2; 3 rounds are charged so far" in capfd.readouterr().err
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["rounds"], record["lost_rounds"], record["stopped"]) == (4, 1, "finished")
    assert (tmp_path / "out" / "curve.csv").read_text().splitlines()[-1].startswith("1,3,")
    charge = BudgetLedger(ledger.url).charge("one")
    assert (charge.status, charge.local_epsilon, charge.settled) == (
        "settled", 16.0, record["event"],
    )  # fmt: skip
    (run,) = [one for one in runs_in(store) if not one.info.run_name.startswith("budget")]
    assert run.info.status == "FINISHED" and run.data.tags["privacy.charged"] == "yes"
    (tmp_path / "backup").rename(staging)
    assert train.main(going_on) == programs.MISUSED
    assert "is settled already" in " ".join(capfd.readouterr().err.split())


def interrupted(*_):
    raise KeyboardInterrupt


def runs_in(store):
    client = MlflowClient(tracking_uri=store)
    return client.search_runs([one.experiment_id for one in client.search_experiments()])


RELEASED = {"model.keras", "curve.csv", "curves.json", "plot.png", "privacy.json", "privacy.md"}


def test_own_models_survive_a_kill_and_are_in_no_output(tmp_path, capfd):
    """Killed in the third of four rounds: those of two rounds are in the checkpoint, and come back.

    Of 71 clients 20 are in a round, so that at most 40 have trained.
    """
    flags = "--algorithm adaped --data digits --points-per-client 20 --clients-per-round 20"
    flags += " --clip 0.2 --noise-multiplier 4 --epochs 1 --delta 1e-5 --no-mlflow --no-ledger"
    killed_in_its_third(tmp_path, [*flags.split(), "--output", str(tmp_path / "out")])
    (staging,) = tmp_path.glob(".out.staging-*")
    assert (staging / "checkpoint.npz").stat().st_mode & 0o77 == 0
    kept = Checkpoint.read(str(staging))
    who = kept.clients["who"]
    assert kept.rounds == 2 and 20 <= len(who) <= 40 and len(set(who.tolist())) == len(who)
    recalled = []

    with pytest.MonkeyPatch.context() as patch:
        put_back = PersonalModels.put_back
        patch.setattr(PersonalModels, "put_back", lambda self, arrays: (
            put_back(self, arrays),
            recalled.append({c: self.weights[c] for c in self.trained})))  # fmt: skip
        assert train.main(["--resume", str(tmp_path / "out"), "--no-ledger"]) == programs.DONE
    assert "going on after round 2; 3 rounds are charged" in capfd.readouterr().err
    (own,) = recalled
    assert own.keys() == set(who.tolist())
    for row, client in enumerate(who.tolist()):
        assert all((w == kept.clients[f"own{i}"][row]).all() for i, w in enumerate(own[client]))
    assert {path.name for path in (tmp_path / "out").iterdir()} == RELEASED
    assert not list(tmp_path.glob(".out*")), "no own model is left in a hidden folder"
    assert json.loads((tmp_path / "out" / "privacy.json").read_text())["lost_rounds"] == 1


@pytest.mark.slow
def test_a_training_killed_in_an_epoch_goes_on_with_another(tmp_path, capfd):
    """Killed in the third of four epochs of two rounds, when it had been charged."""
    ledger, flags = charged_flags(tmp_path)
    flags[flags.index("--clients-per-round") + 1] = "600"
    flags[flags.index("--epochs") + 1] = "4"
    killed_in_its_third(tmp_path, [*flags, "--sampling", "shuffled-epochs"])
    going_on = ["--resume", str(tmp_path / "out"), "--ledger", ledger.url]
    assert train.main(going_on) == programs.DONE
    assert "going on after round 4; 6 rounds are charged so far" in capfd.readouterr().err
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert (record["rounds"], record["lost_rounds"], record["local_epsilon"]) == (8, 2, 16.0)
    assert record["event"]["event"]["count"] == 4
    assert BudgetLedger(ledger.url).status("d").local_spent == 16.0


# Other algorithms --------------------------------------------------------------------------------


def trained(tmp_path, capfd, flags, mlflow="--no-mlflow"):
    out = tmp_path / "out"
    code = train.main([*flags.split(), *mlflow.split(), "--output", str(out), "--format", "json"])
    printed = capfd.readouterr()
    assert code == programs.DONE, printed.err[-2000:]
    told = json.loads(printed.out)
    assert told["privacy"] == json.loads((out / "privacy.json").read_text())
    return told, printed.err, (out / "privacy.md").read_text()


def test_own_models_are_compared_with_learning_alone(tmp_path, capfd):
    told, said, text = trained(
        tmp_path, capfd,
        "--algorithm adaped --data digits --points-per-client 40 --shards-per-client 2 "
        "--clients-per-round 12 --epochs 1 --delta 1e-5 --noise-multiplier 4",
    )  # fmt: skip
    record = told["privacy"]
    assert (record["rounds"], record["preset"], record["local_epsilon"]) == (3, "safe", None)
    row = told["curves"]["training"][-1]
    assert 0.2 < row["personal_accuracy"] == record["personal_accuracy"] <= 1
    alone = told["curves"]["baselines"]["local-only"]
    assert alone[-1]["personal"] == record["local_only_accuracy"] > alone[0]["personal"]
    assert "own models" in said and "every client alone reached" in text


def test_messages_are_audited_and_both_ledgers_printed(tmp_path, capfd):
    told, _, text = trained(
        tmp_path, capfd,
        "--algorithm local-central --data digits --points-per-client 20 --local-epsilon 60 "
        "--trust-shuffler "
        "--projection 1 --noise-multiplier 2 --clients-per-round 30 --epochs 2 --delta 1e-5 "
        "--max-participations 2", mlflow=f"--mlflow-uri sqlite:///{tmp_path / 'm.db'}",
    )  # fmt: skip
    record = told["privacy"]
    assert record["most_messages"] == 2 and record["local_epsilon"] == 120.0
    assert record["reconstruction"]["participations"] == 2
    assert "all 2 messages of the client" in text
    assert "local epsilon 120 (2 of 60 each at most" in told["report"]
    from mlflow.tracking import MlflowClient

    client, run_id = MlflowClient(f"sqlite:///{tmp_path / 'm.db'}"), told["mlflow_run_id"]
    logged = client.get_run(run_id).data.metrics
    assert logged["privacy.local_epsilon"] == 120.0  # two rounds of each client
    # How many joined is told to nobody: the mean is, and no measurement of a round.
    assert {m.value for m in client.get_metric_history(run_id, "privacy.num_reports")} == {30.0}
    assert not any("reports" in name for name in logged if not name.startswith("privacy."))


def test_an_adaptive_clip_is_priced_with_its_bit(tmp_path, capfd):
    flags = f"{QUICK} --clip adaptive"
    plan = plan_of(f"{flags} --dry-run")
    two, three = (float(plan.epsilon_of(rounds)) for rounds in (2, 3))
    flags += f" --epsilon {(two + three) / 2}"
    told, said, text = trained(tmp_path, capfd, flags)
    record = told["privacy"]
    assert record["rounds"] == 2
    assert record["report_epsilon"] == 4.0 and record["bit_epsilon"] == pytest.approx(0.4)
    assert record["clip"] == 0.005 and record["adaptive_clip"]
    assert "following the median of the norms" in text and "sum of their local epsilons" in said


@pytest.mark.parametrize("who", ["--clients-per-round 10", "--sampling full"])
def test_rounds_that_too_few_come_to_are_charged_and_not_released(tmp_path, capfd, who):
    """All of 10, or of 71, must come, and 90 % stay away: no round is released, and the training
    ends as planned. One of seven rounds to which all of ten come: a false alarm of 7e-10."""
    least = "10" if "10" in who else "71"
    flags = "--data digits --points-per-client 20 --local-epsilon 2 --epochs 1 --delta 1e-5"
    told, said, text = trained(
        tmp_path, capfd, f"{flags} {who} --dropout 0.9 --least-clients {least} --no-ledger"
    )
    record, rounds = told["privacy"], 7 if least == "10" else 1
    assert record["withheld_rounds"] == record["rounds"] == rounds and record["lost_rounds"] == 0
    assert (record["stopped"], record["local_epsilon"]) == ("finished", 2.0 * rounds)
    assert f"fewer than {least} clients came" in " ".join(said.split())
    assert told["curves"]["training"][-1]["rounds"] == 0


def test_colluders_are_looked_for_in_every_round(tmp_path, capfd):
    """Two rounds of 71 honest clients: nobody is left out (2e-9), and how far 5 % got is said."""
    told, _, text = trained(
        tmp_path, capfd,
        "--data digits --points-per-client 20 --local-epsilon 4 --epochs 2 --delta 1e-5 "
        "--sampling full --least-clients 60 --drop-colluders",
        mlflow=f"--mlflow-uri sqlite:///{tmp_path / 'm.db'}",
    )  # fmt: skip
    record = told["privacy"]
    assert (record["rounds"], record["lost_rounds"], record["colluding_reports"]) == (2, 0, 0)
    checked, plain = record["forged_checked"], record["forged"]
    assert checked["0.05"] < 0.8 * plain["0.05"] and checked.keys() == plain.keys()
    assert "are left out, 0 in the last round" in text
    from mlflow.tracking import MlflowClient

    run = MlflowClient(f"sqlite:///{tmp_path / 'm.db'}").get_run(told["mlflow_run_id"])
    (agreement,) = (v for name, v in run.data.metrics.items() if name.endswith("shuffle/agreement"))
    assert run.data.params["train.drop_colluders"] == "true" and agreement > 0


def test_several_messages_of_a_report_are_sent_and_priced_together(tmp_path, capfd):
    """Three rounds; three messages of 8 bits of a place and one of a bit: 27 bits, in 4 bytes."""
    flags = f"{QUICK} --norm linf --messages 3 --clients-per-round 479"
    told, said, text = trained(tmp_path, capfd, flags)
    record = told["privacy"]
    assert (record["rounds"], record["report_epsilon"], record["local_epsilon"]) == (3, 4.0, 12.0)
    assert record["epsilon"] == float(plan_of(f"{flags} --dry-run").epsilon_of(3))
    assert record["mechanism"]["messages"] == [3] and record["dropped_reports"] == 0
    assert record["bits_per_report"] == 27 and record["bits_per_client"] == 32
    assert record["round_event"]["event"]["local_event"]["messages"] == 3
    assert "a report's messages as made from one sample" in text


@pytest.mark.exact
@pytest.mark.parametrize("more", ["", "--norm linf --sampling shuffled-epochs",
                                  "--norm linf --messages 3"])  # fmt: skip
def test_the_plan_has_the_bit_that_clients_send(more):
    plan = plan_of(f"{QUICK} --dry-run --clip adaptive {more}")
    assert AdaptiveClip(plan.bit.local_epsilon).mechanism == plan.bit
    learner = ReportLearner(plan, load("digits"))
    check_events(plan, learner.process.initialize(), 0)
    state = learner.process.initialize()
    assert privacy_events(state) == []
    from tff_adapters import planned_event

    assert planned_event(state, plan.clients_per_round) == plan.event


@pytest.mark.exact
def test_shards_hold_few_labels_and_lose_no_example():
    clients = load("digits", 40)
    found = in_shards(clients, 2)
    assert max(len(set(labels.tolist())) for labels in found.labels) <= 4
    rows = lambda c: sorted(map(bytes, np.concatenate(c.features)))  # noqa: E731
    assert rows(found) == rows(clients) and found.num_clients == clients.num_clients
    at = {bytes(x): y for x, y in zip(np.concatenate(clients.features),
                                      np.concatenate(clients.labels))}  # fmt: skip
    assert all(at[bytes(x)] == y for x, y in zip(found.features[3], found.labels[3]))


@pytest.mark.slow
def test_the_project_trains(tmp_path):
    """MLproject's own entry; its run is the parent of the training's."""
    import mlflow

    root, store = Path(__file__).parents[2], f"sqlite:///{tmp_path / 'projects.db'}"
    given = dict(zip(QUICK.split()[::2], QUICK.split()[1::2]))
    given["--output"] = str(tmp_path / "out")
    told = [f"-P{name[2:]}={value}" for name, value in given.items()]
    place = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-m", "mlflow", "run", str(root / "mlflow"), "--env-manager", "local",
         "-e", "train", *told],
        cwd=tmp_path, capture_output=True, text=True, timeout=280,
        env={**os.environ, "MLFLOW_TRACKING_URI": store, "PATH": place},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-1000:]
    assert (tmp_path / "out" / "model.keras").exists()
    runs = mlflow.MlflowClient(store).search_runs(["0"])
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert any("privacy.epsilon" in run.data.metrics for run in runs)
