"""Direction times length: budgets add, errors are exact, and the split is the best."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.separated_mean import SeparatedMean, best_split

# typical length, budget of the length, cells, error, error of "lift": dimension 1024, epsilon 16
KNOWN = [
    (0.05, 8.5, 20, 0.566, 48.7),
    (0.2, 4.75, 5, 4.12, 48.7),
    (0.5, 3.25, 2, 18.3, 48.7),
    (1.0, 2.5, 1, 67.8, 48.7),
]


def at_length(d, length):
    vector = np.zeros(d)
    vector[0] = length
    return vector


@pytest.mark.exact
@pytest.mark.parametrize(("length", "magnitude", "cells", "separate", "lifted"), KNOWN)
def test_errors_have_the_known_figures(length, magnitude, cells, separate, lifted):
    truth = at_length(1024, length)
    known = SeparatedMean(1024, 16.0, magnitude_epsilon=magnitude, magnitude_cells=cells)
    lift = SeparatedMean(1024, 16.0, strategy="lift")
    found = SeparatedMean(1024, 16.0, typical_length=length)
    error = known.mean_squared_error(1, truth)
    assert error == pytest.approx(separate, rel=1.5e-3)
    assert lift.mean_squared_error(1, truth) == pytest.approx(lifted, rel=2e-3)
    assert 0.97 * error < found.mean_squared_error(1, truth) <= error * (1 + 1e-9)
    assert best_split(1024, 16.0, length)[1] == cells


@pytest.mark.exact
def test_error_is_the_product_formula():
    mechanism = SeparatedMean(50, 10.0, radius=3.0, magnitude_epsilon=4.0)
    d = PrivUnit(50, 6.0, inputs="sphere").mean_squared_error(1)
    for length in (0.0, 0.4, 2.9):
        v = mechanism.magnitude.variance(1, np.array([length]))[0]
        expected = d * length**2 + (1 + d) * v
        assert mechanism.mean_squared_error(1, at_length(50, length)) == pytest.approx(expected)


@pytest.mark.exact
def test_sign_flip_is_priv_unit():
    flip, plain = SeparatedMean(20, 4.0, strategy="sign_flip"), PrivUnit(20, 4.0)
    truth = at_length(20, 0.3)
    expected = plain.mean_squared_error(1, truth)
    assert flip.mean_squared_error(1, truth) == pytest.approx(expected)
    sphere = PrivUnit(20, 4.0, inputs="sphere").mean_squared_error(1)
    assert expected == pytest.approx(1 + sphere - 0.3**2)
    assert flip.dominating_pair().blanket_mass == plain.dominating_pair().blanket_mass


@pytest.mark.exact
@pytest.mark.parametrize("strategy", ["product", "lift", "sign_flip"])
@pytest.mark.parametrize("epsilon", [0.5, 4.0, 30.0])
def test_budget_is_spent_and_not_exceeded(strategy, epsilon):
    spent = SeparatedMean(100, epsilon, strategy=strategy).log_ratio_max()
    assert epsilon - 1e-8 < spent <= epsilon


@pytest.mark.exact
@pytest.mark.parametrize("strategy", ["product", "lift", "sign_flip"])
def test_worst_case_bounds_every_truth(strategy):
    mechanism = SeparatedMean(6, 6.0, radius=2.0, strategy=strategy)
    worst = mechanism.variance(1)
    total = mechanism.mean_squared_error(1)
    for length in np.linspace(0, 2, 201):
        for truth in (at_length(6, length), np.full(6, length / math.sqrt(6))):
            assert (mechanism.variance(1, truth) <= worst * (1 + 1e-9)).all()
            assert mechanism.mean_squared_error(1, truth) <= total * (1 + 1e-9)
    assert mechanism.mean_squared_error(1, sampling="iid") >= total
    with pytest.raises(ValueError, match="sampling"):
        mechanism.mean_squared_error(1, sampling="all")


@pytest.mark.statistical
@pytest.mark.parametrize("strategy", ["product", "lift", "sign_flip"])
@pytest.mark.parametrize("length", [0.0, 0.7, 2.0, 5.0])
def test_bias_and_error(strategy, length):
    """50,000 reports of one vector: mean within 4 s.e. per coordinate, error within 4 s.e."""
    n, d = 50_000, 7
    mechanism = SeparatedMean(d, 6.0, radius=2.0, strategy=strategy)
    direction = np.arange(1.0, d + 1) / math.sqrt(sum(i * i for i in range(1, d + 1)))
    target = min(length, 2.0) * direction
    values = np.broadcast_to(length * direction, (n, d))
    reports = mechanism.randomize(values, np.random.default_rng(int(10 * length)))
    estimate = mechanism.estimate(mechanism.accumulate(reports), n)
    exact = mechanism.variance(n, target)
    assert (np.abs(estimate.value - target) < 4 * np.sqrt(exact)).all()
    errors = ((mechanism.fixed_point.decode(reports) - target) ** 2).sum(axis=1)
    predicted = mechanism.mean_squared_error(1, target)
    assert abs(errors.mean() - predicted) < 4 * errors.std() / math.sqrt(n)


@pytest.mark.exact
def test_paper_parameters_and_config():
    mechanism = SeparatedMean(
        100, 60.0, magnitude_epsilon=10.0, magnitude_cells=29, preset="experiments"
    )
    assert mechanism.magnitude.points.size == 30
    assert mechanism.direction.local_epsilon == pytest.approx(50.0)
    assert LocalRandomizer.from_config(mechanism.to_config()) == mechanism
    reports = mechanism.randomize(np.zeros((3, 100)))
    assert np.array_equal(mechanism.unpack(mechanism.pack(reports), 3), reports)


REFUSED = [
    ({"strategy": "sum"}, "strategy must be"),
    ({"typical_length": 0.0}, "typical_length must lie"),
    ({"magnitude_epsilon": 1.0}, "magnitude_epsilon must lie"),
    ({"inputs": "sphere"}, "inputs must be"),
]


@pytest.mark.exact
@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_parameters_that_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SeparatedMean(**{"dimension": 10, "local_epsilon": 1.0, **options})
