"""Windows of every kind of question that can be streamed, with groups; the others say why not."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.internal import pickler
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.transforms.window import FixedWindows, TimestampedValue

from beam_ldp.pipelines import heavy_hitters, user_mean
from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.programs import MISUSED
from beam_ldp.pipelines.usage import frequency, mean
from beam_ldp.release.streams.job import stream_of
from beam_ldp.release.streams.log import StreamProgress
from beam_ldp.release.streams.results import WriteRelease
from beam_ldp.transforms.elements.blocks import TableBlock
from tests.pipelines.test_stream_restart import RUNNER

PEOPLE = 600
STREAMED = (
    "--input-format csv --stream --time-column t --budget-windows 9 --delta 1e-6 --min-reports 100 "
    "--local-epsilon 6 --no-ledger --no-mlflow"
)
COLOURS = "--column colour --domain list"
TOWNS = "--group-by town --groups towns"
KINDS = {
    "survey": (frequency, f"{COLOURS} --column shape --domain list --window 60s"),
    "quantiles": (frequency, "--column age --bins 0:100:10 --quantiles 0.5 --window 60s"),
    "bins": (frequency, "--column age --bins 0:100:10 --window 60s"),
    "groups": (frequency, f"{COLOURS} {TOWNS} --postprocess clip --window 60s"),
    "survey, summed": (
        frequency, f"{COLOURS} --column shape --domain list --window 120s --slide 60s"
    ),
    "mean": (mean, "--column age,size --ranges ranges --window 60s"),
    "mean by groups": (mean, f"--column age --range 0 100 {TOWNS} --window 60s"),
}  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("BEAM_LDP_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "list").write_text("red\ngreen\n")
    (tmp_path / "towns").write_text("Ulm\nKöln am Rhein\n")
    (tmp_path / "ranges").write_text("column,low,high\nage,0,100\nsize,0,10\n")
    return tmp_path


def block(start: int) -> TimestampedValue:
    """Six hundred people: two in three are red, and fifty years old; one town has a third."""
    i = np.arange(PEOPLE)
    red = np.where(i % 3 < 2, "red", "green")
    columns = {"colour": red, "shape": red, "age": np.full(PEOPLE, "50"),
               "size": np.full(PEOPLE, "5"), "t": np.full(PEOPLE, str(start)),
               "town": np.where(i % 3 < 1, "Ulm", "Köln am Rhein")}  # fmt: skip
    batch = pa.RecordBatch.from_pydict({name: pa.array(held) for name, held in columns.items()})
    return TimestampedValue(TableBlock("file", 0, batch), start)


@pytest.mark.pipeline
@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_every_kind(place: Path, kind: str) -> None:
    """Two windows, each a folder of its own for every group, and one use of the budget."""
    program, asked = KINDS[kind]
    flags = f"--input in --output out {STREAMED} {asked}".split()
    job = stream_of(program.USAGE, read_flags(program.USAGE, flags))
    with beam.Pipeline(options=PipelineOptions([RUNNER])) as pipeline:
        rows = pipeline | beam.Create([block(0), block(60)]).with_output_types(TableBlock)
        job.write(rows | beam.WindowInto(FixedWindows(60)) | job._composite(), {})
    watched = StreamProgress(job.folder, 9, 1e-6)
    assert watched.look()
    groups = 2 if "--group-by" in flags else 1
    sums = kind.endswith("summed")
    assert (watched.used, watched.released, watched.sums) == (2, 2 * groups, sums)
    assert watched.local_epsilon == pytest.approx(12.0)  # a person is in one group of a window
    told = [json.loads(path.read_text()) for path in sorted(place.glob("out/*/privacy.json"))]
    assert sum(one["num_reports"] for one in told) == 2 * PEOPLE * (1 + sums)
    assert watched.epsilon is not None
    assert watched.epsilon > max(one["epsilon"] or 0.0 for one in told)
    if groups == 2:
        assert {one["group"] for one in told} == {"Ulm", "Köln am Rhein"}
    assert len([*place.glob("out/*/quantiles.csv")]) == (2 if kind == "quantiles" else 0)
    for path in place.glob("out/*/estimates.csv"):
        check_table(list(csv.DictReader(path.read_text("utf-8").splitlines())), kind)


def check_table(rows: list[dict[str, str]], kind: str) -> None:
    """What people hold, within five standard errors."""
    questions = {row["question"] for row in rows}
    if kind.startswith("survey"):
        assert questions == {"colour", "shape"}
    for row in rows:
        if row.get("value") in ("red", "green") and not row["group"]:
            truth = {"red": 2 / 3, "green": 1 / 3}[row["value"]]
            assert abs(float(row["frequency"]) - truth) < 5 * float(row["frequency_standard_error"])
        if "coordinate" in row:
            truth = {"age": 50.0, "size": 5.0}[row["coordinate"]]
            assert abs(float(row["mean"]) - truth) < 5 * float(row["standard_error"])
    held = [row for row in rows if row.get("value", "").startswith("[50")]
    assert bool(held) == (kind in ("quantiles", "bins"))


@pytest.mark.exact
@pytest.mark.parametrize("asked", ["", "--column shape --domain list"])
def test_workers_are_sent_no_list(place: Path, asked: str) -> None:
    """They read it themselves; here neither the stage nor what it is told of the run holds it."""
    (place / "list").write_text("".join(f"value {i}\n" for i in range(5_000)))
    flags = f"--input in --output out {STREAMED} {COLOURS} {asked} --window 60s"
    job = stream_of(frequency.USAGE, read_flags(frequency.USAGE, flags.split()))
    sent = pickler.dumps(WriteRelease("out", job.run, job.identity))
    assert len(sent) < 10_000


@pytest.mark.exact
def test_a_glob_needs_a_file_that_says_which_columns_there_are(place: Path) -> None:
    flags = f"--input in --output out {STREAMED} --column a* --norm l2 --radius 1 --window 60s"
    with pytest.raises(ValueError, match="must name each column"):
        stream_of(mean.USAGE, read_flags(mean.USAGE, flags.split()))


@pytest.mark.exact
@pytest.mark.parametrize(
    ("program", "why"),
    [(user_mean, "further rows may always come"), (heavy_hitters, "all people must be there")],
)
def test_a_kind_that_cannot_be_streamed_says_why(
    program: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert program.main(["--input=in", "--stream", "--window=60s"]) == MISUSED
    said = " ".join(capsys.readouterr().err.split())
    assert "--stream: " in said and why in said
