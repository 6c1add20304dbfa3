"""The two rounds as states, and the whole protocol: privacy, errors, coverage."""

from __future__ import annotations

import dataclasses
import math
import pickle

import dp_accounting
import numpy as np
import pytest

from beam_ldp.accounting import LocalRandomizerDpEvent, ShuffledDpEvent
from beam_ldp.accounting.event_json import event_to_json
from beam_ldp.accounting.events import as_event
from beam_ldp.protocols import Ball, Box, Found, plan_user_mean
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.mean.ranges import CoordinateRanges
from beam_ldp.randomizers.randomness import UserRandomness
from tests.identities import identity

MINUTES = Box(CoordinateRanges(0, 1440))


def plan(users=4000, rows=10, space=MINUTES, **options):
    options = {"local_epsilon": 2.0, "sigma": 40.0, **options}
    return plan_user_mean(users, rows, space, **options)


def covered(protocol, draw, truth_of, runs, seed, level=0.95):
    """Share of runs whose interval holds the mean of the people's means, and all estimates."""
    rng = np.random.default_rng(seed)
    held, values, truths = 0, [], []
    for _ in range(runs):
        rows = draw(rng)
        means = protocol.space.unit(rows)
        truth = truth_of(rows)
        estimate = protocol.run(means, np.arange(len(rows)), rng)
        low, high = estimate.confidence_interval(level)
        held += bool((low <= truth).all() and (truth <= high).all())
        values.append(estimate.value)
        truths.append(truth)
    return held / runs, np.array(values), np.array(truths), estimate


# States ---------------------------------------------------------------------------------------


@pytest.mark.exact
def test_states_follow_each_other():
    protocol = plan(split="budget")
    first = protocol.round_one
    assert first.randomizer.local_epsilon + protocol.final.local_epsilon <= 2.0 * (1 + 1e-12)
    bins = first.randomizer.domain_size
    value = np.zeros(bins)
    value[3] = 0.9
    second = first.decide([Estimate(value, np.ones(bins), 4000)])
    middle = first.search.bins.middles[3]
    half = first.search.half_width
    assert second.found.low[0] == pytest.approx(max(-1, middle - half))
    assert second.found.high[0] == pytest.approx(middle + half)
    assert second.randomizer is protocol.final  # its law does not depend on what was found
    place = second.encode(np.array([[-1.0], [middle], [1.0]]))
    assert place[0, 0] == -1.0 and place[2, 0] == 1.0 and abs(place[1, 0]) < 1
    assert pickle.loads(pickle.dumps(second)) == second


@pytest.mark.exact
def test_decide_refuses_missing_coordinates_and_empty_ones():
    protocol = plan(space=Box(CoordinateRanges(0, 1440), 2), users=20_000)
    one = Estimate(np.zeros(3), np.ones(3), 10)
    with pytest.raises(ValueError, match="estimates must be 2, one per coordinate, got 1"):
        protocol.round_one.decide([one])
    with pytest.raises(ValueError, match="at least one person each"):
        protocol.round_one.decide([one, dataclasses.replace(one, num_users=0)])


@pytest.mark.exact
def test_without_a_search_there_is_one_round():
    """tau as wide as the range: everything goes to the mean, nobody is clipped, nothing fails."""
    protocol = plan(rows=1, sigma=None)
    assert (protocol.search, protocol.round_one, protocol.split) == (None, None, "none")
    assert protocol.final.local_epsilon == 2.0 and protocol.failure_probability == 0.0
    state = protocol.round_two()
    assert (state.found.low, state.found.high) == ((-1.0,), (1.0,))
    assert protocol.round_reports(0, 100)[0] is None
    with pytest.raises(ValueError, match="exactly where there is a round one"):
        protocol.round_two(Found((-1.0,), (1.0,), 0.0, 1))


@pytest.mark.exact
def test_found_failure_counts_the_people_who_came():
    protocol = plan(split="budget")
    bins = protocol.search.bins.count
    sure = protocol.round_one.decide([Estimate(np.zeros(bins), np.ones(bins), 4000)])
    unsure = protocol.round_one.decide([Estimate(np.zeros(bins), np.ones(bins), 1000)])
    assert sure.found.failure_probability == pytest.approx(protocol.failure_probability)
    assert unsure.found.failure_probability > 2 * sure.found.failure_probability


# Who speaks when --------------------------------------------------------------------------------


@pytest.mark.exact
def test_people_are_split_or_asked_twice():
    ids = np.arange(20_000)
    users = plan(users=20_000, split="users").assign(ids)
    assert ((users.coordinate >= 0) != users.in_round_two).all()
    budget = plan(users=20_000, split="budget").assign(ids)
    assert (budget.coordinate == 0).all() and budget.in_round_two.all()
    assert (plan(rows=1, sigma=None).assign(ids).coordinate == -1).all()


@pytest.mark.statistical
def test_coordinates_and_rounds_have_their_shares():
    """5 sigma for 5 counts: 1 false alarm in 10^5."""
    protocol = plan(users=100_000, space=Box(CoordinateRanges(0, 1440), 4))
    assigned = protocol.assign(np.arange(100_000))
    share = protocol.search_share
    asked = np.count_nonzero(assigned.coordinate >= 0)
    assert abs(asked - 100_000 * share) <= 5 * math.sqrt(100_000 * share)
    counts = np.bincount(assigned.coordinate[assigned.coordinate >= 0], minlength=4)
    assert np.abs(counts - asked / 4).max() <= 5 * math.sqrt(asked / 4)
    least = protocol.min_reports(100_000)
    assert least[0] <= counts.min() and least[1] <= 100_000 - asked


@pytest.mark.exact
def test_gates_are_the_parts_less_five_deviations():
    protocol = plan(users=100_000, split="budget")
    assert protocol.min_reports(90_000) == (90_000, 90_000)
    half = dataclasses.replace(protocol, split="users", search_share=0.5)
    assert half.min_reports(10_000) == (4750, 4750)
    assert half.min_reports(4) == (1, 1)


# Privacy ----------------------------------------------------------------------------------------


def final_channel(mechanism, places):
    """P(report | place) of the scalar mechanism for any place: rounding, then its channel."""
    points = mechanism.points
    cell = np.clip(np.searchsorted(points, places, side="right") - 1, 0, len(points) - 2)
    weight = (places - points[cell]) / (points[cell + 1] - points[cell])
    channel = mechanism.channel()
    return channel[:, cell] * (1 - weight) + channel[:, cell + 1] * weight


@pytest.mark.exact
@pytest.mark.parametrize("preset", [None, "thesis"])
@pytest.mark.parametrize("split", ["budget", "users"])
def test_everything_that_a_person_sends_keeps_the_local_budget(split, preset):
    """The joint channel of both rounds, whatever round one found: no two data sets differ more.

    Means over the whole range, in the interval and out of it: privacy has no assumptions.
    """
    protocol = plan(rows=1000, local_epsilon=1.5, split=split, preset=preset, sigma=None)
    first, means = protocol.round_one, np.linspace(-1, 1, 401)
    oracle = first.randomizer
    assert protocol.split == ("budget" if preset else split)
    assert oracle.log_ratio_max() <= first.search.local_epsilon
    for middle in (0, len(first.search.bins.middles) // 2):
        value = np.zeros(oracle.domain_size)
        value[middle] = 1.0
        second = first.decide([Estimate(value, value, 4000)])
        channel = final_channel(second.randomizer, second.encode(means[:, None])[:, 0])
        np.testing.assert_allclose(channel.sum(axis=0), 1)
        loss = math.log((channel.max(axis=1) / channel.min(axis=1)).max())
        spent = loss + (oracle.log_ratio_max() if protocol.split == "budget" else 0.0)
        assert spent <= 1.5 + 1e-9
        assert spent >= 1.5 - 1e-6  # and wastes nothing


@pytest.mark.exact
def test_events_of_both_rounds():
    budget = plan(split="budget")
    event = budget.event(4000, 3900)
    assert isinstance(event, dp_accounting.ComposedDpEvent)
    first, second = event.events
    assert (first.num_reports, second.num_reports) == (4000, 3900)
    assert first.local_event.local_epsilon == budget.search.local_epsilon
    assert event_to_json(budget.reports(4000, 3900)) == event_to_json(event)
    assert tuple(map(as_event, budget.round_reports(4000, 3900))) == (first, second)
    local = plan(split="budget", model="local").event(4000, 3900)
    assert sum(e.local_epsilon for e in local.events) == pytest.approx(2.0)
    users = plan(split="users").event(300, 3600)
    assert users == ShuffledDpEvent(LocalRandomizerDpEvent(2.0), 300)
    assert plan(split="users", model="local").event(300, 3600) == LocalRandomizerDpEvent(2.0)


@pytest.mark.exact
def test_memoized_people_send_the_same_twice():
    protocol, ids = plan(split="users", users=3000), np.arange(3000)
    means = np.linspace(-0.9, -0.85, 3000)[:, None]

    def run(release):
        return protocol.run(means, ids, UserRandomness(bytes(32), ids, identity(release)))

    assert run("a").value == run("a").value != run("b").value


# Errors -----------------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize(
    "options",
    [
        {"split": "users"},
        {"split": "budget"},
        {"preset": "thesis", "users": 20_000},
        {"sigma": None, "rows": 2000},
        {"split": "users", "local_epsilon": 8.0, "users": 1000},
        {"local_epsilon": None, "epsilon": 2.0, "delta": 1e-6, "users": 3000},
    ],
)
def test_intervals_hold_the_mean_and_the_errors_are_right(options):
    """300 runs; coverage at least 95 % less 4 sigma, errors not larger than said (4 sigma)."""
    protocol = plan(**options)
    assert protocol.search is not None
    deviation = (options.get("sigma", 40.0) or 720) / math.sqrt(options.get("rows", 10))
    users = protocol.num_users

    def draw(rng):
        return rng.normal(600.0, deviation, (users, 1))

    runs = 300 if users < 10_000 else 100
    share, values, truths, last = covered(protocol, draw, lambda rows: rows.mean(0), runs, 17)
    assert share >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / runs)
    off = (values - truths)[:, 0]
    said = float(last.standard_error[0])
    assert off.std() <= said * (1 + 4 / math.sqrt(2 * runs))
    assert abs(off.mean()) <= 4 * said / math.sqrt(runs)
    if options.get("split") == "users" and users == 1000:
        # With so large a budget the error is mostly that of asking a part of the people.
        assert off.std() >= 0.5 * said


@pytest.mark.statistical
@pytest.mark.parametrize(("outliers", "budget"), [(0.02, 1.0), (0.05, 0.4)])
def test_intervals_hold_under_heavy_clipping(outliers, budget):
    """A stated share of people at the far end is clipped to the interval; 200 runs, 4 sigma."""
    protocol = plan(outliers=outliers, users=8000, local_epsilon=budget, rows=100)
    assert protocol.search is not None
    far = round(outliers * 8000)

    def draw(rng):
        rows = rng.normal(300.0, 4.0, (8000, 1))
        rows[rng.permutation(8000)[:far]] = 1440.0
        return rows

    share, values, truths, last = covered(protocol, draw, lambda rows: rows.mean(0), 200, 3)
    assert share >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 200)
    shift = float((truths - values).mean())
    assert 0.5 * last.bias_bound <= shift <= last.bias_bound + 4 * last.standard_error[0]


@pytest.mark.statistical
def test_intervals_hold_for_vectors():
    """Four columns of unlike units, 100 runs, all intervals at once: 4 sigma."""
    low, high = np.array([0, -5, 0, 18]), np.array([1440, 5, 1, 98])
    space = Box(CoordinateRanges(low, high), 4)
    centre = np.array([60.0, 0.0, 0.9, 40.0])
    protocol = plan_user_mean(20_000, 900, space, local_epsilon=4.0, failure_probability=0.02)
    assert protocol.search is not None and protocol.split == "users"

    def draw(rng):
        return centre + rng.normal(0, 0.3 / 30, (20_000, 4)) * (high - low) / 2

    rng = np.random.default_rng(8)
    held = 0
    for _ in range(100):
        rows = draw(rng)
        estimate = protocol.run(space.unit(rows), np.arange(20_000), rng)
        inside = space.unit(rows)
        truth = low + (inside.mean(0) + 1) * (high - low) / 2
        ends = estimate.confidence_interval(0.95, simultaneous=True)
        held += bool((ends[0] <= truth).all() and (truth <= ends[1]).all())
    assert held / 100 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 100)


@pytest.mark.statistical
def test_intervals_hold_in_a_ball():
    """Rotated vectors of 16 numbers, 40 runs, all intervals at once: 4 sigma."""
    space = Ball.for_users(16, 2.0, 10_000, 1e-3)
    protocol = plan_user_mean(10_000, 5000, space, local_epsilon=6.0, failure_probability=0.02)
    assert protocol.search is not None
    direction = np.random.default_rng(0).normal(size=16)
    centre = 1.5 * direction / np.linalg.norm(direction)
    rng = np.random.default_rng(9)
    held = 0
    for _ in range(40):
        rows = centre + rng.normal(0, 0.002, (10_000, 16))
        estimate = protocol.run(space.unit(rows), np.arange(10_000), rng)
        low, high = estimate.confidence_interval(0.95, simultaneous=True)
        held += bool(((low <= rows.mean(0)) & (rows.mean(0) <= high)).all())
    assert held / 40 >= 0.95 - 4 * math.sqrt(0.95 * 0.05 / 40)


@pytest.mark.exact
def test_interval_leaves_the_failure_out_of_its_level():
    protocol = plan(split="budget", failure_probability=0.02)
    bins = protocol.search.bins.count
    state = protocol.round_one.decide([Estimate(np.zeros(bins), np.ones(bins), 4000)])
    mechanism = state.randomizer
    reports = mechanism.randomize(np.zeros((4000, 1)), np.random.default_rng(0))
    estimate = state.finish(mechanism.estimate(mechanism.accumulate(reports), 4000))
    low, high = estimate.confidence_interval(0.95)
    assert 0.01 < estimate.failure_probability <= 0.02
    wide = (high - low)[0] / 2 / estimate.standard_error[0]
    assert wide > 1.959964 and wide == pytest.approx(
        float(-np.sqrt(2) * _erfinv(-(0.95 + estimate.failure_probability))), rel=1e-3
    )
    assert np.isinf(estimate.confidence_interval(0.99)).all()  # the level is below what can fail


def _erfinv(x):
    from scipy import special

    return special.erfinv(x)


@pytest.mark.exact
def test_record_holds_both_rounds():
    config = plan(split="users").to_config()
    assert config["round_one"]["mechanism"] == "SubsetSelection"
    assert config["round_two"]["mechanism"] == "ScalarMean"
    assert 0 < config["search_share"] < 0.5 and config["bins"] >= 3
    assert "round_one" not in plan(rows=1, sigma=None).to_config()
