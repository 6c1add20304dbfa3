"""Reports of several levels, as devices, readers and the holder of the secret run the programs."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import collect, randomize
from beam_ldp.pipelines.cli import group
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.randomizers.level_keys import LevelKey

pytestmark = pytest.mark.e2e

PEOPLE, SECRET = 3000, bytes(range(32))


def owned(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """People with a colour, the secret, the reports, and the keys of two levels."""
    folder = tmp_path_factory.mktemp("levels")
    rows = "".join(f"{i},{'red' if i % 3 else 'green'},{i % 50}\n" for i in range(PEOPLE))
    (folder / "values.csv").write_text("uid,c,age\n" + rows)
    (folder / "d.txt").write_text("red\ngreen\nblue\n")
    owned(folder / "secret.key", SECRET)
    owned(folder / "other.key", SECRET[::-1])
    assert device(folder, folder / "reports") == DONE
    for level in ("1", "2"):
        assert derive(folder, level, folder / f"{level}.key").exit_code == DONE
    return folder


def device(place, out, *more, levels="2,1,0.5"):
    return randomize.main(
        [f"--input={place}/values.csv", "--column=c", f"--domain={place}/d.txt", "--user-id=uid",
         f"--levels={levels}", f"--level-secret={place}/secret.key", "--dataset=people",
         "--release-id=week-47", f"--output={out}", *more]
    )  # fmt: skip


def derive(place, level, out, *more, secret="secret.key", release="reports"):
    return CliRunner().invoke(
        group,
        ["keys", "derive", f"--level-secret={place}/{secret}", f"--level-epsilon={level}",
         f"--release={place}/{release}/release.json", f"--output={out}", *more],
    )  # fmt: skip


def read(place, out, *more, reports=None, ledger=None, release=None):
    charged = ["--no-ledger"] if ledger is None else [f"--ledger={ledger}"]
    return collect.main(
        [f"--reports={reports or place / 'reports'}", f"--domain={place}/d.txt", "--delta=1e-6",
         f"--release={release or place / 'reports'}/release.json", "--min-reports=500",
         "--no-mlflow", f"--output={out}", *charged, *more]
    )  # fmt: skip


def record_of(out):
    return json.loads((out / "privacy.json").read_text())


def frequencies(out):
    with (out / "estimates.csv").open() as file:
        rows = {row["value"]: row for row in csv.DictReader(file)}
    columns = ("frequency", "frequency_standard_error")
    found = [[float(rows[name][column]) for column in columns] for name in ("red", "green", "blue")]
    return np.array(found).T


def test_everybody_and_each_key_read_the_same_bytes_at_their_own_epsilon(place, tmp_path):
    """A false alarm in 5 of 10,000 choices of the noise, which is not fixed."""
    ledger = f"sqlite:///{tmp_path}/l.db"
    book = BudgetLedger.create(ledger)
    book.set_budget("people", epsilon=9.0, delta=1e-5, local_epsilon=9.0)
    renamed = owned(tmp_path / "2.key", (place / "1.key").read_bytes())  # a name decides nothing
    errors, spent = [], []
    for level, more in ((0.5, []), (1.0, [renamed]), (2.0, [place / "2.key"])):
        out = tmp_path / f"at-{level}"
        key = [f"--level-key={name}" for name in more]
        assert read(place, out, *key, ledger=ledger) == DONE
        record, (value, error) = record_of(out), frequencies(out)
        assert record["local_epsilon"] == level and record["num_reports"] == PEOPLE
        assert record["charged_local_epsilon"] == 2.0
        assert record["exactness"] == "computational"
        assert [one["local_epsilon"] for one in record["readers"]] == [2.0, 1.0, 0.5]
        prices = [one["epsilon"] for one in record["readers"]]
        assert record["epsilon"] == prices[0] > prices[1] > prices[2] > 0
        assert (abs(value - [2 / 3, 1 / 3, 0]) < 4.2 * error).all()
        errors.append(error.max())
        spent.append(book.status("people").local_spent)
        said = (out / "privacy.md").read_text()
        for told in ("everybody, local epsilon 0.5", "key of level 2", "key of level 1", "the sum",
                     "which envelope a person sent", "cannot break AES"):  # fmt: skip
            assert told in said
        assert "any amount of computing" not in said
    assert errors[0] > 1.5 * errors[1] > 2.5 * errors[2]
    assert spent == [2.0] * 3  # the largest level, once
    assert "the same envelopes" in (tmp_path / "at-2.0" / "privacy.md").read_text()
    assert record["publication"] >= 2


def test_other_reports_under_the_same_name_are_not_free(place, tmp_path):
    """One envelope less, and the difference of two publications is a report."""
    ledger = f"sqlite:///{tmp_path}/l.db"
    book = BudgetLedger.create(ledger)
    book.set_budget("people", epsilon=9.0, delta=1e-5, local_epsilon=9.0)
    assert read(place, tmp_path / "first", ledger=ledger) == DONE
    fewer = tmp_path / "fewer"
    fewer.mkdir()
    for path in sorted((place / "reports").glob("*.ldp"))[1:]:
        (fewer / path.name).write_bytes(path.read_bytes())
    assert read(place, tmp_path / "x", reports=fewer, ledger=ledger) == NOTHING_RELEASED
    assert not (tmp_path / "x").exists()


def test_a_dry_run_says_what_a_further_reader_would_be_charged(place, tmp_path, capfd):
    """Of the largest level, whoever asks; and nothing, once the reports were read."""
    ledger = f"sqlite:///{tmp_path}/l.db"
    book = BudgetLedger.create(ledger)
    book.set_budget("people", epsilon=9.0, delta=1e-5, local_epsilon=9.0)
    key, dry = f"--level-key={place}/1.key", ["--dry-run", "--format=json"]

    def told(*more):
        capfd.readouterr()
        assert read(place, tmp_path / "out", *dry, *more, ledger=ledger) == DONE
        checks = json.loads(capfd.readouterr().out)["checks"]
        return next(check["said"] for check in checks if check["check"] == "budget")

    assert told() == told(key)
    assert "of 9 at delta = 1e-05 would be spent" in told()
    assert read(place, tmp_path / "first", ledger=ledger) == DONE
    again = "the same reports cost nothing more, others are"
    spent = book.status("people").spent
    for more in ([], [key]):
        assert f"{again} refused" in told(*more)
        assert f"{again} priced with them" in told(*more, "--frozen-values")
    assert book.status("people").spent == spent


def test_what_does_not_fit_is_refused_by_name(place, tmp_path, capfd):
    content = (place / "1.key").read_bytes()
    damaged = owned(tmp_path / "damaged.key", content.replace(b'"key": "', b'"key": "0', 1))
    opened = tmp_path / "open.key"
    opened.write_bytes(content)
    opened.chmod(0o644)
    key = LevelKey.from_bytes(content)
    other_level = LevelKey(0.7, key.release_id, key.release, key.secret)
    wrong_level = owned(tmp_path / "level.key", other_level.to_bytes())
    other_week = LevelKey(1.0, "week-46", "00" * 32, key.secret)
    wrong_week = owned(tmp_path / "week.key", other_week.to_bytes())
    for path, said in (
        (damaged, "is damaged, or no level key"),
        (opened, "must be readable by its owner alone"),
        (wrong_level, "is of level 0.7, and keys are of levels 2, 1"),
        (wrong_week, "is of release 'week-46', and these reports are of 'week-47'"),
        (tmp_path / "none", "--level-key must be readable"),
    ):
        assert read(place, tmp_path / "x", f"--level-key={path}") == MISUSED
        told = "".join(capfd.readouterr())
        assert said in told.replace("\n", " ") and key.secret.hex() not in told
        assert not (tmp_path / "x").exists()


def test_keys_are_derived_for_a_level_of_a_release_alone(place, tmp_path):
    for level, more, told in (
        ("1.5", {}, "level must be one of 2, 1, 0.5, got 1.5"),
        ("0.5", {}, "0.5 is what everybody reads"),
        ("1", {"secret": "other.key"}, "key is not the one that this release was started with"),
        ("1", {"secret": "none"}, "--level-secret must be readable"),
        ("1", {"release": "none"}, "cannot be read"),
    ):
        found = derive(place, level, tmp_path / "k", **more)
        assert found.exit_code == MISUSED and told in found.output
    found = derive(place, "1", tmp_path / "k", "--release-id=week-46")
    assert found.exit_code == MISUSED and "release.json is of 'week-47'" in found.output
    found = derive(place, "1", place / "1.key")
    assert found.exit_code == MISUSED and "a key is never overwritten" in found.output
    assert not (tmp_path / "k").exists()
    assert stat.S_IMODE((place / "1.key").stat().st_mode) == 0o600
    again = derive(place, "1", tmp_path / "k", "--release-id=week-47")
    assert again.exit_code == DONE
    assert (tmp_path / "k").read_bytes() == (place / "1.key").read_bytes()


def test_no_secret_or_key_is_anywhere(place, tmp_path, capfd):
    """Not in the reports, release.json, output, or on any stream."""
    assert read(place, tmp_path / "out", f"--level-key={place}/1.key", "--format=json") == DONE
    told = "".join(capfd.readouterr()) + derive(place, "1", tmp_path / "k", "--format=json").output
    written = [path for folder in (place / "reports", tmp_path / "out")
               for path in folder.rglob("*") if path.is_file()]  # fmt: skip
    content = told.encode() + b"".join(path.read_bytes() for path in written)
    keys = [LevelKey.from_bytes((place / f"{level}.key").read_bytes()).secret for level in "12"]
    for secret in (SECRET, *keys):
        assert secret not in content and secret.hex().encode() not in content
    assert len(written) > 6


def test_a_memoized_run_sends_the_same_bytes_again(place, tmp_path):
    for name in ("a", "b"):
        assert device(place, tmp_path / name, f"--memoize-key-file={place}/secret.key") == DONE

    def envelopes(folder):
        content = b"".join(path.read_bytes() for path in folder.glob("*.ldp"))
        size = len(content) // PEOPLE
        return {content[i : i + size] for i in range(0, len(content), size)}

    first = envelopes(tmp_path / "a")
    assert first == envelopes(tmp_path / "b") and len(first) == PEOPLE
    for release in ("a", "reports"):  # both are committed to the same secret
        told = json.loads(
            ((tmp_path if release == "a" else place) / release / "release.json").read_text()
        )
        assert json.loads(told["mechanism"])["levels"] == [2.0, 1.0, 0.5]
        assert told["identity"]["key"]


def test_flags_that_contradict_levels_are_refused(place, tmp_path, capfd):
    secret = f"--level-secret={place}/secret.key"
    for more, said in (
        (["--local-epsilon=1"], "--levels stands in place of --local-epsilon"),
        (["--epsilon=1", "--delta=1e-6"], "--levels stands in place of --epsilon"),
        (["--mechanism=KRandomizedResponse"], "does not go with --mechanism"),
        (["--reports-per-envelope=5"], "does not go with --reports-per-envelope"),
        (["--group-by=age", f"--groups={place}/d.txt"], "does not go with --group-by"),
        ([f"--memoize-key-file={place}/other.key"], "must be the file of --level-secret"),
        (["--column=age", f"--domain={place}/d.txt"], "does not go with several questions"),
        (["--levels=0.5,1"], "must be two or more numbers > 0 that decrease"),
        (["--levels=1,0"], "must be two or more numbers > 0 that decrease"),
        (["--levels=1,1"], "must be two or more numbers > 0 that decrease"),
        (["--levels=one"], "must be two or more numbers > 0 that decrease"),
    ):
        assert device(place, tmp_path / "x", *more) == MISUSED
        told = "".join(capfd.readouterr()).replace("\n", " ")
        assert said in told, told
    assert randomize.main(
        [f"--input={place}/values.csv", "--column=age", "--range", "0", "50", "--levels=2,1",
         secret, "--dataset=people", "--release-id=w", f"--output={tmp_path}/x"]
    ) == MISUSED  # fmt: skip
    assert "--levels is for values of a list" in "".join(capfd.readouterr())
    assert randomize.main(
        [f"--input={place}/values.csv", "--column=age", "--bins=0:50:5", "--quantiles=0.5",
         "--levels=2,1", secret, "--dataset=people", "--release-id=w", f"--output={tmp_path}/x"]
    ) == MISUSED  # fmt: skip
    assert "does not go with several questions or a tree of bins" in "".join(capfd.readouterr())
    assert read(place, tmp_path / "y", f"--level-key={place}/secret.key") == MISUSED
    assert not (tmp_path / "x").exists()


def test_a_key_for_reports_of_one_level_is_refused(place, tmp_path, capfd):
    assert randomize.main(
        [f"--input={place}/values.csv", "--column=c", f"--domain={place}/d.txt",
         "--local-epsilon=1", "--dataset=people", "--release-id=w", f"--output={tmp_path}/r"]
    ) == DONE  # fmt: skip
    reports, key = tmp_path / "r", f"--level-key={place}/1.key"
    assert read(place, tmp_path / "x", key, reports=reports, release=reports) == MISUSED
    assert "these reports have one level, which everybody reads" in "".join(capfd.readouterr())


def test_numbers_in_bins_and_simulations_have_levels_too(place, tmp_path):
    assert randomize.main(
        [f"--input={place}/values.csv", "--column=age", "--bins=0:50:5", "--user-id=uid",
         "--levels=2,1", f"--level-secret={place}/secret.key", "--dataset=people", "--seed=1",
         "--release-id=ages", f"--output={tmp_path}/r", "--format=json"]
    ) == DONE  # fmt: skip
    assert derive(tmp_path, "2", tmp_path / "k", secret="none", release="r").exit_code == MISUSED
    found = CliRunner().invoke(
        group,
        ["keys", "derive", f"--level-secret={place}/secret.key", "--level-epsilon=2",
         f"--release={tmp_path}/r/release.json", f"--output={tmp_path}/k"],
    )  # fmt: skip
    assert found.exit_code == DONE
    assert collect.main(
        [f"--reports={tmp_path}/r", f"--release={tmp_path}/r/release.json", "--delta=1e-6",
         "--min-reports=500", "--no-mlflow", "--no-ledger", f"--output={tmp_path}/o",
         f"--level-key={tmp_path}/k"]
    ) == DONE  # fmt: skip
    record = record_of(tmp_path / "o")
    assert record["simulated"] and record["readers"][0]["epsilon"] is None
