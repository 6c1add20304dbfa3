"""The pipelines of docs/beam-yaml.md, as they stand there."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.yaml.conftest import PIPELINES, Run, lines

pytestmark = [pytest.mark.e2e, pytest.mark.yaml]

PEOPLE = 2000
PAGES = ("home",) * 5 + ("search",) * 3 + ("help", "elsewhere")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """What the pages' pipelines read: five of the rows hold no page."""
    with (tmp_path / "visits.csv").open("w") as file:
        file.write("uid,page,seconds\n")
        for i in range(PEOPLE):
            page = "" if i % 400 == 7 else PAGES[i % 10]
            file.write(f"{i},{page},{1_700_000_000 + 3600 * (i % 2)}\n")
    table = {
        "uid": np.arange(PEOPLE),
        "age": 18.0 + np.arange(PEOPLE) % 60,
        "minutes": 10.0 * (np.arange(PEOPLE) % 100),
    }
    pq.write_table(pa.table(table), tmp_path / "people.parquet")
    return tmp_path


def check_frequencies(rows: list[dict], reports: int) -> None:
    assert [row["value"] for row in rows] == ["home", "search", "help", "other"]
    assert {row["reports"] for row in rows} == {reports}
    for row, share in zip(rows, (0.5, 0.3, 0.1, 0.1)):
        assert abs(row["frequency"] - share) < 5 * row["frequency_standard_error"] + 0.002


def test_a_table_to_frequencies(run: Run, data: Path) -> None:
    """False alarms: four estimates beyond 5 sigma, below 1e-5."""
    run(PIPELINES["frequencies.yaml"])
    rows = lines(data, "frequencies.json")
    check_frequencies(rows, PEOPLE - 5)
    assert rows[0]["local_epsilon"] <= 6 and 0.5 < rows[0]["epsilon"] < 1.1
    assert lines(data, "bad.json") == [{"msg": "null", "rows": 5, "source": "", "position": -1}]
    assert lines(data, "withheld.json") == []


def test_means_with_ranges(run: Run, data: Path) -> None:
    """False alarms: two estimates beyond 5 sigma, below 1e-5."""
    run(PIPELINES["means.yaml"])
    (path,) = data.glob("means.csv*")
    rows = list(csv.DictReader(path.open()))
    assert [row["coordinate"] for row in rows] == ["age", "minutes"]
    for row, mean in zip(rows, (47.3, 495.0)):
        assert abs(float(row["mean"]) - mean) < 5 * float(row["standard_error"])


def test_devices_and_collector(run: Run, data: Path) -> None:
    """What is sent twice is taken once.

    False alarms: four estimates beyond 5 sigma, below 1e-5.
    """
    run(PIPELINES["devices.yaml"])
    (sent,) = data.glob("sent/reports*")
    sent.with_name("again.parquet").write_bytes(sent.read_bytes())
    run(PIPELINES["collector.yaml"])
    rows = lines(data, "collected.json")
    check_frequencies(rows, PEOPLE - 5)
    assert pq.read_schema(sent).names == ["envelope"]


def test_windows(run: Run, data: Path) -> None:
    """False alarms: eight estimates beyond 5 sigma, below 1e-5."""
    run(PIPELINES["hours.yaml"])
    rows = lines(data, "hours.json")
    assert {(row["window_start"], row["window_end"]) for row in rows} == {
        ("2023-11-14T22:00:00Z", "2023-11-14T23:00:00Z"),
        ("2023-11-14T23:00:00Z", "2023-11-15T00:00:00Z"),
    }
    assert sum(row["reports"] for row in rows) == 4 * (PEOPLE - 5)


def test_the_installed_wheel_in_a_process_of_its_own(data: Path) -> None:
    """The provider file is in the package, and nothing of this checkout on the path."""
    plain = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "BEAM_LDP_LEDGER")}
    python = [sys.executable, "-P", "-m"]
    found = subprocess.run(
        [*python, "beam_ldp.transforms.yaml"], cwd=data, env=plain, text=True,
        capture_output=True, timeout=120,
    )  # fmt: skip
    provider = found.stdout.strip()
    assert Path(provider).exists(), found.stderr[-2000:]
    text = PIPELINES["frequencies.yaml"]
    start, stop = text.index("  - type: python"), text.index("pipeline:")
    (data / "p.yaml").write_text(f"{text[:start]}  - include: {provider}\n{text[stop:]}")
    done = subprocess.run(
        [*python, "apache_beam.yaml.main", "--yaml_pipeline_file=p.yaml", "--runner=FnApiRunner"],
        cwd=data, env=plain, text=True, capture_output=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert len(lines(data, "frequencies.json")) == 4


@pytest.mark.engines
def test_on_prism(run: Run, data: Path, engine_options) -> None:
    """False alarms: four estimates beyond 5 sigma, below 1e-5."""
    run(PIPELINES["frequencies.yaml"], *engine_options("prism"))
    check_frequencies(lines(data, "frequencies.json"), PEOPLE - 5)
