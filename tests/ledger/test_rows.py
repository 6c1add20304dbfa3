"""The chain of rows: every change to it shows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.ledger import kinds
from beam_ldp.ledger.rows import ChainHead, Row, canonical, faults, next_row, parse, row_hash

pytestmark = pytest.mark.exact


def chain(*bodies: dict[str, Any]) -> list[Row]:
    rows: list[Row] = []
    head = ChainHead()
    for i, body in enumerate(bodies):
        rows.append(next_row(head, kinds.GENESIS if i == 0 else kinds.BUDGET, body))
        head = rows[-1].head
    return rows


ROWS = chain({"id": "x"}, {"a": 1}, {"a": 2.5, "b": ["é", None]}, {"a": 1})


def test_a_sound_chain_has_no_faults() -> None:
    assert list(faults(ROWS)) == []
    assert list(faults(ROWS[2:], ROWS[1].head)) == []
    assert ROWS[-1].head == ChainHead(4, ROWS[-1].hash)


def test_the_hash_is_as_documented() -> None:
    """A reader in another language can recompute it: SHA-256 over canonical JSON."""
    text = '{"body":{"a":1},"kind":"budget","number":1,"previous":"%s","version":2}'
    import hashlib

    assert ROWS[1].hash == hashlib.sha256((text % ROWS[0].hash).encode()).hexdigest()


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("field", ["number", "kind", "text", "previous", "hash"])
def test_every_changed_field_shows(number: int, field: str) -> None:
    new: dict[str, Any] = {
        "number": 7,
        "kind": kinds.DATASET,
        "text": '{"a":99}',
        "previous": "f" * 64,
        "hash": "e" * 64,
    }
    changed = [*ROWS]
    changed[number] = replace(ROWS[number], **{field: new[field]})
    assert list(faults(changed))


def test_deleted_swapped_and_doubled_rows_show() -> None:
    assert list(faults(ROWS[1:]))
    assert list(faults([ROWS[0], *ROWS[2:]]))
    assert list(faults([ROWS[0], ROWS[2], ROWS[1], ROWS[3]]))
    assert list(faults([*ROWS[:2], *ROWS[1:]]))


def test_a_cut_tail_does_not_show_in_the_chain_alone() -> None:
    """Why heads are anchored outside the database."""
    assert list(faults(ROWS[:2])) == []
    assert ROWS[1].head != ROWS[3].head


def test_a_row_with_a_repaired_hash_breaks_the_next_one() -> None:
    body = '{"a":99}'
    forged = replace(ROWS[1], text=body, hash=row_hash(1, kinds.BUDGET, body, ROWS[0].hash))
    assert list(faults([ROWS[0], forged])) == []
    assert list(faults([ROWS[0], forged, *ROWS[2:]])) == [
        "row 2 is not chained to the row before it"
    ]


def test_only_the_first_row_is_the_genesis() -> None:
    assert list(faults([next_row(ChainHead(), kinds.ABANDON, {})]))
    second = next_row(ROWS[0].head, kinds.GENESIS, {})
    assert list(faults([ROWS[0], second]))


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="kind must be one of"):
        next_row(ChainHead(), "gift", {})


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), VALUES, max_size=4))
def test_what_is_read_back_has_the_same_canonical_form(body: dict[str, Any]) -> None:
    """Or a row would not fit its hash once it went through the database."""
    assert canonical(parse(canonical(body))) == canonical(body)


@pytest.mark.parametrize("value", [math.nan, math.inf, 2**60, "\ud800", object(), b"bytes"])
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="body must hold"):
        canonical({"value": value})


def test_columns_that_hide_a_row_show() -> None:
    """They are not hashed: a row is looked up by them, so they must say what its body says."""
    row = next_row(ROWS[-1].head, kinds.RESERVE, {"run_id": "run", "part": ""})
    assert row.columns["run_id"] == "run"
    assert list(faults([*ROWS, row])) == []
    hidden = replace(row, columns={**row.columns, "run_id": "another"})
    assert list(faults([*ROWS, hidden])) == [
        "row 4 would not be found: its columns do not say what its body says"
    ]
