"""How long a search for words takes, from Parquet files to the words found, and each step.

    python -m benchmarks.heavy_hitters_speed [--people 1e6 1e7 1e8] [--data FOLDER]
        [--alone] [--steps]

Input: English words at their real counts (`beam-ldp demo`), one row per person, ids in no order.
Each run is the program itself, as a process of its own with two workers or, `--alone`, without;
its time includes the start of Beam and of the workers, the plan, the record and the picture. What
was found is held against the truth. `--steps` measures the steps of a person by themselves, in
this process. Writes heavy_hitters_speed.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from beam_ldp.pipelines.demos.corpus import load_corpus
from benchmarks.measure import run_measured

PEOPLE = (1e6, 1e7, 1e8)
TARGETS = {10**7: 60, 10**8: 240}  # seconds
ROWS_PER_GROUP, ROWS_PER_FILE = 1 << 20, 1 << 25
ASKED = ["--local-epsilon=6", "--delta=1e-8", "--max-bytes=32"]
WORKERS = ["--runner=FnApiRunner", "--direct_num_workers=2",
           "--direct_running_mode=multi_processing"]  # fmt: skip
SCATTER = 0x9E3779B97F4A7C15  # odd: ids are distinct, and in no order
CANDIDATES = 200  # of a level, where steps are measured


def people(count: int) -> Iterator[pa.Table]:
    """Rows of people, a row group at a time."""
    corpus, rng = load_corpus(), np.random.default_rng(1)
    words, ends = pa.array(corpus.words), np.cumsum(corpus.shares)
    for start in range(0, count, ROWS_PER_GROUP):
        size = min(ROWS_PER_GROUP, count - start)
        ids = np.arange(start, start + size, dtype=np.uint64) * np.uint64(SCATTER)
        held = np.searchsorted(ends / ends[-1], rng.random(size), side="right").astype(np.int32)
        column = pa.DictionaryArray.from_arrays(pa.array(held), words)
        yield pa.table({"uid": ids.view(np.int64), "word": column.cast(pa.string())})


def write_people(folder: Path, count: int) -> None:
    """The files, if they are not there."""
    if (folder / "_done").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    writer, written = None, 0
    for table in people(count):
        if written % ROWS_PER_FILE == 0:
            if writer:
                writer.close()
            writer = pq.ParquetWriter(folder / f"{written:012d}.parquet", table.schema)
        assert writer
        writer.write_table(table, ROWS_PER_GROUP)
        written += len(table)
    if writer:
        writer.close()
    (folder / "_done").touch()


def searched(folder: Path, count: int, workers: Sequence[str]) -> dict[str, Any]:
    """One run of the program, and how right it is."""
    write_people(folder / f"{count}", count)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        command = [
            sys.executable, "-m", "beam_ldp.pipelines.cli", "heavy-hitters",
            f"--input={folder}/{count}/*.parquet", "--column=word", "--user-id=uid", *ASKED,
            f"--expected-users={count}", f"--output={out}/out", "--no-mlflow", "--format=json",
            *workers,
        ]  # fmt: skip
        before = os.getloadavg()[0]
        took = run_measured(command, timeout=3600)
    told = json.loads(took.output)
    found = {one["word"]: one["frequency"] for one in told["words"]}
    corpus, threshold = load_corpus(), told["threshold"]
    truth = dict(zip(corpus.words, corpus.shares.tolist()))
    frequent = [word for word, share in truth.items() if share >= 1.5 * threshold]
    return {
        "people": count, "processes": 1 + 2 * bool(workers),
        "seconds": took.seconds, "cpu_seconds": took.cpu_seconds,
        "launcher_mib": took.launcher_mib, "worker_mib": took.worker_mib, "load_before": before,
        "threshold": threshold, "words": len(found), "frequent": len(frequent),
        "missed": len(set(frequent) - set(found)),
        "nobody_holds": len(set(found) - set(truth)),
    }  # fmt: skip


def steps(count: int = 1 << 20) -> list[dict[str, Any]]:
    """Nanoseconds per person of what happens to one, step by step: the least of five."""
    import apache_beam as beam

    from beam_ldp.protocols.heavy_hitters_plan import plan_heavy_hitters
    from beam_ldp.randomizers.randomness import FreshWords
    from beam_ldp.settings import People
    from beam_ldp.transforms import EncodeWords
    from beam_ldp.transforms.device.bounding import best_rows, by_shard
    from beam_ldp.transforms.elements.block_coder import BlockCoder
    from beam_ldp.transforms.elements.blocks import CandidateBlock, ValueBlock

    plan = plan_heavy_hitters(10**7, 6.0, max_bytes=32, num_bits=64)
    (table,) = people(count)
    encoder: Any = EncodeWords(plan, "word", people=People(id="uid"))._doer
    encoder.setup()
    window = beam.window.GlobalWindow()
    (batch,) = table.combine_chunks().to_batches()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.parquet"
        pq.write_table(table, path)
        (block,) = (one for one in encoder.process(batch, window) if isinstance(one, ValueBlock))
        words = FreshWords().words(0, count, 1)[:, 0]
        drawn = CandidateBlock(block.values, block.user_ids, words, plan.assign(words))
        coder = BlockCoder(CandidateBlock)
        written = coder.encode(drawn)
        level = plan.levels[len(plan.levels) // 2]
        before = np.uint64(64 - (level.prefix_bits - level.new_bits))
        own = np.unique((block.values[:4000] >> before) << before, axis=0)[:CANDIDATES]
        number = plan.levels.index(level)
        asked = plan.encode(block.values, number, own)
        parts = [asked[plan.assign(words) == i] % one.none for i, one in enumerate(plan.levels)]
        reports = [one.oracle.randomize(part) for one, part in zip(plan.levels, parts)]
        listed: list[tuple[str, Callable[[], Any]]] = [
            ("read and decode Parquet", lambda: pq.read_table(path, use_threads=False)),
            ("words to bits, ids checked", lambda: list(encoder.process(batch, window))),
            ("draw a secure word", lambda: FreshWords().words(0, count, 1)),
            ("draw the level", lambda: plan.assign(words)),
            ("one row of each person", lambda: best_rows([drawn])),
            ("route to shards", lambda: list(by_shard(drawn.user_ids, 64))),
            ("write for the exchange", lambda: coder.encode(drawn)),
            ("read from the exchange", lambda: coder.decode(written)),
            (f"ask about {len(own)} prefixes", lambda: plan.encode(block.values, number, own)),
            ("randomize, all levels", lambda: [
                one.oracle.randomize(part) for one, part in zip(plan.levels, parts)]),
            ("add up, all levels", lambda: [
                one.oracle.accumulate(part) for one, part in zip(plan.levels, reports)]),
        ]  # fmt: skip
        return [{"step": name, "ns_per_person": least(work) / count * 1e9} for name, work in listed]


def least(work: Callable[[], Any], times: int = 5) -> float:
    """Seconds of the quickest of some."""
    work()
    took = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return min(took)


def page(runs: Sequence[dict[str, Any]], taken: Sequence[dict[str, Any]]) -> str:
    """Both tables."""
    lines = [
        "| people | processes | s | CPU s | target, s | f\\* | words | missed of 1.5 f\\* | "
        "nobody holds | worker MiB | launcher MiB | load before |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in runs:
        target = TARGETS.get(row["people"], "—")
        lines.append(
            f"| {row['people']:,} | {row['processes']} | {row['seconds']:.1f} | "
            f"{row['cpu_seconds']:.1f} | {target} | "
            f"{100 * row['threshold']:.3g} % | {row['words']} | {row['missed']} of "
            f"{row['frequent']} | {row['nobody_holds']} | {row['worker_mib']:.0f} | "
            f"{row['launcher_mib']:.0f} | {row['load_before']:.1f} |"
        )
    if taken:
        lines += ["", "| step | ns per person |", "|---|---|"]
        lines += [f"| {row['step']} | {row['ns_per_person']:.1f} |" for row in taken]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Runs, steps, and files of both."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--people", type=float, nargs="*", default=list(PEOPLE))
    parser.add_argument("--steps", action="store_true")
    parser.add_argument("--alone", action="store_true", help="one process, which takes less memory")
    parser.add_argument("--data", type=Path, help="folder for inputs that are kept")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.data or Path(scratch)
        runs = []
        for count in options.people:
            runs.append(searched(folder, int(count), [] if options.alone else WORKERS))
            print(page(runs[-1:], []), flush=True)
    taken = steps() if options.steps else []
    told = json.dumps({"runs": runs, "steps": taken}, indent=1) + "\n"
    (options.output / "heavy_hitters_speed.json").write_text(told)
    (options.output / "heavy_hitters_speed.md").write_text(page(runs, taken))
    print(page(runs, taken))


if __name__ == "__main__":
    main()
