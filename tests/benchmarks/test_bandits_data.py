"""Bandits over packaged data: contexts, replayed choices, other learners, and the page shown."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from beam_ldp.decisions.bandits.elimination import LinearBandit
from benchmarks import bandits_data
from benchmarks.bandits_data import Policies, Task
from benchmarks.contextual_baselines import (
    Ridge,
    accuracy_of,
    epsilon_greedy,
    lin_ucb,
    noisy_gram_accuracy,
)

RESULTS = Path(bandits_data.__file__).parent / "results"

pytestmark = pytest.mark.exact


@pytest.fixture(scope="module")
def found():
    told = json.loads((RESULTS / "bandits_data.json").read_text())
    assert bandits_data.page(told) == (RESULTS / "bandits_data.md").read_text()
    return told["sets"]


@pytest.fixture(scope="module")
def cancer() -> Task:
    return bandits_data.task("breast_cancer", 2)


@pytest.fixture(scope="module")
def line() -> Task:
    """Two choices by the sign of one number; public rows are people's own."""
    plain = np.linspace(-1, 1, 40)[:, None]
    features = bandits_data.embedded(bandits_data.clipped(plain, 1.0), 2)
    labels = (features[:, 1, 0] > features[:, 0, 0]).astype(int)
    return Task("line", features, labels, features, 1.0, np.array([labels, 1 - labels]))


# Contexts -----------------------------------------------------------------------------------------


def test_rows_are_shortened_never_dropped():
    rows = bandits_data.clipped(np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0]]), radius=2.0)
    short = np.array([[1.2, 1.6, 1.0], [0.3, 0.4, 1.0], [0.0, 0.0, 1.0]])
    np.testing.assert_allclose(rows, short / np.sqrt(5))
    assert np.linalg.norm(rows, axis=1).max() == pytest.approx(1)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_choices_are_corners_of_a_simplex(count):
    """Of length 1, equally far from one another, with nothing in common."""
    (corners,) = bandits_data.embedded(np.array([[1.0]]), count)
    apart = (count * np.eye(count) - 1) / (count - 1)
    np.testing.assert_allclose(corners @ corners.T, apart, atol=1e-12)
    assert corners.shape == (count, count - 1)


def test_what_is_fitted_is_fitted_to_public_rows(cancer, monkeypatch):
    """Other people, and other labels of them, leave public contexts and models as they were."""
    from sklearn import datasets

    data = datasets.load_breast_cancer()
    order = np.random.default_rng(0).permutation(len(data.target))
    people = np.array_split(order, 2)[1]
    data.target[people] = 1 - data.target[people]
    monkeypatch.setattr(datasets, "load_breast_cancer", lambda: data)
    again = bandits_data.task("breast_cancer", 2)
    assert (again.labels == 1 - cancer.labels).all()
    np.testing.assert_array_equal(again.public, cancer.public)
    np.testing.assert_array_equal(again.features, cancer.features)
    np.testing.assert_array_equal(again.candidates, cancer.candidates)
    data.data[people] *= 2
    far = bandits_data.task("breast_cancer", 2)
    np.testing.assert_array_equal(far.public, cancer.public)


# Rewards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 5])
def test_replayed_rewards_keep_the_mean_and_the_range(count):
    """Over all logged choices: the policy's own reward over A, in [-1, 1]; its variance."""
    rewards = np.linspace(-1, 1, count)  # of each choice
    made = np.arange(count)
    for chosen in range(count):
        seen = bandits_data.replayed(rewards, made, np.full(count, chosen))
        assert np.abs(seen).max() <= 1
        assert count * seen.mean() == pytest.approx(rewards[chosen])
        size = 1.7  # of a bit that is +-size, with the mean of what is seen
        up = (1 + seen / size) / 2
        mean = (size * (2 * up - 1)).mean()
        variance = size**2 - mean**2  # of one bit, over logged choices too
        assert count**2 * variance == pytest.approx((count * size) ** 2 - rewards[chosen] ** 2)


@pytest.mark.statistical
@pytest.mark.parametrize("logged", [False, True])
def test_sums_of_people_have_the_means_of_their_policies(line, logged):
    """Of 20,000 people without noise: within 5 standard errors; the wrong policy is 300 off."""
    policies = bandits_data.by_candidates(line)
    assert policies.accuracies(line.labels).tolist() == [1.0, 0.0]
    bandit = LinearBandit(actions=policies.rows, horizon=10**6, model="none")
    batch = bandit.batch(9, np.arange(2))
    collect = bandits_data.collected(line, policies, np.random.default_rng(1), logged)
    means = collect(batch) / batch.counts * (2 if logged else 1)
    assert means == pytest.approx([1.0, -1.0], abs=5 * 2 / np.sqrt(batch.counts.min()))


def test_a_run_finds_the_better_policy(line):
    policies = bandits_data.by_candidates(line)
    for name, logged in itertools.product(("none", "local"), (False, True)):
        told = bandits_data.run(line, policies, bandits_data.MODELS[name], 2.0, 3, logged)
        assert told["winner"] == 1.0
        assert 0.5 < told["people"] < 1.0


def test_directions_hold_the_best_of_a_line(line):
    found = bandits_data.by_directions(line)
    assert found.accuracies(line.labels).max() == 1.0
    assert isinstance(found, Policies) and found.rows.shape[1] == 2


# Other learners -----------------------------------------------------------------------------------


def test_ridge_is_least_squares_with_a_penalty():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(50, 3)), rng.normal(size=50)
    ridge = Ridge(3)
    for row, reward in zip(x, y, strict=True):
        ridge.learn(row, reward)
    gram = x.T @ x + np.eye(3)
    np.testing.assert_allclose(ridge.theta, np.linalg.solve(gram, x.T @ y))
    np.testing.assert_allclose(ridge.inverse, np.linalg.inv(gram))


def test_an_upper_bound_prefers_what_is_unknown():
    ridge = Ridge(2)
    for _ in range(100):
        ridge.learn(np.array([1.0, 0.0]), 0.3)
    assert lin_ucb(ridge, alpha=1.0)(0, np.eye(2)) == 1
    assert lin_ucb(ridge, alpha=0.1)(0, np.eye(2)) == 0
    rng = np.random.default_rng(0)
    assert epsilon_greedy(ridge, rng, explored=0.0)(0, np.eye(2)) == 0
    picked = [epsilon_greedy(ridge, rng, explored=1.0)(0, np.eye(2)) for _ in range(50)]
    assert 10 < sum(picked) < 40


def test_learners_learn_a_line(line):
    people = np.random.default_rng(0).integers(40, size=3000)
    for make in (lin_ucb, lambda ridge: epsilon_greedy(ridge, np.random.default_rng(1))):
        ridge = Ridge(2)
        assert accuracy_of(make(ridge), ridge, line.features, line.labels, people) > 0.9
    rng = np.random.default_rng(2)
    easy, hard = (
        noisy_gram_accuracy(line.features, line.labels, people, epsilon, 1e-6, rng, every=50)
        for epsilon in (1e4, 0.01)
    )
    assert easy > 0.8
    assert hard < 0.7


def test_how_much_one_person_moves_noisy_matrices():
    """The distance that the noise is made for is attained, and never exceeded."""

    def report(x, reward):
        gram = np.outer(x, x)
        return np.concatenate([gram.ravel(), reward * x])

    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 2000, 3))
    for a, b in zip(x, y, strict=True):
        a, b = a / max(1, np.linalg.norm(a)), b / max(1, np.linalg.norm(b))
        assert np.linalg.norm(report(a, 1.0) - report(b, -1.0)) ** 2 <= 4.5 + 1e-9
    far = report(np.eye(3)[0], 1.0) - report(np.array([0.5, 0.75**0.5, 0.0]), -1.0)
    assert np.linalg.norm(far) ** 2 == pytest.approx(4.5)


# What is shown ------------------------------------------------------------------------------------


def told(one, model, epsilon, key, replay=False):
    return next(
        run[key]
        for run in one["runs"]
        if (run["model"], run["epsilon"], run["replay"]) == (model, epsilon, replay)
    )


def test_what_is_shown_is_what_is_computed(found, cancer, monkeypatch):
    """One row of a table, run again."""
    policies = bandits_data.by_candidates(cancer)
    again = bandits_data.bandit_row(cancer, policies, "local", 2.0, logged=False)
    assert again["people"] == pytest.approx(
        told(found["breast_cancer"]["candidates"], "local", 2.0, "people")
    )


def test_what_real_data_showed(found):
    """Statements of the documentation."""
    digits, cancer, wine = (found[name] for name in ("digits", "breast_cancer", "wine"))
    for one in found.values():
        models = one["candidates"]
        assert told(models, "shuffled", 0.693, "winner") > models["best"] - 0.02
        assert abs(bandits_data.loss(models, "shuffled")) < 2
        assert told(models, "local", 0.693, "people") > told(
            one["directions"], "local", 0.693, "people"
        )
        assert one["row_error"] > 0.2
    assert cancer["directions"]["best"] > cancer["ceiling"] - 0.01
    assert bandits_data.loss(wine["directions"], "local") > 15
    assert wine["candidates"]["best"] - wine["candidates"]["median"] < 0.03
    assert digits["directions"]["best"] < digits["ceiling"] / 2
    assert digits["baselines"]["noisy Gram matrices, epsilon 0.693"] < 0.25
    for one in (cancer, wine):
        assert (
            told(one["directions"], "local", 0.693, "people")
            < (one["baselines"]["noisy Gram matrices, epsilon 0.693"])
        )


def test_the_table_of_the_documentation(found):
    page = (RESULTS.parents[1] / "docs" / "bandits.md").read_text()
    for name, one in found.items():
        label = {"breast_cancer": "breast cancer"}.get(name, name)
        for way, said in (("candidates", "16 models"), ("directions", "directions")):
            cells = [one[way]["best"], told(one[way], "none", None, "people")]
            cells += [told(one[way], m, 0.693, "people") for m in ("central", "shuffled", "local")]
            others = one["baselines"]
            cells += [others["LinUCB"], others["noisy Gram matrices, epsilon 0.693"]]
            shown = " | ".join(f"{100 * cell:.0f}" for cell in cells)
            assert f"| {label}, {one['choices']} choices | {said} | {shown} |" in page
