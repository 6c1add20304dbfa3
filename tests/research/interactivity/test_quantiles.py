"""A quantile by bisection: exact errors, what each person pays, and what it takes again or once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from beam_ldp.research.interactivity.kernels import joint_epsilon, kernel_epsilon
from beam_ldp.research.interactivity.quantiles import QuantileSearch
from beam_ldp.research.interactivity.sequential import protocol_epsilon
from beam_ldp.research.interactivity.waves import one_by_one

SEARCH = QuantileSearch(cells=11, level=0.4, epsilon=2.0, error=0.1, beta=0.1)
AGAIN = replace(SEARCH, again=True)


def law_of_the_cell(search: QuantileSearch, population: np.ndarray) -> np.ndarray:
    """Exact law of the cell that is found, where each step has people of its own."""
    below, law = np.cumsum(population), np.zeros(search.cells)
    steps = [((), 1.0)]
    while steps:
        finished, chance = steps.pop()
        low, high = search.interval(finished)
        if low == high:
            law[low] += chance
            continue
        rate = search.rate(below[(low + high) // 2])
        yes = stats.binom.sf(search.decisive - 1, search.votes, rate)
        steps.append(((*finished, (1,) * search.votes), chance * yes))
        steps.append(((*finished, (0,) * search.votes), chance * (1 - yes)))
    return law


@pytest.mark.parametrize("level", [0.03, 0.4, 0.5, 0.95])
def test_the_cell_is_as_good_as_promised(level: float) -> None:
    """Exactly, for random populations and for one that has a hard threshold at every step."""
    search = replace(SEARCH, level=level)
    random = np.random.default_rng(6)
    populations = [random.dirichlet(np.full(11, spread)) for spread in (0.2, 1, 10)]
    steep = np.zeros(11)  # all thresholds just outside the error, below and above
    steep[[0, 5, 10]] = max(level - 0.1, 0), 0.2, 1 - 0.2 - max(level - 0.1, 0)
    populations += [steep] if steep.min() >= 0 else []
    for population in populations:
        below = np.cumsum(population)
        good = (below >= level - 0.1 - 1e-12) & (below - population <= level + 0.1 + 1e-12)
        law = law_of_the_cell(search, population)
        assert law.sum() == pytest.approx(1, abs=1e-9)
        assert law[good].sum() >= 1 - search.beta


@pytest.mark.parametrize("search", [SEARCH, AGAIN, replace(SEARCH, level=0.05)])
def test_decisions_are_exact_tests_of_few_people(search: QuantileSearch) -> None:
    near, far = search.rate(search.level - search.error), search.rate(search.level + search.error)
    failure = search.failure_of_a_decision
    assert stats.binom.sf(search.decisive - 1, search.votes, near) <= failure
    assert stats.binom.cdf(search.decisive - 1, search.votes, far) <= failure
    for votes in range(1, int(0.9 * search.votes)):  # whatever the threshold
        cut = stats.binom.isf(failure, votes, near) + 1
        assert stats.binom.cdf(cut - 1, votes, far) > failure


def test_rates_are_those_of_the_kernel() -> None:
    population = np.random.default_rng(1).dirichlet(np.ones(11))
    for threshold in (0, 4, 9):
        yes = population @ SEARCH.kernel(threshold)[:, 1]
        assert yes == pytest.approx(SEARCH.rate(population[: threshold + 1].sum()), abs=1e-12)


def test_everybody_pays_epsilon_once_or_in_parts() -> None:
    assert kernel_epsilon(SEARCH.kernel(4)) == pytest.approx(2.0, abs=1e-12)
    steps = [AGAIN.kernel(threshold) for threshold in (5, 2, 3, 4)]
    assert AGAIN.steps == 4 and kernel_epsilon(steps[0]) == pytest.approx(0.5, abs=1e-12)
    # cells 0 and 10 are on different sides of all thresholds: no block structure, no saving
    assert joint_epsilon(steps) == pytest.approx(2.0, abs=1e-12)

    class OneVote(QuantileSearch):
        votes = 1
        decisive = 1

    for again in (False, True):
        tiny = OneVote(4, 0.5, 2.0, 0.1, again=again)
        assert protocol_epsilon(one_by_one(tiny.rounds)) == pytest.approx(2.0, abs=1e-12)


def test_each_step_has_people_of_its_own_or_the_same() -> None:
    first, second = SEARCH.rounds(()), SEARCH.rounds(((1,) * SEARCH.votes,))
    assert len(first) == len(second) == SEARCH.votes
    assert not {question.user for question in first} & {question.user for question in second}
    again = AGAIN.rounds(()), AGAIN.rounds(((0,) * AGAIN.votes,))
    assert [[q.user for q in wave] for wave in again] == [
        [(0, number) for number in range(AGAIN.votes)]
    ] * 2
    # half of 0 .. 10, then the lower half of what is left
    assert SEARCH.interval(((1,) * SEARCH.votes, (0,) * SEARCH.votes)) == (3, 5)


def test_parts_of_a_budget_are_worth_less_than_parts_of_the_people() -> None:
    """People asked once are fewer up to an epsilon of about the steps, and more from there on."""
    people = {
        epsilon: [QuantileSearch(64, 0.5, epsilon, 0.05, again=again).people for again in (0, 1)]
        for epsilon in (0.5, 1.0, 2.0, 4.0, 8.0)
    }
    assert all(once < again for epsilon, (once, again) in people.items() if epsilon <= 4)
    assert people[8.0][0] > people[8.0][1]
    # in place of people asked again, fresh ones: never fewer than those of whom each step has some
    for epsilon, (once, _) in people.items():
        price = QuantileSearch(64, 0.5, epsilon, 0.05, again=True).price
        assert price.k == 1 and price.rounds == 6 * price.people
        assert min(price.expected(mode) for mode in ("paper", "tight", "plain")) > 5 * once


def test_refusals() -> None:
    for changed, reason in (
        ({"cells": 1}, "cells"),
        ({"level": 1.0}, "level"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"error": 0.0}, "error"),
        ({"beta": 1.0}, "beta"),
    ):
        with pytest.raises(ValueError, match=reason):
            replace(SEARCH, **changed)
    with pytest.raises(ValueError, match="needs more than"):
        _ = replace(SEARCH, epsilon=1e-6, error=1e-3).votes


def test_an_error_beyond_the_ends_needs_no_people_there() -> None:
    assert SEARCH.rate(-0.1) == SEARCH.rate(0.0) and SEARCH.rate(1.2) == SEARCH.rate(1.0)
    assert math.isclose(SEARCH.rate(1.0), 1 / (1 + math.exp(-2.0)))
