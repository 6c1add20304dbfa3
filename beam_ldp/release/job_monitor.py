"""Running a pipeline in sight: elapsed time, rows and bytes where the runner tells, clear errors.

Job servers are asked for counters while a job runs. Beam's local runner knows them too, and tells
nobody: so its bundles are asked here, once a second. On a terminal they become a line that changes,
elsewhere a line every half minute.

A worker process of Beam's local runner that dies ends its job here. Beam by itself waits for ever
for the answers of a dead worker process: every question to it is answered with an error instead, so
that the job fails, and nothing is released. Beam also waits for ever for the end of a worker that
had not yet called when the job failed, and so was not told: here it is.

A job server that stops answering ends its job here too: Beam waits without a limit for the answers
to most of its calls.

A job server may know flags of its own, such as Flink's `--number_of_execution_retries`. Beam for
Python does not list them; it asks the job server when it sends a job. So does `flags_of`, and only
where a flag is unknown otherwise.
"""

from __future__ import annotations

import logging
import re
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import grpc  # type: ignore[import-untyped]
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.metrics.monitoring_infos import (
    NAME_LABEL,
    NAMESPACE_LABEL,
    USER_COUNTER_URN,
    extract_counter_value,
)
from apache_beam.options.pipeline_options import DirectOptions
from apache_beam.portability.api import beam_fn_api_pb2
from apache_beam.portability.api import beam_job_api_pb2 as messages
from apache_beam.portability.api import beam_job_api_pb2_grpc as services
from apache_beam.runners.portability.fn_api_runner import fn_runner, worker_handlers
from apache_beam.runners.portability.portable_runner import PipelineResult as PortableResult
from apache_beam.runners.runner import PipelineState
from apache_beam.utils import subprocess_server
from packaging.version import Version
from rich.console import Console
from rich.filesize import decimal
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from beam_ldp.children import Child
from beam_ldp.release.inputs.sources import BAD_LINES, BYTES_READ, METRICS
from beam_ldp.transforms.servers import describe_options

_SEEN_AFTER = 2.0  # seconds
_SAID_EVERY = 30.0  # seconds between two lines where there is no terminal
_ASK_EVERY = 1.0  # seconds between two questions to a job server; shorter ones at the beginning
_CALL_SECONDS = 10.0  # that a job server has for an answer
LOST_SECONDS = 30.0  # without an answer, after which a job server is taken for lost
_OUR_ERRORS = ("InputFileError", "MismatchError", "StageError", "UnseenFileError", "SettingError",
               "ValueError", "WorkerError")  # fmt: skip


class JobError(RuntimeError):
    """The job did not finish. The message is one line and quotes no data."""


def run(
    pipeline: beam.Pipeline,
    console: Console,
    what: str,
    input_bytes: int = 0,
    limit: float | None = None,
) -> Any:
    """Run to the end and give the result; what takes longer than two seconds shows progress.

    Args:
        pipeline: to run.
        console: where progress is shown.
        what: is done, in words.
        input_bytes: of all that is read, 0 if that is not known: for the share that is done.
        limit: seconds after which the job is cancelled, `--job-timeout`; kept in the main thread
            alone, which is where programs run.

    Raises:
        JobError: if the job fails, ends in another state than DONE, is not done within the limit,
            or its server no longer answers.
        KeyboardInterrupt: after the job was asked to stop.
    """
    if not fail_with_dead_workers():
        _say_untested(pipeline, console)
    beams_log = logging.getLogger("apache_beam.runners.common")
    beams_log.addFilter(_not_about_input)
    _told.clear()
    state: dict[str, Any] = {}
    over = threading.Event()
    # The job stays in this thread: Beam's job servers set signal handlers, which only the main one
    # may.
    watcher = threading.Thread(
        target=_watch,
        args=(over, state, console, what, input_bytes),
        name="beam-watch",
        daemon=True,
    )
    watcher.start()
    is_late = threading.Event()
    try:
        with _time_limit(limit, is_late):
            state["result"] = result = bounded(pipeline.run())
            ended = _end_of(result)
    except BaseException as error:
        if is_late.is_set():  # whatever Beam made of that
            said = f"the job was not done within --job-timeout ({limit:g} s)"
            raise JobError(said + _cancelled(state.get("result"))) from None
        if isinstance(error, KeyboardInterrupt) and "result" in state:
            state["result"].cancel()
        if isinstance(error, Exception):
            raise JobError(explain(error)) from error
        raise
    finally:
        over.set()
        watcher.join()
        beams_log.removeFilter(_not_about_input)
    if ended not in ("DONE", None):
        raise JobError(f"the job ended in state {ended}; see the runner's log")
    return result


class _TimeOverError(BaseException):
    """The time limit is over. As an interrupt is, it is no `Exception` that Beam may swallow."""


def _cancelled(result: Any) -> str:
    """Cancel a job, if it was handed over; what to say of that."""
    if result is None:
        return ", and was ended here"
    try:
        result.cancel()
    except Exception as error:
        return f", and could not be cancelled ({type(error).__name__}): it may still run"
    return ", and was cancelled"


@contextmanager
def _time_limit(seconds: float | None, is_late: threading.Event) -> Iterator[None]:
    """Raise `_TimeOverError` in the block once so many seconds are over, wherever it waits."""
    if seconds is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        is_late.set()
        raise _TimeOverError

    began, handler = time.monotonic(), signal.signal(signal.SIGALRM, stop)
    before, _ = signal.setitimer(signal.ITIMER_REAL, seconds, _ASK_EVERY)
    try:
        yield
    finally:
        left = max(0.01, before - (time.monotonic() - began)) if before else 0.0
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, left)  # of another limit around this one


class _Bounded:
    """A job server's calls, each with a time limit: Beam gives them none."""

    def __init__(self, stub: Any) -> None:
        self._stub = stub

    def __getattr__(self, name: str) -> Any:
        return partial(getattr(self._stub, name), timeout=_CALL_SECONDS)


def bounded(result: Any) -> Any:
    """The result of a job, whose questions to a job server end within a time limit."""
    if isinstance(result, PortableResult) and isinstance(
        result._job_service, services.JobServiceStub
    ):
        result._job_service = _Bounded(result._job_service)
    return result


def state_of(result: Any) -> str:
    """The state of a job; a server that does not answer is asked again for a while.

    Raises:
        grpc.RpcError: if it does not answer for `LOST_SECONDS`.
    """
    until = time.monotonic() + LOST_SECONDS
    while True:
        try:
            return str(result.state)
        except grpc.RpcError:
            if time.monotonic() > until:
                raise
        time.sleep(_ASK_EVERY)


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
    while not PipelineState.is_terminal(state := state_of(result)):
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


def _watch(
    over: threading.Event, state: dict[str, Any], console: Console, what: str, input_bytes: int
) -> None:
    if over.wait(_SEEN_AFTER):
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(),
               TextColumn("{task.fields[read]}"))  # fmt: skip
    started = said = time.monotonic() - _SEEN_AFTER
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as on:
        task, read = on.add_task(what, read=""), ""
        while not over.wait(_ASK_EVERY):
            read = progress_line(state.get("result"), input_bytes)
            on.update(task, read=read)
            if not console.is_terminal and time.monotonic() - said > _SAID_EVERY:
                said = time.monotonic()
                console.print(f"{what}: {said - started:.0f} s, {read}".rstrip(", "), style="dim",
                              soft_wrap=True)  # fmt: skip
    read = progress_line(state.get("result"), input_bytes)
    done = f"{what}: {time.monotonic() - started:.1f} s, {read}".rstrip(", ")
    console.print(done, style="dim", soft_wrap=True)


def progress_line(result: Any, input_bytes: int) -> str:
    """Rows and bytes that were read so far, as far as the runner tells; "" if it does not.

    Args:
        result: of the job, or None where it is not known yet.
        input_bytes: of all that is read, or 0.
    """
    rows, done = counter(result, "rows_read"), counter(result, BYTES_READ, METRICS)
    found = [f"{rows:,} rows"] if rows else []
    if done and input_bytes:
        share = min(1.0, done / input_bytes)
        found.append(f"{decimal(done)} of {decimal(input_bytes)} ({share:.0%})")
    elif done:
        found.append(decimal(done))
    return ", ".join(found)


def counter(result: Any, name: str, namespace: str = "beam_ldp") -> int:
    """Sum of a counter of ours over all steps, committed where the runner says; 0 if unknown."""
    if result is None:
        return sum(counts.get((namespace, name), 0) for counts in list(_told.values()))
    try:
        found = result.metrics().query(MetricsFilter().with_namespace(namespace).with_name(name))[
            "counters"
        ]
    except Exception:  # some runners have no metrics, or none yet
        return 0
    return sum(int(c.result or 0) for c in found)


def rows_read(result: Any) -> int:
    """All rows that were read, those included that do not come apart; 0 if unknown."""
    return counter(result, "rows_read") + counter(result, BAD_LINES, METRICS)


# What bundles of the local runner have told: by bundle, by namespace and name of a counter.
_told: dict[str, dict[tuple[str, str], int]] = {}


class _Asking(fn_runner.ProgressRequester):
    """Asks a bundle for its counters, once a second from the first second on."""

    def __init__(self, worker: Any, instruction_id: str, frequency: float | None) -> None:
        super().__init__(worker, instruction_id, frequency or _ASK_EVERY)
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(self._frequency):
            with suppress(Exception):  # the bundle, or its worker, may end meanwhile
                asked = beam_fn_api_pb2.ProcessBundleProgressRequest(
                    instruction_id=self._instruction_id
                )
                request = beam_fn_api_pb2.InstructionRequest(process_bundle_progress=asked)
                answer = self._worker_handler.control_conn.push(request).get()
                _told[self._instruction_id] = _counts(answer.process_bundle_progress)

    def stop(self) -> None:
        self._over.set()


def _push_in_sight(handler: Any, request: Any) -> Any:
    """A worker in this process gives no answer before its bundle is done, but can be asked."""
    if request.WhichOneof("request") != "process_bundle":
        return _push(handler, request)
    with _Asking(handler, request.instruction_id, None):
        return _push(handler, request)


def _counts(progress: Any) -> dict[tuple[str, str], int]:
    found: Counter[tuple[str, str]] = Counter()
    for info in progress.monitoring_infos:
        if info.urn == USER_COUNTER_URN:
            where = info.labels[NAMESPACE_LABEL], info.labels[NAME_LABEL]
            found[where] += extract_counter_value(info)
    return dict(found)


def explain(error: BaseException) -> str:
    """One line about why a job failed. Only messages of our own errors are shown: they quote no
    data, which cannot be said of every library."""
    text = str(error)
    for name in _OUR_ERRORS:
        found = re.findall(rf"(?:^|[\s.']){name}: (.+?)(?: \[while running|\\n|\n|$)", text)
        if found:
            return str(found[-1]).strip().strip("'\"")
    if isinstance(error, (grpc.RpcError, grpc.FutureTimeoutError)):
        return "the job server no longer answers; whether the job still runs is not known"
    if type(error).__name__ in _OUR_ERRORS:
        return text.split(" [while running")[0]
    return f"the job failed with {type(error).__name__}; the runner's log says where"


DIED = (
    "WorkerError: a worker process ended in the middle of the job. The usual cause is that memory "
    "ran out: run fewer workers (--direct_num_workers) or give the machine more memory"
)
_LOOK_EVERY = 0.2  # seconds
_TESTED_BEAM = Version("2.77"), Version("2.78")  # from the first on, below the second
_start = worker_handlers.SubprocessSdkWorkerHandler.start_worker
_stop = worker_handlers.SubprocessSdkWorkerHandler.stop_worker
_push = worker_handlers.EmbeddedWorkerHandler.push
_SUBPROCESS = SimpleNamespace(Popen=Child, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)


def fail_with_dead_workers() -> bool:
    """Let all later jobs of the local runner with several processes do so, and end with this
    program the job servers that Beam starts for it: a Java with Spark or Flink, or Prism.

    This reaches into Beam, so it is done for the versions that it was tested with alone. Another
    one is left as it is.

    Returns:
        Whether it was done.
    """
    if not _TESTED_BEAM[0] <= Version(beam.__version__) < _TESTED_BEAM[1]:
        return False
    worker_handlers.SubprocessSdkWorkerHandler.start_worker = _start_in_sight
    worker_handlers.SubprocessSdkWorkerHandler.stop_worker = _stop_when_it_calls
    fn_runner.ProgressRequester = _Asking
    worker_handlers.EmbeddedWorkerHandler.push = _push_in_sight
    subprocess_server.subprocess = _SUBPROCESS
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


def job_endpoint(arguments: Sequence[str]) -> str | None:
    """`host:port` of `--job_endpoint`, where it is given."""
    found = None
    for i, argument in enumerate(arguments):
        if argument == "--job_endpoint" and i + 1 < len(arguments):
            found = arguments[i + 1]
        elif argument.startswith("--job_endpoint="):
            found = argument.split("=", 1)[1]
    return found


def flags_of(endpoint: str) -> dict[str, dict[str, Any]]:
    """The flags of a job server, `host:port`, for argparse, by name.

    Raises:
        NoServerError: if it does not answer.
    """
    switch = messages.PipelineOptionType.BOOLEAN
    several = messages.PipelineOptionType.ARRAY
    return {
        f"--{option.name}": {
            "action": "store_true" if option.type == switch
            else "append" if option.type == several
            else "store"
        }
        for option in describe_options(endpoint)
    }  # fmt: skip
