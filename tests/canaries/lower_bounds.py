"""What an attacker proves with samples: an epsilon that no correct price may lie below."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MISS = 1e-6  # chance that a bound is too high, of one attack

Views = NDArray[np.int64]  # what the attacker sees in each trial, as one number


def lower_epsilon(first: Views, second: Views, delta: float = 0.0, miss: float = MISS) -> float:
    """An epsilon that (epsilon, delta)-privacy of the two worlds cannot be below.

    The attacker learns on one half of the trials which views speak for which world, and counts them
    on the other half. Clopper-Pearson bounds on both frequencies make
    ln((least frequency in one world - delta) / greatest in the other) a lower bound for epsilon,
    wrong with a chance of at most `miss`: both directions and both bounds together.

    Args:
        first, second: views in trials of the two worlds, which are neighbours.
        delta: of the price that is tested.
        miss: as above.

    Returns:
        At least 0. About ln(trials / 30) at most, whatever the truth.
    """
    return max(
        0.0,
        _one_way(first, second, delta, miss / 4),
        _one_way(second, first, delta, miss / 4),
    )


def _one_way(likely: Views, unlikely: Views, delta: float, miss: float) -> float:
    learnt, tested = (likely[::2], unlikely[::2]), (likely[1::2], unlikely[1::2])
    views, codes = np.unique(np.concatenate(learnt), return_inverse=True)
    counts = [np.bincount(part, minlength=len(views)) for part in np.split(codes, [len(learnt[0])])]
    order = np.argsort(-(counts[0] + 0.5) / (counts[1] + 0.5), kind="stable")
    hits, misses = np.cumsum(counts[0][order]), np.cumsum(counts[1][order])
    found = _bound(hits, len(learnt[0]), misses, len(learnt[1]), delta, miss)
    chosen = views[order[: int(np.argmax(found)) + 1]]
    hit, wrong = (int(np.isin(part, chosen).sum()) for part in tested)
    bound = _bound(np.array(hit), len(tested[0]), np.array(wrong), len(tested[1]), delta, miss)
    return float(bound)


def _bound(
    hits: NDArray[np.int64],
    trials: int,
    wrong: NDArray[np.int64],
    others: int,
    delta: float,
    miss: float,
) -> NDArray[np.float64]:
    least = np.where(hits > 0, stats.beta.ppf(miss, hits, trials - hits + 1), 0.0)
    greatest = np.where(wrong < others, stats.beta.ppf(1 - miss, wrong + 1, others - wrong), 1.0)
    with np.errstate(divide="ignore"):
        found: NDArray[np.float64] = np.log(np.maximum(least - delta, 0.0)) - np.log(greatest)
    return np.where(np.isfinite(found), found, -math.inf)
