"""Laws of contexts: what is refused and why, draws, and how far their means may be off."""

import math

import numpy as np
import pytest

from beam_ldp.decisions.bandits.laws import ContextLaw, choices

FEATURES = np.array([[[0.6, 0.0], [0.0, 0.6], [0.6, 0.0]], [[0.0, 0.1], [0.2, 0.0], [0.0, 0.3]]])


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("unknown", "nobody can say what a policy is worth without their law"),
        ("adversarial", "a policy has no expected reward where each context may be chosen"),
    ],
)
def test_contexts_that_are_not_draws_of_a_public_law_are_refused(kind, reason):
    with pytest.raises(ValueError, match=f'law is "{kind}" are not served: {reason}'):
        ContextLaw(FEATURES, np.array([0.5, 0.5]), kind)


def test_equal_scores_are_the_first():
    assert choices(FEATURES, np.array([[1.0, 1.0]])).tolist() == [[0, 2]]
    assert choices(FEATURES, np.array([[1.0, 1.0 + 1e-15]])).tolist() == [[0, 2]]
    assert choices(FEATURES, np.array([[0.0, 1.0], [1.0, 0.0]])).tolist() == [[1, 2], [0, 1]]


def test_rows_do_not_depend_on_how_many_thetas_are_asked_at_once(monkeypatch):
    law, thetas = ContextLaw.finite(FEATURES, [0.3, 0.7]), np.array([[1.0, 0.0], [0.0, 1.0]])
    assert law.rows(thetas).tolist() == pytest.approx(np.array([[0.32, 0.0], [0.0, 0.39]]))
    together = law.rows(np.repeat(thetas, 5, axis=0))
    monkeypatch.setattr("beam_ldp.decisions.bandits.laws._BLOCK", 7)
    assert law.rows(np.repeat(thetas, 5, axis=0)).tolist() == together.tolist()


def test_means_of_draws_are_within_their_error_as_often_as_is_said():
    # Vectors of length 1 with uniform directions: the farthest that means of 25 come in 4000 tries.
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * math.pi, (4000, 25))
    distances = np.hypot(np.cos(angle).mean(axis=1), np.sin(angle).mean(axis=1))
    law = ContextLaw.sampled(np.zeros((25, 1, 2)))
    for failure in (0.5, 0.1, 0.01):
        assert (distances > law.row_error(1, failure)).mean() <= failure
    assert (distances > law.row_error(1, 0.5) / 3).mean() > 0.1  # not vacuous
    assert law.row_error(4, 0.04) == law.row_error(1, 0.01)
    assert ContextLaw.finite(FEATURES, [0.5, 0.5]).row_error(9, 0.1) == 0.0


def test_a_sampler_is_asked_once_and_reproducibly():
    def sampler(rng, people):
        return rng.uniform(-0.5, 0.5, (people, 3, 2))

    first, second, other = (ContextLaw.drawn(sampler, 10, seed) for seed in (1, 1, 2))
    assert first.features.tolist() == second.features.tolist() != other.features.tolist()
    assert first.chances.tolist() == [0.1] * 10


def test_a_known_law_is_not_split():
    law = ContextLaw.finite(FEATURES, [0.5, 0.5])
    assert law.split(1, seed=0) == (law, law)


@pytest.mark.parametrize(
    ("features", "chances", "message"),
    [
        (FEATURES[0], [0.5, 0.5], r"features must be finite, \(contexts, choices, d\)"),
        (FEATURES * math.nan, [0.5, 0.5], "features must be finite"),
        (2 * FEATURES, [0.5, 0.5], "features must be of length 1 at most"),
        (FEATURES, [1.0], "chances must be a probability for each context"),
        (FEATURES, [1.5, -0.5], "chances must be a probability for each context"),
        (FEATURES, [0.5, 0.4], r"chances must sum to 1, got 0\.9"),
    ],
)
def test_refusals(features, chances, message):
    with pytest.raises(ValueError, match=message):
        ContextLaw.finite(features, chances)


def test_refusals_of_draws():
    with pytest.raises(ValueError, match="draws of contexts must be two at least"):
        ContextLaw.sampled(FEATURES[:1]).split(1, seed=0)
    with pytest.raises(ValueError, match="draws must be an integer >= 2"):
        ContextLaw.drawn(lambda rng, n: FEATURES, 1)
    with pytest.raises(ValueError, match="failure must lie in"):
        ContextLaw.sampled(FEATURES).row_error(1, 0.0)
    with pytest.raises(ValueError, match="kind must be one of finite, sampled"):
        ContextLaw(FEATURES, np.array([0.5, 0.5]), "guessed")
