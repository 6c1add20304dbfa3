"""The scale benchmarks: their input is what it says, and small runs of them are right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from benchmarks.measure import run_measured
from benchmarks.scale import LOCAL, RECORDS, Bench, page
from benchmarks.scale_input import NUM_VALUES, probabilities, write_file, write_folder
from benchmarks.scale_jobs import run

IN_PROCESS = LOCAL[:1]
ORACLE = {"mechanism": "KRandomizedResponse", "domain_size": 50, "local_epsilon": 4.0}


@pytest.mark.statistical
def test_input_has_the_stated_distribution(tmp_path: Path) -> None:
    """Chi-square of 266 cells below its mean + 5 sigma: false alarms below 1e-5."""
    write_file(tmp_path / "x.parquet", 300_000, seed=3)
    counts = np.bincount(pq.read_table(tmp_path / "x.parquet")["value"], minlength=NUM_VALUES)
    law = probabilities()
    assert law.sum() == 1
    weights = 1 / (np.arange(NUM_VALUES) + 3)
    assert np.allclose(law, weights / weights.sum(), atol=2**-16)
    expected = 300_000 * law
    assert ((counts - expected) ** 2 / expected).sum() < 265 + 5 * (2 * 265) ** 0.5


@pytest.mark.exact
def test_folder_is_written_once(tmp_path: Path) -> None:
    size = write_folder(tmp_path, 1000)
    (file,) = tmp_path.glob("*.parquet")
    before = file.stat().st_mtime_ns
    assert write_folder(tmp_path, 1000) == size
    assert file.stat().st_mtime_ns == before
    assert write_folder(tmp_path, 2000) > size
    assert pq.ParquetFile(file).metadata.num_rows == 2000


@pytest.mark.pipeline
def test_jobs_are_right(tmp_path: Path) -> None:
    """Errors below 5.5 standard errors over all values: false alarms below 1e-4."""
    write_folder(tmp_path / "data", 200_000)
    common = {"min_reports": 1000, "output": "reports", "out": str(tmp_path / "out")}
    spec = {"job": "file", "data": str(tmp_path / "data"), "mechanism": "KRandomizedResponse",
            "domain_size": NUM_VALUES, "local_epsilon": 4.0}  # fmt: skip
    found = run({**spec, **common}, IN_PROCESS)
    assert found["num_reports"] == 200_000
    assert found["largest_error"] < 5.5
    assert list((tmp_path / "out").glob("*.parquet"))


@pytest.mark.pipeline
def test_jobs_of_groups_and_of_one_person(tmp_path: Path) -> None:
    """The same bound; every group is there, and one person's rows count once."""
    drawn = {**ORACLE, "records": 20_000, "block": 4096, "min_reports": 10, "output": "statistic"}
    found = run({"job": "groups", "groups": 20, "hot": True, **drawn}, IN_PROCESS)
    # Even rows are those of group 0, so that only it and the odd groups have any.
    assert (found["releases"], found["num_reports"]) == (11, 20_000)
    found = run({"job": "user", "one_user": 15_000, **drawn}, IN_PROCESS)
    assert found["num_reports"] == 5001
    assert found["largest_error"] < 5.5


@pytest.mark.exact
def test_measured_sees_workers_apart(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; print('hello');"
        "subprocess.run([sys.executable, '-c', 'x = bytearray(60 << 20); "
        "import time; time.sleep(0.5)'])"
    )
    import sys

    found = run_measured([sys.executable, "-c", code], timeout=60)
    assert found.output.strip() == "hello"
    assert found.worker_mib > 60 > found.launcher_mib
    with pytest.raises(RuntimeError, match="took longer"):
        run_measured([sys.executable, "-c", "import time; time.sleep(30)"], timeout=0.3)
    with pytest.raises(RuntimeError, match="no such thing"):
        run_measured([sys.executable, "-c", "raise SystemExit('no such thing')"])


@pytest.mark.exact
def test_page_says_whether_the_target_was_met() -> None:
    row = {"label": "statistic", "num_reports": RECORDS, "seconds": 12.0, "cpu_seconds": 20.0,
           "worker_mib": 400.0, "launcher_mib": 300.0, "output": "statistic", "scope": "batch",
           "largest_error": 3.0}  # fmt: skip
    assert "met." in page("billion", [row])
    assert "missed." in page("billion", [{**row, "seconds": 21.0}])
    assert "missed." in page("billion", [{**row, "worker_mib": 1500.0}])
    assert Bench(1000, Path("x"), []).bounded(1e6) == 1000
    assert json.dumps(row)
