"""PrivUnit of the cube, enumerated in eight dimensions and known in many."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.frequency.packed_bits import all_rows
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.priv_unit_inf import CornerCaps, PrivUnitInf, best_places
from beam_ldp.randomizers.words import WORD_VALUES, exp_lower


def false_corollary(dimension, kappa):
    """What equation (20) of Corollary 4.1 of Bhowmick et al. says that a cap costs."""
    return 2 * math.atanh(kappa * math.sqrt(2 / (3 * dimension + 2)))


def true_cost(dimension, kappa):
    return CornerCaps.of(dimension).log_odds_outside(-(-(dimension + kappa + 1) // 2))


@pytest.mark.exact
@pytest.mark.parametrize("d", [1, 2, 7, 8])
@pytest.mark.parametrize("epsilon", [0.05, 1.0, 3.0])
def test_enumeration(d, epsilon):
    mechanism = PrivUnitInf(d, epsilon)
    table = mechanism.channel()
    assert np.allclose(table.sum(axis=0), 1.0, rtol=1e-12)
    ratio = math.log((table.max(axis=1) / table.min(axis=1)).max())
    assert ratio == pytest.approx(epsilon, abs=1e-10)
    assert mechanism.log_ratio_max() <= epsilon
    signs = 2.0 * all_rows(d) - 1
    assert np.allclose(table.T @ signs / mechanism.marginal, signs, atol=1e-10)


@pytest.mark.exact
@pytest.mark.parametrize("d", [1, 2, 7, 8, 100, 1001, 4000])
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 8.0, 30.0])
def test_the_implemented_ratio_in_integers(d, epsilon):
    """Coin over coin times corners over corners, as a fraction: at most e^eps, and nearly."""
    mechanism = PrivUnitInf(d, epsilon)
    inside = sum(math.comb(d, k) for k in range(mechanism.places, d + 1))
    heads = mechanism.coin.threshold
    ratio = Fraction(heads * (2**d - inside), (WORD_VALUES - heads) * inside)
    assert max(ratio, 1 / ratio) <= exp_lower(epsilon)
    assert mechanism.log_ratio_max() <= epsilon
    if d > 7 or epsilon < 30:  # a coin of 64 bits cannot carry 30 nats alone
        assert epsilon - 1e-8 < math.log(ratio) <= mechanism.log_ratio_max()
    assert mechanism.exactness == "exact"


@pytest.mark.exact
@pytest.mark.parametrize(
    ("d", "epsilon", "places", "cap", "coin", "scale"),
    [(128, 8, 80, 5.8187, 0.8986, 4.1372), (8192, 16, 4303, 12.8953, 0.9571, 19.8465)],
)
def test_known_optima(d, epsilon, places, cap, coin, scale):
    mechanism = PrivUnitInf(d, epsilon)
    assert mechanism.places == places
    assert mechanism.caps.log_odds_outside(places) == pytest.approx(cap, abs=5.1e-5)
    assert mechanism.coin.probability == pytest.approx(coin, abs=5.1e-5)
    assert 1 / mechanism.marginal == pytest.approx(scale, abs=5.1e-5)


@pytest.mark.exact
@pytest.mark.parametrize(("d", "epsilon"), [(8, 0.1), (9, 2.0), (100, 0.1), (101, 5.0)])
def test_no_other_cap_does_better(d, epsilon):
    caps = CornerCaps.of(d)
    best = PrivUnitInf(d, epsilon)
    for t in range(1, d + 1):
        odds = caps.log_odds_outside(t)
        if abs(odds) <= epsilon:
            other = caps.marginal(t, 1 / (1 + math.exp(odds - epsilon)))
            assert other <= best.marginal * (1 + 1e-9)
    assert best.places == best_places(d, epsilon)


@pytest.mark.exact
def test_the_false_corollary_is_not_used():
    """Equation (20) lets kappa = 0 cost nothing; it costs 0.16 at d = 100 and 0.79 at d = 4."""
    assert true_cost(100, 0) == pytest.approx(0.16, abs=0.005)
    assert true_cost(4, 0) == pytest.approx(0.79, abs=0.005)
    violated = sum(
        true_cost(d, kappa) > false_corollary(d, kappa)
        for d in range(4, 101, 2)
        for kappa in range(0, int(math.sqrt(1.5 * d)), 2)
    )
    assert violated > 50
    for d in range(4, 101, 2):  # with kappa + 1 in its place the statement holds
        for kappa in range(0, int(math.sqrt(1.5 * d)) - 1, 2):
            assert true_cost(d, kappa) <= false_corollary(d, kappa + 1)
    for d in (4, 100):  # the mechanism pays the true cost
        mechanism = PrivUnitInf(d, 1.0)
        cap = mechanism.caps.log_odds_outside(mechanism.places)
        assert mechanism.coin.log_odds == pytest.approx(1.0 - cap, abs=1e-9)


@pytest.mark.exact
def test_the_cap_is_never_empty_however_large_the_budget():
    """Lemma 4.2 of the paper allows kappa = d, a cap without corners: t = d + 1."""
    for d in (1, 2, 3, 8):
        mechanism = PrivUnitInf(d, 30.0)
        assert mechanism.places <= d
        assert math.isfinite(mechanism.mean_squared_error(1))


@pytest.mark.exact
def test_the_papers_second_condition_holds():
    """Equation (21), with kappa + 2, is sufficient; its least slack is about 0.04."""

    def condition(d, kappa):
        x = (kappa + 2) / d
        entropy = (1 + x) * math.log1p(x) + ((1 - x) * math.log1p(-x) if x < 1 else 0.0)
        return 0.5 * math.log(2) + 0.5 * math.log(d * (1 - x**2)) + d / 2 * entropy

    slack = [
        condition(d, kappa) - true_cost(d, kappa)
        for d in range(4, 201, 2)
        for kappa in range(0, d - 2, 2)
    ]
    assert 0.03 < min(slack) < 0.05


@pytest.mark.exact
def test_corners_cost_what_directions_cost():
    for d in (128, 1024):
        for epsilon in (1, 2, 4, 8, 16):
            corner = PrivUnitInf(d, epsilon).mean_squared_error(1, np.ones(d)) / d
            direction = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
            assert 0.935 < corner / direction <= 1.0065 if epsilon > 4 else 1.0065


@pytest.mark.exact
@pytest.mark.parametrize(("epsilon", "constant"), [(4, 1.32), (8, 1.03), (16, 0.88)])
def test_scale_constants(epsilon, constant):
    scale = 1 / PrivUnitInf(10**5, epsilon).marginal
    assert scale / math.sqrt(10**5 / epsilon) == pytest.approx(constant, abs=0.006)
    assert 1 / PrivUnitInf(10**5, 0.3).marginal * 0.3 / math.sqrt(10**5) < 2.52


@pytest.mark.statistical
@pytest.mark.parametrize(("d", "epsilon"), [(1, 1.0), (8, 0.1), (9, 2.0), (70, 8.0)])
def test_bias_and_variance(d, epsilon):
    """100,000 reports of one vector: mean within 4 s.e. per coordinate."""
    n = 100_000
    mechanism = PrivUnitInf(d, epsilon, radius=2.0)
    vector = np.linspace(-2.0, 1.5, d)
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(d))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    assert (np.abs(estimate.value - vector) < 4 * np.sqrt(mechanism.variance(n, vector))).all()
    assert np.allclose(estimate.standard_error**2, mechanism.variance(n, vector), rtol=0.01)
    assert (mechanism.variance(n) >= mechanism.variance(n, vector)).all()


@pytest.mark.statistical
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 6.0])
def test_sampler_follows_the_channel(epsilon):
    """200,000 reports in four dimensions: every corner within 4 s.e. Wide caps and narrow ones."""
    n, mechanism = 200_000, PrivUnitInf(4, epsilon)
    assert mechanism._is_wide == (epsilon < 4)
    corner = 5  # sides 1, 0, 1, 0
    vector = np.array([1.0, -1.0, 1.0, -1.0])
    reports = mechanism.randomize(np.broadcast_to(vector, (n, 4)), np.random.default_rng(1))
    law = mechanism.channel()[:, corner]
    share = np.bincount(reports[:, 0], minlength=16) / n
    assert (np.abs(share - law) < 4 * np.sqrt(law / n)).all()


@pytest.mark.exact
def test_wire_format_and_malformed_reports():
    mechanism = PrivUnitInf(11, 2.0)
    reports = mechanism.randomize(np.zeros((7, 11)))
    data = mechanism.pack(reports)
    assert len(data) == -(-7 * 11 // 8)
    assert np.array_equal(mechanism.unpack(data, 7), reports)
    for bad in (reports[:, :1], reports.astype(int), np.full((1, 2), 255, dtype=np.uint8)):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)


@pytest.mark.exact
@pytest.mark.parametrize("d", [10, 11])
def test_dominating_pair_and_config(d):
    mechanism = PrivUnitInf(d, 0.2)
    pair = mechanism.dominating_pair()
    assert pair.ratios[0][0] / pair.ratios[0][1] == pytest.approx(math.exp(0.2), rel=1e-9)
    assert mechanism.witness_pairs()[0].is_witness
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    with pytest.raises(ValueError, match="local_epsilon must be at most"):
        PrivUnitInf(10**4, 700.0).dominating_pair()
    with pytest.raises(NotImplementedError):
        PrivUnitInf(13, 1.0).channel()
