"""How often intervals of means hold the truth, and how wide they are: docs/outputs.md.

python -m benchmarks.error_bars [--reports 30,100,1000] [--only PrivUnit,ScalarMean] [--intervals N]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers import mean
from beam_ldp.randomizers.mean import MeanRandomizer

EPSILONS = (0.5, 2.0, 8.0)
REPORTS = (30, 100, 1000, 10_000)
DATA = ("one vector", "one axis", "skewed", "sparse")
INTERVALS = 4000
MOST_NUMBERS = 4_000_000  # coordinates of reports in one table cell
LEVEL, NORMAL = 0.95, 1.959963984540054
FEW = 20  # reports, or surprising ones, about a coordinate: fewer are rare

KINDS: dict[int, dict[str, dict[str, object]]] = {
    1: {"ScalarMean": {}, "LInfMean": {}, "BinaryVectorMean": {}},
    16: {
        "PrivUnit": {}, "PrivUnitGaussian": {}, "SeparatedMean": {},
        "RandomCodebookMean": {"index_bits": 6}, "MinimalRandomCoding": {"index_bits": 6},
        "RotatedSimplexMean": {"index_bits": 4}, "ProjectedPrivUnit": {"projected": 16},
        "PrivUnitInf": {}, "L1Mean": {}, "L2Mean": {"cutoff": math.inf}, "LInfMean": {},
        "BinaryVectorMean": {},
    },
    300: {
        "PrivUnit": {}, "SeparatedMean": {}, "ProjectedPrivUnit": {"projected": 512},
        "PrivUnitInf": {}, "L1Mean": {}, "L2Mean": {"cutoff": math.inf}, "LInfMean": {},
        "KashinMean": {},
    },
}  # fmt: skip


class Coverage(NamedTuple):
    """What so many intervals did.

    Attributes:
        intervals: how many, of single coordinates.
        held: the share of them that hold the truth.
        worst_case: the share of those of the worst data, with normal quantiles.
        width: of the intervals, on average, over those of the exact errors of these data.
        worst_width: likewise of the worst data.
        telling: the fewest reports about a coordinate, or of the side that surprises, that are to
            be expected.
        apart: how far people differ, in variances of the noise: where one number is all that a
            report tells, intervals are wider by that.
    """

    intervals: int
    held: float
    worst_case: float
    width: float
    worst_width: float
    telling: float
    apart: float

    @property
    def rare(self) -> bool:
        """Whether so few tell that one more or less moves the mean by a good part of its error."""
        return self.telling < FEW


def people(data: str, count: int, mechanism: MeanRandomizer, seed: int) -> np.ndarray:
    """Vectors of the ball, or bits: `(count, dimension)`."""
    rng, d = np.random.default_rng(seed), mechanism.dimension
    if data == "one axis":
        vectors = np.zeros((count, d))
        vectors[:, 0] = 1
    elif data == "one vector":
        vectors = np.tile(np.abs(rng.normal(size=d)), (count, 1))
    elif data == "sparse":  # one person in twenty holds anything
        vectors = np.zeros((count, d))
        vectors[::20, np.arange(0, count, 20).size % d] = 1
    else:
        vectors = rng.normal(size=(count, d)) + 1
    order = {"linf": np.inf, "binary": np.inf, "l1": 1}.get(mechanism.norm, 2)
    length = np.linalg.norm(vectors, ord=order, axis=1, keepdims=True)
    vectors /= np.where(length > 0, length, 1)
    if data == "short":
        vectors *= rng.random((count, 1))
    elif data == "skewed":  # most are short, a few as long as can be
        vectors *= np.minimum(rng.exponential(0.15, (count, 1)), 1.0)
    if mechanism.norm == "binary":
        return (vectors > 0.5).astype(float)
    return vectors * mechanism.radius


def coverage(mechanism: MeanRandomizer, data: str, reports: int, runs: int, seed: int) -> Coverage:
    """The same people asked again and again, with fresh noise."""
    vectors = people(data, reports, mechanism, seed)
    rng, truth = np.random.default_rng(seed), mechanism._as_truth(vectors).mean(axis=0)
    exact = NORMAL * np.sqrt(mechanism.variance(reports, vectors))
    worst = NORMAL * np.sqrt(mechanism.variance(reports))
    inside, inside_worst, width, telling = 0, 0, 0.0, float(reports)
    if isinstance(mechanism, mean.ScalarMean):
        telling *= 1 - mechanism.response.truthful
    for _ in range(runs):
        statistic = mechanism.accumulate(mechanism.randomize(vectors, rng))
        estimate = mechanism.estimate(statistic, reports)
        low, high = estimate.confidence_interval(LEVEL)
        inside += np.count_nonzero((low <= truth) & (truth <= high))
        inside_worst += np.count_nonzero(np.abs(estimate.value - truth) <= worst)
        width += float(np.mean((high - low) / (2 * exact)))
        telling = min(telling, 1 / max(1e-9, float(np.max(estimate.skewness))) ** 2)
    count = runs * mechanism.dimension
    held = inside / count, inside_worst / count
    apart = float(np.mean(vectors.var(axis=0) / reports * (NORMAL / exact) ** 2))
    return Coverage(count, *held, width / runs, float(np.mean(worst / exact)), telling, apart)


class Cell(NamedTuple):
    """One row of the table: a mechanism and a number of reports, all kinds of data.

    Attributes:
        name: of the mechanism.
        dimension: its coordinates.
        epsilon: its local budget.
        reports: how many.
        found: by kind of data.
    """

    name: str
    dimension: int
    epsilon: float
    reports: int
    found: dict[str, Coverage]


def cells(
    reports: tuple[int, ...] = REPORTS,
    only: frozenset[str] = frozenset(),
    intervals: int = INTERVALS,
    epsilons: tuple[float, ...] = EPSILONS,
    dimensions: tuple[int, ...] = tuple(KINDS),
    most: int = MOST_NUMBERS,
) -> Iterator[Cell]:
    """All rows, each of at least so many intervals of each kind of data, as `most` permits."""
    for dimension in dimensions:
        for name, options in KINDS[dimension].items():
            if only and name not in only:
                continue
            for epsilon in epsilons:
                mechanism = getattr(mean, name)(dimension, epsilon, **options)
                for count in reports:
                    affordable = max(2, most // (count * dimension))
                    runs = min(affordable, math.ceil(intervals / dimension))
                    found = {
                        data: coverage(mechanism, data, count, runs, seed=count + dimension)
                        for data in DATA
                    }
                    yield Cell(name, dimension, epsilon, count, found)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Coverage and width of 95 % intervals of means.")
    parser.add_argument("--reports", default=",".join(map(str, REPORTS)))
    parser.add_argument("--only", default="", help="names of mechanisms")
    parser.add_argument("--intervals", type=int, default=INTERVALS)
    asked = parser.parse_args()
    only = frozenset(name for name in asked.only.split(",") if name)
    print("| mechanism | d | eps0 | reports | intervals that hold | width / exact | before |")
    print("|---|---|---|---|---|---|---|")
    for cell in cells(tuple(map(int, asked.reports.split(","))), only, asked.intervals):
        held = [one.held for one in cell.found.values()]
        wide = [one.width for one in cell.found.values()]
        before = [one.worst_width for one in cell.found.values()]
        rare = " (rare)" if any(one.rare for one in cell.found.values()) else ""
        print(
            f"| {cell.name} | {cell.dimension} | {cell.epsilon:g} | {cell.reports:,} "
            f"| {min(held):.3f} to {max(held):.3f} | {min(wide):.2f} to {max(wide):.2f}{rare} "
            f"| {min(before):.2f} to {max(before):.2f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
