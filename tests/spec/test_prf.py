"""Names and memoized words of the product against the specification."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from beam_ldp.randomizers import randomness
from beam_ldp.randomizers.domain import Bins, Domain
from beam_ldp.randomizers.identity import ReleaseIdentity, canonical_id
from beam_ldp.randomizers.mean import CoordinateRanges
from spec import names, prf

pytestmark = pytest.mark.exact

KEY = bytes(range(32))
IDS = [7, "7.0", b"7", 7.0, "ann", "07", "7 ", -5, 2**63, -(2**63), "naïve ✓", b"\xff\0", "-0", 0]
WEEK = ReleaseIdentity(
    "people, naïve", "week-47", "00ff" * 8, ("url", 'a "b" \\ /'), "ab" * 16, group="städte"
)
MECHANISM = bytes(range(16))


def test_aes_is_the_standard_s():
    """FIPS 197, appendix C.3; and the S-box is a permutation without fixed points."""
    block = bytes.fromhex("00112233445566778899aabbccddeeff")
    assert prf.aes256(KEY, block).hex() == "8ea2b7ca516745bfeafc49904b496089"
    assert sorted(prf.SBOX) == list(range(256)) and all(a != b for a, b in enumerate(prf.SBOX))


@pytest.mark.parametrize("user_id", IDS, ids=repr)
def test_one_person_in_one_form(user_id):
    assert names.person(user_id) == canonical_id(user_id)


@pytest.mark.parametrize(
    "no_id",
    ["", "1e+16", "-2.5E+20", 2.0**53, 0.5, math.nan, math.inf, f"{2**53}.0", True],
    ids=repr,
)
def test_what_is_no_id_is_refused_by_both(no_id):
    for form in (names.person, canonical_id):
        with pytest.raises((ValueError, TypeError)):
            form(no_id)


def test_values_lists_and_releases():
    domain = Domain(("red", "naïve ✓", "green"))
    asked = ["green", "mauve", "red", "other", "naïve ✓"]
    assert names.encode(asked, list(domain.values)) == domain.encode(asked).tolist()
    assert names.digest_of(*domain.labels) == domain.digest.hex()
    bins = Bins((-1.0, 0.1, 1e22, 3e22))
    numbers = [-1.1, -1.0, 0.0, 0.1, 1e22, 2e22, 3e22, math.inf, math.nan]
    told = [names.encode_number(number, list(bins.edges)) for number in numbers]
    assert told == bins.encode(np.array(numbers)).tolist()
    assert names.digest_of("bins", *map(repr, bins.edges), "other") == bins.digest.hex()
    ranges = CoordinateRanges((0.0, 18.0), (1440.0, 98.5))
    bounds = map(repr, (*ranges.low, *ranges.high))
    assert names.digest_of("ranges", *bounds) == ranges.digest.hex()
    assert names.identity_text(WEEK.to_json()) == WEEK.text
    assert names.identity_digest(WEEK.to_json()) == WEEK.digest
    assert names.key_commitment(KEY) == WEEK.committed(KEY).key


@pytest.mark.parametrize(
    "values",
    [np.arange(len(IDS)), np.arange(2.0 * len(IDS)).reshape(-1, 2) / 7 - 0.5,
     np.arange(3 * len(IDS)).reshape(-1, 3), np.full((len(IDS), 1), -0.0)],
    ids=["an index", "a vector", "several indices", "minus zero"],
)  # fmt: skip
def test_memoized_words(values):
    """Of integers, texts and bytes as ids; of indices and vectors as values; at far positions."""
    source = randomness.UserRandomness(KEY, IDS, WEEK).words_for(MECHANISM, values)
    words = source.words(0, len(IDS), 5)
    far = source.extra(np.arange(len(IDS)), np.full(len(IDS), 1_000_001))
    secret = prf.secret(KEY, b"words", WEEK.to_json(), MECHANISM)
    for i, (user_id, value) in enumerate(zip(IDS, values.tolist())):
        tag = prf.tag(secret, user_id, *(value if isinstance(value, list) else [value]))
        assert [prf.word(secret, tag, at) for at in range(5)] == words[i].tolist()
        assert prf.word(secret, tag, 1_000_001) == far[i]


def test_what_belongs_to_a_person_whatever_the_value():
    told = WEEK.to_json()
    envelopes = [prf.of_person(KEY, b"envelope", told, user_id) for user_id in IDS]
    found = randomness.envelope_ids(KEY, IDS, WEEK)
    assert envelopes == [row.tobytes() for row in found]
    asked = [prf.of_person(KEY, b"assignment", told, user_id)[:8] for user_id in IDS]
    words = [int.from_bytes(word, "little") for word in asked]
    assert words == randomness.assignment_words(KEY, IDS, WEEK).tolist()


def test_the_group_draws_nothing_anew_and_everything_else_does():
    def first_word(identity: ReleaseIdentity) -> int:
        secret = prf.secret(KEY, b"words", identity.to_json(), MECHANISM)
        return prf.word(secret, prf.tag(secret, "ann", 3), 0)

    same = first_word(WEEK)
    assert first_word(replace(WEEK, group="")) == same
    for other in (replace(WEEK, release_id="week-48"), replace(WEEK, columns=("url",)),
                  WEEK.of_round(0), replace(WEEK, mechanism="00")):  # fmt: skip
        assert first_word(other) != same
