"""The budget: reserve before anything is read, settle what was released, and never overspend.

First what operators and auditors grant: budgets, shares of them, names, and what they answer for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from beam_ldp.ledger.accounts import PeopleCount, count_people, covered_local
from beam_ldp.ledger.admission import BudgetStatus, budget_of, population_of, quota_refusal
from beam_ldp.ledger.balances import NEIGHBOURS, REPLACE_ONE, UNIT, Balances, Population
from beam_ldp.ledger.charges import Quota
from beam_ldp.ledger.connection import LedgerReading
from beam_ldp.ledger.losses import CHANCES, orders_for
from beam_ldp.ledger.participants import Files, LocalFiles
from beam_ldp.ledger.reserving import LedgerRepublishing, LedgerReserving
from beam_ldp.ledger.rows import (
    ACCEPT,
    BUDGET,
    CHECKPOINT,
    DATASET,
    PEOPLE,
    QUOTA,
    RENAME,
    TIME,
    LedgerError,
    check_budget,
    check_name,
    check_text,
    login,
)
from beam_ldp.ledger.settling import LedgerSettling
from beam_ldp.ledger.state import Acceptance
from beam_ldp.randomizers.checks import check_fraction

Append = Callable[[str, dict[str, Any]], None]


class LedgerGranting(LedgerReading):
    """What operators and auditors decide."""

    def set_budget(
        self,
        dataset: str,
        *,
        epsilon: float,
        delta: float,
        local_epsilon: float | None = None,
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        population: str | None = None,
        orders: tuple[float, ...] | None = None,
        chances: float | None = None,
        period_days: int | None = None,
        by: str | None = None,
        why: str = "",
    ) -> BudgetStatus:
        """Grant a budget, or change it: a row of its own that audits show.

        Args:
            dataset: its name; new names make new datasets here, and nowhere else.
            epsilon, delta: central budget.
            local_epsilon: most that the local epsilons of one person may sum to; None: no limit.
            privacy_unit: what is protected, "user" for all that a person holds.
            neighbours: only "replace-one" is accounted.
            population: the people; datasets about the same people share one. Default: the
                population that the dataset has, or one of the dataset's name.
            orders: Rényi orders that are fixed with the budget, the most important first; default:
                what suits many small releases. Each reads the total at a share of delta. Once
                something is charged they stay as they are, whatever becomes of the budget.
            chances: share of delta for events that hold but for a chance, fixed with the orders.
                Default: 0.05; more where schedules are committed as a whole (`CommittedDpEvent`),
                of which such a share is what their losses are read at: 0.9 for nothing else.
            period_days: renew the budget after this number of days; stays too.
            by, why: for the record; default: the login name.

        Raises:
            LedgerError: if the dataset belongs to another population or unit, or other orders,
                chances or periods are given after something was charged.
            ValueError: for numbers that make no budget.
        """
        check_name("dataset", dataset)
        check_budget(epsilon, delta, local_epsilon, orders, period_days)
        if chances is not None:
            check_fraction("chances", chances, "[)")
        check_name("privacy_unit", privacy_unit)
        check_name("by", by := by or login())
        check_text("why", why)
        if neighbours != REPLACE_ONE:
            raise ValueError(f'neighbours must be "{REPLACE_ONE}", got {neighbours!r}')
        terms = {
            "epsilon": float(epsilon),
            "delta": float(delta),
            "local_epsilon": None if local_epsilon is None else float(local_epsilon),
            "orders": None if orders is None else list(map(float, orders)),
            "chances": None if chances is None else float(chances),
            "period_days": period_days,
            "by": by,
            "why": why,
        }
        with self._writing() as it:
            grant(it.balances, it.append, dataset, privacy_unit, neighbours, population, terms)
        return self.status(dataset)

    def set_quota(
        self, dataset: str, quota: str, *, share: float, by: str | None = None, why: str = ""
    ) -> BudgetStatus:
        """Keep a share of a population's budget for somebody: a team, a questioner.

        What is charged to the quota never exceeds the share, and nobody else gets at it: see
        `deciding`. What no quota keeps is for charges that name none.

        Args:
            dataset: any of the population.
            quota: whose share.
            share: of the budget, in [0, 1]; all of them together at most 1.
            by, why: for the record; default: the login name.

        Raises:
            LedgerError: if more than that is spent already by those whose share would become
                smaller, or the shares are more than the budget.
        """
        check_name("quota", quota)
        check_name("by", by := by or login())
        check_text("why", why)
        check_fraction("share", share, "[]")
        with self._writing() as it:
            population = population_of(it.balances, dataset)
            period = budget_of(population, dataset).period_of(it.time(QUOTA))
            refused = quota_refusal(population, period, Quota(quota, float(share)))
            if refused is not None:
                raise LedgerError(f"quota {quota!r} cannot be a share of {share:g}: {refused}")
            body = {"population": population.name, "quota": quota, "share": float(share)}
            it.append(QUOTA, {**body, "by": by, "why": why})
        return self.status(dataset)

    def rename(self, dataset: str, to: str, *, by: str | None = None, why: str = "") -> None:
        """Give a dataset another name. Its people, its budget and its charges stay.

        The old name is not given to another dataset. Memoized noise depends on the name: what was
        released under the old one keeps its release ids.

        Raises:
            LedgerError: for an unknown dataset, or a name that is taken.
        """
        check_name("to", to)
        check_name("by", by := by or login())
        check_text("why", why)
        with self._writing() as it:
            population_of(it.balances, dataset)
            if to in it.balances.datasets or to in it.balances.former_names:
                raise LedgerError(f"there is, or was, a dataset {to!r} already")
            it.append(RENAME, {"dataset": dataset, "to": to, "by": by, "why": why})

    def accept_time(self, *, why: str, by: str | None = None) -> str:
        """Say that this machine's clock is right, though it is far ahead of the last row.

        Returns:
            The time from which the ledger goes on.
        """
        check_name("by", by := by or login())
        check_text("why", why)
        with self._writing() as it:
            now = max(self._time(it.appender)[0], it.balances.time)
            it.append(TIME, {"before": it.balances.time, "by": by, "why": why, "time": now})
        return now

    def accept(self, row: int, key: Ed25519PrivateKey, *, why: str, by: str | None = None) -> None:
        """The auditor accepts a change of a budget: a row of its own, signed.

        Args:
            row: number of the budget's row, as audits name it.
            key: the auditor's.
            why, by: for the record; default: the login name.

        Raises:
            LedgerError: if the row is no budget.
        """
        check_text("why", why)
        check_name("by", by := by or login())
        found = [found for found in self.rows() if found.number == row]
        acceptable = found and (found[0].kind == BUDGET or "succeeds" in found[0].body)
        if not acceptable:
            raise LedgerError(
                f"row {row} is neither a budget nor a succession, and cannot be accepted"
            )
        with self._writing() as it:
            made = Acceptance(it.balances.ledger_id, row, found[0].hash, by, why).sign(key)
            it.append(ACCEPT, made.to_json())


def grant(
    state: Balances,
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
        terms: of the budget, as its row holds them; `orders` and `chances` None for the usual ones.

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
    filter_ = _filter(found, terms)
    _check_periods(found, terms)
    if not known:
        append(
            DATASET,
            {"dataset": dataset, "population": name, UNIT: privacy_unit, NEIGHBOURS: neighbours},
        )
    body = {name: value for name, value in terms.items() if name != "chances"}
    append(BUDGET, {**body, "population": name, **filter_})


def _filter(found: Population | None, terms: dict[str, Any]) -> dict[str, Any]:
    """Orders of the new budget, and the share of chances where it is not the usual one.

    Once something is charged they stay as they are.
    """
    orders: list[float] | None = terms["orders"]
    chances: float | None = terms.get("chances")
    if found is not None and found.budget is not None and found.charged:
        fixed = {"orders": list(found.budget.orders), "chances": found.budget.chances}
        for what, wanted in (("orders", orders), ("chances", chances)):
            if wanted is not None and wanted != fixed[what]:
                raise LedgerError(
                    f"{what} were fixed with the first budget and something was charged since: "
                    "chosen later they would prove nothing"
                )
        orders, chances = list(found.budget.orders), found.budget.chances
    share = CHANCES if chances is None else chances
    told = {"orders": orders or list(orders_for(terms["epsilon"], terms["delta"], share))}
    return told if share == CHANCES else {**told, "chances": share}


def _check_periods(found: Population | None, terms: dict[str, Any]) -> None:
    """Periods stay once something is charged: charges count where they were reserved."""
    if found is None or found.budget is None or not found.charged:
        return
    before = found.budget.period_days
    if terms["period_days"] != before:
        said = "none" if before is None else f"of {before} days"
        raise LedgerError(
            f"the periods of population {found.name!r} ({said}) were fixed with the first charge: "
            "changing them would grant anew what is spent"
        )


class BudgetLedger(LedgerGranting, LedgerReserving, LedgerSettling, LedgerRepublishing):
    """A ledger of privacy budgets, in SQLite or PostgreSQL, that cannot be overspent.

    Protects the people of each *population* against the sum of everything that is released about
    them, over all datasets, programs and runs that use this ledger: a run reserves its worst case
    before it reads anything, and is refused if that does not fit beside all that was spent and
    reserved. It cannot protect against runs that do not use it.

    Opening reads from the last checkpoint on. A run's row, its settlement and a status take a few
    milliseconds, however long the ledger is; `state` and audits read all of it.

    Args:
        url: of the database; default: the environment variable BEAM_LDP_LEDGER.
        anchors: where heads are kept that a restore of the database does not reach, and looked for
            before each reservation: a sink, or its URL; default: the environment variable
            BEAM_LDP_ANCHORS (see `sinks`).
        clock: gives the time; for tests. Default: the database's, or this machine's with SQLite.

    Raises:
        LedgerError: if no URL is known.
        LedgerMissingError: if there is no ledger. A mistyped URL never makes one.

    >>> import tempfile
    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> from beam_ldp.randomizers.identity import ReleaseIdentity
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = BudgetLedger.create(f"sqlite:///{folder.name}/privacy.db")
    >>> _ = ledger.set_budget("telemetry", epsilon=1.0, delta=1e-8, local_epsilon=8.0, why="2026")
    >>> event = ShuffledDpEvent(LocalRandomizerDpEvent(4.0), 100_000)
    >>> monday = ReleaseIdentity("telemetry", "monday", columns=("url",))
    >>> charge = ledger.reserve("telemetry", "run 1", event, identity=monday)
    >>> _ = ledger.settle("run 1", event, identity=monday, attempt=charge.attempt)
    >>> ledger.status("telemetry").local_spent
    4.0
    """

    def count_people(self, dataset: str, store: str, *, files: Files | None = None) -> PeopleCount:
        """Count what each person was charged locally in the current period, and write it down.

        People are known by keyed hashes that runs left (see `people`). Runs that left none, or not
        all, count as if they had asked everybody: `BudgetStatus.local_maximum` stays an upper
        bound for every person.

        Args:
            dataset: any of the population.
            store: folder of the hashes, as the runs had it.
            files: where it lies; default: this machine.

        Raises:
            DamagedTagsError: if a file of hashes is not what was written.
            LedgerError: if none can be counted, where there were some before.
        """
        period = self.status(dataset).period
        known = population_of(self.state, dataset)
        counted = count_people(store, files or LocalFiles(), known.name, known.ended(period))
        with self._writing() as it:
            ended = {charge.number: charge for charge in known.ended(period)}
            counted.check(ended)
            last = population_of(it.balances, dataset).people.get(period)
            if last is not None and last.covered and not counted.covered:
                raise LedgerError(
                    "store holds no hashes that can be counted, although people were counted "
                    "before: it may be the wrong folder"
                )
            if counted != last and (counted.covered or last is not None):
                body = {"population": known.name, "period": period, **counted.to_json()}
                covered = covered_local(counted, ended).to_json()
                it.append(PEOPLE, {**body, "covered_local": covered})
        return counted

    def checkpoint(self) -> None:
        """Write all totals into a row of their own, so that opening need not read what is before.

        Writers do it by themselves every 256 rows.
        """
        with self._writing() as it:
            it.append(CHECKPOINT, {"books": it.balances.to_json()})
