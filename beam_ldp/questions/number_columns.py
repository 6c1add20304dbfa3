"""Columns of numbers, and of lists of numbers, as float arrays, and why each bad row is bad.

Works on Arrow arrays, whole columns at a time. Reasons are fixed phrases: no value is quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from beam_ldp.questions.columns import (
    ABSENT,
    COMMA,
    INFINITE,
    MISSING,
    NAN,
    NOT_A_NUMBER,
    NULL,
    SOUND,
    UNDECODABLE,
    WRONG_LENGTH,
    WRONG_TYPE,
    Codes,
    Column,
    decoded,
    is_text,
    null_codes,
    of_distinct,
)

_COMMA = r"^\s*[-+]?[0-9][0-9. ]*,[0-9]+\s*$"  # 3,5 and 1.234,5, and 1,234 too

# Numbers of any float dtype, and the codes of their rows; None where all of them are sound.
Numbers = tuple[np.ndarray, "Codes | None"]


class VectorReader:
    """Columns to vectors of finite numbers.

    Numbers are integers, booleans, floats, decimals, and text that spells one of them. A vector is
    a row of several columns of numbers, or one entry of a column of lists (or of text that spells
    a list in brackets).

    Args:
        dimension: numbers per vector.
    """

    def __init__(self, dimension: int) -> None:
        self._dimension = dimension

    def read(self, columns: Sequence[Column], num_rows: int) -> tuple[np.ndarray, Codes]:
        """`(vectors, codes)`: `(n, dimension)` floats and one code per row; bad rows are zero.

        The dtype is float32 where all numbers are that or narrower, else float64.
        """
        if any(column.data is None for column in columns):
            return self._all_bad(num_rows, MISSING)
        if len(columns) == 1:
            return self._one_column(columns[0].data, num_rows)
        if len(columns) != self._dimension:
            return self._all_bad(num_rows, WRONG_LENGTH)
        found = [_numbers_of(column.data) for column in columns]
        dtype = _float_dtype(*(numbers.dtype for numbers, _ in found))
        vectors = np.empty((num_rows, self._dimension), dtype=dtype)
        for j, (numbers, _) in enumerate(found):
            vectors[:, j] = numbers
        codes = np.zeros(num_rows, dtype=np.uint8)
        for _, found_codes in found:
            if found_codes is not None:
                np.copyto(codes, found_codes, where=codes == SOUND)
        return finite(vectors, codes)

    def read_array(self, array: np.ndarray) -> tuple[np.ndarray, Codes]:
        """The same for a two-dimensional array, or a one-dimensional one of single numbers."""
        if array.dtype.kind not in "biuf":
            return self._one_column(list(array), len(array))
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or array.shape[1] != self._dimension:
            return self._all_bad(len(array), WRONG_LENGTH)
        vectors = np.asarray(array, dtype=_float_dtype(array.dtype))
        return finite(vectors, np.zeros(len(array), dtype=np.uint8))

    def _all_bad(self, num_rows: int, code: int) -> tuple[np.ndarray, Codes]:
        vectors = np.zeros((num_rows, self._dimension))
        return vectors, np.full(num_rows, code, dtype=np.uint8)

    def _one_column(self, data: Any, num_rows: int) -> tuple[np.ndarray, Codes]:
        if isinstance(data, pa.Array):
            return self._vectors(data)
        vectors = np.zeros((num_rows, self._dimension))
        codes = np.zeros(num_rows, dtype=np.uint8)
        for start, array, run_codes in typed_runs(data):
            rows = slice(start, start + len(array))
            vectors[rows], found = self._vectors(array)
            codes[rows] = np.where(run_codes != SOUND, run_codes, found)
        vectors[codes != SOUND] = 0.0
        return vectors, codes

    def _vectors(self, data: pa.Array) -> tuple[np.ndarray, Codes]:
        if pa.types.is_dictionary(data.type):
            data = data.dictionary_decode()
        if is_text(data.type) and self._dimension > 1:
            lists, undecodable = _listed(data)
            vectors, codes = self._from_lists(lists)
            codes[undecodable] = UNDECODABLE
            return vectors, codes
        if is_list(data.type):
            return self._from_lists(data)
        numbers, found = _numbers(data)
        codes = np.zeros(len(data), dtype=np.uint8) if found is None else found
        if self._dimension > 1:
            codes[codes == SOUND] = WRONG_TYPE
            return self._all_bad(len(data), NULL)[0], codes
        vectors = np.array(numbers[:, None], dtype=_float_dtype(numbers.dtype))
        return finite(vectors, codes)

    def _from_lists(self, data: pa.Array) -> tuple[np.ndarray, Codes]:
        codes = null_codes(data)
        lengths = pc.list_value_length(data).fill_null(-1).to_numpy()
        codes[(codes == SOUND) & (lengths != self._dimension)] = WRONG_LENGTH
        fitting = codes == SOUND
        if not fitting.all():
            data = data.filter(pa.array(fitting))
        numbers, inner = _numbers(data.flatten())
        flat = numbers.reshape(-1, self._dimension)
        flat = flat.astype(_float_dtype(flat.dtype), copy=False)
        if inner is not None:
            inside = inner.reshape(-1, self._dimension)
            first = np.argmax(inside != SOUND, axis=1)
            codes[fitting] = inside[np.arange(len(inside)), first]
        if len(flat) == len(data) == len(codes):
            return finite(flat, codes)
        vectors = np.zeros((len(codes), self._dimension), dtype=flat.dtype)
        vectors[fitting] = flat
        return finite(vectors, codes)


def finite(vectors: np.ndarray, codes: Codes) -> tuple[np.ndarray, Codes]:
    """The vectors with zeros in the bad rows, and the codes of rows that are not finite added."""
    sound = np.isfinite(vectors)
    if not sound.all():
        not_finite = (codes == SOUND) & ~sound.all(axis=1)
        is_nan = np.isnan(vectors).any(axis=1)
        codes[not_finite & is_nan] = NAN
        codes[not_finite & ~is_nan] = INFINITE
    bad = codes != SOUND
    if bad.any():
        vectors = np.where(bad[:, None], vectors.dtype.type(0), vectors)  # the input stays
    return vectors, codes


def is_list(kind: pa.DataType) -> bool:
    """Whether entries are lists whose values lie next to each other."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


def typed_runs(values: Sequence[Any]) -> list[tuple[int, pa.Array, Codes]]:
    """Python values as runs of one Arrow type each: `(first row, array, codes)`.

    A value that Arrow knows no type for is a null with a code.
    """
    codes = np.fromiter(map(_code_of, values), dtype=np.uint8, count=len(values))
    cleaned = [None if code else value for value, code in zip(values, codes.tolist())]
    runs: list[tuple[int, pa.Array, Codes]] = []
    waiting = [(0, len(cleaned))] if cleaned else []
    while waiting:
        start, stop = waiting.pop()
        array = _as_arrow(cleaned[start:stop])
        if array is not None:
            runs.append((start, array, codes[start:stop]))
        elif stop - start == 1:
            runs.append((start, pa.nulls(1), np.full(1, WRONG_TYPE, dtype=np.uint8)))
        else:
            middle = (start + stop) // 2
            waiting += [(start, middle), (middle, stop)]
    return runs


def _code_of(value: Any) -> int:
    if value is ABSENT:
        return MISSING
    return WRONG_TYPE if isinstance(value, (set, frozenset)) else SOUND  # without an order


def _as_arrow(values: list[Any]) -> pa.Array | None:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    if len(values) == 1 and isinstance(values[0], int):  # of more than 64 bits
        try:
            return pa.array([float(values[0])])
        except OverflowError:
            pass
    return None


def _numbers_of(data: Any) -> Numbers:
    """A column of numbers, of Arrow or of Python values."""
    if isinstance(data, pa.Array):
        return _numbers(data)
    numbers = np.zeros(len(data))
    codes = np.zeros(len(data), dtype=np.uint8)
    for start, array, run_codes in typed_runs(data):
        rows = slice(start, start + len(array))
        numbers[rows], found = _numbers(array)
        codes[rows] = run_codes if found is None else np.where(run_codes, run_codes, found)
    return numbers, codes


def _numbers(data: pa.Array) -> Numbers:
    """A column of numbers; what stands for a bad one is any number."""
    kind = data.type
    codes = null_codes(data) if data.null_count else None
    if pa.types.is_floating(kind):  # first, because there may be thousands of columns
        return data.to_numpy(zero_copy_only=False), codes
    if pa.types.is_dictionary(kind):
        return _from_dictionary(data)
    if is_text(kind):
        return _from_text(data)
    if pa.types.is_integer(kind):
        return (data.fill_null(0) if data.null_count else data).to_numpy(), codes
    if pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        numbers = data.cast(pa.uint8() if pa.types.is_boolean(kind) else pa.float64())
        return numbers.fill_null(0).to_numpy(), codes
    codes = null_codes(data)
    codes[codes == SOUND] = WRONG_TYPE
    return np.zeros(len(data)), codes


def _from_dictionary(data: pa.DictionaryArray) -> Numbers:
    numbers, codes = _numbers(data.dictionary)
    if codes is None:
        codes = np.zeros(len(numbers), dtype=np.uint8)
    return of_distinct(data, numbers, codes, 0)


def _from_text(data: pa.Array) -> Numbers:
    codes = null_codes(data)
    data, undecodable = _as_text(data)
    codes[(codes == SOUND) & undecodable] = UNDECODABLE
    numbers = _parsed(data)
    bad = (codes == SOUND) & null_codes(numbers).astype(bool)
    if bad.any():
        codes[bad] = NOT_A_NUMBER
        codes[bad & pc.match_substring_regex(data, _COMMA).fill_null(False).to_numpy(False)] = COMMA
    return numbers.fill_null(0.0).to_numpy(), codes


def _as_text(data: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Text with nulls where bytes are none, and which those are."""
    if pa.types.is_string(data.type) or pa.types.is_large_string(data.type):
        return data, np.zeros(len(data), dtype=bool)
    return decoded(data)


def _parsed(texts: pa.Array) -> pa.Array:
    """The numbers that texts spell, spaces around them allowed; null for those that spell none."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        pass
    # Each distinct text once, because what is no number is mostly one of a few words.
    distinct = pc.ascii_trim_whitespace(texts).dictionary_encode()
    return _cast_in_halves(distinct.dictionary).take(distinct.indices)


def _cast_in_halves(texts: pa.Array) -> pa.Array:
    """Arrow's own reading of every text: it refuses a whole array for one bad text."""
    try:
        return texts.cast(pa.float64())
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, pa.float64())
    middle = len(texts) // 2
    return pa.concat_arrays([_cast_in_halves(texts[:middle]), _cast_in_halves(texts[middle:])])


def _listed(data: pa.Array) -> tuple[pa.Array, np.ndarray]:
    """Text such as "[1, 2.5]" as lists of text, and which bytes are no text.

    Null stays null; text without brackets becomes a list of one empty text.
    """
    texts, undecodable = decoded(data)
    texts = pc.ascii_trim_whitespace(texts)
    bracketed = pc.and_(pc.starts_with(texts, "["), pc.ends_with(texts, "]"))
    inside = pc.if_else(bracketed, pc.utf8_slice_codeunits(texts, 1, -1), "")
    return pc.split_pattern(inside, ","), undecodable


def _float_dtype(*dtypes: np.dtype[Any]) -> np.dtype[Any]:
    """float32 where it holds all of them exactly as floats of their own, else float64."""
    narrow = all(dtype.kind == "f" and dtype.itemsize <= 4 for dtype in dtypes)
    return np.dtype(np.float32 if narrow else np.float64)
