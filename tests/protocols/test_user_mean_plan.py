"""The best two rounds for a target: split, budgets, prices, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting import shuffle_epsilon
from beam_ldp.accounting.shuffle.one_release import mean_epsilon
from beam_ldp.protocols import Ball, Box, plan_user_mean, user_mean_price
from beam_ldp.protocols.user_mean_plan import best_local
from beam_ldp.randomizers.mean import LInfMean, PrivUnitInf, ScalarMean
from beam_ldp.randomizers.mean.ranges import CoordinateRanges

UNIT = Box(CoordinateRanges(-1, 1))


def plan(users=100_000, rows=100, space=UNIT, **options):
    return plan_user_mean(users, rows, space, **{"sigma": 0.2, **options})


def error(found):
    return float(found.predicted.standard_error[0])


@pytest.mark.exact
@pytest.mark.parametrize("budget", [0.5, 1.0, 2.0, 4.0])
def test_locally_people_are_split_and_both_beat_the_text(budget):
    best = plan(local_epsilon=budget)
    twice = plan(local_epsilon=budget, split="budget")
    printed = plan(local_epsilon=budget, preset="thesis")
    assert best.split == "users" and twice.split == "budget" == printed.split
    assert error(best) < error(twice) < error(printed)
    assert twice.search.local_epsilon + twice.final.local_epsilon == pytest.approx(budget)
    assert best.search.local_epsilon == best.final.local_epsilon == best.local_epsilon == budget
    assert printed.search.local_epsilon == printed.final.local_epsilon == budget / 2
    assert printed.search.half_width == pytest.approx(3 * printed.search.radii.far)
    assert (error(printed) / error(best)) ** 2 > 3


@pytest.mark.exact
def test_unequal_split_alone_gains_what_it_should():
    """Same bins, same oracle, only the budgets differ: 3.6 times at 1, 1.6 times at 4."""
    gains = {
        e: (ScalarMean(1, e / 2, signed=True).variance(1) / ScalarMean(1, 0.97 * e, signed=True)
            .variance(1))[0]
        for e in (1.0,)
    }  # fmt: skip
    assert gains[1.0] == pytest.approx(3.6, abs=0.3)


@pytest.mark.exact
@pytest.mark.parametrize("options", [{"split": "budget"}, {"split": "users"}, {}])
@pytest.mark.parametrize("failure", [0.001, 0.01, 0.04])
def test_failure_probability_is_kept_and_used(options, failure):
    found = plan(local_epsilon=1.0, failure_probability=failure, **options)
    assert 0.9 * failure <= found.failure_probability <= failure
    assert found.predicted.failure_probability == found.failure_probability


@pytest.mark.exact
def test_smaller_failure_costs_accuracy():
    errors = [error(plan(local_epsilon=1.0, failure_probability=f)) for f in (1e-6, 1e-3, 0.04)]
    assert errors == sorted(errors, reverse=True)


@pytest.mark.exact
def test_search_is_skipped_where_it_gains_nothing():
    assert plan(local_epsilon=1.0, sigma=None, rows=1).split == "none"
    assert plan(local_epsilon=1.0, users=20).split == "none"  # too few people to be sure of a bin
    assert plan(local_epsilon=1.0, user_sigma=1.0).split == "none"  # people differ too much
    assert plan(local_epsilon=1.0, outliers=0.3).split == "none"  # clipping them costs too much


@pytest.mark.exact
def test_stated_sigma_never_widens_what_the_range_gives():
    wide, none = plan(local_epsilon=1.0, sigma=50.0), plan(local_epsilon=1.0, sigma=None)
    assert wide.concentration == none.concentration


@pytest.mark.exact
def test_assumptions_are_in_the_unit_of_the_data():
    minutes = plan(space=Box(CoordinateRanges(0, 1440)), sigma=0.2 * 720, local_epsilon=1.0)
    unit = plan(local_epsilon=1.0)
    assert error(minutes) == pytest.approx(720 * error(unit))


@pytest.mark.exact
def test_each_column_may_have_a_sigma_of_its_own():
    """The column that spreads most, in shares of its range, decides."""
    space = Box(CoordinateRanges((0, 0), (1440, 100_000)), 2)
    both = plan(space=space, sigma=(60, 800), user_sigma=(20, 1000), local_epsilon=1.0)
    share = max((20 / 720) ** 2 + (60 / 720) ** 2 / 100, (1000 / 5e4) ** 2 + (800 / 5e4) ** 2 / 100)
    assert both.concentration.proxy == pytest.approx(share)
    with pytest.raises(ValueError, match="sigma must be one number, or one per column, got 3"):
        plan(space=space, sigma=(1, 2, 3), local_epsilon=1.0)
    with pytest.raises(ValueError, match="sigma must be one number"):
        plan(space=Ball(2), sigma=(1, 2), local_epsilon=1.0)


@pytest.mark.exact
def test_rows_of_people_who_differ_gain_no_more_than_the_people_do():
    many = plan(local_epsilon=1.0, user_sigma=0.05, rows=10**9)
    assert many.concentration.proxy == pytest.approx(0.05**2)


@pytest.mark.exact
@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_central_target_is_met_by_both_rounds_together(size):
    """The price of round one at its share of delta and that of round two at the rest add up."""
    space = Box(CoordinateRanges(-1, 1), size)
    found = plan(5000, 400, space, epsilon=1.0, delta=1e-6)
    assert found.split == "budget"
    crowd = found.min_reports(5000)[0]
    first = shuffle_epsilon(found.search.oracle, crowd, 1e-8)
    second = mean_epsilon(found.final, 5000, 0.99e-6)
    assert first + second <= 1.0
    assert first + second >= 0.999
    alone = plan(5000, 400, space, epsilon=1.0, delta=1e-6, sigma=1.0, user_sigma=2.0)
    assert alone.split == "none" and error(found) < 0.6 * error(alone)


@pytest.mark.exact
def test_fake_reports_hide_nobody():
    """A central target counts the honest reports; errors are those of all of them."""
    found = plan(5000, 400, epsilon=1.0, delta=1e-6, honest_fraction=0.5)
    assert found.split == "budget" and found.num_users == 5000
    assert 0.99 < float(user_mean_price(found, 2500, 2500, 1e-6).total) <= 1.0
    assert error(found) > 1.2 * error(plan(5000, 400, epsilon=1.0, delta=1e-6))
    with pytest.raises(ValueError, match="honest_fraction must lie in"):
        plan(honest_fraction=1.5, local_epsilon=1.0)


@pytest.mark.exact
def test_local_model_takes_the_central_target_as_local_budget():
    found = plan(epsilon=1.5, model="local")
    assert found.local_epsilon == 1.5 and found.model == "local"


@pytest.mark.exact
@pytest.mark.parametrize(
    ("dimension", "budget", "kind"),
    [(1, 1.0, ScalarMean), (8, 1.0, LInfMean), (8, 4.0, PrivUnitInf)],
)
def test_best_local_mechanism(dimension, budget, kind):
    best = best_local(dimension, budget)
    assert type(best) is kind
    assert best.mean_squared_error(1) <= LInfMean(dimension, budget).mean_squared_error(1) * (
        1 + 1e-9
    )


@pytest.mark.exact
def test_coordinates_cost_people_not_budget():
    """Eight coordinates ask more people (in wider bins), each of them about one, in full."""
    one = plan(local_epsilon=1.0)
    eight = plan(local_epsilon=1.0, space=Box(CoordinateRanges(-1, 1), 8))
    assert 2 < eight.search_share / one.search_share < 15
    assert eight.search.bins.count <= one.search.bins.count
    assert eight.search.local_epsilon == 1.0


@pytest.mark.exact
def test_ball_counts_its_own_cutoff_as_failure():
    space = Ball.for_users(64, 1.0, 100_000, 1e-3)
    found = plan(100_000, 10_000, space, local_epsilon=4.0, sigma=None)
    assert found.search is not None
    assert 1e-3 < found.failure_probability <= 0.01
    with pytest.raises(ValueError, match="failure_probability must exceed 0.001"):
        plan(100_000, 10_000, space, local_epsilon=4.0, sigma=None, failure_probability=1e-3)


@pytest.mark.exact
def test_stated_sigma_serves_balls_too():
    space = Ball.for_users(64, 1.0, 100_000, 1e-3)
    found = plan(100_000, 10_000, space, local_epsilon=4.0, sigma=0.1)
    assert found.concentration.proxy == pytest.approx(0.1**2 / 10_000 / space.half**2)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "exactly one of epsilon and local_epsilon"),
        ({"epsilon": 1.0, "local_epsilon": 1.0}, "exactly one of"),
        ({"epsilon": 1.0}, "delta must be given"),
        ({"epsilon": 1.0, "delta": 0.0}, "delta must lie in"),
        ({"local_epsilon": -1.0}, "local_epsilon must be a finite number > 0"),
        ({"local_epsilon": 1.0, "sigma": 0.0}, "sigma must be"),
        ({"local_epsilon": 1.0, "user_sigma": math.nan}, "user_sigma must be"),
        ({"local_epsilon": 1.0, "outliers": 0.4}, "outliers must lie in"),
        ({"local_epsilon": 1.0, "failure_probability": 0}, "failure_probability must lie in"),
        ({"local_epsilon": 1.0, "model": "central"}, "model must be"),
        ({"local_epsilon": 1.0, "split": "both"}, "split must be"),
        ({"local_epsilon": 1.0, "users": 0}, "num_users must be"),
        ({"local_epsilon": 1.0, "rows": 0}, "rows_per_user must be"),
        ({"epsilon": 1.0, "delta": 1e-6, "split": "users"}, "need a local budget"),
        ({"epsilon": 1.0, "delta": 1e-6, "preset": "thesis"}, "need a local budget"),
    ],
)
def test_what_does_not_fit_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        plan(**options)


@pytest.mark.exact
def test_errors_scale_as_the_theory_says():
    """Locally as sigma/sqrt(n m), up to logarithms: twice the people, a bit over sqrt(2) less."""
    ratio = error(plan(local_epsilon=1.0)) / error(plan(400_000, local_epsilon=1.0))
    assert 1.9 < ratio < 2.3
    ratio = error(plan(local_epsilon=1.0)) / error(plan(rows=400, local_epsilon=1.0))
    assert ratio == pytest.approx(2.0, rel=0.02)
    assert np.isfinite(ratio)
