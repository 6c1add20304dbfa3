"""Whether a charge fits: a function of totals alone, without a database.

A budget without quotas is one Rényi filter (see `losses`). A quota keeps a share of the budget for
somebody: that share of the divergence at the *first* order that fills the budget, and of the budget
of local epsilons. Whoever has no quota shares the rest. Divergences at one order add up, so shares
that are each kept keep the whole, whatever the sequence of requests; and since a request is held
against its own share, nobody exhausts another's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.conversions import rdp_to_epsilon
from beam_ldp.ledger.accounts import Account
from beam_ldp.ledger.books import Population
from beam_ldp.ledger.charges import Budget, Quota
from beam_ldp.ledger.losses import Loss, limit, shares, times

_FIRST_GUESS = 1.0


@lru_cache(maxsize=256)
def capacity(budget: Budget) -> float:
    """The divergence at the budget's first order that just fills it; at most 0 if none does."""
    delta = shares(len(budget.orders))[0] * budget.delta
    order = budget.orders[:1]
    # Epsilon is the divergence plus a constant, but never below 0.
    high = budget.epsilon + _FIRST_GUESS
    while rdp_to_epsilon(np.array(order), np.array([high]), delta)[0] <= budget.epsilon:
        high *= 2
    return budget.epsilon - rdp_to_epsilon(np.array(order), np.array([high]), delta)[0] + high


def share_of(quotas: Mapping[str, Quota], quota: str) -> float:
    """The share of a quota; of "", what none of them keeps."""
    if quota:
        return quotas[quota].share
    return max(0.0, 1.0 - math.fsum(q.share for q in quotas.values()))


def refusal(
    population: Population, period: int, loss: Loss, local: float, count: int = 1, quota: str = ""
) -> str | None:
    """Why a charge does not fit beside all that is spent and reserved; None if it does.

    Args:
        population: where it stands.
        period: in which it would count.
        loss, local: of one part, at its worst.
        count: parts that are asked for at once.
        quota: whose share it is to be charged to; "" for the rest.
    """
    budget = population.budget
    assert budget is not None
    unit, more = population.privacy_unit, times(loss, count)
    committed = population.loss(period)
    before = committed.epsilon(budget.orders, budget.delta)[0]
    after = (committed + more).epsilon(budget.orders, budget.delta)[0]
    if not after <= limit(budget.epsilon):
        return (
            f"is epsilon = {budget.epsilon:g} at delta = {budget.delta:g}; {before:.4g} is spent "
            f"or reserved, and this run would make it {after:.4g}"
        )
    total = population.local_loss(period) + count * local
    if budget.local_epsilon is not None and not total <= limit(budget.local_epsilon):
        return (
            f"allows local epsilons that sum to {budget.local_epsilon:g} per {unit}; this run "
            f"would make it {total:.4g}"
        )
    if population.quotas:
        return _share_refusal(population, population.account(period, quota), more, local * count,
                              quota)  # fmt: skip
    return None


def _share_refusal(
    population: Population, account: Account, more: Loss, local: float, quota: str
) -> str | None:
    budget = population.budget
    assert budget is not None
    share = share_of(population.quotas, quota)
    name = f"keeps a share of {share:g} for " + (repr(quota) if quota else "all without a quota")
    if not fits_share(budget, share, account.loss + more):
        return f"{name}, and this run does not fit into what is left of that"
    if not fits_share_locally(budget, share, account.local + local):
        assert budget.local_epsilon is not None
        return (
            f"{name}: local epsilons that sum to {share * budget.local_epsilon:g}; this run would "
            f"make it {account.local + local:.4g}"
        )
    return None


def fits_share(budget: Budget, share: float, loss: Loss) -> bool:
    """Whether a share of the budget allows this loss."""
    return loss.divergences[0] <= limit(share * capacity(budget))


def fits_share_locally(budget: Budget, share: float, local: float) -> bool:
    """Whether a share of the budget allows this sum of local epsilons."""
    return budget.local_epsilon is None or local <= limit(share * budget.local_epsilon)


def quota_refusal(population: Population, period: int, quota: Quota) -> str | None:
    """Why a quota cannot be set; None if it can."""
    budget = population.budget
    assert budget is not None
    quotas = {**population.quotas, quota.name: quota}
    if math.fsum(q.share for q in quotas.values()) > limit(1.0):
        return "all shares together would be more than the budget"
    if capacity(budget) <= 0:
        return "the budget's first order alone never fits it: there is nothing to share"
    for name in ("", *quotas):
        account, share = population.account(period, name), share_of(quotas, name)
        whose = repr(name) if name else "runs without a quota"
        if not (
            fits_share(budget, share, account.loss)
            and fits_share_locally(budget, share, account.local)
        ):
            return f"{whose} would have spent more than the share that is left for that"
    return None
