"""Hostile inputs: each is refused, or warned of, before a budget moves or a worker starts.

A table: input, exit code, what is said. After every one of them the rows of a real ledger are what
they were, no output is there, and no pipeline was made. What a file holds is never quoted.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.ledger import BudgetLedger, Row
from beam_ldp.pipelines import check, frequency, job_runs, mean, train
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import DONE, MISUSED, NOTHING_RELEASED
from beam_ldp.release import checks
from beam_ldp.release.beam_job import workers_elsewhere
from beam_ldp.release.binding import bound
from beam_ldp.release.checks import CHECKS
from beam_ldp.release.inputs import previews as heads
from beam_ldp.release.inputs import sources
from beam_ldp.release.inputs.previews import HEAD_BYTES, MOST_FILES, read_heads
from beam_ldp.release.inputs.sources import InputFileError, ReadTable
from beam_ldp.transforms.elements.portable import PortableDomain, UnseenFileError

pytestmark = pytest.mark.exact

SECRET = "sesame-4711"  # a value that nothing may quote
ROWS = "uid,colour,delay\n" + "".join(f"{i},red,{i}.5\n" for i in range(20))
FREQUENCY, MEAN = "frequency", "mean"


@pytest.fixture(scope="module")
def granted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with a budget for flights, and none but a tiny one for few."""
    place = tmp_path_factory.mktemp("ledger") / "budget.db"
    ledger = BudgetLedger.create(f"sqlite:///{place}")
    ledger.set_budget("flights", epsilon=10, delta=1e-6, local_epsilon=100, by="t", why="t")
    ledger.set_budget("few", epsilon=0.001, delta=1e-6, local_epsilon=100, by="t", why="t")
    return place


def rows_of(ledger: Path) -> list[Row]:
    return BudgetLedger(f"sqlite:///{ledger}").rows()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with sound input, where no pipeline can be made."""
    (tmp_path / "in.csv").write_text(ROWS)
    (tmp_path / "list.txt").write_text("red\ngreen\n")

    def no_worker(*_: Any, **__: Any) -> None:
        raise AssertionError("a pipeline was made")

    monkeypatch.setattr(beam.Pipeline, "__init__", no_worker)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def flags(program: str, ledger: Path | str, *more: str, **named: str) -> list[str]:
    told = {
        "input": "in.csv",
        "column": "colour" if program == FREQUENCY else "delay",
        "user-id": "uid",
        "local-epsilon": "2",
        "delta": "1e-8",
        "min-reports": "1000",
        "dataset": "flights",
        "ledger": f"sqlite:///{ledger}" if ledger else "",
        "output": "out",
        **({"domain": "list.txt"} if program == FREQUENCY else {"radius": "20"}),
        **{name.replace("_", "-"): value for name, value in named.items()},
    }
    return [*(f"--{name}={value}" for name, value in told.items() if value), "--no-mlflow", *more]


def wrote(name: str, content: bytes | str) -> Callable[[Path], None]:
    data = content if isinstance(content, bytes) else content.encode()
    return lambda place: (place / name).write_bytes(data)  # type: ignore[func-returns-value]


def parquet(name: str, **columns: Any) -> Callable[[Path], None]:
    return lambda place: pq.write_table(pa.table(columns), place / name)


def both(*writers: Callable[[Path], None]) -> Callable[[Path], None]:
    def write(place: Path) -> None:
        for one in writers:
            one(place)

    return write


def nothing(_: Path) -> None:
    """The sound input is all there is."""


def folder(name: str) -> Callable[[Path], None]:
    return lambda place: (place / name).mkdir()


JUNK = bytes(range(256)) * 40
FLOATS = parquet("f.parquet", uid=[1.0, 2.0, None], colour=["red"] * 3)

# name: (program, what is written, flags, exit code, what is said)
REFUSED: dict[str, tuple[str, Callable[[Path], None], dict[str, str], int, str]] = {
    "missing column": (FREQUENCY, nothing, {"column": "height"}, MISUSED,
        "--column height: no such column; the first input has uid, colour, delay"),
    "misspelt column": (FREQUENCY, nothing, {"column": "color"}, MISUSED, "did you mean colour?"),
    "misspelt column of a mean": (MEAN, nothing, {"column": "dealy"}, MISUSED,
        "did you mean delay?); the first input has"),
    "misspelt ids": (MEAN, nothing, {"user_id": "uidd"}, MISUSED,
        "--user-id uidd: no such column (did you mean uid?)"),
    "misspelt group": (FREQUENCY, wrote("g.txt", "a\n"), {"group_by": "colours", "groups": "g.txt"},
        MISUSED, "--group-by colours: no such column (did you mean colour?)"),
    "text column for mean": (MEAN, nothing, {"column": "colour"}, MISUSED,
        "--column colour: of the first rows of"),
    "text column of Parquet for mean": (MEAN, parquet("t.parquet", uid=[1, 2], w=[SECRET] * 2),
        {"input": "t.parquet", "column": "w"}, MISUSED, "cannot be read (not a number: 2)"),
    "floats as values of a list": (FREQUENCY, parquet("v.parquet", uid=[1, 2], colour=[1.0, 2.0]),
        {"input": "v.parquet"}, MISUSED, "astype('Int64')"),
    "column missing in a further file": (MEAN, wrote("z.csv", "uid,lateness\n7,8\n"),
        {"input": "*.csv"}, MISUSED, "z.csv has uid, lateness"),
    "two columns of one name": (FREQUENCY, wrote("x.csv", "uid,colour,colour\n1,red,green\n"),
        {"input": "x.csv"}, MISUSED, "--column colour: the first input has 2 columns of that name"),
    "two columns that a pattern means": (MEAN, wrote("x.csv", "uid,delay,delay\n1,2,3\n"),
        {"input": "x.csv", "column": "d*"}, MISUSED, "delay: the first input has 2 columns"),
    "two columns of ids in a further file": (MEAN, wrote("z.csv", "uid,delay,uid\n7,8,9\n"),
        {"input": "*.csv"}, MISUSED, "z.csv has 2 columns of that name"),
    "two columns of ids in Parquet": (FREQUENCY, lambda place: pq.write_table(pa.table(
        [[1], ["red"], [2]], ["uid", "colour", "uid"]), place / "x.parquet"),
        {"input": "x.parquet"}, MISUSED, "--user-id uid: the first input has 2 columns"),
    "ids that are times": (FREQUENCY, parquet("t.parquet", colour=["red"],
        uid=pa.array([0], pa.timestamp("us"))), {"input": "t.parquet"}, MISUSED,
        "declares timestamp[us], which cannot hold ids"),
    "ids that are fractions": (FREQUENCY, parquet("t.parquet", colour=["red"], uid=[0.5]),
        {"input": "t.parquet"}, MISUSED, "--user-id uid: of the first rows of"),
    "mixed kinds of ids": (FREQUENCY, wrote("z.csv", f"uid,colour\n{SECRET},red\n"),
        {"input": "*.csv"}, MISUSED, "would count as two people"),
    "empty file": (FREQUENCY, wrote("e.csv", ""), {"input": "e.csv"}, MISUSED,
        "e.csv: there are no rows in it"),
    "header only": (MEAN, wrote("e.csv", "uid,delay\n"), {"input": "e.csv"}, MISUSED,
        "e.csv: there are no rows in it"),
    "no rows in Parquet": (FREQUENCY, parquet("e.parquet", uid=pa.array([], pa.int64()),
        colour=pa.array([], pa.string())), {"input": "e.parquet"}, MISUSED, "there are no rows"),
    "truncated gz": (FREQUENCY, wrote("t.csv.gz", gzip.compress(ROWS.encode() * 99)[:-40]),
        {"input": "t.csv.gz"}, MISUSED, "t.csv.gz: the compressed file is truncated"),
    "binary junk named .csv": (FREQUENCY, wrote("j.csv", JUNK), {"input": "j.csv"}, MISUSED,
        "j.csv: its first line, which must name the columns, is no text"),
    "Parquet named .csv": (MEAN, parquet("p.csv", uid=[1], delay=[2.0]), {"input": "p.csv"},
        MISUSED, "it is Parquet: give --input-format parquet"),
    "gz named .csv": (FREQUENCY, wrote("p.csv", gzip.compress(ROWS.encode())), {"input": "p.csv"},
        MISUSED, "let its name end in .gz"),
    "CSV named .parquet": (FREQUENCY, wrote("p.parquet", ROWS), {"input": "p.parquet"}, MISUSED,
        "p.parquet: cannot be read in the stated format"),
    "one JSON array": (FREQUENCY, wrote("a.json", '[\n{"colour": "red"}\n]\n'),
        {"input": "a.json"}, MISUSED, "is one JSON array, and needs one object a line"),
    "UTF-16": (FREQUENCY, wrote("u.csv", ROWS.encode("utf-16")), {"input": "u.csv"}, MISUSED,
        "iconv -f UTF-16 -t UTF-8"),
    "UTF-16 without a mark": (MEAN, wrote("u.csv", ROWS.encode("utf-16-le")), {"input": "u.csv"},
        MISUSED, "it looks like UTF-16"),
    "NUL bytes": (FREQUENCY, wrote("n.csv", b"uid,colour\n" + bytes(200)), {"input": "n.csv"},
        MISUSED, "is no text in UTF-8"),
    "decimal commas": (MEAN, wrote("c.csv", 'uid,delay\n1,"3,5"\n2,"4,5"\n3,7\n'),
        {"input": "c.csv"}, MISUSED, "(number with a comma: 2); write a decimal point"),
    "Latin-1": (FREQUENCY, wrote("l.csv", ROWS.replace("red", "r\xf6t").encode("latin-1")),
        {"input": "l.csv"}, MISUSED, "l.csv is not UTF-8: "),
    "Latin-1 without a trace": (FREQUENCY, wrote("l.csv", "uid,colour\n1,red\n2,r\xf6t\n".encode(
        "latin-1")), {"input": "l.csv", "bad_rows": "other"}, MISUSED,
        "line 3 of"),
    "names of columns in Latin-1": (FREQUENCY, wrote("l.csv", "uid,colour,H\xf6he\n".encode(
        "latin-1")), {"input": "l.csv"}, MISUSED, "iconv -f WINDOWS-1252 -t UTF-8"),
    "list in Latin-1": (FREQUENCY, wrote("d.txt", "r\xf6t\n".encode("latin-1")),
        {"domain": "d.txt"}, MISUSED, "must be UTF-8 text, one value per line: convert it"),
    "zeros that a reader dropped": (FREQUENCY, both(wrote("d.txt", "01\n02\n"), parquet(
        "z.parquet", uid=[1, 2], colour=[1, 2])), {"input": "z.parquet", "domain": "d.txt"},
        MISUSED, "(integer that the list writes with leading zeros: 2)"),
    "groups that a reader made floats of": (FREQUENCY, both(wrote("g.txt", "1\n2\n"), parquet(
        "g.parquet", uid=[1, 2], colour=["red"] * 2, town=[1.0, 2.0])),
        {"input": "g.parquet", "group_by": "town", "groups": "g.txt"}, MISUSED,
        "(whole number that became a float: 2)"),
    "an epsilon that needs no crowd": (FREQUENCY, nothing, {"local_epsilon": "", "epsilon": "1e9",
        "expected_users": "9000"}, MISUSED, "--epsilon must be at most 12, got 1e+09"),
    "semicolons": (FREQUENCY, wrote("s.csv", ROWS.replace(",", ";")), {"input": "s.csv"}, MISUSED,
        "has no ',' but ';': give --csv-delimiter ';'"),
    "semicolons of a mean": (MEAN, wrote("s.csv", ROWS.replace(",", ";")), {"input": "s.csv"},
        MISUSED, "give --csv-delimiter ';'"),
    "no header": (FREQUENCY, wrote("h.csv", f"17,{SECRET},3.5\n" * 2), {"input": "h.csv"}, MISUSED,
        "does not look like the names of columns"),
    "duplicate in the list": (FREQUENCY, wrote("d.txt", "red\nred\n"), {"domain": "d.txt"}, MISUSED,
        "d.txt: values must be distinct"),
    "empty list": (FREQUENCY, wrote("d.txt", ""), {"domain": "d.txt"}, MISUSED,
        "at least one value"),
    "list is a folder": (FREQUENCY, folder("d"), {"domain": "d"}, MISUSED,
        "/d: cannot be read (Is a directory)"),
    "list that is not there": (FREQUENCY, nothing, {"domain": "gone.txt"}, MISUSED,
        "gone.txt: cannot be read"),
    "ranges without the column": (MEAN, wrote("r.csv", "column,low,high\nx,0,1\n"),
        {"radius": "", "ranges": "r.csv"}, MISUSED, "no range for delay"),
    "input = output": (FREQUENCY, nothing, {"output": "in.csv"}, MISUSED,
        "in.csv exists and is not a folder"),
    "output holds the input": (FREQUENCY, both(folder("out"), wrote("out/privacy.json", "{}"),
        wrote("out/estimates.csv", ROWS)), {"input": "out/estimates.csv", "overwrite": "1"},
        MISUSED, "holds the --input"),
    "output below a file": (FREQUENCY, nothing, {"output": "in.csv/out"}, MISUSED,
        "--output"),
    "output that exists": (FREQUENCY, both(folder("out"), wrote("out/x", "x")), {}, MISUSED,
        "exists; --overwrite replaces it"),
    "glob with no match": (FREQUENCY, nothing, {"input": "*.tsv"}, MISUSED,
        "--input *.tsv: no file matches"),
    "unknown data set": (FREQUENCY, nothing, {"dataset": "flight"}, MISUSED,
        "did you mean 'flights'?"),
    "over the budget": (FREQUENCY, nothing, {"dataset": "few"}, NOTHING_RELEASED,
        "is epsilon = 0.001 at delta = 1e-06"),
    "over the budget, with a fault": (FREQUENCY, nothing, {"dataset": "few", "column": "height"},
        NOTHING_RELEASED, "is epsilon = 0.001 at delta = 1e-06"),
}  # fmt: skip


def told(case: tuple[Any, ...], ledger: Path) -> list[str]:
    program, _, named, *_ = case
    named = dict(named)
    switches = ["--overwrite"] if named.pop("overwrite", "") else []
    return flags(program, named.pop("ledger", ledger), *switches, **named)


@pytest.mark.parametrize("name", REFUSED)
def test_hostile_inputs(name: str, place: Path, granted: Path, capsys: Any) -> None:
    case = REFUSED[name]
    program, write, _, code, said = case
    write(place)
    before, files = rows_of(granted), sorted(os.listdir(place))
    given = told(case, granted)

    run = {FREQUENCY: frequency, MEAN: mean}[program].main(given)
    by_run = " ".join(capsys.readouterr().err.split())
    dry = {FREQUENCY: frequency, MEAN: mean}[program].main([*given, "--dry-run"])
    by_dry_run = " ".join(capsys.readouterr().err.split())
    alone = check.main([program, *given, "--format", "json"])
    checks = json.loads(capsys.readouterr().out)["checks"]
    refused = [one["said"] for one in checks if one["status"] == "refused"]

    assert (run, dry, alone) == (code, code, code)
    assert said in by_run and said in by_dry_run and any(said in one for one in refused)
    assert SECRET not in by_run + by_dry_run + str(checks)
    assert rows_of(granted) == before and sorted(os.listdir(place)) == files


ACCEPTED: dict[str, tuple[str, Callable[[Path], None], dict[str, str]]] = {
    "CRLF": (MEAN, wrote("x.csv", ROWS.replace("\n", "\r\n")), {"input": "x.csv"}),
    "byte order mark": (FREQUENCY, wrote("x.csv", b"\xef\xbb\xbf" + ROWS.encode()),
        {"input": "x.csv"}),
    "semicolons that are said": (MEAN, wrote("s.csv", ROWS.replace(",", ";")),
        {"input": "s.csv", "csv_delimiter": ";"}),
    "quoted newlines": (FREQUENCY, wrote("q.csv", 'uid,colour,t\n1,red,"a\nb"\n' * 9000),
        {"input": "q.csv"}),
    "gz": (FREQUENCY, wrote("x.csv.gz", gzip.compress(ROWS.encode())), {"input": "x.csv.gz"}),
    "ids that pandas made floats": (FREQUENCY, FLOATS, {"input": "f.parquet"}),
    "integers here, floats there": (FREQUENCY, both(FLOATS,
        parquet("g.parquet", uid=[1, 2, 3], colour=["red"] * 3)), {"input": "*.parquet"}),
    "text that spells integers": (FREQUENCY, both(FLOATS,
        parquet("g.parquet", uid=["1", "2"], colour=["red"] * 2)), {"input": "*.parquet"}),
    "text that spells numbers": (MEAN, parquet("t.parquet", uid=[1], delay=["1.5"]),
        {"input": "t.parquet"}),
    "JSON whose first object lacks the column": (FREQUENCY,
        wrote("x.jsonl", '{"uid": 1}\n{"uid": 2, "colour": "red"}\n'), {"input": "x.jsonl"}),
    "two columns of one name that nobody asks about": (MEAN,
        wrote("x.csv", "uid,note,delay,note\n1,a,5,b\n"), {"input": "x.csv"}),
    "an empty file beside others": (FREQUENCY, wrote("a.csv", ""), {"input": "*.csv"}),
    "a column of pixels": (MEAN, wrote("x.csv", "uid,0,1,2\n1,5,5,5\n"),
        {"input": "x.csv", "column": "1"}),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_inputs_that_are_odd_and_sound(
    name: str, place: Path, granted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, write, named = ACCEPTED[name]
    write(place)
    before = rows_of(granted)
    assert check.main([program, *flags(program, granted, **named), "--format=json"]) == DONE
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert {one["check"] for one in checks} == {"settings", *CHECKS}
    assert [one for one in checks if one["status"] != "ok"] == []
    assert rows_of(granted) == before and not (place / "out").exists()


@pytest.mark.parametrize(
    ("program", "write", "named", "said"),
    [
        (FREQUENCY, wrote("d.txt", "blue\n"), {"domain": "d.txt"},
         "none of the first values of column colour is in its list"),
        (FREQUENCY, wrote("x.csv", "uid,colour\n" + ",red\n" * 3 + "1,red\n"), {"input": "x.csv"},
         "most hold no value; 3 rows could not be used, most often: no user id"),
        (MEAN, wrote("x.csv", "uid,delay\n1,\n2,\n"), {"input": "x.csv"},
         "most often: null"),
        (FREQUENCY, nothing, {"local_epsilon": "9", "max_local_epsilon": "9"}, "at odds of"),
        (FREQUENCY, nothing, {"seed": "1"}, "no privacy guarantee"),
        (FREQUENCY, both(folder("out"), wrote("out/privacy.json", "{}")), {"ledger": "",
         "overwrite": "1"}, "at the sum of their privacy costs"),
    ],
)  # fmt: skip
def test_what_is_doubtful_is_warned_of(
    program: str, write: Callable[[Path], None], named: dict[str, str], said: str, place: Path,
    granted: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    write(place)
    given = told((program, write, named), granted)
    assert check.main([program, *given, "--format=json"]) == DONE
    checks = json.loads(capsys.readouterr().out)["checks"]
    (warning,) = [one["said"] for one in checks if one["status"] == "warning"]
    assert said in warning


def test_the_budget_says_what_would_remain(place: Path, granted: Path, capsys: Any) -> None:
    assert check.main([FREQUENCY, *flags(FREQUENCY, granted), "--format=json"]) == DONE
    budget = json.loads(capsys.readouterr().out)["checks"][1]
    assert budget["check"] == "budget" and "of 10 at delta = 1e-06" in budget["said"]
    assert "would remain" in budget["said"]


def test_an_unreadable_file_is_named(
    place: Path, granted: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs this as root may read everything."""

    def refuse(path: str, **_: Any) -> None:
        raise PermissionError(13, "denied", path)

    monkeypatch.setattr(sources.FileSystems, "open", refuse)
    assert frequency.main(flags(FREQUENCY, granted)) == MISUSED
    assert "in.csv: cannot be opened (PermissionError)" in capsys.readouterr().err


def test_an_output_that_may_not_be_written(
    place: Path, granted: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place)
    before = rows_of(granted)
    assert frequency.main(flags(FREQUENCY, granted)) == MISUSED
    said = " ".join(capsys.readouterr().err.split())
    assert f"--output {place}/out cannot be written: this user must not write into {place}" in said
    assert rows_of(granted) == before


# Job files ----------------------------------------------------------------------------------------

JOB = """
source: {{csv: in.csv}}
people: {{id: uid}}
release: {{dataset: flights, ledger: "sqlite:///{ledger}"}}
questions:
  - {{frequency: {column}, domain: {{file: list.txt}}}}
  - {{mean: {mean}, radius: 20}}
privacy: {{local_epsilon: 4, delta: 1e-8}}
shuffle: {{min_reports: 1000}}
output: {{folder: out, no_mlflow: true{more}}}
"""


@pytest.mark.parametrize(
    ("column", "mean_of", "more", "code", "said"),
    [
        ("colour", "delay", "", DONE, ""),
        ("colours", "delay", "", MISUSED, "did you mean colour?"),
        ("colour", "dealy", "", MISUSED, "did you mean delay?"),
        ("colour", "delay", ", overwritten: true", MISUSED,
         "unknown setting output.overwritten (did you mean overwrite?)"),
    ],
)  # fmt: skip
def test_job_files_are_checked_program_by_program(
    column: str, mean_of: str, more: str, code: int, said: str, place: Path, granted: Path,
    capsys: Any,
) -> None:  # fmt: skip
    """Of two releases none is made where the second is refused."""
    text = JOB.format(ledger=granted, column=column, mean=mean_of, more=more)
    (place / "job.yaml").write_text(text)
    before = rows_of(granted)
    assert check.main(["job.yaml", "--format", "json"]) == code
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert said in str([one["said"] for one in checks if one["status"] == "refused"])
    programs = {one["program"] for one in checks}
    assert programs == ({"job.yaml"} if more else {"frequency", "mean"})
    if code != DONE:
        assert job_runs.main(["job.yaml"]) == code
    assert rows_of(granted) == before


def test_the_table_and_what_is_no_program(place: Path, granted: Path, capsys: Any) -> None:
    assert check.main([FREQUENCY, *flags(FREQUENCY, granted)]) == DONE
    shown = capsys.readouterr().out
    assert "Checks of frequency" in shown and all(name in shown for name in CHECKS)
    assert check.main(["frequencie", "--format=json"]) == MISUSED
    assert "did you mean frequency?" in capsys.readouterr().out
    assert check.main([]) == MISUSED
    assert "exit codes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--data=digits", "--clients-per-round=100", "--local-epsilon=2"], DONE, "would remain"),
        (["--data=digits", "--clients-per-round=100", "--local-epsilon=2", "--dataset=few"],
         NOTHING_RELEASED, "is epsilon = 0.001"),
        (["--data=in.csv", "--features=delay", "--label=color", "--client-id=uid", "--classes=2",
          "--clients-per-round=9", "--local-epsilon=2"], MISUSED, "did you mean colour?"),
    ],
)  # fmt: skip
def test_trainings_are_checked_without_tensorflow(
    more: list[str], code: int, said: str, place: Path, granted: Path, capsys: Any
) -> None:
    ledger = f"--ledger=sqlite:///{granted}"
    given = ["--delta=1e-8", "--epochs=1", "--output=out", ledger, "--dataset=flights", *more]
    before = rows_of(granted)
    assert check.main(["train", *given, "--format=json"]) == code
    assert said in capsys.readouterr().out
    assert rows_of(granted) == before


def test_a_training_checks_first(
    place: Path, granted: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `check` refuses the run refuses too, before TensorFlow is loaded, and the dry run."""
    monkeypatch.setattr(train.importlib.util, "find_spec", lambda name: True)
    monkeypatch.setattr(train, "_flows", lambda plan, console: ())
    ledger = f"--ledger=sqlite:///{granted}"
    common = ["--delta=1e-8", "--epochs=1", "--output=out", "--local-epsilon=2", ledger]
    files = ["--data=in.csv", "--features=delay", "--label=color", "--client-id=uid"]
    before = rows_of(granted)
    told = [*common, *files, "--classes=2", "--clients-per-round=9", "--dataset=flights"]
    assert train.main(told) == MISUSED
    assert "did you mean colour?" in " ".join(capsys.readouterr().err.split())
    pattern = [flag.replace("=delay", "=d*").replace("=color", "=colour") for flag in told]
    assert check.main(["train", *pattern]) == DONE  # of columns that the header names
    capsys.readouterr()
    bundled = [*common, "--data=digits", "--clients-per-round=100"]
    assert train.main([*bundled, "--dataset=few"]) == NOTHING_RELEASED
    assert train.main([*bundled, "--dataset=few", "--dry-run"]) == NOTHING_RELEASED
    capsys.readouterr()
    assert train.main([*bundled, "--dataset=flights", "--dry-run", "--format=json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    named = ["budget", "privacy", "output", "workers", "mlflow"]
    assert [one["check"] for one in found["checks"]] == named and found["rounds"] > 0
    assert rows_of(granted) == before and "tensorflow" not in sys.modules


# MLflow's store -----------------------------------------------------------------------------------


def test_the_store_of_the_ledger_is_looked_up(
    place: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run logs to the flag's store, then to the ledger's, then to the environment's."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{place}/mlflow.db")
    uri = f"sqlite:///{place}/shared.db"
    ledger = BudgetLedger.create(uri, mlflow_uri=f"sqlite:///{place}/gone/mlflow.db")
    ledger.set_budget("flights", epsilon=10.0, delta=1e-6)

    def said(*more: str) -> dict[str, str]:
        told = [one for one in flags(FREQUENCY, place / "shared.db", *more) if one != "--no-mlflow"]
        assert check.main([FREQUENCY, *told, "--format=json"]) == DONE
        checks = json.loads(capsys.readouterr().out)["checks"]
        (one,) = [one for one in checks if one["check"] == "mlflow"]
        return one

    away = said()
    assert away["status"] == "warning" and "the ledger names lies in a folder" in away["said"]
    assert said(f"--mlflow-uri=sqlite:///{place}/own.db")["said"] == "the store of --mlflow-uri"
    assert "MLFLOW_TRACKING_URI" in said("--seed=1")["said"]  # which is not charged


# Workers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("beam_flags", "where"),
    [
        ([], None), (["--runner=PrismRunner"], None),
        (["--runner=SparkRunner", "--job_endpoint=x:1", "--environment_type=LOOPBACK"], None),
        (["--runner=SparkRunner", "--job_endpoint=x:1", "--environment_type=EXTERNAL"],
         "SparkRunner"),
        (["--runner", "FlinkRunner", "--job_endpoint=x:1"], "FlinkRunner"),
        (["--runner=DataflowRunner"], "DataflowRunner"),
    ],
)  # fmt: skip
def test_where_workers_are(beam_flags: list[str], where: str | None) -> None:
    assert workers_elsewhere(beam_flags) == where


def test_what_workers_elsewhere_must_see(
    place: Path, granted: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "check_servers", lambda _: None)
    spark = ["--runner=SparkRunner", "--job_endpoint=x:1", "--environment_type=EXTERNAL"]
    assert check.main([FREQUENCY, *flags(FREQUENCY, granted, *spark), "--format=json"]) == DONE
    found = json.loads(capsys.readouterr().out)["checks"]
    (workers,) = [one for one in found if one["check"] == "workers"]
    assert workers["status"] == "warning"
    assert "what --input, --domain, --output name must be under the same path" in workers["said"]
    dataflow = flags(FREQUENCY, granted, "--runner=DataflowRunner")
    assert check.main([FREQUENCY, *dataflow]) == MISUSED


def test_relative_paths_leave_the_launcher_as_absolute_ones(place: Path, granted: Path) -> None:
    (place / "g.txt").write_text("red\n")
    given = read_flags(
        frequency.USAGE,
        flags(FREQUENCY, granted, group_by="delay", groups="g.txt", memoize_key_file="key",
              release_id="r"),
    )  # fmt: skip
    run = bound(frequency.USAGE, given)
    settings = run.job
    assert settings.question.domains == (f"{place}/list.txt",)
    assert settings.groups == f"{place}/g.txt"
    assert settings.noise.key_file == f"{place}/key"
    assert run.asked.listed.describe() == f"{place}/list.txt"  # type: ignore[attr-defined]


def test_a_worker_that_sees_no_file_says_where_it_looked(place: Path) -> None:
    seen = f"(its folder is {place}): give every worker the same folder under the same path"
    with pytest.raises(UnseenFileError) as no_list:
        PortableDomain(f"{place}/gone.txt").load()
    with pytest.raises(InputFileError) as no_input:
        list(sources._paths([f"{place}/gone.csv"]))
    with pytest.raises(InputFileError) as no_split:
        ReadTable(["x"], "csv", "v").reader.splits(f"{place}/gone.csv")
        list(ReadTable(["x"], "csv", "v").reader.read(sources.Split(f"{place}/gone.csv")))
    for caught in (no_list, no_input, no_split):
        assert seen in str(caught.value)


# As fast for 10 GB as for 10 kB -------------------------------------------------------------------


class Counted(io.RawIOBase):
    """A file without end that counts what is read of it."""

    def __init__(self, line: bytes) -> None:
        super().__init__()
        self._lines, self.read_bytes = line * (HEAD_BYTES // len(line) + 1), 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        assert 0 < size <= HEAD_BYTES, "all of it was asked for"
        self.read_bytes += size
        start = (self.read_bytes - size) % len(self._lines)
        return (self._lines[start:] + self._lines)[:size]


def test_a_file_without_end_is_read_at_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Counted] = []

    def open_endless(path: str, **_: Any) -> Counted:
        opened.append(Counted(b"uid,colour\n1,red\n" * 4))
        return opened[-1]

    monkeypatch.setattr(sources.FileSystems, "open", open_endless)
    reader = ReadTable(["x"], "csv", "colour", "uid").reader
    found = read_heads([f"{i}.csv" for i in range(10_000)], reader)
    assert len(found) == len(opened) == MOST_FILES
    assert found[0].path == "0.csv" and found[-1].path == "9999.csv"
    assert all(one.read_bytes <= HEAD_BYTES + 1 for one in opened)
    assert not any(head.whole for head in found)


def test_a_compressed_file_is_unpacked_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "big.csv.gz"
    path.write_bytes(gzip.compress(b"uid,colour\n" + os.urandom(1 << 22).hex().encode()[: 1 << 22]))
    asked: list[int] = []
    real = sources.CompressedFile

    def small(file: Any, kind: Any, read_size: int) -> Any:
        asked.append(read_size)
        return real(file, kind, read_size=read_size)

    monkeypatch.setattr(sources, "CompressedFile", small)
    head, more = heads._head_of_text(str(path), "csv")
    assert more is False and len(head) < 1 << 17 and asked == [HEAD_BYTES]


def test_parquet_is_read_page_by_page(tmp_path: Path) -> None:
    """Of a row group of 16 MB, the footer and the first pages."""
    path = tmp_path / "big.parquet"
    count = 1 << 21
    pq.write_table(
        pa.table({"v": pa.array(range(count)), "w": pa.array(range(count))}), path,
        use_dictionary=False, compression="none", row_group_size=count,
    )  # fmt: skip
    total = [0]

    class Watched(io.FileIO):
        def read(self, size: int = -1) -> bytes:  # type: ignore[override]
            found = super().read(size)
            total[0] += len(found or b"")
            return found or b""

        def readinto(self, buffer: Any) -> int:  # type: ignore[override]
            size = super().readinto(buffer) or 0
            total[0] += size
            return size

    reader = ReadTable([str(path)], "parquet", "v").reader
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sources.FileSystems, "open", lambda path, **_: Watched(path))
        (head,) = read_heads([str(path)], reader)
    assert head.num_rows == count and sum(map(len, head.blocks)) == 1000
    assert 0 < total[0] < path.stat().st_size / 8
