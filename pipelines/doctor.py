"""`beam-ldp doctor`: is this installation whole, and does its randomness do what it should?"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import asdict

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines import checkup
from beam_ldp.pipelines.checkup import Finding
from beam_ldp.pipelines.views.terminal import printable, printed_json

_COLOURS = {"ok": "green", "absent": "yellow", "fault": "bold red"}


@click.command(short_help="What is installed, what answers, and whether the mechanisms are sound.")
@click.option("--job-endpoint", "endpoints", multiple=True, metavar="HOST:PORT",
              help="a Beam job server that should answer (repeatable)")  # fmt: skip
@click.option("--ledger", metavar="URL", help="a ledger to look at (default: BEAM_LDP_LEDGER)")
@click.option("--mechanism", "places", multiple=True, metavar="PACKAGE:CLASS",
              help="a mechanism from elsewhere that should be sound, too (repeatable)")  # fmt: skip
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True)  # fmt: skip
def doctor(
    endpoints: tuple[str, ...], ledger: str | None, places: tuple[str, ...], form: str
) -> None:
    """Look at this installation: versions, generators, mechanisms, engines, ledger.

    Exit code 0 if nothing is at fault (what is only absent is said), 1 otherwise. It reads no
    data and changes nothing. A sound installation is called faulty once in ten million runs.

    \b
    examples:
      beam-ldp doctor
      beam-ldp doctor --job-endpoint localhost:8099 --ledger sqlite:///privacy.db
    """
    from beam_ldp.pipelines.plans.mechanisms import load_mechanisms

    try:
        load_mechanisms(places, "frequency")
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    console = Console()
    findings: list[Finding] = []
    with console.status("looking") if form == "table" else nullcontext():
        for found in (
            checkup.installed(), checkup.randomness(), checkup.mechanisms(),
            checkup.engines(endpoints), checkup.records(ledger),
        ):  # fmt: skip
            findings += found
    if form == "json":
        click.echo(printed_json({"findings": [asdict(finding) for finding in findings]}))
    else:
        console.print(table(findings))
    sys.exit(any(finding.status == "fault" for finding in findings))


def table(findings: Iterable[Finding]) -> Table:
    """One line per finding, areas apart."""
    drawn = Table(title="beam-ldp doctor", title_justify="left")
    for head in ("", "checked", "", "found"):
        drawn.add_column(head)
    area = None
    for finding in findings:
        if area not in (None, finding.area):
            drawn.add_section()
        colour = _COLOURS[finding.status]
        drawn.add_row(
            "" if area == finding.area else finding.area,
            escape(printable(finding.name)),
            f"[{colour}]{finding.status}[/{colour}]",
            escape(printable(finding.detail)),
        )
        area = finding.area
    return drawn
