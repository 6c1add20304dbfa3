"""The envelope: what was sent comes back, everything else is refused with a fixed reason."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers import frequency, wire
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import HadamardResponse, KRandomizedResponse, UnaryEncoding
from beam_ldp.randomizers.mean import MeanRandomizer, PrivUnit, ScalarMean
from beam_ldp.randomizers.wire import (
    EnvelopeError,
    ReleaseTerms,
    decode_envelope,
    encode_envelope,
)
from tests.transforms.mean_mechanisms import MECHANISMS as MEANS
from tests.transforms.mean_mechanisms import vectors_for

pytestmark = pytest.mark.exact

ROOT = Path(__file__).resolve().parents[2]
VECTORS = sorted((Path(__file__).parent / "wire_vectors").glob("*.json"))
ORACLES = {name: getattr(frequency, name)(11, 2.0) for name in frequency.__all__}
EVERY: dict[str, Any] = {**ORACLES, **MEANS}

KRR = ReleaseTerms(KRandomizedResponse(5, 2.0), "week-47", Domain(tuple("abcd")).digest)
HADAMARD = ReleaseTerms(HadamardResponse(100, 1.0), "week-47")
UNARY = ReleaseTerms(UnaryEncoding(13, 1.0), "week-47")
UNIT = ReleaseTerms(PrivUnit(3, 4.0), "week-47")
TERMS = (KRR, HADAMARD, UNARY, UNIT)


def some_reports(randomizer: Any, count: int, seed: int = 5) -> np.ndarray:
    generator = np.random.default_rng(seed)
    if isinstance(randomizer, MeanRandomizer):
        return randomizer.randomize(vectors_for(randomizer, count, seed), generator)
    return randomizer.randomize(generator.integers(0, randomizer.domain_size, count), generator)


def reason(terms: ReleaseTerms, data: bytes) -> str:
    with pytest.raises(EnvelopeError) as caught:
        decode_envelope(terms, data)
    assert str(caught.value) == f"envelope refused: {caught.value.reason}"
    return caught.value.reason


# Round trips ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_every_mechanism_travels(name):
    randomizer = EVERY[name]
    terms = ReleaseTerms(randomizer, "r", bytes(range(16)))
    for count in (1, 2, 7, 64):
        reports = some_reports(randomizer, count)
        data = encode_envelope(terms, reports)
        assert len(data) == terms.envelope_bytes(count)
        found = decode_envelope(terms, data).reports
        assert found.dtype == reports.dtype
        np.testing.assert_array_equal(found, reports)


@given(
    st.integers(0, 3),
    st.integers(1, 40),
    st.integers(0, 2**32),
    st.binary(min_size=16, max_size=16),
)
def test_round_trip(which, count, seed, envelope_id):
    terms = TERMS[which]
    reports = some_reports(terms.randomizer, count, seed)
    data = encode_envelope(terms, reports, envelope_id)
    found = decode_envelope(terms, data)
    np.testing.assert_array_equal(found.reports, reports)
    assert found.envelope_id == (None if envelope_id == wire.NO_ID else envelope_id)
    assert encode_envelope(terms, found.reports, envelope_id) == data


def test_length_depends_on_mechanism_and_number_alone():
    """Neither the value nor its report nor the names of list and release can be told from it."""
    for terms in TERMS:
        longer = ReleaseTerms(terms.randomizer, "a much longer name " * 9, bytes(range(16)))
        lengths = {
            len(encode_envelope(t, some_reports(t.randomizer, 1, seed)))
            for t in (terms, longer)
            for seed in range(50)
        }
        assert lengths == {terms.envelope_bytes(1)}


def test_ids_are_fresh_unless_given():
    reports = some_reports(KRR.randomizer, 3)
    ids = {decode_envelope(KRR, encode_envelope(KRR, reports)).envelope_id for _ in range(100)}
    assert len(ids) == 100
    with pytest.raises(ValueError, match="envelope_id must be 16 bytes, got 3"):
        encode_envelope(KRR, reports, b"abc")


def test_number_of_reports_in_one_envelope():
    with pytest.raises(ValueError, match="from 1 to .* got 0"):
        encode_envelope(KRR, np.zeros(0, dtype=np.uint8))
    unary = ReleaseTerms(UnaryEncoding(1 << 20, 1.0), "r")
    assert unary.envelope_bytes(unary.max_reports) <= wire.MAX_ENVELOPE_BYTES
    assert unary.envelope_bytes(unary.max_reports + 1) > wire.MAX_ENVELOPE_BYTES
    with pytest.raises(ValueError, match=f"from 1 to {unary.max_reports} .* got 200"):
        encode_envelope(unary, np.zeros((200, 1 << 17), dtype=np.uint8))
    with pytest.raises(ValueError, match="randomizer must send reports of less than 16,777,216"):
        ReleaseTerms(UnaryEncoding(1 << 28, 1.0), "r")


# Refusals -------------------------------------------------------------------------------------


def test_everything_that_differs_in_one_byte_is_refused():
    """Every byte of an envelope matters: no change of one goes unnoticed."""
    data = encode_envelope(KRR, some_reports(KRR.randomizer, 3), bytes(16))
    for at in range(len(data)):
        for change in (1, 0x80, 0xFF):
            found = reason(KRR, data[:at] + bytes([data[at] ^ change]) + data[at + 1 :])
            assert found in wire.REASONS


def test_every_cut_and_every_extension_is_refused():
    data = encode_envelope(KRR, some_reports(KRR.randomizer, 20))
    assert {reason(KRR, data[:i]) for i in range(1, len(data))} == {wire.TOO_SHORT}
    assert reason(KRR, b"") == wire.NOT_AN_ENVELOPE
    for more in (b"\0", b"\xff" * 9, data):
        assert reason(KRR, data + more) == wire.TRAILING
    assert reason(KRR, data[:74] + bytes(wire.MAX_ENVELOPE_BYTES)) == wire.TOO_LONG


def test_terms_that_differ():
    reports = some_reports(KRR.randomizer, 3)
    data = encode_envelope(KRR, reports)
    cases = {
        wire.OTHER_MECHANISM: ReleaseTerms(
            KRandomizedResponse(5, 2.0000001), "week-47", KRR.domain_digest
        ),
        wire.OTHER_DOMAIN: ReleaseTerms(
            KRR.randomizer, "week-47", Domain(tuple("abdc")).digest
        ),
        wire.OTHER_RELEASE: ReleaseTerms(KRR.randomizer, "week-48", KRR.domain_digest),
        wire.NOT_SIMULATED: ReleaseTerms(KRR.randomizer, "week-47", KRR.domain_digest, True),
    }  # fmt: skip
    for expected, terms in cases.items():
        assert reason(terms, data) == expected
        backwards = {wire.NOT_SIMULATED: wire.SIMULATED}.get(expected, expected)
        assert reason(KRR, encode_envelope(terms, reports)) == backwards


def test_reports_that_nobody_can_have_sent():
    """Five values take three bits, of which three codes are free; so are the bits of padding."""
    body = encode_envelope(KRR, np.array([0], dtype=np.uint8))[: wire.HEADER_BYTES]
    for byte in range(256):
        content = body + bytes([byte])
        data = content + wire._checksum(content)
        if byte % 32 == 0 and byte >> 5 < 5:
            assert decode_envelope(KRR, data).reports.tolist() == [byte >> 5]
        else:
            assert reason(KRR, data) == wire.IMPOSSIBLE


def test_a_hundred_thousand_inputs_never_crash_or_skew():
    """Random bytes, random changes, random payloads under a right checksum: either refused with one
    of the reasons, or reports that the mechanism can send and that encode to the same bytes."""
    generator = np.random.default_rng(8)
    sound = [encode_envelope(t, some_reports(t.randomizer, 5), bytes(range(16))) for t in TERMS]
    taken: dict[str, int] = {}
    for i in range(100_000):
        terms, base = TERMS[i % 4], bytearray(sound[i % 4])
        kind = i // 4 % 5
        noise = generator.bytes(1 + i % 90)
        if kind == 0:
            data = noise
        elif kind == 1:
            data = terms.prefix + noise
        elif kind == 2:
            at = int(generator.integers(len(base)))
            base[at : at + len(noise) % 5] = noise[:3]
            data = bytes(base)
        elif kind == 3:
            content = bytes(base[: wire.HEADER_BYTES]) + generator.bytes(terms.payload_bytes(5))
            data = content + wire._checksum(content)
        else:
            content = terms.prefix + noise
            data = content + wire._checksum(content)
        try:
            found = decode_envelope(terms, data)
        except EnvelopeError as error:
            assert error.reason in wire.REASONS
            taken[error.reason] = taken.get(error.reason, 0) + 1
            continue
        taken["taken"] = taken.get("taken", 0) + 1
        terms.randomizer.accumulate(found.reports)
        again = encode_envelope(terms, found.reports, found.envelope_id or wire.NO_ID)
        assert again == data
    often = ("taken", wire.IMPOSSIBLE, wire.WRONG_COUNT, wire.TOO_SHORT, wire.NOT_AN_ENVELOPE)
    assert min(taken[kind] for kind in often) > 200, taken


@given(st.binary(max_size=200))
def test_any_bytes(data):
    for terms in TERMS:
        for given_bytes in (data, terms.prefix + data, terms.prefix[:40] + data):
            assert reason(terms, given_bytes) in wire.REASONS


# Terms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_terms_as_json(name):
    terms = ReleaseTerms(EVERY[name], "week 47 ✓", bytes(range(16)), simulated=True)
    found = json.loads(json.dumps(terms.to_json()))
    assert ReleaseTerms.from_json(found) == terms
    assert ReleaseTerms.from_json(found).prefix == terms.prefix


def test_terms_that_are_none():
    found = KRR.to_json()
    for name in found:
        if name in ("release_id", "mechanism", "domain_digest", "simulated", "terms_version"):
            with pytest.raises(ValueError, match=f"release terms lack {name}"):
                ReleaseTerms.from_json({k: v for k, v in found.items() if k != name})
        else:
            with pytest.raises(ValueError, match=f"contradict themselves: {name}"):
                ReleaseTerms.from_json({k: v for k, v in found.items() if k != name})
    for change, message in (
        ({"terms_version": 2}, "terms_version must be 1, got 2"),
        ({"format_version": 2}, "contradict themselves: format_version"),
        ({"mechanism": "[]"}, "text of a JSON object"),
        ({"mechanism": 5}, "wrong type"),
        ({"mechanism": "[" * 100_000}, "wrong type"),
        ({"mechanism": found["mechanism"] + " "}, "contradict themselves: mechanism"),
        ({"mechanism": found["mechanism"].replace("2.0", "3.0")}, "mechanism_digest"),
        ({"mechanism": found["mechanism"].replace("KRand", "Rand")}, "name of a randomizer"),
        ({"domain_digest": "00"}, "domain_digest must be 16 bytes"),
        ({"release_id": ""}, "release_id must be a non-empty name"),
        ({"release_id": 7}, "release_id must be a non-empty name"),
        ({"simulated": "yes"}, "contradict themselves: simulated"),
    ):
        with pytest.raises(ValueError, match=message):
            ReleaseTerms.from_json({**found, **change})


def test_an_envelope_holds_no_report_too_many(monkeypatch):
    monkeypatch.setattr(wire, "MAX_ENVELOPE_BYTES", wire.OVERHEAD_BYTES + 10)
    most = 10 * 8 // KRR.randomizer.bits_per_report
    assert KRR.max_reports == most
    full = np.zeros(most + 1, np.uint8)
    assert len(encode_envelope(KRR, full[:most])) <= wire.MAX_ENVELOPE_BYTES
    with pytest.raises(ValueError, match=f"from 1 to {most} in one envelope, got {most + 1}"):
        encode_envelope(KRR, full)


# Vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vectors_of_format_1(path):
    """What is published for clients in other languages; it never changes."""
    found = json.loads(path.read_text("utf-8"))
    terms = ReleaseTerms.from_json(found["terms"])
    randomizer: Any = terms.randomizer
    assert terms.to_json() == found["terms"]
    values = tuple(found["values"])
    digest = Domain(values, found["other"]).digest if values else wire.NO_DOMAIN
    assert terms.domain_digest == digest
    reports = as_reports(randomizer, found["reports"])
    envelope = bytes.fromhex(found["envelope"])
    assert randomizer.pack(reports).hex() == found["payload"]
    assert encode_envelope(terms, reports, bytes.fromhex(found["envelope_id"])) == envelope
    decoded = decode_envelope(terms, envelope)
    np.testing.assert_array_equal(decoded.reports, reports)
    assert decoded.envelope_id == bytes.fromhex(found["envelope_id"])
    first = bytes.fromhex(found["envelope_of_the_first_report_without_id"])
    assert decode_envelope(terms, first).envelope_id is None
    np.testing.assert_array_equal(decode_envelope(terms, first).reports, reports[:1])
    assert len(found["refused"]) == 15
    for case in found["refused"]:
        assert reason(terms, bytes.fromhex(case["envelope"])) == case["reason"]


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_laws_and_draws_of_the_vectors(path):
    found = json.loads(path.read_text("utf-8"))
    randomizer: Any = ReleaseTerms.from_json(found["terms"]).randomizer
    if isinstance(randomizer, UnaryEncoding):
        own, other = randomizer._coins
        assert found["law"] == {"own": str(own.threshold), "other": str(other.threshold)}
        for draw in found["draws"]:
            coin = own if draw["held"] else other
            assert draw["bit"] == (int(draw["word"]) < coin.threshold)
        return
    assert found["law"] == {"threshold": str(randomizer._law.threshold)}
    assert bool(found["draws"]) is not isinstance(randomizer, ScalarMean)
    for draw in found["draws"]:
        report = np.empty(1, dtype=randomizer.report_dtype)
        words = np.array([[int(draw["word"])]], dtype=np.uint64)
        randomizer._randomize_block(np.array([draw["value"]]), words, None, report)
        assert report[0] == draw["report"]


def as_reports(randomizer: LocalRandomizer, listed: list[Any]) -> np.ndarray:
    if isinstance(randomizer, UnaryEncoding):
        return np.packbits(np.array(listed, dtype=np.uint8), axis=1, bitorder="little")
    return np.array(listed, dtype=randomizer.report_dtype)


def test_every_kind_has_a_vector():
    kinds = {json.loads(json.loads(p.read_text("utf-8"))["terms"]["mechanism"])["mechanism"]
             for p in VECTORS}  # fmt: skip
    assert kinds == {"KRandomizedResponse", "HadamardResponse", "UnaryEncoding", "ScalarMean"}


def test_the_example_of_the_page():
    """The table of docs/wire-format.md, byte by byte, is the envelope of a published vector."""
    page = (ROOT / "docs" / "wire-format.md").read_text("utf-8")
    table = page.split("## An example, byte by byte")[1].split("\n##")[0]
    rows = [line.split("|") for line in table.splitlines() if re.match(r"\| \d", line)]
    assert len(rows) == 10
    written = bytes.fromhex("".join(row[3].strip().strip("`").replace(" ", "") for row in rows))
    vector = json.loads((Path(__file__).parent / "wire_vectors" /
                         "k_randomized_response.json").read_text("utf-8"))  # fmt: skip
    assert written.hex() == vector["envelope"]
    offsets = [int(row[1]) for row in rows]
    lengths = [len(bytes.fromhex(row[3].strip().strip("`").replace(" ", ""))) for row in rows]
    assert offsets == [sum(lengths[:i]) for i in range(len(rows))]
    for said in wire.REASONS:
        assert f"| {said} |" in page, said
