"""Messages of a queue as rows with a place: a source such as the partition, and the offset there.

A queue may hand out a message again. Its place stays the same, so memoized noise and the memoized
draw of a person's row are the same again, and with a user id column the person counts once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp.pipelines.streams.source import StampTables
from beam_ldp.transforms.elements.blocks import TableBlock

HELD_ROWS = 1 << 14  # of one partition, before they leave as a block


class Message(NamedTuple):
    """One message.

    Attributes:
        source: where it comes from, such as topic and partition.
        position: its place there, such as its offset; whoever reads it again finds it there.
        row: its columns as text; None where there is none. The time is one of them.
    """

    source: str
    position: int
    row: Mapping[str, str | None]


class MessagesToTables(beam.PTransform):
    """`Message`s to what `WatchTable` gives for files: `rows`, at their own times, and `bad_rows`.

    Rows of a bundle become blocks; rows of one block lie in one window of `window` seconds.

    Args:
        columns: names of the columns that are kept.
        time_column: one of them; as in `WatchTable`. Rows that tell no time are bad rows.
        window: length of the windows in seconds; None cuts a block for every single time.

    Raises:
        ValueError: if the time column is not one of the columns.
    """

    def __init__(self, columns: list[str], time_column: str, window: float | None) -> None:
        super().__init__()
        if time_column not in columns:
            raise ValueError(f"columns must hold the time column {time_column!r}, got {columns}")
        self._columns = columns
        self._stamp = StampTables(time_column, window)

    def expand(self, messages: beam.PCollection) -> dict[str, beam.PCollection]:
        tables = messages | "Gather" >> beam.ParDo(_Gather(self._columns)).with_output_types(
            TableBlock
        )
        return tables | "Stamp" >> self._stamp


class _Gather(beam.DoFn):
    """Messages that follow each other in their partition, as one block."""

    def __init__(self, columns: list[str]) -> None:
        self._columns = columns

    def start_bundle(self) -> None:
        self._held: dict[str, tuple[Any, int, list[Mapping[str, str | None]]]] = {}

    def process(
        self, message: Message, timestamp: Any = beam.DoFn.TimestampParam
    ) -> Iterator[TimestampedValue]:
        source, position, row = message
        at, first, rows = self._held.get(source, (timestamp, position, []))
        if first + len(rows) != position or len(rows) >= HELD_ROWS:
            yield TimestampedValue(self._block(source, first, rows), at)
            at, first, rows = timestamp, position, []
        rows.append(row)
        self._held[source] = (min(at, timestamp), first, rows)

    def finish_bundle(self) -> Iterator[WindowedValue]:
        for source, (at, first, rows) in self._held.items():
            yield WindowedValue(self._block(source, first, rows), at, [GlobalWindow()])
        self._held.clear()

    def _block(self, source: str, first: int, rows: list[Mapping[str, str | None]]) -> TableBlock:
        arrays = [pa.array([row.get(name) for row in rows], pa.string()) for name in self._columns]
        return TableBlock(source, first, pa.RecordBatch.from_arrays(arrays, self._columns))
