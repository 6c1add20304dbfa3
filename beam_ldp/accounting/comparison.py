"""Every method for one and the same schedule of releases, side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from scipy import optimize, stats

from beam_ldp.accounting.accountant import ShuffleAccountant
from beam_ldp.accounting.class_lower import class_lower_epsilon
from beam_ldp.accounting.composition import compose_kov_exact, subsample
from beam_ldp.accounting.conversions import default_orders, rdp_to_epsilon
from beam_ldp.accounting.events import (
    LocalRandomizerDpEvent,
    ShuffledDpEvent,
    SubsampledShuffledDpEvent,
)
from beam_ldp.accounting.shuffle import shuffle_epsilon
from beam_ldp.accounting.shuffle_rdp import (
    erlingsson_2019,
    leading_constant,
    thesis_upper_1,
    thesis_upper_2,
)
from beam_ldp.accounting.subsampled_rdp import thesis_subsampled, wang_balle_kasiviswanathan

# Chance that anybody takes part more often than the count that is priced.
_MORE_OFTEN = 1e-6


@dataclass(frozen=True)
class Schedule:
    """The same release, `rounds` times, about the same people.

    Attributes:
        local_epsilon: eps0 of each report.
        num_users: People.
        num_sampled: People who report in each round, drawn anew; `num_users` if all do.
        rounds: Releases.
    """

    local_epsilon: float
    num_users: int
    num_sampled: int
    rounds: int

    @property
    def sampled(self) -> bool:
        return self.num_sampled < self.num_users

    @property
    def event(self) -> ShuffledDpEvent | SubsampledShuffledDpEvent:
        """One round, for a reader who cannot see who took part."""
        local = LocalRandomizerDpEvent(self.local_epsilon)
        if self.sampled:
            return SubsampledShuffledDpEvent(local, self.num_users, self.num_sampled)
        return ShuffledDpEvent(local, self.num_users)

    @property
    def most_rounds_of_a_person(self) -> int:
        """Rounds that nobody exceeds, but with a chance of one in a million."""
        if not self.sampled:
            return self.rounds
        chance = _MORE_OFTEN / self.num_users
        return int(stats.binom.isf(chance, self.rounds, self.num_sampled / self.num_users))


@dataclass(frozen=True)
class MethodPrice:
    """One line of the comparison.

    Attributes:
        method: Name, with its source.
        epsilon: Central epsilon; infinite where the method does not apply.
        kind: "upper" bounds hold for every randomizer with this eps0; "lower" bounds are what some
            randomizer really costs; "seen" is the upper bound against a reader who sees who took
            part.
    """

    method: str
    epsilon: float
    kind: Literal["upper", "lower", "seen"]


def compare(schedule: Schedule, delta: float) -> list[MethodPrice]:
    """Prices of a schedule by every method, the smallest proved upper bound first.

    >>> prices = compare(Schedule(2.0, 60_000, 2_000, 6_000), 1e-5)
    >>> [(p.method, round(p.epsilon, 3)) for p in prices if p.kind == "upper"][0]
    ('privacy-loss distributions of the clone pair', 0.882)
    """
    methods = {
        "privacy-loss distributions of the clone pair": _accounted(schedule, delta),
        "Rényi orders of the clone pair": _by_orders(schedule, delta),
        "clones, then optimal composition of (epsilon, delta)": _by_kov(schedule, delta),
        "local epsilons added up": schedule.rounds * schedule.local_epsilon,
    }
    uppers = [MethodPrice(method, epsilon, "upper") for method, epsilon in methods.items()]
    for name, bound in _named(schedule).items():
        uppers.append(MethodPrice(name, _converted(bound, schedule, delta), "upper"))
    uppers.sort(key=lambda price: price.epsilon)
    rate = schedule.num_sampled / schedule.num_users
    floor = class_lower_epsilon(
        schedule.local_epsilon, schedule.num_sampled, rate, schedule.rounds, delta
    )
    prices = [*uppers, MethodPrice("some randomizer costs at least", floor, "lower")]
    if schedule.sampled:
        seen = Schedule(
            schedule.local_epsilon,
            schedule.num_sampled,
            schedule.num_sampled,
            schedule.most_rounds_of_a_person,
        )
        label = f"clone pair, the {seen.rounds} rounds of the busiest person"
        prices.append(MethodPrice(label, _accounted(seen, delta), "seen"))
    return prices


def solve_schedule(
    epsilon: float, delta: float, build: Callable[[float], Schedule], low: float, high: float
) -> float:
    """The largest parameter in [low, high] whose schedule costs at most `epsilon`, to 1e-4.

    Args:
        epsilon: Central target.
        delta: Of the target.
        build: Schedule of a parameter; its price must grow with it.
        low: Least parameter; its schedule must fit.
        high: Largest parameter.

    Raises:
        ValueError: If not even the least parameter fits.
    """

    def excess(log_parameter: float) -> float:
        price = _accounted(build(math.exp(log_parameter)), delta)
        return math.log(max(price, 1e-300) / epsilon)

    least, most = math.log(low), math.log(high)
    if excess(least) > 0:
        raise ValueError(f"epsilon={epsilon:g} is exceeded even at {low:g}")
    if excess(most) <= 0:
        return high
    root = float(optimize.brentq(excess, least, most, xtol=1e-4, rtol=1e-9))
    while excess(root) > 0:
        root -= 1e-4
    return math.exp(root)


def _accounted(schedule: Schedule, delta: float) -> float:
    if schedule.rounds == 1 and not schedule.sampled:
        return float(shuffle_epsilon(schedule.local_epsilon, schedule.num_users, delta))
    accountant = ShuffleAccountant().compose(schedule.event, schedule.rounds)
    return float(accountant.get_epsilon(delta))


def _by_orders(schedule: Schedule, delta: float) -> float:
    accountant = ShuffleAccountant(default_orders(_guess(schedule, delta)))
    accountant.compose(schedule.event, schedule.rounds)
    return rdp_to_epsilon(accountant.orders, accountant.divergences(), delta)[0]


def _by_kov(schedule: Schedule, delta: float) -> float:
    rate = schedule.num_sampled / schedule.num_users
    each = min(1.0, delta / (2 * schedule.rounds * rate))
    inner = shuffle_epsilon(schedule.local_epsilon, schedule.num_sampled, each)
    epsilon, per_round = subsample(float(inner), each, rate)
    return compose_kov_exact(epsilon, per_round, schedule.rounds, delta / 2)[0]


def _named(schedule: Schedule) -> dict[str, Callable[[int], float]]:
    eps0, n, k = schedule.local_epsilon, schedule.num_users, schedule.num_sampled
    if schedule.sampled:
        return {
            "thesis, Theorem 5.4.1": lambda a: thesis_subsampled(a, eps0, n, k),
            "the same with sharper constants": lambda a: thesis_subsampled(
                a, eps0, n, k, refined=True
            ),
            "Wang et al. 2019 over Theorem 5.3.1": lambda a: wang_balle_kasiviswanathan(
                a, eps0, n, k
            ),
        }
    return {
        "thesis, Theorem 5.3.1": lambda a: thesis_upper_1(a, eps0, n),
        "thesis, Theorem 5.3.2": lambda a: thesis_upper_2(a, eps0, n),
        "Erlingsson et al. 2019": lambda a: erlingsson_2019(a, eps0, n),
    }


def _converted(bound: Callable[[int], float], schedule: Schedule, delta: float) -> float:
    orders = default_orders(min(32.0, _guess(schedule, delta)))
    curve = [schedule.rounds * bound(int(order)) for order in orders]
    return rdp_to_epsilon(orders, curve, delta)[0]


def _guess(schedule: Schedule, delta: float) -> float:
    """The order that is best in the Gaussian limit."""
    rate = schedule.num_sampled / schedule.num_users
    spread = schedule.rounds * rate**2 * leading_constant(schedule.local_epsilon)
    return 1 + math.sqrt(2 * math.log(1 / delta) * schedule.num_sampled / spread)
