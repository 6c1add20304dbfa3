"""What training is made of: clipping, schedules, samplers, networks. No federated runtime."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import tensorflow as tf
from scipy import stats

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.federated.samplers import (
    FixedSizeSampling,
    SelfSampling,
    full_participation,
    sampler_for,
)
from beam_ldp.planning import convergence
from beam_ldp.randomizers.mean.base import clip_to_ball
from beam_ldp.training import facts as train_facts
from tff_adapters import SamplingMismatchError, cldp_sgd, models
from tff_adapters.cldp_sgd import draw_without_replacement
from tff_adapters.vectors import clipped, project_to_l2_ball

ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}

# Clipping ---------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("norm", ORDERS)
def test_rows_are_scaled_one_by_one(norm):
    rows = np.random.default_rng(1).normal(size=(40, 7)) * np.geomspace(1e-3, 1e3, 40)[:, None]
    lengths = np.linalg.norm(rows, ORDERS[norm], axis=1)
    expected = rows / np.maximum(1, lengths / 0.5)[:, None]
    found = clipped(tf.constant(rows), norm, 0.5, clip_by="norm").numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    inside = lengths < 0.5
    assert 0 < inside.sum() < 40
    np.testing.assert_array_equal(found[inside], rows[inside])
    assert (np.linalg.norm(found, ORDERS[norm], axis=1) <= 0.5 * (1 + 1e-12)).all()


@pytest.mark.exact
@pytest.mark.parametrize("norm", ORDERS)
def test_rows_that_are_no_numbers_count_as_zero_and_large_ones_do_not_overflow(norm):
    rows = np.array([[np.nan, 1.0], [np.inf, 0.0], [1e308, 1e308], [0.0, 0.0], [1e-320, 0.0]])
    found = clipped(tf.constant(rows), norm, 1.0).numpy()
    assert (found[[0, 1, 3]] == 0).all()
    assert np.linalg.norm(found[2], ORDERS[norm]) == pytest.approx(1.0)
    assert np.isfinite(found).all()


@pytest.mark.exact
def test_in_the_maximum_norm_rows_go_to_the_nearest_point_as_mechanisms_move_them():
    rows = np.random.default_rng(1).normal(size=(40, 7)) * np.geomspace(1e-3, 1e3, 40)[:, None]
    found = clipped(tf.constant(rows), "linf", 0.5).numpy()
    np.testing.assert_array_equal(found, clip_to_ball(rows, "linf", 0.5, "clip"))
    assert (found != clipped(tf.constant(rows), "linf", 0.5, clip_by="norm").numpy()).any()
    for norm, clip_by in (("l2", "coordinate"), ("linf", "entry")):
        with pytest.raises(ValueError, match="clip_by"):
            clipped(tf.constant(rows), norm, 0.5, clip_by=clip_by)


@pytest.mark.exact
@pytest.mark.parametrize("norm, radius", [("l3", 1.0), ("l2", 0.0), ("l2", math.inf)])
def test_balls_that_are_none(norm, radius):
    with pytest.raises(ValueError, match="must be"):
        clipped(tf.zeros((1, 2)), norm, radius)


@pytest.mark.exact
def test_projection_is_onto_one_ball_of_all_weights():
    weights = [tf.constant([[3.0, 0.0]]), tf.constant([4.0], tf.float32)]
    moved = project_to_l2_ball(weights, 1.0)
    np.testing.assert_allclose(np.concatenate([m.numpy().ravel() for m in moved]), [0.6, 0, 0.8])
    same = project_to_l2_ball(weights, 6.0)
    np.testing.assert_allclose(same[0], weights[0])
    assert (project_to_l2_ball([tf.zeros(2)], 1.0)[0].numpy() == 0).all()


# Schedules --------------------------------------------------------------------------------------


@pytest.mark.exact
def test_pieces_change_after_so_many_rounds():
    step = cldp_sgd.piecewise([(30, 12.0), (30, 4.0)], 3.5)
    found = [float(step(tf.constant(float(t)))) for t in (1, 30, 31, 60, 61, 6000)]
    assert found == [12.0, 12.0, 4.0, 4.0, 3.5, 3.5]
    assert float(cldp_sgd.piecewise([], 0.5)(tf.constant(7.0))) == 0.5
    assert float(cldp_sgd.as_schedule(0.25)(tf.constant(7.0))) == 0.25


@pytest.mark.exact
def test_the_convex_schedule_and_its_constants():
    """Spec 2.5: G^2 has the factor d^(1 - 2/p) that the thesis leaves out."""
    step = cldp_sgd.convex(2.0, 4.0)
    assert float(step(tf.constant(25.0))) == pytest.approx(0.1)
    assert convergence.second_moment("l2", 100, 0.1, 5.0, 50) == pytest.approx(0.11)
    assert convergence.second_moment("linf", 100, 0.1, 5.0, 50) == pytest.approx(1.1)
    assert convergence.gap_bound(2.0, 4.0, 100) == pytest.approx(1.6 * (2 + math.log(100)))


@pytest.mark.exact
@pytest.mark.parametrize(
    "make",
    [
        lambda: cldp_sgd.constant(0.0),
        lambda: cldp_sgd.inverse_sqrt(math.nan),
        lambda: cldp_sgd.convex(1.0, -1.0),
        lambda: cldp_sgd.piecewise([(0, 1.0)], 1.0),
        lambda: cldp_sgd.piecewise([(3, math.inf)], 1.0),
    ],
)
def test_schedules_that_are_none(make):
    with pytest.raises(ValueError, match="must"):
        make()


# Samplers ---------------------------------------------------------------------------------------


def chi_square_p(counts, expected):
    counts, expected = np.asarray(counts, float), np.asarray(expected, float)
    return stats.chi2.sf(((counts - expected) ** 2 / expected).sum(), len(counts) - 1)


@pytest.mark.statistical
def test_every_set_of_clients_is_equally_likely():
    """False alarms: 1e-6, at a fixed seed none."""
    sampler, rounds = FixedSizeSampling(6, 3), 6000
    generator = np.random.default_rng(3)
    drawn = Counter(frozenset(sampler.sample(generator).clients) for _ in range(rounds))
    counts = [drawn[frozenset(one)] for one in combinations(range(6), 3)]
    assert sum(counts) == rounds
    assert chi_square_p(counts, np.full(20, rounds / 20)) > 1e-6


@pytest.mark.statistical
def test_coins_are_apart_and_of_the_declared_probability():
    """Sizes are binomial and pairs independent. False alarms: 2e-6, at a fixed seed none."""
    sampler, rounds = SelfSampling(5, 2), 8000
    generator = np.random.default_rng(4)
    came = np.zeros((rounds, 5), int)
    for r in range(rounds):
        came[r, list(sampler.sample(generator).clients)] = 1
    sizes = np.bincount(came.sum(axis=1), minlength=6)
    assert chi_square_p(sizes, rounds * stats.binom.pmf(np.arange(6), 5, 0.4)) > 1e-6
    codes = np.bincount(came @ (1 << np.arange(5)), minlength=32)
    ones = np.array([bin(c).count("1") for c in range(32)])
    assert chi_square_p(codes, rounds * 0.4**ones * 0.6 ** (5 - ones)) > 1e-6


@pytest.mark.statistical
def test_points_of_a_client_are_drawn_without_replacement():
    """False alarms: 1e-6, at a fixed seed none."""
    generator = tf.random.Generator.from_seed(5)
    draw = tf.function(lambda: draw_without_replacement(generator, 5, 2))
    drawn = Counter(tuple(draw().numpy()) for _ in range(4000))
    assert all(a != b for a, b in drawn) and len(drawn) == 20
    assert chi_square_p(list(drawn.values()), np.full(20, 200.0)) > 1e-6


@pytest.mark.exact
def test_two_draws_from_the_operating_systems_generator_differ():
    sampler = FixedSizeSampling(10**6, 50)  # they agree with probability 1e-235
    assert sampler.sample().clients != sampler.sample().clients
    assert full_participation(3).sample().clients in set(
        (a, b, 3 - a - b) for a in range(3) for b in range(3) if a != b
    )


@pytest.mark.exact
def test_samplers_say_what_they_do():
    local = LocalRandomizerDpEvent(2.0)
    assert FixedSizeSampling(100, 10).event(local) == SubsampledShuffledDpEvent(local, 100, 10)
    assert FixedSizeSampling(100, 10).event(local, 4, 2) == SubsampledShuffledDpEvent(
        local, 100, 10, points_per_client=4, points_sampled=2
    )
    assert full_participation(100).event(local) == ShuffledDpEvent(local, 100)
    assert full_participation(100).event(local, 4, 2) == SubsampledShuffledDpEvent(
        local, 100, 100, points_per_client=4, points_sampled=2
    )
    assert full_participation(100).event(local, 2, 2) == ShuffledDpEvent(local, 200)
    assert SelfSampling(100, 10).event(local, 3) == SubsampledShuffledDpEvent(
        local, 100, 10, points_per_client=3, sampling="self"
    )


@pytest.mark.exact
def test_coins_cost_what_a_fixed_number_does_where_the_crowd_is_large():
    """Spec section 3: the cost of the visible random number is about 1e-7 at n = 60,000."""
    local = LocalRandomizerDpEvent(1.5)
    events = (SelfSampling(60_000, 10_000).event(local), FixedSizeSampling(60_000, 10_000).event(
        local))  # fmt: skip
    coins, fixed = (ShuffleAccountant().compose(e, 1200).get_epsilon(1e-5) for e in events)
    assert fixed == pytest.approx(0.550, abs=2e-3)
    assert fixed <= coins * (1 + 1e-9) and coins == pytest.approx(fixed, rel=1e-3)


@pytest.mark.exact
@pytest.mark.parametrize(
    "sampler, clients",
    [
        (FixedSizeSampling(10, 3), (0, 1)),
        (FixedSizeSampling(10, 3), (0, 1, 2, 3)),
        (FixedSizeSampling(10, 3), (0, 1, 1)),
        (FixedSizeSampling(10, 3), (0, 1, 10)),
        (full_participation(3), (0, 1)),
        (SelfSampling(10_000, 100), tuple(range(400))),
        (SelfSampling(10_000, 5_000), ()),
    ],
)
def test_rounds_that_are_not_as_declared(sampler, clients):
    with pytest.raises(SamplingMismatchError, match="as declared"):
        sampler.check(clients)


@pytest.mark.exact
def test_rounds_that_are():
    for sampler in (FixedSizeSampling(10, 3), full_participation(4), SelfSampling(50, 5)):
        for _ in range(20):
            sampler.check(sampler.sample().clients)
    SelfSampling(10, 1).check(())  # nobody came


@pytest.mark.exact
def test_samplers_that_are_none():
    for make in (
        lambda: FixedSizeSampling(0, 1),
        lambda: FixedSizeSampling(5, 6),
        lambda: SelfSampling(5, 0),
        lambda: sampler_for("poisson", 5, 1),
    ):
        with pytest.raises(ValueError, match="must"):
            make()
    assert sampler_for("full", 5, 5) == FixedSizeSampling(5, 5)
    assert sampler_for("self", 5, 2) == SelfSampling(5, 2)


# Networks ---------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("name", models.PARAMETERS)
def test_parameter_counts_as_stated_and_as_planned(name):
    found = models.count_parameters(name, (28, 28, 1), 10)
    assert found == models.PARAMETERS[name] == train_facts.count_parameters(name, (28, 28, 1), 10)
    for shape, classes in (((32, 20, 3), 7), ((17, 16, 1), 2)):
        assert models.count_parameters(name, shape, classes) == train_facts.count_parameters(
            name, shape, classes
        )
    assert 13_170 not in models.PARAMETERS.values()  # what the papers print


@pytest.mark.exact
def test_initial_weights_repeat_by_seed_and_bad_models_are_refused():
    one, two, three = (models.build_keras_model("mlp", (4,), 2, seed) for seed in (1, 1, 2))
    flat = [np.concatenate([w.numpy().ravel() for w in m.weights]) for m in (one, two, three)]
    assert (flat[0] == flat[1]).all() and (flat[0] != flat[2]).any()
    with pytest.raises(ValueError, match="model must be one of"):
        models.build_keras_model("resnet", (4,), 2)
    with pytest.raises(ValueError, match="16 x 16"):
        models.build_keras_model("cnn-16", (8, 8, 1), 10)


@pytest.mark.exact
def test_evaluation_by_hand():
    model = models.build_keras_model("logistic", (2,), 2)
    model.set_weights([np.array([[2.0, 0.0], [0.0, 1.0]], np.float32), np.zeros(2, np.float32)])
    x, y = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], np.float32), np.array([0, 1, 1])
    found = models.evaluate(model, x, y, batch_size=2)
    losses = [math.log1p(math.exp(-2)), math.log1p(math.exp(-1)), math.log1p(math.exp(2))]
    assert found["accuracy"] == pytest.approx(2 / 3)
    assert found["loss"] == pytest.approx(sum(losses) / 3, rel=1e-6)
