"""`beam-ldp randomize` and `beam-ldp collect` as users run them: values stay, reports arrive."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pytest

from beam_ldp.pipelines import collect, randomize
from beam_ldp.pipelines.programs import DONE, INTERRUPTED, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.wire import (
    PREFIX_BYTES,
    TOO_MANY,
    ReleaseTerms,
    checksum,
    encode_envelope,
    encode_envelopes,
)
from tests.pipelines.test_frequency import FILES
from tests.randomizers.wire_terms import terms_of
from tests.release.test_outputs import COLUMNS

pytestmark = pytest.mark.e2e

PEOPLE = 12_000
SECRET = "the-raw-value"
VALUES = ["vermilion", "green", "blue"]
TRUTH = np.array([0.5, 0.25, 0.0, 0.25])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Values of 12,000 people, three rows that cannot be used, and what `randomize` made of it."""
    folder = tmp_path_factory.mktemp("reports")
    held = (["vermilion"] * 2 + ["green", SECRET]) * (PEOPLE // 4)
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
             "--local-epsilon=3", "--release-id=week-47", "--dataset=people",
             f"--output={folder}/{out}"]  # fmt: skip
    return instead(found, more)


def collector_flags(folder: Path, out: Path, *more: str, reports: str = "reports") -> list[str]:
    found = [f"--reports={folder}/{reports}/*", f"--release={folder}/{reports}/release.json",
             f"--domain={folder}/d.txt", "--delta=1e-8", "--min-reports=10000",
             f"--output={out}", "--no-mlflow", "--no-ledger"]  # fmt: skip
    return instead(found, more)


def test_only_reports_and_terms_leave_the_device(place: Path) -> None:
    """No value, no id, no bad row: the files hold 49 bytes per person and what is public."""
    files = sorted((place / "reports").iterdir())
    assert [path.name for path in files][0] == "release.json"
    assert {path.suffix for path in files[1:]} == {".ldp"}
    content = b"".join(path.read_bytes() for path in files)
    assert SECRET.encode() not in content and b"vermilion" not in content
    assert sum(path.stat().st_size for path in files[1:]) == PEOPLE * 49
    terms = ReleaseTerms.from_json(json.loads(files[0].read_text()))
    assert terms.identity == ReleaseIdentity(
        "people", "week-47", terms.randomizer.config_digest().hex(), ("c",),
        Domain(tuple(VALUES)).digest.hex(),
    )  # fmt: skip
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
    assert not Path(f"{out}.private").exists()
    said = (out / "privacy.md").read_text()
    assert "sent a report" in said and "drawn on the devices" in said
    assert "--user-id" not in said and "--bad-rows" not in said and "can read the input" not in said
    printed = capsys.readouterr()
    assert json.loads(printed.out)["privacy"]["epsilon"] == record["epsilon"]
    assert "each report was counted as a person" in " ".join(printed.err.split())


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
    old = ReleaseTerms(terms.randomizer, replace(terms.identity, release_id="week-46"))
    (mixed / "zz-old").write_bytes(encode_envelope(old, np.zeros(1, dtype=np.uint8)) * 3)
    second = tmp_path / "second"
    shutil.copy(place / "d.txt", tmp_path)
    assert collect.main(collector_flags(tmp_path, second, reports="mixed")) == DONE
    same = [(out / "estimates.csv").read_bytes() for out in (first, second)]
    assert same[0] == same[1]
    refused = [
        json.loads(line)
        for line in Path(f"{second}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    by_file = {Path(row["source"]).name: row["reason"] for row in refused}
    assert by_file == {
        "zz-again.ldp": "sent before: another envelope has its id",
        "zz-junk.bin": "not an envelope",
        "zz-old": "another release, question or mechanism",
    }
    assert sum(row["source"].endswith(("junk.bin", "old")) for row in refused) == 2
    limit = collector_flags(tmp_path, tmp_path / "third", "--max-bad-rows=2", reports="mixed")
    capsys.readouterr()
    assert collect.main(limit) == NOTHING_RELEASED
    assert "--max-bad-rows is 2" in capsys.readouterr().err
    assert not (tmp_path / "third").exists()


def test_devices_in_any_language(place: Path, tmp_path: Path) -> None:
    """Envelopes of one report each, as devices send them, in one file."""
    oracle = frequency.HadamardResponse(4, 3.0)
    terms = terms_of(oracle, "by hand", values=Domain(tuple(VALUES)).digest.hex())
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


def forged(terms: ReleaseTerms, symbol: int, count: int) -> bytes:
    """Envelopes of one report each that somebody chose."""
    ids = np.random.default_rng(1).bytes(16 * count)
    reports = np.full(count, symbol, dtype=np.uint8)
    rows = encode_envelopes(terms, reports, np.frombuffer(ids, np.uint8).reshape(-1, 16))
    return rows.tobytes()


def test_one_forged_envelope_speaks_for_nobody(place: Path, tmp_path: Path) -> None:
    """Half a megabyte that holds the reports of a hundred thousand people, under a right checksum:
    refused, and epsilon is that of the people who came. Where release.json grants as much to an
    edge it counts, which is said before the result."""
    shutil.copytree(place / "reports", tmp_path / "reports")
    shutil.copy(place / "d.txt", tmp_path)
    terms = ReleaseTerms.from_json(json.loads((tmp_path / "reports/release.json").read_text()))
    many = ReleaseTerms(terms.randomizer, replace(terms.identity, reports_per_envelope=1 << 20))
    body = encode_envelope(many, np.full(100_000, 2, np.uint8))[PREFIX_BYTES:-4]
    (tmp_path / "reports" / "zz").write_bytes(terms.prefix + body + checksum(terms.prefix + body))
    out = tmp_path / "out"
    assert collect.main(collector_flags(tmp_path, out)) == DONE
    record = json.loads((out / "privacy.json").read_text())
    assert record["num_reports"] == PEOPLE and record["num_bad_rows"] == 1
    refused = json.loads(Path(f"{out}.private", "bad_rows.jsonl").read_text())
    assert refused["reason"] == TOO_MANY and refused["length"] == 48 + 100_000
    assert not any("envelope" in warning for warning in record["warnings"])


def test_outsized_shares_and_impossible_estimates_are_said_first(
    place: Path, tmp_path: Path, capsys: Any
) -> None:
    """One file with three hundred thousand reports for one value, among four of people's twelve
    thousand: on the terminal before the table, in the record and in the statement."""
    shutil.copytree(place / "reports", tmp_path / "reports")
    shutil.copy(place / "d.txt", tmp_path)
    terms = ReleaseTerms.from_json(json.loads((tmp_path / "reports/release.json").read_text()))
    (tmp_path / "reports" / "zz").write_bytes(forged(terms, 2, 300_000))
    capsys.readouterr()
    assert collect.main(collector_flags(tmp_path, tmp_path / "out")) == DONE
    said = capsys.readouterr()
    assert "holds 300,000 of 312,000 reports, and the other 4 files 3,000 on average" in " ".join(
        said.err.split()
    )
    assert "estimates lie outside of what is possible" in " ".join(said.err.split())
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    statement = (tmp_path / "out" / "privacy.md").read_text()
    for warning in record["warnings"]:
        assert warning in statement
    assert sum("reports" in warning and "holds" in warning for warning in record["warnings"]) == 1
    assert sum("outside of what is possible" in warning for warning in record["warnings"]) == 1


def test_an_edge_may_be_granted_more(place: Path, tmp_path: Path, capsys: Any) -> None:
    """`--reports-per-envelope` stands in release.json, and so in every envelope's digest."""
    flags = device_flags(place, "x", f"--output={tmp_path}/reports", "--reports-per-envelope=1000")
    assert randomize.main(flags) == DONE
    shutil.copy(place / "d.txt", tmp_path)
    sizes = [path.stat().st_size for path in (tmp_path / "reports").glob("*.ldp")]
    assert sum(sizes) == PEOPLE + 48 * 12
    assert collect.main(collector_flags(tmp_path, tmp_path / "out")) == DONE
    record = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert record["num_reports"] == PEOPLE and record["num_bad_rows"] == 0
    shutil.copy(place / "reports" / "release.json", tmp_path / "reports")
    assert collect.main(collector_flags(tmp_path, tmp_path / "other")) == NOTHING_RELEASED
    flags = [*flags, f"--memoize-key-file={place}/d.txt", "--user-id=uid", f"--output={tmp_path}/y"]
    capsys.readouterr()
    assert randomize.main(flags) == MISUSED
    assert "--reports-per-envelope must be 1" in " ".join(capsys.readouterr().err.split())


def test_two_spellings_of_the_input_are_one_release(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same people from `values.csv`, `./values.csv` and the absolute path: with a key each has
    one envelope id, and counts once. Another question under the same name is another release."""
    people = 2000
    (tmp_path / "values.csv").write_text(
        "uid,c,h\n" + "".join(f"{i},{VALUES[i % 2]},{VALUES[1 + i % 2]}\n" for i in range(people))
    )
    (tmp_path / "key").write_bytes(bytes(range(40)))
    shutil.copy(place / "d.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    inputs = ("values.csv", "./values.csv", str(tmp_path / "values.csv"))
    memoized = ["--user-id=uid", "--memoize-key-file=key"]
    for i, path in enumerate(inputs):
        assert randomize.main(device_flags(tmp_path, str(i), f"--input={path}", *memoized)) == DONE
    assert randomize.main(device_flags(tmp_path, "other", "--column=h", *memoized)) == DONE
    told = {(tmp_path / str(i) / "release.json").read_bytes() for i in range(3)}
    assert len(told) == 1
    out = tmp_path / "out"
    flags = collector_flags(tmp_path, out, "--min-reports=2000", reports="0")
    flags += [f"--reports={tmp_path}/{name}" for name in ("1", "2", "other")]
    assert collect.main(flags) == DONE
    record = json.loads((out / "privacy.json").read_text())
    assert record["num_reports"] == people
    refused = [
        json.loads(line)
        for line in Path(f"{out}.private", "bad_rows.jsonl").read_text().splitlines()
    ]
    reasons = Counter(row["reason"] for row in refused)
    assert reasons.pop("sent before: another envelope has its id") == 2 * people
    assert set(reasons) == {"another release, question or mechanism"}


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
        (["--release-id="], "--release-id must not be empty"),
        (["--dataset="], "--dataset must not be empty"),
        (["--reports-per-envelope=0"], "reports_per_envelope must be an integer >= 1"),
        (["--epsilon=1"], "give one of --epsilon"),
        (["--local-epsilon="], "--local-epsilon"),
        (["--allow-over-target"], "unknown flag --allow-over-target"),
        (["--stream"], "unknown flag --stream"),
        (["--delta=1e-8"], "--delta needs --epsilon"),
        (["--expected-users=10"], "--expected-users needs --epsilon"),
        (["--honest-fraction=0.5"], "--honest-fraction needs --epsilon"),
        (["--radius=1"], "--radius is for numbers, --domain for values of a list"),
        (["--bad-rows=zero"], "--bad-rows of a list must be dead-letter or other"),
        (["--group-by=g"], "--group-by and --groups belong together"),
        (
            ["--group-by=c", "--groups=d.txt"],
            "--group-by must name a column that is used for nothing else",
        ),
        (["--mechanism=Nothing"], "--mechanism Nothing is unknown"),
        (["--memoize-key-file=key"], "--memoize-key-file needs --user-id"),
        (["--domain=nowhere.txt"], "nowhere.txt: cannot be read"),
        (["--column="], "--column must not be empty"),
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
    mean = terms_of(ScalarMean(1, 2.0)).to_json()
    (tmp_path / "mean.json").write_text(json.dumps(mean))
    (tmp_path / "d2.txt").write_text("green\nred\nblue\n")
    for more, message in (
        ([f"--domain={tmp_path}/d2.txt"], "not the list that the devices used"),
        (["--other-label=rest"], "not the list that the devices used"),
        ([f"--release={tmp_path}/nowhere.json"], "cannot be read"),
        ([f"--release={tmp_path}/broken.json"], "broken.json: "),
        ([f"--release={tmp_path}/list.json"], "no JSON object"),
        ([f"--release={tmp_path}/changed.json"], "contradict themselves: release_id"),
        ([f"--release={tmp_path}/mean.json"], "lack coordinates"),
        ([f"--groups={place}/d.txt"], "--groups cannot be used: these reports have no groups"),
        (["--dataset=others"], "--dataset others: "),
        (["--release-id=week-48"], "--release-id week-48: "),
        (["--privacy-unit=day"], "--privacy-unit day: "),
        (["--allow-over-target"], "--allow-over-target needs --epsilon"),
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
    (tmp_path / "values.csv").write_text('c\n""\n""\n')
    (tmp_path / "d.txt").write_text("vermilion\ngreen\n")
    assert randomize.main(device_flags(tmp_path, "out")) == NOTHING_RELEASED
    assert "no row could be used; 2 rows could not be used, most often: null" in " ".join(
        capsys.readouterr().err.split()
    )
    (tmp_path / "values.csv").write_text("d\nred\n")
    assert randomize.main(device_flags(tmp_path, "out")) == MISUSED
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
