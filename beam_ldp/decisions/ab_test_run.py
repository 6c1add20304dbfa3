"""`beam-ldp ab-test run`: does an effect show, as the plan says?

The same program as `python -m beam_ldp.decisions.ab_test_run`.

A plan decides once: what was decided is written beside it, and holds whoever decides again.
`test.json` has `test.decided-1.json` beside it from its first look on, with the counts of reports
that were decided. Later looks go on from them. The same counts give the same verdict; other counts
are refused. Where a ledger is charged, it refuses a second decision too, wherever the plan lies.
"""

from __future__ import annotations

import json
import os
import sys
import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from beam_ldp.decisions.experiments.arms import ArmCounts
from beam_ldp.decisions.experiments.plan import ExperimentPlan
from beam_ldp.decisions.experiments.verdict import ExperimentVerdict
from beam_ldp.decisions.outcomes import Counts, Outcomes, decision_id, least_reports
from beam_ldp.decisions.usage import RUN, OutcomeQuestion
from beam_ldp.decisions.views import OutcomeView
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.devices.values import AskedValues, check_new
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.usage import randomize
from beam_ldp.questions.base import View
from beam_ldp.randomizers.domain import Domain
from beam_ldp.release import worker_results as results
from beam_ldp.release.binding import FilesLook
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.job import checked_job, need, section_from, with_files
from beam_ldp.release.parts import gate_parts
from beam_ldp.release.run import Run
from beam_ldp.release.statement import say_by
from beam_ldp.settings import SettingError
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments, Usage
from beam_ldp.transforms.elements.blocks import Release

say_by(__package__)


class ExperimentRun(Run):
    """A release of all arms of an experiment, decided once, as its plan says."""

    declared: Outcomes

    @cached_property
    def run_id(self) -> str:
        """One charge for one decision: a ledger grants it once, whoever asks again."""
        return f"{self.job.dataset[:100]}-{self.job.noise.id}"

    def gate(self, found: results.WorkerResults) -> Release:
        """All arms of the plan. Raises NothingReleasedError where one of them is missing."""
        plan = self.declared.experiment
        arms = plan.arms if plan.kind == "arms" else (None,)
        released = [part for part in found.releases if part.group in arms]
        withheld = [notice for notice in found.withheld if notice.group in arms]
        parts = gate_parts(released, withheld, self.job, self.declared.name, found.bad_rows)
        there = {part.group for part in parts.releases}
        if missing := [str(arm) for arm in arms if arm not in there]:
            counts = {notice.group: notice.num_reports for notice in withheld}
            told = ", ".join(f"{arm} has {counts.get(arm, 0):,}" for arm in missing)
            raise NothingReleasedError(
                "nothing was released: every arm of the plan needs --min-reports "
                f"{self.job.min_reports:,}; {told}"
            )
        return parts

    def conclude(self, view: View) -> None:
        """What is decided is written down beside the plan, and then holds."""
        assert isinstance(view, OutcomeView)
        if not view.release.simulated:
            design, output = self.job.question.design, str(self.job.output.folder)
            write_down(design, self.declared.experiment, view.verdict, view.counts, output)


def outcomes_job(usage: Usage, given: Arguments) -> Job:
    """What was asked for, with what its plan says; whose flags they are, `usage` tells: those of
    `ab-test run`, or of devices. Raises SettingError."""
    need(usage, given, "source.paths", *OutcomeQuestion.needs, "output.folder")
    question: OutcomeQuestion = section_from(given, usage, "question", OutcomeQuestion)
    try:
        question = question.settled(given)
    except SettingError as error:
        raise SettingError(error.said(usage.flag_of)) from None
    assert question.plan is not None
    given = planned(given, question.plan, question.look)
    return with_files(checked_job(usage, given, question))


def bound_experiment(usage: Usage, given: Arguments) -> ExperimentRun:
    """The release that somebody asked for, of a look that may still be decided. Raises
    SettingError."""
    job = outcomes_job(usage, given)
    question = job.question
    earlier = earlier_looks(question.design, question.plan, question.look)
    if not (job.noise.simulated or job.noise.memoized):
        check_undecided(question.design, question.look)
    asked: Outcomes = question.bind(job, FilesLook(job))
    return ExperimentRun(usage, job, replace(asked, earlier=earlier))


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


# What was decided ---------------------------------------------------------------------------------


def place(design: str, look: int) -> Path:
    """Where a look is written down."""
    path = Path(design)
    return path.with_name(f"{path.stem}.decided-{look}.json")


def earlier_looks(design: str, plan: ExperimentPlan, look: int) -> tuple[Counts, ...]:
    """The counts of the looks before this one.

    Raises:
        SettingError: if one of them is missing, of another plan, or ended the experiment.
    """
    found = []
    for number in range(1, look):
        path = place(design, number)
        try:
            told = json.loads(path.read_text("utf-8"))
            counts = {arm: ArmCounts(*told["counts"][arm]) for arm in plan.arms}
            digest, decision = told["digest"], told["decision"]
        except (OSError, ValueError, KeyError, TypeError):
            raise SettingError(
                f"--look {look} goes on from look {number}, which {path} should hold: decide it "
                "first, or put the file back"
            ) from None
        if digest != plan.digest:
            raise SettingError(f"{path} is of another plan than --design {design}")
        if decision == "effect" or (decision != "go on" and plan.spending != "anytime"):
            raise SettingError(f"the experiment ended at look {number}: {decision}")
        found.append(counts)
    return tuple(found)


def check_undecided(design: str, look: int) -> None:
    """Refuse, before anybody's privacy is spent, what would give other counts than those decided.

    Raises:
        SettingError: if the look was decided.
    """
    if (path := place(design, look)).exists():
        raise SettingError(
            f"this look was decided before: see {path}. With fresh noise the counts would be "
            "others, and a plan decides once; with --memoize-key-file the same reports give the "
            "same verdict. For more people make a new plan, or one with looks"
        )


def write_down(
    design: str, plan: ExperimentPlan, verdict: ExperimentVerdict, counts: Counts, output: str
) -> None:
    """Write down what is decided, unless it is already.

    Raises:
        NothingReleasedError: if the look was decided on other reports, or cannot be written down.
    """
    path = place(design, verdict.look)
    told: dict[str, Any] = {
        "digest": plan.digest,
        "look": verdict.look,
        "counts": {arm: [count.people, count.ones] for arm, count in counts.items()},
        "decision": verdict.decision,
    }
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        aside.write_text(json.dumps({**told, "output": output}, indent=2) + "\n", "utf-8")
        os.link(aside, path)  # whole or not at all, and by one run only
    except FileExistsError:
        _same(path, told)
    except OSError as error:
        raise NothingReleasedError(
            f"nothing was released: what is decided could not be written down in {path} "
            f"({error.strerror})"
        ) from None
    finally:
        aside.unlink(missing_ok=True)


def _same(path: Path, told: Mapping[str, Any]) -> None:
    """A NothingReleasedError unless the file tells the same."""
    try:
        before = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        before = {}
    if not isinstance(before, dict):
        before = {}
    if {name: before.get(name) for name in told} == told:
        return
    raise NothingReleasedError(
        f"nothing was released: this look was decided before, on other reports: see {path}"
        f"{' and ' + str(before['output']) if before.get('output') else ''}. A plan decides once; "
        "for more people make a new plan, or one with looks"
    )


# Outcomes on devices ------------------------------------------------------------------------------

# What goes with `--experiment`: everything else is in the plan, or means nothing here.
_WITH_EXPERIMENT = {
    "source": {"paths", "format", "delimiter", "max_bad_rows"},
    "question": {"column", "experiment", "look"},
    "people": {"id", "one_row", "group_by"},
    "privacy": {"max_local_epsilon", "trust_shuffler"},
    "release": {"dataset", "key_file", "seed", "log", "log_key_file"},
    "output": {"folder", "format", "reports_per_envelope"},
    "": {"only_plan"},
}


def outcomes_on_devices(given: Arguments) -> AskedValues:
    """Outcomes of an experiment, as its plan asks devices for them. Raises SettingError."""
    usage = randomize.USAGE
    for home, section in given.settings.items():
        for name in set(section) - _WITH_EXPERIMENT.get(home, set()):
            flag = usage.flag_of(f"{home}.{name}")
            raise SettingError(f"{flag} does not go with --experiment, whose plan says it")
    need(usage, given, "source.paths", "release.dataset", "output.folder")
    check_new(given["output"]["folder"])
    asked = dict(given["question"])
    asked["design"] = asked.pop("experiment")
    told = Arguments({**given.settings, "question": asked}, given.beam_flags)
    job = outcomes_job(usage, told)
    run = Run(usage, job, job.question.bind(job, FilesLook(job)))
    return AskedValues(run, given["output"].get("reports_per_envelope", 1))


PROGRAM = programs.program_of(RUN, bound_experiment)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(RUN))
