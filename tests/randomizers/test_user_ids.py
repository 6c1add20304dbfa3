"""Who is one person: a function of the id alone, the same wherever people are told apart."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.ledger.participants import PeopleKey
from beam_ldp.protocols.user_means import public_words
from beam_ldp.randomizers.identity import ReleaseIdentity, canonical_id, canonical_ids
from beam_ldp.randomizers.randomness import UserRandomness, contribution_ranks, envelope_ids

pytestmark = pytest.mark.exact
KEY = b"k" * 32
RELEASE = ReleaseIdentity("d", "r")
SEVEN = [
    7, 7.0, "7", b"7", "7.0", "7.000", b"7.0", np.int8(7), np.uint64(7), np.float32(7),
]  # fmt: skip
OTHERS = [
    "07",
    "7 ",
    " 7",
    "+7",
    "7.",
    ".7",
    "7,0",
    "7.01",
    "0x7",
    "７",
    "7\n",
    "7e0",
    "seven",
    "-7",
]
NONE_OF_ANYBODY = [
    None, "", b"", True, np.True_, 7.5, float("nan"), float("inf"), -float("inf"), 2.0**53, -1e300,
    "9007199254740992.0", "-9007199254740993.00", "1e+16", "1.2345678901234568E+17", [7], (), 7j,
    np.float32(2**24), np.float16(4096), f"{10**30}.0",
]  # fmt: skip
USERS_OF_IDS = {
    "noise": lambda ids: (
        UserRandomness(KEY, ids, RELEASE)
        .words_for(b"m" * 16, np.zeros(len(ids), dtype=np.int64))
        .words(0, len(ids), 1)[:, 0]
    ),
    "noise of vectors": lambda ids: (
        UserRandomness(KEY, ids, RELEASE)
        .words_for(b"m" * 16, np.zeros((len(ids), 2)))
        .words(0, len(ids), 1)[:, 0]
    ),
    "draw of a row": lambda ids: contribution_ranks(KEY, ids, [b"row"] * len(ids), RELEASE),
    "envelope": lambda ids: np.frombuffer(b"".join(envelope_ids(KEY, ids, RELEASE)), "<u8")[::2],
    "hash for the ledger": lambda ids: PeopleKey(KEY, "all").tags(ids),
    "part of a protocol": public_words,
}


@pytest.mark.parametrize("user", USERS_OF_IDS)
def test_one_person_wherever_people_are_told_apart(user):
    """The randomizer, the bound, the envelope, the protocol and the ledger agree."""
    told = USERS_OF_IDS[user]
    one = {int(told([user_id])[0]) for user_id in SEVEN}
    assert len(one) == 1
    among_others = told(["ada", *SEVEN, 2**64, "07"])
    assert set(among_others[1:-2].tolist()) == one
    assert len(set(among_others.tolist())) == 4
    apart = told(OTHERS)
    assert len(set(apart.tolist()) | one) == len(OTHERS) + 1
    large = told(np.array([2**64 - 1, 7], dtype=np.uint64))
    assert large.tolist() == told([str(2**64 - 1), "7"]).tolist()
    assert large[0] not in told([-1, 2**64 - 2**63 - 1]).tolist()  # what 64 bits would wrap it to


@pytest.mark.parametrize("user_id", NONE_OF_ANYBODY, ids=repr)
def test_what_is_no_id(user_id):
    with pytest.raises((TypeError, ValueError), match="user_ids") as caught:
        canonical_id(user_id)
    assert "1234" not in str(caught.value)
    with pytest.raises((TypeError, ValueError)):
        canonical_ids([7, user_id])


def test_zero_has_one_sign():
    assert [canonical_id(i) for i in (0, -0.0, "0", "-0", "-0.0", "0.0")] == [0] * 6


@given(st.integers(-(2**70), 2**70))
def test_an_integer_is_its_digits(number):
    found = canonical_id(number)
    assert found == canonical_id(str(number)) == canonical_id(str(number).encode())
    assert found == (number if -(2**63) <= number < 2**63 else str(number).encode())
    assert canonical_id(found) == found
    if abs(number) < 2**53:
        assert canonical_id(float(number)) == canonical_id(f"{number}.0") == number


@given(st.text(min_size=1))
def test_other_text_is_itself(text):
    try:
        found = canonical_id(text)
    except ValueError:
        assert "e+" in text.lower() or text.endswith(".0")
        return
    assert found == text.encode("utf-8", "surrogatepass") or float(text) == found


@given(st.lists(st.one_of(st.integers(), st.text(min_size=1).map(lambda t: "u" + t))))
def test_all_at_once_and_one_by_one_agree(ids):
    found = canonical_ids(ids)
    assert list(found) == [canonical_id(user_id) for user_id in ids]
    assert list(canonical_ids(found.array)) == list(found)
    kinds = [(np.arange(len(ids))[rows], part) for rows, part in found.kinds()]
    for rows, part in kinds:
        assert list(part) == [list(found)[row] for row in rows]
    assert sorted(np.concatenate([rows for rows, _ in kinds]).tolist()) == list(range(len(ids)))


def test_integers_are_not_looked_at_one_by_one():
    ids = np.arange(10)
    assert canonical_ids(ids).integers.dtype == np.int64 and canonical_ids(ids).texts is None
    assert canonical_ids(np.array([3.0, -2.0])).integers.tolist() == [3, -2]
    assert canonical_ids(np.array([], dtype=np.uint64)).integers.tolist() == []
