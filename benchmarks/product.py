"""Ours beside its limits and its peers, in one run, as ratios with their spread.

    python -m benchmarks.product run [--peers .venv-peers/bin/python]   # tables and a plot
    python -m benchmarks.product gate                                   # less than a minute
    python -m benchmarks.product commit                                 # new committed ratios

A ratio is ours over a limit of the machine (a secure word, NumPy's bincount, a copy of the bytes)
that is measured in the same breath, so that it says little about the machine and its load. Rounds
alternate between the two; the ratio is the median over rounds, its spread the least and the
largest. The gate fails where a ratio is more than twice the committed one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from beam_ldp.randomizers.frequency import (
    HadamardResponse,
    KRandomizedResponse,
    ProjectiveGeometryResponse,
    RecursiveHadamardResponse,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import L2Mean, PrivUnit
from beam_ldp.randomizers.randomness import FreshWords, UserRandomness
from beam_ldp.transforms.elements.block_coder import BlockCoder
from beam_ldp.transforms.elements.blocks import ReportBlock
from beam_ldp.transforms.shuffler.batches import permute

COMMITTED = Path(__file__).with_name("ratios.json")
WORSE = 2.0  # times the committed ratio: the gate fails
ROUNDS = 7
REPORTS = 1 << 18
FEW = 1 << 13

Work = Callable[[], object]


def works() -> dict[str, tuple[str, int, Work]]:
    """Name to `(limit, items, work)`; the limits are among them, and stand over themselves."""
    generator = np.random.default_rng(0)
    values = generator.integers(0, 266, REPORTS).astype(np.uint16)
    oracle = KRandomizedResponse(266, 4.0)
    reports = oracle.randomize(values)
    packed = oracle.pack(reports)
    coder = BlockCoder(ReportBlock)
    block = ReportBlock(reports, oracle.config_digest())
    encoded = coder.encode(block)
    memoized = UserRandomness(
        bytes(range(32)), np.arange(REPORTS), ReleaseIdentity("people", "release")
    )
    vectors = generator.standard_normal((FEW // 8, 784), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    wide = generator.standard_normal((FEW // 8, 784))
    word, count, copy = "secure word", "bincount", "copy"
    normal = "normals"

    def oracle_work(made: Any, number: int = REPORTS) -> tuple[str, int, Work]:
        drawn = generator.integers(0, made.domain_size, number)
        return word, number, lambda: made.randomize(drawn)

    return {
        word: (word, REPORTS, lambda: FreshWords().words(0, REPORTS, 1)),
        count: (count, REPORTS, lambda: np.bincount(reports, minlength=266)),
        copy: (copy, REPORTS, reports.copy),
        normal: (normal, vectors.size, lambda: np.random.default_rng().standard_normal(wide.shape)),
        "k-RR": oracle_work(oracle),
        "k-RR, memoized": (word, REPORTS, lambda: oracle.randomize(values, memoized)),
        "Hadamard response": oracle_work(HadamardResponse(1000, 1.0)),
        "recursive Hadamard": oracle_work(RecursiveHadamardResponse(1000, 3.0)),
        "projective geometry": oracle_work(ProjectiveGeometryResponse(1000, 3.0)),
        "subset selection": oracle_work(SubsetSelection(1024, 5.0), FEW),
        "unary, 1024 bits": oracle_work(UnaryEncoding(1024, 1.0), FEW),
        "accumulate k-RR": (count, REPORTS, lambda: oracle.accumulate(reports)),
        "permute": (word, REPORTS, lambda: permute(reports)),
        "pack": (word, REPORTS, lambda: oracle.pack(reports)),
        "unpack": (word, REPORTS, lambda: oracle.unpack(packed, REPORTS)),
        "encode block": (copy, REPORTS, lambda: coder.encode(block)),
        "decode block": (copy, REPORTS, lambda: coder.decode(encoded)),
        "PrivUnit, d = 784": (normal, vectors.size, _vectors(PrivUnit(784, 4.0), vectors)),
        "L2Mean, d = 784": (normal, vectors.size, _vectors(L2Mean(784, 4.0), vectors)),
    }


def _vectors(mechanism: Any, vectors: np.ndarray) -> Work:
    return lambda: mechanism.randomize(vectors)


def nanoseconds(work: Work, items: int) -> float:
    """Of one item, the least of three runs."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        times.append(time.perf_counter() - begin)
    return min(times) / items * 1e9


def ratios(rounds: int = ROUNDS) -> dict[str, dict[str, Any]]:
    """Every work over its limit: `ns`, `limit`, `ratio`, `least`, `most`."""
    all_works = works()
    for _, _, work in all_works.values():
        work()  # compiles
    found: dict[str, dict[str, Any]] = {}
    for name, (limit, items, work) in all_works.items():
        pairs = []
        for _ in range(rounds):
            ours = nanoseconds(work, items)
            _, limit_items, limit_work = all_works[limit]
            pairs.append((ours, ours / nanoseconds(limit_work, limit_items)))
        quotients = [quotient for _, quotient in pairs]
        found[name] = {
            "ns": min(ours for ours, _ in pairs),
            "limit": limit,
            "ratio": median(quotients),
            "least": min(quotients),
            "most": max(quotients),
        }
    return found


def regressions(found: dict[str, dict[str, Any]], committed: dict[str, float]) -> list[str]:
    """What is more than `WORSE` times its committed ratio, and what one side lacks."""
    said = [f"{name}: not committed" for name in found if name not in committed]
    said += [f"{name}: no longer measured" for name in committed if name not in found]
    for name, before in committed.items():
        # The least ratio: a single loaded moment is no regression.
        if name in found and found[name]["least"] > WORSE * before:
            said.append(
                f"{name}: {found[name]['least']:.2f} times {found[name]['limit']}, committed "
                f"{before:.2f}"
            )
    return said


def our_beam_seconds(records: int) -> float:
    """The job of the peers on Beam: the same rows, the same runner."""
    import apache_beam as beam

    from beam_ldp.transforms import PrivateFrequencies

    rows = list(np.random.default_rng(0).integers(0, 266, records).tolist())
    begin = time.perf_counter()
    with beam.Pipeline(runner="FnApiRunner") as pipeline:
        releases = (
            pipeline
            | beam.Create(rows)
            | PrivateFrequencies(KRandomizedResponse(266, 4.0), min_reports=100)
        )
        releases | beam.Map(lambda release: release.num_reports)
    return time.perf_counter() - begin


def peers(python: Path, records: int) -> list[dict[str, Any]]:
    """Ours and theirs on the same job, interleaved over three rounds."""
    script = Path(__file__).with_name("beam_peers.py")
    rows: dict[str, list[dict[str, Any]]] = {}
    for _ in range(3):
        ours = our_beam_seconds(records) / records * 1e9
        done = subprocess.run(
            [str(python), str(script), str(records)], check=True, timeout=900,
            capture_output=True, text=True,
        )  # fmt: skip
        for row in json.loads(done.stdout.splitlines()[-1]):
            rows.setdefault(row["library"], []).append({**row, "ours_ns": ours})
    found = []
    for library, measured in rows.items():
        if any("error" in row for row in measured):
            found.append({"library": library, "error": measured[0].get("error", "")})
            continue
        own = "ours_ns"
        if "Beam" not in library:
            own_ns = nanoseconds(*_one_core())
            measured = [{**row, own: own_ns} for row in measured]
        quotients = [row["ns_per_record"] / row[own] for row in measured]
        found.append(
            {
                "library": library,
                "ns": min(row["ns_per_record"] for row in measured),
                "ours_ns": min(row[own] for row in measured),
                "ratio": median(quotients),
                "least": min(quotients),
                "most": max(quotients),
            }
        )
    return found


def _one_core() -> tuple[Work, int]:
    oracle = KRandomizedResponse(266, 4.0)
    values = np.random.default_rng(0).integers(0, 266, REPORTS)
    oracle.randomize(values)
    return lambda: oracle.randomize(values), REPORTS


def page(found: dict[str, dict[str, Any]], beside: list[dict[str, Any]]) -> str:
    """Both tables, as Markdown."""
    lines = ["| step | ns per item | limit | times the limit | spread |", "|---|---|---|---|---|"]
    for name, row in found.items():
        if name != row["limit"]:
            lines.append(
                f"| {name} | {row['ns']:.2f} | {row['limit']}, {found[row['limit']]['ns']:.2f} ns "
                f"| {row['ratio']:.2f} | {row['least']:.2f} to {row['most']:.2f} |"
            )
    if beside:
        lines += [
            "",
            "| peer | ns per record | ours | peer over ours | spread |",
            "|---|---|---|---|---|",
        ]
        for row in beside:
            if "error" in row:
                lines.append(f"| {row['library']} | does not run: `{row['error']}` | | | |")
            else:
                lines.append(
                    f"| {row['library']} | {row['ns']:,.0f} | {row['ours_ns']:,.1f} "
                    f"| {row['ratio']:,.1f} | {row['least']:,.1f} to {row['most']:,.1f} |"
                )
    return "\n".join(lines) + "\n"


def plot(found: dict[str, dict[str, Any]], path: Path) -> None:
    """Every step over its limit, with the spread."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = [(name, row) for name, row in found.items() if name != row["limit"]][::-1]
    figure, axes = plt.subplots(figsize=(7, 5))
    middle = [row["ratio"] for _, row in rows]
    low = [row["ratio"] - row["least"] for _, row in rows]
    high = [row["most"] - row["ratio"] for _, row in rows]
    axes.barh([f"{name} / {row['limit']}" for name, row in rows], middle, xerr=[low, high])
    axes.axvline(1, color="black", linewidth=1)
    axes.set(xscale="log", xlabel="times the limit (1: as fast as the machine allows)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Measure; print and write, compare, or commit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "gate", "commit"])
    parser.add_argument("--peers", type=Path, help="interpreter of the peers' environment")
    parser.add_argument("--records", type=float, default=1e5, help="of the jobs beside peers")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    found = ratios(3 if options.what == "gate" else ROUNDS)
    if options.what == "commit":
        numbers = {name: round(row["ratio"], 3) for name, row in found.items()}
        COMMITTED.write_text(json.dumps(numbers, indent=1) + "\n")
        return
    if options.what == "gate":
        print(page(found, []))
        worse = regressions(found, json.loads(COMMITTED.read_text()))
        print("\n".join(worse) or "no ratio is more than twice the committed one")
        sys.exit(bool(worse))
    beside = peers(options.peers, int(options.records)) if options.peers else []
    options.output.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"ratios": found, "peers": beside}, indent=1) + "\n"
    (options.output / "product.json").write_text(text)
    (options.output / "product.md").write_text(page(found, beside))
    plot(found, options.output / "product.png")
    print(page(found, beside))


if __name__ == "__main__":
    main()
