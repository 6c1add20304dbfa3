"""Releases as rows with a schema, for any sink."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast, get_type_hints

import apache_beam as beam
import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from beam_ldp.questions.columns import IntegerDomain
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.transforms.elements.blocks import Release
from beam_ldp.transforms.elements.portable import PortableDomain
from beam_ldp.transforms.elements.stages import Task, expect

if TYPE_CHECKING:
    from beam_ldp.randomizers.mean.base import MeanEstimate


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


class MeanRow(NamedTuple):
    """One coordinate of one release, in the unit of the data.

    `error_bars` is "measured" or "worst case", as in `MeanEstimate`.
    """

    question: str
    group: str | None
    window_start: Timestamp | None
    window_end: Timestamp | None
    coordinate: str
    mean: float
    standard_error: float
    low: float
    high: float
    error_bars: str


for _kind in (FrequencyRow, MeanRow):
    beam.coders.registry.register_coder(_kind, beam.coders.RowCoder)


class ReleaseToRows(beam.PTransform):
    """One `FrequencyRow` per value, or one `MeanRow` per coordinate, of every release.

    In: `Release`s, with or without keys. Out: rows that have a Beam schema.

    Args:
        domain: for frequencies: the public list of values, as given to `EncodeRows`; None names
            them 0, 1, ...
        coordinates: for means: the names of the coordinates, or how many there are (they are then
            named 0, 1, ...).
        level: probability with which an interval covers the truth.
        simultaneous: intervals that cover all values, or coordinates, at once.

    Raises:
        ValueError: for arguments that do not fit together; at run time for releases of the other
            kind.
    """

    def __init__(
        self,
        domain: Domain | IntegerDomain | Bins | str | Path | None = None,
        *,
        coordinates: int | Sequence[str] | None = None,
        level: float = 0.95,
        simultaneous: bool = False,
    ) -> None:
        super().__init__()
        check_fraction("level", level)
        if domain is not None and coordinates is not None:
            raise ValueError(
                "domain is for frequencies and coordinates for means: give one of them"
            )
        if isinstance(coordinates, int):
            coordinates = [str(i) for i in range(coordinates)]
        kind: Any = FrequencyRow if coordinates is None else MeanRow
        listed = None if domain is None else PortableDomain(domain)
        names = None if coordinates is None else tuple(coordinates)
        self._doer = _Rows(kind, listed, names, level, simultaneous)

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        kind = self._doer.kind
        task: Task = "mean" if kind is MeanRow else "frequency"
        releases = pcoll
        if expect("ReleaseToRows", pcoll, Release, task=task).keyed:
            releases = pcoll | "Drop key" >> beam.Values().with_output_types(Release)
        return releases | "Rows" >> beam.ParDo(self._doer).with_output_types(kind)


@dataclass(eq=False)
class _Rows(beam.DoFn):
    kind: type
    domain: PortableDomain | None
    coordinates: tuple[str, ...] | None
    level: float
    simultaneous: bool

    def setup(self) -> None:
        if self.domain is not None:
            self.coordinates = self.domain.load().labels

    def process(self, release: Release) -> Iterator[FrequencyRow | MeanRow]:
        if is_mean_release(release) != (self.kind is MeanRow):
            raise ValueError(
                "ReleaseToRows needs coordinates=... for releases of means, and only for them"
            )
        yield from rows_of(release, self.coordinates, self.level, self.simultaneous)


def is_mean_release(release: Release) -> bool:
    """Whether the estimate is a mean vector, not a list of frequencies."""
    return hasattr(release.estimate, "bias_bound")


def rows_of(
    release: Release,
    labels: tuple[str, ...] | None = None,
    level: float = 0.95,
    simultaneous: bool = False,
) -> Iterator[FrequencyRow | MeanRow]:
    """The rows of one release; also for programs that hold releases outside a pipeline.

    `labels` name the values or the coordinates; None names them 0, 1, ...
    """
    estimate = release.estimate
    if labels is None:
        labels = tuple(map(str, range(estimate.value.size)))
    if len(labels) != estimate.value.size:
        name = "coordinates" if is_mean_release(release) else "domain"
        raise ValueError(f"{name} must name {estimate.value.size} values, got {len(labels)}")
    start, end = (
        (None, None)
        if release.window is None
        else (Timestamp(micros=bound) for bound in release.window)
    )
    place = (release.question, release.group, start, end)
    low, high = estimate.confidence_interval(level, simultaneous=simultaneous)
    columns: list[Any] = [estimate.value, estimate.standard_error, low, high]
    for name, numbers in zip(labels, zip(*(column.tolist() for column in columns))):
        if is_mean_release(release):
            bars = cast("MeanEstimate", estimate).error_bars
            mean, error, least, most = numbers
            yield MeanRow(*place, name, mean, error, least, most, bars)
        else:
            counts = (fraction * release.num_reports for fraction in numbers)
            yield FrequencyRow(*place, name, *counts, *numbers)


# The rows of `ReleaseToRows` for sinks that want records and a schema: Parquet, BigQuery, SQL.


RowKind = type[FrequencyRow] | type[MeanRow]
Sort = Literal["text", "number", "time"]

_ARROW = {"text": pa.string(), "number": pa.float64(), "time": pa.timestamp("us", "UTC")}
_BIGQUERY = {"text": "STRING", "number": "FLOAT", "time": "TIMESTAMP"}
_SQL = {"text": "VARCHAR", "number": "DOUBLE PRECISION", "time": "TIMESTAMP WITH TIME ZONE"}


def fields_of(kind: RowKind) -> Iterator[tuple[str, Sort, bool]]:
    """Name, sort and whether it may be null, of every field, in their order."""
    for name, hint in get_type_hints(kind).items():
        nullable = type(None) in getattr(hint, "__args__", ())
        of = next(one for one in getattr(hint, "__args__", (hint,)) if one is not type(None))
        sort: Sort = "text" if of is str else "time" if of is Timestamp else "number"
        yield name, sort, nullable


def arrow_schema(kind: RowKind) -> pa.Schema:
    """For `beam.io.WriteToParquet`.

    >>> arrow_schema(MeanRow).field("mean").type
    DataType(double)
    """
    return pa.schema([pa.field(name, _ARROW[sort], null) for name, sort, null in fields_of(kind)])


def bigquery_schema(kind: RowKind) -> dict[str, Any]:
    """For `beam.io.WriteToBigQuery(schema=...)`.

    >>> bigquery_schema(MeanRow)["fields"][0]
    {'name': 'question', 'type': 'STRING', 'mode': 'REQUIRED'}
    """
    return {
        "fields": [
            {"name": name, "type": _BIGQUERY[sort], "mode": "NULLABLE" if null else "REQUIRED"}
            for name, sort, null in fields_of(kind)
        ]
    }


def sql_table(kind: RowKind, table: str) -> str:
    """A `CREATE TABLE` in standard SQL. Names are quoted, for one of them is `count`.

    Raises:
        ValueError: if the name of the table is no identifier.

    >>> print(sql_table(MeanRow, "means").splitlines()[1].strip())
    "question" VARCHAR NOT NULL,
    """
    if not table.isidentifier():
        raise ValueError(f"table must be an identifier, got {table!r}")
    columns = ",\n  ".join(
        f'"{name}" {_SQL[sort]}{"" if null else " NOT NULL"}'
        for name, sort, null in fields_of(kind)
    )
    return f'CREATE TABLE "{table}" (\n  {columns}\n)'


def as_record(row: FrequencyRow | MeanRow) -> dict[str, Any]:
    """The row as a dictionary of plain Python values; times are in UTC."""
    return {name: _plain(value) for name, value in row._asdict().items()}


def _plain(value: Any) -> Any:
    if not isinstance(value, Timestamp):
        return value
    seconds, micros = divmod(value.micros, 1_000_000)
    return datetime.fromtimestamp(seconds, timezone.utc).replace(microsecond=micros)
