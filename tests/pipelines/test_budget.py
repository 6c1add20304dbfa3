"""The budget on the command line: granted, charged, refused on its last epsilon, settled later."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger.rows import next_row
from beam_ldp.ledger.store import RowStore
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.release import charging, outputs
from tests.ledger.asked import asked

pytestmark = pytest.mark.e2e

USERS = 2_000
EPSILON = 0.25  # of one run; at so small a delta as below, epsilons are cheapest added up
DELTA = 1e-40
PURE = LocalRandomizerDpEvent(EPSILON)
WORST = ShuffledDpEvent(KRandomizedResponse(3, EPSILON).dp_event(), 1_800)  # what a run reserves

STEERING = "\x1b[2J\x07gone"

_opened: list[str] = []


def _watch(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        _opened.append(str(arguments[0]))


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """2,000 people, half of whom say yes."""
    folder = tmp_path_factory.mktemp("data")
    rows = "".join(f"{uid},{'yes' if uid % 2 else 'no'}\n" for uid in range(USERS))
    (folder / "people.csv").write_text("uid,answer\n" + rows)
    (folder / "domain.txt").write_text("yes\nno\n")
    return folder


@pytest.fixture(scope="module")
def watched() -> None:
    sys.addaudithook(_watch)  # stays for the life of the process


@pytest.fixture
def opened(watched: None) -> Iterator[list[str]]:
    """Names of all files that Python opens in this process during the test."""
    _opened.clear()
    yield _opened


@pytest.fixture(autouse=True)
def no_ledger_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'privacy.db'}"


@pytest.fixture
def ledger(url: str) -> BudgetLedger:
    """Room for two runs."""
    made = BudgetLedger.create(url)
    made.set_budget("visits", epsilon=2 * EPSILON, delta=DELTA, local_epsilon=10.0, by="Ada")
    return made


def flags(data: Path, out: Path, *more: str) -> list[str]:
    return [f"--input={data}/people.csv", f"--domain={data}/domain.txt", "--column=answer",
            f"--output={out}", f"--local-epsilon={EPSILON}", "--delta=1e-6",
            f"--expected-users={USERS}", "--no-mlflow", "--one-row-per-person", *more]  # fmt: skip


def charged(data: Path, out: Path, url: str, *more: str) -> list[str]:
    return flags(data, out, f"--ledger={url}", "--dataset=visits", *more)


def command(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments)


def record(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "privacy.json").read_text()))


def _reports(event: dict[str, Any]) -> int:
    return int(event["event"]["num_reports"])


def charges(ledger: BudgetLedger) -> dict[str, str]:
    found = ledger.state.populations["visits"].charges
    return {name: charge.status for name, charge in found.items()}


# Granting ---------------------------------------------------------------------------------------


def test_from_nothing_to_a_budget(url: str) -> None:
    made = command("budget", "init", "--ledger", url)
    assert made.exit_code == 0 and "ledger" in made.output
    set_ = ["budget", "set", "--ledger", url, "--dataset", "visits", "--privacy-unit", "user",
            "--epsilon", "4", "--delta", "1e-8", "--local-epsilon", "16"]  # fmt: skip
    refused = command(*set_)
    assert refused.exit_code == MISUSED and "--new creates it" in refused.output
    granted = command(*set_, "--new")
    assert granted.exit_code == 0, granted.output
    assert "4 left of 4 at delta = 1e-08" in " ".join(granted.output.split())
    assert "of 16" in granted.output
    again = command("budget", "init", "--ledger", url)  # nothing is ever lost
    assert again.exit_code == 0
    assert BudgetLedger(url).status("visits").budget.epsilon == 4.0


def test_a_mistyped_dataset_makes_none(ledger: BudgetLedger, url: str) -> None:
    numbers = ["--epsilon", "1", "--delta", "1e-6"]
    mistyped = command("budget", "set", "--ledger", url, "--dataset", "visit", *numbers)
    assert mistyped.exit_code == MISUSED
    assert "did you mean 'visits'" in mistyped.output
    shown = command("budget", "show", "--ledger", url, "--dataset", "visit")
    assert shown.exit_code == MISUSED and "did you mean 'visits'" in shown.output
    assert ledger.state.datasets == ["visits"]


def test_quotas_names_and_times_on_the_command_line(ledger: BudgetLedger, url: str) -> None:
    for arguments, said in (
        (
            ["quota", "--dataset", "visits", "--quota", "maps", "--share", "0.5"],
            "0.5 of it is reserved",
        ),
        (["rename", "visits", "sessions"], "visits is sessions now"),
        (["accept-time", "--why", "the clock is right"], "the ledger continues at 2"),
    ):
        found = command("budget", arguments[0], "--ledger", url, *arguments[1:])
        assert found.exit_code == 0 and said in found.output, found.output
    shown = command("budget", "show", "--ledger", url, "--dataset", "sessions", "--format", "json")
    assert json.loads(shown.output)["budgets"][0]["quotas"] == {"maps": 0.5}
    kinds = [row.kind for row in ledger.rows()]
    assert kinds[-3:] == ["quota", "rename", "time"]


def test_a_budget_beside_people_who_are_charged_elsewhere_warns(
    ledger: BudgetLedger, url: str
) -> None:
    new = ["budget", "set", "--ledger", url, "--new", "--epsilon", "1", "--delta", "1e-6"]
    assert "warning" not in command(*new, "--dataset", "early").output
    ledger.reserve("visits", "run", WORST, identity=asked("visits", "run"))
    told = " ".join(command(*new, "--dataset", "late").output.split())
    assert "budget beside that of visits" in told and "--population" in told
    assert "Whether they are the same people was not checked" in told
    same = command(*new, "--dataset", "purchases", "--population", "visits")
    assert "warning" not in same.output


def test_a_policy_that_makes_an_uncharged_run_impossible(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BEAM_LDP_REQUIRE_LEDGER", "1")
    for more in ([], ["--no-ledger"]):
        assert main(flags(data, tmp_path / "out", *more)) == MISUSED
        assert "BEAM_LDP_REQUIRE_LEDGER is set" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_mistyped_ledger_makes_none(tmp_path: Path) -> None:
    for arguments in (["budget", "show"], ["audit"]):
        found = command(*arguments, "--ledger", f"sqlite:///{tmp_path}/privcay.db")
        assert found.exit_code == MISUSED
        assert "budget init" in found.output
    assert list(tmp_path.iterdir()) == []


def test_no_ledger_is_named() -> None:
    assert "BEAM_LDP_LEDGER" in command("budget", "show").output


@pytest.mark.parametrize(
    "url",
    ["nonsense", "mysql://x/y", "sqlite://", "sqlite:////no/such/folder/privacy.db",
     "postgresql+nobody://host/db", "postgresql://127.0.0.1:9/db?connect_timeout=2"],
)  # fmt: skip
def test_bad_urls_are_usage_errors(url: str) -> None:
    for arguments in (["budget", "init"], ["budget", "show"], ["audit"]):
        found = command(*arguments, "--ledger", url)
        assert found.exit_code == MISUSED, (arguments, found.output, found.exception)
        assert "Error" in found.output


def test_show_what_the_next_runs_would_cost(ledger: BudgetLedger, url: str) -> None:
    ledger.reserve(
        "visits", "first", PURE, identity=asked("visits", "first"), about={"question": "answers"}
    )
    ledger.settle("first", PURE, identity=asked("visits", "first"))
    shown = command("budget", "show", "--ledger", url)
    assert shown.exit_code == 0
    assert "the next run of each kind" in shown.output and "answers" in shown.output
    told = json.loads(command("budget", "show", "--ledger", url, "--format", "json").output)
    (budget,) = told["budgets"]
    assert (budget["spent"], budget["reserved"], budget["left"]) == (0.25, 0.0, 0.25)
    assert budget["next"] == [{"like": "first", "epsilon": 0.5, "fits": 1}]


def test_show_says_when_nothing_is_granted(url: str) -> None:
    BudgetLedger.create(url)
    assert "no budget has been granted yet" in command("budget", "show", "--ledger", url).output


def test_hostile_names_cannot_colour_or_steer_the_terminal(ledger: BudgetLedger, url: str) -> None:
    name = "[red]x[/red] [link=http://evil]y[/link] '; DROP TABLE beam_ldp_ledger; --"
    ledger.set_budget(name, epsilon=1.0, delta=1e-6)
    shown = command("budget", "show", "--ledger", url)
    assert "[red]x[/red]" in " ".join(shown.output.split())
    with pytest.raises(ValueError, match="why must be"):
        ledger.set_budget(name, epsilon=2.0, delta=1e-6, why=STEERING)
    # Whoever writes the database itself can write anything.
    ledger.reserve(name, "run", PURE, identity=asked(name, "run"))
    body = {**ledger.rows()[-2].body, "epsilon": 2.0, "why": STEERING}
    store = RowStore(url)
    with store.writing() as appender:
        appender.append(next_row(ledger.state.head, "budget", body | {"time": ledger.state.time}))
    audited = command("audit", "--ledger", url)
    assert audited.exit_code == 1 and "gone" in audited.output
    for output in (audited.output, command("budget", "show", "--ledger", url).output):
        assert "\x1b" not in output and "\x07" not in output


def test_give_a_reservation_back(ledger: BudgetLedger, url: str) -> None:
    ledger.reserve("visits", "never began", PURE, identity=asked("visits", "never began"))
    ledger.reserve("visits", "crashed", PURE, identity=asked("visits", "crashed"))
    how = ["--ledger", url, "--why", "the input was missing"]
    assert command("budget", "abandon", "never began", "--never-began", *how).exit_code == 0
    assert command("budget", "abandon", "crashed", *how).exit_code == 0
    status = ledger.status("visits")
    assert (status.committed, status.local_committed) == (0.0, EPSILON)
    assert command("budget", "abandon", "nobody", *how).exit_code == MISUSED


# Charging ---------------------------------------------------------------------------------------


def test_a_run_on_the_last_epsilon_and_the_one_after_it(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str, opened: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What fills the budget to the last bit runs; what goes beyond it reads nothing."""
    ledger.reserve("visits", "earlier", PURE, identity=asked("visits", "earlier"))
    worst = ledger.status("visits").epsilon_with(WORST)
    people = f"{data}/people.csv"

    def grant(epsilon: float) -> None:
        ledger.set_budget("visits", epsilon=epsilon, delta=DELTA)

    grant(worst * (1 - 1e-9))
    assert main(charged(data, tmp_path / "refused", url)) == NOTHING_RELEASED
    assert people not in opened
    grant(worst)
    assert main(charged(data, tmp_path / "fits", url)) == DONE
    assert people in opened  # what the refusals must not do
    found = record(tmp_path / "fits")
    assert (found["charged"], found["dataset"]) == ("yes", "visits")
    assert found["ledger_id"] == ledger.state.ledger_id
    assert charges(ledger) == {"earlier": "reserved", found["run_id"]: "settled"}
    assert found["run_id"] in (tmp_path / "fits" / "privacy.md").read_text()

    opened.clear()
    capsys.readouterr()
    assert main(charged(data, tmp_path / "refused", url)) == NOTHING_RELEASED
    assert "Nothing was read" in capsys.readouterr().err
    assert people not in opened
    assert not (tmp_path / "refused").exists()
    assert len(charges(ledger)) == 2


def test_the_local_budget_refuses_too(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str, opened: list[str]
) -> None:
    ledger.set_budget("visits", epsilon=2 * EPSILON, delta=DELTA, local_epsilon=0.2)
    assert main(charged(data, tmp_path / "out", url)) == NOTHING_RELEASED
    assert f"{data}/people.csv" not in opened
    assert charges(ledger) == {}


def test_the_ledger_records_that_only_the_shuffler_protects(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str
) -> None:
    ledger.set_budget("visits", epsilon=40.0, delta=1e-6)
    more = ["--local-epsilon=13", "--max-local-epsilon=13", "--run-id=monday"]
    assert main(charged(data, tmp_path / "out", url, *more)) == MISUSED
    assert charges(ledger) == {}
    assert main(charged(data, tmp_path / "out", url, *more, "--trust-shuffler")) == DONE
    assert ledger.state.charge("monday").about["trust_shuffler"] == "yes"
    first = (tmp_path / "out" / "privacy.md").read_text().split("\n\n")[1]
    assert first.startswith("**Only the shuffler protects these people")


def test_it_settles_at_what_was_received(
    data: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1,800 were reserved for, 2,000 came: less is spent. The environment names the ledger."""
    ledger = BudgetLedger.create(url)
    ledger.set_budget("visits", epsilon=1.0, delta=1e-6)
    monkeypatch.setenv("BEAM_LDP_LEDGER", url)
    assert main(flags(data, tmp_path / "out", "--dataset=visits", "--run-id=monday")) == DONE
    charge = ledger.state.charge("monday")
    assert charge.settled is not None
    assert [_reports(e) for e in (charge.reserved, charge.settled)] == [1800, 2000]
    assert charge.about["epsilon"] == record(tmp_path / "out")["epsilon"]
    status = ledger.status("visits")
    assert status.epsilon_with(charge.reserved) - status.spent > 0
    # The name is used: noise would be drawn anew.
    again = flags(data, tmp_path / "again", "--dataset=visits", "--run-id=monday")
    assert main(again) == MISUSED
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("more", "why"), [(["--no-ledger"], "no ledger was named"), (["--seed=1"], "a simulation")]
)
def test_what_is_not_charged_says_so(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str, monkeypatch: pytest.MonkeyPatch,
    more: list[str], why: str,
) -> None:  # fmt: skip
    monkeypatch.setenv("BEAM_LDP_LEDGER", url)
    assert main(flags(data, tmp_path / "out", "--dataset=visits", *more)) == DONE
    found = record(tmp_path / "out")
    assert found["charged"].startswith(f"no: {why}") and found["run_id"] is None
    assert "any budget" in (tmp_path / "out" / "privacy.md").read_text() or "--seed=1" in more
    assert charges(ledger) == {}
    settled = command("finalize", str(tmp_path / "out"), "--ledger", url)
    assert settled.exit_code == 0 and "nothing to settle" in settled.output


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--dataset=visit"], "did you mean 'visits'"),
        ([], "--dataset must name"),
        (["--dataset=visits", "--privacy-unit=row"], "protects one user"),
        (["--dataset=visits", "--run-id=" + "x" * 300], "run_id must be"),
        (["--dataset=visits", "--run-id=a\nb"], "run_id must be"),
    ],
)
def test_misuse_is_told_before_anything_is_read(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str, opened: list[str],
    capsys: pytest.CaptureFixture[str], more: list[str], message: str,
) -> None:  # fmt: skip
    assert main(flags(data, tmp_path / "out", f"--ledger={url}", *more)) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())
    assert f"{data}/people.csv" not in opened
    assert charges(ledger) == {}


def test_beams_own_refusal_gives_everything_back(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str
) -> None:
    assert main(charged(data, tmp_path / "out", url, "--runner=NoSuchRunner")) == MISUSED
    assert list(charges(ledger).values()) == ["abandoned"]
    assert ledger.status("visits").local_committed == 0.0


def test_nothing_released_gives_the_central_price_back(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str
) -> None:
    """Too few people: their local epsilon is spent, for they have randomized."""
    short = charged(data, tmp_path / "out", url, "--min-reports=2001")
    assert main(short) == NOTHING_RELEASED
    assert list(charges(ledger).values()) == ["abandoned"]
    status = ledger.status("visits")
    assert (status.committed, status.local_committed) == (0.0, EPSILON)


# Settling later -----------------------------------------------------------------------------------


def test_a_ledger_that_is_away_is_settled_later(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    pytest.importorskip("mlflow")
    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(charging, "settle", _away)
        assert main(charged(data, out, url)) == NOTHING_RELEASED
    told = " ".join(capsys.readouterr().err.split())
    assert "the run stays charged at its worst case" in told and f"finalize {out}" in told
    assert not out.exists(), "nothing is published that is not settled"
    (run_id,) = charges(ledger)
    assert charges(ledger) == {run_id: "reserved"}

    store = f"sqlite:///{tmp_path}/mlflow.db"
    later = ["finalize", str(out), "--ledger", url, "--mlflow-uri", store]
    first, second = command(*later), command(*later)
    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert charges(ledger) == {run_id: "settled"}
    assert "MLflow run" in first.output and "has it already" in second.output
    assert _audited(url, store) == 0

    import mlflow

    client = mlflow.MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'beam-ldp'")
    logged = client.search_runs([experiment.experiment_id])
    (run,) = [one for one in logged if "privacy.epsilon" in one.data.metrics]  # not the budget's
    alone = ["audit", "--mlflow-uri", store]  # without any ledger
    assert command(*alone).exit_code == 0
    client.log_metric(run.info.run_id, "privacy.epsilon", 0.01)  # somebody makes it look cheap
    assert _audited(url, store) == 1
    audited = command(*alone, "--format", "json")
    assert audited.exit_code == 1
    found = {check["outcome"] for check in json.loads(audited.output)["checks"]}
    assert found == {"passed", "failed", "no evidence"}
    client.log_dict(run.info.run_id, {**record(out)["event"], "version": 9}, "privacy/event.json")
    assert "no privacy cost" in command(*alone).output


def test_runs_of_a_ledger_share_the_store_that_it_names(
    data: Path, tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Two runs into two folders, one whose log failed, and one that was not to be logged."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///of-something-else.db")
    made = command("budget", "init", "--ledger", url, "--mlflow-uri", "sqlite:///shared.db")
    store = f"sqlite:///{tmp_path}/shared.db"
    assert made.exit_code == 0 and store in "".join(made.output.split("\n"))
    BudgetLedger(url).set_budget("visits", epsilon=9, delta=DELTA, local_epsilon=10.0)

    def logged(name: str) -> list[str]:
        return [flag for flag in charged(data, tmp_path / name, url) if flag != "--no-mlflow"]

    for name in "ab":
        assert main(logged(name)) == DONE
        assert f" in {store}" in capsys.readouterr().out
    with monkeypatch.context() as patch:
        patch.setattr("mlflow_ldp.log_release", _away)
        assert main(logged("c")) == DONE
    assert main(charged(data, tmp_path / "d", url)) == DONE
    for name in "acd":  # logged; not logged; not to be logged
        done = command("finalize", str(tmp_path / name), "--ledger", url)
        assert done.exit_code == 0, done.output
        assert ("MLflow run" in done.output) == (name == "c")
    client = mlflow.MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'beam-ldp'")
    runs = client.search_runs([experiment.experiment_id])
    assert len(runs) == 4 and not (tmp_path / "of-something-else.db").exists()  # and the budget's
    assert not list(tmp_path.glob("*/mlflow*"))


def test_a_ledger_names_its_store_when_it_is_made(tmp_path: Path, url: str) -> None:
    """The same again is fine; another one, or one of an old ledger, is refused."""
    first = ["budget", "init", "--ledger", url]
    http = ["--mlflow-uri", "http://tracking:5000"]
    assert command(*first).exit_code == 0
    old = command(*first, *http)
    assert old.exit_code == MISUSED and "names no store" in " ".join(old.output.split())
    assert BudgetLedger(url).mlflow_uri is None

    other = ["budget", "init", "--ledger", f"sqlite:///{tmp_path}/other.db"]
    assert [command(*other, *http).exit_code for _ in "ab"] == [0, 0]
    assert command(*other, "--mlflow-uri", "http://elsewhere").exit_code == MISUSED
    secret = ["--mlflow-uri", "postgresql://ada:secret@host/mlflow"]
    kept = command("budget", "init", "--ledger", f"sqlite:///{tmp_path}/new.db", *secret)
    assert kept.exit_code == MISUSED and "secret" not in kept.output
    assert not (tmp_path / "new.db").exists()


def _away(*arguments: Any, **named: Any) -> None:
    raise ConnectionError


def _audited(url: str, store: str) -> int:
    return command("audit", "--ledger", url, "--mlflow-uri", store).exit_code


def test_finalize_wants_the_ledger_that_was_charged(tmp_path: Path, url: str) -> None:
    BudgetLedger.create(url)
    nothing = command("finalize", str(tmp_path / "none"), "--ledger", url)
    assert nothing.exit_code == MISUSED
    assert "holds no privacy record" in " ".join(nothing.output.split())
    told = {"event": {}, "run_id": "run", "ledger_id": "another", "ledger": "elsewhere"}
    (tmp_path / "privacy.json").write_bytes(outputs.as_json(told))
    other = command("finalize", str(tmp_path), "--ledger", url)
    assert other.exit_code == MISUSED and "another ledger: elsewhere" in other.output


def test_a_ledger_that_cannot_be_written_stops_the_run_before_it_reads(
    data: Path, tmp_path: Path, ledger: BudgetLedger, url: str, monkeypatch: pytest.MonkeyPatch,
    opened: list[str], capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """No row in the ledger, no release."""
    import sqlalchemy as sa

    whole = RowStore._make_engine

    def read_only(store: RowStore) -> sa.Engine:
        engine = whole(store)
        sa.event.listen(
            engine, "connect", lambda connection, _: connection.execute("PRAGMA query_only = 1")
        )
        return engine

    monkeypatch.setattr(RowStore, "_make_engine", read_only)
    assert main(charged(data, tmp_path / "out", url)) == MISUSED
    told = " ".join(capsys.readouterr().err.split())
    assert "cannot be written" in told and "readonly" in told
    assert opened.count(f"{data}/people.csv") == 1  # by the check, which asked the ledger before
    assert not (tmp_path / "out").exists()
