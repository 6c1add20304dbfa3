"""`beam-ldp ab-test run`: does an effect show, as the plan says?

The same program as `python -m beam_ldp.decisions.commands.ab_test.run`.
"""

from __future__ import annotations

import math
import sys
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.accounting.prices import expected_price
from beam_ldp.decisions import ExperimentPlan
from beam_ldp.decisions.commands.ab_test.answer import ExperimentAnswer
from beam_ldp.decisions.commands.ab_test.choice import (
    ExperimentRecord,
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
from beam_ldp.pipelines import programs
from beam_ldp.pipelines.flags import start
from beam_ldp.pipelines.frequencies.parts import Parts, gate_parts, part_facts
from beam_ldp.randomizers.estimate import readable
from beam_ldp.release import worker_results as results
from beam_ldp.release.gates import NothingReleasedError
from beam_ldp.release.planner import Choice, Rows
from beam_ldp.release.question import Answer, Question
from beam_ldp.settings.job import Job
from beam_ldp.settings.usage import Arguments
from beam_ldp.transforms.elements.blocks import Release


class Experiment(Question):
    """Does an effect show?

    Args:
        settings: checked flags.
        experiment: the plan.
        earlier: what was counted at the looks before this one.
    """

    usage = RUN

    def __init__(
        self, settings: Job, experiment: ExperimentPlan, earlier: tuple[Counts, ...]
    ) -> None:
        super().__init__(settings)
        self.experiment, self.earlier = experiment, earlier

    @classmethod
    def check(cls, given: Arguments) -> Job:
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

    # Before the data ------------------------------------------------------------------------------

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

    # After them -----------------------------------------------------------------------------------

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


PROGRAM = programs.program_of(Experiment)
main = PROGRAM.main

if __name__ == "__main__":
    sys.exit(start(RUN))
