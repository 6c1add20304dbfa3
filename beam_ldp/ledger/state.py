"""What the rows amount to: datasets, budgets, and every charge with what became of it.

A fold over rows, without a database: the ledger, the audit and the reports read the same state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from beam_ldp.ledger.acceptances import Acceptance
from beam_ldp.ledger.charges import Budget, Charge
from beam_ldp.ledger.losses import Loss, exceeds, limit, loss_of, no_loss
from beam_ldp.ledger.people_count import PeopleCount
from beam_ldp.ledger.rows import (
    ABANDON,
    ACCEPT,
    BUDGET,
    DATASET,
    GENESIS,
    PEOPLE,
    RESERVE,
    SETTLE,
    Head,
    LedgerCorruptedError,
    Row,
    faults,
)

UNIT, NEIGHBOURS = "privacy_unit", "neighbours"
REPLACE_ONE = "replace-one"


@dataclass
class Population:
    """People whose data one budget protects, over all datasets about them.

    Attributes:
        name: of the population.
        datasets: their names.
        privacy_unit: what one record to protect is, for example "user".
        budget: the one in force; None until one is set.
        budgets: all that were ever in force.
        charges: by run id, in the order of their reservations.
        people: per period, what each person was charged locally, as last counted.
    """

    name: str
    privacy_unit: str
    neighbours: str
    datasets: set[str] = field(default_factory=set)
    budgets: list[Budget] = field(default_factory=list)
    charges: dict[str, Charge] = field(default_factory=dict)
    people: dict[int, PeopleCount] = field(default_factory=dict)
    _settled: dict[int, Loss] = field(default_factory=dict, repr=False)
    _settled_local: dict[int, float] = field(default_factory=dict, repr=False)
    _open: dict[str, Charge] = field(default_factory=dict, repr=False)

    @property
    def budget(self) -> Budget | None:
        return self.budgets[-1] if self.budgets else None

    def loss(self, period: int, *, reserved: bool = True) -> Loss:
        """What was charged in a period; with what is reserved, unless that is left out."""
        budget = self.budget
        assert budget is not None
        total = self._settled.get(period) or no_loss(budget.orders)
        for charge in self._open.values() if reserved else ():
            if charge.period == period:
                total += loss_of(charge.reserved, budget.orders)
        return total

    def local_loss(self, period: int, *, reserved: bool = True) -> float:
        """What somebody was charged locally who took part in all runs of a period."""
        total = self._settled_local.get(period, 0.0)
        if reserved:
            total += sum(c.local_epsilon for c in self._open.values() if c.period == period)
        return total

    def local_maximum(self, period: int) -> float:
        """The most that any one person was charged locally, reservations included: proved.

        Runs whose people were not counted are taken to have asked everybody.
        """
        counted = self.people.get(period)
        if counted is None:
            return self.local_loss(period)
        others = [c for c in self.charges_of(period) if c.number not in counted.numbers]
        bound = counted.maximum + math.fsum(charge.local_epsilon for charge in others)
        return min(bound, self.local_loss(period))

    def charges_of(self, period: int) -> list[Charge]:
        """The charges of a period, in the order of their reservations."""
        return [charge for charge in self.charges.values() if charge.period == period]

    def ended(self, period: int) -> list[Charge]:
        """Those of them that are settled or abandoned."""
        return [charge for charge in self.charges_of(period) if charge.status != "reserved"]

    def set_people(self, period: int, counted: PeopleCount) -> None:
        """What each person was charged (ValueError if that cannot be)."""
        counted.check({charge.number: charge for charge in self.ended(period)})
        self.people[period] = counted

    def put(self, charge: Charge) -> None:
        """A new charge, or what became of one."""
        self.charges[charge.run_id] = charge
        if charge.status == "reserved":
            self._open[charge.run_id] = charge
            return
        self._open.pop(charge.run_id, None)
        self._settled_local[charge.period] = (
            self._settled_local.get(charge.period, 0.0) + charge.local_epsilon
        )
        self._add_settled(charge)

    def set_budget(self, budget: Budget) -> None:
        """A new budget; what was spent is read again at its orders and in its periods."""
        if self.budget is not None and self.budget.period_days != budget.period_days:
            self.people = {}  # of other periods
        self.budgets.append(budget)
        self._settled, self._settled_local, self._open = {}, {}, {}
        for charge in list(self.charges.values()):
            self.put(replace(charge, period=budget.period_of(charge.time)))

    def _add_settled(self, charge: Charge) -> None:
        budget = self.budget
        if budget is not None and charge.event is not None:
            so_far = self._settled.get(charge.period) or no_loss(budget.orders)
            self._settled[charge.period] = so_far + loss_of(charge.event, budget.orders)


class LedgerState:
    """The fold. `apply` checks each row against the chain and against what came before."""

    def __init__(self) -> None:
        self.head = Head()
        self.time = ""  # of the last row, ISO 8601, UTC
        self.ledger_id = ""
        self.populations: dict[str, Population] = {}
        self.acceptances: list[Acceptance] = []
        self._of_dataset: dict[str, str] = {}
        self._of_run: dict[str, str] = {}

    def apply(self, rows: Iterable[Row]) -> None:
        """Take rows in.

        Raises:
            LedgerCorruptedError: if a row does not follow from the rows before it.
        """
        for row in rows:
            for fault in faults([row], self.head):
                raise LedgerCorruptedError(fault)
            try:
                self._take(row)
            except Exception:  # a forged row may hold anything
                raise LedgerCorruptedError(
                    f"row {row.number} does not follow from the rows before it"
                ) from None
            self.head = row.head
            self.time = row.body.get("time", self.time)

    def _take(self, row: Row) -> None:
        body = row.body
        if row.kind != GENESIS and body["time"] < self.time:
            raise ValueError("time does not run backwards")
        if row.kind == GENESIS:
            self.ledger_id = body["ledger_id"]
        elif row.kind == DATASET:
            self._take_dataset(body)
        elif row.kind == BUDGET:
            population = self.populations[body["population"]]
            population.set_budget(_budget(row, population.budget))
        elif row.kind == RESERVE:
            self._take_reservation(row)
        elif row.kind in (SETTLE, ABANDON):
            self._take_end(row)
        elif row.kind == ACCEPT:
            self.acceptances.append(Acceptance.from_json(body))
        elif row.kind == PEOPLE:
            counted = PeopleCount.from_json(body)
            self.populations[body["population"]].set_people(body["period"], counted)

    def _take_dataset(self, body: dict[str, Any]) -> None:
        name, dataset = body["population"], body["dataset"]
        if dataset in self._of_dataset:
            raise ValueError("a dataset belongs to one population")
        population = self.populations.get(name)
        if population is None:
            population = Population(name, body[UNIT], body[NEIGHBOURS])
            self.populations[name] = population
        if (population.privacy_unit, population.neighbours) != (body[UNIT], body[NEIGHBOURS]):
            raise ValueError("a population has one privacy unit")
        population.datasets.add(dataset)
        self._of_dataset[dataset] = name

    def _take_reservation(self, row: Row) -> None:
        body = row.body
        population = self.population_of(body["dataset"])
        budget = population.budget
        if budget is None or body["run_id"] in self._of_run:
            raise ValueError("a charge needs a budget and a name of its own")
        loss_of(body["event"], budget.orders)  # refuses what has no price
        charge = Charge(
            run_id=body["run_id"],
            dataset=body["dataset"],
            population=population.name,
            reserved=body["event"],
            settled=None,
            local_epsilon=_epsilon(body["local_epsilon"]),
            status="reserved",
            about=dict(body["about"]),
            time=body["time"],
            period=budget.period_of(body["time"]),
            number=row.number,
        )
        population.put(charge)
        self._of_run[charge.run_id] = population.name

    def _take_end(self, row: Row) -> None:
        body = row.body
        charge = self.charge(body["run_id"])
        if charge.status != "reserved":
            raise ValueError("a charge ends once")
        about = {**charge.about, **body["about"]}
        local = _epsilon(body["local_epsilon"])
        if row.kind == ABANDON:
            ended = replace(charge, status="abandoned", about=about, local_epsilon=local)
        else:
            ended = replace(
                charge,
                status="settled",
                settled=body["event"],
                about=about,
                local_epsilon=local,
                overspent=self._overspent(charge, body["event"], local),
            )
        self.populations[charge.population].put(ended)

    def _overspent(self, charge: Charge, released: dict[str, Any], local: float) -> bool:
        """Worked out anew: what the row says of itself is what a forger would change."""
        budget = self.populations[charge.population].budget
        assert budget is not None
        real, worst = loss_of(released, budget.orders), loss_of(charge.reserved, budget.orders)
        return exceeds(real, worst) or local > limit(charge.local_epsilon)

    def population_of(self, dataset: str) -> Population:
        """The population of a dataset (KeyError if there is none)."""
        return self.populations[self._of_dataset[dataset]]

    def charge(self, run_id: str) -> Charge:
        """The charge of a run (KeyError if there is none)."""
        return self.populations[self._of_run[run_id]].charges[run_id]

    def has_run(self, run_id: str) -> bool:
        return run_id in self._of_run

    @property
    def datasets(self) -> list[str]:
        return sorted(self._of_dataset)


def _epsilon(value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("an epsilon must be finite and >= 0")
    return float(value)


def _budget(row: Row, before: Budget | None) -> Budget:
    """Periods count from the first budget: a new one does not begin a new period."""
    body = row.body
    local = body["local_epsilon"]
    if not (0 < body["delta"] < 1 and body["orders"] and all(o > 1 for o in body["orders"])):
        raise ValueError("a budget needs a delta and orders")
    return Budget(
        epsilon=_epsilon(body["epsilon"]),
        delta=float(body["delta"]),
        local_epsilon=None if local is None else _epsilon(local),
        orders=tuple(float(order) for order in body["orders"]),
        period_days=body["period_days"],
        since=body["time"] if before is None else before.since,
        number=row.number,
        by=body["by"],
        why=body["why"],
    )
