"""What every program does with its flags, whatever it does then: help, errors, exit codes.

A program is a module with a `PROGRAM`; its `Usage`, which imports nothing heavy, names the module.
Flags and job files both end in `Program.run`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape

from beam_ldp import log_events
from beam_ldp.pipelines.flags import print_help, read_flags
from beam_ldp.release import checks, runner, terminal
from beam_ldp.release.binding import bound
from beam_ldp.release.commands import program_of as program_named
from beam_ldp.release.commands import usage_of
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.job import section_from
from beam_ldp.release.job_files import job_text
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.outputs import OutputError
from beam_ldp.release.run import Run, RunResult
from beam_ldp.release.tables import price_table
from beam_ldp.settings import SettingError
from beam_ldp.settings.streaming import STREAM, Streaming
from beam_ldp.settings.usage import Arguments, Usage

DONE, FAILED, MISUSED, NOTHING_RELEASED, INTERRUPTED = 0, 1, 2, 3, 130


Bind = Callable[[Usage, Arguments], Run]  # a release as it was asked for; raises SettingError


@dataclass(frozen=True)
class Program:
    """A program of `beam-ldp`.

    Attributes:
        usage: the settings that it takes, and its help.
        run: what it does as it was told, with a console for errors; gives the exit code.
        check: what `beam-ldp check` looks at, a `checks.Preflight`; raises SettingError.
        bind: the release that somebody asked for.
    """

    usage: Usage
    run: Callable[[Arguments, Console], int]
    check: Callable[[Arguments], Any]
    bind: Bind = bound

    def main(self, argv: Sequence[str] | None = None) -> int:
        """The program on the command line; the exit codes are in its `--help`."""
        argv = list(sys.argv[1:] if argv is None else argv)
        if (code := print_help(self.usage, argv)) is not None:
            return code
        console = Console(stderr=True)
        try:
            given = read_flags(self.usage, argv)
        except SettingError as error:
            return refused(self.usage, console, error)
        except KeyboardInterrupt:
            return failed(console, INTERRUPTED, "interrupted")
        return self.as_told(given, console)

    def as_told(self, given: Arguments, console: Console) -> int:
        """The program by flags or a job file; what went wrong is said on `console`."""
        try:
            if not given.action("print_job"):
                return self.run(given, console)
            if given.action("only_plan"):
                raise SettingError(
                    "--dry-run and --print-job exclude each other: a job file says what is run; "
                    "`beam-ldp run FILE --dry-run` runs nothing of it"
                )
            print(job_text(self.usage, given), end="")
            return DONE
        except (SettingError, OutputError) as error:
            return refused(self.usage, console, error)
        except NothingReleasedError as error:
            log_events.say(log_events.NOTHING_RELEASED, program=self.usage.name)
            return failed(console, NOTHING_RELEASED, str(error))
        except JobError as error:
            log_events.say(log_events.FAILED, program=self.usage.name)
            return failed(console, FAILED, f"error: {error}")
        except KeyboardInterrupt:
            return failed(console, INTERRUPTED, "interrupted")


def refused(usage: Usage, console: Console, error: Exception) -> int:
    """Say what does not fit; gives the exit code."""
    log_events.say(log_events.REFUSED, program=usage.name)
    said = error.said(usage.flag_of) if isinstance(error, SettingError) else error
    return failed(console, MISUSED, f"error: {said}")


def failed(console: Console, code: int, message: str) -> int:
    """Say why, in red; gives the exit code."""
    console.print(f"[red]{escape(message)}[/red]", soft_wrap=True, emoji=False)
    return code


def show(result: RunResult, console: Console) -> None:
    """Tables for people."""
    result.view.show(console)
    console.print(price_table(result.record))
    terminal.say_files(console, result.output, result.view.purposes)
    if result.bad_rows_file is not None:
        console.print(
            f"[bold]Bad rows[/bold] are listed in a private file: {escape(result.bad_rows_file)}"
        )
    terminal.say_logged(console, result.logged)


def program_of(
    usage: Usage,
    bind: Bind = bound,
    otherwise: Callable[[Arguments, Console], int | None] = lambda given, console: None,
) -> Program:
    """The program that makes a release.

    Args:
        usage: its settings, whose question says what is asked.
        bind: the release as it was asked for.
        otherwise: what it does where neither a release nor a stream is asked for; the exit code,
            or None where one is.
    """

    def run(given: Arguments, console: Console) -> int:
        if _is_streamed(usage, given):
            return run_stream(usage, given, console)
        code = otherwise(given, console)
        return run_and_show(bind(usage, given), given, console) if code is None else code

    def check(given: Arguments) -> checks.Preflight:
        if not _is_streamed(usage, given):
            return checks.Preflight.of(bind(usage, given), given.beam_flags)
        from beam_ldp.release.streams.job import stream_of

        return stream_of(usage, given).preflight(given.beam_flags)

    return Program(usage, run, check, bind)


def _is_streamed(usage: Usage, given: Arguments) -> bool:
    """Whether files keep arriving. Raises SettingError."""
    if STREAM not in usage.parts:
        return False
    stream = section_from(given, usage, "stream", Streaming)
    told = [name for name in given["stream"] if name != "on"]
    if told and not stream.on:
        raise SettingError(f"{usage.flag_of(f'stream.{told[0]}')} needs --stream")
    return bool(stream.on)


def run_stream(usage: Usage, given: Arguments, console: Console) -> int:
    """A stream as it was told; the exit codes are those of one release."""
    from beam_ldp.release.streams.job import stream_of
    from beam_ldp.release.streams.run import UNREADABLE, execute

    job = stream_of(usage, given)
    told = job.preflight(given.beam_flags)
    if job.job.only_plan:
        runner.say_plan(job.run, told)
        return DONE
    checks.check_first(told, console)
    runner.say_plan_line(job.run, console)
    found = execute(job, given.beam_flags, console)
    if job.job.output.format == "json":
        print(terminal.printed_json(found))
    return FAILED if found["ended"].startswith(UNREADABLE) else DONE


def run_and_show(run: Run, given: Arguments, errors: Console) -> int:
    """A release; what came out on stdout, everything else on `errors`."""
    result = runner.execute(run, given.beam_flags, errors)
    if result is not None and run.job.output.format == "json":
        print(terminal.printed_json(runner.as_json(result)))
    elif result is not None:
        show(result, Console())
    return DONE


def run_flags(
    program: Program,
    flags: Sequence[str],
    console: Console,
    truth: Any = None,
    shown: bool = True,
    bind: Bind | None = None,
) -> tuple[int, RunResult | None]:
    """A release by flags: its exit code, and the result where there is one.

    Args:
        program: which.
        flags: as on the command line.
        console: where progress, warnings and errors go, and the tables where `shown`.
        truth: what the estimate should be, where that is known.
        shown: print the result too.
        bind: the release, where it is not the program's own.
    """
    found: list[RunResult] = []
    asked = bind or program.bind

    def run(given: Arguments, console: Console) -> int:
        result = runner.execute(asked(program.usage, given), given.beam_flags, console, truth)
        if result is not None:
            found.append(result)
            if shown:
                show(result, console)
        return DONE

    try:
        given = read_flags(program.usage, flags)
    except SettingError as error:
        return refused(program.usage, console, error), None
    code = Program(program.usage, run, program.check).as_told(given, console)
    return code, (found[0] if code == DONE and found else None)


def checks_of(name: str, given: Arguments) -> list[checks.Finding]:
    """The checks of a program, by its name in job files, as it was told."""
    try:
        job = program_named(usage_of(name)).check(given)
    except checks.REFUSALS as error:
        return [checks.Finding("settings", "refused", str(error), error)]
    return [
        checks.Finding("settings", "ok", "each is known, and they fit together"),
        *checks.findings(job),
    ]


def exit_code(found: Sequence[checks.Finding]) -> int:
    """What the run itself would end with, as far as checks can tell: at the first refusal."""
    refused = [one.refusal for one in found if one.refusal is not None]
    if not refused:
        return DONE
    return NOTHING_RELEASED if isinstance(refused[0], NothingReleasedError) else MISUSED
