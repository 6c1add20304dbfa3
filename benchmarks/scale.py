"""Scale: a billion records, growth, long lists, many groups, long vectors; one figure per command.

    python -m benchmarks.scale billion [--data FOLDER] [--engine prism] [--scopes batch]
    python -m benchmarks.scale growth | domains | groups | vectors | profile
    python -m benchmarks.scale all

Each run is a process of its own on two workers; its time includes the start of Beam and of the
workers. On the local runner the launcher holds what is exchanged; the workers' memory is said
apart. `--records` bounds the size of every figure, for a quick look. Every result is checked: the
largest error of an estimate is printed in its own standard errors. Writes scale_FIGURE.json and
.md, and scale_growth.png.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.measure import Measurement, run_measured
from benchmarks.scale_input import NUM_VALUES, RECORDS, write_folder

LOCAL = ["--runner=FnApiRunner", "--direct_num_workers=2",
         "--direct_running_mode=multi_processing"]  # fmt: skip
K_RR = {"mechanism": "KRandomizedResponse", "domain_size": NUM_VALUES, "local_epsilon": 4.0}
FORMS = (("statistic", "batch"), ("reports", "batch"), ("reports", "global"))
TIMEOUT = 3600
BYTES_PER_BLOCK = 1 << 23
TARGETS = {"statistic": (20, 1024), "reports": (60, 2048)}  # seconds, MiB, at RECORDS

Rows = list[dict[str, Any]]


class Bench:
    """Runs jobs and keeps what they took.

    Args:
        records: most records of any run; None: the sizes of the figures.
        data: folder for inputs that are kept.
        flags: Beam's, of the runner.
        scopes: of the shuffles that run.
    """

    def __init__(
        self,
        records: float | None,
        data: Path,
        flags: list[str],
        scopes: Sequence[str] = ("batch", "global"),
    ) -> None:
        self.records, self.data, self.flags = records, data, flags
        self.forms = [form for form in FORMS if form[1] in scopes]

    def bounded(self, count: float) -> int:
        """A size of a figure, no larger than asked for."""
        return int(min(count, self.records or count))

    def run(self, label: str, **spec: Any) -> dict[str, Any]:
        """One job; what it took, with its description."""
        spec.setdefault("output", "statistic")
        spec.setdefault("min_reports", 100)
        command = [sys.executable, "-m", "benchmarks.scale_jobs", json.dumps(spec), *self.flags]
        took: Measurement = run_measured(command, TIMEOUT)
        found = json.loads(took.output.splitlines()[-1])
        row = {"label": label, **spec, **found, "seconds": took.seconds,
               "cpu_seconds": took.cpu_seconds, "launcher_mib": took.launcher_mib,
               "worker_mib": took.worker_mib}  # fmt: skip
        print(line(row), flush=True)
        return row

    def file_run(self, output: str, scope: str, records: int, keep: bool) -> dict[str, Any]:
        """From files to an estimate; permuted reports are written out, and their size is noted."""
        with tempfile.TemporaryDirectory(dir=self.data.parent) as folder:
            data = self.data if keep else Path(folder) / "data"
            write_folder(data, records)
            out = f"{folder}/out" if output == "reports" else None
            label = output if output == "statistic" else f"{output}, {scope}, written"
            crowd = records // 2  # where all hide together
            row = self.run(
                label, job="file", data=str(data), output=output, scope=scope, out=out,
                min_reports=crowd if scope == "global" else min(10**5, crowd), **K_RR,
            )  # fmt: skip
            written = Path(out).glob("*.parquet") if out else ()
            row["written_bytes"] = sum(path.stat().st_size for path in written)
            row.pop("data"), row.pop("out")
        return row


def billion(bench: Bench) -> Rows:
    """The whole table, in every form of the output."""
    records = bench.bounded(RECORDS)
    return [bench.file_run(output, scope, records, keep=True) for output, scope in bench.forms]


def growth(bench: Bench) -> Rows:
    """Time is linear in the records, memory is flat."""
    sizes = sorted({bench.bounded(size) for size in (1e6, 1e7, 1e8, RECORDS)})
    return [
        bench.file_run(output, scope, size, keep=size == bench.bounded(RECORDS))
        for output, scope in bench.forms
        for size in sizes
    ]


def domains(bench: Bench) -> Rows:
    """Lists of 2 to 4 million values; local hashing reads a report in time proportional to them."""
    rows = []
    for name, sizes, records in (
        ("HadamardResponse", (2, 1000, 65_000, 4_000_000), 10**8),
        ("RecursiveHadamardResponse", (2, 1000, 65_000, 4_000_000), 10**8),
        ("ProjectiveGeometryResponse", (2, 1000, 65_000, 4_000_000), 10**8),
        ("LocalHashing", (2, 1000, 10_000, 100_000), 10**6),
    ):
        for size in sizes:
            rows.append(
                bench.run(
                    f"{name}, {size:,} values", job="domain", mechanism=name, domain_size=size,
                    local_epsilon=4.0, records=bench.bounded(records), block=1 << 19,
                )
            )  # fmt: skip
    return rows


def groups(bench: Bench) -> Rows:
    """Many groups, one of them hot; one person with very many rows."""
    oracle = {"mechanism": "KRandomizedResponse", "domain_size": 100, "local_epsilon": 4.0}
    many = bench.bounded(10**7)
    counted = {"records": many, "groups": max(2, many // 100), "block": 1 << 19, "min_reports": 10}
    one = bench.bounded(10**7)
    return [
        bench.run("100,000 groups of 100 values", job="groups", **oracle, **counted),
        bench.run("one group has half of all", job="groups", hot=True, **oracle, **counted),
        bench.run(
            "one person has half of all rows", job="user", **oracle, records=2 * one, one_user=one,
            block=1 << 19,
        ),
    ]  # fmt: skip


def vectors(bench: Bench) -> Rows:
    """A block of vectors has a bounded size at every stage."""
    rows = []
    for count, dimension in ((10**6, 784), (10**5, 16_384), (10**4, 10**6)):
        numbers = bench.bounded(count * dimension)
        for mechanism in ("PrivUnit", "L2Mean"):
            rows.append(
                bench.run(
                    f"{mechanism}, d = {dimension:,}", job="vectors", mechanism=mechanism,
                    dimension=dimension, norm="l2", local_epsilon=4.0,
                    records=max(4, numbers // dimension), min_reports=2,
                    block=max(1, BYTES_PER_BLOCK // (4 * dimension)),
                )
            )  # fmt: skip
    return rows


def profile(bench: Bench) -> Rows:
    """Where the time goes: every step of the job by itself, in this process, per record."""
    import numpy as np
    import pyarrow.parquet as pq

    from beam_ldp.questions.columns import IntegerDomain
    from beam_ldp.randomizers.frequency import KRandomizedResponse
    from beam_ldp.randomizers.randomness import FreshWords
    from beam_ldp.transforms.elements.block_coder import BlockCoder
    from beam_ldp.transforms.shuffler.batches import permute, scatter
    from beam_ldp.transforms.shuffler.exchange import PieceFormat, ReportPiece

    oracle, records = KRandomizedResponse(NUM_VALUES, 4.0), bench.bounded(1 << 22)
    form, coder = PieceFormat(oracle), BlockCoder(ReportPiece)
    with tempfile.TemporaryDirectory(dir=bench.data.parent) as folder:
        write_folder(Path(folder), records)
        (path,) = Path(folder).glob("*.parquet")

        def read() -> np.ndarray:
            batches = pq.ParquetFile(path).iter_batches(1 << 19, use_threads=False)
            return np.concatenate([batch.column(0).to_numpy() for batch in batches])

        values = read()
        parts = np.array_split(values, max(1, records >> 19))
        reports = [oracle.randomize(part) for part in parts]
        words = [FreshWords().words(0, len(part), 1)[:, 0] for part in parts]
        pieces = [form.write(part, False) for part in reports]
        encoded = [coder.encode(piece) for piece in pieces]
        target = Path(folder) / "written"

        def each(work: Callable[[Any], Any], items: list[Any]) -> Callable[[], Any]:
            return lambda: [work(item) for item in items]

        steps: tuple[tuple[str, str, Callable[[], Any]], ...] = (
            ("read the file's bytes", "limit: disk", path.read_bytes),
            ("read and decode Parquet", "all", read),
            ("check the indices", "all", each(IntegerDomain(NUM_VALUES).clip, parts)),
            ("draw one secure word", "limit: generator",
             each(lambda part: FreshWords().words(0, len(part), 1), parts)),
            ("randomize, words included", "all", each(oracle.randomize, parts)),
            ("bincount", "limit: count", each(lambda r: np.bincount(r, minlength=266), reports)),
            ("accumulate", "all", each(oracle.accumulate, reports)),
            ("permute, words included", "reports", each(permute, reports)),
            ("pack", "reports", each(oracle.pack, reports)),
            ("write the packed bytes", "reports",
             lambda: target.write_bytes(b"".join(piece.data for piece in pieces))),
            ("route to 64 shards", "global", each(lambda w: scatter(w, 64), words)),
            ("encode pieces", "global", each(coder.encode, pieces)),
            ("decode pieces", "global", each(coder.decode, encoded)),
            ("unpack", "global", each(form.read, pieces)),
        )  # fmt: skip
        rows = []
        for step, needed_for, work in steps:
            work()
            times = []
            for _ in range(5):
                begin = time.perf_counter()
                work()
                times.append(time.perf_counter() - begin)
            rows.append({"label": step, "needed_for": needed_for, "records": records,
                         "ns_per_record": min(times) / records * 1e9})  # fmt: skip
            print(f"{step}: {rows[-1]['ns_per_record']:.2f} ns", flush=True)
    stages = "import beam_ldp.transforms, beam_ldp.release.inputs.sources"
    rows.append(start("start Python and import Beam", "import apache_beam"))
    rows.append(start("and the stages", stages))
    return rows


def start(label: str, code: str) -> dict[str, Any]:
    """Seconds until a process has imported what a worker needs: the least of three."""
    took = min(run_measured([sys.executable, "-c", code]).seconds for _ in range(3))
    print(f"{label}: {took:.2f} s", flush=True)
    return {"label": label, "needed_for": "all, once per process", "seconds": took}


FIGURES: dict[str, Callable[[Bench], Rows]] = {
    "billion": billion,
    "growth": growth,
    "domains": domains,
    "groups": groups,
    "vectors": vectors,
    "profile": profile,
}


def line(row: dict[str, Any]) -> str:
    """One row of the table."""
    error = row.get("largest_error")
    cells = [
        row["label"],
        f"{row['num_reports']:,}",
        f"{row['seconds']:.1f}",
        f"{row['num_reports'] / row['seconds'] / 1e6:.1f}",
        f"{row['cpu_seconds']:.1f}",
        f"{row['worker_mib']:.0f}" if row["worker_mib"] else "—",  # not known on clusters
        f"{row['launcher_mib']:.0f}",
        "—" if error is None or math.isnan(error) else f"{error:.1f}",
    ]
    return "| " + " | ".join(cells) + " |"


def page(figure: str, rows: Rows) -> str:
    """A figure as a Markdown table."""
    if figure == "profile":
        lines = ["| step | needed for | cost |", "|---|---|---|"]
        for row in rows:
            cost = f"{row['ns_per_record']:.2f} ns" if "ns_per_record" in row else (
                f"{row['seconds']:.2f} s"
            )  # fmt: skip
            lines.append(f"| {row['label']} | {row['needed_for']} | {cost} |")
        return "\n".join(lines) + "\n"
    lines = [
        "| job | reports | s | million/s | CPU s | worker MiB | launcher MiB | error, sigma |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        lines.append(line(row))
    for row in rows:
        if figure == "billion" and row["num_reports"] == RECORDS and row["scope"] == "batch":
            seconds, mib = TARGETS[row["output"]]
            met = row["seconds"] <= seconds and row["worker_mib"] <= mib
            lines.append(
                f"\n{row['label']}: target {seconds} s and {mib} MiB per worker, "
                + ("met." if met else "missed.")
            )
        if row.get("written_bytes"):
            share = 8 * row["written_bytes"] / row["num_reports"]
            lines.append(f"\n{row['label']}: {share:.2f} bits written per report.")
    return "\n".join(lines) + "\n"


def plot(rows: Rows, path: Path) -> None:
    """Time and memory against the number of records."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4))
    for label in dict.fromkeys(row["label"] for row in rows):
        mine = [row for row in rows if row["label"] == label]
        counts = [row["num_reports"] for row in mine]
        left.plot(counts, [row["seconds"] for row in mine], marker="o", label=label)
        right.plot(counts, [row["worker_mib"] for row in mine], marker="o", label=label)
    left.set(xscale="log", yscale="log", xlabel="records", ylabel="seconds, start included")
    right.set(xscale="log", xlabel="records", ylabel="largest worker, MiB", ylim=(0, None))
    left.legend()
    for axes in (left, right):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Make the figures that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figure", choices=[*FIGURES, "all"])
    parser.add_argument("--records", type=float)
    parser.add_argument("--data", type=Path, help="input of the billion records; kept")
    parser.add_argument("--engine", default="local", help="local, prism, spark or flink")
    parser.add_argument("--scopes", nargs="+", default=["batch", "global"])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        flags = LOCAL
        if options.engine != "local":
            from tests.engines.servers import running

            flags = stack.enter_context(running(options.engine)).options
        data = options.data
        if data is None:
            data = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "data"
        data.parent.mkdir(parents=True, exist_ok=True)
        bench = Bench(options.records, data, flags, scopes=options.scopes)
        for figure in FIGURES if options.figure == "all" else [options.figure]:
            rows = FIGURES[figure](bench)
            name = f"scale_{figure}" + ("" if options.engine == "local" else f"_{options.engine}")
            text = json.dumps(rows, indent=1) + "\n"
            (options.output / f"{name}.json").write_text(text)
            (options.output / f"{name}.md").write_text(page(figure, rows))
            if figure == "growth":
                plot(rows, options.output / f"{name}.png")
        if options.data is None and data.exists():
            shutil.rmtree(data)


if __name__ == "__main__":
    main()
