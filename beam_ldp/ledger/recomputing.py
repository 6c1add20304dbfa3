"""What the audit works out anew: budgets row by row, costs of charges, and contradictions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from random import SystemRandom
from typing import Any, NamedTuple

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.event_json import event_from_json
from beam_ldp.ledger import kinds
from beam_ldp.ledger.admission import epsilon_of, fits_locally, fits_share, share_of
from beam_ldp.ledger.balances import Population
from beam_ldp.ledger.charges import Budget, Charge
from beam_ldp.ledger.losses import (
    Loss,
    is_nothing,
    limit,
    local_loss_of,
    loss_of_part,
    read_loss,
)
from beam_ldp.ledger.rows import LedgerCorruptedError, Row
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.succession import Succession
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.wording import number

# The ledger's life again, row by row: where each population stood, and where that was too much.


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
        for name, points in self.curves.items():
            grants = {budget.number for budget in self.state.populations[name].budgets}
            every = max(1, len(points) // MOST_POINTS)
            self.curves[name] = [
                point
                for i, point in enumerate(points)
                if i % every == 0 or i == len(points) - 1 or point.number in grants
            ]

    def _look(self, row: Row) -> None:
        body = row.body
        if row.kind == kinds.BUDGET:
            population = self.state.populations[body["population"]]
            budget = population.budgets[-1]
            if population.charged:
                self._stand(population, row, budget.period_of(body["time"]))
            self._budget_changed(population, row)
        elif row.kind in kinds.CHARGES and row.kind != kinds.BEGIN:
            population = self.state.populations[body["population"]]
            self._stand(population, row, body["period"])
            if row.kind == kinds.RESERVE and population.quotas:
                self._look_at_quotas(population, row)
        elif row.kind == kinds.TIME:
            self.clocks.append(
                f"row {row.number}: {body['by']} said that the clock is right, from "
                f"{body['before']} to {body['time']}; reason given: {body['why'] or 'none'}"
            )

    def _stand(self, population: Population, row: Row, period: int) -> None:
        """Where a population stands after a row, and whether that is too much.

        A settlement that released too much is told apart, and so is a succession: see `auditing`.
        """
        name, budget = population.name, population.granted
        epsilon = epsilon_of(population.loss(period), budget)
        local = population.local_loss(period)
        uncertain = self._succession is not None and self._succession.charged(row.number)
        if row.kind == kinds.RESERVE and not uncertain:
            said = f"row {row.number}: {name!r} stood at"
            if not epsilon <= limit(budget.epsilon):
                self.exceeded.append(f"{said} epsilon = {number(epsilon)} of {budget.epsilon:g}")
            if not fits_locally(budget, local):
                self.exceeded.append(
                    f"{said} local epsilons of {number(local)} of {budget.local_epsilon:g}"
                )
        self.curves.setdefault(name, []).append(
            CumulativePoint(
                number=row.number,
                time=row.body["time"],
                period=period,
                committed=epsilon,
                local=local,
                budget=budget.epsilon,
                local_budget=budget.local_epsilon,
            )
        )

    def _look_at_quotas(self, population: Population, row: Row) -> None:
        budget, quota = population.granted, row.body["quota"]
        account = population.account(row.body["period"], quota)
        share = share_of(population.quotas, quota)
        fits = fits_share(budget, share, account.loss)
        if not (fits and fits_locally(budget, account.local, share)):
            whose = f"quota {quota!r}" if quota else "what no quota keeps"
            self.quotas.append(
                f"row {row.number}: {whose} of {population.name!r} was charged beyond its share "
                f"of {share:g}"
            )

    def _budget_changed(self, population: Population, row: Row) -> None:
        if len(population.budgets) < 2:
            return
        before, now = population.budgets[-2:]
        looser = now.epsilon > before.epsilon or now.delta > before.delta
        if before.local_epsilon is not None:
            looser |= now.local_epsilon is None or now.local_epsilon > before.local_epsilon
        # Charges fall into other periods, or are read at orders that were chosen afterwards.
        looser |= now.period_days not in (before.period_days, None)
        looser |= (now.orders, now.chances) != (before.orders, before.chances)
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


def _otherwise(before: Budget, now: Budget) -> str:
    """What else of a budget was changed."""
    names = ("local_epsilon", "period_days", "orders", "chances")
    changed = [name for name in names if getattr(before, name) != getattr(now, name)]
    return f" (and its {', '.join(changed)})" if changed else ""


# What charges cost, worked out anew: once for each distinct event, and by several processes.
#
# Rows state the divergences of their events, so that to open a ledger costs no pricing. Audits do
# not believe them: they price each distinct event at the orders of its budget, and at the deltas
# at which prices of it were printed. Of very large ledgers a sample can be drawn, at random and
# unforeseeable.


_TOLERANCE = 1e-6  # relative; what a row may state below the recomputed
_FEW = 64  # events that are priced here, and not by other processes


class ChargedEvent(NamedTuple):
    """What is priced: an event (JSON), at the orders of a budget, and at printed deltas."""

    event: str
    orders: tuple[float, ...]


class TruePrice(NamedTuple):
    """What it costs: the loss, and epsilon by delta; a reason where it has no price."""

    loss: Loss | None
    epsilons: dict[float, float]
    fault: str = ""


@dataclass
class Repricing:
    """What rows state, and what it really is.

    Attributes:
        stated: per event, each loss that is stated for it, with the first row that does.
        local: rows that state a smaller local epsilon than their event's, in words.
        deltas: per event, at which prices of it were printed.
        answers: what was priced anew.
    """

    stated: dict[ChargedEvent, dict[Loss, int]] = field(default_factory=dict)
    local: list[str] = field(default_factory=list)
    deltas: dict[ChargedEvent, set[float]] = field(default_factory=dict)
    answers: dict[ChargedEvent, TruePrice] = field(default_factory=dict)

    def look_at_next(self, rows: Iterable[Row]) -> None:
        """Look at the row that does not follow: maybe it is its local epsilon that is too small."""
        for row in rows:
            with suppress(Exception):  # it may hold anything
                if row.kind == kinds.RESERVE:
                    _look_at_local(self, row)

    def epsilon(self, event: Mapping[str, Any], orders: tuple[float, ...], delta: float) -> Any:
        """Epsilon of an event at a delta; None if it was not priced."""
        answer = self.answers.get(ChargedEvent(_text(event), orders))
        return None if answer is None else answer.epsilons.get(delta)

    def findings(self) -> list[str]:
        """Rows that state less than their event costs."""
        found = []
        for question, answer in self.answers.items():
            for loss, row in self.stated[question].items():
                if answer.loss is None:
                    found.append(f"row {row} holds an event without a privacy cost: {answer.fault}")
                elif _less(loss, answer.loss):
                    found.append(f"row {row} states a smaller loss than that of its event")
        return found


def stated_by(rows: Iterable[Row], state: LedgerState) -> Repricing:
    """What rows state of their events; nothing is priced yet.

    Args:
        rows: of a ledger, as far as they follow from each other.
        state: what they amount to.
    """
    found = Repricing()
    for row in rows:
        if row.kind in (kinds.RESERVE, kinds.SETTLE, kinds.REPLACE) and row.body["event"]:
            body = row.body
            budget = state.populations[body["population"]].granted
            question = ChargedEvent(_text(body["event"]), budget.orders)
            found.stated.setdefault(question, {}).setdefault(
                Loss.from_json(body["loss"]), row.number
            )
            if row.kind == kinds.RESERVE:
                _look_at_local(found, row)
            delta = body["about"].get("delta")
            if row.kind != kinds.RESERVE and isinstance(delta, (int, float)) and 0 < delta < 1:
                found.deltas.setdefault(question, set()).add(float(delta))
    return found


def _look_at_local(found: Repricing, row: Row) -> None:
    body = row.body
    local = local_loss_of(body["local_event"] or body["event"])
    stated = read_loss(body["local_epsilon"])
    if stated < local * (1 - _TOLERANCE):
        found.local.append(
            f"row {row.number}: run {body['run_id']!r} states a local epsilon of {stated:.4g}; its "
            f"event's is {local:.4g}"
        )


def price(found: Repricing, *, sample: int | None = None, workers: int = 1) -> None:
    """Price the distinct events.

    Args:
        found: from `stated_by`; its `answers` are filled in.
        sample: so many of them, drawn at random; None: all.
        workers: processes. More than one start as new interpreters: call this behind
            `if __name__ == "__main__"`.
    """
    questions = list(found.stated)
    if sample is not None and sample < len(questions):
        questions = SystemRandom().sample(questions, sample)
    asked = [(q, tuple(sorted(found.deltas.get(q, ())))) for q in questions]
    if workers <= 1 or len(asked) < _FEW:
        answers = [_answer(one) for one in asked]
    else:
        chunk = max(1, len(asked) // (8 * workers))
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            answers = list(pool.map(_answer, asked, chunksize=chunk))
    found.answers.update(zip(questions, answers))


def _answer(asked: tuple[ChargedEvent, tuple[float, ...]]) -> TruePrice:
    question, deltas = asked
    event = json.loads(question.event)
    try:
        loss = loss_of_part(event, question.orders)
        parsed = event_from_json(event)
        return TruePrice(loss, {delta: float(event_epsilon(parsed, delta)) for delta in deltas})
    except Exception as error:  # a forged row may hold anything
        return TruePrice(None, {}, type(error).__name__)


def _text(event: Mapping[str, Any]) -> str:
    return json.dumps(event, sort_keys=True)


def _less(stated: Loss, real: Loss) -> bool:
    pairs = zip(stated.figures, real.figures)
    return any(a < b * (1 - _TOLERANCE) for a, b in pairs)


# Charges that contradict each other: one release id with two questions, one release charged
# twice.
#
# A ledger refuses both when it is asked. Audits look anew: rows may come from another program, or
# from two ledgers whose databases were merged.


def two_questions(state: LedgerState) -> list[str]:
    """Charges whose release id stood for another question, or another key, before."""
    first: dict[tuple[str, str, str], tuple[Charge, ReleaseIdentity]] = {}
    found = []
    for charge in reservations(state):
        identity = charge.identity
        key = (charge.population, state.first_name_of(identity.dataset), identity.release_id)
        whole = replace(identity, part="", group="")
        before = first.setdefault(key, (charge, whole))
        if before[1] != whole:
            found.append(
                f"run {charge.run_id!r} released another question under release id "
                f"{identity.release_id!r} than run {before[0].run_id!r}: it differs in its "
                f"{', '.join(before[1].differences(whole))}"
            )
    return found


def free_parts(state: LedgerState) -> tuple[list[str], list[str]]:
    """Charges for nothing, since another part of their release was charged for them: those of which
    none was, and the others."""
    charged, free = set(), []
    for charge in reservations(state):
        if charge.status == "abandoned":
            continue
        first_name = state.first_name_of(charge.identity.dataset)
        release = (charge.population, first_name, charge.identity.release_id)
        if charge.pays:
            charged.add(release)
        elif is_nothing(charge.reserved):
            free.append((release, charge.run_id))
    faults = [
        f"run {run_id!r} says that another part of {release[-1]!r} was charged for it: none was"
        for release, run_id in free
        if release not in charged
    ]
    said = [
        f"run {run_id!r} is free: another part of {release[-1]!r} was charged for it"
        for release, run_id in free
        if release in charged
    ]
    return faults, said


def charged_twice(state: LedgerState) -> list[str]:
    """Releases of the same reports that stand as two charges: noise was counted as fresh."""
    first: dict[tuple[str, bytes], Charge] = {}
    found = []
    for charge in reservations(state):
        same_reports = charge.memoized or charge.identity.key
        if not same_reports or charge.status == "abandoned" or charge.is_block:
            continue  # a block may be continued by another: its parts are what is released
        before = first.setdefault((charge.population, charge.identity.digest), charge)
        if before is not charge:
            found.append(
                f"runs {before.run_id!r} and {charge.run_id!r} released the same reports "
                f"({charge.identity.release_id!r}) as if they were two"
            )
    return found


def reservations(state: LedgerState) -> list[Charge]:
    """All charges in the order of their rows; of a block its parts too."""
    charges = [c for p in state.populations.values() for c in p.charges.values()]
    return sorted(charges, key=lambda charge: charge.number)
