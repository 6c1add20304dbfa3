"""Columns of ids: the fast ways agree with `canonical_id`, and say why an id is none."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.questions.columns import (
    ABSENT,
    REASONS,
    Column,
    by_kind,
    is_id_type,
    user_ids,
)
from beam_ldp.randomizers.identity import canonical_id

pytestmark = pytest.mark.exact

near_numbers = st.from_regex(r"\A-?[0-9]{1,20}(\.[0-9]{0,2})?([eE]\+?[0-9]{1,2})?\Z")
texts = st.one_of(st.none(), st.text(max_size=5), near_numbers)


def expected(user_id):
    """`(id in canonical form, reason)`."""
    missing = user_id is None or user_id is ABSENT or user_id in ("", b"")
    if missing or (isinstance(user_id, float) and math.isnan(user_id)):
        return None, "no user id"
    try:
        return canonical_id(user_id), ""
    except (TypeError, ValueError):
        return None, "user id of wrong type"


def check(column, values):
    ids, codes = user_ids(Column(column, len(values)))
    wanted = [expected(value) for value in values]
    assert [REASONS[code] for code in codes] == [reason for _, reason in wanted]
    sound = [user_id for user_id, reason in wanted if not reason]
    found = ids[codes == 0]
    assert [canonical_id(user_id) for user_id in found.tolist()] == sound
    assert all(isinstance(i, bytes) or -(2**63) <= i < 2**63 for i in found.tolist())
    if all(isinstance(user_id, int) for user_id in sound):
        assert ids.dtype == np.int64
    parts = [(np.arange(len(found))[rows], part) for rows, part in by_kind(found)]
    for rows, part in parts:
        assert part.tolist() == [sound[row] for row in rows]
        assert {type(i) for i in part.tolist()} <= {bytes if part.dtype == object else int}
    assert sorted(row for rows, _ in parts for row in rows) == list(range(len(sound)))


@given(
    st.lists(texts), st.sampled_from([pa.string(), pa.large_string(), pa.binary()]), st.booleans()
)
def test_text_columns(values, kind, as_dictionary):
    raw = [None if v is None else v.encode("utf-8", "replace") for v in values]
    column = pa.array(raw, pa.binary()).cast(kind)
    check(column.dictionary_encode() if as_dictionary else column, raw)
    check(pa.concat_arrays([pa.array(["x"], kind), column])[1:], raw)  # an array with an offset


@pytest.mark.parametrize("kind", ["int8", "uint8", "int32", "uint64", "int64"])
@given(data=st.data())
def test_integer_columns(kind, data):
    limits = np.iinfo(kind)
    numbers = st.one_of(st.none(), st.integers(int(limits.min), int(limits.max)))
    values = data.draw(st.lists(numbers, max_size=12))
    check(pa.array(values, getattr(pa, kind)()), values)


@pytest.mark.parametrize(("kind", "limit"), [("float32", 2**24), ("float64", 2**53)])
@given(values=st.lists(st.one_of(st.none(), st.floats(width=32), st.integers(-9, 9).map(float))))
def test_float_columns_are_what_missing_ids_make_of_integers(kind, limit, values):
    values = [*values, float(limit), float(limit - 1), -0.0]
    column = pa.array(values, getattr(pa, kind)())
    as_stored = [None if v is None else np.dtype(kind).type(v) for v in values]
    _, codes = user_ids(Column(column, len(values)))
    assert [REASONS[code] for code in codes[-3:]] == ["user id of wrong type", "", ""]
    for stored, code in zip(as_stored, codes.tolist()):
        assert REASONS[code] == expected(None if stored is None else stored)[1] or math.isnan(
            stored
        )


@given(st.lists(st.one_of(texts, st.integers(), st.booleans(), st.floats(), st.just(ABSENT))))
def test_python_values_of_any_type(values):
    check(values, values)


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (None, "no user id"),
        (pa.nulls(2), "no user id"),
        (pa.array([True, False]), "user id of wrong type"),
        (pa.array([1, 2], pa.timestamp("us")), "user id of wrong type"),
        (pa.array([[1], [2]]), "user id of wrong type"),
        (pa.array([{"a": 1}] * 2), "user id of wrong type"),
        (pa.array([2**62] * 2, pa.timestamp("s")), "user id of wrong type"),
        ([np.arange(2), {"a": 1}], "user id of wrong type"),
        (pa.array([math.nan, None]), "no user id"),
    ],
)
def test_columns_without_ids(column, reason):
    ids, codes = user_ids(Column(column, 2))
    assert [REASONS[code] for code in codes] == [reason] * 2 and len(ids) == 2
    if isinstance(column, pa.Array):
        assert is_id_type(column.type) == (reason == "no user id")


def test_decimals_without_a_scale_are_integers():
    values = [Decimal(7), Decimal(2**70), None]
    column = pa.array(values, pa.decimal128(38, 0))
    ids, codes = user_ids(Column(column, 3))
    assert [canonical_id(i) for i in ids[:2]] == [7, b"%d" % 2**70]
    assert REASONS[codes[2]] == "no user id" and is_id_type(column.type)
    assert not is_id_type(pa.decimal128(38, 2)) and not is_id_type(pa.binary(16))


def test_sound_integers_are_not_copied():
    values = np.arange(5)
    assert np.shares_memory(user_ids(Column(pa.array(values), 5))[0], values)
