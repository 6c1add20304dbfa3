"""Discrete Gaussian shares: the law of a draw, of a sum, and of a rounded Gaussian."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import integrate

from beam_ldp.randomizers import discrete_noise as module
from beam_ldp.randomizers.discrete_noise import (
    DRAW_DISTANCE,
    DiscreteGaussian,
    rounding_log_ratio,
    sum_log_ratio,
)

pytestmark = pytest.mark.exact


def law(deviation: float, reach: int) -> np.ndarray:
    """Probabilities of -reach .. reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * deviation**2))
    return weights / weights.sum()


def no_more(rows, positions):
    raise AssertionError("no further words are needed")


@pytest.mark.parametrize("deviation", [0.5, 2.0, 37.58])
def test_the_table_is_the_law_to_a_hundred_bits(deviation):
    noise = DiscreteGaussian(deviation)
    with mp.workdps(60):
        far = 3 * noise.reach
        weights = [mp.exp(-(mpf(x) ** 2) / (2 * mpf(deviation) ** 2)) for x in range(far + 1)]
        total = 2 * mp.fsum(weights) - 1
        edges = [0, *noise.thresholds()]
        drawn = [mpf(high - low) / mpf(2) ** 128 for low, high in zip(edges, edges[1:])]
        inside = range(-noise.reach, noise.reach + 1)
        apart = mp.fsum(abs(p - weights[abs(x)] / total) for x, p in zip(inside, drawn))
        apart += 2 * mp.fsum(weights[noise.reach + 1 :]) / total
        assert edges[-1] == 1 << 128 and len(drawn) == 2 * noise.reach + 1
        assert 0 < apart / 2 <= DRAW_DISTANCE


def test_a_draw_compares_both_words_with_the_table():
    """On both sides of every threshold, in 128 bits; and one word is enough elsewhere."""
    noise = DiscreteGaussian(1.5)
    for index, threshold in enumerate(noise.thresholds()[:-1]):
        for value, expected in ((threshold - 1, index), (threshold, index + 1)):
            asked = []

            def extra(rows, positions, value=value, asked=asked):
                asked.append((rows.tolist(), positions.tolist()))
                return np.full(len(rows), value & (1 << 64) - 1, dtype=np.uint64)

            words = np.array([[1 << 63, value >> 64]], dtype=np.uint64)
            drawn = noise.draw(words, extra)[0]
            assert drawn[1] == expected - noise.reach
            assert asked in ([], [([0], [3])])
    free = np.array([[1 << 62, 3 << 62]], dtype=np.uint64)
    assert noise.draw(free, no_more).tolist() == [[-1, 1]]


@pytest.mark.statistical
def test_draws_scatter_as_they_should():
    """Mean and variance at 5 sigma: one false alarm in a million seeds."""
    rng, count = np.random.default_rng(3), 200_000
    words = rng.integers(0, 2**64, (count, 1), dtype=np.uint64, endpoint=False)
    drawn = DiscreteGaussian(7.5).draw(words, no_more)
    assert abs(drawn.mean()) < 5 * 7.5 / math.sqrt(count)
    assert abs(drawn.var() / 7.5**2 - 1) < 5 * math.sqrt(2 / count)


@pytest.mark.parametrize("deviation, count", [(0.5, 2), (0.5, 5), (0.7, 3), (0.9, 2), (0.8, 4)])
def test_a_sum_of_shares_is_nearly_one_discrete_gaussian(deviation, count):
    """The largest log ratio of both laws is under the bound; of two shares not far under it.

    The ripples of many shares are added up as if all of them stood at their worst at once.
    """
    reach = 60
    share = found = law(deviation, reach)
    for _ in range(count - 1):
        found = np.convolve(found, share)
    ideal = law(deviation * math.sqrt(count), count * reach)
    inside = ideal > 1e-30  # far enough for every phase, before denormal numbers
    apart = np.abs(np.log(found[inside] / ideal[inside])).max()
    bound = sum_log_ratio(deviation, count)
    assert 1e-9 < apart <= bound * (1 + 1e-9)
    assert apart > bound / 4 or count > 2


def test_many_shares_are_summed_up_without_listing_them():
    assert sum_log_ratio(0.6, 1) == 0.0
    many = math.fsum(
        2 * math.atanh(module._ripple(0.36 * k / (k + 1))) for k in range(1, 1000)
    )  # fmt: skip
    assert many <= sum_log_ratio(0.6, 1000) <= 1.1 * many
    assert sum_log_ratio(2.0, 10**6) < 1e-10


def test_a_rounded_gaussian_is_nearly_a_discrete_one(monkeypatch):
    """With a small rounding variance, so that the ripple shows, by quadrature."""
    monkeypatch.setattr(module, "ROUNDED_VARIANCE", 0.2)
    spread, rounded = 0.05, 0.2
    integers = np.arange(-30, 31)

    def kernel(x, z):
        weights = np.exp(-((integers - x) ** 2) / (2 * rounded))
        chosen = math.exp(-((z - x) ** 2) / (2 * rounded)) / weights.sum()
        return math.exp(-(x**2) / (2 * spread)) / math.sqrt(2 * math.pi * spread) * chosen

    ideal = law(math.sqrt(spread + rounded), 30)
    ratios = [
        integrate.quad(kernel, -2, 2, args=(z,), epsabs=1e-14, limit=200, points=[0])[0]
        for z in range(-3, 4)
    ] / ideal[27:34]
    apart, bound = np.abs(np.log(ratios)).max(), rounding_log_ratio()
    assert bound / 3 < apart <= bound
    monkeypatch.undo()
    assert rounding_log_ratio() < 1e-24


def test_deviations_out_of_range_are_refused():
    for deviation in (0.4, math.nan, 1e6):
        with pytest.raises(ValueError, match=r"^deviation must lie in \[0.5, 65536\]"):
            DiscreteGaussian(deviation)
