"""Variances of sums and differences of one release: against the whole channel, by enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers.contrasts import (
    _enumerated,
    _moments,
    combination_variance,
    covariance,
)
from beam_ldp.randomizers.frequency import (
    HadamardResponse,
    KRandomizedResponse,
    LocalHashing,
    ProjectiveGeometryResponse,
    RecoverableResponse,
    SubsetSelection,
    UnaryEncoding,
)

TRUTH = np.array([0.4, 0.3, 0.2, 0.1, 0.0])
ORACLES = [
    KRandomizedResponse(5, 1.5),
    SubsetSelection(5, 0.7),
    SubsetSelection(5, 0.7, 3),
    SubsetSelection(5, 3.0),
    UnaryEncoding(5, 1.0),
    UnaryEncoding(5, 1.0, optimized=False),
    ProjectiveGeometryResponse(5, 1.5, 2),
    ProjectiveGeometryResponse(5, 1.5, 3),
    RecoverableResponse(5, 1.0),
]
pytestmark = pytest.mark.exact


@pytest.mark.parametrize("oracle", ORACLES, ids=str)
def test_formulas_are_those_of_the_channel(oracle):
    rows = np.random.default_rng(1).normal(size=(7, 5))
    supports = oracle.squared_support(rows)
    assert supports is not None
    for formula, enumerated in zip(_moments(oracle, rows, supports), _enumerated(oracle, rows)):
        np.testing.assert_allclose(formula, enumerated, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("oracle", ORACLES, ids=str)
@pytest.mark.parametrize("sampling", ["fixed", "iid"])
def test_single_values_have_the_variance_of_the_oracle(oracle, sampling):
    found = combination_variance(oracle, np.eye(5), 100, TRUTH, sampling)
    np.testing.assert_allclose(found, oracle.variance(100, TRUTH, sampling), rtol=1e-9)


def test_two_values_and_another_family():
    """Two values have no pair of others; a channel without exchangeable pairs is enumerated."""
    oracle = SubsetSelection(2, 1.0)
    rows = np.array([[1.0, -1.0]])
    np.testing.assert_allclose(
        _moments(oracle, rows, oracle.squared_support(rows))[1], _enumerated(oracle, rows)[1]
    )
    hadamard = HadamardResponse(5, 1.0)
    assert hadamard.squared_support(np.eye(5)) is None
    found = combination_variance(hadamard, np.eye(5), 10, TRUTH)
    np.testing.assert_allclose(found, hadamard.variance(10, TRUTH), rtol=1e-9)


@pytest.mark.parametrize("oracle", [ORACLES[0], ORACLES[1], ORACLES[4]], ids=str)
def test_the_matrix_gives_every_sum(oracle):
    matrix = covariance(oracle, 10, TRUTH, "iid")
    assert np.array_equal(matrix, matrix.T)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12
    weights = np.array([1.0, -2.0, 0.5, 0.0, 3.0])
    direct = combination_variance(oracle, weights, 10, TRUTH, "iid")
    assert weights @ matrix @ weights == pytest.approx(direct, rel=1e-9)


def test_what_cannot_be_enumerated_is_refused():
    oracle = LocalHashing(5000, 1.0)
    with pytest.raises(NotImplementedError):
        combination_variance(oracle, np.ones(5000), 10, np.full(5000, 1 / 5000))
    with pytest.raises(ValueError, match="weights must hold 5 numbers"):
        combination_variance(ORACLES[0], np.ones(4), 10, TRUTH)
    with pytest.raises(ValueError, match="num_users"):
        combination_variance(ORACLES[0], np.ones(5), 0, TRUTH)


@pytest.mark.statistical
def test_simulated_sums_spread_as_computed():
    """400 releases of 2,000 people; the ratio of variances within 5 of its standard errors."""
    oracle = SubsetSelection(5, 0.7, 2)
    rng = np.random.default_rng(7)
    values = np.repeat(np.arange(5), (TRUTH * 2000).astype(int))
    weights = np.array([1.0, 1.0, 0.0, -1.0, 0.0])
    sums = []
    for _ in range(400):
        reports = oracle.randomize(values, rng)
        sums.append(weights @ oracle.estimate(oracle.accumulate(reports), 2000).value)
    expected = combination_variance(oracle, weights, 2000, TRUTH)
    assert abs(np.var(sums) / expected - 1) < 5 * np.sqrt(2 / 399)
