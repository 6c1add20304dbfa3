"""Equal releases of a run, counted; their prices one by one and together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dp_accounting

from beam_ldp.accounting import ShuffleAccountant, event_epsilon
from beam_ldp.ledger.losses import Loss


@dataclass
class Kind:
    """Equal events and how many of them."""

    event: dp_accounting.DpEvent
    told: dict[str, Any]
    loss: Loss
    local_epsilon: float
    count: int = 0

    def prices(self, delta: float) -> dict[str, float]:
        """What one of them costs."""
        bound = event_epsilon(self.event, delta)
        found = {"step_epsilon": float(bound), "step_local_epsilon": self.local_epsilon}
        return found | ({"step_epsilon_lower": bound.lower} if bound.lower else {})


def local_epsilon_of(event: dp_accounting.DpEvent) -> float:
    """The local epsilon of one person who takes part in the release; 0 for central mechanisms."""
    accountant = ShuffleAccountant()
    accountant.compose(event)
    return float(accountant.local_epsilon)


@dataclass(frozen=True)
class Snapshot:
    """How many releases of each kind there had been at a step."""

    step: int
    counts: Mapping[dp_accounting.DpEvent, int]

    def lower_bounds(self, delta: float) -> dict[str, float]:
        """What they cost together at least; nothing where no bound is known."""
        accountant = ShuffleAccountant(adaptive=True)
        for event, count in self.counts.items():
            accountant.compose(event, count)
        bound = accountant.get_epsilon(delta)
        found = {"epsilon_lower": bound.lower, "epsilon_class_lower": bound.class_lower}
        return {name: float(value) for name, value in found.items() if value}
