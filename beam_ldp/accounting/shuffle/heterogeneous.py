"""Crowds of several local budgets, and reports that are private but for a delta.

**Several budgets.** Everybody's report law contains a blanket: R_i >= mass_i w for every value,
with one law w for all. So the others send a Poisson-binomial number of draws from w, and the
victim, whose own pair against w is known, hides among those. A price falls with that number: the
mean over m + 1 draws is that over m of them, one left out at random, which the convex (.)+ only
spreads. And that number is at least, in stochastic order, a binomial one whose chance is the
*geometric* mean of theirs: of two people with chances p and p', put both at sqrt(p p'), and both
draw as often as before, at least one of them no more often (Pledger and Proschan 1971). People who
hide little count in groups: one draw among r of them has the chance 1 - (1 - mass)^r. So the
release costs at most what a crowd of one mass costs, which composes as any other.

What a common blanket is, the mechanism says: symbols of one alphabet, all alike. A randomizer of a
smaller budget is then that of a larger one, or with some chance w, so that whoever has the largest
budget pays most; and the others of anybody hide at least as well as all without the most private
one. Each of them is also a clone with the chance e^-eps0 of that largest budget. Mechanisms whose
reports differ with the budget (sizes of sets, hashes, blocks) tell budgets apart: they have no
common blanket, and each budget is a crowd of its own.

**Private but for a delta.** Let R be (eps0, delta0)-private, for every pair of values and both ways
round. The victim's two laws are delta0 of anything and 1 - delta0 of a pure eps0 pair (A, B)
(Kairouz, Oh and Viswanath 2015). Another person's law is at least e^-eps0 (R(x) - excess), the
excess of mass delta0 at most, likewise for x': with w = (A + B)/2, of which (R(x) + R(x'))/2 holds
1 - delta0, she sends a draw from w with probability (1 - delta0) e^-eps0, but for a distance
e^-eps0 delta0 in total variation. Both worlds are that far from the clone pair's, each person
adds it once, and

    delta(eps) <= (1 - delta0) clones(eps) + delta0 + (1 + e^eps)(n - 1) e^-eps0 delta0

with clones of mass (1 - delta0) e^-eps0. (Feldman, McMillan and Talwar 2021, Theorem 3.8, have the
same with n delta0 in the place of the last factors; tests/accounting/test_heterogeneous.py
enumerates ours.) The last term needs a delta0 far below delta / n. It is no event: compositions of
such distances are not what an accountant here adds up, and it refuses them by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from beam_ldp.accounting.divergences.hockey_stick import (
    check_reports,
    directions,
    epsilon_bound,
    hockey_stick,
)
from beam_ldp.accounting.lower import PrivacyBound
from beam_ldp.accounting.reports import LocalReports, ShuffledReports
from beam_ldp.accounting.shuffle.one_release import (
    MAX_LOCAL_EPSILON,
    check_delta,
    check_epsilon,
    local_reports,
)
from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.special import brentq

if TYPE_CHECKING:
    from beam_ldp.accounting.events import ShuffledDpEvent

_METHOD = "clones, but for a delta of reports"
_EDGE = 1.0 - 1e-12  # of a mass, so that rounding never makes it larger
_LEAST = 1e-9  # an epsilon that is as good as none
_SHARES = (0.5, 0.2, 0.1, 0.05, 0.02, 0.005)
_TURNS = 4
_ROUNDING = 1e-6  # relative, of a difference of two tails


def mixed_shuffled_event(
    kinds: Sequence[tuple[SymbolOracle, int]], num_fakes: int = 0
) -> ShuffledDpEvent:
    """The event of one shuffled batch in which people have different local epsilons.

    Protects one person's value, whoever it is, against a reader of the shuffled reports who knows
    everybody else's value, and also who has which budget: a budget must not depend on the value.
    The price is that of a person with the largest of them; it composes as that of any event.

    Args:
        kinds: Of each budget the randomizer, and how many reports of it were received. Mechanisms
            of one class and domain, whose reports are symbols of one alphabet
            (`KRandomizedResponse`, `BinaryHadamard`, `HadamardResponse` and kin with the same
            blocks).
        num_fakes: Reports that may be fake, at most: the most private ones are taken off, for a
            device says its budget itself.

    Returns:
        An event whose `num_reports` are people of one mass in the place of these, never more than
        there are.

    Raises:
        ValueError: If the mechanisms have no common blanket, or nobody is left.

    >>> from beam_ldp.randomizers.frequency import KRandomizedResponse
    >>> event = mixed_shuffled_event(
    ...     [(KRandomizedResponse(10, 1.0), 60_000), (KRandomizedResponse(10, 4.0), 40_000)]
    ... )
    >>> event.local_epsilon, event.num_reports
    (4.0, 63333)
    """
    from beam_ldp.accounting.events import as_event  # loads dp_accounting

    told = [_kind(randomizer, count) for randomizer, count in kinds]
    if len({alphabet for alphabet, _, _ in told}) != 1:
        raise ValueError(
            "kinds must be mechanisms of one class, domain and alphabet, of which every value "
            "favours as many symbols: reports that tell budgets apart hide nobody of another one"
        )
    check_integer("num_fakes", num_fakes, 0)
    reports = max((local for _, local, _ in told), key=lambda local: local.local_epsilon)
    pair = reports.dominating_pair()
    masses = sorted(((local.dominating_pair().blanket_mass, n) for _, local, n in told))
    mass, others = binomial_below(_without(masses, num_fakes + 1))
    if not others:  # the victim is alone
        alone: ShuffledDpEvent = as_event(ShuffledReports(reports, 1))
        return alone
    source = f"{pair.source}, several budgets"
    mixed = ShufflePair(mass, pair.ratios, pair.probabilities, "proved", source, others)
    event: ShuffledDpEvent = as_event(
        ShuffledReports(LocalReports(reports.local_epsilon, mixed), others + 1)
    )
    return event


def _kind(randomizer: Any, count: int) -> tuple[tuple[Any, ...], LocalReports, int]:
    """The alphabet of a mechanism, what is known of one report, and of how many people."""
    check_integer("count", count, 1)
    name = type(randomizer).__name__
    if not isinstance(randomizer, SymbolOracle):
        raise ValueError(
            f"kinds must be mechanisms whose reports are symbols, all alike in the blanket; {name} "
            "of different budgets has no blanket in common that is proved here"
        )
    reports = local_reports(randomizer)
    if reports.public_groups != 1 or reports.messages != 1:
        raise ValueError(f"kinds must send one report without a public row, which {name} does not")
    shared = randomizer.num_symbols, randomizer.num_favoured, randomizer.overlap
    return (type(randomizer), randomizer.domain_size, *shared), reports, count


def _without(masses: list[tuple[float, int]], number: int) -> list[tuple[float, int]]:
    """The people who are left when so many of the largest masses are gone."""
    left = []
    for mass, count in reversed(masses):
        gone = min(count, number)
        number -= gone
        if count > gone:
            left.append((mass, count - gone))
    if number:
        raise ValueError("num_fakes must be below the number of all reports")
    return left


def binomial_below(masses: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """A binomial law that is nowhere above the number of successes of all these people.

    Args:
        masses: Chances of success, each with how many people have it; may be none.

    Returns:
        Chance and number of trials, of those tried here with the largest mean.

    >>> mass, trials = binomial_below([(0.9, 7000), (0.05, 7000)])
    >>> round(mass, 3), trials, round(mass * trials)
    (0.9, 7155, 6440)
    """
    best = (1.0 * _EDGE, 0)
    for least in {mass for mass, _ in masses}:
        trials, logs = 0, 0.0
        for mass, count in masses:
            group = 1
            if mass < least:
                group = math.ceil(math.log1p(-least) / math.log1p(-mass))
            trials += count // group
            logs += count // group * math.log(-math.expm1(group * math.log1p(-mass)))
        mean = (math.exp(logs / trials) * _EDGE, trials)
        best = max(best, mean, key=lambda law: law[0] * law[1])
    return best


# Private but for a delta ---------------------------------------------------------------------


def approximate_shuffle_delta(
    local_epsilon: float, local_delta: float, num_reports: int, epsilon: float
) -> PrivacyBound:
    """Delta of shuffled reports of any (local_epsilon, local_delta)-private randomizer.

    Protects one person's value (replace-one) in one shuffled batch against its readers. Everybody
    has the same randomizer; it must be private for every pair of values.

    Args:
        local_epsilon: In (0, 30].
        local_delta: In [0, 1); of use far below delta / num_reports only.
        num_reports: Honest reports received.
        epsilon: >= 0.

    >>> f"{approximate_shuffle_delta(2.0, 1e-15, 10_000, 0.2):.2e}"
    '6.62e-09'
    """
    reports = _Approximate(local_epsilon, local_delta, check_reports(num_reports))
    check_epsilon(epsilon)
    return PrivacyBound(reports.delta(epsilon), method=_METHOD)


def approximate_shuffle_epsilon(
    local_epsilon: float, local_delta: float, num_reports: int, delta: float
) -> PrivacyBound:
    """The least epsilon that `approximate_shuffle_delta` gives; the local one if that is better.

    Infinite where nothing is proved: where the local delta is too large for so many reports.

    >>> bound = approximate_shuffle_epsilon(2.0, 1e-15, 10_000, 1e-6)
    >>> round(bound, 4)
    0.155
    """
    reports = _Approximate(local_epsilon, local_delta, check_reports(num_reports))
    check_delta(delta)
    alone = local_epsilon if local_delta <= delta else math.inf
    return _bound(reports.epsilon(delta), alone)


def gaussian_shuffle_epsilon(
    noise_multiplier: float, num_reports: int, delta: float
) -> PrivacyBound:
    """Epsilon of shuffled reports to each of which its device added Gaussian noise.

    Any dimension; noise of a standard deviation of `noise_multiplier` times the largest length of
    a vector, in each coordinate, in exact real arithmetic. The local epsilon and delta are those
    exact for Gaussian noise (Balle and Wang 2018), the best ones.

    >>> round(gaussian_shuffle_epsilon(2.0, 1_000_000, 1e-6), 3)
    0.21
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_delta(delta)
    n, mu = check_reports(num_reports), 2.0 / noise_multiplier
    if delta == 0.0:
        return _bound(math.inf, math.inf)
    best = math.inf
    for share in _SHARES:  # of delta, for what is added n times
        each = math.log(share * delta / (2.0 * n))
        local = _gaussian_epsilon(mu, each, 1.0)
        if local <= MAX_LOCAL_EPSILON:
            reports = _Approximate(local, _gaussian_delta(mu, local), n)
            best = min(best, reports.epsilon(delta))
    return _bound(best, _gaussian_epsilon(mu, math.log(delta)))


def _gaussian_delta(mu: float, epsilon: float) -> float:
    """Of two Gaussians so many standard deviations apart."""
    above = float(special.log_ndtr(-mu / 2 - epsilon / mu))
    exact = float(special.ndtr(mu / 2 - epsilon / mu)) - math.exp(epsilon + above)
    return max(0.0, exact) * (1.0 + _ROUNDING)


def _gaussian_epsilon(mu: float, log_delta: float, slope: float = 0.0) -> float:
    """The least epsilon > 0 at which delta is e^(log_delta + slope epsilon) at most."""

    def excess(epsilon: float) -> float:
        return math.log(max(_gaussian_delta(mu, epsilon), 1e-300)) - log_delta - slope * epsilon

    top = mu * mu / 2 + 38 * mu
    if excess(_LEAST) <= 0.0:
        return _LEAST
    return brentq(excess, _LEAST, top, rtol=1e-10) * (1 + 1e-9)


def _bound(value: float, alone: float) -> PrivacyBound:
    if alone <= value:
        return PrivacyBound(alone, method="local epsilon and delta (no amplification)")
    return PrivacyBound(value, method=_METHOD)


@dataclass(frozen=True)
class _Approximate:
    """The bound at the top of this page."""

    local_epsilon: float
    local_delta: float
    n: int

    def __post_init__(self) -> None:
        if not 0 < self.local_epsilon <= MAX_LOCAL_EPSILON:
            raise ValueError(f"local_epsilon must lie in (0, {MAX_LOCAL_EPSILON:g}]")
        check_fraction("local_delta", self.local_delta, "[)")

    @cached_property
    def _sides(self) -> tuple[ShufflePair, ...]:
        clones = ShufflePair.clones(self.local_epsilon)
        mass = clones.blanket_mass * (1.0 - self.local_delta) * _EDGE
        return directions(replace(clones, blanket_mass=mass))

    def _far(self, epsilon: float) -> float:
        """What the distances of all other people add."""
        each = math.exp(-self.local_epsilon) * self.local_delta
        return self.local_delta + (1.0 + math.exp(min(epsilon, 700.0))) * (self.n - 1) * each

    def delta(self, epsilon: float) -> float:
        clones = max(hockey_stick(side, self.n, epsilon).upper for side in self._sides)
        return min(1.0, (1.0 - self.local_delta) * clones + self._far(epsilon))

    def epsilon(self, delta: float) -> float:
        """An epsilon >= 0 that `delta` allows, infinite where none is known.

        What is left of delta at an epsilon buys a smaller one, at which more is left.
        """
        found = self.local_epsilon
        while self._far(found) > delta / 2 and found > _LEAST:
            found *= 0.8
        best = math.inf
        for _ in range(_TURNS):
            left = (delta - self._far(found)) / (1.0 - self.local_delta)
            if left <= 0.0:
                break
            bought = max(epsilon_bound(side, self.n, left, upper=True) for side in self._sides)
            if bought > found:
                break
            best = found = bought
        return best
