"""The frequency program on real engines: launcher, job server and workers share only files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_ldp.pipelines.frequency import DONE, NOTHING_RELEASED, main
from tests.engines.servers import Engine
from tests.pipelines.test_frequency import FILES, record, rows

USERS = 30_000


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    held = np.random.default_rng(2).integers(0, 4, USERS)
    words = pa.array(["a", "b", "c", "d"]).take(pa.array(held))
    for part in range(3):
        each = slice(part * USERS // 3, (part + 1) * USERS // 3)
        table = pa.table({"uid": np.arange(USERS)[each], "v": words[each]})
        pq.write_table(table, tmp_path / f"{part}.parquet", row_group_size=3000)
    (tmp_path / "list.txt").write_text("a\nb\nc\n")
    return [f"--input={tmp_path}/*.parquet", "--column=v", "--user-id=uid",
            f"--domain={tmp_path}/list.txt", "--local-epsilon=4", "--delta=1e-6",
            f"--output={tmp_path}/out", "--no-mlflow"]  # fmt: skip


@pytest.mark.parametrize("form", ["statistic", "reports"])
def test_a_whole_output(engine: Engine, job: list[str], tmp_path: Path, form: str) -> None:
    """Estimates within 5 standard errors of 1/4: false alarms below 1e-5."""
    flags = [*job, f"--shuffle-output={form}", f"--expected-users={USERS}", *engine.options]
    assert main(flags) == DONE
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert record(out)["num_reports"] == USERS
    for row in rows(out):
        off = float(row["frequency"]) - 0.25
        assert abs(off) < 5 * float(row["frequency_standard_error"])


def test_too_few_reports_release_nothing(engine: Engine, job: list[str], tmp_path: Path) -> None:
    assert main([*job, f"--min-reports={USERS + 1}", *engine.options]) == NOTHING_RELEASED
    assert not (tmp_path / "out").exists()
