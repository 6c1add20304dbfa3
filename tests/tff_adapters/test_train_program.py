"""`beam-ldp train` as a user runs it: on digits, piped, charged, compared, on own clients."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import train, train_run
from beam_ldp.pipelines.options import parse_flags
from beam_ldp.pipelines.train_learn import Training, central_noise
from beam_ldp.pipelines.train_plan import bundled_facts, make_plan
from beam_ldp.pipelines.train_settings import FLAGS, check_train
from tff_adapters.data import load

QUICK = "--data digits --local-epsilon 4 --clients-per-round 20 --epochs 1 --delta 1e-5"
pytestmark = pytest.mark.e2e


def plan_of(text):
    values, _ = parse_flags(text.split(), FLAGS, beams=False)
    settings = check_train(values)
    return make_plan(settings, bundled_facts(settings.data, settings.points_per_client))


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
        f"train {QUICK} --target-epsilon {target} --output {out} --dataset d --run-id one "
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
    assert BudgetLedger(ledger.url).status("d").local_spent == 12.0  # three rounds of 4
    row = told["curves"]["training"][-1]
    assert row["rounds"] == 3 and row["epsilon"] == pytest.approx(record["epsilon"])
    files = {path.name for path in out.iterdir()}
    assert files == {"model.keras", "privacy.json", "privacy.md", "curve.csv", "curves.json",
                     "plot.png"}  # fmt: skip
    model = tf.keras.models.load_model(out / "model.keras")
    assert model.count_params() == 650 and any(np.any(w) for w in model.get_weights())
    _check_mlflow(tmp_path / "mlflow.db", told["mlflow_run_id"])


def _check_mlflow(database, run_id):
    from mlflow.tracking import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    run = client.get_run(run_id)
    assert len(client.get_metric_history(run_id, "privacy.epsilon")) == 3
    assert set(run.data.metrics) >= {"train.accuracy", "train.loss", "train.epsilon"}
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
        "--local-epsilon 6 --clients-per-round 12 --epochs 2 --delta 1e-3 --client-id uid "
        f"--features f* --label y --classes 2 --no-mlflow --test-data {rows} --format json"
    )
    flags = (
        f"{usual} --data {rows} --output {tmp_path / 'out'} --points-per-client 4 "
        "--points-sampled 2 --norm linf --baselines non-private,central-dp,local-only"
    ).split()
    assert train.main(flags) == train.DONE
    printed = capfd.readouterr()
    told = json.loads(printed.out)
    assert told["privacy"]["unit"] == "example" and told["mlflow_run_id"] is None
    assert (told["privacy"]["rounds"], told["privacy"]["num_reports"]) == (2, 24)
    beside = told["curves"]["baselines"]
    assert set(beside) == {"non-private", "local-only"}  # noise above 12 / 10: TFF refuses
    assert "central-dp was not trained" in " ".join(printed.err.split())
    assert beside["non-private"][-1]["accuracy"] > 0.5
    bad = f"{usual} --data {tmp_path / 'bad.csv'} --output {tmp_path / 'out2'}"
    assert train.main(bad.split()) == train.MISUSED
    assert "row 3" in " ".join(capfd.readouterr().err.split())
    assert not (tmp_path / "out2").exists()


def test_federated_averaging_runs(tmp_path, capfd):
    flags = f"{QUICK} --algorithm fedavg --points-per-client 20 --clients-per-round 30 --no-mlflow"
    assert train.main([*flags.split(), "--output", str(tmp_path / "out")]) == train.DONE
    assert "one user" in capfd.readouterr().out


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_what_ran_is_charged_where_a_training_ends_early(tmp_path, monkeypatch, error, capsys):
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("d", epsilon=90.0, delta=1e-5, local_epsilon=1000.0)
    rounds = []

    def round_of(self, sampler):
        rounds.append(sampler)
        if len(rounds) == 2:
            raise error("a client's secret")
        return {}

    monkeypatch.setattr(Training, "__init__", lambda self, *args: None)
    monkeypatch.setattr(Training, "round", round_of)
    flags = f"{QUICK} --no-mlflow --dataset d --ledger {ledger.url} --output {tmp_path / 'out'}"
    code = train.main(flags.split())
    assert code == (train.INTERRUPTED if error is KeyboardInterrupt else train.FAILED)
    assert "secret" not in capsys.readouterr().err
    assert BudgetLedger(ledger.url).status("d").local_committed == 8.0  # two rounds of 4
    assert not (tmp_path / "out").exists()


def test_a_training_whose_record_is_another_is_stopped():
    plan = plan_of(f"{QUICK} --dry-run")
    training = Training(plan, load("digits"))
    train_run.check_events(plan, training.state, 0)
    with pytest.raises(train_run.SamplingMismatchError, match="not what was priced"):
        train_run.check_events(plan, training.state, 1)


@pytest.mark.exact
def test_noise_of_the_central_baseline_costs_the_same_epsilon():
    import dp_accounting

    plan = plan_of(f"{QUICK} --dry-run")
    noise = central_noise(plan, 1.0)
    accountant = dp_accounting.rdp.RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        1437, 20, dp_accounting.GaussianDpEvent(noise / 2)
    )
    found = accountant.compose(event, plan.rounds).get_epsilon(1e-5)
    assert 0.95 < found <= 1.0
