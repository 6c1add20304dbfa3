"""Prices of many shuffles at once, for planners and plots."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from beam_ldp.accounting.divergences.hockey_stick import (
    check_reports,
    directions,
    epsilon_bound,
    epsilon_near,
    gaussian_epsilon,
)
from beam_ldp.accounting.shuffle.one_release import MAX_LOCAL_EPSILON
from beam_ldp.accounting.shuffle.randomizer_events import Randomizer, crowd, smaller_crowd_chance
from beam_ldp.randomizers.shuffle_pair import ShufflePair


def shuffle_epsilons(
    local_epsilons: ArrayLike,
    num_reports: ArrayLike,
    delta: ArrayLike,
    *,
    randomizer: Callable[[float], Randomizer] | None = None,
) -> np.ndarray:
    """Upper values of `shuffle_epsilon` for arrays of arguments, which broadcast.

    Each search starts from where its neighbour ended, and lower bounds are left out: several times
    faster than one call per value, and equal to them (to 1e-8).

    Args:
        local_epsilons: Local epsilons in (0, 30].
        num_reports: Honest reports; 1 to 1e12.
        delta: In [0, 1).
        randomizer: Builds a mechanism of one message from a local epsilon, so that its own pair is
            priced; by default what holds for every randomizer.

    Returns:
        float64 array of the broadcast shape.

    >>> shuffle_epsilons([1.0, 4.0], 100_000, 1e-6).round(4)
    array([0.0153, 0.1698])
    >>> shuffle_epsilons([[1.0], [2.0]], [1e4, 1e6], 1e-6).shape
    (2, 2)
    """
    arrays = np.broadcast_arrays(local_epsilons, num_reports, delta)
    table = np.stack([np.asarray(a, dtype=float).ravel() for a in arrays], axis=1)
    if not np.all((table[:, 0] > 0) & (table[:, 0] <= MAX_LOCAL_EPSILON)):
        raise ValueError(f"local_epsilons must lie in (0, {MAX_LOCAL_EPSILON:g}]")
    if not np.all((table[:, 2] >= 0) & (table[:, 2] < 1)):
        raise ValueError("delta must lie in [0, 1)")
    # Neighbours in the order of delta, then reports, then local epsilon.
    cases, where = np.unique(table[:, ::-1], axis=0, return_inverse=True)
    values = np.empty(len(cases))
    scales: dict[int, float] = {}  # of each pair: the last value over its Gaussian limit
    for i, (each_delta, reports, local) in enumerate(cases.tolist()):
        mechanism = None if randomizer is None else randomizer(local)
        values[i] = _epsilon(local, mechanism, check_reports(reports), each_delta, scales)
    return values[np.reshape(where, -1)].reshape(arrays[0].shape)


def _epsilon(
    local: float, mechanism: Randomizer | None, reports: int, delta: float, scales: dict[int, float]
) -> float:
    pairs = [ShufflePair.clones(local)]
    if mechanism is not None:
        reports, own = crowd(mechanism, reports), mechanism.dominating_pair()
        pairs += [own] if own.proof_status == "proved" else []
        delta -= smaller_crowd_chance(mechanism)
    if delta <= 0.0:
        return local
    best = local
    for kind, pair in enumerate(pairs):
        limit = gaussian_epsilon(pair, reports, delta)
        if kind in scales:
            guess = scales[kind] * limit
            found = max(epsilon_near(side, reports, delta, guess) for side in directions(pair))
        else:
            found = max(
                epsilon_bound(side, reports, delta, upper=True) for side in directions(pair)
            )
        scales[kind] = found / limit
        best = min(best, found)
    return best
