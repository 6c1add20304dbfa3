"""The ledger's life again, row by row: where each population stood, and where that was too much."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from beam_ldp.ledger.accounts import Account
from beam_ldp.ledger.books import Population
from beam_ldp.ledger.charges import Budget
from beam_ldp.ledger.deciding import capacity, share_of
from beam_ldp.ledger.losses import Loss, chances, limit, shares
from beam_ldp.ledger.rows import BUDGET, CHARGES, RESERVE, TIME, LedgerCorruptedError, Row
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.status import fits_locally
from beam_ldp.ledger.succession import Succession

MOST_POINTS = 2000  # of a curve, about


@dataclass(frozen=True)
class CumulativePoint:
    """Where a population stood after a row.

    Attributes:
        number, time: of the row.
        period: of the budget.
        committed: epsilon at the delta of the budget then in force, reservations included.
        local: sum of local epsilons per person, reservations included.
        budget, local_budget: then in force; the latter None where there is no limit.
    """

    number: int
    time: str
    period: int
    committed: float
    local: float
    budget: float
    local_budget: float | None


@dataclass(frozen=True)
class _Stand:
    """Totals after a row, not yet read as epsilon."""

    row: Row
    period: int
    loss: Loss
    local: float
    budget: Budget
    decides: bool


@dataclass
class Replay:
    """What became of the ledger, and what went wrong on the way.

    Attributes:
        state: up to the first row that does not follow.
        broken: why that row does not.
        exceeded: reservations that took a budget too far.
        quotas: likewise of shares of a budget.
        raised: rows that changed a budget for the looser after something was charged, in words.
        clocks: rows in which somebody said that a clock was right, in words.
        curves: per population, where it stood; long ones are thinned.
    """

    state: LedgerState = field(default_factory=LedgerState)
    broken: list[str] = field(default_factory=list)
    exceeded: list[str] = field(default_factory=list)
    quotas: list[str] = field(default_factory=list)
    raised: list[tuple[Row, str]] = field(default_factory=list)
    clocks: list[str] = field(default_factory=list)
    curves: dict[str, list[CumulativePoint]] = field(default_factory=dict)
    _stands: dict[str, list[_Stand]] = field(default_factory=dict)
    _succession: Succession | None = None

    def run(self, rows: Sequence[Row]) -> None:
        """Apply all rows, as far as they follow from each other."""
        for row in rows:
            try:
                self.state.apply([row])
                if row.number == 0:
                    self._succession = Succession.of(row)
                self._look(row)
            except LedgerCorruptedError as error:
                self.broken.append(str(error))
                break
            except Exception as error:  # a forged row may hold anything
                self.broken.append(f"row {row.number} has no meaning ({type(error).__name__})")
                break
        for name, stands in self._stands.items():
            self._read(name, stands)

    def _look(self, row: Row) -> None:
        body = row.body
        if row.kind == BUDGET:
            population = self.state.populations[body["population"]]
            budget = population.budgets[-1]
            if population.charged:
                self._stand(population, row, budget.period_of(body["time"]))
            self._budget_changed(population, row)
        elif row.kind in CHARGES:
            population = self.state.populations[body["population"]]
            self._stand(population, row, body["period"])
            if row.kind == RESERVE and population.quotas:
                self._look_at_quotas(population, row)
        elif row.kind == TIME:
            self.clocks.append(
                f"row {row.number}: {body['by']} said that the clock is right, from "
                f"{body['before']} to {body['time']}; reason given: {body['why'] or 'none'}"
            )

    def _stand(self, population: Population, row: Row, period: int) -> None:
        budget = population.budget
        assert budget is not None
        # A settlement that released too much is told apart, and so is a succession: see `auditing`.
        uncertain = self._succession is not None and self._succession.charged(row.number)
        found = _Stand(
            row,
            period,
            population.loss(period),
            population.local_loss(period),
            budget,
            row.kind == RESERVE and not uncertain,
        )
        self._stands.setdefault(population.name, []).append(found)

    def _look_at_quotas(self, population: Population, row: Row) -> None:
        budget, quota = population.budget, row.body["quota"]
        assert budget is not None
        account: Account = population.account(row.body["period"], quota)
        share = share_of(population.quotas, quota)
        too_much = account.loss.divergences[0] > limit(share * capacity(budget))
        if budget.local_epsilon is not None:
            too_much |= account.local > limit(share * budget.local_epsilon)
        if too_much:
            whose = f"quota {quota!r}" if quota else "what no quota keeps"
            self.quotas.append(
                f"row {row.number}: {whose} of {population.name!r} was charged beyond its share "
                f"of {share:g}"
            )

    def _read(self, name: str, stands: list[_Stand]) -> None:
        """Epsilon after each row, of all rows at once, and whether it was too much."""
        epsilons = np.empty(len(stands))
        for budget in {stand.budget for stand in stands}:
            chosen = [i for i, stand in enumerate(stands) if stand.budget == budget]
            epsilons[chosen] = epsilons_of([stands[i].loss for i in chosen], budget)
        every = max(1, len(stands) // MOST_POINTS)
        points = self.curves.setdefault(name, [])
        for i, (stand, epsilon) in enumerate(zip(stands, epsilons.tolist())):
            if stand.decides:
                self._judge(name, stand, epsilon)
            if i % every == 0 or i == len(stands) - 1 or stand.row.kind == BUDGET:
                points.append(_point(stand, epsilon))

    def _judge(self, name: str, stand: _Stand, epsilon: float) -> None:
        budget, row = stand.budget, stand.row
        if epsilon > limit(budget.epsilon):
            self.exceeded.append(
                f"row {row.number}: {name!r} stood at epsilon = {epsilon:.4g} of {budget.epsilon:g}"
            )
        if not fits_locally(stand.local, budget):
            self.exceeded.append(
                f"row {row.number}: {name!r} stood at local epsilons of {stand.local:.4g} of "
                f"{budget.local_epsilon:g}"
            )

    def _budget_changed(self, population: Population, row: Row) -> None:
        if len(population.budgets) < 2:
            return
        before, now = population.budgets[-2:]
        looser = now.epsilon > before.epsilon or now.delta > before.delta
        if before.local_epsilon is not None:
            looser |= now.local_epsilon is None or now.local_epsilon > before.local_epsilon
        # Charges fall into other periods, or are read at orders that were chosen afterwards.
        looser |= now.period_days not in (before.period_days, None) or now.orders != before.orders
        if looser and population.charged:
            self.raised.append(
                (
                    row,
                    f"row {row.number}: {now.by or 'somebody'} changed the budget of "
                    f"{population.name!r} from epsilon = {before.epsilon:g} at delta = "
                    f"{before.delta:g} to {now.epsilon:g} at {now.delta:g}"
                    f"{_otherwise(before, now)} after {population.charged} charges; "
                    f"reason given: {now.why or 'none'}",
                )
            )


def epsilons_of(losses: Sequence[Loss], budget: Budget) -> np.ndarray:
    """Epsilon of each loss at the delta of the budget: what `Loss.epsilon` says, of many at once.

    Args:
        losses: at the budget's orders.
        budget: the orders and delta.
    """
    orders = np.array(budget.orders)
    logs = np.log(budget.delta * np.array(shares(len(orders))))
    added = (-logs + (orders - 1) * np.log1p(-1 / orders) - np.log(orders)) / (orders - 1)
    divergences = np.array([loss.divergences for loss in losses]).reshape(len(losses), len(orders))
    found = np.maximum(0.0, (divergences + added).min(axis=1))
    holds = np.array([loss.failure for loss in losses]) <= limit(chances(budget.delta))
    found = np.where(holds, found, np.inf)
    return np.minimum(found, [loss.pure for loss in losses])


def _point(stand: _Stand, epsilon: float) -> CumulativePoint:
    return CumulativePoint(
        number=stand.row.number,
        time=stand.row.body["time"],
        period=stand.period,
        committed=epsilon if math.isfinite(epsilon) else math.inf,
        local=stand.local,
        budget=stand.budget.epsilon,
        local_budget=stand.budget.local_epsilon,
    )


def _otherwise(before: Budget, now: Budget) -> str:
    """What else of a budget was changed."""
    names = ("local_epsilon", "period_days", "orders")
    changed = [name for name in names if getattr(before, name) != getattr(now, name)]
    return f" (and its {', '.join(changed)})" if changed else ""
