"""Rényi curves and deltas that nothing but the tests compare with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from beam_ldp.accounting.composition.central import canonical, divergences
from beam_ldp.accounting.divergences.iid_sums import FINE, Array, positive_parts
from beam_ldp.accounting.divergences.moments import Atoms, binomial_log_pmf, binomial_window
from beam_ldp.accounting.divergences.shuffle_rdp import (
    _two_counts,
    lower_edge_blocks,
    three_response_atoms,
)
from beam_ldp.accounting.schedule_prices import require
from beam_ldp.accounting.shuffle.multi_message import MessageMethod, checked_messages, column_losses
from beam_ldp.accounting.two_ledgers import adaped_round_event
from beam_ldp.research.published.renyi import _mix, two_response_lower

LARGEST_TWO_COUNT_CROWD = 200_000


def thesis_simple_lower(order: float, local_epsilon: float, num_reports: int) -> float:
    """Thesis, Corollary 5.3.2: the second moment alone of the lower bound of Theorem 5.3.3."""
    square = np.expm1(local_epsilon) ** 2 / (num_reports * np.exp(local_epsilon))
    return float(np.log1p(order * (order - 1) / 2 * square) / (order - 1))


def three_response_lower(
    order: float, local_epsilon: float, num_reports: int, rate: float = 1.0
) -> float:
    """The same with 3-ary randomized response, all others at the third value (better from E > 2).

    Its sum runs over two counts; for crowds beyond about 200,000 the binary bound stands in.
    """
    if num_reports > LARGEST_TWO_COUNT_CROWD:
        return two_response_lower(order, local_epsilon, num_reports, rate)
    return three_response_atoms(local_epsilon, num_reports, rate, order).renyi(order)


def clone_rdp(
    order: float, local_epsilon: float, num_reports: int, clone_probability: float | None = None
) -> float:
    """Rényi divergence of the clone pair (Feldman, McMillan and Talwar 2021), upper bound.

    `clone_probability` defaults to 1/E, proved for every randomizer; 2/(E + 1) is proved for
    binary randomized response and a few others only.
    """
    probability = np.exp(-local_epsilon) if clone_probability is None else clone_probability
    edges, log_weights = lower_edge_blocks(num_reports - 1, probability)
    inner = [(order - 1) * _clones_given(order, local_epsilon, int(c)) for c in edges]
    return _mix(log_weights, np.array(inner)) / (order - 1)


def _clones_given(order: float, local_epsilon: float, clones: int) -> float:
    """Divergence when exactly `clones` others blend in."""
    total = clones + 1
    ones = binomial_window(total, 0.5, order)
    ratio = np.exp(local_epsilon)
    first = 2 * (ratio * ones + (total - ones)) / ((ratio + 1) * total)
    second = 2 * (ones + ratio * (total - ones)) / ((ratio + 1) * total)
    return Atoms(binomial_log_pmf(ones, total, 0.5), first, second).renyi(order)


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


def two_response_expansion(
    order: float, local_epsilon: float, num_reports: int, *, reverse: bool = False
) -> float:
    """Shuffled binary randomized response up to terms of order n^-2. An approximation.

    Args:
        order: real order above one.
        local_epsilon: eps0.
        num_reports: n.
        reverse: the other direction, as in `two_response_direction`.

    Raises:
        OutOfRangeError: where the next terms are no longer small (order^2 v > 0.1).

    >>> round(two_response_expansion(10, 1.0, 10_000) * 1e4, 6)
    5.427361
    """
    spread = math.expm1(local_epsilon) ** 2 / (num_reports * math.exp(local_epsilon))
    require(order**2 * spread <= 0.1, "order^2 (E - 1)^2 / (n E) <= 0.1: use the exact sum")
    third = math.expm1(local_epsilon) ** 4 / (num_reports * math.exp(local_epsilon)) ** 2
    power = 1 - order if reverse else order
    moment = (
        _binomial(power, 2) * spread
        + _binomial(power, 3) * third
        + 3 * _binomial(power, 4) * spread**2
    )
    return float(np.log1p(moment) / (order - 1))


def _binomial(power: float, chosen: int) -> float:
    """The generalised binomial coefficient, also of negative numbers."""
    return math.prod((power - i) / (i + 1) for i in range(chosen))


def adaped_rdp_safe(
    orders: Sequence[float] | np.ndarray,
    *,
    num_clients: int,
    clients_per_round: int,
    rounds: int,
    noise_multiplier: float,
    psi_noise_multiplier: float,
) -> np.ndarray:
    """Rényi divergence of `rounds` rounds of the safe variant: see `adaped_round_event`.

    >>> adaped_rdp_safe(
    ...     [2.0], num_clients=50, clients_per_round=50, rounds=10, noise_multiplier=3.0,
    ...     psi_noise_multiplier=4.0,
    ... ).round(3)
    array([6.944])
    """
    event = adaped_round_event(
        num_clients, clients_per_round, noise_multiplier, psi_noise_multiplier
    )
    return rounds * divergences(canonical(event), np.asarray(orders, float))


def multi_message_delta(
    messages: Iterable[tuple[int, float]],
    num_reports: int,
    epsilon: float,
    method: MessageMethod = "auto",
) -> float:
    """The delta at `epsilon` of all message columns together: an upper bound.

    `method` is "blanket" (also "auto") or "clones".
    """
    columns = checked_messages(messages, num_reports, 0.5, method)
    if method not in ("auto", "blanket", "clones"):
        raise ValueError(f'method must be "auto", "blanket" or "clones", got {method!r}')
    return float(column_losses(columns, num_reports, method).deltas(np.array([epsilon]))[0])


def positive_part(
    values: Array, probability: Array, n: int, smoothings: tuple[float, ...] = FINE
) -> tuple[float, float]:
    """Lower and upper bound of E[max(S, 0)] for the sum S of n independent draws.

    Args:
        values: What one draw can be, shape (kinds,), float64; one of them positive.
        probability: How likely each is, same shape.
        n: Number of draws.
        smoothings: Widths of the Gaussian, coarsest first; a finer one is tried while the bounds
            differ by more than 2 %.
    """
    low, high = positive_parts(values[None], probability, n, smoothings)
    return math.exp(low[0]), math.exp(high[0])
