"""Going down a tree: the path, golden sizes, and people asked again or once."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.protocols.interactivity.descents import Descent, level_kernel, path_of
from beam_ldp.protocols.interactivity.kernels import joint_epsilon, kernel_epsilon


@pytest.mark.parametrize(
    ("depth", "paper", "hoeffding", "exact"),
    [(3, 23706, 1397, 775), (4, 53180, 2909, 1749), (8, 319075, 15929, 10863)],
)
def test_sizes_of_the_specification(depth: int, paper: int, hoeffding: int, exact: int) -> None:
    plan = Descent(depth, 1.0)
    assert (plan.votes_of_the_paper, plan.votes_by_hoeffding, plan.votes) == (
        paper,
        hoeffding,
        exact,
    )


def test_no_smaller_odd_group_suffices() -> None:
    for plan in (
        Descent(2, 3.0, 0.9, children=2),
        Descent(3, 1.0),
        Descent(3, 2.0, 0.01, children=5),
    ):
        failures = [
            plan.bits * plan.depth * stats.binom.cdf(votes // 2, votes, plan.right)
            for votes in range(1, plan.votes + 1, 2)
        ]
        assert failures[-1] <= plan.failure
        assert all(failure > plan.failure for failure in failures[:-1])


def test_bits_of_a_label_are_enough_and_not_too_many() -> None:
    assert [Descent(2, 1.0, children=children).bits for children in (2, 3, 4, 5, 8, 9, 4096)] == [
        1,
        2,
        2,
        3,
        3,
        4,
        12,
    ]


def test_path_stays_in_the_tree_and_follows_the_labels() -> None:
    """The paper's printed index is one power of the children too large: 241 of 16 nodes."""
    random = np.random.default_rng(3)
    labels = [random.integers(16, size=16**level).tolist() for level in range(3)]
    first, second, third = path_of(labels, children=16)
    assert first == labels[0][0]
    assert second == labels[1][first]
    assert third == labels[2][16 * first + second]
    assert 15 * 16 + 1 == 241 >= len(labels[1])


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.3, 2.0])
def test_everybody_at_every_level_costs_one_epsilon(depth: int, epsilon: float) -> None:
    kernels = [level_kernel(depth, level, epsilon) for level in range(depth)]
    assert joint_epsilon(kernels) == pytest.approx(epsilon, abs=1e-12)
    assert sum(map(kernel_epsilon, kernels)) == pytest.approx(depth * epsilon, abs=1e-12)
    if depth > 1:
        assert Descent(depth, epsilon).sum_of_epsilons == pytest.approx(depth * epsilon)


def test_right_bits_of_random_people_are_those_of_their_kernels() -> None:
    """Half know nothing; the others know one level, and the bit asked for there is 0."""
    for depth, epsilon in ((2, 0.5), (3, 1.0)):
        datum = np.zeros(2 * depth + 1)
        datum[0 : 2 * depth : 2], datum[-1] = 0.5 / depth, 0.5
        for level in range(depth):
            right = datum @ level_kernel(depth, level, epsilon)[:, 0]
            assert right == pytest.approx(Descent(depth, epsilon).right, abs=1e-12)


@pytest.mark.parametrize("once", [False, True])
def test_simulated_descents_find_the_path(once: bool) -> None:
    """Everybody asked at every level, or people of their own for each: the same success."""
    plan, random, runs, found = Descent(3, 2.0, children=4), np.random.default_rng(5), 200, 0
    told = 1 / (1 + math.exp(-plan.epsilon))
    for _ in range(runs):
        bits = random.integers(2, size=(plan.depth, plan.bits))
        known = random.integers(2 * plan.depth, size=(plan.bits, plan.votes))
        right = True
        for level in range(plan.depth):
            if once:
                known = random.integers(2 * plan.depth, size=(plan.bits, plan.votes))
            ones = np.where(
                known == level, np.where(bits[level][:, None] == 1, told, 1 - told), 0.5
            )
            votes = (random.random(ones.shape) < ones).sum(axis=1)
            right = right and bool(np.all((votes > plan.votes // 2) == bits[level]))
        found += right
    # a success rate of 1 - beta is allowed to be missed by three standard errors
    assert found / runs > 1 - plan.failure - 3 * math.sqrt(plan.failure * (1 - plan.failure) / runs)


def test_lower_bound_is_below_and_separates_only_at_astronomical_depths() -> None:
    for depth in (3, 8, 100):
        assert Descent(depth, 1.0).people_at_least < Descent(depth, 1.0, 1 / 3).people_asked_again

    def separates(depth: float) -> bool:
        """The paper's lower bound of asking once, above its upper bound of asking again."""
        upper = 512 * depth**2 * math.log(depth) / math.tanh(0.5) ** 2 * 4 * math.log2(depth)
        return depth**3 / (216 * math.expm1(1) ** 2 * math.log(depth)) > upper

    assert not separates(1.5e11) and separates(1.7e11)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="depth"):
        Descent(1, 1.0)
    with pytest.raises(ValueError, match="beta"):
        Descent(3, 1.0, 1.0)
    with pytest.raises(ValueError, match="level"):
        level_kernel(3, 3, 1.0)
    with pytest.raises(ValueError, match="depth"):
        _ = Descent(2, 1.0).people_at_least
    with pytest.raises(ValueError, match="needs more than"):
        _ = Descent(3, 1e-9).votes
