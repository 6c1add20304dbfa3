"""Input, lists, output and reports on an object store, by URL, through Beam's file systems."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import BeamIOError

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import collect, frequency, mean, randomize
from beam_ldp.pipelines.programs import DONE, MISUSED
from tests.memory_files import STORE, MemoryFileSystem

pytestmark = pytest.mark.e2e

BUCKET = f"{MemoryFileSystem.scheme()}://bucket"
COMMON = ["--delta=1e-6", "--min-reports=250", "--no-mlflow", "--no-ledger"]
STRONG = ["--local-epsilon=15", "--trust-shuffler"]


@pytest.fixture(autouse=True)
def store() -> Iterator[None]:
    """Two files of people, a public list, and names that a glob must not match."""
    STORE.clear()
    put("events-1.csv", "c,uid,x\n" + "".join(f"red,{i},10\n" for i in range(150)))
    put("events-2.csv", "c,uid,x\n" + "".join(f"green,{i},30\n" for i in range(150, 300)))
    put("other-3.csv", "c,uid,x\n" + "".join(f"red,{i},99\n" for i in range(300, 999)))
    put("d.txt", "red\ngreen\n")
    yield
    STORE.clear()


def put(name: str, text: str) -> None:
    STORE[f"{BUCKET}/{name}"] = (text.encode(), 0.0)


def read(name: str) -> str:
    return STORE[f"{BUCKET}/{name}"][0].decode()


def rows(name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(read(name))))


def test_a_glob_by_url() -> None:
    """The files that match, once each; the output is whole when its manifest stands."""
    flags = [f"--input={BUCKET}/events-*.csv", f"--input={BUCKET}/events-1.csv", "--column=c",
             "--user-id=uid", f"--domain={BUCKET}/d.txt", *STRONG, *COMMON,
             f"--output={BUCKET}/out"]  # fmt: skip
    assert frequency.main(flags) == DONE
    counts = {row["value"]: round(float(row["count"])) for row in rows("out/estimates.csv")}
    assert counts == {"red": 150, "green": 150, "other": 0}
    listed = {file["name"] for file in json.loads(read("out/manifest.json"))["files"]}
    assert {"estimates.csv", "privacy.json", "plot.png"} <= listed
    assert {f"{BUCKET}/out/{name}" for name in listed} <= set(STORE)
    assert not [path for path in STORE if "staging" in path]


@pytest.mark.parametrize(
    ("flag", "path", "said"),
    [
        *(
            (flag, "foo://bucket/x", "foo://bucket/x: foo:// is not known")
            for flag in ("input", "domain", "groups", "output", "people-store", "bad-rows-file")
        ),
        *(
            (flag, f"{BUCKET}/x", "(PermissionError: no credentials; check that the path exists")
            for flag in ("input", "domain", "output")
        ),
    ],
)
def test_the_check_and_the_run_refuse_a_store_out_of_reach_and_charge_nothing(
    flag: str, path: str, said: str, ledger: Path, monkeypatch: Any, capsys: Any
) -> None:
    given = {
        "input": f"{ledger.parent}/in.csv", "domain": f"{ledger.parent}/d.txt", "column": "c",
        "output": f"{ledger.parent}/out", "ledger": f"sqlite:///{ledger}", "dataset": "d",
        "delta": "1e-6", "local-epsilon": "1", "min-reports": "100", flag: path,
    }  # fmt: skip
    if flag == "groups":
        given["group-by"] = "g"
    before, errors = ledger.read_bytes(), []

    def refuse(self: Any, path: str, *how: Any) -> Any:
        raise BeamIOError("refused", {path: PermissionError("no credentials")})

    for name in ("_list", "exists", "open"):
        monkeypatch.setattr(MemoryFileSystem, name, refuse)
    for more in (["--dry-run"], []):
        flags = [f"--{name}={value}" for name, value in given.items()]
        assert frequency.main([*flags, "--one-row-per-person", "--no-mlflow", *more]) == MISUSED
        errors.append(" ".join(capsys.readouterr().err.split()))
    assert errors[0] == errors[1] and f"--{flag} {path}" in errors[0] and said in errors[0]
    assert ledger.read_bytes() == before


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a budget for the data set "d", beside an input and its list."""
    folder = tmp_path_factory.mktemp("budget")
    (folder / "in.csv").write_text("c,g\n" + "red,a\n" * 200)
    (folder / "d.txt").write_text("red\ngreen\n")
    book = BudgetLedger.create(f"sqlite:///{folder}/privacy.db")
    book.set_budget("d", epsilon=4, delta=1e-5, local_epsilon=16)
    return folder / "privacy.db"


@pytest.mark.slow
@pytest.mark.statistical
def test_numbers_by_url() -> None:
    """5 standard errors, one comparison of fresh randomness: false alarms 6e-7."""
    flags = [f"--input={BUCKET}/events-*.csv", "--column=x", "--range", "0", "100",
             "--local-epsilon=6", *COMMON, f"--output={BUCKET}/out"]  # fmt: skip
    assert mean.main(flags) == DONE
    (row,) = rows("out/estimates.csv")
    assert abs(float(row["mean"]) - 20) < 5 * float(row["standard_error"])


def test_devices_and_collector_by_url(capsys: Any) -> None:
    flags = [f"--input={BUCKET}/events-*.csv", "--column=c", f"--domain={BUCKET}/d.txt",
             *STRONG, "--release-id=r", "--dataset=d",
             f"--output={BUCKET}/reports"]  # fmt: skip
    assert randomize.main(flags) == DONE
    assert randomize.main(flags) == MISUSED  # it is there
    assert "reports go into a new folder" in " ".join(capsys.readouterr().err.split())
    for i, reports in enumerate((f"{BUCKET}/reports", f"{BUCKET}/reports/*.ldp")):
        out = f"{BUCKET}/out-{i}"
        given = [f"--reports={reports}", f"--release={BUCKET}/reports/release.json",
                 f"--domain={BUCKET}/d.txt", *COMMON, f"--output={out}"]  # fmt: skip
        assert collect.main(given) == DONE
        assert json.loads(read(f"out-{i}/privacy.json"))["num_reports"] == 300


def test_a_place_without_files_is_named(capsys: Any) -> None:
    flags = [f"--input={BUCKET}/nothing-*.csv", "--column=c", f"--domain={BUCKET}/d.txt",
             "--local-epsilon=2", *COMMON, f"--output={BUCKET}/out"]  # fmt: skip
    assert frequency.main(flags) == MISUSED
    assert "nothing-*.csv: no file matches" in " ".join(capsys.readouterr().err.split())
