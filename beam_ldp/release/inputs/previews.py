"""What the launcher reads of the input before it runs: its head, never all of it.

Of Parquet that is the footer, and the first rows of one file of each schema; of text the first
64 KB; of many files those that are spread over them. So a look at 10 GB takes what a look at 10 kB
takes. What a head holds is judged and forgotten: no message quotes it.
"""

from __future__ import annotations

import fnmatch
import io
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from beam_ldp.questions.columns import is_id_type
from beam_ldp.release.gates import with_hint
from beam_ldp.release.inputs import csv_format, line_formats
from beam_ldp.release.inputs.sources import InputFileError, RowReader, is_cut, opened
from beam_ldp.settings import SettingError
from beam_ldp.settings.fields import nearest
from beam_ldp.settings.usage import TEXT_COLUMN
from beam_ldp.transforms.elements.blocks import BadRowBlock, TableBlock

HEAD_BYTES = 1 << 16
MOST_FILES = 32  # that are looked at: the first, the last, and some between them

_AT_ONCE = 16  # files that are read at the same time: most of the time is waiting
_HEAD_ROWS = 1000  # of Parquet
_HEAD_NUMBERS = 1 << 16
_MANY_COLUMNS = 256  # of whose rows no head is read: each column lies in pages of its own
_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class Field:
    """A column of the input.

    Attributes:
        name: of the column.
        is_list: whether its entries are lists; False where that is not known.
        length: of each list, where all have one.
    """

    name: str
    is_list: bool = False
    length: int | None = None


@dataclass(frozen=True)
class Head:
    """The beginning of a file.

    Attributes:
        path: of the file.
        fields: its columns.
        blocks: its first rows, as workers will read them.
        bad: lines among them that are no rows.
        num_rows: rows of the whole file where that is known, else of the head.
        whole: whether `num_rows` are all.
        schema: of Parquet.
    """

    path: str
    fields: tuple[Field, ...]
    blocks: tuple[TableBlock, ...] = ()
    bad: tuple[BadRowBlock, ...] = ()
    num_rows: int = 0
    whole: bool = True
    schema: pa.Schema | None = None

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return [one.name for one in self.fields]


def read_heads(paths: Sequence[str], reader: RowReader) -> list[Head]:
    """The heads of at most `MOST_FILES` files.

    Raises:
        InputFileError: for a file that cannot be read, naming it.
    """
    if len(paths) > MOST_FILES:
        step = (len(paths) - 1) / (MOST_FILES - 1)
        paths = [paths[round(i * step)] for i in range(MOST_FILES)]
    if reader.input_format == "parquet":
        return _parquet_heads(paths, reader)
    return _each(lambda path: _text_head(path, reader), paths)


def _each(read: Any, paths: Sequence[str]) -> list[Any]:
    if len(paths) == 1:
        return [read(paths[0])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(read, paths))


def read_fields(path: str, input_format: str, delimiter: str) -> list[Field]:
    """The columns of a file.

    Raises:
        InputFileError: if the file cannot be read.
    """
    if input_format == "parquet":
        return _parquet_fields(_footer(path)[0])
    if input_format == "text":
        return [Field(TEXT_COLUMN)]
    return _text_fields(_head_of_text(path, input_format)[0], input_format, delimiter)


# Parquet ------------------------------------------------------------------------------------------


def _footer(path: str) -> tuple[pa.Schema, int]:
    with opened(path) as file:
        found = pq.ParquetFile(file)
        return found.schema_arrow, found.metadata.num_rows


def _parquet_fields(schema: pa.Schema) -> list[Field]:
    return [_parquet_field(field) for field in schema]


def _parquet_field(found: Any) -> Field:
    kind = found.type
    if pa.types.is_fixed_size_list(kind):
        return Field(found.name, True, kind.list_size)
    return Field(found.name, pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _parquet_heads(paths: Sequence[str], reader: RowReader) -> list[Head]:
    """Rows of one file of each schema: others of the same types hold the same kind of things."""
    found, seen = [], set()
    for path, (schema, num_rows) in zip(paths, _each(_footer, paths)):
        present = [name for name in reader.columns if schema.get_field_index(name) >= 0]
        types = tuple((name, str(schema.field(name).type)) for name in present)
        blocks: tuple[TableBlock, ...] = ()
        if num_rows and types not in seen and 0 < len(present) <= _MANY_COLUMNS:
            seen.add(types)
            rows = min(_HEAD_ROWS, max(1, _HEAD_NUMBERS // (reader.dimension or 1)))
            blocks = _first_rows(path, present, rows)
        fields = tuple(_parquet_fields(schema))
        found.append(Head(path, fields, blocks, num_rows=num_rows, schema=schema))
    return found


def _first_rows(path: str, columns: list[str], count: int) -> tuple[TableBlock, ...]:
    """Page by page: a column of a row group may have a gigabyte."""
    with opened(path) as file:
        found = pq.ParquetFile(file, buffer_size=HEAD_BYTES, pre_buffer=False)
        batches = found.iter_batches(batch_size=count, columns=columns, use_threads=False)
        return tuple(TableBlock(path, 0, batch) for batch in _first(batches))


def _first(batches: Iterator[Any]) -> Iterator[Any]:
    for batch in batches:
        yield batch
        return


def check_id_types(heads: Sequence[Head], user_id: str | None) -> None:
    """A SettingError if a Parquet file declares a column of ids that cannot hold any.

    Who is one person is decided id by id, so files may differ in their types.
    """
    found = [(head.path, _type_of(head, user_id)) for head in heads]
    for path, kind in found:
        if kind is None or is_id_type(kind):
            continue
        others = [f"{p} {k}" for p, k in found if k is not None and k != kind]
        beside = f"; {others[0]} beside it" if others else ""
        raise SettingError(
            f"--user-id {user_id}: {path} declares {kind}, which cannot hold ids{beside}. Ids are "
            "integers, decimals of scale 0, floats without a fraction, text or bytes"
        )


def _type_of(head: Head, column: str | None) -> pa.DataType | None:
    if head.schema is None or column is None or head.schema.get_field_index(column) < 0:
        return None
    return head.schema.field(column).type


# Text ---------------------------------------------------------------------------------------------


# What files begin with that are no text, whatever their name says.
_SIGNATURES = {
    b"PAR1": "it is Parquet: give --input-format parquet, or name it so",
    b"\x1f\x8b": "it is compressed by gzip: let its name end in .gz",
    b"BZh": "it is compressed by bzip2: let its name end in .bz2",
    b"\x28\xb5\x2f\xfd": "it is compressed by zstd: let its name end in .zst",
    b"PK\x03\x04": "it is a zip archive or a spreadsheet: unpack it, or export it as CSV",
}
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def _is_one_array(content: bytes) -> bool:
    """Whether this begins as a JSON array over several lines, or is one on its only line. A line
    that holds a whole array among others is a bad row."""
    first, _, rest = content.strip().partition(b"\n")
    if not first.startswith(b"["):
        return False
    try:
        json.loads(first)
    except ValueError:
        return True
    return not rest


def _head_of_text(path: str, input_format: str) -> tuple[bytes, bool]:
    """Whole lines, at least one, and whether that is all of the file. Raises InputFileError."""
    with opened(path, HEAD_BYTES) as file:
        content, more = _up_to_a_line(file)
        if not more and is_cut(file):
            raise InputFileError(f"{path}: the compressed file is truncated")
    for beginning, why in _SIGNATURES.items():
        if content.startswith(beginning):
            raise InputFileError(f"{path}: cannot be read as {input_format}: {why}")
    if input_format not in ("csv", "text") and _is_one_array(content):
        raise InputFileError(
            f"{path}: is one JSON array, and needs one object a line (JSON lines): convert it, for "
            "instance by `jq -c '.[]'`"
        )
    nuls = content.count(b"\0")
    if content.startswith(_UTF16) or nuls > len(content) // 16:
        raise InputFileError(
            f"{path}: is no text in UTF-8, it looks like UTF-16 or binary: convert it, for "
            "instance by `iconv -f UTF-16 -t UTF-8`"
        )
    return content, not more


def _up_to_a_line(file: BinaryIO) -> tuple[bytes, bool]:
    content = file.read(HEAD_BYTES)
    if len(content) < HEAD_BYTES:
        return content, False
    while b"\n" not in content and len(content) <= line_formats.LONGEST_LINE:
        piece = file.read(HEAD_BYTES)
        if not piece:
            return content, False
        content += piece
    if not file.read(1):
        return content, False
    return content[: content.rfind(b"\n") + 1] or content, True


def _text_fields(content: bytes, input_format: str, delimiter: str) -> list[Field]:
    stream = io.BytesIO(content)
    if input_format == "text":
        return [Field(TEXT_COLUMN)]
    if input_format == "csv":
        return [Field(name) for name in csv_format.csv_header(stream, delimiter)]
    return [
        Field(name, isinstance(value, list))
        for name, value in next(_json_objects(stream), {}).items()
    ]


def _json_objects(file: BinaryIO) -> Iterator[dict[str, Any]]:
    for _, block in line_formats.blocks_of_lines(file):
        for line in (block or b"").split(b"\n"):
            found = line_formats.json_object(line)
            if found is not None:
                yield found


def _text_head(path: str, reader: RowReader) -> Head:
    content, whole = _head_of_text(path, reader.input_format)
    fields = tuple(_text_fields(content, reader.input_format, reader.delimiter))
    if reader.input_format == "jsonl":  # not every object needs to have every name
        objects = _json_objects(io.BytesIO(content))
        fields = tuple(Field(name) for name in dict.fromkeys(chain.from_iterable(objects)))
    if reader.input_format == "csv":
        problem = _header_problem(content.removeprefix(line_formats.MARK))
        if problem:
            raise InputFileError(
                f"{path}: its first line, which must name the columns, is no text in UTF-8: "
                f"{with_hint(problem)}"
            )
    blocks, bad = [], []
    for found in replace(reader, bad_rows="dead_letter").rows_of(path, io.BytesIO(content)):
        if isinstance(found, TableBlock):
            blocks.append(found)
            continue
        known = [
            (row.position, row.reason)
            for row in found  # the end of the head may lie within quotes
            if whole or row.reason != line_formats.BAD_QUOTES
        ]
        bad.append(BadRowBlock.of(path, known))
    num_rows = sum(map(len, blocks)) + sum(map(len, bad))
    return Head(path, fields, tuple(blocks), tuple(bad), num_rows, whole)


def _header_problem(content: bytes) -> str:
    """Why the first line is none of names; "" where it is."""
    first = line_formats.text_of(content.split(b"\n", 1)[0])
    if isinstance(first, line_formats.Problem):
        return first.reason
    plain = first.rstrip("\r").replace("\t", "")
    return "" if plain.isprintable() else "it holds control characters"


# Columns that flags name --------------------------------------------------------------------------


def no_column(
    flag: str, name: str, names: Sequence[str], where: str, delimiter: str = ""
) -> SettingError:
    """What is said where a file lacks a column: the nearest name, and what there is.

    Args:
        flag: that names the column.
        name: of the column.
        names: that there are.
        where: which file it is.
        delimiter: of CSV; "" for formats without one.
    """
    said = f"{flag} {name}: no such column"
    other = next((c for c in ";\t|," if len(names) == 1 and delimiter and c in names[0]), None)
    if other is not None:
        shown, given = ("tabs", r"$'\t'") if other == "\t" else (repr(other), f"'{other}'")
        return SettingError(
            f"{said}; the first line of {where} has no {delimiter!r} but {shown}: give "
            f"--csv-delimiter {given}"
        )
    if delimiter and _is_row(names):
        return SettingError(
            f"{said}; the first line of {where} does not look like the names of columns, which "
            "CSV must begin with"
        )
    return SettingError(f"{said}{nearest(name, list(names))}; {where} has {_listed(list(names))}")


def _is_row(names: Sequence[str]) -> bool:
    """Whether a header may be somebody's row, which is not said aloud."""
    whole = sorted(int(name) for name in names if name.isdecimal())
    counted = whole in ([*range(len(whole))], [*range(1, len(whole) + 1)])  # pixels 0, 1, 2, ...
    return not counted or any(map(_is_value, names))


def _is_value(name: str) -> bool:
    try:
        float(name)
    except ValueError:
        return len(name) > 100 or "@" in name
    return not name.isdecimal()


def choose_fields(
    wanted: Sequence[str], fields: Sequence[Field], leave_out: str | None, delimiter: str = ""
) -> tuple[Field, ...]:
    """The columns that `--column` means, in the order of the flag and, within a glob, of the file.

    Args:
        wanted: names and globs, each of which may hold several, separated by commas.
        fields: what the file has.
        leave_out: a column that no glob means: the user id.
        delimiter: of CSV; "" for formats without one.

    Raises:
        SettingError: for no name, one that the file does not have, or one that is meant twice.
    """
    by_name = {field.name: field for field in fields}
    found: list[Field] = []
    for pattern in (part.strip() for text in wanted for part in _parts(text, by_name)):
        if pattern in by_name:
            found.append(by_name[pattern])
            continue
        matching = [
            field for name, field in by_name.items()
            if _GLOB & set(pattern) and name != leave_out and fnmatch.fnmatchcase(name, pattern)
        ]  # fmt: skip
        if not matching:
            raise no_column("--column", pattern, list(by_name), "the first input", delimiter)
        found += matching
    if not found:
        raise SettingError("--column must name a column")
    names = [field.name for field in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SettingError(f"--column names {twice[0]} twice")
    if leave_out in names:
        raise SettingError(f"--column names {leave_out}, which is the --user-id")
    return tuple(found)


def _parts(text: str, by_name: dict[str, Field]) -> list[str]:
    return [text] if text in by_name else [part for part in text.split(",") if part.strip()]


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:8])
    return f"{shown}, … ({len(names)} in all)" if len(names) > 8 else shown or "no columns"


def dimension_of(fields: Sequence[Field], stated: int | None) -> int:
    """Numbers per vector.

    Args:
        fields: the chosen columns.
        stated: `--dimension`.

    Raises:
        SettingError: if the file does not tell, or tells something else than was stated.
    """
    if len(fields) > 1:
        lists = [field.name for field in fields if field.is_list]
        if lists:
            raise SettingError(
                f"--column: {lists[0]} holds lists; such a column must be the only one"
            )
        known: int | None = len(fields)
    elif fields[0].is_list:
        known = fields[0].length
    else:  # one number, unless text spells a list
        return stated or 1
    if known is None and stated is None:
        raise SettingError(
            f"--dimension is missing: the number of entries in the lists of column {fields[0].name}"
        )
    if known is not None and stated not in (None, known):
        raise SettingError(f"--dimension is {stated}, but the input has {known} numbers per person")
    return known or int(stated or 0)
