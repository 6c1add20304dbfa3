"""What all runs about the same people have spent together: the figures that MLflow shows of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from beam_ldp.ledger import BudgetLedger, Row
from beam_ldp.ledger.losses import Loss, loss_of, no_loss
from beam_ldp.ledger.state import LedgerState, Population
from beam_ldp.ledger.status import epsilon_of
from mlflow_ldp.runs import NAMESPACE

DATASET = f"{NAMESPACE}.dataset"


def spending(population: Population, period: int) -> dict[str, float]:
    """Where a budget stands in a period, as metrics.

    `epsilon_spent` and `local_spent` are what was released, `_reserved` what open runs may still
    release, `_budget` what is granted, `_left` what stands below the budget beside both, in the
    period `period`. Epsilons of runs do not simply add up, local ones do. Without a local budget
    there is no `local_budget`.
    """
    granted = population.budget
    assert granted is not None
    spent = epsilon_of(population.loss(period, reserved=False), granted)
    committed = epsilon_of(population.loss(period), granted)
    local, local_committed = (population.local_loss(period, reserved=r) for r in (False, True))
    found = {
        "epsilon_spent": spent,
        "epsilon_reserved": max(0.0, committed - spent),
        "epsilon_budget": granted.epsilon,
        "epsilon_left": max(0.0, granted.epsilon - committed),
        "delta": granted.delta,
        "period": float(period),
        "local_spent": local,
        "local_reserved": max(0.0, local_committed - local),
    }
    if granted.local_epsilon is not None:
        found["local_budget"] = granted.local_epsilon
        found["local_left"] = max(0.0, granted.local_epsilon - local_committed)
    return {f"{DATASET}.{name}": value for name, value in found.items()}


def dataset_metrics(ledger: BudgetLedger, dataset: str) -> dict[str, float]:
    """Where the budget of a dataset's people stands now, this run included."""
    period = ledger.status(dataset).period
    return spending(ledger.state.population_of(dataset), period)


@dataclass(frozen=True)
class Point:
    """Where a budget stood after a row of the ledger.

    Attributes:
        step: number of rows up to it.
        time: of the row, ISO 8601.
        values: metrics by their full names.
    """

    step: int
    time: str
    values: Mapping[str, float]


def point_now(ledger: BudgetLedger, dataset: str) -> Point:
    """Where the budget of a dataset's people stands at the ledger's last row."""
    values = dataset_metrics(ledger, dataset)
    state = ledger.state
    return Point(state.head.count, state.time, values)


def history(rows: Iterable[Row], population: str) -> Iterator[Point]:
    """Where a population's budget stood after each row that is about it.

    Raises:
        LedgerCorruptedError: at a row that does not follow from those before it.
    """
    state = LedgerState()
    for row in rows:
        state.apply([row])
        if _population_of(state, row) == population:
            found = state.populations[population]
            if found.budget is not None:
                period = found.budget.period_of(state.time)
                yield Point(state.head.count, state.time, spending(found, period))


def _population_of(state: LedgerState, row: Row) -> str | None:
    """Whom a row is about."""
    if "run_id" in row.body and state.has_run(row.body["run_id"]):
        return state.charge(row.body["run_id"]).population
    return row.body.get("population")


def settled_loss(population: Population) -> Loss:
    """What was released about a population together, over all periods."""
    assert population.budget is not None
    orders = population.budget.orders
    total = no_loss(orders)
    for charge in population.charges.values():
        if charge.settled is not None:
            total += loss_of(charge.settled, orders)
    return total
