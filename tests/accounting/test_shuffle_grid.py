"""Many prices at once are those of one at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beam_ldp.accounting import shuffle_epsilon, shuffle_epsilons
from beam_ldp.accounting.divergences.hockey_stick import (
    epsilon_bound,
    hockey_stick,
    largest_log_ratio,
    safe_roots,
)
from beam_ldp.randomizers.frequency import BinaryHadamard, KRandomizedResponse, SubsetSelection
from beam_ldp.randomizers.mean import LInfMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair

pytestmark = pytest.mark.exact


def one_by_one(local, reports, delta, randomizer=float):
    arrays = np.broadcast_arrays(local, reports, delta)
    found = [
        float(shuffle_epsilon(randomizer(e), int(n), d))
        for e, n, d in zip(*(a.ravel().tolist() for a in arrays), strict=True)
    ]
    return np.reshape(found, arrays[0].shape)


@pytest.mark.parametrize(
    ("local", "reports", "delta"),
    [
        (np.linspace(0.05, 6, 9), 10**6, 1e-8),
        ([[1e-6], [0.5], [30.0]], [1, 40, 10**9], 1e-6),
        (2.0, 10 ** np.arange(1, 10), 1e-12),
        ([3.0, 1.0, 3.0], 500, [1e-3, 1e-15, 0.0]),
    ],
)
def test_equal_to_the_loop(local, reports, delta):
    found = shuffle_epsilons(local, reports, delta)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, one_by_one(local, reports, delta), rtol=1e-8)


def test_equal_to_the_loop_for_a_mechanism():
    def build(local: float) -> KRandomizedResponse:
        return KRandomizedResponse(20, local)

    local = [0.5, 1.5, 3.0]
    found = shuffle_epsilons(local, 10**5, 1e-6, randomizer=build)
    np.testing.assert_allclose(found, one_by_one(local, 10**5, 1e-6, build), rtol=1e-8)
    assert np.all(found <= shuffle_epsilons(local, 10**5, 1e-6))
    assert shuffle_epsilons(list(map(build, local)), 10**5, 1e-6).tolist() == found.tolist()


def test_unlike_randomizers_are_priced_at_once():
    """Public rows split the crowd and take their part of delta; a larger budget hides nothing."""
    mechanisms = [
        KRandomizedResponse(2, 0.5),
        KRandomizedResponse(50, 4.0),
        BinaryHadamard(1000, 4.0, row="public"),
        SubsetSelection(30, 29.0),
    ]
    found = shuffle_epsilons(mechanisms, [[40], [10**5]], 1e-6)
    loop = [[float(shuffle_epsilon(m, n, 1e-6)) for m in mechanisms] for n in (40, 10**5)]
    np.testing.assert_allclose(found, loop, rtol=1e-8)
    assert shuffle_epsilons([], 100, 1e-6).shape == (0,)
    with pytest.raises(ValueError, match="local_epsilons must be of randomizers that send one"):
        shuffle_epsilons([LInfMean(9, 2.5, messages=(2,), message_epsilons=(1.25,))], 100, 1e-6)


@pytest.mark.parametrize("guess", [1e-6, 0.01, 0.0176, 0.1, 1.9, 50.0])
def test_no_guess_is_bad_enough(guess):
    pair = ShufflePair.clones(2.0)
    exact = epsilon_bound(pair, 10**6, 1e-8, upper=True)

    def excess(_, epsilons):
        return np.array(
            [math.log(max(hockey_stick(pair, 10**6, epsilons[0]).upper, 1e-300) / 1e-8)]
        )

    top = np.array([largest_log_ratio(pair)])
    found = safe_roots(excess, np.array([guess]), top, True)[0]
    assert found == pytest.approx(exact, rel=1e-8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0.0, 1.0], 10, 1e-6), "local_epsilons"),
        ((31.0, 10, 1e-6), "local_epsilons"),
        ((1.0, [10, 2.5], 1e-6), "num_reports"),
        ((1.0, 10, [1e-6, 1.0]), "delta"),
        ((1.0, 10, float("nan")), "delta"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        shuffle_epsilons(*arguments)
