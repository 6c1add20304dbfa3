"""Ledgers at the ends of what can be entered: sound, finite and within memory."""

from __future__ import annotations

import math
import warnings

import dp_accounting
import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.composition.ledger_bounds import ledger_losses
from beam_ldp.accounting.divergences.moments import binomial_bins, binomial_log_pmf, binomial_window
from beam_ldp.accounting.lower import witness_atoms
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses

pytestmark = pytest.mark.exact

BILLION = 10**9
HARDLY_EVER = SubsampledShuffledDpEvent(LocalRandomizerDpEvent(30.0), 10**12, 1)
QUIET = ShuffledDpEvent(LocalRandomizerDpEvent(1e-6), 10**12)
RARE_NOISE = dp_accounting.SampledWithoutReplacementDpEvent(
    BILLION, 1, dp_accounting.GaussianDpEvent(0.5)
)


@pytest.mark.parametrize(
    ("ledger", "most"),
    [
        ([(HARDLY_EVER, 1), (QUIET, 1)], 2.5),
        ([(LocalRandomizerDpEvent(30.0), 1), (QUIET, 5)], 30.001),
        ([(LocalRandomizerDpEvent(30.0), 1000), (QUIET, 5)], 30_001),
        ([(ShuffledDpEvent(LocalRandomizerDpEvent(1.0), 10**6), BILLION)], 1e9),
        ([(QUIET, 10**30)], 1e24),
        ([(LocalRandomizerDpEvent(30.0), 10**7), (QUIET, 10**7)], 3.1e8),
        ([(RARE_NOISE, 1)], 10.0),
        ([(dp_accounting.GaussianDpEvent(1e-8), 1)], 1e17),
        ([(dp_accounting.GaussianDpEvent(1e-3), 10)], 1e8),
        ([(dp_accounting.GaussianDpEvent(1e8), 10)], 0.01),
        ([(dp_accounting.PoissonSampledDpEvent(1e-9, dp_accounting.GaussianDpEvent(0.5)), 3)], 1.0),
        ([(dp_accounting.LaplaceDpEvent(1e-5), 3), (QUIET, 1)], 6.1e5),
    ],
)
def test_every_ledger_has_a_price_between_its_bounds(ledger, most):
    accountant = ShuffleAccountant()
    for event, count in ledger:
        accountant.compose(event, count)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bound = accountant.get_epsilon(1e-9)
    assert 0 <= bound.lower <= bound <= most
    assert bound.class_lower <= bound * (1 + 1e-9)


@settings(max_examples=25)
@given(
    budget=st.floats(-12.0, math.log10(50.0)).map(lambda x: 10.0**x),
    people=st.floats(0.0, 12.0).map(lambda x: int(10.0**x)),
    rate=st.one_of(st.just(0.0), st.floats(-12.0, 0.0)).map(lambda x: 10.0**x),
    rounds=st.floats(0.0, 12.0).map(lambda x: int(10.0**x)),
    delta=st.floats(-30.0, math.log10(0.5)).map(lambda x: 10.0**x),
    sampling=st.sampled_from(["without_replacement", "self"]),
)
# What raised: a rate times a budget below what doubles resolve, and a billion rounds.
@example(1e-9, 10**12, 1e-9, 1, 1e-6, "without_replacement")
@example(1e-12, 10**12, 1.0, 10**12, 1e-30, "self")
@example(2.0, 60_000, 1 / 30, 10**9, 1e-6, "without_replacement")
@example(21.64, 1, 1.0, 195_416_737_208, 2e-5, "without_replacement")
def test_no_edge_raises_or_undercuts(budget, people, rate, rounds, delta, sampling):
    """Every price is a number, at least what is known from below, and grows with the rounds."""
    local = LocalRandomizerDpEvent(budget)
    drawn = max(1, int(rate * people))
    event = SubsampledShuffledDpEvent(local, people, drawn, sampling=sampling)
    if rate == 1.0:
        event = ShuffledDpEvent(local, people)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        once, bound = (
            ShuffleAccountant().compose(event, count).get_epsilon(delta) for count in (1, rounds)
        )
        at_bound = ShuffleAccountant().compose(event, rounds).get_delta(float(bound))
    assert math.isfinite(bound) and once * (1 - 2e-3) <= bound
    assert bound <= rounds * event.local_epsilon * (1 + 1e-12)
    assert at_bound <= delta * (1 + 1e-6)
    assert 0.0 <= once.lower <= once and once.class_lower <= once * (1 + 1e-9)
    if rounds < 10**6:  # beyond, lower bounds take seconds: `test_every_ledger_has_a_price...`
        assert bound.class_lower <= bound * (1 + 1e-9)


def test_grids_of_rare_losses_fit_into_memory():
    """One step for a loss of 1e-6 and one of 30 would be tens of millions of places."""
    ledger = {HARDLY_EVER: 1, RARE_NOISE: 1000, QUIET: 1}
    assert len(ledger_losses(ledger).mass) <= 1 << 23
    assert ledger_losses({QUIET: 10**13}) is None


@pytest.mark.parametrize("count", [-3, 0.5, math.nan])
def test_counts_are_whole_numbers(count):
    accountant = ShuffleAccountant().compose(QUIET, 10)
    with pytest.raises((ValueError, TypeError)):
        accountant.compose(QUIET, count)
    for event, times in ((QUIET, count), (dp_accounting.SelfComposedDpEvent(QUIET, count), 1)):
        with pytest.raises(ValueError, match="count must be"):
            accountant.would_exceed(event, times, epsilon=1.0, delta=1e-6)
    assert accountant.ledger == dp_accounting.SelfComposedDpEvent(QUIET, 10)


@pytest.mark.parametrize("trials", [1, 2, 15, 40, 1000, 10**8, 10**12])
@pytest.mark.parametrize("chance", [1e-12, 0.0177, 0.5, 0.9])
def test_binomial_probabilities_keep_their_digits(trials, chance):
    deviation = math.sqrt(trials * chance * (1 - chance))
    counts = {min(trials, max(0, int(trials * chance + z * deviation))) for z in (-8, -1, 0, 3, 9)}
    with mpmath.workdps(40):
        p = mpmath.mpf(chance)
        exact = [
            float(
                mpmath.loggamma(trials + 1)
                - mpmath.loggamma(k + 1)
                - mpmath.loggamma(trials - k + 1)
                + k * mpmath.log(p)
                + (trials - k) * mpmath.log(1 - p)
            )
            for k in (0, *sorted(counts), trials)
        ]
    found = binomial_log_pmf(np.array([0, *sorted(counts), trials]), trials, chance)
    assert found == pytest.approx(exact, rel=1e-13, abs=1e-9)


@pytest.mark.parametrize("trials", [50, 10**6, 10**11])
def test_bins_hold_no_more_than_their_counts(trials):
    middles, log_mass = binomial_bins(trials, 0.3, 0.0)
    assert len(middles) <= 1 << 18
    assert 1 - 2e-3 < np.exp(log_mass).sum() <= 1 + 1e-9
    assert np.exp(log_mass) @ middles == pytest.approx(0.3 * trials, rel=2e-3)
    if trials <= 10**6:
        window = binomial_window(trials, 0.3, 0.0)
        assert np.array_equal(middles, window)
        assert np.array_equal(log_mass, binomial_log_pmf(window, trials, 0.3))
    else:
        width = middles[1] - middles[0]
        for place in (len(middles) // 2, len(middles) // 3):
            first = middles[place] - (width - 1) / 2
            mass = stats.binom.cdf(first + width - 1, trials, 0.3)
            mass -= stats.binom.cdf(first - 1, trials, 0.3)
            # The reference itself is good to about 1e-6 on the oldest SciPy.
            assert np.exp(log_mass[place]) <= mass * (1 + 1e-5)


def test_witnesses_of_the_largest_crowds_are_short():
    _, ternary = two_level_witnesses(math.e**4, 1 / 3, 0.0, (0.0,))
    for witness in (ternary, ShufflePair(1.0, ((1.5, 1.0), (0.5, 1.0)), (0.5, 0.5))):
        atoms = witness_atoms(witness, 10**12)
        assert len(atoms.first) <= 1 << 18
        for side in (atoms.first, atoms.second):
            assert 0.99 < np.exp(atoms.log_mass) @ side <= 1 + 1e-9


def test_floors_of_ledgers_whose_losses_no_double_holds():
    """Products of a mass and a ratio underflow; such outcomes are left out."""
    loud = LocalRandomizerDpEvent(21.5)
    quiet = SubsampledShuffledDpEvent(
        LocalRandomizerDpEvent(5e-6), 4, 1, points_per_client=2, sampling="self"
    )
    messages = ShuffledMessagesDpEvent(((11, 3.65), (1, 0.0019)), 8)
    many = ShuffledMessagesDpEvent(((26, 0.154), (34, 0.296), (2, 0.011)), 12_175)
    for ledger in ({quiet: 2223, loud: 27_938}, {many: 57_697, messages: 2919}):
        accountant = ShuffleAccountant()
        for event, count in ledger.items():
            accountant.compose(event, count)
        bound = accountant.get_epsilon(1e-3)
        assert 0.8 * bound < bound.class_lower <= bound
