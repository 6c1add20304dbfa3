"""Releases as rows with a schema, for any sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.utils.timestamp import Timestamp

from beam_ldp.randomizers.domain import Domain
from beam_ldp.transforms.blocks import Release
from beam_ldp.transforms.carried import CarriedDomain, IntegerDomain
from beam_ldp.transforms.stage_types import expect


class FrequencyRow(NamedTuple):
    """One value of one release. Counts are numbers of people, frequencies fractions of them."""

    question: str
    group: str | None
    window_start: Timestamp | None
    window_end: Timestamp | None
    value: str
    count: float  # type: ignore[assignment]
    count_standard_error: float
    count_low: float
    count_high: float
    frequency: float
    frequency_standard_error: float
    frequency_low: float
    frequency_high: float


beam.coders.registry.register_coder(FrequencyRow, beam.coders.RowCoder)


class ReleaseToRows(beam.PTransform):
    """One `FrequencyRow` per value of every release.

    In: `Release`s, with or without keys. Out: `FrequencyRow`s, which have a Beam schema.

    Args:
        domain: the public list of values, as given to `EncodeRows`; None names them 0, 1, ...
        level: probability with which an interval covers the truth.
        simultaneous: intervals that cover all values at once.
    """

    def __init__(
        self,
        domain: Domain | IntegerDomain | str | Path | None = None,
        *,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), got {level}")
        self._doer = _Rows(None if domain is None else CarriedDomain(domain), level, simultaneous)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        element = expect("ReleaseToRows", pcoll, Release)
        releases = pcoll
        if element.keyed:
            releases = pcoll | "Drop key" >> beam.Values().with_output_types(Release)
        return releases | "Rows" >> beam.ParDo(self._doer).with_output_types(FrequencyRow)


class _Rows(beam.DoFn):
    def __init__(self, domain: CarriedDomain | None, level: float, simultaneous: bool) -> None:
        self._domain = domain
        self._level = level
        self._simultaneous = simultaneous

    def setup(self) -> None:
        self._labels = None if self._domain is None else self._domain.load().labels

    def process(self, release: Release) -> Iterator[FrequencyRow]:
        yield from rows_of(release, self._labels, self._level, self._simultaneous)


def rows_of(
    release: Release,
    labels: tuple[str, ...] | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Iterator[FrequencyRow]:
    """The rows of one release; also for programs that hold releases outside a pipeline."""
    estimate = release.estimate
    if labels is not None and len(labels) != estimate.value.size:
        raise ValueError(f"domain must name {estimate.value.size} values, got {len(labels)}")
    start, end = (
        (None, None)
        if release.window is None
        else (Timestamp(micros=bound) for bound in release.window)
    )
    low, high = estimate.confidence_interval(level, simultaneous=simultaneous)
    columns: list[Any] = [estimate.value, estimate.standard_error, low, high]
    for i, fractions in enumerate(zip(*(column.tolist() for column in columns))):
        counts = (fraction * release.num_reports for fraction in fractions)
        name = str(i) if labels is None else labels[i]
        yield FrequencyRow(release.question, release.group, start, end, name, *counts, *fractions)
