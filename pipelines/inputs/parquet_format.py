"""Parquet files, cut by row groups so that workers share a file; only needed columns are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

ROWS_PER_BATCH = 1 << 19
NUMBERS_PER_BATCH = 1 << 22
BYTES_PER_SPLIT = 32 << 20
ROWS_PER_SPLIT = 4 << 20


@dataclass(frozen=True)
class RowGroups:
    """Consecutive row groups of one file.

    Attributes:
        start, stop: the row groups `start <= i < stop`.
        first_row: number of their first row in the file, counted from 0.
        num_rows: rows in all of them.
    """

    start: int
    stop: int
    first_row: int
    num_rows: int


def split_row_groups(
    file: BinaryIO,
    columns: Sequence[str],
    bytes_per_split: int = BYTES_PER_SPLIT,
    rows_per_split: int = ROWS_PER_SPLIT,
) -> list[RowGroups]:
    """Runs of row groups, each cut where its needed bytes or its rows reach the given number."""
    metadata = pq.ParquetFile(file).metadata
    splits: list[RowGroups] = []
    start = first_row = rows = size = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        rows += group.num_rows
        for j in range(group.num_columns):
            column = group.column(j)
            if column.path_in_schema.split(".")[0] in columns:
                size += column.total_compressed_size
        full = size >= bytes_per_split or rows >= rows_per_split
        if full or i + 1 == metadata.num_row_groups:
            if rows:
                splits.append(RowGroups(start, i + 1, first_row, rows))
            start, first_row, rows, size = i + 1, first_row + rows, 0, 0
    return splits


def read_row_groups(
    file: BinaryIO,
    groups: RowGroups,
    columns: Sequence[str],
    dictionary: Sequence[str] = (),
    row_numbers: int = 1,
) -> Iterator[pa.RecordBatch]:
    """Batches of the columns that exist, in the order of the rows.

    Args:
        file: the whole file, seekable.
        groups: which rows.
        columns: the wanted columns; a missing one is missing in the batches too.
        dictionary: text columns to read as dictionaries (indices and distinct values).
        row_numbers: numbers in a row, which bounds the rows of a batch.
    """
    schema = pq.ParquetFile(file).schema_arrow
    file.seek(0)
    as_dictionary = [
        name
        for name in dictionary
        if name in schema.names and _is_text(schema.field(schema.get_field_index(name)).type)
    ]
    reader = pq.ParquetFile(file, read_dictionary=as_dictionary)
    present = [column for column in columns if column in schema.names]
    batch_size = max(1, min(ROWS_PER_BATCH, NUMBERS_PER_BATCH // row_numbers))
    if not present:  # rows without any of the columns still count as rows
        for start in range(0, groups.num_rows, batch_size):
            count = min(batch_size, groups.num_rows - start)
            yield pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
        return
    yield from reader.iter_batches(
        batch_size=batch_size,
        row_groups=list(range(groups.start, groups.stop)),
        columns=present,
        use_threads=False,
    )


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)
