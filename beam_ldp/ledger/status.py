"""Where a population stands against its budget, and whether something more fits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from beam_ldp.ledger.books import Population
from beam_ldp.ledger.charges import Budget, Charge, Quota
from beam_ldp.ledger.deciding import fits_share, fits_share_locally, share_of
from beam_ldp.ledger.losses import Loss, as_json, limit, loss_of, times
from beam_ldp.ledger.people_count import PeopleCount
from beam_ldp.ledger.refusals import check_quota


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
            f"<BudgetStatus of {self.population!r}: epsilon {self.committed:.4g} of "
            f"{self.budget.epsilon:g} at delta = {self.budget.delta:g}, local "
            f"{self.local_committed:.4g}, {self.num_charges:,} charges, {self.num_open:,} open>"
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
    committed, order = loss.epsilon(budget.orders, budget.delta)
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
    return loss.epsilon(budget.orders, budget.delta)[0]


def fits_locally(local: float, budget: Budget) -> bool:
    """Whether the budget allows this sum of local epsilons."""
    return budget.local_epsilon is None or local <= limit(budget.local_epsilon)
