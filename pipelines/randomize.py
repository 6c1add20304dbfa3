"""`beam-ldp randomize`: what devices run, for a file of people's values.

The same program as `python -m beam_ldp.pipelines.randomize`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines import job, outputs, results, terminal, watch
from beam_ldp.pipelines.flags import COMMON, DATA, MECHANISM, OUTPUT, PRICE, Groups
from beam_ldp.pipelines.frequency import FLAGS as FREQUENCY
from beam_ldp.pipelines.frequency import FrequencySettings, check_column, load_domain
from beam_ldp.pipelines.gates import NothingReleasedError, gate_bad_rows
from beam_ldp.pipelines.groups import GROUP_FLAGS
from beam_ldp.pipelines.numeric import NUMBER_FLAGS
from beam_ldp.pipelines.options import ReleaseOptions, UsageError, help_text, parse_flags
from beam_ldp.pipelines.oracle_choice import oracle_for
from beam_ldp.pipelines.run import DONE, FAILED, MISUSED, NOTHING_RELEASED
from beam_ldp.pipelines.settings import check_common, need
from beam_ldp.pipelines.sources import BAD_ROWS, ROWS, TEXT_COLUMN, ReadTable
from beam_ldp.pipelines.statement import number
from beam_ldp.pipelines.statement_words import WEAK_LOCAL_EPSILON
from beam_ldp.pipelines.watch import JobError
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.wire import ReleaseTerms
from beam_ldp.transforms import BoundContributions, EncodeRows, Randomize, WriteReports
from beam_ldp.transforms.carried import CarriedDomain
from beam_ldp.transforms.report_files import SUFFIX

TERMS = "release.json"
_REPORTS = "reports"  # folder beside the output, while the job runs
_COPY_BYTES = 1 << 22

FLAGS: Groups = {
    DATA: {
        **{
            name: how for name, how in FREQUENCY[DATA].items()
            if name not in (*GROUP_FLAGS, *NUMBER_FLAGS)
        },
        "--column": {"metavar": "NAME", "help": "column that holds the value (not for text)"},
        "--domain": {"metavar": "FILE", "help": "public list of values, one per line"},
        "--bad-rows": {
            **FREQUENCY[DATA]["--bad-rows"],
            "help": "rows that cannot be used: left out and counted here, or reported as `other` "
            "without a trace",
        },
    },
    "the price": {
        "--local-epsilon": COMMON[PRICE]["--local-epsilon"],
    },
    MECHANISM: {
        "--mechanism": FREQUENCY[MECHANISM]["--mechanism"],
        "--max-bits": COMMON[MECHANISM]["--max-bits"],
        "--release-id": {
            "metavar": "NAME",
            "help": "names this release; a new name each time, or old reports count again",
        },
        "--memoize-key-file": COMMON[MECHANISM]["--memoize-key-file"],
        "--seed": COMMON[MECHANISM]["--seed"],
    },
    OUTPUT: {
        "--output": {
            "metavar": "DIR", "help": "new folder for the reports and release.json",
        },
        "--dataset": COMMON[OUTPUT]["--dataset"],
        "--format": COMMON[OUTPUT]["--format"],
        "--config": COMMON[OUTPUT]["--config"],
    },
}  # fmt: skip
ReleaseOptions.learn(FLAGS)

SUMMARY = (
    "Runs what a device runs, for a file of people's values: every value is randomized and packed. "
    "Reports and release.json may leave this machine; nothing else is written. `beam-ldp collect` "
    "counts them."
)
USAGE = (
    "--input PATH --column NAME --domain FILE --local-epsilon EPS0 --release-id NAME "
    "--output DIR [...]"
)
EXAMPLES = """examples:
  where the values are
    beam-ldp randomize --input values.csv --column url --domain urls.txt --local-epsilon 3 \\
        --release-id week-47 --output reports
  where the reports go
    beam-ldp collect --reports 'reports/*' --release reports/release.json --domain urls.txt \\
        --delta 1e-8 --min-reports 9e5 --output out

exit codes: 0 done; 1 the run failed; 2 a flag or an input is wrong, nothing was read;
            3 nothing was written (no row could be used, or too many could not)
"""

# The flags of the other programs that mean nothing here: no price is stated, nothing is released.
_NOT_HERE: dict[str, Any] = {
    "epsilon": None, "max_local_epsilon": None, "strict": False, "honest_fraction": 1.0,
    "expected_users": None, "min_reports": 1, "shuffle_output": "statistic", "scope": "batch",
    "ledger": None, "no_ledger": True, "privacy_unit": "user", "run_id": None,
    "overwrite": False, "only_plan": False, "mlflow_uri": None, "mlflow_experiment": "",
    "no_mlflow": True, "top": 1, "staged": None, "budget_windows": None, "people_store": None,
    "people_key_file": None,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RandomizeSettings(FrequencySettings):
    """The flags of `randomize`, checked."""

    @property
    def doing(self) -> str:
        return "reading and randomizing"


def check(values: argparse.Namespace) -> RandomizeSettings:
    """The settings, with every rule checked. Raises UsageError."""
    need(values, "input", "domain", "local_epsilon", "release_id", "output")
    for name, value in _NOT_HERE.items():
        setattr(values, name, value)
    column = values.column or TEXT_COLUMN
    settings = check_common(values, RandomizeSettings, shuffled=False, column=column)
    check_column(values, settings.input_format)
    if FileSystems.exists(settings.output):
        raise UsageError(
            f"--output {settings.output} exists: reports go into a new folder, for people whose "
            "values are randomized twice pay twice"
        )
    return settings


def execute(
    settings: RandomizeSettings, beam_flags: Sequence[str], console: Console
) -> dict[str, Any]:
    """Read, randomize, pack, write; what was done, for `--format json`.

    Raises:
        UsageError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if nothing was written.
    """
    folder = outputs.OutputFolder(settings.output)
    domain = load_domain(settings.domain, settings.other_label)
    oracle = oracle_for(settings, domain.size, settings.planned_reports)
    simulated = settings.seed is not None
    terms = ReleaseTerms(oracle, str(settings.release_id), domain.digest, simulated)
    console.print(
        f"{type(oracle).__name__}, local epsilon {number(oracle.local_epsilon)}, "
        f"{oracle.bits_per_report} bits per report",
        style="dim", highlight=False,
    )  # fmt: skip
    with folder.staging() as staging:
        result = _run(settings, terms, beam_flags, staging, console)
        reasons = _reasons(staging)
        gate_bad_rows(reasons.total(), settings)
        written = _listed(f"{staging}/{_REPORTS}/*{SUFFIX}")
        if not written:
            raise NothingReleasedError(
                f"nothing was written: no row could be used{_most_often(reasons)}"
            )
        with folder.writing() as writer:
            for path in written:
                _copy(path, writer)
            writer.put(TERMS, outputs.as_json(terms.to_json()))
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": folder.path,
        "release": terms.to_json(),
        "local_epsilon": None if simulated else oracle.local_epsilon,
        "num_reports": watch.counter(result, "reports_written"),
        "num_bad_rows": reasons.total() if settings.bad_rows_leave_a_trace else None,
        "bad_rows": dict(reasons) if settings.bad_rows_leave_a_trace else None,
        "files": len(written),
        "warnings": _warnings(settings, oracle),
    }


def _run(
    settings: RandomizeSettings,
    terms: ReleaseTerms,
    beam_flags: Sequence[str],
    staging: str,
    console: Console,
) -> Any:
    """The pipeline, to its end."""
    try:
        pipeline = beam.Pipeline(
            options=PipelineOptions(job.pipeline_flags(settings, list(beam_flags)))
        )
    except ValueError as error:
        raise UsageError(str(error)) from None
    values, bad_rows = _encoded(pipeline, settings)
    randomness: dict[str, Any] = {
        "memoize_key_file": settings.memoize_key_file,
        "release_id": settings.release_id,
        "dataset": settings.dataset,
        "seed": settings.seed,
    }
    if settings.user_id is not None:
        values = values | "Bound" >> BoundContributions(**randomness)
    reports = values | "Randomize" >> Randomize(terms.randomizer, **randomness)
    reports | "WriteReports" >> WriteReports(f"{staging}/{_REPORTS}", terms)
    bad_rows | "AllBadRows" >> beam.Flatten() | "WriteBadRows" >> results.WriteBadRows(staging)
    files = f"{settings.num_files:,} file{'s' if settings.num_files != 1 else ''}"
    return watch.run(pipeline, console, f"{settings.doing} {files}")


def _encoded(pipeline: beam.Pipeline, settings: RandomizeSettings) -> tuple[Any, tuple[Any, ...]]:
    """The rows as indices, and the bad rows."""
    bad_rows: Literal["dead_letter", "other"] = (
        "dead_letter" if settings.bad_rows_leave_a_trace else "other"
    )
    table = pipeline | "Read" >> ReadTable(
        settings.input,
        settings.input_format,  # type: ignore[arg-type]
        settings.column,
        settings.user_id,
        bad_rows=bad_rows,
        delimiter=settings.csv_delimiter,
    )
    values = table[ROWS] | "Encode" >> EncodeRows(
        CarriedDomain(settings.domain, settings.other_label),
        settings.column,
        user_id_column=settings.user_id,
        bad_rows=bad_rows,
    )
    return values, (table[BAD_ROWS], values.bad_rows)


def _reasons(staging: str) -> Counter[str]:
    """How many rows could not be used, by reason. Where they stand is nobody's business but this
    machine's, so nothing of them is written beside the reports."""
    lines = b"".join(results.bad_row_parts(staging)).splitlines()
    return Counter(json.loads(line)["reason"] for line in lines)


def _most_often(reasons: Counter[str]) -> str:
    return f" (most often: {reasons.most_common(1)[0][0]})" if reasons else ""


def _warnings(settings: RandomizeSettings, oracle: FrequencyOracle) -> list[str]:
    found = []
    if settings.seed is not None:
        found.append("simulated with a seed: no privacy guarantee")
    elif oracle.local_epsilon > WEAK_LOCAL_EPSILON:
        found.append(
            f"local epsilon is {number(oracle.local_epsilon)}: whoever sees a report learns its "
            "value almost surely"
        )
    if settings.user_id is None:
        found.append(settings.persons_unknown)
    return found


def _listed(pattern: str) -> list[str]:
    return sorted(file.path for file in FileSystems.match([pattern])[0].metadata_list)


def _copy(path: str, writer: outputs.FolderWriter) -> None:
    """One file from the workers' folder into the output."""
    name = path.rsplit("/", 1)[-1]
    source = FileSystems.open(path, "application/octet-stream", "uncompressed")
    with source, writer.open(name) as target:
        while piece := source.read(_COPY_BYTES):
            target.write(piece)


def show(done: dict[str, Any], console: Console) -> None:
    """What was done, for people."""
    terms = done["release"]
    reports = f"{done['num_reports']:,} reports" if done["num_reports"] else "reports"
    console.print(
        f"[bold]{reports}[/bold] of release {escape(terms['release_id'])}, "
        f"{terms['bits_per_report']} bits each"
    )
    for reason, count in (done["bad_rows"] or {}).items():
        console.print(f"  {count:,} rows could not be used: {reason}")
    console.print(f"[bold]Written to[/bold] {escape(done['output'])}", soft_wrap=True)
    console.print(f"  reports-*{SUFFIX}  [dim]packed reports: they may leave this machine[/dim]")
    console.print(f"  {TERMS}   [dim]what the collector needs to know; public[/dim]")


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or any(flag in ("-h", "--help") for flag in argv):
        print(help_text("beam-ldp randomize", SUMMARY, USAGE, EXAMPLES, FLAGS))
        return DONE if argv else MISUSED
    console = Console(stderr=True)
    try:
        values, arguments = parse_flags(argv, FLAGS)
        settings = check(values)
        done = execute(settings, arguments, console)
    except (UsageError, outputs.OutputError) as error:
        return _failed(console, MISUSED, f"error: {error}")
    except NothingReleasedError as error:
        return _failed(console, NOTHING_RELEASED, str(error))
    except JobError as error:
        return _failed(console, FAILED, f"error: {error}")
    for warning in done["warnings"]:
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
    if settings.format == "json":
        print(terminal.printed_json(done))
    else:
        show(done, Console())
    return DONE


def _failed(console: Console, code: int, message: str) -> int:
    console.print(f"[red]{escape(message)}[/red]", soft_wrap=True)
    return code


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.randomize import main as program

    sys.exit(program())
