"""Contexts: expected rewards by enumeration, nets, regret beside the linear bandit's, errors."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from beam_ldp.decisions.bandits.client import answer
from beam_ldp.decisions.bandits.contexts import ContextLaw, ContextualActions, choices
from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.noise import RewardNoise
from beam_ldp.decisions.bandits.simulating import directions, missed, run_in_law

LAW = np.array([0.4, 0.3, 0.2, 0.1])


@pytest.fixture(scope="module")
def features():
    """Four contexts with five choices each, in three dimensions."""
    return directions(np.random.default_rng(8), 20, 3).reshape(4, 5, 3)


@pytest.fixture(scope="module")
def law(features):
    return ContextLaw.finite(features, LAW)


@pytest.fixture(scope="module")
def actions(law):
    """All policies that are best somewhere."""
    return ContextualActions.of_law(law, 1e-9)


def test_rows_are_the_expected_features_of_what_people_choose(features, actions):
    truth = directions(np.random.default_rng(1), 1, 3)[0]
    for theta, row in zip(actions.thetas, actions.rows, strict=True):
        picked = [max(range(5), key=lambda a, c=c: features[c, a] @ theta) for c in range(4)]
        chosen = features[np.arange(4), picked] @ truth
        expected = sum(p * reward for p, reward in zip(LAW, chosen, strict=True))
        assert row @ truth == pytest.approx(expected)
    assert np.linalg.norm(actions.rows, axis=1).max() <= 1


def test_policies_are_different_and_far_fewer_than_candidates(law, actions):
    policies = law.choices(actions.thetas).tolist()
    assert len(set(map(tuple, policies))) == len(policies)
    assert 40 <= len(policies) <= 120  # 67 in the specification's example
    assert actions.row_error == 0.0
    again = ContextualActions.of_law(law, 1e-9)
    assert again.thetas.tolist() == actions.thetas.tolist()
    other = ContextualActions.of_law(law, 1e-9, seed=1)
    assert other.thetas.tolist() != actions.thetas.tolist()
    others = set(map(tuple, law.choices(other.thetas).tolist()))
    assert len(others & set(map(tuple, policies))) > 0.9 * len(others)  # all but thin cones


def test_no_theta_is_the_inverse_of_a_row(law, actions):
    # F14: several thetas have one row, so that people are told thetas, never an "inverse" of rows.
    thetas = directions(np.random.default_rng(2), 300, 3)
    rows = law.rows(thetas).round(12)
    assert len({tuple(row) for row in rows.tolist()}) < len(thetas)
    # And a row itself, told to people as a theta, is another policy.
    assert (law.choices(actions.rows) != law.choices(actions.thetas)).any(axis=1).sum() >= 3


def test_the_best_policy_of_all_is_the_one_of_the_truth(features, law, actions):
    # A net that holds the truth has no gap; among all 625 policies none is better.
    truth = directions(np.random.default_rng(3), 1, 3)[0]
    best = max(
        sum(p * features[c, a] @ truth for c, (p, a) in enumerate(zip(LAW, policy, strict=True)))
        for policy in itertools.product(range(5), repeat=4)
    )
    assert law.rows(truth[None])[0] @ truth == pytest.approx(best)
    few = replace(actions, thetas=truth[None])
    assert few.loss(truth) == pytest.approx(0, abs=1e-12)
    other = replace(actions, thetas=-truth[None])
    assert other.loss(truth) == pytest.approx(best - law.rows(-truth[None])[0] @ truth)


def test_the_printed_maximum_over_scalars_is_not_the_policy(features):
    # F13: the argmax of <a, theta> over choices, without the features of the context, is one choice
    # for all contexts. The best such loses a good part of what contexts are worth.
    truths = directions(np.random.default_rng(4), 50, 3)
    means = np.einsum("c,cad,td->ta", LAW, features, truths).max(axis=1)
    own = np.einsum("c,tc->t", LAW, np.einsum("cad,td->tca", features, truths).max(axis=2))
    assert (own - means).mean() > 0.2


def test_nets_are_refined_until_they_lose_less_than_was_asked(law, actions):
    truths = directions(np.random.default_rng(4), 200, 3)
    sizes = []
    for net_gap in (0.1, 0.01, 1e-9):
        net = ContextualActions.of_law(law, net_gap)
        assert net.net_gap <= net_gap
        losses = [net.loss(t) for t in truths]
        assert -1e-12 <= min(losses) <= max(losses) <= net_gap
        sizes.append(len(net.rows))
    assert sizes[0] < sizes[1] < sizes[2] == len(actions.rows)


def test_a_net_that_may_not_grow_says_what_it_loses(law):
    net = ContextualActions.of_law(law, 1e-3, most=5)
    assert len(net.rows) == 5
    assert 0.02 < net.net_gap < 1


@pytest.mark.parametrize("model", ["none", "local"])
def test_regret_is_that_of_the_linear_bandit(features, actions, model):
    # People one by one: each has a context of her own, and only her report leaves her.
    horizon, truth = 20_000, directions(np.random.default_rng(5), 1, 3)[0]
    bandit = LinearBandit(actions=actions.rows, horizon=horizon, model=model, epsilon=4.0)
    rng, means, lost, sent = np.random.default_rng(6), features @ truth, [], []

    def person(theta: list[float]) -> float:
        context = rng.choice(4, p=LAW)

        def play(choice: int) -> float:
            lost.append(means[context].max() - means[context, choice])
            return 1.0 if rng.random() < (1 + means[context, choice]) / 2 else -1.0

        return answer(theta, features[context].tolist(), play)

    def people(policy: int, count: int) -> list[float]:
        return [person(actions.thetas[policy].tolist()) for _ in range(count)]

    def sums(batch):
        rewards = [r for p, n in zip(batch.played, batch.counts, strict=True) for r in people(p, n)]
        reports = batch.noise.reports(rewards, rng)
        sent.append(reports)
        return batch.noise.sums(reports, np.repeat(np.arange(len(batch.counts)), batch.counts),
                                len(batch.counts))  # fmt: skip

    run = bandit.run(sums)
    people(run.winner, horizon - sum(batch.people for batch in run.batches))
    linear = run.regret(actions.rows @ truth)
    assert len(lost) == horizon
    price = horizon * actions.loss(truth)
    assert abs(sum(lost) - linear) <= 3 * math.sqrt(horizon * math.log(horizon)) + price
    # What was sent is one number a person, of two values that are the same for all contexts.
    allowed = 1.0 if model == "none" else RewardNoise("bit", 4.0).bound
    assert set(np.abs(np.concatenate(sent)).round(12)) == {round(allowed, 12)}


def test_a_million_people_lose_no_more_by_privacy_than_by_chance(features, law, actions):
    # As in the specification's example: contexts move regret by hundreds, and privacy by nothing.
    horizon, policies, regrets = 10**6, law.choices(actions.thetas), {}
    for model in ("none", "central"):
        bandit = LinearBandit(actions=actions.rows, horizon=horizon, model=model, epsilon=0.2)
        regrets[model] = []
        for number in range(12):
            truth = directions(np.random.default_rng([number, 1]), 1, 3)[0]
            rng = np.random.default_rng([number, 2])
            run, means = run_in_law(bandit, truth, rng), features @ truth
            people = np.array([rng.multinomial(plays, LAW) for plays in run.plays])
            lost = means.max(axis=1) - means[np.arange(4), policies]
            regrets[model].append(float((people * lost).sum()))
            linear = run.regret(actions.rows @ truth) + horizon * actions.loss(truth)
            assert abs(regrets[model][-1] - linear) <= math.sqrt(horizon)
    mean, spread = np.mean(regrets["none"]), np.std(regrets["none"]) / math.sqrt(12)
    assert abs(np.mean(regrets["central"]) - mean) < 2 * spread


def test_at_the_confidence_of_the_text_contexts_move_regret_by_more_than_the_root():
    # F13. Two contexts of equal chance whose best choices are worth -1 and 1: regret moves by a sum
    # of T fair signs. What it exceeds with probability 1/T, over sqrt(T), is not bounded.
    horizons = 10.0 ** np.arange(2, 11, 2)
    exceeded = 2 * stats.binom.isf(1 / horizons, horizons, 0.5) - horizons
    ratios = exceeded / np.sqrt(horizons)
    assert (np.diff(ratios) > 0.7).all()
    assert ratios[-1] > 2.5 * ratios[0]
    assert (exceeded <= 3 * np.sqrt(horizons * np.log(horizons))).all()


# Laws that are known by draws ---------------------------------------------------------------------


def plane(rng: np.random.Generator, people: int) -> np.ndarray:
    """Three choices of the plane, turned together by an angle that is the context."""
    angle = rng.uniform(0, 2 * np.pi, people)[:, None] + np.array([0.0, 1.0, 2.5])
    return np.stack([np.cos(angle), np.sin(angle)], axis=2)


@pytest.fixture(scope="module")
def drawn():
    return ContextualActions.of_law(ContextLaw.drawn(plane, 6000), 0.01, failure=1e-3)


def test_rows_of_draws_are_within_their_error_of_the_truth(drawn):
    # The same angles on a fine grid are the law itself, but for less than 1e-5.
    angle = (np.arange(4096) + 0.5) * 2 * np.pi / 4096
    turned = angle[:, None] + np.array([0.0, 1.0, 2.5])
    exact = ContextLaw.sampled(np.stack([np.cos(turned), np.sin(turned)], axis=2))
    errors = np.linalg.norm(exact.rows(drawn.thetas) - drawn.rows, axis=1)
    assert drawn.row_error == pytest.approx(
        (1 + math.sqrt(2 * math.log(len(drawn.rows) / 1e-3))) / math.sqrt(4000)
    )
    assert errors.max() <= drawn.row_error
    assert errors.max() > drawn.row_error / 30  # not exact: there is something to count


def test_draws_that_chose_the_policies_do_not_measure_them(drawn):
    searched, measured = drawn.law.split(2000, seed=0)
    assert (len(searched.features), len(measured.features)) == (2000, 4000)
    assert drawn.rows == pytest.approx(measured.rows(drawn.thetas))
    seen = {row.tobytes() for row in searched.features}
    assert not seen & {row.tobytes() for row in measured.features}
    assert 0 < drawn.net_gap < 0.02  # 0.01 by the others


def test_widths_count_the_error_of_rows_and_not_more():
    # The worst rows of all: wrong by the error along the truth, with the signs of their weights.
    # Rewards without noise miss the truth by exactly what widths add.
    rows, error = np.array([[0.9, 0.0], [0.1, 0.8], [0.5, -0.5]]), 0.05
    bandit = LinearBandit(actions=rows, horizon=10**6, model="none", row_error=error)
    plain = replace(bandit, row_error=0.0)
    truth = np.array([0.6, 0.8])
    for number in (3, 10):
        batch, before = (b.batch(number, np.arange(3)) for b in (bandit, plain))
        misfit = bandit.misfit(batch.design, batch.counts)
        assert batch.width - misfit == pytest.approx(before.width)
        assert plain.misfit(batch.design, batch.counts) == 0.0
        missed_by = []
        for action in range(3):
            weights = np.array([batch.estimates(s)[action] for s in np.eye(len(batch.counts))])
            wrong = error * np.sign(weights)  # of played rows, along the truth
            sums = batch.counts * (rows[batch.played] @ truth + wrong)
            own = rows[action] @ truth - error
            missed_by.append(abs(batch.estimates(sums)[action] - own))
        assert max(missed_by) == pytest.approx(misfit)


def test_without_the_error_of_rows_the_best_policy_is_lost():
    # Two rows that are wrong by 0.05 each, opposite ways: the winner loses 0.09 for each person,
    # where 0.05 is what an error of 0.05 is said to cost.
    told, true = np.array([[0.8], [0.79]]), np.array([[0.75], [0.84]])
    bandit = LinearBandit(actions=told, horizon=10**7, model="none")
    means = true[:, 0]

    def sums(batch):
        return batch.counts * means[batch.played]

    blind, counted = bandit.run(sums), replace(bandit, row_error=0.05).run(sums)
    assert blind.regret(means) > 1.7 * 0.05 * 10**7
    assert blind.batches[-1].survivors(blind.estimates[-1]).tolist() == [0]  # not the best
    assert counted.batches[-1].survivors(counted.estimates[-1]).tolist() == [0, 1]


def test_a_run_on_measured_rows_keeps_its_widths_and_its_price(drawn):
    truth = np.array([0.6, -0.8])
    exact = ContextLaw.sampled(plane(np.random.default_rng(9), 40_000)).rows(drawn.thetas)
    bandit = LinearBandit(actions=drawn.rows, horizon=10**5, model="central", epsilon=1.0,
                          row_error=drawn.row_error)  # fmt: skip
    world = replace(bandit, actions=exact)
    rng = np.random.default_rng(3)

    def sums(batch):
        return batch.noise.sums_in_law(batch.counts, (exact @ truth)[batch.played], rng)

    run = bandit.run(sums)
    assert not missed(world, truth, run)
    known = run_in_law(world, truth, np.random.default_rng(3))
    misfit = bandit.misfit(run.batches[-1].design, run.batches[-1].counts)
    price = 10**5 * (drawn.net_gap + 2 * drawn.row_error + 4 * misfit)
    assert run.regret(exact @ truth) <= known.regret(exact @ truth) + price


def test_refusals(law):
    with pytest.raises(TypeError, match="law must be a ContextLaw, which says what is known"):
        ContextualActions.of_law(law.features, 0.1)
    with pytest.raises(ValueError, match="net_gap must be a finite number > 0"):
        ContextualActions.of_law(law, 0.0)
    with pytest.raises(ValueError, match="most must be an integer >= 1"):
        ContextualActions.of_law(law, 0.1, most=0)
    with pytest.raises(ValueError, match=r"row_error must lie in \[0, 1\)"):
        LinearBandit(actions=np.eye(2), horizon=100, row_error=1.5)


# Laws ---------------------------------------------------------------------------------------------


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
    monkeypatch.setattr("beam_ldp.decisions.bandits.contexts._BLOCK", 7)
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
def test_refusals_of_laws(features, chances, message):
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
