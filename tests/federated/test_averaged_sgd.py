"""The law of averaged private steps: closed forms, the lemma mended, and simulated trainings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.federated.averaged_sgd import (
    averaged_sgd,
    lemma_4_5,
    lemma_4_5_constant,
    length_epsilon_needed,
    private_averaged_sgd,
)
from beam_ldp.randomizers.mean import PrivUnit, SeparatedMean
from beam_ldp.randomizers.mean.separated_mean import second_moment

H = np.array([[2.0, 0.5], [0.5, 1.0]])
S = np.array([[1.0, -0.3], [-0.3, 0.5]])


# The law ----------------------------------------------------------------------------------------


@pytest.mark.exact
def test_the_sandwich_by_hand():
    law = averaged_sgd(H, S, 50)
    inverse = np.linalg.inv(H)
    np.testing.assert_allclose(law.covariance, inverse @ S @ inverse / 50, rtol=1e-12)
    np.testing.assert_allclose(law.standard_error**2, np.diag(law.covariance))
    assert law.mean_squared_error == pytest.approx(np.trace(inverse @ S @ inverse) / 50)


@pytest.mark.exact
def test_intervals_and_regions_have_their_level():
    """One coordinate: two standard normal quantiles; the ellipsoid: a chi-square one."""
    law, average = averaged_sgd(H, S, 50), np.array([1.0, -2.0])
    low, high = law.confidence_interval(average, 0.9)
    np.testing.assert_allclose(high - average, 1.6448536269514722 * law.standard_error)
    np.testing.assert_allclose(average - low, high - average)
    assert law.region_radius(0.95) ** 2 == pytest.approx(-2 * math.log(0.05))  # two dimensions
    axes = law.region_axes(0.95)
    np.testing.assert_allclose(law.distance(average, average + axes), law.region_radius(0.95))
    assert axes[0] @ axes[1] == pytest.approx(0) and np.linalg.norm(axes[0]) > axes[1] @ axes[1]
    drawn = np.random.default_rng(1).multivariate_normal(average, law.covariance, 40_000)
    inside = np.mean(law.distance(average, drawn) <= law.region_radius(0.95))
    assert abs(inside - 0.95) < 5 * math.sqrt(0.95 * 0.05 / 40_000)


@pytest.mark.exact
def test_privacy_costs_an_isotropic_term_where_all_gradients_are_as_long():
    """Theorem 3, exactly: S grows by (D/d) (tr S) I and nothing else, D the error of a vector."""
    mechanism = PrivUnit(2, 4.0, inputs="sphere")
    gradients = np.array([[1.0, 0], [-1, 0], [0.6, 0.8], [-0.6, -0.8]])
    moment = gradients.T @ gradients / 4
    error = mechanism.mean_squared_error(1, gradients)
    known = averaged_sgd(H, moment + error / 2 * np.eye(2), 10).covariance
    found = private_averaged_sgd(H, gradients, mechanism, 10).covariance
    np.testing.assert_allclose(found, known, rtol=1e-6)


# Trainings --------------------------------------------------------------------------------------


def trained(mechanism, points, runs, steps, rng):
    """Averages of `runs` private trainings that look for the mean of these points."""
    d = points.shape[1]
    theta, mean = np.zeros((runs, d)), np.zeros((runs, d))
    for k in range(1, steps + 1):
        gradient = theta - points[rng.integers(len(points), size=runs)]
        sent = gradient
        if mechanism is not None:
            sent = mechanism.fixed_point.decode(mechanism.randomize(gradient, rng=rng))
        theta = theta - 0.5 * k**-0.6 * sent
        mean += (theta - mean) / k
    return mean


@pytest.mark.statistical
def test_trainings_end_where_the_law_says():
    """Squared distances have the mean d within five standard errors and 5 % for the finite number
    of steps; the law of the gradients alone, without privacy, would be off by a factor."""
    points = np.array([[0.8, 0, 0], [0, 0.6, 0], [0, 0, 0.9], [-0.5, -0.5, 0.1], [0.2, 0.1, -0.7]])
    mechanism = SeparatedMean(3, 6.0, 2.0, magnitude_epsilon=2.0)
    runs, steps, d = 1000, 2500, 3
    averages = trained(mechanism, points, runs, steps, np.random.default_rng(4))
    truth = points.mean(axis=0)
    law = private_averaged_sgd(np.eye(d), truth - points, mechanism, steps)
    squared = law.distance(averages, truth) ** 2
    assert abs(squared.mean() / d - 1) < 0.05 + 5 * math.sqrt(2 / (d * runs))
    inside = np.mean(squared <= law.region_radius(0.95) ** 2)
    assert abs(inside - 0.95) < 5 * math.sqrt(0.95 * 0.05 / runs)
    gradients = truth - points
    without = averaged_sgd(np.eye(d), gradients.T @ gradients / len(points), steps)
    assert np.mean(without.distance(averages, truth) <= without.region_radius(0.95)) < 0.6


# What the text proves ---------------------------------------------------------------------------


def separated(dimension, direction_epsilon, length_epsilon):
    """The mechanism of the lemma, with as many cells as the paper takes."""
    cells = math.ceil(math.exp(length_epsilon / 3))
    total = direction_epsilon + length_epsilon
    return SeparatedMean(dimension, total, magnitude_epsilon=length_epsilon, magnitude_cells=cells)


def constant(gradients, direction_epsilon, length_epsilon):
    mechanism = separated(gradients.shape[1], direction_epsilon, length_epsilon)
    bound = lemma_4_5(gradients, direction_epsilon, length_epsilon, 1.0)
    return lemma_4_5_constant(second_moment(mechanism, gradients), bound)


@pytest.mark.exact
@pytest.mark.parametrize("dimension", [3, 10, 50])
def test_the_mended_lemma_holds_with_a_constant_of_16(dimension):
    """For eps_2 >= 1; a length's noise has no constant times e^(-2 eps_2/3) as eps_2 goes to 0."""
    drawn = np.random.default_rng(0).standard_normal((20, dimension))
    unit = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    line = np.outer(np.linspace(-1, 0.9, 20), np.eye(dimension)[0])
    for direction in (0.1, 1.0, 2.0, dimension):
        for length in (1.0, 2.0, 3.0):
            for gradients in (unit, 0.01 * unit, line):
                assert constant(gradients, direction, length) < 16
    assert constant(0.01 * unit, 1.0, 0.01) > 10_000


@pytest.mark.exact
def test_the_covariance_of_directions_makes_the_lemma_false():
    """At a minimum: many small gradients one way, one large the other way. No constant holds."""
    found = []
    for rare in (0.1, 0.01, 0.001):
        small = rare / (1 - rare)  # the mean is zero, the largest length 1
        weight = np.array([1 - rare, rare])
        gradients = np.array([[small, 0, 0], [-1.0, 0, 0]])
        assert weight @ gradients == pytest.approx(np.zeros(3))
        mechanism = separated(3, 2.0, 2.0)
        parts = [second_moment(mechanism, one[None]) for one in gradients]
        moment = np.tensordot(weight, parts, axes=1)
        directions = np.sign(gradients[:, 0])
        printed = 1 - (weight @ directions) ** 2  # the variance of the direction, 4 p (1 - p)
        e1 = np.diag([1.0, 0, 0]) + np.eye(3) / 3
        rate = 3 / 2.0
        bound = rate * (math.exp(-4 / 3) * printed + weight @ gradients[:, 0] ** 2) * e1
        found.append(lemma_4_5_constant(moment, bound))
    assert found[1] > 6 * found[0] and found[2] > 6 * found[1]


@pytest.mark.exact
def test_the_condition_of_theorem_3_must_not_depend_on_the_unit():
    """As printed, without r^2, gradients in thousandths of their unit would need less budget."""
    needed = [length_epsilon_needed(500, 100.0, 0.002 * s**2, s) for s in (1.0, 0.001, 1000.0)]
    assert needed == pytest.approx([needed[0]] * 3)
    printed = [1.5 * math.log(500 / (100.0 * 0.002 * s**2)) for s in (1.0, 1000.0)]
    assert printed[1] < 0 < printed[0] == pytest.approx(needed[0])
    # And where it is met the length's noise is no more than a constant times the direction's.
    w = np.eye(3)[[0, 1, 2, 0]] * 0.3
    eps = length_epsilon_needed(3, 2.0, float(np.linalg.eigvalsh(w.T @ w / 4).min()), 1.0)
    known_length = private_averaged_sgd(np.eye(3), w / 0.3, PrivUnit(3, 2.0, inputs="sphere"), 1)
    sent = private_averaged_sgd(np.eye(3), w, separated(3, 2.0, eps), 1)
    assert 1 < sent.mean_squared_error / (0.09 * known_length.mean_squared_error) < 2


@pytest.mark.exact
def test_a_coefficient_in_the_proof_of_lemma_4_5():
    """E[U_2^2 | U_1 <= g] <= 1/d is false: in three dimensions heights are uniform."""
    d, g = 3, 0.5
    along = (g**3 + 1) / 3 / (g + 1)  # E[U_1^2 | U_1 <= g]
    assert 1 / d < (1 - along) / (d - 1) <= 1 / (d - 1)


# Refused ----------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: averaged_sgd(H, S, 0), "num_steps must be"),
        (lambda: averaged_sgd(H, np.eye(3), 1), r"gradient_moment must have shape \(2, 2\)"),
        (lambda: averaged_sgd(-H, S, 1), "hessian must be positive definite"),
        (lambda: averaged_sgd(H[:1], S, 1), "hessian must be a square matrix"),
        (lambda: averaged_sgd(H, S + [[0, 1], [0, 0]], 1), "gradient_moment must be symmetric"),
        (lambda: averaged_sgd(H * np.nan, S, 1), "finite"),
        (lambda: averaged_sgd(H, S, 1).region_radius(1.0), "level must lie"),
        (lambda: averaged_sgd(H, S, 1).confidence_interval(np.zeros(2), 0.0), "level must lie"),
        (lambda: length_epsilon_needed(3, 0.0, 1.0, 1.0), "direction_epsilon must be"),
        (lambda: lemma_4_5(np.eye(2), 1.0, 0.0, 1.0), "length_epsilon must be"),
    ],
)
def test_refused_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.exact
def test_quantiles_are_those_of_scipy():
    for d in (1, 2, 30):
        law = averaged_sgd(np.eye(d), np.eye(d), 1)
        for level in (0.5, 0.95, 0.999):
            assert law.region_radius(level) ** 2 == pytest.approx(stats.chi2(d).ppf(level))
