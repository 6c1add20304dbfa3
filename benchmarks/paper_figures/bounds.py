"""The bounds that the figures compare: each a central epsilon, or a divergence, of one setting."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShufflePair,
    SubsampledShuffledDpEvent,
    shuffle_epsilon,
)
from beam_ldp.accounting.divergences.hockey_stick import epsilon_bound
from beam_ldp.accounting.divergences.moments import default_orders, rdp_to_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import (
    leading_constant,
    thesis_subsampled,
    thesis_upper_1,
)
from beam_ldp.accounting.lower import class_lower_epsilon
from beam_ldp.research.published.closed_forms import compose_kov, subsample
from beam_ldp.research.published.renyi import (
    erlingsson_2019,
    two_response_direction,
    wang_balle_kasiviswanathan,
    zhu_wang_poisson,
)


class Run(NamedTuple):
    """The same release, so many times: eps0, people, people drawn per round, rounds, delta."""

    local_epsilon: float
    num_users: int
    num_sampled: int
    rounds: int
    delta: float

    @property
    def rate(self) -> float:
        return self.num_sampled / self.num_users


# What the thesis plots -------------------------------------------------------------------


@cache
def theorem_531(run: Run) -> float:
    """Theorem 5.3.1, composed and converted."""
    return _converted(run, lambda a: thesis_upper_1(a, run.local_epsilon, run.num_users))


@cache
def theorem_541(run: Run) -> float:
    """Theorem 5.4.1, composed and converted."""
    eps0, n, k = run[:3]
    return _converted(run, lambda a: thesis_subsampled(a, eps0, n, k))


@cache
def erlingsson(run: Run) -> float:
    """Erlingsson et al. 2019 as a Rényi curve, composed and converted."""
    return _converted(run, lambda a: erlingsson_2019(a, run.local_epsilon, run.num_users))


@cache
def printed_lower(run: Run) -> float:
    """The lower bound of Theorems 5.3.3 and 5.4.2, converted like an upper one, as printed."""
    eps0, _, k = run[:3]
    return _converted(run, lambda a: two_response_direction(a, eps0, k, run.rate))


@cache
def wang(run: Run) -> float:
    """Subsampling of Wang et al. 2019 over Theorem 5.3.1."""
    eps0, n, k = run[:3]
    return _converted(run, lambda a: wang_balle_kasiviswanathan(a, eps0, n, k), most=600)


@cache
def zhu(run: Run) -> float:
    """Poisson subsampling of Zhu and Wang 2019 over Theorem 5.3.1."""
    eps0, _, k = run[:3]
    return _converted(run, lambda a: zhu_wang_poisson(a, eps0, k, run.rate), most=600)


@cache
def clones_composed(run: Run) -> float:
    """Clones, evaluated numerically; then sampling, then strong composition (closed form)."""
    each = min(1.0, run.delta / (2 * run.rounds * run.rate))
    inner = 0.0
    if each < 1.0:
        pair = ShufflePair.clones(run.local_epsilon)
        inner = epsilon_bound(pair, run.num_sampled, each, upper=True)
    return _composed(run, min(inner, run.local_epsilon), each)


@cache
def clones_closed_composed(run: Run) -> float:
    """The same with the closed form, which falls back to the local epsilon out of its range."""
    each = min(1.0, run.delta / (2 * run.rounds * run.rate))
    n, ratio = run.num_sampled, math.exp(run.local_epsilon)
    if n <= 16 * ratio * math.log(2 / each):
        return fallback_composed(run)
    step = 8 * math.sqrt(ratio * math.log(4 / each) / n) + 8 * ratio / n
    return _composed(run, math.log1p(math.tanh(run.local_epsilon / 2) * step), each)


@cache
def fallback_composed(run: Run) -> float:
    """No amplification by shuffling at all: eps0 sampled and composed."""
    return _composed(run, run.local_epsilon, 0.0)


# Ours ------------------------------------------------------------------------------------


@cache
def ours(run: Run) -> float:
    """What the accountant says: proved for every randomizer with this eps0."""
    local = LocalRandomizerDpEvent(run.local_epsilon)
    if run.num_sampled == run.num_users:
        event: ShuffledDpEvent | SubsampledShuffledDpEvent = ShuffledDpEvent(local, run.num_users)
        if run.rounds == 1:
            pair = ShufflePair.clones(run.local_epsilon)
            found = epsilon_bound(pair, run.num_users, run.delta, upper=True)
            return min(found, run.local_epsilon)
    else:
        event = SubsampledShuffledDpEvent(local, run.num_users, run.num_sampled)
    return float(_accountant(event, run.rounds).get_epsilon(run.delta))


@cache
def floor(run: Run) -> float:
    """What some randomizer with this eps0 costs: no analysis that knows eps0 alone goes below."""
    if run.rounds == 1 and run.rate == 1:
        return shuffle_epsilon(run.local_epsilon, run.num_users, run.delta).class_lower
    return class_lower_epsilon(run.local_epsilon, run.num_sampled, run.rate, run.rounds, run.delta)


@lru_cache(maxsize=8)
def _accountant(
    event: ShuffledDpEvent | SubsampledShuffledDpEvent, rounds: int
) -> ShuffleAccountant:
    return ShuffleAccountant().compose(event, rounds)


def _converted(run: Run, curve: Callable[[int], float], most: float = 1e5) -> float:
    """From a bound of each integer order to epsilon at delta."""
    spread = run.rounds * run.rate**2 * leading_constant(run.local_epsilon)
    guess = 1 + math.sqrt(2 * math.log(1 / run.delta) * run.num_sampled / spread)
    orders = default_orders(min(most / 8, guess))
    values = np.array([run.rounds * curve(int(order)) for order in orders[orders <= most]])
    return rdp_to_epsilon(orders[orders <= most], values, run.delta)[0]


def _composed(run: Run, epsilon: float, delta: float) -> float:
    sampled, each = subsample(epsilon, delta, run.rate)
    pure = math.log1p(run.rate * math.expm1(run.local_epsilon))
    slack = run.delta / 2 if delta else run.delta
    if run.rounds == 1:
        return min(sampled, pure)
    return min(compose_kov(sampled, each, run.rounds, slack)[0], run.rounds * pure)
