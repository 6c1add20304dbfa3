"""MLflow's own ways of starting runs: contexts, nested runs, autologging, inputs, projects."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, SubsampledShuffledDpEvent
from beam_ldp.ledger import BudgetLedger, audit
from mlflow_ldp.budget import mirror
from mlflow_ldp.release import dataset_input, schema_digest
from mlflow_ldp.server import read_server
from mlflow_ldp.tracker import PrivacyTracker
from tests.ledger.asked import asked
from tests.mlflow_ldp.test_tracker import uncharged
from tests.warm import warm_commands

mlflow = pytest.importorskip("mlflow")

pytestmark = pytest.mark.usefixtures("store")

PURE = LocalRandomizerDpEvent(0.01)
ROUND = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2_000)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetLedger:
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    made.set_budget("visits", epsilon=100.0, delta=1e-6)
    return made


# Context ------------------------------------------------------------------------------------------


@pytest.mark.exact
def test_mlflow_finds_the_context() -> None:
    from mlflow_ldp.pages import PrivacyContext

    (found,) = importlib.metadata.entry_points(group="mlflow.run_context_provider", name="beam-ldp")
    assert found.load() is PrivacyContext


@pytest.mark.exact
def test_runs_are_tagged_while_a_tracker_is_open() -> None:
    from mlflow_ldp.pages import PrivacyContext

    assert not PrivacyContext().in_context()
    with mlflow.start_run() as before:
        pass
    with uncharged(), mlflow.start_run() as during:
        assert PrivacyContext().in_context()
    tags = mlflow.get_run(during.info.run_id).data.tags
    assert tags["privacy.dataset"] == "visits" and tags["privacy.charged"].startswith("no")
    assert "privacy.dataset" not in mlflow.get_run(before.info.run_id).data.tags
    assert not PrivacyContext().in_context()


@pytest.mark.exact
def test_a_programs_own_tags_stay() -> None:
    """`beam-ldp train` charges the ledger itself: its run must not say that nothing was charged."""
    with uncharged() as tracker:
        tracker.tag({"privacy.charged": "yes"})
        tracker.charge(PURE)
    tags = mlflow.get_run(tracker.mlflow_run_id).data.tags
    assert tags["privacy.charged"] == "yes" and tags["privacy.dataset"] == "visits"


@pytest.mark.exact
def test_the_context_loads_nothing() -> None:
    program = (
        "import sys; from mlflow_ldp.pages import PrivacyContext as C;"
        "assert not C().in_context(); print('beam_ldp' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"


# Users' own runs ----------------------------------------------------------------------------------


@pytest.mark.exact
def test_nested_runs_each_keep_their_own() -> None:
    with mlflow.start_run() as outer, uncharged() as whole:
        whole.charge(PURE)
        with mlflow.start_run(nested=True) as inner, uncharged() as part:
            part.charge(PURE)
            part.charge(PURE)
    assert (whole.mlflow_run_id, part.mlflow_run_id) == (outer.info.run_id, inner.info.run_id)
    shown = [mlflow.get_run(run.info.run_id).data for run in (outer, inner)]
    assert [data.metrics["privacy.local_epsilon"] for data in shown] == [0.01, 0.02]
    assert shown[1].tags["mlflow.parentRunId"] == outer.info.run_id


@pytest.mark.exact
def test_autologging_stays_on_and_its_metrics_stay_whole() -> None:
    from sklearn.linear_model import LogisticRegression

    mlflow.sklearn.autolog(log_models=False, log_datasets=False, silent=True)
    try:
        with mlflow.start_run() as run, uncharged() as tracker:
            tracker.charge(PURE)
            LogisticRegression().fit([[0.0], [1.0]], [0, 1])
            tracker.charge(PURE)
    finally:
        mlflow.sklearn.autolog(disable=True)
    data = mlflow.get_run(run.info.run_id).data
    assert "training_score" in data.metrics
    assert data.metrics["privacy.local_epsilon"] == 0.02


@pytest.mark.exact
def test_a_run_that_another_process_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `mlflow run` does."""
    client = mlflow.MlflowClient()
    run = client.create_run("0")
    monkeypatch.setenv("MLFLOW_RUN_ID", run.info.run_id)
    with uncharged() as tracker:
        tracker.charge(PURE)
    assert tracker.mlflow_run_id == run.info.run_id
    assert client.get_run(run.info.run_id).info.status == "RUNNING"  # its owner ends it


# Inputs -------------------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_input_is_a_name_a_schema_and_a_number() -> None:
    with uncharged(columns={"answer": "string"}, num_users=60_000) as tracker:
        tracker.charge(PURE)
    ((found,),) = [mlflow.get_run(tracker.mlflow_run_id).inputs.dataset_inputs]
    dataset = found.dataset
    assert (dataset.name, json.loads(dataset.profile)) == ("visits", {"num_users": 60_000})
    assert dataset.digest == schema_digest({"answer": "string"}) and len(dataset.digest) <= 36
    (column,) = json.loads(dataset.schema)["mlflow_colspec"]
    assert column["name"] == "answer"


@pytest.mark.exact
def test_equal_schemas_have_equal_digests() -> None:
    assert schema_digest({"a": "string", "b": "double"}) == schema_digest(
        {"b": "double", "a": "string"}
    )
    assert schema_digest({"a": "string"}) != schema_digest({"a": "double"})
    assert len(dataset_input("x" * 1000, {}).dataset.name) == 500


# The ledger's mirror ------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_tracked_run_and_the_ledger_say_the_same(ledger: BudgetLedger, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'own.db'}"
    with PrivacyTracker("visits", 1e-6, ledger=ledger, tracking_uri=store) as tracker:
        for _ in range(10):
            tracker.charge(PURE)
    server = read_server(store)
    shown, anchors = server.shown, server.anchors
    assert list(shown) == [tracker.run_id]
    assert max(anchor.count for anchor in anchors) == ledger.state.head.count
    assert audit(ledger.rows(), tracked=shown).clean
    assert mirror(ledger, tracking_uri=store) == []


@pytest.mark.exact
def test_what_a_server_lacks_is_mirrored_once(ledger: BudgetLedger, store: str) -> None:
    ledger.reserve("visits", "lost", ROUND, identity=asked("visits", "lost"))
    ledger.settle(
        "lost",
        ROUND,
        identity=asked("visits", "lost"),
        about={"epsilon": 1.0, "delta": 1e-6, "question": "answers"},
    )
    (logged,) = mirror(ledger, tracking_uri=store)
    assert mirror(ledger, tracking_uri=store) == []
    assert mlflow.get_run(logged.run_id).data.metrics["privacy.epsilon"] == 1.0


@pytest.mark.exact
def test_a_ledger_that_goes_away_costs_its_worst_case(
    ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = PrivacyTracker("visits", 1e-6, ledger=ledger)
    with pytest.warns(UserWarning, match="stays charged"), tracker:
        for _ in range(4):
            tracker.charge(PURE)
        monkeypatch.setattr(ledger, "settle", _away)
    assert mlflow.get_run(tracker.mlflow_run_id).info.status == "FINISHED"
    assert ledger.status("visits").local_committed == pytest.approx(0.07)


def _away(*arguments: Any, **how: Any) -> None:
    raise ConnectionError


# Long trainings -----------------------------------------------------------------------------------


@pytest.mark.bench
@pytest.mark.exact
def test_ten_thousand_rounds_take_ten_seconds(ledger: BudgetLedger) -> None:
    """Charged, logged with four metrics each, with pictures: within MLflow's limits."""
    rounds = 10_000
    with mlflow.start_run():  # tables of a new store are not what is measured
        pass
    began, ticked = time.process_time(), time.perf_counter()
    with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
        for step in range(rounds):
            tracker.charge(ROUND, step=step, num_reports=2_000)
    busy, passed = time.process_time() - began, time.perf_counter() - ticked
    print(f"{rounds} rounds: {busy:.1f} s of processor time, {passed:.1f} s")
    history = mlflow.MlflowClient().get_metric_history(tracker.mlflow_run_id, "privacy.epsilon")
    assert len(history) == rounds
    assert busy < 10.0


@pytest.mark.exact
def test_charging_is_cheap(ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a millisecond of processor time, rows in the ledger included; 0.15 were measured."""
    tracker = PrivacyTracker("visits", 1e-6, ledger=ledger)
    monkeypatch.setattr(tracker._log, "flush", lambda: None)
    tracker.charge(ROUND)
    began = time.process_time()
    for _ in range(1000):
        tracker.charge(ROUND)
    assert time.process_time() - began < 1000 * 0.0015  # three times, for busy machines


# Projects -----------------------------------------------------------------------------------------


@pytest.mark.e2e
@pytest.mark.slow
def test_the_project_runs(tmp_path: Path, ledger: BudgetLedger) -> None:
    people = "".join(f"{'yes' if i % 2 else 'no'}\n" for i in range(2000))
    (tmp_path / "people.txt").write_text(people)
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    (tmp_path / "numbers.csv").write_text("x\n" + "0.5\n" * 2000)
    store = f"sqlite:///{tmp_path / 'projects.db'}"

    def run(entry_point: str, **parameters: object) -> str:
        given = [f"-P{name.replace('_', '-')}={value}" for name, value in parameters.items()]
        command = [sys.executable, "-m", "mlflow", "run", str(ROOT / "mlflow"),
                   "--env-manager", "local", "-e", entry_point, *given]  # fmt: skip
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=300,
            env={**os.environ, "MLFLOW_TRACKING_URI": store, "PATH": _path()},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-1000:]
        return done.stdout + done.stderr

    common = {"local_epsilon": 2, "delta": 1e-6, "min_reports": 1000}
    run("frequency", input=tmp_path / "people.txt", domain=tmp_path / "domain.txt",
        output=tmp_path / "frequencies", **common)  # fmt: skip
    run("mean", input=tmp_path / "numbers.csv", column="x", radius=1,
        output=tmp_path / "means", **common)  # fmt: skip
    assert "The ledger is clean" in run("audit", ledger=ledger.url)
    assert (tmp_path / "frequencies" / "privacy.json").exists()
    assert (tmp_path / "means" / "privacy.json").exists()
    runs = mlflow.MlflowClient(store).search_runs(["0"])
    assert {run.info.status for run in runs} == {"FINISHED"}
    parents = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
    assert len(parents) == 2 and all("privacy.epsilon" in run.data.metrics for run in parents)


def _path() -> str:
    """The projects' own programs are warm."""
    return os.pathsep.join((warm_commands(), str(Path(sys.executable).parent), os.environ["PATH"]))
