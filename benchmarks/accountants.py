"""Time and value of the accountant, beside public calculators.

    python -m benchmarks.accountants [--no-peers] [--checkouts FOLDER] [--output FOLDER]

Each of ours runs in a fresh process: cold is the first price there after the imports, warm the same
question again. The libraries are installed into a temporary environment and run there (see
`accountants_peers.py`); FOLDER may hold a clone of github.com/apple/ml-shuffling-amplification,
which is not packaged. Writes accountants.json and accountants.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShufflePair,
    SubsampledShuffledDpEvent,
    shuffle_epsilon,
)
from beam_ldp.accounting.divergences.hockey_stick import epsilon_bound
from beam_ldp.research.published.closed_forms import subsample

PEERS = ("dp-accounting==0.6.0", "prv-accountant==0.2.0", "autodp==0.2.3.1")

# What is asked, and the seconds that we allow ourselves, cold and warm.
TASKS: dict[str, tuple[dict[str, float], float, float]] = {
    "one shuffle: eps0 = 2, n = 1e8, delta = 1e-8": (
        {"local_epsilon": 2.0, "num_reports": 1e8, "delta": 1e-8},
        *(0.1, 0.1),
    ),
    "1e5 rounds of 1,000 among 1e6: eps0 = 2, delta = 1e-8": (
        {"local_epsilon": 2.0, "num_users": 1e6, "num_sampled": 1e3, "rounds": 1e5, "delta": 1e-8},
        *(2.0, 0.05),
    ),
    "6,000 rounds of 2,000 among 60,000: eps0 = 2, delta = 1e-5": (
        {"local_epsilon": 2.0, "num_users": 6e4, "num_sampled": 2e3, "rounds": 6e3, "delta": 1e-5},
        *(2.0, 0.05),
    ),
}


def price(task: dict[str, float]) -> dict[str, float]:
    """Our price of a task and its lower bound, cold and warm."""
    accountant = ShuffleAccountant()
    delta, eps0 = task["delta"], task["local_epsilon"]
    if "rounds" in task:
        event = SubsampledShuffledDpEvent(
            LocalRandomizerDpEvent(eps0), int(task["num_users"]), int(task["num_sampled"])
        )
        accountant.compose(event, int(task["rounds"]))
    else:
        shuffle_epsilon(0.5 * eps0, 1000, delta)  # imports of the numerical libraries

    def ask() -> Any:
        if "rounds" in task:
            return accountant.get_epsilon(delta)
        return shuffle_epsilon(eps0, int(task["num_reports"]), delta)

    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        bound = ask()
        seconds.append(time.perf_counter() - begin)
    return {
        "epsilon": float(bound),
        "lower": bound.class_lower,
        "cold": seconds[0],
        "warm": min(seconds[1:]),
    }


def for_peers(task: dict[str, float]) -> dict[str, float]:
    """The task as the composers take it: with what the clone pair proves of one round."""
    if "rounds" not in task:
        return task
    rate = task["num_sampled"] / task["num_users"]
    inner = task["delta"] / (2 * task["rounds"] * rate)
    pair = ShufflePair.clones(task["local_epsilon"])
    epsilon = epsilon_bound(pair, int(task["num_sampled"]), inner, upper=True)
    one, each = subsample(epsilon, inner, rate)
    return task | {"rate": rate, "round_epsilon": one, "round_delta": each}


def measure_ours(repeat: int) -> list[dict[str, Any]]:
    """Every task in processes of its own; the fastest counts."""
    rows = []
    for name, (task, cold, warm) in TASKS.items():
        runs = []
        for _ in range(repeat):
            command = [sys.executable, "-m", "benchmarks.accountants", "--price", json.dumps(task)]
            ran = subprocess.run(command, check=True, capture_output=True, text=True)
            runs.append(json.loads(ran.stdout))
        row = dict(runs[0]) | {key: min(run[key] for run in runs) for key in ("cold", "warm")}
        rows.append({"task": name, "cold_target": cold, "warm_target": warm} | row)
    return rows


def measure_peers(checkouts: Path | None) -> list[dict[str, Any]]:
    """The public calculators, in a temporary environment."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "env" / "bin" / "python"
        for command in (
            [sys.executable, "-m", "venv", f"{folder}/env"],
            [str(python), "-m", "pip", "install", "--quiet", *PEERS],
        ):
            subprocess.run(command, check=True, timeout=600)
        script = str(Path(__file__).with_name("accountants_peers.py"))
        extra = [] if checkouts is None else [str(checkouts.resolve())]
        for name, (task, *_) in TASKS.items():
            command = [str(python), script, json.dumps(for_peers(task)), *extra]
            ran = subprocess.run(
                command, check=True, timeout=1800, capture_output=True, text=True, cwd=folder
            )
            rows += [{"task": name} | row for row in json.loads(ran.stdout.splitlines()[-1])]
    return rows


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown page."""
    lines = [
        "# The accountant beside public calculators",
        "",
        f"{result['machine']}. Ours holds for every randomizer with this eps0 and says how far it "
        "can be from the best possible value; the libraries know no shuffle and compose what they "
        "are given. Ratios are theirs over ours.",
        "",
        "| release | calculator | what it computes | epsilon | ratio | seconds | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for ours in result["ours"]:
        lines.append(
            f"| {ours['task']} | **beam-ldp** | proved; at least {ours['lower']:.3g} for some "
            f"randomizer | **{ours['epsilon']:.4g}** | 1 | **{ours['cold']:.3f}** cold "
            f"(target {ours['cold_target']:g}), {ours['warm'] * 1e3:.1f} ms warm "
            f"(target {ours['warm_target'] * 1e3:g} ms) | 1 |"
        )
        for peer in result["peers"]:
            if peer["task"] != ours["task"]:
                continue
            figures = f"fails: {peer.get('error', '')} | - | - | -"
            if "error" not in peer:
                figures = (
                    f"{peer['epsilon']:.4g} | {peer['epsilon'] / ours['epsilon']:.3g} "
                    f"| {peer['seconds']:.3g} | {peer['seconds'] / ours['cold']:.3g}"
                )
            lines.append(f"| | {peer['library']} | {peer['computes']} | {figures} |")
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> None:
    """Measure, write both files, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=3, help="fresh processes per task")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--checkouts", type=Path, help="folder of cloned calculators")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--price", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.price is not None:
        print(json.dumps(price(options.price)))
        return
    result: dict[str, Any] = {
        "schema_version": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}",
        "ours": measure_ours(options.repeat),
        "peers": [] if options.no_peers else measure_peers(options.checkouts),
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "accountants.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.output / "accountants.md").write_text(table(result))
    print(table(result))


if __name__ == "__main__":
    main()
