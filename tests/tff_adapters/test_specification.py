"""TensorFlow's kernels against the specification, as `tests/spec` holds NumPy against it.

A kernel draws a message's place and its bit apart; the specification takes both from one word: the
halves of its product with the size of the block. Given those halves, the kernel has to send the
same report. Directions are held to what is written down beyond it (`tests/spec`): given coins,
heights and normals, each coordinate is what a number within 1e-12 of theirs is rounded to.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from beam_ldp.randomizers.mean import (
    BinaryVectorMean,
    L1Mean,
    L2Mean,
    LInfMean,
    PrivUnit,
    PrivUnitGaussian,
    ScalarMean,
)
from spec import frequency, means, wire
from tests.spec import beyond_directions
from tests.spec.compare import EXACT, WORDS, specified, words_for, words_of
from tests.spec.test_beyond import made
from tff_adapters.kernels import directions, kernel_for
from tff_adapters.kernels.base import clip_to_ball

pytestmark = pytest.mark.exact

MECHANISMS = {
    "binary": BinaryVectorMean(4, 1.7),
    "binary, every coordinate": BinaryVectorMean(3, 6.0),
    "linf": LInfMean(5, 2.0),
    "linf, one number": LInfMean(1, 0.01),
    "linf, at the cap": LInfMean(5, 30.0, radius=0.01),
    "linf, levels": LInfMean(7, 4.0, messages=(2, 3), message_epsilons=(0.8, 0.8)),
    "linf, messages twice": LInfMean(3, 6.0, messages=(6,), message_epsilons=(1.0,)),
    "l1": L1Mean(12, 3.0),
    "l2": L2Mean(100, 8.0, radius=3.0, rotation_seed=5),
    "scalar": ScalarMean(1, 4.0, radius=5.0),
    "scalar, signed": ScalarMean(1, 2.0, signed=True),
    "scalar, relative": ScalarMean(1, 2.0, grid="relative", floor=0.03, ratio=1.5),
    "scalar, corrected": ScalarMean(1, 5.0, radius=2.0, grid="corrected_relative"),
}


class Halves:
    """A generator that gives what the specification makes of these words."""

    def __init__(self, words: np.ndarray, sizes: np.ndarray, coins: np.ndarray) -> None:
        products = words.astype(object) * sizes.astype(object)
        self.coins = ((coins >> np.uint64(12)).astype(float) + 0.5) * 2.0**-52
        self.high = (products >> 64).astype(np.int64)
        low = (products % WORDS).astype(np.uint64)
        self.full = [low, (2 * self.high).astype(np.uint64)]  # bits, then places

    def uniform_full_int(self, shape: Any, dtype: Any) -> Any:
        return tf.constant(self.full.pop(0).reshape(np.asarray(shape)), dtype)

    def uniform(
        self, shape: Any, minval: Any = 0, maxval: Any = None, dtype: Any = tf.float64
    ) -> Any:
        drawn = self.coins if dtype == tf.float64 else self.high
        return tf.constant(drawn.reshape(np.asarray(shape)), dtype)


@pytest.mark.parametrize("name", MECHANISMS)
def test_word_by_word(name):
    """Reports, their bytes, and what is read from them; extreme words and values among them."""
    mechanism, count = MECHANISMS[name], 30
    kernel, spec = kernel_for(mechanism), specified(mechanism)
    vectors = np.random.default_rng(4).uniform(-1, 1, (count, mechanism.dimension))
    vectors[:3] = np.array([[0.0], [1.0], [-1.0]])
    vectors *= mechanism.radius
    if mechanism.norm == "binary":
        vectors = (vectors > 0).astype(float)
    vectors = mechanism._check_values(vectors)
    words = words_for(spec.words, count, 6)
    scalar = isinstance(mechanism, ScalarMean)
    sizes = np.array([len(mechanism.points)]) if scalar else mechanism.layout.columns.size
    halves = Halves(words[:, 1:] if scalar else words, sizes, words[:, 0])
    reports = kernel.respond(tf.constant(vectors), halves)
    mine = [spec.randomize(x, words_of(row)) for x, row in zip(vectors.tolist(), words.tolist())]
    assert reports.numpy().reshape(count, -1).tolist() == mine
    packed = kernel.pack(reports).numpy()
    assert [row.tobytes() for row in packed] == [wire.pack(spec, report) for report in mine]
    decoded = kernel.decode(kernel.accumulate(reports), count).numpy()
    told = [float(frequency.estimate(spec, mine, j)) for j in range(mechanism.dimension)]
    most = float(spec.gain) * max(abs(spec.read(report, 0)) for report in mine)
    np.testing.assert_allclose(decoded, told, rtol=EXACT, atol=EXACT * most)


def kept(function: Any, results: list[Any]) -> Any:
    """The same function, whose results are listed."""

    def call(*args: Any) -> Any:
        results.append(function(*args))
        return results[-1]

    return call


DIRECTIONS = {
    "sphere": PrivUnit(6, 4.0, inputs="sphere"),
    "ball": PrivUnit(50, 12.0, radius=3.0),
    "two dimensions": PrivUnit(2, 1.0),
    "few bits": PrivUnit(20, 6.0, coordinate_bits=9),
    "normal": PrivUnitGaussian(6, 4.0),
    "normal, small": PrivUnitGaussian(3, 0.1, radius=0.01, coordinate_bits=16),
}


@pytest.mark.parametrize("name", DIRECTIONS)
def test_directions(name, monkeypatch):
    mechanism, count = DIRECTIONS[name], 30
    kernel, (spec, real) = kernel_for(mechanism), made(mechanism)
    given: dict[str, list[Any]] = {"normals": [], "height": [], "in_tail": []}
    for part, drawn in given.items():
        monkeypatch.setattr(beyond_directions, part, kept(vars(beyond_directions)[part], drawn))
    vectors = np.random.default_rng(4).normal(size=(count, mechanism.dimension))
    vectors *= mechanism.radius / np.linalg.norm(vectors, axis=1, keepdims=True)
    if mechanism.inputs == "ball":
        vectors *= np.linspace(0.0, 1.0, count)[:, None]  # zero, and up to the surface
    words = words_for(spec.words, count + 6, 6)[6:]
    told = np.array([real(x, words_of(row)) for x, row in zip(vectors.tolist(), words.tolist())])
    coins = ((words[:, 0] >> np.uint64(12)) + 0.5) * 2.0**-52
    heights = given["in_tail"] or [t for t, _ in given["height"]]
    monkeypatch.setattr(directions, "uniform", lambda *_: tf.constant(coins))
    monkeypatch.setattr(directions, "normal", lambda *_: tf.constant(given["normals"], tf.float64))
    monkeypatch.setattr(kernel, "heights", lambda *_: tf.constant(heights, tf.float64))
    reports = kernel.respond(tf.constant(vectors), None)
    largest = float(mechanism.fixed_point.largest)
    assert np.abs(reports.numpy() - told).max() <= 0.5 + EXACT * largest
    half = 1 << mechanism.coordinate_bits - 1
    mine = (reports.numpy().astype(np.int64) + half).tolist()
    packed = kernel.pack(reports).numpy()
    assert [row.tobytes() for row in packed] == [wire.pack(spec, report) for report in mine]
    decoded = kernel.decode(kernel.accumulate(reports), count).numpy()
    read = [float(frequency.estimate(spec, mine, j)) for j in range(mechanism.dimension)]
    np.testing.assert_allclose(decoded, read, rtol=EXACT, atol=EXACT * largest * float(spec.gain))


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_clipping(norm):
    sizes = np.tile([0.01, 1.0, 1e6, 1e-9, 3.0], 4)
    vectors = np.random.default_rng(3).uniform(-1, 1, (20, 5)) * sizes[:, None]
    told = [means.clip(row, norm, 0.7) for row in vectors.tolist()]
    np.testing.assert_allclose(clip_to_ball(tf.constant(vectors), norm, 0.7), told, rtol=EXACT)
