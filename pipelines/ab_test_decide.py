"""`beam-ldp ab-test decide`: does an effect show, from reports that were randomized elsewhere?

The same program as `python -m beam_ldp.pipelines.ab_test_decide`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apache_beam as beam
from rich.console import Console

from beam_ldp.experiments import ExperimentPlan
from beam_ldp.pipelines import run
from beam_ldp.pipelines.checks import Job
from beam_ldp.pipelines.devices.collecting import (
    CollectSettings,
    DeviceReports,
    check_collected,
    count,
)
from beam_ldp.pipelines.devices.questions import DeviceOutcomeQuestion
from beam_ldp.pipelines.devices.release_file import RELEASE_FILE, ReleaseFile, load_release
from beam_ldp.pipelines.experiments.choice import ExperimentRecord, planned, read_plan
from beam_ldp.pipelines.experiments.decided import earlier_looks
from beam_ldp.pipelines.experiments.run import Experiment
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.jobs.job import Outputs
from beam_ldp.pipelines.planner import Choice, Rows
from beam_ldp.pipelines.settings import absolute, need
from beam_ldp.pipelines.usage.ab_test import OutcomeQuestion
from beam_ldp.pipelines.usage.ab_test_decide import USAGE
from beam_ldp.settings import SettingError
from beam_ldp.transforms.elements.blocks import Release


@dataclass(frozen=True)
class CollectExperimentRecord(ExperimentRecord):
    """The record of an experiment whose reports came from devices.

    Attributes:
        sampling: "iid" where a person has one report about one of their rows, else "fixed".
    """

    collected = True

    sampling: str = "fixed"


class Decide(DeviceReports, Experiment):
    """Does an effect show, from reports that were randomized elsewhere?"""

    usage = USAGE
    settings: CollectSettings[OutcomeQuestion]

    @classmethod
    def of(cls, given: Arguments) -> Decide:
        """The program as it was told: `release.json` says what was asked. Raises SettingError."""
        need(USAGE, given, "reports.reports", "question.design")
        place = given["reports"].get("release") or _beside(given["reports"]["reports"])
        agreed = load_release(place)
        design = absolute(given["question"]["design"])
        plan = read_plan(design)
        asked = _asked(agreed, place, plan, design)
        told = {
            "reports": {"release": place},
            "people": {"group_by": agreed.group_by} if agreed.group_by else {},
            "output": {"folder": given["output"].get("folder") or _verdict(design, asked.look)},
        }
        given = planned(Arguments(told, []).over(given), plan, asked.look)
        del given["release"]["id"]  # which is that of the reports
        question = OutcomeQuestion(column=(asked.column,), design=design, look=asked.look)
        settings = check_collected(given, agreed, question, USAGE)
        return cls(settings, plan, earlier_looks(design, plan, asked.look))

    @property
    def record_type(self) -> type[ExperimentRecord]:
        return CollectExperimentRecord

    def inputs(self) -> Rows:
        return [("release", self.settings.agreed.terms.identity.release_id), *super().inputs()]

    def stages(self, pipeline: beam.Pipeline, choice: Choice[Any]) -> Outputs:
        return count(pipeline, self.settings, self.query, self.staging)

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        return {**super().facts(choice, release), "sampling": self.settings.agreed.sampling}


def _asked(
    agreed: ReleaseFile, place: str, plan: ExperimentPlan, design: str
) -> DeviceOutcomeQuestion:
    """What devices answered. A SettingError unless it is what the plan asks."""
    asked = agreed.asked
    if not isinstance(asked, DeviceOutcomeQuestion):
        raise SettingError(f"--release {place}: these reports are of no experiment")
    if asked.plan != plan.digest:
        raise SettingError(f"--design {design}: the devices had another plan, see {place}")
    return asked


def _beside(reports: Sequence[str]) -> str:
    """`release.json` in the folder of the reports. Raises SettingError."""
    if len(reports) == 1 and "*" not in reports[0]:
        return f"{reports[0].rstrip('/')}/{RELEASE_FILE}"
    raise SettingError("--release is missing: where is the release.json of these reports?")


def _verdict(design: str, look: int) -> str:
    """Where a verdict goes that nobody gave a place."""
    path = Path(design)
    return str(path.with_name(f"{path.stem}.verdict-{look}"))


def to_check(given: Arguments) -> Job:
    """What `beam-ldp check` looks at. Raises SettingError."""
    return run.to_check(Decide, given)


def run_given(given: Arguments, console: Console) -> int:
    """The program as it was told, by flags or a job file."""
    return run.run_and_show(Decide, given, console)


def main(argv: Sequence[str] | None = None) -> int:
    """The program; the exit codes are in `--help`."""
    return run.main(Decide, argv)


if __name__ == "__main__":
    # The module that runs is called __main__; what workers unpickle must have its real name.
    from beam_ldp.pipelines.ab_test_decide import main as program

    sys.exit(program())
