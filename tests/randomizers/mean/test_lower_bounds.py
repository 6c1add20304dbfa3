"""Lower bounds: order, continuity, and that no mechanism of ours beats those with constants."""

from __future__ import annotations

import math

import pytest

from beam_ldp.accounting.multi_message import gaussian_mu
from beam_ldp.randomizers.mean import L1Mean, L2Mean, LInfMean
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
    # coth^2(e/2) over (E+1)^2/(16 E (E-1)^2) is 16 E: no more, no less.
    assert ours / bound.value == pytest.approx(16 * math.exp(budget), rel=1e-6)


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lb.local_lower_bound(0, 1.0, 10), "dimension"),
        (lambda: lb.local_lower_bound(1, -1.0, 10), "epsilon"),
        (lambda: lb.local_lower_bound(1, 1.0, 10, p=0.5), "p must"),
        (lambda: lb.local_lower_bound(1, 1.0, 10, radius=0.0), "radius"),
        (lambda: lb.central_lower_bound(1, 1.0, 2.0, 10), "delta"),
        (lambda: lb.central_lower_bound(1, 1.0, 0.1, 10, bits_per_user=0), "bits_per_user"),
        (lambda: lb.gaussian_reference(1, 1.0, 10, p=1), "p must"),
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
