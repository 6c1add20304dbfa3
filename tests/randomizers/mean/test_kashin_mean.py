"""SQKR: the frame, the level, the exact error, and the reports."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.kashin_mean import KashinMean, best_bits, kashin_error
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from tests.randomizers.mean.golden_errors import golden

PUBLISHED_LEVEL = 1 / ((1 - 0.4) * math.sqrt(0.8))  # 1.863, which public code claims


def units(n, d):
    x = np.random.default_rng(d).standard_normal((n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("row", "level"), [("1.863", PUBLISHED_LEVEL), ("1.5", 1.5), ("rule", PUBLISHED_LEVEL)]
)
def test_error_has_the_known_figures(row, level):
    for d, epsilon, figure, half_digit in golden(f"kashin {row}"):
        rule = math.floor(epsilon * math.log2(math.e))
        bits = max(1, rule) if row == "rule" else best_bits(d, epsilon, level)
        best = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
        assert kashin_error(d, epsilon, level, bits) / best == pytest.approx(
            figure, abs=1.01 * half_digit
        )


@pytest.mark.exact
def test_best_number_of_bits():
    assert [best_bits(1024, e) for e in (1, 2, 4, 8, 16)] == [1, 2, 4, 8, 18]


@pytest.mark.exact
@pytest.mark.parametrize("d", [128, 1000])
def test_representation_is_exact_and_mostly_even(d):
    mechanism = KashinMean(d, 4.0)
    vectors = units(200, d)
    even = mechanism.represent(vectors)
    assert np.allclose(mechanism._synthesize(even), vectors, atol=1e-12)
    assert np.allclose(mechanism._synthesize(mechanism._analyze(vectors)), vectors)
    level = np.abs(even).max(axis=1) * math.sqrt(mechanism.coefficients)
    assert np.mean(level > mechanism.level) <= 0.02


@pytest.mark.exact
def test_the_public_parameters_miss_the_level_they_claim_and_ours_do_not():
    """Shrinking by 0.4 for floor(ln N) rounds: over a tenth of levels exceed the 1.863 claimed."""
    mechanism = KashinMean(128, 4.0, redundancy=2)
    vectors, size = units(400, 128), mechanism.coefficients
    rest, total = vectors.copy(), np.zeros((400, size))
    bound = 0.4**0 / math.sqrt(0.8 * size)
    for _ in range(math.floor(math.log(size))):
        part = np.clip(mechanism._analyze(rest), -bound, bound)
        rest -= mechanism._synthesize(part)
        total += part
        bound *= 0.4
    public = np.abs(total + mechanism._analyze(rest)).max(axis=1) * math.sqrt(size)
    ours = np.abs(KashinMean(128, 4.0).represent(vectors)).max(axis=1)
    ours = ours * math.sqrt(KashinMean(128, 4.0).coefficients)
    assert np.mean(public > PUBLISHED_LEVEL) > 0.1
    assert np.mean(ours > PUBLISHED_LEVEL) < 0.01


@pytest.mark.exact
def test_level_one_and_a_half_holds_for_nearly_all_vectors_of_many_dimensions():
    """1.66 times the optimum is reached with N = 4 d at level 1.5: at most 2 % exceed it."""
    mechanism = KashinMean(1024, 1.0, level=1.5)
    level = np.abs(mechanism.represent(units(100, 1024))).max(axis=1)
    assert np.mean(level * math.sqrt(mechanism.coefficients) > 1.5) <= 0.02
    best = PrivUnit(1024, 1.0, inputs="sphere").mean_squared_error(1)
    assert mechanism.mean_squared_error(1, units(1, 1024)[0]) / best == pytest.approx(
        1.665, abs=0.001
    )


@pytest.mark.exact
@pytest.mark.parametrize(("epsilon", "bits"), [(0.5, 1), (4.0, 4), (8.0, None)])
def test_budget(epsilon, bits):
    mechanism = KashinMean(100, epsilon, bits=bits)
    assert epsilon - 1e-8 < mechanism.log_ratio_max() <= epsilon
    error = kashin_error(100, epsilon, mechanism.level, mechanism.bits)
    assert mechanism.mean_squared_error(1, units(1, 100)[0]) == pytest.approx(error, rel=1e-6)
    assert mechanism.mean_squared_error(1) >= error


@pytest.mark.statistical
@pytest.mark.parametrize("length", [0.0, 0.6, 2.0])
def test_bias_and_error(length):
    """20,000 reports of one vector: coordinates within 5 s.e., error of one report within 6 %."""
    n, d = 20_000, 60
    mechanism = KashinMean(d, 4.0, radius=2.0, level=2.5)
    vector = length * units(1, d)[0]
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(1))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, vector)
    assert (np.abs(estimate.value - vector) < 5 * np.sqrt(exact)).all()
    singles = np.array([
        mechanism.estimate(mechanism.accumulate(reports[i : i + 1]), 1).value for i in range(1500)
    ])  # fmt: skip
    error = ((singles - vector) ** 2).sum(axis=1).mean()
    assert error == pytest.approx(mechanism.mean_squared_error(1, vector), rel=0.06)


@pytest.mark.exact
def test_reports_travel_and_refusals():
    mechanism = KashinMean(30, 3.0)
    reports = mechanism.randomize(units(9, 30))
    assert np.array_equal(mechanism.unpack(mechanism.pack(reports), 9), reports)
    parts = mechanism.accumulate(reports[:4]) + mechanism.accumulate(reports[4:])
    assert np.array_equal(parts, mechanism.accumulate(reports))
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    for bad in (reports.astype(float), np.array([1 << 60], dtype=np.uint64)):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)
    for options in ({"bits": 0}, {"level": 0.5}, {"redundancy": 3}):
        with pytest.raises(ValueError, match="bits|level|redundancy"):
            KashinMean(30, 3.0, **options)
