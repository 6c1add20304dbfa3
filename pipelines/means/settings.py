"""The flags of `beam-ldp mean`, and what they mean."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from beam_ldp.pipelines.flags import Arguments, UsageError
from beam_ldp.pipelines.inputs.public_lists import read_public
from beam_ldp.pipelines.settings import (
    Settings,
    checked,
    need,
    section_from,
    settings_from,
    with_files,
)
from beam_ldp.pipelines.usage import TEXT_COLUMN, Usage
from beam_ldp.pipelines.usage.mean import MeanQuestion
from beam_ldp.planning.means import MAX_DIMENSION
from beam_ldp.randomizers.mean.base import check_radius
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

S = TypeVar("S", bound=Settings[Any])
MeanSettings = Settings[MeanQuestion]


def parts_messages(settings: Settings[Any]) -> bool:
    """Whether the shuffler can permute the columns of several messages each on its own."""
    return not (settings.shuffle.output == "reports" and settings.shuffle.scope == "global")


def check_mean(given: Arguments, usage: Usage) -> MeanSettings:
    """The settings, with every rule checked. Raises UsageError."""
    need(usage, given, "source.paths", "output.folder", *needed_of_privacy(given))
    settings = with_columns(checked_mean(given, usage))
    if settings.question.one_row_each and settings.people.id is None:
        raise UsageError(
            "--one-row-each needs --user-id: without it every row counts as a person anyway"
        )
    return settings


def checked_mean(given: Arguments, usage: Usage) -> MeanSettings:
    """The settings, with every rule checked that needs no files. Raises UsageError."""
    question = with_ball(section_from(given, usage, "question", MeanQuestion), given)
    return checked_means(settings_from(given, usage, question, MeanSettings))


def needed_of_privacy(given: Arguments) -> tuple[str, ...]:
    """What a mean cannot do without; who trusts nobody but the device needs no delta."""
    return () if given["privacy"].get("model") == "local" else ("privacy.delta",)


def checked_means(settings: S) -> S:
    """The settings with the rules checked that hold for all means, and need no files. Raises
    UsageError."""
    dimension = settings.question.dimension
    if dimension is not None and not 1 <= dimension <= MAX_DIMENSION:
        raise UsageError(f"--dimension must lie in [1, {MAX_DIMENSION}], got {dimension}")
    shape_of(settings.question.shape)
    return checked(settings)


def with_columns(settings: S) -> S:
    """The settings with what files say: which there are, and what columns. Raises UsageError."""
    settings = with_files(settings)
    _check_columns(settings)
    column = settings.question.column or (TEXT_COLUMN,)
    return replace(settings, question=replace(settings.question, column=column))


def _check_columns(settings: MeanSettings) -> None:
    """Text has no columns; everything else needs some."""
    form, column = settings.source.format, settings.question.column
    if form == "text" and (settings.people.id or column):
        raise UsageError(
            "--column and --user-id cannot be used with text input, where each line is one value"
        )
    if form != "text" and not column:
        raise UsageError(f"--column is missing: which columns of the {form} files?")


def with_ball(question: MeanQuestion, given: Arguments) -> MeanQuestion:
    """The question with its norm and radius filled in: ranges are the cube. Raises UsageError."""
    if question.range is not None and question.ranges is not None:
        raise UsageError("--range and --ranges exclude each other")
    if question.range is not None or question.ranges is not None:
        flag = "--range" if question.ranges is None else "--ranges"
        if given["question"].get("norm", "linf") != "linf" or question.radius:
            raise UsageError(
                f"{flag} bounds each number: it cannot be combined with --norm and --radius"
            )
        return replace(question, norm="linf", radius=1.0)
    if question.norm == "binary":
        if question.radius:
            raise UsageError(
                "--radius cannot be combined with --norm binary, where numbers are 0 or 1"
            )
        return replace(question, radius=1.0)
    if not question.radius:
        raise UsageError(
            "--radius is missing: the public bound on the values, in their units (or --range LOW "
            "HIGH, --ranges FILE, --norm binary)"
        )
    return replace(question, radius=radius_of(question.radius))


def radius_of(radius: float) -> float:
    """`--radius`, checked."""
    try:
        check_radius(radius)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    return radius


def shape_of(text: str | None) -> tuple[int, int] | None:
    """`--shape`, checked. Raises UsageError."""
    if text is None:
        return None
    found = re.fullmatch(r"([1-9]\d*)[xX]([1-9]\d*)", text)
    if found is None:
        raise UsageError(f"--shape must be HEIGHTxWIDTH, such as 28x28, got {text}")
    return int(found[1]), int(found[2])


def ranges_of(settings: MeanSettings, labels: Sequence[str]) -> CoordinateRanges | None:
    """The public range of each coordinate, where that is what bounds them. Raises UsageError."""
    if settings.question.range is not None:
        return _checked("--range", *settings.question.range)
    if settings.question.ranges is None:
        return None
    given = settings.question.ranges
    named = f"--ranges {given}" if isinstance(given, str) else "--ranges"
    found = ranges_in(given) if isinstance(given, str) else given
    missing = [label for label in labels if label not in found]
    if missing:
        raise UsageError(f"{named}: no range for {missing[0]}")
    low, high = zip(*(found[label] for label in labels))
    return _checked(f"{named}:", low, high)


def _checked(flag: str, low: float | Sequence[float], high: float | Sequence[float]) -> Any:
    try:
        return CoordinateRanges(low, high)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"{flag} {error}") from None


def ranges_in(path: str) -> dict[str, tuple[float, float]]:
    """The file `column,low,high`, by column."""
    try:
        lines = read_public(path).decode("utf-8-sig").splitlines()
    except Exception as error:
        raise UsageError(f"--ranges {path}: cannot be read ({type(error).__name__})") from None
    rows = csv.DictReader(lines)
    if not {"column", "low", "high"} <= set(rows.fieldnames or ()):
        raise UsageError(f"--ranges {path}: the first line must be column,low,high")
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        name = row["column"]
        if name in found:
            raise UsageError(f"--ranges {path}: {name} is listed twice")
        try:
            found[name] = float(row["low"]), float(row["high"])
        except (TypeError, ValueError):
            raise UsageError(f"--ranges {path}: {name} needs two numbers") from None
    return found
