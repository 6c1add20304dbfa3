"""What a schedule of releases costs, by the methods that are proved for the mechanism at hand.

`schedule_epsilon` takes the smallest. Published methods to compare with are those of
`beam_ldp.research.published`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from beam_ldp.accounting.composition.ledger_bounds import ledger_losses, lower_value
from beam_ldp.accounting.composition.loss_curves import renyi_divergences
from beam_ldp.accounting.divergences.moments import default_orders, rdp_to_epsilon
from beam_ldp.accounting.divergences.shuffle_rdp import (
    leading_constant,
    thesis_subsampled,
    thesis_upper_1,
)
from beam_ldp.accounting.lower import PrivacyBound, three_response_witnesses, two_response_witnesses
from beam_ldp.accounting.prices import event_epsilon
from beam_ldp.accounting.reports import LocalReports
from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.shuffle.one_release import local_reports, shuffle_epsilon, shuffled_reports
from beam_ldp.randomizers.shuffle_pair import ShufflePair

Price = Callable[[Schedule, float], float]
BoundKind = Literal["upper", "lower", "approximation"]

CLASS = "every randomizer"
OWN = "this mechanism"
_FEW_ORDERS = np.exp2(np.linspace(-2.0, 1.0, 13))


class OutOfRangeError(ValueError):
    """The method holds under a condition that these parameters do not meet; the text says which."""


def require(holds: bool, condition: str) -> None:
    """An `OutOfRangeError` that names the condition, unless it holds."""
    if not holds:
        raise OutOfRangeError(f"needs {condition}")


def _always(schedule: Schedule) -> bool:
    return True


@dataclass(frozen=True)
class Method:
    """One way to price a schedule.

    Attributes:
        name: Unique, short.
        source: Whose method it is.
        price: Epsilon of a schedule at a delta; raises `OutOfRangeError` where it proves nothing.
        kind: "upper" bounds the price from above; "lower" is what some randomizer (with
            `proved_for=OWN`: this one) costs at least; "approximation" bounds nothing.
        proved_for: Of what the statement is proved, in words.
        condition: When it applies, in words.
        proved: Whether it is proved for a schedule. What is not proved is priced only if asked for.
        seen: The method that prices a reader who sees who took part; by default the same one.
        in_epochs: Whether it prices shuffled epochs as what they are, not as full shuffles.
    """

    name: str
    source: str
    price: Price
    kind: BoundKind = "upper"
    proved_for: str = CLASS
    condition: str = ""
    proved: Callable[[Schedule], bool] = _always
    seen: str = ""
    in_epochs: bool = False

    def epsilon(self, schedule: Schedule, delta: float) -> tuple[float | None, str]:
        """The price and no words, or None and why the method does not apply."""
        priced = schedule if self.in_epochs else schedule.in_shuffles(self.kind)
        if priced is None:
            return None, "whole epochs of everybody, one message each"
        try:
            return self.price(priced, delta), ""
        except OutOfRangeError as error:
            return None, str(error)


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


def by_losses(local: Callable[[Schedule], LocalReports]) -> Price:
    """Privacy-loss distributions; for a single full shuffle the exact hockey stick."""

    def price(schedule: Schedule, delta: float) -> float:
        event = schedule.reports(local(schedule))
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
        assert own is not None
        return float(event_epsilon(schedule.reports(own), delta, schedule.most_rounds))
    event = shuffled_reports(schedule.randomizer, schedule.num_reports)
    return float(event_epsilon(event, delta, schedule.rounds))


def by_orders(local: Callable[[Schedule], LocalReports]) -> Price:
    """Rényi divergences of the pair."""

    def price(schedule: Schedule, delta: float) -> float:
        orders = default_orders(best_order(schedule, delta))
        curve = renyi_divergences(schedule.reports(local(schedule)), orders)
        return rdp_to_epsilon(orders, schedule.rounds * curve, delta)[0]

    return price


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


def two_response(schedule: Schedule, delta: float) -> float:
    """What the class costs at least: certified, composed."""
    return _floor(schedule, delta, two_response_witnesses(schedule.local_epsilon))


def three_response(schedule: Schedule, delta: float) -> float:
    """The same by ternary response, dearer from a local epsilon of log 2 on."""
    return _floor(schedule, delta, three_response_witnesses(schedule.local_epsilon))


def _floor(schedule: Schedule, delta: float, witnesses: tuple[ShufflePair, ...]) -> float:
    """What concrete data sets cost at least."""
    event = schedule.reports(LocalReports(schedule.local_epsilon, None, witnesses))
    if schedule.rounds == 1 and not schedule.sampled:
        return shuffle_epsilon(event.local_event, schedule.num_reports, delta).lower
    return lower_value({event: schedule.rounds}, delta)[0]


def own_lower(schedule: Schedule, delta: float) -> float:
    """What two concrete data sets cost with the mechanism at hand."""
    require(schedule.randomizer is not None, "a mechanism at hand")
    if schedule.one_message:
        event = schedule.reports(local_reports(schedule.randomizer))
    else:
        require(not schedule.sampled, "everybody's report in every round")
        event = shuffled_reports(schedule.randomizer, schedule.num_reports)
    lower = event_epsilon(event, delta, schedule.rounds).lower
    require(lower > 0, "a concrete pair of data sets from the mechanism")
    return lower


def best_order(schedule: Schedule, delta: float) -> float:
    """The order that is best in the Gaussian limit."""
    spread = schedule.rounds * schedule.rate**2 * leading_constant(schedule.local_epsilon)
    return 1 + math.sqrt(2 * math.log(1 / delta) * schedule.num_reports / spread)


def feldman_2021_epsilon(local_epsilon: float, num_reports: int, delta: float) -> float:
    """Feldman, McMillan and Talwar 2021, Theorem 3.1: three to five times the clone pair's price.

    For eps0 <= log(n / (16 log(2/delta))).

    >>> round(feldman_2021_epsilon(4.0, 100_000, 1e-6), 4)
    0.5346
    """
    return hidden_among(math.exp(-local_epsilon), local_epsilon, num_reports, delta)


def hidden_among(clones: float, local_epsilon: float, num_reports: int, delta: float) -> float:
    """Feldman et al.'s form for others who blend in with probability `clones`."""
    largest = num_reports / (16 * math.log(2 / delta))
    require(1 / clones <= largest, f"more reports for this local epsilon (1/q <= {largest:.3g})")
    crowd = clones * num_reports
    step = 8 * math.sqrt(math.log(4 / delta) / crowd) + 8 / crowd
    return min(local_epsilon, math.log1p(math.tanh(local_epsilon / 2) * step))


# By name: research puts others beside them -----------------------------------------------


CLONES = Method(
    "clone pair, privacy losses",
    "Feldman et al. 2021; Koskela et al. 2021; sampled: the direct pair",
    by_losses(any_randomizer),
    condition="a schedule fixed beforehand",
)
CLONES_RENYI = Method(
    "clone pair, Rényi orders", "the same pairs, Rényi divergences", by_orders(any_randomizer)
)
OWN_PAIR = Method(
    "own pair, privacy losses",
    "the mechanism's blanket; Balle et al. 2019",
    by_losses(own_pair),
    proved_for=OWN,
    condition="a schedule fixed beforehand",
)
OWN_PAIR_RENYI = Method(
    "own pair, Rényi orders", "the same, Rényi divergences", by_orders(own_pair), proved_for=OWN
)
OWN_MESSAGES = Method(
    "own messages",
    "each column's own blanket, composed",
    own_messages,
    proved_for=OWN,
    condition="several messages per person",
    in_epochs=True,
)
ADDED_UP = Method("local epsilons added up", "no amplification", added_up)
TWO_RESPONSE = Method(
    "binary randomized response",
    "thesis, Theorem 5.3.3, both directions, composed",
    two_response,
    kind="lower",
)
THREE_RESPONSE = Method(
    "ternary randomized response",
    "all others at the third value, composed",
    three_response,
    kind="lower",
)
OWN_DATA_SETS = Method(
    "own data sets", "the mechanism's witness pairs", own_lower, kind="lower", proved_for=OWN
)
# The accountant of the thesis, which the plan of a training shows beside ours.
THESIS = Method(
    "thesis, Theorem 5.3.1",
    "as printed, capped by eps0",
    by_curve(full(thesis_upper_1)),
    condition="everybody reports in every round",
)
THESIS_SAMPLED = Method(
    "thesis, Theorem 5.4.1",
    "as printed",
    by_curve(sampled(thesis_subsampled)),
    condition="sampling, one point per person",
    seen=THESIS.name,
)

FLOORS = (TWO_RESPONSE, THREE_RESPONSE)
# What is proved for the mechanism at hand: of each group the first that applies.
_PROVED = ((CLONES, CLONES_RENYI), (OWN_PAIR, OWN_PAIR_RENYI), (OWN_MESSAGES,), (ADDED_UP,))


def smallest_proved(schedule: Schedule, delta: float) -> tuple[float, str]:
    """The smallest proved price of the pairs at hand, and the method."""
    found = []
    for group in _PROVED:
        priced = ((method.epsilon(schedule, delta)[0], method.name) for method in group)
        found += [next(((e, name) for e, name in priced if e is not None), (math.inf, ""))]
    return min(found)


def schedule_epsilon(schedule: Schedule, delta: float) -> PrivacyBound:
    """The smallest price that is proved for the mechanism at hand, with lower bounds beside it.

    Holds against `schedule.reader`, for a schedule that was fixed beforehand.

    >>> bound = schedule_epsilon(Schedule(2.0, 60_000, 2_000, 6_000), 1e-5)
    >>> round(bound, 2), round(bound.class_lower, 2), bound.method
    (0.88, 0.61, 'clone pair, privacy losses')
    """
    value, name = smallest_proved(schedule, delta)
    own = OWN_DATA_SETS.epsilon(schedule, delta)[0] or 0.0
    return PrivacyBound(
        value,
        lower=min(own, value),
        class_lower=lambda: max(floor.epsilon(schedule, delta)[0] or 0.0 for floor in FLOORS),
        method=name,
    )
