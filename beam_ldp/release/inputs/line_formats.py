"""JSON lines and plain text: every line is a row or a bad row. And what CSV shares with them.

A line ends with a newline; a carriage return before it belongs to the line end, and nothing else
ends a line. Lines that hold nothing but white space are no rows. Nothing here raises because of
what a line holds, and no reason quotes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import pyarrow as pa

from beam_ldp.questions import columns
from beam_ldp.questions.columns import REASONS
from beam_ldp.randomizers.identity import canonical_id

BLOCK_BYTES = 4 << 20
LONGEST_LINE = 16 << 20
MARK = b"\xef\xbb\xbf"  # of byte order, at the beginning of a file

UNDECODABLE = REASONS[columns.UNDECODABLE]
WINDOWS_1252 = f"{UNDECODABLE} that looks like Windows-1252 or Latin-1"
TOO_LONG = "line too long"
WRONG_FIELDS = "wrong number of fields"
BAD_QUOTES = "unbalanced quotes"
NOT_JSON = "not a JSON object"
NOT_SCALAR = "field is neither text nor number"
NAN, INFINITE = REASONS[columns.NAN], REASONS[columns.INFINITE]
NOT_NUMBERS = "list of something else than numbers"
MISSING_COLUMN = REASONS[columns.MISSING]
NOT_ID = REASONS[columns.BAD_USER]


@dataclass(frozen=True)
class Problem:
    """Why a line cannot be used: a fixed phrase that stands in the place of its fields.

    Attributes:
        reason: the phrase.
        known: the wanted fields that are sound, None in place of the others; empty where the line
            does not come apart. A row whose user is known can still be reported as `other`.
        is_row: whether it is a row at all. A line of which nobody knows must not become a person.
    """

    reason: str
    known: tuple[str | None, ...] = field(default=(), repr=False)
    is_row: bool = True


# The wanted fields of one line in order (None: null), or why there are none.
Row = tuple[str | None, ...] | Problem


_NOT_1252 = re.compile(rb"[\x80-\xff]{3}|[\x81\x8d\x8f\x90\x9d]")


def text_of(raw: bytes) -> str | Problem:
    """The text, or what its bytes look like: in Windows-1252 letters beyond ASCII stand alone or in
    pairs, in encodings of other scripts they come in runs."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return Problem(UNDECODABLE if _NOT_1252.search(raw) else WINDOWS_1252)


def row_of(fields: Sequence[str | None | Problem]) -> Row:
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
    return _read_lines(stream, _text_row)


def _read_lines(stream: BinaryIO, row: Callable[[bytes], Row | None]) -> Iterator[Lines]:
    for number, block in blocks_of_lines(stream):
        if block is None:
            yield Lines(number, [Problem(TOO_LONG)])
        else:
            lines = _split(block.removeprefix(MARK) if number == 1 else block)
            yield Lines(number, list(map(row, lines)))


def _text_row(line: bytes) -> Row | None:
    if not line.strip():
        return None
    return row_of([text_of(line)])


def read_json_lines(
    stream: BinaryIO, columns: Sequence[str], user_id: str | None = None, lists: bool = False
) -> Iterator[Lines]:
    """Each line is a JSON object; numbers keep the text that they were written as. A field that
    an object lacks is null.

    With `lists` a field may hold a list of numbers, which becomes the text that spells it. The
    field `user_id`, which follows the columns, holds text or an integer.
    """
    return _read_lines(stream, lambda line: _json_row(line, columns, user_id, lists))


class _Number(str):
    """A number as it was written."""


def _not_finite(text: str) -> Problem:
    return Problem(NAN if text == "NaN" else INFINITE)


def json_object(line: bytes) -> dict[str, Any] | None:
    """The object that a line holds, None where it holds none."""
    text = line.decode("utf-8", "surrogateescape")  # one bad field does not hide the others
    try:
        found = json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_not_finite)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _json_row(line: bytes, columns: Sequence[str], user_id: str | None, lists: bool) -> Row | None:
    if not line.strip():
        return None
    found = json_object(line)
    if found is None:
        return Problem(NOT_JSON)
    fields = [_json_field(found.get(column), lists) for column in columns]
    if user_id is not None:
        fields.append(_json_id(found.get(user_id)))
    return row_of(fields)


def _json_id(value: Any) -> str | None | Problem:
    """A number in JSON has no type of its own: 7, 7.0 and 70e-1 are one."""
    if isinstance(value, bool):
        return Problem(NOT_ID)
    if isinstance(value, Problem):
        return None
    if isinstance(value, _Number) and not value.lstrip("-").isdecimal():
        try:
            return str(canonical_id(float(value)))
        except ValueError:
            return Problem(NOT_ID)
    return _json_field(value, False)


def _json_field(value: Any, lists: bool) -> str | None | Problem:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Problem):
        return value
    if lists and isinstance(value, list):
        return _json_list(value)
    if not isinstance(value, str):
        return Problem(NOT_SCALAR)
    try:
        return text_of(value.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:  # an escaped half of a surrogate pair
        return Problem(UNDECODABLE)


def _json_list(items: list[Any]) -> str | Problem:
    """The list as text; a list of one number is that number."""
    for item in items:
        if isinstance(item, Problem):
            return item
    if not all(isinstance(item, _Number) for item in items):
        return Problem(NOT_NUMBERS)
    return items[0] if len(items) == 1 else f"[{','.join(items)}]"
