"""The command line."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import benchmarks.paper_figures
from benchmarks.paper_figures.claims import CLAIMS, as_table
from benchmarks.paper_figures.figures import FIGURES, draw

RESULTS = Path(__file__).resolve().parents[1] / "results" / "paper_figures"


def main() -> None:
    """Draws the figures and writes the table, saying what it does."""
    parser = argparse.ArgumentParser(
        description=benchmarks.paper_figures.__doc__, prog="python -m benchmarks.paper_figures"
    )
    parser.add_argument(
        "--output", type=Path, default=RESULTS, help="folder for PNGs and claims.md"
    )
    parser.add_argument(
        "--only", nargs="+", choices=[*FIGURES, "claims"], default=[*FIGURES, "claims"],
        help="which figures, or the table of claims",
    )  # fmt: skip
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    begin = time.perf_counter()

    def say(what: str) -> None:
        print(f"\r{time.perf_counter() - begin:5.0f} s  {what:<76.76}", end="", file=sys.stderr)

    for name, figure in FIGURES.items():
        if name in options.only:
            say(f"figure {name}")
            for step in draw(figure(), options.output):
                say(f"figure {name}: {step}")
    if "claims" in options.only:
        rows = []
        for claim in CLAIMS:
            say(f"claim: {claim.text}")
            rows.append(claim.judge())
        (options.output / "claims.md").write_text(as_table(rows), encoding="utf-8")
    say(f"written to {options.output}\n")


if __name__ == "__main__":
    main()
