"""How small the error of frequencies can be at all: bounds for every mechanism of a local epsilon.

The lower bounds hold for any reports of any size, interactive with public randomness or not, and
any estimator; the upper ones are reached by the Hadamard mechanism of few random bits. They speak
of all values of a list at once, in the worst population, of people drawn from it.

Source: thesis, section 7.3 and appendix F, with its constants corrected (frequency-and-randomness,
sections 3.5 and 10).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from beam_ldp.randomizers.checks import check_integer, check_positive
from beam_ldp.randomizers.entropy import critical_bits, inverse_binary_entropy


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
