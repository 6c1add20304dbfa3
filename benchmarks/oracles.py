"""Cost of every frequency oracle, beside that of one secure word and of the public libraries.

    python -m benchmarks.oracles [--reports 1e6] [--repeat 7] [--no-peers] [--output FOLDER]

Each figure is the least of several runs over all reports, secure words included; "decode" is the
time from a histogram of that many reports to estimates with standard errors. The libraries run in
an environment of their own (made with uv if there is one, else with venv and pip) on fewer
reports, since they take one at a time. Writes oracles.json and oracles.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.randomizers import frequency
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.randomness import FreshWords
from benchmarks.measure import run_peers

PEERS = ("pure-ldp==1.2.0", "multi-freq-ldpy==0.2.5", "scikit-learn", "statsmodels")

# Domain sizes and budgets, with the most nanoseconds per report that we allow ourselves (None: no
# target). Every other oracle is measured once, without a target.
TARGETS: dict[str, tuple[tuple[int, float, float | None], ...]] = {
    "KRandomizedResponse": ((1000, 3.0, 5.0),),
    "HadamardResponse": ((1000, 1.0, 5.0), (22_000, 5.0, 5.0)),
    "BinaryHadamard": ((1000, 1.0, None),),
    "RecursiveHadamardResponse": ((1000, 3.0, 5.0), (22_000, 5.0, 5.0)),
    "ProjectiveGeometryResponse": ((1000, 1.0, None), (22_000, 5.0, 15.0)),
    "UnaryEncoding": ((1024, 1.0, 400.0),),
    "SubsetSelection": ((1024, 5.0, 100.0),),
    "Rappor": ((100, 1.0, None),),
}
ROWS: tuple[tuple[FrequencyOracle, float | None], ...] = tuple(
    (getattr(frequency, name)(size, budget), target)
    for name in frequency.__all__
    for size, budget, target in TARGETS.get(name, ((1000, 3.0, None),))
)
FEWER_REPORTS = {"UnaryEncoding": 10, "Rappor": 10, "LocalHashing": 10}  # by these factors


def least_seconds(action: Callable[[], object], repeat: int) -> float:
    """The least time of several runs; one run before compiles and warms up."""
    action()
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        action()
        times.append(time.perf_counter() - begin)
    return min(times)


def word_nanoseconds(repeat: int) -> float:
    """One secure 64-bit word, in blocks as the oracles draw them."""
    source, blocks, size = FreshWords(), 16, 1 << 16

    def draw() -> None:
        for _ in range(blocks):
            source.words(0, size, 1)

    return least_seconds(draw, repeat) / (blocks * size) * 1e9


def measure(oracle: FrequencyOracle, reports: int, repeat: int) -> dict[str, Any]:
    """Nanoseconds per report to randomize, accumulate, pack and unpack; milliseconds to decode."""
    reports = max(1000, reports // FEWER_REPORTS.get(type(oracle).__name__, 1))
    values = np.random.default_rng(0).integers(0, oracle.domain_size, reports)
    drawn = oracle.randomize(values)
    statistic = oracle.accumulate(drawn)
    data = oracle.pack(drawn)

    def per_report(action: Callable[[], object]) -> float:
        return least_seconds(action, repeat) / reports * 1e9

    return {
        "oracle": type(oracle).__name__,
        "domain_size": oracle.domain_size,
        "local_epsilon": oracle.local_epsilon,
        "bits": oracle.bits_per_report,
        "reports": reports,
        "unspent_epsilon": oracle.local_epsilon - oracle.log_ratio_max(),
        "randomize_ns": per_report(lambda: oracle.randomize(values)),
        "accumulate_ns": per_report(lambda: oracle.accumulate(drawn)),
        "pack_ns": per_report(lambda: oracle.pack(drawn)),
        "unpack_ns": per_report(lambda: oracle.unpack(data, reports)),
        "decode_ms": least_seconds(lambda: oracle.estimate(statistic, reports), repeat) * 1e3,
    }


def measure_peers() -> list[dict[str, Any]]:
    """The public libraries, installed into a temporary environment and run there."""
    return list(run_peers("oracles_peers.py", PEERS))


def table(result: dict[str, Any]) -> str:
    """The result as a Markdown page."""
    lines = [
        "# Cost of the frequency oracles",
        "",
        f"{result['machine']}; one secure word: {result['word_ns']:.2f} ns. Nanoseconds are per "
        "report, secure words included; decode is for one histogram.",
        "",
        "| oracle | k | eps | bits | randomize ns (target) | accumulate ns | pack / unpack ns "
        "| decode ms | unspent eps | libraries, ns |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["oracles"]:
        key = [row[name] for name in ("oracle", "domain_size", "local_epsilon")]
        peers = [
            f"{p['library']}: " + (f"{p['randomize_ns']:,.0f}" if "error" not in p else "fails")
            for p in result["peers"]
            if [p["ours"], p["domain_size"], p["local_epsilon"]] == key
        ]
        target = f" ({row['target_ns']:g})" if row["target_ns"] else ""
        lines.append(
            f"| {row['oracle']} | {row['domain_size']} | {row['local_epsilon']:g} | {row['bits']} "
            f"| {row['randomize_ns']:.2f}{target} | {row['accumulate_ns']:.2f} "
            f"| {row['pack_ns']:.1f} / {row['unpack_ns']:.1f} | {row['decode_ms']:.3f} "
            f"| {row['unspent_epsilon']:.0e} | {'; '.join(peers) or '-'} |"
        )
    failures = [p for p in result["peers"] if "error" in p]
    if failures:
        lines += ["", "Libraries that do not run:", ""]
        lines += [f"- {p['library']}, {p['oracle']}: `{p['error'][:160]}`" for p in failures]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Measure, write both files, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reports", type=float, default=1e6)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    result: dict[str, Any] = {
        "schema_version": 1,
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python "
        f"{platform.python_version()}, NumPy {np.__version__}",
        "word_ns": word_nanoseconds(options.repeat),
        "oracles": [],
    }
    for oracle, target in ROWS:
        row = measure(oracle, int(options.reports), options.repeat)
        result["oracles"].append(row | {"target_ns": target})
    result["peers"] = [] if options.no_peers else measure_peers()
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "oracles.json").write_text(json.dumps(result, indent=2) + "\n")
    (options.output / "oracles.md").write_text(table(result))
    print(table(result))
    return result


if __name__ == "__main__":
    main()
