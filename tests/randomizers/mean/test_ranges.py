"""Units of the data outside, the cube inside: exact where floats are, an upper bound elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_ldp.randomizers.mean import L2Mean, LInfMean, MeanEstimate, PrivUnitInf, ScalarMean
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

pytestmark = pytest.mark.exact

bounds = st.floats(-1e6, 1e6).flatmap(
    lambda low: st.tuples(st.just(low), st.floats(1e-3, 1e6).map(lambda width: low + width))
)


@given(st.lists(bounds, min_size=1, max_size=5), st.data())
def test_a_point_of_the_range_comes_back(pairs, data):
    low, high = zip(*pairs)
    ranges = CoordinateRanges(low, high)
    shares = np.array([data.draw(st.floats(0, 1)) for _ in pairs])
    vector = np.array(low) + shares * (np.array(high) - np.array(low))
    inside = ranges.encode(vector[None, :])
    width = np.array(high) - np.array(low)
    tolerance = 1e-9 * (np.abs(low) + np.abs(high)) / width
    assert (np.abs(inside) <= 1 + tolerance).all()
    estimate = MeanEstimate(inside[0], np.full(len(pairs), 0.25), 9, mean_squared_error=0.5)
    back = ranges.decode(estimate)
    assert back.value == pytest.approx(vector, rel=1e-9, abs=1e-9 * float(np.abs(high).max() + 1))
    assert back.standard_error == pytest.approx(0.125 * width)


def test_ends_and_middle_are_exact():
    ranges = CoordinateRanges((0, -10), (1440, 30))
    assert ranges.encode([[0, -10], [1440, 30], [720, 10]]).tolist() == [[-1, -1], [1, 1], [0, 0]]
    assert ranges.encode(np.zeros((0, 2))).shape == (0, 2)


def test_one_range_is_that_of_all_coordinates():
    ranges = CoordinateRanges(0, 10)
    assert ranges.encode(np.array([[0, 5, 10]])).tolist() == [[-1, 0, 1]]
    assert len(CoordinateRanges(0, (1, 2, 3))) == 3
    assert CoordinateRanges(0, (1, 2)) == CoordinateRanges((0, 0), (1, 2))


def test_what_lies_outside_stays_outside_and_finite():
    """The mechanism's clipping decides; nothing overflows to infinity, which would stop the run."""
    ranges = CoordinateRanges(-1e-5, 1e-5)
    outside = ranges.encode(np.array([[1e308, -1e308, 1.0]]))
    assert np.isfinite(outside).all() and (np.abs(outside) > 1).all()
    assert (np.sign(outside) == [[1, -1, 1]]).all()
    widest = CoordinateRanges(-1e100, 1e100)
    assert widest.encode([[1e100, -1e100, 0.0]]).tolist() == [[1, -1, 0]]


def test_errors_in_the_unit_of_the_data():
    ranges = CoordinateRanges((0, 0), (2, 20))
    estimate = MeanEstimate(np.zeros(2), np.array([0.1, 0.2]), 5, (), None, 0.05, 0.01)
    back = ranges.decode(estimate)
    assert back.value.tolist() == [1, 10] and back.standard_error.tolist() == [0.1, 2.0]
    assert back.mean_squared_error == pytest.approx(0.1**2 + 2.0**2)
    assert back.bias_bound == pytest.approx(0.1)
    smaller = ranges.decode(MeanEstimate(np.zeros(2), np.array([0.1, 0.2]), 5, (), None, 0.03))
    assert smaller.mean_squared_error == pytest.approx(3.0), "the whole error, widest range"
    low, high = back.confidence_interval(0.95)
    assert (high - low) / 2 == pytest.approx(1.959964 * back.standard_error + 0.1)


def test_nobody_has_a_mean_of_no_value():
    none = LInfMean(2, 1.0).estimate(np.zeros(LInfMean(2, 1.0).statistic_shape, dtype=int), 0)
    back = CoordinateRanges(0, 10).decode(none)
    assert np.isnan(back.value).all() and np.isinf(back.standard_error).all()
    assert math.isinf(back.mean_squared_error)


def test_an_estimate_after_steps_keeps_its_unbiased_one():
    estimate = MeanEstimate(np.array([2.0]), np.array([1.0]), 5).project_to_ball("linf")
    back = CoordinateRanges(0, 10).decode(estimate)
    assert back.value.tolist() == [10.0] and back.raw.value.tolist() == [15.0]
    assert back.steps == ("project_to_ball",)


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (0, 0, "low must be below high"),
        ((0, 5), (1, 4), "low must be below high"),
        (0, 1e300, "high - low must lie in"),
        (0, 1e-300, "high - low must lie in"),
        (math.nan, 1, "low must hold finite numbers"),
        (0, math.inf, "high must hold finite numbers"),
        ((0, 1), (2, 3, 4), "low and high must have one length, got 2 and 3"),
        ((), 1, "low must be a number"),
        ("ab", 1, "low must be a number"),
    ],
)
def test_bad_ranges(low, high, message):
    with pytest.raises(ValueError, match=message):
        CoordinateRanges(low, high)


@pytest.mark.parametrize(
    ("randomizer", "message"),
    [
        (L2Mean(2, 1.0), 'norm "linf", signed'),
        (ScalarMean(1, 1.0), 'norm "linf", signed'),
        (LInfMean(2, 1.0, radius=3.0), "radius 1, got 3"),
        (LInfMean(3, 1.0), "one range or 3, got 2"),
    ],
)
def test_mechanisms_that_do_not_fit(randomizer, message):
    with pytest.raises(ValueError, match=message):
        CoordinateRanges((0, 1), (2, 3)).check_fits(randomizer)


def test_mechanisms_that_fit():
    CoordinateRanges((0, 1), (2, 3)).check_fits(LInfMean(2, 1.0))
    CoordinateRanges(0, 1).check_fits(PrivUnitInf(20, 4.0))
    CoordinateRanges(0, 1).check_fits(ScalarMean(1, 4.0, signed=True))
