"""CSV by RFC 4180: a record ends at the first newline outside quotes, so text may hold newlines.

Arrow reads blocks whose quotes all stand where the RFC has them, Python's csv module the others;
both give the same records. Nothing here raises because of what a file holds, and no reason quotes
it.

A record whose quotes are malformed is one bad row where it ends on the line on which it begins.
Otherwise nothing tells where the next one begins, and to guess would make people of the lines of a
text: from there on every line of the file is a bad row.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from beam_ldp.release.inputs.line_formats import (
    BAD_QUOTES,
    BLOCK_BYTES,
    LONGEST_LINE,
    MARK,
    MISSING_COLUMN,
    TOO_LONG,
    WRONG_FIELDS,
    Lines,
    Problem,
    Row,
    row_of,
    text_of,
)

csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE))  # a field may be as long as a line

_NEWLINE, _RETURN, _QUOTE = b'\n\r"'
_BLANKS = np.zeros(256, dtype=bool)
_BLANKS[list(b" \t\v\f\r\n")] = True
_LONE_RETURN = re.compile(r"\r(?!\n)")
_STAND_INS = {"\r": "\uffff", "\0": "\ufffe"}  # no field has them: fields are Latin-1 here
_SPACES = " \t\v\f\r\n" + _STAND_INS["\r"]

Fields = list[str]  # of one record, as Latin-1, so that one undecodable field does not hide others


def read_csv(stream: BinaryIO, columns: Sequence[str], delimiter: str = ",") -> Iterator[Lines]:
    """The records after the first one, which is the header; an empty field is null.

    Records are counted from 1, the header and blank lines too: where no field holds a newline,
    their numbers are those of the lines.
    """
    header: list[str] | None = None
    for block in blocks_of_records(stream, delimiter):
        while header is None and block:
            first, block = block.parted()
            header = _header(first)
        if block and header is not None:
            yield _rows(block, header, columns)


def csv_header(stream: BinaryIO, delimiter: str = ",") -> list[str]:
    """The names of the columns; none where there is no header."""
    for block in blocks_of_records(stream, delimiter):
        while block:
            first, block = block.parted()
            header = _header(first)
            if header is not None:
                return header
    return []


# Records ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Records:
    """Whole records of a file, in their order.

    Attributes:
        first: number of the first record.
        content: the bytes; they end with a newline.
        ends: where in `content` the newlines are that end records; None: all of them do, for there
            are no quotes.
        read: what Python made of them, None for a blank line; None where the RFC says it all.
        broken: nothing tells where the record after them ends.
    """

    first: int
    delimiter: str
    content: bytes = b""
    ends: np.ndarray | None = None
    read: list[Fields | Problem | None] | None = None
    broken: bool = False

    def __len__(self) -> int:
        if self.read is not None:
            return len(self.read)
        return self.content.count(b"\n") if self.ends is None else len(self.ends)

    def parted(self) -> tuple[Fields | Problem | None, Records]:
        """The first record, and the others."""
        if self.read is not None:
            return self.read[0], replace(self, first=self.first + 1, read=self.read[1:])
        end = self.content.index(b"\n") + 1 if self.ends is None else int(self.ends[0]) + 1
        ends = None if self.ends is None else self.ends[1:] - end
        rest = replace(self, first=self.first + 1, content=self.content[end:], ends=ends)
        return _by_python(self.content[:end], self.delimiter)[0][0], rest

    def by_python(self) -> list[Fields | Problem | None]:
        """All of them, record by record."""
        return self.read if self.read is not None else _by_python(self.content, self.delimiter)[0]


def blocks_of_records(
    stream: BinaryIO, delimiter: str = ",", block_bytes: int = BLOCK_BYTES
) -> Iterator[Records]:
    """Whole records in blocks. A record of more than `LONGEST_LINE` bytes is a bad row."""
    number, held = 1, stream.read(block_bytes).removeprefix(MARK)
    while held:
        more = stream.read(block_bytes)
        if not more and not held.endswith(b"\n"):
            held += b"\n"
        found, rest = _cut(held, number, delimiter)
        if found:
            yield found
            number += len(found)
        if len(rest) > LONGEST_LINE and not found.broken:
            rest, more = _without_long_line(rest, more, stream)
            if not rest:
                yield Records(number, delimiter, read=[Problem(TOO_LONG)])
                number += 1
        if rest and (found.broken or not more or len(rest) > LONGEST_LINE):
            yield from _lost(rest + more, stream, number, delimiter)
            return
        held = rest + more


def _cut(content: bytes, number: int, delimiter: str) -> tuple[Records, bytes]:
    """The records that are there as a whole, and what is left of the bytes."""
    if b'"' not in content:
        stop = content.rfind(b"\n") + 1
        return Records(number, delimiter, content[:stop]), content[stop:]
    ends = record_ends(content, delimiter)
    if ends is not None:
        stop = int(ends[-1]) + 1 if len(ends) else 0
        return Records(number, delimiter, content[:stop], ends), content[stop:]
    read, rest, broken = _by_python(content, delimiter)
    return Records(number, delimiter, read=read, broken=broken), rest


def record_ends(content: bytes, delimiter: str) -> np.ndarray | None:
    """Where the newlines are that end records; None if a quote stands where the RFC has none.

    A quoted field begins and ends beside a delimiter or a line's end; within it quotes are doubled.
    """
    data = np.frombuffer(content, dtype=np.uint8)
    quotes = np.flatnonzero(data == _QUOTE)
    opening, closing = quotes[::2], quotes[1::2]
    closing = closing[closing + 1 < len(data)]  # what follows the last byte is not known yet
    beside = np.zeros(256, dtype=bool)
    beside[[_NEWLINE, _QUOTE, ord(delimiter)]] = True
    if not beside[data[opening[opening > 0] - 1]].all():
        return None
    after = data[closing + 1]
    return_line = closing[after == _RETURN]
    if not (beside[after] | (after == _RETURN)).all():
        return None
    follows = data[np.minimum(return_line + 2, len(data) - 1)]
    if not ((follows == _NEWLINE) | (return_line + 2 >= len(data))).all():
        return None
    newlines = np.flatnonzero(data == _NEWLINE)
    return newlines[np.searchsorted(quotes, newlines) % 2 == 0]


def _without_long_line(rest: bytes, more: bytes, stream: BinaryIO) -> tuple[bytes, bytes]:
    """Skip a line that is too long; the line itself where quotes may hide its end."""
    while b'"' not in rest and more:
        line, end, after = more.partition(b"\n")
        if b'"' in line:
            return rest, more
        if end:
            return b"", after or stream.read(BLOCK_BYTES)
        more = stream.read(BLOCK_BYTES)
    return (rest if b'"' in rest else b""), more


def _lost(content: bytes, stream: BinaryIO, number: int, delimiter: str) -> Iterator[Records]:
    """Every line from here to the end of the file as a bad row: nothing tells what they are."""
    problem = Problem(BAD_QUOTES, is_row=False)
    while content:
        more = stream.read(BLOCK_BYTES)
        count = content.count(b"\n") + (not more and not content.endswith(b"\n"))
        if count:
            yield Records(number, delimiter, read=[problem] * count)
        number, content = number + count, more


def _by_python(content: bytes, delimiter: str) -> tuple[list[Fields | Problem | None], bytes, bool]:
    """Records by Python's parser, the bytes after them, and whether those cannot be read."""
    stop = content.rfind(b"\n") + 1
    text = content[:stop].decode("latin-1")
    odd = [char for char in _STAND_INS if char in text]
    if odd:  # line ends and ends of text to Python's parser, data to us
        text = _LONE_RETURN.sub(_STAND_INS["\r"], text).replace("\0", _STAND_INS["\0"])
    lines = [line + "\n" for line in text.split("\n")[:-1]]
    at_end: list[bool] = []
    reader = csv.reader(_given(lines, at_end), delimiter=delimiter, strict=True)
    found: list[Fields | Problem | None] = []
    start = 0
    while start < len(lines):
        try:
            fields = next(reader)
        except csv.Error:
            only = reader.line_num - start == 1
            if at_end or not (only and _ends_itself(lines[start], delimiter)):
                rest = content[sum(map(len, lines[:start])) :]
                return found, rest, not at_end
            found.append(Problem(BAD_QUOTES))
        else:
            blank = reader.line_num - start == 1 and not lines[start].strip(_SPACES)
            found.append(None if blank else [_as_read(f) for f in fields] if odd else fields)
        start = reader.line_num
    return found, content[stop:], False


def _given(lines: list[str], at_end: list[bool]) -> Iterator[str]:
    yield from lines
    at_end.append(True)


def _ends_itself(line: str, delimiter: str) -> bool:
    """Whether a record with malformed quotes is over at the end of its line."""
    reader = csv.reader([line, "\n"], delimiter=delimiter)
    next(reader)
    return reader.line_num == 1


def _as_read(field: str) -> str:
    for char, stand_in in _STAND_INS.items():
        field = field.replace(stand_in, char)
    return field


# Rows ---------------------------------------------------------------------------------------------


def _header(fields: Fields | Problem | None) -> list[str] | None:
    if fields is None or isinstance(fields, Problem):
        return None if fields is None else []
    return [field.encode("latin-1").decode("utf-8", "replace") for field in fields]


def _rows(block: Records, header: list[str], columns: Sequence[str]) -> Lines:
    counts = Counter(header)
    places = {name: i for i, name in enumerate(header) if counts[name] == 1}  # else: which one?
    wanted = [places.get(column) for column in columns]
    if None not in wanted and block.read is None:
        fast = _by_arrow(block, len(header), list(zip(columns, wanted)))
        if fast is not None:
            return Lines(block.first, (), fast)
    return Lines(block.first, [_row(fields, len(header), wanted) for fields in block.by_python()])


def _row(fields: Fields | Problem | None, width: int, wanted: Sequence[int | None]) -> Row | None:
    if fields is None or isinstance(fields, Problem):
        return fields
    if not any(i is not None for i in wanted):
        return Problem(MISSING_COLUMN)
    if len(fields) != width:
        return Problem(WRONG_FIELDS)
    return row_of([Problem(MISSING_COLUMN) if i is None else _text(fields[i]) for i in wanted])


def _text(field: str) -> str | None | Problem:
    return text_of(field.encode("latin-1")) or None


def _by_arrow(
    block: Records, width: int, places: Sequence[tuple[str, int | None]]
) -> pa.RecordBatch | None:
    """The block by Arrow's parser, or None where a record is bad or would be read differently.

    Arrow's own handler of bad lines is not used: it fails where their text does not decode.
    """
    content = block.content
    if block.ends is None:
        content = content.replace(b"\r\n", b"\n")
        odd = b"\r" in content or _has_blank_line(content)
    else:
        odd = content.count(b"\r") > content.count(b"\r\n") or _has_blank(content, block.ends)
    if odd or b"\0" in content:
        return None
    wanted = list(dict.fromkeys(str(place) for _, place in places))
    try:
        table = pa_csv.read_csv(
            io.BytesIO(content),
            read_options=pa_csv.ReadOptions(
                use_threads=False,
                column_names=[str(i) for i in range(width)],
                block_size=len(content) + 1,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=block.delimiter,
                quote_char=False if block.ends is None else '"',
                newlines_in_values=block.ends is not None,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
    except (pa.ArrowException, OSError):  # a bad record somewhere: one by one then
        return None
    if table.num_rows != len(block):
        return None
    arrays = [table.column(str(place)).combine_chunks() for _, place in places]
    arrays = [a.combine_chunks() if isinstance(a, pa.ChunkedArray) else a for a in arrays]
    return pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in places])


def _has_blank_line(content: bytes) -> bool:
    """In most blocks found out without splitting them."""
    if b"\n\n" in content or content.startswith(b"\n"):
        return True
    if any(space in content for space in (b" \n", b"\t\n", b"\v\n", b"\f\n")):
        return any(not line.strip() for line in content[:-1].split(b"\n"))
    return False


def _has_blank(content: bytes, ends: np.ndarray) -> bool:
    data = np.frombuffer(content, dtype=np.uint8)
    starts = np.concatenate([[0], ends[:-1] + 1])
    stops = ends - ((ends > starts) & (data[ends - 1] == _RETURN))
    suspects = np.flatnonzero((stops == starts) | _BLANKS[data[stops - 1]])
    return any(not content[starts[i] : stops[i]].strip() for i in suspects.tolist())
