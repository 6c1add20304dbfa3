"""The budget ledger at size: `python -m benchmarks.ledger [ROWS] [OPEN]`.

Builds a ledger in SQLite of ROWS rows of distinct events (default 100,000) with OPEN charges that
are open (default 10,000), and measures opening it, a reservation and a settlement, and an audit's
parts per row. Events are priced by a stand-in, for pricing is measured by itself: `price`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import attr

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.ledger import BudgetLedger, LedgerState, kinds
from beam_ldp.ledger.charges import release_key
from beam_ldp.ledger.connection import CHECKPOINT_EVERY
from beam_ldp.ledger.losses import Loss, as_json, loss_of, orders_for
from beam_ldp.ledger.rows import faults, next_row
from beam_ldp.randomizers.identity import ReleaseIdentity

EVENT = ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 100_000)


@dataclass(frozen=True)
class Figures:
    """Seconds of the processor; per call or per row where it says so."""

    rows: int
    open_charges: int
    opening: float
    reserve: float
    settle: float
    chain_per_row: float
    sums_per_row: float


def _distinct(i: int) -> ShuffledDpEvent:
    return attr.evolve(EVENT, num_reports=100_000 + i)


def _identity(name: str) -> ReleaseIdentity:
    return ReleaseIdentity("visits", name, mechanism="00", columns=("url",))


@contextmanager
def stand_in_prices():
    """Prices of one event for all: what is measured is the ledger."""
    prices = {}

    def price(event: dict, orders: tuple[float, ...]) -> Loss:
        if orders not in prices:
            prices[orders] = loss_of(as_json(EVENT), orders)
        return prices[orders]

    with (
        mock.patch("beam_ldp.ledger.ledger.loss_of", price),
        mock.patch("beam_ldp.ledger.admission.loss_of", price),
    ):
        yield


def build(folder: Path, rows: int, open_charges: int) -> BudgetLedger:
    """A ledger of so many rows: two that it wrote itself, and copies of them for other runs."""
    ledger = BudgetLedger.create(f"sqlite:///{folder / 'privacy.db'}")
    ledger.set_budget("visits", epsilon=1e6, delta=1e-6, local_epsilon=1e9)
    ledger.reserve("visits", "first", EVENT, identity=_identity("first"))
    ledger.settle("first", EVENT, identity=_identity("first"))
    *_, reserved, settled = ledger.rows()
    balances = ledger.balances
    charges = (rows - balances.head.count - open_charges) // 2 + open_charges
    with ledger._store.writing() as appender:

        def append(kind: str, body: dict) -> None:
            row = next_row(balances.head, kind, body)
            balances.apply([row])
            appender.append(row)

        for i in range(charges):
            run = {"run_id": f"run {i}", "event": {**reserved.body["event"]}}
            run["event"]["event"] = {**run["event"]["event"], "num_reports": 100_000 + i}
            identity = _identity(f"r{i}")
            found = {
                "identity": identity.to_json(),
                "identity_digest": identity.digest.hex(),
                "release_key": release_key("visits", "visits", identity),
            }
            append(kinds.RESERVE, {**reserved.body, **run, **found})
            if i >= open_charges:  # those of the first runs stay open
                append(kinds.SETTLE, {**settled.body, **run})
            if balances.since_checkpoint >= CHECKPOINT_EVERY:
                told = {name: reserved.body[name] for name in ("time", "writer")}
                append(kinds.CHECKPOINT, {**told, "books": balances.to_json()})
    ledger._store.close()
    return BudgetLedger(ledger.url)


def _timed(what, times: int = 1) -> float:
    """Of the processor: what other programs do meanwhile does not count."""
    began = time.process_time()
    for i in range(times):
        what(i)
    return (time.process_time() - began) / times


def measure(rows: int, open_charges: int, calls: int = 50) -> Figures:
    """Build one, and measure it."""
    with tempfile.TemporaryDirectory() as name, stand_in_prices():
        ledger = build(Path(name), rows, open_charges)
        opening = _timed(lambda _: BudgetLedger(ledger.url).status("visits"))
        fresh = BudgetLedger(ledger.url)
        fresh.status("visits")
        reserve = _timed(
            lambda i: fresh.reserve(
                "visits", f"new {i}", _distinct(i), identity=_identity(f"n{i}")
            ),
            calls,
        )
        settle = _timed(
            lambda i: fresh.settle(f"new {i}", _distinct(i), identity=_identity(f"n{i}")), calls
        )
        kept = fresh.rows()
        chain = _timed(lambda _: list(faults(kept)))
        sums = _timed(lambda _: LedgerState().apply(kept))
        return Figures(
            len(kept), open_charges, opening, reserve, settle, chain / len(kept), sums / len(kept)
        )


def price(orders: tuple[float, ...] | None = None) -> float:
    """Seconds that the price of one new event takes, at all orders of a budget."""
    chosen = orders or orders_for(1.0, 1e-8)
    loss_of(as_json(EVENT), chosen)
    return _timed(lambda i: loss_of(as_json(_distinct(1000 + i)), chosen), 5)


def main(argv: list[str]) -> None:
    """Measure, and print."""
    rows, open_charges = (
        int(argv[i]) if len(argv) > i else n for i, n in ((0, 100_000), (1, 10_000))
    )
    found = measure(rows, open_charges)
    print(f"{found.rows:,} rows, {found.open_charges:,} charges open")
    print(f"open from the last checkpoint   {found.opening:.3f} s")
    print(f"reserve                         {1e3 * found.reserve:.2f} ms")
    print(f"settle                          {1e3 * found.settle:.2f} ms")
    print(f"audit, chain                    {1e3 * found.chain_per_row:.4f} ms a row")
    print(f"audit, chain and sums           {1e3 * found.sums_per_row:.4f} ms a row")
    print(f"price of a new event            {1e3 * price():.1f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])
