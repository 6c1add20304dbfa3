"""Trees over bins: consistency against dense least squares, errors, quantiles and their cover."""

from __future__ import annotations

import numpy as np
import pytest

from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.frequency import KRandomizedResponse, SubsetSelection
from beam_ldp.randomizers.hierarchy import Hierarchy, rare_variance
from beam_ldp.randomizers.questions import EveryQuestion, OneQuestion


def tree_matrix(tree: Hierarchy) -> np.ndarray:
    """Which cells each node holds, level by level."""
    rows = []
    for width, size in zip(tree.widths, tree.sizes):
        block = np.zeros((size, tree.num_cells))
        block[np.arange(tree.num_cells) // width, np.arange(tree.num_cells)] = 1.0
        rows.append(block)
    return np.concatenate(rows)


@pytest.mark.exact
@pytest.mark.parametrize("bins", ["0,10,20", "0:1:6", "0:1:14", "0:1:24"])
@pytest.mark.parametrize("fan_out", [2, 3, 5, 100])
def test_two_passes_are_dense_weighted_least_squares(bins, fan_out):
    """Also for trees whose last nodes have fewer children; the total is held exactly."""
    tree = Hierarchy(Bins.parse(bins), fan_out)
    rng = np.random.default_rng(3)
    variances = tuple(rng.uniform(0.5, 2.0, len(tree.sizes)))
    nodes = rng.normal(size=sum(tree.sizes))
    matrix, constant = tree.least_squares(variances)
    found = matrix @ nodes + constant
    holds = tree_matrix(tree)
    weights = np.repeat(1 / np.array(variances), tree.sizes)
    cells = tree.num_cells
    bordered = np.block([
        [holds.T @ (weights[:, None] * holds), np.ones((cells, 1))],
        [np.ones((1, cells)), np.zeros((1, 1))],
    ])  # fmt: skip
    expected = np.linalg.solve(bordered, np.append(holds.T @ (weights * nodes), 1.0))[:-1]
    np.testing.assert_allclose(found, expected, atol=1e-9)
    assert found.sum() == pytest.approx(1.0)


@pytest.mark.exact
def test_what_agrees_already_is_left_alone():
    tree = Hierarchy(Bins.parse("0:1:9"), 3)
    cells = np.random.default_rng(0).dirichlet(np.ones(tree.num_cells))
    matrix, constant = tree.least_squares((1.0,) * len(tree.sizes))
    np.testing.assert_allclose(matrix @ (tree_matrix(tree) @ cells) + constant, cells, atol=1e-12)


@pytest.mark.exact
def test_levels_and_cells():
    tree = Hierarchy(Bins.parse("0:8:8"), 4)
    assert tree.sizes == (3, 10) and tree.widths == (4, 1)
    assert tree.labels[0] == "below 0" and tree.labels[-1] == "above 8"
    values = np.array([-5.0, 0.0, 7.5, 8.0, 8.1])
    assert tree.cells(values).tolist() == [0, 1, 8, 8, 9]
    assert tree.encode(values)[:, 0].tolist() == [0, 0, 2, 2, 2]
    assert Hierarchy(Bins.parse("0:8:8"), 10).sizes == (10,)
    with pytest.raises(ValueError, match="fan_out"):
        Hierarchy(Bins.parse("0:8:8"), 1)
    with pytest.raises(ValueError, match="at most 2,048"):
        Hierarchy(Bins.parse("0:8:3000"), 4)


def ask(tree, kind, values, rng, local_epsilon=3.0):
    budget = local_epsilon if kind is OneQuestion else local_epsilon / len(tree.sizes)
    survey = kind(tuple(SubsetSelection(size, budget) for size in tree.sizes))
    statistic = survey.accumulate(survey.randomize(tree.encode(values), rng))
    levels = survey.estimates(statistic, len(values), sampling="iid")
    answers = survey.answers(statistic) or (len(values),) * len(levels)
    return tree.consistent(survey.oracles, levels, answers)


@pytest.mark.statistical
@pytest.mark.parametrize("kind", [OneQuestion, EveryQuestion])
def test_errors_of_ranges_are_the_spread_of_ranges(kind):
    """300 surveys of 2,000 people; each ratio of variances within 5 of its standard errors.

    Where everybody answers every level the draw of the people is common to the levels; the values
    are drawn anew in every survey, and errors must still hold.
    """
    tree = Hierarchy(Bins.parse("0:16:14"), 4)
    rng = np.random.default_rng(11)
    law = np.random.default_rng(0).dirichlet(np.ones(14))
    found, said = [], []
    for _ in range(300):
        values = rng.choice(14, 2000, p=law) * (16 / 14) + 0.1
        ranges = ask(tree, kind, values, rng)
        sums = ranges.sums(np.eye(tree.num_cells)[[3, 5]].sum(axis=0))
        cut = ranges.cumulative
        found.append([sums.value[0], cut.value[4], cut.value[9]])
        said.append([sums.standard_error[0], cut.standard_error[4], cut.standard_error[9]])
    truth = np.array([law[2] + law[4], law[:4].sum(), law[:9].sum()])
    off = (np.mean(found, axis=0) - truth) / (np.std(found, axis=0) / np.sqrt(300))
    assert np.abs(off).max() < 5
    ratio = np.var(found, axis=0) / np.mean(np.square(said), axis=0)
    assert np.abs(ratio - 1).max() < 5 * np.sqrt(2 / 299), ratio


@pytest.mark.statistical
def test_quantile_intervals_hold_as_often_as_they_say():
    """300 surveys; fewer than 270 hits of a 95 % interval have probability below 1e-3 per quantile,
    and intervals that always held would be useless: their width is looked at too."""
    tree = Hierarchy(Bins.parse("0:1:62"), 8)
    rng = np.random.default_rng(5)
    hits, widths = np.zeros(3), []
    levels = (0.1, 0.5, 0.9)
    truth = np.sqrt(levels)  # density 2x
    for _ in range(300):
        values = np.sqrt(rng.uniform(size=20_000))
        for i, quantile in enumerate(ask(tree, OneQuestion, values, rng).quantiles(levels)):
            hits[i] += quantile.low <= truth[i] <= quantile.high
            widths.append(quantile.high - quantile.low)
            assert quantile.low <= quantile.value <= quantile.high or abs(quantile.value) < 2
    assert hits.min() >= 270, hits
    assert np.median(widths) < 0.2


@pytest.mark.exact
def test_ranges_ends_and_quantiles_beyond_the_bins():
    tree = Hierarchy(Bins.parse("0,10,20"), 4)
    oracle = KRandomizedResponse(4, 4.0)
    values = np.array([5.0] * 500 + [25.0] * 500)
    survey = OneQuestion((oracle,))
    statistic = np.array([1000, 0, 500, 0, 500])  # as if nobody had lied
    levels = survey.estimates(statistic, 1000, sampling="iid")
    ranges = tree.consistent((oracle,), levels, (1000,))
    assert ranges.between(-np.inf, np.inf).value[0] == pytest.approx(1.0)
    assert ranges.between(-np.inf, np.inf).standard_error[0] == pytest.approx(0.0, abs=1e-9)
    assert ranges.between(0, 20).value[0] == pytest.approx(0.5, abs=0.02)
    assert len(values) == 1000
    with pytest.raises(ValueError, match="not an edge of the bins; the nearest is 10"):
        ranges.between(9.0, 20.0)
    with pytest.raises(ValueError, match="low must be below high"):
        ranges.between(20.0, 10.0)
    median, ninth = ranges.quantiles((0.4, 0.9))
    assert 0 < median.value < 10 and median.low == 0.0 and median.high == 10.0
    assert ninth.value == np.inf and ninth.high == np.inf
    with pytest.raises(ValueError, match="quantiles"):
        ranges.quantiles((1.0,))
    assert rare_variance(oracle, 1000) > 0
