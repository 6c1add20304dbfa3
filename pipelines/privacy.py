"""`beam-ldp privacy`: what shuffled releases cost, by every method. Reads no data."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from beam_ldp.pipelines.plan import whole
from beam_ldp.pipelines.statement import number

if TYPE_CHECKING:
    from beam_ldp.accounting.comparison import MethodPrice, Schedule

SCHEMA_VERSION = 1
_UNKNOWNS = ("local-epsilon", "rounds", "users")
_LEAST_LOCAL_EPSILON = 0.01


@click.command(short_help="What releases cost, by every method; or what fits a target.")
@click.option("--local-epsilon", type=float, help="what each person is promised per report")
@click.option("--users", type=whole, help="people; 1e6 is understood")
@click.option("--sampled", type=whole, help="people who report in each round  [default: all]")
@click.option("--rounds", type=whole, default=1, show_default=True, help="releases")
@click.option("--delta", type=float, required=True, help="of the central price, far below 1/users")
@click.option("--target-epsilon", type=float, help="central target, with --solve")
@click.option("--solve", type=click.Choice(_UNKNOWNS), help="the unknown that meets the target")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table",
              show_default=True, help="what is printed")  # fmt: skip
def privacy(
    local_epsilon: float | None,
    users: int | None,
    sampled: int | None,
    rounds: int,
    delta: float,
    target_epsilon: float | None,
    solve: str | None,
    form: str,
) -> None:
    """What a schedule of shuffled releases costs, by every method, and how far that can be off.

    Upper bounds hold for every local randomizer with this local epsilon; a mechanism's own price,
    as `beam-ldp plan` shows it, may be far smaller. With --sampled the price holds against readers
    who cannot see who took part; the price against those who can stands below it.

    \b
    examples:
      beam-ldp privacy --local-epsilon 2 --users 60000 --sampled 2000 --rounds 6000 --delta 1e-5
      beam-ldp privacy --users 1e6 --rounds 30 --delta 1e-8 \\
          --target-epsilon 1 --solve local-epsilon
    """
    if not 0 < delta < 1:
        raise click.UsageError(f"--delta must lie in (0, 1), got {delta:g}")
    if (solve is None) != (target_epsilon is None):
        raise click.UsageError("--target-epsilon and --solve go together")
    try:
        with Console(stderr=True).status("computing every method"):
            if solve is not None and target_epsilon is not None:
                local_epsilon, users, rounds = _solved(
                    solve, target_epsilon, delta, local_epsilon, users, sampled, rounds
                )
            schedule = _schedule(local_epsilon, users, sampled, rounds)
            from beam_ldp.accounting.comparison import compare

            prices = compare(schedule, delta)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if form == "json":
        from beam_ldp.pipelines.terminal import printed_json

        print(printed_json(_as_json(schedule, delta, prices, solve)))
    else:
        _show(schedule, delta, prices, solve)
    sys.stdout.flush()


def _schedule(
    local_epsilon: float | None, users: int | None, sampled: int | None, rounds: int
) -> Schedule:
    from beam_ldp.accounting import MAX_LOCAL_EPSILON
    from beam_ldp.accounting.comparison import Schedule

    if local_epsilon is None or users is None:
        missing = "--local-epsilon" if local_epsilon is None else "--users"
        raise click.UsageError(f"{missing} is missing; or name it as the unknown with --solve")
    if not 0 < local_epsilon <= MAX_LOCAL_EPSILON:
        raise click.UsageError(
            f"--local-epsilon must lie in (0, {MAX_LOCAL_EPSILON:g}], got {local_epsilon:g}"
        )
    if sampled is not None and sampled > users:
        raise click.UsageError(f"--sampled must be at most --users ({users}), got {sampled}")
    return Schedule(local_epsilon, users, users if sampled is None else sampled, rounds)


def _solved(
    unknown: str,
    target: float,
    delta: float,
    local_epsilon: float | None,
    users: int | None,
    sampled: int | None,
    rounds: int,
) -> tuple[float | None, int | None, int]:
    """The three parameters with the unknown one filled in, rounded to the safe side."""
    from beam_ldp.accounting.comparison import solve_schedule

    if not target > 0:
        raise click.UsageError(f"--target-epsilon must be > 0, got {target:g}")
    if unknown == "local-epsilon":
        highest = 20.0
        found = solve_schedule(
            target, delta, lambda e: _schedule(e, users, sampled, rounds),
            _LEAST_LOCAL_EPSILON, highest,
        )  # fmt: skip
        return math.floor(found * 1e4) / 1e4, users, rounds
    if unknown == "rounds":
        found = solve_schedule(
            target, delta, lambda r: _schedule(local_epsilon, users, sampled, int(r)), 1, 1e6
        )
        return local_epsilon, users, int(found)
    # More people cost less: the parameter that grows with the price is 1 / users.
    least = max(sampled or 1, 2)
    found = solve_schedule(
        target, delta, lambda x: _schedule(local_epsilon, math.ceil(1e9 / x), sampled, rounds),
        1.0, 1e9 / least,
    )  # fmt: skip
    return local_epsilon, math.ceil(1e9 / found), rounds


def _as_json(
    schedule: Schedule, delta: float, prices: Sequence[MethodPrice], solve: str | None
) -> dict[str, Any]:
    rows = [
        {**asdict(price), "epsilon": price.epsilon if math.isfinite(price.epsilon) else None}
        for price in prices
    ]
    return {
        "schema_version": SCHEMA_VERSION,
        **asdict(schedule),
        "delta": delta,
        "solved_for": solve,
        "epsilon": rows[0]["epsilon"],
        "methods": rows,
    }


def _show(
    schedule: Schedule, delta: float, prices: Sequence[MethodPrice], solve: str | None
) -> None:
    who = f"{schedule.num_users:,} people"
    if schedule.sampled:
        who += f", {schedule.num_sampled:,} drawn for each round"
    console = Console()
    if solve is not None:
        console.print(f"[bold]{solve} = {_solution(schedule, solve)}[/bold]")
    floor = next(price.epsilon for price in prices if price.kind == "lower")
    table = Table(
        title=f"{who}, {schedule.rounds:,} rounds, local epsilon {schedule.local_epsilon:g}, "
        f"delta = {delta:g}",
        title_justify="left",
        caption="bold: the smallest proved price. Times floor: over what some randomizer with "
        "this local epsilon really costs, below which nothing can be proved for all of them",
        caption_justify="left",
    )
    table.add_column("method")
    table.add_column("holds for")
    table.add_column("epsilon", justify="right")
    table.add_column("times floor", justify="right")
    total = schedule.rounds * schedule.local_epsilon
    holds = {
        "upper": "every randomizer",
        "lower": "the floor",
        "seen": "readers who see who took part",
    }
    for i, price in enumerate(prices):
        table.add_row(
            price.method,
            holds[price.kind],
            number(price.epsilon) if price.epsilon <= total else "more than the sum",
            f"{price.epsilon / floor:,.2f}" if floor > 0 and price.epsilon <= total else "",
            style="bold" if i == 0 else None,
        )
    console.print(table)


def _solution(schedule: Schedule, solve: str) -> str:
    return {
        "local-epsilon": f"{schedule.local_epsilon:g}",
        "rounds": f"{schedule.rounds:,}",
        "users": f"{schedule.num_users:,}",
    }[solve]
