"""Crowds whose size is a matter of chance that depends on nobody's value, and that a reader sees.

A hockey stick of two laws that are drawn together with one public number is its average over that
number. So a release in which a person hides among `size` reports costs

    delta(epsilon) = sum over sizes of Pr[size] * delta_size(epsilon),

where `delta_size` is what a crowd of that size costs: any bound of it, from above or from below,
gives one of the average. More people hide a person better (another report is post-processing), so
`delta_size` falls, and sizes are put in blocks: at the least of each the sum is no smaller, at the
largest no larger. Nothing is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.divergences.moments import binomial_cdf, binomial_sf
from beam_ldp.randomizers import special

STEPS = 60  # blocks where sizes that matter lie
_BELOW, _ABOVE, _FOOT = 8.0, 4.0, 8  # deviations that they lie within; blocks below all that
_LEAST_CHANCE = 1e-280  # that a difference of tails is trusted to hold
_ROUNDING = 1e-8  # relative: what differences of neighbouring tails may lose

Array = NDArray[np.float64]
LogDeltas = Callable[[NDArray[np.int64]], tuple[Array, Array]]


class CrowdSizes(NamedTuple):
    """How likely a person hides among so many reports, their own included.

    Attributes:
        sizes: The least of each block, ascending from 1.
        log_chances: Logarithm of the chance that the size is in each block, or a bit more.
        most: The largest size.
        share: How likely it is that a person's report tells two values apart at all.
    """

    sizes: tuple[int, ...]
    log_chances: tuple[float, ...]
    most: int
    share: float = 1.0

    def averaged(self, log_deltas: LogDeltas) -> tuple[Array, Array]:
        """Logarithms of lower and upper deltas, of any shape.

        Args:
            log_deltas: Those of crowds of some sizes, of an array of them: lower and upper ones,
                each of shape `(sizes, *shape)`.
        """
        sizes = np.array(self.sizes)
        low, high = log_deltas(sizes)
        ends = np.append(sizes[1:], self.most + 1)
        # A block of one size has its own; else the least of the next one is larger than all in it.
        below = np.append(low[1:], np.full((1, *low.shape[1:]), -np.inf), axis=0)
        below[ends - sizes == 1] = low[ends - sizes == 1]
        return self._average(below) + math.log1p(-4.0 * _ROUNDING), self.above(high)

    def above(self, log_deltas: Array) -> Array:
        """Logarithms of upper deltas, from those of crowds of `sizes`: of shape (sizes, *shape)."""
        return np.minimum(self._average(log_deltas), 0.0)

    def _average(self, logs: Array) -> Array:
        weights = np.reshape(self.log_chances, (-1, *[1] * (logs.ndim - 1))) + math.log(self.share)
        return np.asarray(np.logaddexp.reduce(weights + logs, axis=0))

    @property
    def reciprocal(self) -> float:
        """Mean of 1 / size, with 0 where a report tells nothing."""
        return self.share * float(np.exp(self.log_chances) @ (1.0 / np.array(self.sizes)))


Crowd = int | CrowdSizes


@lru_cache(maxsize=1024)
def of_groups(
    num_reports: int, groups: int, telling: int | None = None, steps: int = STEPS
) -> Crowd:
    """Who hides a person where everybody is in one group at random, each equally likely.

    Args:
        num_reports: Reports in all groups together.
        groups: Number of them; who is in which is seen, and has nothing to do with values.
        telling: In how many, at most, the reports of two values can differ; None: in all.
        steps: Blocks that sizes are put in.

    >>> of_groups(1000, 1)
    1000
    >>> crowd = of_groups(100_000, 127, 64)
    >>> round(1 / crowd.reciprocal), round(sum(map(math.exp, crowd.log_chances)), 6)
    (1558, 1.0)
    """
    if groups == 1:
        return num_reports
    others, chance = num_reports - 1, 1.0 / groups
    mean, deviation = others * chance, math.sqrt(others * chance * (1.0 - chance))
    low, high = mean - _BELOW * deviation, mean + _ABOVE * deviation
    if high - low <= steps:
        cells = np.arange(max(0, math.floor(low)), math.ceil(high) + 1)
    else:
        cells = np.floor(np.linspace(low, high, steps)).astype(np.int64)
    foot = np.floor(np.linspace(0, max(0.0, low), _FOOT)).astype(np.int64)
    first = np.unique(np.clip(np.concatenate([[0], foot, cells]), 0, others))
    last = np.append(first[1:] - 1, others)
    return CrowdSizes(
        tuple((first + 1).tolist()),
        tuple((_log_chances(first, last, others, chance) + math.log1p(_ROUNDING)).tolist()),
        num_reports,
        1.0 if telling is None else telling / groups,
    )


def _log_chances(first: Array, last: Array, trials: int, chance: float) -> Array:
    """Logarithms of Pr[first <= Bin(trials, chance) <= last], or of a bit more where it is tiny."""
    mean = trials * chance
    below, above = binomial_cdf(last, trials, chance), binomial_sf(first - 1, trials, chance)
    found = np.where(
        first > mean,
        above - binomial_sf(last, trials, chance),
        below - binomial_cdf(first - 1, trials, chance),
    )
    # Chernoff's bound of the tail from the end that is nearer to the mean.
    near = np.where(first > mean, first, np.minimum(last, mean)) / max(trials, 1)
    tail = -trials * (
        special.xlogy(near, near / chance) + special.xlogy(1 - near, (1 - near) / (1 - chance))
    )
    with np.errstate(divide="ignore"):
        return np.where(found > _LEAST_CHANCE, np.log(np.maximum(found, 0.0)), tail)


def mean_reciprocal(crowd: Crowd) -> float:
    """Mean of 1 / size: how large the variance of a loss is, in units of a single report's."""
    return 1.0 / crowd if isinstance(crowd, int) else crowd.reciprocal
