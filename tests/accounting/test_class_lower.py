"""What nothing can be proved below: against enumeration, and where crowds are too large for it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.accounting.divergences.loss_grid import hockey_sticks, lower_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import three_response_atoms
from beam_ldp.accounting.lower import (
    class_lower_epsilon,
    difference_law,
    three_response_difference_atoms,
    three_response_epsilon,
    two_response_epsilon,
)
from beam_ldp.research.published.closed_forms import crowd_constant, large_crowd_epsilon
from tests.accounting.brute_force import (
    Pairs,
    channel_pairs,
    response_rows,
    two_level_pairs,
)

pytestmark = pytest.mark.exact


@pytest.mark.parametrize("trials", [0, 1, 3, 200])
def test_law_of_a_difference_of_counts(trials):
    """Against repeated convolution, wherever there is mass."""
    law, step = np.ones(1), np.array([0.2, 0.6, 0.2])
    for _ in range(trials):
        law = np.convolve(law, step)
    found = difference_law(trials, 0.2, 0.6)
    middle, reach = len(found) // 2, min(trials, len(found) // 2, 60)
    ours = found[middle - reach : middle + reach + 1]
    assert ours == pytest.approx(law[trials - reach : trials + reach + 1], rel=1e-10)
    assert found.sum() == pytest.approx(1.0, rel=1e-14)


@pytest.mark.parametrize(("epsilon", "rate"), [(1.0, 1.0), (2.0, 1 / 30), (4.0, 0.5)])
def test_one_number_tells_nearly_as_much_as_the_histogram(epsilon, rate):
    """It is less to tell two data sets apart by, and hardly less."""
    whole = three_response_atoms(epsilon, 2000, rate, 100.0)
    one = three_response_difference_atoms(epsilon, 2000, rate)
    losses = np.linspace(0.0, 0.2 * rate, 9)
    listed, pooled = hockey_sticks(whole, losses), hockey_sticks(one, losses)
    assert np.all(pooled <= listed * (1 + 1e-9) + 1e-13)
    assert pooled[:4] == pytest.approx(listed[:4], rel=2e-2)
    for count, delta in ((1, 1e-6), (100, 1e-6)):
        least = lower_epsilon([(count, whole)], delta)
        found = lower_epsilon([(count, one)], delta)
        assert found <= least * (1 + 5e-3) and found == pytest.approx(least, rel=3e-2)


@pytest.mark.parametrize(
    ("pairs", "reports", "rate"),
    [
        (lambda rows: channel_pairs(rows, 5), 5, 1.0),
        (lambda rows: channel_pairs(rows, 5, 3), 3, 3 / 5),
        (lambda rows: two_level_pairs(rows, 3, 2, 2, 1), 2, 2 / 6),
        (lambda rows: two_level_pairs(rows, 3, 2, 2, 2), 4, 4 / 6),
    ],
    ids=["full", "sampled", "one of two points", "both points"],
)
def test_some_data_set_of_the_class_costs_that_much(pairs, reports, rate):
    """Binary and ternary response on every data set: the worst delta at the floor is the target."""
    for values, epsilon, floor in (
        (2, 1.0, two_response_epsilon),
        (3, 2.0, three_response_epsilon),
    ):
        found: Pairs = pairs(response_rows(values, epsilon))
        for delta in (0.001, 0.02):
            claimed = floor(epsilon, reports, rate, 1, delta)
            assert claimed > 0
            assert found.sticks([claimed])[0] >= delta * (1 - 1e-9)


def test_two_rounds_cost_what_two_rounds_of_some_data_set_cost():
    once = channel_pairs(response_rows(2, 1.0), 4)
    claimed = two_response_epsilon(1.0, 4, 1.0, 2, 0.01)
    assert once.times(once).sticks([claimed])[0] >= 0.01 * (1 - 1e-9)
    assert claimed > two_response_epsilon(1.0, 4, 1.0, 1, 0.01)


@pytest.mark.parametrize(
    ("epsilon", "n", "rate", "count", "delta", "two", "three"),
    [
        (2.0, 1000, 1e-3, 10**5, 1e-8, 0.108, 0.137),
        (1.5, 10**4, 1 / 6, 1200, 1e-5, 0.322, 0.384),
        (2.0, 2000, 1 / 30, 6000, 1e-5, 0.475, 0.609),
        (2.0, 10**4, 1 / 6, 480, 1e-5, 0.289, 0.369),
    ],
)
def test_golden_floors_of_trainings(epsilon, n, rate, count, delta, two, three):
    assert two_response_epsilon(epsilon, n, rate, count, delta) == pytest.approx(two, rel=4e-3)
    assert three_response_epsilon(epsilon, n, rate, count, delta) == pytest.approx(three, rel=4e-3)


@pytest.mark.parametrize("n", [10**4, 10**6, 10**8])
def test_large_crowds_tend_to_the_best_constant(n):
    """Ternary response attains it, so that floor and Gaussian limit meet."""
    limit = large_crowd_epsilon(crowd_constant(3.0), n, 1.0, 50, 1e-8)
    floor = class_lower_epsilon(3.0, n, 1.0, 50, 1e-8)
    assert floor == pytest.approx(limit, rel=3e-2 if n == 10**4 else 2e-3)


@given(
    epsilon=st.floats(0.05, 5.0),
    n=st.floats(1.0, 5.0).map(lambda x: int(10**x)),
    count=st.integers(1, 200),
)
@settings(max_examples=8)
def test_floors_grow_with_rounds_and_fall_with_people(epsilon, n, count):
    here = class_lower_epsilon(epsilon, n, 1.0, count, 1e-6)
    assert 0 <= here <= count * epsilon * (1 + 1e-9)
    assert class_lower_epsilon(epsilon, n, 1.0, 2 * count, 1e-6) >= here * (1 - 1e-3)
    assert class_lower_epsilon(epsilon, 3 * n, 1.0, count, 1e-6) <= here * (1 + 5e-3)
    assert not math.isnan(here)
