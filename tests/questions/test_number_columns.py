"""Columns to vectors: every form of one table gives the same vectors and the same reasons."""

from __future__ import annotations

import math
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.questions.columns import ABSENT, REASONS, Column
from beam_ldp.questions.number_columns import VectorReader, typed_runs

pytestmark = pytest.mark.exact

SECRET = "a value that nobody may see"
NUMBERS = st.one_of(
    st.floats(),
    st.integers(-(2**70), 2**70),
    st.booleans(),
    st.decimals(-1000, 1000, places=3),
    st.sampled_from(["1.5", " -2 ", "1e3", "nan", "inf", "abc", "", None, ABSENT, b"7", b"\xff"]),
    st.sampled_from([[1], {"a": 1}, np.float32(0.5), np.int8(3), 10**400]),
)


def meaning(value):
    """The plain meaning of one value: a number, or the reason why it is none."""
    if value is ABSENT:
        return "missing column"
    if value is None:
        return "null"
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return "undecodable text"
    if isinstance(value, (str, int, float, Decimal, np.generic)):
        try:
            number = float(value)
        except OverflowError:
            return "wrong type"
        except ValueError:
            return "not a number"
        if math.isnan(number):
            return "NaN"
        return "infinite" if math.isinf(number) else number
    return "wrong type"


def encode(columns, dimension, count=None):
    """One number list or one reason per row."""
    count = len(columns[0]) if count is None else count
    vectors, codes = VectorReader(dimension).read([Column(c, count) for c in columns], count)
    assert vectors.shape == (count, dimension) and vectors.dtype.kind == "f"
    assert np.isfinite(vectors).all() and (vectors[codes != 0] == 0).all()
    return [REASONS[c] if c else v for v, c in zip(vectors.tolist(), codes.tolist())]


@given(st.lists(NUMBERS, max_size=12))
def test_python_numbers_of_any_type(values):
    found = encode([values], 1)
    for value, row in zip(values, found):
        wanted = meaning(value)
        if isinstance(value, list):
            assert row == [1.0], "a list of one number is a vector of one"
        elif isinstance(wanted, str):
            assert row == wanted
        else:
            assert row == [pytest.approx(wanted, rel=1e-15)]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8))
def test_the_first_bad_column_gives_the_reason(rows):
    rows = [row for row in rows if not any(isinstance(value, list) for value in row)]
    found = encode([[a for a, _ in rows], [b for _, b in rows]], 2)
    for row, vector in zip(rows, found):
        wanted = [meaning(value) for value in row]
        problems = [w for w in wanted if isinstance(w, str)]
        if not problems:
            assert vector == pytest.approx(wanted)
        elif {"NaN", "infinite"} >= set(problems):
            assert vector == ("NaN" if "NaN" in problems else "infinite")
        else:
            assert vector == next(p for p in problems if p not in ("NaN", "infinite"))


TABLE = [[1.0, 2.0], [3.0, None], None, [4.0, math.nan], [5.0], [-math.inf, 0.0], [7.0, 8.0]]
FOUND = [[1, 2], "null", "null", "NaN", "wrong number of coordinates", "infinite", [7, 8]]
TEXT = ["[1, 2]", None, None, "[4, NaN]", "[5]", " [ -Infinity , 0 ] ", "[7.0,8e0]"]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TABLE),
        pa.array(TABLE, pa.large_list(pa.float32())),
        pa.array([None, [9.0], *TABLE])[2:],
        TABLE,
        [None if row is None else tuple(row) for row in TABLE],
        TEXT,
        pa.array(TEXT),
        pa.array(TEXT, pa.large_binary()),
        pa.array(TEXT).dictionary_encode(),
    ],
)
def test_one_column_of_lists(column):
    assert encode([column], 2) == FOUND


def test_arrays_in_rows_and_text_that_is_no_list():
    rows = [np.array([1.0, 2.0]), None, np.array([1.0, np.nan]), np.array([5]), np.zeros((1, 2))]
    length = "wrong number of coordinates"
    assert encode([rows], 2) == [[1, 2], "null", "NaN", length, "wrong type"]
    assert encode([["[1,,2]", "[1,x]", "1,2", "[[1],2]", "[]", "", b"\xff"]], 2) == [
        length, "not a number", length, "not a number", length, length, "undecodable text",
    ]  # fmt: skip


@pytest.mark.parametrize("skipped", [0, 2])
def test_fixed_size_lists(skipped):
    """Null entries hide values that count for nothing, also in slices."""
    rows = [[9.0, 9.0], None, [1.0, 2.0], None, [3.0, None], [4.0, math.nan], [5.0, 6.0]]
    column = pa.array(rows, pa.list_(pa.float32(), 2))[skipped:]
    wanted = [[9, 9], "null", [1, 2], "null", "null", "NaN", [5, 6]][skipped:]
    assert encode([column], 2) == wanted
    length = ["null" if row is None else "wrong number of coordinates" for row in rows[skipped:]]
    assert encode([column], 3) == length


def test_integers_booleans_decimals_dictionaries_and_halves_in_lists():
    kinds = {
        "int8": pa.array([[1, 0], [2, 3]], pa.list_(pa.int8())),
        "bool": pa.array([[True, False], [True, True]]),
        "decimal": pa.array([[Decimal("1.50"), Decimal("2.25")], [Decimal(3), Decimal(4)]]),
        "half": pa.array([[np.float16(1), np.float16(2)]] * 2, pa.list_(pa.float16())),
        "text": pa.array([["1", "2"], ["x", "4"]]),
    }
    found = {name: encode([column], 2) for name, column in kinds.items()}
    assert found["int8"] == [[1, 0], [2, 3]] and found["bool"] == [[1, 0], [1, 1]]
    assert found["decimal"] == [[1.5, 2.25], [3, 4]] and found["half"] == [[1, 2]] * 2
    assert found["text"] == [[1, 2], "not a number"]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        (pa.array([1, None, 3], pa.uint64()), [[1], "null", [3]]),
        (pa.array([2**64 - 1], pa.uint64()), [[2.0**64]]),
        (pa.array([True, None]), [[1], "null"]),
        (pa.array([1.5, None, math.nan], pa.float32()), [[1.5], "null", "NaN"]),
        (pa.array([-math.inf, math.inf], pa.float32()), ["infinite", "infinite"]),
        (pa.array([np.float16(1.5), None], pa.float16()), [[1.5], "null"]),
        (pa.array([Decimal("0.5"), None], pa.decimal128(9, 2)), [[0.5], "null"]),
        (pa.array(["1", "x", None, "1"]).dictionary_encode(), [[1], "not a number", "null", [1]]),
        (pa.array([" -3,5", "1.234,5", "1,234", "1,2,3", "3,", None]),
         [*["number with a comma"] * 3, "not a number", "not a number", "null"]),
        (pa.array([4, None, 4]).dictionary_encode(), [[4], "null", [4]]),
        (pa.array([0, 1], pa.timestamp("s")), ["wrong type"] * 2),
        (pa.array([{"a": 1}, None]), ["wrong type", "null"]),
        (pa.nulls(2), ["null"] * 2),
        (pa.array(["1e999", "-1e999", "0x1", "1_0", "+2", "٣"]),
         ["infinite", "infinite", "not a number", "not a number", [2], "not a number"]),
        (None, ["missing column"] * 2),
        (pa.array([], pa.float64()), []),
    ],
)  # fmt: skip
def test_columns_of_single_numbers(column, wanted):
    assert encode([column], 1, len(wanted)) == wanted


def test_a_scalar_is_no_vector():
    assert encode([pa.array([1.0, None])], 2) == ["wrong type", "null"]
    assert encode([[1.0, [1, 2], {1, 2}]], 2) == ["wrong type", [1, 2], "wrong type"]


def test_too_few_columns():
    assert encode([pa.array([1.0])] * 2, 3) == ["wrong number of coordinates"]
    assert encode([pa.array([1.0]), None], 2, 1) == ["missing column"]


@given(st.lists(st.sampled_from(["1", " 2", "x", None, "nan", "3 ", "1e5"]), max_size=20))
def test_one_bad_text_changes_no_other(values):
    """The fast reading of a sound column and the slow one of a bad column agree."""
    together = encode([pa.array(values, pa.string())], 1)
    assert together == [encode([pa.array([v], pa.string())], 1)[0] for v in values]


@pytest.mark.parametrize(
    ("array", "dimension", "wanted"),
    [
        (np.array([[1, 2], [3, 4]], np.uint8), 2, [[1, 2], [3, 4]]),
        (np.array([[1.0, np.nan], [np.inf, 0]]), 2, ["NaN", "infinite"]),
        (np.array([1.0, 2.0]), 1, [[1], [2]]),
        (np.zeros((2, 3)), 2, ["wrong number of coordinates"] * 2),
        (np.zeros((1, 2, 2)), 2, ["wrong number of coordinates"]),
        (np.array([[True, False]]), 2, [[1, 0]]),
        (np.array([["1", "x"]], dtype=object), 2, ["not a number"]),
        (np.array([None, 1.5], dtype=object), 1, ["null", [1.5]]),
        (np.array([[1 + 2j]]), 1, ["wrong type"]),
        (np.zeros((0, 2)), 2, []),
    ],
)
def test_arrays(array, dimension, wanted):
    vectors, codes = VectorReader(dimension).read_array(array)
    found = [REASONS[c] if c else v for v, c in zip(vectors.tolist(), codes.tolist())]
    assert found == wanted and vectors.shape == (len(array), dimension)


def test_narrow_floats_stay_narrow_and_the_input_is_not_written_to():
    narrow = np.array([[1, 2], [np.nan, 4]], dtype=np.float32)
    vectors, _ = VectorReader(2).read_array(narrow)
    assert vectors.dtype == np.float32 and np.isnan(narrow[1, 0])
    columns = [Column(pa.array([1.0], kind), 1) for kind in (pa.float32(), pa.float64())]
    assert VectorReader(2).read(columns, 1)[0].dtype == np.float64
    assert VectorReader(2).read([columns[0]] * 2, 1)[0].dtype == np.float32
    assert VectorReader(1).read([Column(pa.array([2**40 + 1]), 1)], 1)[0][0, 0] == 2**40 + 1


def test_runs_cover_every_value_once():
    values = [1, "a", 2.5, None, [1], ABSENT, {1}, True, 10**30]
    runs = sorted(typed_runs(values), key=lambda run: run[0])
    assert [start for start, _, _ in runs] == np.cumsum([0] + [len(a) for _, a, _ in runs])[
        :-1
    ].tolist()
    assert sum(len(array) for _, array, _ in runs) == len(values)
    assert typed_runs([]) == []


def test_reasons_quote_nothing():
    found = encode([[SECRET, [SECRET], {SECRET: 1}, f"[{SECRET}]"]], 1)
    assert all(isinstance(row, str) and SECRET not in row for row in found)


@pytest.mark.bench
def test_speed_of_sound_columns():
    """A hundred thousand vectors of 784 float32: seconds for a million."""
    flat = np.random.default_rng(0).normal(size=78_400_000).astype(np.float32)
    fixed = pa.FixedSizeListArray.from_arrays(pa.array(flat), 784)
    begin = time.perf_counter()
    for start in range(0, 100_000, 2500):
        encode_rows = VectorReader(784).read([Column(fixed[start : start + 2500], 2500)], 2500)
        assert not encode_rows[1].any()
    assert time.perf_counter() - begin < 1.0
