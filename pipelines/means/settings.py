"""The flags of `beam-ldp mean`, and what they mean."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_ldp.pipelines.inputs.sources import TEXT_COLUMN
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.settings import Settings, check_common, need
from beam_ldp.planning.means import MAX_DIMENSION, Model
from beam_ldp.randomizers.base import Sampling
from beam_ldp.randomizers.mean.balls import Clipping, Norm, check_radius
from beam_ldp.randomizers.mean.ranges import CoordinateRanges


@dataclass(frozen=True, kw_only=True)
class MeanSettings(Settings):
    """The flags of `mean`, checked. Attributes: as the flags of the same names.

    With `--range` (here `one_range`) or `ranges` the norm is "linf" and the radius 1.
    """

    columns: tuple[str, ...]
    dimension: int | None
    norm: Norm | float
    radius: float
    one_range: tuple[float, float] | None
    ranges: str | None
    one_row_each: bool
    outside: Clipping
    model: Model
    top: int
    shape: tuple[int, int] | None

    @property
    def trusts_the_shuffler(self) -> bool:
        return self.model == "shuffle"

    @property
    def parts_messages(self) -> bool:
        """Whether the shuffler can permute the columns of several messages each on its own."""
        return not (self.shuffle_output == "reports" and self.scope == "global")

    @property
    def sampling(self) -> Sampling:
        """What errors allow for: the draw of one row of each person, where there may be several."""
        return "fixed" if self.user_id is None or self.one_row_each else "iid"


def check_mean(values: argparse.Namespace) -> MeanSettings:
    """The settings, with every rule checked. Raises UsageError."""
    need(values, "input", "output")
    norm, radius = _ball(values)
    if values.dimension is not None and not 1 <= values.dimension <= MAX_DIMENSION:
        raise UsageError(f"--dimension must lie in [1, {MAX_DIMENSION}], got {values.dimension}")
    if values.top < 1:
        raise UsageError("--top must be >= 1")
    if values.one_row_each and values.user_id is None:
        raise UsageError("--one-row-each needs --user-id: without it each row is a person anyway")
    settings = check_common(
        values,
        MeanSettings,
        shuffled=values.model == "shuffle",
        columns=tuple(values.columns or (TEXT_COLUMN,)),
        norm=norm,
        radius=radius,
        one_range=None if values.range is None else tuple(values.range),
        shape=shape_of(values.shape),
    )
    check_columns(values, settings.input_format)
    return settings


def check_columns(values: argparse.Namespace, input_format: str) -> None:
    """Text has no columns; everything else needs some."""
    if input_format == "text" and (values.user_id or values.columns):
        raise UsageError("--columns and --user-id are not for text: each line is one value")
    if input_format != "text" and not values.columns:
        raise UsageError(f"--columns is missing: which columns of the {input_format} files?")


def _ball(values: argparse.Namespace) -> tuple[Norm | float, float]:
    """Norm and radius; ranges are the cube."""
    if values.range is not None and values.ranges is not None:
        raise UsageError("--range and --ranges exclude each other")
    if values.range is not None or values.ranges is not None:
        flag = "--range" if values.ranges is None else "--ranges"
        if values.norm not in (None, "linf") or values.radius is not None:
            raise UsageError(f"{flag} bounds each number: it goes without --norm and --radius")
        return "linf", 1.0
    norm: Norm | float = values.norm or "l2"
    if norm == "binary":
        if values.radius is not None:
            raise UsageError("--radius does not go with --norm binary: numbers are 0 or 1")
        return norm, 1.0
    if values.radius is None:
        raise UsageError(
            "--radius is missing: the public bound on the values, in their own unit (or --range "
            "LOW HIGH, --ranges FILE, --norm binary)"
        )
    return norm, radius_of(values)


def radius_of(values: argparse.Namespace) -> float:
    """`--radius`, checked."""
    try:
        check_radius(values.radius)
    except ValueError as error:
        raise UsageError(f"--{error}") from None
    return float(values.radius)


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
    if settings.one_range is not None:
        return _checked("--range", *settings.one_range)
    if settings.ranges is None:
        return None
    found = _ranges_in(settings.ranges)
    missing = [label for label in labels if label not in found]
    if missing:
        raise UsageError(f"--ranges {settings.ranges}: no range for {missing[0]}")
    low, high = zip(*(found[label] for label in labels))
    return _checked(f"--ranges {settings.ranges}:", low, high)


def _checked(flag: str, low: float | Sequence[float], high: float | Sequence[float]) -> Any:
    try:
        return CoordinateRanges(low, high)  # type: ignore[arg-type]
    except ValueError as error:
        raise UsageError(f"{flag} {error}") from None


def _ranges_in(path: str) -> dict[str, tuple[float, float]]:
    """The file `column,low,high`, by column."""
    try:
        with FileSystems.open(path, "application/octet-stream") as file:
            lines = file.read().decode("utf-8-sig").splitlines()
    except Exception as error:
        raise UsageError(f"--ranges {path}: cannot be read ({type(error).__name__})") from None
    rows = csv.DictReader(lines)
    if not {"column", "low", "high"} <= set(rows.fieldnames or ()):
        raise UsageError(f"--ranges {path}: the first line must be column,low,high")
    found: dict[str, tuple[float, float]] = {}
    for row in rows:
        name = row["column"]
        if name in found:
            raise UsageError(f"--ranges {path}: {name} stands there twice")
        try:
            found[name] = float(row["low"]), float(row["high"])
        except (TypeError, ValueError):
            raise UsageError(f"--ranges {path}: {name} needs two numbers") from None
    return found
