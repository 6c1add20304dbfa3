"""The programs for means on real engines: launcher, job server and workers share only files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines import mean, user_mean
from beam_ldp.pipelines.programs import DONE
from tests.engines.servers import Engine
from tests.pipelines.test_frequency import FILES, record
from tests.pipelines.test_mean import rows

USERS, ROWS = 20_000, 5


@pytest.fixture
def truth(tmp_path: Path) -> float:
    """Minutes of people whose rows lie in three files; the mean of their own means."""
    rng = np.random.default_rng(2)
    people = np.tile(np.arange(USERS), ROWS)
    minutes = np.clip(rng.normal(700, 20, USERS)[people] + rng.normal(0, 60, len(people)), 0, 1440)
    for part in range(3):
        table = pa.table({"uid": people[part::3], "minutes": minutes[part::3]})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=10_000)
    return float(minutes.mean())  # everybody has the same number of rows


def flags(folder: Path, engine: Engine, *more: str) -> list[str]:
    return [f"--input={folder}/*.parquet", "--user-id=uid", "--column=minutes", "--range", "0",
            "1440", "--delta=1e-8", f"--expected-users={USERS}", f"--output={folder}/out",
            "--no-mlflow", *more, *engine.options]  # fmt: skip


def assert_released(out: Path, truth: float) -> None:
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert record(out)["num_reports"] == USERS
    (row,) = rows(out)
    assert abs(float(row["mean"]) - truth) < 5 * float(row["standard_error"])


def test_mean(engine: Engine, truth: float, tmp_path: Path) -> None:
    """Many messages, one row of each person: within 5 standard errors, false alarms below 1e-6."""
    given = flags(tmp_path, engine, "--epsilon=1", "--shuffle-output=reports")
    assert mean.main(given) == DONE
    assert_released(tmp_path / "out", truth)


@pytest.mark.parametrize("split", ["users", "budget"])
def test_user_mean(engine: Engine, truth: float, tmp_path: Path, split: str) -> None:
    """What round one found is one thing wherever round two reads it.

    Within 5 standard errors, false alarms below 1e-6: intervals that differ between the stages
    would shift the mean by several bins.
    """
    given = flags(tmp_path, engine, "--local-epsilon=4", f"--split={split}",
                  f"--rows-per-user={ROWS}", "--sigma=60", "--user-sigma=20")  # fmt: skip
    assert user_mean.main(given) == DONE
    assert len(record(tmp_path / "out")["rounds"]) == 2
    assert_released(tmp_path / "out", truth)
