"""Decisions at any time: the level over all stopping times, by enumeration of everything seen."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from beam_ldp.decisions import ArmCounts, decide, design_experiment
from beam_ldp.decisions.experiments.looks import (
    anytime_bounds,
    anytime_p_value,
    binomial_growth,
    binomial_law,
    effect_sequence,
    exit_probability,
    hypergeometric_growth,
    inflation,
    log_evidence,
    rate_sequence,
    spent,
    tilts_for,
)

pytestmark = pytest.mark.exact

ASKED = {"local_epsilon": 2.0, "null": 0.10, "effect": 0.05, "alpha": 0.05, "power": 0.8}


def ever_exceeded(people: int, rates: list[float], exceeded) -> float:
    """Probability that a count of bits is ever in `exceeded(n)`, looked at after each person."""
    law, found = np.ones(1), 0.0
    for n, rate in zip(range(1, people + 1), itertools.cycle(rates)):
        law = np.convolve(law, [1 - rate, rate])
        gone = exceeded(n)
        found += law[gone].sum()
        law[gone] = 0
    return found


@pytest.mark.parametrize("null", [0.15, 0.5])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_a_sample_looked_at_after_everybody_keeps_the_level(null, alpha):
    """Any stopping time is at most that of the first crossing; 400 people, rates up to the null."""
    tilts = tilts_for(null, null + 0.2)
    bounds = anytime_bounds([1] * 400, null, tilts, alpha)

    def above(n: int) -> np.ndarray:
        return np.arange(n + 1) > bounds[n - 1]

    level = ever_exceeded(400, [null], above)
    assert 0.3 * alpha < level <= alpha
    assert ever_exceeded(400, [null, null / 2, null * 0.9], above) < level  # people differ
    laws = [binomial_law(1, null)] * 400
    assert exit_probability(laws, bounds) == pytest.approx(level, abs=1e-12)
    assert ever_exceeded(400, [null + 0.2], above) > 0.95


def test_evidence_is_one_on_average():
    tilts = tilts_for(0.3, 0.5)
    counts = np.arange(31)
    growth = binomial_growth(30, 0.3, tilts)
    told = [math.exp(log_evidence(k, growth, tilts)) for k in counts.tolist()]
    assert stats.binom.pmf(counts, 30, 0.3) @ told == pytest.approx(1, abs=2e-6)
    for ones, variant, control in ((7, 12, 5), (0, 4, 4), (9, 9, 3), (12, 9, 3), (1, 30, 2)):
        growth = hypergeometric_growth(ones, variant, control, tilts)
        counts = np.arange(max(0, ones - control), min(ones, variant) + 1)
        masses = stats.hypergeom.pmf(counts, variant + control, ones, variant)
        told = [math.exp(log_evidence(k, growth, tilts)) for k in counts.tolist()]
        assert masses @ told == pytest.approx(1, abs=2e-6)


@pytest.mark.parametrize("tilt", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("ones, variant, control", [(9_000, 20_000, 15_000), (60, 40_000, 500)])
def test_the_window_of_a_large_increment_loses_nothing(tilt, ones, variant, control):
    """However far a tilt pulls from where the counts are without an effect."""
    counts = np.arange(max(0, ones - control), min(ones, variant) + 1)
    masses = stats.hypergeom.logpmf(counts, variant + control, ones, variant)
    whole = special.logsumexp(masses + tilt * counts)
    assert hypergeometric_growth(ones, variant, control, np.array([tilt])) == pytest.approx(
        [whole], abs=1e-9
    )


def test_two_arms_keep_the_level_whenever_and_however_much_is_looked_at_next():
    """Three increments, each of a size that depends on the evidence so far; rates drift between."""
    tilts, alpha = tilts_for(0.3, 0.8), 0.2
    growth = functools.cache(lambda *counts: hypergeometric_growth(*counts, tilts))

    def alarms(rates: tuple[float, ...], ones: list[int], growths: list) -> float:
        if not rates:
            return 0.0
        told = anytime_p_value(ones, growths, tilts)
        control, variant = (2, 2) if not ones else (2, 1) if told < 0.6 else (1, 2)
        found = 0.0
        for a, b in itertools.product(range(control + 1), range(variant + 1)):
            mass = stats.binom.pmf(a, control, rates[0]) * stats.binom.pmf(b, variant, rates[0])
            now = [*growths, growth(a + b, variant, control)]
            if anytime_p_value([*ones, b], now, tilts) <= alpha:
                found += mass
            else:
                found += mass * alarms(rates[1:], [*ones, b], now)
        return found

    largest = max(
        alarms(rates, [], [])
        for rates in ((0.5,) * 3, (0.1,) * 3, (0.9,) * 3, (0.2, 0.7, 0.5), (0.5, 0.5, 0.1))
    )
    assert 0.01 < largest <= alpha


def test_the_p_value_is_alpha_where_the_bound_is():
    tilts, sizes = tilts_for(0.4, 0.5), [80, 120]
    bounds = anytime_bounds(sizes, 0.4, tilts, 0.03)
    growths = [binomial_growth(size, 0.4, tilts) for size in sizes]
    for look, bound in enumerate(bounds):
        before = [0] * look
        told = [
            anytime_p_value([*before, ones], growths[: look + 1], tilts)
            for ones in (bound, bound + 1)
        ]
        assert told[1] <= 0.03 < told[0]
    kept = anytime_p_value([bounds[0] + 1, 0], growths, tilts)
    assert kept == anytime_p_value([bounds[0] + 1], growths, tilts)  # decided is decided
    assert anytime_bounds([2], 0.4, tilts, 0.03) == [2]  # nothing that two people say is enough


def test_an_interval_that_holds_at_all_times():
    """Every time up to 25 people; each end fails at some time with alpha at most."""
    tilts, alpha, largest = tilts_for(0.3, 0.8), 0.1, 0.0
    limits = {
        n: np.array([rate_sequence(k, n, tilts, alpha) for k in range(n + 1)]) for n in range(1, 26)
    }
    for rate in (0.0, 0.02, 0.35, 0.6, 1.0):
        below = ever_exceeded(25, [rate], lambda n, rate=rate: rate < limits[n][:, 0])
        above = ever_exceeded(25, [rate], lambda n, rate=rate: rate > limits[n][:, 1])
        assert max(below, above) <= alpha
        largest = max(largest, below, above)
    assert largest > 0.03


def test_an_interval_of_the_effect_that_holds_at_all_times():
    """All counts of two looks at two arms, over a grid of both rates."""
    tilts, alpha, people = tilts_for(0.3, 0.9), 0.25, (2, 3)
    counts = list(itertools.product(range(people[0] + 1), range(people[1] + 1)))
    twice = list(itertools.product(range(2 * people[0] + 1), range(2 * people[1] + 1)))
    first = {c: effect_sequence((c[0], 2), (c[1], 3), tilts, alpha) for c in counts}
    second = {c: effect_sequence((c[0], 4), (c[1], 6), tilts, alpha) for c in twice}
    largest = 0.0
    for rates in itertools.product((0.0, 0.3, 0.9), (0.1, 0.5, 1.0)):
        effect = rates[1] - rates[0]
        masses = np.outer(*(stats.binom.pmf(np.arange(n + 1), n, r) for n, r in zip(people, rates)))
        missed = np.zeros(2)
        for one, other in itertools.product(counts, counts):
            both = one[0] + other[0], one[1] + other[1]
            ends = first[one], second[both]
            mass = masses[one] * masses[other]
            missed[0] += mass * any(effect < low for low, _ in ends)
            missed[1] += mass * any(effect > high for _, high in ends)
        largest = max(largest, *missed)
    assert 0.005 < largest <= alpha


def test_ends_of_what_is_possible():
    tilts = tilts_for(0.5, 0.6)
    assert rate_sequence(0, 10, tilts, 0.05)[0] == 0.0
    assert rate_sequence(10, 10, tilts, 0.05)[1] == 1.0
    assert effect_sequence((10, 10), (0, 10), tilts, 0.05)[0] == -1.0
    low, high = effect_sequence((0, 500), (500, 500), tilts, 0.05)
    assert 0.8 < low < high == 1.0


def test_what_it_costs():
    """docs/experiments.md: 1.8 times the people of one look, beside 1.03 and 1.22."""
    assert inflation(5, "anytime", 0.05, 0.8) == pytest.approx(1.783, abs=0.004)
    with pytest.raises(ValueError, match="pocock, obrien-fleming to be spent, got 'anytime'"):
        spent("anytime", 0.5, 0.05)


@pytest.mark.parametrize("arms", [["everybody"], ["control", "variant"]])
def test_a_plan_that_may_be_looked_at_any_time(arms):
    plan = design_experiment(**ASKED, arms=arms, looks=5, spending="anytime")
    once = design_experiment(**ASKED, arms=arms)
    assert plan.threshold is None and 1.7 < plan.people / once.people < 1.85
    assert plan.crowd() == min(plan.arm_people().values()) // 5
    each = plan.people // len(arms) // 5
    null, much = (round(each * plan.channel.rate(share)) for share in (0.10, 0.20))
    quiet = {arm: ArmCounts(each, null) for arm in plan.arms}
    loud = {**quiet, plan.arms[-1]: ArmCounts(each, much)}
    assert decide(plan, quiet).decision == "go on"
    assert decide(plan, *[quiet] * 5).decision == "no effect shown"
    verdict = decide(plan, loud, loud)
    (told,) = verdict.comparisons
    assert verdict.decision == "effect" and told.p_value == told.adjusted_p_value <= 0.05
    assert 0 < told.interval[0] < 0.1 < told.interval[1]
    assert told.effect == pytest.approx(0.1, abs=0.002)
    # Whatever comes later, in as many and as uneven increments as one likes.
    later = decide(plan, loud, loud, *[quiet] * 4, {arm: ArmCounts(9, 2) for arm in plan.arms})
    assert later.decision == "effect" and later.comparisons[0].p_value == told.p_value
    assert decide(plan, quiet).comparisons[0].p_value == 1.0


def test_power_of_a_sample_is_that_of_its_bounds():
    plan = design_experiment(**ASKED, arms=["everybody"], looks=3, spending="anytime")
    null, changed = plan.reported_rates(1)
    sizes = [plan.people // 3 + (i < plan.people % 3) for i in range(3)]
    bounds = anytime_bounds(sizes, null, tilts_for(null, changed), 0.05)
    seen = exit_probability([binomial_law(size, changed) for size in sizes], bounds)
    assert plan.power_of("everybody", {"everybody": plan.people}) == pytest.approx(seen)
    assert 0.8 <= seen < 0.82
    assert exit_probability([binomial_law(size, null) for size in sizes], bounds) <= 0.05


def test_both_signs_and_several_arms_share_alpha():
    """Holm's steps and both signs divide alpha."""
    both = design_experiment(**ASKED, sided="two", looks=2, spending="anytime")
    each = both.people // 4
    less, same = (round(each * both.channel.rate(share)) for share in (0.0, 0.10))
    told = decide(both, {"control": ArmCounts(each, same), "variant": ArmCounts(each, less)})
    (found,) = told.comparisons
    tilts = tilts_for(*both.reported_rates(-1))
    growth = hypergeometric_growth(2 * each - same - less, each, each, tilts)
    alone = anytime_p_value([each - less], [growth], tilts)
    assert found.p_value == pytest.approx(2 * alone) and found.effect < 0
    three = design_experiment(**ASKED, arms=["now", "red", "green"], looks=2, spending="anytime")
    each = three.people // 6
    null, more = (round(each * three.channel.rate(share)) for share in (0.10, 0.2))
    counts = {arm: ArmCounts(each, ones) for arm, ones in zip(three.arms, (null, more, null))}
    red, green = decide(three, counts).comparisons
    assert red.significant and not green.significant
    assert red.adjusted_p_value == pytest.approx(2 * red.p_value)
