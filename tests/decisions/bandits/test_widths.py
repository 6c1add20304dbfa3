"""Widths: the table of the specification, the false lemma of the text, and coverage."""

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions.bandits.designs import (
    laplace_tail,
    printed_laplace_tail,
    printed_width,
    safe_width,
    tight_width,
)
from beam_ldp.decisions.bandits.noise import RewardNoise

# T = 1e6, d = 2, 10 actions, 2 played, epsilon 1; per batch: reward term, then what Laplace noise
# adds: central printed, central safe, local printed, local safe. Specification, section 8.
LOG_FAILURE = math.log(4 * 10 * 1e12)
TABLE = [
    (66.7, 1.9377, 1.9972, 10.620, 2.7662, 10.620),
    (545.1, 0.6780, 0.2445, 1.3000, 0.9595, 2.7118),
    (12727.8, 0.1403, 0.0105, 0.0557, 0.1984, 0.5612),
    (297170, 0.0290, 0.0004, 0.0024, 0.0411, 0.1161),
]


@pytest.mark.parametrize("row", TABLE)
def test_widths_of_the_specification(row):
    size, reward, central, central_safe, local, local_safe = row
    near = dict(rel=6e-3, abs=6e-5)  # the table's four digits, and its sizes' rounding
    people = 2 * math.ceil(size / 2)
    plain = printed_width("none", size, people, 2, 2, 1.0, LOG_FAILURE)
    assert plain == pytest.approx(reward, **near)
    for kind, added in (("central", central), ("report", local)):
        found = printed_width(kind, size, people, 2, 2, 1.0, LOG_FAILURE)
        assert found - plain == pytest.approx(added, **near)
    # One action of leverage 4/q whose two weights are the largest that a design allows: 4/q each.
    weights = np.array([[4 / size, 4 / size]])
    for kind, added in (("sum", central_safe), ("laplace", local_safe)):
        counts = np.full(2, size / 8)
        total = safe_width(weights, counts, RewardNoise(kind, 1.0), LOG_FAILURE)
        none = safe_width(weights, counts, RewardNoise("none"), LOG_FAILURE)
        assert none == pytest.approx(reward, **near)
        assert total - none == pytest.approx(added, **near)


def laplace_sums_exceed(num: int, total: float) -> float:
    """P(sum of `num` unit Laplace variables > total), exactly: a difference of two gammas."""
    points = np.linspace(0, 1, 20_001)[1:-1]
    shifts = stats.gamma(num).ppf(points)
    return float(stats.gamma(num).sf(total + shifts).mean())


@pytest.mark.parametrize("num", [1, 3, 10, 100])
def test_the_tail_of_laplace_sums_holds(num):
    for deviations in (1, 2, 4, 6):
        total = deviations * math.sqrt(2 * num)
        assert laplace_sums_exceed(num, total) <= laplace_tail(total, np.ones(num))


@pytest.mark.parametrize(
    ("num", "total", "true", "printed"), [(10, 15, 8.9e-4, 4.5e-5), (100, 40, 2.5e-3, 3.4e-4)]
)
def test_the_printed_tail_of_laplace_sums_is_false(num, total, true, printed):
    exact = laplace_sums_exceed(num, total)
    assert exact == pytest.approx(true, rel=0.03)
    assert printed_laplace_tail(total, np.ones(num)) == pytest.approx(printed, rel=0.02)
    assert exact > 7 * printed_laplace_tail(total, np.ones(num))


@pytest.mark.parametrize("kind", ["none", "sum", "laplace", "bit"])
def test_widths_cover_with_their_probability(kind):
    noise = RewardNoise(kind, None if kind == "none" else 0.5)
    rng, counts, means = np.random.default_rng(7), np.array([60, 35]), np.array([0.0, 0.1])
    estimator = np.array([[1 / 60, 0.0], [0.0, 1 / 35], [0.7 / 60, 0.7 / 35]])
    truth = estimator @ (counts * means)
    level = 0.05
    tight = tight_width(estimator, counts, noise, math.log(2 * 3 / level))
    safe = safe_width(estimator, counts, noise, math.log(4 * 3 / level))
    missed = np.array(
        [
            np.abs(estimator @ noise.sums_in_law(counts, means, rng) - truth).max()
            for _ in range(6000)
        ]
    )
    assert (missed > safe).mean() <= (missed > tight).mean() <= level
    assert (missed > tight / 2).any()  # not vacuous
    assert tight < safe


def test_a_wrong_noise_is_not_covered():
    # Widths made without the noise fail far more often than they say.
    noise, rng = RewardNoise("laplace", 0.5), np.random.default_rng(7)
    counts, estimator = np.array([60]), np.array([[1 / 60]])
    blind = tight_width(estimator, counts, RewardNoise("none"), math.log(2 / 0.05))
    errors = [estimator @ noise.sums_in_law(counts, np.zeros(1), rng) for _ in range(2000)]
    assert (np.abs(errors) > blind).mean() > 0.5


def test_the_tight_width_of_bits_is_hoeffdings():
    noise, counts = RewardNoise("bit", 1.0), np.array([100])
    width = tight_width(np.array([[0.01]]), counts, noise, math.log(40))
    assert width == pytest.approx(math.sqrt(2 * math.log(40) / 100) / math.tanh(0.5))
