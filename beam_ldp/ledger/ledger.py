"""The budget: reserve before anything is read, settle what was released, and never overspend."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from beam_ldp.ledger.acceptances import Acceptance
from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.checks import (
    check_budget,
    check_local,
    check_name,
    check_size,
    check_text,
    login,
)
from beam_ldp.ledger.errors import LedgerError
from beam_ldp.ledger.granting import grant
from beam_ldp.ledger.losses import as_json, exceeds, limit, loss_of
from beam_ldp.ledger.people import Files, LocalFiles
from beam_ldp.ledger.people_count import PeopleCount, count_people
from beam_ldp.ledger.refusals import again, budget_of, charge_of, check_fits, population_of, same
from beam_ldp.ledger.rows import (
    ABANDON,
    ACCEPT,
    BUDGET,
    GENESIS,
    NO_HASH,
    PEOPLE,
    RESERVE,
    SETTLE,
    Head,
    LedgerCorruptedError,
    Row,
    next_row,
)
from beam_ldp.ledger.state import REPLACE_ONE, LedgerState
from beam_ldp.ledger.status import BudgetStatus, status_of
from beam_ldp.ledger.store import RowStore

URL_VARIABLE = "BEAM_LDP_LEDGER"


class BudgetLedger:
    """A ledger of privacy budgets, in SQLite or PostgreSQL, that cannot be overspent.

    Protects the people of each *population* against the sum of everything that is released about
    them, over all datasets, programs and runs that use this ledger: a run reserves its worst case
    before it reads anything, and is refused if that does not fit beside all that was spent and
    reserved. It cannot protect against runs that do not use it.

    Args:
        url: of the database; default: the environment variable BEAM_LDP_LEDGER.
        clock: gives the time; for tests.

    Raises:
        LedgerError: if no URL is known.
        LedgerMissingError: if there is no ledger. A mistyped URL never makes one.

    >>> import tempfile
    >>> from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
    >>> folder = tempfile.TemporaryDirectory()
    >>> ledger = BudgetLedger.create(f"sqlite:///{folder.name}/privacy.db")
    >>> _ = ledger.set_budget("telemetry", epsilon=1.0, delta=1e-8, local_epsilon=8.0, why="2026")
    >>> event = ShuffledDpEvent(LocalRandomizerDpEvent(4.0), 100_000)
    >>> _ = ledger.reserve("telemetry", "run 1", event, local_epsilon=4.0)
    >>> _ = ledger.settle("run 1", event)
    >>> ledger.status("telemetry").local_spent
    4.0
    """

    def __init__(
        self, url: str | None = None, *, clock: Callable[[], datetime] | None = None
    ) -> None:
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise LedgerError(
                f"no ledger is named: give its URL (--ledger) or set {URL_VARIABLE}, "
                "for example sqlite:///privacy.db"
            )
        self._store = RowStore(url)
        self._store.check()
        self._clock = clock or (lambda: datetime.now(timezone.utc))
        self._state = LedgerState()
        self._alone = threading.RLock()  # threads may share a ledger

    @classmethod
    def create(cls, url: str, *, clock: Callable[[], datetime] | None = None) -> BudgetLedger:
        """Make a ledger, or bring an existing one to this version's form, and open it."""
        store = RowStore(url)
        store.migrate()
        with store.writing() as appender:
            if not appender.rows(0):
                body = {"ledger_id": uuid.uuid4().hex}
                appender.append(next_row(Head(), GENESIS, body))
        store.close()
        return cls(url, clock=clock)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            "a BudgetLedger does not travel: pass its URL, and open it where it is used"
        )

    # Reading --------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The database, without a password."""
        return self._store.shown_url

    @property
    def state(self) -> LedgerState:
        """Everything, as of now.

        Raises:
            LedgerCorruptedError: if the rows do not fit together.
        """
        with self._alone:
            self._catch_up(self._store.rows)
            return self._state

    def rows(self) -> list[Row]:
        """All rows as they stand, for audits: unchecked."""
        return self._store.rows()

    def status(self, dataset: str) -> BudgetStatus:
        """Where the population of a dataset stands."""
        population = population_of(self.state, dataset)
        return status_of(population, budget_of(population, dataset), self._now())

    # Writing --------------------------------------------------------------------------------

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
            period_days: grant it anew after so many days.
            by, why: for the record; default: the login name.

        Raises:
            LedgerError: if the dataset belongs to another population or unit, or other orders are
                given after something was charged.
            ValueError: for numbers that make no budget.
        """
        check_name("dataset", dataset)
        check_budget(epsilon, delta, local_epsilon, orders, period_days)
        check_name("privacy_unit", privacy_unit)
        check_name("by", by := by or login())
        check_text("why", why)
        if neighbours != REPLACE_ONE:
            raise ValueError(f'neighbours must be "{REPLACE_ONE}", got {neighbours!r}')
        with self._writing() as (state, append):
            grant(
                state,
                append,
                dataset,
                privacy_unit,
                neighbours,
                population,
                {
                    "epsilon": float(epsilon),
                    "delta": float(delta),
                    "local_epsilon": None if local_epsilon is None else float(local_epsilon),
                    "orders": None if orders is None else list(map(float, orders)),
                    "period_days": period_days,
                    "by": by,
                    "why": why,
                },
            )
        return self.status(dataset)

    def reserve(
        self,
        dataset: str,
        run_id: str,
        event: Any,
        *,
        local_epsilon: float,
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        memoized: bool = False,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Set the worst case of a run aside, or refuse it. Atomic.

        Args:
            dataset: its name in the ledger.
            run_id: name of the charge, used once. A memoized run that is started again before its
                first release keeps its charge.
            event: the worst that the run may release, a `DpEvent`.
            local_epsilon: what one person loses to whoever sees their reports.
            privacy_unit, neighbours: what the run protects; must be the population's.
            memoized: a repetition sends the same reports.
            about: JSON-able values for the record; never data.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: for an unknown dataset, another privacy unit, or a name that was used.
        """
        check_name("run_id", run_id)
        check_local(local_epsilon)
        body: dict[str, Any] = {
            "run_id": run_id,
            "dataset": dataset,
            "event": as_json(event),
            "local_epsilon": float(local_epsilon),
            "memoized": memoized,
            "about": dict(about or {}),
        }
        # The price is worked out before the lock is taken: others need not wait for it.
        known = population_of(self.state, dataset)
        loss_of(body["event"], budget_of(known, dataset).orders)
        with self._writing() as (state, append):
            population = population_of(state, dataset)
            budget = budget_of(population, dataset)
            if (privacy_unit, neighbours) != (population.privacy_unit, population.neighbours):
                raise LedgerError(
                    f"dataset {dataset!r} protects one {population.privacy_unit} "
                    f"({population.neighbours}); this run protects one {privacy_unit} "
                    f"({neighbours})"
                )
            if state.has_run(run_id):
                return again(state.charge(run_id), body)
            check_fits(population, budget, body, dataset, self._now())
            append(RESERVE, body)
        return self._state.charge(run_id)

    def settle(
        self,
        run_id: str,
        event: Any,
        *,
        local_epsilon: float | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Write down what was really released. Idempotent.

        More than was reserved is written down too, as an alarm that audits show: it happened.

        Raises:
            LedgerError: if there is no such open reservation.
        """
        told = as_json(event)
        if local_epsilon is not None:
            check_local(local_epsilon)
        loss_of(told, self._orders_of(charge_of(self.state, run_id)))  # before the lock is taken
        with self._writing() as (state, append):
            charge = charge_of(state, run_id)
            local = charge.local_epsilon if local_epsilon is None else float(local_epsilon)
            if charge.status == "settled" and same(charge.settled, told):
                return charge
            if charge.status != "reserved":
                raise LedgerError(f"run {run_id!r} is {charge.status} already")
            orders = self._orders_of(charge)
            worst, real = loss_of(charge.reserved, orders), loss_of(told, orders)
            over = exceeds(real, worst) or local > limit(charge.local_epsilon)
            append(
                SETTLE,
                {
                    "run_id": run_id,
                    "event": told,
                    "local_epsilon": local,
                    "overspent": over,
                    "about": dict(about or {}),
                },
            )
        return self._state.charge(run_id)

    def abandon(
        self,
        run_id: str,
        *,
        randomized: bool,
        why: str,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Give the central price back: only for a run of which provably nothing was released.

        Args:
            run_id: of an open reservation.
            randomized: whether people may have sent reports already; the local epsilon is then
                spent.
            why, about: for the record.

        Raises:
            LedgerError: if there is no such open reservation.
        """
        with self._writing() as (state, append):
            charge = charge_of(state, run_id)
            if charge.status == "abandoned":
                return charge
            if charge.status != "reserved":
                raise LedgerError(f"run {run_id!r} is {charge.status} already")
            local = charge.local_epsilon if randomized else 0.0
            told = {**(about or {}), "abandoned": why}
            append(ABANDON, {"run_id": run_id, "local_epsilon": local, "about": told})
        return self._state.charge(run_id)

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
        known = population_of(self.state, dataset)
        period = budget_of(known, dataset).period_of(self._now())
        counted = count_people(store, files or LocalFiles(), known.name, known.ended(period))
        with self._writing() as (state, append):
            population = population_of(state, dataset)
            counted.check({charge.number: charge for charge in population.ended(period)})
            last = population.people.get(period)
            if last is not None and last.covered and not counted.covered:
                raise LedgerError(
                    "store holds no hashes that can be counted, though people were counted before: "
                    "is it another folder?"
                )
            if counted != last and (counted.covered or last is not None):
                body = {"population": population.name, "period": period, **counted.to_json()}
                append(PEOPLE, body)
        return counted

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
        if not found or found[0].kind != BUDGET:
            raise LedgerError(f"row {row} is no budget that could be accepted")
        with self._writing() as (state, append):
            made = Acceptance(state.ledger_id, row, found[0].hash, by, why).sign(key)
            append(ACCEPT, made.to_json())

    # Inside ---------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[tuple[LedgerState, Callable[[str, dict[str, Any]], None]]]:
        """The state as of now, and a way to append; nobody else writes until it is committed."""
        added: list[Row] = []
        with self._alone:
            with self._store.writing() as appender:
                self._catch_up(appender.rows)

                def append(kind: str, body: dict[str, Any]) -> None:
                    head = added[-1].head if added else self._state.head
                    row = next_row(head, kind, {**body, "time": self._now()})
                    check_size(row)
                    appender.append(row)
                    added.append(row)

                yield self._state, append
            self._state.apply(added)

    def _catch_up(self, rows_from: Callable[[int], list[Row]]) -> None:
        """Take in what others appended; the last row we know must still be there."""
        known = self._state.head
        found = rows_from(max(0, known.count - 1))
        last = found.pop(0).hash if known.count and found else NO_HASH
        if known.count and last != known.hash:
            raise LedgerCorruptedError("rows that were there are gone or changed")
        self._state.apply(found)

    def _orders_of(self, charge: Charge) -> tuple[float, ...]:
        budget = self._state.populations[charge.population].budget
        assert budget is not None  # or nothing could have been reserved
        return budget.orders

    def _now(self) -> str:
        """The time; that of the last row if the clock stands before it.

        So nobody gets at an earlier period's rest by setting a clock back.
        """
        now = self._clock().astimezone(timezone.utc).isoformat(timespec="seconds")
        return max(now, self._state.time)
