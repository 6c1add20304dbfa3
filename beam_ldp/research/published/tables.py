"""The prices of a schedule: as a table, as JSON, and as a picture against rounds or people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.schedule import UNLIKELY, Schedule
from beam_ldp.accounting.schedule_prices import CLONES, FLOORS, OWN
from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    label_ends,
    png,
)
from beam_ldp.randomizers.estimate import readable
from beam_ldp.research.published.methods import MethodPrice, price_of
from beam_ldp.wording import many, number, rounded_down

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
    event, user = _unshuffled(schedule)
    return {
        "schema_version": SCHEMA_VERSION,
        **fields,
        "mechanism": mechanism,
        "delta": delta,
        "solved_for": solved_for,
        "epsilon": float(bound),
        "epsilon_lower": bound.lower or None,
        "epsilon_class_lower": bound.class_lower or None,
        "local_epsilon_event_level": event,
        "local_epsilon_user_level": user,
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


def _unshuffled(schedule: Schedule) -> tuple[float, float]:
    """What is promised without a shuffler: to a value of one report, and to all of a person's.

    Each report has noise of its own; a key that is used again is priced by nothing.
    """
    event = schedule.local_epsilon
    return event, event * schedule.points_sampled * schedule.most_rounds


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
    event, user = _unshuffled(schedule)
    if user > event:
        lines.append(
            f"local epsilon {number(event)} for each report (event level) and {number(user)} for "
            "all of a person's reports together (user level), against whoever sees them"
        )
    seen = min((p.seen_epsilon for p in prices if p.seen_epsilon is not None and _good(p)),
               default=None)  # fmt: skip
    if seen is not None:
        lines.append(
            f"[bold]epsilon = {number(seen)}[/bold] against readers who see who took part, for "
            f"data used in {schedule.seen.rounds:,} of {many(schedule.rounds, 'round')}"
        )
        certain = schedule.seen.rounds == schedule.most_rounds
        lines.append(
            "  nobody's is used more often"
            if certain
            else f"  the probability that anybody's is used more often is {UNLIKELY:.0e}"
        )
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
    total = schedule.most_rounds * schedule.local_epsilon
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
        f"{name}{who}, {many(schedule.rounds, 'round')}, "
        f"local epsilon {schedule.local_epsilon:g}, delta = {delta:g}"
    )


def _caption(schedule: Schedule, bound: PrivacyBound) -> str:
    caption = "bold: the smallest proved cost"
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


_HEIGHT = 5.6  # inches
_POINTS = 17
_SHORT = 2.2  # decades: then 2 and 5 are marked too
_AMBER, _GREEN = "#e08e2b", "#1b998b"
_LEAST_CROWD = 10
# Method, colour, line, width; the first that applies of each group is drawn.
_LINES: tuple[tuple[tuple[str, ...], str, str, float], ...] = (
    (("thesis, Theorem 5.4.1", "thesis, Theorem 5.3.1"), TRUTH, "-", 1.6),
    (("clone pair, optimal composition", "Feldman et al. 2021, Theorem 3.1"), _AMBER, "-", 1.6),
    ((CLONES.name,), ESTIMATE, "-", 2.4),
    (("own pair, privacy losses", "own messages"), _GREEN, "-", 2.4),
    (("own data sets",), _GREEN, ":", 1.6),
)
_FLOOR = "floor of all randomizers"


def plot_prices(schedule: Schedule, delta: float, say: Callable[[str], None]) -> bytes:
    """PNG of the main methods and of the floor, both axes logarithmic."""
    against_rounds = schedule.rounds > 1
    along = rounds_along(schedule) if against_rounds else crowds_along(schedule)
    x = [s.rounds if against_rounds else s.num_users for s in along]
    title = "What it costs, round after round" if against_rounds else "What one release costs"
    figure = figure_with(title, _subtitle(schedule, delta), _HEIGHT)
    axes = figure.add_axes((0.09, BELOW / _HEIGHT, 0.62, 1 - (ABOVE + BELOW) / _HEIGHT))
    lines = []
    for names, colour, style, width in _LINES:
        say(names[0])
        ordered = names if against_rounds else names[::-1]  # closed forms, where nothing composes
        name = next((n for n in ordered if price_of(n, along[-1], delta)), None)
        if name is not None:
            y = np.array([_capped(name, s, delta) for s in along])
            axes.plot(x, y, style, color=colour, linewidth=width, zorder=3)
            lines.append((y, name, colour))
    say(_FLOOR)
    floor = np.array([_floor(s, delta) for s in along])
    axes.plot(x, floor, "--", color=GREY, linewidth=1.6, zorder=2)
    axes.fill_between(x, 1e-12, floor, color=GREY, alpha=0.12, linewidth=0, zorder=1)
    lines.append((floor, _FLOOR, GREY))
    _style_axes(axes, np.concatenate([y for y, _, _ in lines]), against_rounds)
    ends = [(float(y[-1]), f"{name}\n{readable(y[-1])}", colour) for y, name, colour in lines]
    label_ends(axes, x[-1], ends)
    return png(figure)


def rounds_along(schedule: Schedule) -> list[Schedule]:
    """The same schedule cut short at a dozen points."""
    rounds = np.unique(np.geomspace(1, schedule.rounds, _POINTS).round().astype(int))
    return [replace(schedule, rounds=int(r)) for r in rounds]


def crowds_along(schedule: Schedule) -> list[Schedule]:
    """The same release with fewer people, at the same rate."""
    least = min(_LEAST_CROWD, schedule.num_users)
    users = np.unique(np.geomspace(least, schedule.num_users, _POINTS).round().astype(int))
    share = schedule.num_sampled / schedule.num_users
    return [
        replace(schedule, num_users=int(n), num_sampled=max(1, round(share * n))) for n in users
    ]


def _capped(name: str, schedule: Schedule, delta: float) -> float:
    """The price, at most the sum of the local epsilons; nowhere, where the method says nothing."""
    price = price_of(name, schedule, delta)
    return np.nan if price is None else min(price, schedule.rounds * schedule.local_epsilon)


def _floor(schedule: Schedule, delta: float) -> float:
    """Zero where there is no floor; logarithmic axes leave it out."""
    return max(floor.epsilon(schedule, delta)[0] or 0.0 for floor in FLOORS)


def _style_axes(axes: Any, values: np.ndarray, against_rounds: bool) -> None:
    from matplotlib.ticker import LogLocator

    axes.set_xscale("log")
    axes.set_yscale("log")
    seen = values[np.isfinite(values) & (values > 0)]
    axes.set_ylim(seen.min() / 1.6, seen.max() * 1.6)
    axes.margins(x=0)
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        short = np.log10(high / low) < _SHORT
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if short else (1.0,)))
        axis.set_minor_formatter(lambda value, _: "")
    axes.grid(which="major", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("rounds" if against_rounds else "people", color=GREY)
    axes.set_ylabel("epsilon", color=GREY)


def _subtitle(schedule: Schedule, delta: float) -> str:
    parts = [] if schedule.randomizer is None else [type(schedule.randomizer).__name__]
    if schedule.rounds > 1:
        parts.append(f"{schedule.num_users:,} people")
    if schedule.sampled:
        parts.append(f"{100 * schedule.rate:.3g} % of the data in a round")
    parts += [f"local epsilon {schedule.local_epsilon:g}", f"delta = {delta:g}"]
    return f"{', '.join(parts)}; against {schedule.reader}"
