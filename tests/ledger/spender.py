"""A program that spends: many of them at once, killed at random, must not break the ledger.

All of them are forked from one server that has imported the library: imports, of seconds each,
would take longer than what is tested.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetExceededError, BudgetLedger
from tests.ledger.asked import asked

EVENT = LocalRandomizerDpEvent(0.001)


_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload([__name__])


@dataclass(frozen=True)
class Program:
    """One that was started, and the file in which it says what it did."""

    process: BaseProcess
    told: Path

    @classmethod
    def start(cls, url: str, name: str, count: int, folder: Path) -> Program:
        told = folder / f"{name}.txt"
        process = _FORKING.Process(target=spend, args=(url, name, count, told))
        process.start()
        return cls(process, told)

    @property
    def lives(self) -> bool:
        return self.process.is_alive()

    def kill(self) -> None:
        """At once, wherever it is."""
        self.process.kill()

    def ended(self, seconds: float) -> list[tuple[str, str]]:
        """Waits for its end; what it said: "settled" or "refused", and the run."""
        self.process.join(seconds)
        assert self.process.exitcode in (0, -9), f"ended with {self.process.exitcode}"
        lines = self.told.read_text().splitlines() if self.told.exists() else []
        return [(word, run_id) for word, _, run_id in (line.partition(" ") for line in lines)]


def spend(url: str, name: str, count: int, told: Path) -> None:
    """Reserve and settle `count` times, or until the budget is used up."""
    ledger = BudgetLedger(url)
    draw = random.Random(name)
    with told.open("w", buffering=1) as out:  # line by line: it may be killed
        for i in range(count):
            run_id = f"{name}/{i}"
            asks = asked("visits", run_id)
            try:
                ledger.reserve("visits", run_id, EVENT, identity=asks)
            except BudgetExceededError:
                print("refused", run_id, file=out)
                return
            if draw.random() < 0.1:
                ledger.abandon(run_id, randomized=True, why="drawn so")
            else:
                ledger.settle(run_id, EVENT, identity=asks)
                print("settled", run_id, file=out)
