"""How long prices take: with nothing known beforehand, and when asked again.

    python -m benchmarks.accountant_speed [--repeat 3] [--output FOLDER]

"Cold" is the least of several first calls, every cache emptied before each; "warm" the least of
later ones. Prints a table, and writes accountant_speed.json and accountant_speed.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import time
from collections.abc import Callable
from functools import _lru_cache_wrapper
from pathlib import Path
from typing import NamedTuple

import dp_accounting
import numpy as np

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    event_epsilon,
    local_epsilon_for,
    shuffle_epsilon,
    shuffle_epsilons,
    shuffled_event,
)
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import L2Mean

HEADLINE = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 60_000, 2_000)
LONG = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 10**6, 1_000)
COINS = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(2.0), 10**6, 1_000, sampling="self")
ORACLE = KRandomizedResponse(100, 4.0)
BUDGETS = np.linspace(0.2, 6.0, 200)


class Case(NamedTuple):
    """What is measured, and the most seconds that we allow ourselves."""

    name: str
    run: Callable[[], object]
    cold_target: float | None = None
    warm_target: float | None = None


def run_of(event: dp_accounting.DpEvent, rounds: int, delta: float) -> Callable[[], object]:
    """The price of a training run, with its lower bounds."""
    return lambda: ShuffleAccountant().compose(event, rounds).get_epsilon(delta)


def next_round() -> Callable[[], object]:
    """The question before every round of a run, each time one round later."""
    accountant = ShuffleAccountant().compose(HEADLINE, 5_000)

    def ask() -> bool:
        accountant.compose(HEADLINE)
        return accountant.would_exceed(HEADLINE, epsilon=0.82, delta=1e-5)

    return ask


def mixed() -> object:
    """Two trainings, a dozen histograms and a year of weekly sums by a curator."""
    accountant = ShuffleAccountant().compose(LONG, 1000)
    accountant.compose(ShuffledDpEvent(ORACLE.dp_event(), 100_000), 12)
    accountant.compose(dp_accounting.GaussianDpEvent(40.0), 52)
    return accountant.compose(HEADLINE, 100).get_epsilon(1e-6)


def many_kinds() -> object:
    """A thousand releases of as many kinds: budgets and crowds that all differ."""
    accountant = ShuffleAccountant()
    for kind in range(1000):
        local = LocalRandomizerDpEvent(0.5 + (0.0137 * kind) % 3.5)
        accountant.compose(ShuffledDpEvent(local, 10_000 + 37 * kind), 1 + kind % 5)
    return accountant.get_epsilon(1e-8)


def cases() -> list[Case]:
    """What the table shows."""
    vectors = shuffled_event(L2Mean.for_shuffle(100, 1.0, 1e-6, 10_000), 10_000)
    return [
        Case("one shuffle, 1e4 reports", lambda: shuffle_epsilon(2.0, 10**4, 1e-8), 0.01),
        Case("one shuffle, 1e8 reports", lambda: shuffle_epsilon(2.0, 10**8, 1e-8), 0.01),
        Case("one shuffle, 1e12 reports", lambda: shuffle_epsilon(2.0, 10**12, 1e-8), 0.01),
        Case(
            "one shuffle, 1e8 reports, k-RR's own pair",
            lambda: shuffle_epsilon(ORACLE, 10**8, 1e-8),
            0.01,
        ),
        Case("several messages, 1e4 vectors", lambda: event_epsilon(vectors, 1e-6)),
        Case("training, 6000 rounds", run_of(HEADLINE, 6_000, 1e-5), 2.0, 0.05),
        Case("training, 100,000 rounds", run_of(LONG, 10**5, 1e-8), 2.0, 0.05),
        Case("the same with coins", run_of(COINS, 10**5, 1e-8)),
        Case("may one more round run? (5000 done)", next_round(), None, 0.05),
        Case("a ledger of four kinds", mixed),
        Case("a ledger of a thousand kinds", many_kinds, 5.0),
        Case("the local epsilon of a price", lambda: local_epsilon_for(1.0, 1e-8, 10**6), 0.02),
        Case("200 budgets at once", lambda: shuffle_epsilons(BUDGETS, 10**6, 1e-8)),
        Case(
            "200 budgets, one by one",
            lambda: [shuffle_epsilon(float(b), 10**6, 1e-8) for b in BUDGETS],
        ),
    ]


def forget() -> None:
    """Empty every cache of the accountant, as in a new process."""
    for thing in gc.get_objects():
        if isinstance(thing, _lru_cache_wrapper) and "accounting" in str(thing.__module__):
            thing.cache_clear()


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def measure(case: Case, repeat: int) -> dict[str, object]:
    """One row of the table."""
    cold, warm = [], []
    for _ in range(repeat):
        forget()
        cold.append(seconds(case.run))
        warm += [seconds(case.run) for _ in range(3)]
    return {
        "case": case.name,
        "cold": min(cold),
        "cold_target": case.cold_target,
        "warm": min(warm),
        "warm_target": case.warm_target,
    }


def table(rows: list[dict[str, object]]) -> str:
    """The rows as Markdown."""

    def cell(value: object, target: object) -> str:
        shown = f"{float(str(value)) * 1e3:,.1f} ms"
        return shown if target is None else f"{shown} (at most {float(str(target)) * 1e3:,.0f})"

    lines = ["| price of | cold | warm |", "|---|---|---|"]
    for row in rows:
        cold = cell(row["cold"], row["cold_target"])
        lines.append(f"| {row['case']} | {cold} | {cell(row['warm'], row['warm_target'])} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="first calls per case (default 3)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    rows = []
    for case in cases():
        rows.append(measure(case, options.repeat))
        print(f"  {case.name}: {rows[-1]['cold']:.3f} s, then {rows[-1]['warm']:.3f} s", flush=True)
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    text = f"# Speed of the accountant\n\n{table(rows)}\n\nMeasured on {machine}.\n"
    print("\n" + text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "accountant_speed.md").write_text(text)
    (options.output / "accountant_speed.json").write_text(
        json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
