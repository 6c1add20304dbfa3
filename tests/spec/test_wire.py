"""Packed reports, envelopes and vectors of the product against the specification."""

from __future__ import annotations

import ast
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers import wire as product
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import (
    HadamardResponse,
    KRandomizedResponse,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean import L2Mean
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion
from beam_ldp.randomizers.randomness import UserRandomness, envelope_ids
from spec import wire
from tests.randomizers import make_wire_vectors
from tests.randomizers.wire_terms import terms_of
from tests.spec import compare
from tests.spec.test_registry import MISSING

pytestmark = pytest.mark.exact

ROOT = Path(__file__).resolve().parents[2]
FILES = make_wire_vectors.everything()
MEMOIZED = [name for name in FILES if name.startswith("memoized/")]
ORACLES = (KRandomizedResponse(5, 2.0), UnaryEncoding(13, 1.0), SubsetSelection(1000, 6.0))
MECHANISMS: dict[str, Any] = {
    "k-ary": ORACLES[0],
    "hadamard": HadamardResponse(100, 1.0),
    "unary": ORACLES[1],
    "subset, bits": SubsetSelection(12, 1.0),
    "subset, members": ORACLES[2],
    "one question": OneQuestion(ORACLES),
    "every question": EveryQuestion(ORACLES),
    "l2": L2Mean(20, 4.0),
}
REASONS = {  # of each step, in the order of the steps
    "magic": product.NOT_AN_ENVELOPE, "version": product.UNKNOWN_VERSION,
    "prefix": product.TOO_SHORT, "flags": product.UNKNOWN_FLAGS, "column": product.UNKNOWN_COLUMN,
    "release": product.OTHER_RELEASE, "simulation": product.SIMULATED,
    "header": product.TOO_SHORT, "count": product.NO_REPORTS, "grant": product.TOO_MANY,
    "length": product.TRAILING, "checksum": product.WRONG_CHECKSUM, "reports": product.IMPOSSIBLE,
}  # fmt: skip


def reason(terms: product.ReleaseTerms, data: bytes) -> str | None:
    """Why the product refuses; None if it takes it."""
    try:
        product.decode_envelope(terms, data)
    except product.EnvelopeError as error:
        return error.reason
    return None


# The specification itself ---------------------------------------------------------------------


def test_at_most_600_lines_of_standard_library():
    lines = 0
    for path in sorted((ROOT / "spec").glob("*.py")):
        source = path.read_text("utf-8")
        lines += len(source.splitlines())
        for node in ast.walk(ast.parse(source)):
            named = []
            if isinstance(node, ast.Import):
                named = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                named = [node.module or ""]
            for name in named:
                assert name.split(".")[0] in {*sys.stdlib_module_names, "spec"}, (path.name, name)
    assert 400 < lines <= 600


def test_the_vectors_come_from_the_specification_alone():
    """What makes them imports neither the product nor NumPy, and remakes them byte for byte."""
    source = Path(make_wire_vectors.__file__).read_text("utf-8")
    assert "beam_ldp" not in source and "numpy" not in source
    kept = {
        str(path.relative_to(make_wire_vectors.FOLDER)): path.read_text("utf-8")
        for path in make_wire_vectors.FOLDER.rglob("*.json")
    }
    assert kept == FILES and len(kept) >= 26


# Envelopes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MECHANISMS)
def test_envelopes_are_taken_and_refused_alike(name):
    """Sound ones, and 400 that are cut, changed or forged under a right checksum: the product
    gives the reason of the step at which the specification stops."""
    mechanism, generator = MECHANISMS[name], np.random.default_rng(8)
    terms = terms_of(mechanism, reports_per_envelope=4)
    told, spec = terms.identity.to_json(), compare.specified(mechanism)
    each = terms.report_bytes
    words = compare.words_for(spec.words, 4, 8)
    held = [0] * len(ORACLES) if "question" in name else [0.1] * 20 if name == "l2" else 3
    reports = [spec.randomize(held, compare.words_of(row)) for row in words.tolist()]
    packed = [wire.pack(spec, report) for report in reports]
    sound = wire.envelope(told, packed, bytes(range(16)), False)
    assert reason(terms, sound) is None and wire.refusal(spec, told, False, sound) is None
    found = product.decode_envelope(terms, sound).reports
    assert mechanism.pack_each(found).tobytes() == b"".join(packed)
    steps: dict[str, int] = {}
    for i in range(400):
        body = bytearray(sound[:-4])
        kind = i % 8
        if kind < 2:
            data = sound[: generator.integers(len(sound))] + generator.bytes(kind * 3)
        elif kind < 5:  # any byte of the header, or of the reports
            body[generator.integers(44) if kind < 4 else generator.integers(44, len(body))] ^= (
                1 << i % 7
            )
            data = wire.seal(bytes(body)) if i % 2 else bytes(body) + sound[-4:]
        else:
            count = int(generator.integers(6))
            content = bytes(body[:40]) + count.to_bytes(4, "big") + generator.bytes(each * count)
            data = wire.seal(content + bytes(kind == 6))
        refused = wire.refusal(spec, told, False, data)
        assert reason(terms, data) == (None if refused is None else refused[1]), data
        if refused:
            steps[refused[0]] = steps.get(refused[0], 0) + 1
            assert refused[1] in product.REASONS
    assert len(steps) >= 10, steps


def test_of_two_faults_the_first_step_is_named():
    """Every pair of faults in one envelope, with a right checksum and with a wrong one, whole, cut
    and too long: the order of the steps is the product's."""
    places = ((0, 0), (4, 3), (5, 2), (5, 1), (6, 1), (7, 1), (8, 77), (40, 9), (43, 0), (44, 0))
    terms = terms_of(ORACLES[0], reports_per_envelope=4)
    told, spec = terms.identity.to_json(), compare.specified(ORACLES[0])
    sound = wire.envelope(told, [b"\0", b"\xff"], bytes(16), False)
    steps = set()
    for one, other in itertools.combinations_with_replacement(places, 2):
        body = bytearray(sound[:-4])
        for at, byte in (one, other):
            body[at] = byte
        whole = wire.seal(bytes(body))
        for data in (whole, whole[:-1] + b"\0", whole[:20], whole[:30], whole[:-1], whole + b"\0"):
            refused = wire.refusal(spec, told, False, data)
            assert refused and reason(terms, data) == refused[1], (one, other, len(data))
            steps.add(refused[0])
    assert steps == {*REASONS}


def test_simulated_reports_and_those_of_people_are_never_mixed():
    terms = terms_of(ORACLES[0], reports_per_envelope=4)
    simulation = terms_of(ORACLES[0], reports_per_envelope=4, simulated=True)
    told, spec = terms.identity.to_json(), compare.specified(ORACLES[0])
    for drawn in (False, True):
        data = wire.envelope(told, [b"\0"], bytes(16), drawn)
        for asked, by in ((False, terms), (True, simulation)):
            refused = wire.refusal(spec, told, asked, data)
            assert (refused is None) == (drawn == asked)
            assert reason(by, data) == (refused and refused[1])


# Vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", MEMOIZED)
def test_memoized_vectors_are_what_the_product_sends(name):
    """Key, person, value and release in; reports, envelopes and estimates out. Each envelope that
    must be refused is, and for the reason of the step that the vector names."""
    found = json.loads(FILES[name])
    terms = product.ReleaseTerms.from_json(found["terms"])
    mechanism: Any = terms.randomizer
    people, key = found["people"], bytes.fromhex(found["key"])
    if "values" in found:
        labels = Domain(tuple(found["values"]), found["other"])
        assert terms.identity.values == labels.digest.hex()
    reports = mechanism.randomize(
        np.array(found["held"]), UserRandomness(key, people, terms.identity)
    )
    assert reports.tolist() == as_product(mechanism, found["reports"]).tolist()
    envelope = product.encode_envelope(terms, reports, bytes.fromhex(found["envelope_id"]))
    assert envelope.hex() == found["envelope"]
    ids = envelope_ids(key, people, terms.identity)
    assert [row.tobytes().hex() for row in ids] == found["envelope_ids"]
    if people[1] == "7.0":
        assert found["reports"][0] == found["reports"][1], "7 and 7.0 are one person"
    if found["estimate"]:
        estimate = mechanism.estimate(mechanism.accumulate(reports), len(reports)).value
        told = np.array(found["estimate"])
        np.testing.assert_allclose(estimate[: len(told)], told, rtol=1e-12, atol=1e-12)
    steps = [refused["step"] for refused in found["refused"]]
    for refused in found["refused"]:
        assert reason(terms, bytes.fromhex(refused["envelope"])) == refused["reason"]
        assert refused["reason"] in (REASONS[refused["step"]], product.TOO_SHORT)
    assert {*REASONS} - {*steps} <= {"reports"}, "of some mechanisms every report is possible"


def test_steps_of_the_published_vectors():
    """Each envelope that they refuse, in their order; the reason is that of the step."""
    steps = json.loads(FILES["refused/steps.json"])
    assert len(steps) == 9
    for name, told in steps.items():
        refused = json.loads(FILES[f"{name}.json"])["refused"]
        assert len(told) == len(refused) >= 15 and len(set(told)) >= 10
        for step, one in zip(told, refused):
            assert one["reason"] in (REASONS[step], product.TOO_SHORT)


def as_product(mechanism: Any, listed: list[Any]) -> np.ndarray:
    """Reports as the product has them in memory."""
    rows = np.array(listed)
    if mechanism.report_dtype == np.uint8 and rows.shape[1:] == (mechanism.bits_per_report,):
        return np.packbits(rows.astype(np.uint8), axis=1, bitorder="little")
    return rows


def test_published_configurations_are_known():
    """All in `configurations_1.json` of a mechanism that the specification holds."""
    listed = json.loads((ROOT / "tests" / "packaging" / "configurations_1.json").read_text())
    known = [config for config in listed.values() if config["mechanism"] not in MISSING]
    for config in known:
        mechanism = LocalRandomizer.from_config(config)
        spec = compare.specified(mechanism)
        assert wire.num_bits(spec) == mechanism.bits_per_report, config
        assert spec.words == mechanism.words_per_user, config
    assert len(known) >= 24


def test_identities_are_those_of_the_product():
    *told, key = json.loads(FILES["identities/identities.json"])
    for one in told:
        assert ReleaseIdentity.from_json(one["identity"]).text == one["text"]
    assert len(told) >= 6 and key["commitment"]
