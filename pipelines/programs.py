"""What every program does with its flags, whatever it does then: help, errors, exit codes.

A program is a module with a `Usage` and a function `run_given(given, console)` that gives its exit
code; flags and job files both end there.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from beam_ldp import log_events
from beam_ldp.pipelines.flags import Arguments, print_help, read_flags
from beam_ldp.pipelines.job_files import job_text
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.outputs import OutputError
from beam_ldp.pipelines.records.gates import NothingReleasedError
from beam_ldp.pipelines.usage import Usage
from beam_ldp.settings import SettingError

DONE, FAILED, MISUSED, NOTHING_RELEASED, INTERRUPTED = 0, 1, 2, 3, 130

RunGiven = Callable[[Arguments, Console], int]


def run_flags(usage: Usage, run_given: RunGiven, argv: Sequence[str] | None = None) -> int:
    """A program on the command line; the exit codes are in its `--help`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if (code := print_help(usage, argv)) is not None:
        return code
    console = Console(stderr=True)
    try:
        given = read_flags(usage, argv)
    except SettingError as error:
        return refused(usage, console, error)
    except KeyboardInterrupt:
        return failed(console, INTERRUPTED, "interrupted")
    return run_told(usage, run_given, given, console)


def run_told(usage: Usage, run_given: RunGiven, given: Arguments, console: Console) -> int:
    """A program as it was told, by flags or a job file; what went wrong is said on `console`."""
    if given.action("print_job"):
        print(job_text(usage, given), end="")
        return DONE
    try:
        return run_given(given, console)
    except (SettingError, OutputError) as error:
        return refused(usage, console, error)
    except NothingReleasedError as error:
        log_events.say(log_events.NOTHING_RELEASED, program=usage.name)
        return failed(console, NOTHING_RELEASED, str(error))
    except JobError as error:
        log_events.say(log_events.FAILED, program=usage.name)
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
    console.print(f"[red]{escape(message)}[/red]", soft_wrap=True)
    return code
