"""The flags of `beam-ldp mean`, and what they mean."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from apache_beam.io.filesystems import FileSystems

from beam_ldp.pipelines.flags import (
    DATA,
    MECHANISM,
    OUTPUT,
    Flags,
    positive_number,
    whole_number,
    with_own,
)
from beam_ldp.pipelines.inputs.sources import TEXT_COLUMN
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.settings import Settings, check_common, need
from beam_ldp.planning.means import MAX_DIMENSION, Model
from beam_ldp.randomizers.base import Sampling
from beam_ldp.randomizers.mean.balls import Clipping, Norm, check_radius
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

NORMS: tuple[Norm, ...] = ("l2", "l1", "linf", "binary")


def norm_of(text: str) -> Norm | float:
    """A norm by its name, or as the p of an l_p norm."""
    for name in NORMS:
        if text == name:
            return name
    with suppress(ValueError):
        if (power := float(text)) >= 1:
            return power
    raise argparse.ArgumentTypeError(f"must be {', '.join(NORMS)} or a number >= 1, got {text}")


COLUMNS: Flags = {
    "--columns": {
        "action": "append", "metavar": "NAMES",
        "help": "columns of numbers, one coordinate each: names and globs, separated by commas; "
        "may be repeated. Or one column of lists",
    },
    "--dimension": {
        "type": whole_number, "metavar": "D",
        "help": "numbers per list, where the files do not tell",
    },
}  # fmt: skip

FLAGS = with_own(
    {
        DATA: {
            **COLUMNS,
            "--norm": {
                "type": norm_of, "metavar": "[l2|l1|linf|binary|P]",
                "help": "what --radius bounds: Euclidean length (l2, the default), the sum of "
                "absolute values (l1), each number (linf), the l_P norm; binary: numbers 0 and 1",
            },
            "--radius": {
                "type": positive_number, "metavar": "R",
                "help": "the bound, in the unit of the data; public, never looked up in the data",
            },
            "--range": {
                "nargs": 2, "type": float, "metavar": ("LOW", "HIGH"),
                "help": "instead of norm and radius: every number lies in this range",
            },
            "--ranges": {
                "metavar": "FILE",
                "help": "instead: a CSV file column,low,high with a range for each column",
            },
            "--one-row-each": {
                "action": "store_true", "default": False,
                "help": "every person of --user-id has one row, so that errors need not allow for "
                "the draw of a row; one report per person is sent in any case",
            },
            "--outside": {
                "choices": ["clip", "raise"], "default": "clip",
                "help": "values outside those bounds: moved to their edge on the device, which "
                "nobody counts; or stop the run",
            },
            "--bad-rows": {
                "choices": ["dead-letter", "zero"], "default": "dead-letter",
                "help": "rows that cannot be used: listed in bad_rows.jsonl, or reported as zero "
                "(the middle of the ranges) without a trace",
            },
        },
        MECHANISM: {
            "--mechanism": {
                "default": "auto", "metavar": "NAME",
                "help": "a mean mechanism, or auto: the most accurate one (see `beam-ldp plan "
                "mean`)",
            },
            "--model": {
                "choices": ["shuffle", "local"], "default": "shuffle",
                "help": "who is trusted: a shuffler, or nobody but the device; then --epsilon is "
                "the local promise and needs no --delta",
            },
        },
        OUTPUT: {
            "--top": {
                "type": whole_number, "default": 20, "metavar": "N",
                "help": "coordinates in the printed table (default 20)",
            },
            "--shape": {
                "metavar": "HxW",
                "help": "the coordinates are the pixels of a picture, row by row: the plot is one",
            },
        },
    }
)  # fmt: skip


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
