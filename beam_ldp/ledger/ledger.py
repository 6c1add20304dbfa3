"""The budget: reserve before anything is read, settle what was released, and never overspend."""

from __future__ import annotations

from beam_ldp.ledger.deciding import population_of
from beam_ldp.ledger.granting import LedgerGranting
from beam_ldp.ledger.people import Files, LocalFiles
from beam_ldp.ledger.people_count import PeopleCount, count_people, covered_local
from beam_ldp.ledger.reserving import LedgerRepublishing, LedgerReserving
from beam_ldp.ledger.rows import CHECKPOINT, PEOPLE, LedgerError
from beam_ldp.ledger.settling import LedgerSettling


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
            last = population_of(it.books, dataset).people.get(period)
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
            it.append(CHECKPOINT, {"books": it.books.to_json()})
