"""`beam-ldp ab-test decide`: does an effect show, from reports that were randomized elsewhere?

The same program as `python -m beam_ldp.decisions.ab_test_decide`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from beam_ldp.decisions.ab_test_run import ExperimentRun, earlier_looks, planned
from beam_ldp.decisions.experiments.plan import ExperimentPlan
from beam_ldp.decisions.outcomes import OutcomeOnDevices, Outcomes, read_plan
from beam_ldp.decisions.usage import DECIDE, OutcomeQuestion
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import start
from beam_ldp.release.devices.collecting import CollectedRun, collected_job
from beam_ldp.release.devices.release_file import RELEASE_FILE, ReleaseFile, load_release
from beam_ldp.release.job import absolute, need
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import Arguments, Usage


class CollectedExperiment(CollectedRun, ExperimentRun):
    """Does an effect show, from reports that were randomized elsewhere?"""


def bound_decision(usage: Usage, given: Arguments) -> CollectedExperiment:
    """The release that somebody asked for: `release.json` says what was asked. Raises
    SettingError."""
    need(usage, given, "reports.reports", "question.design")
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
    question = OutcomeQuestion(column=(asked.column,), design=design, look=asked.look, plan=plan)
    job = collected_job(usage, given, agreed, question)
    earlier = earlier_looks(design, plan, asked.look)
    outcomes = Outcomes(plan, asked.column, asked.look, asked.column, earlier)
    return CollectedExperiment(usage, job, outcomes)


def _asked(agreed: ReleaseFile, place: str, plan: ExperimentPlan, design: str) -> OutcomeOnDevices:
    """What devices answered. A SettingError unless it is what the plan asks."""
    asked = agreed.asked
    if not isinstance(asked, OutcomeOnDevices):
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


PROGRAM = programs.program_of(DECIDE, bound_decision)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(DECIDE))
