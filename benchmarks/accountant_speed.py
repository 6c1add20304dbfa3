"""How long prices take: with nothing known beforehand, and when asked again.

    python -m benchmarks.accountant_speed [--repeat 3] [--output FOLDER] [--beside CHECKOUT]

"Cold" is the least of several first calls, every cache emptied before each; "warm" the least of
later ones; CPU time of this process. Beside a checkout of an earlier version ("before") every
case is run by both in turn, and a column says how many times as long the other one takes.
Prints a table, and writes accountant_speed.json and accountant_speed.md.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from functools import _lru_cache_wrapper, partial
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
    one = [
        Case(
            f"one shuffle of {local}, {reports:,} reports, delta {delta}",
            partial(shuffle_epsilon, local, reports, delta),
            0.01,
        )
        for local, reports, delta in (
            (1.0, 500, 1e-6),
            (1.0, 835, 1e-6),
            (8.0, 10**3, 1e-6),
            (8.0, 10**5, 1e-12),
            (2.0, 10**8, 1e-8),
            (0.1, 10**12, 1e-12),
        )
    ]
    own = [
        Case(
            f"one shuffle, {reports:,} reports, k-RR's own pair",
            partial(shuffle_epsilon, ORACLE, reports, 1e-8),
            0.01,
        )
        for reports in (120, 10**8)
    ]
    solved = [
        Case(
            f"the local epsilon of a price, {reports:,} reports",
            partial(local_epsilon_for, 1.0, 1e-6, reports),
            0.1,
        )
        for reports in (835, 10**6)
    ]
    return [
        *one,
        *own,
        Case("several messages, 1e4 vectors", lambda: event_epsilon(vectors, 1e-6)),
        Case("training, 6000 rounds", run_of(HEADLINE, 6_000, 1e-5), 2.0, 0.05),
        Case("training, 100,000 rounds", run_of(LONG, 10**5, 1e-8), 2.0, 0.05),
        Case("the same with coins", run_of(COINS, 10**5, 1e-8)),
        Case("may one more round run? (5000 done)", next_round(), None, 0.05),
        Case("a ledger of four kinds", mixed),
        Case("a ledger of a thousand kinds", many_kinds, 5.0),
        *solved,
        Case(
            "the local epsilon of a price, 120 reports, k-RR's own pair",
            lambda: local_epsilon_for(1.0, 1e-6, 120, lambda e: KRandomizedResponse(100, e)),
            0.1,
        ),
        Case("200 budgets at once", lambda: shuffle_epsilons(BUDGETS, 10**6, 1e-8), 0.1),
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
    """How long one call takes of this process, of all its threads."""
    start = time.process_time()
    run()
    return time.process_time() - start


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


def beside(checkout: Path, name: str, repeat: int) -> float:
    """How long the first call of a case takes with the library of another version."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--only", name, "--repeat", str(repeat)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(json.loads(found.stdout)["cold"])


def table(rows: list[dict[str, object]]) -> str:
    """The rows as Markdown."""

    def cell(value: object, target: object) -> str:
        shown = f"{float(str(value)) * 1e3:,.1f} ms"
        return shown if target is None else f"{shown} (at most {float(str(target)) * 1e3:,.0f})"

    other = "beside" in rows[0]
    lines = [
        "| price of | cold | warm |" + (" cold, before | times as long |" if other else ""),
        "|---|---|---|" + ("---|---|" if other else ""),
    ]
    for row in rows:
        cold, warm = (cell(row[each], row[f"{each}_target"]) for each in ("cold", "warm"))
        line = f"| {row['case']} | {cold} | {warm} |"
        if other:
            before = float(str(row["beside"]))
            line += f" {before * 1e3:,.1f} ms | {before / float(str(row['cold'])):.1f} |"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--repeat", type=int, default=3, help="first calls per case (default 3)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--beside", type=Path, help="checkout of an earlier version")
    parser.add_argument("--only", help="one case: prints a line of JSON, and writes nothing")
    options = parser.parse_args()
    if options.only is not None:
        (case,) = (case for case in cases() if case.name == options.only)
        print(json.dumps(measure(case, options.repeat)))
        return
    rows = []
    for case in cases():
        row = measure(case, options.repeat)
        if options.beside is not None:
            row["beside"] = beside(options.beside, case.name, options.repeat)
        rows.append(row)
        print(f"  {case.name}: {row['cold']:.4f} s, then {row['warm']:.4f} s", flush=True)
    machine = f"{platform.machine()}, Python {platform.python_version()}"
    text = f"# Speed of the accountant\n\n{table(rows)}\n\nCPU time, measured on {machine}.\n"
    print("\n" + text)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "accountant_speed.md").write_text(text)
    (options.output / "accountant_speed.json").write_text(
        json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
