"""Looking things up in a ledger, and refusing what is not there or does not fit."""

from __future__ import annotations

from collections.abc import Container
from difflib import get_close_matches
from typing import Any

from beam_ldp.ledger.books import Books, Population
from beam_ldp.ledger.charges import Budget
from beam_ldp.ledger.deciding import refusal
from beam_ldp.ledger.errors import BudgetExceededError, LedgerError
from beam_ldp.ledger.losses import Loss
from beam_ldp.ledger.rows import canonical


def population_of(state: Books, dataset: str) -> Population:
    """The people of a dataset, or a LedgerError that names the nearest one."""
    try:
        return state.population_of(dataset)
    except KeyError:
        now = state.renamed(dataset)
        if now is not None:
            raise LedgerError(f"dataset {dataset!r} was renamed: it is {now!r} now") from None
        near = get_close_matches(dataset, state.datasets, 1, 0.6)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise LedgerError(
            f"the ledger knows no dataset {dataset!r}{hint} (`beam-ldp budget set` makes one)"
        ) from None


def budget_of(population: Population, dataset: str) -> Budget:
    """The budget in force, or a LedgerError."""
    if population.budget is None:
        raise LedgerError(f"dataset {dataset!r} has no budget: `beam-ldp budget set` first")
    return population.budget


def check_fits(
    population: Population,
    dataset: str,
    period: int,
    loss: Loss,
    local: float,
    count: int = 1,
    quota: str = "",
) -> None:
    """A BudgetExceededError unless a charge fits beside all that is committed."""
    check_quota(population.name, population.quotas, quota)
    why = refusal(population, period, loss, local, count, quota)
    if why is not None:
        raise BudgetExceededError(
            f"the budget of {dataset!r} {why}. Nothing was read. Ask for less, wait for open runs "
            "to settle, or raise the budget (`beam-ldp budget set`, which audits show)"
        )


def check_quota(population: str, quotas: Container[str], quota: str) -> None:
    """A LedgerError unless a population has the quota; "" is what no quota keeps."""
    if quota and quota not in quotas:
        raise LedgerError(
            f"population {population!r} has no quota {quota[:40]!r} (`beam-ldp budget quota`)"
        )


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON."""
    return canonical(one) == canonical(other)
