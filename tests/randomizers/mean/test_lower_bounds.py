"""Lower bounds: order, continuity, and that no mechanism of ours beats those with constants."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting.shuffle.multi_message import gaussian_mu
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    SeparatedMean,
)
from beam_ldp.randomizers.mean import lower_bounds as lb
from beam_ldp.randomizers.mean.lp import lp_mean, lp_mean_for_shuffle

pytestmark = pytest.mark.exact


def test_bounds_of_the_norms():
    assert lb.local_lower_bound(100, 0.5, 1000, p=2).value == pytest.approx(100 / 1000 / 0.25)
    assert lb.local_lower_bound(100, 2.0, 1000, p=2).value == pytest.approx(100 / 1000 / 2)
    cube = lb.local_lower_bound(100, 2.0, 1000, p=math.inf, radius=3.0)
    assert cube.value == pytest.approx(9 * 100**2 / 1000 / 2)
    assert lb.local_lower_bound(10, 1.0, 100, p=4).value == pytest.approx(10**1.5 / 100)
    assert lb.local_lower_bound(10, 0.1, 2, p=1).value == 1.0
    assert not lb.local_lower_bound(2, 100.0, 100, p=2).valid
    assert not lb.local_lower_bound(2, 2.0, 100, p=1.5).valid


@pytest.mark.parametrize("budget", [0.2, 0.5, 1.0])
@pytest.mark.parametrize("d", [16, 256])
def test_l1_error_is_within_a_known_constant_of_the_bound(d, budget):
    bound = lb.distribution_lower_bound(d, budget, 10_000)
    ours = L1Mean(d, budget).mean_squared_error(10_000)
    assert bound.constant_known and bound.valid
    # d coth^2(e/2)/n over d/(4 n E tanh^2(e/2) + pi^2 d^2) is 4 E and what few people add.
    few = (math.pi * d) ** 2 / (10_000 * math.tanh(budget / 2) ** 2)
    assert ours / bound.value == pytest.approx(4 * math.exp(budget) + few, rel=1e-6)


@pytest.mark.parametrize(
    ("d", "budget", "n", "golden"),
    [(1000, 1.0, 10**8, 4.13107567e-6), (1000, 1.0, 500_000, 9.06569419e-5)],
)
def test_distributions_of_the_specification(d, budget, n, golden):
    assert lb.distribution_lower_bound(d, budget, n).value == pytest.approx(golden, rel=1e-8)


@pytest.mark.parametrize("budget", [0.1, 1.0, 3.0, 800.0])
@pytest.mark.parametrize("d", [2, 3, 10, 1000])
def test_nobody_needs_to_report_to_miss_by_less_than_one(d, budget):
    """The uniform guess misses by at most 1 - 1/d: any n, and one user was said to miss by 107."""
    for n in (1, 2, 50):
        assert lb.distribution_lower_bound(d, budget, n).value <= 1 - 1 / d
    printed = d * (math.exp(1) + 1) ** 2 / (16 * math.exp(1) * math.expm1(1) ** 2)
    assert d < 1000 or printed == pytest.approx(107.7, rel=1e-3)
    assert lb.distribution_lower_bound(1, budget, 5).value == 0.0


@pytest.mark.parametrize("n", [1, 2, 5, 40])
@pytest.mark.parametrize("budget", [0.3, 1.0, 2.5, 6.0])
def test_two_symbols_against_the_minimax_estimator(n, budget):
    """Every private channel of two symbols is made of randomized response; its best estimator.

    Estimators of the count that fall about 1/2 alike, by minimizing the largest risk over a grid
    of distributions: no bound may be above, and the best are not far from it.
    """
    counts, laws = np.arange(n + 1), np.linspace(0, 1, 41)
    truth = 1 / (1 + math.exp(-budget))
    chances = truth * laws + (1 - truth) * (1 - laws)
    mass = stats.binom.pmf(counts[:, None], n, chances)
    centred = counts / n - 0.5
    slopes = np.linspace(0, 1.2 / (2 * truth - 1), 400)
    # Affine estimators, cut to [0, 1]: an upper bound of the minimax risk, of both coordinates.
    estimates = np.clip(0.5 + slopes[:, None] * centred, 0, 1)
    risks = 2 * ((estimates[:, :, None] - laws) ** 2 * mass).sum(axis=1)
    minimax = float(risks.max(axis=1).min())
    bound = lb.distribution_lower_bound(2, budget, n).value
    assert bound <= minimax
    assert minimax <= 60 * bound or budget > 3  # there the symbol itself says no less


@pytest.mark.parametrize(("d", "n"), [(2, 1), (4, 1), (4, 2), (6, 1)])
def test_no_channel_and_no_estimator_of_few_users_is_below_the_bound(d, n):
    """Bayes risks are below minimax risks, yet above the bound: best estimators for the prior.

    Distributions p_j, p_(j+d/2) = 1/d +- t_j, t_j drawn from the cosine density; the posterior mean
    is the best estimator, so what it misses by is all that any one can promise.
    """
    budget, rng = 1.5, np.random.default_rng(d + n)
    m, bound = d // 2, lb.distribution_lower_bound(d, budget, n).value
    points = np.cos(math.pi * np.linspace(-1, 1, 15) / 2) ** 2
    grid, weight = np.linspace(-1, 1, 15) / d, points / points.sum()
    t = np.array(list(itertools.product(grid, repeat=m)))
    prior = np.array(list(map(np.prod, itertools.product(weight, repeat=m))))
    laws = np.hstack([1 / d + t, 1 / d - t])
    ratio, found = math.exp(budget), []
    for _ in range(20):
        rows = int(rng.integers(2, 2 * d + 1))
        favoured = rng.random((rows, d)) < 0.5
        table = np.where(np.vstack([favoured, ~favoured]), ratio, 1.0)
        channel = table / table.sum(axis=0)
        assert np.log(channel.max(axis=1) / channel.min(axis=1)).max() <= budget + 1e-9
        one = laws @ channel.T
        seen = one if n == 1 else (one[:, :, None] * one[:, None, :]).reshape(len(one), -1)
        joint = prior[:, None] * seen
        means = (joint.T @ laws) / joint.sum(axis=0)[:, None]
        found.append((prior @ laws**2).sum() - joint.sum(axis=0) @ (means**2).sum(axis=1))
    assert bound <= min(found) <= 5 * bound


@pytest.mark.parametrize("budget", [0.25, 1.0, 4.0, 16.0])
def test_linf_scales_as_its_bound(budget):
    """Ours over the order of the bound stays between 3 and 5 over two decades of budgets."""
    ratio = [
        LInfMean(d, budget).mean_squared_error(1000)
        / lb.local_lower_bound(d, budget, 1000, p=math.inf).value
        for d in (50, 500)
    ]
    assert all(3 < r < 5 for r in ratio)


def test_central_bound_with_few_and_many_bits():
    few = lb.central_lower_bound(1000, 1.0, 1e-6, 1000, bits_per_user=10)
    many = lb.central_lower_bound(1000, 1.0, 1e-6, 1000, bits_per_user=1e5)
    assert few.value == pytest.approx(1000 / 1000**2 * 1000 / 10)
    assert many.value == pytest.approx(1000 / 1000**2 * math.log(1e6))
    unlimited = lb.central_lower_bound(1000, 1.0, 1e-6, 1000)
    assert unlimited.value == many.value and unlimited.valid
    assert not lb.central_lower_bound(1000, 1.0, 0.1, 1000).valid


def test_gaussian_reference_of_the_figures():
    mu = gaussian_mu(1.0, 1e-5)
    assert lb.gaussian_reference(1, mu, 1000, math.inf, 0.5) == pytest.approx(1.39e-5, rel=5e-3)
    assert lb.gaussian_reference(300, mu, 1000) == pytest.approx(0.017, rel=0.02)


def unbiased_decoder(channel, vectors):
    """The unbiased decoder of least mean squared error over the vectors, by least squares."""
    weight = channel.mean(axis=1)
    moment = (channel.T / weight) @ channel
    return (np.linalg.pinv(moment, rcond=1e-10) @ vectors).T @ channel.T / weight


@pytest.mark.parametrize(("norm", "d"), [("linf", 1), ("linf", 2), ("l1", 2), ("l1", 3)])
@pytest.mark.parametrize("budget", [0.5, 1.0, 2.5])
def test_no_small_channel_with_its_best_decoder_is_below_the_bound(norm, d, budget):
    """Random two-level channels on corners and vertices; the best come close to the bound."""
    if norm == "linf":
        vectors = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    else:
        vectors = np.vstack([np.eye(d), -np.eye(d)])
    bound = lb.unbiased_local_bound(d, budget, 1, norm).value
    rng = np.random.default_rng(5)
    errors = []
    for _ in range(200):
        # Reports in pairs: one favours a half of the vectors, the other one the other half.
        count = int(rng.integers(d, 3 * d + 1))
        directions, weight = rng.normal(size=(count, d)), rng.uniform(0.2, 1.0, (count, 1))
        high = np.vstack([directions, -directions]) @ vectors.T > 0
        table = np.where(high, math.exp(budget), 1.0) * np.vstack([weight, weight])
        channel = table / table.sum(axis=0)
        assert np.log(channel.max(axis=1) / channel.min(axis=1)).max() <= budget + 1e-9
        decoder = unbiased_decoder(channel, vectors)
        if np.allclose(decoder @ channel, vectors.T, atol=1e-8):
            second = channel.mean(axis=1) @ (decoder**2).sum(axis=0)
            errors.append(second - (vectors[0] ** 2).sum())
    assert len(errors) > 20
    assert min(errors) >= bound * (1 - 1e-9)
    if d == 1:
        assert min(errors) == pytest.approx(bound)


@pytest.mark.parametrize("budget", [0.05, 0.5, 1.0, math.log(3)])
@pytest.mark.parametrize("d", [1, 4, 64])
def test_unbiased_bounds_are_attained_up_to_log_three(d, budget):
    """Exactly, at vectors that fill the ball: one message of the family is optimal."""
    for cls, norm, vector in ((L1Mean, "l1", np.eye(d)[0]), (LInfMean, "linf", np.ones(d))):
        mechanism = cls(d, budget, messages=(1,), message_epsilons=(budget,))
        bound = lb.unbiased_local_bound(d, budget, 100, norm)
        assert bound.constant_known and bound.valid
        error = mechanism.mean_squared_error(100, vector)
        assert error == pytest.approx(bound.value, rel=1e-6)
    mechanism = BinaryVectorMean(d, budget, messages=(1,), message_epsilons=(budget,))
    bound = lb.unbiased_local_bound(d, budget, 100, "binary")
    assert mechanism.mean_squared_error(100) == pytest.approx(bound.value, rel=1e-6)


@pytest.mark.parametrize("budget", [0.5, 2.0, 8.0])
def test_priv_unit_attains_the_bound_of_the_sphere(budget):
    for d in (2, 10, 1000):
        mechanism = PrivUnit(d, budget, inputs="sphere")
        bound = lb.unbiased_local_bound(d, budget, 7, "l2").value
        assert mechanism.mean_squared_error(7) == pytest.approx(bound, rel=1e-6)


@pytest.mark.parametrize("norm", ["l2", "l1", "linf", "binary"])
@pytest.mark.parametrize("budget", [0.01, 0.7, 1.2, 3.0, 7.0, 15.0])
@pytest.mark.parametrize("d", [1, 2, 30, 500])
def test_no_mechanism_is_below_the_unbiased_bound(norm, budget, d):
    classes = {
        "l2": (L2Mean, PrivUnit, PrivUnitGaussian, SeparatedMean),
        "l1": (L1Mean,),
        "linf": (LInfMean, PrivUnitInf),
        "binary": (BinaryVectorMean,),
    }[norm]
    bound = lb.unbiased_local_bound(d, budget, 10, norm).value
    for cls in classes:
        if d == 1 and cls not in (L2Mean, L1Mean, LInfMean, BinaryVectorMean):
            continue
        assert cls(d, budget).mean_squared_error(10) >= bound * (1 - 1e-9)
    if norm != "binary":
        doubled = lb.unbiased_local_bound(d, budget, 10, norm, radius=2.0).value
        assert doubled == pytest.approx(4 * bound)


def test_sums_of_signs_against_enumeration():
    """M of the corners: the favoured corners of any direction, for every threshold."""
    rng = np.random.default_rng(8)
    for d, budget in itertools.product((1, 2, 5, 8), (0.3, 1.0, 1.3, 3.0, 6.0)):
        ratio = math.exp(budget)
        directions = np.abs(rng.normal(size=(60, d)))
        directions = np.vstack([directions, np.tril(np.ones((d, d)))])  # few equal coordinates
        corners = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
        worst = 0.0
        for v in directions / np.linalg.norm(directions, axis=1, keepdims=True):
            heights = np.sort(corners @ v)[::-1]
            top, share = np.cumsum(heights) / len(heights), np.arange(1, len(heights) + 1)
            worst = max(worst, ((ratio - 1) * top / (1 + (ratio - 1) * share / len(share))).max())
        assert worst <= lb._corners(d, budget) * (1 + 1e-12)
        assert worst >= 0.6 * lb._corners(d, budget)


def test_references_of_trusted_curators():
    """Laplace noise in few dimensions and on the l1 ball, Gaussian noise in many."""
    mu = gaussian_mu(1.0, 1e-8)
    for d, p, laplace in ((1, 2.0, True), (10, 2.0, True), (100, 2.0, False), (100, 1.0, True)):
        gaussian = lb.gaussian_reference(d, mu, 1000, p)
        assert (lb.laplace_reference(d, 1.0, 1000, p) < gaussian) == laplace
    assert lb.laplace_reference(1, 0.5, 100, math.inf, 3.0) == pytest.approx(2 * (6 / 50) ** 2)
    assert lb.laplace_reference(7, 1.0, 1, 1.0) == pytest.approx(2 * 7 * 4)
    assert lb.gaussian_reference(4, 1.0, 1, 4.0) == pytest.approx(4 * 4 * 4 ** (0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lb.local_lower_bound(0, 1.0, 10), "dimension"),
        (lambda: lb.local_lower_bound(1, -1.0, 10), "epsilon"),
        (lambda: lb.local_lower_bound(1, 1.0, 10, p=0.5), "p must"),
        (lambda: lb.local_lower_bound(1, 1.0, 10, radius=0.0), "radius"),
        (lambda: lb.central_lower_bound(1, 1.0, 2.0, 10), "delta"),
        (lambda: lb.central_lower_bound(1, 1.0, 0.1, 10, bits_per_user=0), "bits_per_user"),
        (lambda: lb.gaussian_reference(1, 1.0, 10, p=0.5), "p must"),
        (lambda: lp_mean(10, 1.0, 0.9), "p must"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_lp_takes_the_enclosing_ball_with_the_least_error():
    d = 64
    for p, candidates in (
        (1.0, (L2Mean(d, 1.0), L1Mean(d, 1.0))),
        (1.5, (L2Mean(d, 1.0), L1Mean(d, 1.0, d ** (1 / 3)))),
        (3.0, (LInfMean(d, 1.0), L2Mean(d, 1.0, d ** (1 / 6)))),
        (math.inf, (LInfMean(d, 1.0), L2Mean(d, 1.0, d**0.5))),
    ):
        chosen = lp_mean(d, 1.0, p)
        assert chosen in candidates
        assert chosen.mean_squared_error(1) == min(c.mean_squared_error(1) for c in candidates)
    # The l_p ball of p in (1, 2) is not inside the l1 ball of its radius (Remark 3.4.1).
    assert lp_mean(d, 1.0, 1.05).radius > 1


def test_lp_in_the_shuffle_model():
    chosen = lp_mean_for_shuffle(8, 1.0, 1e-6, 2000, p=1.2)
    assert isinstance(chosen, (L1Mean, L2Mean))
    assert chosen.mean_squared_error(2000) < lp_mean(8, 1.0, 1.2).mean_squared_error(2000)
