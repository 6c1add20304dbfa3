"""The user-mean program as a user runs it: visits of people, two rounds, prices, refusals."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.user_mean import main
from beam_ldp.protocols import user_mean_price
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import usage_of
from tests.pipelines.test_frequency import FILES, SECRET, record

USAGE = usage_of("user_mean")
pytestmark = pytest.mark.e2e

USERS = 3000


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Visits in no order: 5 to 12 of each person, minutes about 95, steps about 6,000."""
    rng = np.random.default_rng(7)
    folder = tmp_path_factory.mktemp("visits")
    ids = np.repeat(np.arange(USERS), rng.integers(5, 13, USERS))
    ids = rng.permutation(ids)
    own = rng.normal(95, 15, USERS)
    minutes = np.maximum(0, rng.normal(own[ids], 40)).round(1)
    steps = rng.normal(6000, 500, len(ids)).round()
    names = np.array([f"u{i}" for i in ids])
    table = {"uid": names, "minutes": minutes, "steps": steps}
    pq.write_table(pa.table(table), folder / "visits.parquet")
    lines = [f"{u},{m},{s:.0f}" for u, m, s in zip(names, minutes, steps)]
    (folder / "visits.csv").write_text("\n".join(["uid,minutes,steps", *lines]) + "\n")
    (folder / "ranges.csv").write_text("column,low,high\nminutes,0,1440\nsteps,0,100000\n")
    means = [[t[ids == i].mean() for i in range(USERS)] for t in (minutes, steps)]
    np.save(folder / "truth.npy", np.mean(means, axis=1))
    return folder


def flags(data: Path, out: Path, *more: str, source: str = "visits.csv") -> list[str]:
    given = " ".join(more)
    found = [f"--input={data}/{source}", f"--output={out}", "--no-mlflow", *more]
    for needed, default in (
        ("--user-id", ["--user-id=uid"]),
        ("--column", ["--column=minutes"]),
        ("--ra", ["--range", "0", "1440"]),
        ("--delta", ["--delta=1e-6"]),
        ("epsilon=", ["--local-epsilon=3"]),
        ("--expected-users", [f"--expected-users={USERS}"]),
        ("--rows-per-user", ["--rows-per-user=5", "--sigma=40", "--user-sigma=15"]),
    ):
        if needed not in given:
            found += default
    return found


def rows(out: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((out / "estimates.csv").open(newline="", encoding="utf-8")))


def off(row: dict[str, str], truth: float) -> float:
    return abs(float(row["mean"]) - truth) / float(row["standard_error"])


# The whole way ------------------------------------------------------------------------------


@pytest.mark.statistical
def test_two_rounds_with_a_split_of_people(data: Path, tmp_path: Path) -> None:
    """Within 5 standard errors of the mean of the people's means."""
    out = tmp_path / "out"
    assert main(flags(data, out)) == DONE
    assert sorted(path.name for path in out.iterdir()) == FILES
    (row,) = rows(out)
    truth = float(np.load(data / "truth.npy")[0])
    assert row["coordinate"] == "minutes" and off(row, truth) < 5
    assert float(row["low"]) < float(row["mean"]) < float(row["high"])
    found = record(out)
    assert (found["statistic"], found["split"], found["local_epsilon"]) == ("user_mean", "users", 3)
    first, second = found["rounds"]
    assert (first["round"], second["round"]) == (1, 2)
    assert first["people"] + second["people"] == found["num_reports"] == USERS
    assert found["epsilon"] == max(first["epsilon"], second["epsilon"])
    assert 0 < found["failure_probability"] < 0.02
    said = (out / "privacy.md").read_text()
    assert "all rows of a person are protected together" in said
    assert "round 1: which of" in said and "round 2: the mean, clipped to the interval" in said
    assert "Each person answers one round" in said


@pytest.mark.statistical
def test_central_target_over_both_rounds(data: Path, tmp_path: Path) -> None:
    """A price of both rounds below the target, though some lie, and within 5 standard errors."""
    out = tmp_path / "out"
    more = ["--epsilon=2", "--trust-shuffler", "--honest-fraction=0.9"]
    assert main(flags(data, out, *more, source="visits.parquet")) == DONE
    found = record(out)
    assert found["split"] == "budget" and 1.8 < found["epsilon"] <= 2
    assert found["epsilon_lower"] < found["epsilon"]
    first, second = found["rounds"]
    assert first["epsilon"] + second["epsilon"] == pytest.approx(found["epsilon"], rel=1e-3)
    assert first["delta"] + second["delta"] == pytest.approx(1e-6)
    assert first["people"] == second["people"] == USERS
    (row,) = rows(out)
    assert off(row, float(np.load(data / "truth.npy")[0])) < 5
    assert "the privacy costs of the rounds add up" in (out / "privacy.md").read_text()


@pytest.mark.statistical
def test_columns_in_units_of_their_own_and_no_shuffler(data: Path, tmp_path: Path) -> None:
    """Both coordinates within 5 standard errors; the price is the promise."""
    out = tmp_path / "out"
    more = ["--column=minutes,steps", f"--ranges={data}/ranges.csv", "--model=local",
            "--epsilon=6", "--rows-per-user=5", "--sigma=40,500", "--user-sigma=15,0"]  # fmt: skip
    assert main(flags(data, out, *more)) == DONE
    found = record(out)
    assert found["epsilon"] == found["local_epsilon"] == 6 and found["model"] == "local"
    assert found["sigma"] == [40, 500] and found["split"] == "users"
    for row, truth in zip(rows(out), np.load(data / "truth.npy"), strict=True):
        assert off(row, float(truth)) < 5


def test_one_round_where_nothing_is_supposed(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--rows-per-user=1")) == DONE
    found = record(out)
    assert found["split"] == "none" and len(found["rounds"]) == 1
    assert found["failure_probability"] == 0
    assert "round 1: the mean itself" in (out / "privacy.md").read_text()


@pytest.mark.slow  # a whole run; the bound itself is tested below the program
def test_outliers_widen_the_interval_and_the_statement_says_so(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--outliers=0.002", "--local-epsilon=1.5")) == DONE
    found, (row,) = record(out), rows(out)
    assert found["outliers"] == 0.002 and found["split"] == "users"
    assert 0 < found["bias_bound"] <= 0.002 * 1440
    width = (float(row["high"]) - float(row["low"])) / 2
    assert width > 1.96 * float(row["standard_error"]) + found["bias_bound"]
    assert "for outliers that were clipped" in (out / "privacy.md").read_text()


def test_seed_is_a_simulation_without_a_price(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--seed=1")) == DONE
    found = record(out)
    assert found["simulated"] and found["epsilon"] is found["local_epsilon"] is None
    assert all(one["epsilon"] is one["local_epsilon"] is None for one in found["rounds"])
    assert "No privacy guarantee" in (out / "privacy.md").read_text()


def test_too_few_people_release_nothing(data: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main(flags(data, out, "--expected-users=20000")) == NOTHING_RELEASED
    assert not out.exists()
    said = capsys.readouterr().err
    assert "nothing was released" in said
    # Those of round one, which asks a part of the people.
    assert "of the people asked must answer (--min-reports is 18,000)" in said


def test_bad_rows_are_listed_without_what_they_hold(data: Path, tmp_path: Path) -> None:
    bad = tmp_path / "visits.csv"
    bad.write_text((data / "visits.csv").read_text() + f"u1,{SECRET},3\n,50,3\nu2,,3\n")
    out = tmp_path / "out"
    assert main(flags(tmp_path, out)) == DONE
    listed = [
        json.loads(line)
        for line in Path(f"{out}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    assert len(listed) == 3
    assert all(SECRET not in path.read_text(errors="replace") for path in out.iterdir())


# Before the data ----------------------------------------------------------------------------


def test_dry_run_shows_both_rounds_and_reads_nothing(data: Path, tmp_path: Path, capsys) -> None:
    assert main(flags(data, tmp_path / "out", "--dry-run", "--format=json")) == DONE
    plan = json.loads(capsys.readouterr().out)
    assert plan["split"] == "users" and [one["round"] for one in plan["rounds"]] == [1, 2]
    assert plan["predicted_standard_error"] > 0 and 0 < plan["failure_probability"] <= 0.01
    assert main(flags(data, tmp_path / "out", "--dry-run")) == DONE
    said = capsys.readouterr().out
    assert "two rounds" in said and "of the people answer the first" in " ".join(said.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.exact
def test_worst_price_is_that_of_the_fewest_people_of_a_release(data: Path, tmp_path: Path) -> None:
    run = bound(USAGE, read_flags(USAGE, flags(data, tmp_path / "out")))
    choice, worst = run.choice, run.worst_price
    assert choice.price is not None and worst is not None
    assert worst.bound > choice.price.bound
    crowds = choice.mechanism.min_reports(round(0.9 * USERS))
    assert worst.bound == user_mean_price(choice.mechanism, *crowds, 1e-6).total
    assert worst.honest_reports == min(crowds)  # as the event has it, for the verifier


@pytest.mark.exact
@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--user-id="], "--user-id must not be empty"),
        (["--radius=3", "--range", "0", "1"], "give one of --range LOW HIGH, --ranges FILE"),
        (["--failure-probability=0.05"], "--failure-probability must lie in (0, 0.05)"),
        (["--rows-per-user=0"], "--rows-per-user must be >= 1"),
        (["--rows-per-user=5", "--sigma=-5"], "--sigma must be a finite number > 0, got -5"),
        (["--rows-per-user=5", "--user-sigma=-1"], "--user-sigma must be a finite number >= 0"),
        (["--outliers=0.5"], "--outliers must lie in [0, 1/3)"),
        (["--mechanism=PrivUnit"], "unknown flag --mechanism"),
        (["--range", "9", "3"], "low must be below high"),
        (["--column=hours"], "hours"),
        (["--local-epsilon=3", "--max-local-epsilon=2"], "--local-epsilon must be at most 2"),
        (["--epsilon=1", "--split=users"], "need a local budget"),
        (["--model=local", "--epsilon=1", "--local-epsilon=1"], "give either"),
    ],
)
def test_what_does_not_fit_is_refused(
    data: Path, tmp_path: Path, capsys: Any, more: list[str], message: str
) -> None:
    assert main(flags(data, tmp_path / "out", *more)) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


@pytest.mark.exact
@pytest.mark.slow  # a fresh process loads everything anew
def test_beam_ldp_runs_the_same_program(data: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "beam_ldp.pipelines.cli", "user-mean"]
    done = subprocess.run(
        [*command, *flags(data, tmp_path / "out", "--format=json")], capture_output=True, text=True
    )
    assert done.returncode == DONE, done.stderr
    found = json.loads(done.stdout)
    assert found["coordinates"][0]["coordinate"] == "minutes"
    assert found["privacy"]["statistic"] == "user_mean"
