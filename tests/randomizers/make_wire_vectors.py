"""Writes the test vectors of the wire format: `python tests/randomizers/make_wire_vectors.py`.

Vectors of a published format are kept for ever: one that exists is never written again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from beam_ldp.randomizers import wire
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import (
    HadamardResponse,
    KRandomizedResponse,
    SubsetSelection,
    UnaryEncoding,
)
from beam_ldp.randomizers.identity import ReleaseIdentity, key_commitment
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion

FOLDER = Path(__file__).parent / "wire_vectors"
QUESTIONS = FOLDER / "questions"  # of several questions
NAMES = tuple(f"value {i}" for i in range(10)) + ("naïve – ünïcode ✓",)
RELEASE = "week-47, städte"

MECHANISMS: dict[str, LocalRandomizer] = {
    "k_randomized_response": KRandomizedResponse(12, 3.0),
    "k_randomized_response_binary": KRandomizedResponse(2, 1.0),
    "hadamard_response": HadamardResponse(12, 2.0, num_blocks=2),
    "hadamard_response_one_block": HadamardResponse(12, 0.5, num_blocks=1),
    "unary_encoding": UnaryEncoding(12, 1.0),
    "unary_encoding_symmetric": UnaryEncoding(12, 4.0, optimized=False),
    "scalar_mean": ScalarMean(1, 4.0, radius=100.0, cells=5),
}
ANSWERED = (  # symbols of one byte and of two, bits, sets as bits and as lists
    KRandomizedResponse(12, 3.0), KRandomizedResponse(300, 4.0), UnaryEncoding(12, 1.0),
    SubsetSelection(12, 1.0), SubsetSelection(1000, 6.0),
)  # fmt: skip
DESIGNS = {"one_question": OneQuestion(ANSWERED), "every_question": EveryQuestion(ANSWERED)}


def words(count: int) -> np.ndarray:
    """Fixed 64-bit words: the ends of the range, and some between."""
    drawn = np.random.default_rng(47).integers(0, 2**64, count - 4, dtype=np.uint64)
    ends = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    return np.concatenate([ends, drawn])


def law(randomizer: Any) -> dict[str, str]:
    """The integer thresholds."""
    if isinstance(randomizer, UnaryEncoding):
        own, other = randomizer._coins
        return {"own": str(own.threshold), "other": str(other.threshold)}
    return {"threshold": str(randomizer._law.threshold)}


def draws(randomizer: Any) -> list[dict[str, Any]]:
    """Which report (or bit) one word makes of a value."""
    drawn = words(40)
    if isinstance(randomizer, ScalarMean):
        return []
    if isinstance(randomizer, UnaryEncoding):
        own, other = (coin.threshold for coin in randomizer._coins)
        near = [own - 1, own, other - 1, other]
        return [
            {"held": held, "word": str(word), "bit": int(word < (own if held else other))}
            for held in (0, 1)
            for word in [*drawn.tolist(), *near]
        ]
    values = np.arange(len(drawn)) % randomizer.domain_size
    reports = np.empty(len(drawn), dtype=randomizer.report_dtype)
    randomizer._randomize_block(values, drawn[:, None], None, reports)
    listed = zip(values.tolist(), drawn.tolist(), reports.tolist())
    return [{"value": v, "word": str(w), "report": r} for v, w, r in listed]


def reports_of(randomizer: Any) -> np.ndarray:
    """Some reports."""
    generator = np.random.default_rng(11)
    if isinstance(randomizer, ScalarMean):
        return randomizer.randomize(generator.uniform(0, 100, 9), generator)
    return randomizer.randomize(np.arange(9) % randomizer.domain_size, generator)


def listed(randomizer: Any, reports: np.ndarray) -> list[Any]:
    """Reports as JSON: numbers, or lists of bits."""
    if isinstance(randomizer, UnaryEncoding):
        bits = np.unpackbits(reports, axis=1, count=randomizer.domain_size, bitorder="little")
        return bits.tolist()
    return reports.tolist()


def terms_of(randomizer: LocalRandomizer, values: bytes) -> wire.ReleaseTerms:
    """The terms that vectors are about."""
    identity = ReleaseIdentity(
        "telemetry, EU", RELEASE, randomizer.config_digest().hex(), ("färbe", 'a "quoted" one'),
        values.hex(), reports_per_envelope=9,
    )  # fmt: skip
    return wire.ReleaseTerms(randomizer, identity)


def vector(name: str) -> dict[str, Any]:
    """Everything about one mechanism."""
    randomizer: Any = MECHANISMS[name]
    names: tuple[str, ...] = ()
    digest = b""
    if not isinstance(randomizer, ScalarMean):
        names = NAMES[-(randomizer.domain_size - 1) :]
        digest = Domain(names).digest
    terms = terms_of(randomizer, digest)
    reports = reports_of(randomizer)
    envelope_id = bytes(range(1, 17))
    one = wire.encode_envelope(terms, reports[:1], wire.NO_ID)
    return {
        "terms": terms.to_json(),
        "identity_text": terms.identity.text,
        "values": list(names),
        "other": "other",
        "law": law(randomizer),
        "draws": draws(randomizer),
        "reports": listed(randomizer, reports),
        "envelope_id": envelope_id.hex(),
        "payload": randomizer.pack_each(reports).tobytes().hex(),
        "envelope": wire.encode_envelope(terms, reports, envelope_id).hex(),
        "envelope_of_the_first_report_without_id": one.hex(),
        "refused": [
            {"reason": reason, "envelope": data.hex()} for reason, data in refused(terms, one)
        ],
    }


def questions_vector(name: str) -> dict[str, Any]:
    """The same of several questions: reports are rows of bytes, one per message."""
    randomizer = DESIGNS[name]
    terms = terms_of(randomizer, bytes(range(16)))
    generator = np.random.default_rng(11)
    sizes = randomizer.domain_sizes
    values = np.stack([generator.integers(0, size, 9) for size in sizes], axis=1)
    reports = randomizer.randomize(values, generator)
    envelope_id = bytes(range(1, 17))
    one = wire.encode_envelope(terms, reports[:1], wire.NO_ID)
    return {
        "terms": terms.to_json(),
        "identity_text": terms.identity.text,
        "reports": reports.tolist(),
        "envelope_id": envelope_id.hex(),
        "payload": randomizer.pack_each(reports).tobytes().hex(),
        "envelope": wire.encode_envelope(terms, reports, envelope_id).hex(),
        "envelope_of_the_first_report_without_id": one.hex(),
        "refused": [
            {"reason": reason, "envelope": data.hex()} for reason, data in refused(terms, one)
        ],
    }


def refused(terms: wire.ReleaseTerms, sound: bytes) -> list[tuple[str, bytes]]:
    """What a collector must not take, and why."""

    def signed(content: bytes) -> bytes:
        return content + wire.checksum(content)

    body = sound[: -wire.CHECKSUM_BYTES]
    return [
        (wire.NOT_AN_ENVELOPE, b""),
        (wire.NOT_AN_ENVELOPE, b"value\nred\n"),
        (wire.TOO_SHORT, sound[:3]),
        (wire.TOO_SHORT, sound[:-1]),
        (wire.TRAILING, sound + b"\0"),
        (wire.UNKNOWN_VERSION, signed(body[:4] + b"\3" + body[5:])),
        (wire.UNKNOWN_FLAGS, signed(body[:5] + b"\2" + body[6:])),
        (wire.UNKNOWN_FLAGS, signed(body[:5] + b"\4" + body[6:])),
        (wire.UNKNOWN_COLUMN, signed(body[:7] + b"\1" + body[8:])),
        (wire.SIMULATED, signed(body[:5] + b"\1" + body[6:])),
        (wire.OTHER_RELEASE, signed(body[:8] + bytes(16) + body[24:])),
        (wire.NO_REPORTS, signed(body[:40] + bytes(4))),
        (wire.TOO_MANY, signed(body[:40] + b"\0\0\0\12" + 10 * body[44:])),
        (wire.TRAILING, signed(body + bytes(1))),
        (wire.WRONG_CHECKSUM, sound[:-1] + bytes([sound[-1] ^ 1])),
        *impossible(terms, body, signed),
    ]


def impossible(terms: wire.ReleaseTerms, body: bytes, signed: Any) -> list[tuple[str, bytes]]:
    """All bits set: padding that is not zero, or a symbol that does not exist."""
    payload = b"\xff" * terms.report_bytes
    return [(wire.IMPOSSIBLE, signed(body[: wire.HEADER_BYTES] + payload))]


def identities() -> list[dict[str, Any]]:
    """Releases, their canonical texts and digests."""
    key = bytes(range(32))
    plain = ReleaseIdentity("people", "r")
    listed = [
        plain,
        ReleaseIdentity("naïve – ünïcode ✓ 🎈", 'a "quoted" \\ name / <&>', columns=("b", "a")),
        ReleaseIdentity(
            "people", "week-47", "00ff" * 8, ("url",), "ab" * 16, "cd" * 16, "one row of each uid",
        ).of_window(0, 3_600_000_000).of_group("städte").committed(key),
        ReleaseIdentity("people", "r", privacy_unit="person-day", reports_per_envelope=4096),
        plain.of_round(3),
        plain.permanent,
    ]  # fmt: skip
    return [
        {"identity": one.to_json(), "text": one.text, "digest": one.digest.hex()} for one in listed
    ] + [{"key": key.hex(), "commitment": key_commitment(key)}]


def main() -> None:
    path = FOLDER / "identities" / "identities.json"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(identities(), indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name in MECHANISMS:
        path = FOLDER / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(vector(name), indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name in DESIGNS:
        path = QUESTIONS / f"{name}.json"
        if not path.exists():
            path.write_text(json.dumps(questions_vector(name)) + "\n", "utf-8")


if __name__ == "__main__":
    main()
