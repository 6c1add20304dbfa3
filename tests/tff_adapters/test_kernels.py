"""Kernels are the NumPy mechanisms in TensorFlow: same parameters, law, statistic and estimate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from beam_ldp.randomizers import walsh_hadamard
from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    PrivUnitInf,
    ScalarMean,
    SeparatedMean,
)
from beam_ldp.randomizers.mean import base as numpy_base
from tff_adapters.kernels import block, kernel_for
from tff_adapters.kernels.base import clip_to_ball

WORDS = 2**64

BLOCK = [
    LInfMean(5, 2.0),
    LInfMean(5, 12.0, radius=0.01),
    LInfMean(7, 4.0, messages=(2, 3), message_epsilons=(0.8, 0.8)),
    LInfMean(3, 6.0, messages=(6,), message_epsilons=(1.0,)),
    L2Mean(20, 4.0),
    L2Mean(100, 8.0, radius=3.0, rotation_seed=5),
    L1Mean(12, 3.0),
    BinaryVectorMean(4, 1.7),
    BinaryVectorMean(3, 6.0),
]
DIRECTIONS = [
    PrivUnit(20, 4.0),
    PrivUnit(3, 0.5, radius=2.0, coordinate_bits=16),
    PrivUnit(40, 16.0, inputs="sphere", preset="experiments"),
    PrivUnit(40, 8.0, rounding="random", coordinate_bits=6),
    PrivUnitGaussian(20, 8.0, rounding="random", coordinate_bits=8),
    PrivUnitGaussian(20, 4.0),
    PrivUnitGaussian(50, 0.5, radius=0.1),
    SeparatedMean(20, 8.0),
    SeparatedMean(20, 8.0, strategy="lift"),
    SeparatedMean(20, 8.0, strategy="sign_flip"),
    SeparatedMean(20, 8.0, rounding="random", coordinate_bits=7),
]
SCALARS = [
    ScalarMean(1, 4.0, radius=5.0),
    ScalarMean(1, 2.0, signed=True),
    ScalarMean(1, 6.0, grid="corrected_relative"),
]
ALL = BLOCK + DIRECTIONS + SCALARS


def names(mechanisms):
    return [f"{type(m).__name__}-{m.dimension}-{m.local_epsilon:g}-{i}" for i, m in enumerate(ALL)
            if any(m is wanted for wanted in mechanisms)]  # fmt: skip


def everything(mechanisms=ALL):
    return pytest.mark.parametrize("mechanism", mechanisms, ids=names(mechanisms))


def vector_for(mechanism, seed=0):
    """A vector well inside the ball, with no symmetry."""
    vector = np.random.default_rng(seed).uniform(-1, 1, mechanism.dimension)
    if mechanism.norm == "binary":
        return (vector > 0).astype(float)
    if isinstance(mechanism, ScalarMean):
        return np.array([0.37 * mechanism.radius])
    order = {"l1": 1, "l2": 2, "linf": np.inf}[mechanism.norm]
    return 0.8 * mechanism.radius * vector / np.linalg.norm(vector, order)


def reports_of(kernel, vectors, seed=1):
    generator = tf.random.Generator.from_seed(seed)
    graph = tf.function(lambda x: kernel.randomize(x, generator), autograph=False)
    return graph(tf.constant(vectors)).numpy()


class GivenWords:
    """A generator whose words are given, call by call; anything else of it is zero."""

    def __init__(self, *words):
        self.words = list(words)

    def uniform_full_int(self, shape, dtype):
        words = np.array(self.words.pop(0), dtype=np.uint64)
        return tf.constant(np.broadcast_to(words, np.asarray(shape)), dtype)

    def uniform(self, shape, minval=0, maxval=None, dtype=tf.float64):
        return tf.zeros(shape, dtype)


# Finite parts, exactly --------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("local_epsilon", [0.1, 1.7, 20.0])
def test_bits_have_the_probabilities_of_the_mechanism(local_epsilon):
    """The words that give a one are counted: the first `low`, or all but `low`, of 2**64."""
    kernel = kernel_for(BinaryVectorMean(1, local_epsilon))
    low = kernel.mechanism.layout.law(0, 1).low
    for held, ones in [(0.0, low), (1.0, WORDS - low)]:
        around = [[ones - 1], [ones]]
        reports = kernel.respond(tf.constant([[held], [held]], tf.float64), GivenWords(around))
        assert reports.numpy().tolist() == [[1], [0]]
    ratio = math.log((WORDS - low) / low)
    assert local_epsilon - 1e-8 < ratio <= kernel.mechanism.local_epsilon


@pytest.mark.exact
def test_thresholds_are_those_of_the_mechanism():
    """The integer of every value between, computed anew with whole numbers."""
    kernel = kernel_for(LInfMean(1, 2.0))
    columns = kernel.mechanism.layout.columns
    low, span, scale = columns.low[0], columns.span[0], columns.scale[0]
    units = np.array([0.0, 1e-300, 0.1, 0.5, 0.75, 1 - 2**-53, 1.0])
    expected = [int(low) + (int(span) if q == 1 else int(q * scale)) for q in units]
    assert kernel.thresholds(tf.constant(units), low, span, scale).numpy().tolist() == expected


@pytest.mark.exact
def test_channel_of_binary_vectors():
    """P(report | value) of the kernel, from its thresholds and uniform places, is NumPy's."""
    mechanism = BinaryVectorMean(3, 2.0, messages=(2,), message_epsilons=(1.0,))
    kernel, layout = kernel_for(mechanism), mechanism.layout
    values = (np.arange(8)[:, None] >> np.array([2, 1, 0])) & 1
    table = np.ones((1, 8))
    for t, size in enumerate(layout.columns.size.tolist()):
        rows = []
        for place in range(size):
            held = kernel.encode(tf.constant(values.astype(float)))[
                :, layout.columns.start[t] + place
            ]
            c = layout.columns
            one = kernel.thresholds(held, c.low[t], c.span[t], c.scale[t]).numpy() / 2.0**64 / size
            rows += [1 / size - one, one]
        table = (table[:, None, :] * np.array(rows)[None]).reshape(-1, 8)
    np.testing.assert_allclose(table, mechanism.channel(), rtol=1e-12)


@pytest.mark.exact
def test_message_names_its_place_and_carries_its_bit():
    """Two levels, blocks of unequal size: every place and digit, from given words."""
    mechanism = LInfMean(3, 4.0, messages=(1, 2), message_epsilons=(1.0, 1.0))
    kernel = kernel_for(mechanism)
    vector = np.array([[-0.9, 0.1, 0.8]])  # first binary digits 0, 1, 1
    words = np.full((1, 3), WORDS // 2, np.uint64)
    for place in range(3):
        places = np.array([[2 * place, 2 * (place % 2), 0]], np.uint64)
        reports = kernel.respond(tf.constant(vector), GivenWords(words, places)).numpy()
        assert reports[0, 0] == 2 * place + (vector[0, place] > 0)
        rest = (vector[0, [place % 2, 2]] + 1) % 1 > 0.5
        assert reports[0, 1:].tolist() == [2 * (place % 2) + rest[0], rest[1]]


@pytest.mark.exact
@everything(SCALARS)
def test_randomized_response_keeps_the_own_point_as_often(mechanism):
    kernel, law = kernel_for(mechanism), mechanism._law
    own = len(mechanism.points) - 1
    top = tf.constant([[mechanism.points[own]]] * 2, tf.float64)
    around = [law.threshold - 1, law.threshold]
    assert kernel.respond(top, GivenWords(around)).numpy().tolist() == [own, 0]
    kept = law.threshold / WORDS
    assert kept + (1 - kept) / (own + 1) == pytest.approx(law.favoured_probability, rel=1e-14)


@pytest.mark.exact
@everything(SCALARS)
def test_rounding_to_the_grid_is_unbiased(mechanism):
    """Coins on a fine grid stand for all coins."""
    kernel, coins = kernel_for(mechanism), (np.arange(10_000) + 0.5) / 10_000
    for value in np.linspace(mechanism.points[0], mechanism.points[-1], 7):
        values = np.full(coins.shape, value)
        index = kernel.round(tf.constant(values), tf.constant(coins)).numpy()
        assert len(set(index.tolist())) <= 2
        width = np.diff(mechanism.points).max()
        assert mechanism.points[index].mean() == pytest.approx(value, abs=1e-4 * width)


@pytest.mark.exact
@pytest.mark.parametrize("mechanism", DIRECTIONS[:5], ids=names(DIRECTIONS[:5]))
def test_cap_coin_is_the_mechanism_s(mechanism, monkeypatch):
    """With heads the height lies in the cap, with tails off it, to the word."""
    from tff_adapters.kernels import directions

    for name in ("_in_cap", "_normal_above"):
        monkeypatch.setattr(directions, name, lambda *_: tf.constant([1.0, 1.0], tf.float64))
    for name in ("_off_cap", "_normal_below"):
        monkeypatch.setattr(directions, name, lambda *_: tf.constant([0.0, 0.0], tf.float64))
    threshold = mechanism.coin.threshold
    generator = GivenWords([threshold - 1, threshold])
    assert kernel_for(mechanism).heights(2, generator).numpy().tolist() == [1.0, 0.0]


# Deterministic parts ----------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize("dimension", [1, 2, 3, 64, 100, 129, 3000])
def test_rotation_is_numpy_s(dimension):
    vectors = np.random.default_rng(0).normal(size=(3, dimension))
    signs = walsh_hadamard.public_signs(dimension, 7)
    size = walsh_hadamard.padded_size(dimension)
    ours = block.rotate(tf.constant(vectors), size, block.signs_from_bits(signs))
    np.testing.assert_allclose(ours, walsh_hadamard.hadamard(vectors, signs), atol=1e-13)
    back = block.rotate_back(ours[0], dimension, size, block.signs_from_bits(signs))
    np.testing.assert_allclose(back, vectors[0], atol=1e-13)


@pytest.mark.exact
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("scale", [1e-200, 1e-3, 1.0, 1e200, 1e308])
@pytest.mark.parametrize("with_zero", [False, True])
def test_clipping_is_numpy_s(norm, scale, with_zero):
    vectors = np.random.default_rng(0).uniform(-1, 1, (50, 6)) * scale
    vectors[0] *= not with_zero
    expected = numpy_base.clip_to_ball(vectors, norm, 0.7, "clip")
    np.testing.assert_allclose(clip_to_ball(tf.constant(vectors), norm, 0.7), expected, rtol=1e-12)


@pytest.mark.exact
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_vectors_that_are_not_finite_count_as_zero(bad):
    vectors = tf.constant([[0.5, bad], [0.1, 0.2]], tf.float64)
    for norm in ("l1", "l2", "linf", "binary"):
        clipped = clip_to_ball(vectors, norm, 1.0).numpy()
        assert (clipped[0] == 0).all() and np.isfinite(clipped).all()
        assert norm == "binary" or clipped[1].tolist() == [0.1, 0.2]


@pytest.mark.exact
@everything()
def test_statistic_and_estimate_are_numpy_s(mechanism):
    """Reports of the kernel, read by both; reports have NumPy's shape and dtype and pass it."""
    kernel = kernel_for(mechanism)
    vectors = np.tile(vector_for(mechanism), (300, 1))
    reports = reports_of(kernel, vectors)
    assert reports.dtype == mechanism.report_dtype
    assert reports.shape == (300, *mechanism.report_shape)
    expected = mechanism.accumulate(mechanism.unpack(mechanism.pack(reports), 300))
    statistic = kernel.accumulate(reports).numpy()
    assert statistic.dtype == kernel.statistic_dtype.as_numpy_dtype
    assert statistic.shape == kernel.statistic_shape
    if mechanism in BLOCK:
        both = expected[..., 1] - expected[..., 0]
    else:  # no squares are asked of a secure sum
        both = expected[0] if expected.ndim > statistic.ndim else expected
    np.testing.assert_array_equal(statistic, both)
    mean = mechanism.estimate(expected, 300).value
    np.testing.assert_allclose(kernel.decode(statistic, 300), mean, rtol=1e-9, atol=1e-12)


@pytest.mark.exact
@everything()
def test_one_client_stays_within_the_limit_and_sums_add(mechanism):
    kernel = kernel_for(mechanism)
    vectors = np.tile(vector_for(mechanism), (50, 1))
    reports = reports_of(kernel, vectors)
    each = [kernel.accumulate(report[None]).numpy() for report in reports]
    assert np.abs(each).max() <= kernel.statistic_limit
    np.testing.assert_array_equal(np.sum(each, axis=0), kernel.accumulate(reports).numpy())


@pytest.mark.exact
@everything()
def test_no_reports_are_decoded_to_zeros(mechanism):
    kernel = kernel_for(mechanism)
    nothing = tf.zeros(kernel.statistic_shape, kernel.statistic_dtype)
    assert kernel.decode(nothing, 0).numpy().tolist() == [0.0] * mechanism.dimension
    assert kernel.accumulate(reports_of(kernel, np.zeros((0, mechanism.dimension)))).shape == (
        kernel.statistic_shape
    )


@pytest.mark.exact
@everything([BLOCK[0], DIRECTIONS[0], DIRECTIONS[5], SCALARS[0]])
def test_config_is_all_a_kernel_needs(mechanism):
    vectors = np.tile(vector_for(mechanism), (20, 1)).astype(np.float32)
    both = [reports_of(kernel_for(m), vectors) for m in (mechanism, mechanism.to_config())]
    np.testing.assert_array_equal(*both)


@pytest.mark.exact
@pytest.mark.parametrize(
    "mechanism, message",
    [
        (PrivUnitInf(4, 1.0), "PrivUnitInf has no TensorFlow kernel; .*LInfMean"),
        (LInfMean(4, 1.0, clipping="raise"), 'clipping must be "clip" on a client'),
        (LInfMean(4, 1.0, preset="thesis"), "preset must be None"),
    ],
)
def test_refusals(mechanism, message):
    with pytest.raises(ValueError, match=message):
        kernel_for(mechanism)


@pytest.mark.exact
def test_vectors_of_another_dimension_are_refused():
    with pytest.raises(ValueError, match=r"vectors must have shape \(n, 4\)"):
        reports_of(kernel_for(LInfMean(4, 1.0)), np.zeros((2, 5)))
