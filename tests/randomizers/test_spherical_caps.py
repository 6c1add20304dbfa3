"""Cap measures against quadrature, and the thresholds that spend a budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize

from beam_ldp.randomizers.spherical_caps import (
    SphericalCap,
    expit,
    log1mexp,
    log_density_constant,
    log_gamma_half_step,
    optimal_threshold,
    sufficient_threshold,
    threshold_for,
)

pytestmark = pytest.mark.exact

# dimension, epsilon, threshold, coin probability, mean squared error
OPTIMA = [
    (128, 1, 0.0351889, 0.58994, 806.587),
    (128, 4, 0.1336231, 0.79299, 55.0063),
    (128, 8, 0.2393717, 0.90393, 16.4524),
    (128, 16, 0.3879950, 0.96097, 5.64275),
    (1024, 8, 0.085581, 0.90139, 135.537),
    (8192, 1, 0.004391500, 0.58934, 51852.0),
    (8192, 8, 0.03029951, 0.90107, 1088.25),
    (8192, 16, 0.05036557, 0.95765, 393.214),
    (10**6, 1, 3.974630941e-4, 0.58932581, 6330037.9),
    (10**6, 16, 0.004561303775, 0.95760021, 48063.232),
    (10**6, 500, 0.0312573815, 0.99898061, 1022.5164),
    (10**6, 5000, 0.09960423302, 0.99990023, 99.796258),
]


def log_measure_by_quadrature(d, g):
    """log P from the substitution w = -(d-1)/2 log((1-t^2)/(1-g^2)): an integral over [0, inf)."""
    half = (d - 1) / 2
    v = np.linspace(0.0, 1.0, 200_001)[1:-1]  # w = (v / (1 - v))^2 flattens both ends
    w = (v / (1 - v)) ** 2
    slope = 2 * v / (1 - v) ** 3
    t = np.sqrt(g * g - (1 - g) * (1 + g) * np.expm1(-w / half))
    integral = np.sum(np.exp(-w) / t * slope) * (v[1] - v[0])
    return (
        half * math.log1p(-g * g) + log_density_constant(d) - math.log(d - 1) + math.log(integral)
    )


@pytest.mark.parametrize("d", [2, 3, 10, 1000, 10**6])
@pytest.mark.parametrize("scaled", [0.01, 0.5, 1.5, 2.1, 5.0, 30.0])
def test_measure_agrees_with_quadrature_in_every_branch(d, scaled):
    g = min(scaled / math.sqrt(d), 0.99)
    expected = log_measure_by_quadrature(d, g)
    assert SphericalCap(d, g).log_measure == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(st.floats(0, 0.999))
def test_three_dimensions_in_closed_form(g):
    cap = SphericalCap(3, g)
    assert cap.measure == pytest.approx((1 - g) / 2, rel=1e-12)
    assert cap.mean_inside == pytest.approx((1 + g) / 2, rel=1e-12)
    assert cap.mean_outside == pytest.approx((g - 1) / 2, rel=1e-12)
    assert cap.second_moment == pytest.approx((1 - g**3) / 6, rel=1e-11)


@given(st.floats(0, 0.999))
def test_two_dimensions_in_closed_form(g):
    cap = SphericalCap(2, g)
    assert cap.measure == pytest.approx(math.acos(g) / math.pi, rel=1e-10)
    assert math.exp(cap.log_first_moment) == pytest.approx(
        math.sqrt(1 - g * g) / math.pi, rel=1e-10
    )


def test_deep_caps_keep_their_logarithm():
    assert SphericalCap(3274634, 0.055).log_measure == pytest.approx(-4965.9, abs=0.05)
    assert SphericalCap(10**6, 0.004561303775).log_measure == pytest.approx(-12.882715683, abs=1e-7)
    assert SphericalCap(10**6, 0.0312573815).log_measure == pytest.approx(-493.112473665, abs=1e-5)


def test_the_branches_meet():
    for d in (3, 50, 10**5):
        g = min(2 / math.sqrt(d), 0.7)
        below, above = SphericalCap(d, g * (1 - 1e-9)), SphericalCap(d, g * (1 + 1e-9))
        assert below.log_measure == pytest.approx(above.log_measure, abs=1e-7)
        assert below.log_odds_outside == pytest.approx(above.log_odds_outside, abs=1e-7)


def test_bounds_on_caps_hold():
    for d in (4, 30, 1000, 10**5):
        for g in np.linspace(math.sqrt(2 / d), 0.95, 20):
            log_p = SphericalCap(d, g).log_measure
            shape = (d - 1) / 2 * math.log1p(-g * g) - math.log(g * math.sqrt(d))
            assert shape - math.log(6) <= log_p <= shape - math.log(2)


@pytest.mark.parametrize(("d", "epsilon", "g", "p", "error"), OPTIMA)
def test_optimum_has_the_known_figures_and_is_the_fixed_point(d, epsilon, g, p, error):
    found = optimal_threshold(d, epsilon)
    cap = SphericalCap(d, found)
    coin = expit(epsilon - cap.log_odds_outside)
    assert found == pytest.approx(g, rel=1e-5)
    assert coin == pytest.approx(p, abs=6e-6)
    assert 1 / found**2 - 1 == pytest.approx(error, rel=2e-5)
    assert cap.expected_marginal(coin) == pytest.approx(found, rel=1e-10)


@pytest.mark.parametrize(("d", "epsilon"), [(2, 0.5), (3, 6.0), (500, 2.0), (10**5, 40.0)])
def test_no_other_threshold_does_better(d, epsilon):
    def marginal(g):
        cap = SphericalCap(d, g)
        return cap.expected_marginal(expit(epsilon - cap.log_odds_outside))

    best = optimal_threshold(d, epsilon)
    searched = optimize.minimize_scalar(
        lambda g: -marginal(g), bounds=(best / 3, min(0.999, 3 * best)), method="bounded",
        options={"xatol": 1e-9 * best},
    )  # fmt: skip
    assert marginal(best) >= -searched.fun * (1 - 1e-12)


@pytest.mark.parametrize("d", [2, 3, 10, 1000, 10**6, 3274634])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 30.0, 1000.0, 1e4])
def test_thresholds_never_overspend_and_stay_finite(d, epsilon):
    g = optimal_threshold(d, epsilon)
    cap = SphericalCap(d, g)
    assert 0 < g < 1
    assert cap.log_odds_outside <= epsilon
    exact = SphericalCap(d, threshold_for(d, epsilon))
    assert exact.log_odds_outside <= epsilon
    if exact.threshold < 1 - 1e-6:
        assert exact.log_odds_outside == pytest.approx(epsilon, rel=1e-6)


@pytest.mark.parametrize("d", [3, 10, 1000, 10**5])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 5.0, 50.0])
def test_the_papers_condition_is_sufficient_and_wasteful(d, epsilon):
    paper = sufficient_threshold(d, epsilon)
    assert SphericalCap(d, paper).log_odds_outside <= epsilon + 1e-12
    assert paper < threshold_for(d, epsilon) or paper > 1 - 1e-9


def test_the_papers_condition_is_refused_in_two_dimensions_where_it_is_false():
    false = math.tanh(1.5) * math.sqrt(math.pi / 2)
    assert false > 1  # not even a threshold
    with pytest.raises(ValueError, match="dimension must be >= 3"):
        sufficient_threshold(2, 3.0)


def test_gamma_quotient():
    for a in (0.5, 1.0, 29.9, 30.1, 200.0):
        plain = math.lgamma(a + 0.5) - math.lgamma(a)
        assert log_gamma_half_step(a) == pytest.approx(plain, rel=1e-12)
    assert log_gamma_half_step(5e6) == pytest.approx(0.5 * math.log(5e6) - 1 / 4e7, abs=1e-15)


@given(st.floats(-700, -1e-12))
def test_log1mexp(x):
    assert math.exp(log1mexp(x)) == pytest.approx(-math.expm1(x), rel=1e-12)


@pytest.mark.parametrize(("d", "g"), [(1, 0.5), (2.5, 0.5), (3, -0.1), (3, 1.0)])
def test_impossible_caps_are_refused(d, g):
    with pytest.raises(ValueError, match="dimension|threshold"):
        SphericalCap(d, g)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.nan, math.inf])
def test_impossible_budgets_are_refused(epsilon):
    for choose in (optimal_threshold, threshold_for, sufficient_threshold):
        with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
            choose(10, epsilon)
