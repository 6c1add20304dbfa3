"""What is spent and reserved in one period: running totals, exact, that rows add to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from beam_ldp.ledger.losses import Loss, read_loss
from beam_ldp.ledger.rows import ABANDON, REPLACE, RESERVE, SETTLE

# Exact sums of floats: what was added can be taken away again, in any order, without a trace.
#
# A running total must not drift. Floats that are added and taken away leave rounding behind,
# which could read as less than what is spent. These sums hold every bit, and are rounded up when
# read.


_UNIT = 1074  # every finite float is a whole multiple of 2^-1074


@dataclass
class Sum:
    """An exact sum of floats >= 0; infinite ones are counted.

    >>> total = Sum()
    >>> total.add(0.1); total.add(1e300); total.add(1e300, -1)
    >>> total.value
    0.1
    """

    finite: int = 0
    infinite: int = 0

    def add(self, value: float, count: int = 1) -> None:
        """Add a float so many times; a negative count takes it away."""
        if math.isinf(value):
            self.infinite += count
            return
        above, below = value.as_integer_ratio()
        self.finite += count * (above << (_UNIT + 1 - below.bit_length()))

    @property
    def value(self) -> float:
        """The sum, rounded up to the next float."""
        if self.infinite:
            return math.inf
        try:
            found = self.finite / (1 << _UNIT)
        except OverflowError:
            return math.inf
        above, below = found.as_integer_ratio()
        exact = above << (_UNIT + 1 - below.bit_length())
        return found if exact >= self.finite else math.nextafter(found, math.inf)

    def to_json(self) -> str:
        """Every bit: hexadecimal digits, how many binary zeros follow, and infinities."""
        zeros = (self.finite & -self.finite).bit_length() - 1 if self.finite else 0
        return f"{self.finite >> zeros:x}:{zeros}:{self.infinite}"

    @classmethod
    def from_json(cls, told: str) -> Sum:
        """Inverse of `to_json`."""
        digits, zeros, infinite = told.split(":")
        if not 0 <= int(zeros) <= 1 << 14:
            raise ValueError("a sum has its point somewhere else")
        return cls(int(digits, 16) << int(zeros), int(infinite))


class Total:
    """An exact sum of losses at the same orders."""

    def __init__(self, orders: int, sums: list[Sum] | None = None) -> None:
        self._sums = sums or [Sum() for _ in range(orders + 2)]  # `Loss.figures`

    def add(self, loss: Loss, count: int = 1) -> None:
        """Add a loss so many times; a negative count takes it away."""
        for total, value in zip(self._sums, loss.figures, strict=True):
            total.add(value, count)

    @property
    def loss(self) -> Loss:
        """The sum, each figure rounded up."""
        *divergences, pure, failure = (total.value for total in self._sums)
        return Loss(tuple(divergences), pure, failure)

    def to_json(self) -> list[str]:
        return [total.to_json() for total in self._sums]

    @classmethod
    def from_json(cls, told: list[str]) -> Total:
        return cls(len(told) - 2, [Sum.from_json(text) for text in told])

    def plus(self, other: Total) -> Total:
        """The sum of both."""
        pairs = zip(self._sums, other._sums, strict=True)
        both = [Sum(a.finite + b.finite, a.infinite + b.infinite) for a, b in pairs]
        return Total(0, both)


# What is spent and reserved in one period: running totals, exact, that rows add to --------
#
# Each row of a charge says what it adds and what it gives back. So totals follow from rows one by
# one, without a look at any earlier row; that a row says the truth of them is what a full reading
# checks (`state`), and every audit is one.


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
