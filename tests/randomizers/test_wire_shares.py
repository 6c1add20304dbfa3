"""Envelopes of shares: a vector that a specification beside the tests made, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.mean import SplitAndMixMean
from beam_ldp.randomizers.wire import EnvelopeError, decode_envelope, encode_envelope
from beam_ldp.randomizers.wire_stream import read_part
from spec import wire as spec_wire
from tests.randomizers.make_wire_vectors import release_terms
from tests.randomizers.wire_terms import terms_of
from tests.spec import beyond_seeds, compare

pytestmark = pytest.mark.exact

VECTOR = Path(__file__).parent / "share_vectors" / "split_and_mix_mean.json"
MECHANISM = SplitAndMixMean(
    3, radius=2.0, cells=5, noise_deviation=1.5, modulus_bits=11, shares=3, rotation_seed=5
)
TERMS = terms_of(MECHANISM)
VALUES = np.array([[1.0, -1.0, 0.5], [0.0, 0.0, 2.0]])
ID = bytes(range(1, 17))


def vector() -> dict[str, Any]:
    """What the specification makes of two people."""
    config = json.loads(json.dumps(MECHANISM.to_config()))
    fields = {name: config[name] for name in config if name not in ("mechanism", "version")}
    del fields["clipping"]
    spec = beyond_seeds.SplitAndMixMean(**fields)
    words = np.random.default_rng(21).integers(0, compare.WORDS, (2, spec.words), np.uint64)
    reports = [
        spec.randomize(x, compare.words_of(row, i))
        for i, (x, row) in enumerate(zip(VALUES.tolist(), words.tolist()))
    ]
    terms = release_terms(config, spec, TERMS.identity.to_json())
    packed = [spec_wire.pack(spec, report) for report in reports]
    return {
        "terms": terms,
        "values": VALUES.tolist(),
        "words": [[str(word) for word in row] for row in words.tolist()],
        "reports": reports,
        "envelope_id": ID.hex(),
        "envelopes": [
            spec_wire.envelope(terms["identity"], [one], ID, False).hex() for one in packed
        ],
    }


def test_the_vector_is_what_the_specification_makes() -> None:
    assert json.loads(VECTOR.read_text()) == json.loads(json.dumps(vector()))


def test_the_vector_is_what_devices_send_and_collectors_read() -> None:
    told = json.loads(VECTOR.read_text())
    terms = wire.ReleaseTerms.from_json(told["terms"])
    assert terms.randomizer == MECHANISM
    words = np.array([[int(word) for word in row] for row in told["words"]], dtype=np.uint64)
    reports, mine = compare.both(
        MECHANISM, np.array(told["values"]), words,
        beyond_seeds.SplitAndMixMean(3, 2.0, 5, 1.5, 11, 3, 5),
    )  # fmt: skip
    assert reports.tolist() == mine == told["reports"]
    for report, sent in zip(reports, told["envelopes"]):
        envelope = bytes.fromhex(sent)
        assert encode_envelope(terms, report[None], ID) == envelope
        assert decode_envelope(terms, envelope).reports.tolist() == [report.tolist()]
        assert len(envelope) == 48 + -(-4 * 3 * 11 // 8)


def refused(data: bytes) -> set[str]:
    """Why, one envelope at a time and in a file."""
    with pytest.raises(EnvelopeError) as caught:
        decode_envelope(TERMS, data)
    found = read_part(TERMS, data)
    assert not len(found)
    return {caught.value.reason, *(wire.REASONS[code] for code in found.refused.codes)}


def test_an_envelope_counts_whole_with_an_id_or_not_at_all() -> None:
    reports = MECHANISM.randomize(VALUES)
    sent = encode_envelope(TERMS, reports[:1], ID)
    with pytest.raises(ValueError, match="envelope_id must be given for shares"):
        encode_envelope(TERMS, reports[:1], wire.NO_ID)
    nameless = sent[:24] + bytes(16) + sent[40:-4]
    assert refused(nameless + wire.checksum(nameless)) == {wire.WITHOUT_ID}
    assert refused(sent[:-9]) == {wire.TOO_SHORT}  # half of a person's shares
    two = sent[:40] + b"\0\0\0\2" + 2 * sent[44:-4]
    assert refused(two + wire.checksum(two)) == {wire.TOO_MANY}
    padded = sent[:-5] + bytes([sent[-5] | 1])  # 132 bits of shares in 17 bytes
    assert refused(padded + wire.checksum(padded)) == {wire.IMPOSSIBLE}


def test_numbers_beyond_the_modulus_are_no_shares() -> None:
    """On the wire there is no room for them; whoever adds up arrays refuses them."""
    reports = MECHANISM.randomize(VALUES)
    reports[1, 4] = MECHANISM.modulus
    with pytest.raises(ValueError, match=r"below 2\*\*11"):
        MECHANISM.accumulate(reports)
    reports[1, 4] = MECHANISM.modulus - 1  # any number below may be a share: nothing tells it
    assert MECHANISM.accumulate(reports).shape == (4,)


def test_one_forged_share_sets_the_sum_to_anything() -> None:
    """Up to what `longest_sum` says, as statements do."""
    reports = MECHANISM.randomize(np.tile(VALUES[:1], (50, 1)))
    honest, half = MECHANISM.accumulate(reports), MECHANISM.modulus // 2
    for wanted in (0, half - 1, half, MECHANISM.modulus - 1):
        forged = reports[:1].copy().astype(np.int64)
        forged[0, ::3] = (wanted - honest) % MECHANISM.modulus
        forged[0, 1::3] = forged[0, 2::3] = 0
        again = MECHANISM.accumulate(np.vstack([reports, forged.astype(reports.dtype)]))
        assert (again == wanted).all()
        length = np.linalg.norm(MECHANISM.estimate(again, 1).value)
        assert length <= MECHANISM.longest_sum * (1 + 1e-12)
    assert replace(MECHANISM, modulus_bits=12).longest_sum == 2 * MECHANISM.longest_sum


if __name__ == "__main__":
    VECTOR.write_text(json.dumps(vector(), indent=1) + "\n")
