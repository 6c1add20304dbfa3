"""Numbers on the command line: `--bins 0:100:64 --quantiles 0.1,0.5,0.9 --between 18:65`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beam_ldp.pipelines.frequencies.questions import Survey, SurveyChoice
from beam_ldp.pipelines.usage.frequency import FrequencyQuestion
from beam_ldp.planning import Plan
from beam_ldp.planning.questions import Design
from beam_ldp.planning.ranges import plan_ranges, range_errors
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.hierarchy import Hierarchy
from beam_ldp.randomizers.questions import EveryQuestion, Questions
from beam_ldp.release.job import Settings
from beam_ldp.release.planner import Rows
from beam_ldp.settings import SettingError

if TYPE_CHECKING:
    from beam_ldp.pipelines.frequencies.answer import PartsAnswer
    from beam_ldp.pipelines.frequencies.parts import Parts
    from beam_ldp.transforms.questions import LevelsQuestion


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


class NumberTree(Survey):
    """Ranges and quantiles of a number: one question per level of a tree.

    Args:
        column: with the number.
        wanted: what is asked about it.
    """

    def __init__(self, column: str, wanted: NumberQuestion) -> None:
        self.about = column
        self.wanted = wanted
        self.tree = Hierarchy(wanted.bins, wanted.fan_out or 2)  # until it is planned

    @property
    def asked(self) -> tuple[LevelsQuestion, ...]:
        """One question per level."""
        from beam_ldp.transforms.questions import LevelsQuestion

        return (LevelsQuestion(self.about, self.tree),)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for question in self.asked for name in question.names)

    def plans(self, settings: Settings[Any], designs: Sequence[Design]) -> list[Plan]:
        fan_out = self.wanted.fan_out
        if settings.mechanism.name != "auto":
            raise SettingError("--mechanism must be auto with --quantiles and --between")
        return plan_ranges(
            settings.planned_reports,
            self.wanted.bins,
            epsilon=settings.privacy.epsilon,
            local_epsilon=settings.privacy.local_epsilon,
            delta=settings.privacy.delta or None,
            honest_fraction=settings.hiding_share,
            fan_outs=None if fan_out is None else (fan_out,),
            designs=designs,
            max_local_epsilon=settings.privacy.local_limit,
        )

    def plan(self, settings: Settings[Any], designs: Sequence[Design]) -> Questions:
        best = self.plans(settings, designs)[0]
        self.tree = best.tree
        return best.randomizer

    def chosen(self, settings: Settings[Any], randomizer: Questions) -> SurveyChoice:
        self._error, _ = range_errors(self.tree, randomizer, settings.planned_reports)
        return super().chosen(settings, randomizer)

    def inputs(self) -> Rows:
        edges = self.wanted.bins.edges
        return [("bins", f"{self.wanted.bins.count:,} from {edges[0]:g} to {edges[-1]:g}")]

    def expected(self, choice: SurveyChoice) -> Rows:
        levels = " + ".join(f"{size:,}" for size in self.tree.sizes)
        every = isinstance(choice.mechanism, EveryQuestion)
        who = "everybody answers every level" if every else "each person answers one level"
        if len(self.tree.sizes) == 1:
            who = "no tree"
        people = self._error * choice.num_reports
        return [
            ("tree", f"fan-out {self.tree.fan_out}: {levels} nodes; {who}"),
            ("error of a range", f"{readable(self._error)} of the people, that is {people:,.0f}"),
        ]

    def answer(self, parts: Parts, top: int) -> PartsAnswer:
        from beam_ldp.pipelines.frequencies.numeric import NumberAnswer

        return NumberAnswer(parts, self.tree, self.about, self.wanted)
