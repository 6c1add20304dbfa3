"""The rows of `ReleaseToRows` for sinks that want records and a schema: Parquet, BigQuery, SQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, Literal, get_type_hints

import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

from beam_ldp.transforms.release_rows import FrequencyRow, MeanRow

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
