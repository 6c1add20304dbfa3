"""Rényi divergence of a shuffle of a random subset: `num_sampled` of `num_users` report.

The credit for sampling holds against readers who cannot see who took part. All statements are
replace-one. Bounds that are proved for every randomizer with the given `local_epsilon` say so;
baselines carry the names of their authors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.moments import (
    Atoms,
    binomial_log_pmf,
    binomial_window,
    log_sum,
)
from beam_ldp.accounting.divergences.shuffle_rdp import (
    _integer_order,
    _log_binomial,
    _two_counts,
    leading_constant,
    thesis_upper_1,
)
from beam_ldp.randomizers import special


def thesis_subsampled(
    order: int, local_epsilon: float, num_users: int, num_sampled: int, *, refined: bool = False
) -> float:
    """Thesis, Theorem 5.4.1. Integer orders; every randomizer.

    With `refined` the same proof with sharper constants: the second moment is at most V(eps0)
    instead of 4 (E - 1)^2 / E, and ratios differ by at most E - 1 instead of E - 1/E.
    """
    order = _integer_order(order)
    ratio, grown = np.exp(local_epsilon), np.expm1(local_epsilon)
    rate = num_sampled / num_users
    crowd = np.floor((num_sampled - 1) / (2 * ratio)) + 1
    if refined:
        second, spread, reach = leading_constant(local_epsilon), 2 * grown**2, grown
    else:
        square = np.expm1(2 * local_epsilon) ** 2 / ratio**2
        second, spread, reach = 4 * grown**2 / ratio, 2 * square, ratio - 1 / ratio
    terms = [_log_binomial(order, 2) + 2 * np.log(rate) + np.log(second / crowd)]
    j = np.arange(2, order + 1)
    rare = _log_binomial(order, j) + j * np.log(rate * reach) - (num_sampled - 1) / (8 * ratio)
    terms.append(log_sum(rare))
    if order >= 3:
        i = j[1:]
        higher = _log_binomial(order, i) + i * np.log(rate) + np.log(i) + special.gammaln(i / 2)
        terms.append(log_sum(higher + i / 2 * np.log(spread / crowd)))
    log_excess = log_sum(terms)
    bound = np.logaddexp(0.0, log_excess) if log_excess > 0 else np.log1p(np.exp(log_excess))
    return float(min(bound / (order - 1), np.log1p(rate * grown)))


def wang_balle_kasiviswanathan(
    order: int, local_epsilon: float, num_users: int, num_sampled: int
) -> float:
    """Subsampling without replacement of 2019 on top of Theorem 5.3.1. Integer orders."""
    order = _integer_order(order)
    rate, grown = num_sampled / num_users, np.expm1(local_epsilon)
    inner = [_inner(j, local_epsilon, num_sampled) for j in range(2, order + 1)]
    second = min(4 * np.expm1(inner[0]), np.exp(inner[0]) * min(2.0, grown**2))
    terms = [2 * np.log(rate) + _log_binomial(order, 2) + np.log(second)]
    for j in range(3, order + 1):
        log_bound = (j - 1) * inner[j - 2] + min(np.log(2.0), j * np.log(grown))
        terms.append(j * np.log(rate) + _log_binomial(order, j) + log_bound)
    return float(np.logaddexp(0.0, log_sum(terms)) / (order - 1))


def zhu_wang_poisson(order: int, local_epsilon: float, num_sampled: int, rate: float) -> float:
    """Poisson subsampling of 2019 on top of Theorem 5.3.1. Integer orders."""
    order = _integer_order(order)
    inner = [_inner(j, local_epsilon, num_sampled) for j in range(2, order + 1)]
    keep = np.log1p(-rate)
    terms = [
        (order - 1) * keep + np.log(order * rate - rate + 1),
        _log_binomial(order, 2) + 2 * np.log(rate) + (order - 2) * keep + inner[0],
    ]
    for j in range(3, order + 1):
        weight = np.log(3) + _log_binomial(order, j) + (order - j) * keep + j * np.log(rate)
        terms.append(weight + (j - 1) * inner[j - 2])
    return float(log_sum(terms) / (order - 1))


_inner = lru_cache(maxsize=4096)(thesis_upper_1)  # every order asks for all the orders below it


def direct_atoms(
    local_epsilon: float,
    num_users: int,
    num_sampled: int,
    tilt: float,
    clone_probability: float | None = None,
) -> Atoms:
    """The pair that dominates a subsampled shuffle with one point per person.

    Whether or not the victim was drawn, the reports of the others that do not blend in come from
    a uniformly random subset of the others, so only the two clone counts matter. With
    g = k/n, A ~ Bin(k, q), a ~ Bin(A, 1/2) and f = 2 g / ((E + 1) k q) the two laws have densities
    f (E a + b) + 1 - g and f (a + E b) + 1 - g. `clone_probability` q defaults to 1/E, which is
    proved for every randomizer; 2/(E + 1) is proved for some. At g = 1 this is the clone pair.

    Args:
        local_epsilon: eps0.
        num_users: n.
        num_sampled: k.
        tilt: the largest order that the atoms will be used for.
        clone_probability: q.
    """
    ratio = np.exp(local_epsilon)
    blend = np.exp(-local_epsilon) if clone_probability is None else clone_probability
    rate = num_sampled / num_users
    total, ones, log_mass = _two_counts(num_sampled, blend, tilt)
    scale = 2 * rate / ((ratio + 1) * num_sampled * blend)
    first = scale * (ratio * ones + (total - ones)) + (1 - rate)
    second = scale * (ones + ratio * (total - ones)) + (1 - rate)
    seen = second > 0  # with rate 1 the empty crowd has probability zero under both laws
    return Atoms(log_mass[seen], first[seen], second[seen])


def direct_rdp(
    order: float,
    local_epsilon: float,
    num_users: int,
    num_sampled: int,
    clone_probability: float | None = None,
) -> float:
    """Rényi divergence of `direct_atoms`. Real orders."""
    atoms = direct_atoms(local_epsilon, num_users, num_sampled, order, clone_probability)
    return min(
        atoms.renyi(order), float(np.log1p(num_sampled / num_users * np.expm1(local_epsilon)))
    )


def sampled_profile_rdp(
    order: float, ratios: np.ndarray, heights: np.ndarray, rate: float
) -> float:
    """Subsampling of any symmetric pair, given points of its hockey-stick curve.

    Valid for fixed-size sampling of people, and of one point per person. The curve is convex, so
    that the chords between the points lie above it. Source: Zhu, Dong and Wang 2022.

    Args:
        order: real order above one.
        ratios: t >= 1, ascending from 1 to the largest ratio there is.
        heights: E[(P - t Q)_+] of the unsampled pair there.
        rate: sampling rate.
    """
    # Widths before the shift: beside one, ratios of a small rate differ by less than a float holds.
    widths = rate * np.maximum(np.diff(ratios), np.spacing(ratios[1:]))[:, None]
    nodes, weights = np.polynomial.legendre.leggauss(6)
    along, half = (nodes + 1) / 2, widths / 2
    points = 1 + rate * (ratios[:-1, None] - 1) + along * widths
    chords = rate * (heights[:-1, None] + along * np.diff(heights)[:, None])
    seen = chords > 0  # where nothing is left of the curve, powers may overflow
    # An area that is too small for a float counts as the smallest there is: above, never below.
    areas = np.maximum(chords * weights * half, np.finfo(float).tiny)[seen]
    points = points[seen]
    with np.errstate(over="ignore"):  # an infinite divergence is what such orders prove
        total = float(np.sum((points ** (order - 2) + points ** (-order - 1)) * areas))
        return float(np.log1p(order * (order - 1) * total) / (order - 1))


def self_sampling_rdp(
    order: float,
    num_users: int,
    join_probability: float,
    per_count: Callable[[int], float],
) -> float:
    """People who join by their own coin: the price averaged over the visible participant count.

    `per_count(k)` is the divergence at this order when exactly k take part. The thesis adds a
    failure probability per round (Theorem 4.4.1); conditioning on the count needs none.
    """
    counts = binomial_window(num_users, join_probability, order)
    counts = counts[counts > 0]
    weights = np.exp(binomial_log_pmf(counts, num_users, join_probability))
    inner = np.array([np.expm1((order - 1) * per_count(int(k))) for k in counts])
    return float(np.log1p(np.sum(weights * inner)) / (order - 1))
