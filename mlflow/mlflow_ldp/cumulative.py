"""What all runs about the same people have spent together: the figures that MLflow shows of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from beam_ldp.ledger import Budget, BudgetLedger, Population, Row
from beam_ldp.ledger.deciding import epsilon_of
from beam_ldp.ledger.state import LedgerState
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
    return _figures(
        granted,
        period,
        epsilon_of(population.loss(period, reserved=False), granted),
        epsilon_of(population.loss(period), granted),
        population.local_loss(period, reserved=False),
        population.local_loss(period),
    )


def dataset_metrics(ledger: BudgetLedger, dataset: str) -> dict[str, float]:
    """Where the budget of a dataset's people stands now, this run included."""
    status = ledger.status(dataset)
    return _figures(
        status.budget,
        status.period,
        status.spent,
        status.committed,
        status.local_spent,
        status.local_committed,
    )


def _figures(
    granted: Budget, period: int, spent: float, committed: float, local: float, most: float
) -> dict[str, float]:
    found = {
        "epsilon_spent": spent,
        "epsilon_reserved": max(0.0, committed - spent),
        "epsilon_budget": granted.epsilon,
        "epsilon_left": max(0.0, granted.epsilon - committed),
        "delta": granted.delta,
        "period": float(period),
        "local_spent": local,
        "local_reserved": max(0.0, most - local) if most != local else 0.0,
    }
    if granted.local_epsilon is not None:
        found["local_budget"] = granted.local_epsilon
        found["local_left"] = max(0.0, granted.local_epsilon - most)
    return {f"{DATASET}.{name}": value for name, value in found.items()}


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
    values, books = dataset_metrics(ledger, dataset), ledger.books
    return Point(books.head.count, books.time, values)


def history(rows: Iterable[Row], population: str) -> Iterator[Point]:
    """Where a population's budget stood after each row that is about it.

    Raises:
        LedgerCorruptedError: at a row that does not follow from those before it.
    """
    state = LedgerState()
    for row in rows:
        state.apply([row])
        if row.body.get("population") == population:
            found = state.populations[population]
            if found.budget is not None:
                period = found.budget.period_of(state.time)
                yield Point(state.head.count, state.time, spending(found, period))
