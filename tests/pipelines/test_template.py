"""A job that is handed to a runner and finished later gives what the program gives at once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines import template
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE, MISUSED
from beam_ldp.release import worker_results as results

pytestmark = pytest.mark.e2e
USERS = 2000
RUNNER = "--runner=FnApiRunner"


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    """Memoized noise: the same reports however the job is run."""
    words = [f"w{i % 5}" for i in range(USERS)]
    pq.write_table(pa.table({"uid": np.arange(USERS), "word": words}), tmp_path / "p.parquet")
    (tmp_path / "domain.txt").write_text("w0\nw1\nw2\nw3\n")
    (tmp_path / "key").write_bytes(bytes(range(32)))
    return [f"--input={tmp_path}/p.parquet", "--column=word", f"--domain={tmp_path}/domain.txt",
            "--user-id=uid", f"--memoize-key-file={tmp_path}/key", "--release-id=r",
            "--epsilon=1", "--delta=1e-6", f"--expected-users={USERS}", "--no-mlflow",
            "--dataset=d"]  # fmt: skip


def test_finished_later_is_the_same_release(flags: list[str], tmp_path: Path) -> None:
    at_once, later = tmp_path / "at_once", tmp_path / "later"
    assert main([*flags, f"--output={at_once}", RUNNER]) == DONE
    assert template.main([*flags, f"--output={later}", RUNNER]) == DONE
    assert not later.exists()  # nothing is released before the gates
    staged = f"--staged={later}{template.STAGED}"
    assert main([*flags, f"--output={later}", staged]) == DONE
    assert (later / "estimates.csv").read_text() == (at_once / "estimates.csv").read_text()
    records = [json.loads((out / "privacy.json").read_text()) for out in (at_once, later)]
    for record in records:
        del record["created"]
    assert records[0] == records[1]


def test_results_are_not_mixed(flags: list[str], tmp_path: Path, capsys) -> None:
    """Neither two jobs in one folder, nor the flags of one job with the results of another."""
    given = [*flags, f"--output={tmp_path}/out"]
    staged = f"--staged={tmp_path}/out{template.STAGED}"
    assert main([*given, staged]) == MISUSED
    assert "not done yet" in capsys.readouterr().err.replace("\n", " ")
    assert template.main([*given, RUNNER]) == DONE
    assert template.main([*given, RUNNER]) == MISUSED
    assert "holds the results of a job" in capsys.readouterr().err.replace("\n", " ")
    other = [flag.replace("--epsilon=1", "--epsilon=2") for flag in given]
    assert main([*other, staged]) == MISUSED
    assert "other flags" in capsys.readouterr().err.replace("\n", " ")
    assert not (tmp_path / "out").exists()


def test_results_of_another_release_are_refused(flags: list[str], tmp_path: Path, capsys) -> None:
    """Whatever makes a release another one is named, and nothing is published of it."""
    assert template.main([*flags, f"--output={tmp_path}/out", RUNNER]) == DONE
    (tmp_path / "key2").write_bytes(bytes(range(1, 33)))
    (tmp_path / "turned.txt").write_text("w1\nw0\nw2\nw3\n")
    staged = [f"--output={tmp_path}/out", f"--staged={tmp_path}/out{template.STAGED}"]
    for old, new, differs in (
        ("--release-id=r", "--release-id=s", "release id"),
        ("--dataset=d", "--dataset=e", "dataset"),
        ("/key", "/key2", "key"),
        ("/domain.txt", "/turned.txt", "list"),
        ("--user-id=uid", "--user-id=word", "rule that bounds contributions"),
    ):
        other = [flag.replace(old, new) for flag in flags]
        assert other != flags and main([*other, *staged]) == MISUSED
        said = " ".join(capsys.readouterr().err.split())
        assert differs in said.partition("for another release: it differs in ")[2]
        assert not (tmp_path / "out").exists()
    assert main([*flags, *staged]) == DONE


def test_results_without_an_identity_are_refused(
    flags: list[str], tmp_path: Path, monkeypatch, capsys
) -> None:
    """Of what release they are is not known."""
    assert template.main([*flags, f"--output={tmp_path}/out", RUNNER]) == DONE
    known = results.read_all
    monkeypatch.setattr(results, "read_all", lambda place: replace(known(place), identity=None))
    staged = f"--staged={tmp_path}/out{template.STAGED}"
    assert main([*flags, f"--output={tmp_path}/out", staged]) == MISUSED
    assert "it differs in its identity" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_ledger_is_refused(flags: list[str], tmp_path: Path, monkeypatch, capsys) -> None:
    """It must be asked before data are read, by a launcher that stays."""
    given = [*flags, f"--output={tmp_path}/out"]
    monkeypatch.setenv("BEAM_LDP_LEDGER", "sqlite:///ledger.db")
    assert template.main([*given, RUNNER]) == MISUSED
    assert main([*given, "--staged=x"]) == MISUSED
    assert capsys.readouterr().err.count("ledger") >= 2
    assert not list(tmp_path.glob("out*"))
    assert template.main([*given, RUNNER, "--no-ledger"]) == DONE


def test_unknown_flags_are_named(flags: list[str], capsys) -> None:
    assert template.main([*flags, "--output=x", "--epsilom=1"]) == MISUSED
    assert "--epsilon" in capsys.readouterr().err
