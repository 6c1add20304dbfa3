"""How close convex trainings come: the bound, its parts against enumeration, and a training."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import (
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
    local_event,
)
from beam_ldp.planning import convergence as planning
from beam_ldp.planning.convergence import (
    Cohorts,
    ConvexProblem,
    best,
    convergence,
    gap_bound,
    mean_gap,
    multiset_bits,
    plan_convergence,
    reciprocal_of_reports,
    second_moment,
)
from beam_ldp.randomizers.mean import L1Mean, LInfMean, PrivUnit

KINDS = {"l1": L1Mean, "l2": PrivUnit, "linf": LInfMean}


@pytest.mark.exact
@pytest.mark.parametrize(("messages", "bits"), [(1, 3), (2, 2), (3, 2), (4, 1), (5, 3)])
def test_bits_count_multisets(messages, bits):
    count = len(list(itertools.combinations_with_replacement(range(1 << bits), messages)))
    assert multiset_bits(messages, bits) == pytest.approx(math.log2(count), rel=1e-12)


@pytest.mark.exact
def test_bits_of_the_thesis():
    """Section 4.3.3: the printed closed form is above; one message of 13,170 takes 15 bits."""
    assert multiset_bits(1, math.ceil(math.log2(13_170)) + 1) == 15
    for s, b in ((5, 4), (50, 8), (1000, 3)):
        printed = s * (math.log2(math.e) + math.log2((s + 2**b - 1) / s))
        assert multiset_bits(s, b) <= min(printed, s * b)
    long = [multiset_bits(7, bits) - 7 * bits for bits in (40, 61, 62, 63, 3200)]
    assert long == pytest.approx([-math.log2(math.factorial(7))] * 5, abs=1e-10)


@pytest.mark.exact
def test_reports_by_coins_are_averaged_over_the_rounds_that_have_any():
    n, q = 7, 0.3
    chances = {k: math.comb(n, k) * q**k * (1 - q) ** (n - k) for k in range(1, n + 1)}
    mean = sum(chance / k for k, chance in chances.items()) / sum(chances.values())
    assert reciprocal_of_reports(n, q) == pytest.approx(mean, rel=1e-12)
    cohorts = Cohorts(10, 3, points=4, points_sampled=2, sampling="self")
    assert cohorts.reports == pytest.approx(2 / reciprocal_of_reports(10, 0.3), rel=1e-12)
    assert cohorts.reports < 6 == Cohorts(10, 3, 4, 2).reports
    counts, chances = cohorts.rounds_with_reports(1000)
    assert counts @ chances == pytest.approx(1000 * (1 - 0.7**10), rel=1e-12)
    assert [each.tolist() for each in Cohorts(10, 3).rounds_with_reports(1000)] == [[1000], [1.0]]


@pytest.mark.exact
def test_the_gap_is_averaged_over_rounds_that_nobody_comes_to():
    """Every set of rounds that somebody comes to, enumerated; none at all leaves the first point.

    At the mean number of such rounds the bound would be too low.
    """
    problem, bound, rounds = ConvexProblem(5, diameter=3.0, lipschitz=0.5), 4.0, 6
    cohorts = Cohorts(4, 1, sampling="self")
    nobody, total = 0.75**4, 0.0
    for came in itertools.product((False, True), repeat=rounds):
        chance = math.prod(1 - nobody if one else nobody for one in came)
        total += chance * (gap_bound(3.0, bound, sum(came)) if any(came) else problem.any_gap)
    found = mean_gap(problem, bound, cohorts, rounds)
    assert found == pytest.approx(total, rel=1e-12)
    assert found > 1.004 * gap_bound(3.0, bound, rounds * (1 - nobody))
    assert mean_gap(problem, bound, Cohorts(4, 1), rounds) == gap_bound(3.0, bound, rounds)
    told = convergence(problem, cohorts, rounds, 1.0, 1e-6)
    assert told.gap == mean_gap(problem, told.gradient_bound, cohorts, rounds)


@pytest.mark.exact
@pytest.mark.parametrize("norm", KINDS)
def test_a_row_is_the_formulas_and_the_accountant(norm):
    problem = ConvexProblem(20, norm, 0.5, 3.0)
    mechanism = KINDS[norm](20, 1.5, radius=0.5)
    found = convergence(problem, Cohorts(5000, 100), 40, 1.5, 1e-6)
    event = SubsampledShuffledDpEvent(local_event(mechanism), 5000, 100)
    assert found.epsilon == ShuffleAccountant().compose(event, 40).get_epsilon(1e-6)
    error = float(mechanism.mean_squared_error(1))
    squared = (20 if norm == "linf" else 1) * 0.25 + error / 100
    assert second_moment(norm, 20, 0.5, error, 100) == pytest.approx(squared, rel=1e-12)
    assert found.gradient_bound**2 == pytest.approx(squared, rel=1e-12)
    assert found.noise_share == pytest.approx(error / 100 / squared, rel=1e-12)
    assert found.first_step == pytest.approx(3.0 / math.sqrt(squared), rel=1e-12)
    assert found.gap == pytest.approx(
        2 * 3.0 * math.sqrt(squared) * (2 + math.log(40)) / math.sqrt(40), rel=1e-12
    )
    assert found.gap == gap_bound(3.0, found.gradient_bound, 40)
    assert found.bits == pytest.approx(40 * 100 / 5000 * found.bits_per_round)
    assert problem.any_gap == pytest.approx(1.5 * (math.sqrt(20) if norm == "linf" else 1))


@pytest.mark.exact
def test_events_say_who_reports():
    mechanism = PrivUnit(4, 1.0)
    local = local_event(mechanism)
    assert Cohorts(500, 500).event(mechanism) == ShuffledDpEvent(local, 500)
    by_coins = Cohorts(500, 50, sampling="self").event(mechanism)
    assert (by_coins.num_users, by_coins.num_drawn, by_coins.sampling) == (500, 50, "self")
    points = Cohorts(500, 500, points=8, points_sampled=2).event(mechanism)
    assert (points.points_per_client, points.points_sampled) == (8, 2)


@pytest.mark.exact
@pytest.mark.parametrize("cohorts", [Cohorts(900, 900), Cohorts(900, 900, 3, 2), Cohorts(900, 30)])
@pytest.mark.parametrize("norm", KINDS)
def test_mechanisms_of_several_messages_have_a_price_too(norm, cohorts):
    """At a local epsilon of 8 those of l1 and linf send several: columns, not one report."""
    found = convergence(ConvexProblem(6, norm), cohorts, 5, 8.0, 1e-6)
    assert 0 < found.epsilon < math.inf and found.bits_per_round > 0


@pytest.mark.exact
@pytest.mark.parametrize("norm", KINDS)
def test_a_plan_uses_its_budget_up_and_never_more(norm):
    problem, cohorts = ConvexProblem(30, norm), Cohorts(20_000, 500)
    rounds = (3000, 1, 30)
    found = plan_convergence(problem, cohorts, 0.5, 1e-6, rounds, max_local_epsilon=4.0)
    assert tuple(one.rounds for one in found) == rounds
    locals_ = {one.rounds: one.local_epsilon for one in found}
    assert locals_[1] >= locals_[30] >= locals_[3000]
    for one in found:
        assert one.epsilon <= 0.5
        if one.local_epsilon < 4.0:
            above = convergence(problem, cohorts, one.rounds, one.local_epsilon * 1.002, 1e-6)
            assert above.epsilon > 0.5
    assert best(found).gap == min(one.gap for one in found)
    more = [
        convergence(problem, cohorts, one.rounds, one.local_epsilon * 1.5, 1e-6) for one in found
    ]
    assert all(a.gap <= b.gap for a, b in zip(more, found, strict=True))


@pytest.mark.exact
def test_small_targets_are_met():
    """Below what one report of the target's own local epsilon costs in many rounds."""
    (found,) = plan_convergence(ConvexProblem(5, "l1"), Cohorts(100, 90), 0.05, 1e-9, (5000,))
    assert 0.02 < found.epsilon <= 0.05


@pytest.mark.exact
def test_where_delta_allows_everything_up_to_some_budget_it_is_found():
    """The price is zero up to a local epsilon, and no power of it: the search halves."""
    problem, cohorts = ConvexProblem(5, "l1"), Cohorts(100, 90)
    (found,) = plan_convergence(problem, cohorts, 0.01, 0.2, (1000,), max_local_epsilon=2.0)
    assert found.epsilon <= 0.01
    if found.local_epsilon < 2.0:
        above = convergence(problem, cohorts, 1000, found.local_epsilon * 1.002, 0.2)
        assert above.epsilon > 0.01


@pytest.mark.exact
@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: ConvexProblem(1), "dimension must be an integer >= 2"),
        (lambda: ConvexProblem(4, "l3"), "norm must be one of l1, l2, linf, got 'l3'"),
        (lambda: ConvexProblem(4, lipschitz=0.0), "lipschitz must"),
        (lambda: ConvexProblem(4, diameter=math.inf), "diameter must"),
        (lambda: Cohorts(10, 11), "clients_per_round must be an integer from 1 to 10"),
        (lambda: Cohorts(10, 1, 2, 3), "points_sampled must be an integer from 1 to 2"),
        (lambda: Cohorts(10, 1, sampling="both"), "sampling must be one of fixed, self"),
        (lambda: Cohorts(10, 10, sampling="self"), "clients_per_round must be below clients"),
        (lambda: multiset_bits(0, 3), "messages must"),
        (lambda: convergence(ConvexProblem(4), Cohorts(9, 3), 0, 1.0, 0.1), "rounds must"),
        (lambda: convergence(ConvexProblem(4), Cohorts(9, 3), 1, 0.0, 0.1), "local_epsilon must"),
        (lambda: convergence(ConvexProblem(4), Cohorts(9, 3), 1, 1.0, 1.0), "delta must"),
        (lambda: plan_convergence(ConvexProblem(4), Cohorts(9, 3), 0.0, 0.1), "epsilon must"),
        (lambda: plan_convergence(ConvexProblem(4), Cohorts(9, 3), 1.0, 0.1, ()), "rounds must"),
    ],
)
def test_what_cannot_be_is_refused(made, message):
    with pytest.raises(ValueError, match=message):
        made()


@pytest.mark.statistical
@pytest.mark.parametrize(("norm", "sampling"), [("l2", "fixed"), ("linf", "self")])
def test_trainings_stay_within_the_bound(norm, sampling):
    """|<a, theta> - b| over a ball: gradients have norm at most L, the loss has kinks.

    Fixed seeds. The mean second moment of 1,500 rounds' steps at one point lies within 5 standard
    errors below G^2 (false alarm 3e-7); the mean gap of 6 trainings is below the bound by more
    than 5 standard errors, and below a third of what no training has.
    """
    rng = np.random.default_rng(8)
    people, d, k, rounds, diameter, local = 300, 6, 60, 300, 2.0, 4.0
    ball = np.inf if norm == "linf" else 2
    a = rng.normal(size=(people, d))
    lipschitz = 1.0
    a /= np.linalg.norm(a, ord=ball, axis=1, keepdims=True)
    b = a @ np.array([0.6, -0.3, 0.2, 0.1, 0.0, -0.2]) + 0.02 * rng.standard_normal(people)
    mechanism = KINDS[norm](d, local, radius=lipschitz)
    cohorts = Cohorts(people, k, sampling=sampling)
    planned = convergence(ConvexProblem(d, norm, lipschitz, diameter), cohorts, rounds, local, 1e-3)

    def loss(theta):
        return float(np.abs(a @ theta - b).mean())

    def step(theta):
        if sampling == "fixed":
            chosen = rng.choice(people, k, replace=False)
        else:
            chosen = np.flatnonzero(rng.random(people) < k / people)
        gradients = np.sign(a[chosen] @ theta - b[chosen])[:, None] * a[chosen]
        reports = mechanism.randomize(gradients, rng=rng)
        return mechanism.estimate(mechanism.accumulate(reports), len(reports)).value

    squares = np.array([np.sum(step(np.zeros(d)) ** 2) for _ in range(1500)])
    error = squares.std() / math.sqrt(len(squares))
    assert squares.mean() - 5 * error <= planned.gradient_bound**2
    least = min(loss(np.array([0.6, -0.3, 0.2, 0.1, 0.0, -0.2])), loss(np.zeros(d)))
    gaps = []
    for _ in range(6):
        theta = np.zeros(d)
        for t in range(1, rounds + 1):
            theta = theta - planned.first_step / math.sqrt(t) * step(theta)
            theta *= min(1.0, diameter / 2 / max(np.linalg.norm(theta), 1e-12))
        gaps.append(loss(theta) - least)
    spread = np.std(gaps) / math.sqrt(len(gaps))
    assert np.mean(gaps) + 5 * spread < min(planned.gap, (loss(np.zeros(d)) - least) / 3)


@pytest.mark.exact
def test_coins_of_many_clients_are_summed_without_a_list_of_chances():
    """1e6 clients: the harmonic mean is about k - 1, as of a Poisson number."""
    assert 1 / reciprocal_of_reports(10**6, 2e-3) == pytest.approx(1999, abs=0.01)
    tally = Counter(stats.binom.rvs(40, 0.1, size=200_000, random_state=3))
    drawn = sum(n / k for k, n in tally.items() if k) / sum(n for k, n in tally.items() if k)
    assert reciprocal_of_reports(40, 0.1) == pytest.approx(drawn, rel=0.01)
    assert set(planning.MECHANISMS) == set(KINDS)
