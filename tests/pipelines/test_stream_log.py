"""The MLflow run of a stream: its steps, what it goes on with, and what audits say of it."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import mlflow_ldp
from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.ledger import AuditReport, BudgetLedger, audit
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.usage.frequency import USAGE
from beam_ldp.release.streams import log as stream_log
from beam_ldp.release.streams.job import stream_of
from beam_ldp.release.streams.log import ORDERS, StreamLog, StreamProgress
from beam_ldp.release.streams.results import MarkOpenWindows, WriteRelease, begin
from beam_ldp.transforms.budgeted import Reservation
from beam_ldp.wording import number
from mlflow_ldp.runs import SECONDS_VARIABLE
from mlflow_ldp.server import PRICES, STORED
from tests.mlflow_ldp.slow_server import slow_server
from tests.pipelines.test_stream import a_release

mlflow = pytest.importorskip("mlflow")
from mlflow.tracking import MlflowClient  # noqa: E402

pytestmark = pytest.mark.exact

DELTA, WINDOW = 1e-8, 60 * 10**6


class Launched:
    """One start of the program without its engine: what workers do is done here."""

    def __init__(self, place: Path, store: str, *more: str, budgeted: bool = True) -> None:
        flags = [
            "--input", str(place / "in"), "--input-format", "csv", "--column", "colour",
            "--user-id", "id", "--domain", str(place / "colours"), "--time-column", "t",
            "--window", "60s", "--budget-windows", "20", "--local-epsilon", "2",
            "--delta", str(DELTA), "--min-reports", "10", "--dataset", "people",
            "--release-id", "colours", "--memoize-key-file", str(place / "key"),
            "--run-id", "live", "--output", str(place / "out"), "--mlflow-uri", store, "--stream",
            *(["--ledger", ledger_of(place).url] if budgeted else ["--no-ledger"]), *more,
        ]  # fmt: skip
        self.job = stream_of(USAGE, read_flags(USAGE, flags))
        self.said = Console(record=True, width=200, file=(place / "said").open("a"))
        self.held: Reservation | None = None
        if self.job.budget is not None:
            from apache_beam.transforms.window import FixedWindows

            assert self.job.identity is not None
            event = self.job.budget.worst_event(self.job.run.choice.mechanism, 10)
            self.held = self.job.budget.reserve(
                event, identity=self.job.identity, windowing=FixedWindows(60), bounded=False
            )
            self.job.note_attempt()
        begin(self.job.folder, self.job.identity, self.job.run_id, marked=True)
        self.opened = MarkOpenWindows(str(self.job.folder))
        self.writer = WriteRelease(str(self.job.folder), self.job.run, self.job.identity)
        self.writer.setup()
        self.watched = StreamProgress(self.job.folder, 20, DELTA)
        self.log = StreamLog(self.job, self.said)

    def release(self, *windows: int, **how: Any) -> None:
        """Settle and write, as a worker; the launcher looks after each."""
        for window in windows:
            release = a_release(60 * window, 1000 + window, **how)
            self.opened.mark(*release.window)
            if self.held is not None and release.event is not None:
                ledger, token = BudgetLedger(self.held.url), {"": self.held.token_of(release)}
                assert self.held.settle(ledger, self.job.attempt, token, release) == ""
            list(self.writer.process(release))
            self.look()

    def look(self) -> None:
        self.watched.look()
        self.log.take(self.watched.new_steps())

    def end(self, failed: bool = False) -> None:
        self.look()
        self.job.give_back(self.said)
        self.log.end(self.watched, failed=failed)


def ledger_of(place: Path) -> BudgetLedger:
    return BudgetLedger(f"sqlite:///{place / 'ledger.db'}")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(stream_log, "EVERY", 0.0)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "first.csv").write_text("colour,id,t\nred,1,5\n")
    (tmp_path / "colours").write_text("red\ngreen\n")
    (tmp_path / "key").write_bytes(b"k" * 32)
    (tmp_path / "key").chmod(0o600)
    ledger = BudgetLedger.create(f"sqlite:///{tmp_path / 'ledger.db'}")
    ledger.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=100)
    return tmp_path


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'mlflow.db'}"


def runs_of(store: str) -> list[Any]:
    client = MlflowClient(store)
    where = [experiment.experiment_id for experiment in client.search_experiments()]
    return list(client.search_runs(where, f"tags.`{stream_log.STREAM_TAG}` != ''"))


def steps_of(store: str, name: str) -> list[float]:
    """Values of a metric by their steps, from 0 without a gap."""
    (run,) = runs_of(store)
    history = MlflowClient(store).get_metric_history(run.info.run_id, f"privacy.{name}")
    found = {point.step: point.value for point in history}
    assert sorted(found) == list(range(len(found)))
    return [found[step] for step in sorted(found)]


def audited(place: Path, store: str) -> tuple[AuditReport, Any]:
    """By the ledger with the server beside it, and by the server alone."""
    report = audit(ledger_of(place).rows(), tracked=mlflow_ldp.read_server(store).shown)
    return report, mlflow_ldp.audit_server(store)


def tracking(report: AuditReport) -> Any:
    (check,) = [check for check in report.checks if "tracking server" in check.name]
    return check


def test_windows_are_steps_of_one_run(place: Path, store: str) -> None:
    live = Launched(place, store)
    live.release(0, 1, 3)
    live.release(1, late=True)
    live.release(3, derived=True)  # a sum: no release of its own
    live.end()
    (run,) = runs_of(store)
    assert run.info.status == "FINISHED" and run.info.run_id == live.log.logged.run_id
    assert steps_of(store, "num_reports") == [1000, 1001, 1003, 1001]
    assert steps_of(store, "window_start") == [0, 60, 180, 60]
    assert steps_of(store, "late") == [0, 0, 0, 1]
    assert steps_of(store, "local_epsilon") == [2, 4, 6, 8]
    epsilons = steps_of(store, "epsilon")
    assert epsilons == sorted(epsilons) and epsilons[-1] == live.watched.epsilon
    first = steps_of(store, "step_epsilon")[0]  # rounded up as it is certified
    assert 0 < epsilons[0] <= first <= float(number(1.0005 * epsilons[0]))
    assert steps_of(store, "dataset.local_spent") == [2, 4, 6, 8]
    assert steps_of(store, "dataset.local_left")[-1] == 92
    spent = steps_of(store, "dataset.epsilon_spent")
    assert spent == sorted(spent) and spent[-1] == ledger_of(place).status("people").spent
    assert steps_of(store, "dataset.epsilon_budget") == [100] * 4
    assert steps_of(store, "dataset.epsilon_left")[-1] == pytest.approx(100 - spent[-1])
    tags, params = run.data.tags, run.data.params
    assert live.job.identity is not None
    assert tags["privacy.identity"] == live.job.identity.digest.hex()
    assert (tags["privacy.charge"], tags["privacy.charged"]) == ("live", "yes")
    assert tags["privacy.population"] == "people" and "ledger_anchor" in str(list(tags))
    assert float(params["privacy.delta"]) == DELTA
    assert params["privacy.mechanism.local_epsilon"] == "2.0"
    assert "4 of 20 releases used" in tags["mlflow.note.content"]
    report, server = audited(place, store)
    assert report.clean and tracking(report).findings == ()
    assert server.clean, server.checks
    (total,) = server.totals
    assert (total.num_runs, total.num_uncharged, total.local_epsilon) == (1, 0, 8)
    assert total.epsilon_spent == pytest.approx(total.epsilon)


def test_nothing_secret_is_logged(place: Path, store: str) -> None:
    live = Launched(place, store)
    live.release(0)
    live.end()
    assert live.log.logged is not None
    run = MlflowClient(store).get_run(live.log.logged.run_id)
    files = [path for path in (place / "mlartifacts").rglob("*") if path.is_file()]
    assert [path.name for path in files] == ["event.json"]
    told = json.dumps(run.to_dictionary()) + files[0].read_text()
    for secret in (str(place / "key"), "k" * 32, (b"k" * 32).hex(), str(place / "in"), '"red"'):
        assert secret not in told


def test_a_stream_that_goes_on_goes_on_with_its_run(place: Path, store: str) -> None:
    first = Launched(place, store)
    first.release(0, 1)
    monitor = audited(place, store)  # the launcher is lost here
    again = Launched(place, store)
    again.look()  # at all that lies there
    again.release(2)
    assert again.log.logged.run_id == first.log.logged.run_id
    assert [run.info.status for run in runs_of(store)] == ["RUNNING"]
    again.end()
    assert steps_of(store, "num_reports") == [1000, 1001, 1002]
    assert steps_of(store, "local_epsilon") == [2, 4, 6]
    assert [run.info.status for run in runs_of(store)] == ["FINISHED"]
    for report, server in (monitor, audited(place, store)):
        assert report.clean and server.clean, (tracking(report), server.checks)
        assert [total.num_runs for total in server.totals] == [1]
    assert "1 streams may go on" in tracking(monitor[0]).findings[0]
    assert monitor[1].totals[0].local_epsilon == 4


def test_windows_that_came_out_while_nobody_looked_are_logged_once(place: Path, store: str) -> None:
    """A job may live on without its launcher; the next start finds its releases in the folder."""
    first = Launched(place, store)
    first.release(0, 2)
    first.log.take = lambda steps: None  # type: ignore[method-assign]
    first.release(1, 3)
    again = Launched(place, store)
    again.look()
    again.end()
    assert sorted(steps_of(store, "window_start")) == [0, 60, 120, 180]
    assert steps_of(store, "window_start")[:2] == [0, 120]
    assert steps_of(store, "local_epsilon")[-1] == 8
    report, server = audited(place, store)
    assert report.clean and server.clean


def test_a_start_that_was_overtaken_logs_nothing_more(place: Path, store: str) -> None:
    """Both look at one folder; the ledger knows which of them is the newest."""
    first = Launched(place, store)
    first.release(0)
    again = Launched(place, store)
    again.look()
    again.release(1)
    first.look()
    first.log.end(first.watched, failed=True)
    assert [run.info.status for run in runs_of(store)] == ["RUNNING"]
    again.end()
    assert steps_of(store, "window_start") == [0, 60]


def test_another_stream_has_another_run(place: Path, store: str) -> None:
    """Under the same name, in another ledger or with fresh noise: never the first one's run."""
    first = Launched(place, store)
    first.release(0)
    first.end()
    ledger = BudgetLedger.create(f"sqlite:///{place / 'other.db'}")
    ledger.set_budget("people", epsilon=100, delta=1e-6, local_epsilon=100)
    elsewhere = str(place / "elsewhere")
    other = Launched(place, store, "--ledger", ledger.url, "--output", elsewhere)
    other.end()
    assert other.log.logged.run_id not in (None, first.log.logged.run_id)


def test_audits_see_what_a_run_shows_too_little_or_too_much_of(place: Path, store: str) -> None:
    live = Launched(place, store)
    live.release(0, 1)
    shown = mlflow_ldp.read_server(store).shown["live"][0]
    rows = ledger_of(place).rows()
    for fault in ({"local_epsilon": 6.0}, {"identity": "ab" * 32}):
        assert not audit(rows, tracked={"live": [{**shown, **fault}]}).clean
    behind = {**shown, "local_epsilon": 2.0}
    assert audit(rows, tracked={"live": [behind]}).clean  # it may be sent yet
    live.end()
    rows = ledger_of(place).rows()
    assert audit(rows, tracked={"live": [shown]}).clean
    findings = tracking(audit(rows, tracked={"live": [behind]})).findings
    assert findings == ("run 'live' shows local_epsilon = 2.0 and not 4.0",)


def test_a_stream_that_released_nothing_is_missed_nowhere(place: Path, store: str) -> None:
    live = Launched(place, store)
    assert audited(place, store)[0].clean
    live.end()
    report, server = audited(place, store)
    assert report.clean and server.clean
    assert mlflow_ldp.mirror(ledger_of(place), tracking_uri=store) == []
    assert [run.info.status for run in runs_of(store)] == ["FINISHED"]


def test_a_stream_that_is_not_charged_shows_as_such(place: Path, store: str) -> None:
    live = Launched(place, store, budgeted=False)
    live.release(0, 1)
    live.end(failed=True)
    (run,) = runs_of(store)
    assert run.info.status == "FAILED" and "privacy.charge" not in run.data.tags
    assert run.data.tags["privacy.charged"].startswith("no: ")
    server = mlflow_ldp.audit_server(store)
    (total,) = server.totals
    assert (total.num_runs, total.num_uncharged, total.local_epsilon) == (1, 1, 4)
    outcomes = {check.name: check.outcome for check in server.checks}
    assert outcomes[PRICES] == outcomes[STORED] == "passed"


def test_a_stream_that_is_not_to_be_logged_says_so_in_the_ledger(place: Path, store: str) -> None:
    live = Launched(place, store, "--no-mlflow")
    live.release(0)
    live.end()
    assert live.log.logged is None and runs_of(store) == []
    report = audit(ledger_of(place).rows(), tracked={})
    assert tracking(report).outcome == "passed"
    assert "1 runs were not to be logged, and said so (--no-mlflow)" in tracking(report).findings


def test_a_stream_that_nobody_logged_is_missed_and_mirrored(place: Path, store: str) -> None:
    live = Launched(place, store)
    live.log.take = lambda steps: None  # type: ignore[method-assign]
    live.release(0, 1)
    live.job.give_back(live.said)
    report, _ = audited(place, store)
    assert tracking(report).findings == ("run 'live' is in the ledger and not on the server",)
    assert len(mlflow_ldp.mirror(ledger_of(place), tracking_uri=store)) == 1
    report, server = audited(place, store)
    assert report.clean and server.clean
    assert server.totals[0].local_epsilon == 4


def test_a_server_that_is_away_costs_the_log_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "0.2")
    monkeypatch.setattr(stream_log, "PATIENCE", 0.2)
    with slow_server() as url, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        live = Launched(place, url)
        live.release(0, 1)
        live.end()
    assert live.log.logged is None
    assert live.watched.released == 2 and len(list((place / "out").glob("*/privacy.json"))) == 2
    assert ledger_of(place).charge("live").count == 0
    assert audit(ledger_of(place).rows()).clean


def test_what_waits_is_sent_when_the_server_is_back(
    place: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is away at the start; and again later, in the middle of the stream."""

    def away(*_: Any, **__: Any) -> Any:
        raise ConnectionError("nobody is there")

    with monkeypatch.context() as gone, pytest.warns(UserWarning, match="it is tried again"):
        gone.setattr(MlflowClient, "search_experiments", away)
        live = Launched(place, store)
        live.release(0)
    live.release(1)
    with monkeypatch.context() as gone:
        gone.setattr(MlflowClient, "log_batch", away)
        live.release(2)
        assert steps_of(store, "window_start") == [0, 60]
    live.look()  # nothing new came, but something waits
    assert steps_of(store, "window_start") == [0, 60, 120]
    live.end()
    report, server = audited(place, store)
    assert report.clean and server.clean


def test_a_setting_that_mlflow_cannot_use_costs_the_log_alone(
    place: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECONDS_VARIABLE, "soon")
    live = Launched(place, store)
    live.release(0)
    live.end()
    assert live.log.logged is None and "is not logged to MLflow" in live.said.export_text()


def test_a_year_of_hours_takes_few_requests(
    place: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Windows that come together go in one request, and the event is written ever more rarely."""
    calls: list[str] = []
    for name in ("log_batch", "log_artifacts"):
        there = getattr(MlflowClient, name)

        def counted(*a: Any, there: Any = there, name: str = name, **kw: Any) -> Any:
            calls.append(name)
            return there(*a, **kw)

        monkeypatch.setattr(MlflowClient, name, counted)
    live = Launched(place, store, budgeted=False)
    live.release(0)
    first = live.watched
    calls.clear()
    told = json.loads(next((place / "out").glob("*/privacy.json")).read_text())
    monkeypatch.setattr(stream_log, "EVERY", 3600.0)
    for hour in range(1, 301):
        start, end = (f"2026-01-{1 + h // 24:02d}T{h % 24:02d}:00:00Z" for h in (hour, hour + 1))
        window = {**told, "window_start": start, "window_end": end}
        live.log.take([stream_log.Step(window, first.epsilon, 2.0 * (hour + 1))])
    assert calls == []
    monkeypatch.setattr(stream_log, "EVERY", 0.0)
    live.log.take([])
    assert calls.count("log_batch") <= 4 and calls.count("log_artifacts") == 1
    assert len(steps_of(store, "window_start")) == 301


def test_groups_are_steps_of_their_own_and_one_window_of_the_budget(
    place: Path, store: str
) -> None:
    """A person is in one group of a window: the dearest counts, whichever comes first."""
    (place / "towns").write_text("Ulm\nBonn\n")
    groups = ("--group-by", "town", "--groups", str(place / "towns"))
    live = Launched(place, store, *groups, budgeted=False)
    live.release(0, group="Ulm")
    live.release(0, group="Bonn")
    live.release(1, group="Ulm")
    before = live.watched.epsilon
    few = a_release(60, 300, group="Bonn")
    list(live.writer.process(few))
    live.end()
    assert live.watched.used == 2 and live.watched.released == 4
    assert steps_of(store, "group") == [1, 2, 1, 2]
    assert steps_of(store, "local_epsilon") == [2, 2, 4, 4]
    exact = ShuffleAccountant(ORDERS)
    for event in (a_release(0, 1000).event, few.event):
        exact.compose(event)
    assert before is not None and live.watched.epsilon == exact.get_epsilon(DELTA) > before
