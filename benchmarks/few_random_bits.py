"""Figures 7.7 and 7.8 of the thesis, computed anew: error of frequencies from few random bits.

    python -m benchmarks.few_random_bits [--runs 20] [--output benchmarks/results]

1,000 values, the i-th held by 0.2 * 0.8**(i - 1) of the people; estimates clipped and scaled to sum
one, as the text's must have been; means over runs with fixed seeds. Beside the text's mechanism
(`binary`) stands `timeshare`, which has the same bits on average. Writes few_random_bits.json,
few_random_bits.md and few_random_bits.png. Takes about a minute.
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
from beam_ldp.randomizers.entropy import critical_bits
from beam_ldp.randomizers.frequency import LimitedHadamard

VALUES = 1000
PEOPLE = (100_000, 150_000, 300_000, 500_000, 850_000, 1_000_000)  # Figure 7.7, at epsilon 1
BUDGETS = (0.5, 0.7, 0.77, 0.8, 1.0, 1.4, 1.76, 1.8, 2.0)  # Figure 7.8, of 500,000 people
FEWER = 0.7  # bits, in Figure 7.7
TRIED = (1.0, 0.9, 0.6)  # bits, in Figure 7.8: the text gives both of the smaller ones
_HEIGHT = 4.6  # inches


def truth() -> np.ndarray:
    """Geometric frequencies."""
    shares = 0.8 ** np.arange(VALUES)
    return np.asarray(shares / shares.sum())


def mean_error(users: int, budget: float, bits: float, mode: str, runs: int) -> float:
    """Mean over runs of the sum of absolute errors."""
    oracle = LimitedHadamard(VALUES, budget, bits, mode, "public")
    shares, errors = truth(), []
    for seed in range(runs):
        rng = np.random.default_rng([seed, users, round(1000 * budget), round(1000 * bits)])
        values = rng.choice(VALUES, users, p=shares)
        estimate = oracle.estimate(oracle.accumulate(oracle.randomize(values, rng)), users)
        found = estimate.clip_and_renormalize().value
        errors.append(float(np.abs(found - shares).sum()))
    return float(np.mean(errors))


def computed(runs: int) -> dict[str, Any]:
    """All numbers of the page."""
    people = [
        {
            "people": users,
            "full": mean_error(users, 1.0, 1.0, "binary", runs),
            "binary": mean_error(users, 1.0, FEWER, "binary", runs),
            "timeshare": mean_error(users, 1.0, FEWER, "timeshare", runs),
        }
        for users in PEOPLE
    ]
    budgets = [
        {
            "local_epsilon": budget,
            "critical_bits": critical_bits(budget),
            **{f"{bits:g}": mean_error(500_000, budget, bits, "binary", runs) for bits in TRIED},
        }
        for budget in BUDGETS
    ]
    return {"schema_version": 1, "runs": runs, "people": people, "budgets": budgets}


def picture(found: dict[str, Any]) -> bytes:
    """Both figures, side by side."""
    figure = figure_with(
        "Error of 1,000 frequencies from few random bits",
        "sum of absolute errors, of estimates that are clipped and scaled to sum one",
        _HEIGHT,
    )
    panels = (
        (0.08, found["people"], "people", "people, at a local epsilon of 1 (Figure 7.7)",
         (("full", "1 bit", ESTIMATE), ("timeshare", "0.7 bits on average", "#1b998b"),
          ("binary", "0.7 bits each", TRUTH))),
        (0.57, found["budgets"], "local_epsilon", "local epsilon, of 500,000 people (Figure 7.8)",
         (("1", "1 bit", ESTIMATE), ("0.9", "0.9 bits", "#1b998b"), ("0.6", "0.6 bits", TRUTH))),
    )  # fmt: skip
    for left, rows, across, label, curves in panels:
        box = (left, BELOW / _HEIGHT, 0.4, 1 - (ABOVE + BELOW) / _HEIGHT)
        axes = figure.add_axes(box)
        for name, said, colour in curves:
            x, y = [row[across] for row in rows], [row[name] for row in rows]
            axes.plot(x, y, color=colour, linewidth=2.2, marker="o", markersize=4, label=said)
        axes.set_ylim(0)
        if across == "people":
            axes.set_xticks([200_000, 600_000, 1_000_000], ["200,000", "600,000", "1,000,000"])
        axes.grid(axis="y", color=GRID, linewidth=0.8)
        axes.set_axisbelow(True)
        bare(axes, "top", "right")
        axes.legend(frameon=False, fontsize=9, loc="lower left")
        axes.set_xlabel(label, color=GREY)
        axes.set_ylabel("sum of absolute errors", color=GREY)
    return png(figure)


def page(found: dict[str, Any]) -> str:
    """Tables as a Markdown page."""
    lines = [
        "# Figures 7.7 and 7.8 of the thesis, computed anew: few random bits",
        "",
        f"`python -m benchmarks.few_random_bits` writes this page: means of {found['runs']} runs.",
        "",
        "![error against people and local epsilon](few_random_bits.png)",
        "",
        "The sum of the absolute errors of 1,000 frequencies, clipped and scaled to sum one.",
        "",
        "## Figure 7.7",
        "",
        f"A local epsilon of 1, which needs {critical_bits(1.0):.2f} bits; with {FEWER:g} bits for "
        "every report (`binary`, the text's) and on average (`timeshare`):",
        "",
        "| people | 1 bit | 0.7 bits each | 0.7 bits on average |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {row['people']:,} | {row['full']:.3f} | {row['binary']:.3f} | {row['timeshare']:.3f} |"
        for row in found["people"]
    ]
    lines += [
        "",
        "## Figure 7.8",
        "",
        "500,000 people, `binary`. The error jumps where the bits suffice from (needed bits):",
        "",
        "| local epsilon | needed bits | " + " | ".join(f"{b:g} bits" for b in TRIED) + " |",
        "|---" * (2 + len(TRIED)) + "|",
    ]
    lines += [
        f"| {row['local_epsilon']:g} | {row['critical_bits']:.3f} | "
        + " | ".join(f"{row[f'{bits:g}']:.3f}" for bits in TRIED)
        + " |"
        for row in found["budgets"]
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Compute, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    found = computed(options.runs)
    (options.output / "few_random_bits.json").write_text(json.dumps(found, indent=2) + "\n")
    (options.output / "few_random_bits.md").write_text(page(found))
    (options.output / "few_random_bits.png").write_bytes(picture(found))
    print(page(found))
    return found


if __name__ == "__main__":
    main()
