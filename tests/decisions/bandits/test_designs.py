"""Designs: bounds checked from scratch, degenerate sets of actions, and what stops them."""

import numpy as np
import pytest

from beam_ldp.decisions.bandits.designs import g_optimal


def sphere(num: int, dimension: int, seed: int = 0) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(num, dimension))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def largest_leverage(actions: np.ndarray, support: np.ndarray, weights: np.ndarray) -> float:
    """In the given coordinates, with a pseudoinverse: nothing shared with the code tested."""
    gram = np.einsum("c,ci,cj->ij", weights, actions[support], actions[support])
    inverse = np.linalg.pinv(gram, rcond=1e-14, hermitian=True)
    return max(float(row @ inverse @ row) for row in actions)


@pytest.mark.parametrize(("dimension", "num"), [(2, 10), (2, 1000), (5, 200), (10, 600), (20, 900)])
@pytest.mark.parametrize("stop", [2.0, 1.1])
def test_designs_on_spheres(dimension, num, stop):
    actions = sphere(num, dimension)
    design = g_optimal(actions, stop)
    assert design.weights.sum() == pytest.approx(1, abs=1e-12)
    assert (design.weights > 0).all()
    found = largest_leverage(actions, design.support, design.weights)
    assert dimension * (1 - 1e-9) <= found <= stop * dimension * (1 + 1e-9)
    assert design.leverage.max() == pytest.approx(found)
    if stop == 2.0:
        assert len(design.support) <= 2 * dimension


def test_the_same_actions_have_the_same_design():
    first, second = (g_optimal(sphere(300, 6), 1.2) for _ in range(2))
    assert first.support.tobytes() == second.support.tobytes()
    assert first.weights.tobytes() == second.weights.tobytes()


def test_steps_away_reach_the_optimum_and_drop_actions():
    # At the optimum every action that is played has leverage m, and no action has more.
    actions = np.vstack([sphere(40, 3, seed=4), np.eye(3)])
    design = g_optimal(actions, 1 + 1e-7)
    assert design.leverage.max() <= 3 * (1 + 1.1e-7)
    assert np.allclose(design.leverage[design.support], 3, atol=2e-2)
    assert len(design.support) <= 12


def test_collinear_actions_need_one():
    design = g_optimal(np.outer([0.2, -1.0, 0.5, 0.9], [0.6, 0.0, 0.8]))
    assert (design.rank, design.support.tolist(), design.weights.tolist()) == (1, [1], [1.0])


def test_duplicates_of_two_directions():
    design = g_optimal([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 0]])
    assert (design.rank, design.support.tolist()) == (2, [0, 2])


def test_a_thin_arc_is_played_at_both_ends():
    angles = np.linspace(0, 1e-4, 101)
    design = g_optimal(np.column_stack([np.cos(angles), np.sin(angles)]))
    assert design.support.tolist() == [0, 100]


def test_counts_are_rounded_up():
    design = g_optimal(sphere(30, 4))
    counts = design.counts(1000.0)
    assert (counts >= design.weights * 1000).all()
    assert (counts < design.weights * 1000 + 1).all()


def test_the_support_of_random_spheres_is_that_of_the_specification():
    sizes = [len(g_optimal(sphere(1000, 10, seed)).support) for seed in range(5)]
    assert np.mean(sizes) == pytest.approx(11, abs=1)
    tight = [len(g_optimal(sphere(1000, 10, seed), 1.1).support) for seed in range(5)]
    assert np.mean(tight) == pytest.approx(26.8, abs=3)


def test_refusals():
    with pytest.raises(ValueError, match=r"actions must be a matrix with rows, got shape \(3,\)"):
        g_optimal([1, 2, 3])
    with pytest.raises(ValueError, match="actions must be finite"):
        g_optimal([[np.nan, 1]])
    with pytest.raises(ValueError, match="one of them other than zero"):
        g_optimal([[0, 0]])
    with pytest.raises(ValueError, match="stop must be a number > 1, got 1"):
        g_optimal([[1, 0]], 1)
    with pytest.raises(RuntimeError, match="most_steps must be larger: 1 steps"):
        g_optimal(sphere(50, 5), 1.01, most_steps=1)
