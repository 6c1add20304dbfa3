"""What forged reports can do to a batch: whoever answers may answer anything."""

from __future__ import annotations

import math

import numpy as np

from beam_ldp.decisions.bandits.elimination import Batch


def influence(batch: Batch) -> float:
    """How far one forged report in place of an honest one moves any estimate, at most.

    A bit is one of two numbers, whoever sends it. A Laplace report may be any number: infinite.
    Behind a trusted server a reward is clipped, so that it moves a sum by 2 at most.

    >>> from beam_ldp.decisions.bandits.elimination import LinearBandit
    >>> bandit = LinearBandit(actions=np.eye(2), horizon=100_000, model="local")
    >>> batch = bandit.batch(8, np.arange(2))
    >>> round(influence(batch), 5), batch.counts.tolist()
    (0.00179, [2413, 2413])
    """
    return _step(batch) * float(np.abs(_weights(batch)).max())


def forgers_to_drop(batch: Batch) -> float:
    """Forged reports without which no action is dropped that has the largest estimate otherwise.

    To drop it, another estimate must rise above its own by twice the width, and each forged report
    moves such a difference by a bounded step. Infinite where all people of the batch would not do;
    1 for Laplace reports.
    """
    weights = _weights(batch)
    apart = np.abs(weights[:, None, :] - weights[None, :, :]).max(axis=(0, 1))  # (c,)
    step, needed = _step(batch), 2 * batch.width
    if math.isinf(step):
        return 1.0
    forged = 0
    for place in np.argsort(-apart):  # the plays that move most first
        most, each = int(batch.counts[place]), step * float(apart[place])
        if most * each >= needed:
            return float(forged + math.ceil(needed / each))
        forged, needed = forged + most, needed - most * each
    return math.inf


def _step(batch: Batch) -> float:
    """Of one report, in a sum."""
    return math.inf if batch.noise.kind == "laplace" else 2 * batch.noise.bound


def _weights(batch: Batch) -> np.ndarray:
    """(K, c) of sums in estimates."""
    return batch.estimates(np.eye(len(batch.counts)))
