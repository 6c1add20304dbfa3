"""PrivUnit of a projection: known errors, the length of projections, sums by row."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.projected_priv_unit import ProjectedPrivUnit
from beam_ldp.randomizers.mean.projections import HaarProjection
from beam_ldp.randomizers.randomness import UserRandomness
from tests.identities import identity
from tests.randomizers.mean.golden_errors import golden

KINDS = ["shared", "own", "haar"]


def noiseless_mean(mechanism, vector, users, seed=0):
    """The mean over seeds of what the collector reads of exact projections of one unit vector."""
    rng = np.random.default_rng(seed)
    seeds = rng.integers(0, 2**32, users, dtype=np.uint32)
    same = np.broadcast_to(vector, (users, vector.size))
    coins = np.zeros(users, dtype=np.uint64)
    chosen = mechanism.projector.project(same, np.arange(users), coins, math.inf, seeds)
    chosen /= np.linalg.norm(chosen, axis=1, keepdims=True)
    total = np.zeros(mechanism.statistic_shape, dtype=np.int64)
    mechanism.projector.add_up(np.rint(chosen * 2**30).astype(np.int64), seeds, total)
    return mechanism.projector.read(total) / 2**30 / users * mechanism.expansion


@pytest.mark.exact
@pytest.mark.parametrize("projected", [64, 256, 1024])
def test_error_has_the_known_figures(projected):
    for d, epsilon, figure, half_digit in golden(f"projected {projected}"):
        best = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
        for kind in KINDS:
            mechanism = ProjectedPrivUnit(
                d, epsilon, inputs="sphere", projected=projected, projection=kind
            )
            assert mechanism.mean_squared_error(1) / best == pytest.approx(figure, abs=half_digit)


@pytest.mark.exact
def test_projected_length_is_not_ignored():
    """The published estimator leaves the factor out: too short by (1 - k/d)/(4k)."""
    for d, k in ((2048, 16), (8192, 1024)):
        mechanism = ProjectedPrivUnit(d, 4.0, projected=k)
        short = 1 - math.sqrt(d / k) / mechanism.expansion
        assert short == pytest.approx((1 - k / d) / (4 * k), rel=0.05)
        assert mechanism.bias_bound > short


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("kind", "d", "k", "length"),
    [("shared", 64, 16, 1.3), ("shared", 100, 64, 2.0), ("shared", 30, 32, 0.5),
     ("own", 64, 16, 1.3), ("own", 30, 32, 0.5), ("haar", 64, 16, 1.3), ("haar", 30, 30, 2.0)],
)  # fmt: skip
def test_bias_and_error(kind, d, k, length):
    """20,000 reports of one vector: mean within the bias bound and noise, error within 6 %."""
    n = 20_000
    mechanism = ProjectedPrivUnit(d, 4.0, radius=2.0, projected=k, projection=kind)
    direction = np.random.default_rng(d).standard_normal(d)
    vector = length * direction / np.linalg.norm(direction)
    reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(1))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, vector)
    off = np.linalg.norm(estimate.value - vector)
    assert off < mechanism.bias_bound + 1.5 * math.sqrt(exact.sum())
    low, high = estimate.confidence_interval(0.9999)
    assert ((low < vector) & (vector < high)).all()
    singles = np.array([
        mechanism.estimate(mechanism.accumulate(reports[i : i + 1]), 1).value for i in range(2000)
    ])  # fmt: skip
    error = ((singles - vector) ** 2).sum(axis=1).mean()
    assert error == pytest.approx(mechanism.mean_squared_error(1, vector), rel=0.06)


@pytest.mark.statistical
def test_bias_averages_out_over_signs():
    """64 choices of signs: what is left of the mean's error is within 5 s.e. plus 2 %."""
    d, k, n = 32, 8, 4_000
    vector = np.linspace(-1, 1.5, d)
    vector /= np.linalg.norm(vector)
    total, variance = np.zeros(d), np.zeros(d)
    for seed in range(64):
        mechanism = ProjectedPrivUnit(d, 6.0, projected=k, sign_seed=seed, inputs="sphere")
        reports = mechanism.randomize(np.broadcast_to(vector, (n, d)), np.random.default_rng(seed))
        total += mechanism.estimate(mechanism.accumulate(reports), n).value
        variance += mechanism.variance(n, vector)
    spread = mechanism.bias_bound / np.sqrt(d) * np.sqrt(64)  # of the bias from choice to choice
    assert (np.abs(total / 64 - vector) < 5 * (np.sqrt(variance) + spread) / 64 + 0.02).all()


@pytest.mark.statistical
@pytest.mark.parametrize("k", [4, 16])
def test_own_signs_are_off_by_what_theory_says_and_random_subspaces_not_at_all(k):
    """100,000 noiseless projections in 32 dimensions: the mean within 5 s.e. (variance d/k).

    The first axis is the vector whose transformed coordinates are all equal: its projection has
    one length, and "own" is too long by (1 - k/d)/(4k) to first order in 1/k.
    """
    d, n = 32, 100_000
    noise = 5 * math.sqrt(d / k / n)
    for vector in (np.eye(d)[0], np.arange(1.0, d + 1) / np.linalg.norm(np.arange(1, d + 1))):
        own = ProjectedPrivUnit(d, 4.0, projected=k, projection="own")
        off = np.linalg.norm(noiseless_mean(own, vector, n) - vector)
        assert off < own.bias_bound + noise
        assert own.bias_bound < ProjectedPrivUnit(d, 4.0, projected=k).bias_bound / 4
    first = noiseless_mean(own, np.eye(d)[0], n)[0]
    assert first - 1 == pytest.approx((1 - k / d) / (4 * k), rel=0.2, abs=noise / 5)
    haar = ProjectedPrivUnit(d, 4.0, projected=k, projection="haar")
    assert haar.bias_bound == 0.0
    off = noiseless_mean(haar, vector, n // 10) - vector
    assert np.abs(off).max() < 5 * math.sqrt(1 / k / (n // 10))


@pytest.mark.exact
def test_the_largest_bias_of_own_signs():
    """|u^3 - (3/4)|u|_4^4 u| over unit vectors: 0.358, where one entry has 0.8 of the length."""
    bound = ProjectedPrivUnit(64, 1.0, projected=2, projection="own").projector.bias

    def off(u):
        u = u / np.linalg.norm(u, axis=1, keepdims=True)
        return np.linalg.norm(u**3 - 0.75 * (u**4).sum(axis=1, keepdims=True) * u, axis=1)

    assert off(np.random.default_rng(0).standard_normal((20_000, 12)) ** 5).max() <= bound
    worst = np.full((1, 100_001), math.sqrt(0.2 / 100_000))
    worst[0, 0] = math.sqrt(0.8)
    assert off(worst)[0] == pytest.approx(bound, rel=1e-4)


@pytest.mark.statistical
def test_subspaces_are_uniformly_random():
    """Kolmogorov-Smirnov at 1e-6: squared projected lengths are Beta(k/2, (d-k)/2), entries too.

    Bases from matrices with entries in [0, 1), as in public code, fail the same test.
    """
    d, k, n = 9, 4, 20_000
    bases = HaarProjection(d, k).bases(np.arange(n, dtype=np.uint32))
    gram = bases.transpose(0, 2, 1) @ bases
    assert np.abs(gram - np.eye(k)).max() < 1e-12
    law = stats.beta(k / 2, (d - k) / 2).cdf
    for j in (0, d - 1):
        assert stats.kstest((bases[:, j] ** 2).sum(axis=1), law).pvalue > 1e-6
    entry = stats.beta((d - 1) / 2, (d - 1) / 2, loc=-1, scale=2).cdf
    assert stats.kstest(bases[:, 2, 1], entry).pvalue > 1e-6
    positive = np.linalg.qr(np.random.default_rng(0).random((n, d, k)))[0]
    assert stats.kstest((positive @ np.eye(k)[0])[:, 2], entry).pvalue < 1e-6


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [12, 32])
def test_reports_travel_and_add_up(kind, bits):
    options = {"projected": 7, "coordinate_bits": bits, "projection": kind}
    mechanism = ProjectedPrivUnit(20, 3.0, **options)
    values, ids = np.eye(20), np.arange(20)
    reports = mechanism.randomize(values, UserRandomness(b"k" * 32, ids, identity("r")))
    again = mechanism.randomize(values[6:], UserRandomness(b"k" * 32, ids[6:], identity("r")))
    assert np.array_equal(reports[6:], again)
    data = mechanism.pack(reports)
    assert len(data) == -(-20 * mechanism.bits_per_report // 8)
    assert np.array_equal(mechanism.unpack(data, 20), reports)
    whole = mechanism.accumulate(reports)
    parts = mechanism.accumulate(reports[::3]) + mechanism.accumulate(reports[1::3])
    assert np.array_equal(whole, parts + mechanism.accumulate(reports[2::3]))
    if kind == "shared":
        assert np.count_nonzero(mechanism.accumulate(reports[:1])) <= 7
    for bad in (reports[:, :-1], reports.astype(float), np.zeros((1, 8), dtype=np.int32)):
        with pytest.raises(ValueError, match="reports must"):
            mechanism.accumulate(bad)


@pytest.mark.exact
@pytest.mark.parametrize("kind", KINDS)
def test_budget_config_and_refusals(kind):
    mechanism = ProjectedPrivUnit(50, 3.0, projected=10, sign_seed=4, projection=kind)
    assert 3.0 - 1e-10 < mechanism.log_ratio_max() <= 3.0
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    assert mechanism.dominating_pair() == mechanism.base.dominating_pair()
    assert mechanism.witness_pairs() == mechanism.base.witness_pairs()
    too_many = {"projected": 51 if kind == "haar" else 65}
    for options in ({"projected": 1}, too_many, {"sign_seed": -1}):
        with pytest.raises(ValueError, match="projected|sign_seed"):
            ProjectedPrivUnit(50, 1.0, projection=kind, **options)
    with pytest.raises(ValueError, match="projection must be"):
        ProjectedPrivUnit(50, 1.0, projection="sparse")
