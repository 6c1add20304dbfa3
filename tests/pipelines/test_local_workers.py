"""Questions to a dead worker process are answered; the whole program is in tests/engines."""

from __future__ import annotations

import io
import threading
from types import SimpleNamespace

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from rich.console import Console

from beam_ldp.release import job_monitor as watch
from beam_ldp.release.job_monitor import (
    DIED,
    answer_for_the_dead,
    explain,
    fail_with_dead_workers,
)


@pytest.mark.exact
def test_what_waits_and_what_comes_later_is_answered_with_an_error() -> None:
    connection = worker_handlers.ControlConnection()
    work = threading.Event()
    process = threading.Thread(target=work.wait, args=(100,))
    process.start()
    handler = SimpleNamespace(worker_thread=process, control_conn=connection)
    watch = threading.Thread(target=answer_for_the_dead, args=(handler,), daemon=True)
    watch.start()
    before = connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id="1"))
    assert not before.is_done()  # it lives
    work.set()
    assert before.get(100).error == DIED
    after = connection.push(beam_fn_api_pb2.InstructionRequest(instruction_id="2"))
    assert after.get(100).error == DIED
    connection.close()
    watch.join(100)
    assert not watch.is_alive()


@pytest.mark.exact
def test_a_worker_that_calls_after_the_end_is_told_to_end() -> None:
    """One that is still starting when another dies: Beam closes its connection, and joins it."""
    servicer = worker_handlers.BeamFnControlServicer(worker_manager=None)
    context = SimpleNamespace(invocation_metadata=lambda: [("worker_id", "late")])
    asked: list[object] = []

    def work() -> None:
        closed.wait(100)
        asked.extend(servicer.Control(iter(()), context))  # ends when it is told to

    closed = threading.Event()
    process = threading.Thread(target=work, daemon=True)
    process.start()
    connection = servicer.get_conn_by_worker_id("late")
    handler = SimpleNamespace(worker_thread=process, control_conn=connection)
    fail_with_dead_workers()
    connection.close()
    closed.set()
    end = threading.Thread(
        target=worker_handlers.SubprocessSdkWorkerHandler.stop_worker, args=(handler,), daemon=True
    )
    end.start()
    end.join(100)
    assert not end.is_alive() and not process.is_alive() and not asked


@pytest.mark.exact
def test_the_reason_is_told_in_one_line() -> None:
    assert explain(RuntimeError(DIED)).startswith("a worker process ended")


@pytest.mark.exact
def test_watching_twice_is_watching_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr("beam_ldp.release.job_monitor._start", started.append)
    handler = SimpleNamespace(
        worker_thread=threading.Thread(target=int),
        control_conn=SimpleNamespace(_state=worker_handlers.BeamFnControlServicer.DONE_STATE),
    )
    handler.worker_thread.start()
    fail_with_dead_workers()
    fail_with_dead_workers()
    worker_handlers.SubprocessSdkWorkerHandler.start_worker(handler)
    assert started == [handler]


@pytest.mark.exact
@pytest.mark.parametrize("mode", ["multi_processing", "in_memory"])
def test_a_beam_that_was_not_tested_is_left_as_it_is(
    mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = worker_handlers.SubprocessSdkWorkerHandler
    for version in ("2.76.0", "2.78.0", "3.0.0"):
        monkeypatch.setattr("apache_beam.__version__", version)
        monkeypatch.setattr(handler, "start_worker", theirs := lambda _: None)
        assert not fail_with_dead_workers() and handler.start_worker is theirs
    shown = Console(file=io.StringIO())
    job = SimpleNamespace(
        options=PipelineOptions([f"--direct_running_mode={mode}"]),
        run=lambda: SimpleNamespace(wait_until_finish=lambda: "DONE"),
    )
    watch.run(job, shown, "nothing")
    assert ("3.0.0" in shown.file.getvalue()) == (mode == "multi_processing")


@pytest.mark.exact
def test_the_beam_that_is_pinned_was_tested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_handlers.SubprocessSdkWorkerHandler, "start_worker", None)
    assert fail_with_dead_workers()
    assert worker_handlers.SubprocessSdkWorkerHandler.start_worker is watch._start_in_sight
