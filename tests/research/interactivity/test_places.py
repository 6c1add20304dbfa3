"""Country, region, city: what everybody pays at all levels, three ways, and how many it takes."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from beam_ldp.research.interactivity.kernels import LikelihoodFilter, joint_epsilon, kernel_epsilon
from beam_ldp.research.interactivity.places import PlaceSearch
from beam_ldp.research.interactivity.sequential import convert, protocol_epsilon
from beam_ldp.research.interactivity.waves import one_by_one

SEARCH = PlaceSearch(3, 3, epsilon=2.0, share=0.25, rival=0.05, beta=0.1, again=True)


class OneVote(PlaceSearch):
    """One person, so that everything can be enumerated."""

    votes = 1


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_all_levels_cost_one_epsilon_by_ledger_filter_and_enumeration(epsilon: float) -> None:
    """The ledger says depth times as much; filter, batch formula and enumeration say one."""
    search = OneVote(3, 2, epsilon, 0.5, 0.2, again=True)
    assert protocol_epsilon(one_by_one(search.rounds)) == pytest.approx(epsilon, abs=1e-12)
    for path in itertools.product(range(2), repeat=3):
        questions = [search.kernel(path[:level]) for level in range(3)]
        ledger = sum(map(kernel_epsilon, questions))
        assert ledger == pytest.approx(3 * epsilon, abs=1e-12)
        assert ledger == pytest.approx(search.sum_of_epsilons, abs=1e-12)
        assert joint_epsilon(questions) == pytest.approx(epsilon, abs=1e-12)
        person = LikelihoodFilter(search.data, budget=epsilon)
        for kernel, answer in zip(questions, path, strict=True):
            assert person.fits(kernel)
            person.answered(kernel, answer)
    assert replace(search, again=False).sum_of_epsilons == epsilon


def test_who_knows_another_level_or_place_answers_evenly() -> None:
    kernel = SEARCH.kernel((1,))
    told = math.exp(2.0) / (math.exp(2.0) + 2)
    for child in range(3):
        assert kernel[SEARCH.datum((1, child)), child] == pytest.approx(told, abs=1e-12)
    elsewhere = [(), (1,), (0, 1), (2, 1), (1, 0, 2)]
    assert kernel[[SEARCH.datum(path) for path in elsewhere]] == pytest.approx(1 / 3, abs=1e-12)
    assert np.count_nonzero(np.ptp(kernel, axis=1) > 1e-12) == 3


def test_every_place_has_a_datum_of_its_own() -> None:
    paths = [path for length in range(4) for path in itertools.product(range(3), repeat=length)]
    assert sorted(map(SEARCH.datum, paths)) == list(range(SEARCH.data)) and SEARCH.data == 40
    for bad in ((3,), (0, 0, 0, 0)):
        with pytest.raises(ValueError, match="child|length of path"):
            SEARCH.datum(bad)


def test_probabilities_of_children_are_those_of_the_kernel_in_the_hardest_population() -> None:
    """Of populations with this share and rival, none makes the two less likely to be told apart."""
    search, hardest = SEARCH, (SEARCH._named(0.25), SEARCH._named(0.05))
    gap = math.sqrt(hardest[0]) - math.sqrt(hardest[1])
    random = np.random.default_rng(2)
    for third in (0.0, 0.02, 0.05):
        population = np.zeros(search.data)
        population[[search.datum((child,)) for child in range(3)]] = 0.25, 0.05, third
        rest = population == 0
        population[rest] = (0.7 - third) * random.dirichlet(np.ones(rest.sum()))
        population[search.datum((2,))] = third
        population[0] += 1 - population.sum()
        named = population @ search.kernel(())
        assert math.sqrt(named[0]) - math.sqrt(named[1]) >= gap - 1e-12
        if third == 0:
            assert named[:2] == pytest.approx(hardest, abs=1e-12)


def test_chernoff_holds_and_is_not_far_off() -> None:
    """Against the exact probability that the rival is named as often, at the planned people."""
    for search in (SEARCH, PlaceSearch(3, 4, 4.0, 0.4, 0.1)):
        named, other = search._named(search.share), search._named(search.rival)
        people = np.arange(search.votes + 1)  # who name one of the two
        behind = stats.binom.cdf(people // 2, people, named / (named + other))
        exact = float(stats.binom.pmf(people, search.votes, named + other) @ behind)
        allowed = search.beta / (search.depth * (search.children - 1))
        assert exact <= allowed < 40 * exact


def test_the_same_people_are_asked_at_all_levels_or_people_of_their_own() -> None:
    answers = (1,) * SEARCH.votes
    again = [SEARCH.rounds(finished) for finished in ((), (answers,))]
    assert {q.user for q in again[0]} == {q.user for q in again[1]}
    once = [replace(SEARCH, again=False).rounds(finished) for finished in ((), (answers,))]
    assert not {q.user for q in once[0]} & {q.user for q in once[1]}
    assert SEARCH.path((answers, (0, 2, 2, 0))) == (1, 0)  # the first in a tie
    assert SEARCH.rounds((answers,) * 3) == []
    assert replace(SEARCH, again=False).people == 3 * SEARCH.people


def test_fresh_people_in_place_of_the_same_cost_more_than_people_of_their_own() -> None:
    """Never worth it here: only totals are used. Exact for one person, and by the closed price."""
    for epsilon in (0.5, 1.0, 2.0, 4.0):
        price = PlaceSearch(3, 4, epsilon, 0.2, 0.1, again=True).price
        assert price.k == 3
        assert min(price.expected(mode) for mode in ("paper", "tight", "plain")) > 3 * price.people
    tiny = OneVote(2, 2, 1.0, 0.5, 0.2, again=True)
    people = np.full(tiny.data, 1 / tiny.data)
    assert convert(one_by_one(tiny.rounds), people, 1.0).people > 2


def test_refusals() -> None:
    for changed, reason in (
        ({"depth": 0}, "depth"),
        ({"children": 1}, "children"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"share": 0.0}, "share"),
        ({"rival": 0.3}, "rival must be below share"),
        ({"share": 0.9, "rival": 0.2}, "both together at most 1"),
        ({"beta": 0.0}, "beta"),
        ({"depth": 11}, "at most 65,535 places"),
    ):
        with pytest.raises(ValueError, match=reason):
            replace(SEARCH, **changed)
