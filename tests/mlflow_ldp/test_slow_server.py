"""A tracking server that answers late or never holds nothing up, and gets its log later."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE
from mlflow_ldp.release import log_release
from mlflow_ldp.runs import SECONDS_VARIABLE, Patience, TrackingTimeoutError, tracking_seconds
from mlflow_ldp.tracker import PrivacyTracker
from tests.mlflow_ldp.slow_server import slow_server

mlflow = pytest.importorskip("mlflow")

PURE = LocalRandomizerDpEvent(0.01)
RECORD = {"question": "answers", "dataset": "visits", "epsilon": 1.0, "delta": 1e-6}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "1")
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture(params=[False, True], ids=["silent", "dripping"])
def silent(request: pytest.FixtureRequest) -> Iterator[str]:
    """A server that never answers; or that never ends its answer."""
    with slow_server(drip=request.param) as url:
        yield url


# Patience -----------------------------------------------------------------------------------------


@pytest.mark.exact
def test_what_is_done_in_time_is_given_back() -> None:
    assert Patience().do(lambda: 42) == 42
    with pytest.raises(KeyError, match="of the work"):
        Patience().do(lambda: {}["of the work"])


@pytest.mark.exact
def test_what_takes_longer_is_left_alone_and_nothing_is_begun_meanwhile() -> None:
    patience, go, done = Patience(0.05), threading.Event(), []
    with pytest.raises(TrackingTimeoutError, match="0.05 s"):
        patience.do(lambda: done.append(go.wait(100)))
    with pytest.raises(TrackingTimeoutError, match="earlier request"):
        patience.do(lambda: done.append("never begun"))
    go.set()
    deadline = time.monotonic() + 100
    while not done and time.monotonic() < deadline:
        time.sleep(0.01)
    patience._at_work.result()  # type: ignore[union-attr]
    patience.do(lambda: done.append("later"))
    assert done == [True, "later"]


@pytest.mark.exact
def test_mlflows_own_requests_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert Patience(7).do(lambda: [os.environ[n] for n in names]) == ["7", "1"]
    assert not any(name in os.environ for name in names)
    monkeypatch.setenv(names[0], "3")  # the user's own
    assert Patience(7).do(lambda: os.environ[names[0]]) == "3"
    assert os.environ[names[0]] == "3"


@pytest.mark.exact
@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_limit_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, text)
    with pytest.raises(ValueError, match=SECONDS_VARIABLE):
        tracking_seconds()


# Releases -----------------------------------------------------------------------------------------


@pytest.mark.e2e
def test_a_log_that_hangs_ends(silent: str) -> None:
    """After one second; MLflow by itself would wait for minutes."""
    began = time.monotonic()
    with pytest.raises(TrackingTimeoutError):
        log_release(RECORD, tracking_uri=silent)
    assert time.monotonic() - began < 100


@pytest.mark.e2e
def test_a_tracker_goes_on(silent: str, tmp_path: Path) -> None:
    """It waits once, charges all the same, and says that the record is incomplete.

    To wait a second at every charge would take twice as long as is allowed here.
    """
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    ledger.set_budget("visits", epsilon=10.0, delta=1e-6)
    began = time.monotonic()
    with (
        pytest.warns(UserWarning) as caught,
        PrivacyTracker("visits", 1e-6, ledger=ledger, tracking_uri=silent) as tracker,
    ):
        for _ in range(200):
            tracker.charge(PURE)
    assert time.monotonic() - began < 100
    said = [str(w.message) for w in caught]
    assert any("TrackingTimeoutError" in text for text in said)
    assert any("incomplete" in text for text in said)
    assert ledger.status("visits").local_spent == pytest.approx(2.0)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = "".join(f"{i},{'yes' if i % 2 else 'no'}\n" for i in range(1000))
    (tmp_path / "people.csv").write_text("uid,answer\n" + rows)
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    return tmp_path


def flags(data: Path, uri: str, *more: str) -> list[str]:
    return [f"--input={data}/people.csv", f"--domain={data}/domain.txt", "--column=answer",
            f"--output={data}/out", "--local-epsilon=1", "--delta=1e-6", "--min-reports=900",
            f"--mlflow-uri={uri}", "--dataset=visits", "--one-row-per-person", *more]  # fmt: skip


@pytest.mark.e2e
@pytest.mark.parametrize("charged", [True, False])
def test_a_release_is_written_and_logged_later(
    data: Path, charged: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Released, settled, said; `finalize` logs it when the server is back."""
    url = f"sqlite:///{data / 'privacy.db'}"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("visits", epsilon=10.0, delta=1e-6)
    named = [f"--ledger={url}", "--run-id=run"] if charged else []
    with slow_server() as silent:
        assert main(flags(data, silent, *named)) == DONE
        said = " ".join(capsys.readouterr().err.split())
        assert "not logged to MLflow (TrackingTimeoutError)" in said and "finalize" in said
        assert (data / "out" / "privacy.json").exists()
        if charged:
            assert ledger.state.charge("run").status == "settled"
        later = ["finalize", f"{data}/out", "--ledger", url]
        still = CliRunner().invoke(group, [*later, "--mlflow-uri", silent])
        assert still.exit_code == 1 and "TrackingTimeoutError" in still.output
    monkeypatch.delenv(SECONDS_VARIABLE)
    store = f"sqlite:///{data}/mlflow.db"
    first, second = (CliRunner().invoke(group, [*later, "--mlflow-uri", store]) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert "MLflow run" in first.output and "has it already" in second.output
    logged = mlflow.MlflowClient(store).search_runs(["1"])  # the budget's own run is another
    (run,) = (run for run in logged if "privacy.epsilon" in run.data.metrics)
    record = json.loads((data / "out" / "privacy.json").read_text())
    assert run.data.metrics["privacy.epsilon"] == record["epsilon"]


@pytest.mark.e2e
@pytest.mark.slow
def test_a_process_ends_though_the_server_does_not(data: Path) -> None:
    """No thread that waits for the server keeps the program alive."""
    with slow_server() as silent:
        done = subprocess.run(
            [sys.executable, "-m", "beam_ldp.pipelines.frequency", *flags(data, silent)],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert "TrackingTimeoutError" in done.stderr


@pytest.mark.e2e
@pytest.mark.slow
def test_a_late_server_gets_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A real server behind half a second of delay: slow, and complete. Nothing on stdout."""
    monkeypatch.setenv(SECONDS_VARIABLE, "120")
    from tests.mlflow_ldp.real_server import real_server

    with real_server(tmp_path) as behind, slow_server(0.5, behind) as late:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tracker = PrivacyTracker("visits", 1e-6, tracking_uri=late)
        with tracker:
            for _ in range(5):
                tracker.charge(PURE)
        run = mlflow.MlflowClient(behind).get_run(tracker.mlflow_run_id)
    assert run.data.metrics["privacy.local_epsilon"] == pytest.approx(0.05)
    assert run.info.status == "FINISHED"
    assert capfd.readouterr().out == ""
