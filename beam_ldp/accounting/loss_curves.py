"""The whole privacy curve of one shuffled release, from its hockey sticks at a few hundred losses.

Connecting those dots gives a privacy-loss distribution that is never better than the truth, and
whose losses end at the largest log-ratio of the mechanism: it composes, and it has Rényi moments
of every order. Nothing about the mechanism enters but its pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from beam_ldp.accounting.events import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    ShuffledMessagesDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.hockey_stick import hockey_stick, largest_log_ratio
from beam_ldp.accounting.l2_messages import l2_messages_rdp
from beam_ldp.accounting.moments import log_sum
from beam_ldp.randomizers.mean.two_response import message_pair
from beam_ldp.randomizers.shuffle_pair import ShufflePair

OwnEvent = ShuffledDpEvent | SubsampledShuffledDpEvent

STEPS_PER_DEVIATION = 20
_FINE_DEVIATIONS = 8  # evenly spaced up to here, geometrically beyond
_GROWTH = 1.06
_ORDERS_OF_LENGTH = (3.0, 512.0)  # where the price of bounded length is proved and computed
_NEGLIGIBLE = 1e-25  # delta of a loss beyond which compositions count everything as unbounded


def message_columns(event: ShuffledMessagesDpEvent) -> list[tuple[int, ShuffledDpEvent]]:
    """The release as so many equal columns of each kind, one shuffle each."""
    return [
        (
            count,
            ShuffledDpEvent(
                LocalRandomizerDpEvent(budget, message_pair(budget)), event.num_reports
            ),
        )
        for count, budget in event.messages
    ]


def loss_deviation(event: OwnEvent) -> float:
    """Standard deviation of one release's privacy loss, for large crowds. Sets the grid."""
    pair, reports, rate = _tightest(event)
    spread = sum(
        p * (first - second) ** 2
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
    )
    deviation = rate * math.sqrt(spread / (reports * pair.blanket_mass))
    return min(deviation, math.log1p(rate * math.expm1(event.local_event.local_epsilon)))


@lru_cache(maxsize=256)
def loss_distribution(event: OwnEvent, step: float, whole: bool = True) -> PrivacyLossDistribution:
    """Pessimistic privacy-loss distribution of one release, on a grid of `step`.

    Proved for the mechanism of the event: its own pair where it has one, else the clone pair.
    Costs a few hundred hockey sticks, about a second; results are kept. With `whole=False` losses
    that are too rare to matter count as unbounded: the short grid composes a million times.
    """
    stick, top = _profile(event)
    last = max(1, math.ceil(top / step - 1e-9))
    knots = _knots(step, loss_deviation(event), last)
    losses = knots * step
    forwards = np.array([stick(x, False) if x < top else 0.0 for x in losses])
    backwards = np.array([stick(x, True) if x < top else 0.0 for x in losses])
    if not whole:
        kept = 1 + np.count_nonzero(np.maximum(forwards, backwards) >= _NEGLIGIBLE)
        knots, forwards, backwards = knots[:kept], forwards[:kept], backwards[:kept]
    return PrivacyLossDistribution(
        _connect(step, knots, forwards, backwards), _connect(step, knots, backwards, forwards)
    )


def messages_divergences(event: ShuffledMessagesDpEvent, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence of all columns together, at each real order above one.

    Where the length of vectors is known, it bounds how far a person's messages can change at once.
    """
    total = np.zeros(len(orders))
    for count, column in message_columns(event):
        total += count * renyi_divergences(column, orders)
    if event.squared_change is None:
        return total
    ((_, budget),) = event.messages
    least, most = _ORDERS_OF_LENGTH
    known = (orders >= least) & (orders <= most)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is no bound
        bounded = [
            l2_messages_rdp(budget, event.squared_change, event.num_reports, float(order))
            for order in orders[known]
        ]
    total[known] = np.fmin(total[known], bounded)
    return total


def renyi_divergences(event: OwnEvent, orders: np.ndarray) -> np.ndarray:
    """Upper bounds of the Rényi divergence at each real order above one.

    Taken from a distribution that is no better than the release, on its own fine grid.
    """
    step = loss_deviation(event) / STEPS_PER_DEVIATION
    both = loss_distribution(event, step)
    return np.maximum(*(_moments(pmf, orders) for pmf in (both._pmf_remove, both._pmf_add)))


def _profile(event: OwnEvent) -> tuple[Callable[[float, bool], float], float]:
    """`stick(loss, swapped)`, the upper delta at a loss >= 0, and the largest loss there is."""
    pair, reports, rate = _tightest(event)
    both = (pair, pair.swapped())
    local = event.local_event.local_epsilon
    if isinstance(event, ShuffledDpEvent) or event.points_per_client == 1:

        def direct(loss: float, swapped: bool) -> float:
            return hockey_stick(both[swapped], reports, loss, rate).upper

        ratio = min(local, max(largest_log_ratio(side) for side in both))
        return direct, math.log1p(rate * math.expm1(ratio))
    # Several points per client: amplification of a profile. Only the data level amplifies the
    # loss where a client sends more than one of its points.
    within = event.points_sampled / event.points_per_client
    mass = event.num_sampled / event.num_users * within
    amplified = mass if event.points_sampled == 1 else within

    def generic(loss: float, swapped: bool) -> float:
        inner = math.log1p(math.expm1(loss) / amplified)
        return mass * hockey_stick(both[swapped], reports, inner).upper

    return generic, math.log1p(amplified * math.expm1(local))


@lru_cache(maxsize=256)
def _tightest(event: OwnEvent) -> tuple[ShufflePair, int, float]:
    """The proved pair with the smaller spread, the reports in the batch, the sampling rate."""
    own = event.local_event.dominating_pair()
    clones = ShufflePair.clones(event.local_event.local_epsilon)
    pairs = [pair for pair in (own, clones) if pair.proof_status == "proved"]

    def spread(pair: ShufflePair) -> float:
        both = zip(pair.ratios, pair.probabilities, strict=True)
        return sum(p * (u - v) ** 2 for (u, v), p in both) / pair.blanket_mass

    best = min(pairs, key=spread)
    if isinstance(event, ShuffledDpEvent):
        return best, event.num_reports, 1.0
    if event.points_per_client == 1:
        return best, event.num_reports, event.num_sampled / event.num_users
    return best, event.num_reports, event.num_reports / (event.num_users * event.points_per_client)


def _knots(step: float, deviation: float, last: int) -> np.ndarray:
    fine = min(last, math.ceil(_FINE_DEVIATIONS * deviation / step))
    knots = list(range(fine + 1))
    position = float(max(fine, 1))
    while position < last:
        position = max(position + 1, position * _GROWTH)
        knots.append(min(last, int(position)))
    return np.unique(knots)


def _connect(
    step: float, knots: np.ndarray, forwards: np.ndarray, backwards: np.ndarray
) -> pld_pmf.PLDPmf:
    """The pessimistic distribution through both halves of the curve.

    Below zero the stick of (P, Q) at loss -x is 1 - e^-x + e^-x times that of (Q, P) at x.
    """
    negative = -np.expm1(-knots * step) + np.exp(-knots * step) * backwards
    grid = np.concatenate([-knots[:0:-1], knots])
    sticks = np.concatenate([negative[:0:-1], forwards])
    sticks = np.minimum.accumulate(np.clip(sticks, 0.0, 1.0))
    return pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, sticks)


def _moments(pmf: pld_pmf.PLDPmf, orders: np.ndarray) -> np.ndarray:
    """Rényi divergences of a distribution of losses, without cancellation near zero.

    With weights q = p e^-loss of the second law, E_q[e^(a loss)] - 1 is the sum of the
    non-negative q (expm1(a loss) - a expm1(loss)).
    """
    dense = pmf.to_dense_pmf()
    losses = (dense._lower_loss + np.arange(dense.size)) * dense._discretization
    mass = np.maximum(dense._probs, 0.0)
    kept = mass > 0.0
    losses, mass = losses[kept], mass[kept]
    result = np.empty(len(orders))
    for i, order in enumerate(orders):
        power = order * losses
        large = power > 300.0
        small = ~large
        weights = mass[small] * np.exp(-losses[small])
        terms = weights * (np.expm1(power[small]) - order * np.expm1(losses[small]))
        total = math.log1p(float(np.sum(np.maximum(terms, 0.0))))
        if large.any():
            tail = log_sum(np.log(mass[large]) + (order - 1) * losses[large])
            total = float(np.logaddexp(total, tail))
        result[i] = total / (order - 1) if dense._infinity_mass == 0.0 else math.inf
    return result
