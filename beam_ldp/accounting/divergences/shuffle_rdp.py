"""Rényi divergence of one shuffle: the bounds of the thesis, and the atoms of the worst case.

Of a full shuffle, and then of a shuffle of a random subset.

All statements are replace-one, for `num_reports` reports through one shuffler, and hold for every
randomizer with the given `local_epsilon` unless a docstring says otherwise. Orders are integers at
least 2 where that is stated, otherwise real numbers above one. Divergences are in nats.
"""

from __future__ import annotations

import numpy as np

from beam_ldp.accounting.divergences.moments import (
    Atoms,
    binomial_cdf,
    binomial_log_pmf,
    binomial_sf,
    binomial_window,
    log_sum,
)
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_integer


def thesis_upper_1(
    order: int, local_epsilon: float, num_reports: int, chernoff: float = 0.5
) -> float:
    """Thesis, Theorem 5.3.1. Integer orders. `chernoff` is the fraction of Remark 5.3.3.

    Capped by `local_epsilon`, which the text leaves out and which large orders need.
    """
    order = integer_order(order)
    ratio, trials = np.exp(local_epsilon), num_reports - 1
    crowd = np.floor((1 - chernoff) * trials / ratio) + 1
    terms = [
        log_binomial(order, 2)
        + 2 * np.log(np.expm1(local_epsilon))
        - np.log(crowd)
        - local_epsilon,
        local_epsilon * order - chernoff**2 * trials / (2 * ratio),
    ]
    if order >= 3:
        i = np.arange(3, order + 1)
        base = 2 * np.log(np.expm1(2 * local_epsilon)) - np.log(2 * crowd) - 2 * local_epsilon
        higher = log_binomial(order, i) + np.log(i) + special.gammaln(i / 2) + i / 2 * base
        terms.append(log_sum(higher))
    bound = _log1p_exp(log_sum(terms)) / (order - 1)
    return float(min(bound, local_epsilon))


def three_response_atoms(local_epsilon: float, num_reports: int, rate: float, tilt: float) -> Atoms:
    """Ternary randomized response, everybody else at the third value, for orders up to `tilt`."""
    ratio = np.exp(local_epsilon)
    decided, ones, log_mass = _two_counts(num_reports, 2 / (ratio + 2), tilt)
    rest = (num_reports - decided) / ratio
    first = 1 + rate * ((ratio * ones + (decided - ones) + rest) / num_reports - 1)
    second = 1 + rate * ((ones + ratio * (decided - ones) + rest) / num_reports - 1)
    return Atoms(log_mass, first, second)


def leading_constant(local_epsilon: float) -> float:
    """V such that the worst divergence of any randomizer is order * V / (2 n) for large n.

    (E - 1)^2 max(1/E, 2/(E + 2)): binary randomized response is worst up to E = 2, 3-ary beyond.
    """
    ratio = np.exp(local_epsilon)
    return float(np.expm1(local_epsilon) ** 2 * max(1 / ratio, 2 / (ratio + 2)))


def lower_edge_blocks(
    trials: int, probability: float, blocks: int = 160
) -> tuple[np.ndarray, np.ndarray]:
    """A binomial count rounded down to few values: their positions and log-weights.

    Fewer clones are worse, so replacing a count by a smaller one is an upper bound. Where all
    counts that matter are few they are kept one by one; elsewhere most blocks lie within four
    standard deviations.
    """
    mean = trials * probability
    deviation = np.sqrt(mean * (1 - probability)) + 1
    if 21 * deviation <= 4 * blocks:
        body = np.arange(mean - 12 * deviation, mean + 9 * deviation)
    else:
        fine = np.linspace(mean - 4 * deviation, mean + 4 * deviation, 2 * blocks // 3)
        coarse = np.linspace(mean - 12 * deviation, mean + 9 * deviation, blocks // 3)
        body = np.concatenate([fine, coarse])
    foot = np.linspace(0, max(0.0, mean - 12 * deviation), blocks // 4)
    edges = np.unique(np.clip(np.floor(np.concatenate([foot, body])), 0, trials))
    edges = edges.astype(np.int64)
    last = np.append(edges[1:] - 1, trials)
    below = binomial_cdf(last, trials, probability)
    from_below = below - binomial_cdf(edges - 1, trials, probability)
    above = binomial_sf(edges - 1, trials, probability)
    from_above = above - binomial_sf(last, trials, probability)
    mass = np.where(edges > mean, from_above, from_below)
    tiny = mass < 1e-280  # there the whole tail up to the block's end stands for the block
    with np.errstate(divide="ignore"):
        log_mass = np.where(tiny, np.log(below), np.log(np.maximum(mass, 1e-300)))
    return edges, np.where(tiny & (edges > mean), -np.inf, log_mass)


def _two_counts(
    trials: int, probability: float, order: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All (D, a) with D binomial and a a fair split of it, flattened, with log-masses."""
    decided = binomial_window(trials, probability, order)
    log_decided = binomial_log_pmf(decided, trials, probability)
    reach = 11 * (np.sqrt(decided[-1]) / 2 + 1) + 3 * order
    offsets = np.arange(-int(reach), int(reach) + 2)
    ones = decided[:, None] // 2 + offsets[None, :]
    valid = (ones >= 0) & (ones <= decided[:, None])
    totals = np.broadcast_to(decided[:, None], ones.shape)[valid]
    ones = ones[valid]
    log_mass = np.broadcast_to(log_decided[:, None], valid.shape)[valid]
    return totals, ones, log_mass + binomial_log_pmf(ones, totals, 0.5)


def integer_order(order: float) -> int:
    """The order, which must be a whole number of at least 2."""
    return check_integer("order", order, 2)


def log_binomial(n: float, k: float | np.ndarray) -> float | np.ndarray:
    """Logarithm of the binomial coefficient."""
    return special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - np.asarray(k) + 1)


def _log1p_exp(log_value: float) -> float:
    return float(np.log1p(np.exp(log_value)) if log_value < 700 else log_value)


# A shuffle of a random subset: `num_sampled` of `num_users` report -------------------------
#
# The credit for sampling holds against readers who cannot see who took part. Bounds that are proved
# for every randomizer with the given `local_epsilon` say so; baselines carry the names of their
# authors.


def thesis_subsampled(
    order: int, local_epsilon: float, num_users: int, num_sampled: int, *, refined: bool = False
) -> float:
    """Thesis, Theorem 5.4.1. Integer orders; every randomizer.

    With `refined` the same proof with sharper constants: the second moment is at most V(eps0)
    instead of 4 (E - 1)^2 / E, and ratios differ by at most E - 1 instead of E - 1/E.
    """
    order = integer_order(order)
    ratio, grown = np.exp(local_epsilon), np.expm1(local_epsilon)
    rate = num_sampled / num_users
    crowd = np.floor((num_sampled - 1) / (2 * ratio)) + 1
    if refined:
        second, spread, reach = leading_constant(local_epsilon), 2 * grown**2, grown
    else:
        square = np.expm1(2 * local_epsilon) ** 2 / ratio**2
        second, spread, reach = 4 * grown**2 / ratio, 2 * square, ratio - 1 / ratio
    terms = [log_binomial(order, 2) + 2 * np.log(rate) + np.log(second / crowd)]
    j = np.arange(2, order + 1)
    rare = log_binomial(order, j) + j * np.log(rate * reach) - (num_sampled - 1) / (8 * ratio)
    terms.append(log_sum(rare))
    if order >= 3:
        i = j[1:]
        higher = log_binomial(order, i) + i * np.log(rate) + np.log(i) + special.gammaln(i / 2)
        terms.append(log_sum(higher + i / 2 * np.log(spread / crowd)))
    log_excess = log_sum(terms)
    bound = np.logaddexp(0.0, log_excess) if log_excess > 0 else np.log1p(np.exp(log_excess))
    return float(min(bound / (order - 1), np.log1p(rate * grown)))
