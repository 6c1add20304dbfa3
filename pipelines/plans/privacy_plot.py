"""The picture of a price: epsilon against rounds, or against people for a single round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from beam_ldp.accounting.literature.comparison import price_of
from beam_ldp.accounting.literature.methods import DEFAULT
from beam_ldp.accounting.literature.schedule import Schedule
from beam_ldp.pipelines.views.canvas import (
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

HEIGHT = 5.6  # inches
_POINTS = 17
_SHORT = 2.2  # decades: then 2 and 5 are marked too
_AMBER, _GREEN = "#e08e2b", "#1b998b"
_LEAST_CROWD = 10
# Method, colour, line, width; the first that applies of each group is drawn.
_LINES: tuple[tuple[tuple[str, ...], str, str, float], ...] = (
    (("thesis, Theorem 5.4.1", "thesis, Theorem 5.3.1"), TRUTH, "-", 1.6),
    (("clone pair, optimal composition", "Feldman et al. 2021, Theorem 3.1"), _AMBER, "-", 1.6),
    ((DEFAULT,), ESTIMATE, "-", 2.4),
    (("own pair, privacy losses", "own messages"), _GREEN, "-", 2.4),
    (("own data sets",), _GREEN, ":", 1.6),
)
_FLOORS = ("binary randomized response", "ternary randomized response")
_FLOOR = "floor of all randomizers"


def plot_prices(schedule: Schedule, delta: float, say: Callable[[str], None]) -> bytes:
    """PNG of the main methods and of the floor, both axes logarithmic."""
    against_rounds = schedule.rounds > 1
    along = rounds_along(schedule) if against_rounds else crowds_along(schedule)
    x = [s.rounds if against_rounds else s.num_users for s in along]
    title = "What it costs, round after round" if against_rounds else "What one release costs"
    figure = figure_with(title, _subtitle(schedule, delta), HEIGHT)
    axes = figure.add_axes((0.09, BELOW / HEIGHT, 0.62, 1 - (ABOVE + BELOW) / HEIGHT))
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
    _style(axes, np.concatenate([y for y, _, _ in lines]), against_rounds)
    ends = [(float(y[-1]), f"{name}\n{y[-1]:.3g}", colour) for y, name, colour in lines]
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
    return max(price_of(name, schedule, delta) or 0.0 for name in _FLOORS)


def _style(axes: Any, values: np.ndarray, against_rounds: bool) -> None:
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
