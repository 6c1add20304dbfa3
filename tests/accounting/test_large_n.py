"""The limit of large crowds against exact values."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_ldp.accounting.schedule_prices import OutOfRangeError
from beam_ldp.randomizers.frequency import KRandomizedResponse
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.research.published import renyi
from beam_ldp.research.published.closed_forms import (
    crowd_constant,
    gaussian_epsilon,
    large_crowd_epsilon,
)
from tests.accounting.rdp_curves import two_response_expansion

pytestmark = pytest.mark.exact


@given(mu=st.floats(1e-4, 5.0), delta=st.floats(-12.0, -0.5).map(lambda x: 10**x))
@settings(max_examples=60)
def test_epsilon_of_a_gaussian_solves_its_definition(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon == 0.0:
        assert 2 * stats.norm.cdf(mu / 2) - 1 <= delta * (1 + 1e-9)
        return
    first = stats.norm.cdf(mu / 2 - epsilon / mu)
    second = math.exp(epsilon) * stats.norm.cdf(-mu / 2 - epsilon / mu)
    assert first - second == pytest.approx(delta, rel=1e-5, abs=1e-15)


def test_epsilon_grows_to_the_smallest_delta_there_is():
    """The reciprocal of a subnormal number is infinite; its logarithm is not."""
    found = [gaussian_epsilon(0.1, delta) for delta in (1e-300, 1e-320, 5e-324)]
    assert found == sorted(found) and math.isfinite(found[-1])
    assert found[1] / found[0] == pytest.approx((320 / 300) ** 0.5, rel=0.01)


@pytest.mark.parametrize(
    ("budget", "rounds", "golden"),
    [
        (2.0, 1, 0.0123),
        (0.5, 100, 0.0216),
        (0.5, 10**4, 0.2412),
        (0.5, 10**5, 0.806),
        (2.0, 100, 0.137),
        (2.0, 10**4, 1.54),
    ],
)
def test_gaussian_limit_of_a_million_reports(budget, rounds, golden):
    found = large_crowd_epsilon(crowd_constant(budget), 10**6, 1.0, rounds, 1e-8)
    assert found == pytest.approx(golden, rel=5e-3)


def test_constants_in_the_order_of_what_is_known():
    """Clones, strong clones and the best possible one, by the factors that the proofs give."""
    for budget in (0.5, 2.0, 4.0):
        ratio, square = math.exp(budget), math.expm1(budget) ** 2
        clones = crowd_constant(ShufflePair.clones(budget))
        strong = crowd_constant(ShufflePair.clones(budget, strong=True))
        assert clones == pytest.approx(square * 4 * ratio / (ratio + 1) ** 2)
        assert strong == pytest.approx(square * 2 / (ratio + 1))
        assert crowd_constant(budget) < strong < clones
    own = crowd_constant(KRandomizedResponse(1000, 4.0).dominating_pair())
    assert own == pytest.approx(math.expm1(4.0) ** 2 * 2 / (math.exp(4.0) + 999), rel=1e-6)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("order", [1.5, 2, 10])
def test_expansion_is_exact_up_to_its_order(order, reverse):
    exact = renyi.two_response_direction(order, 1.0, 10**4, reverse=reverse)
    assert two_response_expansion(order, 1.0, 10**4, reverse=reverse) == pytest.approx(
        exact, rel=2e-5
    )


def test_expansion_golden_and_range():
    assert two_response_expansion(10, 1.0, 10**4) == pytest.approx(5.427361e-4, rel=1e-6)
    backwards = two_response_expansion(10, 1.0, 10**4, reverse=True)
    assert backwards == pytest.approx(5.434796e-4, rel=1e-6)
    with pytest.raises(OutOfRangeError, match="use the exact sum"):
        two_response_expansion(100, 1.0, 1000)
