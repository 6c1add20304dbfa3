"""Fits the cost model of `beam_ldp.planning.costs`, and tests it where it was not fitted.

    python -m benchmarks.costs fit [--reports 200000] [--jobs 2e7]     # writes costs.json
    python -m benchmarks.costs fit --only LimitedHadamard              # a new mechanism alone
    python -m benchmarks.costs check                                   # held-out mechanisms
    python -m benchmarks.costs table                                   # 1e9 to 1e12 reports

Kernels are timed alone, the least of several runs; `--jobs` times the pipeline around them at two
sizes. Held-out runs are mechanisms of other domains, dimensions and budgets, and jobs of another
mechanism, output and size than those that were fitted.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import nnls

from beam_ldp.planning.costs import SIZES, STEPS, JobCost, job_cost, sizes, step_nanoseconds
from beam_ldp.randomizers import frequency, mean
from beam_ldp.randomizers.base import FrequencyOracle, LocalRandomizer
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.transforms.shuffler.batches import permute, scatter
from benchmarks.mean_speed import least_seconds

COSTS = Path(__file__).resolve().parents[1] / "beam_ldp" / "planning" / "costs.json"
WITHIN = 0.25  # of a held-out measurement
SMALL_JOB = 10**7  # reports: enough for every worker to start, too few to take long
SMALL_WORK = 1 << 23  # numbers, or bytes of reports, in one timed run
ORACLES: tuple[type[FrequencyOracle], ...] = tuple(
    getattr(frequency, name) for name in frequency.__all__
)
ONE_NUMBER = tuple(kind.__name__ for kind in ORACLES if issubclass(kind, SymbolOracle))
LONG = tuple(kind.__name__ for kind in ORACLES if kind(64, 1.0).report_shape)
HASHED = tuple(sorted({kind.__name__ for kind in ORACLES} - {*ONE_NUMBER, *LONG}))
MEANS = ("PrivUnit", "PrivUnitGaussian", "L2Mean", "LInfMean", "L1Mean", "BinaryVectorMean")

Point = tuple[str, int, float]  # mechanism, domain size or dimension, local epsilon


def points(held_out: bool) -> list[Point]:
    """Where kernels are measured: to fit, or to test."""
    if held_out:
        grids: tuple[tuple[tuple[str, ...], tuple[tuple[int, float], ...]], ...] = (
            (ONE_NUMBER, ((3000, 2.0),)),
            (LONG, ((300, 2.0),)),
            (HASHED, ((600, 2.0),)),
            (MEANS, ((500, 4.0),)),
        )
    else:
        grids = (
            (ONE_NUMBER, ((20, 1.0), (1000, 1.0), (1000, 4.0), (22_000, 4.0))),
            (
                LONG,
                (
                    (20, 1.0),
                    (100, 1.0),
                    (100, 4.0),
                    (420, 1.0),
                    (420, 2.0),
                    (1000, 1.0),
                    (1000, 4.0),
                ),
            ),
            (HASHED, ((20, 1.0), (200, 1.0), (200, 3.0), (400, 2.0), (1000, 1.0), (1000, 3.0))),
            (MEANS, ((8, 4.0), (100, 4.0), (300, 4.0), (784, 4.0), (4000, 4.0))),
        )
    return [(name, *point) for names, grid in grids for name in names for point in grid]


def mechanism(point: Point) -> LocalRandomizer:
    """The mechanism of a point."""
    name, size, budget = point
    room = frequency if hasattr(frequency, name) else mean
    made: LocalRandomizer = getattr(room, name)(size, budget)
    return made


def values_for(randomizer: Any, count: int) -> np.ndarray:
    """Input of the kernels."""
    generator = np.random.default_rng(0)
    if isinstance(randomizer, FrequencyOracle):
        return generator.integers(0, randomizer.domain_size, count)
    if randomizer.norm == "binary":
        return (generator.random((count, randomizer.dimension)) < 0.5).astype(np.float32)
    vectors = generator.standard_normal((count, randomizer.dimension), dtype=np.float32)
    order = {"l1": 1, "l2": 2, "linf": np.inf}[randomizer.norm]
    return vectors / np.linalg.norm(vectors, ord=order, axis=1, keepdims=True)


def measure(randomizer: Any, reports: int, repeat: int) -> dict[str, float]:
    """Nanoseconds of processor time per report of every step."""
    scale = sizes(randomizer)
    count = int(max(64, min(reports, SMALL_WORK // max(scale[1], scale[2]))))
    if type(randomizer).__name__ in HASHED + LONG:
        count = min(count, max(1000, reports // 10))
    values = values_for(randomizer, count)
    drawn = randomizer.randomize(values)
    data = randomizer.pack(drawn)
    steps: dict[str, Callable[[], Any]] = {
        "randomize": lambda: randomizer.randomize(values),
        "accumulate": lambda: randomizer.accumulate(drawn),
        "permute": lambda: permute(drawn, randomizer.messages_per_user),
        "pack": lambda: randomizer.pack(drawn),
        "unpack": lambda: randomizer.unpack(data, count),
    }
    return {name: least_seconds(work, repeat) / count * 1e9 for name, work in steps.items()}


def fit_steps(measured: list[tuple[LocalRandomizer, dict[str, float]]]) -> dict[str, Any]:
    """Non-negative coefficients per mechanism and step, least in relative squares."""
    fitted: dict[str, Any] = {}
    for name in dict.fromkeys(type(randomizer).__name__ for randomizer, _ in measured):
        mine = [(sizes(r), times) for r, times in measured if type(r).__name__ == name]
        rows = np.array([size for size, _ in mine])
        fitted[name] = {}
        for step in STEPS:
            times = np.array([times[step] for _, times in mine])
            found, _ = nnls(rows / times[:, None], np.ones(len(times)))
            fitted[name][step] = [float(f"{c:.6g}") for c in found]
    return fitted


def kernels(
    held_out: bool, reports: int, repeat: int, only: str | None = None
) -> list[tuple[Any, dict[str, float]]]:
    """Measurements of all points, or of those of one mechanism."""
    found = []
    for point in points(held_out):
        if only not in (None, point[0]):
            continue
        randomizer = mechanism(point)
        found.append((randomizer, measure(randomizer, reports, repeat)))
        print(point, {k: round(v, 1) for k, v in found[-1][1].items()}, flush=True)
    return found


def least(runs: Sequence[list[tuple[Any, dict[str, float]]]]) -> list[tuple[Any, dict[str, float]]]:
    """Of several runs over the same points, far apart in time, the least time of every step."""
    return [
        (same[0][0], {step: min(times[step] for _, times in same) for step in STEPS})
        for same in zip(*runs, strict=True)
    ]


def held_out(
    fitted: dict[str, Any], measured: list[tuple[LocalRandomizer, dict[str, float]]]
) -> Iterator[tuple[str, str, float, float]]:
    """`(mechanism, step, measured, predicted)` of what was not fitted.

    Steps of a mechanism that are a tenth of its whole cost or less are left out: they do not
    matter to any prediction.
    """
    for randomizer, times in measured:
        whole = times["randomize"] + times["accumulate"]
        for step in STEPS:
            if times[step] > whole / 10:
                predicted = step_nanoseconds(randomizer, step, fitted)
                yield type(randomizer).__name__, step, times[step], predicted


def measure_job(reports: int) -> dict[str, float]:
    """The pipeline around the kernels: two sizes of one job, and what crosses it."""
    from benchmarks.scale import K_RR, LOCAL, Bench

    oracle = frequency.KRandomizedResponse(K_RR["domain_size"], K_RR["local_epsilon"])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(None, Path(folder) / "data", LOCAL)
        small = bench.file_run("statistic", "batch", SMALL_JOB, keep=False)
        large = bench.file_run("statistic", "batch", reports, keep=False)
        through = bench.file_run("reports", "global", reports, keep=False)
    took = measure(oracle, 1 << 20, 5)
    words = np.random.default_rng(0).integers(0, 2**63, 1 << 20).astype(np.uint64)
    route = least_seconds(lambda: scatter(words, 64), 5) / len(words) * 1e9
    read = 1.5
    kernel = took["randomize"] + took["accumulate"] + read
    marginal = (large["cpu_seconds"] - small["cpu_seconds"]) / (reports - SMALL_JOB) * 1e9
    overhead = max(1.0, marginal / kernel)
    steps = kernel + sum(took[step] for step in ("permute", "pack", "unpack")) + route
    crossed = (through["cpu_seconds"] - small["cpu_seconds"]) / reports * 1e9
    wire = oracle.bits_per_report / 8
    return {
        "start_seconds": small["seconds"],
        "start_cpu_seconds": small["cpu_seconds"] / 2,
        "read_ns_per_number": read,
        "route_ns": route,
        "exchange_ns_per_byte": max(0.5, (crossed / overhead - steps) / wire),
        "overhead": overhead,
        "base_bytes": small["worker_mib"] * 2**20,
    }


def check_jobs(reports: int) -> Iterator[tuple[str, float, float]]:
    """`(job, measured seconds, predicted)` of jobs that were not fitted, on two workers."""
    from benchmarks.scale import K_RR, LOCAL, Bench

    oracle = frequency.KRandomizedResponse(K_RR["domain_size"], K_RR["local_epsilon"])
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(None, Path(folder) / "data", LOCAL)
        ran = bench.file_run("reports", "batch", 2 * reports, keep=False)
        yield "k-RR, batch", ran["seconds"], job_cost(oracle, 2 * reports, 2, "batch").seconds
        other = frequency.HadamardResponse(65_000, 4.0)
        took = bench.run(
            "HadamardResponse", job="domain", mechanism="HadamardResponse", domain_size=65_000,
            local_epsilon=4.0, records=reports, block=1 << 19,
        )  # fmt: skip
        yield "Hadamard", took["seconds"], job_cost(other, reports, 2).seconds


def table() -> str:
    """Predictions past this machine."""
    lines = [
        "| mechanism | output | reports | workers | time | core hours | exchanged | MiB/worker |",
        "|---|---|---|---|---|---|---|---|",
    ]
    mechanisms = (
        frequency.KRandomizedResponse(266, 4.0),
        frequency.HadamardResponse(100_000, 4.0),
        mean.PrivUnit(784, 4.0),
    )
    for randomizer in mechanisms:
        for output in ("statistic", "batch", "global"):
            for reports in (10**9, 10**10, 10**12):
                for workers in (10, 100, 1000):
                    cost = job_cost(randomizer, reports, workers, output)  # type: ignore[arg-type]
                    lines.append(_row(type(randomizer).__name__, output, reports, workers, cost))
    return "\n".join(lines) + "\n"


def _row(name: str, output: str, reports: int, workers: int, cost: JobCost) -> str:
    exchanged = cost.exchanged_bytes / 1e9
    return (
        f"| {name} | {output} | 1e{len(str(reports)) - 1} | {workers:,} | {cost.seconds:,.0f} s "
        f"| {cost.core_hours:,.2f} | {exchanged:,.2f} GB | {cost.worker_bytes / 2**20:,.0f} |"
    )


def main() -> None:
    """Fit, check or print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["fit", "check", "table"])
    parser.add_argument("--reports", type=float, default=200_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--jobs", type=float, help="reports of the larger job; 0: kernels alone")
    parser.add_argument("--only", choices=sorted({name for name, _, _ in points(False)}))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    reports, jobs = int(options.reports), int(options.jobs or 0)
    if options.what == "fit":
        before = json.loads(COSTS.read_text()) if COSTS.exists() else {}
        fitted = {
            "machine": f"{platform.machine()}, Python {platform.python_version()}, NumPy "
            f"{np.__version__}",
            "sizes": list(SIZES),
            "steps": (before["steps"] if options.only else {})
            | fit_steps(kernels(False, reports, options.repeat, options.only)),
            "job": measure_job(jobs) if jobs else before["job"],
        }
        COSTS.write_text(json.dumps(fitted, indent=1) + "\n")
    elif options.what == "table":
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "cost_model.md").write_text(table())
        print(table())
    else:
        found: list[tuple[str, float, float]] = [
            (f"{name}, {step}", took, predicted)
            for name, step, took, predicted in held_out(
                json.loads(COSTS.read_text()), kernels(True, reports, options.repeat, options.only)
            )
        ]
        found += list(check_jobs(jobs)) if jobs else []
        off = [(name, predicted / took - 1) for name, took, predicted in found]
        for (name, took, predicted), (_, error) in zip(found, off):
            print(f"{name}: measured {took:.2f}, predicted {predicted:.2f} ({error:+.0%})")
        sys.exit(any(abs(error) > WITHIN for _, error in off))


if __name__ == "__main__":
    main()
