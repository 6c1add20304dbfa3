"""Columns to indices: the fast ways agree with the plain one, and no value passes for another."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.questions.columns import ABSENT, REASONS, Column, IndexLookup, IntegerDomain
from beam_ldp.randomizers.domain import Domain

pytestmark = pytest.mark.exact

LISTED = ("a", "b", "1", "-7", "true", "007", "é")
SMALL = IndexLookup(Domain(LISTED), max_bytes=20)
LARGE = IndexLookup(Domain(LISTED + tuple(f"filler {i}" for i in range(5000))), max_bytes=20)
scalars = st.one_of(
    st.none(),
    st.sampled_from([*LISTED, 1, -7, 7, True, False, b"a", b"\xff", ABSENT, (), 10**19, -(10**18)]),
    st.text(max_size=24),
    st.integers(-(10**18), 10**20 - 1),
    st.floats(),
    st.binary(max_size=24),
)


def expected(value, other):
    """The plain meaning of one value: index and reason."""
    if value is ABSENT:
        return other, "missing column"
    if value is None:
        return other, "null"
    if isinstance(value, float):
        whole = "whole number that became a float" if value.is_integer() else "wrong type"
        return other, "NaN" if math.isnan(value) else whole
    if isinstance(value, bool):
        value = "true" if value else "false"
    if isinstance(value, int) and value == 7:  # "007" in the list
        return other, "integer that the list writes with leading zeros"
    if isinstance(value, int):
        return (LISTED.index(str(value)) if str(value) in LISTED else other), ""
    if isinstance(value, bytes):
        try:
            value = value.decode()
        except UnicodeDecodeError:
            return other, "undecodable text"
    if not isinstance(value, str):
        return other, "wrong type"
    try:
        length = len(value.encode())
    except UnicodeEncodeError:
        return other, "undecodable text"
    if length > 20:
        return other, "over-long value"
    return (LISTED.index(value) if value in LISTED else other), ""


def check(encoder, column, values):
    other = SMALL._other if encoder is SMALL else LARGE._other
    indices, codes = encoder.encode(Column(column, len(values)))
    found = [(int(i), REASONS[c]) for i, c in zip(indices, codes)]
    wanted = [expected(value, other) for value in values]
    assert [(i if not why else other, why) for i, why in found] == wanted


@given(st.lists(scalars, max_size=12))
def test_python_values_of_any_type(values):
    for encoder in (SMALL, LARGE):
        check(encoder, values, values)


@given(st.lists(st.one_of(st.none(), st.text("ab1é\x00", max_size=24)), max_size=12), st.booleans())
def test_text_columns(values, as_dictionary):
    column = pa.array(values, pa.string())
    column = column.dictionary_encode() if as_dictionary else column
    for encoder in (SMALL, LARGE):
        check(encoder, column, values)


@given(st.sampled_from(["int8", "uint8", "int16", "uint16", "int32", "uint64", "int64"]), st.data())
def test_integer_columns_mean_the_same_as_their_text(kind, data):
    limits = np.iinfo(kind)
    numbers = st.one_of(st.none(), st.integers(int(limits.min), int(limits.max)), st.integers(0, 9))
    values = data.draw(st.lists(numbers, max_size=12))
    listed = data.draw(st.lists(st.integers(-(2**64), 2**64), min_size=1, max_size=5, unique=True))
    inside = [v for v in values if v is not None]
    listed = list(dict.fromkeys(map(str, [*listed, *inside[:2]])))
    encoder = IndexLookup(Domain(tuple(listed)))
    indices, codes = encoder.encode(Column(pa.array(values, getattr(pa, kind)()), len(values)))
    for value, index, code in zip(values, indices.tolist(), codes.tolist()):
        if value is None:
            assert REASONS[code] == "null"
        else:
            assert code == 0
            assert index == (listed.index(str(value)) if str(value) in listed else len(listed))


@pytest.mark.parametrize(
    ("column", "reasons"),
    [
        (pa.nulls(2), ["null", "null"]),
        (pa.array([1.0, None, math.nan]), ["whole number that became a float", "null", "NaN"]),
        (pa.array([1.5, math.inf]), ["wrong type"] * 2),
        (pa.array([7, 8, None]), ["integer that the list writes with leading zeros", "", "null"]),
        (pa.array([[1], None]), ["wrong type", "null"]),
        (pa.array([b"a", b"\xff", None]), ["", "undecodable text", "null"]),
        (pa.array([True, None]), ["", "null"]),
        (pa.array(["x" * 21, "x" * 20]), ["over-long value", ""]),
        (pa.array([], pa.string()), []),
        (None, ["missing column"] * 2),
    ],
)
def test_reasons_of_arrow_columns(column, reasons):
    count = len(reasons)
    _, codes = SMALL.encode(Column(column, count))
    assert [REASONS[code] for code in codes] == reasons


@given(st.lists(st.one_of(st.integers(-3, 9), st.sampled_from([2**70, True, "1", None, 1.0]))))
def test_integer_domain_takes_indices(values):
    indices, codes = IndexLookup(IntegerDomain(5)).encode(Column(values, len(values)))
    for value, index, code in zip(values, indices.tolist(), codes.tolist()):
        if type(value) is int:
            assert (index, code) == (value if 0 <= value < 4 else 4, 0)
        else:
            whole = "whole number that became a float"
            expected = {type(None): "null", float: whole}.get(type(value), "wrong type")
            assert REASONS[code] == expected


def test_sound_indices_are_not_copied():
    values = np.arange(5, dtype=np.uint16)
    indices, _ = IndexLookup(IntegerDomain(5)).encode(Column(pa.array(values), 5))
    assert indices.dtype == np.uint16 and np.shares_memory(indices, values)
