"""What no locally private test stays below: goldens, one report by random channels, tightness."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.decisions.experiments.arms import arms_design, simple_design
from beam_ldp.decisions.experiments.channel import (
    PASTING,
    BitChannel,
    information,
    least_people,
    least_people_of_arms,
)

pytestmark = pytest.mark.exact


@pytest.mark.parametrize(
    "epsilon, sequential, interactive", [(0.1, 50_701, 12_467), (1.0, 361.6, 88.9)]
)
def test_goldens(epsilon, sequential, interactive):
    found = least_people(epsilon, [0.5, 0.5], [0.4, 0.6], 0.05, 0.95)
    assert found.sequential == pytest.approx(sequential, rel=2e-4)
    assert found.interactive == pytest.approx(interactive, rel=6e-4)


def test_the_bound_without_privacy_binds_at_a_large_epsilon():
    """The specification prints 27.4 at eps = 3, which leaves its own floor, 131.6, out."""
    found = least_people(3.0, [0.5, 0.5], [0.4, 0.6], 0.05, 0.95)
    without_floor = 2 * (0.9 * np.log(19)) / information(3.0, 0.1)
    assert without_floor == pytest.approx(27.4, abs=0.05)
    assert found.sequential == pytest.approx(131.6, abs=0.05)


def test_information_of_one_report():
    """S bounds both directions together, and half of it each: random channels of that epsilon."""
    assert information(1.0, 0.1) == pytest.approx(0.0146551287, abs=1e-10)
    rng = np.random.default_rng(5)
    tightest = 0.0
    for _ in range(600):
        epsilon = rng.uniform(0.1, 4)
        laws = rng.dirichlet(np.ones(3), 2)
        corners = rng.integers(0, 2, (3, 4)) * epsilon
        kernel = np.exp(corners) * rng.uniform(0, 1, 4)
        kernel /= kernel.sum(axis=1, keepdims=True)
        own = np.log(kernel.max(axis=0) / kernel.min(axis=0)).max()
        if own < 1e-6:
            continue
        first, second = laws @ kernel
        told = np.sum((first - second) * np.log(first / second))
        one_way = np.sum(first * np.log(first / second))
        limit = information(own, np.abs(laws[0] - laws[1]).sum() / 2)
        assert told <= limit * (1 + 1e-9)
        assert one_way <= limit / 2 * (1 + 1e-9)
        tightest = max(tightest, told / limit)
    assert tightest > 0.8  # a bound that is far from everything would show nothing


def test_every_design_needs_more_than_the_bound():
    """T12, on a grid: at most 0.72 and 0.21 of the exact design."""
    largest = np.zeros(2)
    for epsilon in (0.1, 1.0, 3.0, 8.0):
        for distance in (0.02, 0.1, 0.4, 0.8):
            for alpha, power in ((0.05, 0.95), (0.01, 0.8), (0.2, 0.9)):
                null, changed = 0.5 - distance / 2, 0.5 + distance / 2
                laws = [1 - null, null], [1 - changed, changed]
                bound = least_people(epsilon, *laws, alpha, power)
                channel = BitChannel.implemented(epsilon)
                people = simple_design(channel, null, changed, alpha, power).people
                ratios = np.array([bound.sequential, bound.interactive]) / people
                largest = np.maximum(largest, ratios)
    assert np.all(largest <= [0.95, 0.35]), largest
    assert np.all(largest > [0.5, 0.12]), largest


def test_two_arms_need_about_four_times_the_people():
    """The common rate is not known: the hardest one lies between both."""
    one = least_people(1.0, [0.55, 0.45], [0.45, 0.55], 0.05, 0.8).sequential
    two = least_people_of_arms(1.0, (0.45, 0.55), (0.5, 0.5), 0.05, 0.8).sequential
    assert 3.7 < two / one < 4.3
    design = arms_design(BitChannel.implemented(1.0), (0.45, 0.55), (0.5, 0.5), 0.05, 0.8)
    assert two < design.control + design.variant


def test_the_constant_of_cutting_and_pasting():
    assert np.prod(1 - 0.5 ** np.arange(1, 60)) == pytest.approx(PASTING, rel=1e-9)


def test_what_has_no_bound_is_refused():
    with pytest.raises(ValueError, match="power must be above alpha"):
        least_people(1.0, [0.5, 0.5], [0.4, 0.6], 0.5, 0.4)
    with pytest.raises(ValueError, match="alternative must differ"):
        least_people(1.0, [0.5, 0.5], [0.5, 0.5], 0.05, 0.9)
