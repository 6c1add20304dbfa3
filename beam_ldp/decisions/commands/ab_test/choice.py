"""What an experiment is before its data: its plan, its settings and cost, and its record."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beam_ldp.decisions import ExperimentPlan
from beam_ldp.decisions.commands.usage import RUN, OutcomeQuestion
from beam_ldp.decisions.stages.outcomes import decision_id, least_reports
from beam_ldp.pipelines.frequencies.parts import PartsRecord
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release.job import absolute, need, section_from, settings_from, with_files
from beam_ldp.release.statement import say_by
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job, checked
from beam_ldp.settings.usage import Arguments, Usage

say_by(__package__)


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


def checked_outcomes(given: Arguments, usage: Usage = RUN) -> tuple[Job, ExperimentPlan]:
    """The settings and the plan, with every rule checked. Raises SettingError.

    Args:
        given: what was asked for.
        usage: whose flags they are: of `ab-test run`, or of devices.
    """
    need(usage, given, "source.paths", "question.column", "question.design", "output.folder")
    question = section_from(given, usage, "question", OutcomeQuestion)
    question = replace(question, design=absolute(question.design))
    plan = read_plan(question.design)
    told = settings_from(planned(given, plan, question.look), usage, question, Job)
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


def _check(settings: Job, plan: ExperimentPlan, usage: Usage) -> None:
    question, people = settings.question, settings.people
    outcome, arm = usage.flag_of("question.column"), usage.flag_of("people.group_by")
    if len(question.column) > 1:
        raise SettingError(f"{outcome} must name one column: another outcome is another experiment")
    if plan.kind == "compound" or plan.value_range is not None:
        raise SettingError(
            "--design: outcomes are 0 or 1 here; a numeric or compound plan is decided from counts "
            "by `beam_ldp.decisions.decide`"
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
