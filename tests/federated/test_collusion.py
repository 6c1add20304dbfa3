"""Forged reports that point one way are left out; honest ones are not; what is left is bounded."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.federated.collusion import LEAST, QUIET, RARELY, CollusionCheck
from beam_ldp.randomizers.mean import (
    KashinMean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    ProjectedPrivUnit,
    ScalarMean,
    SeparatedMean,
    compact_mean,
)
from beam_ldp.randomizers.spherical_caps import SphericalCap

SHORT = compact_mean(PrivUnit, 650, local_epsilon=6.0, radius=0.5)
ALL = [
    PrivUnit(400, 4.0),
    PrivUnitGaussian(400, 4.0),
    SHORT,
    PrivUnitGaussian(400, 4.0, rounding="random", coordinate_bits=8),
    SeparatedMean(400, 6.0),
    SeparatedMean(400, 6.0, strategy="lift"),
    SeparatedMean(400, 6.0, strategy="sign_flip"),
    SeparatedMean(400, 6.0, rounding="random", coordinate_bits=8),
]


def read(mechanism, reports):
    return reports * mechanism.fixed_point.step


def axis(mechanism, at=0):
    return mechanism.radius * np.eye(mechanism.dimension)[at]


def forged(mechanism, direction, count, share=1.0, rng=None):
    """As long as honest reports are, with `share` of that along a direction, the rest at random."""
    length = mechanism._lengths_sent[0].max()
    length = length or 0.999 * mechanism._longest_read / mechanism.fixed_point.step
    along = direction / np.linalg.norm(direction)
    across = np.zeros((count, mechanism.dimension))
    if share < 1:
        across = rng.normal(size=across.shape)
        across -= np.outer(across @ along, along)
        across /= np.linalg.norm(across, axis=1, keepdims=True)
    made = length * (share * along + math.sqrt(1 - share**2) * across)
    return np.rint(made).astype(mechanism.report_dtype)


# How far honest reports point -------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("chance", [1e-3, 1e-12])
def test_a_report_points_beyond_the_limit_with_half_the_chance(chance):
    """PrivUnit along its own direction, which is the farthest: the law of its height is known."""
    mechanism = PrivUnit(400, 4.0)
    height = mechanism.component_limit(chance) * mechanism.marginal
    beyond = SphericalCap(400, height).measure
    inside, outside = mechanism.coin.probability, 1 - mechanism.coin.probability
    cap = mechanism.cap.measure
    exact = inside / cap * beyond + outside / (1 - cap) * beyond
    assert mechanism.cap.threshold < height and 0.2 * chance < exact <= chance / 2


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: f"{type(m).__name__}-{m.local_epsilon:g}")
def test_no_direction_is_pointed_in_more_often(mechanism):
    """At a chance of 1 %, 20,000 reports of the longest vector: along it, and across.

    At most 4.5 sigma more often (false alarms below 1e-5); limits that are a fifth too low give
    2 % and more along it.
    """
    rng = np.random.default_rng(3)
    own = axis(mechanism)
    reports = read(mechanism, mechanism.randomize(np.tile(own, (20_000, 1)), rng))
    limit, most = mechanism.component_limit(0.01), 0.01 + 4.5 * math.sqrt(0.01 * 0.99 / 20_000)
    other = np.ones(mechanism.dimension) / math.sqrt(mechanism.dimension)
    for direction in (own / mechanism.radius, axis(mechanism, 1) / mechanism.radius, other):
        assert np.mean(np.abs(reports @ direction) > limit) <= most


@pytest.mark.exact
def test_limits_grow_with_the_number_of_reports():
    limits = [*CollusionCheck(SHORT).limits.values()]
    assert limits == sorted(limits)
    mechanism = CollusionCheck(SHORT).mechanism
    assert limits[0] == mechanism.component_limit(2 * RARELY / QUIET / LEAST**2)


@pytest.mark.exact
@pytest.mark.parametrize(
    "mechanism, message",
    [
        (LInfMean(400, 4.0), "noise that points everywhere, as PrivUnit does: LInfMean"),
        (L2Mean(400, 4.0), "as PrivUnit does: L2Mean"),
        (KashinMean(64, 4.0), "as PrivUnit does: KashinMean"),
        (ScalarMean(1, 4.0), "as PrivUnit does: ScalarMean"),
        (ProjectedPrivUnit(400, 4.0), "as PrivUnit does: ProjectedPrivUnit"),
        (PrivUnit(5, 4.0), "dimension must be larger, got 5"),
    ],
)
def test_other_mechanisms_are_refused(mechanism, message):
    with pytest.raises(ValueError, match=message):
        CollusionCheck(mechanism)


# Who is left out --------------------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: f"{type(m).__name__}-{m.local_epsilon:g}")
def test_no_honest_report_is_left_out(mechanism):
    """Ten rounds of 200: everybody holds the same vector, or nobody any (false alarms: 1e-7)."""
    rng, check = np.random.default_rng(4), CollusionCheck(mechanism)
    for held in (axis(mechanism), 0 * axis(mechanism)) * 5:
        reports = mechanism.randomize(np.tile(held, (200, 1)), rng)
        assert check.examine(reports, rng).kept.all()


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ALL, ids=lambda m: f"{type(m).__name__}-{m.local_epsilon:g}")
@pytest.mark.parametrize("honest_too", [0.0, 1.0], ids=["many ways", "where the honest point"])
def test_those_who_point_one_way_are_left_out(mechanism, honest_too):
    """5 % of 400, as far as reports go, with or against everybody else: they alone (1e-8)."""
    rng, check = np.random.default_rng(5), CollusionCheck(mechanism)
    direction = rng.normal(size=mechanism.dimension)
    direction *= mechanism.radius / np.linalg.norm(direction)
    honest = mechanism.randomize(np.tile(-honest_too * direction, (380, 1)), rng)
    reports = np.concatenate([honest, forged(mechanism, direction, 20)])
    assert mechanism.possible(reports).all(), "nothing else would have noticed them"
    np.testing.assert_array_equal(check.examine(reports, rng).kept, np.arange(400) < 380)


@pytest.mark.statistical
def test_several_groups_of_liars_are_left_out_one_after_the_other():
    """Six directions, ten each, of 660: what hides behind a larger group is found without it."""
    rng = np.random.default_rng(6)
    honest = SHORT.randomize(np.zeros((600, 650)), rng)
    groups = [forged(SHORT, d, 10) for d in rng.normal(size=(6, 650))]
    kept = CollusionCheck(SHORT).examine(np.concatenate([honest, *groups]), rng).kept
    np.testing.assert_array_equal(kept, np.arange(660) < 600)


@pytest.mark.exact
@pytest.mark.parametrize("count", range(6))
def test_few_reports_are_kept(count):
    """None, one, two: no halves; four are the least that are compared."""
    reports = SHORT.randomize(np.zeros((count, 650)), np.random.default_rng(7))
    kept, agreement = CollusionCheck(SHORT).examine(reports)
    assert kept.all() and len(kept) == count and (agreement > 0) == (count > 0)


# What the rest can have done ----------------------------------------------------------------------


@pytest.mark.exact
def test_agreement_bounds_what_any_of_them_add_up_to():
    """The bound holds for every choice of reports, and is attained where all are one."""
    rng, check = np.random.default_rng(8), CollusionCheck(SHORT)
    careful = forged(SHORT, np.ones(650), 30, 0.3, rng)
    reports = np.concatenate([SHORT.randomize(np.zeros((300, 650)), rng), careful])
    kept, agreement = check.examine(reports, rng)
    vectors = read(SHORT, reports.astype(float))
    exact = np.linalg.norm(vectors, ord=2)
    assert kept.all() and exact <= agreement <= exact * (1 + 1e-4)
    for chosen in [np.arange(300, 330), *(rng.permutation(330)[:30] for _ in range(20))]:
        assert np.linalg.norm(vectors[chosen].sum(axis=0)) <= math.sqrt(30) * agreement
    same = np.repeat(careful[:1], 3, axis=0)
    few, one = check.examine(same).agreement, np.linalg.norm(vectors[300])
    assert few == pytest.approx(math.sqrt(3) * one, rel=1e-4)


@pytest.mark.exact
def test_reach_is_never_more_than_that_of_the_plain_mean():
    check = CollusionCheck(SHORT)
    for share in (0.0, 0.001, 0.01, 0.05, 0.5):
        usual = check.reach(share, 1000, check.usual_agreement(1000))
        assert usual <= share * SHORT.reach * (1 + 1e-12)
        assert check.reach(share, 1000, math.inf) == pytest.approx(share * SHORT.reach)
    forged_many, of_all = 50, 1000
    usual = (math.sqrt(forged_many) * check.usual_agreement(of_all) + forged_many * 0.5) / of_all
    assert check.reach(0.05, of_all, check.usual_agreement(of_all)) == pytest.approx(usual)


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", ALL[:4], ids=lambda m: f"{type(m).__name__}-{m.dimension}")
def test_usual_agreement_is_that_of_vectors_that_point_many_ways(mechanism):
    """Within 5 %: the norm of a random matrix scatters by less than 1 %."""
    rng = np.random.default_rng(9)
    vectors = rng.normal(size=(500, mechanism.dimension))
    check = CollusionCheck(mechanism)
    found = check.examine(mechanism.randomize(vectors, rng), rng).agreement
    assert found == pytest.approx(check.usual_agreement(500), rel=0.05)


@pytest.mark.statistical
def test_five_percent_of_liars_ruin_a_mean_and_not_the_checked_one():
    """Everybody holds one vector; 50 of 1,000 send the longest reports against it.

    The plain mean then points the other way. With the check it is the mean of the others: within
    4.5 standard errors along the vector (false alarms below 1e-5), and so it is where the liars
    know the limit, but for what `reach` says.
    """
    rng, check = np.random.default_rng(10), CollusionCheck(SHORT)
    along = rng.normal(size=650)
    along /= np.linalg.norm(along)
    vector = 0.3 * along
    honest = SHORT.randomize(np.tile(vector, (950, 1)), rng)
    error = math.sqrt(along @ np.diag(SHORT.variance(950, vector[None])) @ along)

    def means(liars):
        reports = np.concatenate([honest, liars])
        kept, agreement = check.examine(reports, rng)
        plain, checked = (
            SHORT.estimate(SHORT.accumulate(r), len(r)).value @ along
            for r in (reports, reports[kept])
        )
        return plain, checked, check.reach(50 / kept.sum(), kept.sum(), agreement)

    plain, checked, _ = means(forged(SHORT, -vector, 50))
    assert plain < 0.05 and abs(checked - 0.3) < 4.5 * error
    share = 0.95 * check.limits[1024] / SHORT._longest_read
    careful_plain, careful, reach = means(forged(SHORT, -vector, 50, share, rng))
    assert careful == careful_plain and abs(careful - 0.3) < reach + 4.5 * error
    assert reach < 0.6 * 0.05 * SHORT.reach
