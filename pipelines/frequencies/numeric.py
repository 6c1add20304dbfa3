"""Numbers on the command line: `--bins 0:100:64 --quantiles 0.1,0.5,0.9 --between 18:65`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from beam_ldp.pipelines.flags import UsageError
from beam_ldp.pipelines.frequencies.answer import SCHEMA, FrequencyAnswer, estimate_table
from beam_ldp.pipelines.frequencies.parts import Parts
from beam_ldp.pipelines.frequencies.parts_answer import DRAWN, SHOWN, PartsAnswer, caption_of
from beam_ldp.pipelines.frequencies.questions import Survey, SurveyChoice
from beam_ldp.pipelines.outputs import LEVEL, PLACE, as_csv, place_columns
from beam_ldp.pipelines.question import Rows
from beam_ldp.pipelines.settings import Settings
from beam_ldp.pipelines.usage.frequency import FrequencyQuestion
from beam_ldp.pipelines.views.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    bare,
    figure_with,
    png,
)
from beam_ldp.pipelines.views.pictures import TRUTH as MARK
from beam_ldp.planning.questions import Design
from beam_ldp.planning.ranges import plan_ranges, range_errors
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.hierarchy import Hierarchy, Quantile, RangeEstimate
from beam_ldp.randomizers.questions import EveryQuestion, Questions
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.questions import LevelsQuestion

QUANTILES = pa.schema(
    [
        *PLACE,
        ("quantile", pa.float64()),
        ("value", pa.float64()),
        ("low", pa.float64()),
        ("high", pa.float64()),
    ]
)


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
        UsageError: naming the flag and what is allowed.
    """
    given = [
        name
        for name in ("quantiles", "between", "fan_out")
        if getattr(question, name) not in (None, ())
    ]
    if question.bins is None:
        if given:
            raise UsageError(f"--{given[0].replace('_', '-')} needs --bins")
        return None
    if question.domain:
        raise UsageError(
            "--bins and --domain exclude each other: a column holds either numbers or "
            "values of a list"
        )
    try:
        bins = Bins.parse(question.bins)
    except ValueError as error:
        raise UsageError(f"--bins {question.bins}: {error}") from None
    wanted = NumberQuestion(
        bins, levels_of(question.quantiles), ranges_of(question.between), question.fan_out
    )
    if wanted.needs_tree and question.bad_rows == "other":
        raise UsageError("--bad-rows other cannot be used with --quantiles and --between")
    check_number_question(wanted)
    return wanted


def check_number_question(wanted: NumberQuestion) -> None:
    """A UsageError unless the bins can tell what is asked."""
    if not wanted.needs_tree:
        if wanted.fan_out is not None:
            raise UsageError("--fan-out needs --quantiles or --between")
        return
    if not all(0 < level < 1 for level in wanted.quantiles):
        raise UsageError("--quantiles must be numbers in (0, 1), separated by commas")
    try:
        tree = Hierarchy(wanted.bins, 2 if wanted.fan_out is None else wanted.fan_out)
    except ValueError as error:
        raise UsageError(f"--bins: {error}") from None
    edges = (*tree.bins.edges, -math.inf, math.inf)
    for low, high in wanted.ranges:
        if low not in edges or high not in edges or not low < high:
            raise UsageError(
                f"--between {low:g}:{high:g}: both must be edges of --bins (or inf), increasing"
            )


def levels_of(text: str | None) -> tuple[float, ...]:
    """The levels of `--quantiles`. Raises UsageError."""
    if text is None:
        return ()
    try:
        levels = tuple(float(level) for level in text.split(","))
    except ValueError:
        levels = (0.0,)
    if not all(0 < level < 1 for level in levels):
        raise UsageError(f"--quantiles must be numbers in (0, 1), separated by commas, got {text}")
    return levels


def ranges_of(given: Sequence[str] | None) -> tuple[tuple[float, float], ...]:
    """The ranges of `--between`. Raises UsageError."""
    found = []
    for text in given or ():
        try:
            low, high = map(float, text.split(":"))
        except ValueError:
            raise UsageError(f"--between must be LOW:HIGH, got {text}") from None
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
    def asked(self) -> tuple[LevelsQuestion, ...]:  # type: ignore[override]
        """One question per level."""
        return (LevelsQuestion(self.about, self.tree),)

    def plan(self, settings: Settings[Any], designs: Sequence[Design]) -> Questions:
        fan_out = self.wanted.fan_out
        if settings.mechanism.name != "auto":
            raise UsageError("--mechanism must be auto with --quantiles and --between")
        best = plan_ranges(
            settings.planned_reports,
            self.wanted.bins,
            epsilon=settings.privacy.epsilon,
            local_epsilon=settings.privacy.local_epsilon,
            delta=settings.privacy.delta or None,
            honest_fraction=settings.privacy.honest_fraction,
            fan_outs=None if fan_out is None else (fan_out,),
            designs=designs,
            max_local_epsilon=settings.privacy.max_local_epsilon,
        )[0]
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
        every = isinstance(choice.randomizer, EveryQuestion)
        who = "everybody answers every level" if every else "each person answers one level"
        if len(self.tree.sizes) == 1:
            who = "no tree"
        people = self._error * choice.num_reports
        return [
            ("tree", f"fan-out {self.tree.fan_out}: {levels} nodes; {who}"),
            ("error of a range", f"{self._error:.3g} of the people, that is {people:,.0f}"),
        ]

    def answer(self, parts: Parts, top: int) -> PartsAnswer:
        return NumberAnswer(parts, self.tree, self.about, self.wanted)


class NumberAnswer(PartsAnswer):
    """A distribution: the cells that agree with all levels, its quantiles and ranges.

    Args:
        release: the levels, of each group.
        tree: that they are of.
        question: name of the number.
        wanted: what was asked.
    """

    purposes = {
        "estimates.csv": "bins and ranges that agree with all levels, and the raw levels",
        "quantiles.csv": "quantiles with 95 % intervals",
        "plot.png": "the distribution",
    }

    def __init__(
        self, release: Parts, tree: Hierarchy, question: str, wanted: NumberQuestion
    ) -> None:
        self._tree, self._question, self._wanted = tree, question, wanted
        groups: dict[Any, list[Release]] = {}
        for part in release.releases:
            groups.setdefault((part.group, part.window), []).append(part)
        self.levels = list(groups.values())
        self.ranges = [_consistent(tree, levels) for levels in self.levels]
        answers = [
            FrequencyAnswer(
                replace(levels[0], question=question, estimate=found.histogram()),
                (*tree.labels,), 10, None,
            )
            for levels, found in zip(self.levels, self.ranges)
        ]  # fmt: skip
        super().__init__(release, answers)

    @cached_property
    def quantiles(self) -> list[list[Quantile]]:
        """Of every group."""
        wanted = self._wanted.quantiles
        return [found.quantiles(wanted, LEVEL) if wanted else [] for found in self.ranges]

    def table(self) -> pa.Table:
        found = [super().table()]
        for answer, ranges, levels in zip(self.answers, self.ranges, self.levels):
            release = answer.release
            place = (release.group, release.window)
            names = [f"[{low:g}, {high:g})" for low, high in self._wanted.ranges]
            if names:
                sums = ranges.sums(np.concatenate([_row(ranges, *r) for r in self._wanted.ranges]))
                found.append(estimate_table(sums, names, f"{self._question}, ranges", *place))
            for level, labels in zip(levels, self._tree.level_labels):
                named = f"{level.question}, raw"
                found.append(estimate_table(level.estimate, labels, named, *place))
        return pa.concat_tables(found).cast(SCHEMA)

    def more_files(self) -> dict[str, bytes]:
        return {"quantiles.csv": as_csv(self._quantile_table())}

    def _quantile_table(self) -> pa.Table:
        found = []
        for answer, quantiles in zip(self.answers, self.quantiles):
            release = answer.release
            columns = place_columns(len(quantiles), self._question, release.group, release.window)
            columns["quantile"] = [quantile.level for quantile in quantiles]
            for name in ("value", "low", "high"):
                columns[name] = [getattr(quantile, name) for quantile in quantiles]
            found.append(pa.table(columns, schema=QUANTILES))
        return pa.concat_tables(found)

    def plot(self, price: str) -> bytes:
        drawn = [
            Distribution(caption_of(self.answers[i]), self.ranges[i], tuple(self.quantiles[i]))
            for i in self._largest[:DRAWN]
        ]
        return plot_distributions(drawn, f"{self._question}: the distribution", price)

    def show(self, console: Console) -> None:
        for i in self._largest[:SHOWN]:
            console.print(self._shown(i))
        for notice in self.parts.withheld[:SHOWN]:
            console.print(
                f"[yellow]withheld:[/yellow] {escape(str(notice.group))}, "
                f"{notice.num_reports:,} of {notice.min_reports:,} reports"
            )

    def _shown(self, i: int) -> Table:
        table = Table(title=escape(caption_of(self.answers[i])), title_justify="left")
        for heading in ("", "estimate", "95 % interval"):
            table.add_column(heading, justify="left" if not heading else "right")
        for quantile in self.quantiles[i]:
            interval = f"{quantile.low:,.6g} … {quantile.high:,.6g}"
            table.add_row(f"quantile {quantile.level:g}", f"{quantile.value:,.6g}", interval)
        for low, high in self._wanted.ranges:
            share = self.ranges[i].between(low, high).to_counts()
            start, end = share.confidence_interval(LEVEL)
            table.add_row(
                f"people in \\[{low:g}, {high:g})",
                f"{share.value[0]:,.0f}",
                f"{start[0]:,.0f} … {end[0]:,.0f}",
            )
        return table

    def as_json(self) -> dict[str, Any]:
        return {
            "parts": [
                {
                    "question": self._question,
                    "group": answer.release.group,
                    "num_reports": answer.release.num_reports,
                    "quantiles": [_finite(quantile) for quantile in quantiles],
                    "ranges": [_between(ranges, *r) for r in self._wanted.ranges],
                }
                for answer, ranges, quantiles in zip(self.answers, self.ranges, self.quantiles)
            ],
            "withheld": super().as_json()["withheld"],
        }


def _consistent(tree: Hierarchy, levels: Sequence[Release]) -> RangeEstimate:
    people = levels[0].num_reports
    config = levels[0].mechanism
    survey = Questions.from_config(dict(config))
    assert isinstance(survey, Questions)
    answers = [level.answers[0] if level.answers else people for level in levels]
    return tree.consistent(survey.oracles, [level.estimate for level in levels], answers)


def _row(ranges: RangeEstimate, low: float, high: float) -> np.ndarray:
    return ranges.weights_between(low, high)[None, :]


def _between(ranges: RangeEstimate, low: float, high: float) -> dict[str, Any]:
    share = ranges.between(low, high)
    start, end = share.confidence_interval(LEVEL)
    return {
        "low": None if math.isinf(low) else low,
        "high": None if math.isinf(high) else high,
        "frequency": float(share.value[0]),
        "frequency_standard_error": float(share.standard_error[0]),
        "frequency_low": float(start[0]),
        "frequency_high": float(end[0]),
    }


def _finite(quantile: Quantile) -> dict[str, float | None]:
    """Infinities are null: the bins do not reach that far."""
    fields = {"quantile": quantile.level, "value": quantile.value}
    both = {**fields, "low": quantile.low, "high": quantile.high}
    return {name: None if math.isinf(value) else value for name, value in both.items()}


# The picture: the distribution function with its band, and the quantiles --------------------------


_INSIDE = 2.4  # inches of a panel
_GAP = 0.9


@dataclass(frozen=True)
class Distribution:
    """One group: its name, its cells and its quantiles."""

    caption: str
    ranges: RangeEstimate
    quantiles: tuple[Quantile, ...]


def plot_distributions(found: Sequence[Distribution], title: str, subtitle: str) -> bytes:
    """PNG with a panel for each."""
    columns = 1 if len(found) == 1 else 2
    rows = -(-len(found) // columns)
    height = ABOVE + BELOW + rows * _INSIDE + (rows - 1) * _GAP + 0.3
    figure = figure_with(title, subtitle, height)
    for i, one in enumerate(found):
        row, column = divmod(i, columns)
        bottom = height - ABOVE - 0.3 - _INSIDE - row * (_INSIDE + _GAP)
        width = 0.86 if columns == 1 else 0.39
        axes = figure.add_axes((0.09 + 0.48 * column, bottom / height, width, _INSIDE / height))
        edges = np.array(one.ranges.hierarchy.bins.edges)
        below = one.ranges.cumulative
        low, high = below.confidence_interval(0.95)
        axes.fill_between(edges, low, high, color=ESTIMATE, alpha=0.25, linewidth=0)
        axes.plot(edges, below.value, color=ESTIMATE, linewidth=1.4)
        for quantile in one.quantiles:
            ends = np.clip([quantile.low, quantile.high], edges[0], edges[-1])
            axes.hlines(quantile.level, *ends, color=MARK, linewidth=2.2, zorder=4)
            if np.isfinite(quantile.value):
                axes.plot(quantile.value, quantile.level, "o", color=MARK, markersize=5, zorder=5)
        axes.set_ylim(-0.05, 1.05)
        axes.set_title(one.caption, fontsize=9, loc="left", parse_math=False)
        axes.grid(color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(labelsize=8)
        bare(axes, "top", "right")
    figure.text(
        0.97, 0.14 / height, "people below; band: pointwise 95 %; dots and bars: quantiles",
        fontsize=8, color=GREY, ha="right",
    )  # fmt: skip
    return png(figure)
