"""Numbers in public bins: `--bins 0:100:64 --quantiles 0.1,0.5,0.9 --between 18:65`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from beam_ldp.planning import Plan
from beam_ldp.planning.ranges import plan_ranges, range_errors
from beam_ldp.questions.base import Choice, Rows
from beam_ldp.questions.bins import NumberQuestion, PublishedNumber
from beam_ldp.questions.number_view import NumberView
from beam_ldp.questions.published import Published
from beam_ldp.questions.surveys import LevelsQuestion, Survey
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.questions import EveryQuestion
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.settings.job import Job


@dataclass(frozen=True, eq=False)
class NumberTree(Survey):
    """Ranges and quantiles of a number: one question for each level of a tree over bins.

    Attributes:
        wanted: what is asked about it.
    """

    wanted: NumberQuestion = None  # type: ignore[assignment]

    @classmethod
    def of(cls, column: str, wanted: NumberQuestion, design: str = "auto") -> NumberTree:
        """The question of a column; its tree has two children a node until it is planned."""
        tree = Hierarchy(wanted.bins, wanted.fan_out or 2)
        return cls((LevelsQuestion(column, tree),), design=design, wanted=wanted)

    @property
    def name(self) -> str:  # type: ignore[override]
        """That of the number."""
        return self.questions[0].column

    @property
    def tree(self) -> Hierarchy:
        """Over the bins."""
        (levels,) = self.questions
        assert isinstance(levels, LevelsQuestion)
        return levels.tree

    def unlisted(self, values: Any) -> tuple[str, ...]:
        return ()

    def on_devices(self, job: Job, mechanism: Any) -> Published:
        return PublishedNumber(self.name, replace(self.wanted, fan_out=self.tree.fan_out))

    def plans(self, job: Job) -> list[Plan]:
        if job.mechanism.name != "auto":
            raise SettingError("--mechanism must be auto with --quantiles and --between")
        fan_out = self.wanted.fan_out
        return plan_ranges(
            job.planned_reports,
            self.wanted.bins,
            epsilon=job.privacy.epsilon,
            local_epsilon=job.privacy.local_epsilon,
            delta=job.privacy.delta or None,
            honest_fraction=job.hiding_share,
            fan_outs=None if fan_out is None else (fan_out,),
            designs=self.designs,
            max_local_epsilon=job.privacy.local_limit,
        )

    def planned(self, choice: Choice) -> NumberTree:
        tree = self.tree if choice.plan is None else choice.plan.tree
        return replace(self, questions=(LevelsQuestion(self.name, tree),))

    def inputs(self, job: Job) -> Rows:
        edges = self.wanted.bins.edges
        return [("bins", f"{self.wanted.bins.count:,} from {edges[0]:g} to {edges[-1]:g}")]

    def expected(self, job: Job, choice: Choice) -> Rows:
        error, _ = range_errors(self.tree, choice.mechanism, job.planned_reports)
        levels = " + ".join(f"{size:,}" for size in self.tree.sizes)
        every = isinstance(choice.mechanism, EveryQuestion)
        who = "everybody answers every level" if every else "each person answers one level"
        if len(self.tree.sizes) == 1:
            who = "no tree"
        people = error * choice.num_reports
        return [
            ("tree", f"fan-out {self.tree.fan_out}: {levels} nodes; {who}"),
            ("error of a range", f"{readable(error)} of the people, that is {people:,.0f}"),
        ]

    def facts(self, job: Job, choice: Choice, release: Any) -> dict[str, Any]:
        return {}

    def view_of_parts(self, job: Job, choice: Choice, parts: Any) -> NumberView:
        return NumberView(parts, self.tree, self.name, self.wanted)
