"""How close together people's means are supposed to lie."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.protocols import Ball
from beam_ldp.protocols.spaces import RotatedMeans, SubGaussian


@pytest.mark.exact
def test_far_is_the_thesis_radius():
    """tau = sigma sqrt(2 log(2n/gamma)/m), sigma = 0.5, m = 40, n = 1000, gamma = 0.01."""
    radii = list(SubGaussian(0.5**2 / 40).radii(1000, 1, 0.01))
    tau = 0.5 * math.sqrt(2 * math.log(2 * 1000 / 0.01) / 40)
    assert all(r.far == pytest.approx(tau) for r in radii)
    assert radii[-1].near == pytest.approx(tau)  # the text's bins are among those tried
    assert radii[0].near < 0.5 * tau
    assert all(a.near < b.near and a.beyond > b.beyond for a, b in zip(radii, radii[1:]))


@pytest.mark.exact
def test_failure_is_the_inverse_of_far():
    for concentration, size in (
        (SubGaussian(0.01), 5),
        (RotatedMeans(50, Ball.for_users(100, 2.0, 1000, 1e-4)), 128),
    ):
        for failure in (1e-2, 1e-5):
            radii = list(concentration.radii(1000, size, failure))[-1]
            found = concentration.failure_probability(radii.far, 1000, size)
            assert found == pytest.approx(failure, rel=1e-6)
            assert concentration.failure_probability(radii.far, 2000, size) > found
            assert concentration.failure_probability(1.1 * radii.far, 1000, size) < found


@pytest.mark.statistical
def test_sub_gaussian_tails_hold_for_the_widest_rows():
    """Rows of +-1 (Hoeffding's worst), 16 per person, 200,000 people, 5 sigma."""
    rng = np.random.default_rng(5)
    means = rng.binomial(16, 0.5, 200_000) / 8 - 1
    assert means.var() <= SubGaussian(1 / 16).variance * 1.01
    for radii in SubGaussian(1 / 16).radii(1000, 1, 0.01):
        share = float(np.mean(np.abs(means) > radii.near))
        assert share <= radii.beyond + 5 * math.sqrt(radii.beyond / 200_000)


@pytest.mark.statistical
def test_rotated_means_stay_within_their_radius():
    """Rows that point one way or the other: 40 seeds, 500 people, none outside at failure 0.01.

    The bound is so wide that one in 40 outside would already show an error in it.
    """
    rng = np.random.default_rng(6)
    space = Ball.for_users(60, 1.0, 500, 1e-3)
    outside = 0
    for seed in range(40):
        space = Ball(60, 1.0, space.cutoff, seed)
        (radii,) = RotatedMeans(30, space).radii(500, space.num_coordinates, 0.01)
        rows = np.zeros((500, 60))
        rows[:, 0] = rng.binomial(30, 0.5, 500) / 15 - 1
        outside += bool((np.abs(space.coordinates(rows)) > radii.far).any())
    assert outside == 0
