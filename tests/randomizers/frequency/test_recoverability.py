"""What a key must hold that recovers values: formulas, conditions, and keys that fail them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import HadamardResponse
from beam_ldp.randomizers.frequency.recoverable_response import (
    key_entropy,
    key_ratio,
    least_key_entropy,
    most_senders,
    recovers,
)

pytestmark = pytest.mark.exact

FIGURE_7_3 = {  # for k = 10, 100, 1000
    0.5: (3.2771, 6.5989, 9.9209),
    1.0: (3.1454, 6.4660, 9.7879),
    2.0: (2.6376, 5.9594, 9.2813),
    3.0: (1.8734, 5.1906, 8.5123),
    5.0: (0.4974, 3.1597, 6.4778),
    10.0: (0.0065, 0.0710, 0.6899),
}
BUDGETS = (1e-9, 1e-6, 1e-4, 9.9e-4, 1.1e-3, 0.01, 0.3, 1.0, 2.6, 2.7, 5.9, 8.5, 8.7, 20.0, 800.0)


def entropy(law: np.ndarray) -> float:
    law = law[law > 0]
    return float(-law @ np.log2(law))


def test_figure_7_3():
    for budget, expected in FIGURE_7_3.items():
        found = [least_key_entropy(k, budget).bits for k in (10, 100, 1000)]
        assert found == pytest.approx(expected, abs=6e-5)


def test_entropy_of_a_key_is_that_of_its_law():
    for k, heavy, budget in ((7, 3, 1.0), (100, 42, 0.1), (10, 1, 5.0), (5, 5, 2.0), (5, 0, 2.0)):
        law = np.ones(k)
        law[:heavy] = math.exp(budget)
        assert key_entropy(k, heavy, budget) == pytest.approx(entropy(law / law.sum()), abs=1e-12)


@pytest.mark.parametrize("k", [2, 3, 4, 10, 63, 100, 1000])
def test_least_entropy_is_that_of_the_best_number_of_heavy_keys(k):
    for budget in BUDGETS:
        tried = [key_entropy(k, s, budget) for s in range(1, k)]
        bits, heavy = least_key_entropy(k, budget)
        assert bits == pytest.approx(min(tried), rel=1e-12, abs=1e-14)
        if 1e-4 < budget < 100:  # else all are equal as floats go
            assert tried[heavy - 1] == min(tried)


def test_least_entropy_falls_with_the_budget_from_that_of_the_values():
    for k in (2, 10, 1000):
        found = [least_key_entropy(k, budget).bits for budget in (0.0, *BUDGETS)]
        assert found[0] == pytest.approx(math.log2(k), abs=1e-12)
        assert all(a >= b - 1e-12 for a, b in itertools.pairwise(found))


def test_number_of_heavy_keys_loses_no_digits_at_small_budgets():
    """(eps - 1) e^eps + 1 cancels: in floats it is zero or noise below eps = 1e-8."""
    for budget in (0.0, 1e-12, 1e-9, 1e-6, 1e-4):
        assert least_key_entropy(1001, budget).num_heavy in (500, 501)


@pytest.mark.parametrize("k, first", [(10, 2.63), (100, 5.85), (1000, 8.60)])
def test_one_heavy_key_is_best_from_its_own_budget_on(k, first):
    assert least_key_entropy(k, first - 0.02).num_heavy == 2
    assert least_key_entropy(k, first + 0.02).num_heavy == 1


def test_an_enumeration_of_small_laws_finds_no_key_of_less_entropy():
    """Extreme laws with ratio at most E have two values: all subsets of heavy keys, any number."""
    for k, keys, budget in ((2, 2, 1.0), (3, 3, 0.5), (2, 3, 1.5), (3, 4, 1.0)):
        least = least_key_entropy(k, budget).bits
        for heavy in range(keys):
            assert key_entropy(keys, heavy, budget) >= least - 1e-12


def test_hadamard_response_fails_by_its_row_of_ones():
    assert most_senders(HadamardResponse(100, 1.0, num_blocks=1).channel()) > 1.14
    assert most_senders(HadamardResponse(1000, 3.0).channel()) > 1.3


def test_a_key_of_enough_entropy_may_be_unusable():
    k, budget = 200, 0.5
    law = np.ones(k)
    law[0] = math.exp(-2 * budget)
    law /= law.sum()
    assert entropy(law) == pytest.approx(7.642, abs=6e-4)
    assert least_key_entropy(k, budget).bits == pytest.approx(7.599, abs=6e-4)
    assert key_ratio(law) == pytest.approx(2 * budget)
    assert key_ratio(np.array([1.0, 0.0])) == math.inf


def test_a_square_table_recovers_exactly_where_it_is_a_latin_square():
    tables = itertools.product(itertools.permutations(range(3)), repeat=3)  # columns: injective
    for columns in tables:
        table = np.array(columns).T
        rows = all(sorted(row) == [0, 1, 2] for row in table.tolist())
        assert recovers(table) is rows
    assert not recovers(np.array([[0, 1], [0, 1]]))  # one report for two values
    assert recovers(np.array([[0, 1, 2], [1, 2, 0]]))  # more reports than values


def test_arguments_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="domain_size must be an integer >= 2"):
        least_key_entropy(1, 1.0)
    with pytest.raises(ValueError, match="local_epsilon must be >= 0"):
        least_key_entropy(3, -1.0)
    with pytest.raises(ValueError, match="num_heavy must be an integer from 0 to 3"):
        key_entropy(3, 4, 1.0)
    with pytest.raises(ValueError, match="key_law must be a vector"):
        key_ratio(np.array([0.5, 0.6]))
    with pytest.raises(ValueError, match="table must hold"):
        recovers(np.array([1, 2]))
