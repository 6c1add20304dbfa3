"""What an experiment is before its data: its plan, its settings and cost, and its record."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beam_ldp.experiments import ExperimentPlan
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.frequencies.parts import PartsRecord
from beam_ldp.pipelines.planner import Choice, Planner, Rows
from beam_ldp.pipelines.records.gates import expected_price
from beam_ldp.pipelines.settings import (
    Settings,
    absolute,
    checked,
    need,
    section_from,
    settings_from,
    with_files,
)
from beam_ldp.pipelines.usage import Usage
from beam_ldp.pipelines.usage.ab_test import USAGE, OutcomeQuestion
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release.statement import say_by
from beam_ldp.settings import SettingError
from beam_ldp.transforms.outcomes import decision_id, least_reports

say_by(__package__)
OutcomeSettings = Settings[OutcomeQuestion]


def read_plan(path: str) -> ExperimentPlan:
    """The plan of a file that `ab-test design` wrote. Raises SettingError."""
    try:
        stored = json.loads(Path(path).read_text("utf-8"))
        if not isinstance(stored, dict):
            raise ValueError("a plan is a JSON object")
        return ExperimentPlan.from_json(stored)
    except OSError as error:
        raise SettingError(f"--design {path}: cannot be read ({error.strerror})") from None
    except ValueError as error:
        raise SettingError(f"--design {path}: {error}") from None


def checked_outcomes(
    given: Arguments, usage: Usage = USAGE
) -> tuple[OutcomeSettings, ExperimentPlan]:
    """The settings and the plan, with every rule checked. Raises SettingError.

    Args:
        given: what was asked for.
        usage: whose flags they are: of `ab-test run`, or of devices.
    """
    need(usage, given, "source.paths", "question.column", "question.design", "output.folder")
    question = section_from(given, usage, "question", OutcomeQuestion)
    question = replace(question, design=absolute(question.design))
    plan = read_plan(question.design)
    told = settings_from(planned(given, plan, question.look), usage, question, OutcomeSettings)
    _check(told, plan, usage)
    return with_files(checked(told)), plan


def planned(given: Arguments, plan: ExperimentPlan, look: int) -> Arguments:
    """What was given, with what the plan says."""
    least = given["shuffle"].get("min_reports")
    told: dict[str, dict[str, Any]] = {
        "privacy": {
            "local_epsilon": plan.local_epsilon,
            "delta": plan.delta,
            "expected_users": -(-plan.people // plan.looks),
        },
        "shuffle": {"min_reports": least or least_reports(plan)},
        "release": {"id": decision_id(plan, look)},
    }
    if plan.kind == "arms":
        told["people"] = {"groups": Domain(plan.arms)}
    return Arguments(told, []).over(given)


def _check(settings: OutcomeSettings, plan: ExperimentPlan, usage: Usage) -> None:
    question, people = settings.question, settings.people
    outcome, arm = usage.flag_of("question.column"), usage.flag_of("people.group_by")
    if len(question.column) > 1:
        raise SettingError(f"{outcome} must name one column: another outcome is another experiment")
    if plan.kind == "compound" or plan.value_range is not None:
        raise SettingError(
            "--design: outcomes are 0 or 1 here; a numeric or compound plan is decided from counts "
            "by `ExperimentPlan.decide`"
        )
    if question.look > plan.looks and plan.spending != "anytime":
        raise SettingError(
            f"--look must be at most {plan.looks}, the looks of the plan, got {question.look}"
        )
    if (plan.kind == "arms") != (people.group_by is not None):
        names = ", ".join(plan.arms)
        if plan.kind == "arms":
            raise SettingError(f"{arm} is missing: which column holds the arms {names}?")
        raise SettingError(f"{arm} is for plans of several arms; this one has a single sample")
    if people.group_by is not None and people.group_by in (*question.column, people.id):
        raise SettingError(f"{arm} must name a column that is used for nothing else")


class ExperimentPlanner(Planner[OutcomeSettings]):
    """Does an effect show? Before the data.

    Args:
        settings: checked flags.
        experiment: the plan.
    """

    def __init__(self, settings: OutcomeSettings, experiment: ExperimentPlan) -> None:
        super().__init__(settings)
        self.experiment = experiment

    def choose(self) -> Choice[Any]:
        plan, privacy = self.experiment, self.settings.privacy
        randomizer, price = plan.randomizer(), None
        if self.settings.noise.seed is None:
            price = expected_price(randomizer, plan.crowd(), privacy.delta, privacy.honest_fraction)
        return Choice(randomizer, plan.crowd(), price, self._error())

    def _error(self) -> float:
        """Standard error of the effect that has the smallest arm, at the end of the plan."""
        plan = self.experiment
        variance = plan.channel.rate(plan.null_share) * (1 - plan.channel.rate(plan.null_share))
        counts = sorted(plan.arm_people().values())
        sides = counts[:1] if len(counts) == 1 else [counts[0], plan.arm_people()[plan.arms[0]]]
        return math.sqrt(sum(variance / count for count in sides)) / plan.channel.contrast

    def expectation(self, choice: Choice[Any]) -> str:
        plan = self.experiment
        return (
            f"an effect of {plan.effect:+g} will be seen with probability {plan.power:g}, and "
            f"claimed with {plan.alpha:g} at most where there is none"
        )

    def inputs(self) -> Rows:
        plan, question = self.experiment, self.settings.question
        rows = [("plan", f"{plan.digest[:16]}: {self._asked}")]
        if plan.kind == "arms":
            column = self.settings.people.group_by
            rows.append(("arms", f"column {column}: {', '.join(plan.arms)}"))
        if plan.looked:
            rows.append(("look", f"{question.look} of {plan.looks}"))
        return rows

    @property
    def _asked(self) -> str:
        plan = self.experiment
        against = "the control" if plan.kind == "arms" else f"a rate of {plan.null:g}"
        return f"{self.settings.question.column[0]}, {plan.effect:+g} against {against}"

    def expected(self, choice: Choice[Any]) -> Rows:
        plan = self.experiment
        return [
            ("people needed", f"{plan.people:,}"),
            ("false alarms", f"{plan.alpha:g} of experiments without an effect, at most"),
            ("power", f"{plan.power:g} of experiments with an effect of {plan.effect:+g}"),
            ("error of the effect", f"about {readable(choice.predicted_error * plan.scale)}"),
        ]

    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        return {"plan": {**self.experiment.to_json(), "digest": self.experiment.digest}}


# What its record and its statement say differently ------------------------------------------------


@dataclass(frozen=True)
class ExperimentRecord(PartsRecord):
    """The record of an experiment: a release for each arm, and what was decided.

    Attributes:
        statistic: "experiment".
        plan: digest of the plan.
        decision: "effect", "no effect shown" or "go on".
        look, looks: which look it was, of how many.
        alpha: probability of deciding any effect where there is none, at most.
        effect_interval_level: probability that the intervals of all effects hold at once.
    """

    kind = "experiment"

    statistic: str = "experiment"
    plan: str = ""
    decision: str = ""
    look: int = 1
    looks: int = 1
    alpha: float = 0.0
    effect_interval_level: float = 0.0
