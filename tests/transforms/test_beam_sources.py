"""Rows from where Beam's users have them: Avro, SQL, beam.Row, named tuples, Arrow, an error
handler.

The oracle's local epsilon is so large that nobody's report differs from their value (the chance of
one in all of these tests is below 1e-5): what comes out is what went in, exactly.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.io.avroio import ReadFromAvro, WriteToAvro
from apache_beam.transforms import error_handling

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean
from beam_ldp.settings import People, Privacy
from beam_ldp.transforms import BadRowBlock, PrivateFrequencies, PrivateMean
from tests.transforms.helpers import local, run

pytestmark = pytest.mark.pipeline

COLOURS = Domain(("red", "green"))
PLAIN = KRandomizedResponse(COLOURS.size, 20.0)
VALUES = ["red"] * 50 + ["green"] * 30 + ["blue"] * 20
ROWS = [{"uid": i, "colour": value, "x": float(i)} for i, value in enumerate(VALUES)] * 2
COUNTS = [50, 30, 20]
AVRO = {
    "type": "record",
    "name": "Person",
    "fields": [
        {"name": "uid", "type": "long"},
        {"name": "colour", "type": ["null", "string"]},
        {"name": "x", "type": "double"},
    ],
}


class Person(NamedTuple):
    uid: int
    colour: str
    x: float


def frequencies() -> PrivateFrequencies:
    return PrivateFrequencies(
        PLAIN,
        domain=COLOURS,
        column="colour",
        people=People(id="uid"),
        min_reports=90,
        privacy=Privacy(trust_shuffler=True),
    )


def check(found: list[Any]) -> None:
    """One release of all hundred persons, each once."""
    (release,) = found
    assert release.num_reports == 100
    np.testing.assert_allclose(release.estimate.value * 100, COUNTS, atol=1e-5)


class ReadSql(beam.DoFn):
    """Pages of a table, by its key: what a program with SQLAlchemy does in a worker."""

    def __init__(self, url: str, page: int) -> None:
        self._url, self._page = url, page

    def process(self, first: int) -> Iterator[dict[str, Any]]:
        import sqlalchemy as sa

        engine = sa.create_engine(self._url)
        query = sa.text("SELECT uid, colour, x FROM people WHERE id >= :a AND id < :b")
        with engine.connect() as connection:
            found = connection.execute(query, {"a": first, "b": first + self._page})
            yield from (dict(row) for row in found.mappings())
        engine.dispose()


def from_avro(pipeline: beam.Pipeline, folder: Path) -> Any:
    return pipeline | ReadFromAvro(f"{folder}/people*.avro")


def from_sql(pipeline: beam.Pipeline, folder: Path) -> Any:
    with sqlite3.connect(folder / "people.db") as connection:
        connection.execute("CREATE TABLE people (id INTEGER, uid INTEGER, colour TEXT, x REAL)")
        rows = [(i, row["uid"], row["colour"], row["x"]) for i, row in enumerate(ROWS)]
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)
    connection.close()
    pages = pipeline | beam.Create(range(0, len(ROWS), 64)) | beam.Reshuffle()
    return pages | beam.ParDo(ReadSql(f"sqlite:///{folder}/people.db", 64))


def from_beam_rows(pipeline: beam.Pipeline, folder: Path) -> Any:
    return pipeline | beam.Create([beam.Row(**row) for row in ROWS])


def from_a_schema(pipeline: beam.Pipeline, folder: Path) -> Any:
    beam.coders.registry.register_coder(Person, beam.coders.RowCoder)
    return pipeline | beam.Create([Person(**row) for row in ROWS]).with_output_types(Person)


def from_select(pipeline: beam.Pipeline, folder: Path) -> Any:
    """Rows whose schema Beam itself inferred."""
    return (
        pipeline
        | beam.Create(ROWS)
        | beam.Select(uid=lambda row: int(row["uid"]), colour=lambda row: str(row["colour"]))
    )


def from_arrow(pipeline: beam.Pipeline, folder: Path) -> Any:
    return pipeline | beam.Create(pa.Table.from_pylist(ROWS).to_batches(max_chunksize=64))


@pytest.mark.parametrize(
    "source", [from_avro, from_sql, from_beam_rows, from_a_schema, from_select, from_arrow]
)
def test_the_same_people_from_everywhere(source: Any, tmp_path: Path) -> None:
    if source is from_avro:
        with local() as pipeline:
            (
                pipeline
                | beam.Create(ROWS)
                | WriteToAvro(f"{tmp_path}/people", AVRO, file_name_suffix=".avro")
            )
    check(run(lambda pipeline: source(pipeline, tmp_path) | frequencies()))


@pytest.mark.statistical
@pytest.mark.parametrize("source", [from_avro, from_arrow])
def test_numbers_from_everywhere(source: Any, tmp_path: Path) -> None:
    """Within 5 standard errors (one comparison each of fresh randomness: false alarms 6e-7)."""
    if source is from_avro:
        with local() as pipeline:
            (
                pipeline
                | beam.Create(ROWS)
                | WriteToAvro(f"{tmp_path}/people", AVRO, file_name_suffix=".avro")
            )
    mechanism = LInfMean(1, 8.0)
    (release,) = run(
        lambda pipeline: (
            source(pipeline, tmp_path)
            | PrivateMean(
                mechanism,
                columns=["x"],
                people=People(id="uid"),
                min_reports=90,
                ranges=CoordinateRanges(0, 99),
                one_row_each=True,
            )
        )
    )
    assert release.num_reports == 100
    assert abs(release.estimate.value[0] - 49.5) < 5 * release.estimate.standard_error[0]


class _Sink(beam.PTransform):
    """What somebody does with what their pipelines could not use."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def expand(self, errors: beam.PCollection) -> beam.PCollection:
        def said(block: BadRowBlock) -> list[str]:
            return [f"{row.position} {row.reason}" for row in block]

        lines = errors | beam.FlatMap(said).with_output_types(str)
        return lines | beam.io.WriteToText(self._path, shard_name_template="")


def test_beams_error_handler_takes_bad_rows(tmp_path: Path) -> None:
    """Those of two transforms go to one sink; what is sound is released all the same."""
    rows = [*ROWS, {"uid": 1, "colour": None}, {"uid": None, "colour": "red"}, {"uid": 7}]
    with local() as pipeline:
        people = pipeline | beam.Create(rows)
        with error_handling.ErrorHandler(_Sink(f"{tmp_path}/bad")) as handler:
            releases = people | frequencies()
            handler.add_error_pcollection(releases.bad_rows)
            doubles = people | beam.Map(_twice).with_exception_handling(error_handler=handler)
        (
            releases
            | beam.Map(lambda release: f"{release.num_reports}")
            | "Say" >> beam.io.WriteToText(f"{tmp_path}/releases", shard_name_template="")
        )
        doubles | "Drop" >> beam.Map(lambda element: None)
    assert (tmp_path / "releases").read_text() == "100\n"
    said = (tmp_path / "bad").read_text().splitlines()
    assert sorted(said) == ["-1 missing column", "-1 no user id", "-1 null"]


def _twice(row: dict[str, Any]) -> int:
    return 2 * (row["uid"] or 0)
