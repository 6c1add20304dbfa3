"""Nothing hangs: jobs have a time limit, servers answer or are lost, children end with us."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apache_beam as beam
import grpc
import psutil
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_job_api_pb2 as messages
from apache_beam.portability.api import beam_job_api_pb2_grpc as services
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from apache_beam.runners.portability.portable_runner import PipelineResult
from apache_beam.utils import subprocess_server
from click.testing import CliRunner
from rich.console import Console

from beam_ldp.children import Child
from beam_ldp.ledger import BudgetLedger
from beam_ldp.pipelines import finalize, frequency, programs
from beam_ldp.release import job_monitor as watch
from beam_ldp.release.beam_job import IN_PROCESS_RUNNER
from beam_ldp.release.job_monitor import JobError
from beam_ldp.transforms import servers


class JobServer(services.JobServiceServicer):
    """A job that runs for ever, on a server that can be made to hang."""

    def __init__(self) -> None:
        self.hangs, self.cancelled, self.over = False, False, threading.Event()

    def _answer(self, answer: Any) -> Any:
        if self.hangs:
            self.over.wait()
        return answer

    def GetState(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(messages.JobStateEvent(state=messages.JobState.RUNNING))

    def GetJobMetrics(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self._answer(messages.GetJobMetricsResponse())

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.cancelled = not self.hangs
        return self._answer(messages.CancelJobResponse())


@contextmanager
def job_server() -> Iterator[tuple[JobServer, grpc.Server, PipelineResult]]:
    found, server = JobServer(), grpc.server(ThreadPoolExecutor(8))
    services.add_JobServiceServicer_to_server(found, server)
    port = server.add_insecure_port("localhost:0")
    server.start()
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        stub = services.JobServiceStub(channel)
        yield found, server, PipelineResult(stub, "job", iter(()), iter(()))
    found.over.set()
    server.stop(None)


def run(pipeline: beam.Pipeline, limit: float | None = None) -> None:
    watch.run(pipeline, Console(file=io.StringIO()), "work", limit=limit)


def in_process() -> beam.Pipeline:
    return beam.Pipeline(options=PipelineOptions([f"--runner={IN_PROCESS_RUNNER}"]))


@pytest.mark.exact
@pytest.mark.parametrize("how", ["killed", "hangs"])
def test_a_job_server_that_is_lost_ends_the_launcher(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its progress is asked for too, by a thread that must end as well."""
    for name, seconds in (("_CALL_SECONDS", 0.2), ("LOST_SECONDS", 0.4), ("_ASK_EVERY", 0.1),
                          ("_SEEN_AFTER", 0.1)):  # fmt: skip
        monkeypatch.setattr(watch, name, seconds)
    pipeline, began = in_process(), time.monotonic()
    with job_server() as (jobs, server, result):
        monkeypatch.setattr(pipeline, "run", lambda: result)

        def lose() -> None:
            if how == "killed":
                server.stop(None)
            else:
                jobs.hangs = True

        threading.Timer(0.3, lose).start()
        with pytest.raises(JobError, match="the job server no longer answers"):
            run(pipeline)
    assert time.monotonic() - began < 10


@pytest.mark.exact
@pytest.mark.parametrize("hangs", [False, True])
def test_a_job_beyond_its_time_limit_is_cancelled(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_CALL_SECONDS", 0.2)
    pipeline = in_process()
    with job_server() as (jobs, _, result):
        monkeypatch.setattr(pipeline, "run", lambda: result)
        jobs.hangs = hangs
        said = "could not be cancelled" if hangs else ", and was cancelled"
        with pytest.raises(JobError, match=rf"not done within --job-timeout \(0.5 s\).*{said}"):
            run(pipeline, limit=0.5)
        assert jobs.cancelled != hangs
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 60  # the limit of this test, which was there


@pytest.mark.pipeline
def test_a_local_job_has_a_time_limit_too() -> None:
    pipeline, began = in_process(), time.monotonic()
    pipeline | beam.Create([60.0]) | beam.Map(time.sleep)
    with pytest.raises(JobError, match="not done within --job-timeout"):
        run(pipeline, limit=0.3)
    assert time.monotonic() - began < 10


@pytest.fixture
def charged(tmp_path: Path) -> tuple[BudgetLedger, list[str]]:
    """A ledger, and the flags of a run that it grants."""
    url = f"sqlite:///{tmp_path}/l.db"
    ledger = BudgetLedger.create(url)
    ledger.set_budget("d", epsilon=3, delta=1e-5, local_epsilon=20)
    (tmp_path / "in.csv").write_text("id,x\n" + "".join(f"{i},{'ab'[i % 2]}\n" for i in range(200)))
    (tmp_path / "ab.txt").write_text("a\nb\n")
    return ledger, [
        f"--input={tmp_path}/in.csv", "--column=x", "--user-id=id", f"--domain={tmp_path}/ab.txt",
        "--local-epsilon=2", "--delta=1e-6", "--min-reports=100", "--dataset=d", "--no-mlflow",
        f"--output={tmp_path}/out", f"--ledger={url}",
    ]  # fmt: skip


@pytest.mark.e2e
def test_a_dead_endpoint_charges_nothing_and_the_same_command_runs_later(
    charged: tuple[BudgetLedger, list[str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 0.3)
    ledger, flags = charged
    with socket.create_server(("localhost", 0)) as silent:  # takes connections and says nothing
        port = silent.getsockname()[1]
        again = [*flags, "--runner=PortableRunner", f"--job_endpoint=localhost:{port}",
                 "--environment_type=LOOPBACK"]  # fmt: skip
        rows = len(ledger.rows())
        assert frequency.main(again) == programs.MISUSED
        assert len(ledger.rows()) == rows and "no server answered" in capsys.readouterr().err
    monkeypatch.undo()
    server = LocalJobServicer()
    server.start_grpc_server(port)
    assert frequency.main(again) == programs.DONE
    server.stop()
    assert ledger.status("d").spent > 0


@pytest.mark.e2e
@pytest.mark.parametrize("error", [None, KeyboardInterrupt, RuntimeError])
def test_a_run_that_failed_is_ended_by_finalize_and_runs_again(
    error: type[BaseException] | None,
    charged: tuple[BudgetLedger, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Timed out, interrupted or failed: charged, until finalize proves that nothing came out."""
    ledger, flags = charged

    def fails(self: beam.Pipeline) -> None:
        if error is not None:
            raise error
        time.sleep(60)

    with monkeypatch.context() as patched:
        patched.setattr(beam.Pipeline, "run", fails)
        code = frequency.main([*flags, "--job-timeout=300ms"])
    assert code == (programs.INTERRUPTED if error is KeyboardInterrupt else programs.FAILED)
    assert ledger.status("d").reserved > 0
    ended = CliRunner().invoke(finalize.finalize, [str(tmp_path / "out"), f"--ledger={ledger.url}"])
    assert ended.exit_code == 0 and ledger.status("d").reserved == ledger.status("d").spent == 0
    assert sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".")) == []
    assert frequency.main([*flags, "--job-timeout=5m"]) == programs.DONE


@pytest.mark.e2e
def test_a_child_ends_with_a_program_that_is_killed() -> None:
    """As do the job servers that Beam starts."""
    assert watch.fail_with_dead_workers()
    assert subprocess_server.subprocess.Popen is Child  # type: ignore[attr-defined]
    told = "from beam_ldp.children import Child\nimport time\n" \
           "print(Child(['sleep', '600']).pid, flush=True)\ntime.sleep(600)"  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", told], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        while "sleep" not in child.cmdline()[0]:  # it becomes it
            time.sleep(0.01)
        os.kill(parent.pid, signal.SIGKILL)
        child.wait(10)
