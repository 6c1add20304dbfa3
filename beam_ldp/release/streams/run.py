"""A stream as it runs: watched until its budget is used, its time is over, or somebody ends it."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineState
from rich.console import Console
from rich.live import Live

from beam_ldp.release import outputs, terminal
from beam_ldp.release.beam_job import JobOptions, plugin_flags
from beam_ldp.release.gates import NothingReleasedError, say_left_out
from beam_ldp.release.job_monitor import (
    JobError,
    bounded,
    explain,
    fail_with_dead_workers,
    rows_read,
    state_of,
)
from beam_ldp.release.streams.job import Stream
from beam_ldp.release.streams.log import StreamLog, StreamProgress
from beam_ldp.release.streams.results import (
    OPENED,
    LeftOut,
    begin,
    forget_unfinished,
    leave_note,
)
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import MAX_BAD_ROWS
from beam_ldp.settings.streaming import Streaming

UNREADABLE = "stopped before the next window"  # why a stream ended that lost too many rows
FEW = 100  # rows that cannot be read, of which no share is known yet
LOOK_EVERY = 0.5  # seconds between two looks at the results
ASK_EVERY = 1.0  # seconds between two questions about the job
LAST_LOOK = 2.0  # seconds in which a stopped job may still finish a file


def execute(job: Stream, beam_flags: Sequence[str], console: Console) -> dict[str, Any]:
    """Run until it ends; what came out, as `--format json` prints it. `ended` says why.

    Raises:
        SettingError, NothingReleasedError: where it is not begun.
        JobError: if the job fails.
    """
    pipeline = _pipeline(job, beam_flags)
    begin(job.folder, job.identity, job.run_id, marked=job.stream.period is not None)
    leave_note(job.folder, job.note())
    watched = StreamProgress(job.folder, job.windows, job.job.privacy.delta)
    log, left_out = StreamLog(job, console), LeftOut(job.folder)
    why, state = "", dict[str, Any]()

    def too_many() -> str:
        return _too_many(left_out, state["result"], job.job.source.max_bad_rows)

    try:
        why = _watch(pipeline, watched, log, job.stream, console, state, too_many)
    finally:
        watched.look()
        if has_ended(state):
            job.give_back(console)
        elif job.budget is not None:
            console.print(
                "[yellow]warning:[/yellow] the job may still run: all that it reserved stays "
                "charged. End it, then `beam-ldp finalize OUT --ended` gives back what is unused"
            )
        if has_ended(state, 0.0):
            forget_unfinished(job.folder)
        if job.budget is None:  # else they go with the last of what was reserved
            shutil.rmtree(job.folder / OPENED, ignore_errors=True)
        log.end(watched, failed=not why)
        left_out.look()
        say_left_out(left_out.rows, console)
    console.print(f"{why}: {watched.summary()}", soft_wrap=True, highlight=False)
    return _as_json(job, watched, log, why)


def _pipeline(job: Stream, flags: Sequence[str]) -> beam.Pipeline:
    """The pipeline, built: its budget is reserved. Raises SettingError and NothingReleasedError."""
    try:
        pipeline = beam.Pipeline(options=JobOptions(_beam_flags(flags)))
    except ValueError as error:
        raise SettingError(str(error)) from None
    if job.budget is None:
        job.build(pipeline)
        return pipeline
    from beam_ldp.ledger import BudgetExceededError, LedgerMissingError, LedgerUnavailableError

    try:
        job.build(pipeline)
        job.note_attempt()
    except BudgetExceededError as error:
        raise NothingReleasedError(str(error)) from None
    except (ValueError, LedgerMissingError, LedgerUnavailableError) as error:
        raise SettingError(str(error)) from None
    return pipeline


def _beam_flags(flags: Sequence[str]) -> list[str]:
    """Beam's flags; without a runner Prism, the one that streams on a laptop."""
    found = [*flags, "--streaming", *plugin_flags()]
    if not any(flag.split("=", 1)[0] == "--runner" for flag in flags):
        found.append("--runner=PrismRunner")
    binary = shutil.which("prism")
    if binary and not any(flag.startswith("--prism_location") for flag in flags):
        found.append(f"--prism_location={binary}")
    return found


def _watch(
    pipeline: beam.Pipeline,
    watched: StreamProgress,
    log: StreamLog,
    stream: Streaming,
    console: Console,
    state: dict[str, Any],
    too_many: Callable[[], str],
) -> str:
    """Run until the budget is used, the time is over, too many rows cannot be read, or Ctrl-C; why
    it ended.

    What is written is complete. Windows that are open then are not released.

    Raises:
        JobError: if the job fails.
    """
    why, started = "", time.monotonic()
    fail_with_dead_workers()
    try:
        state["result"] = bounded(pipeline.run())  # in this thread: Prism sets signal handlers
    except Exception as error:
        raise JobError(explain(error)) from error
    # An event: Python 3.11 takes a thread whose `join` Ctrl-C interrupted for ended.
    state["over"] = over = threading.Event()
    threading.Thread(target=_wait, args=(state,), daemon=True, name="beam-job").start()
    try:
        with _shown(watched, console) as refresh:
            while not why and not over.wait(LOOK_EVERY):
                if new := watched.look():
                    refresh()
                log.take(watched.new_steps())
                if watched.is_used_up and not new:  # else groups of the last window may come
                    why = "the budget's releases are used"
                elif said := too_many():
                    why = f"{UNREADABLE}: {said}"
                elif stream.stop_after and time.monotonic() - started > stream.stop_after:
                    why = "stopped after the time that was given"
    except KeyboardInterrupt:
        why = "stopped by Ctrl-C"
    if "error" in state:
        raise JobError(explain(state["error"])) from state["error"]
    _stop(state)
    return why or "the job ended"


def _too_many(left_out: LeftOut, result: Any, most: float | None) -> str:
    """Why no further window may be released; "" where it may, or where too little is known."""
    if not left_out.look() or left_out.rows.unreadable.total() < FEW:
        return ""
    seen = rows_read(result)
    return left_out.rows.too_many(seen, MAX_BAD_ROWS if most is None else most) if seen else ""


def _wait(state: dict[str, Any]) -> None:
    """Ask for the job's state until it has ended. To listen instead would end with the time limit
    of the job server's calls, and end the workers with it."""
    result = state["result"]
    try:
        while "stopping" not in state and not PipelineState.is_terminal(state_of(result)):
            time.sleep(ASK_EVERY)
        if "stopping" not in state:
            result.wait_until_finish()  # raises what the job failed with
    except BaseException as error:
        if "stopping" not in state:
            state["error"] = error
    finally:
        state["over"].set()


def _stop(state: dict[str, Any]) -> None:
    """Cancel the job, if it has not ended, and wait until no worker writes any more."""
    state["stopping"] = True
    if not state["over"].is_set():
        try:
            state["result"].cancel()
        except Exception as error:  # it ended by itself in the meantime
            state["cancelled"] = error
    state["over"].wait(LAST_LOOK)


def has_ended(state: dict[str, Any], seconds: float = 60.0) -> bool:
    """Whether the job is known to run no more; a job that never began has ended.

    Only then may a budget be given back: a job that goes on would randomize uncharged.
    """
    if "result" not in state:
        return True
    until = time.monotonic() + seconds
    try:
        while not PipelineState.is_terminal(state["result"].state):
            if time.monotonic() > until:
                return False
            time.sleep(min(seconds, ASK_EVERY))
    except Exception:  # nobody answers, so nobody knows
        return False
    return True


@contextmanager
def _shown(watched: StreamProgress, console: Console) -> Iterator[Any]:
    """A live table where there is a terminal; else a line per change."""
    if not console.is_terminal:
        yield lambda: console.print(watched.summary(), soft_wrap=True, highlight=False)
        return
    with Live(watched.render(), console=console, refresh_per_second=4) as live:
        yield lambda: live.update(watched.render())


def _as_json(job: Stream, watched: StreamProgress, log: StreamLog, why: str) -> dict[str, Any]:
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": str(job.folder),
        "ended": why,
        "releases": watched.released,
        "late_releases": watched.late,
        "withheld": watched.withheld,
        "sums": watched.sums,
        "budget_windows": watched.budget_windows,
        "epsilon": watched.epsilon,
        "delta": watched.delta,
        "local_epsilon": watched.local_epsilon if watched.epsilon is not None else None,
        "charged": job.budget is not None,
        "run_id": None if job.budget is None else job.budget.run_id,
        **terminal.logged_as_json(log.logged),
    }
