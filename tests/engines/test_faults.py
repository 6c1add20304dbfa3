"""What remains true when processes die: every person counted once, whole output or none.

A kill is `kill -9` at a random moment of the job. `make test-slow-engines` kills twice on each
cluster, `make test-faults` every kind of process twenty times.
"""

from __future__ import annotations

import random
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from apache_beam.runners.runner import PipelineState

from beam_ldp.pipelines.results import read_all
from tests.engines import flink, spark
from tests.engines.fault_job import FaultJob
from tests.engines.servers import CLUSTERS, Engine, running

SECONDS = 480  # of one job, most of them starts of Python workers on a busy machine
KILLS = 20  # of the slow form
ONE_PROCESS = ["--runner=FnApiRunner"]
FORMS = (("statistic", "batch"), ("reports", "batch"), ("reports", "global"))


@dataclass(frozen=True)
class Victim:
    """A kind of process: how to find one of them, and how to put one in its place."""

    engine: str
    name: str
    find: Callable[[Engine], list[psutil.Process]]
    replace: Callable[[Engine], None] = lambda engine: None


def children_of(role: str, running: str) -> Callable[[Engine], list[psutil.Process]]:
    """Processes that the servers of a role started, whose command line says `running`."""

    def find(engine: Engine) -> list[psutil.Process]:
        servers = [server for server in engine.group.servers if server.role.startswith(role)]
        found = [child for server in servers for child in server.children()]
        return [child for child in found if running in command_of(child)]

    return find


def command_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def servers_of(role: str) -> Callable[[Engine], list[psutil.Process]]:
    def find(engine: Engine) -> list[psutil.Process]:
        found = [s.process() for s in engine.group.servers if s.role.startswith(role)]
        return [process for process in found if process is not None]

    return find


def new_spark_worker(engine: Engine) -> None:
    master = spark.master_of(engine.group)
    spark.start_worker(engine.group, f"worker-{len(engine.group.servers)}", master)


def new_task_manager(engine: Engine) -> None:
    flink.start_task_manager(engine.group, f"task-manager-{len(engine.group.servers)}")


HARNESS = children_of("workers", "SdkHarness")
VICTIMS = (
    Victim("spark-cluster", "harness", HARNESS),
    Victim("spark-cluster", "executor", children_of("worker-", "CoarseGrainedExecutorBackend")),
    Victim("spark-cluster", "worker", servers_of("worker-"), new_spark_worker),
    Victim("flink-cluster", "harness", HARNESS),
    Victim("flink-cluster", "task manager", servers_of("task-manager-"), new_task_manager),
)


class Run:
    """A job in a thread of its own: building, sending and waiting block."""

    def __init__(self, job: FaultJob, options: list[str]) -> None:
        self.job = job
        self.state: str | None = None
        self.error: BaseException | None = None
        self._pipeline = job.build(options)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.started = time.monotonic()
        self._thread.start()

    def _work(self) -> None:
        try:
            result = self._pipeline.run()
            state = result.wait_until_finish(duration=SECONDS * 1000) or result.state
            self.state = str(state)
            if not PipelineState.is_terminal(state):
                result.cancel()
        except BaseException as error:
            self.error, self.state = error, "FAILED"

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> float:
        """Seconds that it took."""
        self._thread.join(SECONDS + 60)
        assert self.over, "the job hangs"
        return time.monotonic() - self.started

    def kill_one(self, engine: Engine, victim: Victim, at: float) -> bool:
        """Kill a victim when so much of the job is done, or the first one later; was there one?"""
        while not self.over:
            found = victim.find(engine) if self.job.progress >= at else []
            if found:
                random.choice(found).kill()
                return True
            time.sleep(0.02)
        return False


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=[pytest.mark.engines, pytest.mark.slow]) for name in CLUSTERS],
)
def cluster(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with running(request.param) as engine:
        yield engine


def prepared(folder: Path, **how: Any) -> FaultJob:
    job = FaultJob(folder, **how)
    job.prepare()
    return job


def survive(engine: Engine, victim: Victim, folder: Path, at: float, **how: Any) -> FaultJob:
    """A job with one kill; it must end as if nothing had happened."""
    run = Run(prepared(folder, **how), list(engine.options))
    killed = run.kill_one(engine, victim, at)
    run.wait()
    if killed:
        victim.replace(engine)
    assert killed, "the job was over before anything could be killed"
    assert run.state == "DONE", (run.state, run.error)
    run.job.assert_whole()
    return run.job


def victims_of(engine: Engine) -> list[Victim]:
    return [victim for victim in VICTIMS if victim.engine == engine.name]


def test_two_kills(cluster: Engine, tmp_path: Path) -> None:
    """Of a Python worker, and of an executor or a task manager."""
    for victim in victims_of(cluster)[:2]:
        job = survive(cluster, victim, tmp_path / victim.name, 0.3)
        assert job.reports_at_the_door()[0] == 1


@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_at_any_moment(cluster: Engine, tmp_path: Path, number: int) -> None:
    """Of each kind of process, in each form of output, at moments from the start to the end."""
    for victim in victims_of(cluster):
        at = random.Random(f"{victim.name} {number}").random()
        output, scope = FORMS[number % 3]
        job = survive(cluster, victim, tmp_path / victim.name, at, output=output, scope=scope)
        assert job.reports_at_the_door()[0] == 1


@pytest.mark.pipeline
def test_the_witness_sees_what_a_retry_costs(tmp_path: Path) -> None:
    """Run twice, as an engine that retries would: memoized reports are the same, fresh are not."""
    for memoized, most in ((True, 1), (False, 2)):
        job = prepared(tmp_path / str(memoized), memoized=memoized, blocks=6, pause=0)
        for attempt in range(2):
            run = Run(job, ONE_PROCESS) if attempt == 0 else again(job)
            run.wait()
            assert run.state == "DONE", run.error
        distinct, repeated = job.reports_at_the_door()
        assert (distinct, repeated > 0) == (most, True)


def again(job: FaultJob) -> Run:
    """The same job once more, with a ledger and results of its own."""
    for path in [*job.results.rglob("*"), job.folder / "privacy.db"]:
        if path.is_file():
            path.unlink()
    from beam_ldp.ledger import BudgetLedger

    ledger = BudgetLedger.create(job.url)
    ledger.set_budget("visits", epsilon=10.0, delta=1e-6, local_epsilon=10.0)
    return Run(job, ONE_PROCESS)


@pytest.mark.pipeline
def test_poison_stops_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    assert_poisoned(prepared(tmp_path / "job", blocks=6, pause=0, poison=True), ONE_PROCESS)


def test_poison_on_a_cluster(cluster: Engine, tmp_path: Path) -> None:
    """Every attempt fails, so the job does; the next job runs."""
    job = prepared(tmp_path / "job", blocks=6, pause=0, poison=True)
    assert_poisoned(job, cluster.options)


def assert_poisoned(job: FaultJob, options: list[str]) -> None:
    run = Run(job, options)
    run.wait()
    assert run.state == "FAILED"
    found = read_all(str(job.results))
    assert not found.releases and not found.withheld
    from beam_ldp.ledger import BudgetLedger

    assert BudgetLedger(job.url).state.charge("run").status == "reserved"  # its worst case stays


def test_one_worker_a_hundred_times_slower(cluster: Engine, tmp_path: Path) -> None:
    """Everybody is counted once, whether or not the engine starts a second attempt."""
    job = prepared(tmp_path / "job", blocks=8, pause=0.02, slow_worker=100)
    run = Run(job, cluster.options)
    run.wait()
    assert run.state == "DONE", run.error
    job.assert_whole()
    assert job.reports_at_the_door()[0] == 1


# The place of the output --------------------------------------------------------------------------


@pytest.fixture
def question(tmp_path: Path) -> list[str]:
    """A command whose output should be `out`."""
    lines = ["v", *(f"{'abcd'[i % 4]}" for i in range(4000))]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    (tmp_path / "list.txt").write_text("a\nb\nc\n")
    flags = ["--input=in.csv", "--column=v", "--domain=list.txt", "--local-epsilon=3"]
    flags += ["--delta=1e-6", "--expected-users=4000", "--output=out", "--no-mlflow"]
    return [sys.executable, "-m", "beam_ldp.pipelines.frequency", *flags]


def assert_absent(folder: Path) -> None:
    """Neither an output nor what was written aside for it."""
    assert sorted(path.name for path in folder.iterdir()) == ["in.csv", "list.txt"]


@pytest.mark.e2e
@pytest.mark.parametrize("kilobytes", [0, 1, 20])
def test_full_disk_leaves_no_output(question: list[str], tmp_path: Path, kilobytes: int) -> None:
    """No file may grow beyond so much: results of workers, tables and the plot fail in turn."""

    def full() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes << 10, kilobytes << 10))

    done = subprocess.run(
        question, cwd=tmp_path, preexec_fn=full, capture_output=True, timeout=SECONDS
    )
    assert done.returncode == 1
    assert_absent(tmp_path)


@pytest.mark.e2e
def test_vanished_folder_leaves_no_output(question: list[str], tmp_path: Path) -> None:
    """Where workers leave their results is removed, again and again, while the job runs."""
    process = subprocess.Popen(question, cwd=tmp_path, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(0.02)
        for staging in tmp_path.glob(".out.staging-*"):
            shutil.rmtree(staging, ignore_errors=True)
    assert process.returncode == 1
    assert_absent(tmp_path)
