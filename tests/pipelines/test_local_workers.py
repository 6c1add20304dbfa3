"""Questions to a dead worker process are answered; the whole program is in tests/engines."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers

from beam_ldp.pipelines.jobs.watch import (
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
    monkeypatch.setattr("beam_ldp.pipelines.jobs.watch._start", started.append)
    handler = SimpleNamespace(
        worker_thread=threading.Thread(target=int),
        control_conn=SimpleNamespace(_state=worker_handlers.BeamFnControlServicer.DONE_STATE),
    )
    handler.worker_thread.start()
    fail_with_dead_workers()
    fail_with_dead_workers()
    worker_handlers.SubprocessSdkWorkerHandler.start_worker(handler)
    assert started == [handler]
