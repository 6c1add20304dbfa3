"""What people see of the plans of a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from beam_ldp.pipelines.views.attack import attack_row, show_attacks
from beam_ldp.pipelines.views.frontier import TALL, Spot, draw_spots
from beam_ldp.pipelines.views.plans import HEIGHT, ComparedPlans, colours
from beam_ldp.planning import Plan
from beam_ldp.questions.forging import forged_as_json, forged_cell, forged_moves
from beam_ldp.questions.means import Means
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release.planned import PlannedRun
from beam_ldp.settings.job import Job
from beam_ldp.settings.sections import MAX_LOCAL_EPSILON
from beam_ldp.wording import many, number, promise

_MOST_SENT, _MOST_BITS = 10_000, 100_000  # from here on not all digits are written
_PLAIN_ERROR = 1e-4  # below it with an exponent
LEAST_ATTACKED = 2  # numbers that have a direction


class MeanPlans(ComparedPlans):
    """All mechanisms for a mean.

    Args:
        run: the release.
        attacked: whether to tell what somebody sees of one person; then of 2 dimensions or more.
    """

    asked: Means
    upward = "RMS error of the mean, in the unit of the data"
    foot = TALL
    drawn = "error against epsilon, against bits and against local epsilon"

    def __init__(self, run: PlannedRun, attacked: bool = False) -> None:
        super().__init__(run)
        self.attacked = attacked

    def plans_at(self, job: Job) -> list[Plan]:
        """What was asked for with all that is worth a choice, another budget with the best."""
        return self.asked.plans(job, several=job.privacy == self.job.privacy)

    @property
    def task(self) -> dict[str, Any]:
        settings = self.job
        return {
            "users": settings.planned_reports,
            "dimension": self.asked.dimension,
            "norm": settings.question.norm,
            "radius": settings.question.radius,
            "model": settings.privacy.model,
        }

    @property
    def subtitle(self) -> str:
        settings = self.job
        where = _ball(settings.question.norm, settings.question.radius)
        if self.asked.ranges is not None:
            where = "in units of half a range"
        delta = f", delta = {settings.privacy.delta:g}" if settings.privacy.delta else ""
        people = f"{settings.planned_reports:,} people, {many(self.asked.dimension, 'coordinate')}"
        return f"{people}, {where}{delta}"

    def row(self, plan: Plan) -> dict[str, Any]:
        row = mean_row(plan)
        if self.attacked and plan.randomizer is not None:
            row["attack"] = attack_row(plan, self.asked.dimension)
        return row

    def show_plans(self) -> None:
        show_means(self.plans, self.title)
        if self.attacked:
            show_attacks([one for one in self.plans if not one.excluded], self.asked.dimension)

    def error(self, plan: Plan) -> float:
        return plan.rms_error

    def draw_foot(self, figure: Any, names: Sequence[str]) -> None:
        spots = [
            Spot(plan.mechanism, plan.rms_error, plan.bits_per_report, plan.local_epsilon)
            for plan in self.plans
            if not plan.excluded
        ]
        draw_spots(figure, spots, colours(names), HEIGHT + TALL, "RMS error of the mean")


def _ball(norm: Any, radius: float) -> str:
    if norm == "binary":
        return "each 0 or 1"
    name = norm if isinstance(norm, str) else f"l{norm:g}"
    return f"{name} ball of radius {radius:g}"


def mean_row(plan: Plan) -> dict[str, Any]:
    """A plan for means, for programs."""
    if plan.randomizer is None:
        return {"mechanism": {"mechanism": plan.mechanism}, "excluded": plan.excluded}
    price = plan.epsilon
    times = plan.times_lower_bound
    return {
        "mechanism": plan.config,
        "messages_per_user": plan.messages_per_user,
        "local_epsilon": plan.local_epsilon if math.isfinite(plan.local_epsilon) else None,
        "trusted": plan.trusted,
        "epsilon": None if price is None else float(price),
        "epsilon_lower": None if price is None else price.lower or None,
        "method": None if price is None else price.method,
        "mean_squared_error": plan.mean_squared_error,
        "standard_error": plan.standard_error,
        "rms_error": plan.rms_error,
        "times_lower_bound": times if math.isfinite(times) else None,
        "lower_bound_name": plan.lower_bound_name,
        "bits_per_report": plan.bits_per_report,
        "compression": plan.randomizer.compression,
        "forged": forged_as_json(plan.randomizer, 1),
        "decoding": plan.decoding,
        "excluded": plan.excluded or None,
    }


def _trust_said(plans: Sequence[Plan]) -> str:
    """Below a table in which not all rows need but the device."""
    told = ""
    if any(plan.trusted != "device" for plan in plans):
        told = f"\nlocal epsilon above {MAX_LOCAL_EPSILON:g}: the shuffler, too, must be trusted"
    if any(math.isinf(plan.local_epsilon) for plan in plans):
        told += ";\ninf: without it nobody is protected; one liar moves the mean by any length"
    return told


def _error(value: float) -> str:
    """In eight characters."""
    return readable(value) if value >= _PLAIN_ERROR else f"{value:.2e}"


def _count(count: int, most: int) -> str:
    """In thousands or millions from `most` on, where all digits do not fit."""
    if count < most:
        return f"{count:,}"
    return f"{count / 1000:,.0f}k" if count < 999_500 else f"{count / 1e6:,.3g}M"


def compression_cell(ratio: float) -> str:
    """How many times as short as float32, in three characters: the table is as wide as it may."""
    if ratio >= 9.95:
        return f"{ratio / 1000:.0f}k" if ratio >= 999.5 else f"{ratio:.0f}"
    return f"{ratio:.1f}"


def show_means(plans: Sequence[Plan], title: str) -> None:
    """Plans for means, likewise."""
    usable = [one for one in plans if not one.excluded]
    reference = usable[0].lower_bound_name if usable else ""
    table = Table(
        title=title,
        title_justify="left",
        caption="error: of one coordinate (standard) and of the whole vector (RMS)\n"
        f"times: squared error over {reference}\n"
        "1 % lie: how far they move the mean, at most (Euclidean length)\n"
        "x f32: a vector of float32 over the bits sent" + _trust_said(usable),
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("\nmechanism", no_wrap=True)
    for heading in ("\nsent", "local\neps", "\neps", "stand.\nerror", "RMS\nerror",
                    "\ntimes", "1 %\nlie", "\nbits", "x\nf32"):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    for i, one in enumerate(usable):
        table.add_row(
            one.mechanism,
            _count(one.messages_per_user, _MOST_SENT),
            promise(one.local_epsilon).replace("infinite", "inf"),
            number(one.epsilon),
            _error(one.standard_error),
            _error(one.rms_error),
            readable(one.times_lower_bound),
            forged_cell(forged_moves(one.randomizer, 1)),
            _count(one.bits_per_report, _MOST_BITS),
            "" if one.randomizer is None else compression_cell(one.randomizer.compression),
            style="bold" if i == 0 else None,
        )
    console = Console()
    if usable:
        console.print(table)
    else:
        console.print("no mechanism meets these limits")
