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
from beam_ldp.pipelines.flags import Arguments, print_help, read_flags
from beam_ldp.pipelines.job_files import job_text
from beam_ldp.pipelines.jobs.watch import JobError
from beam_ldp.pipelines.outputs import OutputError
from beam_ldp.pipelines.records.gates import NothingReleasedError
from beam_ldp.pipelines.usage import Usage
from beam_ldp.settings import SettingError

DONE, FAILED, MISUSED, NOTHING_RELEASED, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass(frozen=True)
class Program:
    """A program of `beam-ldp`.

    Attributes:
        usage: the settings that it takes, and its help.
        run: what it does as it was told, with a console for errors; gives the exit code.
        check: what `beam-ldp check` looks at, a `checks.Job`; raises SettingError.
    """

    usage: Usage
    run: Callable[[Arguments, Console], int]
    check: Callable[[Arguments], Any]

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
        if given.action("print_job"):
            print(job_text(self.usage, given), end="")
            return DONE
        try:
            return self.run(given, console)
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
