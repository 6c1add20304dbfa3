"""Tables in this process's memory, as inputs: Arrow, and whatever gives itself as Arrow.

A table becomes a Parquet file in memory, behind a path with a scheme of its own, so that everything
that is done with a file is done with it: names and types are checked, rows are split, bad ones have
their numbers. Nothing is written to a disk. Only workers in this process can read it.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import CompressionTypes, FileMetadata, MatchResult
from apache_beam.io.localfilesystem import LocalFileSystem

from beam_ldp.release.beam_job import BIG_INPUT

SCHEME = "beam-ldp-table"
PATH = f"{SCHEME}://table.parquet"
_ROWS_PER_GROUP = 1 << 18

_held: dict[str, bytes] = {}
_alone = threading.Lock()


def arrow_table(data: Any) -> pa.Table:
    """Data as an Arrow table.

    Args:
        data: an Arrow table, record batch or reader; what has `to_arrow` (Polars),
            `__arrow_c_stream__` (pandas, DuckDB, ...) or `__dataframe__`; or a mapping of names to
            columns. None of these libraries is imported.

    Raises:
        TypeError: for anything else.
        ValueError: if it is no table after all. What it holds is not quoted.
    """
    try:
        found = _as_arrow(data)
    except pa.ArrowException as error:  # which may quote a value
        raise ValueError(
            f"data could not be read as an Arrow table ({type(error).__name__}): every column must "
            "hold values of one type"
        ) from None
    if found is None:
        raise TypeError(
            "data must be a path, paths, or a table (pandas, Polars, Arrow, a mapping of columns), "
            f"got {type(data).__name__}"
        )
    return found


def _as_arrow(data: Any) -> pa.Table | None:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    if isinstance(data, Mapping):
        return pa.table(dict(data))
    if hasattr(data, "to_arrow"):
        return _as_arrow(data.to_arrow())
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data).read_all()
    if hasattr(data, "__dataframe__"):
        from pyarrow.interchange import from_dataframe

        return from_dataframe(data)
    return None


@contextmanager
def held(table: pa.Table, wanted: Sequence[str] = ()) -> Iterator[str]:
    """The path of a table, as long as this lasts.

    It is the same for every table: which of a person's rows counts in a memoized release follows
    from the place of the row, and a table that is given again must draw the same. So there is one
    at a time; another thread's waits.

    Args:
        table: any.
        wanted: columns that will be read, if all are known: the others are left out.
    """
    if wanted and set(wanted) <= set(table.column_names):
        table = table.select(list(dict.fromkeys(wanted)))
    stream = io.BytesIO()
    _check_types(table)
    pq.write_table(table, stream, row_group_size=_ROWS_PER_GROUP, compression="none")
    with _alone:
        _held[PATH] = stream.getvalue()
        try:
            yield PATH
        finally:
            del _held[PATH]


def _check_types(table: pa.Table) -> None:
    """A ValueError where Parquet cannot hold a column's type, or does not give it back."""
    for name in table.column_names:
        kept = io.BytesIO()
        try:
            pq.write_table(table.select([name]).slice(0, 1), kept)
            pq.read_table(io.BytesIO(kept.getvalue()))
        except pa.ArrowException:
            raise ValueError(
                f"column {name} has the type {table.schema.field(name).type}, which cannot be read "
                "here: cast it to plain text, integers or floats"
            ) from None


class TableFiles(LocalFileSystem):
    """What Beam asks of a file system, for the table that is held. It is only read."""

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def match(self, patterns: list[str], limits: Any = None) -> list[MatchResult]:
        return [MatchResult(one, [self.metadata(one)] if one in _held else []) for one in patterns]

    def metadata(self, path: str) -> FileMetadata:
        """Said to be no larger than what one process reads: other processes do not have it."""
        return FileMetadata(path, min(len(_held[path]), BIG_INPUT))

    def open(
        self,
        path: str,
        mime_type: str = "application/octet-stream",
        compression_type: str = CompressionTypes.AUTO,
    ) -> io.BytesIO:
        return io.BytesIO(_held[path])

    def exists(self, path: str) -> bool:
        return path in _held
