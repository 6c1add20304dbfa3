"""What a long run is charged for: equal releases, counted, with their prices.

Its charges are reserved ahead, one row of the ledger for many steps (`Blocks`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import dp_accounting

from beam_ldp.accounting import ShuffleAccountant, event_epsilon
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError
from beam_ldp.ledger.losses import Loss, as_json, local_loss_of
from beam_ldp.randomizers.identity import ReleaseIdentity


@dataclass
class TrackedLoss:
    """What was charged so far.

    Attributes:
        epsilon: proved, cumulative, at the tracker's delta.
        order: the Rényi order that gives it; infinite: epsilons added up.
        local_epsilon: sum per person, for a person who took part in every step.
        num_charges: charges so far.
    """

    epsilon: float
    order: float
    local_epsilon: float
    num_charges: int


class Tracked(Protocol):
    """What a tracker tells of its run: `PrivacyTracker` is one.

    Attributes: as there.
    """

    dataset: str
    quota: str
    delta: float
    run_id: str

    @property
    def mlflow_run_id(self) -> str | None: ...
    @property
    def adaptive(self) -> bool: ...
    @property
    def charged(self) -> bool: ...
    @property
    def spent(self) -> TrackedLoss: ...
    def accountant(self) -> ShuffleAccountant: ...


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


LARGEST_BLOCK = 64  # charges that are reserved ahead at once


class Blocks:
    """Charges reserved ahead: one row in the ledger for many steps of the same kind."""

    def __init__(self, ledger: BudgetLedger, tracker: Tracked) -> None:
        self._ledger, self._tracker = ledger, tracker
        self._event: dp_accounting.DpEvent | None = None
        self._local = 0.0
        self._size = self._used = self._number = 0
        self._next = 1
        self._attempt, self._process = "", os.getpid()

    def charge(self, event: dp_accounting.DpEvent, local: float) -> None:
        """Use one charge of the open block, or reserve a block first.

        Raises:
            LedgerError: in a process that was forked: both would use the same charges.
        """
        if os.getpid() != self._process:
            raise LedgerError("the tracker belongs to another process: open one in each process")
        if (event, local) != (self._event, self._local):
            self.close()
            self._next = 1
        if self._used == self._size:
            self.close()
            self._open(event, local)
        self._used += 1

    def would_exceed(self, event: dp_accounting.DpEvent, count: int) -> bool:
        """Whether the budget, or the quota's share, has no room beyond what is reserved ahead."""
        needed = count - (self._size - self._used if event == self._event else 0)
        if needed <= 0:
            return False
        status = self._ledger.status(self._tracker.dataset)
        local = local_loss_of(as_json(event))  # as it is charged
        return status.times_left(event, local, needed, self._tracker.quota) < needed

    def close(self) -> None:
        """Settle what was used of the open block; give back what was not."""
        if self._used:
            self._ledger.settle(
                self._name,
                _repeated(self._event, self._used),
                identity=self._identity,
                attempt=self._attempt,
                proof=f"reserved ahead: {self._used:,} of {self._size:,} were used",
                about={"charges": self._used, "mlflow_run_id": self._tracker.mlflow_run_id},
            )
        elif self._size:
            self._ledger.abandon(self._name, randomized=False, why="reserved ahead and not used")
        self._size = self._used = 0

    @property
    def _identity(self) -> ReleaseIdentity:
        tracker = self._tracker
        return ReleaseIdentity(tracker.dataset, tracker.run_id, part=f"block {self._number}")

    @property
    def _name(self) -> str:
        return f"{self._tracker.run_id}/{self._number}"

    def _open(self, event: dp_accounting.DpEvent, local: float) -> None:
        size = self._next
        while not self._reserved(event, local, size):
            size = max(1, size // 4)
        self._event, self._local, self._size = event, local, size
        self._next = min(LARGEST_BLOCK, 2 * size)

    def _reserved(self, event: dp_accounting.DpEvent, local: float, size: int) -> bool:
        self._number += 1
        tracker = self._tracker
        try:
            charge = self._ledger.reserve(
                tracker.dataset,
                self._name,
                _repeated(event, size),
                identity=self._identity,
                quota=tracker.quota,
                about={"run": tracker.run_id, "delta": tracker.delta},
            )
        except BudgetExceededError:
            if size == 1:
                raise
            return False
        self._attempt = charge.attempt
        return True


def _repeated(event: dp_accounting.DpEvent | None, count: int) -> dp_accounting.DpEvent:
    assert event is not None
    return event if count == 1 else dp_accounting.SelfComposedDpEvent(event, count)
