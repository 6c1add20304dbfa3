"""Where a population stands against its budget, and whether something more fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from beam_ldp.ledger.charges import Budget, Charge
from beam_ldp.ledger.losses import Loss, as_json, limit, loss_of, times
from beam_ldp.ledger.people_count import PeopleCount
from beam_ldp.ledger.state import Population


@dataclass(frozen=True)
class BudgetStatus:
    """Where a population stands in the current period.

    Attributes:
        population, datasets, privacy_unit: who is protected.
        budget: what is granted.
        period: number of the period, from 0.
        spent: epsilon at the budget's delta of what was settled.
        committed: the same with open reservations at their worst case.
        order: the Rényi order that gives `committed`; infinite: epsilons added up.
        local_spent, local_committed: sums of local epsilons per person.
        local_maximum: the most that any one person was charged locally, reservations included, as
            far as people were counted; at most `local_committed`.
        people: what each person was charged locally; None if people were not counted.
        uncounted: charges that are not in that count, and so count for everybody.
        charges: all of the period, in the order of their reservations.
        loss: what `committed` is read from.
    """

    population: str
    datasets: tuple[str, ...]
    privacy_unit: str
    budget: Budget
    period: int
    spent: float
    committed: float
    order: float
    local_spent: float
    local_committed: float
    local_maximum: float
    people: PeopleCount | None
    uncounted: tuple[Charge, ...]
    charges: tuple[Charge, ...]
    loss: Loss

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

    def times_left(self, event: Any, local_epsilon: float, most: int = 1_000_000) -> int:
        """How many more charges of this kind fit, at most `most`."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            local = self.local_committed + middle * local_epsilon
            fits = self.epsilon_with(event, middle) <= limit(self.budget.epsilon)
            if fits and fits_locally(local, self.budget):
                low = middle
            else:
                high = middle - 1
        return low


def status_of(population: Population, budget: Budget, now: str) -> BudgetStatus:
    """The status at a time."""
    period = budget.period_of(now)
    loss = population.loss(period)
    committed, order = loss.epsilon(budget.orders, budget.delta)
    charges = tuple(population.charges_of(period))
    people = population.people.get(period)
    known = frozenset() if people is None else people.numbers
    return BudgetStatus(
        population=population.name,
        datasets=tuple(sorted(population.datasets)),
        privacy_unit=population.privacy_unit,
        budget=budget,
        period=period,
        spent=epsilon_of(population.loss(period, reserved=False), budget),
        committed=committed,
        order=order,
        local_spent=population.local_loss(period, reserved=False),
        local_committed=population.local_loss(period),
        local_maximum=population.local_maximum(period),
        people=people,
        uncounted=tuple(c for c in charges if c.local_epsilon and c.number not in known),
        charges=charges,
        loss=loss,
    )


def epsilon_of(loss: Loss, budget: Budget) -> float:
    """Epsilon at the delta of the budget, by its filter."""
    return loss.epsilon(budget.orders, budget.delta)[0]


def fits_locally(local: float, budget: Budget) -> bool:
    """Whether the budget allows this sum of local epsilons."""
    return budget.local_epsilon is None or local <= limit(budget.local_epsilon)
