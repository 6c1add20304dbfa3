"""Gradients of small models: right, exact without noise, and behind mechanisms below the bounds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting.reconstruction import DiffuseTarget, breach_probability
from beam_ldp.randomizers.mean import L2Mean, PrivUnit, SeparatedMean
from beam_ldp.research.attacks.gradient_inversion import (
    SmallNetwork,
    invert_messages,
    invert_rank_one,
    invert_with_errors,
)

INPUTS, CLASSES = 16, 4


def network(hidden: int) -> SmallNetwork:
    return SmallNetwork.drawn(INPUTS, CLASSES, hidden, seed=3)


def spheres(count: int) -> np.ndarray:
    """Examples in uniform directions, of length 1."""
    x = np.random.default_rng(5).standard_normal((count, INPUTS))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def loss(layers: list[np.ndarray], x: np.ndarray, label: int) -> float:
    scores = layers[0] @ np.append(x, 1.0)
    if len(layers) == 2:
        scores = layers[1] @ np.append(np.tanh(scores), 1.0)
    return float(np.logaddexp.reduce(scores) - scores[label])


@pytest.mark.exact
@pytest.mark.parametrize("hidden", [0, 5])
def test_gradients_are_differences_of_the_loss(hidden: int) -> None:
    net, x, h = network(hidden), spheres(1)[0], 1e-6
    found = net.gradient(x, 2)
    assert found.shape == (net.num_parameters,)
    for i in np.random.default_rng(0).integers(net.num_parameters, size=25):
        flat = np.concatenate([layer.ravel() for layer in net.layers])
        ends = []
        for sign in (1, -1):
            moved = flat.copy()
            moved[i] += sign * h
            parts = np.split(moved, [net.layers[0].size])[: len(net.layers)]
            shaped = [p.reshape(w.shape) for p, w in zip(parts, net.layers)]
            ends.append(loss(shaped, x, 2))
        assert (ends[0] - ends[1]) / (2 * h) == pytest.approx(found[i], abs=1e-8)


@pytest.mark.exact
@pytest.mark.parametrize("hidden", [0, 1, 5])
def test_without_noise_both_attackers_have_the_example_itself(hidden: int) -> None:
    """Its size and sign too: the entry for b is the unit."""
    net, x = network(hidden), 3 * spheres(6)
    for knows in (True, False):
        found = invert_messages(net, x, np.arange(6) % CLASSES, None, knows_errors=knows)
        np.testing.assert_allclose(found.recovered, x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found.cosine, 1.0)


@pytest.mark.exact
def test_an_entry_for_b_that_is_zero_leaves_a_direction() -> None:
    layer = np.outer([1.0, -2.0], [3.0, 4.0, 0.0])
    assert np.abs(invert_rank_one(layer)).tolist() == pytest.approx([0.6, 0.8])
    assert np.abs(invert_with_errors(layer, np.eye(2))).tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.exact
def test_the_label_whose_errors_explain_most_is_taken() -> None:
    errors = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
    x = np.array([2.0, 5.0, 1.0])
    noise = np.outer([1.0, 1.0, 1.0], [100.0, -50.0, 30.0])  # no label's errors see it
    for row in errors:
        assert invert_with_errors(np.outer(row, x) + noise, errors).tolist() == [2.0, 5.0]
    assert invert_rank_one(np.outer(errors[0], x) + noise).tolist() != pytest.approx([2.0, 5.0])


@pytest.mark.statistical
@pytest.mark.parametrize("make", [PrivUnit, SeparatedMean, L2Mean])
def test_attacks_stay_below_the_bound_and_find_nothing_at_small_budgets(make: type) -> None:
    """Uniform examples, which are what the bound is about; 5 standard errors of 1500."""
    net, count = network(0), 1500
    x, labels = spheres(count), np.arange(count) % CLASSES
    for epsilon in (1.0, 4.0, 8.0):
        mechanism = make(net.num_parameters, epsilon, 2.5)
        found = invert_messages(net, x, labels, mechanism, rng=np.random.default_rng(1))
        for cosine in (0.5, 0.8):
            bound = breach_probability(DiffuseTarget(INPUTS, cosine), epsilon)
            slack = 5 * math.sqrt(bound * (1 - bound) / count)
            assert np.mean(found.cosine >= cosine) <= bound + slack
        if epsilon == 1.0:
            assert np.mean(found.cosine) < 0.05 + 5 / math.sqrt(INPUTS * count)


@pytest.mark.statistical
def test_large_budgets_show_the_example() -> None:
    """And whoever knows the model sees more of it where there is noise."""
    net = network(5)
    x, labels = spheres(300), np.arange(300) % CLASSES
    means = {}
    for epsilon in (20.0, 800.0):
        mechanism = PrivUnit(net.num_parameters, epsilon, 2.5)
        for knows in (True, False):
            found = invert_messages(
                net, x, labels, mechanism, knows_errors=knows, rng=np.random.default_rng(1)
            )
            means[epsilon, knows] = found.cosine.mean()
    assert means[800.0, True] > 0.95 and means[800.0, False] > 0.95
    assert 0.1 < means[20.0, False] < means[20.0, True] < 0.8


@pytest.mark.exact
def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="mechanism must be of 68 dimensions, got 5"):
        invert_messages(network(0), spheres(1), np.array([0]), PrivUnit(5, 1.0))
    with pytest.raises(ValueError, match="layers must be one or two matrices"):
        SmallNetwork((np.ones(3),))
    with pytest.raises(ValueError, match="the second takes the outputs of the first"):
        SmallNetwork((np.ones((3, 4)), np.ones((2, 3))))
    for name, arguments in (("inputs", (0, 2)), ("classes", (1, 1)), ("hidden", (1, 2, -1))):
        with pytest.raises(ValueError, match=f"{name} must be"):
            SmallNetwork.drawn(*arguments)
