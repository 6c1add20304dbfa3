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

from beam_ldp.accounting.schedule import Schedule
from beam_ldp.accounting.schedule_prices import (
    ADDED_UP,
    CLONES,
    CLONES_RENYI,
    FLOORS,
    OWN,
    OWN_DATA_SETS,
    OWN_MESSAGES,
    OWN_PAIR,
    OWN_PAIR_RENYI,
    THESIS,
    THESIS_SAMPLED,
    BoundKind,
    Method,
    by_curve,
    by_losses,
    by_orders,
    feldman_2021_epsilon,
    full,
    sampled,
    smallest_proved,
)
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.special import brentq
from beam_ldp.research.published import closed_forms, method_prices, renyi
from beam_ldp.research.published.closed_forms import (
    compose_basic_with,
    compose_kov,
    compose_strong,
    crowd_constant,
    large_crowd_epsilon,
)
from beam_ldp.research.published.method_prices import (
    by_composition,
    clone_guarantee,
    refined,
    strong_pair,
    strong_pair_is_proved,
    uniform,
    without_shuffle,
    zhu_wang,
)


def _never(schedule: Schedule) -> bool:
    return False


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


_ALL = THESIS.condition
_SAMPLED = THESIS_SAMPLED.condition
_UNIFORM = "sampling people with one point each"
_SEVERAL = "more than one round"

_BUILT_IN = (
    # The pairs, composed.
    CLONES,
    CLONES_RENYI,
    OWN_PAIR,
    OWN_PAIR_RENYI,
    OWN_MESSAGES,
    Method("strong clone pair, privacy losses", "Feldman et al. 2023",
           by_losses(strong_pair), proved_for="binary response and kin",
           condition=CLONES.condition, proved=strong_pair_is_proved),
    Method("strong clone pair, Rényi orders", "the same, Rényi divergences",
           by_orders(strong_pair), proved_for="binary response and kin",
           proved=strong_pair_is_proved),
    Method("clone pair, generic sampling", "Zhu, Dong and Wang 2022",
           method_prices.generic_subsampling, condition=_SAMPLED, seen=CLONES_RENYI.name),
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
           by_composition(feldman_2021_epsilon),
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
    ADDED_UP,
    # The thesis, full shuffles.
    Method("thesis, reduction evaluated", "Theorem 5.3.4, exact instead of bounded",
           method_prices.thesis_reduction, condition=_ALL),
    THESIS,
    Method("thesis, 5.3.1, best fraction", "Remark 5.3.3, optimised",
           by_curve(full(renyi.thesis_upper_1_optimized), top=2000), condition=_ALL),
    Method("thesis, Theorem 5.3.2", "as printed", by_curve(full(renyi.thesis_upper_2)),
           condition=_ALL),
    Method("thesis, Corollary 5.3.1", "as printed", by_curve(full(renyi.thesis_simplified)),
           condition="order^4 e^(5 eps0) <= n / 9"),
    Method("Erlingsson et al. 2019, Rényi", "as the thesis compares",
           by_curve(full(renyi.erlingsson_2019)), condition=_ALL),
    Method("Feldman et al. 2023, Corollary 4.3", "closed Rényi form, thesis, (3.6)",
           by_curve(full(renyi.feldman_2023)), proved_for="binary response and kin",
           condition="order <= n / (16 eps0 e^eps0)", proved=strong_pair_is_proved),
    # The thesis, sampled shuffles.
    THESIS_SAMPLED,
    Method("thesis, 5.4.1, sharper constants", "the same proof",
           by_curve(sampled(refined)), condition=_SAMPLED, seen=THESIS.name),
    Method("Wang et al. 2019 over 5.3.1", "Wang, Balle and Kasiviswanathan",
           by_curve(uniform(renyi.wang_balle_kasiviswanathan), top=256),
           condition=_UNIFORM, seen=THESIS.name),
    Method("Zhu and Wang 2019 over 5.3.1", "Poisson sampling, as the thesis compares",
           by_curve(uniform(zhu_wang), top=256), proved_for="adding or removing a person",
           condition=_UNIFORM, proved=_never, seen=THESIS.name),
    # What cannot be beaten.
    *FLOORS,
    OWN_DATA_SETS,
    # Targets.
    Method("Gaussian limit of the class", "the best possible leading constant",
           method_prices.gaussian_limit, kind="approximation", proved=_never),
    Method("Gaussian limit of this mechanism", "its pair's leading constant",
           method_prices.own_gaussian_limit, kind="approximation", proved_for=OWN, proved=_never),
)  # fmt: skip

for _method in _BUILT_IN:
    register_method(_method)


# All of them side by side, for one and the same schedule of releases ----------------------


Status = Literal["proved", "conjectured", "approximation"]

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
    kind: BoundKind
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


def price_of(name: str, schedule: Schedule, delta: float) -> float | None:
    """Epsilon by one method, or None where it does not apply."""
    return method(name).epsilon(schedule, delta)[0]


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
        price = smallest_proved(build(parameter), delta)[0]
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


def _price(entry: Method, schedule: Schedule, delta: float) -> MethodPrice:
    epsilon, refused = entry.epsilon(schedule, delta)
    seen = None
    if schedule.sampled and entry.kind == "upper" and epsilon is not None:
        seen = method(entry.seen or entry.name).epsilon(schedule.seen, delta)[0]
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


def _status(entry: Method, schedule: Schedule) -> Status:
    if entry.kind == "approximation":
        return "approximation"
    return "proved" if entry.proved(schedule) else "conjectured"


def _place(price: MethodPrice) -> tuple[int, float]:
    rank = _RANKS.index("lower" if price.kind == "lower" else price.status)
    if price.epsilon is None:
        return len(_RANKS), 0.0
    return rank, -price.epsilon if price.kind == "lower" else price.epsilon
