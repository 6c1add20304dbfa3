"""How often intervals of means hold the truth, and how wide they are: docs/outputs.md.

python -m benchmarks.error_bars
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers.mean import MeanRandomizer, PrivUnit

DIMENSIONS = ((3, 4000), (30, 400), (300, 40), (3000, 4))
REPORTS = 1000
LEVEL = 0.95


class Coverage(NamedTuple):
    """What so many intervals did.

    Attributes:
        intervals: how many, of single coordinates.
        measured: the share of measured ones that hold the truth.
        worst_case: the share of those of the worst data.
        too_wide: measured standard errors over the exact ones of these data, on average.
        too_wide_before: likewise of the worst data.
    """

    intervals: int
    measured: float
    worst_case: float
    too_wide: float
    too_wide_before: float


def people(data: str, count: int, mechanism: MeanRandomizer, seed: int) -> np.ndarray:
    """Vectors of the ball: `(count, dimension)`."""
    rng, d = np.random.default_rng(seed), mechanism.dimension
    if data == "one axis":
        vectors = np.zeros((count, d))
        vectors[:, 0] = 1
    elif data == "one vector":
        vectors = np.tile(np.abs(rng.normal(size=d)), (count, 1))
    else:
        vectors = rng.normal(size=(count, d)) + 1
    order = np.inf if mechanism.norm == "linf" else 2
    vectors /= np.linalg.norm(vectors, ord=order, axis=1, keepdims=True)
    return vectors * rng.random((count, 1)) if data == "short" else vectors


def coverage(mechanism: MeanRandomizer, data: str, reports: int, runs: int, seed: int) -> Coverage:
    """The same people asked again and again, with fresh noise."""
    vectors = people(data, reports, mechanism, seed)
    rng, truth = np.random.default_rng(seed), vectors.mean(axis=0)
    exact = np.sqrt(mechanism.variance(reports, vectors))
    worst = np.sqrt(mechanism.variance(reports))
    half = 1.959963984540054
    inside, inside_worst, width = 0, 0, 0.0
    for _ in range(runs):
        statistic = mechanism.accumulate(mechanism.randomize(vectors, rng))
        estimate = mechanism.estimate(statistic, reports)
        low, high = estimate.confidence_interval(LEVEL)
        inside += np.count_nonzero((low <= truth) & (truth <= high))
        inside_worst += np.count_nonzero(np.abs(estimate.value - truth) <= half * worst)
        width += float(np.mean(estimate.standard_error / exact))
    count = runs * mechanism.dimension
    return Coverage(
        count, inside / count, inside_worst / count, width / runs, float(np.mean(worst / exact))
    )


def main() -> None:
    """Print the table."""
    print(
        "| coordinates | intervals that hold | with bars of the worst values | bar / exact "
        "| worst / exact |"
    )
    print("|---|---|---|---|---|")
    for dimension, runs in DIMENSIONS:
        found = coverage(PrivUnit(dimension, 5.0), "one vector", REPORTS, runs, seed=dimension)
        print(
            f"| {dimension:,} | {found.measured:.1%} | {found.worst_case:.2%} "
            f"| {found.too_wide:.2f} | {found.too_wide_before:.2f} |"
        )


if __name__ == "__main__":
    main()
