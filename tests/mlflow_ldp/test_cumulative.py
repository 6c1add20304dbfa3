"""What all runs about the same people have spent, in MLflow; and its audit from MLflow alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import dp_accounting
import pytest
from click.testing import CliRunner

import mlflow_ldp
from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent, event_epsilon
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.ledger.losses import event_digest
from beam_ldp.pipelines.cli import group
from mlflow_ldp import server
from mlflow_ldp.budget import charge_tags, history, log_budget, mirror, spending
from mlflow_ldp.server import read_server
from mlflow_ldp.tracker import PrivacyTracker

mlflow = pytest.importorskip("mlflow")
if not mlflow_ldp.available():
    pytest.skip("the mlflow extra is not installed", allow_module_level=True)

from mlflow.tracking import MlflowClient  # noqa: E402

from tests.ledger.asked import asked  # noqa: E402

pytestmark = pytest.mark.exact

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 50_000)
PRICE = float(event_epsilon(EVENT, 1e-6))


def release(ledger: BudgetLedger, name: str, store: str | None = None, **record: Any) -> Any:
    """One release, charged; logged where a store is named."""
    told = {"epsilon": PRICE, "delta": 1e-6, "question": "answers", "num_reports": 50_000}
    ledger.reserve("visits", name, EVENT, identity=asked("visits", name))
    ledger.settle(name, EVENT, identity=asked("visits", name), about=told)
    if store is None:
        return None
    shown = {**told, "dataset": "visits", "local_epsilon": 2.0, "event": event_to_json(EVENT)}
    logged = mlflow_ldp.log_release(
        {**shown, "run_id": name, **record},
        tracking_uri=store,
        tags=charge_tags(ledger, name, EVENT),
        metrics=mlflow_ldp.dataset_metrics(ledger, "visits"),
    )
    log_budget(ledger, "visits", tracking_uri=store, experiment_id=logged.experiment_id)
    return logged


def budget_runs(store: str) -> list[Any]:
    client = MlflowClient(store)
    found = [e.experiment_id for e in client.search_experiments()]
    return list(client.search_runs(found, "tags.`privacy.budget_of` != ''"))


def chart(store: str, name: str) -> list[tuple[int, float]]:
    (run,) = budget_runs(store)
    found = MlflowClient(store).get_metric_history(run.info.run_id, f"privacy.dataset.{name}")
    return sorted((m.step, m.value) for m in found)


# What is shown ------------------------------------------------------------------------------------


def test_a_run_shows_what_all_runs_have_spent(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first", store)
    logged = release(ledger, "second", store)
    ledger.reserve("visits", "open", EVENT, identity=asked("visits", "open"))
    status = ledger.status("visits")
    shown = mlflow.get_run(logged.run_id).data.metrics
    assert shown["privacy.epsilon"] == PRICE
    assert shown["privacy.dataset.epsilon_spent"] == pytest.approx(status.spent, rel=1e-12)
    assert shown["privacy.dataset.epsilon_spent"] > PRICE
    assert shown["privacy.dataset.epsilon_budget"] == 1.0
    assert shown["privacy.dataset.epsilon_left"] == pytest.approx(1.0 - status.spent)
    assert [shown[f"privacy.dataset.local_{n}"] for n in ("spent", "budget", "left")] == [4, 16, 12]
    now = mlflow_ldp.dataset_metrics(ledger, "visits")
    assert now["privacy.dataset.epsilon_left"] == pytest.approx(status.left)
    assert now["privacy.dataset.epsilon_reserved"] == pytest.approx(status.reserved)
    assert now["privacy.dataset.local_reserved"] == 2.0


def test_without_a_local_budget_none_is_shown(ledger: BudgetLedger) -> None:
    ledger.set_budget("others", epsilon=1.0, delta=1e-6)
    found = mlflow_ldp.dataset_metrics(ledger, "others")
    assert "privacy.dataset.local_spent" in found
    assert not {"privacy.dataset.local_budget", "privacy.dataset.local_left"} & set(found)


def test_the_chart_of_the_budgets_run_is_the_history(ledger: BudgetLedger, store: str) -> None:
    for name in ("first", "second", "third"):
        release(ledger, name, store)
    found = chart(store, "epsilon_spent")
    assert [value for _, value in found] == sorted(value for _, value in found)
    assert found[-1] == (ledger.state.head.count, pytest.approx(ledger.status("visits").spent))
    # The first release brought the rows before it along; each later one adds its step.
    assert [step for step, _ in found] == [3, 4, 5, 7, 9]
    assert chart(store, "local_spent")[-1][1] == 6.0
    (run,) = budget_runs(store)
    assert run.info.run_name == "budget of visits" and run.info.status == "FINISHED"
    assert "**visits**" in run.data.tags["mlflow.note.content"]
    log_budget(ledger, "visits", tracking_uri=store)  # again: the same step, once
    assert chart(store, "epsilon_spent") == found


def test_the_mirror_completes_the_chart(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first", store)
    release(ledger, "lost")
    ledger.set_budget("others", epsilon=2.0, delta=1e-6)
    release(ledger, "third", store)
    mirror(ledger, tracking_uri=store)
    (visits,) = [r for r in budget_runs(store) if r.data.tags["privacy.population"] == "visits"]
    steps = MlflowClient(store).get_metric_history(
        visits.info.run_id, "privacy.dataset.epsilon_spent"
    )
    values = {m.step: m.value for m in steps}
    assert sorted(values) == [3, 4, 5, 6, 7, 10, 11]  # rows 8 and 9 are about others
    told = {
        p.step: p.values["privacy.dataset.epsilon_spent"] for p in history(ledger.rows(), "visits")
    }
    assert values == told
    assert {r.data.tags["privacy.population"] for r in budget_runs(store)} == {"visits", "others"}
    mirror(ledger, tracking_uri=store)
    again = MlflowClient(store).get_metric_history(
        visits.info.run_id, "privacy.dataset.epsilon_spent"
    )
    assert len(again) == len(steps)


def test_the_history_ends_where_the_ledger_stands(ledger: BudgetLedger) -> None:
    release(ledger, "first")
    ledger.reserve("visits", "second", EVENT, identity=asked("visits", "second"))
    *_, last = history(ledger.rows(), "visits")
    assert last.values == spending(ledger.state.population_of("visits"), 0)
    assert (last.step, last.time) == (ledger.state.head.count, ledger.state.time)


def test_the_statement_describes_the_run(store: str, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "privacy.md").write_text("# What it cost\n" + "x" * 9000)
    logged = mlflow_ldp.log_release({"local_epsilon": 1.0}, folder, tracking_uri=store)
    note = mlflow.get_run(logged.run_id).data.tags["mlflow.note.content"]
    assert note.startswith("# What it cost") and len(note) == 5000
    other = mlflow_ldp.log_release({}, tracking_uri=store, description="in short")
    assert mlflow.get_run(other.run_id).data.tags["mlflow.note.content"] == "in short"


def test_the_experiment_is_no_language_models(store: str) -> None:
    client = MlflowClient(store)
    mine = client.create_experiment("chosen", tags={"mlflow.experimentKind": "finetuning"})
    bare = client.create_experiment("bare")
    for name in ("new", "bare", "chosen"):
        mlflow_ldp.log_release({"local_epsilon": 1.0}, tracking_uri=store, experiment=name)
    new = client.get_experiment_by_name("new")
    assert new.tags["mlflow.experimentKind"] == "custom_model_development"
    assert "privacy.epsilon" in new.tags["mlflow.note.content"]
    assert client.get_experiment(bare).tags["mlflow.experimentKind"] == "custom_model_development"
    assert client.get_experiment(mine).tags["mlflow.experimentKind"] == "finetuning"


def test_a_tracker_stores_its_event_and_its_statement(ledger: BudgetLedger, store: str) -> None:
    other = LocalRandomizerDpEvent(0.01)
    with PrivacyTracker("visits", 1e-6, ledger=ledger, tracking_uri=store) as tracker:
        tracker.charge(EVENT)
        tracker.charge(EVENT)
        tracker.charge(other)
    server = read_server(store)
    (run,) = server.runs
    kinds = [part["kind"] for part in run.event["event"]["events"]]
    assert kinds == ["SelfComposedDpEvent", "LocalRandomizerDpEvent"]
    told = mlflow.get_run(run.run_id).data
    assert "What this run cost" in told.tags["mlflow.note.content"]
    assert told.metrics["privacy.dataset.local_spent"] == pytest.approx(4.01)
    assert chart(store, "local_spent")[-1][1] == pytest.approx(4.01)
    found = mlflow_ldp.audit_server(store)
    assert found.clean, found.checks
    (total,) = found.totals
    assert total.local_epsilon == pytest.approx(4.01)
    assert total.epsilon <= ledger.status("visits").spent * (1 + 1e-9)


def test_a_tracker_in_the_users_run_leaves_its_description(
    ledger: BudgetLedger, store: str
) -> None:
    with (
        mlflow.start_run(description="mine") as mine,
        PrivacyTracker("visits", 1e-6, ledger=ledger),
    ):
        pass
    assert mlflow.get_run(mine.info.run_id).data.tags["mlflow.note.content"] == "mine"


# The audit of a server alone ----------------------------------------------------------------------


def outcomes(found: Any) -> dict[str, str]:
    return {check.name: check.outcome for check in found.checks}


def test_the_runs_compose_to_what_the_ledger_holds(ledger: BudgetLedger, store: str) -> None:
    for name in ("first", "second", "third"):
        release(ledger, name, store)
    found = mlflow_ldp.audit_server(store)
    (total,) = found.totals
    assert found.clean
    assert (total.num_runs, total.num_uncharged, total.local_epsilon) == (3, 0, 6.0)
    assert total.epsilon == pytest.approx(ledger.status("visits").spent, rel=1e-9)
    assert total.epsilon_spent == pytest.approx(total.epsilon, rel=1e-9)
    assert set(outcomes(found).values()) == {"passed", "no evidence"}


def test_a_run_that_nobody_charged_shows_in_the_sum(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first", store)
    record = {"dataset": "visits", "local_epsilon": 2.0, "event": event_to_json(EVENT)}
    mlflow_ldp.log_release({**record, "run_id": "beside"}, tracking_uri=store)
    found = mlflow_ldp.audit_server(store)
    (check,) = [c for c in found.checks if c.name == server.SPENT]
    assert check.outcome == "failed"
    assert "1 of the runs were never charged" in check.findings[0]
    assert found.totals[0].num_uncharged == 1


def test_a_release_that_was_logged_twice_counts_once(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first", store)
    record = {"dataset": "visits", "local_epsilon": 2.0, "event": event_to_json(EVENT)}
    mlflow_ldp.log_release(record, tracking_uri=store, tags=charge_tags(ledger, "first", EVENT))
    found = mlflow_ldp.audit_server(store)
    assert (found.clean, found.totals[0].num_runs) == (True, 1)


def test_more_than_the_budget(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first", store)
    many = event_to_json(dp_accounting.SelfComposedDpEvent(EVENT, 1000))
    record = {"dataset": "visits", "local_epsilon": 2000.0, "event": many}
    mlflow_ldp.log_release(record, tracking_uri=store)
    found = outcomes(mlflow_ldp.audit_server(store))
    assert found[server.BUDGETS] == found[server.SPENT] == "failed"


def test_a_period_has_a_sum_of_its_own(tmp_path: Path, store: str) -> None:
    from tests.ledger.conftest import Clock

    clock = Clock()
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'periods.db'}", clock=clock)
    ledger.set_budget("visits", epsilon=1.3 * PRICE, delta=1e-6, period_days=30)
    release(ledger, "first", store)
    clock.move(days=31)
    release(ledger, "second", store)
    found = mlflow_ldp.audit_server(store)
    assert found.clean
    assert [(t.period, t.num_runs) for t in found.totals] == [(0, 1), (1, 1)]


def test_a_price_that_was_shown_too_small(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first", store, epsilon=0.5 * PRICE)
    release(ledger, "second", store, local_epsilon=1.0)
    (check,) = [c for c in mlflow_ldp.audit_server(store).checks if c.name == server.PRICES]
    assert check.outcome == "failed" and len(check.findings) == 2


def test_another_event_or_none(ledger: BudgetLedger, store: str) -> None:
    cheap = event_to_json(ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 10_000_000))
    release(ledger, "first", store, event=cheap)
    release(ledger, "second", store, event=None)
    release(ledger, "third", store, event={"version": 1, "event": "nothing"})
    found = outcomes(mlflow_ldp.audit_server(store))
    assert (found[server.EVENTS], found[server.STORED]) == ("failed", "failed")


def test_an_empty_server(store: str) -> None:
    found = mlflow_ldp.audit_server(store)
    assert set(outcomes(found).values()) == {"no evidence"} and not found.totals


def test_a_simulation_costs_nothing(store: str) -> None:
    mlflow_ldp.log_release({"simulated": True, "local_epsilon": 1.0}, tracking_uri=store)
    assert mlflow_ldp.audit_server(store).totals == ()


def test_the_command(ledger: BudgetLedger, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release(ledger, "first", store)
    monkeypatch.setenv("BEAM_LDP_LEDGER", ledger.url)
    told = ["audit", "--mlflow-uri", store, "--from-mlflow"]
    found = CliRunner().invoke(group, [*told, "--format", "json"])
    assert found.exit_code == 0, found.output
    (total,) = json.loads(found.output)["totals"]
    assert total["population"] == "visits" and total["epsilon"] == pytest.approx(PRICE, rel=0.5)
    assert "what all runs cost together" in CliRunner().invoke(group, told).output
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert CliRunner().invoke(group, ["audit", "--from-mlflow"]).exit_code == 2


# Against the ledger -------------------------------------------------------------------------------


def test_a_mirrored_charge_composes_too(ledger: BudgetLedger, store: str) -> None:
    release(ledger, "first")
    with PrivacyTracker("visits", 1e-6, ledger=ledger, tracking_uri=store + ".gone"):
        pass
    mirror(ledger, tracking_uri=store)
    found = mlflow_ldp.audit_server(store)
    assert found.clean and found.totals[0].num_runs == 1
    (run,) = read_server(store).runs
    assert run.shown["event_sha256"] == event_digest(event_to_json(EVENT))
    assert audit(ledger.rows(), tracked=read_server(store).shown).clean


def test_a_part_that_another_one_was_charged_for_adds_nothing(
    ledger: BudgetLedger, store: str
) -> None:
    release(ledger, "first")
    one, nothing = asked("visits", "first"), dp_accounting.NoOpDpEvent()
    part = replace(one, part="level 2")
    ledger.reserve("visits", "first/2", nothing, identity=part)
    ledger.settle("first/2", nothing, identity=part)
    mirror(ledger, tracking_uri=store)
    found = mlflow_ldp.audit_server(store)
    assert found.clean and found.totals[0].num_runs == 2
    assert found.totals[0].epsilon == pytest.approx(ledger.status("visits").spent)
    assert audit(ledger.rows(), tracked=read_server(store).shown).clean


def test_a_run_whose_price_another_run_shows_counts_with_it_where_that_one_is_there() -> None:
    told, event = {"epsilon": PRICE, "delta": 1e-6}, event_to_json(EVENT)
    first = server.TrackedRun("a", "search", "visits", "visits", 0, told, event, "1")
    later = server.TrackedRun(
        "b", None, "visits", "", None, told, event, "2", charged_with="search"
    )
    for runs, count in (([first, later], 1), ([later, first], 1), ([later], 1), ([first], 1)):
        (total,) = mlflow_ldp.audit_server("", server=server.Server(runs=runs)).totals
        assert (total.num_runs, total.local_epsilon) == (count, 2.0)


def test_what_was_not_to_be_logged_is_not_missing(ledger: BudgetLedger) -> None:
    ledger.reserve(
        "visits",
        "quiet",
        EVENT,
        identity=asked("visits", "quiet"),
        about={"untracked": "--no-mlflow"},
    )
    ledger.settle("quiet", EVENT, identity=asked("visits", "quiet"))
    (check,) = [c for c in audit(ledger.rows(), tracked={}).checks if "tracking" in c.name]
    assert check.outcome == "passed" and "1 runs were not to be logged" in check.findings[0]
    release(ledger, "loud")
    (check,) = [c for c in audit(ledger.rows(), tracked={}).checks if "tracking" in c.name]
    assert check.outcome == "failed" and "'loud'" in check.findings[0]


# Anchors in MLflow --------------------------------------------------------------------------------


def test_heads_of_a_ledger_are_kept_in_one_run(ledger: BudgetLedger, store: str) -> None:
    from beam_ldp.ledger.sinks import Anchoring, RolledBackError
    from mlflow_ldp.anchor_sink import MlflowAnchors

    release(ledger, "first")
    rows, head, ledger_id = ledger.rows(), ledger.state.head, ledger.state.ledger_id
    sink = MlflowAnchors(f"mlflow+{store}")
    assert sink.last(ledger_id) is None and sink.name.startswith("MLflow at sqlite://")
    for row in rows:
        Anchoring(sink).after_append(ledger_id, row.head, lambda start: rows[start:])
    again = MlflowAnchors(f"mlflow+{store}")
    found = again.last(ledger_id)
    assert found is not None and (found.count, found.hash) == (head.count, head.hash)
    assert again.last("another") is None
    assert [(a.count, a.hash) for a in again.all()] == [(head.count, head.hash)]
    (run,) = MlflowClient(store).search_runs(["1"], "tags.`privacy.anchored_ledger` != ''")
    assert run.data.metrics["privacy.ledger.rows"] == head.count
    Anchoring(again).check_before_reserve(ledger_id, head, lambda start: rows[start:])
    with pytest.raises(RolledBackError):
        Anchoring(again).check_before_reserve(ledger_id, rows[2].head, lambda start: rows[start:3])


def test_no_password_in_a_name() -> None:
    from mlflow_ldp.anchor_sink import MlflowAnchors

    assert "secret" not in MlflowAnchors("mlflow+https://ada:secret@tracking:5000").name
