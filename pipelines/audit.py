"""`beam-ldp audit`: everything recomputed from the ledger's rows; anybody can repeat it."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.budget import files_at, ledger_option, open_ledger
from beam_ldp.pipelines.flags import format_option, ledger_errors
from beam_ldp.release.terminal import printable, printed_json
from beam_ldp.wording import number

if TYPE_CHECKING:
    from beam_ldp.ledger import Anchor, AuditReport, BudgetLedger, Check, PeopleCount, Row
    from mlflow_ldp.server import DatasetTotal, Server

SCHEMA_VERSION = 1
_STYLE = {"passed": "green", "failed": "bold red", "no evidence": "yellow"}


@click.command(short_help="Recompute every privacy cost and check that nothing was changed.")
@ledger_option
@click.option(
    "--dataset", help="report on the population of this dataset only (the checks cover all)"
)
@click.option("--anchors", metavar="FILE|URL", multiple=True,
              help="anchors kept elsewhere: a file, or the place where a ledger leaves its heads "
              "(file://, gs://, mlflow+https://, ...); may be repeated")  # fmt: skip
@click.option("--anchor-lag", type=click.IntRange(min=0), default=64, show_default=True,
              help="number of rows after the newest anchor that may lack one")  # fmt: skip
@click.option("--public-key", type=click.Path(path_type=Path),
              help="the auditor's public key (PEM): anchors in files must be signed with it, and "
              "changes of budgets accepted with it are not faults")  # fmt: skip
@click.option(
    "--mlflow-uri",
    metavar="URI",
    help="compare with the records of this tracking server; without a ledger, audit the server "
    "alone",
)
@click.option("--from-mlflow", is_flag=True,
              help="audit the tracking server alone, even if a ledger is given")  # fmt: skip
@click.option("--people-store", metavar="DIR",
              help="folder of keyed hashes: recount what each person was charged")  # fmt: skip
@click.option("--sample", type=click.IntRange(min=1), metavar="N",
              help="for a very large ledger: recompute the cost of only N distinct events, drawn "
              "at random")  # fmt: skip
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1,
              help="number of processes that recompute costs (default: one per core)")  # fmt: skip
@click.option("--html", type=click.Path(path_type=Path), help="write the report as a web page")
@click.option("--write-anchor", type=click.Path(path_type=Path),
              help="append the head of the ledger to this file, if the audit is clean")  # fmt: skip
@click.option("--sign-with", type=click.Path(path_type=Path),
              help="private key (PEM) that signs this anchor")  # fmt: skip
@format_option
def audit(
    ledger: str | None,
    dataset: str | None,
    mlflow_uri: str | None,
    from_mlflow: bool,
    html: Path | None,
    write_anchor: Path | None,
    sign_with: Path | None,
    form: str,
    **evidence: Any,
) -> None:
    """Recompute every privacy cost from the stored events and check that nothing was changed.

    The hash chain of rows reveals edits, deletions and reorderings. A tail that was cut off, or a
    ledger rewritten as a whole, is revealed only by anchors: heads of the ledger that are kept
    where its operator cannot write (MLflow runs hold them, and files of --write-anchor). Anchors
    that this user's programs have left show a backup that was put back.

    \b
    examples:
      beam-ldp audit --ledger sqlite:///privacy.db --html report.html
      beam-ldp audit --anchors /auditor/anchors.jsonl --write-anchor /auditor/anchors.jsonl
    \b
    exit codes: 0 clean; 1 over budget, changed, or different from what is recorded elsewhere;
                2 unreadable
    """
    if from_mlflow and mlflow_uri is None and not os.environ.get("MLFLOW_TRACKING_URI"):
        raise click.UsageError("--from-mlflow needs --mlflow-uri (or MLFLOW_TRACKING_URI)")
    named = ledger or os.environ.get("BEAM_LDP_LEDGER")
    if from_mlflow or (mlflow_uri is not None and not named):
        sys.exit(_audit_server(mlflow_uri or os.environ["MLFLOW_TRACKING_URI"], form))
    book = open_ledger(ledger)
    with ledger_errors():
        report = _report(book, mlflow_uri, **evidence)
    if dataset is not None and dataset not in report.state.datasets:
        raise click.UsageError(f"the ledger knows no dataset {dataset!r}")
    if html is not None:
        _write_page(html, report, book, dataset)
    if write_anchor is not None and report.clean:
        _write_anchor(report, book, write_anchor, sign_with)
    if form == "json":
        print(printed_json(_json(report, book)))
    else:
        show(Console(), report, book)
    sys.exit(report.exit_code)


def _report(
    book: BudgetLedger,
    mlflow_uri: str | None,
    *,
    anchors: tuple[str, ...],
    anchor_lag: int,
    public_key: Path | None,
    people_store: str | None,
    sample: int | None,
    workers: int,
) -> AuditReport:
    """What the audit of the ledger's rows finds, beside what is kept elsewhere."""
    from beam_ldp.ledger import audit as check
    from beam_ldp.ledger.rows import load_public

    try:
        found = [anchor for place in anchors for anchor in _anchors(place)]
        key = None if public_key is None else load_public(public_key.read_bytes())
    except OSError as error:
        raise click.UsageError(str(error)) from None
    server = None if mlflow_uri is None else _server(mlflow_uri)
    tracked, more = (None, []) if server is None else (server.shown, server.anchors)
    budgets = () if server is None else tuple(map(asdict, server.budgets))
    rows = book.rows()
    return check(
        rows,
        found if anchors else None,
        anchor_lag=anchor_lag,
        elsewhere=[*more, *_misfits(rows)],
        public_key=key,
        tracked=tracked,
        budgets=budgets,
        people=None if people_store is None else _counted(book, people_store),
        sample=sample,
        workers=workers,
    )


def _write_page(path: Path, report: AuditReport, book: BudgetLedger, dataset: str | None) -> None:
    from beam_ldp.release.audit_page import audit_page

    try:
        path.write_text(audit_page(report, book.url, dataset), encoding="utf-8")
    except OSError as error:
        raise click.UsageError(str(error)) from None


def _misfits(rows: Sequence[Row]) -> list[Anchor]:
    """The newest anchor where programs leave them by themselves, if the rows do not fit it.

    One that they fit is no evidence: whoever set the ledger back may have set back that place too.
    """
    from beam_ldp.ledger.sinks import open_anchors, usual_anchors

    ledger_id = rows[0].body.get("ledger_id") if rows else None
    if not isinstance(ledger_id, str):
        return []
    place = open_anchors() or usual_anchors(ledger_id)
    newest = None if place is None else place.newest(ledger_id)
    return [newest] if newest and newest.count and newest.fault(rows, ledger_id) else []


def _anchors(place: str) -> list[Anchor]:
    """All anchors of a file or a sink."""
    from beam_ldp.ledger.sinks import open_sink

    try:
        return open_sink(place.partition("?")[0]).all()
    except ValueError:
        raise
    except Exception as error:
        raise click.UsageError(f"--anchors {place} cannot be read ({error})") from None


def _audit_server(uri: str, form: str) -> int:
    """The audit of a tracking server alone; the exit code."""
    import mlflow_ldp

    found = mlflow_ldp.audit_server(uri, server=_server(uri))
    if form == "json":
        told = {"schema_version": SCHEMA_VERSION, "ledger": None, "clean": found.clean}
        totals = [total.to_json() for total in found.totals]
        print(printed_json({**told, "checks": _checks_json(found.checks), "totals": totals}))
    else:
        console = Console()
        _show_checks(console, f"the runs of {uri}", found.checks)
        _show_totals(console, found.totals)
    return 0 if found.clean else 1


def _server(uri: str) -> Server:
    """What a tracking server holds."""
    import mlflow_ldp

    if not mlflow_ldp.available():
        raise click.UsageError("MLflow is not installed: pip install 'beam-ldp[mlflow]'")
    try:
        return mlflow_ldp.read_server(uri)
    except Exception as error:  # of MLflow's, or of whoever wrote the tags
        raise click.UsageError(
            f"--mlflow-uri {uri} cannot be read ({type(error).__name__})"
        ) from None


def _show_totals(console: Console, totals: Sequence[DatasetTotal]) -> None:
    """What the runs about the same people cost together."""
    table = Table(title="what all runs cost together", title_justify="left")
    for heading in ("people", "runs", "epsilon", "at delta", "of", "sum of local epsilons"):
        table.add_column(heading, overflow="fold")
    for total in totals:
        table.add_row(
            escape(printable(total.population)),
            f"{total.num_runs:,}"
            + (f" ({total.num_uncharged:,} not charged)" if total.num_uncharged else ""),
            number(total.epsilon),
            f"{total.delta:g}",
            "no budget" if total.epsilon_budget is None else f"{total.epsilon_budget:g}",
            number(total.local_epsilon),
        )
    console.print(table)


def _counted(book: BudgetLedger, store: str) -> dict[str, PeopleCount]:
    """What each person was charged locally, per population, counted anew from hashed ids.

    Of the charges that the ledger's own count covers: later ones may have ended since.
    """
    from beam_ldp.ledger import LedgerCorruptedError
    from beam_ldp.ledger.accounts import count_people

    try:
        populations = book.state.populations
    except LedgerCorruptedError:
        return {}  # the checks say where
    counted = {}
    for name, population in populations.items():
        if population.people:
            period = max(population.people)
            numbers = population.people[period].numbers
            charges = [c for c in population.ended(period) if c.number in numbers]
            place = store.removeprefix("file://")
            counted[name] = count_people(place, files_at(store), name, charges)
    return counted


def _write_anchor(
    report: AuditReport, book: BudgetLedger, path: Path, sign_with: Path | None
) -> None:
    """Append the head, unless the file holds one that the ledger lacks: it would be outdated."""
    from beam_ldp.ledger.rows import Anchor, load_private
    from beam_ldp.ledger.sinks import FileAnchors

    head = report.state.head
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    anchor = Anchor(report.state.ledger_id, head.count, head.hash, now)
    try:
        file = FileAnchors(path)
        last = file.last(anchor.ledger_id)
        fault = None if last is None else last.fault(book.rows(), anchor.ledger_id)
        if fault is not None:
            raise click.UsageError(
                f"no anchor was written: the ledger does not fit the newest one in {path} "
                f"({fault}). Restore the newest copy of the database, or see `beam-ldp budget "
                "succeed --anchors`"
            )
        if sign_with is not None:
            anchor = anchor.sign(load_private(sign_with.read_bytes()))
        file.put(anchor)
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None


def show(console: Console, report: AuditReport, book: BudgetLedger) -> None:
    """The checks for people."""
    _show_checks(console, f"{report.num_rows:,} rows of {book.url}", report.checks)
    said = "clean" if report.clean else "NOT clean"
    console.print(f"[bold]The ledger is {said}.[/bold]")


def _show_checks(console: Console, title: str, checks: Sequence[Check]) -> None:
    table = Table(title=escape(title), title_justify="left")
    table.add_column("check", overflow="fold")
    table.add_column("outcome", no_wrap=True)
    for item in checks:
        style = _STYLE[item.outcome]
        table.add_row(escape(item.name), f"[{style}]{item.outcome}[/{style}]")
    console.print(table)
    for item in checks:
        for finding in item.findings:
            style = _STYLE[item.outcome]
            said = escape(printable(finding))
            console.print(f"[{style}]{item.outcome}[/{style}] {said}", soft_wrap=True)


def _checks_json(checks: Sequence[Check]) -> list[dict[str, Any]]:
    return [{"name": c.name, "outcome": c.outcome, "findings": list(c.findings)} for c in checks]


def _json(report: AuditReport, book: BudgetLedger) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "ledger": book.url,
        "ledger_id": report.state.ledger_id,
        "rows": report.num_rows,
        "head": report.state.head.hash,
        "clean": report.clean,
        "checks": _checks_json(report.checks),
        "anchored": None if report.coverage is None else {
            "rows": report.coverage.covered, "of": report.coverage.rows,
            "time": report.coverage.time or None,
        },
        "costs": dict(report.prices),
    }  # fmt: skip
