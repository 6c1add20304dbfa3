"""PrivUnit of a projection: known errors, the length of projections, sums by row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.projected_priv_unit import ProjectedPrivUnit
from beam_ldp.randomizers.randomness import UserRandomness


@pytest.mark.exact
@pytest.mark.parametrize("projected", [64, 256, 1024])
def test_error_has_the_known_figures(projected):
    from tests.randomizers.mean.golden_errors import golden

    for d, epsilon, figure, half_digit in golden(f"projected {projected}"):
        best = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
        mechanism = ProjectedPrivUnit(d, epsilon, inputs="sphere", projected=projected)
        assert mechanism.mean_squared_error(1) / best == pytest.approx(figure, abs=half_digit)


@pytest.mark.exact
def test_projected_length_is_not_ignored():
    """The published estimator leaves the factor out: too short by (1 - k/d)/(4k)."""
    for d, k in ((2048, 16), (8192, 1024)):
        mechanism = ProjectedPrivUnit(d, 4.0, projected=k)
        short = 1 - math.sqrt(d / k) / mechanism.expansion
        assert short == pytest.approx((1 - k / d) / (4 * k), rel=0.05)
        assert mechanism.bias_bound > short


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "k", "length"), [(64, 16, 1.3), (100, 64, 2.0), (30, 32, 0.5)])
def test_bias_and_error(d, k, length):
    """40,000 reports of one vector: mean within the bias bound and noise, error within 6 %."""
    n = 40_000
    mechanism = ProjectedPrivUnit(d, 4.0, radius=2.0, projected=k)
    direction = np.random.default_rng(d).standard_normal(d)
    vector = length * direction / np.linalg.norm(direction)
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(1))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, vector)
    off = np.linalg.norm(estimate.value - vector)
    assert off < mechanism.bias_bound + 1.5 * math.sqrt(exact.sum())
    low, high = estimate.confidence_interval(0.9999)
    assert ((low < vector) & (vector < high)).all()
    singles = np.array([
        mechanism.estimate(mechanism.accumulate(reports[i : i + 1]), 1).value for i in range(3000)
    ])  # fmt: skip
    error = ((singles - vector) ** 2).sum(axis=1).mean()
    assert error == pytest.approx(mechanism.mean_squared_error(1, vector), rel=0.06)


@pytest.mark.statistical
def test_bias_averages_out_over_signs():
    """64 choices of signs: what is left of the mean's error is within 5 s.e. plus 2 %."""
    d, k, n = 32, 8, 4_000
    vector = np.linspace(-1, 1.5, d)
    vector /= np.linalg.norm(vector)
    total, variance = np.zeros(d), np.zeros(d)
    for seed in range(64):
        mechanism = ProjectedPrivUnit(d, 6.0, projected=k, sign_seed=seed, inputs="sphere")
        reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(seed))
        total += mechanism.estimate(mechanism.accumulate(reports), n).value
        variance += mechanism.variance(n, vector)
    spread = mechanism.bias_bound / np.sqrt(d) * np.sqrt(64)  # of the bias from choice to choice
    assert (np.abs(total / 64 - vector) < 5 * (np.sqrt(variance) + spread) / 64 + 0.02).all()


@pytest.mark.exact
@pytest.mark.parametrize("bits", [12, 32])
def test_reports_travel_and_add_up(bits):
    mechanism = ProjectedPrivUnit(20, 3.0, projected=7, coordinate_bits=bits)
    values, ids = np.eye(20), np.arange(20)
    reports = mechanism.randomize(values, UserRandomness(b"k" * 32, ids, "r"))
    again = mechanism.randomize(values[6:], UserRandomness(b"k" * 32, ids[6:], "r"))
    assert np.array_equal(reports[6:], again)
    data = mechanism.pack(reports)
    assert len(data) == -(-20 * mechanism.bits_per_report // 8)
    assert np.array_equal(mechanism.unpack(data, 20), reports)
    whole = mechanism.accumulate(reports)
    parts = mechanism.accumulate(reports[::3]) + mechanism.accumulate(reports[1::3])
    assert np.array_equal(whole, parts + mechanism.accumulate(reports[2::3]))
    assert np.count_nonzero(mechanism.accumulate(reports[:1])) <= 7
    for bad in (reports[:, :-1], reports.astype(np.int64), np.zeros((1, 8), dtype=np.int32)):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)


@pytest.mark.exact
def test_budget_config_and_refusals():
    mechanism = ProjectedPrivUnit(50, 3.0, projected=10, sign_seed=4)
    assert 3.0 - 1e-10 < mechanism.log_ratio_max() <= 3.0
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    assert mechanism.dominating_pair() == mechanism.base.dominating_pair()
    assert mechanism.witness_pairs() == mechanism.base.witness_pairs()
    for options in ({"projected": 1}, {"projected": 65}, {"sign_seed": -1}):
        with pytest.raises(ValueError, match="projected|sign_seed"):
            ProjectedPrivUnit(50, 1.0, **options)
