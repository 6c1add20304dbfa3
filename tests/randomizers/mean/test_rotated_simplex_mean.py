"""The turned simplex: its geometry, known errors, the law of what is named, the sum."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean import PrivUnit, RandomCodebookMean, RotatedSimplexMean
from beam_ldp.randomizers.mean.codebooks import fill_axes
from beam_ldp.randomizers.mean.rotated_simplex_mean import SimplexNodes
from beam_ldp.randomizers.normals import spare_words
from beam_ldp.randomizers.words import kernel
from tests.randomizers.mean.golden_errors import golden
from tests.randomizers.published import rotated_simplex_marginal


@kernel
def _axes(seed, count, d, num_words):
    axes = np.empty((count, d))
    fill_axes(seed, np.empty(num_words, np.uint64), np.empty(d + 1, np.int64), axes)
    return axes


def corners(seed, count, d):
    axes = _axes(np.uint64(seed), count, d, spare_words(d))
    return math.sqrt(count / (count - 1)) * (axes - axes.mean(axis=0))


@pytest.mark.exact
@pytest.mark.parametrize(("count", "d"), [(2, 2), (8, 8), (16, 40), (64, 64)])
def test_corners_are_a_regular_simplex(count, d):
    found = corners(5, count, d)
    gram = np.full((count, count), -1 / (count - 1))
    np.fill_diagonal(gram, 1.0)
    assert np.abs(found @ found.T - gram).max() < 1e-11
    assert np.abs(found.sum(axis=0)).max() < 1e-12


@pytest.mark.exact
@pytest.mark.parametrize("bits", [5, 7])
def test_error_has_the_published_figures(bits):
    """Two texts of the same integral, and the figures of the specification."""
    for d, epsilon, figure, half_digit in golden(f"simplex {bits}"):
        mechanism = RotatedSimplexMean(d, epsilon, index_bits=bits, inputs="sphere")
        assert mechanism.marginal == pytest.approx(
            rotated_simplex_marginal(d, epsilon, bits), rel=1e-11
        )
        error = mechanism.mean_squared_error(1)
        assert error == pytest.approx(1 / mechanism.marginal**2 - 1, rel=1e-12)
        best = PrivUnit(d, epsilon, inputs="sphere").mean_squared_error(1)
        assert error / best == pytest.approx(figure, abs=half_digit)
        free = RandomCodebookMean(d, epsilon, index_bits=bits, inputs="sphere")
        assert error < free.mean_squared_error(1)


@pytest.mark.exact
def test_budget_by_enumeration():
    for epsilon in (0.3, 2.0, 8.0):
        mechanism = RotatedSimplexMean(32, epsilon, index_bits=4)
        p, q = mechanism._law.favoured_probability, mechanism._law.other_probability
        assert mechanism.favoured * p + (16 - mechanism.favoured) * q == pytest.approx(1)
        assert epsilon - 1e-8 < mechanism.log_ratio_max() <= epsilon
        assert mechanism.witness_pairs()[0].is_witness
        assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism


@pytest.mark.statistical
def test_heights_have_the_moments_of_the_integrals():
    """4,000 rotations: sums of the highest, and of their squares, within 5 standard errors."""
    d, count = 9, 8
    vector = np.arange(1.0, d + 1)
    vector /= np.linalg.norm(vector)
    nodes = SimplexNodes(d)
    heights = np.array([np.sort(corners(seed, count, d) @ vector)[::-1] for seed in range(4000)])
    for k in (1, 3, 5):
        for power in (1, 2):
            sums = (heights[:, :k] ** power).sum(axis=1)
            error = sums.std() / math.sqrt(len(sums))
            assert abs(sums.mean() - nodes.top_sum(k, count, power)) < 5 * error, (k, power)
    assert nodes.top_sum(8, 8, 2) == pytest.approx(8 / d, rel=1e-9)
    assert nodes.top_sum(8, 8) == pytest.approx(0.0, abs=1e-9)


@pytest.mark.statistical
def test_ranks_are_named_as_often_as_stated_and_the_sum_is_unbiased():
    """30,000 reports: the share of each rank, the mean and the declared error within 5 s.e."""
    mechanism, n = RotatedSimplexMean(5, 2.0, index_bits=2, inputs="sphere", closest=2), 30_000
    vector = np.array([0.0, 0.6, 0.8, 0.0, 0.0])
    reports = mechanism.randomize(np.broadcast_to(vector, (n, 5)), np.random.default_rng(4))
    lists = [corners(int(report) >> 2, 4, 5) for report in reports[:8000]]
    ranks = np.zeros(4)
    for report, found in zip(reports, lists):
        heights = found @ vector
        ranks[np.count_nonzero(heights > heights[int(report) & 3])] += 1
    p, q = mechanism._law.favoured_probability, mechanism._law.other_probability
    law = np.where(np.arange(4) < 2, p, q)
    assert (np.abs(ranks / 8000 - law) < 5 * np.sqrt(law / 8000)).all()
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    assert (np.abs(estimate.value - vector) < 5 * estimate.standard_error).all()
    named = np.array([one[int(r) & 3] for r, one in zip(reports, lists)]) / mechanism.marginal
    squares = ((named - vector) ** 2).sum(axis=1)
    error = squares.std() / math.sqrt(len(squares))
    assert abs(squares.mean() - mechanism.mean_squared_error(1)) < 5 * max(error, 1e-9)
    step = mechanism.accumulate(reports[:8000])[0] / mechanism.fixed_point.largest
    assert step == pytest.approx(named.sum(axis=0) * mechanism.marginal, abs=1e-4)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index_bits": 4}, "dimension must be >= 16"),
        ({"index_bits": 0}, "index_bits must lie"),
        ({"index_bits": 3, "closest": 8}, "closest must lie"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        RotatedSimplexMean(**{"dimension": 10, "local_epsilon": 1.0, **options})


@pytest.mark.exact
def test_plans_take_as_many_corners_as_there_are_dimensions_and_time_for():
    for dimension, bits in ((2, 1), (15, 3), (256, 5), (784, 4), (65_000, 1)):
        found = list(RotatedSimplexMean.variants(dimension))
        assert found == [{"index_bits": bits, "seed_bits": seeds} for seeds in (48, 32)]
