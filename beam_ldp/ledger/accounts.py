"""What is spent and reserved in one period: running totals, exact, that rows add to.

Each row of a charge says what it adds and what it gives back. So totals follow from rows one by
one, without a look at any earlier row; that a row says the truth of them is what a full reading
checks (`state`), and every audit is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from beam_ldp.ledger.losses import Loss, read_loss
from beam_ldp.ledger.rows import ABANDON, REPLACE, RESERVE, SETTLE
from beam_ldp.ledger.sums import Sum, Total


@dataclass
class Account:
    """Totals of one population, or of one quota in it, in one period.

    Attributes:
        spent, reserved: losses of what ended, and of what is open at its worst.
        local_spent, local_reserved: likewise of local epsilons.
        open: charges that are open, parts of blocks each counted.
        charges: reservations so far.
    """

    spent: Total
    reserved: Total
    local_spent: Sum = field(default_factory=Sum)
    local_reserved: Sum = field(default_factory=Sum)
    open: int = 0
    charges: int = 0

    @classmethod
    def empty(cls, orders: int) -> Account:
        return cls(Total(orders), Total(orders))

    @property
    def loss(self) -> Loss:
        """All that is spent or reserved."""
        return self.spent.plus(self.reserved).loss

    @property
    def local(self) -> float:
        """What somebody lost locally, at worst, who took part in everything."""
        both = Sum(
            self.local_spent.finite + self.local_reserved.finite,
            self.local_spent.infinite + self.local_reserved.infinite,
        )
        return both.value

    def take(self, kind: str, body: dict[str, Any]) -> None:
        """Add what a row of a charge adds."""
        if kind == RESERVE:
            count = int(body["count"])
            self.reserved.add(Loss.from_json(body["loss"]), count)
            self.local_reserved.add(read_loss(body["local_epsilon"]), count)
            self.open += count
            self.charges += 1
        elif kind in (SETTLE, ABANDON):
            count = int(body["count"])
            self.reserved.add(Loss.from_json(body["gives_back"]), -count)
            self.local_reserved.add(read_loss(body["gives_back_local"]), -count)
            self.local_spent.add(read_loss(body["local_epsilon"]), count)
            self.open -= count
            if kind == SETTLE:
                self.spent.add(Loss.from_json(body["loss"]), count)
        elif kind == REPLACE:
            self.spent.add(Loss.from_json(body["gives_back"]), -1)
            self.spent.add(Loss.from_json(body["loss"]))

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        return {
            "spent": self.spent.to_json(),
            "reserved": self.reserved.to_json(),
            "local_spent": self.local_spent.to_json(),
            "local_reserved": self.local_reserved.to_json(),
            "open": self.open,
            "charges": self.charges,
        }

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Account:
        return cls(
            Total.from_json(told["spent"]),
            Total.from_json(told["reserved"]),
            Sum.from_json(told["local_spent"]),
            Sum.from_json(told["local_reserved"]),
            int(told["open"]),
            int(told["charges"]),
        )
