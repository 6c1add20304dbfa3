"""The picture of a price: epsilon against rounds, or against people for a single round."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from beam_ldp.accounting.comparison import price_of
from beam_ldp.accounting.methods import DEFAULT
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.pipelines.plots import ESTIMATE, GREY, TRUTH

_POINTS = 13
_LEAST_CROWD = 10
# Method, colour, line, width; the first that applies of each group is drawn.
_LINES: tuple[tuple[tuple[str, ...], str, str, float], ...] = (
    (("thesis, Theorem 5.4.1", "thesis, Theorem 5.3.1"), TRUTH, "-", 1.6),
    (("clone pair, optimal composition",), "#e08e2b", "-", 1.6),
    ((DEFAULT,), ESTIMATE, "-", 2.4),
    (("own pair, privacy losses", "own messages"), "#1b998b", "-", 2.4),
)
_FLOORS = ("binary randomized response", "ternary randomized response")


def plot_prices(schedule: Schedule, delta: float, say: Callable[[str], None]) -> bytes:
    """PNG of the main methods and of the floor, both axes logarithmic."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    against_rounds = schedule.rounds > 1
    along = rounds_along(schedule) if against_rounds else crowds_along(schedule)
    x = [s.rounds if against_rounds else s.num_users for s in along]
    figure = Figure(figsize=(9, 5.6), dpi=150)
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.09, 0.12, 0.62, 0.72))
    floor = [_floor(s, delta) for s in along]
    ends = []
    for names, colour, line, width in _LINES:
        say(names[0])
        name = next((n for n in names if price_of(n, along[-1], delta) is not None), None)
        if name is None:
            continue
        prices = [price_of(name, s, delta) for s in along]
        y = np.array([np.nan if p is None else p for p in prices])
        axes.plot(x, y, line, color=colour, linewidth=width, zorder=3)
        ends.append((float(y[-1]), name, colour))
    axes.plot(x, floor, "--", color=GREY, linewidth=1.6, zorder=2)
    axes.fill_between(x, 1e-12, floor, color=GREY, alpha=0.12, linewidth=0, zorder=1)
    ends.append((floor[-1], "floor: some randomizer costs this", GREY))
    _style(axes, [end[0] for end in ends] + floor, against_rounds)
    _label(axes, x[-1], ends)
    title = "What it costs, round after round" if against_rounds else "What one release costs"
    figure.text(0.03, 0.945, title, fontsize=13, fontweight="bold")
    figure.text(0.03, 0.895, _subtitle(schedule, delta), fontsize=9, color=GREY)
    stream = io.BytesIO()
    figure.savefig(stream, format="png", metadata={"Software": "beam-ldp"})
    return stream.getvalue()


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


def _floor(schedule: Schedule, delta: float) -> float:
    """Zero where there is no floor; logarithmic axes leave it out."""
    return max(price_of(name, schedule, delta) or 0.0 for name in _FLOORS)


def _style(axes: Any, values: list[float], against_rounds: bool) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    seen = [v for v in values if v > 0]
    axes.set_ylim(min(seen) / 2, max(seen) * 2.5)
    axes.grid(which="major", color="#e3e7eb", linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.margins(x=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_xlabel("rounds" if against_rounds else "people", color=GREY)
    axes.set_ylabel("epsilon", color=GREY)


def _label(axes: Any, x: float, ends: list[tuple[float, str, str]]) -> None:
    """Names at the ends of the lines, pushed apart where they would overlap."""
    low, high = np.log(axes.get_ylim())
    gap = 0.075 * (high - low)
    place = -np.inf
    for value, name, colour in sorted(ends):
        place = max(float(np.log(value)), place + gap)
        axes.annotate(
            f"{name}\n{value:.3g}", (x, value), xytext=(1.03, (place - low) / (high - low)),
            textcoords="axes fraction", color=colour, fontsize=8, va="center",
            annotation_clip=False,
        )  # fmt: skip


def _subtitle(schedule: Schedule, delta: float) -> str:
    people = f"{schedule.num_users:,} people"
    if schedule.sampled:
        people += f", {schedule.num_sampled:,} per round"
    return (
        f"{people}, local epsilon {schedule.local_epsilon:g}, delta = {delta:g}; "
        f"against {schedule.reader}"
    )
