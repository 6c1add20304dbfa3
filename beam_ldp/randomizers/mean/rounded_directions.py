"""Noisy directions in few bits a coordinate: a grid as fine as the noise warrants.

A coordinate of a report scatters by 1/sqrt(d) of the report's length, but could be as long as the
whole: a grid over the whole length needs many bits to be finer than the noise. Rounded at random
instead, up or down so that the mean is kept, a coordinate may be rounded as coarsely as a fraction
of its noise, and the grid need reach no farther than coordinates do.
"""

from __future__ import annotations

import contextlib
import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.directions import (
    MAX_COORDINATE_BITS,
    MIN_COORDINATE_BITS,
    DirectionMean,
)
from beam_ldp.randomizers.special import brentq
from beam_ldp.randomizers.words import subroutine

Rounding = Literal["nearest", "random"]

RARELY = 1e-18  # of a report that is cut, or that is taken for forged
_COARSEST = 1.0  # step of a random grid, in standard deviations: one coin's is 1/6 to 1e-8
_HALF_WORD = 2.0**-32
_PLANNED_BITS = (5, 6, 8)


@dataclass(frozen=True)
class RoundedDirectionMean(DirectionMean):
    """A direction mechanism whose coordinates are rounded to nearest, or at random.

    "nearest" is the grid of `DirectionMean`. With "random", coins of up to a step, less their mean,
    are added to a coordinate before it is rounded: the report is unbiased however coarse the grid
    is. Coins look at the private report alone (post-processing: no privacy cost). With c coins a
    coordinate has (1 + c)/12 squared steps of variance more, which every declared error holds.

    One coin sends a coordinate to either of the two points beside it. Its share is a sixth, to
    1e-8, over a normal law of a standard deviation of at least one step: it is f(1 - f) squared
    steps at the fraction f. (For a vector along an axis, and in few dimensions, the law of that one
    coordinate has an edge, and its share may be a quarter at most.) With two coins the share is a
    quarter, whatever is rounded: for reports whose noise may be finer than the grid.

    Attributes:
        rounding: "nearest" or "random".
    """

    rounding: Rounding = field(default="nearest", kw_only=True)

    random_coins: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if self.rounding not in ("nearest", "random"):
            raise ValueError(f'rounding must be "nearest" or "random", got {self.rounding!r}')
        super().__post_init__()

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        """With fewer bits for each coordinate, too: rounded at random, they bias nothing."""
        few = ({"coordinate_bits": bits, "rounding": "random"} for bits in _PLANNED_BITS)
        return ({}, {"coordinate_bits": 16}, *few)

    def to_config(self) -> dict[str, Any]:
        """To nearest, as before there was a choice: digests stay what they were."""
        config = super().to_config()
        if self.rounding == "nearest":
            del config["rounding"]
        return config

    @property
    def _at_random(self) -> bool:
        return self.rounding == "random"

    @property
    def _coins(self) -> int:
        """Of each coordinate."""
        return self.random_coins if self._at_random else 0

    @property
    def _coin_words(self) -> int:
        """Half a word is a coin."""
        return (self._coins * self.dimension + 1) // 2

    def _check_grid(self) -> None:
        if not self._at_random:
            super()._check_grid()
            return
        if self._unit_step > _COARSEST * math.sqrt(self._second_moment[0]):
            raise ValueError(
                f"coordinate_bits={self.coordinate_bits} is too few for local_epsilon="
                f"{self.local_epsilon:g}: a step would be coarser than the noise"
            )

    @property
    def _rounding_variance(self) -> float:
        return (1 + self._coins) * self._unit_step**2 / 12

    @property
    def extra_error(self) -> float:
        """What rounding adds to the squared error, relative to that of the report before it.

        Of reports whose noise depends on what people hold: where it is least.
        """
        return self._rounding_variance / self._second_moment[0]

    @property
    def unrounded(self) -> RoundedDirectionMean:
        """The same mechanism in 32 bits a coordinate: what people are asked, however it travels."""
        return replace(self, rounding="nearest", coordinate_bits=MAX_COORDINATE_BITS)

    @property
    def words_per_user(self) -> int:
        return super().words_per_user + self._coin_words


@dataclass(frozen=True)
class TailedDirectionMean(RoundedDirectionMean):
    """One whose coordinates have a law with known tails: how far a random grid has to reach.

    It reaches as far as a coordinate of a report does but once in 1e18 reports, which is then cut:
    some ten standard deviations, instead of the whole length.
    """

    # What a subclass knows -------------------------------------------------------------------

    @property
    @abstractmethod
    def _longest_coordinate(self) -> float:
        """Bound of the coordinates of Z for a unit vector."""

    @abstractmethod
    def _log_tail(self, coordinate: float) -> float:
        """Log of twice the chance that a coordinate of the reference law of Z exceeds this."""

    @property
    @abstractmethod
    def _log_density(self) -> float:
        """Log of the largest ratio of the law of Z to that reference law."""

    # The grid --------------------------------------------------------------------------------

    @cached_property
    def _largest_coordinate(self) -> float:
        """By the largest density of a report and the union of its coordinates.

        Beyond it is room for the coins: half a step for each but the first.
        """
        if not self._at_random:
            return self._longest_coordinate
        largest = (1 << (self.coordinate_bits - 1)) - 1
        room = largest / (largest - (self._coins - 1) / 2)
        return self._seldom_beyond(math.log(RARELY / self.dimension)) * room

    @property
    def _length(self) -> float:
        """Of a report as long as the longest coordinate, before it is rounded, in steps."""
        largest = float(self.fixed_point.largest)
        return largest * (self._longest_coordinate / self._largest_coordinate)

    @property
    def _longest_read(self) -> float:
        if not self._at_random:
            return super()._longest_read
        return self._off_by_rounding(self._length)[1] * self.fixed_point.step

    def _seldom_beyond(self, log_chance: float) -> float:
        """What a component of Z in a fixed direction exceeds with at most this chance."""
        whole = self._longest_coordinate
        allowed = log_chance - self._log_density

        def excess(coordinate: float) -> float:
            return self._log_tail(coordinate) - allowed

        sigma = math.sqrt(self._second_moment[0])
        nearly = whole * (1 - 1e-9)
        if nearly <= sigma or excess(nearly) >= 0:
            return whole
        return brentq(excess, min(sigma, nearly / 2), nearly, xtol=1e-9 * sigma)

    def component_limit(self, chance: float) -> float:
        """Half of the chance is that of the report, by its largest density; half its rounding's.

        At random, errors of coordinates lie in intervals of a step for each coin, independently and
        with mean zero: Hoeffding's inequality. To nearest: half a step for each coordinate. (The
        cut at the end of a random grid, once in 1e18 reports, is not counted.)
        """
        check_fraction("chance", chance)
        exact = self._seldom_beyond(math.log(chance / 2))
        if self._at_random:
            rounded = self._coins * math.sqrt(math.log(4 / chance) / 2)
        else:
            rounded = math.sqrt(self.dimension) / 2
        return self.radius * exact + self.fixed_point.step * rounded

    def _off_by_rounding(self, length: float) -> tuple[float, float]:
        """Shortest and longest that a report of this length is once rounded, in steps of the grid.

        To nearest: half a step for each coordinate. At random, but once in 1e18: with errors e_j of
        mean zero in intervals of length c, none beyond b = (1 + c)/2, for c coins, |y|^2 = |x|^2 +
        2 x.e + |e|^2; Hoeffding's inequality for x.e, and for |e|^2 with means of at most a quarter
        and squares of at most b^2.
        """
        if not self._at_random:
            slack = self._off_by(length)
            return length - slack, length + slack
        d, c, tail = self.dimension, self._coins, math.log(4 / RARELY)
        b = (1 + c) / 2
        across = 2 * length * c * math.sqrt(tail / 2)
        most = min(d * b**2, d / 4 + b**2 * math.sqrt(d * tail / 2))
        low = math.sqrt(max(0.0, length**2 - across))
        high = math.sqrt(length**2 + across + most)
        root = b * math.sqrt(d)
        low, high = max(low, length - root), min(high, length + root)
        return low - 1e-9 * length, high + 1e-9 * length


def compact_mean(
    kind: type[MeanRandomizer],
    dimension: int,
    *,
    extra: float = 0.01,
    least: int = 8,
    **parameters: Any,
) -> MeanRandomizer:
    """The mechanism of this kind in the fewest bits that cost at most so much squared error.

    A kind whose coordinates are not rounded at random is made as it is.

    Args:
        kind: such as `PrivUnit`, `PrivUnitGaussian`.
        dimension: of the vectors.
        extra: > 0, relative to the error without rounding; 1 % by default.
        least: bits of a coordinate, at least; whole bytes are packed many times as fast.
        **parameters: of the mechanism, without bits and rounding.

    Raises:
        ValueError: if a parameter is out of range.

    >>> from beam_ldp.randomizers.mean import PrivUnit
    >>> short = compact_mean(PrivUnit, 13_706, local_epsilon=8.0)
    >>> short.coordinate_bits, round(short.extra_error, 4)
    (8, 0.0011)
    """
    if not issubclass(kind, RoundedDirectionMean):
        return kind(dimension, **parameters)
    check_positive("extra", extra)
    check_integer("least", least, MIN_COORDINATE_BITS, MAX_COORDINATE_BITS)
    finest = kind(dimension, **parameters, rounding="random", coordinate_bits=32)
    for bits in range(least, MAX_COORDINATE_BITS):
        with contextlib.suppress(ValueError):  # coarser than the noise
            found = replace(finest, coordinate_bits=bits)
            if found.extra_error <= extra:
                return found
    return finest


def two_coins(words: np.ndarray) -> np.ndarray:
    """Of each word the sum of its two coins less its mean, in (-1, 1): float64 of its shape."""
    low, high = words & np.uint64(0xFFFFFFFF), words >> np.uint64(32)
    return np.asarray((low + high + np.uint64(1)) * _HALF_WORD - 1.0)


@subroutine
def write_rounded(a, vector, b, normals, at_random, words, at, largest, out):  # type: ignore[no-untyped-def]
    """A vector + b normals, at most `largest` in size, into `out`: rounded to nearest, or at random
    by the coins of the words from `at` on."""
    for j in range(out.size):
        x = min(max(a * vector[j] + b * normals[j], -largest), largest)
        out[j] = np.floor(x + coin_of(words, at, j)) if at_random else np.rint(x)


@subroutine
def coin_of(words, at, j):  # type: ignore[no-untyped-def]
    """The j-th coin of words from `at` on, in (0, 1): half a word each."""
    word = words[at + (j >> 1)]
    half = (word >> np.uint64(32)) if j & 1 else (word & np.uint64(0xFFFFFFFF))
    return (half + 0.5) * _HALF_WORD
