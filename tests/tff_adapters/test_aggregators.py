"""The aggregation factory: types, values in TFF's C++ runtime, and a learning process around it.

Clients draw their own randomness, which no seed reaches: statistical tests here have thresholds
that a right implementation misses once in 1e9 runs or less.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import cache

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.randomizers.mean import L2Mean, LInfMean, PrivUnit, ScalarMean
from tff_adapters import (
    FailureReportingFactory,
    LocallyPrivateMeanFactory,
    LocallyPrivateState,
    RoundsRecord,
    kernel_for,
    no_client_metrics,
    shuffled_ldp_aggregator,
)
from tff_adapters.vectors import AdaptiveClip, flatten, unflatten

NESTED = OrderedDict(a=(np.float32, (2, 3)), b=[np.float64, (np.float16, (4,))])
VALUE = OrderedDict(
    a=np.array([[0.2, -0.1, 0.0], [0.3, 0.1, -0.2]], np.float32),
    b=[np.float64(-0.1), np.array([0.1, 0.05, -0.3, 0.2], np.float16)],
)
ENTRIES = 11
KINDS = [
    ("linf", None, 8.0),
    ("l1", None, 4.0),
    ("l2", None, 8.0),
    ("l2", "PrivUnitGaussian", 8.0),
    ("l2", "SeparatedMean", 8.0),
    ("l2", "L2Mean", 6.0),
]


def entries(value):
    return np.concatenate([np.ravel(part).astype(float) for part in tf.nest.flatten(value)])


@cache
def aggregation(norm, mechanism, epsilon):
    """One of the KINDS over `NESTED`, built and compiled once for all tests: factory, process."""
    factory = shuffled_ldp_aggregator(
        norm=norm, clip=2.0, local_epsilon=epsilon, mechanism=mechanism
    )
    return factory, factory.create(tff.to_type(NESTED))


def run(process, values, state=None):
    return process.next(process.initialize() if state is None else state, values)


class Probe(tff.aggregators.UnweightedAggregationFactory):
    """A sum that counts its rounds and remembers what it was asked to sum."""

    def __init__(self):
        self.value_types = []

    def create(self, value_type):
        self.value_types.append(value_type)
        add = tff.tensorflow.computation(lambda x: x + 1, np.int32)

        @tff.federated_computation()
        def initialize():
            return tff.federated_value(0, tff.SERVER)

        @tff.federated_computation(
            initialize.type_signature.result, tff.FederatedType(value_type, tff.CLIENTS)
        )
        def advance(state, values):
            state = tff.federated_map(add, state)
            return tff.templates.MeasuredProcessOutput(state, tff.federated_sum(values), state)

        return tff.templates.AggregationProcess(initialize, advance)


# Types ------------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("value_type", [(np.float32, (7,)), np.float64, NESTED, [np.float32]])
@pytest.mark.parametrize("sums", [False, True], ids=["shuffled", "sums"])
@pytest.mark.parametrize("adaptive", [False, True], ids=["fixed", "adaptive"])
def test_type_of_the_process(adaptive, sums, value_type):
    value_type = tff.to_type(value_type)
    factory = shuffled_ldp_aggregator(
        norm="linf",
        clip="adaptive" if adaptive else 1.0,
        local_epsilon=2.0,
        sum_factory=tff.aggregators.SumFactory() if sums else None,
    )
    process = factory.create(value_type)
    record = RoundsRecord(np.str_, tff.TensorType(np.int64, (None, 2)))
    inner = ((),) * (1 + adaptive) if sums else ()
    clip = np.float64 if adaptive else ()
    state = tff.FederatedType(LocallyPrivateState(record, clip, inner), tff.SERVER)
    measured = OrderedDict(
        mean=OrderedDict(
            reports=np.int32, bits_per_client=np.int64, report_bits=np.int64,
            predicted_error=np.float64, failing=np.float64,
            **({"clip": np.float64} if adaptive else {}),
        ),
        **({"sum": ()} if sums else {"shuffle": OrderedDict(impossible=np.int32)}),
    )  # fmt: skip
    expected = tff.FunctionType(
        OrderedDict(state=state, values=tff.FederatedType(value_type, tff.CLIENTS)),
        tff.templates.MeasuredProcessOutput(
            state,
            tff.FederatedType(value_type, tff.SERVER),
            tff.FederatedType(measured, tff.SERVER),
        ),
    )
    process.initialize.type_signature.check_assignable_from(tff.FunctionType(None, state))
    assert process.next.type_signature.is_equivalent_to(expected)


@pytest.mark.exact
@pytest.mark.parametrize(
    "value_type",
    [
        tff.TensorType(np.int32, (3,)),
        tff.to_type(OrderedDict(a=np.float32, b=np.int64)),
        tff.FederatedType(np.float32, tff.CLIENTS),
        tff.FunctionType(None, np.float32),
        tff.SequenceType(np.float32),
        tff.TensorType(np.float32, (None,)),
    ],
    ids=str,
)
def test_values_that_are_no_floats_of_known_shape_are_refused(value_type):
    factory = shuffled_ldp_aggregator(norm="linf", clip=1.0, local_epsilon=2.0)
    with pytest.raises(TypeError, match="value_type must"):
        factory.create(value_type)


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", [PrivUnit(3, 2.0), L2Mean(3, 2.0), ScalarMean(1, 2.0)])
def test_the_inner_sum_gets_integers_and_keeps_its_state(mechanism):
    probe = Probe()
    value_type = tff.TensorType(np.float32, (mechanism.dimension,))
    process = LocallyPrivateMeanFactory(mechanism, probe).create(value_type)
    kernel = kernel_for(mechanism)
    expected = tff.TensorType(kernel.statistic_dtype.as_numpy_dtype, kernel.statistic_shape)
    assert probe.value_types == [expected] and np.issubdtype(expected.dtype, np.integer)
    values = [np.zeros(mechanism.dimension, np.float32)] * 2
    first = run(process, values)
    second = run(process, values, first.state)
    assert (first.measurements["sum"], second.measurements["sum"]) == (1, 2)


@pytest.mark.exact
def test_clients_run_no_python():
    for kind in KINDS:
        _, process = aggregation(*kind)
        text = tff.framework.serialize_computation(process.next).SerializeToString()
        assert b"PyFunc" not in text and b"NonDeterministicInts" in text


# Refusals ---------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    "options, message",
    [
        ({"norm": "l3"}, "norm must be one of l2, linf, l1, got 'l3'"),
        ({"clip": 0.0}, "clip must be a finite number > 0"),
        ({"local_epsilon": math.inf}, "local_epsilon must be a finite number > 0"),
        ({"mechanism": "LInfMean"}, "mechanism must be one of PrivUnit, .* for norm 'l2'"),
        ({"min_reports": -1}, "min_reports must be >= 0, got -1"),
    ],
)
def test_refused_settings(options, message):
    settings = {"norm": "l2", "clip": 1.0, "local_epsilon": 2.0, **options}
    with pytest.raises(ValueError, match=message):
        shuffled_ldp_aggregator(**settings)


@pytest.mark.exact
def test_dimension_that_does_not_fit_is_refused():
    factory = LocallyPrivateMeanFactory(PrivUnit(10, 2.0))
    with pytest.raises(ValueError, match="values have 11 entries, but .* dimension is 10"):
        factory.create(tff.to_type(NESTED))


@pytest.mark.exact
def test_sums_that_want_weights_are_refused():
    with pytest.raises(TypeError, match="sum_factory must be .* got MeanFactory"):
        LocallyPrivateMeanFactory(PrivUnit(10, 2.0), tff.aggregators.MeanFactory())


# Values -----------------------------------------------------------------------------------------


@pytest.mark.exact
def test_flatten_and_unflatten():
    specs = tff.types.type_to_tf_tensor_specs(tff.to_type(NESTED))
    vector = flatten(VALUE)
    np.testing.assert_array_equal(vector, entries(VALUE))
    back = unflatten(vector, specs)
    assert [part.dtype for part in tf.nest.flatten(back)] == [tf.float32, tf.float64, tf.float16]
    tf.nest.map_structure(np.testing.assert_array_equal, back, VALUE)


@pytest.mark.statistical
@pytest.mark.parametrize("norm, mechanism, epsilon", KINDS)
def test_the_mean_is_unbiased_with_the_predicted_error(norm, mechanism, epsilon):
    """All 11 entries within 6.5 standard errors: false alarms below 1e-9 (normal tails)."""
    factory, process = aggregation(norm, mechanism, epsilon)
    people = 400
    output = run(process, [VALUE] * people)
    assert [p.dtype for p in tf.nest.flatten(output.result)] == [np.float32, np.float64, np.float16]
    numpys = factory._kernels(ENTRIES)[0].mechanism
    error = np.sqrt(numpys.variance(people, entries(VALUE)))
    half_precision = 1e-3 * np.abs(entries(output.result))
    allowed = 6.5 * error + numpys.bias_bound + half_precision
    assert (np.abs(entries(output.result) - entries(VALUE)) < allowed).all()
    measured = output.measurements["mean"]
    assert measured["reports"] == people
    assert measured["report_bits"] == numpys.bits_per_report
    worst = math.sqrt(numpys.mean_squared_error(people))
    assert measured["predicted_error"] == pytest.approx(worst, rel=1e-12)


@pytest.mark.statistical
def test_clients_and_rounds_draw_apart():
    """256 fair bits of two equal clients, and of two rounds, agree with probability 2**-256."""
    zeros = np.zeros(256, np.float32)
    factory = LocallyPrivateMeanFactory(
        LInfMean(256, 256.0, messages=(256,), message_epsilons=(1.0,))
    )
    process = factory.create(tff.TensorType(np.float32, (256,)))
    both = run(process, [zeros, zeros]).result
    unit = np.abs(both).max()
    assert 0 < np.count_nonzero(both) < 256 and set(np.unique(both / unit)) == {-1.0, 0.0, 1.0}
    first, second = (run(process, [zeros]).result for _ in range(2))
    assert (first != second).any() and (first == second).any()


@pytest.mark.exact
@pytest.mark.parametrize("norm, mechanism, epsilon", KINDS)
def test_zero_clients_give_zeros(norm, mechanism, epsilon):
    output = run(aggregation(norm, mechanism, epsilon)[1], [])
    assert entries(output.result).tolist() == [0.0] * ENTRIES
    measured = output.measurements["mean"]
    assert measured["reports"] == 0 and measured["predicted_error"] == math.inf


@pytest.mark.exact
def test_a_round_of_too_few_clients_has_no_result():
    factory = shuffled_ldp_aggregator(norm="l2", clip=1.0, local_epsilon=2.0, min_reports=3)
    process = factory.create(tff.to_type(NESTED))
    for too_few in ([], [VALUE] * 2):
        with pytest.raises(Exception, match="min_reports is 3"):
            run(process, too_few)
    assert run(process, [VALUE] * 3).measurements["mean"]["reports"] == 3


@pytest.mark.exact
def test_clipping_bounds_what_one_client_can_do():
    """However large the update, the report is PrivUnit's: of length 1/m times the radius."""
    mechanism = PrivUnit(4, 3.0, radius=0.1)
    process = LocallyPrivateMeanFactory(mechanism).create(tff.TensorType(np.float32, (4,)))
    for update in (1e30, -5.0, math.nan, math.inf, 0.0):
        result = run(process, [np.full(4, update, np.float32)]).result
        assert np.linalg.norm(result) == pytest.approx(0.1 / mechanism.marginal, rel=1e-6)


@pytest.mark.statistical
@pytest.mark.parametrize("door", ["values", "adaptive", "fedavg"])
def test_clients_whose_values_are_not_finite_are_seen_as_failing(door):
    """All, half, none of 100, at a standard error of at most 0.03: false alarms below 1e-9."""
    options = {
        "values": {"values_per_client": 2},
        "adaptive": {"adaptive_clip": AdaptiveClip(1.0)},
    }
    factory = LocallyPrivateMeanFactory(PrivUnit(50, 12.0), **options.get(door, {}))
    shape = (2, 50) if door == "values" else (50,)
    kind, weight = tff.TensorType(np.float32, shape), tff.TensorType(np.float32)
    if door == "fedavg":
        process = FailureReportingFactory(factory).create(kind, weight)
    else:
        process = factory.create(kind)
    state = process.initialize()
    for failed in (100, 50, 0):
        values = [np.full(shape, math.nan if i < failed else 0.0, np.float32) for i in range(100)]
        weights = []
        if door == "fedavg":
            values, weights = np.nan_to_num(values), [[float(i >= failed) for i in range(100)]]
        output = process.next(state, list(values), *weights)
        assert output.measurements["mean"]["failing"] == pytest.approx(failed / 100, abs=0.19)
        assert np.isfinite(output.result).all()
        state = output.state


@pytest.mark.statistical
def test_weighted_wrapper_ignores_weights():
    """At eps = 20 a bit is flipped once in 5e8: false alarms 6e-9."""
    mechanism = LInfMean(1, 20.0, messages=(1,), message_epsilons=(20.0,))
    factory = tff.aggregators.as_weighted_aggregator(LocallyPrivateMeanFactory(mechanism))
    process = factory.create(tff.TensorType(np.float32, (1,)), tff.TensorType(np.float32))
    values = [np.array([x], np.float32) for x in (1.0, 1.0, -1.0)]
    output = process.next(process.initialize(), values, [1.0, 5.0, 1e6])
    assert output.result[0] == pytest.approx(1 / 3, rel=1e-6)


@pytest.fixture
def secure_runtime():
    """TFF's runtime for tests, which computes secure sums in the clear; then the usual one."""
    tff.backends.test.set_sync_test_cpp_execution_context()
    yield
    tff.backends.native.set_sync_local_cpp_execution_context()


@pytest.mark.statistical
@pytest.mark.parametrize("mechanism", [PrivUnit(3, 8.0), LInfMean(3, 6.0)], ids=["real", "bits"])
def test_secure_sum_slots_in(mechanism, secure_runtime):
    """Within 6.5 standard errors: false alarms below 1e-9."""
    limit = kernel_for(mechanism).statistic_limit
    secure = tff.aggregators.SecureSumFactory(limit, -limit)
    value = np.array([0.1, -0.5, 0.3], np.float32)
    factory = LocallyPrivateMeanFactory(mechanism.to_config(), secure)
    output = run(factory.create(tff.TensorType(np.float32, (3,))), [value] * 200)
    error = np.sqrt(mechanism.variance(200, value))
    assert (np.abs(output.result - value) < 6.5 * error).all()
    clipped = output.measurements["sum"]
    assert clipped["secure_upper_clipped_count"] == clipped["secure_lower_clipped_count"] == 0


# Learning ---------------------------------------------------------------------------------------


def tiny_model():
    keras = tf.keras.Sequential(
        [tf.keras.layers.Dense(1, kernel_initializer="zeros", input_shape=(2,))]
    )
    return tff.learning.models.from_keras_model(
        keras,
        loss=tf.keras.losses.MeanSquaredError(),
        input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
        metrics=[tf.keras.metrics.MeanAbsoluteError()],
    )


@pytest.mark.e2e
def test_two_rounds_of_federated_averaging():
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        tiny_model,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=shuffled_ldp_aggregator(norm="l2", clip=0.1, local_epsilon=16.0),
        metrics_aggregator=no_client_metrics,
    )
    x = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]], np.float32)
    y = x @ np.array([[2.0], [-1.0]], np.float32)
    clients = [tf.data.Dataset.from_tensor_slices((x, y)).batch(4)] * 100
    state = process.initialize()
    weights = [process.get_model_weights(state).trainable]
    for _ in range(2):
        output = process.next(state, clients)
        state = output.state
        weights.append(process.get_model_weights(state).trainable)
        assert output.metrics["aggregator"]["mean"]["reports"] == 100
        assert "mean_absolute_error" not in str(output.metrics) and "loss" not in str(
            output.metrics
        )
    moved = [entries(b) - entries(a) for a, b in zip(weights, weights[1:])]
    # Clipped updates are 0.1 along (2, -1); the noise of a mean of 100 reports is 0.01 in all,
    # and exceeds 0.04 once in 1e9 rounds.
    expected = np.array([0.2, -0.1, 0.0]) / math.sqrt(5)
    assert all(np.linalg.norm(step - expected) < 0.04 for step in moved)


@pytest.mark.e2e
def test_a_round_without_clients_leaves_the_model():
    process = tff.learning.algorithms.build_unweighted_fed_avg(
        tiny_model,
        client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
        server_optimizer_fn=tff.learning.optimizers.build_sgdm(1.0),
        model_aggregator=shuffled_ldp_aggregator(norm="linf", clip=0.1, local_epsilon=2.0),
        metrics_aggregator=no_client_metrics,
    )
    state = process.initialize()
    after = process.next(state, []).state
    before, after = (process.get_model_weights(s).trainable for s in (state, after))
    np.testing.assert_array_equal(entries(before), entries(after))
