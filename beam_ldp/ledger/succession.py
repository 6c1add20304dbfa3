"""A way on for a damaged ledger: a successor that carries over what can be read, and says so.

Rows that were changed, lost or set back cannot be mended. A successor is a ledger of its own, whose
first row names the old one, its head, and what is wrong with it. It carries over

* every row up to the first fault, as it stands, under its number: datasets, budgets, charges,
  identities. Who published what, and what they may not publish again, stays;
* behind the fault, whatever raises what is spent (reservations, releases that cost more than was
  reserved, second publications), and nothing that lowers it;
* for each of these rows that does not follow from the rows that are left, for example a second
  publication of a run whose settlement stood behind the fault, a charge of its own event;
* for rows that are lost, changed, or do not follow, one charge in every population: of the whole
  budget, unless somebody states what they cost at most, with a name and a reason. What was stated
  instead of that is a fault of every audit until the auditor accepts the first row.

Every audit tells all of it, for ever.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import kinds
from beam_ldp.ledger.balances import Population
from beam_ldp.ledger.charges import Charge
from beam_ldp.ledger.connection import MLFLOW_URI
from beam_ldp.ledger.losses import as_json, finite, local_loss_of, loss_of
from beam_ldp.ledger.rows import (
    Anchor,
    ChainHead,
    LedgerCorruptedError,
    LedgerError,
    Row,
    faults,
    next_row,
    recorded,
    row_hash,
    short_name,
)
from beam_ldp.ledger.state import LedgerState
from beam_ldp.ledger.store import RowStore
from beam_ldp.randomizers.identity import ReleaseIdentity

_MOST_FAULTS = 20  # that the first row tells
_RAISING = (
    kinds.RESERVE,
    kinds.RESUME,
    kinds.BEGIN,
    kinds.REPLACE,
)  # kinds that never lower what is spent


@dataclass(frozen=True)
class Succession:
    """What a successor's first row says of the ledger before it.

    Attributes:
        ledger_id: of the old ledger.
        rows, head: rows that were found there, and the hash of the last one.
        sound: rows up to the first fault, carried over as they stand.
        carried: rows of this ledger that were carried over or charged for lost ones.
        unknown: rows that are lost or changed, or do not follow from the rows that are left.
        wrong: what is wrong with the old ledger.
        stated: what unknown rows cost at most, as somebody stated (a local epsilon per
            population); empty: the whole budget of each was charged.
        balances: per population, divergences and local epsilons that were carried over, by period.
        by, why: who decided it, and the reason.
    """

    ledger_id: str
    rows: int
    head: str
    sound: int
    carried: int
    unknown: int
    wrong: tuple[str, ...]
    stated: dict[str, float]
    balances: dict[str, Any]
    by: str
    why: str

    @classmethod
    def of(cls, row: Row) -> Succession | None:
        """What a first row says; None of a ledger that began with nothing."""
        told = row.body.get("succeeds") if row.kind == kinds.GENESIS else None
        if told is None:
            return None
        try:
            return cls(**{**told, "wrong": tuple(map(str, told["wrong"]))})
        except (KeyError, TypeError):
            raise LedgerCorruptedError("row 0 does not say what this ledger succeeds") from None

    def to_json(self) -> dict[str, Any]:
        """As the first row holds it."""
        return {**asdict(self), "wrong": list(self.wrong)}

    def told(self) -> list[str]:
        """In words, for audits."""
        found = [
            f"this ledger succeeds ledger {self.ledger_id} of {self.rows:,} rows (hash "
            f"{self.head}): {self.sound:,} rows were sound and are here as they stood; decided by "
            f"{self.by}, reason given: {self.why or 'none'}",
            *(f"of the old ledger: {fault}" for fault in self.wrong),
        ]
        if self.unknown and not self.stated:
            found.append(
                f"{self.unknown:,} rows were lost or changed, or do not follow; the whole budget "
                "of every population was charged for them"
            )
        return found

    def faults(self, rows: Sequence[Row]) -> list[str]:
        """What is wrong with it: a balance that was not carried over."""
        state = LedgerState()
        try:
            state.apply(rows[: self.carried])
        except LedgerCorruptedError:
            return ["what was carried over does not hold together"]
        if _balances(state) != self.balances:
            return ["the balances are not those that were carried over"]
        return []

    def leniencies(self) -> list[str]:
        """What was stated of lost rows instead of charging the whole budget for them."""
        return [
            f"{self.unknown:,} rows of the old ledger were lost or changed, or do not follow, and "
            f"{self.by} stated that they cost {name!r} a local epsilon of {local:g} at most"
            for name, local in self.stated.items()
        ]

    def charged(self, number: int) -> bool:
        """Whether a row was charged for what is uncertain of the old ledger: beyond any budget."""
        return self.sound <= number < self.carried


def succeed(
    old: RowStore,
    new: RowStore,
    *,
    why: str,
    by: str | None = None,
    lost_local_epsilon: float | None = None,
    anchors: Iterable[Anchor] = (),
) -> Succession:
    """Create a ledger that continues a damaged one.

    Args:
        old: the damaged ledger; it is only read. Nobody may use it any more.
        new: a place without a ledger.
        why, by: for the record; default: the login name.
        lost_local_epsilon: what the lost rows cost each population's people at most, a sum of local
            epsilons; default: the whole budget is charged for them.
        anchors: heads of the old ledger that were kept elsewhere: they show how many rows are gone.

    Returns:
        What the new ledger's first row says.

    Raises:
        LedgerError: if the old ledger holds together, or there is a ledger at the new place.
        LedgerUnavailableError: if a database is away.
    """
    record = recorded(by, why)
    rows, old_id = _old(old)
    sound = _sound(rows)
    gone, said = _gone(rows, old_id, anchors)
    if sound == len(rows) and not gone:
        raise LedgerError(
            "the old ledger is intact: there is nothing to succeed. If its database was reset, "
            "give the anchors that show it"
        )
    wrong = [*list(faults(rows))[:_MOST_FAULTS], *said] or ["a row does not follow from the others"]
    carried = _Carried(rows, sound, old_id)
    unknown = gone + _missing(rows, sound) + carried.dropped
    if unknown:
        carried.charge_lost(lost_local_epsilon)
    stated = {} if lost_local_epsilon is None or not unknown else {
        name: float(lost_local_epsilon) for name in carried.charged
    }  # fmt: skip
    found = Succession(
        ledger_id=old_id,
        rows=len(rows),
        head=rows[-1].hash,
        sound=sound,
        carried=len(carried.bodies) + 1,
        unknown=unknown,
        wrong=tuple(wrong),
        stated=stated,
        balances=_balances(carried.state),
        **record,
    )
    _write(new, found, carried, {k: rows[0].body[k] for k in (MLFLOW_URI,) if k in rows[0].body})
    return found


def _old(old: RowStore) -> tuple[list[Row], str]:
    """The old ledger's rows, and its id."""
    rows = old.rows()
    if not rows or rows[0].kind != kinds.GENESIS or not _is_whole(rows[0]):
        raise LedgerError("the old ledger's first row is gone or changed: nothing can be carried")
    return rows, str(rows[0].body["ledger_id"])


def _write(new: RowStore, found: Succession, carried: _Carried, named: dict[str, Any]) -> None:
    if new.version() is not None:
        raise LedgerError(f"{new.shown_url} already holds a ledger: give a new place")
    new.make()
    with new.writing() as appender:
        if appender.rows(0):
            raise LedgerError(f"{new.shown_url} already holds a ledger: give a new place")
        genesis = {"ledger_id": uuid.uuid4().hex, "succeeds": found.to_json(), **named}
        for row in carried.chained(genesis):
            appender.append(row)


class _Carried:
    """The rows that go over, chained anew.

    Attributes:
        dropped: rows behind the fault that raise what is spent and do not follow any more.
        charged: populations that are charged for unknown rows.
    """

    def __init__(self, rows: Sequence[Row], sound: int, old_id: str) -> None:
        self.state = LedgerState()
        self.bodies: list[tuple[str, dict[str, Any]]] = []
        self.charged: list[str] = []
        self.dropped = 0
        self._old = old_id[:12]
        self.state.apply([next_row(ChainHead(), kinds.GENESIS, {"ledger_id": "carried"})])
        for row in rows[1:sound]:
            self._take(row.kind, _unsigned(row))
        for row in rows[sound:]:
            if _is_whole(row) and _raises(row, self.state) and not self._try(row):
                self.dropped += 1
                self._charge_dropped(row)

    def charge_lost(self, local: float | None) -> None:
        """One charge in each population for rows whose price nobody knows; it stays open."""
        for name, population in self.state.populations.items():
            budget = population.budget
            if budget is not None:
                everything = 2 * (budget.epsilon + (budget.local_epsilon or 0.0)) + 1
                event = as_json(LocalRandomizerDpEvent(everything if local is None else local))
                lost = f"lost rows of {self._old}"
                self._take(kinds.RESERVE, self._open(population, f"{lost}: {name}", lost, event))
                self.charged.append(name)

    def chained(self, genesis: dict[str, Any]) -> Iterable[Row]:
        """All rows of the new ledger."""
        state = LedgerState()
        for kind, body in [(kinds.GENESIS, genesis), *self.bodies]:
            if kind == kinds.CHECKPOINT:
                body = {**body, "books": state.to_json()}
            row = next_row(state.head, kind, body)
            state.apply([row])
            yield row

    def _take(self, kind: str, body: dict[str, Any]) -> None:
        if kind == kinds.CHECKPOINT:
            body = {**body, "books": self.state.to_json()}
        self.state.apply([next_row(self.state.head, kind, body)])
        self.bodies.append((kind, body))

    def _try(self, row: Row) -> bool:
        """Carry a row behind the fault over; whether it follows from what is left."""
        body = _unsigned(row)
        body["time"] = max(str(body.get("time", "")), self.state.time)
        try:
            if row.kind == kinds.RESERVE:
                budget = self.state.population_of(body["dataset"]).granted
                body["period"] = budget.period_of(body["time"])
            self._take(row.kind, body)
        except Exception:  # of a row behind the fault nothing is certain
            return False
        return True

    def _charge_dropped(self, row: Row) -> None:
        """Charge the event of a row that does not follow, beside what its run has reserved."""
        body, name = row.body, f"row {row.number} of {self._old}"
        with suppress(Exception):  # the charge for unknown rows stands for it then
            population = self.state.populations[body["population"]]
            count = int(body["count"]) if row.kind == kinds.RESERVE else 1
            sent = body.get("local_event")
            self._take(
                kinds.RESERVE, self._open(population, name, name, body["event"], sent, count)
            )

    def _open(
        self,
        population: Population,
        run_id: str,
        release_id: str,
        event: dict[str, Any],
        sent: dict[str, Any] | None = None,
        count: int = 1,
    ) -> dict[str, Any]:
        """A reservation that stays open, for what nobody can settle."""
        budget, dataset = population.granted, min(population.datasets)
        charge = Charge(
            run_id=short_name(run_id),
            dataset=dataset,
            population=population.name,
            identity=ReleaseIdentity(dataset, release_id),
            reserved=event,
            settled=None,
            loss=loss_of(event, budget.orders),
            local_epsilon=local_loss_of(sent or event),
            status="reserved",
            about={"question": "rows of the old ledger that are lost or changed"},
            time=self.state.time,
            period=budget.period_of(self.state.time),
            number=self.state.head.count,
            memoized=False,
            attempt=uuid.uuid4().hex,
            count=count,
            is_block=count > 1,
            local_event=sent,
        )
        return {**charge.to_row(self.state.first_name_of(dataset)), "writer": None}


def _sound(rows: Sequence[Row]) -> int:
    """Rows up to the first that is no part of the chain, or does not follow."""
    state = LedgerState()
    for count, row in enumerate(rows):
        try:
            state.apply([row])
        except LedgerCorruptedError:
            return count
    return len(rows)


def _missing(rows: Sequence[Row], sound: int) -> int:
    """Rows behind the fault that are not there, or not what was written."""
    there = {row.number for row in rows[sound:] if _is_whole(row)}
    last = max((row.number for row in rows), default=-1)
    return sum(number not in there for number in range(sound, last + 1))


def _gone(rows: Sequence[Row], ledger_id: str, anchors: Iterable[Anchor]) -> tuple[int, list[str]]:
    """Rows that there were by an anchor and that are not there; and what is wrong, in words."""
    ours = [anchor for anchor in anchors if anchor.ledger_id == ledger_id and anchor.count]
    wrong = [anchor for anchor in ours if anchor.fault(rows, ledger_id) is not None]
    if not wrong:
        return 0, []
    kept = max((anchor.count for anchor in ours if anchor not in wrong), default=0)
    most = max(wrong, key=lambda anchor: anchor.count)
    forked = any(0 < a.count <= len(rows) for a in wrong)
    gone = most.count - (kept if forked else min(len(rows), most.count))
    return gone, [str(most.fault(rows, ledger_id))]


def _is_whole(row: Row) -> bool:
    """Whether a row is what was once written, wherever it stands."""
    try:
        return row.hash == row_hash(row.number, row.kind, row.text, row.previous)
    except (ValueError, RecursionError):
        return False


def _raises(row: Row, state: LedgerState) -> bool:
    """Whether a row behind the fault may be believed: it lowers nothing that is spent."""
    body = row.body
    if row.kind in _RAISING or row.kind in (kinds.DATASET, kinds.RENAME):
        return True
    if row.kind == kinds.BUDGET:
        population = state.populations.get(body.get("population", ""))
        return population is not None and population.budget is None
    return row.kind == kinds.SETTLE and bool(body.get("overspent"))


def _unsigned(row: Row) -> dict[str, Any]:
    """The body; a signature covers the old chain, and is worth nothing in another."""
    writer = row.body.get("writer")
    if not isinstance(writer, dict):
        return dict(row.body)
    return {**row.body, "writer": {**writer, "key": None, "signature": None}}


def _balances(state: LedgerState) -> dict[str, Any]:
    return {
        name: {
            str(period): {
                "loss": population.loss(period).to_json(),
                "local_epsilon": finite(population.local_loss(period)),
            }
            for period in sorted(population.accounts)
        }
        for name, population in state.populations.items()
        if population.budget is not None
    }
