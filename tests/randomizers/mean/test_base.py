"""The ball, clipping, fixed point, and estimates of means."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.mean.base import MeanEstimate, clip_to_ball, nearest_in_ball
from beam_ldp.randomizers.mean.directions import FixedPoint

pytestmark = pytest.mark.exact


def length(vectors, norm):
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    return np.linalg.norm(vectors, ord=order, axis=1)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_clip_leaves_the_inside_alone_and_brings_the_outside_onto_the_ball(norm):
    vectors = (
        np.random.default_rng(1).normal(scale=0.5, size=(200, 7))
        * np.geomspace(0.5, 8, 200)[:, None]
    )
    clipped = clip_to_ball(vectors, norm, 2.0, "clip")
    inside = length(vectors, norm) <= 2.0
    assert inside.any() and (~inside).any()
    assert np.array_equal(clipped[inside], vectors[inside])
    assert np.allclose(length(clipped[~inside], norm), 2.0, rtol=1e-14)


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_clip_survives_the_largest_and_the_smallest_numbers(norm):
    vectors = np.array([[1e308, 1e308], [1e-308, 0.0], [0.0, 0.0]])
    clipped = clip_to_ball(vectors, norm, 1.0, "clip")
    assert np.allclose(length(clipped[:1], norm), 1.0)
    assert np.array_equal(clipped[1:], vectors[1:])


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_raise_refuses_without_quoting_and_tolerates_rounding(norm):
    edge = np.array([[1.0 + 1e-12, 0.0]])
    assert length(clip_to_ball(edge, norm, 1.0, "raise"), norm) <= 1.0
    with pytest.raises(ValueError, match="ball of radius 1") as caught:
        clip_to_ball(np.array([[1.2345, 0.0]]), norm, 1.0, "raise")
    assert "1.2345" not in str(caught.value)


def test_binary_accepts_only_zero_and_one():
    ones = np.array([[0.0, 1.0]])
    assert clip_to_ball(ones, "binary", 1.0, "clip") is ones
    with pytest.raises(ValueError, match="0 or 1"):
        clip_to_ball(np.array([[0.5]]), "binary", 1.0, "clip")


@pytest.mark.parametrize("norm", ["l1", "l2", "linf", "binary"])
def test_projection_is_the_nearest_point(norm):
    """Nearest means: no point of the ball has a positive product with the residual."""
    rng = np.random.default_rng(3)
    vector = 2 * rng.normal(size=5)
    nearest = nearest_in_ball(vector, norm, 1.5)
    points = rng.normal(size=(4000, 5))
    if norm == "binary":
        points = rng.uniform(size=(4000, 5))
    else:
        points = clip_to_ball(points, norm, 1.5, "clip")
    assert ((points - nearest) @ (vector - nearest)).max() <= 1e-12
    assert np.allclose(nearest_in_ball(nearest, norm, 1.5), nearest)


@pytest.mark.parametrize("bits", [8, 16, 32, 40])
def test_fixed_point_round_trip_and_saturation(bits):
    grid = FixedPoint(3.0, bits)
    values = np.linspace(-3.0, 3.0, 1001)
    coded = grid.encode(values)
    assert coded.dtype == grid.dtype
    assert np.abs(grid.decode(coded) - values).max() <= grid.step * (0.5 + 1e-6)
    assert grid.encode(np.array([99.0]))[0] == grid.largest
    assert grid.encode(np.array([-99.0]))[0] == -grid.largest


@pytest.mark.parametrize(("limit", "bits"), [(0.0, 8), (math.inf, 8), (1.0, 1), (1.0, 63)])
def test_fixed_point_refuses_bad_grids(limit, bits):
    with pytest.raises(ValueError, match="limit|bits"):
        FixedPoint(limit, bits)


def test_estimate_widens_intervals_by_the_bias_bound_and_scales_to_totals():
    plain = MeanEstimate(np.zeros(2), np.ones(2), 10, mean_squared_error=2.0)
    biased = MeanEstimate(np.zeros(2), np.ones(2), 10, mean_squared_error=2.0, bias_bound=0.25)
    assert np.allclose(biased.confidence_interval()[1], plain.confidence_interval()[1] + 0.25)
    total = biased.to_counts()
    assert total.mean_squared_error == 200.0 and total.bias_bound == 2.5
    projected = MeanEstimate(np.array([3.0, 4.0]), np.ones(2), 10).project_to_ball("l2")
    assert np.allclose(projected.value, [0.6, 0.8]) and projected.steps == ("project_to_ball",)
    assert np.array_equal(projected.raw.value, [3.0, 4.0])
