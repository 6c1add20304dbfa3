"""Shuffled additive shares of noisy numbers: what they tell beyond their sum, and its price."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.discrete_noise import (
    DRAW_DISTANCE,
    ROUNDED_VARIANCE,
    drawn_log_ratio,
    rounding_log_ratio,
    sum_log_ratio,
)
from beam_ldp.randomizers.mean.split_and_mix import LEAST_SHARES, MOST_SHARES

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


def views_distance(modulus: int, num_people: int, shares: int, coordinates: int) -> float:
    """The same of vectors: root of the chi-squared divergence of all coordinates together.

    Coordinates are split and shuffled independently, so that the expectations multiply.
    """
    excess = components_excess(modulus, num_people, shares - 1)
    power = coordinates * math.log1p(excess) if excess < math.inf else math.inf
    return math.sqrt(math.expm1(power)) if power < 1 else math.inf


def shares_for(modulus: int, num_people: int, distance: float, coordinates: int = 1) -> int:
    """The fewest shares that keep `views_distance` at or below `distance`.

    Raises:
        ValueError: if no reasonable number of shares does; the people are too few.
    """
    for shares in range(LEAST_SHARES, MOST_SHARES + 1):
        if views_distance(modulus, num_people, shares, coordinates) <= distance:
            return shares
    raise ValueError(
        f"num_people must be more than {num_people}: {MOST_SHARES} shares of each do not hide "
        f"numbers modulo {modulus} at a distance of {distance:g}"
    )


# The noise of a sum: a Gaussian mechanism, but for little --------------------------------


_REACH = 16.0  # deviations of the summed noise, within which it is compared with its ideal


class SumLosses(NamedTuple):
    """What a release loses: as much as a Gaussian mechanism, but for little.

    Attributes:
        mu: how far one person moves the sum, in deviations of the Gaussian.
        apart: logarithm of the ratio of densities to those of the Gaussian, at most.
        chance: that this does not hold.
    """

    mu: float
    apart: float
    chance: float

    def delta(self, epsilon: float) -> float:
        """The hockey stick at `epsilon`, at most."""
        return min(1.0, self.certain_delta(epsilon) + self.chance)

    def certain_delta(self, epsilon: float) -> float:
        """The hockey stick at `epsilon` without the probability that it does not hold."""
        if not (self.apart < 1 and 0 < self.mu < math.inf):
            return 1.0
        stick = gaussian_delta(epsilon - 2 * self.apart, self.mu)
        return min(1.0, math.exp(self.apart) * stick)

    def divergences(self, orders: np.ndarray) -> np.ndarray:
        """Renyi divergences at orders above one, but for the chance."""
        if not self.apart < 1:
            return np.full(len(orders), math.inf)
        return orders * self.mu**2 / 2 + self.apart * (2 * orders - 1) / (orders - 1)


NOTHING_HIDES = SumLosses(math.inf, math.inf, 1.0)


def noisy_sum_losses(
    sensitivity: float, deviation: float, num_people: int, coordinates: int
) -> SumLosses:
    """What a sum of integer vectors loses to which everybody adds discrete Gaussians.

    Args:
        sensitivity: Euclidean length, at most, of what replacing one person changes of the sum.
        deviation: of each person's noise in each coordinate.
        num_people: those who add noise, at least. More people, and what else is added, is harmless.
        coordinates: of the vectors.
    """
    variance = num_people * deviation**2 - ROUNDED_VARIANCE
    if not variance > 0:
        return NOTHING_HIDES
    mu = sensitivity / math.sqrt(variance)
    ideal = sum_log_ratio(deviation, num_people) + rounding_log_ratio()
    drawn = drawn_log_ratio(deviation, num_people, _REACH)
    if not (mu < _REACH and coordinates * (ideal + drawn) < 1):
        return NOTHING_HIDES
    further = 2 * math.exp(-((_REACH - mu) ** 2) / 2)
    chance = coordinates * (num_people * DRAW_DISTANCE + further)
    return SumLosses(mu, coordinates * (ideal + drawn), chance)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Delta of the Gaussian mechanism whose sensitivity is `mu` standard deviations, exactly.

    Source: Balle and Wang 2018. The inverse is `gaussian_mu`.
    """
    first = float(special.ndtr(mu / 2 - epsilon / mu))
    second = math.exp(epsilon + float(special.log_ndtr(-mu / 2 - epsilon / mu)))
    return max(0.0, first - second) + 1e-14 * first  # for rounding
