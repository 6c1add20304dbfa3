"""Granting a budget: which rows it takes, and what it may not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beam_ldp.ledger.books import NEIGHBOURS, UNIT, Books, Population
from beam_ldp.ledger.checks import check_name
from beam_ldp.ledger.errors import LedgerError
from beam_ldp.ledger.losses import orders_for
from beam_ldp.ledger.rows import BUDGET, DATASET

Append = Callable[[str, dict[str, Any]], None]


def grant(
    state: Books,
    append: Append,
    dataset: str,
    privacy_unit: str,
    neighbours: str,
    population: str | None,
    terms: dict[str, Any],
) -> None:
    """Append what a new budget takes: the dataset if it is new, and the budget.

    Args:
        state: as of now.
        append: adds a row.
        dataset, privacy_unit, neighbours, population: as for `BudgetLedger.set_budget`.
        terms: of the budget, as its row holds them; `orders` None for the usual ones.

    Raises:
        LedgerError: if they contradict what the ledger holds.
    """
    known = dataset in state.datasets
    name = population
    if name is None:
        name = state.population_of(dataset).name if known else dataset
    check_name("population", name)
    found = state.populations.get(name)
    if population is None and not known and found is not None:
        raise LedgerError(
            f"there is a population {name!r} with other datasets: name it as population "
            f"if {dataset!r} is about its people, or another one"
        )
    if known and state.population_of(dataset).name != name:
        raise LedgerError(
            f"dataset {dataset!r} belongs to population "
            f"{state.population_of(dataset).name!r}; its people cannot change"
        )
    if found is not None and found.privacy_unit != privacy_unit:
        raise LedgerError(
            f"population {name!r} has the privacy unit {found.privacy_unit!r}, not {privacy_unit!r}"
        )
    if dataset in state.former_names:
        raise LedgerError(f"{dataset!r} is what {state.renamed(dataset)!r} was called: it is taken")
    orders = _orders(found, terms)
    _check_periods(found, terms)
    if not known:
        append(
            DATASET,
            {"dataset": dataset, "population": name, UNIT: privacy_unit, NEIGHBOURS: neighbours},
        )
    append(BUDGET, {**terms, "population": name, "orders": orders})


def _orders(found: Population | None, terms: dict[str, Any]) -> list[float]:
    """Rényi orders of the new budget; once something is charged they stay as they are."""
    wanted: list[float] | None = terms["orders"]
    if found is not None and found.budget is not None and found.charged:
        fixed = list(found.budget.orders)
        if wanted is not None and wanted != fixed:
            raise LedgerError(
                "orders were fixed with the first budget and something was charged since: "
                "chosen later they would prove nothing"
            )
        return fixed
    return wanted or list(orders_for(terms["epsilon"], terms["delta"]))


def _check_periods(found: Population | None, terms: dict[str, Any]) -> None:
    """Periods stay once something is charged: charges count where they were reserved."""
    if found is None or found.budget is None or not found.charged:
        return
    before = found.budget.period_days
    if terms["period_days"] != before:
        said = "none" if before is None else f"of {before} days"
        raise LedgerError(
            f"the periods of population {found.name!r} ({said}) were fixed with the first charge: "
            "other ones would grant what is spent anew"
        )
