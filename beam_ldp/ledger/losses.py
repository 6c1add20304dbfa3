"""What charges cost together: an adaptive filter over Rényi orders that were fixed beforehand.

Later runs are chosen after seeing earlier results, so the total is read at orders that were fixed
with the budget: one order at delta, or m orders at delta/m each (Feldman and Zrnic 2021;
accounting specification, section 8). Pure epsilons add up at delta zero and cost no split.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting import ShuffleAccountant
from beam_ldp.accounting.conversions import rdp_to_epsilon
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.ledger.rows import canonical

# Few, because delta is split between them; from long trainings to a few releases.
DEFAULT_ORDERS = (4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 512.0)


@dataclass(frozen=True)
class Loss:
    """The privacy loss of charges, as it adds up.

    Attributes:
        divergences: Rényi divergence at each order of the budget.
        pure: epsilon at delta zero; infinite where there is none.
    """

    divergences: tuple[float, ...]
    pure: float

    def __add__(self, other: Loss) -> Loss:
        return Loss(
            tuple(a + b for a, b in zip(self.divergences, other.divergences)),
            self.pure + other.pure,
        )

    def epsilon(
        self, orders: tuple[float, ...], delta: float, *, adaptive: bool = True
    ) -> tuple[float, float]:
        """Epsilon at `delta`, and the order that gives it (infinite: the pure epsilon).

        `adaptive=False`: the charges were fixed beforehand, and the best order costs no split.
        """
        share = delta / len(orders) if adaptive else delta
        found, order = rdp_to_epsilon(np.array(orders), np.array(self.divergences), share)
        found = max(0.0, float(found))
        return (found, float(order)) if found < self.pure else (self.pure, math.inf)


def no_loss(orders: tuple[float, ...]) -> Loss:
    """What nothing costs."""
    return Loss((0.0,) * len(orders), 0.0)


def loss_of(event: dict[str, Any], orders: tuple[float, ...]) -> Loss:
    """The loss of one charge.

    Args:
        event: as `event_to_json` writes it.
        orders: those of the budget.

    Raises:
        ValueError: if the event cannot be read or has no price under replace-one.
    """
    return _loss_of(json.dumps(event, sort_keys=True), orders)


@lru_cache(maxsize=4096)
def _loss_of(event: str, orders: tuple[float, ...]) -> Loss:
    accountant = ShuffleAccountant(list(orders), adaptive=True)
    parsed = event_from_json(json.loads(event))
    if not accountant.supports(parsed):
        raise ValueError("event has no price under replace-one neighbours")
    accountant.compose(parsed)
    return Loss(tuple(accountant.divergences().tolist()), accountant.get_epsilon(0.0))


def as_json(event: Any) -> dict[str, Any]:
    """The event as a ledger stores it."""
    return event if isinstance(event, dict) else event_to_json(event)


def event_digest(event: Any) -> str:
    """SHA-256 of the event's canonical JSON: what tracking servers show of it."""
    return hashlib.sha256(canonical(as_json(event))).hexdigest()
