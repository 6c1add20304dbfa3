"""A program that spends: many of them at once, killed at random, must not break the ledger.

A program makes its charges one by one and says of each what became of it. Started again under its
name it goes on where it was killed: with memoized noise it takes its open charge up, with fresh
noise it leaves it behind and goes to the next one.

All of them are forked from one server that has imported the library: imports, of seconds each,
would take longer than what is tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path

from beam_ldp.accounting import LocalRandomizerDpEvent
from beam_ldp.ledger import BudgetExceededError, BudgetLedger, LedgerError
from tests.ledger.asked import KEY, asked

EVENT = LocalRandomizerDpEvent(0.001)

_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload([__name__])


@dataclass
class Program:
    """One that was started, and the file in which it says what it did."""

    url: str
    name: str
    count: int
    told: Path
    process: BaseProcess
    kills: int = 0

    @classmethod
    def start(cls, url: str, name: str, count: int, folder: Path) -> Program:
        told = folder / f"{name}.txt"
        told.touch()
        return cls(url, name, count, told, _started(url, name, count, told))

    @property
    def lives(self) -> bool:
        return self.process.is_alive()

    def kill_and_restart(self) -> None:
        """Killed at once, wherever it is; another one goes on in its place."""
        self.process.kill()
        self.process.join(60)
        assert self.process.exitcode in (0, -9)
        self.kills += self.process.exitcode == -9
        self.process = _started(self.url, self.name, self.count, self.told)

    def ended(self, seconds: float) -> list[tuple[str, str]]:
        """Waits for its end; what it said: what became of each run."""
        self.process.join(seconds)
        assert self.process.exitcode == 0, f"ended with {self.process.exitcode}"
        lines = self.told.read_text().splitlines()
        return [(word, run_id) for word, _, run_id in (line.partition(" ") for line in lines)]


def _started(url: str, name: str, count: int, told: Path) -> BaseProcess:
    process = _FORKING.Process(target=spend, args=(url, name, count, told))
    process.start()
    return process


def is_memoized(name: str) -> bool:
    """Every second program sends the same reports again when it is started again."""
    return int(name.rpartition(" ")[2]) % 2 == 0


def spend(url: str, name: str, count: int, told: Path) -> None:
    """Make `count` charges, or as many as the budget allows; go on behind those that are told."""
    ledger = BudgetLedger(url)
    with told.open("a", buffering=1) as out:  # line by line: it may be killed
        for i in range(len(told.read_text().splitlines()), count):
            run_id = f"{name}/{i}"
            try:
                print(_charged(ledger, run_id, is_memoized(name), i % 10 == 3), run_id, file=out)
            except BudgetExceededError:
                print("refused", run_id, file=out)
                return


def _charged(ledger: BudgetLedger, run_id: str, memoized: bool, gives_up: bool) -> str:
    """Reserve a run and end it, or what became of it before this program was killed."""
    asks = asked("visits", run_id, key=KEY if memoized else "")
    if ledger.has_run(run_id):  # a program before this one was killed
        status = ledger.charge(run_id).status
        if status != "reserved":
            return status
        if not memoized:
            try:
                ledger.reserve("visits", run_id, EVENT, identity=asks)
            except LedgerError:
                return "left"  # open, and charged for good
            return "charged twice"
    charge = ledger.reserve("visits", run_id, EVENT, identity=asks, memoized=memoized)
    if gives_up:
        ledger.abandon(run_id, randomized=True, why="drawn so", attempt=charge.attempt)
        return "abandoned"
    ledger.settle(run_id, EVENT, identity=asks, attempt=charge.attempt)
    return "settled"
