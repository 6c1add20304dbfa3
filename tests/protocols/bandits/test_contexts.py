"""Contexts: expected rewards by enumeration, regret beside the linear bandit's, and net gaps."""

import itertools
import math

import numpy as np
import pytest

from beam_ldp.protocols.bandits.contexts import ContextualActions, choices
from beam_ldp.protocols.bandits.elimination import LinearBandit
from beam_ldp.protocols.bandits.noise import RewardNoise
from beam_ldp.protocols.bandits.simulating import directions

LAW = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.fixture(scope="module")
def features():
    """Four contexts with five choices each, in three dimensions."""
    return directions(np.random.default_rng(8), 20, 3).reshape(4, 5, 3)


@pytest.fixture(scope="module")
def actions(features):
    return ContextualActions.of_law(features, LAW, candidates=4000)


def test_rows_are_the_expected_features_of_what_people_choose(features, actions):
    truth = directions(np.random.default_rng(1), 1, 3)[0]
    for theta, row in zip(actions.thetas, actions.rows, strict=True):
        picked = [max(range(5), key=lambda a, c=c: features[c, a] @ theta) for c in range(4)]
        chosen = features[np.arange(4), picked] @ truth
        expected = sum(p * reward for p, reward in zip(LAW, chosen, strict=True))
        assert row @ truth == pytest.approx(expected)
    assert np.linalg.norm(actions.rows, axis=1).max() <= 1


def test_policies_are_different_and_far_fewer_than_candidates(features, actions):
    assert len(set(map(tuple, actions.policies.tolist()))) == len(actions.policies)
    assert 40 <= len(actions.policies) <= 120  # 67 in the specification's example
    again = ContextualActions.of_law(features, LAW, candidates=4000)
    assert again.thetas.tolist() == actions.thetas.tolist()


def test_the_best_policy_of_all_is_the_one_of_the_truth(features):
    # A net that holds the truth has no gap; among all 625 policies none is better.
    truth = directions(np.random.default_rng(3), 1, 3)[0]
    own = choices(features, truth)
    best = max(
        sum(p * features[c, a] @ truth for c, (p, a) in enumerate(zip(LAW, policy, strict=True)))
        for policy in itertools.product(range(5), repeat=4)
    )
    assert LAW @ (features @ truth)[np.arange(4), own] == pytest.approx(best)
    net = ContextualActions(truth[None], (LAW @ features[np.arange(4), own])[None], own[None])
    assert net.net_gap(features, LAW, truth) == pytest.approx(0, abs=1e-12)


def test_more_candidates_leave_a_smaller_gap(features, actions):
    truths = directions(np.random.default_rng(4), 200, 3)
    few = ContextualActions.of_law(features, LAW, candidates=20)
    gaps = [np.mean([net.net_gap(features, LAW, t) for t in truths]) for net in (few, actions)]
    assert min(gaps) >= -1e-12
    assert gaps[1] < 1e-3 < gaps[0]


@pytest.mark.parametrize("model", ["none", "local"])
def test_regret_is_that_of_the_linear_bandit(features, actions, model):
    # People one by one: each has a context of her own, and only her report leaves her.
    horizon, truth = 20_000, directions(np.random.default_rng(5), 1, 3)[0]
    bandit = LinearBandit(actions=actions.rows, horizon=horizon, model=model, epsilon=4.0)
    rng, means, best, sent = np.random.default_rng(6), features @ truth, [], []

    def play(policy: int, people: int) -> np.ndarray:
        contexts = rng.choice(4, size=people, p=LAW)
        mean = means[contexts, actions.policies[policy, contexts]]
        best.append((means.max(axis=1)[contexts] - mean).sum())
        return np.where(rng.random(people) < (1 + mean) / 2, 1.0, -1.0)

    def sums(batch):
        rewards = np.concatenate([play(p, n) for p, n in zip(batch.played, batch.counts,
                                                             strict=True)])  # fmt: skip
        reports = batch.noise.reports(rewards, rng)
        sent.append(reports)
        return batch.noise.sums(reports, np.repeat(np.arange(len(batch.counts)), batch.counts),
                                len(batch.counts))  # fmt: skip

    run = bandit.run(sums)
    play(run.winner, horizon - sum(batch.people for batch in run.batches))
    gap = horizon * actions.net_gap(features, LAW, truth)
    linear = run.regret(actions.rows @ truth)
    assert abs(sum(best) - linear) <= 3 * math.sqrt(horizon * math.log(horizon)) + gap
    # What was sent is one number a person, of two values that are the same for all contexts.
    allowed = 1.0 if model == "none" else RewardNoise("bit", 4.0).bound
    assert set(np.abs(np.concatenate(sent)).round(12)) == {round(allowed, 12)}


def test_equal_scores_are_the_first():
    tied = np.array([[[0.6, 0.0], [0.0, 0.6], [0.6, 0.0]]])
    assert choices(tied, np.array([1.0, 1.0])).tolist() == [0]
    assert choices(tied, np.array([1.0, 1.0 + 1e-15])).tolist() == [0]
    assert choices(tied, np.array([0.0, 1.0])).tolist() == [1]


def test_refusals(features):
    with pytest.raises(ValueError, match=r"features must be finite, \(contexts, choices, d\)"):
        ContextualActions.of_law(features[0], LAW)
    with pytest.raises(ValueError, match="features must be of length 1 at most"):
        ContextualActions.of_law(2 * features, LAW)
    with pytest.raises(ValueError, match="law must be a probability for each context"):
        ContextualActions.of_law(features, LAW[:3])
    with pytest.raises(ValueError, match=r"law must sum to 1, got 0\.9"):
        ContextualActions.of_law(features, LAW - np.array([0.1, 0, 0, 0]))
    with pytest.raises(ValueError, match="candidates must be an integer >= 1"):
        ContextualActions.of_law(features, LAW, candidates=0)
