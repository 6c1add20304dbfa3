"""Algorithm 4.3.1 as a learning process: types, exact steps, the law of a step, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.accounting import local_event
from beam_ldp.federated.samplers import FixedSizeSampling, SelfSampling
from beam_ldp.randomizers.mean import PrivUnit
from tff_adapters import cldp_sgd, privacy_events
from tff_adapters.cldp_sgd import build_cldp_sgd
from tff_adapters.models import model_fn_for

SHAPE, CLASSES = (3,), 2
RNG = np.random.default_rng(7)
X = RNG.normal(size=(12, *SHAPE)).astype(np.float32)
Y = RNG.integers(0, CLASSES, 12).astype(np.int32)
ORDERS = {"l1": 1, "l2": 2, "linf": np.inf}


def clients(points=1, count=12):
    return [
        tf.data.Dataset.from_tensor_slices((X[i : i + points], Y[i : i + points])).batch(2)
        for i in range(0, count, points)
    ]


def process_of(**how):
    usual = dict(norm="l2", clip=0.5, local_epsilon=2.0, learning_rate=1.0)
    return build_cldp_sgd(model_fn_for("logistic", SHAPE, CLASSES), **{**usual, **how})


def weights_of(process, state):
    trainable = process.get_model_weights(state).trainable
    return np.concatenate([np.ravel(w) for w in trainable]).astype(float)


def clipped_gradients(norm, clip, clip_by=None):
    """By hand: softmax regression at zero weights has gradient (p - onehot) x, with p = 1/2."""
    residual = 0.5 - np.eye(CLASSES)[Y]
    rows = [np.concatenate([np.outer(x, r).ravel(), r]) for x, r in zip(X, residual)]
    if norm == "linf" and clip_by != "norm":
        return np.clip(rows, -clip, clip)
    return np.array([g / max(1, np.linalg.norm(g, ORDERS[norm]) / clip) for g in rows])


@pytest.mark.exact
@pytest.mark.parametrize("norm, clip_by", [*((n, None) for n in ORDERS), ("linf", "norm")])
def test_each_examples_gradient_is_clipped_before_the_mean(norm, clip_by):
    """Without noise: the step is the mean of gradients that were clipped one by one."""
    plain = tff.aggregators.UnweightedMeanFactory()
    process = process_of(
        norm=norm, clip_by=clip_by, aggregator=plain, learning_rate=cldp_sgd.inverse_sqrt(2.0)
    )
    state = process.initialize()
    output = process.next(state, clients())
    expected = -2.0 * clipped_gradients(norm, 0.5, clip_by).mean(axis=0)
    np.testing.assert_allclose(weights_of(process, output.state), expected, atol=1e-6)
    unclipped = -2.0 * clipped_gradients(norm, 1e9).mean(axis=0)
    assert np.abs(expected - unclipped).max() > 0.01
    second = process.next(output.state, clients())
    assert second.metrics["finalizer"]["learning_rate"] == pytest.approx(2 / math.sqrt(2))


@pytest.mark.statistical
def test_gradients_that_are_not_finite_are_seen_as_failing():
    """Of 60 points, at a standard error of 0.1: false alarms below 1e-9. Any other aggregator gets
    zeros, so that one bad point does not end a baseline."""
    broken = [
        tf.data.Dataset.from_tensor_slices((X[:1] * np.inf, Y[:1])).batch(1) for _ in range(60)
    ]
    process = process_of(local_epsilon=8.0)
    measured = process.next(process.initialize(), broken).metrics["aggregator"]["mean"]
    error = math.sqrt(PrivUnit(8, 8.0, radius=0.5).mean_squared_error(60) / 8) / 0.5
    assert measured["failing"] == pytest.approx(1.0, abs=6.2 * error) and error < 0.1
    plain = process_of(aggregator=tff.aggregators.UnweightedMeanFactory())
    assert not weights_of(plain, plain.next(plain.initialize(), broken).state).any()


@pytest.mark.exact
def test_weights_are_projected_on_the_ball():
    plain = tff.aggregators.UnweightedMeanFactory()
    process = process_of(aggregator=plain, learning_rate=100.0, radius=0.25)
    state = process.next(process.initialize(), clients()).state
    assert np.linalg.norm(weights_of(process, state)) == pytest.approx(0.25, rel=1e-6)


@pytest.mark.exact
def test_nothing_but_the_update_leaves_a_client():
    process = process_of()
    output = process.next(process.initialize(), clients())
    assert output.metrics["client_work"] == ()
    assert set(output.metrics) == {"distributor", "client_work", "aggregator", "finalizer"}
    text = tff.framework.serialize_computation(process.next).SerializeToString()
    assert b"PyFunc" not in text and b"NonDeterministicInts" in text


@pytest.mark.statistical
@pytest.mark.parametrize("points, sampled", [(1, 1), (3, 2)])
def test_a_step_is_unbiased_with_the_mechanisms_error(points, sampled):
    """Through the C++ runtime, of the mean of 600 reports: each entry within 6.5 standard errors.

    False alarms below 1e-9 (the draw of points adds at most a variance of clip^2 / reports).
    """
    process = process_of(local_epsilon=4.0, points_per_client=points, points_sampled=sampled)
    copies = 600 // (12 // points) // sampled
    state = process.next(process.initialize(), clients(points) * copies).state
    step = -weights_of(process, state)
    gradients = clipped_gradients("l2", 0.5)
    mechanism = PrivUnit(8, 4.0, radius=0.5)
    variance = mechanism.variance(600, gradients) + 0.25 / 600
    assert (np.abs(step - gradients.mean(axis=0)) < 6.5 * np.sqrt(variance) + 1e-6).all()
    assert np.abs(step - gradients.mean(axis=0)).max() > 1e-4  # it is no plain mean


@pytest.mark.exact
def test_the_state_holds_the_events_of_the_sampling_that_was_used():
    sampler = FixedSizeSampling(4, 2)
    process = process_of(points_per_client=3, points_sampled=2, sampler=sampler)
    state = process.initialize()
    for _ in range(2):
        state = process.next(state, clients(3)[:2]).state
    ((event, rounds),) = privacy_events(state)
    local = local_event(PrivUnit(8, 2.0, radius=0.5))
    assert rounds == 2 and event == sampler.event(local, 3, 2)
    with pytest.raises(Exception, match="(?i)sampling|clients|declared"):
        process.next(state, clients(3)[:3])


@pytest.mark.exact
def test_a_round_to_which_nobody_came_changes_nothing_and_is_charged():
    sampler = SelfSampling(12, 1)
    process = process_of(sampler=sampler)
    state = process.next(process.initialize(), []).state
    assert (weights_of(process, state) == 0).all()
    assert sum(rounds for _, rounds in privacy_events(state)) == 1


@pytest.mark.exact
def test_a_client_with_fewer_points_than_declared_fails_the_round():
    process = process_of(points_per_client=4, points_sampled=1)
    with pytest.raises(Exception, match="points_per_client"):
        process.next(process.initialize(), clients(3))


@pytest.mark.exact
@pytest.mark.parametrize(
    "how, message",
    [
        (dict(norm="l3"), "norm must be one of"),
        (dict(clip=0.0), "radius must be a finite number > 0"),
        (dict(local_epsilon=math.nan), "local_epsilon must be"),
        (dict(points_per_client=2, points_sampled=3), "points_sampled must lie in"),
        (dict(radius=-1.0), "radius must be a finite number > 0 or None"),
        (dict(learning_rate=0.0), "rate must be a finite number > 0"),
    ],
)
def test_refused_settings(how, message):
    with pytest.raises(ValueError, match=message):
        process_of(**how)
