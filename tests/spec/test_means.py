"""Means of the product against the specification: reports word by word, estimates to 1e-12."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers.mean import BinaryVectorMean, L1Mean, L2Mean, LInfMean, ScalarMean
from spec import means
from tests.spec import compare

pytestmark = pytest.mark.exact

LEVELS = {"messages": (2, 3, 2), "message_epsilons": (1.0, 0.8, 0.5)}
MEANS = {
    "scalar": ScalarMean(1, 4.0, radius=100.0, cells=5),
    "scalar, signed": ScalarMean(1, 0.01, radius=0.3, signed=True, cells=7),
    "scalar, one cell": ScalarMean(1, 9.0, cells=1),
    "scalar, relative": ScalarMean(1, 2.0, radius=7.0, grid="relative", floor=0.03, ratio=1.5),
    "scalar, corrected": ScalarMean(1, 5.0, radius=0.1, grid="corrected_relative", floor=0.02),
    "scalar, corrected, signed": ScalarMean(1, 0.1, signed=True, grid="corrected_relative"),
    "binary": BinaryVectorMean(4, 1.7),
    "binary, every coordinate": BinaryVectorMean(3, 6.0),
    "linf": LInfMean(5, 2.0),
    "linf, one number": LInfMean(1, 0.01),
    "linf, at the cap": LInfMean(5, 30.0, radius=0.01),
    "linf, levels": LInfMean(7, 5.4, **LEVELS),
    "linf, messages twice": LInfMean(3, 6.0, messages=(6,), message_epsilons=(1.0,)),
    "l1": L1Mean(12, 3.0, radius=2.0),
    "l1, two": L1Mean(2, 0.1),
    "l2": L2Mean(20, 4.0),
    "l2, seed": L2Mean(100, 8.0, radius=3.0, rotation_seed=5),
    "l2, levels": L2Mean(8, 8.0, messages=(8, 8), message_epsilons=(0.6, 0.4)),
}  # fmt: skip


def vectors_for(mechanism, count: int, seed: int = 1) -> np.ndarray:
    """Inside the ball, on its surface, at its corners, and zero."""
    generator = np.random.default_rng(seed)
    vectors = generator.uniform(-1, 1, (count, mechanism.dimension)) * mechanism.radius
    vectors[:4] = np.array([0.0, 1.0, -1.0, 0.5])[:, None] * mechanism.radius
    if mechanism.norm == "binary":
        return (vectors > 0).astype(float)
    return mechanism._check_values(vectors)


@pytest.mark.parametrize("name", MEANS)
def test_word_by_word(name):
    mechanism = MEANS[name]
    values = vectors_for(mechanism, 24)
    compare.check(mechanism, values, compare.words_for(mechanism.words_per_user, 24, 2))
    if isinstance(mechanism, ScalarMean):
        return
    spec, c = compare.specified(mechanism), mechanism.layout.columns
    assert spec.counts == (2 * c.size).tolist()


@pytest.mark.parametrize("name", MEANS)
def test_extreme_values_under_the_words_beside_their_thresholds(name):
    """The first message of the least and of the largest coordinate: the words at which its bit
    changes are those of the integers alone."""
    mechanism = MEANS[name]
    if isinstance(mechanism, ScalarMean):
        factor, thresholds = len(mechanism.points), [mechanism._law.threshold] * 2
    else:
        c = mechanism.layout.columns
        factor, low = int(c.size[0]), int(c.low[0])
        thresholds = [low, compare.WORDS - low]
    for side, threshold in enumerate(thresholds):
        end, bits = mechanism.radius * (2 * side - 1), []
        for word in compare.words_beside(threshold, factor):
            values = np.full((1, mechanism.dimension), max(end, 0.0))
            if mechanism.norm == "linf":
                values = np.full((1, mechanism.dimension), end)
            values = mechanism._check_values(values)
            words = np.full((1, mechanism.words_per_user), word, dtype=np.uint64)
            reports, mine = compare.both(mechanism, values, words)
            assert reports.reshape(1, -1).tolist() == mine
            bits.append(mine[0][0])
        if mechanism.norm in ("linf", "binary") and not isinstance(mechanism, ScalarMean):
            assert [bit % 2 for bit in bits] == [1, 0]


@pytest.mark.parametrize(("norm", "make"), [("l1", L1Mean), ("l2", L2Mean), ("linf", LInfMean)])
def test_clipping(norm, make):
    mechanism = make(5, 2.0, radius=0.7)
    sizes = np.tile([0.01, 1.0, 1e6, 1e-9, 3.0], 10)
    vectors = np.random.default_rng(3).uniform(-1, 1, (50, 5)) * sizes[:, None]
    told = [means.clip(row, norm, 0.7) for row in vectors.tolist()]
    np.testing.assert_allclose(told, mechanism._check_values(vectors), rtol=1e-12)


def test_relative_grids():
    """Their points, to the last digits: the law counts them, so a point more is another law."""
    for floor, ratio, epsilon in ((0.05, 1.1, 4.0), (0.3, 2.0, 0.01), (1e-3, 1.01, 9.0)):
        for grid in ("relative", "corrected_relative"):
            mechanism = ScalarMean(1, epsilon, 3.0, grid=grid, floor=floor, ratio=ratio)
            spec = compare.specified(mechanism)
            told = [spec.read([i], 0) for i in range(spec.counts[0])]
            np.testing.assert_allclose(told, mechanism.points, rtol=1e-12)


def test_rounding_to_the_grid_is_unbiased_in_the_specification():
    """Of the first word, evenly spread; the second speaks for the number."""
    spec = means.ScalarMean(4.0, 10.0, False, "uniform", 5, 0.05, 1.1)
    words = [(2 * w + 1) << 52 for w in range(1 << 11)]
    for number in (0.0, 3.3, 6.0, 9.99, 10.0):
        reports = [spec.randomize([number], [word, 0].__getitem__) for word in words]
        points = [2.0 * report[0] for report in reports]
        assert sum(points) / len(points) == pytest.approx(number, abs=2e-3)
