"""From a Parquet file to an estimate: reports per second and memory against the number of users.

    python -m benchmarks.pipeline_throughput [--users 1e6 1e7 1e8] [--output benchmarks/results]

Input: one uint16 column of 266 values, drawn with probabilities 1/(rank + 3), written by
`write_input` below. Job: k-ary randomized response, through the product's own reader and
`PrivateFrequencies`, on Beam's local runner with two worker processes. Each run is a process of its
own; its time includes the start of Beam and of the workers, and the memory is the largest resident
set of any worker while it runs. The rate is that of the largest job, start included; beside it
stands the marginal rate, from the difference to the next smaller job, and the marginal CPU time per
report of all processes together, which does not depend on what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

NUM_VALUES = 266
ROWS_PER_GROUP = 1 << 20
VARIANTS = (("statistic", "batch"), ("reports", "batch"), ("reports", "global"))
GLOBAL_LIMIT = 10**7  # the local runner keeps an exchange in memory


def write_input(path: Path, num_users: int, seed: int = 1) -> None:
    """The input file: row groups of 2**20 rows, zstd."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    weights = 1 / (np.arange(NUM_VALUES) + 3)
    cumulative = (np.cumsum(weights) / weights.sum() * 2**16).astype(np.uint32)
    table = np.searchsorted(cumulative, np.arange(2**16), side="right").astype(np.uint16)
    table = np.minimum(table, NUM_VALUES - 1).astype(np.uint16)
    generator = np.random.default_rng(seed)
    schema = pa.schema([("value", pa.uint16())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, num_users, ROWS_PER_GROUP):
            count = min(ROWS_PER_GROUP, num_users - start)
            draws = generator.integers(0, 2**16, count, dtype=np.uint16)
            writer.write_table(pa.table({"value": table[draws]}, schema), ROWS_PER_GROUP)


def run_job(path: str, output: str, scope: str, workers: int) -> None:
    """One job, in this process and its workers; prints the number of reports."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
    from beam_ldp.release.inputs.sources import ROWS, ReadTable
    from beam_ldp.settings import Shuffling
    from beam_ldp.transforms import PrivateFrequencies

    flags = [f"--direct_num_workers={workers}"]
    if workers > 1:
        flags.append("--direct_running_mode=multi_processing")
    oracle = KRandomizedResponse(NUM_VALUES, 4.0)
    with beam.Pipeline("FnApiRunner", PipelineOptions(flags)) as pipeline:
        table = pipeline | "Read" >> ReadTable([path], "parquet", "value")
        releases = table[ROWS] | PrivateFrequencies(
            oracle, column="value", min_reports=10**5, shuffle=Shuffling(output=output, scope=scope)
        )
        releases | beam.Map(lambda release: print("reports", release.num_reports, flush=True))


def measure(path: Path, output: str, scope: str, workers: int) -> tuple[float, float, float]:
    """`(seconds, CPU seconds of all processes, largest resident set in MiB)` of one job."""
    command = [sys.executable, "-m", "benchmarks.pipeline_throughput", "--job", str(path)]
    command += ["--output-form", output, "--scope", scope, "--workers", str(workers)]
    return measured(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))


def measured(process: subprocess.Popen[bytes]) -> tuple[float, float, float]:
    """The same of a process that has just been started."""
    import psutil

    begin = time.perf_counter()
    peak, done = 0, threading.Event()
    used: dict[int, float] = {}

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.05):
            try:
                parent = psutil.Process(process.pid)
                family = [parent, *parent.children(recursive=True)]
                peak = max([peak, *(p.memory_info().rss for p in family)])
                used.update({p.pid: sum(p.cpu_times()[:2]) for p in family})
            except psutil.Error:
                continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    _, errors = process.communicate()
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(errors.decode()[-2000:])
    return seconds, sum(used.values()), peak / 2**20


def plot(rows: list[dict[str, Any]], path: Path) -> None:
    """Time and memory against the number of users."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for output, scope in VARIANTS:
        mine = [r for r in rows if (r["output"], r["scope"]) == (output, scope)]
        if mine:
            label = output if output == "statistic" else f"{output}, {scope} scope"
            users = [r["users"] for r in mine]
            left.plot(users, [r["seconds"] for r in mine], marker="o", label=label)
            right.plot(users, [r["peak_mib"] for r in mine], marker="o", label=label)
    left.set(xscale="log", yscale="log", xlabel="users", ylabel="seconds, start included")
    right.set(xscale="log", xlabel="users", ylabel="largest process, MiB")
    right.set_ylim(0, 1.15 * max(row["peak_mib"] for row in rows))
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| output | scope | users | s | million/s | marginal | CPU s | marginal CPU ns | MiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    last: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row["output"], row["scope"])
        before = last.get(key)
        marginal, nanoseconds = "—", "—"
        if before is not None:
            more = row["users"] - before["users"]
            nanoseconds = f"{(row['cpu_seconds'] - before['cpu_seconds']) / more * 1e9:.1f}"
            if row["seconds"] > before["seconds"]:
                marginal = f"{more / (row['seconds'] - before['seconds']) / 1e6:.1f}"
        last[key] = row
        lines.append(
            f"| {row['output']} | {row['scope']} | {row['users']:,} | {row['seconds']:.1f} | "
            f"{row['users'] / row['seconds'] / 1e6:.1f} | {marginal} | "
            f"{row['cpu_seconds']:.1f} | {nanoseconds} | {row['peak_mib']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse the options; run the jobs, or one of them where this process was started for that."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=float, nargs="+", default=[1e6, 1e7, 1e8])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--output-form", help=argparse.SUPPRESS)
    parser.add_argument("--scope", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        run_job(options.job, options.output_form, options.scope, options.workers)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for users in sorted(map(int, options.users)):
            path = Path(folder) / f"{users}.parquet"
            write_input(path, users)
            for output, scope in VARIANTS:
                if scope == "global" and users > GLOBAL_LIMIT:
                    continue
                seconds, cpu, peak = measure(path, output, scope, options.workers)
                rows.append(
                    {"output": output, "scope": scope, "users": users, "seconds": seconds}
                    | {"cpu_seconds": cpu, "peak_mib": peak, "workers": options.workers}
                )
                print(table(rows).splitlines()[-1], flush=True)
            path.unlink()
    rows.sort(key=lambda r: (VARIANTS.index((r["output"], r["scope"])), r["users"]))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "pipeline_throughput.json").write_text(json.dumps(rows, indent=1) + "\n")
    (options.output / "pipeline_throughput.md").write_text(table(rows))
    plot(rows, options.output / "pipeline_throughput.png")
    print(table(rows))


if __name__ == "__main__":
    main()
