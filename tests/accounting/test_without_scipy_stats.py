"""What replaces `scipy.stats` and `scipy.optimize` in pricing gives the same, bit by bit."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, signal, stats

from beam_ldp.accounting.divergences.loss_grid import _SHORT, _faded
from beam_ldp.accounting.divergences.moments import (
    _small_binomial_log_pmf,
    binomial_cdf,
    binomial_isf,
    binomial_ppf,
    binomial_sf,
    log_sum,
)
from beam_ldp.randomizers import special
from beam_ldp.randomizers.special import brentq, lowest

pytestmark = pytest.mark.exact

TRIALS = (1, 2, 7, 100, 12_345, 10**6, 10**9, 10**12)
CHANCES = (1e-12, 1e-6, 0.003, 0.3, 0.5, 0.97, 1 - 1e-9)


@pytest.mark.parametrize("trials", TRIALS)
@pytest.mark.parametrize("chance", CHANCES)
def test_the_binomial_is_that_of_scipy(trials: int, chance: float) -> None:
    mean, deviation = trials * chance, math.sqrt(trials * chance * (1 - chance)) + 1
    near = np.floor(mean + deviation * np.linspace(-40, 40, 81))
    counts = np.unique(np.concatenate([near, [-2, -1, 0, trials - 1, trials, trials + 1]]))
    law = stats.binom(trials, chance)
    assert np.array_equal(_small_binomial_log_pmf(counts, trials, chance), law.logpmf(counts))
    with np.errstate(under="ignore"):
        below = law.cdf(counts)
    assert np.allclose(binomial_cdf(counts, trials, chance), below, rtol=2e-8, atol=1e-300)
    likely = below > 1e-12
    assert np.allclose(binomial_cdf(counts, trials, chance)[likely], below[likely], rtol=1e-13)
    assert np.array_equal(binomial_sf(counts, trials, chance), law.sf(counts))
    for tail in (1e-12, 1e-6, 0.01, 0.4):
        off = 1e-4 * deviation if trials > 10**9 else 0  # as SciPy 1.12 is
        assert abs(binomial_isf(tail, trials, chance) - law.isf(tail)) <= off
        assert abs(binomial_ppf(tail, trials, chance) - law.ppf(tail)) <= off


def test_the_trials_of_the_binomial_may_differ() -> None:
    trials = np.array([3, 5, 5, 9])
    counts = np.array([1, 5, 6, 0])
    expected = stats.binom.logpmf(counts, trials, 0.5)
    assert np.array_equal(_small_binomial_log_pmf(counts, trials, 0.5), expected)


def test_roots_are_those_of_scipy() -> None:
    rng, compared = np.random.default_rng(7), 0
    for number in range(600):
        a, b, c = rng.normal(size=3) * 10.0 ** rng.integers(-3, 4, size=3)
        kinds = (
            lambda x, a=a, b=b: math.tanh(a * (x - b)),
            lambda x, b=b, c=c: math.exp(min(c * x, 50.0)) - math.exp(min(c * b, 50.0)),
            lambda x, b=b: (x - b) ** 3,
            lambda x, b=b: -1.0 if x < b else 1.0,
            lambda x, b=b: math.log(max(x - b, 1e-300)),
        )
        function = kinds[number % len(kinds)]
        low, high = b - 10.0 ** rng.uniform(-6, 3), b + 10.0 ** rng.uniform(-6, 3)
        if function(low) * function(high) > 0:
            continue
        for how in ({}, {"xtol": 1e-4, "rtol": 1e-9}, {"xtol": 1e-12, "rtol": 1e-12}):
            calls: list[float] = []

            def traced(x: float, calls: list[float] = calls, function: Any = function) -> float:
                calls.append(x)
                return float(function(x))

            found, steps = [], []
            for method in (optimize.brentq, brentq):
                try:
                    found.append(method(traced, low, high, **how))
                except RuntimeError:
                    found.append(None)
                steps.append(list(calls))
                calls.clear()
            assert found[0] == found[1] and steps[0] == steps[1]  # step for step
            compared += found[0] is not None
    assert compared > 500


def test_a_root_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="different signs"):
        brentq(lambda x: 1.0 + x * x, -1.0, 1.0)


def test_minima_are_those_of_scipy() -> None:
    rng = np.random.default_rng(8)
    for number in range(600):
        a, b, c = rng.normal(size=3) * 10.0 ** rng.integers(-3, 4, size=3)
        kinds = (
            lambda x, a=a: (x - a) ** 2,
            lambda x, a=a: abs(x - a),
            lambda x, a=a, b=b: math.cosh(min(abs(b * (x - a)), 300.0)),
            lambda x, c=c: math.sin(c * x) + 0.1 * x * x,
            lambda x: x,
            lambda x: 0.0,
        )
        function = kinds[number % len(kinds)]
        low, high = a - 10.0 ** rng.uniform(-6, 3), a + 10.0 ** rng.uniform(-6, 3)
        xtol, steps = 10.0 ** rng.uniform(-12, -2), []

        def traced(x: float, steps: list[float] = steps, function: Any = function) -> float:
            steps.append(float(x))
            return float(function(x))

        options = {"xatol": xtol}
        theirs = optimize.minimize_scalar(
            traced, bounds=(low, high), method="bounded", options=options
        )
        many = len(steps)
        assert lowest(traced, low, high, xtol) == theirs.x
        assert steps[:many] == steps[many:]  # step for step


def test_sums_of_exponentials_are_those_of_scipy() -> None:
    rng = np.random.default_rng(9)
    for number in range(300):
        terms = rng.normal(size=rng.integers(1, 200)) * 10.0 ** rng.uniform(-3, 3)
        terms[rng.integers(len(terms))] = (terms.max(), -math.inf)[number % 2]
        assert log_sum(terms) == pytest.approx(float(special.logsumexp(terms)), rel=1e-15)
    assert log_sum([-math.inf, -math.inf]) == -math.inf and log_sum([1.0, math.inf]) == math.inf


def test_special_functions_are_scipys_own() -> None:
    from scipy.special import ndtri

    assert special.ndtri is ndtri
    with pytest.raises(AttributeError, match="no_such_function"):
        _ = special.no_such_function


@pytest.mark.parametrize("size", [1, 2, 1000, _SHORT, _SHORT + 1])
@pytest.mark.parametrize("step", [1e-6, 1e-3, 2.0])
def test_fading_sums_are_those_of_scipy(size: int, step: float) -> None:
    decay = math.exp(-step)
    mass = np.random.default_rng(12).random(size) ** 9 * 1e-9
    assert np.array_equal(_faded(mass, decay), signal.lfilter([1.0], [1.0, -decay], mass))


def test_a_quantile_far_out_is_where_the_tail_is() -> None:
    for trials, chance, tail in ((10**6, 1e-6, 1e-24), (10**12, 0.3, 1e-20), (50, 0.5, 1e-30)):
        at = binomial_isf(tail, trials, chance)
        law = stats.binom(trials, chance)
        assert law.sf(at) <= tail < law.sf(at - 1)
