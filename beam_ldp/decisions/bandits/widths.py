"""How far estimated rewards may be from the true ones, with all noise counted."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beam_ldp.decisions.bandits.noise import Counts, RewardNoise

Floats = NDArray[np.float64]
Width = Literal["tight", "safe", "printed"]

_SHARES = np.linspace(0.02, 0.98, 49)


def tight_width(estimator: Floats, counts: Counts, noise: RewardNoise, log_failure: float) -> float:
    """Half-width by Chernoff's bound of rewards and Laplace noise together.

    Every exponent gives a valid bound; the best of a grid is taken.

    Args:
        estimator: (K, c); an action's estimate is its row times the sums of the c actions played.
        counts: (c,) people of each of them.
        noise: of their rewards.
        log_failure: l; all K estimates are within the width but with probability 2 K e^-l.

    Source: specification of linear bandits, section 8.
    """
    squares = estimator**2
    rewards = noise.bound**2 * (squares @ counts)
    scale = noise.laplace_scale
    if scale == 0.0:
        return float(np.sqrt(2 * log_failure * rewards.max()))
    terms = noise.laplace_terms(counts)
    spread = rewards + 2 * scale**2 * (squares @ terms)
    largest = scale * np.abs(estimator).max(axis=1)
    exponents = np.minimum(  # (K, grid)
        _SHARES / largest[:, None], 2 * _SHARES * np.sqrt(2 * log_failure / spread)[:, None]
    )
    cumulants = exponents**2 * rewards[:, None] / 2 + log_failure
    for column, count in zip(squares.T, terms, strict=True):
        cumulants -= count * np.log1p(-((exponents * scale) ** 2) * column[:, None])
    return float((cumulants / exponents).min(axis=1).max())


def safe_width(estimator: Floats, counts: Counts, noise: RewardNoise, log_failure: float) -> float:
    """The same in closed form: a width of rewards, and one of Laplace noise by `laplace_tail`.

    Each of the two fails with probability 2 K e^-l at most.
    """
    squares = estimator**2
    rewards = noise.bound * math.sqrt(2 * log_failure * float((squares @ counts).max()))
    spread = np.sqrt(log_failure * (squares @ noise.laplace_terms(counts)))
    peaks = log_failure * np.abs(estimator).max(axis=1)
    return rewards + noise.laplace_scale * math.sqrt(8) * float(np.maximum(spread, peaks).max())


def printed_width(
    kind: Literal["none", "central", "report"], size: float, people: int, played: int,
    dimension: int, epsilon: float, log_failure: float,
) -> float:  # fmt: skip
    """The text's width, for comparison: its tail of Laplace sums (Lemma E.1.2) is false.

    Args:
        kind: what the noise is: none, one Laplace variable a sum, or one a report.
        size: of the batch before counts are rounded up.
        people: of the batch.
        played: actions that are played.
        dimension: d.
        epsilon: central, or local.
        log_failure: log(4 K T^2).
    """
    width = math.sqrt(4 * dimension * log_failure / size)
    if kind == "central":
        return width + 2 * dimension * (played + log_failure) / (epsilon * size)
    if kind == "report":
        return width + 2 * math.sqrt(2 * dimension * people * log_failure) / (epsilon * size)
    return width


def laplace_tail(total: float, weights: Floats, scale: float = 1.0) -> float:
    """Bound of the probability that a weighted sum of Laplace variables exceeds `total`.

    From 1/(1 - x) <= e^(2x) for x <= 1/2; the text's own, `printed_laplace_tail`, is false.

    >>> round(laplace_tail(15.0, np.ones(10)), 3)
    0.06
    """
    spread, peak = float((weights**2).sum()), float(np.abs(weights).max())
    ratio = total / scale
    return math.exp(-min(ratio**2 / (8 * spread), ratio / (math.sqrt(8) * peak)))


def printed_laplace_tail(total: float, weights: Floats, scale: float = 1.0) -> float:
    """The text's Lemma E.1.2, as three of its uses read; false, for comparison."""
    spread, peak = float((weights**2).sum()), float(np.abs(weights).max())
    ratio = total / scale
    if ratio <= spread / peak:
        return math.exp(-(ratio**2) / (2 * spread))
    return math.exp(spread / (2 * peak**2) - ratio / peak)
