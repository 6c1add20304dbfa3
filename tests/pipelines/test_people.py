"""Hashes of people, from the programs and from a pipeline: left, counted, shown, secret."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.testing.test_pipeline import TestPipeline
from click.testing import CliRunner, Result

from beam_ldp.ledger import BudgetLedger
from beam_ldp.ledger.participants import AskedPeople
from beam_ldp.pipelines import user_mean
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE, FAILED, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.usage.collect import USAGE
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.settings import People
from beam_ldp.transforms import ChargeTo, PrivateFrequencies
from beam_ldp.transforms.device.keyed import BeamFiles

pytestmark = pytest.mark.e2e

SECRET = b"a secret of the people, 32 bytes or more"
RUNNER = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two files of 1,000 people each, 600 of whom are in both; a key; a ledger."""
    for name, start in (("a", 0), ("b", 400)):
        rows = "".join(
            f"{i},{'yes' if i % 2 else 'no'},{i % 7}\n" for i in range(start, start + 1000)
        )
        (tmp_path / f"{name}.csv").write_text("uid,answer,x\n" + rows + rows)  # two rows each
    (tmp_path / "domain.txt").write_text("yes\nno\n")
    (tmp_path / "key").write_bytes(SECRET)
    monkeypatch.setenv("BEAM_LDP_LEDGER", f"sqlite:///{tmp_path / 'privacy.db'}")
    BudgetLedger.create(f"sqlite:///{tmp_path / 'privacy.db'}").set_budget(
        "visits", epsilon=10.0, delta=1e-6, local_epsilon=10.0
    )
    return tmp_path


def flags(place: Path, name: str, *more: str) -> list[str]:
    return [f"--input={place}/{name}.csv", "--column=answer", "--user-id=uid",
            f"--domain={place}/domain.txt", f"--output={place}/out-{name}", "--local-epsilon=1",
            "--delta=1e-6", "--min-reports=900", "--dataset=visits", f"--run-id=run {name}",
            f"--people-store={place}/people", f"--people-key-file={place}/key", *more]  # fmt: skip


def command(*arguments: str) -> Result:
    return CliRunner().invoke(group, arguments)


def test_two_runs_with_overlapping_people(place: Path) -> None:
    """Maximum and distribution, in every place where they are shown."""
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{place}/mlflow.db"
    for name in "ab":
        assert main(flags(place, name, f"--mlflow-uri={store}")) == DONE
    told = json.loads(command("budget", "show", "--format", "json").output)["budgets"][0]
    assert told["local_maximum"] == 2.0
    assert told["people"]["distribution"] == [[1.0, 800], [2.0, 600]]
    assert told["people"]["num_people"] == 1400 and told["people"]["uncounted"] == []
    shown = " ".join(command("budget", "show").output.split())
    assert "no user more than 2 (2 of 2 runs counted)" in shown
    assert "1 800" in shown and "2 600" in shown

    audited = command("audit", "--people-store", f"{place}/people", "--html", f"{place}/r.html")
    assert audited.exit_code == 0, audited.output
    page = (place / "r.html").read_text()
    assert "What each user was charged locally" in page and ">800</td>" in page

    logged = mlflow.MlflowClient(store).search_runs(["1"], order_by=["attributes.start_time"])
    runs = [run for run in logged if "privacy.epsilon" in run.data.metrics]  # not the budget's own
    metrics = [run.data.metrics for run in runs]
    assert [m["privacy.people.local_epsilon_max"] for m in metrics] == [1.0, 2.0]
    assert [m["privacy.people.count"] for m in metrics] == [1000.0, 1400.0]
    assert json.loads(runs[1].data.tags["privacy.people.local_epsilon_distribution"]) == [
        [1.0, 800], [2.0, 600],
    ]  # fmt: skip


def test_ids_that_a_missing_one_made_floats_are_the_same_people(place: Path) -> None:
    """`7` in one file and `7.0` in another were two persons, of whom each reported."""
    text = (place / "a.csv").read_text().splitlines()
    floats = [line.replace(",", ".0,", 1) for line in text[1:]]
    (place / "floats.csv").write_text("\n".join([text[0], ",yes,1", *floats, ""]))
    ids = [int(line.split(",")[0]) for line in text[1:]]
    for name, column in (("integers", ids), ("texts", [f"{i}" for i in ids])):
        held = [line.split(",")[1] for line in text[1:]]
        pq.write_table(pa.table({"uid": column, "answer": held}), place / f"{name}.parquet")
    for run, inputs in (("csv", ["floats.csv"]), ("parquet", ["*s.parquet"])):
        more = [f"--input={place}/{name}" for name in inputs if run == "csv"]
        own = flags(place, "a" if run == "csv" else "*", *more, "--no-mlflow")
        if run == "parquet":
            own[0] = f"--input={place}/{inputs[0]}"
        own += [f"--output={place}/{run}", f"--run-id={run}"]
        assert main(own) == DONE
        record = json.loads((place / run / "privacy.json").read_text())
        assert record["num_reports"] == 1000 and record["num_bad_rows"] == (run == "csv")
    (budget,) = json.loads(command("budget", "show", "--format", "json").output)["budgets"]
    assert budget["people"]["distribution"] == [[2.0, 1000]]


def test_more_reports_than_people_is_an_error(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(AskedPeople, "num_people", property(lambda asked: 999))
    assert main(flags(place, "a", "--no-mlflow")) == FAILED
    said = " ".join(capsys.readouterr().err.split())
    assert "1,000 reports came and 999 people left hashed ids: somebody reported twice" in said
    assert not (place / "out-a").exists()


def test_the_key_and_the_ids_are_nowhere(place: Path) -> None:
    assert main(flags(place, "a", "--no-mlflow")) == DONE
    for path in place.rglob("*"):
        if path.is_file() and path.name not in ("key", "a.csv", "b.csv"):
            assert SECRET not in path.read_bytes(), path
    assert not [p for p in (place / "out-a").iterdir() if "people" in p.name]


def test_a_later_count_by_hand(place: Path) -> None:
    """Of a program whose ledger was away; damaged files are said and leave what was counted."""
    assert main(flags(place, "a", "--no-mlflow")) == DONE
    done = command("budget", "people", "--dataset", "visits", "--people-store", f"{place}/people")
    assert done.exit_code == 0 and "no user more than 1 (1 of 1 runs counted)" in done.output
    done = command("budget", "people", "--dataset", "visits", "--people-store", f"{place}/none")
    assert done.exit_code == MISUSED and "the wrong folder" in done.output
    path = next(p for p in (place / "people").rglob("*.tags"))
    path.write_bytes(path.read_bytes()[:-1])
    arguments = ["--dataset", "visits", "--people-store", f"{place}/people"]
    broken = command("budget", "people", *arguments)
    assert broken.exit_code == MISUSED and "damaged" in broken.output
    assert command("audit", "--people-store", f"{place}/people").exit_code == MISUSED


def test_too_few_reports_are_counted_all_the_same(place: Path) -> None:
    assert main(flags(place, "a", "--min-reports=1001", "--no-mlflow")) == NOTHING_RELEASED
    status = BudgetLedger().status("visits")
    assert status.people is not None
    assert (status.committed, status.people.distribution) == (0.0, ((1.0, 1000),))


def test_a_store_that_is_gone_costs_the_count_not_the_release(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone(*_: Any, **__: Any) -> Any:
        raise OSError("gone")

    monkeypatch.setattr(BudgetLedger, "count_people", gone)
    assert main(flags(place, "a", "--no-mlflow")) == DONE
    assert "counts as if everybody had taken part" in " ".join(capsys.readouterr().err.split())
    status = BudgetLedger().status("visits")
    assert (status.people, status.local_maximum) == (None, 1.0)


@pytest.mark.parametrize(
    ("more", "without", "message"),
    [
        ([], "--people-key-file", "belong together"),
        ([], "--user-id", "needs --user-id"),
        (["--no-ledger"], "", "needs --ledger"),
        (
            ["--release-id=r", "--memoize-key-file={place}/key"],
            "",
            "must differ from --memoize-key-file",
        ),
    ],
)
def test_misuse(
    place: Path, more: list[str], without: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = [flag.format(place=place) for flag in more]
    given = [f for f in flags(place, "a", *own) if not without or not f.startswith(without)]
    assert main(given) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_key_that_is_too_short_is_never_quoted(
    place: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (place / "key").write_bytes(b"short secret")
    assert main(flags(place, "a", "--no-mlflow")) == 1
    said = capfd.readouterr()
    assert "people_key_file" in " ".join(said.err.split())
    assert "short secret" not in said.err + said.out
    assert not (place / "out-a").exists()


def test_a_collector_knows_nobody() -> None:
    assert not any(about.flag.startswith("people") for _, _, about in USAGE)


def test_people_with_many_rows(place: Path) -> None:
    done = user_mean.main(
        [f"--input={place}/a.csv", "--column=x", "--user-id=uid", "--range", "0", "7",
         f"--output={place}/mean", "--local-epsilon=2", "--delta=1e-6", "--min-reports=900",
         "--dataset=visits", f"--people-store={place}/people", f"--people-key-file={place}/key",
         "--no-mlflow"]
    )  # fmt: skip
    assert done == DONE
    people = BudgetLedger().status("visits").people
    assert people is not None and people.distribution == ((2.0, 1000),)


# In a pipeline of one's own -----------------------------------------------------------------------

ANSWERS = Domain(("yes", "no"))
ORACLE = KRandomizedResponse(ANSWERS.size, local_epsilon=1.0)


def _charged(place: Path, run_id: str, **how: Any) -> PrivateFrequencies:
    budget = ChargeTo(
        "visits", run_id=run_id, people_store=f"{place}/people", people_key_file=f"{place}/key",
        **how,
    )  # fmt: skip
    return PrivateFrequencies(
        ORACLE,
        domain=ANSWERS,
        column="answer",
        people=People(id="uid"),
        min_reports=90,
        budget=budget,
    )


@pytest.mark.pipeline
def test_composites_leave_hashes_and_keys_stay_out_of_the_graph(place: Path) -> None:
    rows = [{"uid": i % 100, "answer": "yes"} for i in range(300)]
    pipeline = TestPipeline(runner=RUNNER)
    pipeline | beam.Create(rows) | _charged(place, "first")
    graph = pipeline.to_runner_api().SerializeToString()
    assert SECRET not in graph and SECRET.hex().encode() not in graph
    pipeline.run().wait_until_finish()
    counted = BudgetLedger().count_people("visits", f"{place}/people", files=BeamFiles())
    assert counted.distribution == ((1.0, 100),) and counted.left_out == {}


@pytest.mark.pipeline
def test_windows_have_people_of_their_own(place: Path) -> None:
    """A person in both windows is charged for both."""
    times = [(i, 10) for i in range(150)] + [(i, 70) for i in range(100, 200)]
    with TestPipeline(runner=RUNNER) as pipeline:
        rows = pipeline | beam.Create(times) | beam.Map(
            lambda row: beam.window.TimestampedValue({"uid": row[0], "answer": "no"}, row[1])
        )  # fmt: skip
        windows = rows | beam.WindowInto(beam.window.FixedWindows(60))
        windows | _charged(place, "windows", windows=2)
    counted = BudgetLedger().count_people("visits", f"{place}/people")
    assert counted.distribution == ((1.0, 150), (2.0, 50))


def test_rows_without_people(place: Path) -> None:
    budget = ChargeTo("visits", people_store="somewhere", people_key_file="key")
    composite = PrivateFrequencies(
        ORACLE, domain=ANSWERS, min_reports=9, budget=budget, people=People(one_row=True)
    )
    with pytest.raises(ValueError, match="needs user ids"):
        TestPipeline(runner=RUNNER) | beam.Create(["yes"]) | composite
    with pytest.raises(ValueError, match="belong together"):
        ChargeTo("visits", people_store="somewhere")
    assert np.all([c.status != "reserved" for c in BudgetLedger().status("visits").charges])
