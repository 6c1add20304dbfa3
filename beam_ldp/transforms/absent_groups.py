"""Declared groups of which nothing arrived: they are withheld too, and said to be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam

from beam_ldp.transforms.blocks import Release, WithheldRelease
from beam_ldp.transforms.gate import TOO_FEW
from beam_ldp.transforms.portable import PortableDomain
from beam_ldp.transforms.stage_types import is_global


def with_absent_groups(
    releases: beam.PCollection,
    withheld: beam.PCollection,
    groups: PortableDomain,
    min_reports: int,
) -> beam.PCollection:
    """The notices, with one more for every declared group that sent no report at all.

    Only for bounded data in one window: elsewhere nobody knows when a window has ended that no
    element was ever in. `other` is no declared group.

    Args:
        releases: `(group, Release)`s.
        withheld: `WithheldRelease`s.
        groups: the public list.
        min_reports: reports that were needed.
    """
    if not (is_global(releases) and releases.is_bounded):
        return withheld
    seen = (
        releases | "Released groups" >> beam.Map(_group_of).with_output_types(str),
        withheld | "Withheld groups" >> beam.Map(_group_of).with_output_types(str),
    ) | "Groups seen" >> beam.Flatten()
    absent = (
        releases.pipeline
        | "Start groups" >> beam.Impulse()
        | "Absent groups"
        >> beam.ParDo(_Absent(groups, min_reports), beam.pvalue.AsIter(seen)).with_output_types(
            WithheldRelease
        )
    )
    return (withheld, absent) | "All groups withheld" >> beam.Flatten()


def _group_of(element: tuple[str, Release] | WithheldRelease) -> str:
    if isinstance(element, WithheldRelease):
        return element.group or ""
    return element[0]


class _Absent(beam.DoFn):
    def __init__(self, groups: PortableDomain, min_reports: int) -> None:
        self._groups = groups
        self._min_reports = min_reports

    def process(self, element: bytes, seen: Iterable[str]) -> Iterator[WithheldRelease]:
        known = set(seen)
        for label in self._groups.load().labels[:-1]:
            if label not in known:
                yield WithheldRelease(0, self._min_reports, TOO_FEW, group=label)
