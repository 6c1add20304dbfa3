"""Figures 7.9 and 7.10 of the thesis, computed anew: random bits of one report for several readers.

    python -m benchmarks.levels [--output benchmarks/results]

All exact: entropies of the flips of one bit. Writes levels.json, levels.md and levels.png.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.questions.pictures import (
    ABOVE,
    BELOW,
    ESTIMATE,
    GREY,
    GRID,
    TRUTH,
    bare,
    figure_with,
    png,
)
from beam_ldp.randomizers.frequency.refinable_response import BinaryLevels

LARGEST = 1.0  # Figure 7.9: two readers, the other one's level varies
SMALLER = (0.01, 0.25, 0.5, 0.75, 0.9, 0.99)
READERS = range(1, 11)  # Figure 7.10
_HEIGHT = 4.6  # inches


def levels_of(readers: int) -> tuple[float, ...]:
    """Figure 7.10: 2, and then 1.8, 1.7, ..."""
    return (2.0, *(round(2 - 0.1 * j, 1) for j in range(2, readers + 1)))


def row(levels: tuple[float, ...]) -> dict[str, Any]:
    """One report for all, and a report for each."""
    found = BinaryLevels.of(levels)
    return {"levels": list(levels), "bits": found.bits, "bits_apart": found.bits_apart}


def computed() -> dict[str, Any]:
    """All numbers of the page."""
    return {
        "schema_version": 1,
        "two_readers": [row((LARGEST, level)) for level in SMALLER],
        "many_readers": [row(levels_of(readers)) for readers in READERS],
    }


def picture() -> bytes:
    """Both figures, side by side."""
    figure = figure_with(
        "Random bits of one report for several readers",
        "blue: one public report and keys of levels; red: a report for each reader",
        _HEIGHT,
    )
    varied = np.linspace(0.01, 0.999, 120)
    several = [row(levels_of(readers)) for readers in READERS]
    for left, x, rows, label, mark in (
        (0.08, varied, [row((LARGEST, float(e))) for e in varied],
         "second level; the first is 1 (Figure 7.9)", ""),
        (0.57, np.array(READERS), several,
         "readers, of levels 2, 1.8, 1.7, ... (Figure 7.10)", "o"),
    ):  # fmt: skip
        box = (left, BELOW / _HEIGHT, 0.4, 1 - (ABOVE + BELOW) / _HEIGHT)
        axes = figure.add_axes(box)
        for name, colour in (("bits_apart", TRUTH), ("bits", ESTIMATE)):
            y = [one[name] for one in rows]
            axes.plot(x, y, color=colour, linewidth=2.2, marker=mark or None)
        axes.set_ylim(0)
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        bare(axes, "top", "right")
        axes.set_xlabel(label, color=GREY)
        axes.set_ylabel("bits a person", color=GREY)
    return png(figure)


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    lines = [
        "# Figures 7.9 and 7.10 of the thesis, computed anew: one report for several readers",
        "",
        "`python -m benchmarks.levels` writes this page.",
        "",
        "![random bits of a report](levels.png)",
        "",
        "Random bits a person, where the answer is one bit: of one public report that readers with "
        "keys of their levels refine, and of a report for each, whose epsilons add up.",
    ]
    for name, title in (("two_readers", "Figure 7.9"), ("many_readers", "Figure 7.10")):
        lines += ["", f"## {title}", "", "| levels | one report | one for each |", "|---|---|---|"]
        lines += [
            f"| {', '.join(f'{e:g}' for e in one['levels'])} | {one['bits']:.4f} | "
            f"{one['bits_apart']:.4f} |"
            for one in found[name]
        ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found = computed()
    (options.output / "levels.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "levels.md").write_text(page(found))
    (options.output / "levels.png").write_bytes(picture())
    print(page(found))
    return found


if __name__ == "__main__":
    main()
