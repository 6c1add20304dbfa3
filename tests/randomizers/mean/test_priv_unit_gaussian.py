"""PrivUnitG: the budget, the known errors, and the law of the reports."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_gaussian import (
    NormalTail,
    PrivUnitGaussian,
    limiting_threshold,
)
from tests.randomizers.mean.golden_errors import golden

LIMITS = {1: 0.3975, 2: 0.7865, 4: 1.5156, 8: 2.7429, 16: 4.5613, 32: 7.0920}


@pytest.mark.exact
def test_error_has_the_known_figures():
    for d, epsilon, figure, half_digit in golden("gaussian"):
        best = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
        error = PrivUnitGaussian(d, epsilon, inputs="sphere").mean_squared_error(1)
        assert error / best == pytest.approx(figure, abs=half_digit)
        assert error > best


@pytest.mark.exact
@pytest.mark.parametrize(("epsilon", "threshold"), LIMITS.items())
def test_limiting_threshold_is_the_known_fixed_point(epsilon, threshold):
    found = limiting_threshold(epsilon)
    tail = NormalTail(found)
    odds = epsilon - tail.log_odds_outside
    assert found == pytest.approx(threshold, abs=5.1e-5)
    assert tail.marginal(1 / (1 + math.exp(-odds))) == pytest.approx(found, rel=1e-10)


@pytest.mark.exact
@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 8.0, 64.0, 1000.0])
def test_budget_is_spent_and_not_exceeded(epsilon):
    spent = PrivUnitGaussian(200, epsilon).log_ratio_max()
    assert spent <= epsilon
    assert spent == pytest.approx(epsilon, abs=1e-10)


@pytest.mark.exact
def test_tail_in_closed_form():
    for t in (0.0, 0.3, 0.999, 1.001, 5.0, 30.0):
        tail = NormalTail(t)
        assert tail.log_measure == pytest.approx(stats.norm.logsf(t), rel=1e-12)
        expected = stats.norm.logcdf(t) - stats.norm.logsf(t)
        assert tail.log_odds_outside == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.5), (5, 2.0), (20, 16.0)])
def test_bias_and_error(d, epsilon):
    """100,000 reports of one vector: mean within 4 s.e. per coordinate, error within 4 s.e."""
    n = 100_000
    mechanism = PrivUnitGaussian(d, epsilon, radius=2.0)
    vector = np.linspace(-1, 1.2, d) / d
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(d))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    assert (np.abs(estimate.value - vector) < 4 * np.sqrt(mechanism.variance(n, vector))).all()
    errors = ((mechanism.fixed_point.decode(reports) - vector) ** 2).sum(axis=1)
    predicted = mechanism.mean_squared_error(1, vector)
    assert abs(errors.mean() - predicted) < 4 * errors.std() / math.sqrt(n)


@pytest.mark.statistical
def test_height_is_a_two_piece_normal_and_the_rest_is_normal():
    """Kolmogorov-Smirnov, false alarms 1e-6; the share of the tail within 4 s.e."""
    n = 100_000
    mechanism = PrivUnitGaussian(4, 2.0, inputs="sphere")
    vector = np.array([0.0, 1.0, 0.0, 0.0])
    reports = mechanism.randomize(np.broadcast_to(vector, (n, 4)), np.random.default_rng(3))
    x = mechanism.fixed_point.decode(reports) * mechanism.marginal
    t, p = mechanism.tail.threshold, mechanism.coin.probability
    inside = x[:, 1] >= t
    assert abs(inside.mean() - p) < 4 * math.sqrt(p * (1 - p) / n)
    tail = stats.norm.sf(x[inside, 1]) / stats.norm.sf(t)
    rest = stats.norm.cdf(x[~inside, 1]) / stats.norm.cdf(t)
    for uniform in (tail, rest):
        assert stats.kstest(uniform, "uniform").pvalue > 1e-6
    for j in (0, 2, 3):
        assert stats.kstest(x[:, j], "norm").pvalue > 1e-6


@pytest.mark.statistical
def test_histogram_ratio_in_three_dimensions():
    """400,000 reports of each of two opposite vectors in 30 cells of the height: 4.5 s.e."""
    n, mechanism, counts = 400_000, PrivUnitGaussian(3, 1.0, inputs="sphere"), []
    for seed, sign in ((1, 1.0), (2, -1.0)):
        vectors = np.broadcast_to([0.0, 0.0, sign], (n, 3))
        reports = mechanism.randomize(vectors, np.random.default_rng(seed))
        height = mechanism.fixed_point.decode(reports[:, 2]) * mechanism.marginal
        counts.append(np.histogram(stats.norm.cdf(height), bins=30, range=(0, 1))[0])
    ratio, error = np.log(counts[0] / counts[1]), np.sqrt(1 / counts[0] + 1 / counts[1])
    assert (np.abs(ratio) <= 1.0 + 4.5 * error).all()
    assert (np.abs(ratio) >= 1.0 - 4.5 * error).sum() >= 10  # and the budget is used


@pytest.mark.exact
def test_dominating_pair_config_and_limits():
    mechanism = PrivUnitGaussian(10, 2.0)
    pair = mechanism.dominating_pair()
    assert pair.ratios[0][0] / pair.ratios[0][1] == pytest.approx(math.exp(2), rel=1e-9)
    assert mechanism.witness_pairs()[0].is_witness
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    with pytest.raises(ValueError, match="local_epsilon must be at most"):
        PrivUnitGaussian(10, 700.0).dominating_pair()
