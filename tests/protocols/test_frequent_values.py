"""Frequent values of a list over time: the error bound by exact laws, and what is told."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.protocols.frequent_values import FrequentValues
from beam_ldp.randomizers.frequency import (
    BinaryHadamard,
    KRandomizedResponse,
    ProjectiveGeometryResponse,
    RecursiveHadamardResponse,
    SubsetSelection,
)


@pytest.mark.exact
@pytest.mark.parametrize(
    "oracle",
    [
        KRandomizedResponse(20, 1.0),
        SubsetSelection(50, 2.0),
        BinaryHadamard(30, 1.0),
        ProjectiveGeometryResponse(100, 3.0),
    ],
    ids=str,
)
def test_no_value_is_off_by_more_than_the_error(oracle) -> None:
    """The exact law of one value's support, two binomials, at frequencies from none to all."""
    n, times, miss = 400, 3, 0.05
    rules = FrequentValues(oracle, n, times, miss)
    p, q = oracle.support_probabilities
    allowed = miss / (oracle.domain_size * times)
    for held in (0, 1, 50, 200, 400):
        law = np.convolve(
            stats.binom.pmf(np.arange(held + 1), held, p),
            stats.binom.pmf(np.arange(n - held + 1), n - held, q),
        )
        estimates = (np.arange(n + 1) / n - q) / (p - q)
        outside = law[np.abs(estimates - held / n) > rules.error].sum()
        assert outside <= allowed, held
    assert rules.threshold == 2 * rules.error and rules.surely_told == 3 * rules.error


@pytest.mark.exact
def test_the_texts_error_of_one_bit() -> None:
    """c sqrt(2 ln(2 k / beta) / n) with c = (E + 1)/(E - 1); the row of ones says nothing, and is
    left out here, so ours is 0.1 % less."""
    rules = FrequentValues(BinaryHadamard(1000, 1.0), 10**6, miss=0.01)
    c = (math.e + 1) / (math.e - 1)
    printed = c * math.sqrt(2 * math.log(2 * 1000 / 0.01) / 1e6)
    assert rules.error < printed
    assert rules.error == pytest.approx(printed, rel=1.2e-3)


@pytest.mark.statistical
def test_frequent_values_are_told_each_time_and_rare_ones_never() -> None:
    """Forty releases in ten years of four quarters, whose promise of 99.9 % holds for all: a false
    alarm, with the fixed seed, in less than 1 %."""
    oracle, n = SubsetSelection(100, 3.0), 20_000
    rules, rng = FrequentValues(oracle, n, times=4, miss=1e-3), np.random.default_rng(3)
    sure = math.ceil(rules.surely_told * n)
    rare = math.floor(rules.error * n) - 1
    held = np.repeat([7, 3, 50], [sure + 500, sure, rare])
    values = np.append(held, np.arange(n - len(held)) % 40 + 55)
    for _ in range(10):
        for _time in range(rules.times):
            estimate = oracle.estimate(oracle.accumulate(oracle.randomize(values, rng)), n)
            told = set(rules.told(estimate).tolist())
            assert {7, 3} <= told and 50 not in told
    assert (rules.event_level, rules.user_level) == (3.0, 12.0)


@pytest.mark.exact
def test_arguments_are_checked() -> None:
    oracle = KRandomizedResponse(4, 1.0)
    for wrong in ({"num_users": 0}, {"times": 0}, {"miss": 1.0}):
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} must"):
            FrequentValues(oracle, **{"num_users": 10, **wrong})
    rules = FrequentValues(oracle, 1000)
    with pytest.raises(ValueError, match="at least 1,000 people, got 999"):
        rules.told(oracle.estimate(np.array([999, 0, 0, 0]), 999))
    with pytest.raises(NotImplementedError):
        FrequentValues(RecursiveHadamardResponse(9, 1.0), 10)
