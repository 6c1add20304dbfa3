"""What a plan must meet, and how plans are ranked: the same for every kind of statistic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeVar

from beam_ldp.randomizers.checks import check_fraction

_EQUAL = 1.01  # errors within 1 % count as equal: then fewer bits win


class Ranked(Protocol):
    """What the order of plans depends on."""

    @property
    def mechanism(self) -> str: ...
    @property
    def rms_error(self) -> float: ...
    @property
    def bits_per_report(self) -> int: ...
    @property
    def excluded(self) -> str: ...


PlanT = TypeVar("PlanT", bound=Ranked)


def best_first(plans: Sequence[PlanT]) -> list[PlanT]:
    """Usable plans by error, by bits where errors are equal to 1 %; then those left out."""
    usable = [plan.rms_error for plan in plans if not plan.excluded]
    best = min(usable, default=1.0)

    def rank(plan: PlanT) -> tuple[bool, float, int, str]:
        level = 0.0
        if not plan.excluded:
            level = math.floor(math.log(plan.rms_error / best, _EQUAL))
        return bool(plan.excluded), level, plan.bits_per_report, plan.mechanism

    return sorted(plans, key=rank)


def check_target(
    epsilon: float | None,
    local_epsilon: float | None,
    delta: float | None,
    max_bits: int | None,
    *,
    shuffled: bool = True,
) -> None:
    """A ValueError unless the target is one: exactly one budget, a delta where it is needed."""
    if (epsilon is None) == (local_epsilon is None):
        raise ValueError("exactly one of epsilon and local_epsilon must be given")
    for name, value in (("epsilon", epsilon), ("local_epsilon", local_epsilon)):
        if value is not None and not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    if epsilon is not None and delta is None and shuffled:
        raise ValueError("delta must be given with epsilon")
    if delta is not None:
        check_fraction("delta", delta)
    if max_bits is not None and not max_bits >= 1:
        raise ValueError(f"max_bits must be >= 1, got {max_bits!r}")
