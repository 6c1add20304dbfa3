"""Reading: files to blocks of rows, in the workers, through Beam's file systems.

Two outputs: the rows, and the rows that cannot be used with the reason why. What a row holds is
never part of a reason, of an error or of a log line.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystem import BeamIOError, CompressedFile, CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics

from beam_ldp.release.inputs import csv_format, line_formats
from beam_ldp.release.inputs.line_formats import Lines, Problem
from beam_ldp.settings.usage import TEXT_COLUMN
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock
from beam_ldp.transforms.elements.portable import unseen_here
from beam_ldp.transforms.files import matching_or_inside, reason

InputFormat = Literal["parquet", "csv", "jsonl", "text"]
BadRows = Literal["dead_letter", "other", "zero"]

ROWS = "rows"
BAD_ROWS = "bad_rows"
METRICS, BYTES_READ = "beam_ldp.pipelines", "bytes_read"  # what readers count, and where
BAD_LINES = "bad_lines"

_ENDINGS: dict[str, InputFormat] = {
    "parquet": "parquet", "pq": "parquet", "csv": "csv", "tsv": "csv",
    "jsonl": "jsonl", "ndjson": "jsonl", "json": "jsonl", "txt": "text", "text": "text",
}  # fmt: skip
_COMPRESSED = ("gz", "bz2", "zst", "deflate")


class InputFileError(RuntimeError):
    """A whole file cannot be read. The message names the file, never what it holds."""


def format_of(path: str) -> InputFormat | None:
    """What the name's ending says, below an ending that means compression."""
    parts = path.lower().rsplit("/", 1)[-1].split(".")
    while len(parts) > 1 and parts[-1] in _COMPRESSED:
        parts.pop()
    return _ENDINGS.get(parts[-1]) if len(parts) > 1 else None


def find_files(pattern: str) -> list[tuple[str, int]]:
    """Files that match a path or glob: `(path, bytes)`, in the order of their paths.

    A path that names a folder stands for the files in it.

    Raises:
        InputFileError: if nothing matches or the place cannot be reached.
        SettingError: if a file belongs to a table of Delta, Iceberg or Hudi.
    """
    try:
        found = matching_or_inside(full_path(pattern))
    except (BeamIOError, ValueError, OSError) as error:
        raise InputFileError(f"{pattern}: cannot be listed ({reason(pattern, error)})") from None
    names = [(str(f.path), int(f.size_in_bytes or 0)) for f in found]
    refuse_tables([path for path, _ in names] or [f"{full_path(pattern).rstrip('/')}/data/"])
    names = [(path, size) for path, size in names if not is_hidden(path)]
    if not names:
        raise InputFileError(f"{pattern}: no file matches")
    return sorted(names)


def find_all_files(patterns: Sequence[str]) -> list[tuple[str, int]]:
    """`find_files` for several patterns: each file once, also where patterns overlap.

    A file that were read twice would make every person in it report twice. Each has the same name
    however it was spelled: which of a person's rows counts follows from it.
    """
    found: dict[str, int] = {}
    for pattern in patterns:
        for path, size in find_files(pattern):
            found.setdefault(full_path(path), size)
    return list(found.items())


def full_path(path: str) -> str:
    """One name for every spelling of a local path or glob; other file systems have one spelling."""
    if FileSystems.get_scheme(path) not in (None, "", "file"):
        return path
    return os.path.realpath(path.removeprefix("file://"))


_REMOTE_FOLDERS = 32  # that are searched for the log of a table: each search is a round trip


def refuse_tables(paths: Sequence[str]) -> None:
    """A SettingError if a file lies in the folder of a Delta, an Iceberg or a Hudi table.

    Such a folder keeps the files of deleted and rewritten rows; its log tells which files count.
    """
    folders = sorted({path.rpartition("/")[0] for path in paths})
    if folders and "://" in folders[0]:
        folders = folders[:_REMOTE_FOLDERS]
    searched: set[str] = set()
    for folder in folders:
        while folder and not folder.endswith(":/") and folder not in searched:
            searched.add(folder)
            above, _, name = folder.rpartition("/")
            logs = {"Delta": (folder, "_delta_log/*"), "Hudi": (folder, ".hoodie/*")}
            if name in ("data", "metadata"):
                logs["Iceberg"] = (above, "metadata/*.metadata.json*")
            for kind, (root, log) in logs.items():
                if _holds(root, log):
                    from beam_ldp.settings import SettingError  # loads Click

                    raise SettingError(
                        f"{root} is the folder of a table ({kind}), which also holds deleted and "
                        "rewritten rows: export a snapshot of the table as Parquet to another "
                        "folder, and read that"
                    )
            folder = above


def _holds(folder: str, names: str) -> bool:
    if "://" not in folder:
        return next(glob.iglob(f"{glob.escape(folder)}/{names}"), None) is not None
    try:
        return bool(FileSystems.match([f"{folder}/{names}"], [1])[0].metadata_list)
    except (BeamIOError, ValueError, OSError):  # a place that cannot be listed has no files
        return False


def is_hidden(path: str) -> bool:
    """Markers such as `_SUCCESS` that engines leave beside their files."""
    return path.rstrip("/").rsplit("/", 1)[-1].startswith(("_", "."))


@dataclass(frozen=True)
class Split:
    """A file, or a part of one, that one worker reads; `size` is its part of the file's bytes."""

    path: str
    row_groups: RowGroups | None = None
    size: int = 0


class ReadTable(beam.PTransform):
    """Read the wanted columns of files into `TableBlock`s.

    Takes the root of a pipeline; gives a dictionary of two collections, `rows` (`TableBlock`) and
    `bad_rows` (`BadRowBlock`). Parquet files are shared between workers by row groups; a line-based
    file is read by one worker (bring several, or Parquet). Compressed line-based files are
    recognised by their ending.

    A block's `source` is the path. Positions are what helps to find the row: line numbers from 1
    in line-based files, numbers of records from 1 in CSV (the header is 1; where no quoted field
    holds a newline they are those of the lines), row numbers from 0 in Parquet.

    Args:
        patterns: paths and globs.
        input_format: "parquet", "csv", "jsonl" or "text".
        columns: the column that holds the value (for text the line is the value), or the columns
            that hold the numbers of a vector.
        user_id: the column that holds the person's id, if any.
        bad_rows: "dead_letter" sends unusable rows to the second output; the others pass them on
            as null values, without a trace (but not those whose user id is unknown).
        delimiter: between the fields of CSV.
        dimension: for vectors, their numbers: JSON fields may then hold lists of numbers, and
            blocks have fewer rows the longer a vector is. None: a value is one field.

    Raises:
        InputFileError: when run, if a whole file cannot be read.
    """

    def __init__(
        self,
        patterns: Sequence[str],
        input_format: InputFormat,
        columns: str | Sequence[str] = TEXT_COLUMN,
        user_id: str | None = None,
        *,
        bad_rows: BadRows = "dead_letter",
        delimiter: str = ",",
        dimension: int | None = None,
    ) -> None:
        super().__init__()
        if input_format not in ("parquet", "csv", "jsonl", "text"):
            raise ValueError(
                f'input_format must be "parquet", "csv", "jsonl" or "text", got {input_format!r}'
            )
        if bad_rows not in ("dead_letter", "other", "zero"):
            raise ValueError(f'bad_rows must be "dead_letter", "other" or "zero", got {bad_rows!r}')
        if input_format == "text" and user_id is not None:
            raise ValueError(
                "user_id must be None for text, where a line holds nothing but the value"
            )
        # Workers may stand in another folder than the launcher.
        self._patterns = tuple(map(full_path, patterns))
        values = (columns,) if isinstance(columns, str) else tuple(columns)
        self.reader = RowReader(input_format, values, user_id, bad_rows, delimiter, dimension)

    def expand(self, root: Any) -> dict[str, Any]:
        pipeline = root.pipeline if hasattr(root, "pipeline") else root
        found: dict[str, Any] = (
            pipeline
            | "Patterns" >> beam.Create([self._patterns])
            | "FindFiles" >> beam.FlatMap(_paths).with_output_types(str)
            | "Files" >> self.of_paths()
        )
        return found

    def of_paths(self) -> ReadFiles:
        """The same for a collection of paths, wherever they come from."""
        return ReadFiles(self.reader)

    def display_data(self) -> dict[str, Any]:
        return {"format": self.reader.input_format, "patterns": ", ".join(self._patterns)}


class ReadFiles(beam.PTransform):
    """A collection of paths to `rows` and `bad_rows`; made by `ReadTable.of_paths`."""

    def __init__(self, reader: RowReader) -> None:
        super().__init__()
        self._reader = reader

    def expand(self, paths: beam.PCollection) -> dict[str, Any]:
        read = (
            paths
            | "SpreadFiles" >> beam.Reshuffle()
            | "Split" >> beam.FlatMap(self._reader.splits).with_output_types(Split)
            | "SpreadSplits" >> beam.Reshuffle()
            | "Read"
            >> beam.ParDo(_ReadSplit(self._reader))
            .with_output_types(TableBlock)
            .with_outputs(BAD_ROWS, main=ROWS)
        )
        return {
            ROWS: read[ROWS],
            BAD_ROWS: read[BAD_ROWS] | "BadRows" >> beam.Map(_same).with_output_types(BadRowBlock),
        }


def _same(rows: BadRowBlock) -> BadRowBlock:
    return rows


def _paths(patterns: Sequence[str]) -> Iterator[str]:
    try:
        found = find_all_files(patterns)
    except InputFileError as error:
        raise InputFileError(f"{error} {unseen_here()}") from None
    for path, _ in found:
        yield path


class _ReadSplit(beam.DoFn):
    """Reads one split; metrics count the lines that are no rows, and the bytes behind them all."""

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader
        self._bad = Metrics.counter(METRICS, BAD_LINES)
        self._bytes = Metrics.counter(METRICS, BYTES_READ)

    def process(self, split: Split) -> Iterator[Any]:
        for found in self._reader.read(split, self._bytes.inc):
            if isinstance(found, BadRowBlock):
                self._bad.inc(len(found))
                yield beam.pvalue.TaggedOutput(BAD_ROWS, found)
            elif len(found):
                yield found


@dataclass(frozen=True)
class RowReader:
    """Splits and reads files of one format. Attributes: as the arguments of `ReadTable`."""

    input_format: InputFormat
    values: tuple[str, ...]
    user_id: str | None
    bad_rows: BadRows
    delimiter: str
    dimension: int | None

    @property
    def columns(self) -> list[str]:
        return [*self.values] if self.user_id is None else [*self.values, self.user_id]

    def _hidden(self, row: Any) -> Any:
        """The row, or null values where a bad row is to leave no trace.

        A row without a known user id cannot be attributed: it is rejected in either mode, and so
        is what may be no row.
        """
        if self.bad_rows == "dead_letter" or not isinstance(row, Problem) or not row.is_row:
            return row
        nothing = (None,) * len(self.values)
        if self.user_id is None:
            return nothing
        user_id = row.known[-1] if row.known else None
        return row if user_id is None else (*nothing, user_id)

    def splits(self, path: str) -> list[Split]:
        if self.input_format != "parquet":
            return [Split(path)]
        with opened(path) as file:
            groups = split_row_groups(file, self.columns)
            size, num_rows = file.seek(0, os.SEEK_END), sum(group.num_rows for group in groups)
        return [Split(path, group, size * group.num_rows // num_rows) for group in groups]

    def read(
        self, split: Split, passed: Callable[[int], None] = lambda count: None
    ) -> Iterator[TableBlock | BadRowBlock]:
        """The blocks of a split; `passed` is told how many more bytes of it were read."""
        with opened(split.path) as file:
            if split.row_groups is not None:
                left, rows = split.size, split.row_groups.num_rows
                for block in self._read_parquet(split.path, file, split.row_groups):
                    share = left * len(block) // max(1, rows)
                    left, rows = left - share, rows - len(block)
                    passed(share)
                    yield block
                return
            at = 0
            for found in self.rows_of(split.path, file):
                before, at = at, _bytes_behind(file)
                passed(at - before)
                yield found
            if is_cut(file):
                raise InputFileError(f"{split.path}: the compressed file is truncated")

    def rows_of(self, path: str, file: BinaryIO) -> Iterator[TableBlock | BadRowBlock]:
        """What a file of lines holds, or a part of one that begins with its first line."""
        for lines in self._lines(file):
            yield from self._from_lines(path, lines)

    def _lines(self, file: BinaryIO) -> Iterator[Lines]:
        if self.input_format == "csv":
            return csv_format.read_csv(file, self.columns, self.delimiter)
        if self.input_format == "jsonl":
            lists = self.dimension is not None
            return line_formats.read_json_lines(file, self.values, self.user_id, lists)
        return line_formats.read_text(file, self.values[0])

    def _from_lines(self, path: str, lines: Lines) -> Iterator[TableBlock | BadRowBlock]:
        if lines.table is not None:
            yield TableBlock(path, lines.first_line, lines.table)
            return
        start, run, bad = lines.first_line, [], []
        for number, row in enumerate(lines.rows, lines.first_line):
            row = self._hidden(row)
            if isinstance(row, tuple):
                run.append(row)
                continue
            yield from self._block(path, start, run)
            start, run = number + 1, []
            if isinstance(row, Problem):
                bad.append((number, row.reason))
        yield from self._block(path, start, run)
        if bad:
            yield BadRowBlock.of(path, bad)

    def _block(self, path: str, start: int, run: list[Any]) -> Iterator[TableBlock]:
        if run:
            arrays = [pa.array(fields, pa.string()) for fields in zip(*run)]
            yield TableBlock(path, start, pa.RecordBatch.from_arrays(arrays, self.columns))

    def _read_parquet(self, path: str, file: BinaryIO, groups: RowGroups) -> Iterator[TableBlock]:
        """A column that the file lacks is lacking in the blocks: encoding makes bad rows of it."""
        row = groups.first_row
        texts = self.values if self.dimension is None else ()
        batches = read_row_groups(file, groups, self.columns, texts, self.dimension or 1)
        for batch in batches:
            yield TableBlock(path, row, batch)
            row += batch.num_rows


def _bytes_behind(file: Any) -> int:
    """How much of the file as it lies there was read, packed or not."""
    return int(getattr(file, "_file", file).tell())


def is_cut(file: Any) -> bool:
    """Whether a compressed file ended inside its stream, which Beam takes for its end."""
    return not getattr(getattr(file, "_decompressor", None), "eof", True)


class opened:
    """An open file whose failures become an error that names the file and quotes nothing.

    Args:
        path: of the file.
        at_once: bytes of a compressed file that are unpacked at once; None for Beam's 16 MB.
    """

    def __init__(self, path: str, at_once: int | None = None) -> None:
        self._path, self._at_once = path, at_once

    def __enter__(self) -> BinaryIO:
        try:
            self._file: BinaryIO = self._open()
        except Exception as error:
            where = f" {unseen_here()}" if isinstance(error, FileNotFoundError) else ""
            raise InputFileError(
                f"{self._path}: cannot be opened ({reason(self._path, error)}){where}"
            ) from None
        return self._file

    def _open(self) -> Any:
        kind = CompressionTypes.detect_compression_type(self._path)
        if self._at_once is None or kind == CompressionTypes.UNCOMPRESSED:
            return FileSystems.open(self._path)
        packed = FileSystems.open(self._path, compression_type=CompressionTypes.UNCOMPRESSED)
        return CompressedFile(packed, kind, read_size=self._at_once)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self._file.close()
        if error is None or isinstance(error, (InputFileError, GeneratorExit)):
            return
        if isinstance(error, Exception):
            raise InputFileError(
                f"{self._path}: cannot be read in the stated format ({type(error).__name__})"
            ) from None


# Parquet files, cut by row groups so that workers share a file ------------------------------------


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
        columns: the wanted columns; one that is missing, or is there twice, is missing in the
            batches too.
        dictionary: text columns to read as dictionaries (indices and distinct values).
        row_numbers: numbers in a row, which bounds the rows of a batch.
    """
    schema = pq.ParquetFile(file).schema_arrow
    file.seek(0)
    present = [column for column in columns if schema.get_field_index(column) >= 0]
    as_dictionary = [
        name for name in dictionary if name in present and _is_text(schema.field(name).type)
    ]
    reader = pq.ParquetFile(file, read_dictionary=as_dictionary)
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
