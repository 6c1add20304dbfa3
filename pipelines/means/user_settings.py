"""The flags of `beam-ldp user-mean`, and what they mean."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any, Literal

from beam_ldp.pipelines.flags import (
    DATA,
    MECHANISM,
    OUTPUT,
    Groups,
    positive_number,
    whole_number,
    with_own,
)
from beam_ldp.pipelines.means.settings import COLUMNS, MeanSettings, check_columns, radius_of
from beam_ldp.pipelines.means.settings import FLAGS as OF_MEAN
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.settings import check_common, need
from beam_ldp.pipelines.views.tables import LEVEL
from beam_ldp.planning.means import MAX_DIMENSION
from beam_ldp.randomizers.mean.balls import Norm


def numbers(text: str) -> tuple[float, ...]:
    """`60` or `60,800`."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, or one per column, separated by commas, got {text}"
        ) from None


# The plan of both rounds chooses the mechanisms.
_NOT_HERE = ("--mechanism", "--max-bits")

_OWN: dict[str, dict[str, Any]] = {
    DATA: {
        "--column": {"metavar": "NAME", "help": "column of numbers; short for --columns"},
        **COLUMNS,
        "--user-id": {
            "metavar": "NAME",
            "help": "column that says whose row it is: all rows of a person become their mean",
        },
        "--range": OF_MEAN[DATA]["--range"]
        | {"help": "every number lies in this public range; others are moved to its ends"},
        "--ranges": OF_MEAN[DATA]["--ranges"],
        "--radius": {
            "type": positive_number, "metavar": "R",
            "help": "instead of ranges: every row, taken as a vector, is at most so long (Euclid)",
        },
        "--bad-rows": OF_MEAN[DATA]["--bad-rows"],
        "--rows-per-user": {
            "type": whole_number, "default": 1, "metavar": "M",
            "help": "rows that a person has at least (default 1); of those with fewer, --outliers "
            "speaks. The more, the closer people's means lie together, and the less noise it takes",
        },
        "--sigma": {
            "type": numbers, "metavar": "S",
            "help": "how far rows lie from their person's own mean: a sub-Gaussian parameter, in "
            "the unit of the data; or one per column, separated by commas (default: what the range "
            "gives)",
        },
        "--user-sigma": {
            "type": numbers, "default": (0.0,), "metavar": "S",
            "help": "likewise, how far the persons' own means lie from each other (default 0: all "
            "rows of all people come from one population)",
        },
        "--outliers": {
            "type": float, "default": 0.0, "metavar": "SHARE",
            "help": "share of the people about whom nothing is supposed, in [0, 1/3) (default 0); "
            "what clipping them can shift is in every interval",
        },
        "--failure-probability": {
            "type": float, "default": 0.01, "metavar": "P",
            "help": "that round one fails people who are as supposed (default 0.01); it is taken "
            "out of the level of the intervals",
        },
    },
    MECHANISM: {
        "--model": OF_MEAN[MECHANISM]["--model"],
        "--split": {
            "choices": ["auto", "budget", "users"], "default": "auto",
            "help": "with --local-epsilon: everybody answers both rounds with a part of the "
            "budget, or each person one round with all of it; auto takes the more accurate. The "
            "few people of the first round hide less once they are shuffled: see both prices",
        },
    },
    OUTPUT: {name: OF_MEAN[OUTPUT][name] for name in ("--top", "--shape")},
}  # fmt: skip

FLAGS: Groups = {
    title: {name: how for name, how in flags.items() if name not in _NOT_HERE}
    for title, flags in with_own(_OWN).items()
}


@dataclass(frozen=True, kw_only=True)
class UserMeanSettings(MeanSettings):
    """The flags of `user-mean`, checked. Attributes: as the flags of the same names."""

    rows_per_user: int
    sigma: tuple[float, ...] | None
    user_sigma: tuple[float, ...]
    outliers: float
    failure_probability: float
    split: Literal["auto", "budget", "users"]


def check_user_mean(values: argparse.Namespace) -> UserMeanSettings:
    """The settings, with every rule checked. Raises UsageError."""
    need(values, "input", "output", "user_id")
    values.mechanism, values.max_bits = "auto", None
    values.columns = [*(values.columns or []), *([values.column] if values.column else [])]
    norm, radius = _space(values)
    if values.dimension is not None and not 1 <= values.dimension <= MAX_DIMENSION:
        raise UsageError(f"--dimension must lie in [1, {MAX_DIMENSION}], got {values.dimension}")
    for flag, least in (("rows_per_user", 1), ("top", 1)):
        if getattr(values, flag) < least:
            raise UsageError(f"--{flag.replace('_', '-')} must be >= {least}")
    left = round(1 - LEVEL, 12)
    if not 0 < values.failure_probability < left:
        raise UsageError(
            f"--failure-probability must lie in (0, {left:g}): intervals of {LEVEL:.0%} "
            f"leave no more, got {values.failure_probability}"
        )
    settings = check_common(
        values,
        UserMeanSettings,
        shuffled=values.model == "shuffle",
        columns=tuple(values.columns),
        norm=norm,
        radius=radius,
        one_range=None if values.range is None else tuple(values.range),
        shape=None,
        one_row_each=False,
        outside="clip",
    )
    check_columns(values, settings.input_format)
    return settings


def _space(values: argparse.Namespace) -> tuple[Norm, float]:
    """Norm and radius; ranges are the cube."""
    given = [name for name in ("range", "ranges", "radius") if getattr(values, name) is not None]
    if len(given) != 1:
        raise UsageError(
            "give one of --range LOW HIGH, --ranges FILE and --radius R: the public bounds of rows"
        )
    return ("l2", radius_of(values)) if given == ["radius"] else ("linf", 1.0)
