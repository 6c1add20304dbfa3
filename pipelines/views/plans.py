"""What people see of a plan: the job's time and bytes, and every mechanism's error by budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.records.statement import number
from beam_ldp.pipelines.views.pictures import (
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
from beam_ldp.planning.costs import Output, coefficients, is_fitted, job_cost
from beam_ldp.randomizers.base import LocalRandomizer

if TYPE_CHECKING:
    from beam_ldp.planning import MeanPlan, Plan


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
        console.print(
            f"{name} is not covered by the cost model: timed on this machine", style="dim"
        )


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


HEIGHT = 5.6  # inches
# From a quarter of the budget to four times as much: beyond that it is another plan.
FACTORS = (0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0)
_OTHERS = ("#e08e2b", "#1b998b", "#7b4fa3", "#8c6d46", "#c2649a", "#6f8f2f", "#3aa0c9", "#a33b3b")


@dataclass(frozen=True)
class Curve:
    """One mechanism's error at several budgets; NaN where it may not be used.

    Attributes:
        mechanism: name of the class.
        budgets: epsilons, growing.
        errors: one per budget.
    """

    mechanism: str
    budgets: tuple[float, ...]
    errors: tuple[float, ...]


def curves(
    plan_at: Callable[[float], Sequence[Any]], budget: float, error: Callable[[Any], float]
) -> list[Curve]:
    """The curves of all mechanisms that may be used somewhere, the best one at `budget` first.

    Args:
        plan_at: the plans at a budget, best first.
        budget: the one that was asked for.
        error: what is drawn of a plan.
    """
    budgets = [budget * factor for factor in FACTORS]
    found = {at: plan_at(at) for at in budgets}
    ranked = [plan.mechanism for plan in found[budget]]
    errors: dict[str, dict[float, float]] = {name: {} for name in ranked}
    for at, plans in found.items():
        for plan in plans:
            if not plan.excluded and plan.mechanism in errors:
                errors[plan.mechanism][at] = error(plan)
    return [
        Curve(name, tuple(budgets), tuple(errors[name].get(at, math.nan) for at in budgets))
        for name in ranked
        if errors[name]
    ]


def draw(drawn: Sequence[Curve], budget: float, subtitle: str, across: str, upward: str) -> Any:
    """The figure, both axes logarithmic.

    Args:
        drawn: of `curves`, at least one.
        budget: marked with a dashed line, and the best mechanism's point on it with a dot.
        subtitle: what was planned.
        across, upward: what the axes say.
    """
    figure = figure_with("What a budget buys", subtitle, HEIGHT)
    axes = figure.add_axes((0.09, BELOW / HEIGHT, 0.62, 1 - (ABOVE + BELOW) / HEIGHT))
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends = []
    for i, curve in enumerate(drawn):
        colour = ESTIMATE if i == 0 else _OTHERS[(i - 1) % len(_OTHERS)]
        axes.plot(
            curve.budgets, curve.errors, "-" if i <= len(_OTHERS) else "--", color=colour,
            linewidth=2.6 if i == 0 else 1.3, zorder=4 if i == 0 else 3, label=curve.mechanism,
        )  # fmt: skip
        ends.append((_last(curve.errors), curve.mechanism, colour))
    axes.axvline(budget, color=GREY, linestyle="--", linewidth=1, zorder=2)
    best = drawn[0]
    here = best.errors[best.budgets.index(budget)]
    if math.isfinite(here):
        axes.plot([budget], [here], "o", color=TRUTH, markersize=8, zorder=6, label="your plan")
        axes.annotate(
            f"{best.mechanism}: {here:,.3g} at {budget:g}", (budget, here), xytext=(-8, -16),
            textcoords="offset points", ha="right", color=TRUTH, fontsize=9, zorder=7,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
        )  # fmt: skip
    _style(axes, best.budgets, across, upward)
    label_ends(axes, best.budgets[-1], ends, gap=0.05)
    return figure


def write_plot(figure: Any, path: Path) -> None:
    """Write the picture; a usage error where that fails."""
    try:
        path.write_bytes(png(figure))
    except OSError as error:
        raise click.UsageError(f"--plot {path}: {error.strerror}") from None


def _last(errors: Sequence[float]) -> float:
    return [error for error in errors if math.isfinite(error)][-1]


def _style(axes: Any, budgets: Sequence[float], across: str, upward: str) -> None:
    axes.margins(x=0, y=0.08)
    axes.set_xticks([budgets[0] * factor for factor in (1, 2, 4, 8, 16)])
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: "")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
    axes.yaxis.set_minor_formatter(lambda value, _: "")
    axes.grid(which="major", color=GRID, linewidth=0.8, zorder=0)
    axes.set_axisbelow(True)
    bare(axes, "top", "right")
    axes.set_xlabel(across, color=GREY)
    axes.set_ylabel(upward, color=GREY)


def frequency_row(plan: Plan, users: int) -> dict[str, Any]:
    """A plan for frequencies, for programs."""
    if plan.randomizer is None or plan.epsilon is None:
        return {"mechanism": {"mechanism": plan.mechanism}, "excluded": plan.excluded}
    return {
        "mechanism": plan.config,
        "local_epsilon": plan.local_epsilon,
        "epsilon": float(plan.epsilon),
        "epsilon_lower": plan.epsilon.lower or None,
        "method": plan.epsilon.method,
        "standard_error": plan.standard_error,
        "count_standard_error": plan.standard_error * users,
        "rms_error": plan.rms_error,
        "bits_per_report": plan.bits_per_report,
        "decoding": plan.decoding,
        "excluded": plan.excluded or None,
    }


def show_frequencies(plans: Sequence[Plan], users: int, title: str) -> None:
    """Plans for frequencies, the best first, and why others are left out."""
    table = Table(
        title=title,
        title_justify="left",
        caption="error: standard error of the count of a value that hardly anybody holds",
        caption_justify="left",
    )
    table.add_column("mechanism", no_wrap=True)
    for heading in ("local epsilon", "epsilon", "error (people)", "bits"):
        table.add_column(heading, justify="right")
    usable = [plan for plan in plans if not plan.excluded]
    for i, plan in enumerate(usable):
        table.add_row(
            plan.mechanism,
            number(plan.local_epsilon),
            number(plan.epsilon),
            f"{plan.standard_error * users:,.0f}",
            f"{plan.bits_per_report:,}",
            style="bold" if i == 0 else None,
        )
    console = Console()
    console.print(table)
    for plan in plans:
        if plan.excluded:
            console.print(f"left out: {plan.mechanism} ({escape(plan.excluded)})", style="dim")


def mean_row(plan: MeanPlan) -> dict[str, Any]:
    """A plan for means, for programs."""
    if plan.randomizer is None:
        return {"mechanism": {"mechanism": plan.mechanism}, "excluded": plan.excluded}
    price = plan.epsilon
    times = plan.times_lower_bound
    return {
        "mechanism": plan.config,
        "messages_per_user": plan.messages_per_user,
        "local_epsilon": plan.local_epsilon,
        "epsilon": None if price is None else float(price),
        "epsilon_lower": None if price is None else price.lower or None,
        "method": None if price is None else price.method,
        "mean_squared_error": plan.mean_squared_error,
        "standard_error": plan.standard_error,
        "rms_error": plan.rms_error,
        "times_lower_bound": times if math.isfinite(times) else None,
        "lower_bound_name": plan.lower_bound_name,
        "bits_per_report": plan.bits_per_report,
        "decoding": plan.decoding,
        "excluded": plan.excluded or None,
    }


def show_means(plans: Sequence[MeanPlan], title: str) -> None:
    """Plans for means, likewise."""
    usable = [one for one in plans if not one.excluded]
    reference = usable[0].lower_bound_name if usable else ""
    table = Table(
        title=title,
        title_justify="left",
        caption="error: of one coordinate (standard) and of the whole vector (RMS)\n"
        f"times: squared error over {reference}",
        caption_justify="left",
        box=None,
        padding=(0, 2, 0, 0),
    )
    table.add_column("\nmechanism", no_wrap=True)
    for heading in ("\nsent", "local\nepsilon", "\nepsilon", "standard\nerror", "RMS\nerror",
                    "\ntimes", "\nbits"):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for i, one in enumerate(usable):
        table.add_row(
            one.mechanism,
            f"{one.messages_per_user:,}",
            number(one.local_epsilon),
            number(one.epsilon),
            f"{one.standard_error:.3g}",
            f"{one.rms_error:.3g}",
            f"{one.times_lower_bound:,.3g}",
            f"{one.bits_per_report:,}",
            style="bold" if i == 0 else None,
        )
    console = Console()
    if usable:
        console.print(table)
    else:
        console.print("no mechanism meets these limits")
    for one in plans:
        if one.excluded:
            console.print(f"left out: {one.mechanism} ({escape(one.excluded)})", style="dim")
