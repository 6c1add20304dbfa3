"""Envelopes of public groups: told apart, taken apart, refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers import randomness, wire
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.wire import (
    EnvelopeError,
    GroupTerms,
    ReleaseTerms,
    decode_envelope,
    encode_envelope,
)
from beam_ldp.randomizers.wire_stream import read_part
from tests.identities import identity
from tests.randomizers.wire_terms import terms_of

pytestmark = pytest.mark.exact

SHARED = terms_of(KRandomizedResponse(5, 1.5), reports_per_envelope=9)
GROUPS = GroupTerms(SHARED, ("DE", "FR", "other"))


def reports(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8) % 5


def test_a_group_is_a_release_of_its_own() -> None:
    sent = encode_envelope(GROUPS.of(1), reports(3))
    group, envelope = GROUPS.decode(sent)
    assert group == 1 and envelope.reports.tolist() == [0, 1, 2]
    one = ReleaseTerms(SHARED.randomizer, SHARED.identity.of_group("FR"))
    assert decode_envelope(one, sent).reports.tolist() == [0, 1, 2]
    assert len({GROUPS.of(i).digest for i in range(3)} | {SHARED.digest}) == 4
    with pytest.raises(ValueError, match="terms must be those of no group"):
        GroupTerms(GROUPS.of(1), ("DE",))
    with pytest.raises(ValueError, match="group must be printable text"):
        GroupTerms(SHARED, ("a\nb",))


@pytest.mark.parametrize("groups", [(), ("DE", "DE"), ("",)])
def test_groups_are_distinct(groups: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="distinct names, at least one"):
        GroupTerms(SHARED, groups)


def test_what_is_refused() -> None:
    sound = encode_envelope(GROUPS.of(0), reports(3))
    elsewhere = GroupTerms(terms_of(SHARED.randomizer, "week-46"), ("DE",))
    cases = {
        wire.OTHER_RELEASE: (
            encode_envelope(SHARED, reports(1)),
            encode_envelope(elsewhere.of(0), reports(1)),
            encode_envelope(GroupTerms(SHARED, ("LI",)).of(0), reports(1)),
        ),
        wire.TOO_SHORT: (sound[:-1], sound[:20], sound[:43]),
        wire.NOT_AN_ENVELOPE: (b"", b"value\n"),
        wire.WRONG_CHECKSUM: (sound[:-1] + bytes([sound[-1] ^ 1]),),
    }
    for reason, envelopes in cases.items():
        for data in envelopes:
            with pytest.raises(EnvelopeError) as error:
                GROUPS.decode(data)
            assert error.value.reason == reason


def test_streams_of_several_groups_come_apart() -> None:
    """Whatever lies between: junk, cut envelopes, those of no group."""
    parts = [encode_envelope(GROUPS.of(i % 3), reports(1 + i)) for i in range(6)]
    foreign = encode_envelope(SHARED, reports(4))
    data = b"junk" + parts[0] + foreign + parts[1][:-3] + parts[2] + b"".join(parts[3:])
    found = read_part(GROUPS, data)
    assert found.counts.tolist() == [1, 3, 4, 5, 6]
    assert found.groups.tolist() == [0, 2, 0, 1, 2]
    assert [wire.REASONS[code] for code in found.refused.codes] == [
        wire.NOT_AN_ENVELOPE, wire.OTHER_RELEASE, wire.TOO_SHORT,
    ]  # fmt: skip
    np.testing.assert_array_equal(
        found.reports, np.concatenate([reports(count) for count in (1, 3, 4, 5, 6)])
    )


def test_many_groups_are_told_apart() -> None:
    groups = GroupTerms(SHARED, tuple(f"group {i}" for i in range(3000)))
    chosen = [7, 2999, 0, 1500]
    data = b"".join(encode_envelope(groups.of(i), reports(1)) for i in chosen)
    assert read_part(groups, data).groups.tolist() == chosen


def test_ids_of_people_are_the_same_on_every_run_and_nowhere_else() -> None:
    key, other = bytes(range(32)), bytes(range(1, 33))

    def envelope_ids(*given: Any) -> list[bytes]:
        found = randomness.envelope_ids(*given)
        assert found.dtype == np.uint8 and found.shape == (len(given[1]), 16)
        return [row.tobytes() for row in found]

    ids = envelope_ids(key, np.arange(1000), identity("r", "d"))
    assert ids == envelope_ids(key, list(range(1000)), identity("r", "d"))
    assert ids[::-1] == envelope_ids(key, np.arange(999, -1, -1), identity("r", "d"))
    assert len(set(ids)) == 1000 and {len(one) for one in ids} == {16}
    for changed in ((other, "r", "d"), (key, "s", "d"), (key, "r", "e")):
        name = identity(*changed[1:])
        assert not set(ids) & set(envelope_ids(changed[0], np.arange(1000), name))
    assert envelope_ids(key, ["a"], identity("r")) == envelope_ids(key, [b"a"], identity("r"))
    mixed = envelope_ids(key, ["1", "a", 2], identity("r"))
    assert mixed == [envelope_ids(key, [i], identity("r"))[0] for i in (1, b"a", "2")]


def test_the_page_has_the_digest_of_its_example() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "wire-format.md").read_text()
    (text,) = re.findall(r'^    (\{"bounding".*"group":"DE".*\})$', page, re.MULTILINE)
    (told,) = re.findall(r"first 16 bytes of its digest: ([0-9a-f]{32})", page)
    week = identity(
        "week-47", "telemetry", mechanism=SHARED.identity.mechanism, columns=("url",)
    ).of_group("DE")
    assert week.text == text and week.digest[:16].hex() == told
