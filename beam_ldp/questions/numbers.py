"""Numbers in public bins: `--bins 0:100:64 --quantiles 0.1,0.5,0.9 --between 18:65`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from beam_ldp.planning import Plan
from beam_ldp.planning.ranges import plan_ranges, range_errors
from beam_ldp.questions.base import Choice, Rows
from beam_ldp.questions.number_view import NumberView
from beam_ldp.questions.surveys import LevelsQuestion, Survey
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.questions import EveryQuestion
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.questions.frequencies import FrequencyQuestion
    from beam_ldp.questions.on_devices import DeviceQuestion
    from beam_ldp.settings.job import Job


@dataclass(frozen=True)
class NumberQuestion:
    """What is asked about the numbers.

    Attributes:
        bins: the public edges.
        quantiles: levels in (0, 1).
        ranges: `(low, high)`, edges or infinities.
        fan_out: of the tree; None for the best.
    """

    bins: Bins
    quantiles: tuple[float, ...] = ()
    ranges: tuple[tuple[float, float], ...] = ()
    fan_out: int | None = None

    @property
    def needs_tree(self) -> bool:
        """Whether more than a histogram is asked for."""
        return bool(self.quantiles or self.ranges)


def number_question_of(question: FrequencyQuestion) -> NumberQuestion | None:
    """What the flags ask about numbers; None where they ask about values of a list.

    Raises:
        SettingError: naming the flag and what is allowed.
    """
    given = [
        name
        for name in ("quantiles", "between", "fan_out")
        if getattr(question, name) not in (None, ())
    ]
    if question.bins is None:
        if given:
            raise SettingError(f"--{given[0].replace('_', '-')} needs --bins")
        return None
    if question.domain:
        raise SettingError(
            "--bins and --domain exclude each other: a column holds either numbers or "
            "values of a list"
        )
    try:
        bins = Bins.parse(question.bins)
    except ValueError as error:
        raise SettingError(f"--bins {question.bins}: {error}") from None
    wanted = NumberQuestion(
        bins, levels_of(question.quantiles), ranges_of(question.between), question.fan_out
    )
    if wanted.needs_tree and question.bad_rows == "other":
        raise SettingError("--bad-rows other cannot be used with --quantiles and --between")
    check_number_question(wanted)
    return wanted


def check_number_question(wanted: NumberQuestion) -> None:
    """A SettingError unless the bins can tell what is asked."""
    if not wanted.needs_tree:
        if wanted.fan_out is not None:
            raise SettingError("--fan-out needs --quantiles or --between")
        return
    if not all(0 < level < 1 for level in wanted.quantiles):
        raise SettingError("--quantiles must be numbers in (0, 1), separated by commas")
    try:
        tree = Hierarchy(wanted.bins, 2 if wanted.fan_out is None else wanted.fan_out)
    except ValueError as error:
        raise SettingError(f"--bins: {error}") from None
    edges = (*tree.bins.edges, -math.inf, math.inf)
    for low, high in wanted.ranges:
        if low not in edges or high not in edges or not low < high:
            raise SettingError(
                f"--between {low:g}:{high:g}: both must be edges of --bins (or inf), increasing"
            )


def levels_of(text: str | None) -> tuple[float, ...]:
    """The levels of `--quantiles`. Raises SettingError."""
    if text is None:
        return ()
    try:
        levels = tuple(float(level) for level in text.split(","))
    except ValueError:
        levels = (0.0,)
    if not all(0 < level < 1 for level in levels):
        raise SettingError(
            f"--quantiles must be numbers in (0, 1), separated by commas, got {text}"
        )
    return levels


def ranges_of(given: Sequence[str] | None) -> tuple[tuple[float, float], ...]:
    """The ranges of `--between`. Raises SettingError."""
    found = []
    for text in given or ():
        try:
            low, high = map(float, text.split(":"))
        except ValueError:
            raise SettingError(f"--between must be LOW:HIGH, got {text}") from None
        found.append((low, high))
    return tuple(found)


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

    def on_devices(self, job: Job, mechanism: Any) -> DeviceQuestion:
        from beam_ldp.questions.on_devices import DeviceNumberQuestion

        return DeviceNumberQuestion(self.name, replace(self.wanted, fan_out=self.tree.fan_out))

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
