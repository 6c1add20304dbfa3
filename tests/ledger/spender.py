"""A program that spends: many of them at once, killed at random, must not break the ledger.

Run as `python -m tests.ledger.spender URL NAME COUNT`; prints each run that it has settled.
"""

from __future__ import annotations

import random
import sys

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetExceededError, BudgetLedger
from tests.ledger.asked import asked

EVENT = LocalRandomizerDpEvent(0.001)


def spend(url: str, name: str, count: int) -> None:
    """Reserve and settle `count` times, or until the budget is used up."""
    ledger = BudgetLedger(url)
    draw = random.Random(name)
    for i in range(count):
        run_id = f"{name}/{i}"
        try:
            ledger.reserve("visits", run_id, EVENT, identity=asked("visits", run_id))
        except BudgetExceededError:
            print("refused", run_id, flush=True)
            return
        if draw.random() < 0.1:
            ledger.abandon(run_id, randomized=True, why="drawn so")
        else:
            ledger.settle(run_id, EVENT, identity=asked("visits", run_id))
            print("settled", run_id, flush=True)


if __name__ == "__main__":
    spend(sys.argv[1], sys.argv[2], int(sys.argv[3]))
