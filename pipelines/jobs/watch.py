"""Running a pipeline in sight: elapsed time, rows where the runner counts them, clear errors.

A worker process of Beam's local runner that dies ends its job here. Beam by itself waits for ever
for the answers of a dead worker process: every question to it is answered with an error instead, so
that the job fails, and nothing is released. Beam also waits for ever for the end of a worker that
had not yet called when the job failed, and so was not told: here it is.

A job server may know flags of its own, such as Flink's `--number_of_execution_retries`. Beam for
Python does not list them; it asks the job server when it sends a job. So does `flags_of`, and only
where a flag is unknown otherwise.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
import grpc  # type: ignore[import-untyped]
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.portability.portable_runner import PipelineResult as PortableResult
from apache_beam.runners.runner import PipelineState
from packaging.version import Version
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

_SEEN_AFTER = 2.0  # seconds
_ASK_EVERY = 1.0  # seconds between two questions to a job server; shorter ones at the beginning
_OUR_ERRORS = ("InputFileError", "MismatchError", "StageError", "UsageError", "ValueError",
               "WorkerError")  # fmt: skip


class JobError(RuntimeError):
    """The job did not finish. The message is one line and quotes no data."""


def run(pipeline: beam.Pipeline, console: Console, what: str) -> Any:
    """Run to the end and give the result; what takes longer than two seconds shows progress.

    Raises:
        JobError: if the job fails or ends in another state than DONE.
        KeyboardInterrupt: after the job was asked to stop.
    """
    if not fail_with_dead_workers():
        _say_untested(pipeline, console)
    beams_log = logging.getLogger("apache_beam.runners.common")
    beams_log.addFilter(_not_about_input)
    state: dict[str, Any] = {}
    over = threading.Event()
    # The job stays in this thread: Beam's job servers set signal handlers, which only the main one
    # may.
    watcher = threading.Thread(
        target=_watch, args=(over, state, console, what), name="beam-watch", daemon=True
    )
    watcher.start()
    try:
        state["result"] = result = pipeline.run()
        ended = _end_of(result)
    except KeyboardInterrupt:
        if "result" in state:
            state["result"].cancel()
        raise
    except Exception as error:
        raise JobError(explain(error)) from error
    finally:
        over.set()
        watcher.join()
        beams_log.removeFilter(_not_about_input)
    if ended not in ("DONE", None):
        raise JobError(f"the job ended in state {ended}; see the runner's log")
    return result


def _not_about_input(record: logging.LogRecord) -> bool:
    """Beam logs the stack of every error; a file that cannot be read is said in one line."""
    error = record.exc_info[1] if record.exc_info else None
    return type(error).__name__ != "InputFileError"


def _end_of(result: Any) -> str | None:
    """Wait for the end of a job; the state that it ended in.

    A job server is asked for the state. To listen instead, as Beam does, would end with the time
    limit of its calls (`--job_server_timeout`, 300 s) on Prism, and end the job's workers with it.
    """
    if not isinstance(result, PortableResult):
        return result.wait_until_finish() or result.state
    pause = _ASK_EVERY / 50
    while not PipelineState.is_terminal(state := result.state):
        time.sleep(pause)
        pause = min(_ASK_EVERY, 1.5 * pause)
    with _without_stacks_of_calls():
        try:
            result.wait_until_finish()  # raises what the job failed with; tidies up
        except grpc.RpcError:  # the time limit is over
            return state
    return state


@contextmanager
def _without_stacks_of_calls() -> Iterator[None]:
    """A thread of Beam's prints a stack when the call that it listens to has come to its limit."""
    before = threading.excepthook

    def hook(told: Any) -> None:
        if not isinstance(told.exc_value, grpc.RpcError):
            before(told)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = before


def _watch(over: threading.Event, state: dict[str, Any], console: Console, what: str) -> None:
    if over.wait(_SEEN_AFTER):
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
               TextColumn("{task.fields[rows]}"))  # fmt: skip
    started = time.monotonic() - _SEEN_AFTER
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, rows="")
        while not over.wait(0.25):
            rows = counter(state.get("result"), "rows_read")
            if rows:
                progress.update(task, rows=f"{rows:,} rows")
    console.print(f"{what}: {time.monotonic() - started:.1f} s", style="dim")


def counter(result: Any, name: str) -> int:
    """Sum of a counter of ours over all steps, committed where the runner says; 0 if unknown."""
    if result is None:
        return 0
    try:
        found = result.metrics().query(MetricsFilter().with_namespace("beam_ldp").with_name(name))[
            "counters"
        ]
    except Exception:  # some runners have no metrics, or none yet
        return 0
    return sum(int(c.result or 0) for c in found)


def explain(error: BaseException) -> str:
    """One line about why a job failed. Only messages of our own errors are shown: they quote no
    data, which cannot be said of every library."""
    text = str(error)
    for name in _OUR_ERRORS:
        found = re.findall(rf"(?:^|[\s.']){name}: (.+?)(?: \[while running|\\n|\n|$)", text)
        if found:
            return str(found[-1]).strip().strip("'\"")
    if type(error).__name__ in _OUR_ERRORS:
        return text.split(" [while running")[0]
    return f"the job failed with {type(error).__name__}; the runner's log says where"


DIED = "WorkerError: a worker process ended in the middle of the job; was memory short?"
_LOOK_EVERY = 0.2  # seconds
_TESTED_BEAM = Version("2.77"), Version("2.78")  # from the first on, below the second
_start = worker_handlers.SubprocessSdkWorkerHandler.start_worker
_stop = worker_handlers.SubprocessSdkWorkerHandler.stop_worker


def fail_with_dead_workers() -> bool:
    """Let all later jobs of the local runner with several processes do so.

    This reaches into Beam, so it is done for the versions that it was tested with alone. Another
    one is left as it is.

    Returns:
        Whether it was done.
    """
    if not _TESTED_BEAM[0] <= Version(beam.__version__) < _TESTED_BEAM[1]:
        return False
    worker_handlers.SubprocessSdkWorkerHandler.start_worker = _start_in_sight
    worker_handlers.SubprocessSdkWorkerHandler.stop_worker = _stop_when_it_calls
    return True


def _say_untested(pipeline: beam.Pipeline, console: Console) -> None:
    """What a user of several local processes has to know of a Beam that was left as it is."""
    if pipeline.options.view_as(DirectOptions).direct_running_mode == "multi_processing":
        console.print(
            f"[yellow]warning:[/yellow] Apache Beam {beam.__version__} is newer than what this was "
            "tested with: should a worker process die, the job may never end "
            "(--direct_running_mode=in_memory runs without such processes)",
            soft_wrap=True,
        )


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


ANSWER_SECONDS = 10


def job_endpoint(arguments: Sequence[str]) -> str | None:
    """`host:port` of `--job_endpoint`, where it is given."""
    found = None
    for i, argument in enumerate(arguments):
        if argument == "--job_endpoint" and i + 1 < len(arguments):
            found = arguments[i + 1]
        elif argument.startswith("--job_endpoint="):
            found = argument.split("=", 1)[1]
    return found


def flags_of(endpoint: str, seconds: float = ANSWER_SECONDS) -> dict[str, dict[str, Any]]:
    """The flags of a job server, for argparse, by name; none if it does not answer.

    Args:
        endpoint: its `host:port`.
        seconds: how long to wait for the answer.
    """
    from apache_beam.portability.api import beam_job_api_pb2 as messages
    from apache_beam.portability.api import beam_job_api_pb2_grpc as services

    with grpc.insecure_channel(endpoint) as channel:
        try:
            answer = services.JobServiceStub(channel).DescribePipelineOptions(
                messages.DescribePipelineOptionsRequest(), timeout=seconds, wait_for_ready=True
            )
        except grpc.RpcError:
            return {}
    switch = messages.PipelineOptionType.BOOLEAN
    several = messages.PipelineOptionType.ARRAY
    return {
        f"--{option.name}": {
            "action": "store_true" if option.type == switch
            else "append" if option.type == several
            else "store"
        }
        for option in answer.options
    }  # fmt: skip
