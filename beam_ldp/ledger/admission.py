"""Whether a charge fits: a function of totals alone, without a database.

A budget without quotas is one Rényi filter (see `losses`). A quota keeps a share of the budget for
a team or analyst: that share of the divergence at the *first* order that fills the budget, of what
delta has for chances, and of the budget of local epsilons. Whoever has no quota shares the rest.
Divergences at one order add up, so shares that are each kept keep the whole, whatever the sequence
of requests; and since a request is held against its own share, nobody exhausts another's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting import CommittedDpEvent
from beam_ldp.accounting.divergences.moments import rdp_to_epsilon
from beam_ldp.ledger.accounts import PeopleCount
from beam_ldp.ledger.balances import Balances, Population
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


def fits_share(budget: Budget, share: float, loss: Loss) -> bool:
    """Whether a share of the budget allows this loss."""
    return loss.divergences[0] <= limit(share * capacity(budget)) and loss.failure <= limit(
        share * budget.chances * budget.delta
    )


def fits_locally(budget: Budget, local: float, share: float = 1.0) -> bool:
    """Whether the budget, or a share of it, allows this sum of local epsilons."""
    return budget.local_epsilon is None or local <= limit(share * budget.local_epsilon)


def quota_refusal(population: Population, period: int, quota: Quota) -> str | None:
    """Why a quota cannot be set; None if it can."""
    budget, quotas = population.granted, {**population.quotas, quota.name: quota}
    if math.fsum(q.share for q in quotas.values()) > limit(1.0):
        return "all shares together would be more than the budget"
    if capacity(budget) <= 0:
        return "the budget's first order alone never fits it: there is nothing to share"
    for name in ("", *quotas):
        account, share = population.account(period, name), share_of(quotas, name)
        whose = repr(name) if name else "runs without a quota"
        fits = fits_share(budget, share, account.loss)
        if not (fits and fits_locally(budget, account.local, share)):
            return f"{whose} would have spent more than the share that is left for that"
    return None


# Looking things up in a ledger, and refusing what is not there or does not fit ------------


def population_of(state: Balances, dataset: str) -> Population:
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
        quotas: shares of it that are kept for a team or analyst.
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
        self._check_quota(quota)
        budget = self.budget
        whole = share_of(self._quotas, quota) * budget.chances * budget.delta
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
        self._check_quota(quota)
        more = loss_of(as_json(event), self.budget.orders)
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.refusal(times(more, middle), middle * local_epsilon, quota) is None:
                low = middle
            else:
                high = middle - 1
        return low

    def check_fits(self, dataset: str, loss: Loss, local: float, quota: str = "") -> None:
        """A BudgetExceededError unless a charge fits beside all that is committed.

        Args:
            dataset: for the message.
            loss, local, quota: as of `refusal`.

        Raises:
            LedgerError: if there is no such quota.
        """
        self._check_quota(quota)
        why = self.refusal(loss, local, quota)
        if why is not None:
            raise BudgetExceededError(
                f"the budget of {dataset!r} {why}. Nothing was read. Ask for less (`beam-ldp "
                "check` with a smaller --epsilon says whether that fits, and reserves nothing), "
                "wait for open runs to settle, or raise the budget (`beam-ldp budget set`, which "
                "audits show)"
            )

    def refusal(self, loss: Loss, local: float, quota: str = "") -> str | None:
        """Why a charge does not fit beside all that is spent and reserved; None if it does.

        Args:
            loss, local: of all that is asked for at once, at its worst.
            quota: whose share it is to be charged to; "" for the rest.
        """
        budget = self.budget
        after = epsilon_of(self.loss + loss, budget)
        if not after <= limit(budget.epsilon):
            return (
                f"is epsilon = {budget.epsilon:g} at delta = {budget.delta:g}; "
                f"{number(self.committed)} is spent or reserved, and this run would make it "
                f"{number(after)}. This sum holds whatever is asked later, so one large run counts "
                "for more in it than the price that it is planned at"
            )
        total = self.local_committed + local
        if not fits_locally(budget, total):
            said = (
                f"allows local epsilons that sum to {budget.local_epsilon:g} per "
                f"{self.privacy_unit}; this run "
            )
            if math.isfinite(local):
                return f"{said}would make it {number(total)}"
            return (
                f"{said}has none (it is infinite): nothing but a trusted shuffler, or server, "
                "protects people in it"
            )
        return self._share_refusal(loss, local, quota) if self.quotas else None

    def _share_refusal(self, loss: Loss, local: float, quota: str) -> str | None:
        share, (held, held_locally) = share_of(self._quotas, quota), self.held[quota]
        whose = repr(quota) if quota else "all without a quota"
        name = f"keeps a share of {share:g} for {whose}"
        if not fits_share(self.budget, share, held + loss):
            return f"{name}, and this run does not fit into what is left of that"
        if not fits_locally(self.budget, held_locally + local, share):
            whole = self.budget.local_epsilon or 0.0
            return (
                f"{name}: local epsilons that sum to {share * whole:g}; this run would make it "
                f"{number(held_locally + local)}"
            )
        return None

    @property
    def _quotas(self) -> dict[str, Quota]:
        return {each.name: each for each in self.quotas}

    def _check_quota(self, quota: str) -> None:
        """A LedgerError unless there is the quota; "" is what no quota keeps."""
        if quota and quota not in self._quotas:
            raise LedgerError(
                f"population {self.population!r} has no quota {quota[:40]!r} "
                "(`beam-ldp budget quota`)"
            )


def status_of(
    population: Population, period: int, read: Callable[[], tuple[Charge, ...]] = tuple
) -> BudgetStatus:
    """Where a population stands in a period; `read` gives its charges."""
    budget = population.granted
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
        _read=read,
    )


def epsilon_of(loss: Loss, budget: Budget) -> float:
    """Epsilon at the delta of the budget, by its filter."""
    return reading_of(loss, budget)[0]


def reading_of(loss: Loss, budget: Budget) -> tuple[float, float]:
    """The same, and the order that gives it."""
    return loss.epsilon(budget.orders, budget.delta, chances=budget.chances)
