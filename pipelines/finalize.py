"""`beam-ldp finalize`: settle and log a release whose launcher could not."""

from __future__ import annotations

import json
import sys
from typing import Any

import click
from apache_beam.io.filesystems import FileSystems
from rich.console import Console
from rich.markup import escape

from beam_ldp.pipelines import charging, outputs
from beam_ldp.pipelines.budget import ledger_errors, ledger_option, open_ledger


@click.command(short_help="Settle and log a release whose launcher could not.")
@click.argument("output")
@ledger_option
@click.option("--mlflow-uri", metavar="URI",
              help="tracking server to log to (default: nothing is logged)")  # fmt: skip
@click.option("--mlflow-experiment", default="beam-ldp", show_default=True)
def finalize(
    output: str, ledger: str | None, mlflow_uri: str | None, mlflow_experiment: str
) -> None:
    """Settle and log the release in the folder OUTPUT, from any machine that reads it.

    For runs whose ledger or tracking server was away when they ended. Safe to repeat.

    \b
    examples:
      beam-ldp finalize out --ledger sqlite:///privacy.db --mlflow-uri http://tracking:5000
    """
    record = read_record(output)
    console = Console()
    if record.get("run_id") is None:
        console.print(f"not charged ({escape(str(record.get('charged')))}): nothing to settle")
        return
    book = open_ledger(ledger)
    with ledger_errors():
        if book.state.ledger_id != record["ledger_id"]:
            raise click.UsageError(f"the release was charged to another ledger: {record['ledger']}")
        charging.settle(book, record)
    console.print(f"run {escape(record['run_id'])} is settled", soft_wrap=True)
    if mlflow_uri is not None:
        _log(record, output, book, mlflow_uri, mlflow_experiment, console)
    sys.stdout.flush()


def read_record(output: str) -> dict[str, Any]:
    """The privacy record of an output, or a usage error."""
    path = f"{output.rstrip('/')}/privacy.json"
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            record = json.loads(file.read())
    except Exception as error:
        raise click.UsageError(f"{path} cannot be read ({type(error).__name__})") from None
    if not isinstance(record, dict) or "event" not in record:
        raise click.UsageError(f"{path} is no privacy record of this version")
    return record


def _log(
    record: dict[str, Any], output: str, book: Any, uri: str, experiment: str, console: Console
) -> None:
    import mlflow_ldp

    if not mlflow_ldp.available():
        raise click.UsageError("MLflow is not installed: pip install 'beam-ldp[mlflow]'")
    shown, _ = mlflow_ldp.tracked(uri)
    if record["run_id"] in shown:
        console.print("the tracking server shows it already")
        return
    logged = mlflow_ldp.log_release(
        record,
        output if outputs.is_local(output) else None,
        tracking_uri=uri,
        experiment=experiment,
        run_name=str(record["question"]),
        metrics=mlflow_ldp.people_metrics(book, record["dataset"]),
        tags=mlflow_ldp.charge_tags(book, record["run_id"], record["event"]),
    )
    console.print(f"MLflow run {logged.run_id}")
