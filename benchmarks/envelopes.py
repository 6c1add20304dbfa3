"""`beam-ldp collect` over files of envelopes of one report: envelopes a second, and memory.

    python -m benchmarks.envelopes            1e5, 1e6 and 1e7 envelopes; the table on stdout
    python -m benchmarks.envelopes 1e8        5 GB of envelopes

Envelopes are made in a temporary folder, in files of about 100 MB, and then collected by the
program as a user runs it, in a process of its own whose memory, and that of its workers, is
watched. Cost of an envelope: the difference between two sizes, so without the start of the program.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.wire import OVERHEAD_BYTES, ReleaseTerms, encode_envelopes
from beam_ldp.release.devices.release_file import ReleaseFile
from benchmarks.measure import Measurement, run_measured

SIZES = (100_000, 1_000_000, 10_000_000)
FILE_ENVELOPES = 2_000_000
_BLOCK = 250_000
_VALUES = tuple(f"value {i}" for i in range(99))


def terms() -> ReleaseTerms:
    """Of a list of a hundred values: a report is one byte."""
    oracle, listed = KRandomizedResponse(100, 4.0), Domain(_VALUES)
    return ReleaseTerms(
        oracle,
        ReleaseIdentity(
            "benchmark", "envelopes", oracle.config_digest().hex(), ("value",), listed.digest.hex()
        ),
    )


def write_envelopes(folder: Path, count: int) -> None:
    """Files of envelopes as devices send them, `release.json`, and the list."""
    release = terms()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "release.json").write_text(json.dumps(ReleaseFile(release).to_json()))
    (folder / "_values.txt").write_text("".join(f"{value}\n" for value in _VALUES))
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        held = np.random.default_rng(start).integers(0, 100, size)
        ids = np.frombuffer(os.urandom(16 * size), np.uint8).reshape(-1, 16)
        rows = encode_envelopes(release, release.randomizer.randomize(held), ids)
        with (folder / f"{start // FILE_ENVELOPES:05d}.ldp").open("ab") as file:
            file.write(rows.tobytes())


def collect(folder: Path, out: Path, count: int, workers: int) -> Measurement:
    """The program, to its end. Raises RuntimeError if it fails or another number arrives."""
    flags = [
        f"--reports={folder}", f"--release={folder}/release.json", f"--output={out}",
        f"--domain={folder}/_values.txt", "--delta=1e-9", f"--min-reports={count}",
        "--no-ledger", "--no-mlflow", f"--direct_num_workers={workers}",
        f"--direct_running_mode={'multi_processing' if workers > 1 else 'in_memory'}",
    ]  # fmt: skip
    measured = run_measured([sys.executable, "-m", "beam_ldp.pipelines.collect", *flags])
    found = json.loads((out / "privacy.json").read_text())["num_reports"]
    if found != count:
        raise RuntimeError(f"{found} reports came of {count}")
    return measured


def main() -> None:
    """The table."""
    sizes = [int(float(size)) for size in sys.argv[1:]] or list(SIZES)
    workers, before = os.cpu_count() or 1, None
    print(f"{OVERHEAD_BYTES} bytes of overhead; {workers} worker processes\n")
    print(
        "| envelopes | seconds | CPU seconds | launcher MiB | worker MiB | a second, after start |"
    )
    print("|---|---|---|---|---|---|")
    for count in sizes:
        with tempfile.TemporaryDirectory() as place:
            write_envelopes(Path(place) / "in", count)
            found = collect(Path(place) / "in", Path(place) / "out", count, workers)
        cost = ""  # of the envelopes that are more than before
        if before is not None:
            cost = f"{1e6 * (found.cpu_seconds - before[1]) / (count - before[0]):.2f}"
        print(
            f"| {count:,} | {found.seconds:.1f} | {found.cpu_seconds:.1f} | "
            f"{found.launcher_mib:.0f} | {found.worker_mib:.0f} | {cost} |",
            flush=True,
        )
        before = count, found.cpu_seconds


if __name__ == "__main__":
    main()
