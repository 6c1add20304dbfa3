"""The parts of a block of charges that have ended, as tests look at them."""

from __future__ import annotations

from beam_ldp.ledger import BudgetLedger, Charge


def parts_of(ledger: BudgetLedger, run_id: str) -> list[Charge]:
    """Windows of a run that were settled or abandoned, in the order in which they ended."""
    names = [
        row.body["part"]
        for row in ledger.rows()
        if row.kind in ("settle", "abandon") and row.body["run_id"] == run_id
    ]
    return [ledger.charge(run_id, name) for name in names if name]
