"""Columns of ids in the form in which they are compared: `user_ids`, whole columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_ldp.randomizers.user_ids import (
    DECIMAL,
    FLOAT_LIMIT,
    OF_A_FLOAT,
    canonical_id,
    is_integral,
)
from beam_ldp.transforms.elements.columns import (
    ABSENT,
    BAD_USER,
    NO_USER,
    SOUND,
    Codes,
    Column,
    is_text,
    null_codes,
)

_DIGITS = np.zeros(256, dtype=bool)
_DIGITS[ord("0") : ord("9") + 1] = True
_FIRST = _DIGITS.copy()  # bytes that a number begins with
_FIRST[ord("-")] = True


def user_ids(column: Column) -> tuple[np.ndarray, Codes]:
    """Ids of the users of the rows, and why those are bad that are none.

    Ids are int64 where all of them are integers, else an object array of bytes, in which integers
    are their digits. About 2 ns a row for integers, 100 ns for text that spells them, 60 ns for
    other text.
    """
    data = column.data
    if data is None:
        return _none(column.num_rows, NO_USER)
    if not isinstance(data, pa.Array):
        return _of_values(data)
    if pa.types.is_dictionary(data.type):
        data = data.dictionary_decode()
    codes = np.where(null_codes(data) == SOUND, SOUND, NO_USER).astype(np.uint8)
    kind = data.type
    if pa.types.is_integer(kind):
        data = data.fill_null(0) if data.null_count else data
        if kind != pa.uint64() or not len(data) or pc.max(data).as_py() < 2**63:
            return data.to_numpy().astype(np.int64, copy=False), codes
        data = data.cast(pa.string())
    elif pa.types.is_floating(kind):
        return _of_floats(data, codes)
    elif _is_whole(kind):
        data = data.cast(pa.string())
    if not is_text(data.type):  # dates, truth values, lists, ...
        return _none(len(data), NO_USER if pa.types.is_null(kind) else BAD_USER)
    raw = data.cast(pa.large_binary())
    integers, spelled, found = _spelled(raw)
    codes = np.where(codes == SOUND, found, codes).astype(np.uint8)
    if (spelled | (codes != SOUND)).all():
        return integers, codes
    ids = raw.fill_null(b"").to_numpy(zero_copy_only=False)
    ids[spelled] = [b"%d" % i for i in integers[spelled].tolist()]
    return ids, codes


def is_id_type(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold ids."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_null(kind)
        or _is_whole(kind)
        or is_text(kind)
    )


def _is_whole(kind: pa.DataType) -> bool:
    return pa.types.is_decimal(kind) and kind.scale == 0


def by_kind(ids: np.ndarray) -> Iterator[tuple[np.ndarray | slice, np.ndarray]]:
    """`(rows, their ids)` of a block: integers as int64, then texts as bytes."""
    if ids.dtype.kind != "O":
        yield slice(None), ids
        return
    integers, spelled, _ = _spelled(pa.array(ids, pa.large_binary()))
    if spelled.any():
        yield spelled, integers[spelled]
    if not spelled.all():
        yield ~spelled, ids[~spelled]


def _spelled(raw: pa.Array) -> tuple[np.ndarray, np.ndarray, Codes]:
    """The integers that bytes spell, which rows do, and one code per row.

    Only what begins and ends as a number does is looked at more closely.
    """
    count = len(raw)
    integers, spelled = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=bool)
    if not count:
        return integers, spelled, np.zeros(0, dtype=np.uint8)
    starts = np.frombuffer(raw.buffers()[1], dtype=np.int64)[raw.offset :][: count + 1]
    content = np.frombuffer(raw.buffers()[2] or b"", dtype=np.uint8)
    maybe = starts[:-1] != starts[1:]
    codes = np.where(maybe, SOUND, NO_USER).astype(np.uint8)
    first, last = starts[:-1][maybe], starts[1:][maybe] - 1
    maybe[maybe] = _FIRST[content[first]] & _DIGITS[content[last]]
    rows = np.flatnonzero(maybe)
    if not len(rows):
        return integers, spelled, codes
    near = raw if len(rows) == count else raw.take(pa.array(rows))
    decimal = _true(pc.match_substring_regex(near, DECIMAL))
    if not decimal.all():
        codes[rows[~decimal & _true(pc.match_substring_regex(near, OF_A_FLOAT))]] = BAD_USER
        near, rows = near.filter(pa.array(decimal)), rows[decimal]
    integers[rows], spelled[rows], codes[rows] = _integers(near)
    return integers, spelled, codes


def _integers(numbers: pa.Array) -> tuple[np.ndarray, np.ndarray, Codes]:
    """Text that spells integers: values, whether they have at most 64 bits, and codes."""
    texts = numbers.cast(pa.large_string())
    pointed = _true(pc.match_substring(texts, "."))
    if pointed.any():
        texts = pc.replace_substring_regex(texts, r"\.0+$", "")
    codes = np.zeros(len(texts), dtype=np.uint8)
    fits = np.ones(len(texts), dtype=bool)
    try:
        values = texts.cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid:  # one of them has more than 64 bits
        found = [canonical_id(text) for text in texts.to_pylist()]
        fits = np.array([isinstance(i, int) for i in found], dtype=bool)
        values = np.array([i if isinstance(i, int) else 0 for i in found], dtype=np.int64)
    codes[pointed & (~fits | (np.abs(values) >= FLOAT_LIMIT))] = BAD_USER
    return values, fits, codes


def _of_floats(data: pa.Array, codes: Codes) -> tuple[np.ndarray, Codes]:
    """A missing id is often NaN: that is what programs turn it into."""
    values = data.to_numpy(zero_copy_only=False)
    sound = is_integral(values)
    codes[~sound] = np.where(np.isnan(values[~sound]), NO_USER, BAD_USER)
    return np.where(sound, values, 0).astype(np.int64), codes


def _of_values(values: Sequence[Any]) -> tuple[np.ndarray, Codes]:
    """Python values of any type, one by one."""
    codes = np.zeros(len(values), dtype=np.uint8)
    found: list[int | bytes] = []
    for i, user_id in enumerate(values):
        try:
            found.append(canonical_id(user_id))
        except (TypeError, ValueError):
            found.append(0)
            codes[i] = NO_USER if _is_missing(user_id) else BAD_USER
    if all(isinstance(user_id, int) for user_id in found):
        return np.array(found, dtype=np.int64), codes
    ids = np.empty(len(found), dtype=object)
    ids[:] = [user_id if isinstance(user_id, bytes) else b"%d" % user_id for user_id in found]
    return ids, codes


def _is_missing(user_id: Any) -> bool:
    if user_id is None or user_id is ABSENT or (isinstance(user_id, (str, bytes)) and not user_id):
        return True
    return isinstance(user_id, (float, np.floating)) and bool(np.isnan(user_id))


def _none(count: int, code: int) -> tuple[np.ndarray, Codes]:
    return np.zeros(count, dtype=np.int64), np.full(count, code, dtype=np.uint8)


def _true(found: pa.Array) -> np.ndarray:
    return found.fill_null(False).to_numpy(zero_copy_only=False)
