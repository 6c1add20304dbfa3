"""How long the command line takes before it answers: CPU seconds of whole process trees.

    python -m benchmarks.start            # a table, also in benchmarks/results/start.md
    python -m benchmarks.start --check    # exit code 1 where a target is missed (an idle machine)

Every command runs once to warm files, then `--times` times; the least counts, for everything else
is the machine's. A machine that does other things takes half as much again for the same work.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

HELP, PRICED, SMALL, LOGGED = 0.3, 1.5, 3.0, 5.5  # CPU seconds
RESULTS = Path(__file__).parent / "results" / "start.md"
ROWS, VALUES = 10_000, 100
PROGRAMS = ("frequency", "mean", "user-mean", "randomize", "collect", "train", "plan mean", "audit")


def commands(folder: Path) -> Iterator[tuple[str, list[str], float]]:
    """What is measured: a name, the arguments of `beam-ldp`, CPU seconds that it may take."""
    yield "--help", ["--help"], HELP
    for program in PROGRAMS:
        yield f"{program} --help", [*program.split(), "--help"], HELP
    task = ["--epsilon", "1", "--delta", "1e-8"]
    yield (
        "plan frequency",
        ["plan", "frequency", "--expected-users", "1e6", "--domain-size", "1000", *task],
        PRICED,
    )
    yield "plan mean", [
        "plan", "mean", "--expected-users", "1e5", "--dimension", "784", *task,
    ], PRICED  # fmt: skip
    yield (
        "privacy",
        [
            "privacy",
            "--local-epsilon",
            "2",
            "--expected-users",
            "1e6",
            "--rounds",
            "30",
            "--delta",
            "1e-8",
        ],
        PRICED,
    )
    run = [
        "frequency", f"--input={folder}/people.csv", "--column=value", "--user-id=uid",
        f"--domain={folder}/list.txt", *task, f"--expected-users={ROWS}", f"--output={folder}/out",
        "--overwrite",
    ]  # fmt: skip
    yield f"{ROWS:,} rows, --no-mlflow", [*run, "--no-mlflow"], SMALL
    yield f"{ROWS:,} rows, an existing store", run, LOGGED


def write_people(folder: Path) -> None:
    """Values of a public list, one a person."""
    rng, values = random.Random(1), [f"v{i}" for i in range(VALUES)]
    (folder / "list.txt").write_text("\n".join(values) + "\n")
    rows = (f"u{i},{rng.choice(values)}" for i in range(ROWS))
    (folder / "people.csv").write_text("uid,value\n" + "\n".join(rows) + "\n")


def cpu_seconds(arguments: Sequence[str], *, compiled: bool = True) -> float:
    """User and system seconds of `beam-ldp` and of all that it starts.

    Args:
        arguments: of the command.
        compiled: read what was compiled at installation; else compile all, and keep nothing.
    """
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as empty:
        if not compiled:
            environment |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": empty}
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [str(Path(sys.executable).with_name("beam-ldp")), *arguments]
        subprocess.run(command, check=True, env=environment, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit code 1 where a target is missed")
    given = parser.parse_args(argv)
    lines = ["| command | CPU seconds | target | |", "|---|---|---|---|"]
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_people(folder)
        for said, arguments, target in commands(folder):
            cpu_seconds(arguments)
            found = min(cpu_seconds(arguments) for _ in range(given.times))
            missed += found > target
            verdict = "passes" if found <= target else "FAILS"
            lines.append(f"| {said} | {found:.2f} | {target:.1f} | {verdict} |")
            print(f"{said:32} {found:6.2f} {target:6.1f}  {verdict}", flush=True)
        bare = cpu_seconds(["plan", "frequency", "--help"], compiled=False)
        lines.append(f"| plan frequency --help, nothing compiled | {bare:.2f} | | |")
        print(f"{'plan frequency --help, bare':32} {bare:6.2f}")
    RESULTS.write_text("# From the command to the answer\n\n" + "\n".join(lines) + "\n")
    return 1 if given.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
