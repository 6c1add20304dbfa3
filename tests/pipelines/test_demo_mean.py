"""The demo of means: whose rows its people hold, that their public ranges are, and a run of it."""

from __future__ import annotations

import csv
import shlex
import sys

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from beam_ldp.pipelines.demo import demo_mean
from beam_ldp.pipelines.demos import tables

USERS = 5000
TABLES = {
    "patients": (tables.patients, tables.PATIENTS, 442),
    "survey": (tables.survey, tables.SURVEY, 6366),
    "insured": (tables.insured, tables.INSURED, 20_190),
}

pytest.importorskip("sklearn")
pytest.importorskip("statsmodels")


@pytest.mark.exact
@pytest.mark.parametrize("name", TABLES)
def test_rows_lie_in_the_ranges_that_are_told(name):
    rows, ranges, count = TABLES[name][0](), TABLES[name][1], TABLES[name][2]
    assert rows.shape == (count, len(ranges))
    low, high = np.array(list(ranges.values())).T
    # A range that cut real values would bias the demo's truth; one ten times too wide hides them.
    assert (low <= rows.min(axis=0)).all() and (rows.max(axis=0) <= high).all()
    assert ((rows.max(axis=0) - rows.min(axis=0)) > (high - low) / 3).all()


@pytest.mark.exact
@pytest.mark.parametrize("name", TABLES)
def test_people_hold_real_rows(name, tmp_path):
    rows, ranges = TABLES[name][0](), TABLES[name][1]
    people, public, truth = tables.write_rows(name, rows, ranges, USERS, 9, tmp_path)
    table = pa_csv.read_csv(people)
    held = np.column_stack([table[column].to_numpy() for column in ranges])
    assert table["user_id"].to_pylist() == list(range(USERS))
    assert {tuple(row) for row in held} <= {tuple(row) for row in rows}
    np.testing.assert_allclose(held.mean(axis=0), truth)
    assert truth == pytest.approx(rows.mean(axis=0), abs=5 * rows.std(axis=0).max() / USERS**0.5)
    with public.open(encoding="utf-8", newline="") as file:
        told = {r["column"]: (float(r["low"]), float(r["high"])) for r in csv.DictReader(file)}
    assert told == ranges


@pytest.mark.exact
def test_pictures_are_digits(tmp_path):
    path, truth = tables.write_pictures(USERS, tmp_path)
    pixels = np.array(pq.read_table(path)["pixels"].to_pylist())
    assert pixels.shape == (USERS, 64) and pixels.max() == tables.BRIGHTEST
    np.testing.assert_allclose(pixels.mean(axis=0), truth)


@pytest.mark.exact
def test_without_the_packages_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    done = CliRunner().invoke(demo_mean, ["--output", str(tmp_path / "out")])
    assert done.exit_code != 0
    assert "pip install 'beam-ldp[demo]'" in done.output


@pytest.mark.exact
def test_the_command_that_is_shown_is_the_one_that_runs(monkeypatch, tmp_path):
    told = []

    def stop(program, flags, *_):
        told.append((program.usage.name, flags))
        return 1, None

    monkeypatch.setattr("beam_ldp.pipelines.demos.shown.run_flags", stop)
    place = str(tmp_path / "out")
    done = CliRunner().invoke(demo_mean, ["--output", place, "--users", "100", "--no-mlflow"])
    ((name, flags),) = told
    assert done.exit_code == 1 and name == "mean" and flags[-1] == "--no-mlflow"
    typed = shlex.split(done.output.split("your own data:")[1].replace("\\\n", " "))
    assert typed == ["beam-ldp", "mean", *flags[:-1]]
