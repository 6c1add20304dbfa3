"""What every program does with its question: plan, run, gates, price, record, files, log, show."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
from apache_beam.io.filesystem import BeamIOError
from rich.console import Console
from rich.markup import escape

import beam_ldp
import mlflow_ldp
from beam_ldp import log_events
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.prices import Price
from beam_ldp.fast_start import load_mlflow
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.release import beam_job as job
from beam_ldp.release import checks, outputs, publishing, reserving, terminal
from beam_ldp.release.charging import NoCharge, kept_if_it_fails, spent_unless_settled
from beam_ldp.release.gates import (
    gate_bad_rows,
    gate_price,
    of_all_publications,
    say_left_out,
    weak_warnings,
)
from beam_ldp.release.job_monitor import JobError
from beam_ldp.release.pictures import png
from beam_ldp.release.planner import Choice
from beam_ldp.release.question import Answer, Question, RunResult
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.statement import statement
from beam_ldp.release.tables import plan_table
from beam_ldp.release.worker_results import WorkerResults
from beam_ldp.settings import Output
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.wording import number, promise


def execute(
    question: Question[Any],
    beam_flags: Sequence[str],
    console: Console,
    truth: np.ndarray | None = None,
) -> RunResult | None:
    """Plan, run, price, write, log. With `--dry-run` only the plan is printed: None.

    Args:
        question: what is asked, with its checked flags.
        beam_flags: all flags, for Beam.
        console: where progress and warnings go.
        truth: what the estimate should be, where that is known (simulations, tests).

    Raises:
        SettingError, OutputError: before anything is read.
        JobError: if the job fails.
        NothingReleasedError: if a gate was not passed; nothing was written.
    """
    settings = question.settings
    folder = outputs.OutputFolder(settings.output.folder, settings.output.overwrite)
    bad_rows_file = outputs.bad_rows_path(folder.path, settings.output.bad_rows_file)
    choice = question.choose()
    job_told = checks.Job.of(question, choice, beam_flags)
    if settings.only_plan:
        say_plan(question, choice, job_told)
        return None
    checks.check_first(job_told, console)
    say_plan_line(question, choice, console)
    identity = question.identity(choice)
    charge = _reserve(question, choice, identity)
    with spent_unless_settled(charge, console), folder.staging() as staging:
        here = job.ends_with_launcher(settings, beam_flags)
        charge.leave_note(staging, ends_with_launcher=here, overwrite=settings.output.overwrite)
        with kept_if_it_fails(charge, folder, staging, elsewhere=not here):
            found = question.collect(choice, beam_flags, staging, console)
        charge.num_reports = found.num_reports
        release = question.gate(found)
        charge.check_people(release.num_reports)
        left_out = gate_bad_rows(
            found.bad_rows, found.num_rows, settings, job_told.reader is not None
        )
        price = charge.price(question.price(release), release, found, choice.mechanism)
        warnings = (*question.warnings(release), *gate_price(price, release, settings))
        for warning in warnings:
            console.print(f"[yellow]warning:[/yellow] {escape(warning)}")
        released = {**told(identity, found), **charge.facts}
        record = make_record(
            question, choice, release, price, found.num_bad_rows, warnings, released
        )
        answer = question.answer(release, choice, truth)
        question.last_word(answer)
        list_bad_rows(bad_rows_file, found.bad_rows)
        finish(folder, record, answer)
        publishing.release(charge, record, folder, staging)
    _say_released(question, record)
    say_left_out(left_out, console, record.num_reports if record.user_id else None)
    count_people(charge, console)
    logged = log_run(question, folder, record, choice, answer, charge, console)
    listed = bad_rows_file if found.bad_rows else None
    return RunResult(question, choice, answer, record, folder.path, logged, listed)


def _reserve(question: Question[Any], choice: Choice[Any], identity: ReleaseIdentity) -> NoCharge:
    """Set the worst case aside, before anything is read."""
    charge = question.uncharged(choice)
    if charge is None:
        charge = reserving.reserve(
            question.settings,
            question.worst_price(choice),
            question.about,
            identity=identity,
            same_reports=question.memoized,
            run_id=question.run_id,
        )
    if "run_id" in charge.facts:
        log_events.say(log_events.RESERVED, program=question.name, run_id=charge.facts["run_id"])
    _say_started(question, choice)
    question.people, question.publication = charge.people, charge.publication
    return charge


def _say_released(question: Question[Any], record: PrivacyRecord) -> None:
    log_events.say(
        log_events.RELEASED,
        program=question.name,
        num_reports=record.num_reports,
        num_bad_rows=record.num_bad_rows,
        epsilon=record.epsilon,
        delta=record.delta,
    )


def _say_started(question: Question[Any], choice: Choice[Any]) -> None:
    randomizer, simulated = choice.mechanism, question.settings.noise.seed is not None
    promised = math.isfinite(randomizer.local_epsilon)
    log_events.say(
        log_events.STARTED,
        program=question.name,
        mechanism=type(randomizer).__name__,
        local_epsilon=None if simulated or not promised else randomizer.local_epsilon,
        bits_per_report=randomizer.bits_per_report,
        num_files=question.settings.num_files,
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


def plan_line(question: Question[Any], choice: Choice[Any]) -> str:
    """One line about what will run."""
    randomizer = choice.mechanism
    return (
        f"{type(randomizer).__name__}, local epsilon {promise(randomizer.local_epsilon)}, "
        f"{randomizer.bits_per_report} bits per report; {question.expectation(choice)}"
    )


def say_plan_line(question: Question[Any], choice: Choice[Any], console: Console) -> None:
    """The same on the console, with what is weak about it, before anything is read."""
    console.print(plan_line(question, choice), style="dim", highlight=False)
    for warning in weak_warnings(choice.mechanism, question.settings):
        console.print(f"[yellow]warning:[/yellow] {escape(warning)}")


def say_plan(question: Question[Any], choice: Choice[Any], told: checks.Job) -> None:
    """What `--dry-run` prints, on stdout: the plan and the checks. Raises what a run would."""
    form = question.settings.output.format
    if form != "json":
        Console().print(plan_table(question, choice))
    checks.say_checks(told, form, plan_as_json(question, choice))


def plan_as_json(question: Question[Any], choice: Choice[Any]) -> dict[str, Any]:
    """The plan, for programs."""
    settings = question.settings
    return {
        "schema_version": outputs.SCHEMA_VERSION,
        "dry_run": True,
        **question.as_json(choice),
        "input_files": settings.num_files,
        "input_bytes": settings.input_bytes,
    }


def make_record(
    question: Question[Any],
    choice: Choice[Any],
    release: Release,
    price: Price,
    num_bad_rows: int,
    warnings: tuple[str, ...],
    charged: dict[str, Any],
) -> PrivacyRecord:
    """What privacy.json will hold."""
    bound, randomizer, settings = price.bound, choice.mechanism, question.settings
    return question.record_type(
        question=release.question,
        dataset=settings.dataset,
        mechanism=dict(release.mechanism),
        local_epsilon=None if release.simulated else randomizer.local_epsilon,
        epsilon=None if bound is None else float(bound),
        epsilon_lower=None if bound is None else _known(bound.lower),
        epsilon_class_lower=None if bound is None else _known(bound.class_lower),
        delta=settings.privacy.delta,
        method="none: simulation" if bound is None else str(bound.method),
        proof_status="none" if bound is None else str(bound.proof_status),
        num_reports=release.num_reports,
        num_bad_rows=num_bad_rows if settings.bad_rows_leave_a_trace else None,
        min_reports=settings.min_reports,
        honest_fraction=settings.privacy.honest_fraction,
        honest_reports=price.honest_reports,
        smallest_batch=release.smallest_batch,
        output=release.output,
        scope=settings.shuffle.scope,
        user_id=settings.people.id,
        one_row_per_person=settings.people.one_row,
        bad_rows=settings.question.bad_rows,
        exactness=question.exactness(choice),
        bits_per_report=randomizer.bits_per_report,
        memoized=bool(charged["identity"]["key"]),
        frozen_values=settings.noise.frozen_values,
        simulated=release.simulated,
        target_epsilon=settings.privacy.epsilon,
        trust_shuffler=settings.privacy.trust_shuffler,
        expected_users=settings.privacy.expected_users,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        version=beam_ldp.__version__,
        warnings=(*weak_warnings(choice.mechanism, settings), *warnings),
        event=None if price.ran is None else event_to_json(price.ran),
        untracked="--no-mlflow" if settings.output.no_mlflow else None,
        **charged,
        **of_all_publications(
            question.facts(choice, release),
            price,
            randomizer.local_epsilon,
            charged.get("publication", 1),
        ),
    )


def told(identity: ReleaseIdentity, found: WorkerResults) -> dict[str, Any]:
    """What privacy.json says of what was released."""
    whole = found.identity or identity  # of a job that was started elsewhere, as it was told
    return {
        "release_id": whole.release_id,
        "identity": whole.to_json(),
        "identity_digest": whole.digest.hex(),
        "report_digest": found.report_digest,
        "one_shuffle": found.one_shuffle,
    }


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


def finish(folder: outputs.OutputFolder, record: PrivacyRecord, answer: Answer) -> None:
    """All files of the output, aside. Raises JobError where the disk or store refuses."""
    table = answer.table()
    try:
        with folder.finishing() as writer:
            writer.put("estimates.csv", outputs.as_csv(table))
            writer.put("estimates.parquet", outputs.as_parquet(table))
            for name, content in answer.more_files().items():
                writer.put(name, content)
            writer.put("privacy.json", outputs.as_json(record.to_json()))
            writer.put("privacy.md", statement(record.told()).encode())
            writer.put("plot.png", png(answer.plot(price_line(record))))
    except (OSError, BeamIOError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        raise JobError(f"--output {folder.path} could not be written ({why})") from error


def price_line(record: PrivacyRecord) -> str:
    """What is written below the title of the plot."""
    if record.simulated:
        return f"{record.num_reports:,} simulated reports: no privacy guarantee"
    if getattr(record, "model", "shuffle") == "local":
        return (
            f"{record.num_reports:,} reports; local epsilon = {number(record.local_epsilon)}, "
            "whoever sees the reports"
        )
    if getattr(record, "model", "shuffle") == "central":
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
    question: Question[Any],
    folder: outputs.OutputFolder,
    record: PrivacyRecord,
    choice: Choice[Any],
    answer: Answer,
    charge: NoCharge,
    console: Console,
) -> Any:
    """One MLflow run; a store that cannot be reached costs the log, never the release."""
    settings = question.settings
    if settings.output.no_mlflow:
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
                tracking_uri=tracking_uri(settings.output, folder, charge.mlflow_uri),
                experiment=settings.output.mlflow_experiment,
                run_name=f"{question.name} of {question.about}",
                metrics={
                    "error.predicted": choice.predicted_error,
                    **answer.errors(),
                    **charge.metrics(),
                },
                tags=charge.tags(record.to_json()),
                description=statement(record.told()),
            )
            charge.show_budget(logged.tracking_uri, logged.experiment_id)
            return logged
    except Exception as error:
        log_events.say(log_events.NOT_LOGGED, program=question.name)
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
        **result.answer.as_json(),
        **terminal.logged_as_json(result.logged),
    }
