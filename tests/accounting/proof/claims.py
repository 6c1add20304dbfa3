"""What the library claims about small releases, in one shape, so that one harness judges it all.

A claim is a value that no data set may exceed: a Rényi divergence at each order, or a delta at
each epsilon. Each is asked of a `Setting`; a claim that does not apply there is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting import (
    LocalRandomizerDpEvent,
    ShuffleAccountant,
    ShuffledDpEvent,
    ShufflePair,
    SubsampledShuffledDpEvent,
    shuffle_delta,
)
from beam_ldp.accounting.composition.loss_curves import loss_grid, renyi_divergences
from beam_ldp.accounting.divergences import shuffle_rdp as full
from beam_ldp.accounting.divergences.hockey_stick import hockey_stick
from beam_ldp.research.published import renyi
from tests.accounting import rdp_curves
from tests.accounting.brute_force import Pairs

Array = NDArray[np.float64]

_KNOTS = 60
ORDERS = (1.5, 2.0, 3.0, 6.0, 15.0, 60.0)
SHARES = (0.0, 0.05, 0.2, 0.4, 0.7, 0.95)  # of the local epsilon
SLACK = 1e-9  # relative rounding of either side; 1e-13 absolute


class Setting(NamedTuple):
    """A release, known by its numbers alone."""

    local_epsilon: float
    num_users: int
    num_sampled: int
    points: int = 1
    points_sent: int = 1

    @property
    def epsilons(self) -> tuple[float, ...]:
        return tuple(share * self.local_epsilon for share in SHARES)

    @property
    def event(self) -> ShuffledDpEvent | SubsampledShuffledDpEvent:
        local = LocalRandomizerDpEvent(self.local_epsilon)
        if self.points == 1 and self.num_sampled == self.num_users:
            return ShuffledDpEvent(local, self.num_users)
        return SubsampledShuffledDpEvent(
            local,
            self.num_users,
            self.num_sampled,
            points_per_client=self.points,
            points_sampled=self.points_sent,
        )


Claim = Callable[[Setting], Array | None]


def by_order(bound: Callable[[float, Setting], float | None]) -> Claim:
    """A claim from a bound of one order; infinite where the bound takes integers alone."""

    def claim(setting: Setting) -> Array | None:
        if bound(2.0, setting) is None:
            return None
        return np.array([_value(bound, order, setting) for order in ORDERS])

    return claim


def by_epsilon(bound: Callable[[float, Setting], float | None]) -> Claim:
    """A claim from a bound of one epsilon."""

    def claim(setting: Setting) -> Array | None:
        if bound(0.0, setting) is None:
            return None
        return np.array([bound(epsilon, setting) for epsilon in setting.epsilons])

    return claim


def _value(bound: Callable[[float, Setting], float | None], order: float, at: Setting) -> float:
    try:
        found = bound(order, at)
    except ValueError as error:
        if "integer" not in str(error):
            raise
        return math.inf
    return math.inf if found is None else found


def _whole(s: Setting) -> bool:
    return s.points == 1 and s.num_sampled == s.num_users


def _one_point(s: Setting) -> bool:
    return s.points_sent == 1


def _sampled(bound: Callable[..., float]) -> Claim:
    """Of a bound (order, eps0, people, drawn) that holds for one point per person and round."""
    return by_order(
        lambda a, s: (
            bound(a, s.local_epsilon, s.num_users * s.points, s.num_sampled)
            if _one_point(s)
            else None
        )
    )


def _unsampled(bound: Callable[..., float]) -> Claim:
    return by_order(lambda a, s: bound(a, s.local_epsilon, s.num_users) if _whole(s) else None)


def _curve(order: float, s: Setting) -> float:
    return float(renyi_divergences(s.event, np.array([order]))[0])


def _dots(epsilon: float, s: Setting) -> float:
    return float(loss_grid(s.event).deltas(np.array([epsilon]))[0])


def _accounted(epsilon: float, s: Setting) -> float:
    return float(ShuffleAccountant().compose(s.event).get_delta(epsilon))


def clone_stick(mass: Callable[[float], float]) -> Claim:
    """The clone pair (subsampled: the direct pair), others blending in with this probability."""

    def claim(epsilon: float, s: Setting) -> float | None:
        if s.points > 1:
            return None
        ratio = math.exp(s.local_epsilon)
        high, low = 2 * ratio / (ratio + 1), 2 / (ratio + 1)
        blend = min(mass(s.local_epsilon), low)
        pair = ShufflePair(blend, ((high, low), (low, high)), (0.5, 0.5))
        return hockey_stick(pair, s.num_sampled, epsilon, s.num_sampled / s.num_users).upper

    return by_epsilon(claim)


def _sampled_profile(order: float, s: Setting) -> float | None:
    if not _one_point(s):
        return None
    pair = ShufflePair.clones(s.local_epsilon)
    losses = np.linspace(0.0, s.local_epsilon, _KNOTS)
    heights = np.array([hockey_stick(pair, s.num_sampled, loss).upper for loss in losses])
    rate = s.num_sampled / (s.num_users * s.points)
    return renyi.sampled_profile_rdp(order, np.exp(losses), heights, rate)


# Proved for every local randomizer. Divergences:
RENYI: dict[str, Claim] = {
    "local epsilon": by_order(lambda a, s: s.local_epsilon),
    "curve of the event": by_order(_curve),
    "clones": _unsampled(rdp_curves.clone_rdp),
    "the thesis' reduction, exact": _unsampled(renyi.thesis_reduction_exact),
    "Theorem 5.3.1": _unsampled(full.thesis_upper_1),
    "Theorem 5.3.1, best fraction": _unsampled(renyi.thesis_upper_1_optimized),
    "Theorem 5.3.2": _unsampled(renyi.thesis_upper_2),
    "Corollary 5.3.1": _unsampled(renyi.thesis_simplified),
    "Erlingsson 2019": _unsampled(renyi.erlingsson_2019),
    "direct pair": by_order(
        lambda a, s: (
            rdp_curves.direct_rdp(a, s.local_epsilon, s.num_users, s.num_sampled)
            if s.points == 1
            else None
        )
    ),
    "Theorem 5.4.1": _sampled(full.thesis_subsampled),
    "Theorem 5.4.1, refined": _sampled(
        lambda a, e, n, k: full.thesis_subsampled(a, e, n, k, refined=True)
    ),
    "Wang, Balle and Kasiviswanathan 2019": _sampled(renyi.wang_balle_kasiviswanathan),
    "sampled profile": by_order(_sampled_profile),
}
# ... and deltas:
DELTAS: dict[str, Claim] = {
    "clone pair": clone_stick(lambda e: math.exp(-e)),
    "shuffle_delta": by_epsilon(
        lambda x, s: shuffle_delta(s.local_epsilon, s.num_users, x) if _whole(s) else None
    ),
    "dots of the event": by_epsilon(_dots),
    "accountant": by_epsilon(_accounted),
}


@lru_cache(maxsize=4096)
def claimed(name: str, setting: Setting) -> Array | None:
    """The values of a proved claim; computed once."""
    return (RENYI | DELTAS)[name](setting)


def exceeded(truth: Array, claim: Array | None) -> float:
    """By what factor data go beyond the claim at the worst point; 1 where they do not."""
    if claim is None:
        return 1.0
    beyond = truth > claim * (1 + SLACK) + 1e-13
    return float(np.max(truth[beyond] / claim[beyond])) if beyond.any() else 1.0


def refuted(pairs: Pairs, setting: Setting) -> dict[str, float]:
    """Every proved claim that these data sets exceed, and by what factor."""
    orders, epsilons = pairs.renyi(ORDERS), pairs.sticks(setting.epsilons)
    factors = {name: exceeded(orders, claimed(name, setting)) for name in RENYI}
    factors |= {name: exceeded(epsilons, claimed(name, setting)) for name in DELTAS}
    return {name: factor for name, factor in factors.items() if factor > 1.0}
