"""Calculators: work and bits of a compressed PrivUnit, errors of older mechanisms."""

from __future__ import annotations

import math

import pytest

from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.seed_compression import (
    expected_trials,
    gaussian_error,
    hemisphere_error,
    laplace_error,
    repeated_hemisphere_error,
    seed_bits,
)
from tests.randomizers.mean.golden_errors import golden

pytestmark = pytest.mark.exact

ERRORS = {
    "hemisphere": hemisphere_error,
    "hemispheres": repeated_hemisphere_error,
    "laplace": laplace_error,
    "normal 1e-5": lambda d, epsilon: gaussian_error(d, epsilon, 1e-5),
}


@pytest.mark.parametrize("row", ERRORS)
def test_errors_have_the_known_figures(row):
    for d, epsilon, figure, half_digit in golden(row):
        best = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
        assert ERRORS[row](d, epsilon) / best == pytest.approx(figure, abs=1.01 * half_digit)


def test_trials_have_the_known_figures():
    for d, epsilon, figure, half_digit in golden("trials"):
        assert expected_trials(d, epsilon) == pytest.approx(figure, abs=1.01 * half_digit)
    ratio = math.exp(8)
    measure = PrivUnit(8192, 8.0).cap.measure
    assert expected_trials(8192, 8.0) == pytest.approx(ratio / (1 + (ratio - 1) * measure))


def test_a_seed_takes_at_least_128_bits():
    assert seed_bits(8192, 1.0) == 129
    assert seed_bits(8192, 16.0) == 147
