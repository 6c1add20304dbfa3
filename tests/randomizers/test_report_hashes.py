"""The keyed digest of memoized reports: order and blocks change nothing, everything else does."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers import UserRandomness
from beam_ldp.randomizers.frequency import KRandomizedResponse, Rappor
from beam_ldp.randomizers.randomness import add_digests, digest_of_hashes, report_hashes
from tests.identities import identity

pytestmark = pytest.mark.exact

KEY = bytes(range(32))
RELEASE = identity()
USERS = np.arange(1000)
PACKED = np.random.default_rng(0).integers(0, 256, (1000, 21), dtype=np.uint8)


def digest(users=USERS, packed=PACKED, key=KEY, release=RELEASE, groups=None) -> int:
    return digest_of_hashes(report_hashes(key, users, packed, release, groups))


def test_the_order_of_people_and_their_blocks_change_nothing():
    order = np.random.default_rng(1).permutation(1000)
    assert digest(USERS[order], PACKED[order]) == digest()
    parts = [digest(USERS[i : i + 300], PACKED[i : i + 300]) for i in range(0, 1000, 300)]
    assert add_digests(parts) == digest()
    assert add_digests([]) == digest(USERS[:0], PACKED[:0]) == 0


def test_sums_are_modulo_two_to_the_128():
    full = np.full((3, 2), 2**64 - 1, dtype=np.uint64)
    assert digest_of_hashes(full) == 3 * (2**128 - 1) % 2**128
    assert add_digests([2**128 - 1, 2]) == 1


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
