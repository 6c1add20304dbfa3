"""`beam-ldp frequency`: how often does each value of a public list occur?

The same program as `python -m beam_ldp.pipelines.frequency`. It parses flags, chooses the
mechanism, runs the pipeline, prices what was received, and writes the output as a whole.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from apache_beam.io.filesystems import FileSystems
from rich.console import Console
from rich.markup import escape

import beam_ldp
import mlflow_ldp
from beam_ldp.pipelines import outputs, results, terminal
from beam_ldp.pipelines.choice import Choice, choose
from beam_ldp.pipelines.gates import NothingReleasedError, gate_bad_rows, gate_price, gate_reports
from beam_ldp.pipelines.job import run_pipeline
from beam_ldp.pipelines.options import UsageError, help_text, parse_flags
from beam_ldp.pipelines.plots import TopList, plot_top, top_list
from beam_ldp.pipelines.price import Price, price_of
from beam_ldp.pipelines.record import PrivacyRecord
from beam_ldp.pipelines.settings import FrequencySettings, check
from beam_ldp.pipelines.statement import number, privacy_statement
from beam_ldp.pipelines.watch import JobError
from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.blocks import Release

DONE, FAILED, MISUSED, NOTHING_RELEASED = 0, 1, 2, 3


@dataclass(frozen=True)
class FrequencyResult:
    """What one run gave.

    Attributes:
        settings: what was asked for.
        release: the estimate, as it left the pipeline.
        labels: name of each value, `other` last.
        record: the privacy record.
        top: the most frequent values.
        output: where the files are.
        logged: the MLflow run, if there is one.
        choice: the mechanism and what was expected of it.
    """

    settings: FrequencySettings
    release: Release
    labels: tuple[str, ...]
    record: PrivacyRecord
    top: TopList
    output: str
    logged: Any
    choice: Choice


def execute(
    settings: FrequencySettings,
    beam_flags: Sequence[str],
    console: Console,
    truth: np.ndarray | None = None,
) -> FrequencyResult | None:
    """Plan, run, price, write, log. With `--dry-run` only the plan is printed: None.

    Args:
        settings: checked flags.
        beam_flags: all flags, for Beam.
        console: where progress and warnings go.
        truth: true counts per value, where they are known (simulations, tests).

    Raises:
        UsageError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if a gate was not passed; nothing was written.
    """
    folder = outputs.OutputFolder(settings.output, settings.overwrite)
    domain = load_domain(settings.domain, settings.other_label)
    choice = choose(settings, domain.size)
    if settings.only_plan:
        say_plan(settings, domain, choice)
        return None
    console.print(plan_line(choice), style="dim", highlight=False)
    with folder.staging() as staging:
        run_pipeline(settings, beam_flags, choice.randomizer, staging, console)
        releases, withheld = results.read_releases(staging)
        bad_rows = b"".join(results.bad_row_parts(staging))
        num_bad_rows = bad_rows.count(b"\n")
        release = gate_reports(releases, withheld, settings, bad_rows)
        gate_bad_rows(num_bad_rows, settings)
        price = price_of(release, settings.delta, settings.honest_fraction)
        warnings = gate_price(price, release, settings)
        for warning in warnings:
            console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
        record = make_record(settings, choice, release, price, num_bad_rows, warnings)
        top = top_list(
            release.estimate, domain.labels, settings.top, truth, leave_out=[domain.size - 1]
        )
        write(folder, settings, record, release, domain, top, bad_rows)
    logged = log_run(settings, folder, record, choice, release, truth, console)
    return FrequencyResult(
        settings, release, domain.labels, record, top, folder.path, logged, choice
    )


def load_domain(path: str, other: str) -> Domain:
    """The public list, from any file system that Beam knows."""
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            content = file.read()
    except Exception as error:
        raise UsageError(f"--domain {path}: cannot be read ({type(error).__name__})") from None
    try:
        return Domain.from_lines(content, other)
    except ValueError as error:
        hint = " (see --other-label)" if "other" in str(error) else ""
        raise UsageError(f"--domain {path}: {error}{hint}") from None


def plan_line(choice: Choice) -> str:
    """One line about what will run."""
    randomizer = choice.randomizer
    return (
        f"{type(randomizer).__name__}, local epsilon {number(randomizer.local_epsilon)}, "
        f"{randomizer.bits_per_report} bits per report; a rare value's count will be off by about "
        f"{choice.predicted_error * choice.num_reports:,.0f} of {choice.num_reports:,} people"
    )


def say_plan(settings: FrequencySettings, domain: Domain, choice: Choice) -> None:
    """What `--dry-run` prints, on stdout."""
    if settings.format == "json":
        print(terminal.printed_json(plan_as_json(settings, domain, choice)))
        return
    Console().print(terminal.plan_table(settings, domain.size, choice))


def plan_as_json(settings: FrequencySettings, domain: Domain, choice: Choice) -> dict[str, Any]:
    """The plan, for programs."""
    bound = None if choice.price is None else choice.price.bound
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "dry_run": True,
        "mechanism": choice.randomizer.to_config(),
        "domain_size": domain.size,
        "local_epsilon": None if bound is None else choice.randomizer.local_epsilon,
        "epsilon": None if bound is None else float(bound),
        "delta": settings.delta,
        "num_reports": choice.num_reports,
        "min_reports": settings.min_reports,
        "bits_per_report": choice.randomizer.bits_per_report,
        "predicted_standard_error": choice.predicted_error,
        "input_files": settings.num_files,
        "input_bytes": settings.input_bytes,
    }


def make_record(
    settings: FrequencySettings,
    choice: Choice,
    release: Release,
    price: Price,
    num_bad_rows: int,
    warnings: tuple[str, ...],
) -> PrivacyRecord:
    """What privacy.json will hold."""
    bound, randomizer = price.bound, choice.randomizer
    return PrivacyRecord(
        question=release.question,
        dataset=settings.dataset,
        mechanism=dict(release.mechanism),
        local_epsilon=None if release.simulated else randomizer.local_epsilon,
        epsilon=None if bound is None else float(bound),
        epsilon_lower=None if bound is None else _known(bound.lower),
        epsilon_class_lower=None if bound is None else _known(bound.class_lower),
        delta=settings.delta,
        method="none: simulation" if bound is None else str(bound.method),
        proof_status="none" if bound is None else str(bound.proof_status),
        num_reports=release.num_reports,
        num_bad_rows=num_bad_rows if settings.bad_rows == "dead-letter" else None,
        min_reports=settings.min_reports,
        honest_fraction=settings.honest_fraction,
        priced_reports=price.priced_reports,
        smallest_batch=release.smallest_batch,
        output=release.output,
        scope=settings.scope,
        user_id=settings.user_id,
        bad_rows=settings.bad_rows,
        exactness=randomizer.exactness,
        bits_per_report=randomizer.bits_per_report,
        memoized=settings.memoize_key_file is not None,
        release_id=settings.release_id,
        simulated=release.simulated,
        target_epsilon=settings.epsilon,
        expected_users=settings.expected_users,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=beam_ldp.__version__,
        warnings=warnings,
    )


def _known(lower: float) -> float | None:
    """A lower value; zero says that there is none."""
    return float(lower) if lower > 0 else None


def write(
    folder: outputs.OutputFolder,
    settings: FrequencySettings,
    record: PrivacyRecord,
    release: Release,
    domain: Domain,
    top: TopList,
    bad_rows: bytes,
) -> None:
    """All files of the output, as a whole."""
    table = outputs.estimate_table(
        release.estimate, domain.labels, release.question, release.group, release.window
    )
    with folder.writing() as writer:
        writer.put("estimates.csv", outputs.as_csv(table))
        writer.put("estimates.parquet", outputs.as_parquet(table))
        writer.put("privacy.json", outputs.as_json(record.to_json()))
        writer.put("privacy.md", privacy_statement(record).encode())
        writer.put("plot.png", plot_top(top, *captions(settings, record, top)))
        writer.put("bad_rows.jsonl", bad_rows)


def captions(settings: FrequencySettings, record: PrivacyRecord, top: TopList) -> tuple[str, str]:
    """Title and subtitle of the plot."""
    title = f"{settings.question}: the {len(top.labels)} most frequent values"
    if record.simulated:
        return title, f"{record.num_reports:,} simulated reports: no privacy guarantee"
    return title, (
        f"{record.num_reports:,} reports; epsilon = {number(record.epsilon)} at delta = "
        f"{record.delta:g} against readers of this plot, local epsilon = "
        f"{number(record.local_epsilon)}"
    )


def errors_against(release: Release, truth: np.ndarray) -> dict[str, float]:
    """How far the estimate is from a known truth: for simulations and tests."""
    estimate = release.estimate
    shares = np.asarray(truth, dtype=float) / max(1, release.num_reports)
    low, high = estimate.confidence_interval(outputs.LEVEL)
    off = estimate.value - shares
    return {
        "error.root_mean_square": float(np.sqrt(np.mean(off**2))),
        "error.largest": float(np.abs(off).max()),
        "error.intervals_that_hold": float(np.mean((low <= shares) & (shares <= high))),
    }


def tracking_uri(settings: FrequencySettings, folder: outputs.OutputFolder) -> str | None:
    """Where to log: the flag, MLflow's own environment variable, or a file beside the output."""
    if settings.mlflow_uri or os.environ.get("MLFLOW_TRACKING_URI"):
        return settings.mlflow_uri
    if not outputs.is_local(folder.path):
        return None
    return f"sqlite:///{Path(folder.path).parent / 'mlflow.db'}"


def log_run(
    settings: FrequencySettings,
    folder: outputs.OutputFolder,
    record: PrivacyRecord,
    choice: Choice,
    release: Release,
    truth: np.ndarray | None,
    console: Console,
) -> Any:
    """One MLflow run; a store that cannot be reached costs the log, never the release."""
    if settings.no_mlflow:
        return None
    if not mlflow_ldp.available():
        console.print("MLflow is not installed: the run was not logged", style="dim")
        return None
    metrics = {"error.predicted": choice.predicted_error}
    if truth is not None:
        metrics.update(errors_against(release, truth))
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with console.status("logging to MLflow"):
            return mlflow_ldp.log_release(
                record.to_json(),
                folder.path if outputs.is_local(folder.path) else None,
                tracking_uri=tracking_uri(settings, folder),
                experiment=settings.mlflow_experiment,
                run_name=f"frequency of {settings.question}",
                metrics=metrics,
            )
    except Exception as error:
        console.print(
            f"[yellow]warning:[/yellow] the run was not logged to MLflow ({type(error).__name__})"
        )
        return None


def as_json(result: FrequencyResult) -> dict[str, Any]:
    """What `--format json` prints."""
    top = result.top
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": result.output,
        "privacy": result.record.to_json(),
        "top": [
            {
                "value": label,
                "count": float(top.estimate[i]),
                "count_low_simultaneous": float(top.low[i]),
                "count_high_simultaneous": float(top.high[i]),
            }
            for i, label in enumerate(top.labels)
        ],
        "mlflow_run_id": result.logged.run_id if result.logged else None,
        "mlflow_uri": result.logged.tracking_uri if result.logged else None,
    }


def show(result: FrequencyResult, console: Console) -> None:
    """Tables for people."""
    caption = f"The {len(result.top.labels)} most frequent of {len(result.labels) - 1:,} values"
    console.print(terminal.top_table(result.top, caption))
    console.print(terminal.price_table(result.record))
    terminal.say_files(console, result.output, terminal.OUTPUT_FILES)
    if result.logged is not None:
        console.print(f"[bold]MLflow[/bold] run {result.logged.run_id}")
        console.print(f"  {result.logged.ui_command}", soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if not argv or any(flag in ("-h", "--help") for flag in argv):
        print(help_text())
        return DONE if argv else MISUSED
    errors = Console(stderr=True)
    code, result = run_flags(argv, errors, shown=False)
    if result is not None and result.settings.format == "json":
        print(terminal.printed_json(as_json(result)))
    elif result is not None:
        show(result, Console())
    return code


def run_flags(
    flags: Sequence[str], console: Console, truth: np.ndarray | None = None, shown: bool = True
) -> tuple[int, FrequencyResult | None]:
    """The program on flags: its exit code, and the result where there is one.

    Args:
        flags: as on the command line.
        console: where progress, warnings and errors go, and the tables where `shown`.
        truth: true counts per value, where they are known.
        shown: print the result too.
    """
    try:
        values, arguments = parse_flags(flags)
        result = execute(check(values), arguments, console, truth)
    except (UsageError, outputs.OutputError) as error:
        return _failed(console, MISUSED, f"error: {error}"), None
    except NothingReleasedError as error:
        return _failed(console, NOTHING_RELEASED, str(error)), None
    except JobError as error:
        return _failed(console, FAILED, f"error: {error}"), None
    if result is not None and shown:
        show(result, console)
    return DONE, result


def _failed(console: Console, code: int, message: str) -> int:
    console.print(f"[red]{escape(message)}[/red]", soft_wrap=True)
    return code


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.frequency import main as program

    sys.exit(program())
