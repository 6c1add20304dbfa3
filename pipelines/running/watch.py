"""Running a pipeline in sight: elapsed time, rows where the runner counts them, clear errors."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
import grpc  # type: ignore[import-untyped]
from apache_beam.metrics.metric import MetricsFilter
from apache_beam.runners.portability.portable_runner import PipelineResult as PortableResult
from apache_beam.runners.runner import PipelineState
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from beam_ldp.pipelines.running.local_workers import fail_with_dead_workers

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
    fail_with_dead_workers()
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
