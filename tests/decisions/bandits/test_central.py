"""Sums of a trusted server: the ratio of their laws, moments beside the continuous ones, grids."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from beam_ldp.accounting import event_epsilon
from beam_ldp.accounting.composition.central import largest_loss
from beam_ldp.accounting.event_json import event_from_json, event_to_json
from beam_ldp.accounting.events import local_epsilon_of
from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.noise import CentralSums, RewardNoise
from beam_ldp.decisions.bandits.simulating import missed


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.7])
@pytest.mark.parametrize("cells", [1, 3, 1 << 20])
def test_one_person_moves_the_log_of_the_law_by_epsilon_exactly(epsilon, cells):
    # log P(z) = const - rate |z|: rational numbers, so that the largest ratio is known exactly.
    sums = CentralSums(epsilon, cells)
    moved = [sums.rate * (abs(z - move) - abs(z))
             for move in (-sums.largest_move, 1, sums.largest_move)
             for z in (-7 * cells, -cells, 0, cells, 2 * cells, 9 * cells)]  # fmt: skip
    assert max(map(abs, moved)) == Fraction(epsilon)


def test_released_vectors_of_all_neighbours_differ_by_epsilon_at_most():
    # Two people of two actions with rewards on a grid of one cell; each is replaced by each other
    # outcome. The law of both sums at every output of a box.
    sums, outputs = CentralSums(1.5, cells=1), np.arange(-9, 10)
    rate, worst = float(sums.rate), 0.0

    def log_law(rewards):
        distance = np.abs(outputs[:, None] - rewards[0]) + np.abs(outputs[None, :] - rewards[1])
        return -rate * distance

    for rewards in itertools.product((-1, 0, 1), repeat=2):
        for place, other in itertools.product((0, 1), (-1, 0, 1)):
            replaced = [*rewards]
            replaced[place] = other
            worst = max(worst, np.abs(log_law(rewards) - log_law(replaced)).max())
    assert worst == pytest.approx(1.5, rel=1e-12)


def test_rewards_without_a_bound_cost_more_than_any_epsilon():
    # F15: rewards with sub-Gaussian noise are not in [-1, 1]. Unclipped, one of size 5 costs 5
    # epsilon, and of size s, s epsilon; clipped, epsilon.
    sums = CentralSums(1.0, cells=4)
    for size in (1, 5, 50):
        unclipped = sums.rate * 2 * size * sums.cells
        low, high = sums.integers([-float(size), float(size)]).tolist()
        assert (unclipped, sums.rate * (high - low)) == (size, 1)


@pytest.mark.parametrize("cells", [1, 4, 64])
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 6.0])
def test_moments_are_below_those_of_the_laplace_noise_that_widths_count(cells, epsilon):
    rate = float(CentralSums(epsilon, cells).rate)
    values = np.arange(-math.ceil(400 / rate), math.ceil(400 / rate) + 1)
    for share in (0.02, 0.5, 0.9, -0.6):
        exact = np.exp(-rate * np.abs(values) + share * rate * values).sum()
        exact /= np.exp(-rate * np.abs(values)).sum()
        closed = 1 / (1 - (math.sinh(share * rate / 2) / math.sinh(rate / 2)) ** 2)
        assert exact == pytest.approx(closed, rel=1e-9)
        assert closed <= 1 / (1 - share**2)


def test_rewards_are_rounded_to_a_neighbour_without_bias():
    sums = CentralSums(1.0, cells=4)
    assert sums.integers([-1.0, -0.25, 0.0, 0.5, 1.0, 3.0]).tolist() == [-4, -1, 0, 2, 4, 4]
    drawn = sums.integers(np.full(20_000, 0.3))  # 1.2 cells
    assert set(drawn.tolist()) == {1, 2}
    assert drawn.mean() == pytest.approx(1.2, abs=5 * math.sqrt(0.16 / 20_000))


def test_released_sums_are_on_the_grid_and_new_at_every_call():
    sums = CentralSums(0.5)
    first, second = (sums.release_rewards([1.0, -1.0, 1.0], [0, 0, 1], 2) for _ in range(2))
    assert first.tolist() != second.tolist()
    assert ((first * sums.cells) % 1 == 0).all()
    exact = CentralSums(500.0).release_rewards([1.0, -1.0, 1.0], [0, 0, 1], 2)
    assert exact == pytest.approx([0.0, 1.0], abs=0.2)


def test_a_whole_central_run_needs_no_generator_and_keeps_its_widths():
    bandit = LinearBandit(actions=np.eye(2), horizon=3000, model="central", epsilon=1.0)
    theta, rng = np.array([0.8, -0.4]), np.random.default_rng(0)

    def sums(batch):
        means = (bandit.actions @ theta)[batch.played]
        slots = np.repeat([0, 1], batch.counts)
        rewards = np.where(rng.random(len(slots)) < (1 + means[slots]) / 2, 1.0, -1.0)
        return batch.noise.sums(batch.noise.reports(rewards), slots, 2)

    run = bandit.run(sums)
    assert run.winner == 0
    assert not missed(bandit, theta, run)


def test_noise_of_sums_is_that_of_the_release():
    # The variance of a release without people: of the law, and close to that of a simulation.
    noise = RewardNoise("sum", 2.0)
    drawn = np.concatenate([noise.sums([], np.zeros(0, int), 50) for _ in range(40)])
    assert drawn.var() == pytest.approx(2 * noise.laplace_scale**2, rel=5 * math.sqrt(5 / 2000))


def test_refusals():
    with pytest.raises(ValueError, match="sums must be integers, one an action"):
        CentralSums(1.0).release([1.5])
    with pytest.raises(ValueError, match=r"slots must lie in \[0, 2\)"):
        CentralSums(1.0).release_rewards([1.0], [-1], 2)
    with pytest.raises(ValueError, match="rewards must be finite numbers"):
        CentralSums(1.0).integers([math.nan])
    with pytest.raises(ValueError, match="epsilon must be a finite number > 0"):
        CentralSums(-1.0)
    with pytest.raises(ValueError, match="cells must be an integer"):
        CentralSums(1.0, cells=0)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.7])
def test_a_release_is_priced_at_epsilon_exactly(epsilon):
    event = CentralSums(epsilon).event
    assert largest_loss(event) == float(event_epsilon(event, 0.0)) == epsilon
    assert event_from_json(event_to_json(event)) == event
    assert local_epsilon_of(event) == CentralSums(epsilon).local_epsilon == math.inf


def test_mechanisms_go_by_all_of_their_parameters():
    digests = {CentralSums(e, c).config_digest() for e in (1.0, 2.0) for c in (1, 8)}
    assert len(digests) == 4 and CentralSums(1.0, 8).config_digest() in digests
    assert CentralSums(1.0, 8).to_config() == {
        "mechanism": "CentralSums", "version": 1, "epsilon": 1.0, "cells": 8,
    }  # fmt: skip


@pytest.mark.parametrize(("epsilon", "cells"), [(1.0, 1), (0.3, 5), (4.0, 64)])
def test_standard_errors_count_the_noise_by_its_law_and_the_most_that_rewards_vary(epsilon, cells):
    sums, count = CentralSums(epsilon, cells), 7
    rate = float(sums.rate)
    noise = np.arange(-math.ceil(60 / rate), math.ceil(60 / rate) + 1)
    law = np.exp(-rate * np.abs(noise))
    variance = law @ (noise / cells) ** 2 / law.sum()
    assert sums.standard_error(count) ** 2 == pytest.approx((count + variance) / count**2, 1e-9)


@pytest.mark.parametrize("count", [2, 100, 5000])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0])
@pytest.mark.parametrize("level", [0.8, 0.95, 0.999])
def test_intervals_have_their_level_by_the_convolution_of_both_laws(count, epsilon, level):
    half, law = count * CentralSums(epsilon).half_width(count, level), stats.laplace(0, 2 / epsilon)
    deviation = math.sqrt(count)
    points = np.linspace(-40 * deviation, 40 * deviation, 400_001)
    beyond = law.sf(half - points) + law.cdf(-half - points)
    miss = np.trapezoid(stats.norm(0, deviation).pdf(points) * beyond, points)
    assert miss == pytest.approx(1 - level, rel=1e-6)


def test_a_normal_interval_would_cover_less_than_it_says():
    sums = CentralSums(0.01)  # of ten people hardly anything but noise
    assert sums.half_width(10, 0.95) > 1.07 * 1.96 * sums.standard_error(10)
