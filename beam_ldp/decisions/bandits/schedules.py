"""How many people each batch asks: a geometric schedule within a horizon."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from beam_ldp.randomizers.checks import check_integer

Rounding = Literal["real", "floor", "ceil"]


@dataclass(frozen=True)
class Schedule:
    """Batches of about `growth**i` people for i = 1, ..., `batches`, among `horizon` people.

    The batches together may ask for more people than there are. The learner then stops exploring
    before the first batch that does not fit (`fits`), and all others get the best action so far.

    Attributes:
        horizon: people in all, each asked once.
        growth: ratio of the sizes of successive batches.
        batches: most batches.

    Source: specification of linear bandits, section 3.1.

    >>> plan = Schedule.of(1_000_000)
    >>> plan.batches, f"{plan.growth:.4f}", f"{plan.size(12):,.0f}"
    (12, '2.8581', '297,170')
    """

    horizon: int
    growth: float
    batches: int

    @classmethod
    def of(cls, horizon: int, rounding: Rounding = "real") -> Schedule:
        """The schedule of a horizon; the natural logarithm of it, L, is rounded in three ways.

        Args:
            horizon: people in all, at least 16.
            rounding: "real" takes growth (2T)^(1/L) and floor(L) - 1 batches; "floor" and "ceil"
                round L first, and take L - 1 batches.
        """
        if rounding not in get_args(Rounding):
            allowed = ", ".join(get_args(Rounding))
            raise ValueError(f"rounding must be one of {allowed}, got {rounding!r}")
        horizon = check_integer("horizon", horizon, 16, 10**15)
        length = math.log(horizon)
        if rounding == "floor":
            length = math.floor(length)
        elif rounding == "ceil":
            length = math.ceil(length)
        return cls(horizon, (2 * horizon) ** (1 / length), math.floor(length) - 1)

    def size(self, batch: int) -> float:
        """People of a batch before counts are rounded up for each action, from batch 1."""
        return self.growth ** check_integer("batch", batch, 1, self.batches)

    @property
    def share(self) -> float:
        """All batches' people, of the horizon; above 1 the last batch does not fit."""
        return math.fsum(self.size(i + 1) for i in range(self.batches)) / self.horizon

    def fits(self, people: int, asked: int) -> bool:
        """Whether a batch of that many people fits after those who were asked."""
        return asked + people <= self.horizon
