"""The flags of `beam-ldp user-mean`, and what they mean."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Literal

from beam_ldp.pipelines.means.settings import MeanSettings, check_columns, radius_of
from beam_ldp.pipelines.options import UsageError
from beam_ldp.pipelines.settings import check_common, need
from beam_ldp.pipelines.views.tables import LEVEL
from beam_ldp.planning.means import MAX_DIMENSION
from beam_ldp.randomizers.mean.balls import Norm


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
