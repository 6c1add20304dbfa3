"""Mechanisms that the specification does not hold, against what is written down of them beyond it.

Finite ones word by word; of directions each coordinate is what a number within 1e-12 of ours, of
the longest, is rounded to.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_ldp.randomizers.frequency import LimitedHadamard, Rappor, RefinableResponse
from beam_ldp.randomizers.mean import PrivUnit, PrivUnitGaussian, PrivUnitInf, SeparatedMean
from beam_ldp.randomizers.mean.priv_unit_gaussian import NormalTail
from spec import frequency, wire
from tests.spec import beyond, beyond_directions, compare

pytestmark = pytest.mark.exact

REFINABLE = {
    f"{design}, {len(levels)} levels": RefinableResponse(size, levels[-1], levels, design)
    for size, levels, design in (
        (7, (2.0, 1.0, 0.3), "singer:2,3"), (5, (6.0, 1e-3), "single"), (20, (1.0,), "paley:23"),
        (100, (8.0, 4.0, 2.0, 1.0, 0.5), "singer:11,3"), (2, (1.0, 0.5), "single"),
    )
}  # fmt: skip
LIMITED = {
    f"{mode}, {bits:g} bits, {size} values": LimitedHadamard(size, epsilon, bits, mode)
    for mode, bits, size, epsilon in (
        ("binary", 0.42, 12, 1.0), ("binary", 2.0, 12, 1.0), ("binary", 0.05, 2, 4.0),
        ("ternary", 0.42, 12, 1.0), ("ternary", 0.6, 100, 0.2), ("timeshare", 0.42, 12, 1.0),
        ("timeshare", 0.9, 300, 8.0), ("uniform_key", 3.0, 12, 1.0), ("uniform_key", 9.0, 33, 5.0),
    )
}  # fmt: skip
BLOOM = {
    "one filter": Rappor(4, 1.0, num_hashes=2, num_bits=9),
    "two cohorts": Rappor(6, 2.0, 3.0, num_hashes=1, num_bits=8, num_cohorts=2),
    "70 bits": Rappor(5, 4.0, num_hashes=3, num_bits=70, num_cohorts=4),
    "the original's rates": Rappor.from_rates(6, num_hashes=2, num_bits=16, num_cohorts=8),
    "no filter": Rappor.from_rates(6),
}
CORNERS = [(1, 1.0), (2, 0.01), (5, 2.0), (64, 4.0), (65, 8.0), (130, 1.0), (12, 7.0), (33, 12.0)]
DIRECTIONS = {
    "plain": PrivUnit(6, 4.0),
    "two dimensions": PrivUnit(2, 1.0, radius=3.0),
    "three": PrivUnit(3, 8.0, inputs="sphere"),
    "hardly any budget": PrivUnit(10, 0.05),
    "much": PrivUnit(50, 30.0, radius=0.01),
    "few bits": PrivUnit(20, 6.0, coordinate_bits=9),
    "normal": PrivUnitGaussian(6, 4.0),
    "normal, hardly any budget": PrivUnitGaussian(3, 0.1, radius=2.0),
    "normal, much": PrivUnitGaussian(40, 12.0, inputs="sphere", coordinate_bits=16),
    "apart": SeparatedMean(8, 6.0, magnitude_epsilon=2.0, magnitude_cells=3),
    "apart, few bits": SeparatedMean(
        30, 9.0, 5.0, magnitude_epsilon=1.5, magnitude_cells=2, coordinate_bits=12
    ),
    "at random": PrivUnit(21, 6.0, 2.0, coordinate_bits=6, rounding="random"),
    "apart, at random": SeparatedMean(
        21,
        8.0,
        2.0,
        magnitude_epsilon=2.0,
        magnitude_cells=3,
        coordinate_bits=8,
        rounding="random",
    ),
}


def made(mechanism: Any) -> Any:
    """What is written down of a mechanism, from its configuration."""
    function = {**vars(beyond), **vars(beyond_directions)}[type(mechanism).__name__]
    config = json.loads(json.dumps(mechanism.to_config()))
    if isinstance(mechanism, PrivUnitGaussian):  # the best up to 1e-9, see below
        config["threshold"] = mechanism.tail.threshold
    if config.get("rounding") == "random":  # likewise
        config["end"] = mechanism._largest_coordinate
    told = inspect.signature(function).parameters
    return function(**{name: config[name] for name in told if name in config})


def test_of_the_standard_library_and_the_specification_alone():
    sources = [Path(module.__file__).read_text("utf-8") for module in (beyond, beyond_directions)]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    for node in nodes:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            allowed = {*sys.stdlib_module_names, "spec", "tests.spec.beyond"}
            assert name in allowed or name.split(".")[0] in allowed, name


# Frequency oracles ----------------------------------------------------------------------------


def check(oracle: Any, count: int = 40) -> None:
    values = np.random.default_rng(1).integers(0, oracle.domain_size, count)
    values[:4] = [0, oracle.domain_size - 1] * 2
    words = compare.words_for(oracle.words_per_user, count, 2)
    compare.check(oracle, values, words, made(oracle))


@pytest.mark.parametrize("name", REFINABLE)
def test_refinable_responses(name):
    oracle = REFINABLE[name]
    check(oracle)
    words = np.full((4, oracle.words_per_user), 1, dtype=np.uint64)
    for step, coin in enumerate(oracle._law.coins):  # beside each coin
        words[:, 1 + 2 * step] = [coin - 1, coin, coin - 1, coin]
        words[:, 2 + 2 * step] = [1, 1, 2, 2]
        compare.check(oracle, np.array([0, 0, 1, 1]), words, made(oracle))


@pytest.mark.parametrize("name", LIMITED)
def test_limited_hadamard(name):
    oracle = LIMITED[name]
    law = beyond.limited_law(oracle.local_epsilon, oracle.random_bits, oracle.mode)
    assert law == tuple(oracle._law)
    check(oracle, 120)
    edges = [edge for bound in law for edge in (bound - 1, min(bound, compare.WORDS - 1))]
    words = np.array([*itertools.product((0, 1 << 63, law[3] - 1), edges)], dtype=np.uint64)
    for value in range(2):
        compare.check(oracle, np.full(len(words), value), words, made(oracle))


@pytest.mark.parametrize("name", BLOOM)
def test_bloom_filters(name):
    check(BLOOM[name])


# Means ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dimension", "epsilon"), CORNERS)
def test_corners(dimension, epsilon):
    mechanism = PrivUnitInf(dimension, epsilon, radius=0.3)
    places, size, heads = beyond.corner_law(dimension, epsilon)
    assert places == mechanism.places
    assert heads == pytest.approx(mechanism.coin.threshold, rel=1e-12)
    share = math.exp(float(mechanism.caps.log_inside[places]))
    assert size / 2**dimension == pytest.approx(share, rel=1e-12)
    values = np.random.default_rng(3).uniform(-0.3, 0.3, (40, dimension))
    values[:3] = [[0.0], [0.3], [-0.3]]
    words = compare.words_for(mechanism.words_per_user, 40, 4)[6:]  # one kind alone never ends
    compare.check(mechanism, values[6:], words, made(mechanism))
    compare.check(mechanism, values[:34], words, made(mechanism))


def test_steps_of_a_narrow_cap():
    """1,500 corners of twelve dimensions, so that about ten steps are thinned at their edge."""
    mechanism = PrivUnitInf(12, 7.0)
    words = compare.words_for(mechanism.words_per_user, 1506, 9)[6:]
    compare.check(mechanism, np.ones((1500, 12)), words, made(mechanism))


@pytest.mark.parametrize("name", DIRECTIONS)
def test_directions(name):
    mechanism = DIRECTIONS[name]
    spec, real = made(mechanism)
    assert spec.words == mechanism.words_per_user
    values = np.random.default_rng(5).normal(size=(60, mechanism.dimension))
    values[0] = 0.0
    values[1] = np.eye(mechanism.dimension)[0] * mechanism.radius
    if mechanism.inputs == "ball":
        values[2:40] *= mechanism.radius / 3
        values[40:] *= 1e-3 * mechanism.radius
    values = mechanism._check_values(values)
    words = compare.words_for(spec.words, 66, 6)[6:]
    reports = np.empty((60, mechanism.dimension), dtype=mechanism.report_dtype)
    mechanism._randomize_block(values, words, compare.extra_words, reports)
    largest = float(mechanism.fixed_point.largest)
    for i, (x, row) in enumerate(zip(values.tolist(), words.tolist())):
        told = np.array(real(x, compare.words_of(row, i)))
        if isinstance(mechanism, SeparatedMean):  # whose direction was rounded before
            assert np.abs(reports[i] - told).max() <= 1.5
        assert np.abs(reports[i] - told).max() <= 0.5 + 1e-12 * largest
    half = 1 << mechanism.coordinate_bits - 1
    mine = (reports.astype(np.int64) + half).tolist()
    assert (
        b"".join(wire.pack(spec, report) for report in mine)
        == mechanism.pack_each(reports).tobytes()
    )
    found = mechanism.estimate(mechanism.accumulate(reports), 60).value
    exact = [float(frequency.estimate(spec, mine, j)) for j in range(mechanism.dimension)]
    np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12 * float(spec.gain) * largest)


def test_laws_of_caps():
    """Height, coin and mean of the best cap, over dimensions and budgets; the share of the cap by
    a series of positive terms, which the product takes from a continued fraction."""
    few = itertools.product((2, 3, 6, 50), (0.3, 1.0, 4.0, 12.0, 30.0))
    for d, epsilon in [*few, (784, 4.0), (3000, 8.0)]:
        mechanism = PrivUnit(d, epsilon)
        g, heads, m = beyond_directions.cap_law(d, epsilon)
        assert g == pytest.approx(mechanism.cap.threshold, rel=1e-12)
        assert heads == pytest.approx(mechanism.coin.threshold, rel=1e-12)
        assert m == pytest.approx(mechanism.marginal, rel=1e-12)
        share, _ = beyond_directions.cap(d, mechanism.cap.threshold)
        assert share == pytest.approx(mechanism.cap.measure, rel=1e-12, abs=0)
        assert m == pytest.approx(g, rel=1e-6)  # where the best cap is


def test_the_tail_of_least_error_is_found():
    """No threshold 1e-4 above or below is better."""
    for d, epsilon in ((3, 0.1), (6, 4.0), (40, 12.0)):
        best = PrivUnitGaussian(d, epsilon).tail.threshold

        def error(t: float, d: int = d, epsilon: float = epsilon) -> float:
            tail = NormalTail(t)
            p = 1 / (1 + math.exp(tail.log_odds_outside - epsilon))
            return (d - 1 + tail.second_moment(p)) / tail.marginal(p) ** 2

        assert error(best) < min(error(best * (1 + 1e-4)), error(best * (1 - 1e-4)))
