"""The name of the next attempt at a batch, where earlier ones were killed."""

from __future__ import annotations

from beam_ldp.ledger import BudgetLedger, LedgerError
from beam_ldp.pipelines.records.charging import ChargeSettings
from beam_ldp.pipelines.records.interrupted_runs import find_interrupted_runs
from beam_ldp.pipelines.records.reserving import ledger_url


def free_name(settings: ChargeSettings, name: str, *, memoized: bool) -> str:
    """The first of `name`, `name-attempt-2`, ... that the next attempt may be charged under.

    One whose attempt released nothing was given back, and is over. One that was lost stays charged:
    memoized reports are drawn again under its name, others are new ones. One that is settled, or
    under way, keeps its name, so that the ledger refuses it again.
    """
    url = ledger_url(settings)
    if url is None:
        return name
    try:
        ledger = BudgetLedger(url)
    except LedgerError:
        return name  # which is said when it is asked for the charge
    alive = {
        run.note.run_id
        for run in find_interrupted_runs(settings.output.folder)
        if run.note.launcher.ended == "under way"
    }
    over = ("abandoned",) if memoized else ("abandoned", "reserved")
    attempt, told = 1, name
    while ledger.has_run(told) and told not in alive and ledger.charge(told).status in over:
        attempt += 1
        told = f"{name}-attempt-{attempt}"
    return told
