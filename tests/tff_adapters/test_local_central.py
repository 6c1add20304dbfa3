"""Local and central privacy at once: what is summed, noise, types, both ledgers, a whole run."""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.accounting.reconstruction import DiffuseTarget
from beam_ldp.accounting.two_ledgers import central_round_event
from beam_ldp.federated.record import events_so_far
from beam_ldp.randomizers.mean import LInfMean, PrivUnit, SeparatedMean
from tff_adapters.local_central import (
    LocalCentralFactory,
    build_local_central,
    projected_share,
)

VALUE_TYPE = tff.to_type(OrderedDict(a=tff.TensorType(np.float32, (2, 3)), b=np.float64))
VALUE = OrderedDict(a=np.full((2, 3), 0.1, np.float32), b=np.float64(-0.3))
ENTRIES = 7
QUIET = {"num_clients": 100, "sampling_rate": 0.5, "projection": 1e6, "noise_multiplier": 1e-15}


def entries(value):
    return np.concatenate([np.ravel(part).astype(float) for part in tf.nest.flatten(value)])


def factory(mechanism=None, **options):
    settings = {**QUIET, **options}
    return LocalCentralFactory(mechanism or SeparatedMean(ENTRIES, 30.0), **settings)


@pytest.mark.exact
def test_types_of_the_process():
    process = factory().create(VALUE_TYPE)
    state = process.initialize.type_signature.result
    assert "rounds=int64" in str(state) and state.placement is tff.SERVER
    signature = process.next.type_signature
    assert signature.parameter[1] == tff.FederatedType(VALUE_TYPE, tff.CLIENTS)
    assert signature.result.result == tff.FederatedType(VALUE_TYPE, tff.SERVER)
    measured = tff.FederatedType(OrderedDict(reports=np.int32, impossible=np.int32), tff.SERVER)
    assert signature.result.measurements == measured


@pytest.mark.statistical
def test_mean_is_unbiased_where_nothing_is_projected():
    """Divided by q N = 50 whoever comes; within 6 standard errors (false alarms below 1e-8)."""
    mechanism = SeparatedMean(ENTRIES, 30.0)
    process = factory(mechanism).create(VALUE_TYPE)
    people = 120
    output = process.next(process.initialize(), [VALUE] * people)
    error = np.sqrt(mechanism.variance(people, entries(VALUE)))
    found = entries(output.result) * 50 / people
    assert (np.abs(found - entries(VALUE)) < 6 * error + 1e-6).all()
    assert output.measurements["reports"] == people
    assert [p.dtype for p in tf.nest.flatten(output.result)] == [np.float32, np.float64]


@pytest.mark.exact
def test_every_message_is_projected_by_itself():
    """Ten messages longer than rho = 0.01: each adds 0.01 at most; one alone exactly that."""
    process = factory(projection=0.01).create(VALUE_TYPE)
    alone = process.next(process.initialize(), [VALUE]).result
    assert np.linalg.norm(entries(alone)) * 50 == pytest.approx(0.01, rel=1e-5)
    ten = process.next(process.initialize(), [VALUE] * 10).result
    assert 0.0 < np.linalg.norm(entries(ten)) * 50 <= 0.1 * (1 + 1e-5)
    wild = OrderedDict(a=np.full((2, 3), np.nan, np.float32), b=np.float64(1e300))
    bad = process.next(process.initialize(), [wild]).result
    assert np.linalg.norm(entries(bad)) * 50 <= 0.01 * (1 + 1e-5)


@pytest.mark.statistical
def test_noise_of_the_server():
    """z rho/(q N) on every entry, also of a round that nobody joined. 4,000 entries: within 6 %."""
    made = factory(
        PrivUnit(4000, 8.0), num_clients=40, sampling_rate=0.5, projection=3.0, noise_multiplier=2.0
    )
    process = made.create(tff.TensorType(np.float32, (4000,)))
    first, second = (process.next(process.initialize(), []).result for _ in range(2))
    for noise in (first, second):
        assert noise.std() == pytest.approx(2.0 * 3.0 / 20, rel=0.06)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.08


@pytest.mark.exact
def test_events_in_the_state():
    made = factory(num_clients=40, sampling_rate=0.25, noise_multiplier=2.0)
    process = made.create(VALUE_TYPE)
    state = process.initialize()
    assert events_so_far(state.privacy) == []
    for rounds in (1, 2):
        state = process.next(state, [VALUE]).state
        assert events_so_far(state.privacy) == [(central_round_event(0.25, 2.0), rounds)]


@pytest.mark.statistical
@pytest.mark.parametrize("length", [0.0, 0.3, 1.0])
def test_chance_of_projection(length):
    """Against 4,000 messages of the NumPy mechanism: within 5 standard errors."""
    mechanism = SeparatedMean(ENTRIES, 4.0, magnitude_epsilon=1.5, magnitude_cells=3)
    vector = np.zeros((4000, ENTRIES))
    vector[:, 1] = length
    reports = mechanism.randomize(vector, rng=np.random.default_rng(1))
    lengths = np.linalg.norm(mechanism.fixed_point.decode(reports), axis=1)
    for projection in (0.5, 1.0, 2.0, 4.0):
        share = np.mean(lengths > projection)
        assert abs(share - projected_share(mechanism, length, projection)) < 5 * 0.5 / 63
    assert projected_share(mechanism, length, 0.0) == pytest.approx(1.0)
    assert projected_share(mechanism, length, 1e9) == 0.0


def tiny_model():
    keras = tf.keras.Sequential(
        [tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(2,))]
    )
    return tff.learning.models.from_keras_model(
        keras,
        loss=tf.keras.losses.MeanSquaredError(),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    )


def tiny_system(**options):
    settings = {
        "num_clients": 20, "clients_per_round": 12, "radius": 1.0, "local_epsilon": 40.0,
        "projection": 1.0, "noise_multiplier": 2.0, "max_participations": 4,
        "client_optimizer": tff.learning.optimizers.build_sgdm(0.1), "typical_length": 0.5,
    }  # fmt: skip
    return build_local_central(tiny_model, **{**settings, **options})


def tiny_clients(count=20):
    x = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)
    y = x @ np.array([[2.0], [-1.0]], np.float32)
    return [tf.data.Dataset.from_tensor_slices((x, y)).batch(2)] * count


@pytest.mark.e2e
def test_a_training_keeps_both_ledgers_and_prints_them():
    system = tiny_system(noise_multiplier=0.5)
    shown = []
    state = system.train(
        tiny_clients(), rounds=8, delta=1e-5, targets=[DiffuseTarget(3, 0.9)], show=shown.append,
        generator=np.random.default_rng(3),
    )  # fmt: skip
    ledgers = system.ledgers
    assert ledgers.rounds == 8 and ledgers.participations.max() == 4, "the limit was reached"
    assert ledgers.local_epsilon == 160.0
    assert events_so_far(state.aggregator.privacy) == [(ledgers.round_event, 8)]
    (text,) = shown
    assert "local epsilon 160 (4 of 40 each at most" in text and "Models of 8 rounds" in text
    assert "Reconstruction: 4 messages of one person, local epsilon 160 in all" in text
    weights = system.process.get_model_weights(state).trainable[0].ravel()
    # Towards (2, -1): eight steps of a noisy mean, noise 0.04 per coordinate and step.
    assert weights[0] > 0.5 and weights[1] < -0.2


@pytest.mark.e2e
def test_training_stops_on_the_round_that_would_exceed():
    system = tiny_system()
    ledgers = tiny_system().ledgers
    prices = []
    for _ in range(3):
        ledgers.charge([])
        prices.append(float(ledgers.central_epsilon(1e-5)))
    target = (prices[1] + prices[2]) / 2
    system.train(
        tiny_clients(), rounds=8, delta=1e-5, target_epsilon=target, show=lambda text: None
    )
    assert system.ledgers.rounds == 2
    spent = float(system.ledgers.central_epsilon(1e-5))
    assert spent == pytest.approx(prices[1]) and spent <= target
    with pytest.raises(ValueError, match="data must hold 20 datasets, got 3"):
        system.train(tiny_clients(3), rounds=1, delta=1e-5)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_clients": 0}, "num_clients must be"),
        ({"sampling_rate": 1.5}, r"sampling_rate must lie in \(0, 1\]"),
        ({"projection": math.inf}, "projection must be a finite number > 0"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be a finite number > 0"),
    ],
)
def test_refused_settings(options, message):
    with pytest.raises(ValueError, match=message):
        factory(**options)


@pytest.mark.exact
def test_refused_values_and_mechanisms():
    with pytest.raises(ValueError, match="values have 7 entries, but .* dimension is 9"):
        factory(PrivUnit(9, 1.0)).create(VALUE_TYPE)
    with pytest.raises(ValueError, match="mechanism must be one of the l2 ball, got LInfMean"):
        factory(LInfMean(ENTRIES, 1.0)).create(VALUE_TYPE)
    with pytest.raises(TypeError, match="value_type must be a structure of floats"):
        factory().create(tff.TensorType(np.int32, (7,)))
    with pytest.raises(ValueError, match='strategy must be "product"'):
        projected_share(SeparatedMean(5, 2.0, strategy="lift"), 0.5, 1.0)
