"""Envelopes of public groups: told apart, taken apart, refused."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.randomness import envelope_ids
from beam_ldp.randomizers.wire import EnvelopeError, ReleaseTerms, decode_envelope, encode_envelope
from beam_ldp.randomizers.wire_groups import GroupTerms, group_release_id
from beam_ldp.randomizers.wire_stream import split_stream
from tests.identities import identity

pytestmark = pytest.mark.exact

SHARED = ReleaseTerms(KRandomizedResponse(5, 1.5), "week-47")
GROUPS = GroupTerms(SHARED, ("DE", "FR", "other"))


def reports(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint8) % 5


def test_a_group_is_a_release_of_its_own() -> None:
    assert group_release_id("week-47", "DE") == "week-47\nDE"
    sent = encode_envelope(GROUPS.of(1), reports(3))
    group, envelope = GROUPS.decode(sent)
    assert group == 1 and envelope.reports.tolist() == [0, 1, 2]
    one = ReleaseTerms(SHARED.randomizer, "week-47\nFR")
    assert decode_envelope(one, sent).reports.tolist() == [0, 1, 2]
    assert len({GROUPS.of(i).release_digest for i in range(3)} | {SHARED.release_digest}) == 4


@pytest.mark.parametrize("names", [("week\n47", ("DE",)), ("week", ("DE\nFR",))])
def test_line_feeds_would_make_two_groups_one(names: tuple[str, tuple[str, ...]]) -> None:
    with pytest.raises(ValueError, match="must have no line feed"):
        GroupTerms(ReleaseTerms(SHARED.randomizer, names[0]), names[1])


@pytest.mark.parametrize("groups", [(), ("DE", "DE")])
def test_groups_are_distinct(groups: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="distinct names, at least one"):
        GroupTerms(SHARED, groups)


def test_what_is_refused() -> None:
    sound = encode_envelope(GROUPS.of(0), reports(3))
    elsewhere = GroupTerms(ReleaseTerms(SHARED.randomizer, "week-46"), ("DE",))
    cases = {
        wire.OTHER_RELEASE: (
            encode_envelope(SHARED, reports(1)),
            encode_envelope(elsewhere.of(0), reports(1)),
            encode_envelope(GroupTerms(SHARED, ("LI",)).of(0), reports(1)),
        ),
        wire.TOO_SHORT: (sound[:-1], sound[:40], sound[:60]),
        wire.NOT_AN_ENVELOPE: (b"", b"value\n"),
        wire.WRONG_CHECKSUM: (sound[:-1] + bytes([sound[-1] ^ 1]),),
        wire.OTHER_MECHANISM: (encode_envelope(_of(KRandomizedResponse(5, 2.0)), reports(1)),),
    }
    for reason, envelopes in cases.items():
        for data in envelopes:
            with pytest.raises(EnvelopeError) as error:
                GROUPS.decode(data)
            assert error.value.reason == reason


def _of(randomizer: KRandomizedResponse) -> ReleaseTerms:
    return GroupTerms(ReleaseTerms(randomizer, "week-47"), ("DE",)).of(0)


def test_streams_of_several_groups_come_apart() -> None:
    """Whatever lies between: junk, cut envelopes, those of no group."""
    parts = [encode_envelope(GROUPS.of(i % 3), reports(1 + i)) for i in range(6)]
    foreign = encode_envelope(SHARED, reports(4))
    data = b"junk" + parts[0] + foreign + parts[1][:-3] + parts[2] + b"".join(parts[3:])
    found = [piece for _, piece in split_stream(GROUPS, io.BytesIO(data).read)]
    assert b"".join(found) == data
    assert [p for p in found if p in parts] == [parts[0], *parts[2:]]


def test_ids_of_people_are_the_same_on_every_run_and_nowhere_else() -> None:
    key, other = bytes(range(32)), bytes(range(1, 33))
    ids = envelope_ids(key, np.arange(1000), identity("r", "d"))
    assert ids == envelope_ids(key, np.arange(1000), identity("r", "d"))
    assert len(set(ids)) == 1000 and {len(one) for one in ids} == {16}
    for changed in ((other, "r", "d"), (key, "s", "d"), (key, "r", "e")):
        name = identity(*changed[1:])
        assert not set(ids) & set(envelope_ids(changed[0], np.arange(1000), name))
    assert envelope_ids(key, ["a"], identity("r")) == envelope_ids(key, [b"a"], identity("r"))
    assert envelope_ids(key, [1], identity("r")) != envelope_ids(key, ["1"], identity("r"))


def test_the_page_has_the_digest_of_its_example() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "wire-format.md"
    (told,) = re.findall(
        r'SHA-256\("week-47" 0a "DE"\), first 16 bytes: ([0-9a-f]{32})\n', page.read_text()
    )
    assert GROUPS.of(0).release_digest.hex() == told
    assert encode_envelope(GROUPS.of(0), reports(1))[38:54].hex() == told


def test_a_begin_counts_only_where_all_of_it_lies_before_the_stop() -> None:
    sent = b"xyz" + encode_envelope(GROUPS.of(2), reports(3))
    whole = 3 + wire.PREFIX_BYTES
    assert GROUPS.find_begin(sent, 0, whole) == 3
    assert GROUPS.find_begin(sent, 0, whole - 1) == -1
    assert GROUPS.find_begin(sent, 4, len(sent)) == -1
