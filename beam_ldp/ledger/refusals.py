"""Looking things up in a ledger, and refusing what is not there or does not fit."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from beam_ldp.ledger.charges import Budget, Charge
from beam_ldp.ledger.errors import BudgetExceededError, LedgerError
from beam_ldp.ledger.losses import limit, loss_of
from beam_ldp.ledger.rows import canonical
from beam_ldp.ledger.state import LedgerState, Population
from beam_ldp.ledger.status import epsilon_of, fits_locally


def population_of(state: LedgerState, dataset: str) -> Population:
    """The people of a dataset, or a LedgerError that names the nearest one."""
    try:
        return state.population_of(dataset)
    except KeyError:
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


def charge_of(state: LedgerState, run_id: str) -> Charge:
    """The charge of a run, or a LedgerError."""
    if not state.has_run(run_id):
        raise LedgerError(f"the ledger holds no reservation of run {run_id!r}")
    return state.charge(run_id)


def check_fits(
    population: Population, budget: Budget, body: dict[str, Any], dataset: str, now: str
) -> None:
    """A BudgetExceededError unless a reservation fits beside all that is committed."""
    period = budget.period_of(now)
    committed = population.loss(period)
    before = epsilon_of(committed, budget)
    after = epsilon_of(committed + loss_of(body["event"], budget.orders), budget)
    if not after <= limit(budget.epsilon):
        raise BudgetExceededError(
            f"the budget of {dataset!r} is epsilon = {budget.epsilon:g} at delta = "
            f"{budget.delta:g}; {before:.4g} is spent or reserved, and this run would make it "
            f"{after:.4g}. Nothing was read. Ask for less, wait for open runs to settle, or "
            "raise the budget (`beam-ldp budget set`, which audits show)"
        )
    local = population.local_loss(period) + body["local_epsilon"]
    if not fits_locally(local, budget):
        raise BudgetExceededError(
            f"the budget of {dataset!r} allows local epsilons that sum to "
            f"{budget.local_epsilon:g} per {population.privacy_unit}; this run would make it "
            f"{local:.4g}. Nothing was read"
        )


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON."""
    return canonical(one) == canonical(other)


def again(charge: Charge, body: dict[str, Any]) -> Charge:
    """The charge of a run that starts again under its old name, or a LedgerError."""
    equal = (
        same(charge.reserved, body["event"])
        and charge.dataset == body["dataset"]
        and charge.local_epsilon == body["local_epsilon"]
    )
    if body["memoized"] and equal and charge.status == "reserved":
        return charge
    raise LedgerError(
        f"run {charge.run_id!r} has its charge already ({charge.status}): a repetition draws new "
        "noise and needs a name and a charge of its own"
    )
