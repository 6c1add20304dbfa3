"""The budget: reserve before anything is read, settle what was released, and never overspend."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from beam_ldp.ledger.acceptances import Acceptance
from beam_ldp.ledger.books import REPLACE_ONE, Books, Population
from beam_ldp.ledger.charges import Charge, Quota
from beam_ldp.ledger.checks import check_budget, check_name, check_size, check_text, login
from beam_ldp.ledger.clocks import as_text, jumps, row_time
from beam_ldp.ledger.deciding import quota_refusal
from beam_ldp.ledger.errors import BlockUsedUpError, LedgerError
from beam_ldp.ledger.granting import grant
from beam_ldp.ledger.identities import check_not_again, check_question, release_key
from beam_ldp.ledger.losses import as_json, local_loss_of, loss_of
from beam_ldp.ledger.people import Files, LocalFiles
from beam_ldp.ledger.people_count import PeopleCount, count_people, covered_local
from beam_ldp.ledger.refusals import budget_of, check_fits, population_of, same
from beam_ldp.ledger.rows import (
    ABANDON,
    ACCEPT,
    BUDGET,
    CHECKPOINT,
    DATASET,
    GENESIS,
    NO_HASH,
    PEOPLE,
    QUOTA,
    RENAME,
    REPLACE,
    RESERVE,
    RESUME,
    SETTLE,
    TIME,
    Head,
    LedgerCorruptedError,
    Row,
    next_row,
)
from beam_ldp.ledger.runs import finite, followed, least_local, of_run, overspends, part_of
from beam_ldp.ledger.sinks import Anchoring, AnchorSink, open_anchors
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.status import BudgetStatus, status_of
from beam_ldp.ledger.store import Appender, LedgerUnavailableError, Reader, RowStore
from beam_ldp.ledger.writer import Writer
from beam_ldp.randomizers.identity import ReleaseIdentity

URL_VARIABLE = "BEAM_LDP_LEDGER"
CHECKPOINT_EVERY = 256  # rows
_DECIDES = (DATASET, RENAME, BUDGET, QUOTA, RESERVE)  # kinds of rows that a clock must be right for


class BudgetLedger:
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

    def __init__(
        self,
        url: str | None = None,
        *,
        anchors: str | AnchorSink | Anchoring | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        url = url or os.environ.get(URL_VARIABLE)
        if not url:
            raise LedgerError(
                f"no ledger is named: give its URL (--ledger) or set {URL_VARIABLE}, "
                "for example sqlite:///privacy.db"
            )
        self._store = RowStore(url)
        self._store.check()
        self._anchoring = open_anchors(anchors)
        self._clock = clock
        self._writer = Writer.this()
        self._books: Books | None = None
        self._state = LedgerState()
        self._alone = threading.RLock()  # threads may share a ledger

    @classmethod
    def create(
        cls,
        url: str,
        *,
        anchors: str | AnchorSink | Anchoring | None = None,
        clock: Callable[[], datetime] | None = None,
    ) -> BudgetLedger:
        """Make a ledger, or open the one that is there."""
        store = RowStore(url)
        store.migrate()
        with store.writing() as appender:
            if not appender.rows(0):
                body = {"ledger_id": uuid.uuid4().hex}
                appender.append(next_row(Head(), GENESIS, body))
        store.close()
        made = cls(url, anchors=anchors, clock=clock)
        if made._anchoring is not None and made.books.head.count == 1:
            made._check_anchors()  # leaves the first one
        return made

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
    def ledger_id(self) -> str:
        """Its name, which no other ledger has."""
        return self.books.ledger_id

    @property
    def books(self) -> Books:
        """Where every population stands, as of now: from the last checkpoint on.

        Raises:
            LedgerCorruptedError: if the rows do not fit together.
        """
        with self._alone, self._store.reading() as reader:
            return self._current(reader)

    @property
    def state(self) -> LedgerState:
        """Everything, as of now, read and checked from the first row on: for audits and reports.

        Raises:
            LedgerCorruptedError: if the rows do not fit together.
        """
        with self._alone, self._store.reading() as reader:
            self._state.apply(_after(self._state.head, reader))
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
            return _charge(reader, run_id, part)

    def published(self, identity: ReleaseIdentity) -> Charge | None:
        """The charge under which this very release of memoized noise was published; None if not."""
        with self._store.reading() as reader:
            equal = _equal_releases(reader, identity)
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

    # Granting -------------------------------------------------------------------------------

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
            period_days: grant it anew after so many days; stays too.
            by, why: for the record; default: the login name.

        Raises:
            LedgerError: if the dataset belongs to another population or unit, or other orders or
                periods are given after something was charged.
            ValueError: for numbers that make no budget.
        """
        check_name("dataset", dataset)
        check_budget(epsilon, delta, local_epsilon, orders, period_days)
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
            "period_days": period_days,
            "by": by,
            "why": why,
        }
        with self._writing() as it:
            grant(it.books, it.append, dataset, privacy_unit, neighbours, population, terms)
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
        if not 0 <= share <= 1:
            raise ValueError(f"share must lie in [0, 1], got {share}")
        with self._writing() as it:
            population = population_of(it.books, dataset)
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
            population_of(it.books, dataset)
            if to in it.books.datasets or to in it.books.former_names:
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
            now = max(self._time(it.appender)[0], it.books.time)
            it.append(TIME, {"before": it.books.time, "by": by, "why": why, "time": now})
        return now

    # Charging -------------------------------------------------------------------------------

    def reserve(
        self,
        dataset: str,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        memoized: bool = False,
        count: int | None = None,
        local_event: Any = None,
        quota: str = "",
        attempt: str | None = None,
        privacy_unit: str = "user",
        neighbours: str = REPLACE_ONE,
        about: Mapping[str, Any] | None = None,
        certificate: Any = None,
    ) -> Charge:
        """Set the worst case of a run aside, or refuse it. Atomic.

        What each person loses locally is derived from the event (`local_epsilon_of`).

        Args:
            dataset: its name in the ledger.
            run_id: name of the charge, used once. A memoized run that is started again before its
                first release keeps its charge; each start has an attempt of its own, and only the
                newest one may settle.
            event: the worst that the run may release, a `DpEvent`.
            identity: of the release. A release id stands for one question; the same memoized
                reports are not released twice (see `republish`).
            memoized: a repetition sends the same reports.
            count: reserve a block: so many windows or rounds that cost `event` each, in one row.
                Each is settled by itself, under the identity of its part.
            local_event: what people send, where `event` prices only what a server publishes that
                is trusted with it. A server that is sent everything has none: such a run is
                refused where the budget limits local epsilons.
            quota: whose share of the budget it is charged to.
            attempt: the token of a start whose reservation may be written already, because the
                answer was lost; default: a new start.
            privacy_unit, neighbours: what the run protects; must be the population's.
            about: JSON-able values for the record; never data.
            certificate: room for what later versions prove.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: for an unknown dataset, another privacy unit, a name that was used, a
                release id of another question.
            LedgerUnavailableError: if the ledger is away; names run and attempt where it is not
                known whether the reservation is written.
        """
        check_name("run_id", run_id)
        if count is not None and (isinstance(count, bool) or count != int(count) or count < 1):
            raise ValueError(f"count must be an integer >= 1, got {count!r}")
        if count is not None and identity.part:
            raise ValueError("identity must be of the whole release where a block is reserved")
        if identity.dataset != dataset:
            raise ValueError(f"identity must be of dataset {dataset!r}, got {identity.dataset!r}")
        if memoized != bool(identity.key):
            raise ValueError("identity must commit to a key exactly where noise is memoized")
        token = attempt or uuid.uuid4().hex
        check_name("attempt", token)
        told = as_json(event)
        known = population_of(self._opened(dataset), dataset)
        orders = budget_of(known, dataset).orders
        loss = loss_of(told, orders)  # priced before the lock is taken: others need not wait
        sent = None if local_event is None else as_json(local_event)
        local = local_loss_of(sent or told)
        self._check_anchors()
        with self._writing(run_id, token) as it:
            population = population_of(it.books, dataset)
            budget = budget_of(population, dataset)
            if budget.orders != orders:
                loss = loss_of(told, budget.orders)
            if (privacy_unit, neighbours) != (population.privacy_unit, population.neighbours):
                raise LedgerError(
                    f"dataset {dataset!r} protects one {population.privacy_unit} "
                    f"({population.neighbours}); this run protects one {privacy_unit} "
                    f"({neighbours})"
                )
            body: dict[str, Any] = {
                "run_id": run_id,
                "part": "",
                "dataset": dataset,
                "population": population.name,
                "period": budget.period_of(it.time(RESERVE)),
                "quota": quota,
                "release_key": release_key(
                    population.name, it.books.first_name_of(dataset), identity
                ),
                "identity": identity.to_json(),
                "identity_digest": identity.digest.hex(),
                "memoized": memoized,
                "attempt": token,
                "event": told,
                "loss": loss.to_json(),
                "local_event": sent,
                "local_epsilon": finite(local),
                "count": count or 1,
                "is_block": count is not None,
                "left": count or 1,
                "about": dict(about or {}),
                "certificate": certificate,
            }
            earlier = it.appender.rows_of_run(run_id)
            if earlier:
                return self._again(it, of_run(earlier), body, attempt is not None)
            first = it.appender.first_of_release(body["release_key"])
            if first is not None:
                check_question(identity, of_run([first]))
                check_not_again(identity, _equal_releases(it.appender, identity))
            check_fits(population, dataset, body["period"], loss, local, count or 1, quota)
            it.append(RESERVE, body)
            return of_run([it.rows[-1]])

    def _again(self, it: _Writing, charge: Charge, body: dict[str, Any], told: bool) -> Charge:
        """A run that starts again under its old name: free, or a LedgerError."""
        if told and charge.attempt == body["attempt"] and charge.status == "reserved":
            return charge  # the answer was lost, the row was not
        equal = (
            charge.identity.to_json() == body["identity"]
            and same(charge.reserved, body["event"])
            and same(charge.local_event, body["local_event"])
            and charge.quota == body["quota"]
            and charge.is_block == body["is_block"]
        )
        if not (equal and charge.memoized and body["memoized"] and charge.status == "reserved"):
            said = "" if charge.identity.to_json() == body["identity"] else _differing(charge, body)
            raise LedgerError(
                f"run {charge.run_id!r} has its charge already ({charge.status}): a repetition "
                f"draws new noise and needs a name and a charge of its own{said}"
            )
        it.append(RESUME, {**_place(charge), "attempt": body["attempt"], "left": charge.count,
                           "about": body["about"]})  # fmt: skip
        return followed(charge, it.rows[-1])

    def settle(
        self,
        run_id: str,
        event: Any,
        *,
        identity: ReleaseIdentity,
        attempt: str | None = None,
        local_event: Any = None,
        report_digest: str | None = None,
        num_randomized: int | None = None,
        proof: str = "",
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Write down what is released, before it is published. Idempotent.

        More than was reserved is written down too, as an alarm that audits show. What people lost
        locally is never less than what was reserved, unless it is proved that fewer reports were
        made: `proof` says how, and the event says which were.

        Args:
            run_id: of an open reservation.
            event: what is released.
            identity: of the release; must be that of the reservation. Of a block: of the part.
            attempt: token of the start that settles, as `reserve` gave it. It may be left out of a
                run that was started once.
            local_event: as for `reserve`.
            report_digest: keyed digest of the sorted reports, where noise is memoized.
            num_randomized: how many values were randomized; 0 spends nothing locally, with a proof.
            proof: why fewer reports were made than was reserved, for the record.
            about: JSON-able values for the record.

        Raises:
            LedgerError: if there is no such open reservation, another start of the run took over,
                or the identity is another.
        """
        check_text("proof", proof)
        if num_randomized is not None and num_randomized < 0:
            raise ValueError(f"num_randomized must be >= 0, got {num_randomized}")
        told, part = as_json(event), identity.part
        sent = None if local_event is None else as_json(local_event)
        local = local_loss_of(sent or told)
        known = self.charge(run_id)
        orders = budget_of(
            population_of_charge(self._opened(known.dataset), known), known.dataset
        ).orders
        loss = loss_of(told, orders)
        with self._writing(run_id, attempt) as it:
            charge = _charge(it.appender, run_id)
            label = part if charge.is_block else ""
            ended = _ended_part(it.appender, charge, label)
            _check_identity(charge, identity)
            _check_attempt(charge, attempt)
            if ended is not None:
                equal = same(ended.settled, told) and ended.report_digest == report_digest
                if ended.status == "settled" and equal:
                    return ended
                raise LedgerError(f"run {ended.run_id!r} is {ended.status} already")
            _check_open(charge)
            if charge.is_block:
                others = _equal_releases(it.appender, identity, but=run_id)
                check_not_again(identity, others)
            body = {
                **self._end(charge, label, "settle"),
                "identity_digest": identity.digest.hex() if charge.is_block else None,
                "event": told,
                "loss": loss.to_json(),
                "local_event": sent or charge.local_event,
                "report_digest": report_digest,
                "num_randomized": num_randomized,
                "proof": proof,
                "about": dict(about or {}),
            }
            if sent is None and charge.local_event is not None:
                local = local_loss_of(charge.local_event)
            least = least_local(charge, body, local)
            body["local_epsilon"] = finite(least)
            body["overspent"] = overspends(charge, loss, least)
            it.append(SETTLE, body)
            return part_of(charge, it.rows[-1]) if charge.is_block else followed(
                charge, it.rows[-1]
            )  # fmt: skip

    def abandon(
        self,
        run_id: str,
        *,
        randomized: bool,
        why: str,
        part: str = "",
        count: int | None = None,
        attempt: str | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Give the central price back: only for a run of which provably nothing was released.

        Args:
            run_id: of an open reservation.
            randomized: whether people may have sent reports already; the local epsilon is then
                spent. So it is where the run was started more than once.
            why, about: for the record.
            part: of a block, the window or round; "" for what is left of it.
            count: of what is left of a block, so many; default: all.
            attempt: token of the start that gives up; a start that was overtaken cannot.

        Raises:
            LedgerError: if there is no such open reservation.
        """
        with self._writing(run_id, attempt) as it:
            charge = _charge(it.appender, run_id)
            ended = _ended_part(it.appender, charge, part)
            _check_attempt(charge, attempt)
            if ended is not None:
                if ended.status == "abandoned":
                    return ended
                raise LedgerError(f"run {ended.run_id!r} is {ended.status} already")
            _check_open(charge)
            number = charge.count if charge.is_block and not part and count is None else count or 1
            if not 1 <= number <= charge.count or (part and number != 1):
                raise LedgerError(f"run {run_id!r} has {charge.count:,} open parts, not {number:,}")
            spent = randomized or charge.attempts > 1
            it.append(
                ABANDON,
                {
                    **self._end(charge, part, "abandon", number),
                    "identity_digest": None,
                    "local_epsilon": finite(charge.reserved_local if spent else 0.0),
                    "about": {**(about or {}), "abandoned": why},
                },
            )
            return part_of(charge, it.rows[-1]) if charge.is_block else followed(
                charge, it.rows[-1]
            )  # fmt: skip

    def republish(
        self,
        run_id: str,
        event: Any = None,
        *,
        identity: ReleaseIdentity,
        report_digest: str,
        reason: str = "people",
        cells: Any = None,
        published: int | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> Charge:
        """Release the same memoized reports once more, in place of the first publication's charge.

        Equal reports are free. Where other *people* are in them, and nobody's value has changed,
        one event covers both publications (spec "several releases", section 1): it takes the place
        of the first, and is never less. People lose nothing more locally: they send the same
        reports. Other *values* have no price: the caller refuses them.

        Args:
            run_id: of the settled charge; of a block, `identity` says which part.
            event: what all publications together cost; None where the reports are equal.
            identity: of the release.
            report_digest: keyed digest of the sorted reports.
            reason: only "people".
            cells: how many people are in each set of publications, for the record.
            published: how many publications the event covers beside this one; a publication that
                came in between is then refused, for the event would leave it out.
            about: JSON-able values for the record.

        Raises:
            BudgetExceededError: if it does not fit.
            LedgerError: if there is no such settled release of memoized noise, or the reports are
                others and no event is given.
        """
        if reason != "people":
            raise LedgerError(
                f"reason must be 'people', got {str(reason)[:40]!r}: memoized reports about other "
                "values, beside the first ones, have no finite epsilon"
            )
        check_name("report_digest", report_digest)
        told = None if event is None else as_json(event)
        if told is not None:
            first = self.charge(run_id)
            known = population_of_charge(self._opened(first.dataset), first)
            loss_of(told, budget_of(known, run_id).orders)
        self._check_anchors()
        with self._writing(run_id) as it:
            whole = _charge(it.appender, run_id)
            label = identity.part if whole.is_block else ""
            _check_identity(whole, identity)
            charge = _ended_part(it.appender, whole, label)
            if charge is None or charge.status != "settled" or not charge.memoized:
                raise LedgerError(f"run {run_id!r} is no settled release of memoized noise")
            if charge.report_digest is not None and charge.report_digest == report_digest:
                return charge
            if published is not None and published != charge.published:
                raise LedgerError(
                    f"run {run_id!r} was published once more in the meantime: start again, so that "
                    "the price covers that publication too"
                )
            if told is None:
                raise LedgerError(
                    f"the reports of run {run_id!r} are not those that were published: name what "
                    "both publications cost together (event), if only people were exchanged"
                )
            population = self._population_for(it, charge)
            loss = loss_of(told, budget_of(population, charge.dataset).orders)
            covering = loss.at_least(charge.loss)
            more = covering.above(charge.loss)
            check_fits(population, charge.dataset, charge.period, more, 0.0, 1, charge.quota)
            it.append(
                REPLACE,
                {
                    **_place(charge, run_id=run_id, part=label),
                    "left": whole.count,
                    "event": told,
                    "loss": covering.to_json(),
                    "gives_back": charge.loss.to_json(),
                    "report_digest": report_digest,
                    "reason": reason,
                    "cells": cells,
                    "about": dict(about or {}),
                },
            )
            return followed(charge, it.rows[-1])

    def _population_for(self, it: _Writing, charge: Charge) -> Population:
        """Where the people of a charge stand in its period; checkpoints forget closed ones."""
        population = it.books.populations[charge.population]
        if charge.period == max(population.accounts):
            return population
        self._state.apply(_after(self._state.head, it.appender))
        return self._state.populations[charge.population]

    def _end(self, charge: Charge, part: str, kind: str, count: int = 1) -> dict[str, Any]:
        """What every row says that ends a charge."""
        return {
            **_place(charge, part=part),
            "attempt": charge.attempt,
            "count": count,
            "left": charge.count - count,
            "gives_back": charge.loss.to_json(),
            "gives_back_local": finite(charge.reserved_local),
        }

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
                    "store holds no hashes that can be counted, though people were counted before: "
                    "is it another folder?"
                )
            if counted != last and (counted.covered or last is not None):
                body = {"population": known.name, "period": period, **counted.to_json()}
                covered = covered_local(counted, ended).to_json()
                it.append(PEOPLE, {**body, "covered_local": covered})
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
        acceptable = found and (found[0].kind == BUDGET or "succeeds" in found[0].body)
        if not acceptable:
            raise LedgerError(f"row {row} is no budget, and no succession, that could be accepted")
        with self._writing() as it:
            made = Acceptance(it.books.ledger_id, row, found[0].hash, by, why).sign(key)
            it.append(ACCEPT, made.to_json())

    def checkpoint(self) -> None:
        """Write all totals into a row of their own, so that opening need not read what is before.

        Writers do it by themselves every 256 rows.
        """
        with self._writing() as it:
            it.append(CHECKPOINT, {"books": it.books.to_json()})

    # Inside ---------------------------------------------------------------------------------

    @contextmanager
    def _writing(self, run_id: str | None = None, attempt: str | None = None) -> Iterator[_Writing]:
        """The books as of now, and a way to append; nobody else writes until it is committed."""
        with self._alone:
            it: _Writing | None = None
            try:
                with self._store.writing() as appender:
                    it = _Writing(self, self._current(appender), appender)
                    yield it
                    if it.rows and it.books.since_checkpoint >= CHECKPOINT_EVERY:
                        it.append(CHECKPOINT, {"books": it.books.to_json()})
            except BaseException as error:
                if it is not None and it.rows:
                    self._books = None  # what was appended may not be there
                if isinstance(error, LedgerUnavailableError) and run_id is not None:
                    raise error.about(run_id, attempt) from None
                raise
            if it.rows and self._anchoring is not None:
                self._anchoring.after_append(it.books.ledger_id, it.books.head)

    def _check_anchors(self) -> None:
        """An AnchorError if the ledger was set back, or nobody can tell."""
        if self._anchoring is not None:
            books = self.books
            self._anchoring.check_before_reserve(books.ledger_id, books.head, self._store.rows)

    def _opened(self, dataset: str) -> Books:
        """The books as they were last read: for what does not change, such as orders.

        A dataset that others have made since is looked for anew.
        """
        if self._books is not None and dataset in self._books.datasets:
            return self._books
        return self.books

    def _current(self, reader: Reader) -> Books:
        """The books as of now. The last row that we know must still be there."""
        if self._books is None:
            checkpoint = reader.last_checkpoint()
            books = Books() if checkpoint is None else Books.from_checkpoint(checkpoint)
            books.apply(reader.rows(books.head.count))
            self._books = books
        else:
            self._books.apply(_after(self._books.head, reader))
        return self._books

    def _time(self, reader: Reader) -> tuple[str, bool]:
        """The time, and whether it is the database's."""
        if self._clock is not None:
            return as_text(self._clock()), False
        found = reader.now()
        return (as_text(datetime.now(timezone.utc)), False) if found is None else (
            as_text(found), True
        )  # fmt: skip


class _Writing:
    """One transaction: the books as of now, and what is appended to them."""

    def __init__(self, ledger: BudgetLedger, books: Books, appender: Appender) -> None:
        self.books, self.appender, self.rows = books, appender, list[Row]()
        self._ledger = ledger
        self._now: tuple[str, bool] | None = None

    def time(self, kind: str) -> str:
        """The time of the next row of a kind.

        Raises:
            LedgerError: if the clock has jumped.
        """
        if self._now is None:
            self._now = self._ledger._time(self.appender)
        now, trusted = self._now
        return row_time(now, self.books.time, decides=kind in _DECIDES, trusted=trusted)

    def append(self, kind: str, body: dict[str, Any]) -> None:
        """Add a row."""
        head = self.books.head
        body = {"time": self.time(kind) if kind != TIME else body["time"], **body}
        told = self._ledger._writer.told(head, kind, body)
        row = next_row(head, kind, {**body, "writer": told})
        if kind != CHECKPOINT:
            check_size(row)
        self.rows.append(row)
        self.books.apply([row])
        self.appender.append(row)


def _after(head: Head, reader: Reader) -> list[Row]:
    """What others appended; the last row we know must still be there."""
    found = reader.rows(max(0, head.count - 1))
    last = found.pop(0).hash if head.count and found else NO_HASH
    if head.count and last != head.hash:
        raise LedgerCorruptedError("rows that were there are gone or changed")
    return found


def _charge(reader: Reader, run_id: str, part: str = "") -> Charge:
    rows = reader.rows_of_run(run_id, part)
    if not rows:
        raise LedgerError(f"the ledger holds no reservation of run {run_id!r}")
    whole = of_run(rows)
    if not part:
        return whole
    found = _ended_part(reader, whole, part)
    if found is None:
        raise LedgerError(f"part {part!r} of run {run_id!r} has not ended")
    return found


def _ended_part(reader: Reader, charge: Charge, part: str) -> Charge | None:
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


def _equal_releases(reader: Reader, identity: ReleaseIdentity, but: str = "") -> list[Charge]:
    """Charges of an equal identity, by whatever run."""
    found = []
    for row in reader.rows_of_identity(identity.digest.hex()) if identity.key else ():
        run_id, part = row.body["run_id"], row.body["part"]
        if run_id != but:
            found.append(_charge(reader, run_id, part))
    return found


def population_of_charge(books: Books, charge: Charge) -> Population:
    """The people of a charge."""
    return books.populations[charge.population]


def _place(charge: Charge, run_id: str | None = None, part: str = "") -> dict[str, Any]:
    """Where a row of a charge counts, and how it is found."""
    return {
        "run_id": run_id or charge.run_id,
        "part": part,
        "population": charge.population,
        "period": charge.period,
        "quota": charge.quota,
        "release_key": None,
        "identity_digest": None,
    }


def _check_identity(charge: Charge, identity: ReleaseIdentity) -> None:
    told = replace(identity, part="") if charge.is_block else identity
    if told != charge.identity:
        differs = ", ".join(charge.identity.differences(told))
        raise LedgerError(
            f"run {charge.run_id!r} was reserved for another release: it differs in its {differs}"
        )


def _check_attempt(charge: Charge, attempt: str | None) -> None:
    if attempt is None and charge.attempts > 1:
        raise LedgerError(
            f"run {charge.run_id!r} was started {charge.attempts} times: name the attempt that ends"
        )
    if attempt is not None and attempt != charge.attempt:
        raise LedgerError(
            f"another start of run {charge.run_id!r} took over: this one may not end it, and "
            "nothing of it may be published"
        )


def _check_open(charge: Charge) -> None:
    if charge.status != "reserved" and charge.is_block:
        raise BlockUsedUpError(f"all parts of run {charge.run_id!r} that were reserved have ended")
    if charge.status != "reserved":
        raise LedgerError(f"run {charge.run_id!r} is {charge.status} already")


def _differing(charge: Charge, body: dict[str, Any]) -> str:
    told = ReleaseIdentity.from_json(body["identity"])
    return f" (its release differs in its {', '.join(charge.identity.differences(told))})"
