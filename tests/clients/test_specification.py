"""The JavaScript client against the specification, as `tests/spec` holds NumPy against it.

Slow not by its seconds: it needs Node, which `make test` must not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from spec import frequency, names, wire
from tests.clients.test_javascript import client
from tests.randomizers.make_wire_vectors import draws, mechanism_of, release_terms
from tests.spec.compare import WORDS, words_beside, words_of

pytestmark = [pytest.mark.slow, pytest.mark.exact]


def configs() -> list[dict[str, Any]]:
    """Random parameters, and the edges: two values, many, budgets near zero and at the limit."""
    generator = np.random.default_rng(5)
    found: list[dict[str, Any]] = []
    edges = [(2, 1e-3), (2, 8.0), (3, 8.0), (5000, 8.0)]
    drawn = [(int(generator.integers(4, 300)), float(generator.uniform(0.1, 6))) for _ in range(4)]
    for size, epsilon in edges + drawn:
        base = {"version": 1, "domain_size": size, "local_epsilon": epsilon}
        blocks = 1 << int(generator.integers(0, min(6, (size - 1).bit_length()) + 1))
        found += [
            {"mechanism": "KRandomizedResponse", **base},
            {"mechanism": "HadamardResponse", **base, "num_blocks": blocks},
        ]
        if size <= 300:
            found += [{"mechanism": "UnaryEncoding", **base, "optimized": bool(size % 2)}]
    return found


def vector_for(config: dict[str, Any]) -> dict[str, Any]:
    """A vector of what the specification says."""
    mechanism, size = mechanism_of(config), config["domain_size"]
    generator = np.random.default_rng(size)
    words = [0, 1, 1 << 63, WORDS - 1, *generator.integers(0, WORDS, 40, dtype=np.uint64).tolist()]
    unary = config["mechanism"] == "UnaryEncoding"
    law = draws(config, mechanism, [])["law"]
    if unary:
        words += [int(law["own"]) - 1, int(law["other"]) - 1, int(law["other"])]
    else:
        words += words_beside(int(law["threshold"]), mechanism.counts[0])
    drawn = [[i % (2 if unary else size), str(word)] for i, word in enumerate(words)]
    values = [f"value {i} ✓" for i in range(size - 1)]
    identity = {
        "identity_version": 2, "dataset": "d", "release_id": "week 47 ✓", "columns": ["a"],
        "values": names.digest_of(*values, "other"), "groups": "", "bounding": "row", "part": "",
        "group": "", "key": "", "privacy_unit": "user", "reports_per_envelope": 3,
    }  # fmt: skip
    terms = release_terms(config, mechanism, identity)
    reports = [
        mechanism.randomize(i % size, words_of([WORDS // 3 * (i + 1) % WORDS] * mechanism.words))
        for i in range(3)
    ]
    packed = [wire.pack(mechanism, report) for report in reports]
    return {
        "terms": terms, "values": values, "other": "other", **draws(config, mechanism, drawn),
        "reports": [report if unary else report[0] for report in reports],
        "envelope_id": "ab" * 16, "payload": b"".join(packed).hex(),
        "envelope": wire.envelope(terms["identity"], packed, b"\xab" * 16, False).hex(),
    }  # fmt: skip


def test_word_by_word():
    """Reports of random and of extreme words, their bytes and envelopes. Node's `exp` may round its
    last digit otherwise, so the words beside the threshold are asked where both have it alike."""
    given = [vector_for(config) for config in configs()]
    alike = 0
    for vector, found in zip(given, client("vectors", vectors=given)):
        law, size = vector["law"], len(vector["values"]) + 1
        for name, threshold in law.items():
            assert (
                abs(int(found["law"][name]) - int(threshold)) <= int(threshold) / 2**48 + 2 * size
            )
        alike += found["law"] == law
        sure = None if found["law"] == law else -3
        expected = [draw.get("report", draw.get("bit")) for draw in vector["draws"]]
        assert len(expected) >= 46 and found["draws"][:sure] == expected[:sure]
        assert found["payload"] == vector["payload"]
        assert found["envelope"] == vector["envelope"]
        assert found["identity"] == names.identity_text(vector["terms"]["identity"])
    assert alike > len(given) / 2


def test_thresholds_are_mostly_the_same_to_the_last_bit():
    """Of 300 random laws; the rest differ by what the last digit of `exp` makes."""
    generator = np.random.default_rng(7)
    asked, expected = [], []
    for _ in range(100):
        size, epsilon = int(generator.integers(2, 5000)), float(generator.uniform(0.01, 12))
        asked += [(size, 1, epsilon), (1 << 12, 1 << 5, epsilon)]
        expected += [str(frequency.two_level_threshold(*law)) for law in asked[-2:]]
        asked.append((1, 0, epsilon))
        expected.append([str(part) for part in frequency.unary_thresholds(epsilon, True)])
    found = [one.get("threshold") or [one["own"], one["other"]]
             for one in client("thresholds", laws=asked)]  # fmt: skip
    same = sum(a == b for a, b in zip(found, expected))
    assert same > 0.8 * len(asked), same
