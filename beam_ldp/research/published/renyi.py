"""Published bounds of the Rényi divergence of one shuffle, and exact values to hold them against.

Of a full shuffle, and then of a shuffle of a random subset.

All statements are replace-one, for `num_reports` reports through one shuffler, and hold for every
randomizer with the given `local_epsilon` unless a docstring says otherwise. Orders are integers at
least 2 where that is stated, otherwise real numbers above one. Divergences are in nats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.moments import (
    binomial_log_pmf,
    binomial_window,
    interpolate_order,
    log_moment,
    log_sum,
)
from beam_ldp.accounting.divergences.shuffle_rdp import (
    integer_order,
    log_binomial,
    lower_edge_blocks,
    thesis_upper_1,
)

_FRACTION_STEP = 1.6
_FRACTIONS = 0.005 * _FRACTION_STEP ** np.arange(12.0)  # up to 0.88


def thesis_upper_1_optimized(order: int, local_epsilon: float, num_reports: int) -> float:
    """Theorem 5.3.1 with the best Chernoff fraction (Remark 5.3.3 sees no gain; there is one)."""

    def bound(fraction: float) -> float:
        return thesis_upper_1(order, local_epsilon, num_reports, fraction)

    coarse = min(_FRACTIONS, key=bound)
    near = np.clip(coarse * np.geomspace(1 / _FRACTION_STEP, _FRACTION_STEP, 9), 0.0, 0.99)
    return min(bound(0.5), *(bound(fraction) for fraction in near))


def thesis_simplified(order: int, local_epsilon: float, num_reports: int) -> float:
    """Thesis, Corollary 5.3.1; infinite outside its range order^4 e^(5 eps0) <= n/9."""
    order = integer_order(order)
    if order**4 * np.exp(5 * local_epsilon) > num_reports / 9:
        return float("inf")
    square = 4 * np.expm1(local_epsilon) ** 2 / num_reports
    return float(np.log1p(order * (order - 1) / 2 * square) / (order - 1))


def thesis_upper_2(order: float, local_epsilon: float, num_reports: int) -> float:
    """Thesis, Theorem 5.3.2. Real orders; looser than Theorem 5.3.1 wherever that applies."""
    ratio = np.exp(local_epsilon)
    crowd = np.floor((num_reports - 1) / (2 * ratio)) + 1
    main = order**2 * np.expm1(local_epsilon) ** 2 / crowd
    rare = local_epsilon * order - (num_reports - 1) / (8 * ratio)
    return float(np.logaddexp(main, rare) / (order - 1))


def erlingsson_2019(order: float, local_epsilon: float, num_reports: int) -> float:
    """The bound of Erlingsson et al. 2019 as a Rényi curve: 2 a E^4 (E - 1)^2 / n."""
    return float(2 * order * np.exp(4 * local_epsilon) * np.expm1(local_epsilon) ** 2 / num_reports)


def feldman_2023(order: float, local_epsilon: float, num_reports: int) -> float:
    """Feldman, McMillan and Talwar 2023, Corollary 4.3 (thesis, (3.6)): 48 a (E - 1)^2 / (n E).

    Infinite outside its range, order <= n / (16 eps0 E). Withdrawn for randomizers in general; it
    stands for binary randomized response and its kin.
    """
    ratio = np.exp(local_epsilon)
    if order > num_reports / (16 * local_epsilon * ratio):
        return float("inf")
    return float(48 * order * np.expm1(local_epsilon) ** 2 / (num_reports * ratio))


def two_response_direction(
    order: float,
    local_epsilon: float,
    num_reports: int,
    rate: float = 1.0,
    *,
    reverse: bool = False,
) -> float:
    """Shuffled binary randomized response, everybody else equal: one direction, exact.

    Forwards it is the lower bound of thesis, Theorem 5.3.3 (with `rate` < 1, Theorem 5.4.2);
    backwards it is larger without subsampling, and then equals the exact worst case over all
    datasets.
    """
    heads = 1 / (np.exp(local_epsilon) + 1)
    counts = binomial_window(num_reports, heads, order)
    step = rate * (np.exp(local_epsilon) - np.exp(-local_epsilon)) / num_reports
    excess = step * (counts - num_reports * heads)
    log_mass = binomial_log_pmf(counts, num_reports, heads)
    found = log_moment(log_mass, excess, 1 - order if reverse else order) / (order - 1)
    largest = float(np.log1p(rate * np.expm1(local_epsilon)))  # rounding exceeds it at eps0 = 30
    return min(found, largest)


def two_response_lower(
    order: float, local_epsilon: float, num_reports: int, rate: float = 1.0
) -> float:
    """Lower bound for what can be said knowing only eps0: shuffled binary randomized response."""
    return max(
        two_response_direction(order, local_epsilon, num_reports, rate, reverse=reverse)
        for reverse in (False, True)
    )


def thesis_reduction_exact(order: float, local_epsilon: float, num_reports: int) -> float:
    """The thesis' own reduction (Theorem 5.3.4) evaluated exactly instead of bounded.

    Given m of the others in the crowd, the likelihood ratio is a mean of m + 1 variables in
    [1/E, E] of mean one; a convex function of it is largest for the two-point law, which is
    binary randomized response. Sums over m are cut into blocks taken at their lower edge, which
    keeps the result an upper bound.
    """
    edges, log_weights = lower_edge_blocks(num_reports - 1, np.exp(-local_epsilon))
    inner = [(order - 1) * two_response_direction(order, local_epsilon, int(m) + 1) for m in edges]
    return _mix(log_weights, np.array(inner)) / (order - 1)


def _mix(log_weights: np.ndarray, log_moments: np.ndarray) -> float:
    """Log of the weighted mean of moments, accurate where all are close to one."""
    if log_moments.max() < 1:
        return float(np.log1p(np.sum(np.exp(log_weights) * np.expm1(log_moments))))
    return float(log_sum(log_weights + log_moments))


def at_real_orders(bound: Callable[[int], float]) -> Callable[[float], float]:
    """A bound that is known at the integers from 2 on, at every real order above one.

    Below 2 the chord begins at order one, where (a - 1) times any divergence is zero.

    >>> bound = at_real_orders(lambda order: 0.01 * order)
    >>> bound(3), round(bound(2.5), 5), round(bound(1.5), 5)
    (0.03, 0.02667, 0.02)
    """

    def between(order: float) -> float:
        if not order > 1:
            raise ValueError(f"order must be > 1, got {order!r}")
        low, high = math.floor(order), math.ceil(order)
        below = bound(low) if low >= 2 else 0.0
        return interpolate_order(order, below, bound(high) if high > low else below)

    return between


# A shuffle of a random subset: `num_sampled` of `num_users` report -------------------------
#
# The credit for sampling holds against readers who cannot see who took part. Bounds that are proved
# for every randomizer with the given `local_epsilon` say so; baselines carry the names of their
# authors.


def wang_balle_kasiviswanathan(
    order: int, local_epsilon: float, num_users: int, num_sampled: int
) -> float:
    """Subsampling without replacement of 2019 on top of Theorem 5.3.1. Integer orders."""
    order = integer_order(order)
    rate, grown = num_sampled / num_users, np.expm1(local_epsilon)
    inner = [_inner(j, local_epsilon, num_sampled) for j in range(2, order + 1)]
    second = min(4 * np.expm1(inner[0]), np.exp(inner[0]) * min(2.0, grown**2))
    terms = [2 * np.log(rate) + log_binomial(order, 2) + np.log(second)]
    for j in range(3, order + 1):
        log_bound = (j - 1) * inner[j - 2] + min(np.log(2.0), j * np.log(grown))
        terms.append(j * np.log(rate) + log_binomial(order, j) + log_bound)
    return float(np.logaddexp(0.0, log_sum(terms)) / (order - 1))


def zhu_wang_poisson(order: int, local_epsilon: float, num_sampled: int, rate: float) -> float:
    """Poisson subsampling of 2019 on top of Theorem 5.3.1. Integer orders."""
    order = integer_order(order)
    inner = [_inner(j, local_epsilon, num_sampled) for j in range(2, order + 1)]
    keep = np.log1p(-rate)
    terms = [
        (order - 1) * keep + np.log(order * rate - rate + 1),
        log_binomial(order, 2) + 2 * np.log(rate) + (order - 2) * keep + inner[0],
    ]
    for j in range(3, order + 1):
        weight = np.log(3) + log_binomial(order, j) + (order - j) * keep + j * np.log(rate)
        terms.append(weight + (j - 1) * inner[j - 2])
    return float(log_sum(terms) / (order - 1))


_inner = lru_cache(maxsize=4096)(thesis_upper_1)  # every order asks for all the orders below it


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


# Personalisation with adaptive distillation (DP-AdaPeD) -----------------------------------


def adaped_rdp_printed(
    orders: Sequence[float] | np.ndarray,
    *,
    num_clients: int,
    clients_per_round: int,
    steps: int,
    local_steps: int,
    clip: float,
    noise: float,
    psi_clip: float,
    psi_noise: float,
) -> np.ndarray:
    """Theorem 4.5.1 of the thesis as printed. **Not a bound**: for comparison only.

    It understates by the factor `local_steps` (tau aligned steps move a sum by tau C, not by
    sqrt(tau) C), treats noise in the middle of other clients' trainings as if it were added at the
    end, and supposes that nobody sees a single client's message.

    Args:
        orders: Rényi orders above one.
        num_clients: n.
        clients_per_round: K.
        steps: T, local steps in all.
        local_steps: tau, between two synchronisations.
        clip: C1, of one step's gradient of mu.
        noise: standard deviation added to it.
        psi_clip: C2, of one step's derivative in psi.
        psi_noise: standard deviation added to it.

    Returns:
        The printed divergence at each order, in nats.
    """
    rounds = steps / local_steps
    k = clients_per_round
    squares = clip**2 / (k * noise**2) + psi_clip**2 / (k * psi_noise**2)
    return np.asarray(orders, float) * (k / num_clients) ** 2 * 6 * rounds * squares
