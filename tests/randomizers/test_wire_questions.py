"""Envelopes of several questions: vectors, round trips, and what nobody can have sent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.frequency import KRandomizedResponse, SubsetSelection, UnaryEncoding
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion, Questions
from beam_ldp.randomizers.wire import (
    EnvelopeError,
    ReleaseTerms,
    decode_envelope,
    encode_envelope,
)
from tests.randomizers.wire_terms import terms_of

pytestmark = pytest.mark.exact

VECTORS = sorted((Path(__file__).parent / "wire_vectors" / "questions").glob("*.json"))
ORACLES = (
    KRandomizedResponse(5, 2.0), KRandomizedResponse(300, 2.0), UnaryEncoding(13, 1.0),
    SubsetSelection(12, 1.0), SubsetSelection(1000, 6.0),
)  # fmt: skip
DESIGNS: tuple[Questions, ...] = (OneQuestion(ORACLES), EveryQuestion(ORACLES))
TERMS = tuple(terms_of(design, reports_per_envelope=40) for design in DESIGNS)


def some_reports(randomizer: Any, count: int, seed: int) -> np.ndarray:
    generator = np.random.default_rng(seed)
    values = [generator.integers(0, size, count) for size in randomizer.domain_sizes]
    return randomizer.randomize(np.stack(values, axis=1), generator)


def reason(terms: ReleaseTerms, payload: bytes) -> str:
    """Why one report of these bytes is refused; empty if it is taken."""
    content = terms.prefix + bytes(16) + (1).to_bytes(4, "big") + payload
    try:
        decode_envelope(terms, content + wire.checksum(content))
    except EnvelopeError as error:
        return error.reason
    return ""


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vectors_of_format_2(path: Path) -> None:
    """What is published for clients in other languages; it never changes."""
    found = json.loads(path.read_text("utf-8"))
    terms = ReleaseTerms.from_json(found["terms"])
    assert terms.to_json() == found["terms"]
    reports = np.array(found["reports"], dtype=np.uint8)
    assert len(reports) == 9
    assert terms.randomizer.pack_each(reports).tobytes().hex() == found["payload"]
    envelope, envelope_id = (bytes.fromhex(found[name]) for name in ("envelope", "envelope_id"))
    assert encode_envelope(terms, reports, envelope_id) == envelope
    decoded = decode_envelope(terms, envelope)
    np.testing.assert_array_equal(decoded.reports, reports)
    assert decoded.envelope_id == envelope_id
    first = decode_envelope(terms, bytes.fromhex(found["envelope_of_the_first_report_without_id"]))
    np.testing.assert_array_equal(first.reports, reports[:1])
    assert len(found["refused"]) == 16
    for case in found["refused"]:
        with pytest.raises(EnvelopeError) as caught:
            decode_envelope(terms, bytes.fromhex(case["envelope"]))
        assert caught.value.reason == case["reason"]


def test_both_designs_have_a_vector() -> None:
    assert [path.stem for path in VECTORS] == ["every_question", "one_question"]


@given(st.integers(0, 1), st.integers(1, 40), st.integers(0, 2**32))
def test_round_trip(which: int, count: int, seed: int) -> None:
    terms = TERMS[which]
    reports = some_reports(terms.randomizer, count, seed)
    data = encode_envelope(terms, reports)
    assert len(data) == terms.envelope_bytes(count)
    found = decode_envelope(terms, data).reports
    assert found.dtype == reports.dtype
    np.testing.assert_array_equal(found, reports)


def test_the_layout_of_the_page() -> None:
    """Symbol 299 of the second question, as docs/wire-format.md writes it: 01, 2b 01, zeros up to
    the longest answer."""
    one = DESIGNS[0]
    width = one.report_shape[0]
    payload = bytes([1, 0x2B, 0x01]).ljust(width, b"\0")
    assert reason(TERMS[0], payload) == ""
    (answers,) = one.unpack(payload, 1)
    assert one.accumulate(answers[None])[one._bounds[1] + 1 + 299] == 1


@pytest.mark.parametrize(
    "payload",
    [
        bytes([5]),  # there are five questions, from 0
        bytes([255]),
        bytes([0, 5]),  # the first has five symbols
        bytes([0, 1, 1]),  # padding
        bytes([1, 0x2C, 0x01]),  # symbol 300 of 300
        bytes([2, 0, 0b00100000]),  # thirteen bits
        bytes([3, 0xFF, 0x0F]),  # a set of all values
        bytes([4, 5, 0, 5, 0]),  # a value twice
    ],
)
def test_reports_that_nobody_can_have_sent(payload: bytes) -> None:
    width = DESIGNS[0].report_shape[0]
    assert reason(TERMS[0], payload.ljust(width, b"\0")) == wire.IMPOSSIBLE


@given(st.integers(0, 1), st.binary(max_size=60), st.integers(0, 2**32))
def test_any_bytes(which: int, noise: bytes, seed: int) -> None:
    """Random payloads, and sound ones with some bytes changed, under a right checksum: refused with
    a reason, or reports that the mechanism can send and that encode to the same bytes."""
    terms = TERMS[which]
    randomizer = terms.randomizer
    sound = randomizer.pack(some_reports(randomizer, 1, seed))
    at = seed % len(sound)
    for payload in (noise, noise.ljust(len(sound), b"\0")[: len(sound)],
                    (sound[:at] + noise + sound[at + len(noise) :])[: len(sound)]):  # fmt: skip
        found = reason(terms, payload)
        assert not found or found in wire.REASONS
        if not found:
            reports = randomizer.unpack(payload, 1)
            assert randomizer.pack(reports) == payload
            assert randomizer.accumulate(reports).min() >= 0
