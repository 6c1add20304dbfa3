"""What shuffled shares show, and what they cost, a second time: enumerated, and by the proof.

Of the standard library alone. Nothing of the product is read but its numbers: a witness of
`beam_ldp.accounting.shares`, whose proof is followed here in another order and by other formulas.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

Column = tuple[int, ...]  # how many shares there are of each number
View = tuple[Column, ...]  # of every column
Law = dict[View, float]

# What is shown ----------------------------------------------------------------------------------


def noisy(number: int, deviation: float, modulus: int) -> list[float]:
    """How likely a person's number is each residue, once discrete Gaussian noise is added."""
    reach = math.ceil(14 * deviation)
    weights = {z: math.exp(-z * z / (2 * deviation**2)) for z in range(-reach, reach + 1)}
    total, found = math.fsum(weights.values()), [0.0] * modulus
    for z, weight in weights.items():
        found[(number + z) % modulus] += weight / total
    return found


def shares_of(law: list[float], shares: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Every envelope of a person: uniform but for the sum, which has that law."""
    modulus = len(law)
    for envelope in itertools.product(range(modulus), repeat=shares):
        yield envelope, law[sum(envelope) % modulus] / modulus ** (shares - 1)


def mixed(law: Law, envelope: tuple[int, ...], chance: float, into: Law) -> None:
    """One envelope more in every column."""
    for view, before in law.items():
        after = tuple(
            (*column[:share], column[share] + 1, *column[share + 1 :])
            for column, share in zip(view, envelope)
        )
        into[after] += before * chance


def shown(people: list[list[float]], shares: int) -> Law:
    """What the shufflers show of people whose noisy numbers have these laws."""
    law: Law = {((0,) * len(people[0]),) * shares: 1.0}
    for numbers in people:
        following: Law = defaultdict(float)
        for envelope, chance in shares_of(numbers, shares):
            if chance:
                mixed(law, envelope, chance, following)
        law = following
    return law


def stick(first: Law, second: Law, epsilon: float) -> float:
    """The least delta at epsilon, of the one against the other."""
    odds = math.exp(epsilon)
    return math.fsum(max(0.0, p - odds * second.get(view, 0.0)) for view, p in first.items())


# What that costs --------------------------------------------------------------------------------


class Price(NamedTuple):
    """A Gaussian mechanism of sensitivity `mu`, but for a factor and a chance.

    Attributes:
        mu: how far one person moves the sum, in deviations.
        apart: logarithm of the factor.
        chance: that it does not hold.
    """

    mu: float
    apart: float
    chance: float

    def delta(self, epsilon: float) -> float:
        """The hockey stick of a Gaussian at an epsilon less by twice `apart`, times the factor."""
        within = epsilon - 2 * self.apart
        upper, lower = self.mu / 2 - within / self.mu, -self.mu / 2 - within / self.mu
        gaussian = _normal(upper) - math.exp(within) * _normal(lower)
        return min(1.0, math.exp(self.apart) * gaussian + self.chance)


def price(
    longest: int, deviation: float, modulus: int, shares: int, people: int, coordinates: int
) -> Price:
    """Of one release of so many honest people, whose noise is drawn from the ideal law.

    Args:
        longest: square of the length of a person's vector of integers.
        deviation: of a person's noise.
        modulus: of the numbers.
        shares: of each.
        people: who are honest, and whose envelopes arrived.
        coordinates: of the vectors.
    """
    rounded = 3.0  # of the variance, which rounding a Gaussian to integers takes
    mu = 2 * math.sqrt(longest) / math.sqrt(people * deviation**2 - rounded)
    steps = (deviation**2 * k / (k + 1) for k in range(1, people))
    noise = math.fsum(map(unevenness, steps)) + unevenness(rounded)
    views = math.sqrt((1 + likely_parts(modulus, people, shares - 1)) ** coordinates - 1)
    return Price(mu, coordinates * noise - math.log(1 - 2 * math.sqrt(views)), views)


def unevenness(variance: float) -> float:
    """log of the largest over the smallest sum of a Gaussian's density over a shifted grid.

    The largest is at whole numbers, the smallest half way between.
    """
    reach = math.ceil(12 * math.sqrt(variance)) + 2
    places = range(-reach, reach + 1)
    on, between = (
        math.fsum(math.exp(-((y - c) ** 2) / (2 * variance)) for y in places) for c in (0.0, 0.5)
    )
    return math.log(on / between)


def likely_parts(modulus: int, people: int, permutations: int) -> float:
    """E modulus^(C-1) - 1 at most: C parts into which so many permutations leave people apart.

    Of the part of the first person, j others are left out, who are apart among themselves.
    """
    found = [0.0, 0.0]
    for size in range(2, people + 1):
        chances, ways = [], size  # log of comb(size - 1, j) / comb(size, j)^permutations
        for j in range(1, size):
            left_out = math.log1p(-j / size) - (permutations - 1) * math.log(ways)
            chances.append(modulus * math.exp(left_out) * (1 + found[j]))
            ways = ways * (size - j) // (j + 1)
        found.append(math.fsum(chances))
    return found[people]


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2
