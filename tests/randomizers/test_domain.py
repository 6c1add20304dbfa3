"""The public domain: one index per value, `other` for the rest."""

from __future__ import annotations

import hashlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import Domain
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
        ((1, 2), "must be strings"),
        (("a", None), "must be strings"),
        (("a", "other"), "other must not be"),
    ):
        with pytest.raises(ValueError, match=message):
            Domain(values)
    assert "sesame" not in repr(Domain(("sesame",)))
