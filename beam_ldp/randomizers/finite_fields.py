"""Prime numbers, and what mechanisms make of them: difference sets, and pairwise hashing.

A cyclic difference set is a set of residues whose differences hit every residue equally often.

A (v, s, lambda) difference set holds s residues modulo v; every non-zero residue is a difference
of two of them exactly lambda = s (s - 1) / (v - 1) times. Its translates are v sets any two of
which share lambda elements, which makes them the favoured sets of an optimal frequency oracle and
lets all supports be counted by one fast Fourier transform.
"""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
from numpy import fft
from numpy.typing import NDArray

from beam_ldp.randomizers.words import kernel

# Prime numbers below 2**64 ----------------------------------------------------------------


_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)


def is_prime(number: int) -> bool:
    """Whether `number` < 2**64 is prime (Miller and Rabin with witnesses that decide this range).

    >>> [n for n in range(20) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    if number < 2:
        return False
    for prime in _WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    return all(_passes(witness, odd, twos, number) for witness in _WITNESSES)


def _passes(witness: int, odd: int, twos: int, number: int) -> bool:
    power = pow(witness, odd, number)
    if power in (1, number - 1):
        return True
    for _ in range(twos - 1):
        power = power * power % number
        if power == number - 1:
            return True
    return False


def next_prime(number: int) -> int:
    """The least prime >= `number`."""
    candidate = max(2, number)
    while not is_prime(candidate):
        candidate += 1
    return candidate


MAX_MODULUS = 1 << 27


@dataclass(frozen=True, eq=False)
class DifferenceSet:
    """A cyclic difference set, verified when it is made.

    Attributes:
        modulus: v, the number of residues.
        elements: its elements in increasing order, int64 `(size,)`, read-only.

    Raises:
        ValueError: if `elements` is not a difference set modulo `modulus`.

    >>> plane = DifferenceSet(7, np.array([1, 2, 4]))
    >>> plane.size, plane.overlap
    (3, 1)
    """

    modulus: int
    elements: NDArray[np.int64] = field(repr=False)

    def __post_init__(self) -> None:
        elements = np.unique(np.asarray(self.elements, dtype=np.int64))
        elements.setflags(write=False)
        object.__setattr__(self, "elements", elements)
        if not len(elements) or elements[0] < 0 or elements[-1] >= self.modulus:
            raise ValueError(f"elements must be residues modulo {self.modulus}")
        if not is_difference_set(self.modulus, elements):
            raise ValueError(f"elements must form a difference set modulo {self.modulus}")

    @property
    def size(self) -> int:
        """s, the number of elements."""
        return len(self.elements)

    @property
    def overlap(self) -> int:
        """lambda, the number of elements that two translates share."""
        return self.size * (self.size - 1) // (self.modulus - 1)

    @functools.cached_property
    def _spectrum(self) -> NDArray[np.complex128]:
        return np.conj(fft.rfft(_indicator(self.modulus, self.elements)))

    def translate_counts(self, histogram: NDArray[np.int64]) -> NDArray[np.int64]:
        """How much of a histogram lies on each translate: int64 `(modulus,)`, O(v log v).

        Entry x is the sum of `histogram` over (x + d) mod v, d in the set. The rounding back to
        integers is right for histograms of up to 10**12 reports; it is checked to be.
        """
        mean = int(histogram.sum()) // self.modulus
        sums = self.translate_sums(np.asarray(histogram - mean, dtype=np.float64))
        return np.rint(sums).astype(np.int64) + mean * self.size

    def translate_sums(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """The same for weights `(..., modulus)` that are no counts, with the errors of rounding."""
        return fft.irfft(fft.rfft(weights) * self._spectrum, self.modulus)


def is_difference_set(modulus: int, elements: NDArray[np.int64]) -> bool:
    """Whether all non-zero differences are equally frequent, by autocorrelation. O(v log v)."""
    size = len(elements)
    if size * (size - 1) % (modulus - 1):
        return False
    spectrum = fft.rfft(_indicator(modulus, elements))
    counts = fft.irfft(np.abs(spectrum) ** 2, modulus)
    expected = np.full(modulus, size * (size - 1) // (modulus - 1), dtype=np.float64)
    expected[0] = size
    return bool(np.abs(counts - expected).max() < 0.25)


def _indicator(modulus: int, elements: NDArray[np.int64]) -> NDArray[np.float64]:
    indicator = np.zeros(modulus)
    indicator[elements] = 1.0
    return indicator


@functools.lru_cache(maxsize=16)
def paley(prime: int) -> DifferenceSet:
    """The non-zero squares modulo a prime that leaves 3 modulo 4.

    >>> paley(7).elements.tolist()
    [1, 2, 4]
    """
    if prime % 4 != 3 or not is_prime(prime) or prime > MAX_MODULUS:
        raise ValueError(
            f"prime must be a prime of at most {MAX_MODULUS} that leaves 3 modulo 4, got {prime}"
        )
    return DifferenceSet(prime, np.arange(1, (prime + 1) // 2, dtype=np.int64) ** 2 % prime)


@functools.lru_cache(maxsize=16)
def singer(prime: int, dimension: int) -> DifferenceSet:
    """A hyperplane of the projective geometry PG(dimension - 1, prime), as residues.

    The points of the geometry are the powers of one field element modulo its subfield of `prime`
    elements; those on the hyperplane "coefficient 0 is zero" have the listed exponents. Two
    dimensions give single points. The set depends on the arguments alone, on every machine.

    Args:
        prime: q.
        dimension: t >= 2; the modulus is (q**t - 1) / (q - 1).

    >>> singer(2, 3).size, singer(149, 3).modulus, singer(149, 3).size
    (3, 22351, 150)
    """
    if dimension < 2 or not is_prime(prime):
        raise ValueError(f"singer needs a prime and a dimension >= 2, got {prime} and {dimension}")
    modulus = num_points(prime, dimension)
    if modulus > MAX_MODULUS:
        raise ValueError(f"singer({prime}, {dimension}) has more than {MAX_MODULUS} residues")
    if dimension == 2:
        return DifferenceSet(modulus, np.array([0]))
    sequence = _recurrence(_generator(prime, dimension), prime, modulus)
    return DifferenceSet(modulus, np.flatnonzero(sequence == 0))


def num_points(prime: int, dimension: int) -> int:
    """Points of PG(dimension - 1, prime): 1 + q + ... + q**(dimension - 1)."""
    return (prime**dimension - 1) // (prime - 1)


def _generator(prime: int, dimension: int) -> tuple[int, ...]:
    """Coefficients c of a polynomial x**t - sum c_j x**j modulo which x makes all points.

    That x has order v = (q**t - 1)/(q - 1) modulo constants is enough: were the polynomial
    reducible, its quotient ring would have fewer than v units modulo constants.
    """
    modulus = num_points(prime, dimension)
    exponents = [modulus // factor for factor in prime_factors(modulus)]
    attempt = 0
    while True:
        coefficients = _coefficients(prime, dimension, attempt)
        if (
            coefficients[0]
            and _is_constant(_power_of_x(modulus, coefficients, prime))
            and not any(_is_constant(_power_of_x(e, coefficients, prime)) for e in exponents)
        ):
            return coefficients
        attempt += 1


def _coefficients(prime: int, dimension: int, attempt: int) -> tuple[int, ...]:
    """Numbers that look random, but are the same everywhere and always."""
    label = f"{prime} {dimension} {attempt}".encode()
    digest = hashlib.shake_256(label).digest(8 * dimension)
    return tuple(
        int.from_bytes(digest[8 * j : 8 * j + 8], "little") % prime for j in range(dimension)
    )


def _is_constant(polynomial: list[int]) -> bool:
    return not any(polynomial[1:])


def _power_of_x(exponent: int, coefficients: tuple[int, ...], prime: int) -> list[int]:
    """x**exponent modulo the polynomial, by squaring."""
    degree = len(coefficients)
    result = [1] + [0] * (degree - 1)
    for bit in bin(exponent)[2:]:
        product = [0] * (2 * degree)
        for i, a in enumerate(result):
            for j, b in enumerate(result):
                product[i + j] += a * b
        if bit == "1":
            product = [0, *product[:-1]]
        for i in range(2 * degree - 1, degree - 1, -1):
            top = product[i] % prime
            for j, c in enumerate(coefficients):
                product[i - degree + j] += top * c
        result = [c % prime for c in product[:degree]]
    return result


def _recurrence(coefficients: tuple[int, ...], prime: int, length: int) -> NDArray[np.int64]:
    """Coefficient 0 of 1, x, x**2, ...: a linear recurrence, grown by doubling."""
    degree = len(coefficients)
    terms = np.zeros(degree, dtype=np.int64)
    terms[0] = 1
    while len(terms) < length:
        shift = _power_of_x(len(terms), coefficients, prime)
        count = len(terms) - degree + 1
        ahead = np.zeros(count, dtype=np.int64)
        for j, c in enumerate(shift):
            ahead += c * terms[j : j + count]
        terms = np.concatenate([terms, ahead % prime])
    return terms[:length]


def primes_up_to(limit: int) -> NDArray[np.int64]:
    """All primes up to a limit, in order; O(limit) memory.

    >>> primes_up_to(20).tolist()
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    sieve = np.ones(max(limit + 1, 2), dtype=bool)
    sieve[:2] = False
    for p in range(2, math.isqrt(max(limit, 0)) + 1):
        if sieve[p]:
            sieve[p * p :: p] = False
    return np.flatnonzero(sieve)


def prime_factors(number: int) -> list[int]:
    """The different primes that divide a number, by trial division.

    >>> prime_factors(22351)
    [7, 31, 103]
    """
    factors, divisor = [], 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            factors.append(divisor)
            while number % divisor == 0:
                number //= divisor
        divisor += 1
    return factors + [number] * (number > 1)


# Pairwise independent hashing over a prime field, and the counting of what reports support.
#
# A public seed (a, b), uniform over pairs of residues, sends the value x to a x + b modulo the
# prime P. For two values the two images are independent and uniform, exactly. A report supports the
# values whose image lies in one interval of residues; shifting b moves that interval to [0, width).


MAX_PRIME = 1 << 31  # products of two residues stay below 2**62
_CHUNK = 1 << 20
# Measured cost in nanoseconds: of a listed value; of a sorted report; of a residue or value that
# is swept for a slope.
_LISTED, _SORTED, _SWEPT = 1.2, 30.0, 0.7


@functools.lru_cache(maxsize=4)
def inverses(prime: int) -> np.ndarray:
    """Inverse of every residue (0 for 0): int64, (prime,). O(prime) time and memory."""
    table = np.zeros(prime, dtype=np.int64)
    _invert(prime, table)
    return table


def support_counts(
    slopes: np.ndarray, shifts: np.ndarray, widths: np.ndarray, prime: int, num_values: int
) -> np.ndarray:
    """Reports with (slope * x + shift) mod prime < width, for every x < num_values.

    Either lists the values that each report supports (time proportional to the widths), or sorts
    the reports by slope and counts those of one slope together (time per slope O(prime)),
    whichever is faster. Memory O(prime) plus that of a chunk of reports.

    Args:
        slopes, shifts, widths: int64, (n,); residues, and interval widths below `prime`.
        prime: the field.
        num_values: at most `prime`.

    Returns:
        int64, (num_values,).
    """
    counts = np.zeros(num_values, dtype=np.int64)
    for start in range(0, len(slopes), _CHUNK):
        chunk = slice(start, start + _CHUNK)
        slope, shift, width = slopes[chunk], shifts[chunk], widths[chunk]
        num_reports = len(slope)
        listing = _LISTED * float(width.sum()) + float(prime)
        sweeping = _SORTED * num_reports + _SWEPT * min(prime, num_reports) * (prime + num_values)
        if listing <= sweeping:
            _count_listed(slope, shift, width, prime, inverses(prime), counts)
        else:
            _count_by_slope(slope, shift, width, prime, counts)
    return counts


def triple_overlap(prime: int, width: int) -> float:
    """Chance that the images of 0, 1 and 2 all lie in [0, width), for prime >= 3.

    The images are v, v + d, v + 2d with v, d uniform: the intersection of three cyclic intervals
    of one length, summed over the d at which the first two meet.
    """
    near = np.arange(min(width, prime), dtype=np.int64)
    step = np.unique(np.concatenate([near, (prime - near) % prime]))

    def pieces(shift: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        """[-shift, width - shift) modulo the prime, as two intervals of [0, prime)."""
        return [
            (np.zeros_like(shift), np.maximum(width - shift, 0)),
            (prime - shift, np.minimum(prime, prime - shift + width)),
        ]

    total = 0
    for low, high in pieces(step):
        for other_low, other_high in pieces(2 * step % prime):
            top = np.minimum(np.minimum(high, other_high), width)
            total += int(np.maximum(top - np.maximum(low, other_low), 0).sum())
    return total / prime**2


@kernel
def _invert(prime, table):  # type: ignore[no-untyped-def]
    table[1] = 1
    for i in range(2, prime):
        table[i] = (prime - prime // i) * table[prime % i] % prime


@kernel
def _count_listed(slopes, shifts, widths, prime, inverse, counts):  # type: ignore[no-untyped-def]
    everything = 0
    for i in range(slopes.size):
        if slopes[i] == 0:
            everything += shifts[i] < widths[i]
            continue
        step = inverse[slopes[i]]
        value = (prime - shifts[i]) * step % prime
        for _ in range(widths[i]):
            if value < counts.size:
                counts[value] += 1
            value += step
            if value >= prime:
                value -= prime
    counts += everything


@kernel
def _count_by_slope(slopes, shifts, widths, prime, counts):  # type: ignore[no-untyped-def]
    first = np.zeros(prime + 1, dtype=np.int64)
    for i in range(slopes.size):
        first[slopes[i] + 1] += 1
    for slope in range(prime):
        first[slope + 1] += first[slope]
    order = np.empty(slopes.size, dtype=np.int64)
    place = first[:prime].copy()
    for i in range(slopes.size):
        order[place[slopes[i]]] = i
        place[slopes[i]] += 1
    supported = np.empty(prime + 1, dtype=np.int64)
    for slope in range(prime):
        if first[slope] == first[slope + 1]:
            continue
        supported[:] = 0
        for position in range(first[slope], first[slope + 1]):
            i = order[position]
            start = prime - shifts[i] if shifts[i] else 0
            stop = start + widths[i]
            supported[start] += 1
            if stop > prime:
                supported[0] += 1
                stop -= prime
            supported[stop] -= 1
        for residue in range(1, prime):
            supported[residue] += supported[residue - 1]
        image = 0
        for value in range(counts.size):
            counts[value] += supported[image]
            image += slope
            if image >= prime:
                image -= prime
