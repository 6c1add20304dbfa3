"""The attacker's own statistics: never above the truth, and near it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.canaries.lower_bounds import lower_epsilon

pytestmark = pytest.mark.statistical


def draws(chances: list[float], trials: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).choice(len(chances), trials, p=chances)


def test_equal_worlds_prove_nothing():
    """Even of one trial in two hundred (miss = 0.005) the bound is seldom above zero: 300 times,
    at most 12 (probability below 1e-6)."""
    found = [
        lower_epsilon(draws([0.5, 0.5], 200, 2 * i), draws([0.5, 0.5], 200, 2 * i + 1), miss=0.005)
        for i in range(300)
    ]
    assert sum(value > 0 for value in found) <= 12


def test_the_bound_is_below_the_truth_and_near_it():
    for epsilon in (0.5, 1.0, 3.0):
        lie = 1 / (1 + math.exp(epsilon))
        found = lower_epsilon(draws([1 - lie, lie], 100_000, 1), draws([lie, 1 - lie], 100_000, 2))
        assert 0.9 * epsilon < found <= epsilon


def test_delta_is_taken_off():
    """A catastrophe of probability 0.01 proves nothing about (0, 0.02)-privacy, and much at 0."""
    bad, good = draws([0.99, 0.01], 40_000, 3), draws([1.0, 0.0], 40_000, 4)
    assert lower_epsilon(bad, good) > 2
    assert lower_epsilon(bad, good, delta=0.02) == 0


def test_it_works_in_both_directions_and_for_many_views():
    one, other = draws([0.2] * 5, 40_000, 5), draws([0.01, 0.24, 0.25, 0.25, 0.25], 40_000, 6)
    assert lower_epsilon(one, other) == pytest.approx(math.log(20), abs=0.5)
    assert lower_epsilon(other, one) == pytest.approx(math.log(20), abs=0.5)
