"""The frequency program on real engines: launcher, job server and workers share only files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apache_beam as beam
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console

from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines.frequency import main
from beam_ldp.pipelines.programs import DONE, NOTHING_RELEASED
from beam_ldp.release import job_monitor as watch
from beam_ldp.release.job_monitor import JobError
from tests.engines.cache import QUICK, job_server_jar, prism_binary
from tests.engines.servers import EMBEDDED, Engine
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


@pytest.fixture
def memoized(job: list[str], tmp_path: Path) -> list[str]:
    """The job with noise that no engine changes."""
    (tmp_path / "key").write_bytes(bytes(range(32)))
    return [*job, f"--memoize-key-file={tmp_path}/key", "--dataset=d", "--release-id=r",
            f"--expected-users={USERS}", "--overwrite"]  # fmt: skip


def assert_same_as_here(memoized: list[str], tmp_path: Path) -> None:
    """The estimates of the engine are those of the local runner, byte for byte.

    Within 5 standard errors of 1/4: false alarms below 1e-5.
    """
    out = tmp_path / "out"
    assert sorted(path.name for path in out.iterdir()) == FILES
    assert record(out)["num_reports"] == USERS
    for row in rows(out):
        off = float(row["frequency"]) - 0.25
        assert abs(off) < 5 * float(row["frequency_standard_error"])
    there = (out / "estimates.csv").read_bytes()
    assert main(memoized) == DONE
    assert (out / "estimates.csv").read_bytes() == there


def test_a_whole_output(engine: Engine, memoized: list[str], tmp_path: Path) -> None:
    flags = ["--shuffle-output=reports", "--scope=global"]
    assert main([*memoized, *flags, *engine.options]) == DONE
    assert_same_as_here([*memoized, *flags], tmp_path)


@pytest.mark.engines
@pytest.mark.parametrize("name", EMBEDDED)
def test_engine_that_beam_starts_itself(name: str, memoized: list[str], tmp_path: Path) -> None:
    """No server is there before: Beam starts one from the file that a flag names, and ends it."""
    server = {
        "prism": ["--runner=PrismRunner", f"--prism_location={prism_binary()}"],
        "spark": ["--runner=SparkRunner", f"--spark_job_server_jar={job_server_jar('spark')}",
                  "--spark_master_url=local[2]"],
        "flink": ["--runner=FlinkRunner", f"--flink_job_server_jar={job_server_jar('flink')}",
                  "--flink_version=1.19", "--parallelism=2"],
    }  # fmt: skip
    command = [sys.executable, "-m", "beam_ldp.pipelines.frequency", *memoized, *server[name]]
    quick = os.environ | {"JDK_JAVA_OPTIONS": " ".join(QUICK)}  # for the server that Beam starts
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=quick)
    assert done.returncode == DONE, done.stderr[-3000:]
    assert_same_as_here(memoized, tmp_path)


@pytest.mark.engines
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_server_that_beam_started_ends_with_a_launcher_that_is_ended(
    how: signal.Signals, memoized: list[str]
) -> None:
    """A Java of 600 MB."""
    command = [sys.executable, "-m", "beam_ldp.pipelines.frequency", *memoized,
               "--runner=SparkRunner", f"--spark_job_server_jar={job_server_jar('spark')}",
               "--spark_master_url=local[1]"]  # fmt: skip
    launcher = psutil.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until, servers = time.monotonic() + 200, []
        while not servers and launcher.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
            servers = [one for one in launcher.children() if one.name() == "java"]
        (java,) = servers
        launcher.send_signal(how)
        launcher.wait(60)
        java.wait(10)
    finally:
        for process in (launcher, *servers):
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_price_above_the_target_is_seen(engine: Engine, job: list[str], tmp_path: Path) -> None:
    """Fewer people came than the noise was made for: 60,000, and not the fewest."""
    central = [flag for flag in job if not flag.startswith("--local-epsilon")]
    few = ["--epsilon=0.5", "--expected-users=60000", "--min-reports=1000", "--allow-over-target"]
    assert main([*central, *few, *engine.options]) == DONE
    found = json.loads((tmp_path / "out" / "privacy.json").read_text())
    assert found["epsilon"] > 0.5 and any("above the target" in w for w in found["warnings"])


def slowly(number: int) -> int:
    time.sleep(6)
    return number


def fail_late(number: int) -> int:
    slowly(number)
    raise ValueError("too late")


@pytest.mark.engines
def test_a_job_may_take_longer_than_a_call_to_its_server(
    engine_options: Callable[[str], list[str]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Beam's own waiting ends with the call on Prism, and fails a job that goes on."""
    options = PipelineOptions([*engine_options("prism"), "--job_server_timeout=3"])
    pipeline = beam.Pipeline(options=options)
    write = beam.Map(lambda number: (tmp_path / "found").write_text(str(number)))
    pipeline | beam.Create([7]) | beam.Map(slowly) | write
    result = watch.run(pipeline, Console(), "slow")
    assert result.state == "DONE" and (tmp_path / "found").read_text() == "7"
    assert "Traceback" not in capfd.readouterr().err
    pipeline = beam.Pipeline(options=options)
    pipeline | beam.Create([7]) | beam.Map(fail_late)
    with pytest.raises(JobError):
        watch.run(pipeline, Console(), "slow")


def test_a_budget_that_is_spent_stops_before_the_engine_is_asked(
    job: list[str], tmp_path: Path
) -> None:
    """There is no server at that port: nothing was sent."""
    url = f"sqlite:///{tmp_path}/privacy.db"
    BudgetLedger.create(url).set_budget("d", epsilon=0.01, delta=1e-6, local_epsilon=0.01)
    budget = [f"--ledger={url}", "--dataset=d", f"--expected-users={USERS}"]
    nowhere = ["--runner=FlinkRunner", "--job_endpoint=localhost:1"]
    assert main([*job, *budget, *nowhere]) == NOTHING_RELEASED
    assert not (tmp_path / "out").exists()
