"""Prices by way of an (epsilon, delta) guarantee of one shuffle: sampled, then composed."""

from __future__ import annotations

import math
from collections.abc import Callable

from beam_ldp.accounting.divergences.hockey_stick import epsilon_bound
from beam_ldp.accounting.divergences.validity import require
from beam_ldp.accounting.literature.composition import compose_kov_exact, subsample
from beam_ldp.accounting.literature.schedule import Schedule
from beam_ldp.randomizers.shuffle_pair import ShufflePair

Price = Callable[[Schedule, float], float]
Guarantee = Callable[[float, int, float], float]  # (local epsilon, reports, delta) -> epsilon
Composition = Callable[[float, float, int, float], tuple[float, float]]


def by_composition(guarantee: Guarantee, compose: Composition = compose_kov_exact) -> Price:
    """An (epsilon, delta) guarantee of one shuffle: sampled, then composed.

    Half of delta pays for the rounds, half for their composition.
    """

    def price(schedule: Schedule, delta: float) -> float:
        require(schedule.fixed_size, "as many reports in every round")
        if schedule.rounds == 1:
            require(compose is compose_kov_exact, "more than one round")
            return sampled_guarantee(guarantee, schedule, delta)[0]
        epsilon, each = sampled_guarantee(guarantee, schedule, delta / (2 * schedule.rounds))
        return compose(epsilon, each, schedule.rounds, delta / 2)[0]

    return price


def sampled_guarantee(
    guarantee: Guarantee, schedule: Schedule, delta: float
) -> tuple[float, float]:
    """The guarantee of one round, whose delta is at most `delta` (thesis, Appendix C.1)."""
    inner = delta / schedule.rate
    if inner >= 1:  # being drawn at all is no more likely than delta
        return 0.0, schedule.rate
    full = guarantee(schedule.local_epsilon, schedule.num_reports, inner)
    return subsample(full, inner, _amplifying_rate(schedule))[0], delta


def _amplifying_rate(schedule: Schedule) -> float:
    """Where a person reports several points, only the choice among those amplifies."""
    require(schedule.fixed_size, "as many reports in every round")
    if schedule.points_sampled > 1:
        return schedule.points_sampled / schedule.points_per_client
    return schedule.rate


def clone_guarantee(local_epsilon: float, num_reports: int, delta: float) -> float:
    """The clone pair, evaluated."""
    pair = ShufflePair.clones(local_epsilon)
    return min(local_epsilon, epsilon_bound(pair, num_reports, delta, upper=True))


def reduction_guarantee(local_epsilon: float, num_reports: int, delta: float) -> float:
    """The thesis' own reduction (Theorem 5.3.4), evaluated.

    It is a pair like any other: everybody is binary randomized response, and the others send what
    the second value sends with probability 1/E.
    """
    ratio = math.exp(local_epsilon)
    pair = ShufflePair(
        1 / ratio, ((ratio, 1.0), (1 / ratio, 1.0)), (1 / (ratio + 1), ratio / (ratio + 1))
    )
    return min(local_epsilon, epsilon_bound(pair, num_reports, delta, upper=True))


def without_shuffle(schedule: Schedule, delta: float) -> float:
    """The local epsilon, lessened by sampling alone: no shuffler, and all of delta to compose."""
    amplified = _amplifying_rate(schedule)
    epsilon, _ = subsample(schedule.local_epsilon, 0.0, amplified)
    return compose_kov_exact(epsilon, 0.0, schedule.rounds, delta)[0]
