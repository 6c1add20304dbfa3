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
from tests.randomizers.wire_terms import terms_of
from tests.transforms.mean_mechanisms import MECHANISMS as MEANS
from tests.transforms.mean_mechanisms import vectors_for

pytestmark = pytest.mark.exact

ROOT = Path(__file__).resolve().parents[2]
VECTORS = sorted((Path(__file__).parent / "wire_vectors").glob("*.json"))
ORACLES = {name: getattr(frequency, name)(11, 2.0) for name in frequency.__all__}
EVERY: dict[str, Any] = {**ORACLES, **MEANS}

MANY = {"reports_per_envelope": 64}
LIST = Domain(tuple("abcd")).digest.hex()
KRR = terms_of(KRandomizedResponse(5, 2.0), values=LIST, **MANY)
HADAMARD = terms_of(HadamardResponse(100, 1.0), **MANY)
UNARY = terms_of(UnaryEncoding(13, 1.0), **MANY)
UNIT = terms_of(PrivUnit(3, 4.0), **MANY)
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
    terms = terms_of(randomizer, **MANY)
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
        longer = terms_of(terms.randomizer, "a much longer name " * 9, columns=("a", "b"), **MANY)
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
    with pytest.raises(ValueError, match="from 1 to 64 in one envelope, got 65"):
        encode_envelope(KRR, np.zeros(65, dtype=np.uint8))
    alone = terms_of(KRR.randomizer)
    with pytest.raises(ValueError, match="from 1 to 1 in one envelope, got 2"):
        encode_envelope(alone, np.zeros(2, dtype=np.uint8))
    unary = terms_of(UnaryEncoding(1 << 20, 1.0), reports_per_envelope=1 << 20)
    assert unary.envelope_bytes(unary.max_reports) <= wire.MAX_ENVELOPE_BYTES
    assert unary.envelope_bytes(unary.max_reports + 1) > wire.MAX_ENVELOPE_BYTES
    with pytest.raises(ValueError, match=f"from 1 to {unary.max_reports} .* got 200"):
        encode_envelope(unary, np.zeros((200, 1 << 17), dtype=np.uint8))
    with pytest.raises(ValueError, match="randomizer must send reports of less than 16,777,216"):
        terms_of(UnaryEncoding(1 << 28, 1.0))
    with pytest.raises(ValueError, match="identity is of another mechanism"):
        ReleaseTerms(UNARY.randomizer, KRR.identity)


def test_many_envelopes_at_once_are_those_of_one_at_a_time():
    ids = np.arange(96, dtype=np.uint8).reshape(6, 16)
    for terms in TERMS:
        for each in (1, 3):
            reports = some_reports(terms.randomizer, 6 * each)
            found = wire.encode_envelopes(terms, reports, ids)
            for i, row in enumerate(found):
                mine = reports[i * each : (i + 1) * each]
                assert row.tobytes() == encode_envelope(terms, mine, ids[i].tobytes())
    for count in (5, 6 * 65):
        with pytest.raises(ValueError, match="from 1 to 64 for each of ids"):
            wire.encode_envelopes(KRR, np.zeros(count, np.uint8), ids)


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


def test_an_envelope_speaks_for_as_many_people_as_were_granted():
    """A forged one of half a megabyte with half a million reports in it, under a right checksum."""
    alone = terms_of(KRR.randomizer)
    forged = alone.prefix + bytes(16) + (500_000).to_bytes(4, "big") + bytes(500_000)
    assert reason(alone, forged + wire.checksum(forged)) == wire.TOO_MANY
    granted = terms_of(KRR.randomizer, reports_per_envelope=500_000)
    forged = granted.prefix + forged[wire.PREFIX_BYTES :]
    assert len(decode_envelope(granted, forged + wire.checksum(forged)).reports) == 500_000


def test_terms_that_differ():
    """In whatever it may be: the release, the question, its list, the mechanism, the key."""
    reports = some_reports(KRR.randomizer, 3)
    data = encode_envelope(KRR, reports)
    krr, same = KRR.randomizer, {"values": LIST, **MANY}
    others = [
        terms_of(KRandomizedResponse(5, 2.0000001), **same),
        terms_of(krr, **MANY, values=Domain(tuple("abdc")).digest.hex()),
        terms_of(krr, "week-48", **same),
        terms_of(krr, **{**same, "dataset": "others"}),
        terms_of(krr, columns=("hiv",), **same),
        terms_of(krr, key="00", **same),
        terms_of(krr, values=LIST, reports_per_envelope=65),
        terms_of(krr, "week-48", **same, simulated=True),
    ]
    for terms in others:
        assert reason(terms, data) == wire.OTHER_RELEASE
        assert reason(KRR, encode_envelope(terms, reports)) == wire.OTHER_RELEASE
    simulated = terms_of(krr, **same, simulated=True)
    assert reason(simulated, data) == wire.NOT_SIMULATED
    assert reason(KRR, encode_envelope(simulated, reports)) == wire.SIMULATED


def test_room_that_later_formats_have_is_refused_today():
    data = encode_envelope(KRR, some_reports(KRR.randomizer, 1))
    for at, changed, expected in (
        (4, 3, wire.UNKNOWN_VERSION),
        (4, 1, wire.UNKNOWN_VERSION),
        (5, 2, wire.UNKNOWN_FLAGS),  # sealed
        (5, 5, wire.UNKNOWN_FLAGS),  # a batch header, simulated
        (6, 1, wire.UNKNOWN_COLUMN),
        (7, 1, wire.UNKNOWN_COLUMN),
    ):
        content = data[:at] + bytes([changed]) + data[at + 1 : -4]
        assert reason(KRR, content + wire.checksum(content)) == expected


def test_reports_that_nobody_can_have_sent():
    """Five values take three bits, of which three codes are free; so are the bits of padding."""
    body = encode_envelope(KRR, np.array([0], dtype=np.uint8))[: wire.HEADER_BYTES]
    for byte in range(256):
        content = body + bytes([byte])
        data = content + wire.checksum(content)
        if byte % 32 == 0 and byte >> 5 < 5:
            assert decode_envelope(KRR, data).reports.tolist() == [byte >> 5]
        else:
            assert reason(KRR, data) == wire.IMPOSSIBLE


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_random_inputs_never_crash_or_skew(count):
    """Random bytes, random changes, random payloads under a right checksum: either refused with one
    of the reasons, or reports that the mechanism can send and that encode to the same bytes."""
    generator = np.random.default_rng(8)
    sound = [encode_envelope(t, some_reports(t.randomizer, 5), bytes(range(16))) for t in TERMS]
    taken: dict[str, int] = {}
    for i in range(count):
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
            content = bytes(base[: wire.HEADER_BYTES]) + generator.bytes(5 * terms.report_bytes)
            data = content + wire.checksum(content)
        else:
            content = terms.prefix + noise
            data = content + wire.checksum(content)
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
    often = ("taken", wire.IMPOSSIBLE, wire.WRONG_CHECKSUM, wire.TOO_SHORT, wire.NOT_AN_ENVELOPE)
    assert min(taken[kind] for kind in often) > count // 1000, taken


@given(st.binary(max_size=200))
def test_any_bytes(data):
    for terms in TERMS:
        for given_bytes in (data, terms.prefix + data, terms.prefix[:20] + data):
            assert reason(terms, given_bytes) in wire.REASONS


# Terms ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_terms_as_json(name):
    terms = terms_of(EVERY[name], "week 47 ✓", values="00ff", simulated=True)
    found = json.loads(json.dumps(terms.to_json()))
    assert ReleaseTerms.from_json(found) == terms
    assert ReleaseTerms.from_json(found).prefix == terms.prefix


def test_terms_that_are_none():
    found = KRR.to_json()
    for name in found:
        if name in ("identity", "mechanism", "simulated", "terms_version"):
            with pytest.raises(ValueError, match=f"release terms lack {name}"):
                ReleaseTerms.from_json({k: v for k, v in found.items() if k != name})
        else:
            with pytest.raises(ValueError, match=f"contradict themselves: {name}"):
                ReleaseTerms.from_json({k: v for k, v in found.items() if k != name})
    identity = found["identity"]
    for change, message in (
        ({"terms_version": 1}, "terms_version must be 2, got 1"),
        ({"format_version": 1}, "contradict themselves: format_version"),
        ({"mechanism": "[]"}, "text of a JSON object"),
        ({"mechanism": 5}, "wrong type"),
        ({"mechanism": "[" * 100_000}, "wrong type"),
        ({"mechanism": found["mechanism"] + " "}, "contradict themselves: mechanism"),
        ({"mechanism": found["mechanism"].replace("2.0", "3.0")}, "of another mechanism"),
        ({"mechanism": found["mechanism"].replace("KRand", "Rand")}, "name of a randomizer"),
        ({"identity": "r"}, "identity an object"),
        ({"identity": {**identity, "values": 7}}, "values must be a digest"),
        ({"identity": {**identity, "release_id": ""}}, "release_id must be printable text"),
        ({"identity": {**identity, "release_id": "s"}}, "contradict themselves: release_id"),
        ({"identity": {**identity, "columns": ["c"]}}, "contradict themselves: identity_digest"),
        ({"simulated": "yes"}, "contradict themselves: simulated"),
    ):
        with pytest.raises(ValueError, match=message):
            ReleaseTerms.from_json({**found, **change})


# Vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vectors_of_format_2(path):
    """What is published for clients in other languages; it never changes."""
    found = json.loads(path.read_text("utf-8"))
    terms = ReleaseTerms.from_json(found["terms"])
    randomizer: Any = terms.randomizer
    assert terms.to_json() == found["terms"]
    values = tuple(found["values"])
    digest = Domain(values, found["other"]).digest if values else b""
    assert terms.identity.values == digest.hex()
    assert terms.identity.text == found["identity_text"]
    reports = as_reports(randomizer, found["reports"])
    envelope = bytes.fromhex(found["envelope"])
    assert randomizer.pack_each(reports).tobytes().hex() == found["payload"]
    assert encode_envelope(terms, reports, bytes.fromhex(found["envelope_id"])) == envelope
    decoded = decode_envelope(terms, envelope)
    np.testing.assert_array_equal(decoded.reports, reports)
    assert decoded.envelope_id == bytes.fromhex(found["envelope_id"])
    first = bytes.fromhex(found["envelope_of_the_first_report_without_id"])
    assert decode_envelope(terms, first).envelope_id is None
    np.testing.assert_array_equal(decode_envelope(terms, first).reports, reports[:1])
    assert len(found["refused"]) == 16
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
    assert len(rows) == 8
    written = bytes.fromhex("".join(row[3].strip().strip("`").replace(" ", "") for row in rows))
    vector = json.loads((Path(__file__).parent / "wire_vectors" /
                         "k_randomized_response.json").read_text("utf-8"))  # fmt: skip
    assert written.hex() == vector["envelope"]
    offsets = [int(row[1]) for row in rows]
    lengths = [len(bytes.fromhex(row[3].strip().strip("`").replace(" ", ""))) for row in rows]
    assert offsets == [sum(lengths[:i]) for i in range(len(rows))]
    for said in wire.REASONS:
        assert f"| {said} |" in page, said
