"""Looking into a ledger: where a budget stands, and what became of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from beam_ldp.ledger.books import Books, Population
from beam_ldp.ledger.charges import Charge, followed, of_run, part_of
from beam_ldp.ledger.deciding import BudgetStatus, budget_of, population_of, status_of
from beam_ldp.ledger.losses import Loss, loss_of
from beam_ldp.ledger.opening import OpenLedger, after
from beam_ldp.ledger.rows import LedgerError, Row, jumps
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.store import Reader
from beam_ldp.randomizers.identity import ReleaseIdentity


class LedgerReading(OpenLedger):
    """What a ledger tells."""

    @property
    def state(self) -> LedgerState:
        """Everything, as of now, read and checked from the first row on: for audits and reports.

        Raises:
            LedgerCorruptedError: if the rows do not fit together.
        """
        with self._alone, self._store.reading() as reader:
            self._state.apply(after(self._state.head, reader))
            return self._state

    def rows(self) -> list[Row]:
        """All rows as they stand, for audits: unchecked."""
        return self._store.rows()

    def has_run(self, run_id: str) -> bool:
        """Whether there is a charge of this name."""
        with self._store.reading() as reader:
            return bool(reader.rows_of_run(run_id))

    def charge(self, run_id: str, part: str = "") -> Charge:
        """The charge of a run; of a block, what is left of it, or one part that has ended.

        Raises:
            LedgerError: if there is none.
        """
        with self._store.reading() as reader:
            return charge_of(reader, run_id, part)

    def _loss_for(self, charge: Charge, told: dict[str, Any]) -> Loss:
        """The loss of an event at the orders of the charge's budget."""
        population = population_of_charge(self._opened(charge.dataset), charge)
        return loss_of(told, budget_of(population, charge.dataset).orders)

    def published(self, identity: ReleaseIdentity) -> Charge | None:
        """The charge under which this very release of memoized noise was published; None if not."""
        with self._store.reading() as reader:
            equal = equal_releases(reader, identity)
        return next((c for c in equal if c.status == "settled" and not c.is_block), None)

    def population(self, dataset: str) -> str:
        """Name of the population of a dataset.

        Raises:
            LedgerError: for an unknown dataset.
        """
        return population_of(self.books, dataset).name

    def status(self, dataset: str) -> BudgetStatus:
        """Where the population of a dataset stands."""
        with self._alone, self._store.reading() as reader:
            books = self._current(reader)
            now = self._time(reader)[0]
        population = population_of(books, dataset)
        now = books.time if jumps(now, books.time) else max(now, books.time)
        return status_of(population, budget_of(population, dataset), now, self._charges(dataset))

    def _charges(self, dataset: str) -> Callable[[int], tuple[Charge, ...]]:
        return lambda period: tuple(self.state.population_of(dataset).charges_of(period))


def charge_of(reader: Reader, run_id: str, part: str = "") -> Charge:
    """The charge of a run, or of a part of a block that has ended; a LedgerError if none is."""
    rows = reader.rows_of_run(run_id, part)
    if not rows:
        raise LedgerError(f"the ledger holds no reservation of run {run_id!r}")
    whole = of_run(rows)
    if not part:
        return whole
    found = ended_part(reader, whole, part)
    if found is None:
        raise LedgerError(f"part {part!r} of run {run_id!r} has not ended")
    return found


def ended_part(reader: Reader, charge: Charge, part: str) -> Charge | None:
    """What has ended: a part of a block, or the charge itself; None while it is open."""
    if not charge.is_block:
        return None if charge.status == "reserved" else charge
    if not part:
        return None
    rows = [row for row in reader.rows_of_run(charge.run_id, part) if row.body["part"] == part]
    if not rows:
        return None
    first, *others = rows
    before = reader.rows_of_run(charge.run_id)[0]
    found = part_of(of_run([before]), first)
    for row in others:
        found = followed(found, row)
    return found


def equal_releases(reader: Reader, identity: ReleaseIdentity, but: str = "") -> list[Charge]:
    """Charges of an equal identity, by whatever run."""
    found = []
    for row in reader.rows_of_identity(identity.digest.hex()) if identity.key else ():
        run_id, part = row.body["run_id"], row.body["part"]
        if run_id != but:
            found.append(charge_of(reader, run_id, part))
    return found


def population_of_charge(books: Books, charge: Charge) -> Population:
    """The people of a charge."""
    return books.populations[charge.population]
