"""Budgets and charges, as rows tell them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

Status = Literal["reserved", "settled", "abandoned"]


@dataclass(frozen=True)
class Budget:
    """What people of one population may be charged.

    Attributes:
        epsilon, delta: central budget.
        local_epsilon: sum of local epsilons that one person may be charged; None: no limit.
        orders: Rényi orders that were fixed with it.
        period_days: the budget is granted anew after so many days; None: once for all time.
        since: ISO time from which periods count.
        number: row that set it.
        by, why: who set it, and why.
    """

    epsilon: float
    delta: float
    local_epsilon: float | None
    orders: tuple[float, ...]
    period_days: int | None
    since: str
    number: int
    by: str = ""
    why: str = ""

    def period_of(self, time: str) -> int:
        """Number of the period in which a time lies."""
        if self.period_days is None:
            return 0
        return days_between(self.since, time) // self.period_days


@dataclass(frozen=True)
class Charge:
    """One run's spend.

    Attributes:
        run_id: its name; used once.
        dataset, population: whose data.
        reserved: event of the reservation, the worst case; JSON.
        settled: event of what was released; None until then.
        local_epsilon: what each person may lose to whoever sees their reports, by this run.
        status: "reserved" counts at its worst case, whether or not the run still lives.
        about: what the run said of itself (question, mechanism, reports, ...).
        time, period: when it was reserved.
        number: row of the reservation.
        overspent: what was released cost more than was reserved.
    """

    run_id: str
    dataset: str
    population: str
    reserved: dict[str, Any]
    settled: dict[str, Any] | None
    local_epsilon: float
    status: Status
    about: dict[str, Any]
    time: str
    period: int
    number: int
    overspent: bool = False

    @property
    def group(self) -> str:
        """The run that this is a part of: long runs are charged in blocks."""
        return str(self.about.get("run", self.run_id))

    @property
    def event(self) -> dict[str, Any] | None:
        """The event that counts; None where nothing was released."""
        if self.status == "abandoned":
            return None
        return self.reserved if self.settled is None else self.settled


def days_between(start: str, end: str) -> int:
    """Whole days between two ISO times, rounded down."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).days
