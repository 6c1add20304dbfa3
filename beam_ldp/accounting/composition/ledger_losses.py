"""The privacy loss of a whole ledger, for schedules that were fixed beforehand.

Every kind of release is composed with itself on a grid that fits its own spread, and the kinds
then meet on one grid that fits the spread of them all: a few thousand points, whatever was
composed. Nothing is rounded but upwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache, reduce
from typing import Any

from beam_ldp.accounting.composition import loss_curves
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.reports import (
    LocalReports,
    SampledReports,
    ShuffledMessages,
    ShuffledReports,
)

_OWN = (ShuffledReports, SampledReports)
_LONG = 1 << 18  # more releases than that are composed in two steps
_MOST = 10**12  # more than that are nothing but rounding
_LARGEST_GRID = 1 << 21  # 16 MB
_COMMON_STEPS_PER_DEVIATION = 100

Counts = Mapping[Any, int]  # events, or what events are made of


def ledger_losses(counts: Counts) -> LossGrid | None:
    """The losses of so many releases of each kind; None where those of a kind are not known."""
    return _composed(tuple(counts.items()))


@lru_cache(maxsize=32)
def _composed(counts: tuple[tuple[Any, int], ...]) -> LossGrid | None:
    parts = _parts(dict(counts))
    if not parts or sum(parts.values()) > _MOST or any(_deviation(p) is None for p in parts):
        return None
    alone = [repeated_losses(part, count) for part, count in parts.items()]
    if len(alone) == 1:
        return alone[0]
    step = _total_deviation(parts) / _COMMON_STEPS_PER_DEVIATION
    step = max(step, *(losses.highest / _LARGEST_GRID for losses in alone))
    on_common_grid = [_on(part, count, step) for part, count in parts.items()]
    return reduce(LossGrid.composed, on_common_grid)


@lru_cache(maxsize=32)
def repeated_losses(part: Any, count: int) -> LossGrid:
    """The losses of `count` equal releases."""
    if count <= _LONG:
        return _repeated(_losses(part), count)
    most, rest = divmod(count, _LONG // 2)
    step = _total_deviation({part: count - rest}) / _COMMON_STEPS_PER_DEVIATION
    many = repeated_losses(part, _LONG // 2)
    many = many.on(max(step / math.sqrt(most), many.highest / _LARGEST_GRID))
    long = _repeated(many, most)
    if not rest:
        return long.on(max(step, long.highest / _LARGEST_GRID))
    short = repeated_losses(part, rest)
    step = max(step, long.highest / _LARGEST_GRID, short.highest / _LARGEST_GRID)
    return long.on(step).composed(short.on(step))


def _repeated(losses: LossGrid, count: int) -> LossGrid:
    """So many releases, on a coarser grid where a fine one would fill the memory."""
    while (places := losses.places(count)) > _LARGEST_GRID:
        losses = losses.on(losses.step * math.ceil(places / _LARGEST_GRID))
    return losses.repeated(count)


@lru_cache(maxsize=64)
def _on(part: Any, count: int, step: float) -> LossGrid:
    return repeated_losses(part, count).on(step)


def _losses(part: Any) -> LossGrid:
    """Those of one release."""
    if isinstance(part, _OWN):
        return loss_curves.loss_grid(part)
    from beam_ldp.accounting.composition import (
        central,  # loads dp_accounting, whose events these are
    )

    deviation = central.deviation(part)
    assert deviation is not None
    return central.loss_grid(part, deviation / loss_curves.STEPS_PER_DEVIATION)


def _parts(counts: Counts) -> dict[Any, int]:
    """The kinds that have a distribution of their own: several messages are columns."""
    parts: dict[Any, int] = {}
    for event, count in counts.items():
        columns = [(1, event)]
        if isinstance(event, ShuffledMessages):
            columns = list(loss_curves.message_columns(event))
        elif isinstance(event, LocalReports):
            columns = [(1, ShuffledReports(event, 1))]
        for each, part in columns:
            parts[part] = parts.get(part, 0) + each * count
    return parts


def _deviation(part: Any) -> float | None:
    if not isinstance(part, _OWN):
        from beam_ldp.accounting.composition import central  # as above

        return central.deviation(part)
    if part.local_epsilon > loss_curves.HOPELESS:
        return None
    return loss_curves.loss_deviation(part)


def _total_deviation(parts: Counts) -> float:
    return math.sqrt(sum(count * (_deviation(part) or 0.0) ** 2 for part, count in parts.items()))
