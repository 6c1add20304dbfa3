"""`beam-ldp run`: the programs of a job file, one after the other."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from beam_ldp.pipelines.flags import read_flags
from beam_ldp.release.commands import program_of, usage_of
from beam_ldp.release.job_files import job_schema, read_job
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments

if TYPE_CHECKING:
    from rich.console import Console

HELP = """Usage: beam-ldp run JOB [FLAGS]

Runs what a job file says (YAML, TOML or JSON): the same as its program with flags. Flags after the
file's name win over it; Beam's own flags are understood too.

  source:  {parquet: "events/*.parquet"}
  people:  {id: uid}
  release: {dataset: telemetry, id: week-47, ledger: env}
  questions:
    - {frequency: url, domain: {file: urls.txt}}
  privacy: {epsilon: 1, delta: 1e-8, expected_users: 1e6}
  output:  {folder: out/}

Every setting is a flag of the program under another spelling: `beam-ldp frequency --help-all` lists
them, `beam-ldp frequency FLAGS --print-job` writes the file of a command, and --schema prints the
JSON Schema by which editors complete it.

examples:
  beam-ldp run job.yaml --dry-run
  beam-ldp run job.yaml --overwrite
  beam-ldp run job.yaml --only mean      (of questions of several kinds, one release with its share)
  beam-ldp run job.yaml --runner=SparkRunner --job_endpoint=host:8099 --environment_type=LOOPBACK
  beam-ldp run --schema > beam-ldp-job.schema.json

exit codes: those of the program
"""
DONE, MISUSED = 0, 2


def main(argv: Sequence[str]) -> int:
    """The command; the exit codes are those of the program that runs."""
    if not argv or argv[0] in ("-h", "--help", "--help-all"):
        print(HELP, end="")
        return DONE if argv else MISUSED
    if list(argv) == ["--schema"]:
        print(json.dumps(job_schema(), indent=2))
        return DONE
    from rich.console import Console

    from beam_ldp.pipelines import programs

    console = Console(stderr=True)
    try:
        jobs = jobs_to_run(argv[0], argv[1:])
    except SettingError as error:
        return programs.failed(console, MISUSED, f"error: {error}")
    if len(jobs) > 1 and (code := _check_all(jobs, console)) != DONE:
        return code
    if len(jobs) > 1 and all(given["output"].get("format") == "json" for _, given in jobs):
        return _run_as_one_object(jobs, console)
    for i, (name, given) in enumerate(jobs):
        if i and given.action("print_job"):
            print("---")
        if (code := _run_job(name, given, console)) != DONE:
            return code
    return DONE


def _check_all(jobs: list[tuple[str, Arguments]], console: Console) -> int:
    """Of several releases none is made where another one is refused; the exit code."""
    if any(given.action("print_job") or given.action("only_plan") for _, given in jobs):
        return DONE
    from beam_ldp.pipelines import programs

    found = [one for name, given in jobs for one in programs.checks_of(name, given)]
    for finding in found:
        if finding.refusal is not None:
            return programs.failed(console, programs.exit_code(found), f"error: {finding.said}")
    return DONE


def _run_job(name: str, given: Arguments, console: Console) -> int:
    code: int = program_of(usage_of(name)).as_told(given, console)
    return code


def _run_as_one_object(jobs: list[tuple[str, Arguments]], console: Console) -> int:
    """Several releases of one file, for a program: what each would print, in one object.

    Where one fails, those before it are told: they have been released.
    """
    told, code = list[Any](), DONE
    for name, given in jobs:
        printed = io.StringIO()
        with redirect_stdout(printed):
            code = _run_job(name, given, console)
        if code != DONE:
            break
        told.append({"program": name, **json.loads(printed.getvalue())})
    if told:
        print(json.dumps({"schema_version": 1, "jobs": told}, indent=2, ensure_ascii=False))
    return code


def jobs_to_run(path: str, flags: Sequence[str]) -> list[tuple[str, Arguments]]:
    """What `beam-ldp run` runs, each program with what it is told. Raises SettingError."""
    flags, only = _without_only(flags)
    return _only(read_job(path, lambda name: read_flags(usage_of(name), flags)), only)


def _without_only(flags: Sequence[str]) -> tuple[list[str], str | None]:
    """The flags of the program, and the kind of question that `--only` names."""
    rest, only, expected = list[str](), None, False
    for flag in flags:
        if expected or flag.startswith("--only="):
            only, expected = flag.removeprefix("--only="), False
        elif flag == "--only":
            expected = True
        else:
            rest.append(flag)
    return rest, "" if expected else only


def _only(jobs: list[tuple[str, Arguments]], only: str | None) -> list[tuple[str, Arguments]]:
    """The release that is asked for alone, with its own share. Raises SettingError."""
    if only is None:
        return jobs
    kept = [(name, given) for name, given in jobs if name == only.replace("-", "_")]
    if not kept:
        raise SettingError(f"--only must be one of {', '.join(name for name, _ in jobs)}")
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
