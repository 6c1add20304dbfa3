"""Columns of a batch of rows as indices and ids, and why each row that cannot be used is bad.

Works on Arrow arrays, whole columns at a time. Reasons are fixed phrases: no value is quoted.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.domain import OTHER, Domain
from beam_ldp.randomizers.identity import (
    DECIMAL,
    FLOAT_LIMIT,
    OF_A_FLOAT,
    canonical_id,
    digest_of,
    is_integral,
)


@dataclass(frozen=True)
class IntegerDomain:
    """The integers 0, ..., size - 1 as a domain: for columns that hold indices already.

    Like every domain it ends with `other`: integers outside become `size - 1`.

    Args:
        size: number of indices, `other` included; at least 2.
        other: label of the last index.
    """

    size: int
    other: str = OTHER

    def __post_init__(self) -> None:
        check_integer("size", self.size, 2)

    @property
    def labels(self) -> tuple[str, ...]:
        return (*map(str, range(self.size - 1)), self.other)

    @property
    def digest(self) -> bytes:
        """16 bytes that identify the size and the name of `other`."""
        return digest_of(b"integers", b"%d" % self.size, self.other.encode())

    def clip(self, values: np.ndarray) -> np.ndarray:
        """Indices of integer values, in the same dtype where that holds them."""
        last = self.size - 1
        if not len(values) or (int(values.min()) >= 0 and int(values.max()) <= last):
            return values
        dtype = np.result_type(values.dtype, np.min_scalar_type(last))
        return np.where((values >= 0) & (values <= last), values, last).astype(dtype)


# Columns of integers looked up in a list of text, without making text of them -------------

_LARGEST_TABLE = 1 << 22
_MOST = 2**63 - 1
_WRITTEN_INTEGER = re.compile("0|-?[1-9][0-9]*", re.ASCII)
_PADDED = re.compile("0[0-9]{1,17}", re.ASCII)


class IntegerLookup:
    """The integers among the values of a list, to look up columns of integers without text.

    Attribute `padded`: those that the list writes with leading zeros alone.
    """

    def __init__(self, domain: Domain) -> None:
        self._other = domain.size - 1
        written = {
            int(value): i
            for i, value in enumerate(domain.values)
            if len(value) <= 20 and _WRITTEN_INTEGER.fullmatch(value)
        }
        numbers = sorted(n for n in written if -_MOST <= n <= _MOST)
        self._first, self._last = (numbers[0], numbers[-1]) if numbers else (0, -1)
        padded = {int(v) for v in domain.values if v[:1] == "0" and _PADDED.fullmatch(v)}
        self.padded = frozenset(padded - written.keys())
        self._sorted = np.array(numbers, dtype=np.int64)
        self._indices = np.array([written[n] for n in numbers], dtype=np.int64)
        self._table: np.ndarray | None = None
        if self._last - self._first < _LARGEST_TABLE:
            dtype = np.min_scalar_type(self._other)
            self._table = np.full(max(0, self._last - self._first + 1), self._other, dtype=dtype)
            self._table[self._sorted - self._first] = self._indices

    def look_up(self, values: np.ndarray) -> np.ndarray:
        """Index of each integer. O(n), or O(n log k) where those of the list lie far apart."""
        if not len(self._sorted) or not len(values):
            return np.full(len(values), self._other)
        if self._table is not None and self._first <= values.min() and values.max() <= self._last:
            return self._table[values.astype(np.int64) - self._first if self._first else values]
        inside = values <= np.uint64(_MOST) if values.dtype == np.uint64 else True
        values = values.astype(np.int64)
        inside = inside & (values >= self._first) & (values <= self._last)
        safe = np.where(inside, values, self._first)
        if self._table is not None:
            found = self._table[safe - self._first]
        else:
            at = np.searchsorted(self._sorted, safe)
            inside = inside & (self._sorted[at] == safe)
            found = self._indices[at]
        return np.where(inside, found, found.dtype.type(self._other))


SOUND = 0
REASONS = (
    "",
    "missing column",
    "null",
    "wrong type",
    "NaN",
    "over-long value",
    "undecodable text",
    "no user id",
    "user id of wrong type",
    "no group",
    "infinite",
    "not a number",
    "wrong number of coordinates",
    "neither 0 nor 1",
    "group that is not listed",
    "outside of [-1, 1]",
    "number with a comma",
    "whole number that became a float",
    "integer that the list writes with leading zeros",
)
MISSING, NULL, WRONG_TYPE, NAN, LONG, UNDECODABLE, NO_USER, BAD_USER, NO_GROUP = range(1, 10)
INFINITE, NOT_A_NUMBER, WRONG_LENGTH, NOT_BINARY, UNLISTED_GROUP, TOO_LARGE = range(10, 16)
COMMA, WHOLE_FLOAT, PADDED = range(16, 19)
# Of rows that hold no value, or are left out as declared; every other row could not be read.
WITHOUT_VALUE = frozenset(REASONS[i] for i in (NULL, NAN, NO_USER, NO_GROUP, UNLISTED_GROUP))
MAX_VALUE_BYTES = 4096
_INDEX_IN_UP_TO = 1 << 12  # larger lists are looked up by distinct values of the batch


Codes = np.ndarray  # uint8, an index in REASONS per row


class Column:
    """One column of a batch: an Arrow array, or a list of Python values of any type.

    Args:
        data: the column; None where the batch has no such column.
        num_rows: rows of the batch.
    """

    def __init__(self, data: pa.Array | Sequence[Any] | None, num_rows: int) -> None:
        self.num_rows = num_rows
        self.data = data


class Absent:
    """Stands in a list of values for a row without the column."""


ABSENT = Absent()


class IndexLookup:
    """Values of a column to indices of a public list.

    Args:
        domain: the list. Text is looked up as it is; integers and booleans are written as text. For
            an `IntegerDomain`, integers are indices already.
        max_bytes: a longer value is bad.
    """

    def __init__(self, domain: Domain | IntegerDomain, max_bytes: int = MAX_VALUE_BYTES) -> None:
        self._domain = domain
        self._max_bytes = max_bytes
        self._other = domain.size - 1
        self._list: pa.Array | None = None
        if isinstance(domain, Domain) and domain.size <= _INDEX_IN_UP_TO:
            self._list = pa.array(domain.values, pa.large_string())

    def encode(self, column: Column) -> tuple[np.ndarray, Codes]:
        """`(indices, codes)`, one per row; the index of a bad row is `other`. O(n) beyond the list.

        Integer columns of an `IntegerDomain` without nulls are not copied.
        """
        data = column.data
        if data is None:
            return self._all_bad(column.num_rows, MISSING)
        if not isinstance(data, pa.Array):
            integers = isinstance(self._domain, IntegerDomain)
            plain = integers or set(map(type, data)) <= {str, bool, type(None)}
            data, codes = _as_arrow(data, integers, () if plain else self._integers.padded)
            indices, more = self._encode_arrow(data)
            return indices, np.where(codes != SOUND, codes, more).astype(np.uint8)
        return self._encode_arrow(data)

    @cached_property
    def _integers(self) -> IntegerLookup:
        assert isinstance(self._domain, Domain)
        return IntegerLookup(self._domain)

    def _all_bad(self, num_rows: int, code: int) -> tuple[np.ndarray, Codes]:
        return np.full(num_rows, self._other), np.full(num_rows, code, dtype=np.uint8)

    def _of_wrong_type(self, codes: Codes) -> tuple[np.ndarray, Codes]:
        codes[codes == SOUND] = WRONG_TYPE
        return np.full(len(codes), self._other), codes

    def _encode_arrow(self, data: pa.Array) -> tuple[np.ndarray, Codes]:
        kind = data.type
        if pa.types.is_dictionary(kind):
            return self._encode_dictionary(data)
        codes = null_codes(data)
        if pa.types.is_null(kind):
            return self._all_bad(len(data), NULL)
        if pa.types.is_floating(kind):
            numbers = data.to_numpy(zero_copy_only=False)
            codes[(codes == SOUND) & np.isnan(numbers)] = NAN
            whole = np.isfinite(numbers) & (np.floor(numbers) == numbers)
            codes[(codes == SOUND) & whole] = WHOLE_FLOAT
            return self._of_wrong_type(codes)
        if isinstance(self._domain, IntegerDomain):
            if not pa.types.is_integer(kind):
                return self._of_wrong_type(codes)
            if data.null_count:
                data = data.fill_null(0)
            return self._domain.clip(data.to_numpy()), codes
        if pa.types.is_integer(kind):
            integers = data.fill_null(0).to_numpy()
            if self._integers.padded:
                padded = np.array(sorted(self._integers.padded))
                codes[(codes == SOUND) & np.isin(integers, padded)] = PADDED
            return self._integers.look_up(integers), codes
        texts, codes = _texts(data, codes)
        if texts is None:
            return np.full(len(codes), self._other), codes
        codes[(codes == SOUND) & too_long(texts, self._max_bytes)] = LONG
        return self._look_up(texts), codes

    def _look_up(self, data: pa.Array) -> np.ndarray:
        if self._list is not None:
            found = pc.index_in(data, value_set=self._list)
            return found.fill_null(self._other).to_numpy()
        distinct = data.dictionary_encode()
        known = [value or "" for value in distinct.dictionary.to_pylist()]
        indices = np.append(self._domain.encode(known), self._other)  # type: ignore[union-attr]
        return indices[distinct.indices.fill_null(len(known)).to_numpy()]

    def _encode_dictionary(self, data: pa.DictionaryArray) -> tuple[np.ndarray, Codes]:
        return of_distinct(data, *self._encode_arrow(data.dictionary), self._other)


def of_distinct(
    data: pa.DictionaryArray, values: np.ndarray, codes: Codes, absent: Any
) -> tuple[np.ndarray, Codes]:
    """What each row of a dictionary's is, from what its distinct values are.

    Nulls may sit in the indices, of which they become `absent`, and in the dictionary.
    """
    at = data.indices.fill_null(len(values)).to_numpy()
    return np.append(values, absent)[at], np.append(codes, np.uint8(NULL))[at]


def texts_of(column: Column, max_bytes: int = MAX_VALUE_BYTES) -> tuple[pa.Array, Codes]:
    """A column as text, as `IndexLookup` reads it, and why each row that cannot be used is bad.

    Integers and truth values are written as text; a row that is bad is null, or anything.
    """
    data, before = column.data, None
    if data is None:
        return pa.nulls(column.num_rows, pa.large_string()), np.full(
            column.num_rows, MISSING, np.uint8
        )
    if not isinstance(data, pa.Array):
        data, before = _as_arrow(data, False)
    if pa.types.is_dictionary(data.type):
        data = data.dictionary_decode()
    codes = null_codes(data)
    if pa.types.is_floating(data.type):
        codes[(codes == SOUND) & _mask(pc.is_nan(data))] = NAN
    if pa.types.is_integer(data.type):
        data = data.cast(pa.large_string())
    texts, codes = _texts(data, codes)
    if texts is None:
        return pa.nulls(len(codes), pa.large_string()), codes
    codes[(codes == SOUND) & too_long(texts, max_bytes)] = LONG
    return texts, codes if before is None else np.where(before != SOUND, before, codes)


def _texts(data: pa.Array, codes: Codes) -> tuple[pa.Array | None, Codes]:
    """Text and truth values as UTF-8; None where the column holds something else."""
    if pa.types.is_boolean(data.type):
        return data.cast(pa.large_string()), codes
    if not is_text(data.type):
        codes[codes == SOUND] = WRONG_TYPE
        return None, codes
    data, undecodable = decoded(data)
    codes[(codes == SOUND) & undecodable] = UNDECODABLE
    return data, codes


def too_long(texts: pa.Array, max_bytes: int) -> np.ndarray:
    """Which entries have more bytes."""
    lengths = pc.binary_length(texts)
    if (pc.max(lengths).as_py() or 0) <= max_bytes:
        return np.zeros(len(texts), dtype=bool)
    return _mask(pc.greater(lengths, max_bytes))


def null_codes(data: pa.Array) -> Codes:
    """NULL for every null, SOUND for the rest."""
    codes = np.zeros(len(data), dtype=np.uint8)
    if data.null_count:
        codes[_mask(data.is_null())] = NULL
    return codes


def _mask(data: pa.Array) -> np.ndarray:
    return data.fill_null(False).to_numpy(zero_copy_only=False)


def is_text(kind: pa.DataType) -> bool:
    """Whether entries are text, or bytes that should be text."""
    views = ("string_view", "binary_view")
    return (
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or str(kind) in views
    )


def decoded(data: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """As text, with nulls for what is no UTF-8, and which entries that are."""
    bad = np.zeros(len(data), dtype=bool)
    try:
        data.cast(pa.large_binary()).cast(pa.large_string()).validate(full=True)
        return data.cast(pa.large_string()), bad
    except (pa.ArrowInvalid, UnicodeDecodeError):
        pass
    texts: list[str | None] = []
    for i, raw in enumerate(data.cast(pa.large_binary()).to_pylist()):
        try:
            texts.append(None if raw is None else raw.decode())
        except UnicodeDecodeError:
            texts.append(None)
            bad[i] = True
    return pa.array(texts, pa.large_string()), bad


def _as_arrow(
    values: Sequence[Any], integers: bool, padded: Collection[int] = ()
) -> tuple[pa.Array, Codes]:
    """Python values of any type as one Arrow array, with nulls for those that are bad."""
    kinds = set(map(type, values))
    codes = np.zeros(len(values), dtype=np.uint8)
    wanted = pa.int64() if integers else pa.large_string()
    if kinds == {int} if integers else kinds == {str}:
        try:
            return pa.array(values, wanted), codes
        except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
            pass
    sound: list[Any] = []
    for i, value in enumerate(values):
        kept, codes[i] = _judge(value, integers, padded)
        sound.append(kept)
    return pa.array(sound, wanted), codes


def _judge(value: Any, integers: bool, padded: Collection[int]) -> tuple[Any, int]:
    """A value in the form that is looked up, or None and why it is bad."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is ABSENT:
        return None, MISSING
    if value is None:
        return None, NULL
    if isinstance(value, float):
        whole = WHOLE_FLOAT if value.is_integer() else WRONG_TYPE
        return None, NAN if math.isnan(value) else whole
    if isinstance(value, int) and integers and not isinstance(value, bool):
        return (value if -(2**63) <= value < 2**63 else -1), SOUND  # -1 becomes `other`
    if integers:
        return None, WRONG_TYPE
    if isinstance(value, bool):
        return ("true" if value else "false"), SOUND
    if isinstance(value, int):
        text = int.__repr__(value) if value.bit_length() < 512 else ""
        return (None, PADDED) if value in padded else (text, SOUND)
    try:
        if isinstance(value, str):
            value.encode()
            return str.__str__(value), SOUND
        if isinstance(value, bytes):
            return value.decode(), SOUND
    except UnicodeError:
        return None, UNDECODABLE
    return None, WRONG_TYPE


# Columns of ids, in the form in which they are compared (`identity.canonical_id`) ----------

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
    decimal = _mask(pc.match_substring_regex(near, DECIMAL))
    if not decimal.all():
        codes[rows[~decimal & _mask(pc.match_substring_regex(near, OF_A_FLOAT))]] = BAD_USER
        near, rows = near.filter(pa.array(decimal)), rows[decimal]
    integers[rows], spelled[rows], codes[rows] = _integers(near)
    return integers, spelled, codes


def _integers(numbers: pa.Array) -> tuple[np.ndarray, np.ndarray, Codes]:
    """Text that spells integers: values, whether they have at most 64 bits, and codes."""
    texts = numbers.cast(pa.large_string())
    pointed = _mask(pc.match_substring(texts, "."))
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
