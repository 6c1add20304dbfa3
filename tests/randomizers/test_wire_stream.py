"""A stream of envelopes comes apart at the right places, whatever lies between them, and however it
is cut into parts."""

from __future__ import annotations

import time
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.bits import crc32_at, crc32_of_rows
from beam_ldp.randomizers.frequency import KRandomizedResponse, UnaryEncoding
from beam_ldp.randomizers.wire import EnvelopeError, ReleaseTerms, decode_envelope, encode_envelope
from beam_ldp.randomizers.wire_stream import Ranges, join_ranges, margin, read_part
from tests.randomizers.wire_terms import terms_of

pytestmark = pytest.mark.exact

EDGE = {"reports_per_envelope": 30}
TERMS = terms_of(KRandomizedResponse(200, 2.0), **EDGE)
OTHER = terms_of(KRandomizedResponse(200, 2.0), "week-46", **EDGE)


def envelope(count: int, seed: int = 1, terms: ReleaseTerms = TERMS) -> bytes:
    reports = np.random.default_rng(seed).integers(0, 200, count).astype(np.uint8)
    return encode_envelope(terms, reports, bytes([seed % 255 + 1]) * 16)


def listed(ranges: Ranges) -> list[tuple[int, int, str]]:
    return [(start, stop, wire.REASONS[code]) for start, stop, code, _ in ranges.rows]


def taken_apart(data: bytes, terms: ReleaseTerms = TERMS) -> tuple[list, list]:
    """`(offset, number of reports)` of what is sound, `(start, stop, reason)` of the rest; every
    byte is in one of them."""
    found = read_part(terms, data)
    sound = list(zip(found.offsets.tolist(), found.counts.tolist()))
    refused = listed(found.refused)
    spans = [(at, at + terms.envelope_bytes(count)) for at, count in sound]
    spans += [(start, stop) for start, stop, _ in refused]
    ends = [0, *(stop for _, stop in sorted(spans))]
    assert [start for start, _ in sorted(spans)] == ends[:-1] and ends[-1] == len(data)
    return sound, refused


def by_definition(data: bytes, terms: ReleaseTerms = TERMS) -> list[tuple[int, bytes]]:
    """Where sound envelopes begin and what they are: one after the other, by `decode_envelope`."""
    begins = [i for i in range(len(data)) if data.startswith(terms.prefix, i)]
    found = []
    for begin, following in zip(begins, [*begins[1:], len(data)]):
        count = int.from_bytes(data[begin + 40 : begin + 44], "big")
        piece = data[begin : min(following, begin + terms.envelope_bytes(count))]
        try:
            decode_envelope(terms, piece)
        except EnvelopeError:
            continue
        found.append((begin, piece))
    return found


def test_envelopes_and_nothing_else():
    counts = (1, 5, 1, 30, 2)
    parts = [envelope(count, count) for count in counts]
    offsets = [sum(map(len, parts[:i])) for i in range(5)]
    data = b"".join(parts)
    assert taken_apart(data) == (list(zip(offsets, counts)), [])
    found = read_part(TERMS, data)
    assert found.ids.tolist() == [[count % 255 + 1] * 16 for count in counts]
    expected = [decode_envelope(TERMS, part).reports for part in parts]
    np.testing.assert_array_equal(found.reports, np.concatenate(expected))
    assert taken_apart(b"") == ([], [])


def test_bytes_between_envelopes_cost_nothing_but_themselves():
    first, second = envelope(3, 1), envelope(4, 2)
    for junk, reason in (
        (b"x", wire.NOT_AN_ENVELOPE),
        (bytes(1000), wire.NOT_AN_ENVELOPE),
        (envelope(7, 3, OTHER), wire.OTHER_RELEASE),
        (envelope(7, 3)[:-1], wire.TOO_SHORT),
        (envelope(7, 3)[:42], wire.TOO_SHORT),
        (envelope(7, 3)[:30], wire.TOO_SHORT),
        (TERMS.prefix + b"\xff" * 20, wire.TOO_MANY),
        (TERMS.prefix + bytes(20), wire.NO_REPORTS),
        (envelope(7, 3)[:-1] + b"?", wire.WRONG_CHECKSUM),
        (b"\x89LDP\x01" + envelope(2)[5:], wire.UNKNOWN_VERSION),
    ):
        sound, refused = taken_apart(junk + first + junk + second + junk)
        assert [count for _, count in sound] == [3, 4]
        assert [said for *_, said in refused] == [reason] * 3
        assert [stop - start for start, stop, _ in refused] == [len(junk)] * 3


def test_one_record_for_one_range():
    """Whatever is refused for one reason and lies together is one; broken envelopes of the release
    are as many as they are."""
    foreign, broken = envelope(7, 3, OTHER) * 5, (envelope(7, 3)[:-1] + b"?") * 4
    sound, refused = taken_apart(envelope(2) + foreign + envelope(1, 2) + broken)
    assert len(sound) == 2
    assert [reason for *_, reason in refused] == [wire.OTHER_RELEASE] + [wire.WRONG_CHECKSUM] * 4
    magic = wire.MAGIC * 50_000
    assert len(taken_apart(magic)[1]) == 2  # the last one has no version


def test_a_hundred_megabytes_of_nothing_are_one_record():
    data = np.random.default_rng(3).bytes(100 << 20)
    began = time.process_time()
    assert listed(read_part(TERMS, data).refused) == [(0, len(data), wire.NOT_AN_ENVELOPE)]
    assert time.process_time() - began < 2


PIECES = st.lists(
    st.one_of(
        st.integers(1, 30), st.binary(min_size=1, max_size=90),
        st.sampled_from(["cut", "foreign", "flipped", "spliced", "prefix", "magic"]),
    ),
    max_size=12,
)  # fmt: skip


def stream_of(pieces: list) -> bytes:
    """Sound envelopes, junk, and envelopes that something happened to."""
    data = b""
    for i, piece in enumerate(pieces):
        whole = envelope(9, i)
        if isinstance(piece, int):
            data += envelope(piece, i)
        elif piece == "cut":
            data += whole[:-3]
        elif piece == "foreign":
            data += envelope(4, i, OTHER)
        elif piece == "flipped":
            at = 11 * i % len(whole)
            data += whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :]
        elif piece == "spliced":
            data += whole[:30] + envelope(3, i) + whole[30:]
        else:
            data += {"prefix": TERMS.prefix, "magic": wire.MAGIC}.get(piece, piece)
    return data


@given(PIECES)
def test_every_sound_envelope_is_found_and_nothing_else(pieces):
    data = stream_of(pieces)
    expected = by_definition(data)
    sound, _ = taken_apart(data)
    assert [at for at, _ in sound] == [at for at, _ in expected]
    reports = [decode_envelope(TERMS, piece).reports for _, piece in expected]
    np.testing.assert_array_equal(read_part(TERMS, data).reports, np.concatenate([[], *reports]))


@given(PIECES, st.integers(1, 300))
def test_parts_hold_what_the_whole_holds(pieces, step):
    """However it is cut: the same envelopes, each in one part, and the same refused ranges."""
    data = stream_of(pieces)
    whole, around = read_part(TERMS, data), margin(TERMS)
    parts, refused = [], []
    for start in range(0, len(data), step):
        stop, begin = min(start + step, len(data)), max(0, start - around)
        part = read_part(TERMS, data[begin : stop + around], begin, start, stop)
        parts.append(part)
        refused.append((start, part.refused.rows))
    for name in ("offsets", "counts", "ids", "reports"):
        found = [getattr(part, name) for part in parts] or [getattr(whole, name)]
        np.testing.assert_array_equal(np.concatenate(found), getattr(whole, name))
    assert listed(join_ranges(refused[::-1])) == listed(whole.refused)


def test_headers_that_lie_take_linear_time():
    """20,000 beginnings that promise more than 8 MiB each: every byte is looked at a few times."""
    liar = TERMS.prefix + bytes(16) + (1 << 23).to_bytes(4, "big")
    sound, refused = taken_apart(liar * 20_000)
    assert not sound and len(refused) == 20_000
    assert {reason for *_, reason in refused} == {wire.TOO_MANY}


def test_long_reports():
    terms = terms_of(UnaryEncoding(1 << 20, 1.0), reports_per_envelope=100)
    reports = np.zeros((100, 1 << 17), dtype=np.uint8)
    data = encode_envelope(terms, reports) * 2
    found = read_part(terms, data)
    assert found.offsets.tolist() == [0, len(data) // 2] and found.reports.shape == (200, 1 << 17)


def test_one_impossible_report_costs_its_envelope():
    """As `decode_envelope`: whole, and no other."""
    sound = envelope(5, 1)
    body = bytearray(envelope(5, 2)[:-4])
    body[wire.HEADER_BYTES + 2] = 255  # of 200 symbols
    sound_again = envelope(3, 3)
    data = sound + bytes(body) + wire.checksum(bytes(body)) + sound_again
    found, refused = taken_apart(data)
    assert [count for _, count in found] == [5, 3]
    assert refused == [(len(sound), len(data) - len(sound_again), wire.IMPOSSIBLE)]


@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200))))
def test_checksums_are_those_of_zlib(data, spans):
    spans = [(min(a, b, len(data)), min(max(a, b), len(data))) for a, b in spans]
    starts, stops = (np.array([span[i] for span in spans], np.int64) for i in (0, 1))
    found = crc32_at(np.frombuffer(data, np.uint8), starts, stops)
    assert found.tolist() == [zlib.crc32(data[a:b]) for a, b in spans]
    rows = np.frombuffer(data[: len(data) // 7 * 7], np.uint8).reshape(-1, 7)
    assert crc32_of_rows(rows).tolist() == [zlib.crc32(row.tobytes()) for row in rows]
