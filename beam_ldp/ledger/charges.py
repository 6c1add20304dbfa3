"""Budgets and charges, as rows tell them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from beam_ldp.ledger.losses import Loss
from beam_ldp.randomizers.identity import ReleaseIdentity

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

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds it."""
        return {**asdict(self), "orders": list(self.orders)}

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Budget:
        """Inverse of `to_json`."""
        local = told["local_epsilon"]
        return cls(
            **{
                **told,
                "epsilon": float(told["epsilon"]),
                "delta": float(told["delta"]),
                "local_epsilon": None if local is None else float(local),
                "orders": tuple(map(float, told["orders"])),
            }
        )

    def period_of(self, time: str) -> int:
        """Number of the period in which a time lies."""
        if self.period_days is None:
            return 0
        return days_between(self.since, time) // self.period_days


@dataclass(frozen=True)
class Quota:
    """A share of a population's budget that is kept for somebody: a team, a questioner.

    Attributes:
        name: who asks.
        share: of the divergence at the first order that fills the budget, and of the budget of
            local epsilons.
        by, why: who set it, and why.
    """

    name: str
    share: float
    by: str = ""
    why: str = ""


@dataclass(frozen=True)
class Charge:
    """One run's spend; of a run that is charged in blocks, what is left of the block, or a part.

    Attributes:
        run_id: its name; used once.
        dataset, population: whose data.
        identity: of the release.
        reserved: event of the reservation, the worst case; JSON. Of a block: of each part.
        settled: event of what was released; None until then.
        loss: what counts, at the orders of the budget: of `reserved`, then of `settled`.
        local_epsilon: what each person may lose to whoever sees their reports, by this run.
        status: "reserved" counts at its worst case, whether or not the run still lives.
        about: what the run said of itself (question, mechanism, reports, ...).
        time, period: when it was reserved.
        number: row of the reservation; of a part of a block, the row that ended it.
        memoized: a repetition sends the same reports.
        attempt: token of the newest start; only it may settle.
        attempts: how often the run was started.
        count: parts of a block that are still open; 1 of other charges.
        reserved_local: the local epsilon at its worst.
        local_event: what people send, where `reserved` prices only what a trusted server publishes.
        quota: whose share it is charged to; "" for the rest.
        certificate: room for what a later version proves of a release; None.
        report_digest: keyed digest of the reports that were released; None where none was told.
        published: how often the same reports were released.
        overspent: what was released cost more than was reserved.
    """

    run_id: str
    dataset: str
    population: str
    identity: ReleaseIdentity
    reserved: dict[str, Any]
    settled: dict[str, Any] | None
    loss: Loss
    local_epsilon: float
    status: Status
    about: dict[str, Any]
    time: str
    period: int
    number: int
    memoized: bool
    attempt: str
    attempts: int = 1
    count: int = 1
    is_block: bool = False
    reserved_local: float = 0.0
    local_event: dict[str, Any] | None = None
    quota: str = ""
    certificate: Any = None
    report_digest: str | None = None
    published: int = 0
    overspent: bool = False

    @property
    def group(self) -> str:
        """The run that this is a part of: long runs are charged in blocks."""
        return str(self.about.get("run", self.run_id))

    @property
    def event(self) -> dict[str, Any] | None:
        """The event that counts; None where nothing was released."""
        if self.status == "abandoned" or not self.count:
            return None
        return self.reserved if self.settled is None else self.settled

    @property
    def local_total(self) -> float:
        """What one person may lose locally by all that is still open of it, or by what it was."""
        return self.count * self.local_epsilon if self.count else 0.0


def days_between(start: str, end: str) -> int:
    """Whole days between two ISO times, rounded down."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).days
