"""Every method for one and the same schedule of releases, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from beam_ldp.accounting.literature.closed_forms import (
    OutOfRangeError,
    crowd_constant,
    large_crowd_epsilon,
)
from beam_ldp.accounting.literature.methods import DEFAULT, Kind, Method, method, methods
from beam_ldp.accounting.literature.schedule import Schedule
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.special import brentq

__all__ = [
    "MethodPrice",
    "Schedule",
    "compare",
    "price_of",
    "schedule_epsilon",
    "solve_schedule",
]


Status = Literal["proved", "conjectured", "approximation"]

# What is proved for the mechanism at hand: of each group the first that applies.
_PROVED = (
    (DEFAULT, "clone pair, Rényi orders"),
    ("own pair, privacy losses", "own pair, Rényi orders"),
    ("own messages",),
    ("local epsilons added up",),
)
_FLOORS = ("binary randomized response", "ternary randomized response")
_STEP = 0.05  # of the logarithm of an unknown
_RANKS = ("proved", "conjectured", "lower", "approximation")


@dataclass(frozen=True)
class MethodPrice:
    """One line of the comparison.

    Attributes:
        method: Name.
        source: Whose it is.
        kind: "upper", "lower" or "approximation" (see `Method`).
        proved_for: What the statement is proved for, or would be.
        status: "proved", "conjectured" or "approximation".
        epsilon: Central epsilon; None where the method does not apply.
        refused: Why it does not apply.
        reader: Against whom the price holds.
        seen_epsilon: The price by the same method against a reader who sees who took part; None
            where there is no such method, or no sampling.
    """

    method: str
    source: str
    kind: Kind
    proved_for: str
    status: Status
    epsilon: float | None
    refused: str
    reader: str
    seen_epsilon: float | None


def compare(
    schedule: Schedule,
    delta: float,
    *,
    conjectured: bool = False,
    say: Callable[[str], None] = lambda name: None,
) -> list[MethodPrice]:
    """Prices of a schedule by every method.

    Args:
        schedule: What is released.
        delta: In (0, 1).
        conjectured: Also upper bounds that are not proved for this mechanism.
        say: Called with the name of each method before it runs.

    Returns:
        Proved upper bounds, the smallest first; then conjectured ones, lower bounds (the largest
        first), approximations; last, methods that do not apply, with the reason.

    >>> prices = compare(Schedule(0.5, 10_000, 10_000, 1), 1e-6)
    >>> prices[0].method, round(prices[0].epsilon, 4)
    ('clone pair, privacy losses', 0.0204)
    """
    check_fraction("delta", delta)
    prices = []
    for entry in methods():
        if conjectured or _status(entry, schedule) != "conjectured":
            say(entry.name)
            prices.append(_price(entry, schedule, delta))
    return sorted(prices, key=_place)


def schedule_epsilon(schedule: Schedule, delta: float) -> PrivacyBound:
    """The smallest price that is proved for the mechanism at hand, with lower bounds beside it.

    Holds against `schedule.reader`, for a schedule that was fixed beforehand.

    >>> bound = schedule_epsilon(Schedule(2.0, 60_000, 2_000, 6_000), 1e-5)
    >>> round(bound, 2), round(bound.class_lower, 2), bound.method
    (0.88, 0.61, 'clone pair, privacy losses')
    """
    value, name = _default(schedule, delta)
    own = price_of("own data sets", schedule, delta) or 0.0
    return PrivacyBound(
        value,
        lower=min(own, value),
        class_lower=lambda: max(price_of(floor, schedule, delta) or 0.0 for floor in _FLOORS),
        method=name,
    )


def price_of(name: str, schedule: Schedule, delta: float) -> float | None:
    """Epsilon by one method, or None where it does not apply."""
    return _epsilon(method(name), schedule, delta)[0]


def solve_schedule(
    epsilon: float,
    delta: float,
    build: Callable[[float], Schedule],
    low: float,
    high: float,
    say: Callable[[str], None] = lambda tried: None,
) -> float:
    """The largest parameter in [low, high] whose schedule costs at most `epsilon`, to 1e-4.

    Args:
        epsilon: Central target.
        delta: Of the target.
        build: Schedule of a parameter; its price must grow with it.
        low: Least parameter; its schedule must fit.
        high: Largest parameter.
        say: Called with each parameter that is tried.

    Raises:
        ValueError: If not even the least parameter fits.
    """

    least, most = math.log(low), math.log(high)

    @cache
    def excess(log_parameter: float) -> float:
        parameter = math.exp(log_parameter)
        say(f"{parameter:.4g}")
        price = _default(build(parameter), delta)[0]
        return math.log(max(price, 1e-300) / epsilon)

    def guide(log_parameter: float) -> float:
        schedule = build(math.exp(log_parameter))
        pair = ShufflePair.clones(schedule.local_epsilon)
        limit = large_crowd_epsilon(
            crowd_constant(pair), schedule.num_reports, schedule.rate, schedule.rounds, delta
        )
        return math.log(max(limit, 1e-300) / epsilon)

    # Prices take about a second: start where the Gaussian limit meets the target.
    below = above = _root(guide, least, most)
    step = _STEP
    while excess(below) > 0:
        if below == least:
            raise ValueError(f"epsilon={epsilon:g} is exceeded even at {low:g}")
        below, above, step = max(least, below - step), below, 3 * step
    while below == above and above < most or excess(above) <= 0:
        if above == most:
            return high
        below, above, step = above, min(most, above + step), 3 * step
    root = float(brentq(excess, below, above, xtol=1e-4, rtol=1e-9))
    while excess(root) > 0:
        root -= 1e-4
    return math.exp(root)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a growing function is zero; the end that is nearest if it is nowhere."""
    if function(low) >= 0:
        return low
    if function(high) <= 0:
        return high
    return float(brentq(function, low, high, xtol=1e-3))


def _default(schedule: Schedule, delta: float) -> tuple[float, str]:
    """The smallest proved price of the pairs at hand, and the method."""
    found = []
    for group in _PROVED:
        priced = ((price_of(name, schedule, delta), name) for name in group)
        found += [next(((e, name) for e, name in priced if e is not None), (math.inf, ""))]
    return min(found)


def _price(entry: Method, schedule: Schedule, delta: float) -> MethodPrice:
    epsilon, refused = _epsilon(entry, schedule, delta)
    seen = None
    if schedule.sampled and entry.kind == "upper" and epsilon is not None:
        seen = _epsilon(method(entry.seen or entry.name), schedule.seen, delta)[0]
    return MethodPrice(
        entry.name,
        entry.source,
        entry.kind,
        entry.proved_for,
        _status(entry, schedule),
        epsilon,
        refused,
        schedule.reader,
        seen,
    )


def _epsilon(entry: Method, schedule: Schedule, delta: float) -> tuple[float | None, str]:
    """The price, or None and the reason."""
    try:
        return entry.price(schedule, delta), ""
    except OutOfRangeError as error:
        return None, str(error)


def _status(entry: Method, schedule: Schedule) -> Status:
    if entry.kind == "approximation":
        return "approximation"
    return "proved" if entry.proved(schedule) else "conjectured"


def _place(price: MethodPrice) -> tuple[int, float]:
    rank = _RANKS.index("lower" if price.kind == "lower" else price.status)
    if price.epsilon is None:
        return len(_RANKS), 0.0
    return rank, -price.epsilon if price.kind == "lower" else price.epsilon
