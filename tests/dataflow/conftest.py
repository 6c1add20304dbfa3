"""The graphs that `DataflowRunner` would submit, built once by the installed wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.dataflow.graph import Graph

SECRET = "raw-value-zq7"  # of a person; in no graph
USER = 918_273_645  # an id; in no graph
REWARD = 0.7310585786300049  # of a person; in no graph
KEY = b"memoize-key-0123456789abcdef-0123456789abcdef"
LARGE = 4_000_000
DRY_RUN = [
    "--runner=DataflowRunner", "--project=some-project", "--region=us-central1",
    "--temp_location=gs://some-bucket/temp", "--staging_location=gs://some-bucket/staging",
    "--dry_run=True", "--no_auth", "--sdk_location=container",
]  # fmt: skip


def write_data(folder: Path) -> None:
    """A little table, lists of values and a key file."""
    people = pa.table(
        {
            "uid": np.arange(USER, USER + 1000),
            "word": [SECRET, "red", "green", "blue"] * 250,
            "number": np.arange(1000) % 7,
            "minutes": np.linspace(0, 1440, 1000),
            "play": ["1:blue", "1:red"] * 500,
            "reward": 500 * [REWARD, 0.0],
        }
    )
    pq.write_table(people, folder / "people.parquet")
    (folder / "words.txt").write_text("red\ngreen\n")
    (folder / "large.txt").write_text("".join(f"{i}\n" for i in range(LARGE)))
    (folder / "banners.csv").write_text("name,x,y\nblue,1,0\nred,0,1\n")
    (folder / "key").write_bytes(KEY)


def jobs(folder: Path) -> dict[str, dict[str, Any]]:
    """Every form of the stages; `again` is `statistic` once more."""

    def job(name: str, program: str, *flags: str) -> dict[str, Any]:
        common = [f"--input={folder}/people.parquet", "--delta=1e-6", "--expected-users=1000",
                  f"--output={folder}/out", "--no-mlflow", "--no-ledger"]  # fmt: skip
        return {name: {"program": program, "flags": [*common, *flags, *DRY_RUN]}}

    words = ["--column=word", f"--domain={folder}/words.txt"]
    person = ["--user-id=uid", "--epsilon=1"]
    named = ["--dataset=d", "--release-id=first"]
    memoized = [f"--memoize-key-file={folder}/key", *named]
    reports = ["--local-epsilon=4", "--shuffle-output=reports"]
    large = ["--mechanism=HadamardResponse", "--column=number", f"--domain={folder}/large.txt"]
    minutes = ["--column=minutes", "--range", "0", "1440"]
    service = ["--state", f"{folder}/service"]
    start = ["bandit", "start", f"--actions={folder}/banners.csv", "--horizon=3000", *service,
             "--dataset=d"]  # fmt: skip
    rewards = [
        f"--rewards={folder}/people.parquet",
        "--user-id=uid",
        f"--memoize-key-file={folder}/key",
    ]
    advance = [*service, *rewards, "--no-mlflow", "--no-ledger", *DRY_RUN]
    bandit = {"program": "bandit advance", "flags": advance, "before": start}
    return (
        job("statistic", "frequency", *words, *person, *named)
        | job("again", "frequency", *words, *person, *named)
        | job("memoized", "frequency", *words, *person, *memoized)
        | job("batch", "frequency", *words, *reports)
        | job("global", "frequency", *words, *reports, "--scope=global")
        | job("large", "frequency", *large, "--local-epsilon=4")
        | job("mean", "mean", *minutes, *person)
        | job("user-mean", "user-mean", *minutes, *person, "--rows-per-user=4")
        | {"bandit": bandit}
    )


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NAME.pb for every job, and about.json."""
    folder = tmp_path_factory.mktemp("graphs")
    write_data(folder)
    (folder / "jobs.json").write_text(json.dumps(jobs(folder)))
    script = Path(__file__).with_name("build_graphs.py")
    done = subprocess.run(
        [sys.executable, script, folder / "jobs.json", folder],
        cwd=folder,  # not the repository: the wheel is what is imported
        env={**os.environ, "NO_GCE_CHECK": "true", "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="session")
def graphs(built: Path) -> dict[str, Graph]:
    return {path.stem: Graph(path) for path in built.glob("*.pb")}
