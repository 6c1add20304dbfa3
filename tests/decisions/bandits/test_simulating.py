"""Regret of simulated runs: as people come, on equal instances, with the figures of the whole."""

from dataclasses import replace

import numpy as np
import pytest

from beam_ldp.decisions.bandits.elimination import LinearBandit
from beam_ldp.decisions.bandits.simulating import (
    VARIANTS,
    circle,
    regret_after,
    run_in_law,
    simulate,
)

pytestmark = pytest.mark.exact

MEANS = np.array([0.9, -0.3, 0.1])
BANDIT = LinearBandit(actions=np.eye(3), horizon=50_000, model="local", epsilon=2.0)


def test_regret_as_people_come_is_that_of_the_batches_in_random_order():
    """Each person of a batch has its mean gap, everybody after the last batch that of the winner.

    One run is made to choose a bad action, whose gap the rest then pays.
    """
    run = run_in_law(BANDIT, MEANS, np.random.default_rng(0))
    for one in (run, replace(run, winner=1, plays=np.array([0, 0, 0]))):
        gaps = MEANS.max() - MEANS
        each = []
        for batch in one.batches:
            gap = gaps[batch.played] @ batch.counts / batch.people
            each += [gap] * batch.people
        each += [gaps[one.winner]] * (BANDIT.horizon - len(each))
        people = np.array([0, 1, 7, 100, 3000, len(each) - 1, len(each)])
        expected = np.concatenate([[0], np.cumsum(each)])[people]
        np.testing.assert_allclose(regret_after(one, MEANS, people), expected, rtol=1e-9)


def test_all_variants_meet_the_same_instances():
    """Of the first people, before anything is learned, all ask the same: in batch 1 of a run."""
    curves = simulate(
        BANDIT, [1.0], ["none", "central", "local"], actions=circle(4), repeat=3, seed=2
    )
    first = np.array([curve.paths[0, :, 0] for curve in curves])
    assert (first == first[0]).all() and len(set(first[0])) == 3


def test_curves_end_with_the_regret_of_all():
    curves = simulate(BANDIT, [0.5, 9.0], ["local", "shuffled"], repeat=4)
    assert [curve.epsilons for curve in curves] == [(0.5,), (0.5, 9.0)]  # at most 8 a report
    for curve in curves:
        assert curve.people[-1] == BANDIT.horizon
        assert (np.diff(curve.paths) >= 0).all()
        mean, error = curve.over_people
        np.testing.assert_array_equal(curve.mean, mean[:, -1])
        np.testing.assert_array_equal(curve.mean, curve.regrets.mean(axis=1))
        np.testing.assert_allclose(
            curve.standard_error, np.sqrt(curve.regrets.var(axis=1, ddof=1) / 4)
        )
        np.testing.assert_array_equal(curve.standard_error, error[:, -1])


def test_a_variant_that_there_is_not():
    with pytest.raises(ValueError, match="variants must be of none"):
        simulate(BANDIT, [1.0], ["nobody"])
    assert {"none", "central", "shuffled", "local"} < set(VARIANTS)
