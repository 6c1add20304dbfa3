"""A training whose clients fail ends, whatever the framework; one that works goes on."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from beam_ldp.federated import EpsilonBudget, RoundsRecord, train
from beam_ldp.federated.record import RoundConfig
from beam_ldp.randomizers.mean import L1Mean, LInfMean, PrivUnit
from beam_ldp.randomizers.mean.failures import Failures, failure_vector

WORKS, FAILS = "works", "fails"


@pytest.mark.exact
@pytest.mark.parametrize(
    ("mechanism", "order"),
    [(PrivUnit(9, 4.0, 0.5), 2), (LInfMean(9, 4.0), np.inf), (L1Mean(9, 4.0), 1)],
)
def test_a_failure_is_as_long_as_an_update_can_be(mechanism, order):
    radius = getattr(mechanism, "radius", 1.0)
    first, second = (failure_vector(mechanism, "digits", number) for number in (1, 2))
    assert np.linalg.norm(first, order) == pytest.approx(radius)
    assert (first == -second).all() and (first == failure_vector(mechanism, "digits", 3)).all()
    assert (first != failure_vector(mechanism, "letters", 1)).any()


def _stopped(rounds, clients, dimension, mean, trainings):
    """In how many trainings a verdict falls, and in which round at the latest."""
    mechanism = PrivUnit(dimension, local_epsilon=4.0, radius=1.0)
    spread = math.sqrt(mechanism.mean_squared_error(clients) / dimension)
    rng, stopped = np.random.default_rng(20_26), []
    for i in range(trainings):
        failures = Failures(mechanism, f"training {i}")
        healthy = rng.standard_normal(dimension)
        healthy *= mean / np.linalg.norm(healthy)
        for number, what in enumerate(rounds, 1):
            fails = what == FAILS
            true = failure_vector(mechanism, f"training {i}", number) if fails else healthy
            failures.add(number, true + spread * rng.standard_normal(dimension), clients)
            if failures.share is not None:
                stopped.append(number)
                break
    return len(stopped) / trainings, max(stopped, default=0)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("rounds", "clients", "dimension", "mean", "most"),
    [
        ([WORKS] * 30, 5, 3, 0.0, 0.02),
        ([WORKS] * 30, 5, 3, 1.0, 0.02),
        ([WORKS] * 30, 20, 50, 1.0, 0.0),
        ([FAILS] * 2 + [WORKS] * 20, 100, 50, 0.5, 0.0),
        ([WORKS, FAILS, FAILS, WORKS] * 5, 100, 50, 0.5, 0.0),
    ],
)
def test_a_training_that_works_goes_on(rounds, clients, dimension, mean, most):
    """400 trainings; 0.6 % are stopped in the first two rows, so 2 % is beyond three deviations."""
    share, _ = _stopped(rounds, clients, dimension, mean, 400)
    assert share <= most


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("rounds", "clients", "latest"),
    [([FAILS] * 12, 5, 12), ([FAILS] * 3, 100, 3), ([WORKS] * 9 + [FAILS] * 3, 100, 12)],
)
def test_a_training_that_fails_everywhere_ends(rounds, clients, latest):
    """All 400 do: with five clients the third round is the last of 97 %."""
    share, last = _stopped(rounds, clients, 20, 0.3, 400)
    assert share == 1.0 and last <= latest


class Measured:
    """A process of 100 reports a round that measures these shares of failed clients."""

    def __init__(self, shares, seeded=False, least_left=0):
        mechanism = PrivUnit(20, local_epsilon=4.0)
        self._config = RoundConfig(
            (mechanism.to_config(),), 1, None, seeded, least_left=least_left
        ).to_json()
        self._shares = shares

    def initialize(self):
        return RoundsRecord(self._config, np.zeros((0, 2), np.int64))

    def next(self, state, clients):
        number = int(state.rounds[:, 1].sum())
        rounds = np.array([[len(clients), number + 1]])
        metrics = {"aggregator": {"mean": {"failing": self._shares[number]}}}
        return SimpleNamespace(state=RoundsRecord(self._config, rounds), metrics=metrics)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("shares", "options", "rounds"),
    [
        ([1.0] * 9, {}, 3),
        ([0.0, 0.1, 1.0, 0.9, 1.1, 1.0], {}, 5),
        ([1.0, 1.0, 0.0] * 3, {}, 9),
        ([0.3] * 9, {}, 9),
        ([1.0] * 9, {"seeded": True}, 9),
        ([1.0] * 9, {"least_left": 101}, 0),
    ],
    ids=["all fail", "later", "never in a row", "few", "seeded", "withheld"],
)
def test_rounds_end_where_a_process_measures_failures(shares, options, rounds):
    """Seeded noise has no law to test against, and a withheld round no mean."""
    budget = EpsilonBudget(None, 1e-6)
    ended = train(Measured(shares, **options), lambda _: range(100), len(shares), budget)
    early = 0 < rounds < len(shares)
    assert (ended.rounds, ended.stopped_by) == (rounds, "failures" if early else "rounds")
    assert ended.withheld == (len(shares) if not rounds else 0)
    if early:
        assert ended.spent.num_charges == rounds
