"""Differences and ratios: errors against simulation, Fieller's sets against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.contrasts import combine, difference_of, fieller, ratio, ratio_of
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.frequency import KRandomizedResponse, SubsetSelection

TRUTH = np.array([0.5, 0.3, 0.15, 0.05])


@pytest.mark.statistical
@pytest.mark.parametrize(
    "oracle", [KRandomizedResponse(4, 1.0), SubsetSelection(4, 1.0, 2)], ids=str
)
def test_differences_and_ratios_hold_as_often_as_they_say(oracle):
    """500 releases of 4,000 people: a 95 % set that holds fewer than 455 times has probability
    below 1e-4; taking the values for independent misses the variance by far."""
    rng = np.random.default_rng(2)
    values = np.repeat(np.arange(4), (4000 * TRUTH).astype(int))
    held, naive, lead = 0, 0.0, []
    for _ in range(500):
        estimate = oracle.estimate(oracle.accumulate(oracle.randomize(values, rng)), 4000)
        found = ratio(estimate, oracle, [1, 0, 0, 0], [1, 1, 0, 0])
        held += found.holds(0.5 / 0.8)
        difference = combine(estimate, oracle, [1, -1, 0, 0])
        lead.append((difference.value[0] - 0.2) / difference.standard_error[0])
        naive = float(np.hypot(*estimate.standard_error[:2]) / difference.standard_error[0])
    assert 455 <= held <= 495
    assert abs(np.var(lead) - 1) < 5 * math.sqrt(2 / 499)
    assert abs(np.mean(lead)) < 5 / math.sqrt(500)
    assert abs(naive - 1) > 0.05


@pytest.mark.exact
def test_the_set_is_where_the_test_does_not_refuse():
    """Fieller's set by its definition, on a grid: interval, complement of one, everything."""
    cases = [(2.0, 1.0, 0.04, 0.01, 0.005), (1.0, 0.1, 0.01, 0.04, 0.0), (0.1, 0.1, 1.0, 1.0, 0.2)]
    kinds = set()
    for top, bottom, first, second, both in cases:
        found = fieller(top, bottom, first, second, both)
        kinds.add((found.bounded, math.isinf(found.low)))
        for r in np.linspace(-30, 30, 2401):
            variance = first - 2 * r * both + r * r * second
            accepted = abs(top - r * bottom) <= 1.959963984540054 * math.sqrt(variance)
            assert found.holds(r) == accepted, (r, found)
    assert kinds == {(True, False), (False, False), (False, True)}


@pytest.mark.exact
def test_independent_releases():
    first = Estimate(np.array([0.4, 0.6]), np.array([0.03, 0.04]), 100)
    second = Estimate(np.array([0.1, 0.9]), np.array([0.04, 0.03]), 50)
    difference = difference_of(first, second)
    np.testing.assert_allclose(difference.value, [0.3, -0.3])
    np.testing.assert_allclose(difference.standard_error, [0.05, 0.05])
    assert difference.num_users == 50
    found = ratio_of(first, second, 1)
    assert found.value == pytest.approx(2 / 3) and found.bounded and found.holds(2 / 3)
    projected = first.clip()
    assert np.array_equal(difference_of(projected, second).value, difference.value)
    with pytest.raises(ValueError, match="one shape"):
        difference_of(first, Estimate(np.zeros(3), np.zeros(3), 1))
    with pytest.raises(ValueError, match="level"):
        fieller(1, 1, 1, 1, 0, level=1.0)
    assert math.isnan(fieller(1, 0, 1, 1, 0).value)


@pytest.mark.exact
def test_what_must_be_one_is_known_exactly():
    oracle = KRandomizedResponse(4, 1.0)
    estimate = oracle.estimate(np.array([400, 220, 200, 180]), 1000)
    whole = combine(estimate, oracle, np.ones(4))
    assert whole.value[0] == pytest.approx(1.0) and whole.standard_error[0] < 1e-7
    share = ratio(estimate, oracle, [1, 0, 0, 0], np.ones(4))
    assert share.standard_error == pytest.approx(estimate.standard_error[0], rel=1e-6)
