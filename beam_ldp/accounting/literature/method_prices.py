"""The prices behind the named methods: what a schedule costs by one way of accounting.

Each takes a `Schedule` and a delta, and raises `OutOfRangeError` where it proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from beam_ldp.accounting.composition.ledger_bounds import ledger_losses, lower_value
from beam_ldp.accounting.composition.loss_curves import renyi_divergences
from beam_ldp.accounting.divergences import shuffle_rdp
from beam_ldp.accounting.divergences.hockey_stick import (
    epsilon_bound,
    hockey_stick,
    largest_log_ratio,
)
from beam_ldp.accounting.divergences.moments import default_orders, rdp_to_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import (
    leading_constant,
    sampled_profile_rdp,
    thesis_reduction_exact,
)
from beam_ldp.accounting.literature.closed_forms import (
    compose_kov_exact,
    crowd_constant,
    large_crowd_epsilon,
    require,
    subsample,
)
from beam_ldp.accounting.literature.schedule import Schedule
from beam_ldp.accounting.lower import PrivacyBound, three_response_witnesses, two_response_witnesses
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.accounting.shuffle.one_release import shuffle_epsilon, shuffled_reports
from beam_ldp.randomizers.shuffle_pair import ShufflePair

_FEW_ORDERS = np.exp2(np.linspace(-2.0, 1.0, 13))
_KNOTS = 400
_LONGEST_SUM = 2 * 10**6


# Pairs, composed -------------------------------------------------------------------------


def any_randomizer(schedule: Schedule) -> LocalReports:
    """The clone pair."""
    return schedule.any_event


def own_pair(schedule: Schedule) -> LocalReports:
    """The pair of the mechanism at hand."""
    own = schedule.own_event
    require(own is not None, "a mechanism at hand")
    assert own is not None
    require(own.pair is not None, "one message per person")
    require(own.dominating_pair().proof_status == "proved", "a pair that is proved")
    return own


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


def by_losses(local: Callable[[Schedule], LocalReports]) -> Price:
    """Privacy-loss distributions; for a single full shuffle the exact hockey stick."""

    def price(schedule: Schedule, delta: float) -> float:
        event = schedule.event(local(schedule))
        if schedule.rounds == 1 and not schedule.sampled:
            return float(shuffle_epsilon(event.local_event, schedule.num_reports, delta))
        losses = ledger_losses({event: schedule.rounds})
        require(losses is not None, "losses that fit a grid")
        assert losses is not None
        return losses.epsilon(delta)

    return price


def own_messages(schedule: Schedule, delta: float) -> float:
    """Several messages per person, each permuted among those of its column."""
    require(not schedule.one_message, "a mechanism of several messages")
    if schedule.sampled:
        own = schedule.own_event
        require(own is not None and bool(own.columns), "messages that it describes")
        return float(_composed(schedule.event(own), schedule.most_rounds, delta))
    event = shuffled_reports(schedule.randomizer, schedule.num_reports)
    if schedule.rounds == 1:
        return float(event_epsilon(event, delta))
    return float(_composed(event, schedule.rounds, delta))


def _composed(reports: Any, rounds: int, delta: float) -> PrivacyBound:
    """So many such releases, as the accountant prices them."""
    from beam_ldp.accounting.composition.accountant import ShuffleAccountant  # loads dp_accounting
    from beam_ldp.accounting.events import as_event

    return ShuffleAccountant().compose(as_event(reports), rounds).get_epsilon(delta)


def by_orders(local: Callable[[Schedule], LocalReports]) -> Price:
    """Rényi divergences of the pair."""

    def price(schedule: Schedule, delta: float) -> float:
        orders = default_orders(best_order(schedule, delta))
        curve = renyi_divergences(schedule.event(local(schedule)), orders)
        return rdp_to_epsilon(orders, schedule.rounds * curve, delta)[0]

    return price


# Rényi curves --------------------------------------------------------------------------


def thesis_reduction(schedule: Schedule, delta: float) -> float:
    """The reduction by its hockey stick; of several rounds by its Rényi divergences."""
    require(not schedule.sampled, "everybody's report in every round")
    if schedule.rounds == 1:
        return reduction_guarantee(schedule.local_epsilon, schedule.num_reports, delta)

    def curve(schedule: Schedule, order: float) -> float:
        return thesis_reduction_exact(order, schedule.local_epsilon, schedule.num_reports)

    require(schedule.num_reports <= _LONGEST_SUM, f"at most {_LONGEST_SUM:.0e} reports to sum over")
    return by_curve(curve, top=1e4, few=True)(schedule, delta)


def by_curve(
    curve: Callable[[Schedule, float], float], *, top: float = 1e5, few: bool = False
) -> Price:
    """A bound of the Rényi divergence of one round at each order.

    Args:
        curve: The bound at an order; infinite outside its range. Integer orders unless `few`.
        top: Largest order that is tried.
        few: Try few, real orders: for curves that take long.
    """

    def price(schedule: Schedule, delta: float) -> float:
        require(schedule.fixed_size, "as many reports in every round")
        guess = best_order(schedule, delta)
        orders = default_orders(min(top / 8, guess))
        if few:
            orders = np.unique(np.minimum(1 + max(guess - 1, 0.05) * _FEW_ORDERS, top))
        values = np.array([schedule.rounds * curve(schedule, float(a)) for a in orders])
        require(
            bool(np.isfinite(values).any()),
            "a larger crowd or a smaller local epsilon: its range holds no order",
        )
        return rdp_to_epsilon(orders, values, delta)[0]

    return price


def added_up(schedule: Schedule, delta: float) -> float:
    """Local epsilons, without any shuffle."""
    return schedule.rounds * schedule.local_epsilon


def full(bound: Callable[[int, float, int], float]) -> Callable[[Schedule, float], float]:
    """A curve of a full shuffle."""

    def curve(schedule: Schedule, order: float) -> float:
        require(not schedule.sampled, "everybody's report in every round")
        return bound(int(order), schedule.local_epsilon, schedule.num_reports)

    return curve


def sampled(bound: Callable[[int, float, int, int], float]) -> Callable[[Schedule, float], float]:
    """A curve of a sampled shuffle: of points, where whoever takes part reports one of theirs."""

    def curve(schedule: Schedule, order: float) -> float:
        require(schedule.sampled and schedule.points_sampled == 1, "sampling, one point per person")
        points = schedule.num_users * schedule.points_per_client
        return bound(int(order), schedule.local_epsilon, points, schedule.num_reports)

    return curve


def uniform(bound: Callable[[int, float, int, int], float]) -> Callable[[Schedule, float], float]:
    """The same where the theorem knows one uniform sample only, not people and then points."""
    curve = sampled(bound)

    def uniform(schedule: Schedule, order: float) -> float:
        require(schedule.points_per_client == 1, "people with one point each")
        return curve(schedule, order)

    return uniform


def refined(order: int, local_epsilon: float, num_users: int, num_sampled: int) -> float:
    """Thesis, Theorem 5.4.1: the same proof with sharper constants."""
    return shuffle_rdp.thesis_subsampled(order, local_epsilon, num_users, num_sampled, refined=True)


def zhu_wang(order: int, local_epsilon: float, num_users: int, num_sampled: int) -> float:
    """The rate of a Poisson sample of that expected size."""
    return shuffle_rdp.zhu_wang_poisson(order, local_epsilon, num_sampled, num_sampled / num_users)


def generic_subsampling(schedule: Schedule, delta: float) -> float:
    """Zhu, Dong and Wang 2022 on the clone pair's profile, taken at a few hundred points."""
    require(schedule.sampled and schedule.points_sampled == 1, "sampling, one point per person")
    ratios, heights = _clone_profile(schedule.local_epsilon, schedule.num_reports)

    def curve(schedule: Schedule, order: float) -> float:
        return sampled_profile_rdp(order, ratios, heights, schedule.rate)

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


def two_response(schedule: Schedule, delta: float) -> float:
    """What the class costs at least: certified, composed."""
    return _floor(schedule, delta, two_response_witnesses(schedule.local_epsilon))


def three_response(schedule: Schedule, delta: float) -> float:
    """The same by ternary response, dearer from a local epsilon of log 2 on."""
    return _floor(schedule, delta, three_response_witnesses(schedule.local_epsilon))


def _floor(schedule: Schedule, delta: float, witnesses: tuple[ShufflePair, ...]) -> float:
    """What concrete data sets cost at least."""
    event = schedule.event(LocalReports(schedule.local_epsilon, None, witnesses))
    if schedule.rounds == 1 and not schedule.sampled:
        return shuffle_epsilon(event.local_event, schedule.num_reports, delta).lower
    return lower_value({event: schedule.rounds}, delta)[0]


def own_lower(schedule: Schedule, delta: float) -> float:
    """What two concrete data sets cost with the mechanism at hand."""
    require(schedule.randomizer is not None, "a mechanism at hand")
    if schedule.one_message:
        event = schedule.event(schedule.own_event)
    else:
        require(not schedule.sampled, "everybody's report in every round")
        event = shuffled_reports(schedule.randomizer, schedule.num_reports)
    if schedule.rounds == 1:
        lower = event_epsilon(event, delta).lower
    else:
        lower = _composed(event, schedule.rounds, delta).lower
    require(lower > 0, "a concrete pair of data sets from the mechanism")
    return lower


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


def best_order(schedule: Schedule, delta: float) -> float:
    """The order that is best in the Gaussian limit."""
    spread = schedule.rounds * schedule.rate**2 * leading_constant(schedule.local_epsilon)
    return 1 + math.sqrt(2 * math.log(1 / delta) * schedule.num_reports / spread)


def _flat(table: list[tuple[tuple[float, float], float]]) -> np.ndarray:
    return np.array([(*ratios, p) for ratios, p in table])


# Prices by way of an (epsilon, delta) guarantee of one shuffle: sampled, then composed ----


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
