"""Where every population stands, as rows add it up: what decisions need, and nothing more.

`Balances` take rows one by one and believe what each says that it adds; a checkpoint is a row that
holds all of them, so that a program that opens a ledger reads from the last one on. `LedgerState`
is the same with every charge, and believes nothing: see `state`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from beam_ldp.ledger import kinds
from beam_ldp.ledger.accounts import Account, ExactSum, PeopleCount
from beam_ldp.ledger.charges import Budget, Charge, Quota
from beam_ldp.ledger.losses import CHANCES, Loss
from beam_ldp.ledger.rows import ChainHead, LedgerCorruptedError, Row, faults

UNIT, NEIGHBOURS = "privacy_unit", "neighbours"
REPLACE_ONE = "replace-one"


@dataclass
class Population:
    """People whose data one budget protects, over all datasets about them.

    Attributes:
        name: of the population.
        privacy_unit: what one record to protect is, for example "user".
        datasets: their names.
        budgets: all that were ever in force, the last one is; from a checkpoint on, that one alone.
        quotas: shares of the budget that are kept for a team or analyst, by name.
        people: per period, what each person was charged locally, as last counted.
        charged: reservations so far.
        accounts, quota_accounts: totals per period, and per quota and period.
        charges: by run id, in the order of their reservations; filled in a `LedgerState` alone.
    """

    name: str
    privacy_unit: str
    neighbours: str
    datasets: set[str] = field(default_factory=set)
    budgets: list[Budget] = field(default_factory=list)
    quotas: dict[str, Quota] = field(default_factory=dict)
    people: dict[int, PeopleCount] = field(default_factory=dict)
    charged: int = 0
    accounts: dict[int, Account] = field(default_factory=dict, repr=False)
    quota_accounts: dict[tuple[str, int], Account] = field(default_factory=dict, repr=False)
    charges: dict[str, Charge] = field(default_factory=dict, repr=False)
    _counted: dict[int, ExactSum] = field(default_factory=dict, repr=False)

    @property
    def budget(self) -> Budget | None:
        return self.budgets[-1] if self.budgets else None

    @property
    def granted(self) -> Budget:
        """The budget in force.

        Raises:
            ValueError: if there is none.
        """
        if self.budget is None:
            raise ValueError("a charge needs a budget")
        return self.budget

    def account(self, period: int, quota: str | None = None) -> Account:
        """The totals of a period; of one quota, or of the rest of the budget (""), if asked."""
        found = (
            self.accounts.get(period) if quota is None else self.quota_accounts.get((quota, period))
        )
        return found or Account.empty(len(self.granted.orders))

    def loss(self, period: int, *, reserved: bool = True) -> Loss:
        """What was charged in a period; with what is reserved, unless that is left out."""
        account = self.account(period)
        return account.loss if reserved else account.spent.loss

    def local_loss(self, period: int, *, reserved: bool = True) -> float:
        """What somebody was charged locally who took part in all runs of a period."""
        account = self.account(period)
        return account.local if reserved else account.local_spent.value

    def local_maximum(self, period: int) -> float:
        """The most that any one person was charged locally, reservations included: proved.

        Runs whose people were not counted are taken to have asked everybody.
        """
        counted, everything = self.people.get(period), self.local_loss(period)
        if counted is None or math.isinf(everything):
            return everything
        account, known = self.account(period), self._counted[period]
        others = ExactSum(account.local_spent.finite + account.local_reserved.finite - known.finite)
        return min(counted.maximum + others.value, everything)

    def charges_of(self, period: int) -> list[Charge]:
        """The charges of a period, in the order of their reservations."""
        return [charge for charge in self.charges.values() if charge.period == period]

    def ended(self, period: int) -> list[Charge]:
        """Those of them that are settled or abandoned."""
        return [charge for charge in self.charges_of(period) if charge.status != "reserved"]

    # Taking rows ------------------------------------------------------------------------------

    def take_budget(self, budget: Budget) -> None:
        """A new budget. Once something is charged, its orders and periods stay."""
        if self.charged and self.budget is not None:
            _check_fixed(self.budget, budget)
        self.budgets.append(budget)

    def take_charge(self, kind: str, body: dict[str, Any]) -> None:
        """What a row of a charge adds."""
        orders, period = len(self.granted.orders), int(body["period"])
        place = str(body["quota"]), period
        self.accounts.setdefault(period, Account.empty(orders)).take(kind, body)
        self.quota_accounts.setdefault(place, Account.empty(orders)).take(kind, body)
        self.charged += kind == kinds.RESERVE

    def take_people(self, body: dict[str, Any]) -> None:
        """What each person was charged."""
        period = int(body["period"])
        self.people[period] = PeopleCount.from_json(body)
        self._counted[period] = ExactSum.from_json(body["covered_local"])

    # A checkpoint -----------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds it: of closed periods, the last one alone."""
        last = max(self.accounts, default=0)
        alive = [p for p, a in self.accounts.items() if a.open or p == last]
        budget = self.budget
        return {
            "privacy_unit": self.privacy_unit,
            "neighbours": self.neighbours,
            "datasets": sorted(self.datasets),
            "budget": None if budget is None else budget.to_json(),
            "quotas": [[q.name, q.share, q.by, q.why] for q in self.quotas.values()],
            "charged": self.charged,
            "accounts": [[p, self.accounts[p].to_json()] for p in sorted(alive)],
            "quota_accounts": [
                [name, p, account.to_json()]
                for (name, p), account in sorted(self.quota_accounts.items())
                if p in alive
            ],
            "people": [
                [p, {**counted.to_json(), "covered_local": self._counted[p].to_json()}]
                for p, counted in sorted(self.people.items())
                if p in alive
            ],
        }

    @classmethod
    def from_json(cls, name: str, told: dict[str, Any]) -> Population:
        """Inverse of `to_json`, but for what that leaves out."""
        made = cls(name, told["privacy_unit"], told["neighbours"], set(told["datasets"]))
        if told["budget"] is not None:
            made.budgets = [Budget.from_json(told["budget"])]
        made.quotas = {row[0]: Quota(row[0], float(row[1]), *row[2:]) for row in told["quotas"]}
        made.charged = int(told["charged"])
        made.accounts = {int(p): Account.from_json(a) for p, a in told["accounts"]}
        made.quota_accounts = {
            (str(name), int(p)): Account.from_json(a) for name, p, a in told["quota_accounts"]
        }
        for period, counted in told["people"]:
            made.take_people({**counted, "period": period})
        return made


class Balances:
    """The fold of rows, or of a checkpoint and the rows after it.

    Attributes:
        head: of the chain.
        time: of the last row, ISO 8601, UTC.
        since_checkpoint: rows after the last checkpoint.
    """

    def __init__(self) -> None:
        self.head = ChainHead()
        self.time = ""
        self.ledger_id = ""
        self.since_checkpoint = 0
        self.populations: dict[str, Population] = {}
        self._of_dataset: dict[str, str] = {}
        self._first_names: dict[str, str] = {}  # of datasets that were renamed
        self._now_called: dict[str, str] = {}  # what was once called so, to any former name

    def __repr__(self) -> str:
        charged = sum(population.charged for population in self.populations.values())
        return (
            f"<{type(self).__name__} of ledger {self.ledger_id}: {self.head.count:,} rows, "
            f"{charged:,} charges, {len(self._of_dataset):,} datasets>"
        )

    @classmethod
    def from_checkpoint(cls, row: Row) -> Balances:
        """The balances as a checkpoint holds them.

        Raises:
            LedgerCorruptedError: if it was changed. What was written into it wrongly, audits find.
        """
        balances = cls()
        for fault in faults([row], ChainHead(row.number, row.previous)):
            raise LedgerCorruptedError(fault)
        try:
            told = row.body["books"]
            balances.ledger_id, balances.time = told["ledger_id"], row.body["time"]
            balances._of_dataset = dict(told["of_dataset"])
            balances._first_names = dict(told["first_names"])
            balances._now_called = dict(told["now_called"])
            balances.populations = {
                name: Population.from_json(name, held) for name, held in told["populations"].items()
            }
        except Exception:  # a forged row may hold anything
            raise LedgerCorruptedError(f"row {row.number} is not a checkpoint") from None
        balances.head = row.head
        return balances

    def to_json(self) -> dict[str, Any]:
        """As a checkpoint holds them."""
        return {
            "ledger_id": self.ledger_id,
            "of_dataset": dict(self._of_dataset),
            "first_names": dict(self._first_names),
            "now_called": dict(self._now_called),
            "populations": {name: p.to_json() for name, p in self.populations.items()},
        }

    def apply(self, rows: Iterable[Row]) -> None:
        """Take rows in.

        Raises:
            LedgerCorruptedError: if a row does not follow from the rows before it.
        """
        for row in rows:
            for fault in faults([row], self.head):
                raise LedgerCorruptedError(fault)
            try:
                if row.kind != kinds.GENESIS and row.body["time"] < self.time:
                    raise ValueError("time does not run backwards")
                self._take(row)
            except Exception:  # a forged row may hold anything
                raise LedgerCorruptedError(
                    f"row {row.number} does not follow from the rows before it"
                ) from None
            self.head = row.head
            self.time = row.body.get("time", self.time)
            self.since_checkpoint = 0 if row.kind == kinds.CHECKPOINT else self.since_checkpoint + 1

    def _take(self, row: Row) -> None:
        body = row.body
        if row.kind == kinds.GENESIS:
            self.ledger_id = body["ledger_id"]
        elif row.kind == kinds.DATASET:
            self._take_dataset(body)
        elif row.kind == kinds.RENAME:
            self._take_rename(body)
        elif row.kind == kinds.BUDGET:
            population = self.populations[body["population"]]
            population.take_budget(_budget(row, population.budget))
        elif row.kind == kinds.QUOTA:
            found = Quota(str(body["quota"]), float(body["share"]), body["by"], body["why"])
            if not (found.name and 0 <= found.share <= 1):
                raise ValueError("a quota is a share of a budget")
            self.populations[body["population"]].quotas[found.name] = found
        elif row.kind in kinds.CHARGES:
            self.populations[body["population"]].take_charge(row.kind, body)
        elif row.kind == kinds.PEOPLE:
            self.populations[body["population"]].take_people(body)

    def _take_dataset(self, body: dict[str, Any]) -> None:
        name, dataset = body["population"], body["dataset"]
        if dataset in self._of_dataset or dataset in self._now_called:
            raise ValueError("a dataset belongs to one population")
        population = self.populations.get(name)
        if population is None:
            population = Population(name, body[UNIT], body[NEIGHBOURS])
            self.populations[name] = population
        if (population.privacy_unit, population.neighbours) != (body[UNIT], body[NEIGHBOURS]):
            raise ValueError("a population has one privacy unit")
        population.datasets.add(dataset)
        self._of_dataset[dataset] = name

    def _take_rename(self, body: dict[str, Any]) -> None:
        old, new = body["dataset"], body["to"]
        if new in self._of_dataset or new in self._now_called:
            raise ValueError("a name belongs to one dataset")
        population = self.populations[self._of_dataset.pop(old)]
        population.datasets.remove(old)
        population.datasets.add(new)
        self._of_dataset[new] = population.name
        self._first_names[new] = self._first_names.pop(old, old)
        self._now_called = {k: new if v == old else v for k, v in self._now_called.items()}
        self._now_called[old] = new

    def population_of(self, dataset: str) -> Population:
        """The population of a dataset (KeyError if there is none)."""
        return self.populations[self._of_dataset[dataset]]

    def first_name_of(self, dataset: str) -> str:
        """What a dataset was called when it was new; it stays the same whatever becomes of it."""
        return self._first_names.get(dataset, dataset)

    def renamed(self, dataset: str) -> str | None:
        """What a dataset is called now that was once called so; None if it never was."""
        return self._now_called.get(dataset)

    @property
    def former_names(self) -> frozenset[str]:
        """What datasets were once called: no other gets such a name."""
        return frozenset(self._now_called)

    @property
    def datasets(self) -> list[str]:
        return sorted(self._of_dataset)


def _epsilon(value: float) -> float:
    if not (math.isfinite(value) and value >= 0):
        raise ValueError("an epsilon must be finite and >= 0")
    return float(value)


def _check_fixed(before: Budget, now: Budget) -> None:
    fixed = ("orders", "chances", "period_days")
    if any(getattr(before, name) != getattr(now, name) for name in fixed):
        raise ValueError("orders, chances and periods cannot change once something is charged")


def _budget(row: Row, before: Budget | None) -> Budget:
    """Periods count from the first budget: a new one does not begin a new period."""
    body = row.body
    local, chances = body["local_epsilon"], float(body.get("chances", CHANCES))
    if not 0 <= chances < 1:
        raise ValueError("chances have a share of delta")
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
        chances=chances,
    )
