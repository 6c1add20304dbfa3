"""How long the audit of a log takes, from Parquet and from JSON lines, and in how much memory.

    python -m benchmarks.interactivity_audit                  # a million records
    python -m benchmarks.interactivity_audit --records 1e8    # the table; 20 GB of disk

A third as many people as records, in two rounds, of which the second reads the first; integer ids,
three randomizers. A person's answer in a round is a function of both, so that repeated questions
are retries. The log is made first and not counted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_ldp.protocols.interaction import mixed
from benchmarks.measure import Measurement, run_measured

RESULTS = Path("benchmarks/results")
BLOCK = 1 << 20
NAMES = pa.array(["rr-0", "rr-1", "rr-2"])
EPSILON = 64.0


def block(start: int, size: int, records: int) -> pa.Table:
    """Some records of the log."""
    seq = np.arange(start, start + size)
    hashed = mixed(seq)
    user = (hashed % np.uint64(max(records // 3, 1))).astype(np.int64)
    kind = ((hashed >> np.uint64(40)) % np.uint64(3)).astype(np.int64)
    later = seq >= records // 2
    output = mixed(user * 6 + kind * 2 + later) >> np.uint64(63)
    return pa.table(
        {
            "seq": seq,
            "user": user,
            "randomizer": NAMES.take(pa.array(kind)),
            "round": later.astype(np.int64),
            "epsilon": np.full(size, 0.5),
            "output": output.astype(np.int64),
            "assign_seq": np.where(later, records // 2, 0),
        }
    )


def lines(table: pa.Table) -> bytes:
    """The same as JSON lines."""
    parts: list[pa.Array] = []
    for name in table.schema.names:
        quote = '"' if pa.types.is_string(table.schema.field(name).type) else ""
        parts += [f'{"," if parts else "{"}"{name}":{quote}', table.column(name).cast(pa.string())]
        parts += [quote] if quote else []
    joined = pc.binary_join_element_wise(*parts, "}", "")
    return ("\n".join(joined.to_pylist()) + "\n").encode()


def write_logs(folder: Path, records: int) -> dict[str, Path]:
    """The log in both formats."""
    paths = {"Parquet": folder / "log.parquet", "JSON lines": folder / "log.jsonl"}
    if all(path.exists() for path in paths.values()):
        return paths
    schema = block(0, 1, records).schema
    with pq.ParquetWriter(paths["Parquet"], schema) as writer, paths["JSON lines"].open("wb") as to:
        for start in range(0, records, BLOCK):
            table = block(start, min(BLOCK, records - start), records)
            writer.write_table(table)
            to.write(lines(table))
    return paths


def audited(path: Path, memory: str) -> tuple[Measurement, dict[str, object]]:
    """The command, in a process of its own."""
    told = [str(path), "--epsilon", str(EPSILON), "--memory", memory, "--format", "json"]
    program = [sys.executable, "-m", "beam_ldp.pipelines.cli", "audit-interactivity", *told]
    found = run_measured(program)
    return found, json.loads(found.output)


def main() -> None:
    """Make the log, audit it, write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=float, default=1e6)
    parser.add_argument("--memory", default="1G")
    parser.add_argument("--folder", type=Path, help="where logs are made, and stay")
    told = parser.parse_args()
    records = int(told.records)
    rows = ["| format | records | bytes | seconds | processor seconds | memory | people | waves |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        folder = told.folder or Path(scratch)
        folder.mkdir(exist_ok=True)
        begin = time.perf_counter()
        paths = write_logs(folder, records)
        print(f"made in {time.perf_counter() - begin:.0f} s", file=sys.stderr)
        for name, path in paths.items():
            took, report = audited(path, told.memory)
            assert report["num_records"] == records and report["clean"], report["findings"]
            rows.append(
                f"| {name} | {records:.0e} | {path.stat().st_size / 2**30:.1f} GiB "
                f"| {took.seconds:.0f} | {took.cpu_seconds:.0f} "
                f"| {took.launcher_mib:.0f} MiB | {report['num_people']:,} | {report['waves']} |"
            )
            print(rows[-1], file=sys.stderr)
    command = f"python -m benchmarks.interactivity_audit --records {records:.0e}"
    page = [
        "# The audit of a log",
        "",
        f"`{command} --memory {told.memory}`, on two cores: start, reading, adding up.",
        "Memory is the largest of the process, with interpreter and libraries. Processor seconds",
        "tell what the machine's other work did not.",
        "",
        *rows,
        "",
    ]
    (RESULTS / "interactivity_audit.md").write_text("\n".join(page))


if __name__ == "__main__":
    main()
