"""A worker process of Beam's local runner that dies ends its job.

Beam 2.77 waits for ever for the answers of a dead worker process. Here every question to it is
answered with an error, so that the job fails, and nothing is released. It also waits for ever for
the end of a worker that had not yet called when the job failed, and so was not told: here it is.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers

DIED = "WorkerError: a worker process ended in the middle of the job; was memory short?"
_LOOK_EVERY = 0.2  # seconds
_start = worker_handlers.SubprocessSdkWorkerHandler.start_worker
_stop = worker_handlers.SubprocessSdkWorkerHandler.stop_worker


def fail_with_dead_workers() -> None:
    """Let all later jobs of the local runner with several processes do so."""
    worker_handlers.SubprocessSdkWorkerHandler.start_worker = _start_in_sight
    worker_handlers.SubprocessSdkWorkerHandler.stop_worker = _stop_when_it_calls


def _start_in_sight(handler: Any) -> None:
    _start(handler)
    threading.Thread(
        target=answer_for_the_dead, args=(handler,), daemon=True, name="beam-worker-watch"
    ).start()


def _stop_when_it_calls(handler: Any) -> None:
    """The first thing that a worker hears which calls after its connection was closed: end."""
    handler.control_conn.push(worker_handlers.BeamFnControlServicer._DONE_MARKER)
    _stop(handler)


def answer_for_the_dead(handler: Any) -> None:
    """Wait until the process of a worker ends, then answer in its place until the job does."""
    handler.worker_thread.join()
    connection = handler.control_conn
    while connection._state != worker_handlers.BeamFnControlServicer.DONE_STATE:
        for name, future in list(connection._futures_by_id.items()):
            future.set(beam_fn_api_pb2.InstructionResponse(instruction_id=name, error=DIED))
        time.sleep(_LOOK_EVERY)
