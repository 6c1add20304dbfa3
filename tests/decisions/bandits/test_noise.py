"""Noise of rewards: exact channels and densities, and sums drawn in law beside drawn ones."""

import math

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions.bandits.noise import RewardNoise, bit_randomizer


@pytest.mark.parametrize("kind", ["sum", "laplace"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_laplace_noise_of_the_text_costs_twice_its_epsilon(kind, epsilon):
    # The density of a report (or sum) at rewards of -1 and 1, everybody else's being equal.
    for sensitivity, cost in ((2.0, epsilon), (1.0, 2 * epsilon)):
        noise = RewardNoise(kind, epsilon, sensitivity)
        law = stats.laplace(scale=noise.laplace_scale)
        outputs = np.linspace(-9, 9, 1801)
        ratio = np.abs(law.logpdf(outputs - 1) - law.logpdf(outputs + 1)).max()
        assert ratio == pytest.approx(cost, rel=1e-9)
        assert noise.log_ratio_max() == pytest.approx(ratio)


@pytest.mark.parametrize("epsilon", [0.05, 1.0, 7.9])
def test_the_channel_of_a_bit_keeps_its_epsilon_exactly(epsilon):
    noise, channel = RewardNoise("bit", epsilon), bit_randomizer(epsilon).channel()
    worst = math.log((channel.max(axis=0) / channel.min(axis=0)).max())
    assert epsilon * (1 - 1e-8) <= worst <= epsilon * (1 + 1e-15)
    assert noise.log_ratio_max() == pytest.approx(worst, rel=1e-12)
    # Unbiased at -1 and 1 by the implemented channel; rounding in between is linear.
    assert noise.bound * channel @ [-1, 1] == pytest.approx([-1, 1], rel=1e-12)


@pytest.mark.parametrize("epsilon", np.geomspace(0.01, 8, 12))
def test_a_bit_is_less_noise_than_a_laplace_report(epsilon):
    bit, laplace = RewardNoise("bit", epsilon), RewardNoise("laplace", epsilon)
    assert bit.bound == pytest.approx(1 / math.tanh(epsilon / 2))
    assert bit.bound**2 < 1 + 2 * laplace.laplace_scale**2  # of a reward of -1 or 1


@pytest.mark.parametrize("kind", ["none", "sum", "laplace", "bit"])
def test_sums_in_law_are_those_of_single_people(kind):
    noise = RewardNoise(kind, None if kind == "none" else 0.8)
    rng, means, counts = np.random.default_rng(3), np.array([0.3, -0.8]), np.array([40, 25])
    slots = np.repeat([0, 1], counts)
    one_by_one = []
    for _ in range(1500):
        rewards = np.where(rng.random(65) < (1 + means[slots]) / 2, 1.0, -1.0)
        one_by_one.append(noise.sums(noise.reports(rewards, rng), slots, 2, rng))
    people = np.array(one_by_one).round(9)  # sums of bits differ in their last digit
    law = np.array([noise.sums_in_law(counts, means, rng) for _ in range(20_000)]).round(9)
    for action in range(2):
        error = law[:, action].std() * math.sqrt(1 / 1500 + 1 / 20_000)
        assert abs(people[:, action].mean() - law[:, action].mean()) < 4 * error
        assert abs(law[:, action].mean() - means[action] * counts[action]) < 4 * error
        assert people[:, action].var() == pytest.approx(law[:, action].var(), rel=0.17)
        assert stats.ks_2samp(people[:, action], law[:, action]).pvalue > 1e-3


def test_the_variance_in_law_is_the_exact_one():
    counts, means = np.array([5000]), np.array([0.5])
    exact = {
        "none": 0.75, "sum": 0.75 + 2 * 4**2 / 5000, "laplace": 0.75 + 2 * 4**2,
        "bit": 1 / math.tanh(0.25) ** 2 - 0.25,
    }  # fmt: skip
    for kind, variance in exact.items():
        noise, rng = RewardNoise(kind, None if kind == "none" else 0.5), np.random.default_rng(1)
        drawn = [noise.sums_in_law(counts, means, rng)[0] for _ in range(8000)]
        assert np.var(drawn) == pytest.approx(5000 * variance, rel=4 * math.sqrt(2 / 8000))


def test_rewards_are_clipped_before_noise():
    rng = np.random.default_rng(0)
    assert RewardNoise("sum", 1.0).reports([-7.0, 0.25, 3.0]).tolist() == [-1, 0.25, 1]
    noise = RewardNoise("laplace", 1.0)
    same = noise.reports([1.0], np.random.default_rng(0)), noise.reports([50.0], rng)
    assert same[0] == same[1]
    bits = RewardNoise("bit", 1.0).reports(np.full(100, 99.0))
    assert set(np.round(bits, 9)) <= {round(s / math.tanh(0.5), 9) for s in (-1, 1)}


@pytest.mark.parametrize("reward", [math.nan, math.inf])
def test_rewards_that_are_no_numbers_are_refused(reward):
    with pytest.raises(ValueError, match="rewards must be finite numbers"):
        RewardNoise("bit", 1.0).reports([0.0, reward])


def test_refusals():
    with pytest.raises(ValueError, match="rng must be given: Laplace reports are simulations"):
        RewardNoise("laplace", 1.0).reports([0.0])
    with pytest.raises(ValueError, match="sensitivity of a release must be 2, got 1"):
        RewardNoise("sum", 1.0, 1.0).sums([0.0], [0], 1)
    with pytest.raises(ValueError, match="kind must be one of none, sum, laplace, bit"):
        RewardNoise("gauss", 1.0)
    with pytest.raises(ValueError, match="epsilon goes with every kind"):
        RewardNoise("none", 1.0)
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        RewardNoise("bit", 0.0)
