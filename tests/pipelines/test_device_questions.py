"""Devices and collectors of several questions, and of numbers in bins and trees."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.pipelines import collect, frequency, randomize
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.questions.bins import NumberQuestion, PublishedNumber
from beam_ldp.questions.published import Published
from beam_ldp.questions.surveys import PublishedLists
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.release.devices.release_file import ReleaseFile
from tests.pipelines.test_frequency import FILES
from tests.randomizers.wire_terms import terms_of

PEOPLE = 3000
HAIR, EYES = ["red", "black", "blond"], ["blue", "brown"]
TREE = ["--column=age", "--bins=0:100:20", "--quantiles=0.1,0.5,0.9", "--between=20:65"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People with hair, eyes, an age and a country; blond hair is not on the list."""
    folder = tmp_path_factory.mktemp("questions")
    rng = np.random.default_rng(8)
    rows = zip(
        range(PEOPLE),
        rng.choice(HAIR, PEOPLE, p=[0.5, 0.3, 0.2]),
        rng.choice(EYES, PEOPLE, p=[0.7, 0.3]),
        rng.integers(0, 110, PEOPLE),
        rng.choice(["DE", "FR"], PEOPLE, p=[0.6, 0.4]),
    )
    with (folder / "values.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("uid", "hair", "eyes", "age", "country"), *rows])
    for name, values in (("hair", HAIR[:2]), ("eyes", EYES), ("groups", ["DE", "FR"])):
        (folder / f"{name}.txt").write_text("".join(f"{value}\n" for value in values))
    (folder / "key").write_bytes(bytes(range(32)))
    return folder


def lists(place: Path, *names: str) -> list[str]:
    return [f"--domain={place}/{name}.txt" for name in names]


def survey(place: Path) -> list[str]:
    return ["--column=hair", "--column=eyes", *lists(place, "hair", "eyes")]


def memoized(place: Path) -> list[str]:
    return [f"--memoize-key-file={place}/key", "--dataset=d", "--local-epsilon=3"]


def device(place: Path, out: Path, *more: str) -> int:
    return randomize.main(
        [f"--input={place}/values.csv", f"--output={out}", "--release-id=week-47",
         "--dataset=people", "--user-id=uid", *more]
    )  # fmt: skip


def gather(out: Path, reports: Path, *more: str) -> int:
    return collect.main(
        [f"--reports={reports}", f"--release={reports}/release.json", "--delta=1e-8",
         f"--output={out}", "--no-mlflow", "--no-ledger", *more]
    )  # fmt: skip


def central(place: Path, out: Path, *more: str) -> int:
    """The same question where the values are."""
    return frequency.main(
        [f"--input={place}/values.csv", f"--output={out}", "--release-id=week-47", "--user-id=uid",
         "--delta=1e-8", f"--expected-users={PEOPLE}", "--no-mlflow", "--no-ledger", *more]
    )  # fmt: skip


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(newline="", encoding="utf-8")))


@pytest.mark.e2e
def test_several_questions_arrive(place: Path, tmp_path: Path) -> None:
    """With one key the collector's file is that of `frequency`, byte for byte."""
    reports, out, same = tmp_path / "reports", tmp_path / "out", tmp_path / "same"
    flags = [*survey(place), *memoized(place)]
    assert device(place, reports, *flags) == DONE
    domains = lists(place, "hair", "eyes")
    assert gather(out, reports, *domains, f"--min-reports={PEOPLE}") == DONE
    assert central(place, same, *flags) == DONE
    assert (out / "estimates.csv").read_bytes() == (same / "estimates.csv").read_bytes()
    assert sorted(path.name for path in out.iterdir()) == FILES
    record, expected = (json.loads((f / "privacy.json").read_text()) for f in (out, same))
    for name in ("design", "epsilon", "epsilon_if_known", "num_reports", "parts"):
        assert record[name] == expected[name], name
    assert record["design"] == "one" and record["sampling"] == "iid"
    said = (out / "privacy.md").read_text()
    assert "each person answered one of 2" in said and "sent a report" in said


@pytest.mark.e2e
def test_quantiles_arrive(place: Path, tmp_path: Path, capsys: Any) -> None:
    """The files of `frequency`, byte for byte; and other quantiles from the same reports."""
    reports, out, same = tmp_path / "reports", tmp_path / "out", tmp_path / "same"
    flags = [*TREE, *memoized(place), "--fan-out=5"]
    assert device(place, reports, *flags) == DONE
    enough = f"--min-reports={PEOPLE}"
    assert gather(out, reports, enough) == DONE
    assert central(place, same, *flags) == DONE
    for name in ("estimates.csv", "quantiles.csv"):
        assert (out / name).read_bytes() == (same / name).read_bytes(), name
    other = tmp_path / "other"
    assert gather(other, reports, enough, "--quantiles=0.25", "--between=-inf:50") == DONE
    (found,) = table(other / "quantiles.csv")
    assert found["quantile"] == "0.25" and 15 < float(found["value"]) < 40
    ranges = [row for row in table(other / "estimates.csv") if row["question"] == "age, ranges"]
    assert [row["value"] for row in ranges] == ["[-inf, 50)"]
    capsys.readouterr()
    for more, message in (
        (["--between=1:50"], "both must be edges of --bins"),
        (["--quantiles=2"], "--quantiles must be numbers in (0, 1)"),
        (lists(place, "hair"), "these reports are about a number"),
        (["--shape=2x2"], "--shape is for means"),
    ):
        assert gather(tmp_path / "no", reports, enough, *more) == MISUSED, more
        assert message in " ".join(capsys.readouterr().err.split()), more


@pytest.mark.e2e
@pytest.mark.statistical
def test_every_question_of_every_group(place: Path, tmp_path: Path, capsys: Any) -> None:
    """All questions with a split budget, a group on every report: within 5 standard errors (12
    comparisons of fresh randomness: false alarms below 1e-5)."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    groups = [f"--groups={place}/groups.txt"]
    flags = [*survey(place), "--group-by=country", *groups, "--design=all", "--local-epsilon=6"]
    assert device(place, reports, *flags) == DONE
    domains = lists(place, "hair", "eyes")
    assert gather(out, reports, *domains, *groups, "--min-reports=500") == DONE
    rows = table(place / "values.csv")
    record = json.loads((out / "privacy.json").read_text())
    assert record["design"] == "all" and record["messages_per_user"] == 2
    assert {(part["group"], part["question"]) for part in record["parts"]} == {
        (group, question) for group in ("DE", "FR") for question in ("hair", "eyes")
    }
    found = table(out / "estimates.csv")
    assert len(found) == 12
    for row in found:
        here = [held[row["question"]] for held in rows if held["country"] == row["group"]]
        listed = HAIR[:2] if row["question"] == "hair" else EYES
        truth = sum(
            held == row["value"] or (row["value"] == "other" and held not in listed)
            for held in here
        )
        assert abs(float(row["count"]) - truth) < 5 * float(row["count_standard_error"])
    capsys.readouterr()
    for more, message in (
        (groups, "--domain is missing"),
        ([*lists(place, "eyes", "hair"), *groups], "not the list that the devices used"),
        ([*lists(place, "hair", "eyes", "eyes"), *groups], "3 lists for 2 columns"),
        (domains, "--groups is missing"),
        ([*domains, f"--groups={place}/hair.txt"], "not the list of groups"),
        ([*domains, *groups, "--quantiles=0.5"], "these reports have no tree of bins"),
    ):
        assert gather(tmp_path / "no", reports, *more, "--min-reports=500") == MISUSED, more
        assert message in " ".join(capsys.readouterr().err.split()), more


@pytest.mark.e2e
@pytest.mark.statistical
def test_a_histogram_arrives(place: Path, tmp_path: Path, capsys: Any) -> None:
    """Bins, and `other` for what lies outside; a central target: within 5 standard errors (three
    comparisons: false alarms below 2e-6)."""
    reports, out = tmp_path / "reports", tmp_path / "out"
    flags = ["--column=age", "--bins=0,50,100", "--epsilon=1", "--delta=1e-8"]
    assert device(place, reports, *flags, f"--expected-users={PEOPLE}") == DONE
    assert gather(out, reports, f"--min-reports={PEOPLE}", "--question=years") == DONE
    ages = np.array([int(row["age"]) for row in table(place / "values.csv")])
    truth = [(ages < 50).sum(), ((ages >= 50) & (ages <= 100)).sum(), (ages > 100).sum()]
    found = sorted(table(out / "estimates.csv"), key=lambda row: row["value"])
    assert [row["value"] for row in found] == ["[0, 50)", "[50, 100]", "other"]
    assert {row["question"] for row in found} == {"years"}
    for row, expected in zip(found, truth):
        assert abs(float(row["count"]) - expected) < 5 * float(row["count_standard_error"])
    assert json.loads((out / "privacy.json").read_text())["epsilon"] <= 1
    capsys.readouterr()
    assert gather(tmp_path / "no", reports, "--min-reports=9", "--quantiles=0.5") == MISUSED
    assert "these reports have no tree of bins" in " ".join(capsys.readouterr().err.split())


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--column=age", "--bins=5"], "--bins 5: bins must"),
        (["--column=age", "--bins=0,9", "--domain=hair.txt"], "exclude each other"),
        (["--column=age", "--quantiles=0.5"], "--quantiles needs --bins"),
        (["--column=age", "--column=uid", "--bins=0,9"], "--bins takes a single --column"),
        ([*TREE, "--bad-rows=other"], "--bad-rows other cannot be used with"),
        ([*TREE, "--mechanism=KRandomizedResponse"], "--mechanism must be auto"),
        (["--column=age", "--radius=9", "--bins=0,9"], "for numbers, --bins for values"),
        (["--column=hair", "--column=hair"], "give --domain or --bins"),
        (["--column=hair", "--column=hair", "--domain=hair.txt"], "names a column twice"),
    ],
)
def test_misused(place: Path, tmp_path: Path, flags: list[str], message: str, capsys: Any) -> None:
    assert device(place, tmp_path / "out", *flags, "--local-epsilon=2") == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


# What release.json says -------------------------------------------------------------------------

BINS = Bins((0.0, 10.0, 20.0))
NUMBER = PublishedNumber("age", NumberQuestion(BINS, (0.5,), ((0.0, 10.0),), 2))
HISTOGRAM = PublishedNumber("age", NumberQuestion(BINS))
LISTED = PublishedLists(("hair", "eyes"), ("00" * 16, "11" * 16))
PAIR = OneQuestion((KRandomizedResponse(3, 2.0), KRandomizedResponse(3, 2.0)))
LEVELS = EveryQuestion(tuple(KRandomizedResponse(size, 1.0) for size in Hierarchy(BINS, 2).sizes))


def release(asked: Published, randomizer: Any) -> ReleaseFile:
    terms = terms_of(randomizer, columns=asked.asked_columns, values=asked.values.hex())
    return ReleaseFile(terms, asked=asked)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("asked", "randomizer"),
    [(LISTED, PAIR), (NUMBER, LEVELS), (HISTOGRAM, KRandomizedResponse(3, 1.0))],
)
def test_release_files_survive_a_round_trip(asked: Published, randomizer: Any) -> None:
    found = release(asked, randomizer)
    assert ReleaseFile.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.exact
@given(
    st.lists(st.floats(-1e9, 1e9), min_size=3, max_size=30, unique=True).map(sorted),
    st.lists(st.floats(0.01, 0.99), min_size=1, max_size=4),
    st.integers(2, 9),
    st.text(min_size=1).filter(lambda name: name.isprintable()),
)
def test_numbers_survive_as_text(
    edges: list[float], levels: list[float], fan_out: int, name: str
) -> None:
    """Every edge to its last digit, infinities too."""
    ranges = ((-np.inf, edges[1]), (edges[0], np.inf))
    for wanted in (
        NumberQuestion(Bins(tuple(edges)), tuple(levels), ranges, fan_out),
        NumberQuestion(Bins(tuple(edges))),
    ):
        asked = PublishedNumber(name, wanted)
        assert Published.from_text(asked.text) == asked
        json.loads(asked.text, parse_constant=lambda constant: pytest.fail(constant))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("asked", "randomizer", "message"),
    [
        (LISTED, OneQuestion((KRandomizedResponse(3, 2.0),)), "number of questions"),
        (LISTED, KRandomizedResponse(3, 1.0), "number of questions"),
        (NUMBER, PAIR, "number of bins"),
        (NUMBER, KRandomizedResponse(3, 1.0), "number of bins"),
        (HISTOGRAM, KRandomizedResponse(4, 1.0), "number of bins"),
        (HISTOGRAM, PAIR, "number of bins"),
        (HISTOGRAM, ScalarMean(1, 2.0), "number of bins"),
    ],
)
def test_questions_that_another_mechanism_answers(
    asked: Published, randomizer: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        release(asked, randomizer)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (5, "text of a JSON object"),
        ("[]", "text of a JSON object"),
        ("{", "Expecting"),
        ('{"columns":["a","b"]}', "text of a JSON object"),
        ('{"columns":["a","b"],"lists":["00"]}', "each with a list"),
        ('{"columns":["a"],"lists":["00"]}', "two or more"),
        ('{"columns":["a","a"],"lists":["00","11"]}', "distinct names"),
        ('{"columns":["a",7],"lists":["00","11"]}', "must be a list of names"),
        ('{"column":"a","edges":[0,1],"more":1}', "text of a JSON object"),
        ('{"column":"","edges":[0,1]}', "must be a list of names"),
        ('{"column":"a","edges":[1,0]}', "increasing edges"),
        ('{"column":"a","edges":7}', "wrong type"),
        ('{"column":"a","edges":[0,1],"fan_out":2}', "needs --quantiles"),
        ('{"column":"a","edges":[0,1],"quantiles":[0.5]}', "fan_out must be given for a tree"),
        ('{"column":"a","edges":[0,1],"quantiles":[2],"fan_out":2}', r"in \(0, 1\)"),
        ('{"column":"a","edges":[0,1],"quantiles":[0.5],"fan_out":1}', "fan_out must be"),
        ('{"column":"a","edges":[0,1],"quantiles":[0.5],"fan_out":2.0}', "wrong type"),
        ('{"column":"a","edges":[0,1],"quantiles":[],"between":[["0","3"]],"fan_out":2}', "edges"),
        ('{"column":"a","edges":[0,1],"quantiles":[],"between":[["0"]],"fan_out":2}', "values"),
    ],
)
def test_questions_that_are_none(text: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Published.from_text(text)


@pytest.mark.exact
def test_release_files_that_contradict_themselves() -> None:
    good = release(LISTED, PAIR).to_json()
    for changed, message in (
        ({"questions": LISTED.text.replace("hair", "hats")}, "contradict themselves: questions"),
        ({"questions": HISTOGRAM.text}, "contradict themselves: questions"),
        ({"questions": None}, "lack questions"),
    ):
        with pytest.raises(ValueError, match=message):
            ReleaseFile.from_json({**good, **changed})
