"""`beam-ldp frequency --stream`: windows of files that keep arriving, released one by one."""

from __future__ import annotations

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apache_beam as beam
from apache_beam.runners.runner import PipelineState
from apache_beam.transforms.window import FixedWindows, Sessions
from rich.console import Console
from rich.live import Live
from rich.markup import escape

from beam_ldp.launcher import Launcher
from beam_ldp.pipelines.frequency import Frequency
from beam_ldp.pipelines.programs import DONE, FAILED
from beam_ldp.pipelines.streams.log import StreamLog, StreamProgress
from beam_ldp.pipelines.streams.results import (
    OPENED,
    LeftOut,
    MarkOpenWindows,
    Pricing,
    WriteStreamBadRows,
    WriteWindows,
    WriteWithheldReleases,
    begin,
    forget_unfinished,
    give_back_rest,
    leave_note,
    run_that_goes_on,
)
from beam_ldp.pipelines.streams.source import WatchTable
from beam_ldp.pipelines.usage.frequency import USAGE, StreamSettings
from beam_ldp.release import outputs, runner, terminal
from beam_ldp.release.beam_job import JobOptions, plugin_flags
from beam_ldp.release.checks import Preflight, check_first
from beam_ldp.release.gates import NothingReleasedError, say_left_out
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS, ReadTable
from beam_ldp.release.interrupted_runs import Note
from beam_ldp.release.job import section_from
from beam_ldp.release.job_monitor import (
    JobError,
    bounded,
    explain,
    fail_with_dead_workers,
    rows_read,
    state_of,
)
from beam_ldp.release.reserving import ledger_url
from beam_ldp.settings import SettingError
from beam_ldp.settings.sections import MAX_BAD_ROWS
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms import ChargeTo, PrivateEstimate, SlidingSums, WindowRules
from beam_ldp.transforms.collector.panes import FirstReleases
from beam_ldp.transforms.device.keyed import read_key
from beam_ldp.transforms.elements.blocks import TableBlock
from beam_ldp.transforms.elements.portable import PortableDomain

UNREADABLE = "stopped before the next window"  # why a stream ended that lost too many rows
FEW = 100  # rows that cannot be read, of which no share is known yet
LOOK_EVERY = 0.5  # seconds between two looks at the results
ASK_EVERY = 1.0  # seconds between two questions about the job
LAST_LOOK = 2.0  # seconds in which a stopped job may still finish a file


_NOT_STREAMED = {
    "people": ("group_by", "groups"),
    "question": ("bins", "quantiles", "between", "fan_out", "staged"),
    "output": ("bad_rows_file", "job_timeout"),
    "release": ("people_store",),
}


def check_stream(given: Arguments) -> StreamSettings:
    """What a stream was told, with the rules checked that hold for streams.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    stream: StreamSettings = section_from(given, USAGE, "stream", StreamSettings)
    if stream.session_gap is not None and given["people"].get("id") is not None:
        raise SettingError("--session-gap and --user-id exclude each other: see docs/streaming.md")
    if (given["release"].get("windows") or 0) < 1:
        raise SettingError(
            "--budget-windows must be >= 1: the number of releases to reserve budget for"
        )
    if given["source"].get("format") == "text":
        raise SettingError("--stream needs a format with columns, which text has not")
    for home, names in _NOT_STREAMED.items():
        for name in names:
            if name in given[home]:
                flag = USAGE.flag_of(f"{home}.{name}")
                raise SettingError(f"{flag} cannot be used with --stream")
    if len(given["question"].get("column", ())) > 1:
        raise SettingError(
            "--column must be given once with --stream: several questions need input that is "
            "complete (docs/streaming.md)"
        )
    return stream


class Stream:
    """One job: its pipeline, its budget and its folder.

    Args:
        question: what is asked, with its checked flags.
        stream: the flags of the stream.
    """

    def __init__(self, question: Frequency, stream: StreamSettings) -> None:
        self.question = question
        self.stream = stream
        self.settings = question.settings
        self.windows = self.settings.charge.windows or 0  # releases that may happen
        self.folder = Path(self.settings.output.folder.removeprefix("file://")).absolute()
        self.choice = question.choose()
        self.domain = PortableDomain(
            self.settings.question.domains[0], self.settings.question.other
        )
        self.run_id = (
            self.settings.charge.run_id or f"{self.settings.dataset}-{uuid.uuid4().hex[:12]}"
        )
        try:
            self.identity = self._composite().identity
            if self.identity is not None and self.settings.noise.key_file is not None:
                key = read_key(self.settings.noise.key_file)
                self.identity = self.identity.committed(key)
        except ValueError as error:
            raise SettingError(str(error)) from None
        found = run_that_goes_on(self.folder, self.identity, self.settings.charge.run_id)
        self.run_id = found or self.run_id
        self.budget = self._budget()
        self.attempt = ""  # of the charge, once it is reserved

    def _composite(self) -> PrivateEstimate:
        settings, stream = self.settings, self.stream
        return PrivateEstimate(
            self.choice.mechanism,
            self.question.query,
            people=settings.people,
            shuffle=replace(settings.shuffle, min_reports=settings.min_reports),
            noise=settings.noise,
            privacy=settings.privacy.limits,
            privacy_unit=settings.charge.privacy_unit,
            budget=self._budget(),
            windows=WindowRules(
                late="release" if stream.late == "release" else "dead_letter",
                delay=stream.watermark_delay,
                public_bounds=stream.public_bounds,
            ),
        )

    def _budget(self) -> ChargeTo | None:
        url = ledger_url(self.settings)
        if url is None or self.settings.noise.seed is not None:
            return None
        return ChargeTo(
            self.settings.dataset,
            self.settings.charge.ledger,  # what the environment names, workers read there too
            run_id=self.run_id,
            quota=self.settings.charge.quota,
            windows=self.windows,
            honest_fraction=self.settings.privacy.honest_fraction,
            privacy_unit=self.settings.charge.privacy_unit,
            untracked="--no-mlflow" if self.settings.output.no_mlflow else "",
            trust_shuffler=self.settings.privacy.trust_shuffler,
        )

    def build(self, pipeline: beam.Pipeline) -> None:
        """All stages. The budget is reserved here, or refused."""
        settings, stream = self.settings, self.stream
        columns = (settings.question.name, stream.time_column)
        files = ReadTable(
            settings.source.paths,
            settings.source.format,  # type: ignore[arg-type]
            columns,
            settings.people.id,
            delimiter=settings.source.delimiter,
        ).of_paths()
        table = pipeline | "Read" >> WatchTable(
            settings.source.paths, files, stream.time_column, stream.period, stream.poll
        )
        windows: Any = (
            FixedWindows(stream.period) if stream.period else Sessions(stream.session_gap)
        )
        rows = table[ROWS] | "Windows" >> beam.WindowInto(
            windows, allowed_lateness=stream.allowed_lateness
        )
        if stream.period is not None:
            mark = beam.ParDo(MarkOpenWindows(str(self.folder)))
            rows = rows | "Mark opened" >> mark.with_output_types(TableBlock)
        released = rows | "PrivateFrequencies" >> self._composite()
        withheld, bad_values = [released.withheld], released.bad_rows
        if self.budget is None:  # no ledger counts
            released = released | "First" >> FirstReleases(self.windows)
            withheld.append(released.withheld)
        place = str(self.folder)
        local = self.choice.mechanism.local_epsilon
        pricing = Pricing(
            settings.privacy.delta,
            settings.privacy.honest_fraction,
            local,
            self.identity,
            settings.question.postprocess,  # type: ignore[arg-type]
        )
        released | "Write windows" >> WriteWindows(place, self.domain, pricing)
        if stream.slide is not None and stream.window is not None:
            sums = released | "Slide" >> SlidingSums(stream.window, stream.slide)
            sums | "Write sums" >> WriteWindows(place, self.domain, pricing)
        said = withheld | "All withheld" >> beam.Flatten()
        said | "Write withheld" >> beam.ParDo(WriteWithheldReleases(place))
        bad = {"columns": table[BAD_ROWS], "values": bad_values}
        for name, collection in bad.items():
            collection | f"Write bad {name}" >> beam.ParDo(WriteStreamBadRows(place))

    def note_attempt(self) -> None:
        """Keep which start of the run this is: one that was overtaken gives nothing back."""
        from beam_ldp.ledger import BudgetLedger

        assert self.budget is not None
        self.attempt = BudgetLedger(self.budget.url).charge(str(self.budget.run_id)).attempt

    def note(self) -> Note:
        """What says whose the stream is, if this launcher is lost."""
        from beam_ldp.ledger import BudgetLedger

        if self.budget is None:
            return Note("", "", False, Launcher.this())
        ledger_id = BudgetLedger(self.budget.url).ledger_id
        return Note(str(self.budget.run_id), ledger_id, False, Launcher.this(), None, self.attempt)

    def give_back(self, watched: StreamProgress, console: Console) -> None:
        """What no window used goes back into the budget; open windows keep their local part."""
        if self.budget is None:
            return
        from beam_ldp.ledger import BudgetLedger

        try:
            give_back_rest(
                BudgetLedger(self.budget.url),
                str(self.budget.run_id),
                str(self.folder),
                self.attempt,
            )
        except Exception as error:
            console.print(
                "[yellow]warning:[/yellow] the ledger could not be written "
                f"({type(error).__name__}): the rest of run {escape(str(self.budget.run_id))} "
                "stays charged until `beam-ldp budget abandon`"
            )


def run_stream(given: Arguments, console: Console) -> int:
    """The program as it was told; the exit codes are those of `frequency`."""
    stream = check_stream(given)
    question = Frequency(Frequency.check(given))
    _check_output(question)
    job = Stream(question, stream)
    told = _told(job, given.beam_flags)
    if question.settings.only_plan:
        runner.say_plan(question, job.choice, told)
        return DONE
    check_first(told, console)
    runner.say_plan_line(question, job.choice, console)
    pipeline = _pipeline(job, given.beam_flags)
    begin(job.folder, job.identity, job.run_id, marked=stream.period is not None)
    leave_note(job.folder, job.note())
    settings = question.settings
    watched = StreamProgress(job.folder, job.windows, settings.privacy.delta)
    log, left_out = StreamLog(job, console), LeftOut(job.folder)
    why, state = "", dict[str, Any]()

    def too_many() -> str:
        return _too_many(left_out, state["result"], settings.source.max_bad_rows)

    try:
        why = _watch(pipeline, watched, log, stream, console, state, too_many)
    finally:
        watched.look()
        if has_ended(state):
            job.give_back(watched, console)
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
    if settings.output.format == "json":
        print(terminal.printed_json(_as_json(job, watched, log, why)))
    return FAILED if why.startswith(UNREADABLE) else DONE


def to_check(given: Arguments) -> Preflight:
    """What `beam-ldp check` looks at. Raises SettingError."""
    stream = check_stream(given)
    question = Frequency(Frequency.check(given))
    _check_output(question)
    return _told(Stream(question, stream), given.beam_flags)


def _told(job: Stream, flags: Sequence[str]) -> Preflight:
    """What is checked first, of the files that are there; the output may be one that goes on."""
    told = Preflight.of(job.question, job.choice, flags)
    wanted = {**told.wanted, job.stream.time_column: USAGE.flag_of("stream.time_column")}
    return replace(told, wanted=wanted, is_new=False)


def _check_output(question: Frequency) -> None:
    settings = question.settings
    if not outputs.is_local(settings.output.folder):
        raise SettingError("--output must be a local folder with --stream")


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
    stream: StreamSettings,
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
                if watched.look():
                    refresh()
                log.take(watched.new_steps())
                if watched.is_used_up:
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
