"""Two arms: the level at every common rate, the power, the interval, several arms."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions.experiments.arms import (
    MOST_EXACT,
    ArmCounts,
    arms_design,
    arms_power,
    chi_square_p_value,
    effect_interval,
    effect_of,
    fisher_p_value,
    fisher_power,
    holm,
    normal_arms,
)
from beam_ldp.decisions.experiments.channel import NO_NOISE, BitChannel
from beam_ldp.randomizers.frequency import KRandomizedResponse

pytestmark = pytest.mark.exact


def z_p_value(control: ArmCounts, variant: ArmCounts) -> float:
    """The same by the two-proportion z-test: approximate, its level is not guaranteed."""
    people, ones = control.people + variant.people, control.ones + variant.ones
    spread = ones / people * (1 - ones / people) * (1 / control.people + 1 / variant.people)
    if spread == 0:
        return 1.0
    difference = variant.ones / variant.people - control.ones / control.people
    return float(stats.norm.sf(difference / math.sqrt(spread)))


def rejected(control: int, variant: int, alpha: float, test=fisher_p_value) -> np.ndarray:
    """Which tables are significant: (control + 1, variant + 1)."""
    return np.array(
        [
            [
                test(ArmCounts(control, a), ArmCounts(variant, b)) <= alpha
                for b in range(variant + 1)
            ]
            for a in range(control + 1)
        ]
    )


def probability(where: np.ndarray, rates: tuple[float, float]) -> float:
    """Of these tables."""
    control, variant = where.shape[0] - 1, where.shape[1] - 1
    first = stats.binom.pmf(np.arange(control + 1), control, rates[0])
    second = stats.binom.pmf(np.arange(variant + 1), variant, rates[1])
    return float(first @ where @ second)


@pytest.mark.parametrize("people", [(20, 20), (30, 12), (9, 40)])
@pytest.mark.parametrize("alpha", [0.01, 0.05])
def test_the_level_holds_at_every_common_rate(people, alpha):
    """T15, for noisy bits of every rate from 0 to 1; the z-test's is broken on the same grid."""
    exact, approximate = rejected(*people, alpha), rejected(*people, alpha, z_p_value)
    levels = [probability(exact, (rate, rate)) for rate in np.linspace(0, 1, 101)]
    assert max(levels) <= alpha
    of_z = max(probability(approximate, (rate, rate)) for rate in np.linspace(0, 1, 101))
    assert of_z > alpha


@pytest.mark.parametrize(
    "people, rates, alpha",
    [((30, 20), (0.3, 0.6), 0.05), ((12, 40), (0.2, 0.5), 0.01), ((5, 5), (0.1, 0.9), 0.3),
     ((60, 60), (0.5, 0.5), 0.1), ((40, 40), (0.5, 0.8), 1e-4)],
)  # fmt: skip
def test_power_is_that_of_all_tables(people, rates, alpha):
    summed = probability(rejected(*people, alpha), rates)
    assert fisher_power(*people, rates, alpha) == pytest.approx(summed, abs=1e-8)


def test_golden_size_of_the_z_test_and_what_exactness_adds():
    """Section 10.2: 2,896 people of both arms at eps = 1, effect 0.1, 5 % and 80 %."""
    channel = BitChannel.implemented(1.0)
    rates = channel.rate(0.45), channel.rate(0.55)
    assert normal_arms(rates, (0.5, 0.5), 0.05, 0.8) == pytest.approx(2896, rel=0.003)
    design = arms_design(channel, (0.45, 0.55), (0.5, 0.5), 0.05, 0.8)
    assert 2896 < design.control + design.variant < 1.03 * 2896
    assert design.power >= 0.8
    fewer = fisher_power(design.control - 20, design.variant - 20, rates, 0.05)
    assert fewer < 0.8


def test_shares_that_differ():
    channel = BitChannel.implemented(2.0)
    even = arms_design(channel, (0.1, 0.15), (0.5, 0.5), 0.05, 0.8)
    uneven = arms_design(channel, (0.1, 0.15), (0.9, 0.1), 0.05, 0.8)
    assert uneven.control / uneven.variant == pytest.approx(9, rel=0.02)
    assert uneven.control + uneven.variant > 2.5 * (even.control + even.variant)


def test_power_does_not_jump_where_it_is_approximated():
    rates, half = (0.30, 0.302), MOST_EXACT // 2
    exact = arms_power(NO_NOISE, (half, half), rates, 0.01)
    approximate = arms_power(NO_NOISE, (half + 1, half + 1), rates, 0.01)
    assert approximate == pytest.approx(exact, abs=0.003)


def test_the_effect_is_unbiased():
    channel, people = BitChannel.implemented(1.0), 6
    masses = [
        stats.binom.pmf(np.arange(people + 1), people, channel.rate(share)) for share in (0.2, 0.7)
    ]
    mean = sum(
        masses[0][a] * masses[1][b] * effect_of(channel, ArmCounts(people, a), ArmCounts(people, b))
        for a in range(people + 1)
        for b in range(people + 1)
    )
    assert mean == pytest.approx(0.5)


@pytest.mark.parametrize("people", [(12, 12), (25, 8)])
@pytest.mark.parametrize("level", [0.9, 0.98])
def test_coverage_of_the_interval(people, level):
    """Enumerated over a grid of both shares; it is stated to be approximate."""
    channel = BitChannel.implemented(2.0)
    grid = np.linspace(0, 1, 9)
    limits = np.array(
        [
            [
                effect_interval(channel, ArmCounts(people[0], a), ArmCounts(people[1], b), level)
                for b in range(people[1] + 1)
            ]
            for a in range(people[0] + 1)
        ]
    )
    for first in grid:
        for second in grid:
            effect = second - first
            holds = (limits[..., 0] <= effect + 1e-12) & (limits[..., 1] >= effect - 1e-12)
            covered = probability(holds, (channel.rate(first), channel.rate(second)))
            assert covered >= level, (first, second)


def test_holm_keeps_the_family():
    """Adjusted p-values by the definition, over all orders of three."""
    p_values = [0.012, 0.03, 0.2]
    assert holm(p_values) == pytest.approx([0.036, 0.06, 0.2])
    assert holm(p_values[::-1]) == pytest.approx([0.2, 0.06, 0.036])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([0.04]) == [0.04]


@pytest.mark.statistical
def test_chi_square_of_reports_of_many_values():
    """Level 0.05 on 2,000 tables of 3 arms and 5 values: within 4 sigma (6e-5); power near one."""
    rng = np.random.default_rng(11)
    law = np.array([0.5, 0.2, 0.15, 0.1, 0.05])
    truth, other = KRandomizedResponse(5, 2.0).support_probabilities
    reported = other + (truth - other) * law
    tables = rng.multinomial(300, reported / reported.sum(), size=(2_000, 3))
    alarms = np.mean([chi_square_p_value(table) <= 0.05 for table in tables])
    assert abs(alarms - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 2_000)
    changed = other + (truth - other) * law[::-1]
    arms = [rng.multinomial(300, one / one.sum()) for one in (reported, changed)]
    assert chi_square_p_value(np.array(arms)) < 1e-6
    assert chi_square_p_value(np.array([[3, 0], [5, 0]])) == 1.0


def test_what_no_table_can_be_is_refused():
    with pytest.raises(ValueError, match="ones must be an integer from 0 to 3"):
        ArmCounts(3, 4)
    with pytest.raises(ValueError, match="reports must be counts"):
        chi_square_p_value(np.array([[1, 2]]))
    with pytest.raises(ValueError, match="rates must be rising"):
        arms_design(NO_NOISE, (0.5, 0.4), (0.5, 0.5), 0.05, 0.8)
    with pytest.raises(ValueError, match="more than 1e"):
        arms_design(BitChannel.implemented(0.1), (0.5, 0.5 + 1e-6), (0.5, 0.5), 0.05, 0.8)
