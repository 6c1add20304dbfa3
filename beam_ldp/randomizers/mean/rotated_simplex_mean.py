"""A regular simplex, turned at random, of whose corners one of the closest is named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.mean.base import MOST_NUMBERS, check_numbers
from beam_ldp.randomizers.mean.codebooks import PLANNED_SEEDS, HeightNodes, RandomCodebookMean

_PLANNED_BITS = 5  # of the index: twice as many corners take four times the work to read
_NODES = 4001
_TAIL = 9.0  # standard deviations


class SimplexNodes(HeightNodes):
    """Heights of the corners of a turned simplex over a direction.

    The rotation's first M axes have heights `g / |g|` of d normals g, of which M are shown; a
    corner is its axis less the mean of all, longer by sqrt(M / (M - 1)). Order statistics of
    normals, and the length of g, which is independent of the direction, say the rest.
    """

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.length = math.sqrt(2.0) * math.exp(
            math.lgamma((dimension + 1) / 2) - math.lgamma(dimension / 2)
        )  # E |g|
        self.x = np.linspace(-_TAIL, _TAIL, _NODES)
        self.weight = np.exp(-(self.x**2) / 2) / math.sqrt(2 * math.pi) * (self.x[1] - self.x[0])
        self.tail = special.ndtr(-self.x)
        self._sums = {}

    def _top_sum(self, count: int, candidates: int, power: int) -> float:
        """Of power 1 or 2."""
        among, stretch = super()._top_sum(count, candidates, power), candidates / (candidates - 1)
        if power == 1:
            return math.sqrt(stretch) * among / self.length
        # The mean of all is independent of what each differs from it by.
        return stretch * (among - count / candidates) / self.dimension


@dataclass(frozen=True)
class RotatedSimplexMean(RandomCodebookMean):
    """k-closest on a simplex: of a turned simplex, one of the k closest corners is named.

    Corners as far apart from each other as so many points can be tell more than independent
    directions: 7 index bits err as little as 8 of `RandomCodebookMean`. Privacy is the same, and
    holds for every list: each of the k corners closest to the own direction is e**local_epsilon
    times as likely as each other one, exactly. It protects the vector against everybody who sees
    the report. A seed stands for the rotation: with M = 2**index_bits corners, at most as many as
    dimensions, it takes O(M^2 d) time to randomize a vector, and as much to read a report.

    Source: Isik, Chen, Ozgur, Weissman and No 2023, Algorithm 1 (randomly rotating simplex coding);
    the rotation is uniform: normals, made orthonormal.

    Args:
        dimension: at least 2**index_bits.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: of the fixed point in which the collector sums.
        index_bits: logarithm of the number of corners.
        seed_bits: bits of the seed.
        closest: k; by default the best.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = RotatedSimplexMean(dimension=40, local_epsilon=2.0)
    >>> mechanism.bits_per_report, mechanism.randomize(np.eye(40)).dtype
    (53, dtype('uint64'))
    """

    index_bits: int = 5

    simplex: ClassVar[bool] = True
    nodes: ClassVar[type[HeightNodes]] = SimplexNodes
    also_known_as: ClassVar[str] = "RRSC"
    decoding: ClassVar[str] = "O(d), but O(n d) random numbers to draw again and turn"

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        check_numbers(dimension << 2)
        most = min(_PLANNED_BITS, dimension.bit_length() - 1, _bits_within(dimension))
        return [{"index_bits": most, "seed_bits": seed} for seed in PLANNED_SEEDS if most]

    def __post_init__(self) -> None:
        if self.dimension < self.num_candidates:
            raise ValueError(
                f"dimension must be >= {self.num_candidates}, the number of corners that "
                f"index_bits={self.index_bits} stands for, got {self.dimension}"
            )
        super().__post_init__()

    @property
    def numbers_per_report(self) -> float:
        return float(self.dimension) * self.num_candidates**2


def _bits_within(dimension: int) -> int:
    """As many as plans have the time for: d M^2 numbers are multiplied for a report."""
    return ((MOST_NUMBERS // dimension).bit_length() - 1) // 2
