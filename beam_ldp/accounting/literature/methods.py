"""Every method of accounting by name: its source, what it is proved for, and when it applies.

One registry, which `comparison.compare` and `beam-ldp privacy` read. A method of your own joins it
with `register_method`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from beam_ldp.accounting.divergences import shuffle_rdp
from beam_ldp.accounting.literature import closed_forms, method_prices
from beam_ldp.accounting.literature.closed_forms import (
    OutOfRangeError,
    compose_basic_with,
    compose_kov,
    compose_strong,
    require,
)
from beam_ldp.accounting.literature.method_prices import (
    Price,
    any_randomizer,
    by_composition,
    by_curve,
    by_losses,
    by_orders,
    clone_guarantee,
    own_pair,
    strong_pair,
    strong_pair_is_proved,
    without_shuffle,
)
from beam_ldp.accounting.literature.schedule import Schedule

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
    """

    name: str
    source: str
    price: Price
    kind: Kind = "upper"
    proved_for: str = CLASS
    condition: str = ""
    proved: Callable[[Schedule], bool] = always
    seen: str = ""


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


def _added_up(schedule: Schedule, delta: float) -> float:
    return schedule.rounds * schedule.local_epsilon


def _full(bound: Callable[[int, float, int], float]) -> Callable[[Schedule, float], float]:
    """A curve of a full shuffle."""

    def curve(schedule: Schedule, order: float) -> float:
        require(not schedule.sampled, "everybody's report in every round")
        return bound(int(order), schedule.local_epsilon, schedule.num_reports)

    return curve


def _sampled(bound: Callable[[int, float, int, int], float]) -> Callable[[Schedule, float], float]:
    """A curve of a sampled shuffle: of points, where whoever takes part reports one of theirs."""

    def curve(schedule: Schedule, order: float) -> float:
        require(schedule.sampled and schedule.points_sampled == 1, "sampling, one point per person")
        points = schedule.num_users * schedule.points_per_client
        return bound(int(order), schedule.local_epsilon, points, schedule.num_reports)

    return curve


def _uniform(bound: Callable[[int, float, int, int], float]) -> Callable[[Schedule, float], float]:
    """The same where the theorem knows one uniform sample only, not people and then points."""
    curve = _sampled(bound)

    def uniform(schedule: Schedule, order: float) -> float:
        require(schedule.points_per_client == 1, "people with one point each")
        return curve(schedule, order)

    return uniform


def _refined(order: int, local_epsilon: float, num_users: int, num_sampled: int) -> float:
    return shuffle_rdp.thesis_subsampled(order, local_epsilon, num_users, num_sampled, refined=True)


def _zhu_wang(order: int, local_epsilon: float, num_users: int, num_sampled: int) -> float:
    return shuffle_rdp.zhu_wang_poisson(order, local_epsilon, num_sampled, num_sampled / num_users)


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
           method_prices.own_messages, proved_for=OWN, condition="several messages per person"),
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
    Method("local epsilons added up", "no amplification", _added_up),
    # The thesis, full shuffles.
    Method("thesis, reduction evaluated", "Theorem 5.3.4, exact instead of bounded",
           method_prices.thesis_reduction, condition=_ALL),
    Method(_UPPER_1, "as printed, capped by eps0", by_curve(_full(shuffle_rdp.thesis_upper_1)),
           condition=_ALL),
    Method("thesis, 5.3.1, best fraction", "Remark 5.3.3, optimised",
           by_curve(_full(shuffle_rdp.thesis_upper_1_optimized), top=2000), condition=_ALL),
    Method("thesis, Theorem 5.3.2", "as printed", by_curve(_full(shuffle_rdp.thesis_upper_2)),
           condition=_ALL),
    Method("thesis, Corollary 5.3.1", "as printed", by_curve(_full(shuffle_rdp.thesis_simplified)),
           condition="order^4 e^(5 eps0) <= n / 9"),
    Method("Erlingsson et al. 2019, Rényi", "as the thesis compares",
           by_curve(_full(shuffle_rdp.erlingsson_2019)), condition=_ALL),
    Method("Feldman et al. 2023, Corollary 4.3", "closed Rényi form, thesis, (3.6)",
           by_curve(_full(shuffle_rdp.feldman_2023)), proved_for="binary response and kin",
           condition="order <= n / (16 eps0 e^eps0)", proved=strong_pair_is_proved),
    # The thesis, sampled shuffles.
    Method("thesis, Theorem 5.4.1", "as printed", by_curve(_sampled(
           shuffle_rdp.thesis_subsampled)), condition=_SAMPLED, seen=_UPPER_1),
    Method("thesis, 5.4.1, sharper constants", "the same proof",
           by_curve(_sampled(_refined)), condition=_SAMPLED, seen=_UPPER_1),
    Method("Wang et al. 2019 over 5.3.1", "Wang, Balle and Kasiviswanathan",
           by_curve(_uniform(shuffle_rdp.wang_balle_kasiviswanathan), top=256),
           condition=_UNIFORM, seen=_UPPER_1),
    Method("Zhu and Wang 2019 over 5.3.1", "Poisson sampling, as the thesis compares",
           by_curve(_uniform(_zhu_wang), top=256), proved_for="adding or removing a person",
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
    "OutOfRangeError",
    "method",
    "methods",
    "register_method",
]
