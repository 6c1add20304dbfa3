"""The public domain: one index per value, `other` for the rest."""

from __future__ import annotations

import enum
import hashlib
import pickle
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp import simulate
from beam_ldp.questions.columns import Column, IndexLookup
from beam_ldp.randomizers import Domain
from beam_ldp.randomizers.domain import written
from tests.examples import examples

pytestmark = pytest.mark.exact

texts = st.text(max_size=6)


@examples(50)
@given(st.lists(texts, min_size=1, max_size=20, unique=True), st.lists(texts, max_size=20))
def test_indices_and_back(values, asked):
    values = [value for value in values if value != "other"] or ["x"]
    domain = Domain(tuple(values))
    assert domain.size == len(values) + 1 == len(domain.labels)
    indices = domain.encode(asked)
    assert indices.dtype.kind == "i" and len(indices) == len(asked)
    assert domain.decode(indices) == [a if a in values else "other" for a in asked]
    assert domain.encode(values).tolist() == list(range(len(values)))
    again = pickle.loads(pickle.dumps(domain))
    assert again == domain and again.encode(asked).tolist() == indices.tolist()


def test_digest_depends_on_list_order_and_other():
    digests = {
        Domain(values, other).digest
        for values in (("a", "b"), ("b", "a"), ("ab",), ("a", "b", "c"))
        for other in ("other", "rest")
    }
    assert len(digests) == 8 and {len(d) for d in digests} == {16}
    assert Domain(["a", "b"]).digest == Domain(("a", "b")).digest
    assert Domain(("a\ud800",)).digest != Domain(("a",)).digest
    prefixed = b"".join(len(x).to_bytes(8, "little") + x for x in (b"a", b"other"))
    assert Domain(("a",)).digest == hashlib.sha256(prefixed).digest()[:16]


def test_files(tmp_path):
    path = tmp_path / "domain.txt"
    path.write_bytes("\ufeffred\r\ngrün\n\n blue \n".encode())
    domain = Domain.from_file(path, other="rest")
    assert domain.labels == ("red", "grün", " blue ", "rest")
    assert Domain.from_lines(b"one\ntwo").values == ("one", "two")
    path.write_bytes(b"caf\xe9\n")
    with pytest.raises(ValueError, match="UTF-8") as caught:
        Domain.from_file(path)
    assert caught.value.__cause__ is None
    with pytest.raises(ValueError, match="at least one value"):
        Domain.from_lines(b"\n\n")


def test_refusals_quote_no_value():
    for values, message in (
        ((), "at least one"),
        (("a", "a"), "distinct"),
        ((True, "true"), "distinct"),
        (("a", "other"), "other must not be"),
    ):
        with pytest.raises(ValueError, match=message):
            Domain(values)
    assert "sesame" not in repr(Domain(("sesame",)))


class Colour(str, enum.Enum):
    RED = "red"


class Rank(enum.IntEnum):
    FIRST = 1


Answer = enum.Enum("Answer", ["YES"])
LISTED: list[tuple[Any, str | None]] = [
    ("red", "red"), (True, "true"), (np.bool_(False), "false"), (7, "7"), (np.uint8(7), "7"),
    (Colour.RED, "red"), (Rank.FIRST, "1"),
    (None, None), (1.0, None), (float("nan"), None), (b"a", None), (Answer.YES, None),
    (Decimal(1), None), (date(2026, 1, 1), None), (np.float64(1), None),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), LISTED, ids=lambda one: repr(one))
def test_a_list_is_spelled_as_columns_are_read_or_refused(value: Any, text: str | None) -> None:
    """In a list that holds it, a value of that type is found in a column of such values."""
    if text is None:
        for name, make in (("values", Domain), ("domain", lambda v: written(v, "domain"))):
            with pytest.raises(ValueError, match=f"^{name} must hold text.* place 1 is of type"):
                make(("x", value))
        return
    domain = Domain(("x", value))
    assert domain.values == ("x", text)
    indices, codes = IndexLookup(domain).encode(Column([value] * 3, 3))
    assert indices.tolist() == [1] * 3 and not codes.any()
    assert Domain((text,)).digest == Domain((value,)).digest


def test_a_text_is_no_list() -> None:
    for text in ("red", b"red"):
        with pytest.raises(ValueError, match="must be a list of values"):
            Domain(text)  # type: ignore[arg-type]


def test_simulations_spell_truth_values_as_columns_do() -> None:
    for domain in ([True, False], ["true", "false"], None):
        seen = simulate.frequencies([True, False, True], local_epsilon=4.0, domain=domain, seed=1)
        assert dict(zip(seen.labels, seen.truth.tolist())) == pytest.approx(
            {"true": 2 / 3, "false": 1 / 3, "other": 0}
        )
    with pytest.raises(ValueError, match="^domain must hold text"):
        simulate.frequencies([1.0, 2.0], local_epsilon=4.0, domain=[1.0, 2.0])
