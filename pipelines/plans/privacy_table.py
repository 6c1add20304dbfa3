"""The prices of a schedule as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.accounting.literature.comparison import MethodPrice
from beam_ldp.accounting.literature.methods import OWN
from beam_ldp.accounting.literature.schedule import UNLIKELY, Schedule
from beam_ldp.accounting.privacy_bound import PrivacyBound
from beam_ldp.pipelines.records.statement import number, rounded_down

SCHEMA_VERSION = 2


def as_json(
    schedule: Schedule,
    delta: float,
    bound: PrivacyBound,
    prices: Sequence[MethodPrice],
    solved_for: str | None,
) -> dict[str, Any]:
    """Everything that the table says."""
    fields = {name: getattr(schedule, name) for name in _FIELDS}
    mechanism = None if schedule.randomizer is None else schedule.randomizer.to_config()
    seen = schedule.seen
    return {
        "schema_version": SCHEMA_VERSION,
        **fields,
        "mechanism": mechanism,
        "delta": delta,
        "solved_for": solved_for,
        "epsilon": float(bound),
        "epsilon_lower": bound.lower or None,
        "epsilon_class_lower": bound.class_lower or None,
        "method": bound.method,
        "reader": schedule.reader,
        "busiest": {"rounds": seen.rounds, "num_reports": seen.num_reports}
        if schedule.sampled
        else None,
        "methods": [asdict(price) for price in prices],
    }


_FIELDS = (
    "local_epsilon", "num_users", "num_sampled", "rounds", "points_per_client", "points_sampled",
    "sampling",
)  # fmt: skip


def show(
    schedule: Schedule,
    delta: float,
    bound: PrivacyBound,
    prices: Sequence[MethodPrice],
    solved_for: str | None,
    plot: Path | None,
) -> None:
    """Prints the answer, the table, and what did not apply."""
    console = Console()
    if solved_for is not None:
        console.print(f"[bold]{solved_for} = {_solution(schedule, solved_for)}[/bold]")
    for line in _answer(schedule, bound, prices):
        console.print(line, highlight=False)
    console.print(_table(schedule, delta, bound, prices))
    refused: dict[str, list[str]] = {}
    for price in prices:
        if price.epsilon is None:
            refused.setdefault(price.refused, []).append(price.method)
    if refused:
        console.print("Not applicable here:", style="dim")
    for reason, names in refused.items():
        console.print(f"  {escape(reason)}: {escape('; '.join(names))}", style="dim")
    if plot is not None:
        console.print(f"[bold]Plot[/bold] {escape(str(plot))}")


def _answer(schedule: Schedule, bound: PrivacyBound, prices: Sequence[MethodPrice]) -> list[str]:
    """The price in words, against each reader."""
    floors = []
    if bound.lower:
        floors.append(f"this mechanism cannot have less than {rounded_down(bound.lower)}")
    if bound.class_lower:
        floors.append(
            f"by the local epsilon alone nothing below {rounded_down(bound.class_lower)} "
            "can be proved"
        )
    lines = [f"[bold]epsilon = {number(bound)}[/bold] against {schedule.reader}"]
    lines += [f"  {floor}" for floor in floors]
    seen = min((p.seen_epsilon for p in prices if p.seen_epsilon is not None and _good(p)),
               default=None)  # fmt: skip
    if seen is not None:
        lines.append(
            f"[bold]epsilon = {number(seen)}[/bold] against readers who see who took part, for "
            f"data used in {schedule.seen.rounds:,} of {_counted(schedule.rounds, 'round')}"
        )
        lines.append(f"  nobody's is used more often, but with a chance of {UNLIKELY:.0e}")
    return lines


def _good(price: MethodPrice) -> bool:
    return price.status == "proved" and price.kind == "upper"


def _table(
    schedule: Schedule, delta: float, bound: PrivacyBound, prices: Sequence[MethodPrice]
) -> Table:
    table = Table(
        title=_title(schedule, delta),
        title_justify="left",
        caption=_caption(schedule, bound),
        caption_justify="left",
    )
    table.add_column("method")
    table.add_column("proved for")
    table.add_column("epsilon", justify="right")
    table.add_column("times floor", justify="right")
    if schedule.sampled:
        table.add_column("if seen who", justify="right")
    total = schedule.rounds * schedule.local_epsilon
    section = ""
    for place, price in enumerate(prices):
        if price.epsilon is None:
            continue
        kind = price.status if price.kind == "upper" else price.kind
        if section and kind != section:
            table.add_section()
        section = kind
        cells = [escape(price.method), _proved_for(price), _value(price.epsilon, total, price)]
        floor = bound.class_lower
        cells.append(f"{price.epsilon / floor:,.2f}" if floor and price.epsilon <= total else "")
        if schedule.sampled:
            most = schedule.seen.rounds * schedule.local_epsilon
            seen = price.seen_epsilon
            cells.append("" if seen is None else _value(seen, most, price))
        style = "bold" if place == 0 else None if kind == "proved" else "dim"
        table.add_row(*cells, style=style if kind != "lower" else "green")
    return table


def _value(epsilon: float, total: float, price: MethodPrice) -> str:
    if price.kind == "lower":
        return f">= {rounded_down(epsilon)}"
    if price.kind == "approximation":
        return f"~ {number(epsilon)}"
    return number(epsilon) if epsilon <= total * (1 + 1e-9) else "> the sum"


def _proved_for(price: MethodPrice) -> str:
    if price.kind == "lower":
        return "costs at least" if price.proved_for == OWN else "the floor"
    if price.kind == "approximation":
        return "nothing: a limit"
    if price.status == "conjectured":
        return f"{price.proved_for} only"
    return price.proved_for


def _title(schedule: Schedule, delta: float) -> str:
    who = f"{schedule.num_users:,} people"
    if schedule.points_per_client > 1:
        who += f" with {schedule.points_per_client:,} points each"
    if not schedule.fixed_size:
        who += f", {schedule.num_sampled:,} reports on average in each round by coins"
    elif schedule.num_sampled < schedule.num_users:
        who += f", {schedule.num_sampled:,} drawn for each round"
    if schedule.points_sampled > 1:
        who += f", {schedule.points_sampled:,} of their points each"
    name = "" if schedule.randomizer is None else f"{type(schedule.randomizer).__name__}, "
    return (
        f"{name}{who}, {_counted(schedule.rounds, 'round')}, "
        f"local epsilon {schedule.local_epsilon:g}, delta = {delta:g}"
    )


def _counted(number_of: int, name: str) -> str:
    return f"{number_of:,} {name}{'' if number_of == 1 else 's'}"


def _caption(schedule: Schedule, bound: PrivacyBound) -> str:
    caption = "bold: the smallest proved price"
    if bound.class_lower:
        caption += (
            ". Times floor: over what some randomizer with this local epsilon really costs, below "
            "which nothing can be proved for all of them"
        )
    if schedule.sampled:
        caption += (
            ". Epsilon holds against readers who cannot see who took part; the last column, by "
            "the same method, against those who can"
        )
    return caption


def _solution(schedule: Schedule, solved_for: str) -> str:
    return {
        "local-epsilon": f"{schedule.local_epsilon:g}",
        "rounds": f"{schedule.rounds:,}",
        "users": f"{schedule.num_users:,}",
        "sampled": f"{schedule.num_sampled:,}",
    }[solved_for]
