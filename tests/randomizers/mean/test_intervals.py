"""Intervals of estimates whose truncation is known on average: the worst law of it, and people."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from beam_ldp.randomizers.mean import L2Mean, LInfMean
from beam_ldp.randomizers.mean.base import MeanEstimate, half_width

ALPHAS, COUNTS, BIASES = (0.05, 0.001), (1, 16, 784), (0.01, 0.1, 1.0)


def missed(half: float, shift: float, count: int) -> float:
    """Chance that some of `count` components is left, all shifted so far: in standard errors."""
    return min(1.0, count * float(special.ndtr(shift - half) + special.ndtr(-shift - half)))


def worst(half: float, bias: float, count: int) -> float:
    """Over all laws of a shift of this mean that take one value beside zero."""
    shifts = np.concatenate([np.linspace(bias, half + 12, 4000), np.geomspace(half, 1e4, 500)])
    return max(
        (1 - bias / s) * missed(half, 0.0, count) + bias / s * missed(half, s, count)
        for s in shifts.tolist()
        if s >= bias
    )


@pytest.mark.exact
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("bias", BIASES)
def test_no_law_of_the_bias_is_missed_more_often_and_one_is_as_often(alpha, count, bias):
    half = float(half_width(alpha, np.ones(1), bias, count)[0])
    found = worst(half, bias, count)
    assert found <= alpha
    assert found > 0.98 * alpha or bias > half  # the bound is attained


@pytest.mark.exact
def test_widening_by_the_average_alone_covers_less_than_it_says():
    """What was done: at a bias of a tenth of the standard error 6.5 % may be missed, not 5 %."""
    before = -float(special.ndtri(0.025)) + 0.1
    assert 0.064 < worst(before, 0.1, 1) < 0.068
    assert worst(-float(special.ndtri(0.025 / 784)) + 0.1, 0.1, 784) > 0.06


@pytest.mark.exact
def test_without_a_bias_nothing_is_wider():
    estimate = MeanEstimate(np.zeros(3), np.array([1.0, 2.0, 3.0]), 9)
    for simultaneous in (False, True):
        low, high = estimate.confidence_interval(0.9, simultaneous=simultaneous)
        z = -special.ndtri(0.05 / (3 if simultaneous else 1))
        np.testing.assert_allclose(high, z * estimate.standard_error)
        np.testing.assert_allclose(low, -high)
    tiny = half_width(0.05, np.ones(1), 1e-12)
    assert tiny[0] == pytest.approx(1.959964, abs=1e-5)


@pytest.mark.exact
def test_unequal_errors_are_covered_by_the_least_of_them():
    """All in units of the smallest: a shift weighs the most there."""
    error = np.array([1.0, 5.0])
    found = half_width(0.05, error, 0.1, 2)
    assert found == pytest.approx(half_width(0.05, np.ones(2), 0.1, 2) * error)
    for shift in np.geomspace(0.1, 100, 300):
        chance = 0.1 / shift
        outside = sum(
            special.ndtr((shift - h) / e) + special.ndtr((-shift - h) / e)
            for h, e in zip(found, error)
        )
        still = sum(2 * special.ndtr(-h / e) for h, e in zip(found, error))
        assert (1 - chance) * still + chance * min(1.0, outside) <= 0.05


@pytest.mark.exact
def test_what_has_no_error_of_its_own_is_covered_by_markov():
    assert half_width(0.05, np.zeros(2), 0.1).tolist() == [4.0, 4.0]
    assert np.all(np.isinf(half_width(0.05, np.full(2, np.inf), 0.1)))


@pytest.mark.exact
def test_the_estimate_says_which_bias_it_is():
    rotated, plain = L2Mean(8, 4.0, cutoff=1.5), LInfMean(8, 4.0)
    statistic = rotated.accumulate(rotated.randomize(np.zeros((50, 8)), np.random.default_rng(0)))
    estimate = rotated.estimate(statistic, 50)
    assert (estimate.bias_bound, estimate.expected_bias) == (0.0, rotated.bias_bound)
    assert not plain.bias_on_average and plain.bias_bound == 0.0
    both = MeanEstimate(np.zeros(2), np.ones(2), 10, bias_bound=0.25, expected_bias=0.1)
    low, high = both.confidence_interval()
    np.testing.assert_allclose(high, half_width(0.05, np.ones(2), 0.1) + 0.25, rtol=1e-9)
    failing = MeanEstimate(np.zeros(2), np.ones(2), 10, failure_probability=0.01, expected_bias=0.1)
    np.testing.assert_allclose(
        failing.confidence_interval(0.9)[1], half_width(0.09, np.ones(2), 0.1), rtol=1e-6
    )
    assert both.to_counts().expected_bias == 1.0
    with pytest.raises(ValueError, match="level must lie"):
        both.confidence_interval(1.0)


def vectors_that_are_cut_off() -> dict[str, np.ndarray]:
    """Everybody holds one vector: no average over people makes the bias smaller."""
    one = np.eye(32)[0]
    few = np.zeros(32)
    few[:8] = 1 / math.sqrt(8)  # a subgroup: eight values, each of a quarter of the coordinates
    return {"one": one, "few": few, "even": np.full(32, 1 / math.sqrt(32))}


@pytest.mark.statistical
@pytest.mark.parametrize("name", ["one", "few", "even"])
def test_coverage_over_rotations(name):
    """400 people, 500 rotations, a bias of a tenth of the error on average as the default has
    it: at least 95 % of intervals cover, of one component and of all at once. Five sigma: false
    alarm below 1e-6."""
    vector, rotations = vectors_that_are_cut_off()[name], 500
    covered, together = 0.0, 0
    for seed in range(rotations):
        mechanism = L2Mean(32, 8.0, rotation_seed=seed, expected_users=400)
        values = np.broadcast_to(vector, (400, 32))
        reports = mechanism.randomize(values, np.random.default_rng([seed, 7]))
        estimate = mechanism.estimate(mechanism.accumulate(reports), 400)
        assert estimate.expected_bias <= 0.102 * estimate.standard_error.min()  # measured
        low, high = estimate.confidence_interval()
        covered += float(((low <= vector) & (vector <= high)).mean())
        low, high = estimate.confidence_interval(simultaneous=True)
        together += bool(np.all((low <= vector) & (vector <= high)))
    allowed = 5 * math.sqrt(0.05 * 0.95 / rotations)
    assert covered / rotations >= 0.95 - allowed
    assert together / rotations >= 0.95 - allowed


@pytest.mark.statistical
def test_the_largest_shift_of_all_is_what_is_bounded_on_average():
    """Over 500 rotations the mean of the largest shift of any component is below the bound, with
    five standard errors of that mean to spare; and the bound is no empty one."""
    shares = []
    for vector in vectors_that_are_cut_off().values():
        shifts = np.empty(500)
        for seed in range(len(shifts)):
            mechanism = L2Mean(32, 8.0, cutoff=1.3, rotation_seed=seed)
            rotated = mechanism._rotate(vector[None, :])
            cut = np.clip(rotated, -mechanism._half_range, mechanism._half_range)
            off = mechanism._rotate_back(cut - rotated)
            shifts[seed] = np.abs(off).max()
        mean, sigma = shifts.mean(), shifts.std() / math.sqrt(len(shifts))
        assert mean - 5 * sigma <= mechanism.bias_bound
        shares.append(mean / mechanism.bias_bound)
    assert 0.1 < max(shares) <= 1.0
