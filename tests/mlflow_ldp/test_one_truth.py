"""What MLflow shows is what the ledger holds: one run of each budget, every publication compared,
and no run left open by a store that failed."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlflow_ldp
from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent, event_epsilon
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.ledger import AuditReport, BudgetLedger, audit
from mlflow_ldp.budget import charge_tags, log_budget, mirror
from mlflow_ldp.runs import RunLog, find_experiment, log_name, open_client
from mlflow_ldp.server import audit_server, read_server
from mlflow_ldp.tracker import PrivacyTracker

mlflow = pytest.importorskip("mlflow")
if not mlflow_ldp.available():
    pytest.skip("the mlflow extra is not installed", allow_module_level=True)

from mlflow.exceptions import MlflowException  # noqa: E402
from mlflow.tracking import MlflowClient  # noqa: E402

from tests.ledger.asked import asked  # noqa: E402

pytestmark = pytest.mark.exact

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 50_000)
LARGER = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 20_000)
PRICE, BOTH = (float(event_epsilon(event, 1e-6)) for event in (EVENT, LARGER))


def runs(store: str, wanted: str = "") -> list[Any]:
    client = MlflowClient(store)
    return list(client.search_runs([e.experiment_id for e in client.search_experiments()], wanted))


def settled(ledger: BudgetLedger, name: str = "first") -> dict[str, Any]:
    """A release that is charged; its record."""
    told = {"epsilon": PRICE, "delta": 1e-6, "question": "answers", "num_reports": 50_000}
    identity = asked("visits", name, key="ab" * 16)
    ledger.reserve("visits", name, EVENT, identity=identity, memoized=True)
    ledger.settle(name, EVENT, identity=identity, about=told, report_digest="set1:11")
    shown = {**told, "dataset": "visits", "local_epsilon": 2.0, "event": event_to_json(EVENT)}
    return {**shown, "run_id": name}


def log(ledger: BudgetLedger, store: str, record: dict[str, Any]) -> Any:
    tags = charge_tags(ledger, record["run_id"], record["event"])
    return mlflow_ldp.log_release(record, tracking_uri=store, tags=tags)


def audited(ledger: BudgetLedger, store: str) -> AuditReport:
    found = read_server(store)
    budgets = [vars(budget) for budget in found.budgets]
    return audit(ledger.rows(), tracked=found.shown, budgets=budgets)


def tracking(report: AuditReport) -> tuple[str, ...]:
    (check,) = [c for c in report.checks if "tracking server" in c.name]
    return check.findings


def fails_once(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A store that fails once, as a locked SQLite does."""
    real: Callable[..., Any] = getattr(MlflowClient, name)
    failed: list[bool] = []

    def once(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not failed:
            failed.append(True)
            raise MlflowException("database is locked")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(MlflowClient, name, once)


# Budgets ------------------------------------------------------------------------------------------


def test_a_store_shows_a_budget_once_whatever_the_experiment(
    ledger: BudgetLedger, store: str
) -> None:
    settled(ledger, "first")
    mine = MlflowClient(store).create_experiment("my sweep")
    log_budget(ledger, "visits", tracking_uri=store, experiment_id=mine)
    settled(ledger, "second")
    log_budget(ledger, "visits", tracking_uri=store)
    (run,) = runs(store, "attributes.run_name = 'budget of visits'")
    assert run.info.experiment_id == mine and run.info.status == "FINISHED"
    assert run.data.metrics["privacy.dataset.local_spent"] == 4.0


@pytest.mark.parametrize("heal", [False, True])
def test_a_budget_run_that_was_left_behind_is_found_and_mirrored_away(
    ledger: BudgetLedger, store: str, heal: bool
) -> None:
    """As an earlier version left one in another experiment."""
    log(ledger, store, settled(ledger, "first"))
    log_budget(ledger, "visits", tracking_uri=store, complete=True)
    (run,) = runs(store, "tags.`privacy.budget_of` != ''")
    client = MlflowClient(store)
    other = client.create_run("0", tags=run.data.tags, run_name="budget of visits")
    for name, value in run.data.metrics.items():
        client.log_metric(other.info.run_id, name, value, step=3)
    log(ledger, store, settled(ledger, "second"))
    log_budget(ledger, "visits", tracking_uri=store) if heal else None
    report, alone = audited(ledger, store), audit_server(store)
    said = " ".join(tracking(report))
    assert report.clean == heal, said
    if not heal:
        assert "run 'second' was settled after them" in said
        mirror(ledger, tracking_uri=store)
        assert len(runs(store, "tags.`privacy.budget_of` != ''")) == 1
        report, alone = audited(ledger, store), audit_server(store)
    assert report.clean and alone.clean, tracking(report)


def test_a_budget_run_that_shows_another_spend_is_a_finding(
    ledger: BudgetLedger, store: str
) -> None:
    log(ledger, store, settled(ledger))
    log_budget(ledger, "visits", tracking_uri=store)
    (run,) = runs(store, "tags.`privacy.budget_of` != ''")
    step = ledger.balances.head.count
    MlflowClient(store).log_metric(run.info.run_id, "privacy.dataset.local_spent", 0.5, step=step)
    assert (
        f"shows local_spent = 0.5 and not 2 after {step} rows"
        in tracking(audited(ledger, store))[0]
    )


# Publications -------------------------------------------------------------------------------------


@pytest.mark.parametrize("told", [True, False])
def test_what_a_reader_sees_and_what_people_are_charged_are_two_figures(
    ledger: BudgetLedger, store: str, told: bool
) -> None:
    """Everybody reads reports of several levels at 0.5; people are charged the largest level."""
    charged = {"charged_local_epsilon": 2.0} if told else {}
    log(ledger, store, {**settled(ledger), "local_epsilon": 0.5, **charged})
    said = tracking(audited(ledger, store))
    assert said == (() if told else ("run 'first' shows local_epsilon = 0.5 and not 2.0",))
    assert audit_server(store).clean == told


@pytest.mark.parametrize("other_people", [True, False])
def test_the_run_of_a_second_publication_is_compared_too(
    ledger: BudgetLedger, store: str, other_people: bool
) -> None:
    record = settled(ledger)
    log(ledger, store, record)
    if other_people:
        identity = asked("visits", "first", key="ab" * 16)
        ledger.republish("first", LARGER, identity=identity, report_digest="set1:22", published=1)
        record |= {"epsilon": BOTH, "event": event_to_json(LARGER)}
    log(ledger, store, {**record, "publication": 2})
    report = audited(ledger, store)
    assert report.clean, report.checks
    (shown,) = read_server(store).shown.values()
    assert len(shown) == 2
    for change, found in (
        ({"epsilon": 0.01}, "shows epsilon = 0.01"),
        ({"epsilon": 9.0}, "shows epsilon = 9.0"),
        ({"epsilon": 9.0, "delta": 1e-7}, "shows epsilon = 9.0"),
        ({"local_epsilon": 0.5}, "shows local_epsilon = 0.5"),
        ({"event_sha256": "0" * 64}, "shows event_sha256"),
    ):
        for i in (0, 1):
            others = [one | change if i == j else one for j, one in enumerate(shown)]
            assert found in tracking(audit(ledger.rows(), tracked={"first": others}))[0]


# Runs that a failing store left open --------------------------------------------------------------


@pytest.mark.parametrize("step", ["create_run", "log_batch", "log_inputs"])
def test_a_tracker_whose_store_fails_once_leaves_one_run_that_is_over(
    store: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    fails_once(monkeypatch, step)
    with (
        pytest.warns(UserWarning, match="MLflow could not be written|no ledger"),
        PrivacyTracker("visits", 1e-6, tracking_uri=store) as tracker,
    ):
        tracker.charge(EVENT)
    (run,) = runs(store)
    assert run.info.status == "FINISHED" and run.data.metrics["privacy.local_epsilon"] == 2.0
    assert run.data.params["privacy.run_id"] == tracker.run_id
    assert run.inputs.dataset_inputs


def test_a_run_whose_making_was_not_answered_is_found_again(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MlflowClient.create_run

    def unanswered(self: Any, *args: Any, **kwargs: Any) -> Any:
        real(self, *args, **kwargs)
        monkeypatch.setattr(MlflowClient, "create_run", real)
        raise MlflowException("the answer was lost")

    monkeypatch.setattr(MlflowClient, "create_run", unanswered)
    log = RunLog(tracking_uri=store, experiment="beam-ldp", run_name="one", params={})
    with pytest.warns(UserWarning, match="it is tried again"):
        log.start()
    assert log.finish({}) and [run.info.status for run in runs(store)] == ["FINISHED"]


def test_a_release_whose_log_was_cut_is_completed_by_the_next_try(
    ledger: BudgetLedger, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its run cannot even be ended at first."""
    record = settled(ledger)
    fails_once(monkeypatch, "log_inputs")
    fails_once(monkeypatch, "set_terminated")
    with pytest.raises(MlflowException):
        log(ledger, store, record)
    assert [run.info.status for run in runs(store)] == ["RUNNING"]
    logged = log(ledger, store, record)
    (run,) = runs(store)
    assert (run.info.run_id, run.info.status) == (logged.run_id, "FINISHED")
    assert run.inputs.dataset_inputs and audited(ledger, store).clean


def test_what_is_mirrored_ends_the_run_that_a_lost_program_left_open(
    ledger: BudgetLedger, store: str
) -> None:
    settled(ledger, "it's first")
    client = MlflowClient(store)
    left = client.create_run("0", tags={"privacy.log": log_name("it's first")})
    mirror(ledger, tracking_uri=store)
    assert client.get_run(left.info.run_id).info.status == "FAILED"
    assert audited(ledger, store).clean


# The first use of a store -------------------------------------------------------------------------


def test_one_program_at_a_time_makes_a_sqlite_store(store: str, tmp_path: Path) -> None:
    """Another one holds the lock on its folder, so it has to wait."""
    opened: list[Any] = []
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    waiting = threading.Thread(target=lambda: opened.append(open_client(store)))
    waiting.start()
    waiting.join(0.3)
    assert waiting.is_alive() and not opened
    os.close(handle)
    waiting.join(30)
    assert opened


def test_an_experiment_that_another_program_made_meanwhile_is_taken(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, looked = MlflowClient(store), []
    real = MlflowClient.get_experiment_by_name

    def too_early(self: Any, name: str) -> Any:
        found = real(self, name) if looked else None
        looked.append(name)
        return found

    made = client.create_experiment("beam-ldp")
    monkeypatch.setattr(MlflowClient, "get_experiment_by_name", too_early)
    assert find_experiment(client, "beam-ldp", store) == made
