"""The set digest: against a slow one of plain Python, and against whoever wants to set it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import set_digest as module
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.set_digest import (
    NUM_BUCKETS,
    bucket_digests,
    is_old,
    root_digest,
    same_set,
    scattered,
    set_digest,
    set_records,
)
from tests.examples import examples
from tests.identities import identity
from tests.randomizers.forged import forged_id, old_sum

pytestmark = pytest.mark.exact

WEEK = identity("week-47")
Envelope = tuple[bytes, bytes]  # id, packed report
RNG = np.random.default_rng(7)
IDS = RNG.integers(0, 256, (300, 16), dtype=np.uint8)
PACKED = RNG.integers(0, 256, (300, 3), dtype=np.uint8)


def slow_digest(release_digest: bytes, envelopes: list[Envelope], column: int = 0) -> str:
    """The definition, word by word, of the standard library alone."""

    def sha(*parts: bytes) -> bytes:
        return hashlib.sha256(b"".join(parts)).digest()

    records = sorted(
        one + column.to_bytes(2, "big") + (1).to_bytes(4, "big")
        + (report if len(report) <= 32 else sha(report))
        for one, report in envelopes
    )  # fmt: skip
    root = [b"beam-ldp set root 1\n", release_digest, len(records).to_bytes(8, "big")]
    for number in range(4096):
        own = [r for r in records if int.from_bytes(r[:2], "big") >> 4 == number]
        head = number.to_bytes(2, "big") + len(own).to_bytes(8, "big")
        root.append(sha(b"beam-ldp set bucket 1\n", release_digest, head, *own))
    return "set1:" + sha(*root).hex()


def digest(ids: np.ndarray = IDS, packed: np.ndarray = PACKED, release=WEEK, column=0) -> str:
    return set_digest(release, set_records(ids, packed, column))


@pytest.mark.parametrize(
    ("count", "width", "column", "expected"),
    [
        (0, 1, 0, "4611387ce3c35110bf805e8e92af6e0f34f0698f226e6ea8f33748195d9cec5d"),
        (3, 1, 0, "a15c1df6d26daa8176205f5fb2188bcd59ffb451a030dc2bda5ea11e9d0d969e"),
        (200, 40, 5, "273d3c782a0af1ba983a3d15e6cf046fb3e0a734c9b692be3e6d4042714cf828"),
    ],
)
def test_the_slow_one_and_the_vectors_agree(
    count: int, width: int, column: int, expected: str
) -> None:
    """Envelope i has the id SHA-256("id i")[:16] and a report of the bytes i, i + 1, ..."""
    ids = [hashlib.sha256(b"id %d" % i).digest()[:16] for i in range(count)]
    reports = [bytes((i + j) % 256 for j in range(width)) for i in range(count)]
    one = np.frombuffer(b"".join(ids), np.uint8).reshape(-1, 16)
    packed = np.frombuffer(b"".join(reports), np.uint8).reshape(-1, width)
    found = digest(one, packed, column=column)
    assert found == slow_digest(WEEK.digest, list(zip(ids, reports)), column)
    assert found.removeprefix("set1:") == expected


FEW = st.lists(
    st.tuples(
        st.sampled_from([bytes(16), b"\0" * 15 + b"\1", b"\0\x10" + bytes(14), b"\xff" * 16]),
        st.sampled_from([b"\0\0", b"\0\1", b"\x80\0"]),
    ),
    max_size=6,
)


@examples(60)
@given(FEW, FEW)
def test_small_sets_are_equal_exactly_where_their_digests_are(
    one: list[Envelope], other: list[Envelope]
) -> None:
    """Of ids that share words, of copies, of none at all: as multisets."""

    def of(envelopes: list[Envelope]) -> str:
        told = b"".join(i + p for i, p in envelopes)
        rows = np.frombuffer(told, np.uint8).reshape(-1, 18)
        return digest(rows[:, :16], rows[:, 16:])

    assert (of(one) == of(other)) == (Counter(one) == Counter(other))
    assert of(one[::-1]) == of(one)


@pytest.mark.parametrize(
    ("num_parts", "at_a_time"), [(1, 100), (1, 10_000), (2, 350), (64, 1000), (NUM_BUCKETS, 300)]
)
def test_every_split_and_order_is_one_digest(
    num_parts: int, at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred blocks on any number of workers, which sort so many records at a time, with copies
    and ids of one bucket among them."""
    ids, packed = np.tile(IDS, (4, 1)), np.tile(PACKED, (4, 1))
    ids[300:, :2] = ids[300, :2]  # 900 of one bucket
    ids[500:, :8] = ids[500, :8]  # and 700 that somebody made alike
    ids[1000:], packed[1000:] = ids[800:1000], packed[800:1000]
    records = set_records(ids, packed)
    rng = np.random.default_rng(num_parts)
    blocks = np.array_split(records[rng.permutation(len(records))], 100)
    parts: dict[int, list[np.ndarray]] = {}
    for block in blocks:
        for number, own in scattered(block, num_parts):
            parts.setdefault(number, []).append(own)
    monkeypatch.setattr(module, "AT_A_TIME", at_a_time)
    found = [b for own in parts.values() for b in bucket_digests(WEEK, lambda own=own: own)]
    rng.shuffle(found)
    monkeypatch.undo()
    assert root_digest(WEEK, found) == digest(ids, packed)
    with pytest.raises(ValueError, match="in one place"):
        root_digest(WEEK, [*found, found[0]])


def changed(array: np.ndarray, row: int, at: int) -> np.ndarray:
    array = array.copy()
    array[row, at] ^= 1
    return array


@pytest.mark.parametrize(
    "other",
    [
        {"packed": changed(PACKED, 299, 2)},
        {"ids": changed(IDS, 0, 15)},
        {"packed": np.roll(PACKED, 1, axis=0)},
        {"packed": np.pad(PACKED, ((0, 0), (0, 1)))},
        {"ids": IDS[1:], "packed": PACKED[1:]},
        {"ids": np.vstack([IDS, IDS[:1]]), "packed": np.vstack([PACKED, PACKED[:1]])},
        {"release": identity("week-48")},
        {"release": replace(WEEK, part="level 2")},
        {"column": 1},
    ],
    ids=["a bit", "an id", "exchanged reports", "a longer report", "one omitted", "one copied",
         "another release", "another part", "another column"],
)  # fmt: skip
def test_everything_else_changes_it(other: dict) -> None:
    assert digest(**other) != digest()


def test_one_bit_of_a_long_report_changes_it() -> None:
    long = np.tile(PACKED, (1, 15))
    assert digest(packed=changed(long, 7, 44)) != digest(packed=long)


def test_an_envelope_that_sets_the_sum_of_an_earlier_version_does_not_set_it() -> None:
    """The sum of CBC-MACs under a public key: the id of one forged envelope gives it any value."""
    oracle = KRandomizedResponse(8, 1.0)
    packed = oracle.pack_each(RNG.integers(0, 8, 300))
    forged = packed[0]
    ids = IDS.copy()
    ids[7] = forged_id(WEEK, old_sum(WEEK, IDS[7:8], packed[7:8]), forged)
    others = packed.copy()
    others[7] = forged
    assert old_sum(WEEK, ids, others) == old_sum(WEEK, IDS, packed)
    assert digest(ids, others) != digest(IDS, packed)


NEW = "set1:" + "5a" * 32


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(NEW, NEW, True), (NEW, "set1:" + "5b" * 32, False), (NEW, None, False), (None, None, False),
     ("5a" * 16, "5a" * 16, False), ("5a" * 32, "5a" * 32, False), ("5a" * 32, NEW, False)],
)  # fmt: skip
def test_digests_of_earlier_versions_prove_nothing(
    one: str | None, other: str | None, same: bool
) -> None:
    assert same_set(one, other) is same_set(other, one) is same
    assert is_old(one) == (one is not None and one != NEW)
