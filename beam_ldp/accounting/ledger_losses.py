"""The privacy loss of a whole ledger, for schedules that were fixed beforehand.

Every kind of release is composed with itself on a grid that fits its own spread, and the kinds
then meet on one grid that fits the spread of them all: a few thousand points, whatever was
composed. Nothing is rounded but upwards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

import dp_accounting
import numpy as np

from beam_ldp.accounting import central, loss_curves
from beam_ldp.accounting.events import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.loss_grid import LossGrid

_OWN = (ShuffledDpEvent, SubsampledShuffledDpEvent)
_LONG = 1 << 18  # more releases than that are composed in two steps
_COMMON_STEPS_PER_DEVIATION = 100

Counts = Mapping[dp_accounting.DpEvent, int]


class Losses(NamedTuple):
    """Both directions of the losses of some releases; one object where they are mirror images."""

    forth: LossGrid
    back: LossGrid

    def epsilon(self, delta: float) -> float:
        """The least epsilon at `delta`, with the allowance for rounding; may be infinite."""
        allowed = delta - self.forth.rounding
        if allowed <= 0.0:
            return math.inf
        found = self.forth.epsilon(allowed)
        return found if self.back is self.forth else max(found, self.back.epsilon(allowed))

    def delta(self, epsilon: float) -> float:
        """The least delta at `epsilon`, likewise."""
        sides = [side.deltas(np.array([epsilon]))[0] for side in self]
        return min(1.0, float(max(sides)) + self.forth.rounding)

    def repeated(self, count: int) -> Losses:
        forth = self.forth.repeated(count)
        return Losses(forth, forth if self.back is self.forth else self.back.repeated(count))

    def composed(self, other: Losses) -> Losses:
        forth = self.forth.composed(other.forth)
        if self.back is self.forth and other.back is other.forth:
            return Losses(forth, forth)
        return Losses(forth, self.back.composed(other.back))

    def on(self, step: float) -> Losses:
        """The same on another grid: connecting the dots of both hockey sticks is never lower."""
        top = max(side.losses[-1] for side in self)
        knots = np.arange(max(1, math.ceil(top / step - 1e-9)) + 1)
        sticks = [side.deltas(knots * step) for side in self]
        rounding = self.forth.rounding
        forth = LossGrid.connecting(step, knots, sticks[0], sticks[1], rounding)
        if self.back is self.forth:
            return Losses(forth, forth)
        return Losses(forth, LossGrid.connecting(step, knots, sticks[1], sticks[0], rounding))


def ledger_losses(counts: Counts) -> Losses | None:
    """The losses of so many releases of each kind; None where those of a kind are not known."""
    return _composed(tuple(counts.items()))


@lru_cache(maxsize=32)
def _composed(counts: tuple[tuple[dp_accounting.DpEvent, int], ...]) -> Losses | None:
    parts = _parts(dict(counts))
    if not parts or any(_deviation(part) is None for part in parts):
        return None
    if len(parts) == 1:
        ((part, count),) = parts.items()
        return repeated_losses(part, count)
    step = _total_deviation(parts) / _COMMON_STEPS_PER_DEVIATION
    total = None
    for part, count in parts.items():
        one = _on_common_grid(part, count, step)
        total = one if total is None else total.composed(one)
    return total


@lru_cache(maxsize=32)
def repeated_losses(part: dp_accounting.DpEvent, count: int) -> Losses:
    """The losses of `count` equal releases."""
    if count > _LONG:
        most, rest = divmod(count, _LONG // 2)
        step = _total_deviation({part: count - rest}) / _COMMON_STEPS_PER_DEVIATION
        coarse = step / math.sqrt(most)
        long = repeated_losses(part, _LONG // 2).on(coarse).repeated(most).on(step)
        return long.composed(_on_common_grid(part, rest, step)) if rest else long
    if isinstance(part, _OWN):
        return Losses(*loss_curves.loss_grids(part)).repeated(count)
    deviation = central.deviation(part)
    assert deviation is not None
    step = deviation / loss_curves.STEPS_PER_DEVIATION
    return Losses(*central.loss_grids(part, step)).repeated(count)


@lru_cache(maxsize=64)
def _on_common_grid(part: dp_accounting.DpEvent, count: int, step: float) -> Losses:
    return repeated_losses(part, count).on(step)


def _parts(counts: Counts) -> dict[dp_accounting.DpEvent, int]:
    """The kinds that have a distribution of their own: several messages are columns."""
    parts: dict[dp_accounting.DpEvent, int] = {}
    for event, count in counts.items():
        columns = [(1, event)]
        if isinstance(event, ShuffledMessagesDpEvent):
            columns = list(loss_curves.message_columns(event))
        elif isinstance(event, LocalRandomizerDpEvent):
            columns = [(1, ShuffledDpEvent(event, 1))]
        for each, part in columns:
            parts[part] = parts.get(part, 0) + each * count
    return parts


def _deviation(part: dp_accounting.DpEvent) -> float | None:
    if not isinstance(part, _OWN):
        return central.deviation(part)
    if part.local_epsilon > loss_curves.HOPELESS:
        return None
    return loss_curves.loss_deviation(part)


def _total_deviation(parts: Counts) -> float:
    return math.sqrt(sum(count * (_deviation(part) or 0.0) ** 2 for part, count in parts.items()))
