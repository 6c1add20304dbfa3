"""What finite questions cost: alone, together, and one after the other, against enumeration."""

from __future__ import annotations

import itertools
import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_ldp.protocols.interaction import check_kernel
from beam_ldp.research.interactivity.descents import level_kernel
from beam_ldp.research.interactivity.kernels import (
    LikelihoodFilter,
    joint_epsilon,
    kernel_delta,
    kernel_epsilon,
)
from beam_ldp.research.interactivity.sequential import Ask, protocol_epsilon


def random_kernel(
    random: np.random.Generator, inputs: int, outputs: int, spread: float = 1.0
) -> np.ndarray:
    """A kernel with log-probabilities that differ by about `spread`."""
    rows = np.exp(random.uniform(0, spread, (inputs, outputs)))
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


@pytest.mark.parametrize(
    "kernel",
    [
        [],
        [0.5, 0.5],
        [[1.0, 0.0], [0.5, 0.5]],
        [[0.5, 0.6], [0.5, 0.5]],
        [[math.nan, 0.5]],
        [[1.5, -0.5]],
    ],
)
def test_what_is_no_kernel_is_refused(kernel: list[object]) -> None:
    with pytest.raises(ValueError, match="^kernel must have"):
        check_kernel(kernel)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4), st.integers(1, 4))
def test_questions_fixed_up_front_cost_what_enumeration_says(
    seed: int, inputs: int, rounds: int
) -> None:
    random = np.random.default_rng(seed)
    kernels = [random_kernel(random, inputs, 3) for _ in range(rounds)]
    of_answers = [
        math.prod(kernel[:, answer] for kernel, answer in zip(kernels, answers, strict=True))
        for answers in itertools.product(range(3), repeat=rounds)
    ]
    exact = max(math.log(law.max() / law.min()) for law in of_answers)
    assert joint_epsilon(kernels) == pytest.approx(exact, abs=1e-12)
    assert exact <= sum(map(kernel_epsilon, kernels)) + 1e-12


def test_one_coin_in_each_of_four_rounds() -> None:
    """Example 2.2: only datum j answers round j by randomized response, others by a fair coin."""
    told = 1 / (1 + math.exp(-1))
    kernels = []
    for round_of in range(4):
        kernel = np.full((4, 2), 0.5)
        kernel[round_of] = told, 1 - told
        kernels.append(kernel)
    each = kernel_epsilon(kernels[0])
    # printed as ln((1 + e)/2): the ratio of the rarer answer
    assert each == pytest.approx(0.620115, abs=5e-7)
    assert 4 * each == pytest.approx(2.4805, abs=5e-5)
    assert 4 * each == pytest.approx(4 * (0.5 + math.log(math.cosh(0.5))), abs=1e-12)
    # together: the rarer answer in one round and the likelier in another, which makes exactly 1
    assert joint_epsilon(kernels) == pytest.approx(1.0, abs=1e-12)


def response(size: int, epsilon: float) -> np.ndarray:
    """Randomized response of some values."""
    kernel = np.ones((size, size)) + np.eye(size) * math.expm1(epsilon)
    return np.asarray(kernel / kernel.sum(axis=1, keepdims=True))


def test_epsilon_and_delta_of_known_mechanisms() -> None:
    """Two values, several, and two-sided geometric noise on a grid whose ends take the tails."""
    for size in (2, 3, 7):
        kernel = response(size, 1.3)
        assert kernel_epsilon(kernel) == pytest.approx(1.3, abs=1e-12)
        for at in (0.0, 0.5, 1.3, 2.0):
            most = max(0.0, kernel[0, 0] - math.exp(at) * kernel[1, 0])
            assert kernel_delta(kernel, at) == pytest.approx(most, abs=1e-12)
    decay = math.exp(-0.4)
    grid = np.abs(np.subtract.outer(np.arange(4), np.arange(-3, 7)))
    laplace = decay**grid * (1 - decay) / (1 + decay)
    laplace[:, [0, -1]] /= 1 - decay
    assert laplace.sum(axis=1) == pytest.approx(np.ones(4), abs=1e-12)
    assert kernel_epsilon(laplace) == pytest.approx(3 * 0.4, abs=1e-12)
    assert kernel_delta(laplace, 1.2) == pytest.approx(0, abs=1e-12)
    assert kernel_delta(laplace, 0.0) == pytest.approx(np.abs(laplace[0] - laplace[3]).sum() / 2)


def test_delta_is_that_of_the_worst_set_of_answers() -> None:
    random = np.random.default_rng(5)
    for _ in range(20):
        kernel = random_kernel(random, 3, 4)
        kernel[0, 0] = 0  # an answer that one datum excludes
        kernel[0] /= kernel[0].sum()
        at = random.uniform(0, 1)
        sets = (list(one) for size in range(5) for one in itertools.combinations(range(4), size))
        likely = [kernel[:, own].sum(axis=1) for own in sets]
        worst = max(p - math.exp(at) * q for law in likely for p in law for q in law)
        assert kernel_delta(kernel, at) == pytest.approx(worst, abs=1e-12)


def test_questions_about_one_level_each_cost_one_epsilon_in_all() -> None:
    levels = [level_kernel(5, level, 1.0) for level in range(5)]
    assert [kernel_epsilon(kernel) for kernel in levels] == pytest.approx([1.0] * 5, abs=1e-12)
    person = LikelihoodFilter(11, budget=1.0)
    for kernel in levels:
        assert person.fits(kernel)
        person.answered(kernel, 0)
    assert person.spent == pytest.approx(1.0, abs=1e-12)
    assert not person.fits(levels[0])
    with pytest.raises(ValueError, match="1 of a budget of 1 is spent"):
        person.answered(levels[0], 1)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 10**6))
def test_no_transcript_that_the_filter_lets_through_tells_more_than_the_budget(seed: int) -> None:
    """Questions depend on the answers so far; the protocol ends where one does not fit."""

    @cache
    def person(answers: tuple[int, ...]) -> LikelihoodFilter:
        if not answers:
            return LikelihoodFilter(3, budget=1.0)
        before = person(answers[:-1])
        after = LikelihoodFilter(3, before.budget)
        after.logs = before.logs
        after.answered(asked(answers[:-1]), answers[-1])
        return after

    @cache
    def asked(answers: tuple[int, ...]) -> np.ndarray:
        return random_kernel(np.random.default_rng([seed, *answers]), 3, 2, spread=0.8)

    def protocol(answers: tuple[int, ...]) -> Ask | None:
        kernel = asked(answers)
        fits = len(answers) < 5 and person(answers).fits(kernel)
        return Ask("a person", kernel) if fits else None

    assert 0 < protocol_epsilon(protocol) <= 1.0 + 1e-9


def test_filter_refuses_kernels_of_other_data_and_no_budget() -> None:
    with pytest.raises(ValueError, match="kernel must have 3 inputs, got 2"):
        LikelihoodFilter(3, budget=1.0).fits([[0.5, 0.5], [0.4, 0.6]])
    with pytest.raises(ValueError, match="budget"):
        LikelihoodFilter(3, budget=0.0)
