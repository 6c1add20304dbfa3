"""Estimates: intervals of the unbiased value, explicit steps, scales."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from beam_ldp.randomizers import Estimate

VALUES = np.array([0.7, -0.1, 0.2, 0.3])
ERRORS = np.array([0.1, 0.2, 0.1, 0.0])
vectors = arrays.arrays(
    np.float64, st.integers(1, 12), elements=st.floats(-3, 3, allow_subnormal=False)
)


@pytest.mark.exact
def test_intervals():
    estimate = Estimate(VALUES, ERRORS, 10)
    low, high = estimate.confidence_interval()
    np.testing.assert_allclose((low + high) / 2, VALUES)
    np.testing.assert_allclose(high - low, 2 * 1.959963984540054 * ERRORS)
    low, high = estimate.confidence_interval(0.9, simultaneous=True)
    np.testing.assert_allclose(high - VALUES, stats.norm.isf(0.1 / 8) * ERRORS)
    for level in (0, 1, -0.5, 2, np.nan):
        with pytest.raises(ValueError, match=r"level must lie in \(0, 1\)"):
            estimate.confidence_interval(level)


@pytest.mark.statistical
def test_coverage_pointwise_and_simultaneous():
    """4000 normal estimates of 20 components; 5 sigma of the binomial count either way."""
    rng = np.random.default_rng(4)
    errors = np.linspace(0.5, 3, 20)
    inside = np.zeros((2, 4000, 20), dtype=bool)
    for run in range(4000):
        estimate = Estimate(rng.normal(0, errors), errors, 5)
        for kind in (0, 1):
            low, high = estimate.confidence_interval(0.9, simultaneous=bool(kind))
            inside[kind, run] = (low <= 0) & (high >= 0)
    assert abs(inside[0].mean() - 0.9) < 5 * np.sqrt(0.09 / 80_000)
    all_inside = inside[1].all(axis=1).mean()
    independent = (1 - 0.1 / 20) ** 20
    assert abs(all_inside - independent) < 5 * np.sqrt(0.09 / 4000)


@pytest.mark.exact
@given(vectors)
def test_simplex_projection_is_the_nearest_point(value):
    estimate = Estimate(value, np.ones_like(value), 3).project_to_simplex()
    point = estimate.value
    assert point.min() >= 0 and point.sum() == pytest.approx(1)
    # A shift and a cut at zero: the optimality conditions of the projection.
    kept = point > 1e-12
    shifts = (value - point)[kept]
    assert np.ptp(shifts) < 1e-9
    assert (value[~kept] <= shifts.mean() + 1e-9).all()


@pytest.mark.exact
def test_steps_are_named_and_the_unbiased_value_stays():
    estimate = Estimate(VALUES, ERRORS, 10)
    assert estimate.raw is estimate and estimate.steps == ()
    clipped = estimate.clip()
    np.testing.assert_array_equal(clipped.value, [0.7, 0, 0.2, 0.3])
    both = clipped.clip_and_renormalize()
    assert both.steps == ("clip", "clip_and_renormalize")
    np.testing.assert_allclose(both.value, np.array([0.7, 0, 0.2, 0.3]) / 1.2)
    assert both.raw is estimate
    for one, other in zip(both.confidence_interval(), estimate.confidence_interval()):
        np.testing.assert_array_equal(one, other)
    nothing = Estimate(-(VALUES**2), ERRORS, 10).clip_and_renormalize()
    np.testing.assert_allclose(nothing.value, 0.25)


@pytest.mark.exact
def test_counts():
    counts = Estimate(VALUES, ERRORS, 10).project_to_simplex().to_counts()
    np.testing.assert_allclose(counts.raw.value, 10 * VALUES)
    np.testing.assert_allclose(counts.standard_error, 10 * ERRORS)
    low, _ = counts.confidence_interval()
    np.testing.assert_allclose(low, 10 * (VALUES - 1.959963984540054 * ERRORS))
    nobody = Estimate(np.full(2, np.nan), np.full(2, np.inf), 0).to_counts()
    assert np.isinf(nobody.standard_error).all() and np.isnan(nobody.value).all()


@pytest.mark.exact
def test_pandas():
    frame = Estimate(VALUES, ERRORS, 10).to_pandas(labels=list("abcd"), level=0.5)
    assert list(frame.columns) == ["estimate", "standard_error", "low", "high"]
    assert list(frame.index) == list("abcd")
    np.testing.assert_allclose(frame["high"] - frame["estimate"], 0.6744897501960817 * ERRORS)
