"""`beam-ldp run job.yaml`: any program, as a job file says."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.job_files import job_schema, read_job, usage_of

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
        import json

        print(json.dumps(job_schema(), indent=2))
        return DONE
    from rich.console import Console

    from beam_ldp.pipelines import programs

    console = Console(stderr=True)
    try:
        flags, only = _without_only(argv[1:])
        jobs = _only(read_job(argv[0], flags), only)
    except UsageError as error:
        return programs.failed(console, MISUSED, f"error: {error}")
    for i, (name, given) in enumerate(jobs):
        if i and given.action("print_job"):
            print("---")
        module = importlib.import_module(f"beam_ldp.pipelines.{name}")
        code = programs.run_told(usage_of(name), module.run_given, given, console)
        if code != DONE:
            return code
    return DONE


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
    """The release that is asked for alone, with its own share. Raises UsageError."""
    if only is None:
        return jobs
    kept = [(name, given) for name, given in jobs if name == only.replace("-", "_")]
    if not kept:
        raise UsageError(f"--only must be one of {', '.join(name for name, _ in jobs)}")
    return kept


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
