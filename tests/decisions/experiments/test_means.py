"""Numeric outcomes: levels by enumeration of all counts, power and variance by their laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions import BitChannel
from beam_ldp.decisions.experiments.means import (
    bit_channel,
    compare_outcomes,
    outcome_counts,
    ratio_interval,
    several_outcomes,
    welch,
    welch_people,
)
from beam_ldp.randomizers.mean import CoordinateRanges, LInfMean, ScalarMean

pytestmark = pytest.mark.exact


def histograms(people: int, cells: int) -> Iterator[tuple[int, ...]]:
    """All ways to put people into cells."""
    for bars in itertools.combinations(range(people + cells - 1), cells - 1):
        ends = (-1, *bars, people + cells - 1)
        yield tuple(b - a - 1 for a, b in itertools.pairwise(ends))


def reported(mechanism: ScalarMean, law: dict[float, float]) -> np.ndarray:
    """Law of reports, of outcomes with this one: rounded without bias, then randomized."""
    points, found = mechanism.points, np.zeros(len(mechanism.points))
    for value, mass in law.items():
        cell = min(int(np.searchsorted(points, value, side="right")) - 1, len(points) - 2)
        upper = (value - points[cell]) / (points[cell + 1] - points[cell])
        found += mass * (
            (1 - upper) * mechanism.channel()[:, cell] + upper * mechanism.channel()[:, cell + 1]
        )
    return found


@pytest.mark.parametrize(
    ("people", "laws"),
    [((9, 9), ({0.0: 0.9, 1.0: 0.1},) * 2), ((14, 6), ({0.0: 0.5, 1.0: 0.5}, {0.5: 1.0}))],
)
def test_the_level_of_welch_of_very_few_people(people, laws):
    """All reports of 9, or of 14 and 6 people with equal means: at most 6 % instead of 5 %."""
    mechanism = ScalarMean(1, local_epsilon=2.0)
    arms = [list(histograms(n, 3)) for n in people]
    masses = [
        stats.multinomial.pmf(arm, n, reported(mechanism, law))
        for arm, n, law in zip(arms, people, laws)
    ]
    false_alarms = sum(
        first * second
        for (a, first), (b, second) in itertools.product(
            zip(arms[0], masses[0]), zip(arms[1], masses[1])
        )
        if first * second > 1e-7 and welch(mechanism, np.array(a), np.array(b)).p_value <= 0.05
    )
    assert 0.02 < false_alarms < 0.06


@pytest.mark.statistical
def test_people_of_welch_see_the_effect():
    """Reports by their laws, 1,000 experiments each way: 4.5 sigma (7e-6)."""
    mechanism = ScalarMean(1, local_epsilon=3.0, radius=10.0)
    before = {0.0: 0.6, 4.0: 0.3, 10.0: 0.1}
    after = {0.0: 0.4, 4.0: 0.4, 10.0: 0.2}
    effect = sum(v * p for v, p in after.items()) - sum(v * p for v, p in before.items())
    spread = max(
        math.sqrt(sum(v**2 * p for v, p in law.items()) - sum(v * p for v, p in law.items()) ** 2)
        for law in (before, after)
    )
    people = welch_people(mechanism, effect, spread, alpha=0.05, power=0.8, share=0.4)
    each, rng = (round(0.6 * people), round(0.4 * people)), np.random.default_rng(9)
    for law, low, high in ((before, 0.05, 0.05), (after, 0.8, 0.95)):
        drawn = [
            rng.multinomial(n, reported(mechanism, one), size=1_000)
            for n, one in zip(each, (before, law))
        ]
        told = [welch(mechanism, *pair) for pair in zip(*drawn)]
        seen = np.mean([one.p_value <= 0.05 for one in told])
        slack = 4.5 * math.sqrt(0.2 * 0.8 / 1_000 if low > 0.05 else 0.05 * 0.95 / 1_000)
        assert low - slack <= seen <= high + slack
        true = effect if law is after else 0.0
        covered = np.mean([one.interval[0] <= true <= one.interval[1] for one in told])
        assert abs(covered - 0.95) <= 4.5 * math.sqrt(0.05 * 0.95 / 1_000)


def test_reports_of_a_number_say_more_than_a_bit():
    """The reason for Welch: the worst variance of a report; at a small epsilon it is the same."""
    for epsilon, ratio in ((1.0, 1.0), (2.0, 0.58), (3.0, 0.32)):
        bit = 0.25 / math.tanh(epsilon / 2) ** 2
        found = ScalarMean(1, epsilon).response.worst_variance()
        assert found / bit == pytest.approx(ratio, abs=0.005)


def test_welch_where_nothing_varies():
    mechanism = ScalarMean(1, local_epsilon=2.0)
    same = welch(mechanism, np.array([5, 0, 0]), np.array([7, 0, 0]))
    other = welch(mechanism, np.array([5, 0, 0]), np.array([0, 0, 7]))
    assert same.p_value == pytest.approx(1) and same.effect == pytest.approx(0)
    assert same.interval[0] < 0 < same.interval[1]  # the noise varied all the same
    assert 0 < other.p_value < 0.01


def rates(channel: BitChannel, means: tuple[float, ...]) -> np.ndarray:
    """Law of one report: outcome and bit, of outcomes in [-1, 1] with these means."""
    ones = [channel.rate((mean + 1) / 2) / len(means) for mean in means]
    return np.array([[1 / len(means) - one, one] for one in ones])


def test_a_device_sends_what_the_counts_suppose():
    """Bits of three outcomes, 60,000 people: within 4.5 sigma (7e-6 each)."""
    mechanism, truth = several_outcomes(3, 1.5), (-0.8, 0.1, 1.0)
    reports = mechanism.randomize(np.tile(truth, (60_000, 1)), np.random.default_rng(4))
    found = mechanism.accumulate(reports)[0] / 60_000
    law = rates(bit_channel(mechanism), truth)
    assert np.all(np.abs(found - law) < 4.5 * np.sqrt(law / 60_000))
    assert mechanism.log_ratio_max() <= 1.5
    assert bit_channel(mechanism).contrast == pytest.approx(math.tanh(0.75))


def test_every_outcome_keeps_its_level_and_the_family_too():
    """All reports of 4 and 3 people on two outcomes, none of which changes: at most alpha."""
    mechanism, alpha = several_outcomes(2, 3.0), 0.4
    tables = [list(histograms(n, 4)) for n in (4, 3)]
    decided = np.zeros((2, len(tables[0]), len(tables[1])))
    for i, j in itertools.product(*(range(len(arm)) for arm in tables)):
        arms = [np.array(tables[side][k]).reshape(1, 2, 2) for side, k in ((0, i), (1, j))]
        if all(arm.sum(axis=2).min() > 0 for arm in arms):
            told = compare_outcomes(mechanism, *arms)
            decided[0, i, j] = min(one.adjusted_p_value for one in told) <= alpha
            decided[1, i, j] = told[1].p_value <= alpha
    largest = 0.0
    for means in ((0.0, 0.0), (-0.6, 0.3), (0.9, -0.9)):
        law = rates(bit_channel(mechanism), means).ravel()
        masses = [stats.multinomial.pmf(arm, n, law) for arm, n in zip(tables, (4, 3))]
        alarms = np.einsum("tij,i,j->t", decided, *masses)
        largest = max(largest, *alarms)
    assert 0 < largest <= alpha


def test_effects_are_in_the_unit_of_the_outcome():
    mechanism, ranges = several_outcomes(2, 2.0), CoordinateRanges((0.0, 10.0), (50.0, 20.0))
    arms = [
        np.round(6e5 * rates(bit_channel(mechanism), means)).astype(np.int64)[None]
        for means in ((-0.6, 0.2), (-0.5, 0.2))
    ]
    spent, visits = compare_outcomes(mechanism, *arms, ranges=ranges)
    assert spent.effect == pytest.approx(2.5, abs=1e-3) and spent.adjusted_p_value < 1e-9
    assert spent.interval[0] < 2.5 < spent.interval[1]
    assert visits.effect == pytest.approx(0, abs=1e-3) and visits.p_value == 1.0
    whole = [mechanism.estimate(arm, int(arm.sum())).value for arm in arms]
    assert 25 * (whole[1] - whole[0])[0] == pytest.approx(spent.effect, abs=1e-3)


def test_the_ratio_is_inside_as_often_as_said():
    """All reports of 14 people; what was spent, for each visit."""
    mechanism, alpha = several_outcomes(2, 4.0), 0.3
    ranges = CoordinateRanges((0.0, 1.0), (10.0, 3.0))
    tables = [table for table in histograms(14, 4) if table[0] + table[1] and table[2] + table[3]]
    ends = np.array([
        ratio_interval(mechanism, np.array(t).reshape(1, 2, 2), 0, 1, alpha=alpha, ranges=ranges)
        for t in tables
    ])  # fmt: skip
    for means in ((-0.6, 0.2), (0.9, -1.0), (-1.0, 1.0)):
        ratio = (5 * (means[0] + 1)) / (2 + means[1])
        law = rates(bit_channel(mechanism), means).ravel()
        masses = stats.multinomial.pmf(tables, 14, law)
        missed = masses @ ((ends[:, 0] > ratio + 1e-12) | (ends[:, 1] < ratio - 1e-12))
        assert missed <= alpha
    assert np.isfinite(ends).all()


def test_ratios_of_what_may_be_nothing():
    mechanism = several_outcomes(2, 1.0)
    counts = np.array([[[500, 500], [730, 270]]])  # no visit at all is possible
    from_zero = CoordinateRanges((0.0, 0.0), (10.0, 3.0))
    low, high = ratio_interval(mechanism, counts, 0, 1, ranges=from_zero)
    assert 0 < low < math.inf == high
    below = CoordinateRanges((-10.0, 0.0), (10.0, 3.0))
    assert ratio_interval(mechanism, counts, 0, 1, ranges=below) == (-math.inf, math.inf)
    with pytest.raises(ValueError, match="ranges: the denominator's must be from 0 on"):
        ratio_interval(mechanism, counts, 1, 0, ranges=below)


def test_what_does_not_fit_is_refused():
    scalar = ScalarMean(1, local_epsilon=2.0)
    with pytest.raises(ValueError, match="variant must count two or more reports, shape \\(3,\\)"):
        welch(scalar, np.array([1, 1, 1]), np.array([1, 1]))
    with pytest.raises(ValueError, match="control must count two or more"):
        welch(scalar, np.array([1, 0, 0]), np.array([1, 1, 1]))
    for name, value in (("effect", 0.0), ("spread", -1.0), ("alpha", 2.0), ("share", 1.0)):
        told = {"effect": 0.1, "spread": 0.2, "alpha": 0.05, "power": 0.8, name: value}
        with pytest.raises(ValueError, match=name):
            welch_people(scalar, **told)
    with pytest.raises(ValueError, match="one message of one bit"):
        bit_channel(LInfMean(2, 4.0))  # two digits
    mechanism = several_outcomes(2, 1.0)
    with pytest.raises(ValueError, match="statistic must have shape"):
        outcome_counts(mechanism, np.zeros((1, 3, 2), np.int64))
    with pytest.raises(ValueError, match="people must be"):
        outcome_counts(mechanism, np.zeros((1, 2, 2), np.int64))
