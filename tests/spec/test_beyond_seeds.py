"""Means by seeds and by shares against what is written down of them beyond the specification."""

from __future__ import annotations

import inspect
import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers.discrete_noise import DiscreteGaussian
from beam_ldp.randomizers.mean import (
    KashinMean,
    MinimalRandomCoding,
    ProjectedPrivUnit,
    RandomCodebookMean,
    RotatedSimplexMean,
    SeedCompressedMean,
    SplitAndMixMean,
)
from spec import frequency, wire
from tests.spec import beyond_directions, beyond_seeds, compare

pytestmark = pytest.mark.exact

CODEBOOKS = {
    "closest": RandomCodebookMean(8, 3.0, index_bits=4, closest=3),
    "closest, a power of two": RandomCodebookMean(10, 1.0, 2.0, index_bits=5, closest=4),
    "closest, of two": RandomCodebookMean(8, 6.0, inputs="sphere", index_bits=1, closest=1),
    "corners": RotatedSimplexMean(9, 3.0, index_bits=3, closest=3),
    "corners, as many as dimensions": RotatedSimplexMean(8, 1.0, 2.0, index_bits=3, closest=2),
    "corners, of two": RotatedSimplexMean(5, 6.0, inputs="sphere", index_bits=1, closest=1),
    "cap": MinimalRandomCoding(8, 3.0, index_bits=4),
    "cap, few candidates": MinimalRandomCoding(10, 6.0, 0.1, index_bits=2, seed_bits=20),
    "cap, hardly any budget": MinimalRandomCoding(8, 0.2, inputs="sphere", index_bits=5),
}
TRIED = {
    "tried": SeedCompressedMean(5, 2.0),
    "tried, of a sphere": SeedCompressedMean(3, 4.0, 2.0, inputs="sphere", coordinate_bits=12),
}
KASHIN = {
    "kashin": KashinMean(12, 4.0),
    "kashin, one bit": KashinMean(5, 0.5, 3.0, bits=1),
    "kashin, many bits": KashinMean(30, 12.0, bits=9, level=1.2, redundancy=2),
}
SHARES = {
    "three": SplitAndMixMean(5, radius=2.0, shares=3),
    "coarse": SplitAndMixMean(
        2, cells=3, noise_deviation=0.5, modulus_bits=12, shares=2, rotation_seed=5
    ),
    "wide": SplitAndMixMean(9, cells=4096, noise_deviation=300.0, modulus_bits=40, shares=5),
}
PROJECTED = {
    "projected": ProjectedPrivUnit(20, 4.0, projected=8),
    "projected, to two": ProjectedPrivUnit(5, 1.0, 3.0, projected=2, sign_seed=7),
    "projected, all": ProjectedPrivUnit(16, 8.0, inputs="sphere", projected=16, coordinate_bits=11),
    "projected, at random": ProjectedPrivUnit(
        40, 4.0, projected=17, coordinate_bits=6, rounding="random"
    ),
}


def made(mechanism: Any) -> Any:
    function = vars(beyond_seeds)[type(mechanism).__name__]
    config = json.loads(json.dumps(mechanism.to_config()))
    if isinstance(mechanism, MinimalRandomCoding):  # whose search is its own
        config["g"] = mechanism.coded_cap.threshold
    if config.get("rounding") == "random":
        config["end"] = mechanism._largest_coordinate
    told = inspect.signature(function).parameters
    return function(**{name: config[name] for name in told if name in config})


def vectors_for(mechanism: Any, count: int) -> np.ndarray:
    values = np.random.default_rng(5).normal(size=(count, mechanism.dimension))
    values *= mechanism.radius / np.linalg.norm(values, axis=1, keepdims=True)
    values[: count // 2] *= np.linspace(0.0, 1.0, count // 2)[:, None]  # from zero on
    return np.asarray(mechanism._check_values(values))


def test_aes_is_the_standard_s():
    """FIPS 197, appendix C.1."""
    key, block = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    assert beyond_seeds.aes128(key, block).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


@pytest.mark.parametrize("name", [*CODEBOOKS, *KASHIN, *TRIED])
def test_word_by_word(name):
    """Seeds and symbols, bytes, and what is read from them to 1e-12."""
    mechanism = {**CODEBOOKS, **KASHIN, **TRIED}[name]
    words = compare.words_for(mechanism.words_per_user, 40, 6)
    compare.check(mechanism, vectors_for(mechanism, 40), words, made(mechanism))


@pytest.mark.parametrize("name", [*CODEBOOKS, *TRIED])
def test_laws_of_what_is_named(name):
    """Its mean height, by sums over counts or over heights."""
    mechanism = {**CODEBOOKS, **TRIED}[name]
    spec, largest = made(mechanism), mechanism.fixed_point.largest
    assert mechanism.radius / float(spec.gain) / largest == pytest.approx(
        mechanism.marginal, rel=1e-12
    )


@pytest.mark.parametrize("name", KASHIN)
def test_even_representations(name):
    mechanism = KASHIN[name]
    values = vectors_for(mechanism, 10)
    told = [beyond_seeds.even_representation(x, mechanism.coefficients) for x in values.tolist()]
    np.testing.assert_allclose(
        mechanism.represent(values), told, rtol=0, atol=1e-12 * mechanism.radius
    )


@pytest.mark.parametrize("name", PROJECTED)
def test_projections(name):
    mechanism = PROJECTED[name]
    spec, real = made(mechanism)
    assert spec.words == mechanism.words_per_user
    values, words = vectors_for(mechanism, 30), compare.words_for(spec.words, 36, 6)[6:]
    reports = np.empty((30, *mechanism.report_shape), dtype=np.int32)
    mechanism._randomize_block(values, words, compare.extra_words, reports)
    largest = float(mechanism.fixed_point.largest)
    for i, (x, row) in enumerate(zip(values.tolist(), words.tolist())):
        told = np.array(real(x, compare.words_of(row, i)))
        assert np.abs(reports[i, :-1] - told).max() <= 0.5 + 1e-12 * largest
    half = 1 << mechanism.coordinate_bits - 1
    mine = [[seed + (1 << 31), *(a + half for a in row)] for *row, seed in reports.tolist()]
    assert [row[0] for row in mine] == (words[:, 1] >> np.uint64(32) ^ np.uint64(1 << 31)).tolist()
    assert b"".join(wire.pack(spec, row) for row in mine) == mechanism.pack_each(reports).tobytes()
    found = mechanism.estimate(mechanism.accumulate(reports), 30).value
    exact = [float(frequency.estimate(spec, mine, j)) for j in range(mechanism.dimension)]
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12 * float(spec.gain) * largest)


@pytest.mark.parametrize("name", SHARES)
def test_shares(name):
    """Every message; sums; and a mean of several people, whose sums have no sign of their own."""
    mechanism = SHARES[name]
    spec, count = made(mechanism), 12
    values = vectors_for(mechanism, count)
    words = compare.words_for(mechanism.words_per_user, count + 6, 6)
    reports, mine = compare.both(mechanism, values, words[6:], spec)
    assert reports.tolist() == mine
    assert b"".join(wire.pack(spec, row) for row in mine) == mechanism.pack_each(reports).tobytes()
    both, together = compare.both(mechanism, values[:6], words[:6], spec)
    assert both.tolist() == together
    modulus = mechanism.modulus
    total = [sum(column) % modulus for column in zip(*mine)]
    found = mechanism.estimate(mechanism.accumulate(reports), count).value
    told = [spec.read(total, j) / count for j in range(mechanism.dimension)]
    np.testing.assert_allclose(found, told, rtol=1e-12, atol=1e-12 * mechanism.radius)


def test_vectors_that_rounding_makes_too_long():
    """All up, or all down, as a few words of all can: rounded towards zero instead."""
    mechanism = SplitAndMixMean(64, cells=100, noise_deviation=0.5, modulus_bits=20, shares=2)
    spec = made(mechanism)
    values = np.array([[1.0], [-1.0], [1.0], [-1.0]]) * np.eye(64)[0]
    ends = [0, 0, compare.WORDS - 1, compare.WORDS - 1]
    words = np.repeat(np.array(ends, dtype=np.uint64)[:, None], spec.words, axis=1)
    words[:, 64:128] = 1 << 63  # no noise
    reports, mine = compare.both(mechanism, values, words, spec)
    assert reports.tolist() == mine
    sums = (reports.reshape(4, 64, 2).sum(axis=2, dtype=np.int64) + (1 << 19)) % (1 << 20)
    assert set(np.abs(sums - (1 << 19)).ravel().tolist()) == {12}  # 12.5, never 13


def test_noise_beside_the_thresholds():
    """Where 64 bits leave it open, on both sides of the next 64."""
    for deviation in (0.5, 3.0, 64.0):
        law = DiscreteGaussian(deviation)
        reach, chances = beyond_seeds.discrete_gaussian(deviation)
        assert reach == law.reach
        told = law.thresholds()
        assert max(abs(a - b) for a, b in zip(chances, told)) <= 2, "of 2**128"
        middle = chances[reach]  # of at most 0
        high, low = divmod(middle, compare.WORDS)
        for more in (low - 3, low + 3):
            drawn = law.draw(
                np.array([[high]], dtype=np.uint64),
                lambda rows, positions, more=more: np.array([more], dtype=np.uint64),
            )
            assert drawn[0, 0] == (0 if more < low else 1)


def test_best_numbers_of_favoured_candidates():
    """k of the greatest mean, by trying all."""
    for epsilon, bits in ((0.5, 4), (3.0, 4), (6.0, 3)):
        size = 1 << bits
        means = {
            k: math.expm1(epsilon) * beyond_seeds.top_sum(8, k, size)
            / (k * math.exp(epsilon) + size - k)
            for k in range(1, size)
        }  # fmt: skip
        chosen = RandomCodebookMean(8, epsilon, index_bits=bits).favoured
        assert chosen == max(means, key=means.__getitem__)


def test_caps_of_codes_are_where_no_other_is_better():
    mechanism = CODEBOOKS["cap"]
    best = mechanism.coded_cap
    assert best.cap.measure == pytest.approx(beyond_directions.cap(8, best.threshold)[0], rel=1e-12)
    for factor in (1 - 1e-3, 1 + 1e-3):
        assert replace(best, threshold=best.threshold * factor).marginal <= best.marginal
