"""What people see of a plan: the job's time and bytes, and every mechanism's error by budget."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.planning.costs import Output, coefficients, is_fitted, job_cost
from beam_ldp.planning.mechanisms import mechanism_of
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
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release.planned import PlannedRun
from beam_ldp.release.tables import plan_table
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job

if TYPE_CHECKING:
    from beam_ldp.training.plan import TrainingPlan

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
_OTHERS = ("#e08e2b", "#1b998b", "#7b4fa3", "#8c6d46", "#c2649a", "#6f8f2f", "#3aa0c9", "#a33b3b",
           "#4b5d67", "#b59f00")  # fmt: skip


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
    ranked = list(dict.fromkeys(plan.mechanism for plan in found[budget]))
    errors: dict[str, dict[float, float]] = {name: {} for name in ranked}
    for at, plans in found.items():
        for plan in plans:
            if not plan.excluded and plan.mechanism in errors:
                errors[plan.mechanism].setdefault(at, error(plan))  # of several rows the best
    return [
        Curve(name, tuple(budgets), tuple(errors[name].get(at, math.nan) for at in budgets))
        for name in ranked
        if errors[name]
    ]


def colours(names: Sequence[str]) -> dict[str, str]:
    """By mechanism, the best one first."""
    return {
        name: ESTIMATE if i == 0 else _OTHERS[(i - 1) % len(_OTHERS)]
        for i, name in enumerate(names)
    }


def draw(
    drawn: Sequence[Curve], budget: float, subtitle: str, across: str, upward: str, foot: float = 0
) -> Any:
    """The figure, both axes logarithmic.

    Args:
        drawn: of `curves`, at least one.
        budget: marked with a dashed line, and the best mechanism's point on it with a dot.
        subtitle: what was planned.
        across, upward: what the axes say.
        foot: inches to leave below for more.
    """
    height = HEIGHT + foot
    figure = figure_with("What a budget buys", subtitle, height)
    place = (0.09, (BELOW + foot) / height, 0.62, (HEIGHT - ABOVE - BELOW) / height)
    axes = figure.add_axes(place)
    named = colours([curve.mechanism for curve in drawn])
    axes.set_xscale("log")
    axes.set_yscale("log")
    ends = []
    for i, curve in enumerate(drawn):
        colour = named[curve.mechanism]
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
            f"{best.mechanism}: {readable(here)} at {budget:g}", (budget, here), xytext=(-8, -16),
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
        raise SettingError(f"--plot {path}: {error.strerror}") from None


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


class Plans:
    """The plan of one release, as people and programs see it.

    Args:
        run: the release, of which nothing runs.
    """

    def __init__(self, run: PlannedRun) -> None:
        self.run, self.job, self.asked = run, run.job, run.declared

    @property
    def found(self) -> bool:
        """Whether any mechanism meets the limits."""
        return True

    def as_json(self, workers: int | None = None, price: float | None = None) -> dict[str, Any]:
        """For programs: `release` is what the program's `--dry-run` says."""
        self._refuse_costs(workers)
        return {"release": self.run.as_json() if self.found else None}

    def show(self, workers: int | None = None, price: float | None = None) -> None:
        """For people."""
        self._refuse_costs(workers)
        if self.found:
            Console().print(plan_table(self.run))

    def _refuse_costs(self, workers: int | None) -> None:
        if workers is not None:
            raise SettingError("--workers: costs are known where one list or one mean is planned")

    def draw(self, path: str) -> None:
        """The picture of other budgets. Raises SettingError."""
        raise SettingError("--plot compares mechanisms, and here there is one plan")


class TrainPlans(Plans):
    """The plan of a training, as `beam-ldp plan` shows it.

    Args:
        plan: of the training.
    """

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan = plan

    def as_json(self, workers: int | None = None, price: float | None = None) -> dict[str, Any]:
        self._refuse_costs(workers)
        left_out = ("schema_version", "dry_run", "flows")
        from beam_ldp.training.view import plan_as_json

        found = plan_as_json(self.plan, None)
        return {"release": {name: one for name, one in found.items() if name not in left_out}}

    def show(self, workers: int | None = None, price: float | None = None) -> None:
        self._refuse_costs(workers)
        from beam_ldp.training.view import say_plan

        say_plan(self.plan, None)


class ComparedPlans(Plans):
    """The same, with all mechanisms for the task beside the one that would run."""

    has_costs: ClassVar[bool] = True

    @abstractmethod
    def plans_at(self, job: Job) -> Sequence[Any]:
        """All mechanisms, best first. Raises SettingError or ValueError."""

    @property
    @abstractmethod
    def task(self) -> dict[str, Any]:
        """What was asked, for programs."""

    @abstractmethod
    def row(self, plan: Any) -> dict[str, Any]:
        """One of them, for programs."""

    @abstractmethod
    def show_plans(self) -> None:
        """All of them, for people."""

    @abstractmethod
    def error(self, plan: Any) -> float:
        """What the picture draws."""

    @property
    @abstractmethod
    def subtitle(self) -> str:
        """What was planned, in words."""

    @property
    def title(self) -> str:
        """The same above a table, and of how many reports its epsilons are, if of fewer."""
        job = self.job
        if job.hiding_share == job.privacy.honest_fraction:
            return self.subtitle
        least = f"{job.min_reports:,}"
        return f"{self.subtitle}\nepsilon if only {least} report, the fewest that are released"

    @property
    @abstractmethod
    def upward(self) -> str:
        """What the picture's errors are."""

    @cached_property
    def plans(self) -> Sequence[Any]:
        """All mechanisms with these settings; one of somebody's own is among them."""
        return self._plans(self.job)

    def _plans(self, job: Job) -> Sequence[Any]:
        name = job.mechanism.name
        try:
            if ":" in name:
                mechanism_of(name)
            every = replace(job.mechanism, name=AUTO)
            return self.plans_at(replace(job, mechanism=every))
        except ValueError as error:
            raise SettingError(str(error)) from None

    @property
    def found(self) -> bool:
        auto = self.job.mechanism.name == AUTO
        return not (auto and all(plan.excluded for plan in self.plans))

    def as_json(self, workers: int | None = None, price: float | None = None) -> dict[str, Any]:
        self._refuse_costs(None if self.has_costs else workers)
        rows = [self.row(plan) for plan in self.plans]
        if workers is not None:
            for row, plan in zip(rows, self.plans):
                if plan.randomizer is not None:
                    row["cost"] = costs_as_json(plan.randomizer, self._people, workers, price)
        return {**self.task, **super().as_json(), "plans": rows}

    def show(self, workers: int | None = None, price: float | None = None) -> None:
        self._refuse_costs(None if self.has_costs else workers)
        self.show_plans()
        console = Console()
        for plan in self.plans:
            if plan.excluded:
                console.print(f"left out: {plan.mechanism} ({escape(plan.excluded)})", style="dim")
        if ":" in self.job.mechanism.name:
            show_summary(console, mechanism_of(self.job.mechanism.name))
        super().show()
        if workers is not None:
            usable = [plan.randomizer for plan in self.plans if not plan.excluded]
            show_costs(console, usable, self._people, workers, price)

    @property
    def _people(self) -> int:
        return int(self.job.planned_reports)

    def draw(self, path: str) -> None:
        privacy = self.job.privacy
        name = "local_epsilon" if privacy.epsilon is None else "epsilon"
        asked = getattr(privacy, name)

        def plans_at(budget: float) -> Sequence[Any]:
            if budget == asked:
                return self.plans
            other = replace(privacy, **{name: budget})  # type: ignore[arg-type]
            return self._plans(replace(self.job, privacy=other))

        with Console(stderr=True).status("planning at other budgets"):  # shown on terminals only
            found = curves(plans_at, asked, self.error)
        if not found:
            raise SettingError("--plot: no mechanism meets these limits at any budget near it")
        local = privacy.epsilon is None
        across = "local epsilon" if local else "epsilon of readers, after shuffling"
        figure = draw(found, asked, self.subtitle, across, self.upward, self.foot)
        self.draw_foot(figure, [curve.mechanism for curve in found])
        write_plot(figure, Path(path))
        Console(stderr=True).print(
            f"{path}: {self.drawn}", style="dim", highlight=False, soft_wrap=True
        )

    foot: ClassVar[float] = 0.0
    drawn: ClassVar[str] = "error against epsilon"

    def draw_foot(self, figure: Any, names: Sequence[str]) -> None:
        """What a picture shows below the curves, in `foot` inches; names in the curves' order."""


AUTO = "auto"


def show_summary(console: Console, kind: type[Any]) -> None:
    """What a mechanism from elsewhere says of itself, below a plan."""
    from beam_ldp.randomizers.registry import name_of, summary_of, synonyms_of

    also = f" ({synonyms_of(kind)})" if synonyms_of(kind) else ""
    console.print(f"{name_of(kind)}{also}: {summary_of(kind)}", style="dim", markup=False)


def mechanism_table(rows: Sequence[dict[str, str]]) -> Table:
    """All mechanisms, in their own words."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in rows[0]:
        table.add_column(heading, no_wrap=heading == "mechanism")
    for row in rows:
        table.add_row(*map(escape, row.values()))
    return table
