"""Whether a charge fits: a function of totals alone, without a database.

A budget without quotas is one Rényi filter (see `losses`). A quota keeps a share of the budget for
somebody: that share of the divergence at the *first* order that fills the budget, of what delta has
for chances, and of the budget of local epsilons. Whoever has no quota shares the rest. Divergences
at one order add up, so shares that are each kept keep the whole, whatever the sequence of requests;
and since a request is held against its own share, nobody exhausts another's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting import CommittedDpEvent
from beam_ldp.accounting.divergences.moments import rdp_to_epsilon
from beam_ldp.ledger.accounts import Account, PeopleCount
from beam_ldp.ledger.books import Books, Population
from beam_ldp.ledger.charges import Budget, Charge, Quota
from beam_ldp.ledger.losses import CHANCES, Loss, as_json, limit, loss_of, shares, times
from beam_ldp.ledger.rows import BudgetExceededError, LedgerError, canonical
from beam_ldp.wording import number

_FIRST_GUESS = 1.0


@lru_cache(maxsize=256)
def capacity(budget: Budget) -> float:
    """The divergence at the budget's first order that just fills it; at most 0 if none does."""
    delta = shares(len(budget.orders), budget.chances)[0] * budget.delta
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
    before, after = epsilon_of(committed, budget), epsilon_of(committed + more, budget)
    if not after <= limit(budget.epsilon):
        return (
            f"is epsilon = {budget.epsilon:g} at delta = {budget.delta:g}; {number(before)} is "
            f"spent or reserved, and this run would make it {number(after)}"
        )
    total = population.local_loss(period) + count * local
    if budget.local_epsilon is not None and math.isinf(local):
        return (
            f"allows local epsilons that sum to {budget.local_epsilon:g} per {unit}; this run has "
            "none (it is infinite): nothing but a trusted shuffler, or server, protects people in "
            "it"
        )
    if budget.local_epsilon is not None and not total <= limit(budget.local_epsilon):
        return (
            f"allows local epsilons that sum to {budget.local_epsilon:g} per {unit}; this run "
            f"would make it {number(total)}"
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
            f"make it {number(account.local + local)}"
        )
    return None


def fits_share(budget: Budget, share: float, loss: Loss) -> bool:
    """Whether a share of the budget allows this loss."""
    return loss.divergences[0] <= limit(share * capacity(budget)) and loss.failure <= limit(
        share * budget.chances * budget.delta
    )


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


# Looking things up in a ledger, and refusing what is not there or does not fit ------------


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
            f"the ledger knows no dataset {dataset!r}{hint} (`beam-ldp budget set` creates one)"
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


# Where a population stands against its budget, and whether something more fits ------------


@dataclass(frozen=True)
class BudgetStatus:
    """Where a population stands in the current period.

    Attributes:
        population, datasets, privacy_unit: who is protected.
        budget: what is granted.
        quotas: shares of it that are kept for somebody.
        period: number of the period, from 0.
        spent: epsilon at the budget's delta of what was settled.
        committed: the same with open reservations at their worst case.
        order: the Rényi order that gives `committed`; infinite: epsilons added up.
        local_spent, local_committed: sums of local epsilons per person; infinite where a trusted
            server was sent what people have.
        local_maximum: the most that any one person was charged locally, reservations included, as
            far as people were counted; at most `local_committed`.
        people: what each person was charged locally; None if people were not counted.
        num_charges, num_open: reservations of the period, and those that are open.
        loss: what `committed` is read from.
        held: what is spent or reserved of each quota, and of what no quota keeps (""): its
            loss, and the sum of local epsilons.
    """

    population: str
    datasets: tuple[str, ...]
    privacy_unit: str
    budget: Budget
    quotas: tuple[Quota, ...]
    period: int
    spent: float
    committed: float
    order: float
    local_spent: float
    local_committed: float
    local_maximum: float
    people: PeopleCount | None
    num_charges: int
    num_open: int
    loss: Loss
    held: Mapping[str, tuple[Loss, float]]
    _read: Callable[[], tuple[Charge, ...]] = field(repr=False, compare=False)

    def __repr__(self) -> str:
        return (
            f"<BudgetStatus of {self.population!r}: epsilon {number(self.committed)} of "
            f"{self.budget.epsilon:g} at delta = {self.budget.delta:g}, local "
            f"{number(self.local_committed)}, {self.num_charges:,} charges, {self.num_open:,} open>"
        )

    @cached_property
    def charges(self) -> tuple[Charge, ...]:
        """All of the period, in the order of their reservations; read when first asked for."""
        return self._read()

    @property
    def uncounted(self) -> tuple[Charge, ...]:
        """Charges that are not in the count of people, and so count for everybody."""
        known = frozenset() if self.people is None else self.people.numbers
        return tuple(c for c in self.charges if c.local_total and c.number not in known)

    @property
    def reserved(self) -> float:
        """What open reservations add to what was spent."""
        return max(0.0, self.committed - self.spent)

    @property
    def left(self) -> float:
        """Epsilon between what is committed and the budget. Charges do not simply add up."""
        return max(0.0, self.budget.epsilon - self.committed)

    def epsilon_with(self, event: Any, count: int = 1) -> float:
        """Epsilon if this event were charged `count` times on top of what is committed."""
        more = loss_of(as_json(event), self.budget.orders)
        return epsilon_of(self.loss + times(more, count), self.budget)

    def committing(self, event: Any, quota: str = "") -> Any:
        """The event as a committed schedule, with all that a quota has left of delta for chances.

        Only of a budget that gives chances more than the usual share; else, or where nothing is
        left of it, the event as it is.
        """
        budget, quotas = self.budget, {each.name: each for each in self.quotas}
        check_quota(self.population, quotas, quota)
        whole = share_of(quotas, quota) * budget.chances * budget.delta
        left = whole - self.held[quota][0].failure
        if budget.chances <= CHANCES or not left > 0:
            return event
        return CommittedDpEvent(event, left)

    def times_left(
        self, event: Any, local_epsilon: float, most: int = 1_000_000, quota: str = ""
    ) -> int:
        """How many more charges of this kind fit, at most `most`: what `reserve` would let pass.

        Args:
            event: of one charge.
            local_epsilon: what each person loses by it.
            most: where to stop looking.
            quota: whose share it would be charged to; "" for what no quota keeps.

        Raises:
            LedgerError: if there is no such quota.
        """
        quotas = {each.name: each for each in self.quotas}
        check_quota(self.population, quotas, quota)
        share, more = share_of(quotas, quota), loss_of(as_json(event), self.budget.orders)
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits(times(more, middle), middle * local_epsilon, quota, share):
                low = middle
            else:
                high = middle - 1
        return low

    def _fits(self, more: Loss, local: float, quota: str, share: float) -> bool:
        """As `deciding.refusal` decides."""
        budget, (held, held_locally) = self.budget, self.held[quota]
        return (
            epsilon_of(self.loss + more, budget) <= limit(budget.epsilon)
            and fits_locally(self.local_committed + local, budget)
            and (
                not self.quotas
                or fits_share(budget, share, held + more)
                and fits_share_locally(budget, share, held_locally + local)
            )
        )


def status_of(
    population: Population, budget: Budget, now: str, read: Callable[[int], tuple[Charge, ...]]
) -> BudgetStatus:
    """The status at a time; `read` gives the charges of a period."""
    period = budget.period_of(now)
    loss, account = population.loss(period), population.account(period)
    committed, order = reading_of(loss, budget)
    by_quota = {name: population.account(period, name) for name in ("", *population.quotas)}
    return BudgetStatus(
        population=population.name,
        datasets=tuple(sorted(population.datasets)),
        privacy_unit=population.privacy_unit,
        budget=budget,
        quotas=tuple(population.quotas.values()),
        period=period,
        spent=epsilon_of(population.loss(period, reserved=False), budget),
        committed=committed,
        order=order,
        local_spent=population.local_loss(period, reserved=False),
        local_committed=population.local_loss(period),
        local_maximum=population.local_maximum(period),
        people=population.people.get(period),
        num_charges=account.charges,
        num_open=account.open,
        loss=loss,
        held={name: (each.loss, each.local) for name, each in by_quota.items()},
        _read=lambda: read(period),
    )


def epsilon_of(loss: Loss, budget: Budget) -> float:
    """Epsilon at the delta of the budget, by its filter."""
    return reading_of(loss, budget)[0]


def reading_of(loss: Loss, budget: Budget) -> tuple[float, float]:
    """The same, and the order that gives it."""
    return loss.epsilon(budget.orders, budget.delta, chances=budget.chances)


def fits_locally(local: float, budget: Budget) -> bool:
    """Whether the budget allows this sum of local epsilons."""
    return budget.local_epsilon is None or local <= limit(budget.local_epsilon)
