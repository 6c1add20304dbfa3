"""Projective geometry response: a report favours the points of a hyperplane."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.finite_fields import (
    MAX_MODULUS,
    DifferenceSet,
    is_prime,
    num_points,
    primes_up_to,
    singer,
)
from beam_ldp.randomizers.frequency.designs import MOST_SYMBOLS_PER_VALUE, Design
from beam_ldp.randomizers.frequency.symbol_oracle import CyclicOracle

_MANY_SYMBOLS = 1 << 23  # 64 MiB of counts: beyond, the smallest geometry


@dataclass(frozen=True)
class ProjectiveGeometryResponse(CyclicOracle):
    """Projective geometry response: near the least possible error, in log2 v bits.

    Values and symbols are points of a projective geometry over a field of `prime` elements; a
    value favours the points of one hyperplane. Written as exponents of a generator (Singer), the
    hyperplanes are the translates x + S of one difference set S modulo v, so a report takes one
    random word and one addition, and one fast Fourier transform decodes all reports. It protects
    the value against everybody who sees the report. Best prime: about E + 1, E = e**local_epsilon.

    Reports are `(n,)` unsigned integers below v = 1 + q + ... + q**(t-1), the least such number
    that is at least k; the statistic is their histogram, int64 `(v,)`. To estimate takes
    O(v log v) time and O(v) memory; by default v is at most 32 k.

    Source: Feldman, Nelson, Nguyen and Talwar 2022; Singer 1938 for the difference sets; thesis,
    section 7.5.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        prime: q; None for the one with the least error.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = ProjectiveGeometryResponse(domain_size=22000, local_epsilon=5.0)
    >>> oracle.prime, oracle.dimension, oracle.num_symbols, oracle.bits_per_report
    (149, 3, 22351, 15)
    >>> reports = oracle.randomize(np.array([0, 7, 21999]))
    >>> oracle.estimate(oracle.accumulate(reports), num_users=3).value.shape
    (22000,)
    """

    also_known_as: ClassVar[str] = "PGR"

    prime: int | None = None

    def _choose_parameters(self) -> None:
        prime = self.prime
        if prime is None:
            prime = best_prime(self.domain_size, self.local_epsilon)
        prime = check_integer("prime", prime, 2, MAX_MODULUS)
        if not is_prime(prime):
            raise ValueError(f"prime must be a prime number, got {prime}")
        object.__setattr__(self, "prime", prime)
        if self.num_symbols > MAX_MODULUS:
            raise ValueError(
                f"prime={prime} with domain_size={self.domain_size} makes more than "
                f"{MAX_MODULUS} symbols; choose another prime"
            )

    @property
    def _prime(self) -> int:
        assert self.prime is not None
        return self.prime

    @property
    def dimension(self) -> int:
        """t, the number of coordinates of a point."""
        return _dimension(self.domain_size, self._prime)

    @property
    def difference_set(self) -> DifferenceSet:
        """What value 0 favours. Verified when first built, and kept per process."""
        return singer(self._prime, self.dimension)

    @property
    def num_symbols(self) -> int:
        return num_points(self._prime, self.dimension)

    @property
    def num_favoured(self) -> int:
        return num_points(self._prime, self.dimension - 1)


def best_prime(domain_size: int, local_epsilon: float, most_symbols: int = _MANY_SYMBOLS) -> int:
    """The prime with the least error at frequency zero among geometries of at most 32 k points.

    Args:
        domain_size, local_epsilon: as in the mechanism.
        most_symbols: points of the geometry, at most, where there is one (the time and memory of
            decoding, and of building it, grow with them).

    >>> [best_prime(1000, epsilon) for epsilon in (1.0, 2.0, 3.0, 4.0, 5.0)]
    [3, 7, 23, 53, 149]
    """
    largest = 4 * (math.exp(min(local_epsilon, 40.0)) + 1)
    primes = primes_up_to(2 * min(domain_size, math.ceil(largest)))
    # A prime q >= k - 1 gives q + 1 single points; only the least of those can be best.
    primes = primes[: 1 + int(np.searchsorted(primes, domain_size - 1))]
    best, least_error = 2, math.inf
    for prime in primes.tolist():
        error = _error(domain_size, prime, math.exp(-min(local_epsilon, 700.0)), most_symbols)
        if prime <= largest and error < least_error:
            best, least_error = prime, error
    return best


def _error(domain_size: int, prime: int, inverse: float, most_symbols: int) -> float:
    """Variance of one report at frequency zero, times (1 - inverse)**2, inverse = 1/E."""
    dimension = _dimension(domain_size, prime)
    symbols, size = num_points(prime, dimension), num_points(prime, dimension - 1)
    if prime > 2 and symbols > min(MOST_SYMBOLS_PER_VALUE * domain_size, most_symbols):
        return math.inf
    return Design("", symbols, size).noise(inverse)


def _dimension(domain_size: int, prime: int) -> int:
    """The least t >= 2 with points enough for every value."""
    dimension = 2
    while num_points(prime, dimension) < domain_size:
        dimension += 1
    return dimension
