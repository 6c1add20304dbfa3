"""What a mean is before its data: its flags, which mechanism runs, its cost, its error."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.accounting import PrivacyBound
from beam_ldp.accounting.prices import Price, expected_price
from beam_ldp.accounting.reports import LocalReports, hidden_users
from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.planning import Plan, plan_means
from beam_ldp.planning.means import MAX_DIMENSION
from beam_ldp.planning.mechanisms import mechanism_of
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.estimate import readable
from beam_ldp.randomizers.mean import MeanRandomizer
from beam_ldp.randomizers.mean.base import check_radius
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.mean.split_and_mix import MEMOIZED_SHARES
from beam_ldp.release.forging import forged_rows
from beam_ldp.release.inputs.public_lists import read_public, why
from beam_ldp.release.job import (
    S,
    Settings,
    checked,
    need,
    section_from,
    settings_from,
    with_files,
)
from beam_ldp.release.planner import Choice, Planner, Rows
from beam_ldp.settings import SettingError
from beam_ldp.settings.usage import TEXT_COLUMN, Arguments, Usage
from beam_ldp.wording import many, number

MeanSettings = Settings[MeanQuestion]


def parts_messages(settings: Settings[Any]) -> bool:
    """Whether the shuffler can permute the columns of several messages each on its own."""
    return not (settings.shuffle.output == "reports" and settings.shuffle.scope == "global")


def check_mean(given: Arguments, usage: Usage) -> MeanSettings:
    """The settings, with every rule checked. Raises SettingError."""
    need(usage, given, "source.paths", "output.folder", *needed_of_privacy(given))
    settings = with_columns(checked_mean(given, usage))
    if settings.question.one_row_each and settings.people.id is None:
        raise SettingError(
            "--one-row-each needs --user-id: without it every row counts as a person anyway"
        )
    return settings


def checked_mean(given: Arguments, usage: Usage) -> MeanSettings:
    """The settings, with every rule checked that needs no files. Raises SettingError."""
    question = with_ball(section_from(given, usage, "question", MeanQuestion), given)
    settings = settings_from(given, usage, question, MeanSettings)
    if settings.privacy.model == "local" and settings.privacy.expected_users is None:
        least = settings.shuffle.min_reports or 1  # nobody hides in a crowd
        settings = replace(settings, shuffle=replace(settings.shuffle, min_reports=least))
    return checked_means(settings)


def needed_of_privacy(given: Arguments) -> tuple[str, ...]:
    """What a mean cannot do without; who trusts nobody but the device needs no delta."""
    return () if given["privacy"].get("model") == "local" else ("privacy.delta",)


def checked_means(settings: S) -> S:
    """The settings with the rules checked that hold for all means, and need no files. Raises
    SettingError."""
    dimension = settings.question.dimension
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise SettingError(f"--dimension must lie in [1, {MAX_DIMENSION}], got {dimension}")
    shape_of(settings.question.shape)
    return checked(settings)


def with_columns(settings: S) -> S:
    """The settings with what files say: which there are, and what columns. Raises SettingError."""
    settings = with_files(settings)
    column = settings.question.column or (TEXT_COLUMN,)
    return replace(settings, question=replace(settings.question, column=column))


def with_ball(question: MeanQuestion, given: Arguments) -> MeanQuestion:
    """The question with its norm and radius filled in: ranges are the cube. Raises SettingError."""
    if question.range is not None and question.ranges is not None:
        raise SettingError("--range and --ranges exclude each other")
    if question.range is not None or question.ranges is not None:
        flag = "--range" if question.ranges is None else "--ranges"
        if given["question"].get("norm", "linf") != "linf" or question.radius:
            raise SettingError(
                f"{flag} bounds each number: it cannot be combined with --norm and --radius"
            )
        return replace(question, norm="linf", radius=1.0)
    if question.norm == "binary":
        if question.radius:
            raise SettingError(
                "--radius cannot be combined with --norm binary, where numbers are 0 or 1"
            )
        return replace(question, radius=1.0)
    if not question.radius:
        raise SettingError(
            "--radius is missing: the public bound on the values, in their units (or --range LOW "
            "HIGH, --ranges FILE, --norm binary)"
        )
    return replace(question, radius=radius_of(question.radius))


def radius_of(radius: float) -> float:
    """`--radius`, checked."""
    try:
        check_radius(radius)
    except ValueError as error:
        raise SettingError(f"--{error}") from None
    return radius


def shape_of(text: str | None) -> tuple[int, int] | None:
    """`--shape`, checked. Raises SettingError."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d*)[xX]([1-9]\d*)", text)
    if found is None:
        raise SettingError(f"--shape must be HEIGHTxWIDTH, such as 28x28, got {text}")
    return int(found[1]), int(found[2])


def ranges_of(settings: MeanSettings, labels: Sequence[str]) -> CoordinateRanges | None:
    """The public range of each coordinate, where that is what bounds them. Raises SettingError."""
    if settings.question.range is not None:
        return _checked("--range", *settings.question.range)
    if settings.question.ranges is None:
        return None
    given = settings.question.ranges
    named = f"--ranges {given}" if isinstance(given, str) else "--ranges"
    found = ranges_in(given) if isinstance(given, str) else given
    missing = [label for label in labels if label not in found]
    if missing:
        raise SettingError(f"{named}: no range for {missing[0]}")
    low, high = zip(*(found[label] for label in labels))
    return _checked(f"{named}:", low, high)


def _checked(flag: str, low: float | Sequence[float], high: float | Sequence[float]) -> Any:
    try:
        return CoordinateRanges(low, high)  # type: ignore[arg-type]
    except ValueError as error:
        raise SettingError(f"{flag} {error}") from None


def ranges_in(path: str) -> dict[str, tuple[float, float]]:
    """The file `column,low,high`, by column."""
    try:
        lines = read_public(path).decode("utf-8-sig").splitlines()
    except Exception as error:
        raise SettingError(f"--ranges {path}: cannot be read ({why(error)})") from None
    rows = csv.DictReader(lines)
    if not {"column", "low", "high"} <= set(rows.fieldnames or ()):
        raise SettingError(f"--ranges {path}: the first line must be column,low,high")
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        name = row["column"]
        if name in found:
            raise SettingError(f"--ranges {path}: {name} is listed twice")
        try:
            found[name] = float(row["low"]), float(row["high"])
        except (TypeError, ValueError):
            raise SettingError(f"--ranges {path}: {name} needs two numbers") from None
    return found


LOCAL = "no credit for shuffling"


@dataclass(frozen=True)
class MeanChoice(Choice[MeanRandomizer]):
    """A mean mechanism with its expected price and error.

    Attributes:
        plan: the plan that it comes from: errors of the whole vector, inside the unit ball of
            the mechanism, and how far they are from the best possible. None where somebody else
            chose the mechanism.
        predicted_error: largest standard error of a coordinate, in the unit of the data.
        relative_error: the same as a share of half the range, or of the radius.
    """

    plan: Plan | None
    relative_error: float

    @property
    def against_the_best(self) -> tuple[float, str]:
        """How many times a lower bound the squared error is, and which; NaN where not known."""
        if self.plan is None:
            return math.nan, ""
        return self.plan.times_lower_bound, self.plan.lower_bound_name


class VectorPlanner(Planner[S]):
    """What all means have in common before the data: which coordinates, in which ranges.

    Args:
        settings: checked flags.
        columns: that the numbers come from.
        dimension: numbers per person.

    Attributes:
        labels: of the coordinates.
        ranges: public ranges, where vectors are in units of their own.
    """

    def __init__(self, settings: S, columns: Sequence[str], dimension: int) -> None:
        super().__init__(settings)
        self.columns, self.dimension = tuple(columns), dimension
        self.labels = self.columns
        if len(self.columns) < dimension:
            self.labels = tuple(map(str, range(dimension)))
        self.ranges = self.public_ranges()

    def public_ranges(self) -> CoordinateRanges | None:
        """Of every coordinate, if each has its own. Raises SettingError."""
        return ranges_of(self.settings, self.labels)

    @property
    def bounds(self) -> str:
        """In words, where the values of a person lie."""
        settings = self.settings
        if settings.question.range is not None:
            return "each number in [{:g}, {:g}]".format(*settings.question.range)
        if settings.question.ranges is not None:
            return "each number in the public range of its column"
        if settings.question.norm == "binary":
            return "numbers 0 and 1"
        kinds = {"l2": "Euclidean length", "l1": "sum of absolute values", "linf": "each number"}
        norm = settings.question.norm
        kind = kinds[norm] if isinstance(norm, str) else f"l_{norm:g} norm"
        return f"{kind} at most {settings.question.radius:g}"

    def inputs(self) -> Rows:
        names = self.columns if len(self.columns) <= 6 else (*self.columns[:5], "…")
        size = f"{many(self.dimension, 'number')} per person"
        columns = [("columns", f"{', '.join(names)} ({size})")] if names else [("people", size)]
        return [*columns, ("values", self.bounds)]


class MeanPlanner(VectorPlanner[MeanSettings]):
    """What is the mean of people's vectors? Before the data."""

    @cached_property
    def plans(self) -> list[Plan]:
        """All mechanisms that the flags leave, the best first. Raises SettingError."""
        return plans_of(self.settings, self.dimension, self.ranges is not None)

    def choose(self) -> MeanChoice:
        plan = _first(self.plans, self.settings, self.dimension)
        assert plan.randomizer is not None
        randomizer = replace(plan.randomizer, clipping=self.settings.question.outside)
        return chosen(self.settings, randomizer, self.ranges, plan)

    def expectation(self, choice: Choice[Any]) -> str:
        assert isinstance(choice, MeanChoice)
        which = "the mean" if self.dimension == 1 else "each coordinate of the mean"
        return f"{which} will be off by about {_error_said(self, choice)}{self._of_how_many}"

    def expected(self, choice: Choice[Any]) -> Rows:
        assert isinstance(choice, MeanChoice)
        best = comparison_of(*choice.against_the_best)
        said = [("error of a coordinate", _error_said(self, choice) + self._of_how_many)]
        unit = "" if self.ranges is None else "(half ranges, Euclidean length)"
        compared = [("against the best possible", best)] if best else []
        rests = [] if choice.mechanism.protects_alone else [("rests on", self._rests_on)]
        return [*said, *compared, *rests, *forged_rows(choice.mechanism, unit=unit)]

    @property
    def _rests_on(self) -> str:
        """How many must arrive and be honest where only the noise of the others protects people."""
        settings = self.settings
        share = settings.hiding_share
        return (
            f"the noise of {hidden_users(settings.planned_reports, share):,} honest people, "
            f"{number(100 * share)} % of those expected: as many as are honest "
            f"({100 * settings.privacy.honest_fraction:g} %, --honest-fraction) of the fewest "
            f"arrivals that are released ({settings.min_reports:,}, --min-reports)"
        )

    def expected_as_json(self, choice: Choice[Any]) -> dict[str, Any]:
        assert isinstance(choice, MeanChoice)
        times, name = choice.against_the_best
        return {
            "dimension": self.dimension,
            "messages_per_user": choice.mechanism.messages_per_user,
            "predicted_relative_error": choice.relative_error,
            "times_lower_bound": times if math.isfinite(times) else None,
            "lower_bound_name": name,
        }

    @property
    def _of_how_many(self) -> str:
        one = self.settings.planned_reports == 1
        return ", divided by the square root of the number of people" if one else ""

    def price_among(self, choice: Choice[Any], num_reports: int) -> Price | None:
        if self.settings.trusts_the_shuffler:
            return super().price_among(choice, num_reports)
        return choice.price  # does not depend on how many report


def _error_said(planner: MeanPlanner, choice: MeanChoice) -> str:
    ranges = planner.ranges
    if ranges is not None and len(set(zip(ranges.low, ranges.high))) > 1:
        return f"{number(100 * choice.relative_error / 2)} % of its range"
    return number(choice.predicted_error)


def chosen(
    settings: MeanSettings,
    randomizer: MeanRandomizer,
    ranges: CoordinateRanges | None,
    plan: Plan | None,
) -> MeanChoice:
    """A mechanism, with what is expected of it."""
    n = settings.planned_reports
    error = np.sqrt(randomizer.variance(n, None, settings.sampling))
    half = np.ones(1) if ranges is None else np.array(ranges.high) / 2 - np.array(ranges.low) / 2
    return MeanChoice(
        mechanism=randomizer,
        num_reports=n,
        price=None if settings.noise.seed is not None else _price(settings, randomizer, n),
        predicted_error=float(np.max(error * half)),
        plan=plan,
        relative_error=float(np.max(error)) / _half_range(randomizer),
    )


def _half_range(randomizer: MeanRandomizer) -> float:
    return 0.5 if randomizer.norm == "binary" else randomizer.radius


def local_price(local_epsilon: float) -> Price:
    """What a release costs where nobody but the device is trusted: the local promise."""
    bound = PrivacyBound(local_epsilon, method=LOCAL, lower_method=LOCAL)
    return Price(bound, 1, LocalReports(local_epsilon))


def _price(settings: MeanSettings, randomizer: MeanRandomizer, num_reports: int) -> Price:
    if settings.privacy.model == "local":
        return local_price(randomizer.local_epsilon)
    return expected_price(
        randomizer, num_reports, settings.privacy.delta, settings.privacy.honest_fraction
    )


def plans_of(
    settings: MeanSettings, dimension: int, in_ranges: bool, several: bool = False
) -> list[Plan]:
    """All mechanisms that the flags leave, the best first; `several`: shorter ones, too, of one.

    Raises:
        SettingError: for what cannot be planned.
    """
    name = "auto" if settings.mechanism.name == "auto" else _named(settings)
    only = _for_ranges() if in_ranges else None
    if name != "auto":
        if only is not None and name not in only:
            raise SettingError(
                f"--mechanism {settings.mechanism.name} takes no ranges; choose auto or one of "
                f"{', '.join(only)}"
            )
        only = [name]
    try:
        return plan_means(
            settings.planned_reports,
            dimension,
            settings.question.norm,
            radius=settings.question.radius,
            epsilon=settings.privacy.epsilon,
            local_epsilon=settings.privacy.local_epsilon,
            delta=settings.privacy.delta or None,
            max_bits=settings.mechanism.max_bits,
            max_messages=settings.mechanism.messages,
            several=several,
            max_local_epsilon=settings.privacy.local_limit,
            model=settings.privacy.model,
            honest_fraction=settings.hiding_share,
            only=only,
            trust_shuffler=_takes_shares(settings),
        )
    except ValueError as error:
        raise SettingError(str(error)) from None


def _first(plans: Sequence[Plan], settings: MeanSettings, dimension: int) -> Plan:
    """The best that may be used, of a shuffle that can take it. Raises SettingError."""
    usable = [plan for plan in plans if not plan.excluded]
    fitting = [plan for plan in usable if plan.messages_per_user == 1 or parts_messages(settings)]
    if fitting:
        return fitting[0]
    if usable:
        raise SettingError(
            "--scope global with --shuffle-output reports takes one message per person, and "
            f"{usable[0].mechanism} sends {usable[0].messages_per_user:,}: the shard of a person "
            "would link them. Use --shuffle-output statistic or --scope batch"
        )
    if settings.mechanism.name == "auto":
        raise SettingError("no mechanism fits these flags (see `beam-ldp plan mean`)")
    reason = f"not for norm {settings.question.norm} in dimension {dimension:,}"
    if settings.privacy.trust_shuffler and settings.privacy.epsilon is None:
        reason += ", or without --epsilon"
    if plans:
        reason = plans[0].excluded
    raise SettingError(f"--mechanism {settings.mechanism.name}: {reason}")


def _takes_shares(settings: MeanSettings) -> bool:
    """Whether people may send what nothing but the shuffler protects: never twice the same, nor
    where a log adds up what each of them lost to whoever sees it."""
    noise = settings.noise
    return settings.privacy.trust_shuffler and not noise.memoized and noise.log is None


def _named(settings: MeanSettings) -> str:
    trusted = settings.privacy.trust_shuffler
    try:
        kind = mechanism_of(settings.mechanism.name, "mean", auto=True, behind_shuffler=trusted)
    except ValueError as error:
        raise SettingError(str(error)) from None
    if not (kind.protects_alone or _takes_shares(settings)):
        if settings.noise.memoized:
            raise SettingError(f"--memoize-key-file: {MEMOIZED_SHARES}")
        raise SettingError("--interaction-log: shares have no local epsilon to add up")
    return kind.__name__


def _for_ranges() -> list[str]:
    """Mechanisms whose values are the cube."""
    return [kind.__name__ for kind in registry.offered("mean") if kind.norm == "linf"]


def comparison_of(times: float, name: str) -> str:
    """How far a mechanism's squared error is from the best possible, in words."""
    if not (name and np.isfinite(times)):
        return ""
    return f"Squared error as planned: {readable(times)} times {name}."
