"""What shuffled additive shares tell beyond their sum, and what a sum with shared noise costs."""

from __future__ import annotations

import math

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.discrete_gaussian import (
    DRAW_DISTANCE,
    ROUNDED_VARIANCE,
    rounding_log_ratio,
    sum_log_ratio,
)
from beam_ldp.randomizers.mean.split_and_mix import LEAST_SHARES, MOST_SHARES, SplitAndMixMean
from beam_ldp.randomizers.special import brentq

_LARGEST_EPSILON = 100.0
_LISTED = 256  # crowds whose bound is computed from all smaller ones
_SMALL = 64


def view_distance(modulus: int, num_people: int, shares: int) -> float:
    """Total variation between what shufflers show of two data sets of one sum, at most.

    Each of `num_people` splits her number, modulo `modulus`, into `shares` numbers that are uniform
    but for their sum; the first numbers of all are shuffled, the second ones, and so on. (One
    shuffle of all shares shows no more.) Holds for any two vectors of numbers of one sum.

    Proof. Show the last shares unshuffled, which tells more. The others, m' = shares - 1 columns,
    then split numbers u that are uniform, and u + c in the other data set, with sum(c) = 0. So
    twice the mean over u of the distance of the columns Y from what is seen on average of vectors
    with the sum of u bounds it. That mean is also the mean over uniform Y of the distance of u
    given Y from a uniform vector of that sum: by Cauchy-Schwarz at most half the root of
    modulus^(n-1) Pr[u = u'] - 1, where u and u' add up Y in two random orders. They are equal with
    probability modulus^(C - n), where C counts the components of the graph that joins each i with
    its images under m' random permutations. Together sqrt(E modulus^(C-1) - 1).

    Source: Ishai, Kushilevitz, Ostrovsky and Sahai 2006; Balle, Bell, Gascon and Nissim 2020
    (arXiv:2002.00817), who bound the expectation by a closed form; here it is computed.

    >>> view_distance(2**20, 8000, 10)
    2.5...e-13
    """
    check_integer("modulus", modulus, 2)
    check_integer("num_people", num_people, 1)
    check_integer("shares", shares, LEAST_SHARES, MOST_SHARES)
    return min(1.0, math.sqrt(components_excess(modulus, num_people, shares - 1)))


def components_excess(modulus: int, num_people: int, permutations: int) -> float:
    """E modulus^(C-1) - 1 at most, for the components C of that many random permutations' graph.

    The component of the first person leaves out some set of j people with probability at most
    comb(n-1, j) / comb(n, j)^permutations, and those form a graph of the same kind:

        A_n <= 1 + modulus sum_(j=1)^(n-1) comb(n-1, j) comb(n, j)^-permutations A_j.

    Small crowds by this; in large ones the middle terms are bounded together, with A_j <= 2, which
    follows by induction since the bound falls as n grows (for three permutations or more).
    Infinite where that does not hold.
    """
    n, log_q = num_people, math.log(modulus)
    logs = np.zeros(min(n, _LISTED) + 1)  # log A_j
    for size in range(2, len(logs)):
        j = np.arange(1, size)
        terms = log_q + _log_left_out(size, j, permutations) + logs[1:size]
        if size == n:
            return _exp_sum(terms)
        logs[size] = np.logaddexp(0.0, np.logaddexp.reduce(terms))
    if n <= 1:
        return 0.0
    few = np.arange(1, _SMALL + 1)

    def bound(size: int) -> float:
        first = log_q + _log_left_out(size, few, permutations) + logs[few]
        last = math.log(2) + log_q + _log_left_out(size, size - few, permutations)
        middle = math.log(size) - (permutations - 1) * float(_log_comb(size, np.array(_SMALL + 1)))
        return _exp_sum(np.concatenate([first, last, [math.log(2) + log_q + middle]]))

    if logs[_SMALL:].max() > math.log(2) or bound(_LISTED + 1) > 1 or permutations < 3:
        return math.inf
    return bound(n)


def _log_left_out(size: int, j: np.ndarray, permutations: int) -> np.ndarray:
    """Of comb(size-1, j) / comb(size, j)^permutations, where comb(size-1, j) is a share of it."""
    return np.asarray(np.log1p(-j / size) - (permutations - 1) * _log_comb(size, j))


def _log_comb(n: int, k: np.ndarray) -> np.ndarray:
    """By sums of few logarithms: those of factorials of large numbers lose too many digits."""
    fewer = np.minimum(k, n - k)
    i = np.arange(int(fewer.max()))
    return np.asarray(np.concatenate([[0.0], np.cumsum(np.log((n - i) / (i + 1)))])[fewer])


def _exp_sum(logs: np.ndarray) -> float:
    total = float(np.logaddexp.reduce(logs))
    return math.exp(total) * (1 + 1e-8) if total < 700 else math.inf  # for rounding


def shares_for(modulus: int, num_people: int, distance: float) -> int:
    """The fewest shares that keep `view_distance` at or below `distance`.

    Raises:
        ValueError: if no reasonable number of shares does; the people are too few.
    """
    for shares in range(LEAST_SHARES, MOST_SHARES + 1):
        if view_distance(modulus, num_people, shares) <= distance:
            return shares
    raise ValueError(
        f"num_people must be more than {num_people}: {MOST_SHARES} shares of each do not hide "
        f"numbers modulo {modulus} at a distance of {distance:g}"
    )


def noisy_sum_delta(
    epsilon: float, sensitivity: float, deviation: float, num_people: int, coordinates: int
) -> float:
    """Delta at `epsilon` of a sum of integer vectors to which everybody adds discrete Gaussians.

    Args:
        epsilon: > 0.
        sensitivity: Euclidean length, at most, of what replacing one person changes of the sum.
        deviation: of each person's noise in each coordinate.
        num_people: those who add noise, at least. More people, and what else is added, is harmless.
        coordinates: of the vectors.

    The continuous Gaussian's delta, and what the three steps from it to the discrete shares add:
    rounding, splitting (`sum_log_ratio`), drawing from tables.
    """
    apart = coordinates * (sum_log_ratio(deviation, num_people) + rounding_log_ratio())
    variance = num_people * deviation**2 - ROUNDED_VARIANCE
    if not (variance > 0 and apart < epsilon / 2):
        return 1.0
    ideal = gaussian_delta(epsilon - 2 * apart, sensitivity / math.sqrt(variance))
    drawn = num_people * coordinates * DRAW_DISTANCE
    return min(1.0, math.exp(apart) * ideal + (1 + math.exp(epsilon)) * drawn)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism whose sensitivity is `mu` standard deviations, exactly.

    Source: Balle and Wang 2018. The inverse is `gaussian_mu`.
    """
    first = float(special.ndtr(mu / 2 - epsilon / mu))
    second = math.exp(epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu)))
    return max(0.0, first - second) + 1e-14 * first  # for rounding


def split_and_mix_delta(mechanism: SplitAndMixMean, epsilon: float, num_honest: int) -> float:
    """Delta at `epsilon` of a `SplitAndMixMean` whose shares were shuffled column by column.

    Protects one person's vector (replace-one) against everybody who sees what the shufflers put
    out and the envelopes of all people but `num_honest`; not against the shufflers. It counts
    people whose envelopes arrived complete, who followed the protocol and tell nobody their shares.

    The sum costs what `noisy_sum_delta` says; in each coordinate the shuffled shares differ by
    `view_distance` from what can be made of the sum modulo q alone, for either data set:
    (1 + e^epsilon) times that is added. That sums wrap around costs accuracy, not privacy.
    """
    check_integer("num_honest", num_honest, 1)
    check_positive("epsilon", epsilon)
    if epsilon > _LARGEST_EPSILON:
        return split_and_mix_delta(mechanism, _LARGEST_EPSILON, num_honest)
    size = mechanism.num_coordinates
    sizes = mechanism.sensitivity, mechanism.noise_deviation, num_honest, size
    noise = noisy_sum_delta(epsilon, *sizes)
    shown = size * view_distance(mechanism.modulus, num_honest, mechanism.shares)
    return min(1.0, noise + (1 + math.exp(epsilon)) * shown)


def split_and_mix_epsilon(mechanism: SplitAndMixMean, num_honest: int, delta: float) -> float:
    """Epsilon at `delta`, as `split_and_mix_delta`; infinite where too few people are honest."""
    check_fraction("delta", delta)

    def excess(log_epsilon: float) -> float:
        return split_and_mix_delta(mechanism, math.exp(log_epsilon), num_honest) - delta

    low, high = math.log(1e-6), math.log(_LARGEST_EPSILON)
    grid = np.linspace(low, high, 61)
    inside = [point for point in grid.tolist() if excess(point) <= 0]
    if not inside:
        return math.inf  # the shares alone show too much
    if inside[0] == low:
        return math.exp(low)
    below = inside[0] - (high - low) / 60
    root = brentq(excess, below, inside[0], xtol=1e-12)
    while excess(root) > 0:
        root += 1e-11
    return math.exp(root)
