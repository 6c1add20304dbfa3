"""Every method of accounting by name, and all of them side by side for one schedule of releases.

One registry says the source of each, what it is proved for, and when it applies; `compare` and
`beam-ldp privacy` read it. A method of your own joins it with `register_method`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Literal

from beam_ldp.accounting.divergences import shuffle_rdp
from beam_ldp.accounting.literature import closed_forms, method_prices
from beam_ldp.accounting.literature.closed_forms import (
    OutOfRangeError,
    compose_basic_with,
    compose_kov,
    compose_strong,
    crowd_constant,
    large_crowd_epsilon,
)
from beam_ldp.accounting.literature.method_prices import (
    Price,
    added_up,
    any_randomizer,
    by_composition,
    by_curve,
    by_losses,
    by_orders,
    clone_guarantee,
    full,
    own_pair,
    refined,
    sampled,
    strong_pair,
    strong_pair_is_proved,
    uniform,
    without_shuffle,
    zhu_wang,
)
from beam_ldp.accounting.literature.schedule import Schedule
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.special import brentq

Kind = Literal["upper", "lower", "approximation"]

CLASS = "every randomizer"
OWN = "this mechanism"
DEFAULT = "clone pair, privacy losses"


def always(schedule: Schedule) -> bool:
    return True


def never(schedule: Schedule) -> bool:
    return False


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
    kind: Kind = "upper"
    proved_for: str = CLASS
    condition: str = ""
    proved: Callable[[Schedule], bool] = always
    seen: str = ""
    in_epochs: bool = False


_METHODS: dict[str, Method] = {}


def register_method(method: Method) -> None:
    """Adds a method to every comparison.

    Raises:
        ValueError: if its name is taken.
    """
    if method.name in _METHODS:
        raise ValueError(f"name must be new, got {method.name!r}")
    _METHODS[method.name] = method


def methods() -> tuple[Method, ...]:
    """All methods, in the order of their registration."""
    return tuple(_METHODS.values())


def method(name: str) -> Method:
    """The method of that name.

    >>> method("thesis, Theorem 5.4.1").condition
    'sampling, one point per person'
    """
    if name not in _METHODS:
        raise ValueError(f"name must be one of {', '.join(_METHODS)}, got {name!r}")
    return _METHODS[name]


_FIXED = "a schedule fixed beforehand"
_ALL = "everybody reports in every round"
_SAMPLED = "sampling, one point per person"
_UNIFORM = "sampling people with one point each"
_SEVERAL = "more than one round"
_UPPER_1 = "thesis, Theorem 5.3.1"
_CLONES_RENYI = "clone pair, Rényi orders"

_BUILT_IN = (
    # The pairs, composed.
    Method(DEFAULT, "Feldman et al. 2021; Koskela et al. 2021; sampled: the direct pair",
           by_losses(any_randomizer), condition=_FIXED),
    Method(_CLONES_RENYI, "the same pairs, Rényi divergences", by_orders(any_randomizer)),
    Method("own pair, privacy losses", "the mechanism's blanket; Balle et al. 2019",
           by_losses(own_pair), proved_for=OWN, condition=_FIXED),
    Method("own pair, Rényi orders", "the same, Rényi divergences",
           by_orders(own_pair), proved_for=OWN),
    Method("own messages", "each column's own blanket, composed",
           method_prices.own_messages, proved_for=OWN, condition="several messages per person",
           in_epochs=True),
    Method("strong clone pair, privacy losses", "Feldman et al. 2023",
           by_losses(strong_pair), proved_for="binary response and kin",
           condition=_FIXED, proved=strong_pair_is_proved),
    Method("strong clone pair, Rényi orders", "the same, Rényi divergences",
           by_orders(strong_pair), proved_for="binary response and kin",
           proved=strong_pair_is_proved),
    Method("clone pair, generic sampling", "Zhu, Dong and Wang 2022",
           method_prices.generic_subsampling, condition=_SAMPLED, seen=_CLONES_RENYI),
    # Guarantees, composed.
    Method("clone pair, optimal composition", "Kairouz, Oh and Viswanath 2015, exact",
           by_composition(clone_guarantee)),
    Method("clone pair, closed composition", "Kairouz, Oh and Viswanath 2015, closed form",
           by_composition(clone_guarantee, compose_kov), condition=_SEVERAL),
    Method("clone pair, strong composition", "Dwork, Rothblum and Vadhan 2010",
           by_composition(clone_guarantee, compose_strong), condition=_SEVERAL),
    Method("clone pair, added up", "basic composition",
           by_composition(clone_guarantee, compose_basic_with), condition=_SEVERAL),
    Method("Feldman et al. 2021, Theorem 3.1", "closed form, optimal composition",
           by_composition(closed_forms.feldman_2021_epsilon),
           condition="eps0 <= log(n / (16 log(2/delta))) in each round"),
    Method("Feldman et al. 2023, Theorem 3.2", "closed form, optimal composition",
           by_composition(closed_forms.feldman_2023_epsilon),
           proved_for="binary response and kin",
           condition="eps0 <= log(n / (8 log(2/delta)) - 1) in each round",
           proved=strong_pair_is_proved),
    Method("Balle et al. 2019, Hoeffding", "generic blanket, optimal composition",
           by_composition(closed_forms.balle_2019_hoeffding)),
    Method("Balle et al. 2019, Bennett", "generic blanket, optimal composition",
           by_composition(closed_forms.balle_2019_bennett)),
    Method("Erlingsson et al. 2019", "closed form, optimal composition",
           by_composition(closed_forms.erlingsson_2019_epsilon),
           condition="eps0 <= 0.5, n >= 1000, delta < 0.01 in each round"),
    Method("sampling without the shuffle", "optimal composition of the sampled local epsilon",
           without_shuffle),
    Method("local epsilons added up", "no amplification", added_up),
    # The thesis, full shuffles.
    Method("thesis, reduction evaluated", "Theorem 5.3.4, exact instead of bounded",
           method_prices.thesis_reduction, condition=_ALL),
    Method(_UPPER_1, "as printed, capped by eps0", by_curve(full(shuffle_rdp.thesis_upper_1)),
           condition=_ALL),
    Method("thesis, 5.3.1, best fraction", "Remark 5.3.3, optimised",
           by_curve(full(shuffle_rdp.thesis_upper_1_optimized), top=2000), condition=_ALL),
    Method("thesis, Theorem 5.3.2", "as printed", by_curve(full(shuffle_rdp.thesis_upper_2)),
           condition=_ALL),
    Method("thesis, Corollary 5.3.1", "as printed", by_curve(full(shuffle_rdp.thesis_simplified)),
           condition="order^4 e^(5 eps0) <= n / 9"),
    Method("Erlingsson et al. 2019, Rényi", "as the thesis compares",
           by_curve(full(shuffle_rdp.erlingsson_2019)), condition=_ALL),
    Method("Feldman et al. 2023, Corollary 4.3", "closed Rényi form, thesis, (3.6)",
           by_curve(full(shuffle_rdp.feldman_2023)), proved_for="binary response and kin",
           condition="order <= n / (16 eps0 e^eps0)", proved=strong_pair_is_proved),
    # The thesis, sampled shuffles.
    Method("thesis, Theorem 5.4.1", "as printed", by_curve(sampled(
           shuffle_rdp.thesis_subsampled)), condition=_SAMPLED, seen=_UPPER_1),
    Method("thesis, 5.4.1, sharper constants", "the same proof",
           by_curve(sampled(refined)), condition=_SAMPLED, seen=_UPPER_1),
    Method("Wang et al. 2019 over 5.3.1", "Wang, Balle and Kasiviswanathan",
           by_curve(uniform(shuffle_rdp.wang_balle_kasiviswanathan), top=256),
           condition=_UNIFORM, seen=_UPPER_1),
    Method("Zhu and Wang 2019 over 5.3.1", "Poisson sampling, as the thesis compares",
           by_curve(uniform(zhu_wang), top=256), proved_for="adding or removing a person",
           condition=_UNIFORM, proved=never, seen=_UPPER_1),
    # What cannot be beaten.
    Method("binary randomized response", "thesis, Theorem 5.3.3, both directions, composed",
           method_prices.two_response, kind="lower"),
    Method("ternary randomized response", "all others at the third value, composed",
           method_prices.three_response, kind="lower"),
    Method("own data sets", "the mechanism's witness pairs",
           method_prices.own_lower, kind="lower", proved_for=OWN),
    # Targets.
    Method("Gaussian limit of the class", "the best possible leading constant",
           method_prices.gaussian_limit, kind="approximation", proved=never),
    Method("Gaussian limit of this mechanism", "its pair's leading constant",
           method_prices.own_gaussian_limit, kind="approximation", proved_for=OWN, proved=never),
)  # fmt: skip

for _method in _BUILT_IN:
    register_method(_method)

__all__ = [
    "CLASS",
    "DEFAULT",
    "OWN",
    "Method",
    "MethodPrice",
    "OutOfRangeError",
    "Schedule",
    "compare",
    "method",
    "methods",
    "price_of",
    "register_method",
    "schedule_epsilon",
    "solve_schedule",
]


# All of them side by side, for one and the same schedule of releases ----------------------


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
    priced = schedule if entry.in_epochs else schedule.in_shuffles(entry.kind)
    if priced is None:
        return None, "whole epochs of everybody, one message each"
    try:
        return entry.price(priced, delta), ""
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
