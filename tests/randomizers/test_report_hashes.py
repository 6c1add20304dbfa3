"""The keyed digest of memoized reports: order and blocks change nothing, everything else does."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers import UserRandomness
from beam_ldp.randomizers.frequency import KRandomizedResponse, Rappor
from beam_ldp.randomizers.randomness import report_hashes
from beam_ldp.randomizers.set_digest import set_digest, set_records
from tests.identities import identity

pytestmark = pytest.mark.exact

KEY = bytes(range(32))
RELEASE = identity()
USERS = np.arange(1000)
PACKED = np.random.default_rng(0).integers(0, 256, (1000, 21), dtype=np.uint8)


def digest(users=USERS, packed=PACKED, key=KEY, release=RELEASE, groups=None) -> str:
    return digest_of(report_hashes(key, users, packed, release, groups))


def digest_of(hashes: np.ndarray) -> str:
    rows = np.ascontiguousarray(hashes).view(np.uint8)
    return set_digest(RELEASE, set_records(rows, rows[:, :0]))


def test_hashes_that_add_up_to_the_same_are_another_digest():
    """Who holds the key knows each person's hash, and finds made-up people who fill a gap."""
    hashes = report_hashes(KEY, USERS, PACKED, RELEASE)
    moved = hashes.copy()
    moved[0] += np.uint64(1)
    moved[1] -= np.uint64(1)
    assert moved.sum(axis=0).tolist() == hashes.sum(axis=0).tolist()
    assert digest_of(moved) != digest_of(hashes) == digest_of(hashes[::-1])


def changed(row: int, column: int) -> np.ndarray:
    packed = PACKED.copy()
    packed[row, column] ^= 1
    return packed


@pytest.mark.parametrize(
    "other",
    [
        {"packed": changed(0, 0)},
        {"packed": changed(999, 20)},
        {"packed": np.roll(PACKED, 1, axis=0)},  # the same reports, of other people
        {"users": USERS + 1},
        {"users": USERS[1:], "packed": PACKED[1:]},
        {"users": [f"user {i}" for i in range(1000)]},
        {"key": bytes(32)},
        {"release": identity("s")},
        {"release": identity(columns=("hiv",))},
        {"groups": np.zeros(1000, dtype=np.int64)},
        {"groups": np.arange(1000) % 2},
    ],
    ids=str,
)
def test_everything_else_changes_it(other):
    assert digest(**other) != digest()


def test_one_person_has_one_hash_however_the_id_is_told():
    texts = [str(i) for i in range(1000)]
    mixed = [i if i % 2 else f"{i}.0" for i in range(1000)]
    assert digest() == digest(texts) == digest(mixed) == digest(USERS.astype(float))


def test_a_report_hashes_alone_as_it_does_among_others():
    hashes = report_hashes(KEY, USERS, PACKED, identity())
    alone = report_hashes(KEY, USERS[5:6], PACKED[5:6], identity())
    assert np.array_equal(hashes[5:6], alone)
    assert len(np.unique(hashes[:, 0])) == 1000


def test_another_length_of_reports_is_another_function():
    """Zeros behind a report make another one."""
    longer = np.concatenate([PACKED, np.zeros((1000, 1), dtype=np.uint8)], axis=1)
    assert digest(packed=longer) != digest()


@pytest.mark.parametrize("oracle", [KRandomizedResponse(8, 1.0), Rappor(40, 1.0)], ids=str)
def test_reports_of_a_mechanism(oracle):
    values = np.arange(1000) % 4
    reports = oracle.randomize(values, UserRandomness(KEY, USERS, identity()))
    again = oracle.randomize(values, UserRandomness(KEY, USERS, identity()))
    one, other = (digest(packed=oracle.pack_each(found)) for found in (reports, again))
    assert one == other
    values[7] = 5
    changed = oracle.randomize(values, UserRandomness(KEY, USERS, identity()))
    same = np.array_equal(reports[7], changed[7])
    assert (digest(packed=oracle.pack_each(changed)) == one) == same


def test_what_is_wrong_is_said_without_the_key():
    with pytest.raises(ValueError, match="one id per report"):
        report_hashes(KEY, USERS[1:], PACKED, identity())
    with pytest.raises(ValueError, match="at least 32 secret bytes") as error:
        report_hashes(b"short key", USERS, PACKED, identity())
    assert "short key" not in str(error.value)
    with pytest.raises(ValueError, match="commitment"):
        report_hashes(KEY, USERS, PACKED, identity().committed(bytes(32)))
