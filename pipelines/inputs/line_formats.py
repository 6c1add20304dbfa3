"""CSV, JSON lines and plain text, one line at a time: every line is a row or a bad row.

A line ends with a newline; a carriage return before it belongs to the line end. Lines that hold
nothing but white space are no rows. Nothing here raises because of what a line holds, and no
reason quotes it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 16 << 20

UNDECODABLE = "undecodable text"
TOO_LONG = "line too long"
WRONG_FIELDS = "wrong number of fields"
BAD_QUOTES = "unbalanced quotes"
NOT_JSON = "not a JSON object"
NOT_SCALAR = "field is neither text nor number"
NOT_NUMBER = "NaN or infinite"
NOT_NUMBERS = "list of something else than numbers"
MISSING_COLUMN = "missing column"


@dataclass(frozen=True)
class Problem:
    """Why a line cannot be used: a fixed phrase that stands in the place of its fields.

    Attributes:
        reason: the phrase.
        known: the wanted fields that are sound, None in place of the others; empty where the line
            does not come apart. A row whose user is known can still be reported as `other`.
    """

    reason: str
    known: tuple[str | None, ...] = field(default=(), repr=False)


# The wanted fields of one line in order (None: null), or why there are none.
Row = tuple[str | None, ...] | Problem


def _row(fields: Sequence[str | None | Problem]) -> Row:
    """The fields, or the first problem among them with the sound fields beside it."""
    for found in fields:
        if isinstance(found, Problem):
            known = tuple(None if isinstance(f, Problem) else f for f in fields)
            return Problem(found.reason, known)
    return tuple(fields)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Lines:
    """Consecutive rows of a line-based file.

    Attributes:
        first_line: number of the first line, counted from 1.
        rows: one entry per line; None for a blank line. Empty where `table` is set.
        table: the rows as an Arrow batch, where every line is sound (the fast way).
    """

    first_line: int
    rows: Sequence[Row | None] = ()
    table: pa.RecordBatch | None = None


def blocks_of_lines(
    stream: BinaryIO, first_line: int = 1, block_bytes: int = BLOCK_BYTES
) -> Iterator[tuple[int, bytes | None]]:
    """Whole lines in blocks: `(number of the first line, bytes that end with a newline)`.

    A line longer than `LONGEST_LINE` is skipped and gives `(its number, None)`.
    """
    line, held = first_line, b""
    while chunk := stream.read(block_bytes):
        cut = chunk.rfind(b"\n") + 1
        if cut:
            block = held + chunk[:cut]
            yield line, block
            line += block.count(b"\n")
            held = chunk[cut:]
            continue
        held += chunk
        if len(held) > LONGEST_LINE:
            held = _after_this_line(stream, block_bytes)
            yield line, None
            line += 1
    if held:
        yield line, held + b"\n"


def _after_this_line(stream: BinaryIO, block_bytes: int) -> bytes:
    while chunk := stream.read(block_bytes):
        cut = chunk.find(b"\n") + 1
        if cut:
            return chunk[cut:]
    return b""


def _split(block: bytes) -> list[bytes]:
    """Lines without their ends; the block ends with a newline."""
    return [line[:-1] if line.endswith(b"\r") else line for line in block[:-1].split(b"\n")]


def read_text(stream: BinaryIO, column: str) -> Iterator[Lines]:
    """Each line is a value; `column` is only the name that the column gets."""
    for number, block in blocks_of_lines(stream):
        if block is None:
            yield Lines(number, [Problem(TOO_LONG)])
        else:
            yield Lines(number, [_text_row(line) for line in _without_mark(number, _split(block))])


def _without_mark(number: int, lines: list[bytes]) -> list[bytes]:
    if number == 1 and lines[0].startswith(b"\xef\xbb\xbf"):
        lines[0] = lines[0][3:]
    return lines


def _text_row(line: bytes) -> Row | None:
    if not line.strip():
        return None
    try:
        return (line.decode("utf-8"),)
    except UnicodeDecodeError:
        return Problem(UNDECODABLE)


def read_json_lines(
    stream: BinaryIO, columns: Sequence[str], lists: bool = False
) -> Iterator[Lines]:
    """Each line is a JSON object; numbers keep the text that they were written as.

    With `lists` a field may hold a list of numbers, which becomes the text that spells it.
    """
    for number, block in blocks_of_lines(stream):
        if block is None:
            yield Lines(number, [Problem(TOO_LONG)])
        else:
            lines = _without_mark(number, _split(block))
            yield Lines(number, [_json_row(line, columns, lists) for line in lines])


class _Number(str):
    """A number as it was written."""


class _NotFinite:
    """What JSON's NaN and Infinity become."""


def _not_finite(_: str) -> _NotFinite:
    return _NotFinite()


def json_object(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds, None where it holds none."""
    text = line.decode("utf-8", "surrogateescape")  # one bad field does not hide the others
    try:
        found = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_not_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _json_row(line: bytes, columns: Sequence[str], lists: bool) -> Row | None:
    if not line.strip():
        return None
    found = json_object(line)
    if found is None:
        return Problem(NOT_JSON)
    return _row(
        [
            _json_field(found[column], lists) if column in found else Problem(MISSING_COLUMN)
            for column in columns
        ]
    )


def _json_field(value: Any, lists: bool) -> str | None | Problem:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _NotFinite):
        return Problem(NOT_NUMBER)
    if lists and isinstance(value, list):
        return _json_list(value)
    if not isinstance(value, str):
        return Problem(NOT_SCALAR)
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:  # bytes that are no text, or an escaped half of a surrogate pair
        return Problem(UNDECODABLE)
    return value


def _json_list(items: list[Any]) -> str | Problem:
    """The list as text; a list of one number is that number."""
    if any(isinstance(item, _NotFinite) for item in items):
        return Problem(NOT_NUMBER)
    if not all(isinstance(item, _Number) for item in items):
        return Problem(NOT_NUMBERS)
    return items[0] if len(items) == 1 else f"[{','.join(items)}]"


def read_csv(stream: BinaryIO, columns: Sequence[str], delimiter: str = ",") -> Iterator[Lines]:
    """Each line is a record, the first one the header; an empty field is null.

    A quoted field ends on the line where it began. Blocks without quotes take Arrow's parser,
    the others Python's; both give the same rows.
    """
    header: list[str] | None = None
    for number, block in blocks_of_lines(stream):
        if block is None:
            yield Lines(number, [Problem(TOO_LONG)])
            continue
        while header is None and block:
            line, _, block = block.partition(b"\n")
            header = _header(line, delimiter, number)
            number += 1
        if block and header is not None:
            yield _csv_lines(number, block, header, columns, delimiter)


def csv_header(stream: BinaryIO, delimiter: str = ",") -> list[str]:
    """The names of the columns; none where there is no header."""
    for number, block in blocks_of_lines(stream):
        while block:
            line, _, block = block.partition(b"\n")
            header = _header(line, delimiter, number)
            number += 1
            if header is not None:
                return header
    return []


def _header(line: bytes, delimiter: str, number: int) -> list[str] | None:
    if number == 1 and line.startswith(b"\xef\xbb\xbf"):
        line = line[3:]
    if not line.strip():
        return None
    fields = _fields(line.rstrip(b"\r"), delimiter)
    if isinstance(fields, Problem):
        return []
    return [field.encode("latin-1").decode("utf-8", "replace") for field in fields]


def _csv_lines(
    number: int, block: bytes, header: list[str], columns: Sequence[str], delimiter: str
) -> Lines:
    places = {name: i for i, name in reversed(list(enumerate(header)))}  # of two alike the first
    wanted = [places.get(column) for column in columns]
    if None not in wanted and b'"' not in block:
        fast = _csv_fast(number, block, len(header), list(zip(columns, wanted)), delimiter)
        if fast is not None:
            return fast
    return Lines(number, [_csv_row(line, len(header), wanted, delimiter) for line in _split(block)])


def _csv_row(line: bytes, width: int, wanted: Sequence[int | None], delimiter: str) -> Row | None:
    if not line.strip():
        return None
    if not any(i is not None for i in wanted):
        return Problem(MISSING_COLUMN)
    fields = _fields(line, delimiter)
    if isinstance(fields, Problem):
        return fields
    if len(fields) != width:
        return Problem(WRONG_FIELDS)
    return _row([Problem(MISSING_COLUMN) if i is None else _csv_field(fields[i]) for i in wanted])


def _csv_field(field: str) -> str | None | Problem:
    try:
        return field.encode("latin-1").decode("utf-8") or None
    except UnicodeDecodeError:
        return Problem(UNDECODABLE)


def _fields(line: bytes, delimiter: str) -> list[str] | Problem:
    """Fields as Latin-1, so that one undecodable field does not hide the others."""
    if b'"' not in line:
        return line.decode("latin-1").split(delimiter)
    try:
        # A carriage return inside the line is data to us, and a line end to Python's parser.
        text = line.decode("latin-1").replace("\r", "\uffff")
        (fields,) = csv.reader([text], delimiter=delimiter, strict=True)
        return [field.replace("\uffff", "\r") for field in fields]
    except (csv.Error, ValueError):
        return Problem(BAD_QUOTES)


def _csv_fast(
    number: int,
    block: bytes,
    width: int,
    places: Sequence[tuple[str, int | None]],
    delimiter: str,
) -> Lines | None:
    """The block by Arrow's parser, or None where a line is bad or would be read differently.

    Arrow's own handler of bad lines is not used: it fails where their text does not decode.
    """
    block = block.replace(b"\r\n", b"\n")
    if b"\r" in block or b"\0" in block or any(not line.strip() for line in _blank_suspects(block)):
        return None
    names = [str(i) for i in range(width)]
    wanted = list(dict.fromkeys(str(place) for _, place in places))
    try:
        table = pa_csv.read_csv(
            io.BytesIO(block),
            read_options=pa_csv.ReadOptions(
                use_threads=False, column_names=names, block_size=len(block) + 1
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=delimiter,
                quote_char=False,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowException, OSError):  # a bad line somewhere: line by line then
        return None
    arrays = [table.column(str(place)).combine_chunks() for _, place in places]
    arrays = [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    batch = pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in places])
    return Lines(number, (), batch)


def _blank_suspects(block: bytes) -> list[bytes]:
    """Lines that may be blank: none at all in most blocks, found without splitting them."""
    if b"\n\n" in block or block.startswith(b"\n"):
        return [b""]
    if any(space in block for space in (b" \n", b"\t\n", b"\v\n", b"\f\n")):
        return block[:-1].split(b"\n")
    return []
