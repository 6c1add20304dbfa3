"""What a planned release would take of a cluster: time, core hours, bytes, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from beam_ldp.planning.costs import Output, coefficients, is_fitted, job_cost
from beam_ldp.randomizers.base import LocalRandomizer

OUTPUTS: tuple[Output, ...] = ("statistic", "batch", "global")
SHOWN = 3  # mechanisms in the table, the most accurate ones


def costs_as_json(
    randomizer: LocalRandomizer, users: int, workers: int, price_per_core_hour: float | None
) -> dict[str, Any]:
    """The cost of one mechanism, by output; "measured" says by whom its steps were timed."""
    found: dict[str, Any] = {
        "workers": workers,
        "measured": "fitted" if is_fitted(randomizer) else "here",
    }
    for output in OUTPUTS:
        if output == "global" and randomizer.messages_per_user > 1:
            continue  # refused by the shuffle
        cost = job_cost(randomizer, users, workers, output)
        found[output] = {
            "seconds": cost.seconds,
            "core_hours": cost.core_hours,
            "exchanged_bytes": cost.exchanged_bytes,
            "worker_bytes": cost.worker_bytes,
        }
        if price_per_core_hour is not None:
            found[output]["price"] = cost.core_hours * price_per_core_hour
    return found


def show_costs(
    console: Console,
    randomizers: Sequence[LocalRandomizer],
    users: int,
    workers: int,
    price_per_core_hour: float | None,
) -> None:
    """The table below a plan."""
    table = Table(
        title=f"{users:,} reports on {workers:,} workers of one core",
        title_justify="left",
        caption="output: sums, reports permuted in batches, or reports permuted all together\n"
        f"a model fitted on one machine ({coefficients()['machine']}): other\n"
        "processors, networks and the start of a cluster are not in it",
        caption_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("\nmechanism", no_wrap=True)
    table.add_column("\noutput", no_wrap=True)
    headings = ["\ntime", "core\nhours", "\nexchanged", "MiB per\nworker"]
    for heading in [*headings, "\nprice"] if price_per_core_hour is not None else headings:
        table.add_column(heading, justify="right", no_wrap=True)
    here = []
    for randomizer in randomizers[:SHOWN]:
        name = type(randomizer).__name__
        costs = costs_as_json(randomizer, users, workers, price_per_core_hour)
        if costs["measured"] == "here":
            here.append(name)
        for output in OUTPUTS:
            if output not in costs:
                continue
            cost = costs[output]
            cells = [
                duration(cost["seconds"]),
                f"{cost['core_hours']:,.2f}",
                amount(cost["exchanged_bytes"]),
                f"{cost['worker_bytes'] / 2**20:,.0f}",
            ]
            if price_per_core_hour is not None:
                cells.append(f"{cost['price']:,.2f}")
            table.add_row(name, _SAID[output], *cells)
    console.print(table)
    for name in here:
        console.print(f"{name} is not in the model: timed on this machine", style="dim")


_SAID = {
    "statistic": "sums",
    "batch": "batches",
    "global": "reports",
}


def duration(seconds: float) -> str:
    """In the unit that reads best."""
    for size, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {unit}"
    return f"{seconds:.0f} s"


def amount(number: float) -> str:
    """Bytes, in the unit that reads best."""
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if number >= size:
            return f"{number / size:,.1f} {unit}"
    return f"{number:.0f} B"
