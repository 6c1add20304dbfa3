"""Difference sets by name, as designs of reports: which there are, and what error each has."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beam_ldp.randomizers.finite_fields import (
    MAX_MODULUS,
    DifferenceSet,
    is_prime,
    next_prime,
    num_points,
    paley,
    primes_up_to,
    singer,
)

MOST_SYMBOLS_PER_VALUE = 32
DESIGN_FORMS = 'None, "single", "paley:P" or "singer:Q,T"'
_PALEY = re.compile(r"paley:([1-9][0-9]{0,9})")
_SINGER = re.compile(r"singer:([1-9][0-9]{0,9}),([1-9][0-9]?)")


@dataclass(frozen=True)
class Design:
    """A difference set by its name; its residues are made when they are asked for."""

    text: str
    modulus: int
    size: int

    @classmethod
    def single(cls, domain_size: int) -> Design:
        return cls("single", domain_size, 1)

    @classmethod
    def paley(cls, prime: int) -> Design:
        if prime % 4 != 3 or not is_prime(prime) or prime > MAX_MODULUS:
            raise ValueError(f"design must be of a prime that leaves 3 modulo 4, got paley:{prime}")
        return cls(f"paley:{prime}", prime, (prime - 1) // 2)

    @classmethod
    def singer(cls, prime: int, dimension: int) -> Design:
        text = f"singer:{prime},{dimension}"
        if dimension < 3 or not is_prime(prime) or num_points(prime, dimension) > MAX_MODULUS:
            raise ValueError(
                "design must be of a prime and at least 3 dimensions, with at most "
                f"{MAX_MODULUS} residues, got {text}"
            )
        return cls(text, num_points(prime, dimension), num_points(prime, dimension - 1))

    @classmethod
    def from_text(cls, text: str, domain_size: int) -> Design:
        if text == "single":
            return cls.single(domain_size)
        if found := _PALEY.fullmatch(text):
            return cls.paley(int(found[1]))
        if found := _SINGER.fullmatch(text):
            return cls.singer(int(found[1]), int(found[2]))
        raise ValueError(f"design must be {DESIGN_FORMS}, got {text!r}")

    @property
    def residues(self) -> DifferenceSet:
        if self.text == "single":
            return DifferenceSet(self.modulus, np.array([0]))
        numbers = [int(number) for number in self.text.partition(":")[2].split(",")]
        return paley(*numbers) if len(numbers) == 1 else singer(*numbers)

    def noise(self, inverse: float) -> float:
        """Variance of one report at frequency zero, times (1 - inverse)**2, inverse = 1/E."""
        v, s = self.modulus, self.size
        overlap = s * (s - 1) // (v - 1)
        weight = s + (v - s) * inverse
        q = (overlap + (s - overlap) * inverse) / weight
        return q * (1 - q) / ((s - overlap) / weight) ** 2


class OfDesign:
    """What an oracle says of itself whose values favour the residues of a difference set.

    Attributes:
        design: the set's name.
    """

    domain_size: int
    design: str | None

    @cached_property
    def _set(self) -> Design:
        assert self.design is not None
        return Design.from_text(self.design, self.domain_size)

    def _check_residues(self) -> None:
        if self._set.modulus < self.domain_size:
            raise ValueError(
                f"design must have at least {self.domain_size} residues, got {self._set.modulus}"
            )

    @property
    def difference_set(self) -> DifferenceSet:
        """What value 0 favours."""
        return self._set.residues

    @property
    def num_symbols(self) -> int:
        return self._set.modulus

    @property
    def num_favoured(self) -> int:
        return self._set.size


def designs(domain_size: int, local_epsilon: float) -> Iterator[tuple[float, Design]]:
    """Those that come into question, each with its noise; the simplest first."""
    inverse = math.exp(-min(local_epsilon, 700.0))
    found = [Design.single(domain_size)]
    prime = next_prime(max(domain_size, 3))
    while prime % 4 != 3:
        prime = next_prime(prime + 1)
    found.append(Design.paley(prime))
    largest = math.floor(min(4 * (math.exp(min(local_epsilon, 40.0)) + 1), 2 * domain_size))
    most = max(MOST_SYMBOLS_PER_VALUE * domain_size, 7)
    for q in primes_up_to(largest).tolist():
        dimension = 3
        while num_points(q, dimension) < domain_size:
            dimension += 1
        if num_points(q, dimension) <= min(most, MAX_MODULUS):
            found.append(Design.singer(q, dimension))
    for design in found:
        yield design.noise(inverse), design
