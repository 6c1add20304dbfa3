"""The prices behind the named methods: what a schedule costs by one way of accounting.

Each takes a `Schedule` and a delta, and raises `OutOfRangeError` where it proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.hockey_stick import (
    epsilon_bound,
    hockey_stick,
    largest_log_ratio,
)
from beam_ldp.accounting.divergences.shuffle_rdp import thesis_subsampled
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import Price, by_curve, own_pair, require, sampled
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.research.published import renyi
from beam_ldp.research.published.closed_forms import (
    compose_kov_exact,
    crowd_constant,
    large_crowd_epsilon,
    subsample,
)

_KNOTS = 400
_LONGEST_SUM = 2 * 10**6


# Pairs, composed -------------------------------------------------------------------------


def strong_pair(schedule: Schedule) -> LocalReports:
    """The strong clone pair, whether or not it is proved for the mechanism at hand."""
    pair = ShufflePair.clones(schedule.local_epsilon, strong=True)
    return LocalReports(schedule.local_epsilon, replace(pair, proof_status="proved"))


def strong_pair_is_proved(schedule: Schedule) -> bool:
    """Whether the mechanism's own, proved pair is the strong clone pair, or hides better."""
    own = schedule.own_event
    if own is None or own.pair is None:
        return False
    mine = own.dominating_pair()
    strong = ShufflePair.clones(schedule.local_epsilon, strong=True)
    same = (
        sorted(zip(mine.ratios, mine.probabilities, strict=True)),
        sorted(zip(strong.ratios, strong.probabilities, strict=True)),
    )
    return (
        mine.proof_status == "proved"
        and len(same[0]) == len(same[1])
        and math.isclose(mine.blanket_mass, strong.blanket_mass, rel_tol=1e-7)
        and np.allclose(_flat(same[0]), _flat(same[1]), rtol=1e-7)
    )


# Rényi curves --------------------------------------------------------------------------


def thesis_reduction(schedule: Schedule, delta: float) -> float:
    """The reduction by its hockey stick; of several rounds by its Rényi divergences."""
    require(not schedule.sampled, "everybody's report in every round")
    if schedule.rounds == 1:
        return reduction_guarantee(schedule.local_epsilon, schedule.num_reports, delta)

    def curve(schedule: Schedule, order: float) -> float:
        return renyi.thesis_reduction_exact(order, schedule.local_epsilon, schedule.num_reports)

    require(schedule.num_reports <= _LONGEST_SUM, f"at most {_LONGEST_SUM:.0e} reports to sum over")
    return by_curve(curve, top=1e4, few=True)(schedule, delta)


def uniform(bound: Callable[[int, float, int, int], float]) -> Callable[[Schedule, float], float]:
    """The same where the theorem knows one uniform sample only, not people and then points."""
    curve = sampled(bound)

    def uniform(schedule: Schedule, order: float) -> float:
        require(schedule.points_per_client == 1, "people with one point each")
        return curve(schedule, order)

    return uniform


def refined(order: int, local_epsilon: float, num_users: int, num_sampled: int) -> float:
    """Thesis, Theorem 5.4.1: the same proof with sharper constants."""
    return thesis_subsampled(order, local_epsilon, num_users, num_sampled, refined=True)


def zhu_wang(order: int, local_epsilon: float, num_users: int, num_sampled: int) -> float:
    """The rate of a Poisson sample of that expected size."""
    return renyi.zhu_wang_poisson(order, local_epsilon, num_sampled, num_sampled / num_users)


def generic_subsampling(schedule: Schedule, delta: float) -> float:
    """Zhu, Dong and Wang 2022 on the clone pair's profile, taken at a few hundred points."""
    require(schedule.sampled and schedule.points_sampled == 1, "sampling, one point per person")
    ratios, heights = _clone_profile(schedule.local_epsilon, schedule.num_reports)

    def curve(schedule: Schedule, order: float) -> float:
        return renyi.sampled_profile_rdp(order, ratios, heights, schedule.rate)

    return by_curve(curve, few=True)(schedule, delta)


@lru_cache(maxsize=16)
def _clone_profile(local_epsilon: float, num_reports: int) -> tuple[np.ndarray, np.ndarray]:
    """Hockey sticks of the clone pair at ratios from one to the largest there is."""
    pair = ShufflePair.clones(local_epsilon)
    width = math.sqrt(crowd_constant(pair) / num_reports)
    top = largest_log_ratio(pair)
    fine = np.linspace(0, min(top, 10 * width), _KNOTS)
    losses = np.unique(np.append(fine, np.geomspace(fine[-1], top, 60)))
    heights = [hockey_stick(pair, num_reports, float(x)).upper for x in losses[:-1]]
    return np.exp(losses), np.array([*heights, 0.0])


# Below, and beside -----------------------------------------------------------------------


def gaussian_limit(schedule: Schedule, delta: float) -> float:
    """What the worst randomizer's price tends to."""
    return large_crowd_epsilon(
        crowd_constant(schedule.local_epsilon),
        schedule.num_reports,
        schedule.rate,
        schedule.rounds,
        delta,
    )


def own_gaussian_limit(schedule: Schedule, delta: float) -> float:
    """What the price of the mechanism's own pair tends to."""
    pair = own_pair(schedule).dominating_pair()
    return large_crowd_epsilon(
        crowd_constant(pair), schedule.num_reports, schedule.rate, schedule.rounds, delta
    )


def _flat(table: list[tuple[tuple[float, float], float]]) -> np.ndarray:
    return np.array([(*ratios, p) for ratios, p in table])


# Prices by way of an (epsilon, delta) guarantee of one shuffle: sampled, then composed ----


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
