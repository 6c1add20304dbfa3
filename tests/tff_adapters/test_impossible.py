"""What no honest client can send is dropped and counted, as the NumPy mechanisms do."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from beam_ldp.randomizers.mean import (
    L1Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    ScalarMean,
    SeparatedMean,
)
from tests.tff_adapters.test_kernels import ALL, everything, vector_for
from tff_adapters import AdaptiveClip, LocallyPrivateMeanFactory, kernel_for
from tff_adapters.compat import language
from tff_adapters.local_central import LocalCentralFactory
from tff_adapters.transport import ShuffledMessages


@pytest.mark.exact
@everything()
def test_whatever_a_kernel_sends_is_possible(mechanism):
    """500 reports about a long, a short and a zero vector; by NumPy's own judgement too."""
    kernel, generator = kernel_for(mechanism), tf.random.Generator.from_seed(3)
    for scale in (1e3, 1.0, 0.0):
        vectors = np.tile(scale * vector_for(mechanism), (500, 1))
        reports = kernel.randomize(tf.constant(vectors), generator)
        packed = kernel.pack(reports)
        back, possible = kernel.unpack_possible(packed)
        assert possible.numpy().all() and mechanism.possible(reports.numpy()).all()
        np.testing.assert_array_equal(back, reports)


@pytest.mark.exact
@everything()
def test_any_bytes_are_judged_as_numpy_judges_them(mechanism):
    """2,000 random messages, and honest ones with one bit flipped."""
    kernel, rng = kernel_for(mechanism), np.random.default_rng(5)
    wild = rng.integers(0, 256, (2000, kernel.message_bytes), dtype=np.uint8)
    honest = mechanism.pack_each(mechanism.randomize(np.tile(vector_for(mechanism), (500, 1)), rng))
    flipped = honest.copy()
    places = rng.integers(0, 8 * kernel.message_bytes, len(honest))
    flipped[np.arange(len(honest)), places // 8] ^= (1 << places % 8).astype(np.uint8)
    for packed in (wild, honest, flipped):
        _, possible = kernel.unpack_possible(tf.constant(packed))
        np.testing.assert_array_equal(possible.numpy(), mechanism.unpack_each(packed)[1])


# (mechanism, a report, how many clients' pull it would have had)
LONG = [PrivUnit(400, 4.0), SeparatedMean(400, 4.0), PrivUnitGaussian(400, 4.0)]


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", LONG, ids=lambda m: type(m).__name__)
def test_a_report_of_the_largest_coordinates_is_impossible(mechanism):
    """Every coordinate as large as it can be: sqrt(d) times as long as an honest report."""
    kernel = kernel_for(mechanism)
    report = np.full((1, 400), mechanism.fixed_point.largest, mechanism.report_dtype)
    honest = mechanism.randomize(np.tile(vector_for(mechanism), (50, 1)), np.random.default_rng(1))
    longer = np.linalg.norm(report) / np.linalg.norm(honest.astype(float), axis=1).max()
    assert longer > 4.0
    assert not kernel.possible(tf.constant(report)).numpy().any()
    assert kernel.possible(tf.constant(honest)).numpy().all()


@pytest.mark.exact
def test_a_place_beyond_its_block_is_impossible():
    """It would have been counted for a coordinate of another block."""
    kernel = kernel_for(LInfMean(7, 4.0, messages=(2, 3), message_epsilons=(0.8, 0.8)))
    size = kernel.mechanism.layout.columns.size
    last = np.asarray([2 * size - 1]).astype(kernel.mechanism.report_dtype)
    beyond = last.copy()
    beyond[0, 0] += 1
    assert kernel.possible(tf.constant(last)).numpy().tolist() == [True]
    assert kernel.possible(tf.constant(beyond)).numpy().tolist() == [False]
    points = kernel_for(ScalarMean(1, 4.0)).possible(tf.constant([0, 99], tf.uint8))
    assert points.numpy().tolist() == [True, False]


# In a round -------------------------------------------------------------------------------------


def server_gets(kernels, values):
    """The shuffle alone, whose clients send whatever they like."""
    way = ShuffledMessages(kernels, values)
    sent = tff.to_type(tuple(tff.TensorType(np.uint8, (None, k.message_bytes)) for k in kernels))

    @language.federated_computation(language.FederatedType(sent, language.CLIENTS))
    def gets(messages):
        return way.shuffle(messages)

    return gets


@pytest.mark.statistical
def test_one_client_pulls_no_further_than_its_report():
    """A vector of the largest coordinates among 100 honest ones: dropped, counted.

    The mean keeps within 6.5 standard errors (false alarms below 1e-8); with it, it would be off
    by sqrt(d) = 20 clients' pull.
    """
    mechanism = PrivUnit(400, 8.0)
    kernel, rng = kernel_for(mechanism), np.random.default_rng(2)
    vector = vector_for(mechanism)
    honest = mechanism.pack_each(mechanism.randomize(np.tile(vector, (100, 1)), rng))
    forged = mechanism.pack_each(
        np.full((1, 400), mechanism.fixed_point.largest, mechanism.report_dtype)
    )
    messages = [(row[None],) for row in (*honest, *forged)]
    (reports,), dropped = server_gets([kernel], 1)(messages)
    assert dropped == 1 and len(reports) == 100
    mean = kernel.decode(kernel.accumulate(tf.constant(reports)), tf.constant(100)).numpy()
    error = np.sqrt(mechanism.variance(100, vector[None]))
    assert (np.abs(mean - vector) < 6.5 * error).all()


@pytest.mark.exact
@pytest.mark.parametrize("rows", [0, 1, 3, 1000])
def test_a_client_of_another_number_of_messages_is_dropped_whole(rows):
    """A thousand messages of one client would have counted as a thousand people's."""
    kernel = kernel_for(LInfMean(64, 2.0))
    honest = np.zeros((2, 1), np.uint8)
    messages = [(honest,), (np.zeros((rows, 1), np.uint8),), (honest,)]
    (reports,), dropped = server_gets([kernel], 2)(messages)
    assert dropped == 1 and len(reports) == 4


@pytest.mark.exact
def test_one_impossible_message_drops_all_of_its_client():
    """Of several values, and of the bit beside a vector: and nobody else's."""
    vectors, bit = kernel_for(PrivUnit(9, 4.0)), kernel_for(AdaptiveClip(1.0).mechanism)
    rng = np.random.default_rng(1)

    def client(number):
        value = np.tile(vector_for(vectors.mechanism), (2, 1))
        report = vectors.mechanism.randomize(value, rng)
        told = bit.mechanism.randomize(np.full((2, 1), number % 2), rng)
        return [vectors.mechanism.pack_each(report), bit.mechanism.pack_each(told)]

    clients = [client(i) for i in range(5)]
    clients[1][0][1, :4] = 127  # its second vector, too long
    clients[3][1][0, 0] ^= 1  # padding behind its first bit
    (reports, told), dropped = server_gets([vectors, bit], 2)([tuple(c) for c in clients])
    assert dropped == 2 and len(reports) == len(told) == 6
    kept = [vectors.unpack(tf.constant(clients[i][0])).numpy() for i in (0, 2, 4)]
    assert sorted(map(tuple, reports)) == sorted(map(tuple, np.concatenate(kept)))


@pytest.mark.exact
def test_rounds_measure_how_many_were_dropped():
    value_type = tff.TensorType(np.float32, (3,))
    process = LocallyPrivateMeanFactory(L1Mean(3, 4.0)).create(value_type)
    output = process.next(process.initialize(), [np.zeros(3, np.float32)] * 4)
    assert output.measurements["shuffle"] == {"impossible": 0}
    sums = LocallyPrivateMeanFactory(L1Mean(3, 4.0), tff.aggregators.SumFactory())
    measured = sums.create(value_type).next.type_signature.result.measurements
    assert "impossible" not in str(measured), "of a sum nothing can be told"


@pytest.mark.exact
def test_messages_of_local_central_are_judged_one_by_one():
    """Its accumulator, given a message that is far too long: nothing is added, one is counted."""
    factory = LocalCentralFactory(
        SeparatedMean(6, 30.0), num_clients=10, sampling_rate=0.5, projection=1e6,
        noise_multiplier=1e-12,
    )  # fmt: skip
    process = factory.create(tff.TensorType(np.float32, (6,)))
    output = process.next(process.initialize(), [np.full(6, 0.1, np.float32)] * 3)
    assert output.measurements == {"reports": 3, "impossible": 0}
    accumulate = accumulator(process.next)
    total = (np.zeros(6), np.int32(0), np.int32(0))
    largest = factory.mechanism_for(6).fixed_point.largest
    after = accumulate(total, np.full(6, largest, np.int32))
    assert not np.any(after[0]) and (after[1], after[2]) == (0, 1)
    own = factory.mechanism_for(6).randomize(np.full((1, 6), 0.1), np.random.default_rng(0))[0]
    after = accumulate(total, own)
    assert np.linalg.norm(after[0]) > 0 and (after[1], after[2]) == (1, 0)


def accumulator(computation):
    """The accumulator of the one `federated_aggregate`, by its place among the arguments."""
    found = []

    def visit(block):
        function = getattr(block, "function", None)
        if getattr(function, "uri", "") == "federated_aggregate":
            found.append(tff.framework.ConcreteComputation.from_building_block(block.argument[2]))
        return block, False

    tff.framework.transform_preorder(computation.to_building_block(), visit)
    (only,) = found
    return lambda *asked: tuple(only(*asked).values())


@pytest.mark.exact
def test_all_kernels_are_in_the_table():
    assert len({type(kernel_for(m)) for m in ALL}) == 5
