"""Whether regions of averaged private SGD hold the minimum as often as they say.

    python -m benchmarks.averaged_sgd [--runs 400] [--steps 2000,20000] [--output FOLDER]

The setting of the paper on protection against reconstruction, in fewer dimensions: x uniform on the
unit sphere, a logistic model of length 4, one person and one message a step, steps eta_0 k^-0.51.
For each budget and number of people: the share of runs whose region holds the truth, the squared
distance beside that of the law (Theorem 3), and beside the law without privacy. Writes
averaged_sgd.json and .md; a minute on one core.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from beam_ldp.federated.averaged_sgd import AveragedSgd, averaged_sgd, private_averaged_sgd
from beam_ldp.randomizers.mean import SeparatedMean

DIMENSION, LENGTH, DECAY, LEVEL = 5, 4.0, 0.51, 0.95
EPSILONS = (math.inf, 16.0, 8.0, 4.0)
POPULATION = 200_000  # points that stand for all in the law
Row = dict[str, Any]


def directions(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Uniform on the unit sphere."""
    x = rng.standard_normal(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def truth() -> np.ndarray:
    """The model that makes the labels."""
    return np.full(DIMENSION, LENGTH / math.sqrt(DIMENSION))


def mechanism_of(epsilon: float) -> SeparatedMean | None:
    """The best split of the budget over direction and length; gradients are no longer than 1."""
    return SeparatedMean(DIMENSION, epsilon) if math.isfinite(epsilon) else None


def law_of(mechanism: SeparatedMean | None, steps: int) -> AveragedSgd:
    """The law at the truth, its population drawn once."""
    rng = np.random.default_rng(20180612)
    x = directions(rng, (POPULATION, DIMENSION))
    chance = special.expit(x @ truth())
    hessian = (x * (chance * (1 - chance))[:, None]).T @ x / len(x)
    gradients = x * (chance - (rng.random(len(x)) < chance))[:, None]
    if mechanism is None:
        return averaged_sgd(hessian, gradients.T @ gradients / len(x), steps)
    return private_averaged_sgd(hessian, gradients, mechanism, steps)


def averages(
    mechanism: SeparatedMean | None, runs: int, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """The average models of `runs` trainings, from theta = 0."""
    theta, mean = np.zeros((runs, DIMENSION)), np.zeros((runs, DIMENSION))
    for k in range(1, steps + 1):
        x = directions(rng, (runs, DIMENSION))
        label = rng.random(runs) < special.expit(x @ truth())
        sent = x * (special.expit((x * theta).sum(axis=1)) - label)[:, None]
        if mechanism is not None:
            sent = mechanism.fixed_point.decode(mechanism.randomize(sent, rng=rng))
        theta -= 4 * k**-DECAY * sent
        mean += (theta - mean) / k
    return mean


def measured(epsilon: float, runs: int, steps: int) -> Row:
    """One budget and number of people: regions against runs."""
    mechanism = mechanism_of(epsilon)
    law, without = law_of(mechanism, steps), law_of(None, steps)
    found = averages(mechanism, runs, steps, np.random.default_rng(steps))
    squared = law.distance(found, truth()) ** 2
    low, high = law.confidence_interval(found, LEVEL)
    return {
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "steps": steps,
        "runs": runs,
        "region_coverage": float(np.mean(squared <= law.region_radius(LEVEL) ** 2)),
        "interval_coverage": float(np.mean((low <= truth()) & (truth() <= high))),
        "squared_distance": float(np.mean(((found - truth()) ** 2).sum(axis=1))),
        "law": law.mean_squared_error,
        "law_without_privacy": without.mean_squared_error,
    }


def page(rows: list[Row]) -> str:
    """The table as a Markdown page."""
    runs = rows[0]["runs"]
    lines = [
        "# Confidence regions of averaged private SGD",
        "",
        f"`python -m benchmarks.averaged_sgd` writes this page: {runs} runs of a logistic "
        f"regression in {DIMENSION} dimensions, one person a step. Regions of {LEVEL:.0%} are "
        "those of `private_averaged_sgd`; two standard errors of a coverage are "
        f"{2 * math.sqrt(LEVEL * (1 - LEVEL) / runs):.1%}.",
        "",
        "| local epsilon | people | region holds the truth | intervals hold it "
        "| squared distance | of the law | times no privacy |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        epsilon = "no privacy" if row["epsilon"] is None else f"{row['epsilon']:g}"
        lines.append(
            f"| {epsilon} | {row['steps']:,} | {row['region_coverage']:.1%} | "
            f"{row['interval_coverage']:.1%} | {row['squared_distance']:.4g} | {row['law']:.4g} | "
            f"{row['law'] / row['law_without_privacy']:.3g} |"
        )
    lines += [
        "",
        "The law is that of the limit. Where there are too few people for the noise, averages are "
        "still on their way, and regions hold the truth too seldom: more people, or more budget, "
        "mend that.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: list[str] | None = None) -> list[Row]:
    """Measure, write everything, print the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--steps", default="2000,20000")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    counts = [int(count) for count in options.steps.split(",")]
    rows = [measured(epsilon, options.runs, count) for epsilon in EPSILONS for count in counts]
    (options.output / "averaged_sgd.json").write_text(json.dumps(rows, indent=2) + "\n")
    (options.output / "averaged_sgd.md").write_text(page(rows))
    print(page(rows))
    return rows


if __name__ == "__main__":
    main()
