"""`beam-ldp randomize` and `beam-ldp collect` as users run them: values stay, reports arrive."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from beam_ldp.pipelines import collect, randomize
from beam_ldp.pipelines.run import DONE, FAILED, INTERRUPTED, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.wire import ReleaseTerms, encode_envelope
from tests.pipelines.test_frequency import FILES
from tests.pipelines.test_outputs import COLUMNS

pytestmark = pytest.mark.e2e

PEOPLE = 12_000
SECRET = "the-raw-value"
VALUES = ["red", "green", "blue"]
TRUTH = np.array([0.5, 0.25, 0.0, 0.25])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values of 12,000 people, three rows that cannot be used, and what `randomize` made of it."""
    folder = tmp_path_factory.mktemp("reports")
    held = (["red"] * 2 + ["green", SECRET]) * (PEOPLE // 4)
    (folder / "values.csv").write_text(
        "c,uid\n" + "".join(f"{v},{i}\n" for i, v in enumerate(held)) + ",1\n,2\n,3\n"
    )
    (folder / "d.txt").write_text("".join(f"{value}\n" for value in VALUES))
    assert randomize.main(device_flags(folder, "reports")) == DONE
    return folder


def instead(found: list[str], more: tuple[str, ...]) -> list[str]:
    """The flags with those of `more` in place of the same ones: a list named twice is two lists."""
    named = {flag.split("=")[0] for flag in more}
    return [*(flag for flag in found if flag.split("=")[0] not in named), *more]


def device_flags(folder: Path, out: str, *more: str) -> list[str]:
    found = [f"--input={folder}/values.csv", "--column=c", f"--domain={folder}/d.txt",
             "--local-epsilon=3", "--release-id=week-47", f"--output={folder}/{out}"]  # fmt: skip
    return instead(found, more)


def collector_flags(folder: Path, out: Path, *more: str, reports: str = "reports") -> list[str]:
    found = [f"--reports={folder}/{reports}/*", f"--release={folder}/{reports}/release.json",
             f"--domain={folder}/d.txt", "--delta=1e-8", "--min-reports=10000",
             f"--output={out}", "--no-mlflow", "--no-ledger"]  # fmt: skip
    return instead(found, more)


def test_only_reports_and_terms_leave_the_device(place: Path) -> None:
    """No value, no id, no bad row: the files hold 2 bits per person and what is public."""
    files = sorted((place / "reports").iterdir())
    assert [path.name for path in files][0] == "release.json"
    assert {path.suffix for path in files[1:]} == {".ldp"}
    content = b"".join(path.read_bytes() for path in files)
    assert SECRET.encode() not in content and b"red" not in content
    assert PEOPLE * 2 // 8 <= sum(p.stat().st_size for p in files[1:]) <= PEOPLE * 2 // 8 + 1000
    terms = ReleaseTerms.from_json(json.loads(files[0].read_text()))
    assert terms.release_id == "week-47" and terms.domain_digest == Domain(tuple(VALUES)).digest
    assert terms.randomizer.local_epsilon == 3 and not terms.simulated


def test_collector_gives_the_files_of_frequency(place: Path, tmp_path: Path, capsys: Any) -> None:
    """Estimates within 5.5 standard errors; fresh randomness: fails once in 6 million runs."""
    out = tmp_path / "out"
    assert collect.main(collector_flags(place, out, "--format=json")) == DONE
    assert sorted(path.name for path in out.iterdir()) == FILES
    table = pyarrow.csv.read_csv(out / "estimates.csv").to_pydict()
    assert list(table) == COLUMNS and table["value"] == [*VALUES, "other"]
    assert set(table["question"]) == {"week-47"}
    errors = np.array(table["frequency_standard_error"])
    assert (np.abs(np.array(table["frequency"]) - TRUTH) < 5.5 * errors).all()
    record = json.loads((out / "privacy.json").read_text())
    assert record["num_reports"] == PEOPLE and record["num_bad_rows"] == 0
    assert record["local_epsilon"] == 3 and 0 < record["epsilon"] < 0.5
    assert record["release_id"] == "week-47" and record["user_id"] is None
    assert (out / "bad_rows.jsonl").read_bytes() == b""
    said = (out / "privacy.md").read_text()
    assert "whoever sent a report" in said and "drawn on the devices" in said
    assert "--user-id" not in said and "--bad-rows" not in said and "can read the input" not in said
    printed = capsys.readouterr()
    assert json.loads(printed.out)["privacy"]["epsilon"] == record["epsilon"]
    assert "each report was taken for a person" in " ".join(printed.err.split())


def test_hostile_files_change_nothing(place: Path, tmp_path: Path, capsys: Any) -> None:
    """Copies, junk, other releases: listed with file, offset and reason; the estimate is the same
    to the last digit."""
    first = tmp_path / "first"
    assert collect.main(collector_flags(place, first)) == DONE
    mixed = tmp_path / "mixed"
    shutil.copytree(place / "reports", mixed)
    reports = next(mixed.glob("*.ldp"))
    shutil.copy(reports, mixed / "zz-again.ldp")
    (mixed / "zz-junk.bin").write_bytes(np.random.default_rng(3).bytes(5000))
    terms = ReleaseTerms.from_json(json.loads((mixed / "release.json").read_text()))
    old = ReleaseTerms(terms.randomizer, "week-46", terms.domain_digest)
    nothing = np.zeros(500, dtype=np.uint8)
    (mixed / "zz-old").write_bytes(encode_envelope(old, nothing) * 3)
    second = tmp_path / "second"
    shutil.copy(place / "d.txt", tmp_path)
    assert collect.main(collector_flags(tmp_path, second, reports="mixed")) == DONE
    same = [(out / "estimates.csv").read_bytes() for out in (first, second)]
    assert same[0] == same[1]
    refused = [json.loads(line) for line in (second / "bad_rows.jsonl").read_text().splitlines()]
    by_file = {Path(row["source"]).name: row["reason"] for row in refused}
    assert by_file == {
        "zz-again.ldp": "sent before: another envelope has its id",
        "zz-junk.bin": "not an envelope",
        "zz-old": "another release",
    }
    limit = collector_flags(tmp_path, tmp_path / "third", "--max-bad-rows=2", reports="mixed")
    capsys.readouterr()
    assert collect.main(limit) == NOTHING_RELEASED
    assert "--max-bad-rows is 2" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()


def test_devices_in_any_language(place: Path, tmp_path: Path) -> None:
    """Envelopes of one report each, as devices send them, in one file."""
    oracle = frequency.HadamardResponse(4, 3.0)
    terms = ReleaseTerms(oracle, "by hand", Domain(tuple(VALUES)).digest)
    reports = oracle.randomize(np.repeat([0, 1, 3], [1000, 500, 500]), np.random.default_rng(5))
    sent = b"".join(encode_envelope(terms, reports[i : i + 1]) for i in range(2000))
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports" / "inbox").write_bytes(sent)
    (tmp_path / "reports" / "release.json").write_text(json.dumps(terms.to_json()))
    shutil.copy(place / "d.txt", tmp_path)
    out = tmp_path / "out"
    flags = collector_flags(tmp_path, out, "--min-reports=2000", "--question=colour")
    assert collect.main(flags) == DONE
    record = json.loads((out / "privacy.json").read_text())
    assert record["num_reports"] == 2000 and record["question"] == "colour"
    found = pyarrow.csv.read_csv(out / "estimates.csv").to_pydict()["frequency"]
    expected = oracle.estimate(oracle.accumulate(reports), 2000).value
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_too_few_reports_release_nothing(place: Path, tmp_path: Path, capsys: Any) -> None:
    flags = collector_flags(place, tmp_path / "out", f"--min-reports={PEOPLE + 1}")
    assert collect.main(flags) == NOTHING_RELEASED
    said = " ".join(capsys.readouterr().err.split())
    assert "nothing was released: 12,000 reports" in said and "12,001" in said
    assert not (tmp_path / "out").exists()


def test_dry_run_reads_no_report(place: Path, tmp_path: Path, capsys: Any) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    (reports / "a").write_bytes(b"junk")
    shutil.copy(place / "reports" / "release.json", reports)
    shutil.copy(place / "d.txt", tmp_path)
    flags = collector_flags(tmp_path, tmp_path / "out", "--dry-run", "--format=json")
    assert collect.main(flags) == DONE
    plan = json.loads(capsys.readouterr().out)
    assert plan["dry_run"] and plan["num_reports"] == 10_000 and plan["local_epsilon"] == 3
    assert plan["input_files"] == 1 and not (tmp_path / "out").exists()


def test_simulation_stays_one(place: Path, tmp_path: Path) -> None:
    """What was drawn with a seed has no price at the collector either."""
    shutil.copy(place / "d.txt", tmp_path)
    shutil.copy(place / "values.csv", tmp_path)
    assert randomize.main(device_flags(tmp_path, "reports", "--seed=1")) == DONE
    assert json.loads((tmp_path / "reports" / "release.json").read_text())["simulated"]
    assert collect.main(collector_flags(tmp_path, tmp_path / "out")) == DONE
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert record["simulated"] and record["epsilon"] is None and record["local_epsilon"] is None


def test_one_report_per_person(place: Path, tmp_path: Path, capsys: Any) -> None:
    """With --user-id; the three people whose rows were bad have other ones."""
    flags = device_flags(place, "by-person", "--user-id=uid", "--format=json")
    assert randomize.main(flags) == DONE
    done = json.loads(capsys.readouterr().out)
    assert done["num_reports"] == PEOPLE and done["bad_rows"] == {"null": 3}
    assert done["warnings"] == [] and done["release"]["release_id"] == "week-47"


def test_people_do_not_report_twice_by_accident(place: Path, capsys: Any) -> None:
    before = {path.name: path.read_bytes() for path in (place / "reports").iterdir()}
    assert randomize.main(device_flags(place, "reports")) == MISUSED
    assert "reports go into a new folder" in " ".join(capsys.readouterr().err.split())
    assert {path.name: path.read_bytes() for path in (place / "reports").iterdir()} == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--release-id="], "--release-id is missing"),
        (["--epsilon=1"], "give one of --epsilon"),
        (["--local-epsilon="], "--local-epsilon"),
        (["--strict"], "unknown flag --strict"),
        (["--stream"], "unknown flag --stream"),
        (["--delta=1e-8"], "--delta needs --epsilon"),
        (["--expected-users=10"], "--expected-users needs --epsilon"),
        (["--honest-fraction=0.5"], "--honest-fraction needs --epsilon"),
        (["--radius=1"], "--radius is about numbers, --column about values of a list"),
        (["--bad-rows=zero"], "--bad-rows of a list must be dead-letter or other"),
        (["--group-by=g"], "--group-by and --groups belong together"),
        (["--group-by=c", "--groups=d.txt"], "--group-by must name a column of its own"),
        (["--mechanism=Nothing"], "--mechanism Nothing is unknown"),
        (["--memoize-key-file=key"], "--memoize-key-file needs --user-id"),
        (["--domain=nowhere.txt"], "--domain nowhere.txt: cannot be read"),
        (["--column="], "--column is missing"),
    ],
)
def test_misused_devices(place: Path, more: list[str], message: str, capsys: Any) -> None:
    assert randomize.main(device_flags(place, "new", *more)) == MISUSED
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (place / "new").exists()


def test_misused_collectors(place: Path, tmp_path: Path, capsys: Any) -> None:
    terms = json.loads((place / "reports" / "release.json").read_text())
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    (tmp_path / "changed.json").write_text(json.dumps({**terms, "release_id": "week-48"}))
    mean = ReleaseTerms(ScalarMean(1, 2.0), "r").to_json()
    (tmp_path / "mean.json").write_text(json.dumps(mean))
    (tmp_path / "d2.txt").write_text("green\nred\nblue\n")
    for more, message in (
        ([f"--domain={tmp_path}/d2.txt"], "not the list that the devices had"),
        (["--other-label=rest"], "not the list that the devices had"),
        ([f"--release={tmp_path}/nowhere.json"], "cannot be read"),
        ([f"--release={tmp_path}/broken.json"], "broken.json: "),
        ([f"--release={tmp_path}/list.json"], "no JSON object"),
        ([f"--release={tmp_path}/changed.json"], "contradict themselves: release_digest"),
        ([f"--release={tmp_path}/mean.json"], "lack coordinates"),
        ([f"--groups={place}/d.txt"], "--groups is not for reports without groups"),
        (["--strict"], "--strict needs --epsilon"),
        (["--shape=2x2"], "--shape is for means"),
        (["--staged=x"], "unknown flag --staged"),
        ([f"--reports={tmp_path}/nothing*"], "no file of reports matches"),
        (["--delta=2"], "--delta must lie in (0, 1)"),
        (["--local-epsilon=5"], "unknown flag --local-epsilon"),
        (["--top=0"], "--top must be >= 1"),
    ):
        flags = collector_flags(place, tmp_path / "out", *more)
        assert collect.main(flags) == MISUSED, more
        assert message in " ".join(capsys.readouterr().err.split()), more


def test_unusable_files_write_nothing(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "values.csv").write_text('c\n""\n,\n')
    (tmp_path / "d.txt").write_text("red\ngreen\n")
    assert randomize.main(device_flags(tmp_path, "out")) == NOTHING_RELEASED
    assert "no row could be used (most often:" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "values.csv").write_text("d\nred\n")
    assert randomize.main(device_flags(tmp_path, "out")) in (FAILED, NOTHING_RELEASED)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.txt", "values.csv"]


@pytest.mark.parametrize("moment", ["check", "_run", "show"])
def test_an_interrupt_leaves_whole_reports_or_none(
    moment: str, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(randomize, moment, interrupted)
    flags = device_flags(place, "x", f"--output={tmp_path}/new/out")
    assert randomize.main(flags) == INTERRUPTED
    assert capsys.readouterr().err.strip().endswith("interrupted")
    left = sorted(path.name for path in (tmp_path / "new").glob("*"))
    assert left == (["out"] if moment == "show" else [])


@pytest.mark.parametrize("program", [randomize, collect])
def test_help_teaches(program: Any, capsys: Any) -> None:
    assert program.main(["--help"]) == DONE
    said = capsys.readouterr().out
    assert "--release" in said and "examples:" in said and "exit codes:" in said
    assert program.main([]) == MISUSED
