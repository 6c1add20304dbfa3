"""Looks at the counts before everybody has reported: the level by enumeration of all paths."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions.experiments.looks import (
    binomial_law,
    exit_bounds,
    exit_probability,
    hypergeometric_law,
    increments,
    inflation,
    spent,
)

pytestmark = pytest.mark.exact


def alarms_of(laws, bounds):
    """Probability that some sum exceeds its bound: every path on its own."""
    found = 0.0
    for path in itertools.product(*(range(law.masses.size) for law in laws)):
        counts = np.cumsum([law.first + i for law, i in zip(laws, path)])
        if np.any(counts > bounds):
            found += np.prod([law.masses[i] for law, i in zip(laws, path)])
    return found


@pytest.mark.parametrize("spending", ["pocock", "obrien-fleming"])
@pytest.mark.parametrize("sizes", [(12, 12, 12), (5, 20, 9)])
def test_false_alarms_of_all_looks_stay_within_what_is_spent(spending, sizes):
    laws = [binomial_law(size, 0.3) for size in sizes]
    fractions = np.cumsum(sizes) / sum(sizes)
    allowed = [spent(spending, fraction, 0.1) for fraction in fractions]
    bounds = exit_bounds(laws, allowed)
    for look in range(1, 4):
        assert alarms_of(laws[:look], bounds[:look]) <= allowed[look - 1]
    assert exit_probability(laws, bounds) == pytest.approx(alarms_of(laws, bounds), abs=1e-14)
    for look in range(3):  # one less at any look, and what is spent until then is exceeded
        lower = [*bounds[:look], bounds[look] - 1]
        assert alarms_of(laws[: look + 1], lower) > allowed[look]


def test_two_arms_keep_the_level_at_every_rate_even_if_it_drifts():
    """Bounds from the ones of each increment; all tables of two looks, each with its own rate."""
    control = variant = 7
    alpha, allowed = 0.1, [0.06, 0.1]
    laws = {m: hypergeometric_law(m, variant, control) for m in range(control + variant + 1)}
    significant = {}
    for pair in itertools.product(laws, laws):
        bounds = exit_bounds([laws[m] for m in pair], allowed)
        significant[pair] = bounds
    counts = np.arange(control + 1)
    for rates in itertools.product((0.05, 0.3, 0.5, 0.9), repeat=2):
        masses = [stats.binom.pmf(counts, control, rate) for rate in rates]
        alarms = 0.0
        for a, b in itertools.product(counts, counts):
            for c, d in itertools.product(counts, counts):
                first, second = significant[a + b, c + d]
                if b > first or b + d > second:
                    alarms += masses[0][a] * masses[0][b] * masses[1][c] * masses[1][d]
        assert alarms <= alpha


def test_one_look_is_the_exact_test():
    for alpha in (0.01, 0.05):
        bound = exit_bounds([binomial_law(200, 0.4)], [alpha])
        assert bound == [int(stats.binom.isf(alpha, 200, 0.4))]
        bound = exit_bounds([hypergeometric_law(80, 100, 100)], [alpha])
        assert bound == [int(stats.hypergeom.isf(alpha, 200, 80, 100))]


def test_laws_are_complete():
    for law in (binomial_law(10**6, 0.2), hypergeometric_law(10**5, 10**6, 10**5)):
        assert law.masses.sum() == pytest.approx(1, abs=1e-9)
    # a million people: the sum of increments has the law of all of them
    whole, half = binomial_law(2 * 10**6, 0.2), binomial_law(10**6, 0.2)
    assert exit_probability([half, half], [10**9, 400_900]) == pytest.approx(
        exit_probability([whole], [400_900]), abs=1e-9
    )


def test_looking_as_often_as_one_likes_without_bounds_is_no_test():
    """What peeking does: five looks, each at 5 %, raise 13 % false alarms."""
    sizes = increments(200_000, 5)
    naive = [int(stats.binom.isf(0.05, n, 0.3)) for n in np.cumsum(sizes)]
    assert exit_probability([binomial_law(n, 0.3) for n in sizes], naive) == pytest.approx(
        0.129, abs=5e-4
    )


def test_spending_ends_at_alpha():
    for spending in ("pocock", "obrien-fleming"):
        amounts = [spent(spending, fraction, 0.05) for fraction in np.linspace(0.05, 1, 20)]
        assert amounts == sorted(amounts) and amounts[-1] == 0.05
        assert spent(spending, 1.3, 0.05) == 0.05
    with pytest.raises(ValueError, match="spending must be one of pocock, obrien-fleming"):
        spent("all", 0.5, 0.05)


def test_what_looks_cost():
    """Published (Jennison and Turnbull; spending functions): about 1.02 and 1.19 for five looks."""
    assert inflation(5, "obrien-fleming", 0.025, 0.9) == pytest.approx(1.023, abs=0.004)
    assert inflation(5, "pocock", 0.025, 0.9) == pytest.approx(1.191, abs=0.006)
    # What docs/experiments.md says, at alpha 0.05 and power 0.8.
    assert inflation(5, "obrien-fleming", 0.05, 0.8) == pytest.approx(1.034, abs=0.004)
    assert inflation(5, "pocock", 0.05, 0.8) == pytest.approx(1.219, abs=0.006)


def test_nothing_is_left_where_everything_was_exceeded():
    laws = [binomial_law(5, 0.5), binomial_law(5, 0.5)]
    assert exit_probability(laws, [-1, -1]) == pytest.approx(1)
