"""Rows of releases in the sinks that people have: SQL, Parquet, what BigQuery wants; schemas."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.settings import Privacy
from beam_ldp.transforms import (
    FrequencyRow,
    MeanRow,
    PrivateFrequencies,
    PrivateMean,
    ReleaseToRows,
    arrow_schema,
    as_record,
    bigquery_schema,
    sql_table,
)
from tests.transforms.helpers import local, run

COLOURS = Domain(("red", "green"))
PLAIN = KRandomizedResponse(COLOURS.size, 20.0)
BARE = Privacy(trust_shuffler=True)
START = 1_700_000_000 // 60 * 60


def rows(pipeline: beam.Pipeline) -> Any:
    """Two windows of colours; so large a local epsilon that reports are the values."""
    people = ["red"] * 60 + ["green"] * 30 + ["blue"] * 10
    stamped = [TimestampedValue(v, START + 60 * (i % 2)) for v in people for i in (0, 1)]
    return (
        pipeline
        | beam.Create(stamped)
        | beam.WindowInto(FixedWindows(60))
        | PrivateFrequencies(PLAIN, domain=COLOURS, min_reports=90, question="colour", privacy=BARE)
        | ReleaseToRows(COLOURS)
    )


class WriteSql(beam.DoFn):
    def __init__(self, path: str, table: str) -> None:
        self._path, self._table = path, table

    def process(self, row: FrequencyRow) -> None:
        record = as_record(row)
        marks = ", ".join(f":{name}" for name in record)
        named = {k: v.isoformat() if isinstance(v, datetime) else v for k, v in record.items()}
        with sqlite3.connect(self._path, timeout=30) as connection:
            connection.execute(f'INSERT INTO "{self._table}" VALUES ({marks})', named)
        connection.close()


@pytest.mark.pipeline
def test_rows_in_a_database(tmp_path: Path) -> None:
    path = str(tmp_path / "out.db")
    connection = sqlite3.connect(path)
    connection.execute(sql_table(FrequencyRow, "colours"))
    connection.commit()
    with local() as pipeline:
        rows(pipeline) | beam.ParDo(WriteSql(path, "colours"))
    found = connection.execute(
        'SELECT window_start, value, "count" FROM colours ORDER BY window_start, rowid'
    ).fetchall()
    connection.close()
    starts = [datetime.fromtimestamp(START + 60 * i, timezone.utc).isoformat() for i in (0, 1)]
    assert {row[0] for row in found} == set(starts) and len(found) == 6
    counted = {(start, value): count for start, value, count in found}
    for start in starts:
        for value, expected in (("red", 60), ("green", 30), ("other", 10)):
            assert counted[start, value] == pytest.approx(expected, abs=1e-6)


@pytest.mark.pipeline
def test_rows_in_parquet(tmp_path: Path) -> None:
    schema = arrow_schema(FrequencyRow)
    with local() as pipeline:
        (
            rows(pipeline)
            | beam.Map(as_record)
            | beam.io.WriteToParquet(f"{tmp_path}/colours", schema, file_name_suffix=".parquet")
        )
    table = pq.read_table(tmp_path)
    assert table.schema.equals(schema) and table.num_rows == 6
    told = {(r["window_start"], r["value"]): r for r in table.to_pylist()}
    start = datetime.fromtimestamp(START, timezone.utc)
    red = told[start, "red"]
    assert red["question"] == "colour" and red["group"] is None
    assert red["window_end"].timestamp() == START + 60
    assert red["frequency"] == pytest.approx(0.6, abs=1e-6)
    assert red["count_low"] <= red["count"] <= red["count_high"]


@pytest.mark.exact
@pytest.mark.parametrize("kind", [FrequencyRow, MeanRow])
def test_schemas_say_the_same(kind: Any) -> None:
    """The names of the row, in its order; null only for group and window; one sort in all three."""
    listed = bigquery_schema(kind)["fields"]
    arrow = arrow_schema(kind)
    assert [field["name"] for field in listed] == list(kind._fields) == arrow.names
    nullable = {"group", "window_start", "window_end"}
    sorts = {"STRING": pa.string(), "FLOAT": pa.float64(), "TIMESTAMP": pa.timestamp("us", "UTC")}
    for field in listed:
        assert set(field) == {"name", "type", "mode"}
        assert (field["mode"] == "NULLABLE") == (field["name"] in nullable)
        assert arrow.field(field["name"]).nullable == (field["name"] in nullable)
        assert arrow.field(field["name"]).type == sorts[field["type"]]
    times = {field["name"] for field in listed if field["type"] == "TIMESTAMP"}
    assert times == {"window_start", "window_end"}
    texts = {field["name"] for field in listed if field["type"] == "STRING"}
    more = {"value"} if kind is FrequencyRow else {"coordinate", "error_bars"}
    assert texts == {"question", "group", *more}
    with sqlite3.connect(":memory:") as connection:
        connection.execute(sql_table(kind, "t"))
        columns = connection.execute("PRAGMA table_info(t)").fetchall()
    connection.close()
    assert [column[1] for column in columns] == list(kind._fields)
    assert {column[1] for column in columns if not column[3]} == nullable


@pytest.mark.pipeline
def test_records_are_plain() -> None:
    """What JSON, BigQuery's own loader included, takes but for the times, which are in UTC."""
    (release,) = run(
        lambda pipeline: (
            pipeline
            | beam.Create([np.array([0.5, -0.5])] * 100)
            | PrivateMean(LInfMean(2, 6.0), min_reports=90, question="x")
            | beam.Map(lambda release: release)
        )
    )
    found = [as_record(row) for row in _mean_rows(release)]
    assert [row["coordinate"] for row in found] == ["a", "b"]
    assert {type(value) for row in found for value in row.values()} == {str, float, type(None)}
    row = FrequencyRow("q", "g", Timestamp(1.5), Timestamp(2), "v", *[0.0] * 8)
    assert as_record(row)["window_start"] == datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc)
    early = row._replace(window_start=Timestamp(micros=-1))
    assert as_record(early)["window_start"].isoformat() == "1969-12-31T23:59:59.999999+00:00"


def _mean_rows(release: Any) -> Any:
    from beam_ldp.transforms import rows_of

    return rows_of(release, ("a", "b"))


@pytest.mark.exact
def test_names_of_tables_are_names() -> None:
    for name in ('t"; DROP TABLE x; --', "", "a b"):
        with pytest.raises(ValueError, match="table must be an identifier"):
            sql_table(MeanRow, name)
