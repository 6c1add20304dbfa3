"""Which frequency oracle, at which local budget, with what error: before any data is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from beam_ldp.accounting import local_epsilon_for
from beam_ldp.accounting.divergences.hockey_stick import check_reports
from beam_ldp.accounting.reports import hidden_users
from beam_ldp.accounting.shuffle.one_release import price_target
from beam_ldp.planning.plan import Plan, best_first, check_target, local_limit
from beam_ldp.randomizers import registry
from beam_ldp.randomizers.base import FrequencyOracle
from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.entropy import critical_bits, inverse_binary_entropy


def plan_frequencies(
    num_users: int,
    domain_size: int,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    max_bits: int | None = None,
    honest_fraction: float = 1.0,
    only: Collection[str] | None = None,
    max_local_epsilon: float | None = None,
    random_bits: float | None = None,
) -> list[Plan]:
    """Every frequency oracle for this task, best first, unusable ones last with the reason.

    Args:
        num_users: Reports expected; 1 to 1e12.
        domain_size: Categories, `other` included; at least 2.
        epsilon: Central target. Needs `delta`. Each oracle gets the largest local epsilon that its
            own price allows.
        local_epsilon: Local budget instead; exactly one of the two.
        delta: Central delta in (0, 1). Without it, the price is the local epsilon itself.
        max_bits: Largest admissible report.
        honest_fraction: Share of the reports that are certainly not fake, in (0, 1]; only those
            hide anybody.
        only: Names of the oracles to consider; None for all that are offered: ours, and those of
            `registry`.
        max_local_epsilon: Most that a device may promise away under a central target, which then
            costs less than that.
        random_bits: What a device has of them for a report, on average (`LimitedHadamard` makes do
            with less than one).

    Returns:
        One row per oracle, its best variant. First those that may be used, by `rms_error`; among
        errors that are equal to 1 %, by bits.

    >>> plans = plan_frequencies(1_000_000, 1000, epsilon=1.0, delta=1e-8)
    >>> plans[0].epsilon <= 1.0, plans[0].excluded
    (True, '')
    """
    hidden = hidden_users(check_reports(num_users), honest_fraction)
    check_target(epsilon, local_epsilon, delta, max_bits)
    check_integer("domain_size", domain_size, 2)
    if random_bits is not None:
        check_positive("random_bits", random_bits)

    size, limit = int(domain_size), local_limit(max_local_epsilon)

    def best(oracle: type[FrequencyOracle]) -> list[Plan]:
        rows = []
        for options in variants_of(oracle, size, random_bits):
            build = partial(oracle, size, **options)
            target = (epsilon, local_epsilon, delta, max_bits, limit, random_bits)
            rows.append(_plan(oracle, build, size, num_users, hidden, *target))
        return best_first(rows)[:1]

    kinds = [k for k in registry.offered("frequency") if only is None or k.__name__ in only]
    return best_first([plan for kind in kinds for plan in best(kind)])


def variants_of(
    oracle: type[FrequencyOracle], domain_size: int, random_bits: float | None
) -> Iterable[dict[str, Any]]:
    """Choices of its constructor, for devices with so many random bits where that is limited."""
    if random_bits is None:
        return oracle.variants(domain_size)
    return oracle.variants_within(domain_size, random_bits)


def recommend(
    num_users: int,
    domain_size: int,
    epsilon: float | None = None,
    local_epsilon: float | None = None,
    delta: float | None = None,
    max_bits: int | None = None,
    honest_fraction: float = 1.0,
    max_local_epsilon: float | None = None,
    random_bits: float | None = None,
) -> Plan:
    """The first row of `plan_frequencies`.

    Args:
        num_users, domain_size, epsilon, local_epsilon, delta, max_bits, honest_fraction,
        max_local_epsilon, random_bits: As there.

    Raises:
        ValueError: If no oracle meets the constraints.

    >>> recommend(1_000_000, 1000, local_epsilon=3.0, max_bits=16).bits_per_report <= 16
    True
    """

    found = plan_frequencies(
        num_users, domain_size, epsilon, local_epsilon, delta, max_bits, honest_fraction,
        max_local_epsilon=max_local_epsilon, random_bits=random_bits,
    )  # fmt: skip
    if found[0].excluded:
        limits = {"max_bits": max_bits, "random_bits": random_bits}
        asked = ", ".join(f"{k}={v}" for k, v in limits.items() if v is not None)
        raise ValueError(f"no mechanism meets {asked}: {found[0].excluded}")
    return found[0]


def _plan(
    oracle: type[FrequencyOracle],
    build: Callable[[float], FrequencyOracle],
    domain_size: int,
    num_users: int,
    hidden: int,
    epsilon: float | None,
    local_epsilon: float | None,
    delta: float | None,
    max_bits: int | None,
    max_local_epsilon: float,
    random_bits: float | None,
) -> Plan:
    try:
        if local_epsilon is None:
            assert epsilon is not None and delta is not None
            earned = local_epsilon_for(epsilon, delta, hidden, build)
            local_epsilon = min(earned, max_local_epsilon)
        randomizer = build(local_epsilon)
        price_target(randomizer, hidden, False)  # refuses what has no price
    except ValueError as error:
        return Plan(oracle.__name__, None, decoding=oracle.decoding, excluded=str(error))
    even = np.full(domain_size, 1.0 / domain_size)
    rare = np.full(domain_size, 1.0 / (domain_size - 1))
    rare[0] = 0.0
    return Plan(
        mechanism=oracle.__name__,
        randomizer=randomizer,
        rms_error=float(np.sqrt(randomizer.variance(num_users, even).sum())),
        standard_errors=(float(np.sqrt(randomizer.variance(num_users, rare)[0])),),
        worst_error=float(np.sqrt(randomizer.variance(num_users).max())),
        num_hidden=hidden,
        delta=delta or 0.0,
        decoding=oracle.decoding,
        excluded=_missed(randomizer, max_bits, random_bits),
    )


def _missed(randomizer: FrequencyOracle, max_bits: int | None, random_bits: float | None) -> str:
    """The limit that a mechanism does not meet, in words; empty if it meets both."""
    bits = randomizer.bits_per_report
    if max_bits is not None and bits > max_bits:
        return f"{bits} bits per report, max_bits is {max_bits}"
    return "" if random_bits is None else randomizer.lacks_random_bits(random_bits)


# How small the error of frequencies can be at all: bounds for every mechanism -------------
#
# The lower bounds hold for any reports of any size, interactive with public randomness or not, and
# any estimator; the upper ones are reached by the Hadamard mechanism of few random bits. They speak
# of all values of a list at once, in the worst population, of people drawn from it.
#
# Source: thesis, section 7.3 and appendix F, with its constants corrected
# (frequency-and-randomness, sections 3.5 and 10).


@dataclass(frozen=True)
class LeastErrors:
    """What no mechanism is below, and what one is not above.

    Every figure is about fractions of the people.

    Attributes:
        squared: expected sum over all values of the squared error: nothing is below.
        absolute: expected sum over all values of the absolute error: nothing is below; 0 where so
            few people report that nothing is known.
        squared_reached: sum of squared errors that `LimitedHadamard` does not exceed.
        absolute_reached: the same of absolute errors.
        domain_size: number of values.
    """

    squared: float
    absolute: float
    squared_reached: float
    absolute_reached: float
    domain_size: int

    @property
    def per_value(self) -> float:
        """Root of the mean over all values of the squared error: nothing is below."""
        return math.sqrt(self.squared / self.domain_size)


def least_errors(
    domain_size: int, num_users: float, local_epsilon: float, random_bits: float | None = None
) -> LeastErrors:
    """Bounds on the error of frequencies.

    Args:
        domain_size: number of values, at least 2.
        num_users: people who report, at least 1.
        local_epsilon: of a report, > 0.
        random_bits: entropy of a report for a given value, at most; None: no limit.

    Raises:
        ValueError: for an argument out of range.

    >>> least = least_errors(1000, 500_000, 1.0)
    >>> print(f"{least.squared:.4g} {least.squared_reached:.4g} {least.per_value:.2%}")
    9.066e-05 0.01873 0.03%
    >>> less = least_errors(1000, 500_000, 1.0, random_bits=0.1)
    >>> print(f"{less.squared:.4g} {less.squared_reached:.4g}")
    0.0001012 3.043
    """
    check_integer("domain_size", domain_size, 2)
    check_positive("num_users", num_users)
    check_positive("local_epsilon", local_epsilon)
    bits = math.inf if random_bits is None else random_bits
    if random_bits is not None:
        check_positive("random_bits", random_bits)
    even = domain_size - domain_size % 2  # of an odd number one value is known to be empty
    squared = 2 * (even / 2) ** 2
    told = num_users * even * math.exp(local_epsilon) * _told(local_epsilon, bits)
    squared /= told + math.pi**2 * even**3 / 2
    reached = _reached(domain_size, num_users, local_epsilon, bits)
    return LeastErrors(
        squared,
        _least_absolute(even, num_users, local_epsilon),
        reached,
        math.sqrt(domain_size * reached),
        domain_size,
    )


def _told(local_epsilon: float, random_bits: float) -> float:
    """The most that a report tells two values apart (Vbar): their triangular discrimination."""
    apart = math.tanh(local_epsilon / 2) ** 2
    if random_bits >= critical_bits(local_epsilon):
        return 2 * apart
    lie, inverse = inverse_binary_entropy(random_bits), math.exp(-local_epsilon)
    return 2 * lie * apart + (lie * (1 - inverse)) ** 2 / (2 - lie * (1 + inverse))


def _least_absolute(domain_size: int, num_users: float, local_epsilon: float) -> float:
    """Assouad's lemma, whose perturbation of the uniform law needs enough people to be a law."""
    scale = 32 * math.exp(local_epsilon) * math.tanh(local_epsilon / 2) ** 2
    if num_users < domain_size**2 / scale:
        return 0.0
    squared = domain_size / (num_users * scale / 2)
    return math.sqrt(domain_size * squared / 32)


def _reached(domain_size: int, num_users: float, local_epsilon: float, random_bits: float) -> float:
    """Squared error of binary reports about a row of a Hadamard matrix, 2 k rows at most."""
    gap = -math.expm1(-local_epsilon)  # (E - 1)/E
    if random_bits >= critical_bits(local_epsilon):
        spread = (1 + math.exp(-local_epsilon)) / gap
        return 2 * domain_size * spread**2 / num_users
    lie = inverse_binary_entropy(random_bits)
    return 8 * domain_size * (1 - lie) / (num_users * lie * gap**2)
