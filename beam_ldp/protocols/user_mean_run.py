"""All parties of a mean in two rounds at once, in one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from beam_ldp.protocols.user_means import UserMean
from beam_ldp.randomizers.base import Rng
from beam_ldp.randomizers.mean.base import MeanEstimate


def run_user_mean(
    protocol: UserMean, means: np.ndarray, user_ids: np.ndarray, rng: Rng = None
) -> MeanEstimate:
    """All parties of the protocol in one process: for notebooks, tests and small releases.

    Args:
        protocol: the plan.
        means: `(n, dimension)` people's means of rows that `space.unit` has prepared.
        user_ids: `(n,)` one id per person.
        rng: as in `LocalRandomizer.randomize`.

    Returns:
        The estimate, in the unit of the data.
    """
    assigned = protocol.assign(user_ids)
    state, first = protocol.round_two() if protocol.search is None else None, protocol.round_one
    if first is not None:
        estimates = []
        for coordinate in range(protocol.space.num_coordinates):
            asked = assigned.coordinate == coordinate
            bins = first.encode(means[asked], assigned.coordinate[asked])
            oracle = first.randomizer
            reports = oracle.randomize(bins, _of(rng, asked))
            estimates.append(oracle.estimate(oracle.accumulate(reports), len(reports)))
        state = first.decide(estimates)
    assert state is not None
    mechanism, asked = state.randomizer, assigned.in_round_two
    reports = mechanism.randomize(state.encode(means[asked]), _of(rng, asked))
    return state.finish(mechanism.estimate(mechanism.accumulate(reports), len(reports)))


def _of(rng: Rng, asked: np.ndarray) -> Rng:
    """The same randomness for some of the people."""
    if rng is None or isinstance(rng, np.random.Generator):
        return rng
    return replace(rng, user_ids=np.asarray(rng.user_ids)[asked])
