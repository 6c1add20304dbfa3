"""Estimates: intervals of the unbiased value, explicit steps, scales."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from beam_ldp.randomizers import Estimate
from beam_ldp.randomizers.estimate import readable

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


# Post-processing by name ---------------------------------------------------------------------


def iterated(value):
    """norm-sub as its paper says it: shift what is left by one number, drop what is negative."""
    left = np.ones(value.size, dtype=bool)
    while True:
        shifted = np.where(left, value + (1 - value[left].sum()) / left.sum(), 0.0)
        if (shifted >= 0).all():
            return shifted
        left &= shifted > 0


@pytest.mark.exact
@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([0.4, 0.4, -0.2], [0.5, 0.5, 0.0]),
        ([0.9, 0.4, -0.3], [0.75, 0.25, 0.0]),
        ([0.5, 0.3, -0.1, 0.1], [0.5 + 0.1 / 3, 0.3 + 0.1 / 3, 0.0, 0.1 + 0.1 / 3]),
        ([1.0, 0.6, 0.1, -0.7], [0.7, 0.3, 0.0, 0.0]),  # the shift makes the third one negative
        ([2.0, -1.0, -1.0], [1.0, 0.0, 0.0]),
        ([-1.0, -1.0], [0.5, 0.5]),
        ([0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]),
    ],
)
def test_norm_sub_of_vectors_worked_out_by_hand(raw, expected):
    found = Estimate(np.array(raw), np.ones(len(raw)), 10).postprocess("norm-sub")
    np.testing.assert_allclose(found.value, expected, atol=1e-12)
    np.testing.assert_allclose(iterated(np.array(raw)), expected, atol=1e-12)
    assert found.steps == ("norm-sub",)


@pytest.mark.exact
@given(vectors)
def test_norm_sub_is_one_shift_of_what_stays_positive(value):
    estimate = Estimate(value, np.ones_like(value), 7)
    found = estimate.postprocess("norm-sub")
    assert found.value.min() >= 0 and found.value.sum() == pytest.approx(1)
    np.testing.assert_allclose(found.value, iterated(value), atol=1e-9)
    order = np.argsort(value)
    assert (np.diff(found.value[order]) >= -1e-12).all()
    again = Estimate(found.value, np.ones_like(value), 7).postprocess("norm-sub")
    np.testing.assert_allclose(again.value, found.value, atol=1e-9)
    assert found.to_counts().value.sum() == pytest.approx(7)


@pytest.mark.exact
@given(vectors, st.sampled_from(["none", "clip", "norm-sub"]))
def test_error_bars_stay_those_of_the_raw_estimate(value, method):
    estimate = Estimate(value, np.ones_like(value), 3)
    found = estimate.postprocess(method)
    assert found.raw is estimate
    for mine, own in zip(found.confidence_interval(), estimate.confidence_interval()):
        np.testing.assert_array_equal(mine, own)
    assert found.steps == (() if method == "none" else (method,))
    if method == "clip":
        np.testing.assert_array_equal(found.value, np.clip(value, 0, 1))


@pytest.mark.exact
def test_other_names_are_refused():
    with pytest.raises(ValueError, match="method must be one of none, clip, norm-sub, got 'norm'"):
        Estimate(VALUES, ERRORS, 10).postprocess("norm")


# Figures as people read them -----------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (-8.65298, 2.5, "-8.7"),
        (-8.65298, 0.0213, "-8.653"),
        (-0.04, 3.0, "0.0"),
        (9802.4, 240.0, "9,802"),
        (5.0, np.inf, "5.000"),
        (np.inf, 1.0, "inf"),
        (1774.6, None, "1,770"),
        (999.6, None, "1,000"),
        (15863.0, None, "15,900"),
        (0.05, None, "0.05"),
        (0.0000123456, None, "0.0000123"),
        (-2.5, None, "-2.5"),
        (0.0, None, "0"),
        (2.19e16, None, "2.19e+16"),
        (1.5e-9, None, "1.5e-09"),
    ],
)
def test_figures_are_as_exact_as_their_errors(value, error, said):
    assert readable(value, error) == said


@pytest.mark.exact
@given(st.floats(1e-6, 9e14), st.one_of(st.none(), st.floats(1e-9, 1e12)))
def test_what_is_read_is_the_figure_within_its_error(value, error):
    read = float(readable(value, error).replace(",", ""))
    assert abs(read - value) <= (value * 0.005 if error is None else max(0.5, error * 0.05)) * 1.001
    assert readable(-value, error).lstrip("-") == readable(value, error)
