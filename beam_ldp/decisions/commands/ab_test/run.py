"""`beam-ldp ab-test run`: does an effect show, as the plan says?

The same program as `python -m beam_ldp.decisions.commands.ab_test.run`.
"""

from __future__ import annotations

import sys
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.decisions import ExperimentPlan
from beam_ldp.decisions.commands.ab_test.answer import ExperimentAnswer
from beam_ldp.decisions.commands.ab_test.choice import (
    ExperimentPlanner,
    ExperimentRecord,
    OutcomeSettings,
    checked_outcomes,
)
from beam_ldp.decisions.commands.ab_test.decided import (
    Counts,
    check_undecided,
    earlier_looks,
    write_down,
)
from beam_ldp.decisions.commands.usage import RUN
from beam_ldp.decisions.stages.outcomes import OutcomeQuery, counts_of
from beam_ldp.pipelines import run
from beam_ldp.pipelines.commands import start
from beam_ldp.pipelines.flags import Arguments
from beam_ldp.pipelines.frequencies.parts import Parts, gate_parts, part_facts
from beam_ldp.pipelines.jobs import results
from beam_ldp.pipelines.planner import Choice
from beam_ldp.pipelines.question import Answer, Question
from beam_ldp.pipelines.records.gates import NothingReleasedError
from beam_ldp.transforms.elements.blocks import Release


class Experiment(ExperimentPlanner, Question[OutcomeSettings]):
    """Does an effect show?

    Args:
        settings: checked flags.
        experiment: the plan.
        earlier: what was counted at the looks before this one.
    """

    usage = RUN

    def __init__(
        self, settings: OutcomeSettings, experiment: ExperimentPlan, earlier: tuple[Counts, ...]
    ) -> None:
        super().__init__(settings, experiment)
        self.earlier = earlier

    @classmethod
    def check(cls, given: Arguments) -> OutcomeSettings:
        return checked_outcomes(given)[0]

    @classmethod
    def of(cls, given: Arguments) -> Experiment:
        settings, plan = checked_outcomes(given)
        question = settings.question
        earlier = earlier_looks(question.design, plan, question.look)
        if settings.noise.seed is None and not settings.noise.memoized:
            check_undecided(question.design, question.look)
        return cls(settings, plan, earlier)

    @property
    def record_type(self) -> type[ExperimentRecord]:
        return ExperimentRecord

    @property
    def about(self) -> str:
        return self.settings.question.column[0]

    @cached_property
    def run_id(self) -> str:
        """One charge for one decision: a ledger grants it once, whoever asks again."""
        return f"{self.settings.dataset[:100]}-{self.settings.noise.id}"

    @property
    def value_columns(self) -> tuple[str, ...]:
        return self.settings.question.column

    @cached_property
    def query(self) -> OutcomeQuery:
        return OutcomeQuery(self.experiment, self.about, self.settings.question.look, self.about)

    def gate(self, found: results.WorkerResults) -> Release:
        """All arms of the plan. Raises NothingReleasedError where one of them is missing."""
        arms = self.experiment.arms if self.experiment.kind == "arms" else (None,)
        released = [part for part in found.releases if part.group in arms]
        withheld = [notice for notice in found.withheld if notice.group in arms]
        parts = gate_parts(released, withheld, self.settings, self.about, found.bad_rows)
        there = {part.group for part in parts.releases}
        if missing := [str(arm) for arm in arms if arm not in there]:
            counts = {notice.group: notice.num_reports for notice in withheld}
            told = ", ".join(f"{arm} has {counts.get(arm, 0):,}" for arm in missing)
            raise NothingReleasedError(
                "nothing was released: every arm of the plan needs --min-reports "
                f"{self.settings.min_reports:,}; {told}"
            )
        return parts

    def facts(self, choice: Choice[Any], release: Release) -> dict[str, Any]:
        assert isinstance(release, Parts)
        plan = self.experiment
        told = part_facts(
            release, choice.mechanism, self.settings, self.price, self.settings.people.group_by
        )
        verdict = self._verdict_of(release).verdict
        return {
            **told,
            "plan": plan.digest,
            "decision": verdict.decision,
            "look": verdict.look,
            "looks": plan.looks,
            "alpha": plan.alpha,
            "effect_interval_level": verdict.interval_level,
        }

    def answer(self, release: Release, choice: Choice[Any], truth: np.ndarray | None) -> Answer:
        return self._verdict_of(release)

    def _verdict_of(self, release: Release) -> ExperimentAnswer:
        assert isinstance(release, Parts)
        plan = self.experiment
        counts = {part.group or plan.arms[0]: counts_of(plan, part) for part in release.releases}
        return ExperimentAnswer(release, plan, (*self.earlier, counts))

    def last_word(self, answer: Answer) -> None:
        """What is decided is written down beside the plan, and then holds."""
        assert isinstance(answer, ExperimentAnswer)
        if not answer.release.simulated:
            question, output = self.settings.question, self.settings.output.folder
            write_down(question.design, self.experiment, answer.verdict, answer.counts, str(output))


PROGRAM = run.program_of(Experiment)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(RUN))
