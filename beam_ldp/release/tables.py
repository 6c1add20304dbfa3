"""Tables that a person sees: prices and plans. No mathematics here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from beam_ldp.release.gates import weak_warnings
from beam_ldp.release.record import PrivacyRecord
from beam_ldp.release.statement import price_rows
from beam_ldp.settings.sections import odds
from beam_ldp.wording import many, number, promise

if TYPE_CHECKING:
    from beam_ldp.release.planned import PlannedRun


def price_table(record: PrivacyRecord) -> Table:
    """Who is protected against whom, in a few lines."""
    table = Table(title="Privacy", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    for row in price_rows(record.told()):
        table.add_row(*row)
    return table


def plan_table(run: PlannedRun) -> Table:
    """What would run, what it would cost, and how accurate it would be."""
    job, choice, randomizer = run.job, run.choice, run.choice.mechanism
    table = Table(title="Plan (nothing was run)", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    if job.source.paths:
        table.add_row(
            "input",
            f"{many(job.num_files, 'file')}, {job.input_bytes:,} bytes, {job.source.format}",
        )
    for heading, text in run.inputs():
        table.add_row(heading, text)
    table.add_row(
        "mechanism",
        f"{type(randomizer).__name__}, {many(randomizer.bits_per_report, 'bit')} per report",
    )
    bound = None if choice.price is None else choice.price.bound
    if bound is None:
        table.add_row("guarantee", "[bold red]none: a simulation with a seed[/bold red]")
    else:
        local = promise(randomizer.local_epsilon)
        told = odds(randomizer.local_epsilon) if math.isfinite(randomizer.local_epsilon) else ""
        table.add_row("local epsilon", f"{local}, odds of {told}" if told else local)
        table.add_row(
            "epsilon",
            f"{number(float(bound))} at delta = {job.privacy.delta:g} for "
            f"{many(choice.num_reports, 'report')}",
        )
    table.add_row("released from", f"{many(job.min_reports, 'report')} on")
    for heading, text in run.asked.expected(job, choice):
        table.add_row(heading, text)
    for warning in weak_warnings(randomizer, job):
        table.add_row("[yellow]warning[/yellow]", escape(warning))
    return table
