"""Plans of means: every mechanism for the ball, at budgets that meet the target, best first."""

from __future__ import annotations

import inspect
import math
import time

import numpy as np
import pytest

from beam_ldp.accounting import (
    event_epsilon,
    local_epsilon_for,
    shuffle_epsilon,
    shuffled_event,
)
from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.planning import plan_means, recommend_mean
from beam_ldp.planning.means import MeanTask
from beam_ldp.randomizers import mean, registry
from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import lower_bounds

pytestmark = pytest.mark.exact

TARGET = {"num_users": 10_000, "dimension": 200, "epsilon": 1.0, "delta": 1e-6}
L2 = {
    "L2Mean", "PrivUnit", "PrivUnitGaussian", "ProjectedPrivUnit", "SeparatedMean", "KashinMean",
    "RandomCodebookMean", "MinimalRandomCoding", "SeedCompressedMean",
    "RotatedSimplexMean",
}  # fmt: skip


@pytest.fixture(scope="module")
def plans():
    return plan_means(**TARGET)


@pytest.fixture(scope="module")
def local_plans():
    return plan_means(10_000, 200, epsilon=4.0, model="local")


def test_all_mechanisms_of_the_ball_appear_once(plans, local_plans):
    for rows in (plans, local_plans):
        assert len(rows) == len(L2) and {plan.mechanism for plan in rows} == L2
        assert all(plan.decoding for plan in rows)


def test_no_mechanism_is_forgotten():
    """Whatever `beam_ldp.randomizers.mean` exports that protects alone is planned for some ball."""
    exported = {
        cls
        for cls in vars(mean).values()
        if inspect.isclass(cls) and issubclass(cls, mean.MeanRandomizer)
    } - {mean.MeanRandomizer}
    exported = {cls for cls in exported if cls.protects_alone}
    balls = [(norm, d) for norm in ("l2", "l1", "linf", "binary") for d in (1, 200)]
    kinds = registry.offered("mean")
    assert {kind for kind in kinds if any(kind.serves(*ball) for ball in balls)} == exported
    assert {kind.__name__ for kind in kinds if kind.serves("linf", 1)} == {"LInfMean", "ScalarMean"}


def test_every_plan_meets_the_target_and_nearly_uses_it_up(plans):
    for plan in plans:
        assert 0.99 <= plan.epsilon <= 1.0, plan.mechanism
        again = shuffle_epsilon(LocalRandomizer.from_config(plan.config), 10_000, 1e-6)
        assert again == pytest.approx(plan.epsilon, rel=1e-9)
        assert plan.epsilon.lower <= plan.epsilon
        assert plan.local_epsilon == plan.randomizer.local_epsilon
    many = next(plan for plan in plans if plan.mechanism == "L2Mean")
    assert many.epsilon.lower > 0.5 and many.messages_per_user == 2048


def test_figures_are_those_of_the_mechanism(plans, local_plans):
    for plan in [*plans, *local_plans]:
        randomizer = plan.randomizer
        assert plan.mean_squared_error == randomizer.mean_squared_error(10_000)
        assert plan.standard_error == math.sqrt(randomizer.variance(10_000).max())
        assert plan.rms_error >= math.sqrt(plan.mean_squared_error)
        assert plan.bits_per_report == randomizer.bits_per_report
        assert plan.messages_per_user == randomizer.messages_per_user


def brute_force(cls, n, d, epsilon, delta, options):
    """Errors of all tunings of one mechanism, found without the planner."""
    found = []
    for option in options:
        budget = local_epsilon_for(epsilon, delta, n, lambda b: cls(d, b, **option))  # noqa: B023
        mechanism = cls(d, budget, **option)
        found.append(with_bias(mechanism, n))
    return min(found)


def with_bias(mechanism, n):
    bias = mechanism.bias_bound
    if isinstance(mechanism, mean.L2Mean):
        bias = min(mechanism.dimension * bias, mechanism.bias_norm_bound)
    return mechanism.mean_squared_error(n) + bias**2


def test_the_order_is_that_of_a_brute_force_search(plans):
    """Mechanisms with one report: every option by hand; those with many: more and fewer."""
    n, d, epsilon, delta = 10_000, 200, 1.0, 1e-6
    wide = [{"coordinate_bits": bits} for bits in (8, 12, 16, 24, 32)]
    searched = {
        "PrivUnit": brute_force(mean.PrivUnit, n, d, epsilon, delta, wide),
        "ProjectedPrivUnit": brute_force(
            mean.ProjectedPrivUnit, n, d, epsilon, delta,
            [{"projected": k} for k in (16, 32, 64, 96, 128)],
        ),
        "RandomCodebookMean": brute_force(
            mean.RandomCodebookMean, n, d, epsilon, delta, [{"index_bits": b} for b in (6, 8, 10)]
        ),
        "SeparatedMean": brute_force(
            mean.SeparatedMean, n, d, epsilon, delta, [{"coordinate_bits": 16}]
        ),
        "L2Mean": min(
            with_bias(mean.L2Mean.for_shuffle(d, epsilon, delta, n, **options), n)
            for options in ({}, {"messages": 256}, {"messages": (64,)}, {"levels": 2})
        ),
    }  # fmt: skip
    ours = {plan.mechanism: plan.rms_error**2 for plan in plans}
    for name, error in searched.items():
        assert ours[name] <= 1.03 * error, name
    order = sorted(searched, key=searched.__getitem__)
    planned = [plan.mechanism for plan in plans if plan.mechanism in searched]
    level = {name: math.log(searched[name]) for name in order}
    for one, two in zip(planned, planned[1:], strict=False):
        assert level[one] <= level[two] + 0.05


def test_directions_are_planned_in_at_most_eight_bits_a_coordinate(local_plans):
    """At a local epsilon of 4, in 200 dimensions: unbiased, for less than 2 % of error."""
    for kind in (mean.PrivUnit, mean.PrivUnitGaussian, mean.SeparatedMean, mean.ProjectedPrivUnit):
        found = next(p.randomizer for p in local_plans if p.mechanism == kind.__name__)
        assert found.rounding == "random" and found.coordinate_bits <= 8
        assert found.mean_squared_error(1) < 1.02 * found.unrounded.mean_squared_error(1)


def test_best_first_and_fewer_bits_where_errors_are_equal(plans, local_plans):
    for rows in (plans, local_plans):
        for one, two in zip(rows, rows[1:], strict=False):
            if one.excluded or two.excluded:
                assert two.excluded
                continue
            assert two.rms_error >= one.rms_error / 1.01
            if two.rms_error < one.rms_error:
                assert two.bits_per_report >= one.bits_per_report


def test_local_plans_stay_above_the_proved_bound(local_plans):
    bound = lower_bounds.unbiased_local_bound(200, 4.0, 10_000).value
    for plan in local_plans:
        assert plan.local_epsilon == 4.0 and plan.epsilon == 4.0
        assert plan.times_lower_bound == pytest.approx(plan.rms_error**2 / bound)
        assert plan.times_lower_bound >= 1 - 1e-9 and "proved" in plan.lower_bound_name
    assert local_plans[0].times_lower_bound < 1.03


@pytest.mark.parametrize("norm", ["l2", "l1", "linf", "binary", 1.5, 4.0])
@pytest.mark.parametrize("budget", [0.3, 3.0])
def test_no_plan_of_any_norm_beats_the_bound(norm, budget):
    for d in (1, 3, 150):
        for plan in plan_means(500, d, norm, local_epsilon=budget):
            if plan.randomizer is not None:
                assert plan.times_lower_bound >= 1 - 1e-9, (plan.mechanism, d)
                assert plan.randomizer.dimension == d


def test_the_reference_of_a_central_target_is_no_bound(plans):
    mu = gaussian_mu(1.0, 1e-6)
    reference = lower_bounds.gaussian_reference(200, mu, 10_000)
    for plan in plans:
        assert plan.times_lower_bound == pytest.approx(plan.rms_error**2 / reference)
        assert "not a bound" in plan.lower_bound_name
    few = MeanTask(100, 100, 1, "linf", 1.0, 1.0, None, 1e-6, math.inf, math.inf)
    assert few.reference()[0] == lower_bounds.laplace_reference(1, 1.0, 100, math.inf)


def test_vectors_of_other_balls_go_to_mechanisms_that_hold_them():
    d, r = 150, 2.0
    for norm, radii in (
        ("l1", {"L1Mean": r, "PrivUnit": r}),
        ("linf", {"LInfMean": r, "PrivUnitInf": r, "PrivUnit": r * math.sqrt(d)}),
        (1.5, {"L1Mean": r * d ** (1 / 3), "L2Mean": r}),
        (4.0, {"LInfMean": r, "L2Mean": r * d**0.25}),
        (2.0, {"L2Mean": r}),
    ):
        found = {p.mechanism: p for p in plan_means(1000, d, norm, radius=r, local_epsilon=2.0)}
        for name, radius in radii.items():
            assert found[name].randomizer.radius == pytest.approx(radius)
    (binary,) = plan_means(1000, d, "binary", local_epsilon=2.0)
    assert binary.mechanism == "BinaryVectorMean" and binary.randomizer.radius == 1.0
    one = plan_means(1000, 1, "l2", radius=r, local_epsilon=2.0)
    assert {plan.mechanism for plan in one} == {"LInfMean", "ScalarMean"}
    scalar = next(plan for plan in one if plan.mechanism == "ScalarMean")
    assert scalar.randomizer.signed and scalar.randomizer.points[0] == -r


@pytest.mark.parametrize("limit", [100, pytest.param(250, marks=pytest.mark.slow)])
def test_limits_on_bits_find_shorter_variants_or_say_why_not(plans, limit):
    rows = plan_means(**TARGET, max_bits=limit)
    for plan in rows:
        if plan.excluded:
            assert f"max_bits is {limit}" in plan.excluded
            assert plan.bits_per_report > limit
        else:
            assert plan.bits_per_report <= limit and plan.epsilon <= 1.0
    many = next(plan for plan in rows if plan.mechanism == "L2Mean")
    assert not many.excluded and many.bits_per_report > 0.7 * limit
    assert recommend_mean(**TARGET, max_bits=40).rms_error > rows[0].rms_error
    assert rows[0].rms_error >= plans[0].rms_error


def test_a_limit_on_the_local_budget_is_kept_by_all():
    for limit in (0.5, 3.0):
        for plan in plan_means(**TARGET, max_local_epsilon=limit):
            assert not plan.excluded, plan.excluded
            assert plan.local_epsilon <= limit * (1 + 1e-9)
            assert plan.epsilon <= 1.0
    (many,) = plan_means(**TARGET, max_local_epsilon=60.0, only=["L2Mean"])
    assert many.local_epsilon <= 60.0 and many.epsilon <= 1.0
    assert many.messages_per_user > 5


def test_fake_reports_hide_nobody():
    alone = {**TARGET, "only": ["L2Mean"]}
    half = recommend_mean(**alone, honest_fraction=0.5)
    assert shuffle_epsilon(half.randomizer, 5000, 1e-6) <= 1.0
    assert shuffle_epsilon(half.randomizer, 4800, 1e-6) > 1.0
    all_honest = recommend_mean(**alone)
    fewer = recommend_mean(**{**alone, "num_users": 5000})
    assert all_honest.rms_error < half.rms_error < fewer.rms_error


def test_a_local_budget_is_priced_after_shuffling_or_not():
    shuffled = plan_means(10_000, 200, local_epsilon=2.0, delta=1e-6)
    bare = plan_means(10_000, 200, local_epsilon=2.0)
    for one, two in zip(shuffled, bare, strict=True):
        assert one.mechanism == two.mechanism and one.rms_error == two.rms_error
        assert one.epsilon < 0.5 and two.epsilon == 2.0


def test_some_mechanisms_only(plans):
    (only,) = plan_means(**TARGET, only=["PrivUnit"])
    assert only == next(plan for plan in plans if plan.mechanism == "PrivUnit")


def test_nothing_fits():
    with pytest.raises(ValueError, match="no mechanism meets the constraints: .* max_bits is 3"):
        recommend_mean(**TARGET, max_bits=3)


@pytest.mark.parametrize(
    ("n", "d", "norm"),
    [(1, 1, "l2"), (100, 1, "linf"), (10**5, 70_000, "l2"), (50, 1, "binary"), *(
        pytest.param(*task, marks=pytest.mark.slow)  # their orders of reports are enumerated
        for task in [(100, 2, "l2"), (10**7, 3, "l2"), (10**5, 10, "l1")]
    )],
)  # fmt: skip
def test_small_and_large_tasks(n, d, norm):
    rows = plan_means(n, d, norm, epsilon=1.0, delta=1e-9)
    assert not rows[0].excluded and rows[0].epsilon <= 1.0 and rows[0].rms_error > 0
    assert all(plan.excluded for plan in rows if plan.randomizer is None)


@pytest.mark.slow
def test_a_million_dimensions():
    """Laying out a million messages per user, three times: several seconds."""
    rows = plan_means(10**6, 10**6, epsilon=1.0, delta=1e-8)
    assert rows[0].mechanism == "L2Mean" and rows[0].messages_per_user == 1 << 20
    slow = {plan.mechanism for plan in rows if "random numbers per report" in plan.excluded}
    assert slow == {
        "RandomCodebookMean",
        "RotatedSimplexMean",
        "MinimalRandomCoding",
        "SeedCompressedMean",
    }


@pytest.mark.slow
def test_a_plan_takes_seconds():
    start = time.process_time()
    plan_means(123_456, 784, epsilon=1.0, delta=1e-8)
    assert time.process_time() - start < 6.0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"epsilon": None}, "exactly one"),
        ({"local_epsilon": 1.0}, "exactly one"),
        ({"delta": None}, "delta must be given"),
        ({"delta": 1.0}, "delta"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"num_users": 0}, "num_reports"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 2**20 + 1}, "dimension"),
        ({"radius": 0.0}, "radius"),
        ({"radius": math.inf}, "radius"),
        ({"norm": "l3"}, "norm"),
        ({"norm": 0.5}, "norm"),
        ({"norm": "binary", "radius": 2.0}, "radius"),
        ({"model": "central"}, "model"),
        ({"max_bits": 0}, "max_bits"),
        ({"max_local_epsilon": 0.0}, "max_local_epsilon"),
        ({"honest_fraction": 2.0}, "honest_fraction"),
    ],
)
def test_arguments_are_checked(change, named):
    with pytest.raises(ValueError, match=named):
        plan_means(**{**TARGET, **change})


@pytest.mark.statistical
@pytest.mark.parametrize(
    "target",
    [pytest.param({"epsilon": 2.0, "delta": 1e-5}, marks=pytest.mark.slow), {"local_epsilon": 3.0}],
)
def test_what_is_recommended_has_the_predicted_error(target):
    """30 runs of 100 users at a fixed seed: mean squared error within 5 sigma, below 1e-6."""
    n, d, runs = 100, 6, 30
    plan = recommend_mean(n, d, **target)
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(n, d))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    errors = []
    for _ in range(runs):
        reports = plan.randomizer.randomize(vectors, rng)
        estimate = plan.randomizer.estimate(plan.randomizer.accumulate(reports), n)
        errors.append(((estimate.value - vectors.mean(axis=0)) ** 2).sum())
    expected = plan.randomizer.mean_squared_error(n, vectors)
    assert expected <= plan.mean_squared_error * (1 + 1e-9)
    assert abs(np.mean(errors) - expected) < 5 * np.std(errors) / math.sqrt(runs)


@pytest.mark.parametrize("d", [16, 128, 784])
@pytest.mark.parametrize("budget", [1.0, 4.0, 8.0])
def test_with_local_privacy_the_best_is_within_a_tenth_of_priv_unit(d, budget):
    """At the same local epsilon; in 64 bits as well, where the bits of PrivUnit are 128 to 25,088
    (784 coordinates and budget 8 only there: codebooks of 2^8 directions are within 0.12)."""
    n = 100_000
    least = mean.PrivUnit(d, budget).mean_squared_error(n)
    free = recommend_mean(n, d, local_epsilon=budget, model="local")
    short = recommend_mean(n, d, local_epsilon=budget, model="local", max_bits=64)
    assert free.rms_error**2 <= 1.02 * least and free.local_epsilon == budget
    assert short.rms_error**2 <= (1.12 if d == 784 else 1.1) * least
    assert short.bits_per_report <= 44


@pytest.mark.parametrize(("n", "d", "delta"), [(20_000, 16, 1e-6), (100_000, 784, 1e-8)])
def test_with_a_central_target_too_each_by_its_own_pair(n, d, delta):
    limits = {"epsilon": 1.0, "delta": delta, "max_local_epsilon": 8.0}
    best = recommend_mean(n, d, **limits)
    assert best.epsilon <= 1.0 and best.local_epsilon <= 8.0
    at_its_budget = mean.PrivUnit(d, best.local_epsilon).mean_squared_error(n)
    assert best.rms_error**2 <= 1.1 * at_its_budget
    unit = recommend_mean(n, d, **limits, only=["PrivUnit"])
    assert best.rms_error <= 1.01 * unit.rms_error


def test_more_rows_are_those_that_no_row_beats(plans):
    rows = plan_means(**TARGET, several=True)
    usable = [row for row in rows if not row.excluded]
    names = [row.mechanism for row in usable]
    assert set(names) == L2 and names.count("L2Mean") >= 3 and usable[0].mechanism == names[0]
    best = {plan.mechanism: plan for plan in plans}
    for row in usable:
        assert 0 < row.epsilon <= 1.0
        assert row.rms_error >= 0.99 * best[row.mechanism].rms_error or row.mechanism == "L2Mean"
    for one in usable:
        for other in usable:
            if one.config != best[one.mechanism].config and other is not one:
                assert not (
                    other.rms_error < 0.99 * one.rms_error
                    and other.bits_per_report <= one.bits_per_report
                    and other.local_epsilon <= one.local_epsilon
                ), (one, other)
    again = shuffle_epsilon(LocalRandomizer.from_config(usable[1].config), 10_000, 1e-6)
    assert again == pytest.approx(usable[1].epsilon, rel=1e-9)


def test_a_limit_on_messages():
    for plan in plan_means(**TARGET, max_messages=20, max_bits=5000):
        assert plan.excluded or plan.messages_per_user <= 20
    (many,) = plan_means(**TARGET, max_messages=20, only=["L2Mean"])
    assert many.messages_per_user == 20 and not many.excluded
    one = plan_means(**TARGET, max_messages=1)
    assert {plan.messages_per_user for plan in one if not plan.excluded} == {1}
    with pytest.raises(ValueError, match="max_messages"):
        plan_means(**TARGET, max_messages=0)


def test_a_local_limit_takes_fewer_bits_about_blocks_or_less_of_their_budget():
    """Priced by length, so many messages would earn more than the limit leaves."""
    (many,) = plan_means(**TARGET, max_local_epsilon=300.0, only=["L2Mean"])
    assert many.local_epsilon <= 300.0 * (1 + 1e-9) and not many.excluded


def test_one_bit_that_costs_too_much_is_left_out_and_nothing_fails():
    """Its message's budget is what it is: no other local epsilon fits it."""
    rows = plan_means(10_000, 30, epsilon=1.0, delta=1e-8, honest_fraction=0.81, several=True)
    assert {row.mechanism for row in rows} == L2


# Behind a trusted shuffler -----------------------------------------------------------------------


CENTRAL = {"num_users": 10_000, "dimension": 100, "epsilon": 1.0, "delta": 1e-6}


def shares_row(**how):
    """The plan of shares, if it is listed, and the number of rows."""
    rows = plan_means(**{**CENTRAL, **how})
    return next((row for row in rows if row.mechanism == "SplitAndMixMean"), None)


def test_shares_are_listed_to_those_who_trust_the_shuffler_alone():
    row = shares_row(trust_shuffler=True, honest_fraction=0.8)
    assert row.local_epsilon == math.inf and row.trusted == "shuffler"
    assert 0.999 < row.epsilon <= 1.0 and 1.25 < row.times_lower_bound < 1.3
    assert row.messages_per_user == 128 * row.randomizer.shares
    again = event_epsilon(shuffled_event(LocalRandomizer.from_config(row.config), 8000), 1e-6)
    assert float(again) == float(row.epsilon)
    everybody = shares_row(trust_shuffler=True)
    assert everybody.times_lower_bound < 1.03 < row.times_lower_bound
    assert plan_means(**CENTRAL, trust_shuffler=True)[0].mechanism == "SplitAndMixMean"


@pytest.mark.parametrize("how", [
    {}, {"trust_shuffler": True, "max_local_epsilon": 100.0},
    {"trust_shuffler": True, "epsilon": None, "local_epsilon": 4.0},
    {"trust_shuffler": True, "model": "local", "delta": None},
    {"trust_shuffler": True, "norm": "binary"},
])  # fmt: skip
def test_shares_are_listed_to_nobody_else(how):
    """Nor with a limit on local epsilons, nor where a local one is the target."""
    assert shares_row(**how) is None


def test_shares_say_why_they_do_not_fit():
    row = shares_row(trust_shuffler=True, max_bits=1000)
    assert "bits per user, max_bits is 1,000" in row.excluded
    assert "so few do not hide" in shares_row(trust_shuffler=True, num_users=3).excluded


def test_who_is_trusted_depends_on_the_local_epsilon(plans, local_plans):
    assert {plan.trusted for plan in local_plans} == {"device"}
    for plan in plans:
        assert plan.trusted == ("device" if plan.local_epsilon <= 8 else "shuffler")
