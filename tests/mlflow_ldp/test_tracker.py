"""The tracker refuses before it is overspent, and logs in batches."""

from __future__ import annotations

import json
import math
import warnings
from pathlib import Path
from typing import Any

import dp_accounting
import pytest

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError, audit
from beam_ldp.randomizers.frequency import KRandomizedResponse
from mlflow_ldp.pages import curve_page, curve_png, statement_page, thinned
from mlflow_ldp.runs import as_text
from mlflow_ldp.server import read_server
from mlflow_ldp.tracker import LARGEST_BLOCK, PrivacyTracker, active_tracker

mlflow = pytest.importorskip("mlflow")

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("store")]

PURE = LocalRandomizerDpEvent(0.01)
EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 100_000)
ROUND = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2_000)


@pytest.fixture
def ledger(tmp_path: Path) -> BudgetLedger:
    made = BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}")
    # At so small a delta, epsilons of one hundredth are cheapest added up.
    made.set_budget("visits", epsilon=1.0, delta=1e-40, local_epsilon=500.0)
    return made


def uncharged(**how: Any) -> PrivacyTracker:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivacyTracker("visits", 1e-6, **how)


def history(run_id: str | None, key: str) -> list[tuple[int, float]]:
    found = mlflow.MlflowClient().get_metric_history(run_id, f"privacy.{key}")
    return sorted((m.step, m.value) for m in found)


# Prices ------------------------------------------------------------------------------------


def test_each_step_shows_the_cumulative_price() -> None:
    with uncharged() as tracker:
        for step in range(3):
            tracker.charge(EVENT, step=10 * step, num_reports=100_000)
    logged = history(tracker.mlflow_run_id, "epsilon")
    assert [step for step, _ in logged] == [0, 10, 20]
    assert [e for _, e in logged] == sorted(e for _, e in logged)
    assert logged[-1][1] == tracker.spent.epsilon
    assert [v for _, v in history(tracker.mlflow_run_id, "local_epsilon")] == [1.0, 2.0, 3.0]
    assert [v for _, v in history(tracker.mlflow_run_id, "num_reports")] == [100_000.0] * 3


def test_a_fixed_schedule_is_priced_by_the_accountant() -> None:
    with uncharged(adaptive=False) as tracker:
        for _ in range(20):
            tracker.charge(ROUND)
    expected = ShuffleAccountant().compose(ROUND, 20)
    # By Rényi orders; privacy-loss distributions, at the end, may be tighter.
    assert tracker.spent.epsilon >= expected.get_epsilon(1e-6)
    assert tracker.accountant().get_epsilon(1e-6) == expected.get_epsilon(1e-6)


def test_adaptive_steps_cost_more_than_a_fixed_schedule() -> None:
    spent = []
    for adaptive in (True, False):
        with uncharged(adaptive=adaptive) as tracker:
            for _ in range(20):
                tracker.charge(ROUND)
        spent.append(tracker.spent.epsilon)
    assert spent[0] > spent[1]


def test_cumulative_lower_bounds_stand_beside_the_upper_ones() -> None:
    """After 1, 4, 16, ... charges and at the end; they rise, and never cross."""
    event = ShuffledDpEvent(KRandomizedResponse(4, 2.0).dp_event(), 100_000)
    with uncharged() as tracker:
        for step in range(20):
            tracker.charge(event, step=step)
    lower = history(tracker.mlflow_run_id, "epsilon_lower")
    upper = dict(history(tracker.mlflow_run_id, "epsilon"))
    assert [step for step, _ in lower] == [0, 3, 15, 19]
    assert [v for _, v in lower] == sorted(v for _, v in lower)
    assert all(0.5 * upper[step] < value <= upper[step] for step, value in lower)
    expected = ShuffleAccountant().compose(event, 16).get_epsilon(1e-6).lower
    assert lower[2][1] == pytest.approx(expected)
    known = dict(history(tracker.mlflow_run_id, "epsilon_class_lower"))
    assert sorted(known) == [0, 3, 15, 19]


# Refusals ------------------------------------------------------------------------------------


def test_a_limit_of_its_own() -> None:
    with uncharged(epsilon=0.05) as tracker:
        for _ in range(5):
            tracker.charge(PURE)
        assert tracker.would_exceed(PURE)
        with pytest.raises(BudgetExceededError, match="not charged"):
            tracker.charge(PURE)
        assert tracker.spent.num_charges == 5


def test_a_limit_of_local_epsilons() -> None:
    with uncharged(local_epsilon_limit=2.0) as tracker:
        tracker.charge(EVENT)
        assert not tracker.would_exceed(EVENT)
        assert tracker.would_exceed(EVENT, 2)
        tracker.charge(EVENT)
        with pytest.raises(BudgetExceededError, match="local epsilons"):
            tracker.charge(EVENT)


def test_the_budget_ends_the_run_at_its_last_epsilon(ledger: BudgetLedger) -> None:
    done = 0
    with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
        while not tracker.would_exceed(PURE):
            tracker.charge(PURE)
            done += 1
        with pytest.raises(BudgetExceededError, match="budget of 'visits'"):
            tracker.charge(PURE)
    assert done == 100
    assert ledger.status("visits").spent == pytest.approx(1.0, rel=1e-9)


def test_runs_share_the_budget(ledger: BudgetLedger) -> None:
    for _ in range(2):
        with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
            for _ in range(40):
                tracker.charge(PURE)
    with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
        for _ in range(20):
            tracker.charge(PURE)
        with pytest.raises(BudgetExceededError):
            tracker.charge(PURE)


@pytest.mark.parametrize(("quota", "fit"), [("ads", 25), ("", 75)])
def test_a_run_stops_before_its_quota_is_overdrawn(
    ledger: BudgetLedger, quota: str, fit: int
) -> None:
    """Told by `would_exceed`, which looked at the whole budget: `charge` then raised."""
    ledger.set_budget("visits", epsilon=20.0, delta=1e-40, local_epsilon=1.0)
    ledger.set_quota("visits", "ads", share=0.25)
    done = 0
    with PrivacyTracker("visits", 1e-6, ledger=ledger, quota=quota) as tracker:
        assert not tracker.would_exceed(PURE, fit) and tracker.would_exceed(PURE, fit + 1)
        while not tracker.would_exceed(PURE):
            tracker.charge(PURE)
            done += 1
        with pytest.raises(BudgetExceededError, match="keeps a share of"):
            tracker.charge(PURE)
    assert done == fit


def test_what_a_server_is_sent_counts_locally_as_it_is_charged(ledger: BudgetLedger) -> None:
    """Central noise: people send what they have, so a limit of local epsilons refuses it."""
    event = dp_accounting.GaussianDpEvent(1000.0)
    ledger.set_budget("visits", epsilon=1.0, delta=1e-5, local_epsilon=500.0)
    with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
        assert tracker.would_exceed(event)
        with pytest.raises(BudgetExceededError, match="local epsilons"):
            tracker.charge(event)


def test_charges_are_in_the_ledger_before_charge_returns(ledger: BudgetLedger) -> None:
    with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
        for step in range(1, 30):
            tracker.charge(PURE)
            assert ledger.status("visits").committed >= step * 0.01 * (1 - 1e-12)
    assert ledger.status("visits").committed == pytest.approx(0.29)


def test_a_crash_leaves_what_was_reserved_spent(ledger: BudgetLedger) -> None:
    tracker = PrivacyTracker("visits", 1e-6, ledger=ledger)
    for _ in range(4):  # blocks of 1, 2 and 4: three are left over
        tracker.charge(PURE)
    assert ledger.status("visits").committed == pytest.approx(0.07)


def test_a_forked_process_uses_no_charges_of_its_parent(
    ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both would use what was reserved ahead, and settle it once."""
    with PrivacyTracker("visits", 1e-40, ledger=ledger) as tracker:
        tracker.charge(PURE)
        with monkeypatch.context() as forked:
            forked.setattr("os.getpid", lambda: -1)
            with pytest.raises(LedgerError, match="belongs to another process"):
                tracker.charge(PURE)
        tracker.charge(PURE)
    assert ledger.status("visits").local_spent == pytest.approx(0.02)


def test_long_trainings_take_few_rows(ledger: BudgetLedger) -> None:
    with PrivacyTracker("visits", 1e-6, ledger=ledger) as tracker:
        for _ in range(100):
            tracker.charge(PURE)
    blocks = sum(row.kind == "reserve" for row in ledger.rows())
    assert blocks <= 6 + 100 / LARGEST_BLOCK + 8  # growing, full, and shrinking at the end


def test_an_unknown_dataset_stops_before_anything(ledger: BudgetLedger) -> None:
    with pytest.raises(LedgerError, match="did you mean"):
        PrivacyTracker("visit", 1e-6, ledger=ledger)


def test_without_a_ledger_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    with pytest.warns(UserWarning, match="nothing is charged"):
        tracker = PrivacyTracker("visits", 1e-6)
    with tracker:
        tracker.charge(PURE)
    run = mlflow.get_run(tracker.mlflow_run_id)
    assert run.data.params["privacy.charged"].startswith("no")


def test_what_is_charged_elsewhere_says_so_and_is_charged_once(
    monkeypatch: pytest.MonkeyPatch, ledger: BudgetLedger
) -> None:
    """Nothing is said of a missing ledger, and the ledger of the environment is left alone. A
    program that goes on does so in the same run."""
    monkeypatch.setenv("BEAM_LDP_LEDGER", ledger.url)
    for step in (0, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            tracker = PrivacyTracker(
                "visits", 1e-6, charged_elsewhere="yes", goes_on={"privacy.staging": "out-0123"}
            )
        with tracker:
            tracker.charge(PURE, step)
    found = mlflow.search_runs(
        filter_string="tags.`privacy.staging` = 'out-0123'", output_format="list",
        search_all_experiments=True,
    )  # fmt: skip
    assert [run.info.run_id for run in found] == [tracker.mlflow_run_id]
    assert [step for step, _ in history(tracker.mlflow_run_id, "epsilon")] == [0, 1]
    run = mlflow.get_run(tracker.mlflow_run_id)
    assert (run.info.status, run.data.tags["privacy.charged"]) == ("FINISHED", "yes")
    assert run.data.params["privacy.charged"] == "yes"
    assert ledger.status("visits").local_committed == 0.0


@pytest.mark.parametrize(
    "how", [{"delta": 0.0}, {"delta": 1.0}, {"epsilon": 0.0}, {"local_epsilon_limit": math.nan}]
)
def test_bad_arguments(how: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(how))):
        PrivacyTracker(**{"dataset": "visits", "delta": 1e-6, **how})


# MLflow -----------------------------------------------------------------------------------------


def test_it_writes_into_the_users_own_run() -> None:
    with mlflow.start_run() as run:
        mlflow.log_metric("loss", 0.5)
        with uncharged() as tracker:
            tracker.charge(EVENT)
        assert mlflow.active_run().info.run_id == run.info.run_id
    assert tracker.mlflow_run_id == run.info.run_id
    data = mlflow.get_run(run.info.run_id).data
    assert data.metrics["loss"] == 0.5
    assert data.metrics["privacy.epsilon"] == tracker.spent.epsilon
    assert mlflow.get_run(run.info.run_id).info.status == "FINISHED"


def test_a_second_tracker_in_one_run_gets_a_run_nested_in_it(ledger: BudgetLedger) -> None:
    """Neither overwrites what the other one says, so the audit finds both."""
    with mlflow.start_run() as run:
        trackers = []
        for count in (1, 2, 3):
            with PrivacyTracker("visits", 1e-40, ledger=ledger) as tracker:
                for _ in range(count):
                    tracker.charge(PURE)
            trackers.append(tracker)
    ids = [tracker.mlflow_run_id for tracker in trackers]
    assert ids[0] == run.info.run_id and len(set(ids)) == 3
    shown = [mlflow.get_run(i).data for i in ids]
    assert [d.tags.get("mlflow.parentRunId") for d in shown] == [None, ids[0], ids[0]]
    assert [d.tags["privacy.charge"] for d in shown] == [t.run_id for t in trackers]
    assert [d.metrics["privacy.local_epsilon"] for d in shown] == pytest.approx([0.01, 0.02, 0.03])
    seen = read_server(mlflow.get_tracking_uri()).shown
    ours = {t.run_id: seen[t.run_id] for t in trackers}
    (check,) = [c for c in audit(ledger.rows(), tracked=ours).checks if "tracking" in c.name]
    assert check.outcome == "passed", check.findings


def test_a_run_of_its_own_ends_with_the_block() -> None:
    with pytest.raises(RuntimeError), uncharged() as tracker:
        tracker.charge(EVENT)
        raise RuntimeError("training went wrong")
    assert mlflow.get_run(tracker.mlflow_run_id).info.status == "FAILED"
    assert mlflow.active_run() is None


def test_files_of_a_run(tmp_path: Path) -> None:
    with uncharged() as tracker:
        tracker.charge(EVENT)
        tracker.charge(EVENT)
    folder = Path(
        mlflow.artifacts.download_artifacts(
            run_id=tracker.mlflow_run_id, artifact_path="privacy", dst_path=str(tmp_path)
        )
    )
    names = sorted(path.name for path in folder.iterdir())
    pages = ["epsilon.html", "epsilon.png", "event.json", "events.json"]
    assert names == [*pages, "statement.html", "statement.md"]
    events = json.loads((folder / "events.json").read_text())
    assert [kind["count"] for kind in events["events"]] == [2]
    assert "epsilon" in (folder / "statement.md").read_text()


def test_a_server_that_is_down_costs_the_record_not_the_charge(
    ledger: BudgetLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    nobody = "http://127.0.0.1:9"  # the discard port: nothing listens
    tracker = PrivacyTracker("visits", 1e-6, ledger=ledger, tracking_uri=nobody)
    with pytest.warns(UserWarning) as caught, tracker:
        for _ in range(3):
            tracker.charge(PURE)
    assert [str(w.message)[:12] for w in caught if "MLflow" in str(w.message)] == ["MLflow could"]
    assert any("incomplete" in str(w.message) for w in caught)
    assert ledger.status("visits").spent == pytest.approx(0.03)


def test_the_active_tracker() -> None:
    assert active_tracker() is None
    with uncharged() as outer:
        with uncharged() as inner:
            assert active_tracker() is inner
        assert active_tracker() is outer
    assert active_tracker() is None


# Pages ------------------------------------------------------------------------------------------

CURVE = [(step, step**0.5, float(step)) for step in range(5001)]


def test_long_curves_are_thinned_and_keep_their_end() -> None:
    assert len(thinned(CURVE)) <= 2001
    assert thinned(CURVE)[-1] == CURVE[-1]
    assert thinned([]) == []


def test_pages_of_hostile_names_hold_no_script_of_theirs() -> None:
    name = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    page = curve_page(CURVE, name, 1e-6)
    assert page.count("<script>") == 1 and "<img" not in page
    assert "<img" not in statement_page(name, f"# x\n\n* {name}\n")
    for text in (page, statement_page("t", "# x\n\n* y\n")):
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_pictures_of_any_curve() -> None:
    for curve in (CURVE, CURVE[:1], [], [(0, math.inf, 1.0)]):
        assert curve_png(curve, "$x_$ " * 40, 1e-6).startswith(b"\x89PNG")


@pytest.mark.exact
def test_names_in_other_scripts_are_written_as_they_are():
    """As text, not as character codes; what no file can hold is the code of what it was."""
    assert as_text({"column": ["größe", "東京"]}) == '{"column": ["größe", "東京"]}'
    assert as_text("東京") == "東京" and as_text(["\udc80"]) == '["\\udc80"]'
