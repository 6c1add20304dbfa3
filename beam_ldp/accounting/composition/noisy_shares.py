"""The privacy losses of a release of shuffled shares: those of a Gaussian, but for little."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.composition.curve_losses import NEGLIGIBLE, STEPS_PER_DEVIATION, loss_knots
from beam_ldp.accounting.composition.sampled_gaussian import SampledGaussian
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.shares import ShuffledShares

_GROWTH = 1.005  # of distances between losses


def deviation(event: ShuffledShares) -> float | None:
    """Standard deviation of the loss of one release; None where nothing hides anybody."""
    losses = event.losses
    return losses.mu if losses.apart < 1 else None


@lru_cache(maxsize=64)
def loss_grid(event: ShuffledShares) -> LossGrid:
    """The losses of one release, but for its `failure_probability`."""
    losses = event.losses
    noise = SampledGaussian(1.0, losses.mu, coins=False)
    step = losses.mu / STEPS_PER_DEVIATION
    last = math.ceil((noise.largest_loss + 2 * losses.apart) / step)
    knots = loss_knots(step, losses.mu, last, _GROWTH)
    # The stick at a loss below zero is above that at zero by no more than the distance.
    within = knots * step - 2 * losses.apart
    sticks = noise.sticks(np.maximum(within, 0.0)) + np.maximum(-within, 0.0)
    sticks = np.minimum(math.exp(losses.apart) * sticks, 1.0)
    kept = 1 + np.count_nonzero(sticks >= NEGLIGIBLE)
    return LossGrid.connecting(step, knots[:kept], sticks[:kept])
