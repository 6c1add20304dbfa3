"""A stream of envelopes comes apart at the right places, whatever lies between them."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import wire, wire_stream
from beam_ldp.randomizers.frequency import KRandomizedResponse, UnaryEncoding
from beam_ldp.randomizers.wire import EnvelopeError, ReleaseTerms, decode_envelope, encode_envelope
from beam_ldp.randomizers.wire_stream import split_stream

pytestmark = pytest.mark.exact

TERMS = ReleaseTerms(KRandomizedResponse(200, 2.0), "week-47")
OTHER = ReleaseTerms(KRandomizedResponse(200, 2.0), "week-46")


def envelope(count: int, seed: int = 1, terms: ReleaseTerms = TERMS) -> bytes:
    reports = np.random.default_rng(seed).integers(0, 200, count).astype(np.uint8)
    return encode_envelope(terms, reports, bytes([seed % 255 + 1]) * 16)


def taken_apart(data: bytes, read: Callable[[int], bytes] | None = None) -> tuple[list, list]:
    """`(offset, number of reports)` of what is sound, `(offset, reason)` of the rest."""
    sound, refused, end = [], [], 0
    for offset, piece in split_stream(TERMS, read or io.BytesIO(data).read):
        assert offset == end and piece == data[offset : offset + len(piece)] and piece
        end = offset + len(piece)
        try:
            sound.append((offset, len(decode_envelope(TERMS, piece).reports)))
        except EnvelopeError as error:
            refused.append((offset, error.reason))
    assert end == len(data)
    return sound, refused


def test_envelopes_and_nothing_else():
    parts = [envelope(count, count) for count in (1, 5, 1, 300, 2)]
    offsets = [sum(map(len, parts[:i])) for i in range(5)]
    assert taken_apart(b"".join(parts)) == (list(zip(offsets, (1, 5, 1, 300, 2))), [])
    assert taken_apart(b"") == ([], [])


def test_bytes_between_envelopes_cost_nothing_but_themselves():
    first, second = envelope(3, 1), envelope(4, 2)
    for junk, reason in (
        (b"x", wire.NOT_AN_ENVELOPE),
        (bytes(1000), wire.NOT_AN_ENVELOPE),
        (envelope(7, 3, OTHER), wire.OTHER_RELEASE),
        (envelope(7, 3)[:-1], wire.TOO_SHORT),
        (envelope(7, 3)[:60], wire.TOO_SHORT),
        (envelope(7, 3)[:40], wire.TOO_SHORT),
        (TERMS.prefix + b"\xff" * 20, wire.TOO_SHORT),
        (envelope(7, 3)[:-1] + b"?", wire.WRONG_CHECKSUM),
    ):
        sound, refused = taken_apart(junk + first + junk + second + junk)
        assert [count for _, count in sound] == [3, 4]
        assert [said for offset, said in refused if offset < len(junk)][0] == reason
        assert len(refused) in (3, 6)  # a header that lies, and what follows it


def test_each_foreign_envelope_is_counted():
    sound, refused = taken_apart(envelope(2) + envelope(7, 3, OTHER) * 5 + envelope(1, 2))
    assert len(sound) == 2 and [r for _, r in refused] == [wire.OTHER_RELEASE] * 5


@given(
    st.lists(
        st.one_of(st.integers(1, 30), st.binary(min_size=1, max_size=90), st.just("cut")),
        max_size=12,
    ),
    st.integers(1, 200),
)
def test_every_sound_envelope_is_found(parts, step):
    """Also where the stream comes in small parts, and envelopes are longer than what is at hand."""
    data, expected = b"", []
    for i, part in enumerate(parts):
        if isinstance(part, int):
            expected.append((len(data), part))
            data += envelope(part, i)
        else:
            data += envelope(9, i)[:-3] if part == "cut" else part.replace(wire.MAGIC, b"")
    stream = io.BytesIO(data)
    sound, _ = taken_apart(data, lambda size: stream.read(min(size, step)))
    assert sound == expected


def test_streams_longer_than_memory_at_hand(monkeypatch):
    """The window moves on; nothing is lost where it ends."""
    monkeypatch.setattr(wire_stream, "MAX_ENVELOPE_BYTES", 400)
    monkeypatch.setattr(wire_stream, "_READ_BYTES", 64)
    generator = np.random.default_rng(4)
    data, expected = b"", []
    for i in range(300):
        count = int(generator.integers(1, 250))
        expected.append((len(data), count))
        data += envelope(count, i)
        data += generator.bytes(int(generator.integers(0, 900))) if i % 3 == 0 else b""
    assert taken_apart(data)[0] == expected


def test_headers_that_lie_take_linear_time():
    """20,000 beginnings that promise more than 8 MiB each: every byte is looked at a few times."""
    liar = TERMS.prefix + bytes(16) + (1 << 23).to_bytes(4, "big")
    data = liar * 20_000
    sound, refused = taken_apart(data)
    assert not sound and len(refused) == 20_000
    magic = wire.MAGIC * 50_000
    assert len(taken_apart(magic)[1]) == 50_000


def test_long_reports():
    terms = ReleaseTerms(UnaryEncoding(1 << 20, 1.0), "r")
    reports = np.zeros((100, 1 << 17), dtype=np.uint8)
    data = encode_envelope(terms, reports) * 2
    found = list(split_stream(terms, io.BytesIO(data).read))
    assert [len(piece) for _, piece in found] == [len(data) // 2] * 2
