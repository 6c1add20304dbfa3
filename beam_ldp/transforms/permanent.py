"""Permanent responses: the same report in every window, and what that does to its price."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import apache_beam as beam

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.portable import PortableRandomizer
from beam_ldp.transforms.stage_types import element_of

if TYPE_CHECKING:
    from beam_ldp.transforms.budgeted import ChargeTo


def check_permanent(permanent: bool, budget: ChargeTo | None) -> None:
    """Refuse a budget for responses that no finite epsilon bounds.

    Raises:
        ValueError: if both are given.
    """
    if permanent and budget is not None:
        raise ValueError(
            "budget must be None where permanent is set: a person whose value changes sends a "
            "response that shows the change, and no finite epsilon holds for that. Leave permanent "
            "out (each window then draws new noise and is charged), or freeze each device's first "
            "value and charge one release"
        )


class PriceAsPermanent(beam.PTransform):
    """Releases of permanent responses, priced with the local epsilon alone.

    The batches of two windows differ by the people who came and went; the difference of the two
    shows their reports one by one, so no report hides among the others.

    Args:
        randomizer: the mechanism that made the reports.
    """

    def __init__(self, randomizer: LocalRandomizer) -> None:
        super().__init__()
        self._carried = PortableRandomizer(randomizer)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        keyed = element_of(pcoll).keyed
        doer = _Price(self._carried, keyed)
        return pcoll | "Local price" >> beam.ParDo(doer).with_output_types(pcoll.element_type)


class _Price(beam.DoFn):
    def __init__(self, carried: PortableRandomizer, keyed: bool) -> None:
        self._carried = carried
        self._keyed = keyed

    def process(self, element: Any) -> Iterator[Any]:
        key, release = element if self._keyed else (None, element)
        priced: Release = release
        if release.ran is not None:
            from beam_ldp.accounting.shuffle.randomizer_events import local_reports  # loads SciPy

            priced = replace(release, ran=local_reports(self._carried.randomizer))
        yield (key, priced) if self._keyed else priced
