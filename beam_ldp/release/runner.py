"""What every program does with its question: plan, run, gates, price, record, files, log, show."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError
from rich.console import Console
from rich.markup import escape

import beam_ldp
import mlflow_ldp
from beam_ldp import log_events
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.prices import Price
from beam_ldp.fast_start import load_mlflow
from beam_ldp.questions.base import View
from beam_ldp.questions.pictures import png
from beam_ldp.questions.tables import as_csv
from beam_ldp.release import beam_job, checks, outputs, publishing, reserving, terminal
from beam_ldp.release.charging import NoCharge, kept_if_it_fails, spent_unless_settled
from beam_ldp.release.gates import (
    gate_bad_rows,
    gate_price,
    of_all_publications,
    say_left_out,
    weak_warnings,
)
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.run import Run, RunResult
from beam_ldp.release.statement import statement
from beam_ldp.release.tables import plan_table
from beam_ldp.release.worker_results import WorkerResults
from beam_ldp.settings import Output
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.wording import number, promise


def execute(
    run: Run, beam_flags: Sequence[str], console: Console, truth: Any = None
) -> RunResult | None:
    """Plan, run, price, write, log. With `--dry-run` only the plan is printed: None.

    Args:
        run: what is asked, with its checked job.
        beam_flags: all flags, for Beam.
        console: where progress and warnings go.
        truth: what the estimate should be, where that is known (simulations, tests).

    Raises:
        SettingError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if a gate was not passed; nothing was written.
    """
    job = run.job
    folder = outputs.OutputFolder(job.output.folder, job.output.overwrite)
    bad_rows_file = outputs.bad_rows_path(folder.path, job.output.bad_rows_file)
    preflight = checks.Preflight.of(run, beam_flags)
    if job.only_plan:
        say_plan(run, preflight)
        return None
    checks.check_first(preflight, console)
    say_plan_line(run, console)
    charge = _reserve(run)
    with spent_unless_settled(charge, console), folder.staging() as staging:
        here = beam_job.ends_with_launcher(job, beam_flags)
        charge.leave_note(staging, ends_with_launcher=here, overwrite=job.output.overwrite)
        with kept_if_it_fails(charge, folder, staging, elsewhere=not here):
            found = run.collect(beam_flags, staging, console)
        charge.num_reports = found.num_reports
        release = run.gate(found)
        charge.check_people(release.num_reports)
        of_people = preflight.reader is not None
        left_out = gate_bad_rows(found.bad_rows, found.num_rows, job, of_people)
        price = charge.price(run.price(release), release, found, run.choice.mechanism)
        warnings = (*run.warnings(release), *gate_price(price, release, job))
        for warning in warnings:
            console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
        record = make_record(run, release, price, found, warnings, charge.facts)
        view = run.view(release, truth)
        run.conclude(view)
        list_bad_rows(bad_rows_file, found.bad_rows)
        finish(folder, record, view)
        publishing.release(charge, record, folder, staging)
    _say_released(run, record)
    say_left_out(left_out, console, record.num_reports if record.user_id else None)
    count_people(charge, console)
    logged = log_run(run, folder, record, view, charge, console)
    listed = bad_rows_file if found.bad_rows else None
    return RunResult(run, view, record, folder.path, logged, listed)


def _reserve(run: Run) -> NoCharge:
    """Set the worst case aside, before anything is read."""
    charge = run.uncharged()
    if charge is None:
        charge = reserving.reserve(
            run.job,
            run.worst_price,
            run.asked.name,
            identity=run.identity,
            same_reports=run.memoized,
            run_id=run.run_id,
        )
    if "run_id" in charge.facts:
        log_events.say(log_events.RESERVED, program=run.name, run_id=charge.facts["run_id"])
    _say_started(run)
    run.people, run.publication = charge.people, charge.publication
    return charge


def _say_released(run: Run, record: PrivacyRecord) -> None:
    log_events.say(
        log_events.RELEASED,
        program=run.name,
        num_reports=record.num_reports,
        num_bad_rows=record.num_bad_rows,
        epsilon=record.epsilon,
        delta=record.delta,
    )


def _say_started(run: Run) -> None:
    mechanism, simulated = run.choice.mechanism, run.job.noise.simulated
    promised = math.isfinite(mechanism.local_epsilon)
    log_events.say(
        log_events.STARTED,
        program=run.name,
        mechanism=type(mechanism).__name__,
        local_epsilon=None if simulated or not promised else mechanism.local_epsilon,
        bits_per_report=mechanism.bits_per_report,
        num_files=run.job.num_files,
    )


def count_people(charge: NoCharge, console: Console) -> None:
    """Count what each person was charged; a ledger that is away leaves it to a later command."""
    try:
        charge.count_people()
    except Exception as error:
        console.print(
            "[yellow]warning:[/yellow] what each person was charged could not be counted "
            f"({type(error).__name__}): the run counts as if everybody had taken part, until "
            "`beam-ldp budget people`",
            soft_wrap=True,
        )


def plan_line(run: Run) -> str:
    """One line about what will run."""
    mechanism = run.choice.mechanism
    return (
        f"{type(mechanism).__name__}, local epsilon {promise(mechanism.local_epsilon)}, "
        f"{mechanism.bits_per_report} bits per report; {run.asked.expectation(run.job, run.choice)}"
    )


def say_plan_line(run: Run, console: Console) -> None:
    """The same on the console, with what is weak about it, before anything is read."""
    console.print(plan_line(run), style="dim", highlight=False)
    for warning in weak_warnings(run.choice.mechanism, run.job):
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def say_plan(run: Run, preflight: checks.Preflight) -> None:
    """What `--dry-run` prints, on stdout: the plan and the checks. Raises what a run would."""
    form = run.job.output.format
    if form != "json":
        Console().print(plan_table(run))
    checks.say_checks(preflight, form, plan_as_json(run))


def plan_as_json(run: Run) -> dict[str, Any]:
    """The plan, for programs."""
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "dry_run": True,
        **run.as_json(),
        "input_files": run.job.num_files,
        "input_bytes": run.job.input_bytes,
    }


def make_record(
    run: Run,
    release: Release,
    price: Price,
    found: WorkerResults,
    warnings: Sequence[str],
    charged: Mapping[str, Any],
) -> PrivacyRecord:
    """What privacy.json will hold."""
    bound, mechanism, job = price.bound, run.choice.mechanism, run.job
    whole = found.identity or run.identity  # of a job that was started elsewhere, as it was told
    details = of_all_publications(
        run.facts(release), price, mechanism.local_epsilon, charged.get("publication", 1)
    )
    return PrivacyRecord(
        question=release.question,
        dataset=job.dataset,
        mechanism=dict(release.mechanism),
        local_epsilon=None if release.simulated else mechanism.local_epsilon,
        epsilon=None if bound is None else float(bound),
        epsilon_lower=None if bound is None else _known(bound.lower),
        epsilon_class_lower=None if bound is None else _known(bound.class_lower),
        delta=job.privacy.delta,
        method="none: simulation" if bound is None else str(bound.method),
        proof_status="none" if bound is None else str(bound.proof_status),
        num_reports=release.num_reports,
        num_bad_rows=found.num_bad_rows if job.bad_rows_leave_a_trace else None,
        min_reports=job.min_reports,
        honest_fraction=job.privacy.honest_fraction,
        honest_reports=price.honest_reports,
        smallest_batch=release.smallest_batch,
        output=release.output,
        scope=job.shuffle.scope,
        user_id=job.people.id,
        one_row_per_person=job.people.one_row,
        bad_rows=job.question.bad_rows,
        exactness=run.exactness,
        bits_per_report=mechanism.bits_per_report,
        release_id=whole.release_id,
        identity=whole.to_json(),
        identity_digest=whole.digest.hex(),
        report_digest=found.report_digest,
        one_shuffle=found.one_shuffle,
        memoized=bool(whole.key),
        frozen_values=job.noise.frozen_values,
        simulated=release.simulated,
        target_epsilon=job.privacy.epsilon,
        trust_shuffler=job.privacy.trust_shuffler,
        expected_users=job.privacy.expected_users,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=beam_ldp.__version__,
        warnings=(*weak_warnings(mechanism, job), *warnings),
        event=None if price.ran is None else event_to_json(price.ran),
        untracked="--no-mlflow" if job.output.no_mlflow else None,
        kind=details.pop("kind", "statement"),
        postprocess=details.pop("postprocess", "none"),
        collected=job.collected is not None,
        details=details,
        **charged,
    )


def _known(lower: float) -> float | None:
    """A lower value; zero says that there is none."""
    return float(lower) if lower > 0 else None


def list_bad_rows(path: str, bad_rows: bytes) -> None:
    """Where each row stands that could not be used, for the owner of the data alone."""
    try:
        outputs.write_private(path, bad_rows)
    except (OSError, BeamIOError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise JobError(f"--bad-rows-file {path} could not be written ({why})") from error


def finish(folder: outputs.OutputFolder, record: PrivacyRecord, view: View) -> None:
    """All files of the output, aside. Raises JobError where the disk or store refuses."""
    table = view.table()
    try:
        with folder.finishing() as writer:
            writer.put("estimates.csv", as_csv(table))
            writer.put("estimates.parquet", outputs.as_parquet(table))
            for name, content in view.more_files().items():
                writer.put(name, content)
            writer.put("privacy.json", outputs.as_json(record.to_json()))
            writer.put("privacy.md", statement(record.told()).encode())
            writer.put("plot.png", png(view.figure(price_line(record))))
    except (OSError, BeamIOError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise JobError(f"--output {folder.path} could not be written ({why})") from error


def price_line(record: PrivacyRecord) -> str:
    """What is written below the title of the plot."""
    if record.simulated:
        return f"{record.num_reports:,} simulated reports: no privacy guarantee"
    model = record.details.get("model", "shuffle")
    if model == "local":
        return (
            f"{record.num_reports:,} reports; local epsilon = {number(record.local_epsilon)}, "
            "whoever sees the reports"
        )
    if model == "central":
        return (
            f"{record.num_reports:,} people; epsilon = {number(record.epsilon)} at delta = 0 "
            "against readers of this plot, none against the server"
        )
    return (
        f"{record.num_reports:,} reports; epsilon = {number(record.epsilon)} at delta = "
        f"{record.delta:g} against readers of this plot, local epsilon = "
        f"{promise(record.local_epsilon)}"
    )


def tracking_uri(
    told: Output, folder: outputs.OutputFolder, of_ledger: str | None = None
) -> str | None:
    """Where to log; None for what MLflow's own environment variable says.

    What a flag names goes first, then the store of the ledger, which all runs charged to it share,
    then MLFLOW_TRACKING_URI. Without any of them it is a SQLite file inside the output.
    """
    if told.mlflow_uri or of_ledger:
        return told.mlflow_uri or of_ledger
    if os.environ.get("MLFLOW_TRACKING_URI") or not outputs.is_local(folder.path):
        return None
    place = Path(folder.path) / outputs.MLFLOW
    place.mkdir(parents=True, exist_ok=True)
    return f"sqlite:///{place / 'mlflow.db'}"


def log_run(
    run: Run,
    folder: outputs.OutputFolder,
    record: PrivacyRecord,
    view: View,
    charge: NoCharge,
    console: Console,
) -> Any:
    """One MLflow run; a store that cannot be reached costs the log, never the release."""
    job = run.job
    if job.output.no_mlflow:
        return None
    load_mlflow()
    if not mlflow_ldp.available():
        console.print("MLflow is not installed: the run was not logged", style="dim")
        return None
    for name in ("alembic", "mlflow"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        with console.status("logging to MLflow"):
            logged = mlflow_ldp.log_release(
                record.to_json(),
                folder.path if outputs.is_local(folder.path) else None,
                tracking_uri=tracking_uri(job.output, folder, charge.mlflow_uri),
                experiment=job.output.mlflow_experiment,
                run_name=f"{run.name} of {run.asked.name}",
                metrics={
                    "error.predicted": run.choice.predicted_error,
                    **view.errors(),
                    **charge.metrics(),
                },
                tags=charge.tags(record.to_json()),
                description=statement(record.told()),
            )
            charge.show_budget(logged.tracking_uri, logged.experiment_id)
            return logged
    except Exception as error:
        log_events.say(log_events.NOT_LOGGED, program=run.name)
        console.print(
            f"[yellow]warning:[/yellow] the run was not logged to MLflow ({type(error).__name__}); "
            f"`beam-ldp finalize {escape(folder.path)} --mlflow-uri URI` logs it later",
            soft_wrap=True,
        )
        return None


def as_json(result: RunResult) -> dict[str, Any]:
    """What `--format json` prints."""
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "output": result.output,
        "bad_rows_file": result.bad_rows_file,
        "privacy": result.record.to_json(),
        **result.view.as_json(),
        **terminal.logged_as_json(result.logged),
    }
