"""Logging a release to a real MLflow store on SQLite."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mlflow_ldp
from mlflow_ldp import release

mlflow = pytest.importorskip("mlflow", reason="the mlflow extra is not installed")
if not mlflow_ldp.available():
    pytest.skip("the mlflow extra is not installed", allow_module_level=True)

from mlflow.tracking import MlflowClient  # noqa: E402

RECORD = {
    "schema_version": 1,
    "question": "word",
    "dataset": "demo (2026) @home",
    "mechanism": {"mechanism": "SubsetSelection", "version": 1, "domain_size": 11},
    "local_epsilon": 4.0,
    "epsilon": 0.5,
    "epsilon_lower": 0.4,
    "epsilon_class_lower": None,
    "delta": 1e-8,
    "method": "numeric clone pair",
    "proof_status": "proved",
    "num_reports": 1000,
    "honest_reports": 900,
    "smallest_batch": 1000,
    "num_bad_rows": 3,
    "simulated": False,
    "warnings": ["fewer reports than expected"],
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/mlflow.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("privacy.json", "plot.png", "estimates.csv", "bad_rows.jsonl"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_logs_prices_parameters_and_files(store: str, folder: Path) -> None:
    logged = mlflow_ldp.log_release(
        RECORD, folder, tracking_uri=store, experiment="one", metrics={"error.predicted": 0.01}
    )
    run = MlflowClient(store).get_run(logged.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["privacy.epsilon"] == 0.5
    assert run.data.metrics["privacy.local_epsilon"] == 4.0
    assert run.data.metrics["privacy.num_bad_rows"] == 3
    assert run.data.metrics["error.predicted"] == 0.01
    assert "privacy.epsilon_class_lower" not in run.data.metrics
    assert run.data.params["privacy.mechanism"] == "SubsetSelection"
    assert run.data.params["privacy.mechanism.domain_size"] == "11"
    assert run.data.params["privacy.dataset"] == "demo (2026) @home"
    assert run.data.tags["privacy.warnings"] == "fewer reports than expected"
    artifacts = {a.path for a in MlflowClient(store).list_artifacts(logged.run_id, "release")}
    assert artifacts == {"release/privacy.json", "release/plot.png", "release/estimates.csv"}
    assert "sqlite:///" in logged.ui_command


def test_artifacts_lie_beside_the_database(store: str, folder: Path) -> None:
    logged = mlflow_ldp.log_release(RECORD, folder, tracking_uri=store, experiment="place")
    uri = MlflowClient(store).get_run(logged.run_id).info.artifact_uri
    assert str(Path(store.removeprefix("sqlite:///")).parent / "mlartifacts") in uri


def test_an_infinite_price_becomes_a_tag(store: str) -> None:
    logged = mlflow_ldp.log_release(
        {**RECORD, "epsilon": float("inf")}, tracking_uri=store, experiment="one"
    )
    data = MlflowClient(store).get_run(logged.run_id).data
    assert "privacy.epsilon" not in data.metrics
    assert data.tags["privacy.epsilon"] == "unbounded"


def test_a_simulation_says_so(store: str) -> None:
    record = {**RECORD, "epsilon": None, "local_epsilon": None, "simulated": True}
    logged = mlflow_ldp.log_release(record, tracking_uri=store, experiment="one")
    data = MlflowClient(store).get_run(logged.run_id).data
    assert data.tags["privacy.guarantee"] == "none: simulation"
    assert not {"privacy.epsilon", "privacy.local_epsilon"} & set(data.metrics)


def test_keys_are_valid_and_long_values_are_cut(store: str) -> None:
    logged = mlflow_ldp.log_release(
        RECORD,
        tracking_uri=store,
        experiment="one",
        metrics={"eps@1e-6 (upper)": 1.0},
        params={"long": "x" * 10_000},
    )
    data = MlflowClient(store).get_run(logged.run_id).data
    assert data.metrics["eps_1e-6 _upper_"] == 1.0
    assert len(data.params["long"]) == 6000


def test_nests_in_the_active_run_and_leaves_it_alone(store: str) -> None:
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(store)
    try:
        with mlflow.start_run() as mine:
            logged = mlflow_ldp.log_release(RECORD)
            assert mlflow.active_run().info.run_id == mine.info.run_id
        run = MlflowClient(store).get_run(logged.run_id)
        assert run.data.tags["mlflow.parentRunId"] == mine.info.run_id
        assert MlflowClient(store).get_run(mine.info.run_id).data.metrics == {}
    finally:
        mlflow.set_tracking_uri(before)


def test_global_state_is_untouched(store: str) -> None:
    before = mlflow.get_tracking_uri()
    mlflow_ldp.log_release(RECORD, tracking_uri=store, experiment="one")
    assert mlflow.get_tracking_uri() == before
    assert mlflow.active_run() is None


def test_a_failure_marks_the_run_as_failed(store: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        mlflow_ldp.log_release(
            RECORD, tmp_path / "missing", tracking_uri=store, experiment="failed"
        )
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("failed")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"


def test_absent_mlflow_is_an_error_that_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "available", lambda: False)
    with pytest.raises(mlflow_ldp.MlflowMissingError, match=r"beam-ldp\[mlflow\]"):
        mlflow_ldp.log_release(RECORD)


def test_an_empty_namespace_is_not_mlflow(tmp_path: Path) -> None:
    """A folder `mlflow` without `__init__.py` imports; it is not taken for the real one."""
    (tmp_path / "mlflow").mkdir()
    program = (
        "import sys, types; sys.modules['mlflow'] = types.ModuleType('mlflow');"
        "import mlflow_ldp; print(mlflow_ldp.available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout.strip() == "False"


def test_the_real_mlflow_is_found_from_the_repository_root() -> None:
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", "import mlflow; print(mlflow.__version__)"],
        capture_output=True, text=True, cwd=root, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == mlflow.__version__


def test_importing_the_package_does_not_import_mlflow() -> None:
    program = "import sys, mlflow_ldp; print('mlflow' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
