"""Where rows live: into the unit, and back."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.protocols import Ball, Box
from beam_ldp.randomizers.mean.base import MeanEstimate
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

pytestmark = pytest.mark.exact


def test_box_clips_rows_and_restores_means():
    box = Box(CoordinateRanges((0, -10), (100, 30)), 2)
    unit = box.unit(np.array([[0, 30], [50, 10], [1e9, -1e9]]))
    np.testing.assert_allclose(unit, [[-1, 1], [0, 0], [1, -1]])
    estimate = MeanEstimate(
        np.array([0.5, -0.5]), np.array([0.1, 0.2]), 7, mean_squared_error=0.05, bias_bound=0.01,
        failure_probability=0.02,
    )  # fmt: skip
    found = box.restore(estimate)
    np.testing.assert_allclose(found.value, [75, 0])
    np.testing.assert_allclose(found.standard_error, [5, 4])
    assert found.bias_bound == pytest.approx(0.5) and found.failure_probability == 0.02


def test_one_range_serves_all_columns():
    box = Box(CoordinateRanges(0, 10), 3)
    assert box.dimension == box.num_coordinates == 3
    np.testing.assert_allclose(box.unit(np.full((1, 3), 5.0)), 0)
    with pytest.raises(ValueError, match="ranges must hold one range or 3, got 2"):
        Box(CoordinateRanges((0, 0), (1, 1)), 3)


@pytest.mark.parametrize("dimension", [1, 5, 64])
def test_ball_restores_what_it_rotated(dimension):
    ball = Ball(dimension, radius=3.0, cutoff=50.0, rotation_seed=4)
    rows = np.random.default_rng(1).normal(size=(20, dimension))
    rows /= np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True) / 2.9)
    coordinates = ball.coordinates(ball.unit(rows))
    assert np.abs(coordinates).max() <= 1
    for row, coordinate in zip(rows, coordinates):
        error = np.full(ball.num_coordinates, 0.1)
        found = ball.restore(MeanEstimate(coordinate, error, 1, mean_squared_error=0.01))
        np.testing.assert_allclose(found.value, row, atol=1e-12)
        np.testing.assert_allclose(found.standard_error, 0.1 * ball.half * 3)


def test_ball_scales_longer_rows_onto_itself():
    unit = Ball(2, radius=2.0).unit(np.array([[30.0, 40.0], [0.6, 0.8]]))
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0.3, 0.4]])


def test_cutoff_is_that_of_the_union_bound():
    ball = Ball.for_users(4096, 1.0, 1000, 0.01)
    assert ball.half < 0.2  # an even vector's coordinates are all 1/64
    assert ball.failure_probability(1000) == pytest.approx(0.01)
    assert Ball.for_users(4, 1.0, 1000, 0.01).failure_probability(1000) == 0.0  # no coordinate > 1


@pytest.mark.parametrize("radius", [0, -1, 1e-101, 1e101, float("nan"), float("inf")])
def test_ball_refuses_radii_out_of_range(radius):
    with pytest.raises(ValueError, match="radius must lie in"):
        Ball(3, radius)
