"""From a Parquet file of vectors to a mean: users per second and memory, by mechanism and input.

    python -m benchmarks.mean_throughput [--users 1e5 1e6] [--output benchmarks/results]

Input: 784 float32 coordinates per user, as one column of fixed-size lists or as 784 columns of
numbers, row groups of 2**15 rows, written once per size by `write_input` below into a temporary
folder. Job: the product's own reader and `PrivateMean` on Beam's local runner with two worker
processes. Each run is a process of its own; its time includes the start of Beam and of the workers
and the calibration of the mechanism, and the memory is the largest resident set of any worker while
it runs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.pipeline_throughput import measured

DIMENSION = 784
ROWS_PER_GROUP = 1 << 15
FORMS = ("list", "columns")
MECHANISMS = ("L2Mean, shuffle model", "L2Mean, local", "PrivUnit", "LInfMean, local")


def names() -> list[str]:
    """Names of the columns of numbers."""
    return [f"f{i}" for i in range(DIMENSION)]


def write_input(path: Path, form: str, num_users: int, seed: int = 1) -> None:
    """Unit vectors around a common direction, the same in both forms."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = pa.float32()
    listed = pa.schema([("vector", pa.list_(numbers, DIMENSION))])
    schema = listed if form == "list" else pa.schema([(name, numbers) for name in names()])
    generator = np.random.default_rng(seed)
    common = generator.normal(size=DIMENSION).astype(np.float32)
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, num_users, ROWS_PER_GROUP):
            count = min(ROWS_PER_GROUP, num_users - start)
            vectors = generator.standard_normal((count, DIMENSION), dtype=np.float32) + common
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
            if form == "list":
                flat = pa.array(vectors.reshape(-1), numbers)
                columns = [pa.FixedSizeListArray.from_arrays(flat, DIMENSION)]
            else:
                columns = [pa.array(np.ascontiguousarray(column)) for column in vectors.T]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema), ROWS_PER_GROUP)


def mechanism_named(name: str, num_users: int) -> Any:
    """The mechanism of one line of the table."""
    from beam_ldp.randomizers.mean import L2Mean, LInfMean, PrivUnit

    if name == "L2Mean, shuffle model":
        return L2Mean.for_shuffle(DIMENSION, 1.0, 1e-8, num_users)
    kind = {"L2Mean, local": L2Mean, "PrivUnit": PrivUnit, "LInfMean, local": LInfMean}[name]
    return kind(DIMENSION, 4.0)


def run_job(path: str, form: str, mechanism: str, num_users: int, workers: int) -> None:
    """One job, in this process and its workers; prints the number of reports."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    from beam_ldp.release.inputs.sources import ROWS, ReadTable
    from beam_ldp.transforms import PrivateMean

    flags = [f"--direct_num_workers={workers}"]
    if workers > 1:
        flags.append("--direct_running_mode=multi_processing")
    columns = ["vector"] if form == "list" else names()
    randomizer = mechanism_named(mechanism, num_users)
    with beam.Pipeline("FnApiRunner", PipelineOptions(flags)) as pipeline:
        table = pipeline | "Read" >> ReadTable([path], "parquet", columns, dimension=DIMENSION)
        releases = table[ROWS] | PrivateMean(
            randomizer, columns=columns, min_reports=max(1, num_users // 2)
        )
        releases | beam.Map(lambda release: print("reports", release.num_reports, flush=True))


def measure(
    path: Path, form: str, mechanism: str, num_users: int, workers: int
) -> tuple[float, float, float]:
    """`(seconds, CPU seconds of all processes, largest resident set in MiB)` of one job."""
    command = [sys.executable, "-m", "benchmarks.mean_throughput", "--job", str(path)]
    command += ["--form", form, "--mechanism", mechanism]
    command += ["--users", str(num_users), "--workers", str(workers)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    return measured(process)


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as a Markdown table."""
    lines = [
        "| mechanism | input | users | s | users/s | CPU s | MiB |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(
            f"| {row['mechanism']} | {row['form']} | {row['users']:,} | {row['seconds']:.1f} | "
            f"{row['users'] / row['seconds']:,.0f} | {row['cpu_seconds']:.1f} | "
            f"{row['peak_mib']:.0f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse the options; run the jobs, or one of them where this process was started for that."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--mechanism", nargs="+", choices=MECHANISMS, default=list(MECHANISMS))
    parser.add_argument("--form", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        users = int(options.users[0])
        run_job(options.job, options.form[0], options.mechanism[0], users, options.workers)
        return
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for users in sorted(map(int, options.users)):
            for form in options.form:
                path = Path(folder) / f"{users}-{form}.parquet"
                write_input(path, form, users)
                for mechanism in options.mechanism:
                    seconds, cpu, peak = measure(path, form, mechanism, users, options.workers)
                    rows.append(
                        {"mechanism": mechanism, "form": form, "users": users, "seconds": seconds}
                        | {"cpu_seconds": cpu, "peak_mib": peak, "workers": options.workers}
                    )
                    print(table(rows).splitlines()[-1], flush=True)
                path.unlink()
    rows.sort(key=lambda row: (MECHANISMS.index(row["mechanism"]), row["form"], row["users"]))
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "mean_throughput.json").write_text(json.dumps(rows, indent=1) + "\n")
    (options.output / "mean_throughput.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()
