"""The collector's sum of what the shuffler released."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.typehints import typehints

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.blocks import ShuffledBlock, ShuffledSum, StatisticBlock
from beam_ldp.transforms.counters import BlockCounters
from beam_ldp.transforms.mechanisms import task_of
from beam_ldp.transforms.portable import PortableRandomizer
from beam_ldp.transforms.stage_types import Element, expect
from beam_ldp.transforms.sums import NO_KEY, RunningSum, SumReports, check_digest, combine_sums
from beam_ldp.transforms.windows import is_streamed


class Aggregate(beam.PTransform):
    """Adds up everything that the shuffler released: one sum per group and window.

    In: `ShuffledBlock`s or `ShuffledSum`s, with or without keys; or a tuple of such collections.
    Out: one `StatisticBlock` per key and window, with the key where there was one.

    Args:
        randomizer: the mechanism that made the reports; reports of another one stop the run.

    Raises:
        StageError: if the input did not go through `Shuffle`.
        MismatchError: at run time, for reports of another mechanism.
    """

    def __init__(self, randomizer: LocalRandomizer) -> None:
        super().__init__()
        self._carried = PortableRandomizer(randomizer)

    def expand(self, pcoll: beam.PCollection | tuple[beam.PCollection, ...]) -> beam.PCollection:
        parts = pcoll if isinstance(pcoll, tuple) else (pcoll,)
        accepted, task = (ShuffledBlock, ShuffledSum), task_of(self._carried.randomizer)
        elements = [expect("Aggregate", part, *accepted, task=task) for part in parts]
        element = elements[0]
        output = "reports" if element.kind is ShuffledBlock else "statistic"
        if len(parts) == 1 and is_streamed(parts[0]):  # each block is the whole of its release
            return self._one_by_one(parts[0], element, output)
        sums = [
            part
            | f"Partial sums {i}"
            >> beam.ParDo(self._summer(output, element.keyed)).with_output_types(
                typehints.Tuple[element.key or str, StatisticBlock]
            )
            for i, part in enumerate(parts)
        ]
        together = sums[0] if len(sums) == 1 else sums | "All sums" >> beam.Flatten()
        return (
            together
            | combine_sums(self._carried, "Add sums")
            | "Name output"
            >> beam.Map(_finish, output=output, keyed=element.keyed).with_output_types(
                element.of(StatisticBlock)
            )
        )

    def _one_by_one(
        self, pcoll: beam.PCollection, element: Element, output: str
    ) -> beam.PCollection:
        doer = _AsStatistic(self._carried, element.keyed)
        return (
            pcoll
            | "Sum"
            >> beam.ParDo(doer).with_output_types(
                typehints.Tuple[element.key or str, StatisticBlock]
            )
            | "Name output"
            >> beam.Map(_finish, output=output, keyed=element.keyed).with_output_types(
                element.of(StatisticBlock)
            )
        )

    def _summer(self, output: str, keyed: bool) -> beam.DoFn:
        if output == "reports":
            return SumReports("Aggregate", self._carried, keyed)
        return _AsStatistic(self._carried, keyed)

    def display_data(self) -> dict[str, Any]:
        return {"mechanism": type(self._carried.randomizer).__name__}


class _AsStatistic(beam.DoFn):
    """A released sum as a statistic, or a whole release of reports: they left together."""

    def __init__(self, carried: PortableRandomizer, keyed: bool) -> None:
        self._carried = carried
        self._keyed = keyed

    def setup(self) -> None:
        self._digest = self._carried.randomizer.config_digest()
        self._blocks = BlockCounters("aggregate")

    def process(self, element: Any) -> Iterator[tuple[Any, StatisticBlock]]:
        key, released = element if self._keyed else (NO_KEY, element)
        check_digest("Aggregate", released.mechanism_digest, self._digest)
        with self._blocks.timed():
            statistic, num_reports = self._sum_of(released)
        self._blocks.add(num_reports)
        yield (
            key,
            StatisticBlock(
                statistic,
                num_reports,
                num_reports,
                released.mechanism_digest,
                released.simulated,
                late=released.late,
            ),
        )

    def _sum_of(self, released: ShuffledBlock | ShuffledSum) -> tuple[np.ndarray, int]:
        if isinstance(released, ShuffledSum):
            return released.statistic, released.num_reports
        return self._sum(released.reports), len(released)

    def _sum(self, reports: np.ndarray) -> np.ndarray:
        running = RunningSum(self._carried.randomizer)
        running.add(reports, len(reports), False)
        return running.total().statistic


def _finish(element: tuple[Any, StatisticBlock], output: str, keyed: bool) -> Any:
    key, total = element
    total = replace(total, output=output)
    return (key, total) if keyed else total
