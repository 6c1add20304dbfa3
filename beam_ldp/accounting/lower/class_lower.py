"""What no analysis can go below that knows a mechanism by its local epsilon alone.

Binary and ternary randomized response are such mechanisms; what a concrete pair of datasets costs
with them bounds the price of the class from below. In both, everybody else holds one value; with
several points per client every other point does.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.hockey_stick import directions, epsilon_bound, hockey_stick
from beam_ldp.accounting.divergences.moments import Atoms, binomial_log_pmf, binomial_window
from beam_ldp.accounting.divergences.shuffle_rdp import three_response_atoms
from beam_ldp.accounting.lower.atom_losses import lower_epsilon
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses

_TILT = 100.0
_LARGEST_LISTED_CROWD = 3000  # above, ternary response is known by the difference of two counts
_DEVIATIONS = 14.0


def two_response_atoms(local_epsilon: float, num_reports: int, rate: float = 1.0) -> Atoms:
    """Binary randomized response, everybody else equal; the victim reports with `rate`."""
    ratio = np.exp(local_epsilon)
    heads = 1 / (ratio + 1)
    counts = binomial_window(num_reports, heads, _TILT)
    excess = rate * (ratio - 1 / ratio) / num_reports * (counts - num_reports * heads)
    log_mass = binomial_log_pmf(counts, num_reports, heads)
    return Atoms(log_mass, 1 + excess, np.ones_like(excess))


def three_response_difference_atoms(
    local_epsilon: float, num_reports: int, rate: float = 1.0
) -> Atoms:
    """Ternary randomized response, everybody else at the third value, seen by one number.

    The reader is told only how many more reports name the victim's first value than the second.
    That is post-processing of the histogram, hence still a lower bound, and hardly a lesser one:
    the likelihood ratio depends on little else. O(sqrt(num_reports)).
    """
    ratio = math.exp(local_epsilon)
    each, both = 1 / (ratio + 2), ratio / (ratio + 2)
    others = difference_law(num_reports - 1, each, both)
    base = each * others[:-2] + both * others[1:-1] + each * others[2:]
    lower, same, upper = (part / base for part in (others[:-2], others[1:-1], others[2:]))
    first = both * lower + each * same + each * upper  # the report adds one to what others sum to
    second = each * lower + each * same + both * upper
    return Atoms(np.log(base), 1 + rate * (first - 1), 1 + rate * (second - 1))


def difference_law(trials: int, each: float, neither: float) -> np.ndarray:
    """Law of a sum of draws from {1, -1, 0} with probabilities (each, each, neither).

    At every integer of a window symmetric around zero, by the recurrence of the coefficients of
    (each z + neither + each / z)^trials. Its terms are positive on the left half, so that it is
    stable there, and it forgets where it was started.
    """
    reach = _DEVIATIONS * (math.sqrt(2 * each * trials) + 1) + 2
    start = -min(trials, int(reach))
    growth = 1.0 if start > -trials else math.inf  # no outcome lies below -trials
    log_growth = np.zeros(1 - start)
    for i, m in enumerate(range(start + 1, 1), start=1):
        up = neither / each * (1 - m) + (trials - m + 2) / growth
        growth = up / (trials + m)
        log_growth[i] = math.log(growth)
    left = np.exp(np.cumsum(log_growth) - np.sum(log_growth))
    law = np.concatenate([left, left[-2::-1]])
    return law / law.sum()


@lru_cache(maxsize=4096)
def class_lower_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """Certified lower bound of the epsilon of `count` releases, for the worst randomizer.

    Args:
        local_epsilon: eps0.
        num_reports: Reports in each shuffled batch.
        rate: Probability that a person (of several points per client: one data point) is drawn for
            a batch; 1 without sampling.
        count: Releases.
        delta: In (0, 1).

    >>> round(class_lower_epsilon(2.0, 2_000, 2_000 / 60_000, 6_000, 1e-5), 3)
    0.608
    """
    return max(
        two_response_epsilon(local_epsilon, num_reports, rate, count, delta),
        three_response_epsilon(local_epsilon, num_reports, rate, count, delta),
    )


@lru_cache(maxsize=4096)
def two_response_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """What binary randomized response costs at least; see `class_lower_epsilon`."""
    if rate == 1.0 and count == 1:
        return _one_shuffle(two_response_witnesses(local_epsilon), num_reports, delta)
    pair = two_response_atoms(local_epsilon, num_reports, rate)
    return lower_epsilon([(count, pair)], delta)


@lru_cache(maxsize=4096)
def three_response_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """What ternary randomized response costs at least; see `class_lower_epsilon`."""
    if rate == 1.0 and count == 1:
        return _one_shuffle(three_response_witnesses(local_epsilon), num_reports, delta)
    if num_reports <= _LARGEST_LISTED_CROWD:
        pair = three_response_atoms(local_epsilon, num_reports, rate, _TILT)
    else:
        pair = three_response_difference_atoms(local_epsilon, num_reports, rate)
    return lower_epsilon([(count, pair)], delta)


def two_response_witnesses(local_epsilon: float) -> tuple[ShufflePair, ...]:
    """Binary randomized response, everybody else equal, in both directions."""
    return _both(two_level_witnesses(math.exp(local_epsilon), 1 / 2, 0.0))


def three_response_witnesses(local_epsilon: float) -> tuple[ShufflePair, ...]:
    """Ternary randomized response, everybody else at one of its values, in both directions."""
    return _both(two_level_witnesses(math.exp(local_epsilon), 1 / 3, 0.0, (0.0,)))


def _both(pairs: tuple[ShufflePair, ...]) -> tuple[ShufflePair, ...]:
    return tuple(side for pair in pairs for side in directions(pair))


def _one_shuffle(pairs: tuple[ShufflePair, ...], num_reports: int, delta: float) -> float:
    best = 0.0
    for pair in pairs:
        if hockey_stick(pair, num_reports, best).lower > delta:  # else it cannot be the largest
            best = max(best, epsilon_bound(pair, num_reports, delta, upper=False))
    return best
