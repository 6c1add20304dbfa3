"""Reading what never ends: files that keep arriving, or a queue; each row at the time it tells.

A file is read once: write it aside (a name that begins with `.` or `_` is not looked at) and rename
it. One that is written in place is waited for, until it has not changed from one look to the next.
A file that changes after it was read is not read again, since rows that counted would count twice:
it is listed among the bad rows, and said in the log.

Messages of a queue are rows with a place: a source such as the partition, and the offset there. A
queue may hand out a message again. Its place stays the same, so memoized noise and the memoized
draw of a person's row are the same again, and with a user id column the person counts once.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from apache_beam.coders import PickleCoder
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.watch import PollFn, PollResult, Watch, never
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.userstate import ReadModifyWriteStateSpec
from apache_beam.transforms.window import GlobalWindow, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_ldp import log_events
from beam_ldp.release.inputs.sources import BAD_ROWS, ROWS, ReadFiles, is_hidden, refuse_tables
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock
from beam_ldp.transforms.files import matching

HELD_ROWS = 1 << 14  # of one partition, before they leave as a block
CHANGED = "file changed after it was read; write files aside and rename them"
NO_TIME = "no time, or not one that can be read"
_MICROSECONDS = 10**6
_LIMIT = 2**52  # microseconds; a hundred and forty years from 1970
_UNSET = np.iinfo(np.int64).min


class WatchTable(beam.PTransform):
    """Read files as they arrive: `rows`, stamped with their own times, and `bad_rows`.

    Rows of one block lie in one window of `window` seconds, so that blocks stay whole.

    Args:
        patterns: globs, or folders for all files in them.
        reader: the arguments of `ReadTable` but for the patterns.
        time_column: holds each row's time: a timestamp, seconds since 1970, or ISO 8601 (UTC where
            no zone is told).
        window: length of the windows in seconds; None cuts a block for every single time.
        poll: seconds in which a file is taken; it is looked for twice in that time.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        files: ReadFiles,
        time_column: str,
        window: float | None,
        poll: float,
    ) -> None:
        super().__init__()
        self._patterns = [as_pattern(pattern) for pattern in patterns]
        self._files = files
        self._time_column = time_column
        self._window = window
        self._poll = poll / 2

    def expand(self, root: Any) -> dict[str, Any]:
        versions = (
            root
            | "Patterns" >> beam.Create(self._patterns)
            | "Watch" >> Watch(WholeFiles(self._poll), self._poll, never(), output_key_fn=_version)
            | "Version" >> beam.Map(_by_path).with_output_types(tuple[str, tuple[int, float]])
        )
        files = versions | "Once" >> beam.ParDo(TakeFileOnce()).with_outputs(BAD_ROWS, main=ROWS)
        files[ROWS].element_type, files[BAD_ROWS].element_type = str, BadRowBlock
        read = files[ROWS] | "Read" >> self._files
        stamped = read[ROWS] | StampTables(self._time_column, self._window)
        bad = (read[BAD_ROWS], stamped[BAD_ROWS], files[BAD_ROWS])
        bad = bad | "All bad rows" >> beam.Flatten()
        return {ROWS: stamped[ROWS], BAD_ROWS: bad}


def as_pattern(pattern: str) -> str:
    """A folder stands for the files in it."""
    if re.search(r"[*?\[]", pattern):
        return pattern
    return pattern.rstrip("/") + "/*"


class WholeFiles(PollFn):
    """Lists the files that nobody seems to write to: unchanged since the last look, or for as long.

    Args:
        poll: seconds between two looks.
    """

    def __init__(self, poll: float) -> None:
        self._poll, self._before = poll, dict[str, tuple[int, float]]()

    def __call__(self, pattern: str) -> PollResult[FileMetadata]:
        now = Timestamp.now()
        files = [file for file in matching(pattern) if not is_hidden(str(file.path))]
        whole = [
            file
            for file in files
            if self._before.get(file.path) == _state_of(file)
            or float(now) - _state_of(file)[1] >= self._poll
        ]
        self._before.update((file.path, _state_of(file)) for file in files)
        return PollResult.incomplete(whole, timestamp=now).with_watermark(now)


def _state_of(file: FileMetadata) -> tuple[int, float]:
    return int(file.size_in_bytes), float(file.last_updated_in_seconds or 0)


def _version(file: FileMetadata) -> tuple[str, int, float]:
    """What one look tells from another: each version of a file comes once."""
    return (str(file.path), *_state_of(file))


def _by_path(found: tuple[str, FileMetadata]) -> tuple[str, tuple[int, float]]:
    return str(found[1].path), _state_of(found[1])


class TakeFileOnce(beam.DoFn):
    """The path of a file when it comes first; its later versions are bad rows."""

    _TAKEN = ReadModifyWriteStateSpec("taken", PickleCoder())

    def process(
        self,
        element: tuple[str, tuple[int, float]],
        taken: Any = beam.DoFn.StateParam(_TAKEN),  # noqa: B008
    ) -> Iterator[Any]:
        path, (size, updated) = element
        before = taken.read()
        if before == (size, updated):
            return
        taken.write((size, updated))
        if before is None:
            refuse_tables([path])
            yield path
            return
        start = before[0] if size > before[0] else 0
        log_events.say(log_events.FILE_CHANGED, bytes=size - start)
        rows = BadRowBlock(
            path, np.array([start]), np.zeros(1, np.uint8), (CHANGED,), np.array([size - start])
        )
        yield TaggedOutput(BAD_ROWS, rows)


class StampTables(beam.PTransform):
    """Gives blocks of rows the times that their rows tell: `rows`, and `bad_rows` that tell none.

    Args:
        time_column, window: as in `WatchTable`.
    """

    def __init__(self, time_column: str, window: float | None) -> None:
        super().__init__()
        self._doer = _Stamp(time_column, window)

    def expand(self, tables: beam.PCollection) -> dict[str, beam.PCollection]:
        stamped = tables | "Stamp" >> beam.ParDo(self._doer).with_outputs(BAD_ROWS, main=ROWS)
        stamped[ROWS].element_type = TableBlock
        stamped[BAD_ROWS].element_type = BadRowBlock
        return {ROWS: stamped[ROWS], BAD_ROWS: stamped[BAD_ROWS]}


class _Stamp(beam.DoFn):
    """Cuts blocks where the window changes, and gives each the time of its first row."""

    def __init__(self, column: str, window: float | None) -> None:
        self._column = column
        self._period = 1 if window is None else round(window * _MICROSECONDS)

    def process(self, block: TableBlock) -> Iterator[Any]:
        times = times_of(block.batch, self._column)
        periods = np.where(times == _UNSET, _UNSET, times // self._period)
        cuts = [0, *(np.flatnonzero(np.diff(periods)) + 1).tolist(), len(times)]
        for start, stop in zip(cuts, cuts[1:]):
            position = block.first_position + start
            if periods[start] == _UNSET:
                bad = [(position + i, NO_TIME) for i in range(stop - start)]
                yield beam.pvalue.TaggedOutput(BAD_ROWS, BadRowBlock.of(block.source, bad))
                continue
            part = TableBlock(block.source, position, block.batch.slice(start, stop - start))
            yield TimestampedValue(part, Timestamp(micros=int(times[start])))


def times_of(batch: pa.RecordBatch, column: str) -> np.ndarray:
    """`(rows,)` microseconds since 1970; the least integer where a row tells no time."""
    index = batch.schema.get_field_index(column)
    if index < 0:
        return np.full(batch.num_rows, _UNSET)
    values = batch.column(index)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(values.type):
        micros = pc.cast(values, pa.timestamp("us", tz=values.type.tz), safe=False)
        found = pc.fill_null(pc.cast(micros, pa.int64()), int(_UNSET)).to_numpy(False)
        return _in_range(found)
    return _in_range(np.array([_micros(value) for value in values.to_pylist()], dtype=np.int64))


def _in_range(times: np.ndarray) -> np.ndarray:
    return np.where((times > -_LIMIT) & (times < _LIMIT), times, _UNSET)


def _micros(value: Any) -> int:
    """One time, `_UNSET` where it is none."""
    if isinstance(value, bool) or value is None:
        return int(_UNSET)
    if isinstance(value, str):
        value = _number(value.strip())
    if isinstance(value, datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=timezone.utc)
        return round(moment.timestamp() * _MICROSECONDS)
    if isinstance(value, (int, float)) and math.isfinite(value):
        micros = value * _MICROSECONDS
        return round(micros) if abs(micros) < _LIMIT else int(_UNSET)
    return int(_UNSET)


def _number(text: str) -> float | datetime | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "Zz" else text)
    except ValueError:
        return None


# Queues ---------------------------------------------------------------------------------------


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
