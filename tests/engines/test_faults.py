"""What remains true when processes die: every person counted once, whole output or none.

A kill is `kill -9` at a random moment of the job. `make test-slow-engines` kills twice on each
cluster with Beam's own pool of Python workers, `make test-faults` every kind of process twenty
times where Python workers are forked.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from apache_beam.runners.runner import PipelineState

from beam_ldp.ledger import BudgetLedger, audit
from beam_ldp.release.worker_results import read_all
from tests.engines.fault_job import Door, FaultJob
from tests.engines.kills import Kill, known
from tests.engines.servers import CLUSTERS, Engine, running
from tests.engines.victims import VICTIMS, WITH_BEAMS_POOL, Find, Victim, command_of, nurseries
from tests.warm import run_warm

SECONDS = 480  # of one job, most of them starts of Python workers on a busy machine
KILL_SECONDS = 420  # of one with forked workers; for some dead ones Beam waits three minutes
KILLS = int(os.environ.get("BEAM_LDP_KILLS", "20"))  # of every kind, in the long form
FRESH_KILLS = KILLS // 4  # with fresh noise
PROGRAM = ["-m", "beam_ldp.pipelines.frequency"]
TAIL = 10.0  # seconds after the last report in which kills happen too
ONE_PROCESS = ["--runner=FnApiRunner"]
FORMS = (("statistic", "batch"), ("reports", "batch"), ("reports", "global"))


class Run:
    """A job in a thread of its own: building, sending and waiting block."""

    def __init__(self, job: FaultJob, options: list[str], seconds: float = SECONDS) -> None:
        self.job = job
        self.state: str | None = None
        self.error: BaseException | None = None
        self._seconds = seconds
        self._pipeline = job.build(options)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.started = time.monotonic()
        self._thread.start()

    def _work(self) -> None:
        try:
            result = self._pipeline.run()
            state = result.wait_until_finish(duration=int(self._seconds * 1000)) or result.state
            self.state = str(state)
            if not PipelineState.is_terminal(state):
                result.cancel()
        except BaseException as error:
            self.error, self.state = error, "FAILED"

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> float:
        """Seconds that it took; where it hangs, the state says so."""
        self._thread.join(self._seconds + 60)
        if not self.over:
            self.state = "HANGS"
        return time.monotonic() - self.started

    def kill_one(self, engine: Engine, find: Find, at: float) -> bool:
        """Kill a victim when so much of the job is done, or the first one later; was there one?"""
        while not self.over and self.job.progress < min(at, 1.0):
            time.sleep(0.02)
        later = time.monotonic() + max(0.0, at - 1.0) * TAIL
        while not self.over:
            found = find(engine) if time.monotonic() >= later else []
            if found:
                random.choice(found).kill()
                return True
            time.sleep(0.02)
        return False

    def outcome(self) -> str:
        """ "whole", "absent", or what is wrong."""
        try:
            if self.state == "DONE":
                self.job.assert_whole()
                return "whole"
            if self.state == "FAILED":
                self.job.assert_absent()
                return "absent"
        except Exception as error:
            return f"{self.state}, {type(error).__name__}: {str(error)[:300]}"
        return f"{self.state} after {self._seconds:.0f} s"


@dataclass
class Place:
    """An engine that is ended after a test that failed on it, and started anew for the next."""

    name: str
    _stack: ExitStack = field(default_factory=ExitStack)
    _engine: Engine | None = None

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        if self._engine is None:
            self._engine = self._stack.enter_context(running(self.name))
        try:
            yield self._engine
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        self._engine = None
        self._stack.close()


@pytest.fixture(scope="module")
def places() -> Iterator[dict[str, Place]]:
    """The engine that runs, by its name; one at a time."""
    found: dict[str, Place] = {}
    yield found
    for one in found.values():
        one.end()


@pytest.fixture
def place(request: pytest.FixtureRequest, places: dict[str, Place]) -> Place:
    for name in [name for name in places if name != request.param]:
        places.pop(name).end()
    return places.setdefault(request.param, Place(request.param))


def on(*names: str) -> pytest.MarkDecorator:
    """A slow test that runs on each of these engines."""
    marks = [pytest.mark.engines, pytest.mark.slow]
    places = [pytest.param(name, marks=marks) for name in names]
    return pytest.mark.parametrize("place", places, indirect=True)


def prepared(folder: Path, **how: Any) -> FaultJob:
    job = FaultJob(folder, **how)
    job.prepare()
    return job


@on(*CLUSTERS)
def test_two_kills(place: Place, tmp_path: Path) -> None:
    """Of a Python worker in Beam's own pool, and of an executor or a task manager."""
    for number, find in enumerate(WITH_BEAMS_POOL[place.name]):
        with place.engine() as engine:
            run = Run(prepared(tmp_path / str(number)), list(engine.options))
            assert run.kill_one(engine, find, 0.3)
            run.wait()
            assert run.outcome() == "whole", run.error
            assert run.job.at_the_door().most_distinct == 1


def many(kills: int) -> pytest.MarkDecorator:
    """Kills of every kind of process; those of one engine in turns, so that a part is even."""
    marks = [pytest.mark.engines, pytest.mark.slow]
    names = dict.fromkeys(victim.engine for victim in VICTIMS)
    found = [
        pytest.param(name, victim, number, marks=marks, id=f"{name}-{victim.name}-{number}")
        for name in names
        for number in range(kills)
        for victim in VICTIMS
        if victim.engine == name
    ]
    return pytest.mark.parametrize(("place", "victim", "number"), found, indirect=["place"])


@many(KILLS)
def test_a_kill_at_any_moment(place: Place, victim: Victim, number: int, tmp_path: Path) -> None:
    """Of each kind of process, in each form of output, at moments from the start to the end."""
    kill = kill_in_a_job(place, victim, number, tmp_path, memoized=True)
    assert kill.outcome in (("whole",) if victim.recovers else ("whole", "absent"))
    assert kill.most_distinct <= 1  # one report of a person, however often it crossed


@many(FRESH_KILLS)
def test_a_kill_with_fresh_noise(place: Place, victim: Victim, number: int, tmp_path: Path) -> None:
    """Nobody is counted twice; how many reports of a person crossed is written down. An engine that
    starts the job again, and not what was lost of it, asks people again: that is refused."""
    kill = kill_in_a_job(place, victim, number, tmp_path, memoized=False)
    assert kill.outcome in ("whole", "absent")


def kill_in_a_job(place: Place, victim: Victim, number: int, folder: Path, memoized: bool) -> Kill:
    """A job with one kill, and what became of it; a kill that was written down is not repeated."""
    name = victim.engine.removesuffix("-forking")
    if (before := known(name, victim.name, number, memoized)) is not None:
        return before
    at = random.Random(f"{victim.name} {number} {memoized}").uniform(0.0, 1.2)
    output, scope = FORMS[number % 3]
    with place.engine() as engine:
        for attempt in range(3):
            job = prepared(folder / str(attempt), output=output, scope=scope, memoized=memoized)
            run = Run(job, list(engine.options), KILL_SECONDS)
            killed = run.kill_one(engine, victim.find, at)
            seconds = run.wait()
            if killed:
                break
            at = min(at, 1.0) / 2  # it was over first
        assert killed, "the job was over before anything could be killed"
        kill = Kill(
            name, victim.name, number, memoized, at,
            run.outcome(), seconds, **asdict(job.at_the_door()),
        )  # fmt: skip
        kill.write_down()
        assert kill.outcome in ("whole", "absent"), (kill.outcome, run.error)
        victim.replace(engine)
    return kill


@pytest.mark.pipeline
def test_the_witness_sees_what_a_retry_costs(tmp_path: Path) -> None:
    """Run twice, as an engine that retries would: memoized reports are the same, fresh are not."""
    for memoized, most in ((True, 1), (False, 2)):
        job = prepared(tmp_path / str(memoized), memoized=memoized, blocks=6, pause=0)
        for attempt in range(2):
            run = Run(job, ONE_PROCESS) if attempt == 0 else again(job)
            run.wait()
            assert run.state == "DONE", run.error
        door = job.at_the_door()
        assert (door.most_draws, door.most_distinct) == (2, most)
        assert door.crossed_again == door.people == job.people_with_a_good_row()


def again(job: FaultJob) -> Run:
    """The same job once more, with a ledger and results of its own."""
    for path in [*job.results.rglob("*"), job.folder / "privacy.db"]:
        if path.is_file():
            path.unlink()
    ledger = BudgetLedger.create(job.url)
    ledger.set_budget("visits", epsilon=10.0, delta=1e-6, local_epsilon=10.0)
    return Run(job, ONE_PROCESS)


@pytest.mark.pipeline
def test_poison_stops_the_job_and_leaves_nothing(tmp_path: Path) -> None:
    assert_poisoned(prepared(tmp_path / "job", blocks=6, pause=0, poison=True), ONE_PROCESS)


@on("spark-forking", "flink-forking", "prism-forking")
def test_poison_on_a_cluster(place: Place, tmp_path: Path) -> None:
    """Every attempt fails, so the job does; the next job runs."""
    with place.engine() as engine:
        job = prepared(tmp_path / "job", blocks=6, pause=0, poison=True)
        assert_poisoned(job, engine.options)
        next_one = Run(prepared(tmp_path / "next", blocks=6, pause=0), engine.options)
        next_one.wait()
        assert next_one.outcome() == "whole"


def assert_poisoned(job: FaultJob, options: list[str]) -> None:
    run = Run(job, options)
    run.wait()
    assert run.state == "FAILED"
    job.assert_absent()
    assert not read_all(str(job.results)).releases
    assert BudgetLedger(job.url).state.charge("run").status == "reserved"  # its worst case stays


@on("spark-forking", "flink-forking", "prism-forking")
def test_one_worker_a_hundred_times_slower(place: Place, tmp_path: Path) -> None:
    """Everybody is counted once; the others wait for it."""
    with place.engine() as engine:
        door = assert_counted_once(engine, tmp_path / "job", memoized=True)
        assert door.crossed_again == 0


@on("spark-speculating")
def test_slow_attempts_that_are_started_a_second_time(place: Place, tmp_path: Path) -> None:
    """Reports of the slow attempt have crossed; one attempt is counted."""
    for memoized, most in ((True, 1), (False, 2)):
        with place.engine() as engine:
            door = assert_counted_once(engine, tmp_path / str(memoized), memoized)
            assert "as speculatable" in engine.group.text("job-server")
            assert door.crossed_again > 0
            assert (door.most_draws, door.most_distinct) == (2, most)


def assert_counted_once(engine: Engine, folder: Path, memoized: bool) -> Door:
    job = prepared(folder, blocks=8, pause=0.01, slow_worker=100, memoized=memoized)
    run = Run(job, engine.options)
    seconds = run.wait()
    assert run.outcome() == "whole", run.error
    print(f"{engine.name}, {memoized=}, {seconds:.0f} s, {job.at_the_door()}")
    return job.at_the_door()


# The place of the output --------------------------------------------------------------------------


@pytest.fixture
def question(tmp_path: Path) -> list[str]:
    return question_in(tmp_path, "abcd")


def question_in(folder: Path, values: str) -> list[str]:
    """A command whose output should be `out`; a blank is a row without a value."""
    rows = [values[i % len(values)].strip() for i in range(4000)]
    (folder / "in.csv").write_text("\n".join(["n,v", *(f"{i},{v}" for i, v in enumerate(rows))]))
    (folder / "list.txt").write_text("a\nb\nc\n")
    flags = [f"--input={folder}/in.csv", "--column=v", f"--domain={folder}/list.txt"]
    users = sum(map(bool, rows))  # undisturbed, the program has enough reports to release
    flags += ["--local-epsilon=3", "--delta=1e-6", f"--expected-users={users}"]
    flags += [f"--output={folder}/out", "--no-mlflow"]
    return [sys.executable, *PROGRAM, *flags]


def charged_to(url: str) -> list[str]:
    return [f"--ledger={url}", "--dataset=d", "--one-row-per-person"]


def assert_absent(folder: Path) -> None:
    """Neither an output nor what was written aside for it, but for what `finalize` needs."""
    left = {path.name for path in folder.iterdir() if not path.name.startswith(".out.staging-")}
    assert left == {"in.csv", "list.txt"}


# Workers of the local runner ----------------------------------------------------------------------

LOCAL = "local, two processes"
LOCAL_SECONDS = 240  # a worker that only starts when another dies waits a minute for its job
WORKERS = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]


@pytest.mark.e2e
def test_a_dead_worker_ends_the_program(tmp_path: Path) -> None:
    """Beam itself would wait for its answer for ever."""
    kill = kill_a_local_worker(tmp_path, 0, 0.1, seconds=4)
    assert kill.outcome == "absent"


@pytest.mark.engines
@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_a_kill_on_the_local_runner(tmp_path: Path, number: int) -> None:
    """Nothing is repeated there: the output is whole or absent."""
    kill = known(LOCAL, "Python worker", number, False)
    if kill is None:
        at = random.Random(f"local {number}").uniform(0.0, 1.0)
        kill = kill_a_local_worker(tmp_path, number, at, undisturbed())
        kill.write_down()
    assert kill.outcome in ("whole", "absent")


@cache
def undisturbed() -> float:
    """Seconds from the first worker to the end of the program, where nothing is killed."""
    with tempfile.TemporaryDirectory() as folder:
        program = LocalProgram(Path(folder) / "whole")
        program.wait_for_a_worker()
        started = time.monotonic()
        assert program.ended() == "whole"
        return time.monotonic() - started


def kill_a_local_worker(folder: Path, number: int, at: float, seconds: float) -> Kill:
    """Run the program, kill one of its workers, and see what it leaves.

    Args:
        folder: for the program's files.
        number: of the kill.
        at: when, as a part of the seconds after the first worker was there.
        seconds: that the program takes then.
    """
    for attempt in range(3):
        program = LocalProgram(folder / str(attempt))
        started = time.monotonic()
        killed = program.kill_one_after(at * seconds)
        outcome = program.ended()
        if killed:
            took = time.monotonic() - started
            return Kill(LOCAL, "Python worker", number, False, at, outcome, took)
        at /= 2  # it was over first
    raise AssertionError("the program was over before anything could be killed")


class LocalProgram:
    """The program on the local runner with two workers, its output charged to a ledger."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "kept" / "log"
        self._log.parent.mkdir(parents=True)
        self._url = f"sqlite:///{folder / 'kept' / 'privacy.db'}"
        ledger = BudgetLedger.create(self._url)
        ledger.set_budget("d", epsilon=10.0, delta=1e-5, local_epsilon=10.0)
        charged = [*charged_to(self._url), "--run-id=run"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*question_in(folder, "abcd "), *WORKERS, *charged], stdout=log, stderr=log,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )  # fmt: skip

    def workers(self) -> list[psutil.Process]:
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.Error:
            return []
        return [process for process in found if "sdk_worker_main" in command_of(process)]

    def wait_for_a_worker(self) -> None:
        while self._process.poll() is None and not self.workers():
            time.sleep(0.02)

    def kill_one_after(self, seconds: float) -> bool:
        """Kill a worker so long after the first is seen; whether there was one then."""
        self.wait_for_a_worker()
        at = time.monotonic() + seconds
        while self._process.poll() is None:
            found = self.workers() if time.monotonic() >= at else []
            if found:
                random.choice(found).kill()
                return True
            time.sleep(0.02)
        return False

    def ended(self) -> str:
        """Wait for its end: "whole", "absent", or what is wrong."""
        try:
            code = self._process.wait(LOCAL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGABRT)  # its log then ends with where it stood
            self._process.wait()
            print(self._log.read_text(errors="replace")[-20000:])
            return f"no end after {LOCAL_SECONDS} s"
        try:
            if code == 0:
                self._assert_whole()
                return "whole"
            assert code == 1, f"exit code {code}"
            self._assert_absent()
            return "absent"
        except Exception as error:
            return f"{type(error).__name__}: {str(error)[:300]}"

    def _assert_whole(self) -> None:
        price = json.loads((self._folder / "out" / "privacy.json").read_text())
        assert (price["num_reports"], price["num_bad_rows"]) == (3200, 800)
        assert BudgetLedger(self._url).state.charge("run").status == "settled"

    def _assert_absent(self) -> None:
        assert BudgetLedger(self._url).state.charge("run").status == "reserved"
        shutil.rmtree(self._folder / "kept")
        assert_absent(self._folder)


@pytest.mark.e2e
@pytest.mark.parametrize("kilobytes", [0, 1, 20])
def test_full_disk_leaves_no_output(question: list[str], tmp_path: Path, kilobytes: int) -> None:
    """No file may grow beyond so much: results of workers, tables and the plot fail in turn."""
    assert with_a_full_disk(question, kilobytes) == 1
    assert_absent(tmp_path)


@pytest.mark.e2e
def test_vanished_folder_leaves_no_output(question: list[str], tmp_path: Path) -> None:
    """Where workers leave their results is removed, again and again, while the job runs."""
    assert with_a_vanishing_folder(question, tmp_path) == 1
    assert_absent(tmp_path)


@on("spark-forking", "flink-forking", "prism-forking")
def test_the_place_of_the_output_on_an_engine(
    place: Place, question: list[str], tmp_path: Path
) -> None:
    """Full for the workers, full for the launcher, vanished; then a job that finds it in order."""
    url = f"sqlite:///{tmp_path / 'kept.db'}"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("d", epsilon=10.0, delta=1e-5, local_epsilon=10.0)
    with place.engine() as engine:
        question += engine.options
        full, vanished, in_order = (
            [*question, *charged_to(url), f"--run-id={i}"] for i in range(3)
        )

        (nursery,) = nurseries(engine)
        nursery.rlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
        assert run_to_the_end(full) == 1
        nursery.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        assert with_a_full_disk(question, 20) == 1
        assert with_a_vanishing_folder(vanished, tmp_path) == 1
        assert not (tmp_path / "out").exists()
        assert [ledger.state.charge(str(i)).status for i in range(2)] == ["reserved"] * 2

        assert run_to_the_end(in_order) == 0
        assert json.loads((tmp_path / "out" / "privacy.json").read_text())["num_reports"] == 4000
        assert ledger.state.charge("2").status == "settled"
        assert audit(ledger.rows()).clean
        (tmp_path / "kept.db").unlink()
        shutil.rmtree(tmp_path / "out")
        for left in tmp_path.glob(".out.staging-*"):  # of the charged ones, for `finalize`
            shutil.rmtree(left)
        assert_absent(tmp_path)


def run_to_the_end(question: list[str]) -> int:
    done = run_warm(*question[1:], timeout=SECONDS)
    print(done.stderr[-2000:])
    return done.returncode


FULL = """
import os, resource, sys
from beam_ldp.pipelines.frequency import main
size = int(sys.argv[1]) << 10
for stream in (1, 2):  # they are no files of the program
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
sys.exit(main(sys.argv[2:]))
"""


def with_a_full_disk(question: list[str], kilobytes: int) -> int:
    """Run it where no file of the program may grow beyond so much."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(FULL)
        script.flush()
        flags = question[len(PROGRAM) + 1 :]
        return run_warm(script.name, str(kilobytes), *flags, timeout=SECONDS).returncode


def with_a_vanishing_folder(question: list[str], folder: Path) -> int:
    over = threading.Event()

    def remove() -> None:
        while not over.wait(0.02):
            for staging in folder.glob(".out.staging-*"):
                shutil.rmtree(staging, ignore_errors=True)

    remover = threading.Thread(target=remove)
    remover.start()
    try:
        return run_warm(*question[1:], timeout=SECONDS).returncode
    finally:
        over.set()
        remover.join()
