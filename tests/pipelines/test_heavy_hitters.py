"""The heavy-hitters program as a user runs it: words that nobody listed, prices, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import check, job_runs, plan
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.heavy_hitters import main
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import usage_of
from tests.pipelines.test_frequency import FILES, SECRET, record

USAGE = usage_of("heavy_hitters")
pytestmark = pytest.mark.e2e

USERS = 4000
WORDS = ("heavy", "red", "a", "\N{GRINNING FACE}")
TRUTH = (0.5, 0.1, 0.1, 0.1)
PRIVATE = ["--local-epsilon=6", "--delta=1e-6", f"--expected-users={USERS}"]
SMALL = ["--max-bytes=8", "--code-bits=44"]


def word_of(person: int) -> str:
    place = person % 10
    return WORDS[max(0, place - 4)] if place < 8 else f"{person}"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two rows of each person; half hold one word, a tenth each of three others."""
    folder = tmp_path_factory.mktemp("words")
    ids = [*range(USERS)] * 2
    table = pa.table({"uid": ids, "word": [word_of(i) for i in ids]})
    pq.write_table(table, folder / "words.parquet")
    lines = [f"{i},{word_of(i)}" for i in range(USERS)]
    (folder / "words.csv").write_text("\n".join(["uid,word", *lines]) + "\n")
    (folder / "key").write_bytes(bytes(range(32)))
    (folder / "key").chmod(0o600)
    return folder


def flags(data: Path, out: Path, *more: str, source: str = "words.parquet") -> list[str]:
    return [
        f"--input={data}/{source}", "--column=word", "--user-id=uid", *SMALL, *PRIVATE,
        f"--output={out}", "--no-mlflow", *more,
    ]  # fmt: skip


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "estimates.csv").open(newline="", encoding="utf-8")))


@pytest.mark.statistical
def test_words_are_found_with_honest_intervals(data: Path, tmp_path: Path) -> None:
    """Words of a tenth of the people, where 4 % are found with 95 %: misses below 1e-6."""
    out = tmp_path / "out"
    assert main(flags(data, out)) == DONE
    assert sorted(path.name for path in out.iterdir()) == sorted([*FILES, "words.txt"])
    *found, rest = rows(out)
    by_word = {row["word"]: row for row in found}
    assert found[0]["word"] == "heavy" and len(found) <= 8
    for word, truth in zip(WORDS, TRUTH):
        row = by_word[word]
        assert abs(float(row["frequency"]) - truth) < 5 * float(row["frequency_standard_error"])
        assert float(row["count_low"]) <= float(row["count"]) <= float(row["count_high"])
    assert (rest["kind"], rest["word"]) == ("rest", "") and float(rest["frequency"]) < 0.6
    assert "Words with a code that" in (out / "privacy.md").read_text("utf-8")
    total = sum(float(row["frequency"]) for row in (*found, rest))
    assert total == pytest.approx(1)
    told = record(out)
    assert (told["statistic"], told["local_epsilon"], told["assignment"]) == (
        "heavy_hitters", 6, "secret",
    )  # fmt: skip
    assert told["num_words"] == len(found) and told["num_reports"] == USERS
    assert sum(level["people"] for level in told["levels"]) == USERS
    assert told["epsilon"] <= told["epsilon_if_visible"] <= 6
    assert 0 < told["fano"] < told["threshold"] < 0.08
    above, least, most = told["words_above"]
    assert told["threshold"] <= told["complete"] < 0.1
    assert least <= above <= most and least <= len(WORDS) <= most <= len(found)
    assert "\\ud83d" not in json.dumps(told)  # words stand in the estimates alone
    said = " ".join((out / "privacy.md").read_text().split())
    assert "Readers do not learn who was asked at which level" in said
    assert f"about {above:,}, between {least:,} and {most:,}" in said
    assert "level 1: the first" in said and "the whole word" in said
    assert "and how many they are is not counted" in said
    table = pq.read_table(out / "estimates.parquet")
    assert table["word"].to_pylist() == [*by_word, None]


def test_visible_levels_cost_more_and_the_statement_says_so(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--assignment=visible", "--honest-fraction=0.9")) == DONE
    told = record(out)
    assert told["epsilon"] == told["epsilon_if_visible"]
    assert told["honest_reports"] < 0.9 * min(level["people"] for level in told["levels"]) + 1
    assert "Who was asked at which level is taken to be known" in (out / "privacy.md").read_text()


def test_a_simulation_has_no_price(data: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--seed=1", "--format=json")) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["privacy"]["simulated"] and found["privacy"]["epsilon_if_visible"] is None
    above = found["words_above"]
    assert above["low"] <= above["value"] <= above["high"]
    assert found["words"][0]["word"] == "heavy" and 0 <= found["rest"]["low"] <= 1
    assert "No privacy guarantee" in (out / "privacy.md").read_text()


def test_too_few_people_release_nothing(data: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--min-reports=6000")) == NOTHING_RELEASED
    assert not out.exists()
    said = " ".join(capsys.readouterr().err.split())
    assert "of the people asked must answer (--min-reports is 6,000)" in said


def test_bad_rows_are_listed_without_what_they_hold(data: Path, tmp_path: Path) -> None:
    given = [*range(USERS), 7, None]
    words = [word_of(i).encode() for i in range(USERS)]
    words += [SECRET.encode() + b"\xff", b"x"]
    pq.write_table(pa.table({"uid": given, "word": words}), tmp_path / "bad.parquet")
    out = tmp_path / "out"
    assert main(flags(tmp_path, out, "--max-bad-rows=0.01", source="bad.parquet")) == DONE
    listed = Path(f"{out}.private", "bad_rows.jsonl").read_text()
    assert [json.loads(line)["reason"] for line in listed.splitlines()] == [
        "undecodable text", "no user id",
    ]  # fmt: skip
    assert record(out)["num_bad_rows"] == 2
    assert all(SECRET not in path.read_text(errors="replace") for path in out.iterdir())


def test_a_budget_is_charged_and_a_second_run_is_the_same_or_refused(
    data: Path, tmp_path: Path, capsys: Any
) -> None:
    """The worst case is reserved, what was received is settled; a memoized run again is free."""
    url = f"sqlite:///{tmp_path}/privacy.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("them", epsilon=20.0, delta=1e-5, local_epsilon=20.0)
    charged = [
        "--dataset=them", f"--ledger={url}", "--release-id=week", "--run-id=nightly",
        f"--memoize-key-file={data}/key", "--format=json",
    ]  # fmt: skip
    first, again, other = (tmp_path / name for name in ("first", "again", "other"))
    assert main(flags(data, first, *charged)) == DONE
    told = record(first)
    charge = ledger.charge("nightly")
    assert charge.status == "settled" and charge.identity.to_json() == told["identity"]
    assert main(flags(data, again, *charged)) == DONE
    assert (again / "estimates.csv").read_bytes() == (first / "estimates.csv").read_bytes()
    assert record(again)["epsilon"] == told["epsilon"] and record(again)["publication"] == 2
    capsys.readouterr()
    assert main(flags(data, other, *charged, "--max-bytes=7")) in (MISUSED, NOTHING_RELEASED)
    assert "differs in its mechanism" in " ".join(capsys.readouterr().err.split())
    fewer = [i for i in range(USERS) if i != 5]
    table = pa.table({"uid": fewer, "word": [word_of(i) for i in fewer]})
    pq.write_table(table, tmp_path / "words.parquet")
    assert main(flags(tmp_path, other, *charged)) == NOTHING_RELEASED
    assert "later rounds depend on who answered the first" in capsys.readouterr().err
    assert not other.exists()


def test_a_run_is_logged_and_its_log_passes_the_audit(data: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path}/mlflow.db"
    given = [one for one in flags(data, tmp_path / "out") if one != "--no-mlflow"]
    assert main([*given, f"--mlflow-uri={store}"]) == DONE
    client = mlflow.MlflowClient(store)
    (experiment,) = client.search_experiments(filter_string="name = 'beam-ldp'")
    (run,) = client.search_runs([experiment.experiment_id])
    told = record(tmp_path / "out")
    assert run.data.metrics["privacy.epsilon"] == told["epsilon"]
    logged = json.dumps(run.data.params | run.data.tags)
    assert "heavy" not in logged.replace("heavy_hitters", "").replace("heavy-hitters", "")
    audited = CliRunner().invoke(group, ["audit", "--mlflow-uri", store])
    assert audited.exit_code == 0, audited.output


# Before the data ----------------------------------------------------------------------------


def test_dry_run_plan_check_and_job_file_say_the_same(
    data: Path, tmp_path: Path, capsys: Any
) -> None:
    given = flags(data, tmp_path / "out")
    assert main([*given, "--dry-run", "--format=json"]) == DONE
    dry = json.loads(capsys.readouterr().out)
    assert 0 < dry["fano"] < dry["threshold"] and dry["epsilon"] < dry["epsilon_if_visible"]
    assert plan.main(["heavy-hitters", *SMALL, *PRIVATE, "--format=json"]) == DONE
    planned = json.loads(capsys.readouterr().out)["release"]
    assert planned == {name: dry[name] for name in planned}
    assert main([*given, "--print-job"]) == DONE
    job = tmp_path / "job.yaml"
    job.write_text(capsys.readouterr().out)
    assert "heavy_hitters: word" in job.read_text()
    assert check.main([str(job)]) == DONE
    capsys.readouterr()
    assert job_runs.main([str(job), "--dry-run"]) == DONE
    said = " ".join(capsys.readouterr().out.split())
    assert "which nobody listed" in said and "best possible" in said
    assert "nobody: it travels inside" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.exact
def test_worst_price_is_that_of_the_fewest_people_of_each_level(data: Path, tmp_path: Path) -> None:
    run = bound(USAGE, read_flags(USAGE, flags(data, tmp_path / "out")))
    worst, choice = run.worst_price, run.choice
    assert worst is not None and choice.price is not None and worst.bound > choice.price.bound
    protocol = choice.mechanism
    assert worst.bound == protocol.price(1e-6, protocol.min_reports(round(0.9 * USERS)))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--max-bytes=0"], "--max-bytes must lie in [1, 256]"),
        (["--code-bits=5000"], "--code-bits must lie in [1, 4096]"),
        (["--false-words=0"], "--false-words must be > 0"),
        (["--failure-probability=1"], "--failure-probability must lie in (0, 1)"),
        (["--column=uid"], "--column must name one column"),
        (["--epsilon=1"], "unknown flag --epsilon"),
        (["--expected-users=9"], "must be larger: not even a word that everybody holds"),
        (["--local-epsilon=9"], "--local-epsilon must be at most 8"),
    ],
)
def test_what_does_not_fit_is_refused(
    data: Path, tmp_path: Path, capsys: Any, more: list[str], message: str
) -> None:
    assert main(flags(data, tmp_path / "out", *more)) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())


def test_words_without_a_code_are_warned_of_before_anything_runs(
    tmp_path: Path, capsys: Any
) -> None:
    """A word that a third held was once never found, and the list said to be complete."""
    (tmp_path / "words.txt").write_text("спасибо\nдa\nнет\n" * 20, "utf-8")
    given = [
        "heavy-hitters", f"--input={tmp_path}/words.txt", "--local-epsilon=6", "--delta=1e-8",
        "--expected-users=30000", f"--output={tmp_path}/out", "--no-mlflow", "--format=json",
    ]  # fmt: skip
    assert check.main(given) == DONE
    printed = capsys.readouterr().out
    (doubt,) = [
        one["said"] for one in json.loads(printed)["checks"] if one["status"] == "warning"
        and "code" in one["said"]
    ]  # fmt: skip
    assert doubt.startswith("33% of the first words have no code and are never found")
    assert "--code-bits" in doubt and "спасибо" not in printed
