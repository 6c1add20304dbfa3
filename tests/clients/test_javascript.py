"""The reference client in JavaScript, under Node: the same law, the same bytes.

Slow not by its seconds: it needs Node, which `make test` must not.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers.domain import Domain
from beam_ldp.randomizers.frequency import HadamardResponse, KRandomizedResponse, UnaryEncoding
from beam_ldp.randomizers.identity import digest_of
from beam_ldp.randomizers.mean import ScalarMean
from beam_ldp.randomizers.wire import GroupTerms, ReleaseTerms, decode_envelope
from beam_ldp.randomizers.words import WORD_VALUES, TwoLevelLaw
from beam_ldp.release.devices.release_file import ReleaseFile
from tests.randomizers import wire_terms

pytestmark = pytest.mark.slow

SIGMA_4_5 = 7e-6  # two-sided
HERE = Path(__file__).parent
SHARES = HERE.parent / "randomizers" / "share_vectors" / "split_and_mix_mean.json"
WIRE_VECTORS = HERE.parent / "randomizers" / "wire_vectors"
VECTORS = [
    path
    for path in sorted(WIRE_VECTORS.glob("*.json"))
    if "mean" not in path.stem  # the client knows frequency oracles alone
]
VALUES = ("red", "green", "blue", "naïve ✓")
DOMAIN = Domain(VALUES)
ORACLES = {
    "k-RR": KRandomizedResponse(5, 1.5),
    "k-RR of two": KRandomizedResponse(2, 0.7),
    "Hadamard, one block": HadamardResponse(5, 1.0, num_blocks=1),
    "Hadamard, blocks": HadamardResponse(5, 2.0, num_blocks=2),
    "unary": UnaryEncoding(5, 1.5),
    "symmetric unary": UnaryEncoding(5, 2.5, optimized=False),
}


def client(run: str, **command: Any) -> Any:
    """What the client answers to one command."""
    node = shutil.which("node")
    assert node, "these tests need Node.js (`make tools`)"
    text = json.dumps({"run": run, **command})
    arguments = [node, str(HERE / "drive_client.js")]
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def terms_of(oracle: Any, release_id: str = "r") -> tuple[ReleaseTerms, tuple[str, ...]]:
    values = VALUES[: oracle.domain_size - 1]
    return wire_terms.terms_of(oracle, release_id, values=Domain(values).digest.hex()), values


@pytest.mark.exact
@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.stem)
def test_vectors(path):
    """Thresholds to the last bit, what words become, payload and envelope."""
    vector = json.loads(path.read_text("utf-8"))
    found = client("vector", vector=vector)
    assert found["law"] == vector["law"]
    assert found["draws"] == [draw.get("report", draw.get("bit")) for draw in vector["draws"]]
    assert len(found["draws"]) >= 40
    assert found["payload"] == vector["payload"]
    assert found["envelope"] == vector["envelope"]
    assert found["identity"] == vector["identity_text"]
    assert found["bits"] == vector["terms"]["bits_per_report"]


@pytest.mark.exact
def test_identities():
    """Text and digest of each, whatever its names are written in; the commitment to a key."""
    *vectors, key = json.loads((WIRE_VECTORS / "identities" / "identities.json").read_text("utf-8"))
    found = client("identities", vectors=vectors, key=key["key"])
    assert len(vectors) >= 6 and found["commitment"] == key["commitment"]
    assert found["found"] == [{"text": v["text"], "digest": v["digest"]} for v in vectors]


@pytest.mark.exact
def test_checksums():
    contents = [b"", b"123456789", bytes(range(256)) * 7]
    found = client("checksums", contents=[content.hex() for content in contents])
    assert found == [zlib.crc32(content) for content in contents]


@pytest.mark.exact
def test_laws_of_any_size_are_private():
    """No implemented ratio exceeds exp(local_epsilon), and thresholds are Python's but for exp's
    last digit."""
    generator = np.random.default_rng(3)
    laws, expected = [], []
    for epsilon in [1e-6, 0.1, 1.0, *generator.uniform(0.01, 12, 150).tolist()]:
        symbols = int(generator.integers(2, 5000))
        power = 1 << int(generator.integers(1, 16))
        for v, s in ((symbols, 1), (power, max(1, power // 4)), (2 * power, power // 2)):
            if 0 < s < v:
                laws.append((v, s, epsilon))
                expected.append(TwoLevelLaw(v, s, epsilon).threshold)
    found = client("thresholds", laws=laws)
    with mpmath.workprec(200):
        for (v, s, epsilon), answer, threshold in zip(laws, found, expected):
            mine = int(answer["threshold"])
            others = Fraction(WORD_VALUES - mine, v)
            ratio = (Fraction(mine, s) + others + 1) / (others - 1)
            most = mpmath.exp(mpmath.mpf(epsilon))
            assert mpmath.mpf(ratio.numerator) / ratio.denominator <= most
            assert abs(mine - threshold) <= threshold / 2**48 + 2 * v, (v, s, epsilon)


@pytest.mark.exact
def test_unary_laws_are_private():
    epsilons = [1e-3, 0.5, 1.0, 2.0, 8.0, 25.0, 60.0, 70.0]
    for optimized in (True, False):
        found = client("thresholds", laws=[(int(optimized), 0, e) for e in epsilons])
        for epsilon, law in zip(epsilons, found):
            own, other = (Fraction(int(law[name]), WORD_VALUES) for name in ("own", "other"))
            ratio = own * (1 - other) / (other * (1 - own))
            with mpmath.workprec(200):
                assert mpmath.mpf(ratio.numerator) / ratio.denominator <= mpmath.exp(epsilon)
            if epsilon <= 8:
                coins = UnaryEncoding(3, epsilon, optimized)._coins
                for name, coin in zip(("own", "other"), coins):
                    assert abs(int(law[name]) - coin.threshold) <= coin.threshold / 2**48


@pytest.mark.statistical
@pytest.mark.parametrize("name", ORACLES)
def test_reports_follow_the_channel(name):
    """Chi-square of 40,000 reports of each of two values against the channel, at the level of 4.5
    sigma (7e-6). The words are those of a fixed seed; with others 12 tests fail by chance once in
    12,000 runs."""
    oracle = ORACLES[name]
    terms, values = terms_of(oracle)
    channel, times = oracle.channel(), 40_000
    for index in (0, oracle.domain_size - 1):
        counts = client(
            "count", terms=terms.to_json(), values=values, index=index, times=times, seed=47
        )
        seen = np.zeros(len(channel))
        for report, count in counts.items():
            seen[int(report)] = count
        expected = times * channel[:, index]
        assert seen.sum() == times
        score = ((seen - expected) ** 2 / expected).sum()
        assert stats.chi2.sf(score, len(channel) - 1) > SIGMA_4_5, (name, index, score)


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["k-RR", "Hadamard, blocks", "unary"])
def test_answers_are_read_by_the_collector(name):
    """800 devices answer; the estimate lies within 4.5 standard errors (a fixed seed; with other
    ones 15 comparisons fail by chance once in 10,000 runs)."""
    oracle: Any = ORACLES[name]
    terms, values = terms_of(oracle, "week 47 ✓")
    given = ["red"] * 400 + ["naïve ✓"] * 200 + ["something else"] * 200
    sent = client("answers", terms=terms.to_json(), values=values, given=given, seed=7)
    envelopes = [decode_envelope(terms, bytes.fromhex(text)) for text in sent]
    assert {len(text) // 2 for text in sent} == {terms.envelope_bytes(1)}
    assert len({envelope.envelope_id for envelope in envelopes}) == len(given)
    reports = np.concatenate([envelope.reports for envelope in envelopes])
    estimate = oracle.estimate(oracle.accumulate(reports), len(given))
    truth = np.array([0.5, 0, 0, 0.25, 0.25])
    errors = np.sqrt(oracle.variance(len(given), truth))
    assert (np.abs(estimate.value - truth) < 4.5 * errors).all()


@pytest.mark.exact
def test_terms_that_a_device_refuses():
    terms, values = terms_of(ORACLES["k-RR"])
    sound = terms.to_json()
    strong, _ = terms_of(KRandomizedResponse(5, 9.0))
    other = sound["identity"]
    cases = [
        (sound, values, {}, "taken"),
        (sound, values, {"maxLocalEpsilon": 1}, "local_epsilon 1.5 is above the limit"),
        (strong.to_json(), values, {}, "local_epsilon 9 is above the limit"),
        (strong.to_json(), values, {"maxLocalEpsilon": 10}, "taken"),
        (sound, values[:-1], {}, "the list is another one"),
        (sound, (*values[:-1], "black"), {}, "the list is another one"),
        (sound, values, {"other": "rest"}, "the list is another one"),
        (sound, (*values, "red"), {}, "the list repeats a value"),
        ({**sound, "release_id": "week-48"}, values, {}, "release_id is another one"),
        ({**sound, "identity": {**other, "release_id": ""}}, values, {}, "the release has no name"),
        ({**sound, "identity": {**other, "dataset": "x"}}, values, {},
         "identity_digest is another one"),
        ({**sound, "identity": {**other, "identity_version": 1}}, values, {},
         "unknown kind of identity"),
        ({**sound, "identity": None}, values, {}, "unknown kind of identity"),
        (replace(terms, identity=terms.identity.committed(bytes(32))).to_json(), values, {},
         "a release of somebody else"),
        ({**sound, "format_version": 1}, values, {}, "unknown version of the format"),
        ({**sound, "terms_version": 1}, values, {}, "unknown version of the terms"),
        ({**sound, "bits_per_report": 4}, values, {}, "bits_per_report is another one"),
        (
            {**sound, "mechanism": sound["mechanism"].replace("1.5", "0.5")},
            values, {}, "the mechanism is another one",
        ),
        (json.loads(SHARES.read_text())["terms"], values, {},
         "shares protect nobody unless whoever collects is trusted: this client sends none"),
        (wire_terms.terms_of(ScalarMean(1, 2.0)).to_json(), values, {},
         "unknown mechanism: this client knows KRandomizedResponse, HadamardResponse, "
         "UnaryEncoding"),
    ]  # fmt: skip
    asked = [{"terms": t, "values": v, "options": o} for t, v, o, _ in cases]
    assert client("refusals", cases=asked) == [answer for *_, answer in cases]


@pytest.mark.exact
def test_words_come_from_the_system_alone():
    """The client is one file without imports, and its only randomness is that of Web Crypto."""
    source = (HERE.parents[1] / "docs" / "clients" / "beam_ldp.js").read_text("utf-8")
    assert source.count("crypto.getRandomValues(") == 2
    for word in ("Math.random", "import ", "require(", "fetch(", "Date"):
        assert word not in source


def test_a_device_names_its_group() -> None:
    """Its envelopes are of the group's own release; a group outside the list is `other`, and a list
    that is not the collector's is refused."""
    groups = Domain(("DE", "städte"))
    plain, values = terms_of(ORACLES["k-RR"], "week-47")
    listed = digest_of(b"country", groups.digest).hex()
    shared = replace(plain, identity=replace(plain.identity, groups=listed))
    terms = ReleaseFile(shared, "fixed", None, "country", groups.digest).to_json()
    collector = GroupTerms(shared, groups.labels)
    for group, expected in (("DE", 0), ("städte", 1), ("elsewhere", 2), (None, 2)):
        options = {"groups": groups.values, "group": group}
        sent = client("answers", terms=terms, values=values, given=["red"], options=options)
        assert collector.decode(bytes.fromhex(sent[0]))[0] == expected
    cases = [
        (terms, {"groups": ["DE"], "group": "DE"}, "the list of groups is another one"),
        (terms, {"group": "DE"}, "a release of groups: the list of groups is missing"),
        (plain.to_json(), {"group": "DE"}, "the release has no groups"),
    ]
    asked = [{"terms": told, "values": values, "options": how} for told, how, _ in cases]
    assert client("refusals", cases=asked) == [message for *_, message in cases]
