"""What the tests of the Beam stages share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing.test_pipeline import TestPipeline
from scipy import stats

from beam_ldp.randomizers.frequency.k_randomized_response import KRandomizedResponse
from beam_ldp.transforms import ValueBlock

ORACLE = KRandomizedResponse(5, 1.5)
TRUTH = np.array([0.4, 0.3, 0.15, 0.1, 0.05])


def local(*flags: str) -> TestPipeline:
    """A pipeline on the local runner, named so that nothing is downloaded."""
    return TestPipeline(runner="FnApiRunner", options=PipelineOptions(list(flags)))


def run(build: Callable[[beam.Pipeline], beam.PCollection], *flags: str) -> list[Any]:
    """The elements of the collection that `build` makes."""
    _KEPT.clear()
    with local(*flags) as pipeline:
        build(pipeline) | "Keep" >> beam.Map(_keep)
    return list(_KEPT)


_KEPT: list[Any] = []


def _keep(element: Any) -> None:
    _KEPT.append(element)


def truth_values(num_users: int) -> np.ndarray:
    """Values with exactly the frequencies TRUTH."""
    counts = np.round(TRUTH * num_users).astype(int)
    counts[0] += num_users - counts.sum()
    return np.repeat(np.arange(len(TRUTH)), counts)


def value_blocks(values: np.ndarray, size: int, ids: bool = False) -> list[ValueBlock]:
    """The values cut into blocks with source positions."""
    return [
        ValueBlock(
            values[start : start + size],
            np.arange(start, min(start + size, len(values))) if ids else None,
            source="test",
            positions=np.arange(start, min(start + size, len(values))),
        )
        for start in range(0, len(values), size)
    ]


def blocks_of(pipeline: beam.Pipeline, blocks: list[Any], label: str = "Blocks") -> Any:
    """Blocks as a typed collection."""
    return pipeline | label >> beam.Create(blocks).with_output_types(type(blocks[0]))


def held_blocks_of(pipeline: beam.Pipeline, blocks: list[Any]) -> Any:
    """The same for megabytes: Beam would pack what it is given with bz2, a dozen times.

    The blocks stay in this process, so this is for the local runner with one process.
    """
    _HELD[:] = blocks
    numbers = pipeline | "Numbers" >> beam.Create(range(len(blocks)), reshuffle=False)
    return numbers | "Held" >> beam.Map(_held).with_output_types(type(blocks[0]))


_HELD: list[Any] = []


def _held(number: int) -> Any:
    return _HELD[number]


def chi_square(counts: np.ndarray, expected: float) -> float:
    """Normal score of a chi-square statistic against equal expectations: as improbable.

    Not (statistic - degrees) / sqrt(2 degrees): with one degree of freedom that passes 5 by chance
    once in 220 times.
    """
    statistic = float(((counts - expected) ** 2).sum() / expected)
    return float(stats.norm.isf(stats.chi2.sf(statistic, counts.size - 1)))
