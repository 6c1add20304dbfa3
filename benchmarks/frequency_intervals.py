"""How often intervals of frequencies hold the truth, by enumeration of every count that may come,
and how long a long list takes: docs/outputs.md.

python -m benchmarks.frequency_intervals
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy import stats

from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import (
    KRandomizedResponse,
    LocalHashing,
    PairwiseIndependentRappor,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.frequency_oracle import FrequencyOracle
from beam_ldp.randomizers.intervals import NORMAL

SETTINGS: tuple[tuple[FrequencyOracle, int, int], ...] = (
    (UnaryEncoding(20, 8.0), 50, 1),
    (UnaryEncoding(20, 8.0), 1000, 1),
    (LocalHashing(20, 8.0), 50, 1),
    (PairwiseIndependentRappor(20, 8.0), 50, 1),
    (SubsetSelection(20, 8.0), 50, 1),
    (KRandomizedResponse(20, 4.0), 50, 5),
    (KRandomizedResponse(2, 1.0), 100, 50),
    (SubsetSelection(20, 2.0), 1000, 100),
)
LEVEL = 0.95
VALUES, PEOPLE = 4_000_000, 10**8

Intervals = Callable[[Estimate], tuple[np.ndarray, np.ndarray]]


def enumerated(
    oracle: FrequencyOracle, people: int, held: int, intervals: Intervals
) -> tuple[float, float]:
    """How often the interval of a value that so many hold holds that, and how wide it is."""
    p, q = oracle.support_probabilities
    law = np.convolve(
        stats.binom.pmf(np.arange(held + 1), held, p),
        stats.binom.pmf(np.arange(people - held + 1), people - held, q),
    )
    counts, found = np.arange(people + 1), []
    for start in range(0, len(counts), oracle.domain_size):
        some = np.resize(counts[start : start + oracle.domain_size], oracle.domain_size)
        value = (some / people - q) / (p - q)
        error = np.sqrt(oracle.variance(people, np.clip(value, 0, 1)))
        rule = oracle._interval_rule(some, people, "fixed")
        found.append(intervals(Estimate(value, error, people, rule=rule)))
    low, high = (np.concatenate(ends)[: len(counts)] for ends in zip(*found))
    low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    inside = (low <= held / people + 1e-12) & (held / people <= high + 1e-12)
    return float(law @ inside), float(law @ (high - low))


def normal(estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """Of the normal approximation, which all estimates had before."""
    return replace(estimate, rule=NORMAL).confidence_interval(LEVEL)


def own(estimate: Estimate) -> tuple[np.ndarray, np.ndarray]:
    """Of the estimate's own rule."""
    return estimate.confidence_interval(LEVEL)


def seconds(estimate: Estimate, intervals: Intervals) -> float:
    """CPU seconds of the fastest of three."""
    found = []
    for _ in range(3):
        start = time.process_time()
        intervals(estimate)
        found.append(time.process_time() - start)
    return min(found)


def main() -> None:
    """Print the tables."""
    print("| oracle | people | who hold it | normal holds | holds | normal width | width |")
    print("|---|---|---|---|---|---|---|")
    for oracle, people, held in SETTINGS:
        before, width_before = enumerated(oracle, people, held, normal)
        now, width = enumerated(oracle, people, held, own)
        name = f"`{type(oracle).__name__}({oracle.domain_size}, {oracle.local_epsilon:g})`"
        print(
            f"| {name} | {people:,} | {held} | {before:.1%} | {now:.1%} | {width_before:.4f} "
            f"| {width:.4f} |"
        )
    oracle, rng = UnaryEncoding(VALUES, 4.0), np.random.default_rng(0)
    q = oracle.support_probabilities[1]
    counts = rng.normal(PEOPLE * q, np.sqrt(PEOPLE * q * (1 - q)), VALUES)
    estimate = oracle.estimate(np.rint(counts).astype(np.int64), PEOPLE)
    ways: dict[str, Intervals] = {
        "normal": normal,
        "one by one": own,
        "all at once": lambda one: one.confidence_interval(LEVEL, simultaneous=True),
    }
    told = (f"{name} {seconds(estimate, way):.2f}" for name, way in ways.items())
    print(f"\n{VALUES:,} values, CPU seconds: {', '.join(told)}")


if __name__ == "__main__":
    main()
