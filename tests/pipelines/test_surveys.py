"""Groups, several questions, bins, quantiles and ranges, as a user runs them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED

pytestmark = pytest.mark.e2e

USERS = 30_000
COUNTRIES = ("DE", "FR", "LI", "elsewhere")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("survey")
    rng = np.random.default_rng(1)
    country = np.array(COUNTRIES)[rng.choice(4, USERS, p=[0.6, 0.3, 0.001, 0.099])]
    word = np.array(["a", "b", "c"])[rng.choice(3, USERS, p=[0.6, 0.3, 0.1])]
    colour = np.array(["red", "blue"])[rng.choice(2, USERS, p=[0.7, 0.3])]
    age = rng.gamma(6, 7, USERS)
    columns = {"uid": np.arange(USERS), "country": country, "word": word, "colour": colour,
               "age": age}  # fmt: skip
    pq.write_table(pa.table(columns), folder / "p.parquet")
    (folder / "words.txt").write_text("a\nb\n")
    (folder / "colours.txt").write_text("red\nblue\n")
    (folder / "groups.txt").write_text("DE\nFR\nLI\nAT\n")
    np.savez(folder / "truth.npz", country=country, word=word, colour=colour, age=age)
    return folder


def run(data: Path, out: Path, *flags: str, code: int = DONE) -> dict[str, Any]:
    arguments = [f"--input={data}/p.parquet", "--user-id=uid", f"--output={out}", "--delta=1e-6",
                 "--no-mlflow", *flags]  # fmt: skip
    assert main(arguments) == code
    return dict(json.loads((out / "privacy.json").read_text())) if code == DONE else {}


def rows(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(newline="", encoding="utf-8")))


WORDS = ("--column=word", "--domain={}/words.txt")
GROUPED = ("--group-by=country", "--groups={}/groups.txt", "--min-reports=2000")


def filled(data: Path, *flags: str) -> list[str]:
    return [flag.format(data) for flag in flags]


@pytest.mark.statistical
def test_groups_have_their_own_releases_and_prices(data: Path, tmp_path: Path) -> None:
    """Every estimate within 5 standard errors of the truth (9 of them: false alarms below 1e-5).

    The smallest group sets the price, small groups and absent ones are withheld by name, and
    nothing is estimated about them.
    """
    out = tmp_path / "out"
    record = run(data, out, *filled(data, *WORDS, *GROUPED), "--epsilon=1")
    truth = np.load(data / "truth.npz")
    found = rows(out / "estimates.csv")
    assert list(dict.fromkeys(row["group"] for row in found)) == ["DE", "FR", "other"]
    for row in found:
        group = "elsewhere" if row["group"] == "other" else row["group"]
        held = "c" if row["value"] == "other" else row["value"]
        count = ((truth["country"] == group) & (truth["word"] == held)).sum()
        assert abs(float(row["count"]) - count) < 5 * float(row["count_standard_error"])
    parts = {part["group"]: part for part in record["parts"]}
    assert parts["DE"]["epsilon"] < parts["FR"]["epsilon"] < parts["other"]["epsilon"] <= 1.0
    assert record["epsilon"] == parts["other"]["epsilon"]
    assert record["num_reports"] == sum(part["num_reports"] for part in record["parts"])
    withheld = {notice["group"]: notice["num_reports"] for notice in record["withheld"]}
    assert withheld == {"LI": int((truth["country"] == "LI").sum()), "AT": 0}
    said = " ".join((out / "privacy.md").read_text().split())
    assert "a change of group is not protected" in said and "2 groups of the public list" in said


def test_no_group_is_large_enough(data: Path, tmp_path: Path, capfd: Any) -> None:
    flags = [*filled(data, *WORDS, *GROUPED[:2]), "--min-reports=40000", "--local-epsilon=1"]
    run(data, tmp_path / "out", *flags, code=NOTHING_RELEASED)
    said = " ".join(capfd.readouterr().err.split())
    assert "none of 5 groups has --min-reports 40,000; the largest, 'DE', has" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.statistical
@pytest.mark.parametrize("design", ["one", "all"])
def test_several_questions(data: Path, tmp_path: Path, design: str) -> None:
    """Both designs within 5 standard errors of the truth (6 values: false alarms below 1e-5)."""
    out = tmp_path / "out"
    flags = [*filled(data, *WORDS, "--column=colour", "--domain={}/colours.txt"),
             "--local-epsilon=3", f"--expected-users={USERS}", f"--design={design}"]  # fmt: skip
    record = run(data, out, *flags)
    truth = np.load(data / "truth.npz")
    found = rows(out / "estimates.csv")
    assert [row["question"] for row in found] == ["word"] * 3 + ["colour"] * 3
    for row in found:
        held = {"word": "c", "colour": ""}[row["question"]]
        held = held if row["value"] == "other" else row["value"]
        count = (truth[row["question"]] == held).sum()
        assert abs(float(row["count"]) - count) < 5 * float(row["count_standard_error"])
    assert record["design"] == design and record["num_reports"] == USERS
    said = " ".join((out / "privacy.md").read_text().split())
    if design == "one":
        answers = [part["answers"] for part in record["parts"]]
        assert sum(answers) == USERS and min(answers) > 0.45 * USERS
        assert record["epsilon"] < record["epsilon_if_known"] < 3.0
        assert "each person answered one of 2, drawn uniformly at random" in said
        assert record["messages_per_user"] == 1
    else:
        assert record["messages_per_user"] == 2 and record["epsilon_if_known"] is None
        assert "everybody answers all of them" in said and "all messages of a person" in said


@pytest.mark.statistical
def test_quantiles_and_ranges_by_group(data: Path, tmp_path: Path) -> None:
    """Ranges within 5 standard errors; 6 intervals of quantiles of coverage 0.95 hold but for 3
    (probability of more misses below 1e-4)."""
    out = tmp_path / "out"
    flags = [*filled(data, *GROUPED), "--column=age", "--bins=-10:110:60", "--local-epsilon=3",
             "--quantiles=0.25,0.5", "--between", "-inf:40", "--between=20:60"]  # fmt: skip
    record = run(data, out, *flags)
    truth = np.load(data / "truth.npz")
    held = 0
    for row in rows(out / "quantiles.csv"):
        group = "elsewhere" if row["group"] == "other" else row["group"]
        ages = truth["age"][truth["country"] == group]
        held += float(row["low"]) <= np.quantile(ages, float(row["quantile"])) <= float(row["high"])
    assert held >= 3
    found = rows(out / "estimates.csv")
    for row in found:
        if row["question"] != "age, ranges":
            continue
        group = "elsewhere" if row["group"] == "other" else row["group"]
        ages = truth["age"][truth["country"] == group]
        low, high = {"[-inf, 40)": (-99, 40), "[20, 60)": (20, 60)}[row["value"]]
        count = ((ages >= low) & (ages < high)).sum()
        assert abs(float(row["count"]) - count) < 5 * float(row["count_standard_error"])
    cells = [row for row in found if row["question"] == "age" and row["group"] == "DE"]
    assert cells[0]["value"] == "below -10" and len(cells) == 62
    assert sum(float(row["frequency"]) for row in cells) == pytest.approx(1.0)
    raw = {row["question"] for row in found if row["question"].endswith("raw")}
    levels = {part["question"] for part in record["parts"]}
    assert raw == {f"{level}, raw" for level in levels}
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.statistical
def test_a_plain_histogram_of_a_number(data: Path, tmp_path: Path) -> None:
    """Within 5 standard errors of the truth (4 values: false alarms below 1e-5)."""
    out = tmp_path / "out"
    run(data, out, "--column=age", "--bins=0,20,50,100", "--local-epsilon=3",
        f"--expected-users={USERS}")  # fmt: skip
    ages = np.load(data / "truth.npz")["age"]
    counts = np.histogram(ages, [0, 20, 50, 100])[0]
    found = rows(out / "estimates.csv")
    assert [row["value"] for row in found] == ["[0, 20)", "[20, 50)", "[50, 100]", "other"]
    for row, count in zip(found, [*counts, USERS - counts.sum()]):
        assert abs(float(row["count"]) - count) < 5 * float(row["count_standard_error"])


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--column=word"], "--domain is missing"),
        ([*WORDS, "--domain={}/colours.txt"], "2 lists for 1 columns"),
        ([*WORDS, "--group-by=country"], "--group-by and --groups belong together"),
        ([*WORDS, *GROUPED[:2]], "--group-by needs --min-reports"),
        ([*WORDS, "--design=one"], "--design is for several questions"),
        (["--column=age", "--bins=0,5,3"], "increasing"),
        (["--column=age", "--bins=0,5", "--quantiles=1.5"], "numbers in (0, 1)"),
        (["--column=age", "--bins=0,5", "--between=0:3"], "must be edges of --bins"),
        (["--column=age", "--bins=0,5", "--fan-out=4"], "--fan-out needs"),
        (["--column=age", "--bins=0,5", "--quantiles=0.5", "--bad-rows=other"], "--bad-rows other"),
    ],
)
def test_mistakes_are_named(
    data: Path, tmp_path: Path, capfd: Any, flags: list[str], said: str
) -> None:
    more = [] if "--min-reports" in said else [f"--expected-users={USERS}"]
    run(data, tmp_path / "out", *filled(data, *flags), "--local-epsilon=1", *more, code=MISUSED)
    assert said in " ".join(capfd.readouterr().err.split())


def test_a_plan_says_who_answers_what(data: Path, tmp_path: Path, capfd: Any) -> None:
    asked = filled(data, *WORDS, "--column=colour", "--domain={}/colours.txt")
    arguments = [f"--input={data}/p.parquet", f"--output={tmp_path}/out", "--delta=1e-6", *asked,
                 "--local-epsilon=1", f"--expected-users={USERS}"]  # fmt: skip
    arguments += ["--dry-run", "--format=json"]
    assert main(arguments) == DONE
    plan = json.loads(capfd.readouterr().out)
    assert plan["mechanism"]["mechanism"] == "OneQuestion"
    assert len(plan["predicted_standard_errors"]) == 2
