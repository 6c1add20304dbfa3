"""What people see of the plans of a frequency: mechanisms, designs of several questions, trees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.table import Table

from beam_ldp.pipelines.views.plans import ComparedPlans, Plans
from beam_ldp.planning import Plan
from beam_ldp.planning.frequencies import LeastErrors, least_errors
from beam_ldp.planning.questions import rare_errors
from beam_ldp.planning.ranges import range_errors
from beam_ldp.questions.forging import forged_cell, forged_moves
from beam_ldp.questions.frequencies import Frequencies, rare_error
from beam_ldp.questions.numbers import NumberTree
from beam_ldp.questions.surveys import Survey
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release.planned import PlannedRun
from beam_ldp.settings.job import Job
from beam_ldp.wording import number


def plans_for(run: PlannedRun) -> Plans:
    """The plans of what is asked."""
    kinds: dict[Any, Any] = {Frequencies: ListPlans, Survey: SurveyPlans, NumberTree: TreePlans}
    found: Plans = kinds[type(run.declared)](run)
    return found


class FrequencyPlans(ComparedPlans):
    """The plans of a frequency, and what each group sees where there are groups."""

    asked: Any

    @property
    def task(self) -> dict[str, Any]:
        found = {"users": self.job.planned_reports, "delta": self.job.privacy.delta}
        return found if self.run.groups is None else {**found, "groups": self.groups}

    @property
    def groups(self) -> list[dict[str, Any]]:
        """Of groups of several sizes what their readers see: the smallest, and an equal share."""
        job, groups = self.job, self.run.groups
        if groups is None or not self.found:
            return []
        sizes = {"smallest": job.min_reports}
        people = job.privacy.expected_users
        if people is not None and people // (groups.size - 1) > job.min_reports:
            sizes["equal share"] = people // (groups.size - 1)
        found = []
        for name, size in sizes.items():
            price = self.run.price_among(size)
            error = self._error_among(size)
            found.append(
                {
                    "group": name,
                    "num_reports": size,
                    "epsilon": None if price is None else float(price.bound or math.nan),
                    "standard_error": error,
                    "count_standard_error": error * size,
                }
            )
        return found

    def _error_among(self, num_reports: int) -> float:
        """Of a rare value; of a range, where ranges are asked for."""
        asked, randomizer = self.run.asked, self.run.choice.mechanism
        if isinstance(asked, NumberTree):
            return float(range_errors(asked.tree, randomizer, num_reports)[0])
        if isinstance(asked, Survey):
            return max(rare_errors(randomizer, num_reports))
        return rare_error(randomizer, num_reports)

    @property
    def subtitle(self) -> str:
        settings = self.job
        said = ", ".join(text for _, text in self.run.inputs())
        people = f"{settings.planned_reports:,} people"
        return f"{people}, {said}, delta = {settings.privacy.delta:g}".replace("'", "`")

    def show(self, workers: int | None = None, price: float | None = None) -> None:
        super().show(workers, price)
        if not self.groups:
            return
        table = Table(title="What the readers of one group see", title_justify="left")
        for heading in ("group", "reports", "epsilon", "error", "error (people)"):
            table.add_column(heading, justify="left" if heading == "group" else "right")
        for group in self.groups:
            table.add_row(
                group["group"], f"{group['num_reports']:,}", number(group["epsilon"]),
                readable(group['standard_error']), f"{group['count_standard_error']:,.0f}",
            )  # fmt: skip
        Console().print(table)


class ListPlans(FrequencyPlans):
    """Of one list, or of bins without a tree."""

    upward = "standard error of a rare value's count, people"

    def plans_at(self, job: Job) -> list[Plan]:
        return self.asked.plans(job)

    @property
    def task(self) -> dict[str, Any]:
        found = {**super().task, "domain_size": self.asked.domain.size - 1}
        least = self.least
        return found if least is None else {**found, "least_error": least.per_value}

    @property
    def least(self) -> LeastErrors | None:
        """What no mechanism of the first plan's local epsilon is below."""
        settings = self.job
        first = next((plan for plan in self.plans if not plan.excluded), None)
        if first is None:
            return None
        size, people = self.asked.domain.size, settings.planned_reports
        return least_errors(size, people, first.local_epsilon, settings.mechanism.random_bits)

    def row(self, plan: Plan) -> dict[str, Any]:
        return frequency_row(plan, self.job.planned_reports)

    def show_plans(self) -> None:
        settings = self.job
        limited = settings.mechanism.random_bits is not None
        show_frequencies(self.plans, settings.planned_reports, self.title, limited)
        if self.least is not None:
            people = self.least.per_value * settings.planned_reports
            Console().print(
                f"best possible: {people:,.0f} people, on average over all values: no estimate "
                "from a mechanism of this local epsilon"
                + " and so few random bits" * limited
                + " is below for every population, biased ones included",
                style="dim",
            )

    def error(self, plan: Plan) -> float:
        return plan.standard_error * self.job.planned_reports


class SurveyPlans(FrequencyPlans):
    """Of several lists: who answers which question, with which oracle."""

    has_costs = False
    upward = "RMS error of all answers, share of the people"
    columns = ("local epsilon", "epsilon", "worst error (people)", "bits")

    def plans_at(self, job: Job) -> Sequence[Any]:
        return [self._named(plan) for plan in self.asked.plans(job)]

    def _named(self, plan: Any) -> Any:
        return replace(plan, mechanism=f"{_design(plan)}: {plan.oracle}")

    def row(self, plan: Plan) -> dict[str, Any]:
        return _row(plan) | {
            "standard_errors": [one if math.isfinite(one) else None for one in plan.standard_errors]
        }

    def cells(self, plan: Plan) -> tuple[str, ...]:
        """Of the table."""
        people = max(plan.standard_errors) * self.job.planned_reports
        return f"{people:,.0f}", f"{plan.bits_per_report:,}"

    def show_plans(self) -> None:
        table = Table(
            title=self.subtitle, title_justify="left", box=None, padding=(0, 2, 0, 0),
            caption="one: each person answers one question, drawn at random; all: all of them,\n"
            "with a split budget. Epsilon is computed for the first plan", caption_justify="left",
        )  # fmt: skip
        table.add_column("mechanism")
        for heading in self.columns:
            table.add_column(heading, justify="right")
        for i, plan in enumerate(plan for plan in self.plans if not plan.excluded):
            epsilon = "" if plan.epsilon is None else number(plan.epsilon)
            table.add_row(
                plan.mechanism, number(plan.local_epsilon), epsilon, *self.cells(plan),
                style="bold" if i == 0 else None,
            )  # fmt: skip
        Console().print(table)

    def error(self, plan: Any) -> float:
        return float(plan.rms_error)


class TreePlans(SurveyPlans):
    """Of ranges and quantiles of a number: trees of several fan-outs."""

    upward = "RMS error of a range, share of the people"
    columns = ("local epsilon", "epsilon", "error of a range (people)", "bits")

    def _named(self, plan: Plan) -> Plan:
        tree = f"fan-out {plan.tree.fan_out}"
        return replace(plan, mechanism=f"{tree}, {_design(plan)}: {plan.oracle}")

    def row(self, plan: Any) -> dict[str, Any]:
        return _row(plan) | {"fan_out": plan.tree.fan_out, "worst_error": plan.worst_error}

    def cells(self, plan: Any) -> tuple[str, ...]:
        people = plan.rms_error * self.job.planned_reports
        return f"{people:,.0f}", f"{plan.randomizer.bits_per_report:,}"


def _design(plan: Any) -> str:
    """As `--design` has it."""
    return "all" if plan.mechanism == "EveryQuestion" else "one"


def _row(plan: Any) -> dict[str, Any]:
    """Of several questions, for programs."""
    if plan.randomizer is None:
        return {"mechanism": {"mechanism": plan.mechanism}, "excluded": plan.excluded}
    known = plan.epsilon_if_known
    return {
        "mechanism": plan.randomizer.to_config(),
        "oracle": plan.oracle,
        "local_epsilon": plan.local_epsilon,
        "epsilon": None if plan.epsilon is None else float(plan.epsilon),
        "epsilon_if_known": None if known is None else float(known),
        "rms_error": plan.rms_error,
        "bits_per_report": plan.randomizer.bits_per_report,
        "excluded": plan.excluded or None,
    }


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
        "random_bits": plan.random_bits,
        "forged": forged_moves(plan.randomizer, users),
        "decoding": plan.decoding,
        "excluded": plan.excluded or None,
    }


def show_frequencies(plans: Sequence[Plan], users: int, title: str, limited: bool = False) -> None:
    """Plans for frequencies, the best first, and why others are left out.

    Where random bits are `limited`, also what a report takes of them.
    """
    table = Table(
        title=title,
        title_justify="left",
        caption="error: standard error of the count of a value that hardly anybody holds\n"
        "1 % lie: by how many people they move the count of a value, at most",
        caption_justify="left",
    )
    table.add_column("mechanism", no_wrap=True)
    headings = ("local epsilon", "epsilon", "error (people)", "1 % lie", "bits")
    for heading in (*headings, "random bits") if limited else headings:
        table.add_column(heading, justify="right")
    usable = [plan for plan in plans if not plan.excluded]
    for i, plan in enumerate(usable):
        table.add_row(
            plan.mechanism,
            number(plan.local_epsilon),
            number(plan.epsilon),
            f"{plan.standard_error * users:,.0f}",
            forged_cell(forged_moves(plan.randomizer, users)),
            f"{plan.bits_per_report:,}",
            *((number(plan.random_bits),) if limited else ()),
            style="bold" if i == 0 else None,
        )
    Console().print(table)
