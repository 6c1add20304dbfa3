"""Errors of older mechanisms have the known figures."""

from __future__ import annotations

import pytest

from beam_ldp.randomizers.mean.lower_bounds import hemisphere_error, repeated_hemisphere_error
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from tests.randomizers.mean.golden_errors import golden
from tests.randomizers.published import gaussian_error, laplace_error

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
