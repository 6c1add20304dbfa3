"""Sets of laws told apart by one bit: the saddle point, its guarantees, and people who differ."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions import ExperimentPlan
from beam_ldp.decisions.experiments.compound import (
    NotSeparable,
    Separation,
    half_spaces,
    separate_hulls,
    separate_sets,
    tv_ball,
)
from beam_ldp.decisions.experiments.plan import design_compound

pytestmark = pytest.mark.exact

H0, H1 = [[0, 0, 1], [0.5, 0.5, 0]], [[0.3, 0.4, 0.3], [0.1, 0.2, 0.7]]


def variation(first, second) -> float:
    return float(np.abs(np.asarray(first) - np.asarray(second)).sum()) / 2


def test_golden_saddle_point_with_a_fractional_score():
    found = separate_hulls(H0, H1)
    assert found.scores == pytest.approx([0, 1, 0.5])
    assert found.distance == pytest.approx(0.05)
    assert found.nearest[0] == pytest.approx([0.35, 0.35, 0.3])
    assert found.nearest[1] == pytest.approx([0.3, 0.4, 0.3])


def test_the_likelihood_ratio_set_of_the_nearest_laws_guarantees_less():
    """It may even guarantee nothing, -0.3 here."""
    found = separate_hulls(H0, H1)
    inside = (found.nearest[1] > found.nearest[0] + 1e-9).astype(float)
    gap = (np.array(H1) @ inside).min() - (np.array(H0) @ inside).max()
    assert gap == pytest.approx(-0.3) and gap < found.distance


def test_what_the_minimax_theorem_promises():
    """T13: 60 random pairs of hulls; both optima agree, and no law of the hulls is nearer."""
    rng = np.random.default_rng(2)
    separable = fractional = 0
    for _ in range(60):
        size = int(rng.integers(2, 6))
        first = rng.dirichlet(np.ones(size) * 0.4, int(rng.integers(1, 4)))
        second = rng.dirichlet(np.ones(size) * 0.4, int(rng.integers(1, 4)))
        try:
            found = separate_hulls(first, second)
        except NotSeparable:
            continue
        separable += 1
        fractional += bool(np.any((found.scores > 1e-9) & (found.scores < 1 - 1e-9)))
        assert variation(*found.nearest) == pytest.approx(found.distance, abs=1e-9)
        assert (found.scores.min(), found.scores.max()) == pytest.approx((0, 1), abs=1e-9)
        for _ in range(20):
            pair = (rng.dirichlet(np.ones(len(one))) @ one for one in (first, second))
            assert variation(*pair) >= found.distance - 1e-12
    assert separable > 40 and fractional > 3


@pytest.mark.parametrize("radii, gap", [((0.05, 0.05), 0.3), ((0.1, 0.05), 0.25)])
def test_balls_have_a_closed_form(radii, gap):
    centers = [0.1] * 4 + [0.15] * 4, [0.2] * 4 + [0.05] * 4
    assert variation(*centers) == pytest.approx(0.4)
    balls = [tv_ball(center, radius) for center, radius in zip(centers, radii)]
    found = separate_sets(*balls, 8)
    assert found.distance == pytest.approx(gap, abs=1e-8)


def test_the_farthest_law_of_a_ball_is_in_it():
    rng = np.random.default_rng(4)
    for _ in range(30):
        center, weights = rng.dirichlet(np.ones(5)), rng.normal(size=5)
        radius = rng.uniform(0, 1)
        law = tv_ball(center, radius)(weights)
        assert law.sum() == pytest.approx(1) and law.min() >= -1e-15
        assert variation(law, center) <= radius + 1e-12
        for _ in range(30):  # no other law of the ball has more
            other = rng.dirichlet(np.ones(5) * 0.3)
            step = min(1.0, radius / variation(other, center))
            assert (center + step * (other - center)) @ weights <= law @ weights + 1e-12


def test_means_below_and_above_a_bound():
    """Mean at most 0.4 against at least 0.6 on six points: the score is the value itself."""
    points = np.linspace(0, 1, 6)
    low = half_spaces(6, at_most=([points], [0.4]))
    high = half_spaces(6, at_most=([-points], [-0.6]))
    found = separate_sets(low, high, 6)
    assert found.distance == pytest.approx(0.2, abs=1e-8)
    assert found.scores == pytest.approx(points, abs=1e-6)
    exactly = half_spaces(6, equal=([points], [0.7]))
    assert separate_sets(low, exactly, 6).distance == pytest.approx(0.3, abs=1e-8)


def test_sets_that_meet_are_refused():
    """Uniform against its perturbations in pairs: their hull has the uniform law."""
    uniform, bumps = np.full(4, 0.25), np.array([[1, -1, 1, -1], [-1, 1, -1, 1]]) * 0.1
    assert variation(uniform, uniform + bumps[0]) == pytest.approx(0.2)
    with pytest.raises(NotSeparable, match="some law is in both"):
        separate_hulls([uniform], uniform + bumps)
    with pytest.raises(NotSeparable):
        separate_sets(tv_ball(uniform, 0.2), tv_ball(uniform + bumps[0], 0.1), 4)


@pytest.mark.parametrize(
    "laws, said",
    [([[0.5, 0.6]], "null must hold laws"), ([[1.2, -0.2]], "null must hold laws"),
     ([[0.2, 0.3, 0.5]], "as many outcomes")],
)  # fmt: skip
def test_what_is_no_law_is_refused(laws, said):
    with pytest.raises(ValueError, match=said):
        separate_hulls(laws, [[0.5, 0.5]])
    with pytest.raises(ValueError, match="must leave some law"):
        half_spaces(2, at_most=([[1.0, 1.0]], [0.5]))(np.zeros(2))


@pytest.fixture(scope="module")
def plan() -> ExperimentPlan:
    found = separate_hulls([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]], [[0.2, 0.2, 0.6], [0.1, 0.4, 0.5]])
    return design_compound(found, local_epsilon=1.0, alpha=0.05, power=0.9)


def test_errors_hold_if_people_differ(plan):
    """T14: laws alternate within a hypothesis; the count of reports is convolved exactly."""
    scores = np.array(plan.scores)
    for laws, most, least in (
        ([[0.7, 0.2, 0.1], [0.5, 0.5, 0.0]], 0.05, 0.0),
        ([[0.2, 0.2, 0.6], [0.1, 0.4, 0.5]], 1.0, 0.9),
    ):
        halves = [plan.people // 2, plan.people - plan.people // 2]
        masses = [
            stats.binom.pmf(np.arange(n + 1), n, plan.channel.rate(float(scores @ law)))
            for n, law in zip(halves, laws)
        ]
        decided = np.convolve(*masses)[plan.threshold + 1 :].sum()
        assert least <= decided <= most


def test_a_report_is_private_for_every_score(plan):
    """The bit is drawn with the score and then randomized: its channel, row by row."""
    rates = np.array([plan.channel.rate(score) for score in plan.scores])
    columns = np.stack([rates, 1 - rates], axis=1)
    assert np.log(columns.max(axis=0) / columns.min(axis=0)).max() <= 1.0 + 1e-15


def test_the_plan_is_a_file_and_has_a_bound(plan):
    again = ExperimentPlan.from_json(plan.to_json())
    assert again == plan and again.scores == plan.scores and again.kind == "compound"
    assert plan.least_people.interactive < plan.least_people.sequential < plan.people


def test_the_bit_needs_half_the_people_of_the_printed_laplace_noise():
    """Errata 10: Lap(1/eps), threshold in the middle; sum of noises by their normal law."""
    for epsilon, bit, laplace in ((0.2, 6809, 13593), (1.0, 315, 606), (3.0, 81, 125)):
        found = Separation(np.array([0.0, 1.0]), 0.4, 0.6, (np.ones(2) / 2, np.ones(2) / 2))
        people = design_compound(found, local_epsilon=epsilon, alpha=0.05, power=0.95).people
        assert people == pytest.approx(bit, rel=0.05)
        variance = 0.24 + 2 / epsilon**2
        normal = math.ceil(variance * (2 * stats.norm.isf(0.05) / 0.2) ** 2)
        assert normal == pytest.approx(laplace, rel=0.05)
