"""Values that are read later: a key that a run makes, and `beam-ldp recover` for consents."""

from __future__ import annotations

import csv
import json
import logging
import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from beam_ldp.pipelines import collect, programs, randomize
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.devices.recovery import NO_REPORT, NOT_MADE, TWO_REPORTS
from beam_ldp.pipelines.recover import _no_formula
from beam_ldp.randomizers.frequency import RecoverableResponse
from beam_ldp.randomizers.randomness import UserRandomness, envelope_ids
from beam_ldp.randomizers.wire import encode_envelope
from beam_ldp.release.devices.release_file import load_release
from beam_ldp.release.outputs import OutputError, create_private
from beam_ldp.settings import SettingError

pytestmark = pytest.mark.e2e

BY_PATH = "--mechanism=beam_ldp.randomizers.frequency:RecoverableResponse"
VALUES = ("oak", "elm", "yew, common")
PEOPLE = {f"person-{i}": VALUES[i % 3] if i % 5 else "fig" for i in range(300)}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of a recoverable release, and its key."""
    folder = tmp_path_factory.mktemp("recover")
    with (folder / "values.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("uid", "tree"), *PEOPLE.items()])
    (folder / "trees.txt").write_text("\n".join(VALUES))
    assert make(folder, "reports", "week.key") == programs.DONE
    return folder


def make(folder: Path, output: str, key: str, *more: str) -> int:
    return randomize.main(flags(folder, output, key, *more))


def flags(folder: Path, output: str, key: str, *more: str) -> list[str]:
    return [
        f"--input={folder}/values.csv", "--column=tree", f"--domain={folder}/trees.txt",
        "--user-id=uid", "--local-epsilon=2", "--dataset=woods", "--release-id=week-47",
        f"--recover-key-file={folder}/{key}", f"--output={folder}/{output}", *more,
    ]  # fmt: skip


def recover(folder: Path, people: str, written: str, **other: str) -> Result:
    (folder / "consents.txt").write_text(people)
    told = {
        "reports": f"{folder}/reports", "release": f"{folder}/reports/release.json",
        "domain": f"{folder}/trees.txt", "recover-key-file": f"{folder}/week.key",
        "consents": f"{folder}/consents.txt", "output": f"{folder}/{written}",
    }  # fmt: skip
    more = [f"--{name}={value}" for name, value in (told | other).items()]
    return CliRunner().invoke(group, ["recover", *more])


def read(folder: Path, name: str) -> list[tuple[str, str, str]]:
    with (folder / name).open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    assert head == ["user_id", "value", "note"]
    return [(user, value, note) for user, value, note in rows]


def test_everybody_who_consented_is_read_and_nobody_else(
    place: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    asked = ["person-7", "person-299", "person-5", "stranger"]
    found = recover(place, "\n".join([*asked, "person-7", ""]), "some.csv")
    assert found.exit_code == 0, found.output
    expected = [(one, "other" if PEOPLE[one] == "fig" else PEOPLE[one], "") for one in asked[:3]]
    assert read(place, "some.csv") == [*expected, ("stranger", "", NO_REPORT)]
    assert (place / "some.csv").stat().st_mode & 0o777 == 0o600
    assert (place / "week.key").stat().st_mode & 0o777 == 0o600
    said = found.output + caplog.text
    assert "3 of 4 values" in said and "1 without a report" in said
    assert not any(word in said for word in (*asked, *VALUES))
    events = [one.ldp_fields for one in caplog.records if hasattr(one, "ldp_fields")]
    assert events == [{"program": "recover", "num_people": 3}]
    everybody = recover(place, "\n".join(PEOPLE), "all.csv", format="json")
    told = json.loads(everybody.stdout)
    assert told["num_recovered"] == told["num_consents"] == len(PEOPLE)
    assert [value for _, value, _ in read(place, "all.csv")] == [
        "other" if value == "fig" else value for value in PEOPLE.values()
    ]


def test_the_release_says_that_values_are_recoverable(place: Path) -> None:
    told = json.loads((place / "reports" / "release.json").read_text())
    assert told["recoverable"] is True and told["identity"]["key"]
    out = place / "out"
    assert collect.main(
        [f"--reports={place}/reports", f"--release={place}/reports/release.json",
         f"--domain={place}/trees.txt", "--delta=1e-6", "--min-reports=200", f"--output={out}",
         "--no-mlflow", "--no-ledger"]
    ) == programs.DONE  # fmt: skip
    said = (out / "privacy.md").read_text()
    assert "single values can be read later by the holder of the release's key" in said
    assert "any amount of computing" not in said and "no break of AES" in said
    shown = {row["value"] for row in csv.DictReader((out / "estimates.csv").open(newline=""))}
    assert shown == {*VALUES, "other"}
    for wrong in (False, None):
        contradicting = {**told, "recoverable": wrong}
        path = place / "contradicting.json"
        path.write_text(json.dumps(contradicting))
        with pytest.raises(SettingError, match="contradict themselves: recoverable"):
            load_release(str(path))


def forged(place: Path, people: list[str], reports: np.ndarray) -> bytes:
    """What somebody made under the ids of others."""
    terms, key = load_release(f"{place}/reports/release.json").terms, place / "week.key"
    ids = envelope_ids(key.read_bytes(), people, terms.identity)
    return b"".join(
        encode_envelope(terms, reports[i : i + 1], ids[i].tobytes()) for i in range(len(people))
    )


def test_a_forged_report_is_told_from_a_value(place: Path, tmp_path: Path) -> None:
    """Two reports under one id; and one that no value makes under the key (v = 7, 4 values)."""
    terms = load_release(f"{place}/reports/release.json").terms
    oracle, key = terms.randomizer, (place / "week.key").read_bytes()
    assert isinstance(oracle, RecoverableResponse)
    keys = oracle.draw_keys(1, UserRandomness(key, ["person-1"], terms.identity))
    own = oracle.encode(np.array([VALUES.index(PEOPLE["person-1"])]), keys)
    shutil.copytree(place / "reports", tmp_path / "reports")
    other = (own + 1) % oracle.num_symbols
    extra = forged(place, ["person-1", "person-2"], np.array([other[0], 0], oracle.report_dtype))
    (tmp_path / "reports" / "reports-99999.ldp").write_bytes(extra)
    found = recover(place, "person-1\nperson-4\n", "two.csv", reports=f"{tmp_path}/reports")
    assert found.exit_code == 0 and "1 with a report that was not made" in found.output
    assert read(place, "two.csv")[0] == ("person-1", "", TWO_REPORTS)
    assert read(place, "two.csv")[1][1] == PEOPLE["person-4"]


def test_a_report_that_no_value_makes_is_said(place: Path, tmp_path: Path) -> None:
    from dataclasses import replace

    from beam_ldp.pipelines.devices import recovery
    from beam_ldp.randomizers.wire import ReleaseTerms

    agreed = load_release(f"{place}/reports/release.json")
    oracle, key = RecoverableResponse(4, 2.0, "paley:7"), (place / "week.key").read_bytes()
    identity = replace(agreed.terms.identity, mechanism=oracle.config_digest().hex())
    terms = ReleaseTerms(oracle, identity)
    keys = oracle.draw_keys(1, UserRandomness(key, ["ann"], identity)).astype(int)
    report = ((keys + 5) % 7).astype(oracle.report_dtype)
    sent = encode_envelope(terms, report, envelope_ids(key, ["ann"], identity)[0].tobytes())
    (tmp_path / "r.ldp").write_bytes(sent)
    found = recovery.recover(replace(agreed, terms=terms), key, ["ann"], [str(tmp_path)])
    assert [(one.index, one.note) for one in found] == [(None, NOT_MADE)]


def test_what_does_not_fit_is_refused_by_name(place: Path, tmp_path: Path) -> None:
    key = (place / "week.key").read_bytes()
    damaged, loose, short = (tmp_path / name for name in ("damaged", "loose", "short"))
    for path, content in ((damaged, bytes([key[0] ^ 1]) + key[1:]), (loose, key), (short, b"abc")):
        path.write_bytes(content)
        path.chmod(0o644 if path == loose else 0o600)
    plain = tmp_path / "plain"
    assert randomize.main(
        [f"--output={plain}" if flag.startswith("--output") else flag
         for flag in flags(place, "", "") if not flag.startswith("--recover")]
    ) == programs.DONE  # fmt: skip
    (tmp_path / "list.txt").write_text("oak\nelm\n")
    (tmp_path / "bad.txt").write_text("person-1\n1e+16\n")
    for other, said in (
        ({"recover-key-file": str(damaged)}, "is not the key of release week-47, or it is damaged"),
        ({"recover-key-file": str(loose)}, "readable by its owner alone"),
        ({"recover-key-file": str(short)}, "at least 32 secret bytes"),
        ({"release": f"{plain}/release.json"}, "no key recovers values of this release"),
        ({"release": f"{tmp_path}/nothing.json"}, "cannot be read"),
        ({"domain": f"{tmp_path}/list.txt"}, "not the list that the devices used"),
        ({"consents": f"{tmp_path}/bad.txt"}, "line 2 is no user id"),
        ({"consents": f"{tmp_path}/nobody.txt"}, "cannot be read"),
        ({"reports": f"{tmp_path}/nowhere"}, "no file of reports matches"),
        ({"output": f"{place}/values.csv"}, "exists: choose a new file"),
    ):
        found = recover(place, "person-1\n", "refused.csv", **other)
        assert found.exit_code == 2 and said in " ".join(found.output.split()), found.output
        assert "person-1" not in found.output and not (place / "refused.csv").exists()
    found = recover(place, "\n", "refused.csv")
    assert found.exit_code == 2 and "names nobody" in found.output
    # Reports of another release are none of these people's, whoever they are of.
    for asked, reports in (("stranger", f"{place}/reports"), ("person-1", str(plain))):
        found = recover(place, asked, "refused.csv", reports=reports)
        assert found.exit_code == 3 and "none of these people has a report" in found.output
        assert not (place / "refused.csv").exists()


@pytest.mark.parametrize(
    ("more", "without", "said"),
    [
        (["--memoize-key-file=k"], (), "excludes --memoize-key-file"),
        (["--seed=1"], (), "excludes --seed"),
        (["--epsilon=1", "--delta=1e-6"], ("--local-epsilon",), "excludes --epsilon"),
        (["--group-by=uid", "--groups=g"], (), "excludes --group-by"),
        (["--mechanism=SubsetSelection"], (), "excludes --mechanism"),
        (["--levels=2,1", "--level-secret=s"], ("--local-epsilon",), "exclude each other"),
        (
            [BY_PATH, "--memoize-key-file=k"],
            ("--recover",),
            "belongs to `beam-ldp randomize --recov",
        ),
        (["--column=more", "--domain=d"], (), "a single --column"),
        (["--bins=0:1:4"], ("--domain",), "values of one list"),
        (["--range=0,1"], ("--domain",), "values of one list"),
        ([], ("--user-id",), "needs --user-id"),
        (["--recover-key-file=gs://bucket/key"], ("--recover-key-file",), "path of this machine"),
        (["--reports-per-envelope=5"], (), "--reports-per-envelope must be 1"),
    ],
)
def test_flags_that_cannot_be_kept_together(
    place: Path, more: list[str], without: tuple[str, ...], said: str, capsys: pytest.CaptureFixture
) -> None:
    told = [flag for flag in flags(place, "new", "new.key") if not flag.startswith(without or "-!")]
    if more == ["--range=0,1"]:
        more = ["--range", "0", "1"]
    assert randomize.main([*told, *more]) == programs.MISUSED
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (place / "new.key").exists() and not (place / "new").exists()


def test_every_run_makes_a_key_and_a_run_that_sends_nothing_keeps_none(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Two values of a person under one key tell their difference: a second run is another release,
    with a key of its own, and its reports are refused among the first ones'."""
    assert make(place, "again", "week.key") == programs.MISUSED
    assert "two values of a person under one key" in " ".join(capsys.readouterr().err.split())
    assert make(place, "inside", "inside/week.key") == programs.MISUSED
    assert "which is public" in capsys.readouterr().err
    assert make(place, "dry", "dry.key", "--dry-run") == programs.DONE
    (place / "hole.csv").write_text("uid,tree\nann,\n")
    told = [flag for flag in flags(place, "hole", "hole.key") if not flag.startswith("--input")]
    code = randomize.main([*told, f"--input={place}/hole.csv"])
    assert code == programs.NOTHING_RELEASED
    assert not any((place / name).exists() for name in ("dry.key", "hole.key", "hole", "dry"))
    assert make(place, "second", "second.key") == programs.DONE
    first, second = (
        load_release(f"{place}/{name}/release.json").terms for name in ("reports", "second")
    )
    assert first.identity.differences(second.identity) == ["key"]
    assert recover(place, "person-1", "mixed.csv", reports=f"{place}/second").exit_code == 3


def test_of_two_who_make_one_file_at_once_one_is_told(tmp_path: Path) -> None:
    create_private(f"{tmp_path}/key", b"first")
    with pytest.raises(OutputError, match="exists: choose a new file"):
        create_private(f"{tmp_path}/key", b"second")
    assert (tmp_path / "key").read_bytes() == b"first"
    with pytest.raises(OutputError, match="cannot be written"):
        create_private(f"{tmp_path}/nowhere/key", b"")
    with pytest.raises(OutputError, match="path of this machine"):
        create_private("gs://bucket/key", b"")


@pytest.mark.parametrize(
    ("value", "shown"),
    [("=1+1", "'=1+1"), ("+SUM(A1)", "'+SUM(A1)"), ("@x", "'@x"), ("-A1", "'-A1"), ("-3.5", "-3.5"),
     ("a=b", "a=b"), ("", "")],
)  # fmt: skip
def test_no_cell_is_run_as_a_formula(value: str, shown: str) -> None:
    assert _no_formula(value) == shown
