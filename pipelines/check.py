"""`beam-ldp check`: every check of a job, and nothing else. Beam is loaded where it is needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from beam_ldp.pipelines.flags import read_flags
from beam_ldp.pipelines.job_runs import jobs_to_run
from beam_ldp.release.commands import PROGRAMS, usage_or_none
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import nearest
from beam_ldp.settings.usage import Arguments

if TYPE_CHECKING:
    from beam_ldp.release import checks

DONE, MISUSED = 0, 2

HELP = """Usage: beam-ldp check JOB [FLAGS]
       beam-ldp check PROGRAM FLAGS...

What can be known to be wrong before a budget moves or a worker starts: settings, columns, types,
ids, lists, local epsilon, budget, output, and whether workers can reach the input. It takes what
`beam-ldp run JOB` or the program takes, writes and reserves nothing, and reads the footers of
Parquet files and the first 64 KB of others, of at most 32 files: 10 GB take as long as 10 kB.
Every run does the same first; --dry-run shows it below the plan.

PROGRAM is frequency, mean, user-mean, heavy-hitters, ab-test (that is, `ab-test run`), randomize,
collect, ab-test-decide, bandit-advance, bandit-collect or train. With --format json one object is
printed, with a list `checks` of {program, check, status, said}; status is ok, warning or refused.

examples:
  beam-ldp check job.yaml
  beam-ldp check job.yaml --epsilon 0.5 --format json
  beam-ldp check mean --input people.parquet --column age --range 0 120 ... (what `mean` takes)

exit codes: 0 nothing is refused (there may be warnings); 2 a flag, the input or the output is;
            3 the budget is too small: what the run itself would end with
"""


def main(argv: Sequence[str]) -> int:
    """The command."""
    if not argv or any(flag in ("-h", "--help", "--help-all") for flag in argv):
        print(HELP, end="")
        return DONE if argv else MISUSED
    from beam_ldp.fast_start import load_beam

    load_beam()
    from beam_ldp.pipelines import programs
    from beam_ldp.release import checks

    flags, form = _without_format(argv[1:])
    told: dict[str, list[checks.Finding]] = {}
    try:
        for name, given in _jobs(argv[0], flags):
            told[name] = programs.checks_of(name, given)
    except SettingError as error:
        told[argv[0]] = [checks.Finding("settings", "refused", str(error), error)]
    _show(told, form)
    return programs.exit_code([one for found in told.values() for one in found])


def _jobs(what: str, flags: Sequence[str]) -> list[tuple[str, Arguments]]:
    """The programs with what they are told, of a job file or of flags. Raises SettingError."""
    name = what.replace("-", "_")
    if "." not in what:
        if (usage := usage_or_none(name)) is not None:
            return [(name, read_flags(usage, flags))]
        known = [program.replace("_", "-") for program in PROGRAMS]
        raise SettingError(f"{what} is neither a job file nor a program{nearest(what, known)}")
    return jobs_to_run(what, flags)


def _without_format(flags: Sequence[str]) -> tuple[list[str], str]:
    """The other flags, and what `--format` says, which is of this command here."""
    rest, form = list(flags), "table"
    for i, flag in enumerate(flags):
        if flag in ("--format", "--format=json", "--format=table"):
            width = 2 if flag == "--format" else 1
            form = "".join(flags[i : i + width]).removeprefix("--format").lstrip("=")
            del rest[i : i + width]
            break
    return rest, form


def _show(told: Mapping[str, Sequence[checks.Finding]], form: str) -> None:
    """The checks of several programs on stdout, as a table each or as one object."""
    from rich.console import Console

    from beam_ldp.release import checks, terminal
    from beam_ldp.release.outputs import SCHEMA_VERSION

    if form != "json":
        for name, found in told.items():
            Console().print(checks.findings_table(found, f"Checks of {name.replace('_', '-')}"))
        return
    every = [
        {"program": name, **one}
        for name, found in told.items()
        for one in checks.findings_as_json(found)
    ]
    print(terminal.printed_json({"schema_version": SCHEMA_VERSION, "checks": every}))
