"""Tables that a person sees: prices and plans. No mathematics here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.records.gates import weak_warnings
from beam_ldp.pipelines.records.record import PrivacyRecord
from beam_ldp.pipelines.records.statement import words_of
from beam_ldp.settings.sections import odds
from beam_ldp.wording import many, number, promise, rounded_down

if TYPE_CHECKING:
    from beam_ldp.pipelines.planner import Choice, Planner


def price_table(record: PrivacyRecord) -> Table:
    """Who is protected against whom, in four lines."""
    table = Table(title="Privacy", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    if record.simulated:
        table.add_row("guarantee", "[bold red]none: this was a simulation with a seed[/bold red]")
        table.add_row("reports", f"{record.num_reports:,} received")
        return table
    words = words_of(record)
    lower = [f"this mechanism cannot have less than {rounded_down(record.epsilon_lower)}"]
    if record.epsilon_lower is None:
        lower = []
    if record.epsilon_class_lower is not None:
        lower.append(
            "without knowing the mechanism, nothing below "
            f"{rounded_down(record.epsilon_class_lower)} can be proved"
        )
    table.add_row(
        f"against everybody who sees {words.whole_briefly}",
        f"local epsilon = {promise(record.local_epsilon)}",
    )
    table.add_row(
        "against readers of the result",
        f"epsilon = {number(record.epsilon)} at delta = {record.delta:g}"
        f" ({escape(record.method)}, {record.proof_status})",
    )
    if lower:
        table.add_row("", "; ".join(lower))
    honest = "" if record.honest_fraction == 1 else f" x {record.honest_fraction:g} honest"
    table.add_row("reports", f"{record.num_reports:,} received{honest}, {_bad(record)}")
    table.add_row(
        "protected",
        "a person's value (replace-one); [bold]not[/bold] that the person took part",
    )
    person = (
        f"column {record.user_id!r}, one row each"
        if record.user_id is not None
        else "[yellow]every row is counted as a person "
        f"({'--one-row-per-person' if record.one_row_per_person else 'no --user-id'})[/yellow]"
    )
    table.add_row("a person is", words.person_briefly or person)
    charged = f"charged to the budget of {record.dataset!r} as {record.run_id}"
    if record.run_id is None:
        charged = f"[yellow]not charged ({escape(record.charged.removeprefix('no: '))})[/yellow]"
    table.add_row("budget", charged if record.run_id is None else escape(charged))
    return table


def plan_table(question: Planner[Any], choice: Choice[Any]) -> Table:
    """What would run, what it would cost, and how accurate it would be."""
    settings, randomizer, n = question.settings, choice.mechanism, choice.num_reports
    table = Table(title="Plan (nothing was run)", title_justify="left", show_header=False)
    table.add_column(style="bold")
    table.add_column()
    if settings.source.paths:
        table.add_row(
            "input",
            f"{many(settings.num_files, 'file')}, {settings.input_bytes:,} bytes, "
            f"{settings.source.format}",
        )
    for heading, text in question.inputs():
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
            f"{number(float(bound))} at delta = {settings.privacy.delta:g} for {many(n, 'report')}",
        )
    table.add_row("released from", f"{many(settings.min_reports, 'report')} on")
    for heading, text in question.expected(choice):
        table.add_row(heading, text)
    for warning in weak_warnings(randomizer, settings):
        table.add_row("[yellow]warning[/yellow]", escape(warning))
    return table


def _bad(record: PrivacyRecord) -> str:
    if record.num_bad_rows is None:
        return f"unusable rows reported as {words_of(record).hidden_as}"
    return f"{record.num_bad_rows:,} bad rows"
