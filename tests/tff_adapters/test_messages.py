"""Messages: packed as NumPy's, shuffled uniformly, stripped, and decoded to the same mean."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff
from scipy import stats

from beam_ldp.randomizers.mean import L2Mean, LInfMean, PrivUnit, ScalarMean
from tests.tff_adapters.test_kernels import ALL, everything, vector_for
from tff_adapters import (
    AdaptiveClip,
    DeclaredSampling,
    LocallyPrivateMeanFactory,
    kernel_for,
    privacy_events,
    shuffled_ldp_aggregator,
)
from tff_adapters.compat import language
from tff_adapters.transport import ShuffledMessages
from tff_adapters.vectors import norm_at_most

FLOATS3 = tff.TensorType(np.float32, (3,))
VALUE = np.array([0.1, -0.5, 0.3], np.float32)


def run(process, values, state=None):
    return process.next(process.initialize() if state is None else state, values)


# Bytes ------------------------------------------------------------------------------------------

ODD = [PrivUnit(21, 4.0, coordinate_bits=13), PrivUnit(9, 4.0, coordinate_bits=8), L2Mean(300, 3.0),
       LInfMean(70, 70.0, messages=(70,), message_epsilons=(1.0,))]  # fmt: skip


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", ALL + ODD, ids=lambda m: f"{type(m).__name__}-{m.dimension}")
def test_messages_are_the_bytes_of_numpy_s_pack(mechanism):
    """Reports of the NumPy randomizer, packed and unpacked by the kernel, one by one."""
    vectors = np.tile(vector_for(mechanism), (6, 1))
    reports = mechanism.randomize(vectors, np.random.default_rng(0))
    kernel = kernel_for(mechanism)
    packed = kernel.pack(tf.constant(reports)).numpy()
    assert packed.dtype == np.uint8 and packed.shape == (6, kernel.message_bytes)
    assert kernel.message_bytes == math.ceil(mechanism.bits_per_report / 8)
    assert [row.tobytes() for row in packed] == [mechanism.pack(r[None]) for r in reports]
    back = kernel.unpack(tf.constant(packed)).numpy()
    assert back.dtype == mechanism.report_dtype
    np.testing.assert_array_equal(back, reports)


@pytest.mark.exact
@everything()
def test_no_messages_pack_and_unpack(mechanism):
    kernel = kernel_for(mechanism)
    packed = tf.zeros([0, kernel.message_bytes], tf.uint8)
    reports = kernel.unpack(packed)
    assert kernel.pack(reports).shape == (0, kernel.message_bytes)


# The shuffle ------------------------------------------------------------------------------------


@pytest.mark.statistical
def test_every_order_is_as_likely():
    """4 reports, 24 orders, 12,000 shuffles: chi-squared p below 1e-6 fails."""
    kernel = kernel_for(LInfMean(64, 2.0))
    reports = tf.constant(np.arange(4, dtype=np.uint8)[:, None])
    generator = tf.random.Generator.from_seed(3)
    shuffle = tf.function(
        lambda: tf.map_fn(
            lambda _: kernel.permute(reports, generator)[:, 0], tf.range(12_000), tf.uint8
        ),
        autograph=False,
    )
    orders = [tuple(row) for row in shuffle().numpy().tolist()]
    counts = [orders.count(order) for order in permutations(range(4))]
    assert sum(counts) == 12_000
    assert stats.chisquare(counts).pvalue > 1e-6


@pytest.mark.statistical
def test_columns_are_permuted_apart():
    """Two columns that agree before: pairs of positions become uniform (chi-squared, p > 1e-6)."""
    mechanism = LInfMean(64, 2.0, messages=(2,), message_epsilons=(1.0,))
    kernel = kernel_for(mechanism)
    reports = tf.constant(np.tile(np.arange(3, dtype=np.uint8)[:, None], (1, 2)))
    generator = tf.random.Generator.from_seed(4)
    many = tf.function(
        lambda: tf.map_fn(lambda _: kernel.permute(reports, generator), tf.range(6000), tf.uint8),
        autograph=False,
    )
    rows = many().numpy()
    assert (np.sort(rows, axis=1) == np.arange(3)[None, :, None]).all()
    codes = rows[:, :, 0] @ [9, 3, 1] * 27 + rows[:, :, 1] @ [9, 3, 1]
    counts = np.unique(codes, return_counts=True)[1]
    assert len(counts) == 36 and stats.chisquare(counts).pvalue > 1e-6


def shuffled(kernel, values_per_client=1):
    """A computation that shows what the server gets from clients' messages."""
    way = ShuffledMessages([kernel], values_per_client)
    sent = tff.to_type((tff.TensorType(np.uint8, (values_per_client, kernel.message_bytes)),))

    @language.federated_computation(language.FederatedType(sent, language.CLIENTS))
    def server_gets(messages):
        return way.shuffle(messages)

    return server_gets


@pytest.mark.exact
def test_the_server_gets_reports_and_nothing_else():
    """Type: a tuple of reports at the server. Values: the multiset of what clients sent."""
    kernel = kernel_for(LInfMean(64, 2.0))
    server_gets = shuffled(kernel)
    reports = (tff.TensorType(np.uint8, (None, 1)),)
    expected = language.FederatedType((reports, np.int32), language.SERVER)
    assert server_gets.type_signature.result.is_equivalent_to(expected)
    sent = np.arange(40, dtype=np.uint8)
    messages = [(row,) for row in kernel.pack(tf.constant(sent[:, None])).numpy()[:, None, :]]
    got = [server_gets(messages)[0][0][:, 0] for _ in range(2)]
    assert all(sorted(order.tolist()) == sent.tolist() for order in got)
    # Orders that agree with the clients', or with each other, have probability 1/40!.
    assert got[0].tolist() != sent.tolist() and got[0].tolist() != got[1].tolist()
    (none,), dropped = server_gets([])
    assert none.shape == (0, 1) and dropped == 0


@pytest.mark.exact
def test_the_shuffle_is_one_aggregation_whose_report_step_permutes():
    """The intrinsic is there by name; what leaves the clients is bytes."""
    process = LocallyPrivateMeanFactory(PrivUnit(3, 8.0)).create(FLOATS3)
    text = tff.framework.serialize_computation(process.next).SerializeToString()
    assert b"federated_aggregate" in text and b"federated_sum" not in text
    summed = LocallyPrivateMeanFactory(PrivUnit(3, 8.0), tff.aggregators.SumFactory())
    text = tff.framework.serialize_computation(summed.create(FLOATS3).next).SerializeToString()
    assert b"federated_sum" in text and b"federated_aggregate" not in text


@pytest.mark.exact
@pytest.mark.parametrize(
    "mechanism, shuffled_bits, summed_bits",
    [
        (PrivUnit(3, 8.0), 96, 3 * 64),
        (PrivUnit(3, 8.0, coordinate_bits=16), 48, 3 * 64),
        (LInfMean(1000, 2.0), 16, 1000 * 32),
        (ScalarMean(1, 2.0), 8, None),
    ],
    ids=["32-bit", "16-bit", "place", "scalar"],
)
def test_bits_are_those_on_the_wire(mechanism, shuffled_bits, summed_bits):
    value_type = tff.TensorType(np.float32, (mechanism.dimension,))
    values = [np.zeros(mechanism.dimension, np.float32)] * 3
    for inner, bits in [(None, shuffled_bits), (tff.aggregators.SumFactory(), summed_bits)]:
        if bits is not None:
            factory = LocallyPrivateMeanFactory(mechanism, inner)
            measured = run(factory.create(value_type), values).measurements["mean"]
            assert measured["bits_per_client"] == bits


# Several values of a client ---------------------------------------------------------------------


@pytest.mark.statistical
@pytest.mark.parametrize("inner", [None, tff.aggregators.SumFactory()], ids=["shuffled", "sums"])
def test_several_values_per_client(inner):
    """The mean over all values of all clients; 6.5 standard errors, false alarms below 1e-9."""
    mechanism = LInfMean(3, 6.0)
    factory = LocallyPrivateMeanFactory(mechanism, inner, values_per_client=2)
    value_type = tff.to_type([(np.float32, (2, 2)), (np.float32, (2,))])
    process = factory.create(value_type)
    two = np.stack([VALUE, -0.2 * VALUE])
    output = run(process, [[two[:, :2], two[:, 2]]] * 200)
    assert [part.shape for part in output.result] == [(2,), ()]
    found = np.concatenate([np.ravel(part) for part in output.result])
    error = np.sqrt(mechanism.variance(400, two))
    assert (np.abs(found - two.mean(axis=0)) < 6.5 * error).all()
    measured = output.measurements["mean"]
    assert measured["reports"] == 200
    worst = math.sqrt(mechanism.mean_squared_error(400))
    assert measured["predicted_error"] == pytest.approx(worst)
    ((event, times),) = privacy_events(output.state)
    assert (event.num_reports, times) == (400, 1)


@pytest.mark.exact
def test_values_without_their_leading_dimension_are_refused():
    factory = LocallyPrivateMeanFactory(LInfMean(3, 2.0), values_per_client=2)
    with pytest.raises(TypeError, match="leading dimension of values_per_client=2"):
        factory.create(FLOATS3)
    with pytest.raises(ValueError, match="values_per_client must be >= 1"):
        LocallyPrivateMeanFactory(LInfMean(3, 2.0), values_per_client=0)


# Adaptive clipping ------------------------------------------------------------------------------


@pytest.mark.exact
def test_norm_bits():
    rows = tf.constant([[3.0, 4.0], [0.3, 0.4], [np.inf, 0.0]], tf.float64)
    for norm, limits in [("l2", (5.0, 4.99)), ("l1", (7.0, 6.99)), ("linf", (4.0, 3.99))]:
        assert [norm_at_most(rows, norm, x)[0, 0].numpy() for x in limits] == [1.0, 0.0]
        assert norm_at_most(rows, norm, 1.0).numpy()[:, 0].tolist() == [0.0, 1.0, 1.0]


@pytest.mark.exact
def test_next_norm():
    clip = AdaptiveClip(1.0, quantile=0.75, learning_rate=0.5)
    moved = [float(clip.next_norm(2.0, share, 10)) for share in (0.75, 1.7, -3.0)]
    assert moved == pytest.approx([2.0, 2 * math.exp(-0.125), 2 * math.exp(0.375)])
    assert float(clip.next_norm(2.0, 0.0, 0)) == 2.0


@pytest.mark.statistical
@pytest.mark.parametrize("inner", [None, tff.aggregators.SumFactory()], ids=["shuffled", "sums"])
def test_clip_finds_the_quantile(inner):
    """Norms 1..100 times 0.01; at eps = 12 per bit one in 160,000 flips: it ends near 0.5.

    20 rounds of rate 1 from 4: without noise it is within 0.05 of the median; a flip moves it by
    less than 1 percent.
    """
    settings = AdaptiveClip(12.0, initial=4.0, learning_rate=1.0)
    mechanism = LInfMean(3, 6.0)
    process = LocallyPrivateMeanFactory(mechanism, inner, adaptive_clip=settings).create(FLOATS3)
    values = [np.array([0, 0.01 * i, 0], np.float32) for i in range(1, 101)]
    state = process.initialize()
    clips = []
    for _ in range(20):
        output = process.next(state, values)
        state = output.state
        clips.append(float(output.measurements["mean"]["clip"]))
    assert clips[0] == 4.0 and clips[1] == pytest.approx(4 * math.exp(-0.5), rel=0.02)
    assert float(state.clip) == pytest.approx(0.5, abs=0.06)
    # What is sent scales with the clip: so does the error, and the mean is unbiased within it.
    error = clips[-1] * math.sqrt(mechanism.mean_squared_error(100))
    assert output.measurements["mean"]["predicted_error"] == pytest.approx(error)


@pytest.mark.exact
def test_adaptive_clip_is_part_of_the_local_budget():
    factory = shuffled_ldp_aggregator(norm="l2", clip="adaptive", local_epsilon=4.0)
    update, bit = factory._kernels(3)
    assert update.mechanism.local_epsilon + bit.mechanism.local_epsilon == pytest.approx(4.0)
    assert bit.mechanism.local_epsilon == pytest.approx(0.4)
    with pytest.raises(ValueError, match="local_epsilon must be above the 4 of the adaptive"):
        shuffled_ldp_aggregator(norm="l2", clip=AdaptiveClip(4.0), local_epsilon=4.0)
    with pytest.raises(ValueError, match="must be for vectors of radius 1"):
        LocallyPrivateMeanFactory(PrivUnit(3, 2.0, radius=2.0), adaptive_clip=AdaptiveClip(1.0))\
            .create(FLOATS3)  # fmt: skip
    with pytest.raises(ValueError, match="quantile must lie in"):
        AdaptiveClip(1.0, quantile=1.0)


# Seeds ------------------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_seed_repeats_and_has_no_epsilon():
    values = [VALUE * (i + 1) / 50 for i in range(20)]
    results = []
    for seed in (1, 1, 2):
        process = LocallyPrivateMeanFactory(PrivUnit(3, 4.0), seed=seed).create(FLOATS3)
        first = run(process, values)
        second = run(process, values, first.state)
        assert (first.result != second.result).all()
        assert privacy_events(second.state) is None
        results.append(np.stack([first.result, second.result]))
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).all()


# Declared sampling ------------------------------------------------------------------------------


@pytest.mark.exact
def test_a_round_that_is_not_the_declared_one_has_no_result():
    declared = DeclaredSampling(100, 5)
    process = LocallyPrivateMeanFactory(PrivUnit(3, 4.0), sampling=declared).create(FLOATS3)
    state = process.initialize()
    assert run(process, [VALUE] * 5, state).state.privacy.rounds.tolist() == [[5, 1]]
    for count in (0, 4, 6):
        with pytest.raises(Exception, match="the declared sampling gives 5 to 5 clients"):
            run(process, [VALUE] * count, state)
