"""A regular simplex, turned at random, of whose corners one of the closest is named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.mean.base import MOST_NUMBERS, check_numbers
from beam_ldp.randomizers.mean.codebooks import (
    PLANNED_SEEDS,
    RandomCodebookMean,
    fill_candidate,
    named_direction,
    pick,
    top_sum,
)
from beam_ldp.randomizers.mean.directions import (
    add_coordinate,
    inner_product,
    signed_length,
    square_sum,
)
from beam_ldp.randomizers.normals import spare_words, uniform
from beam_ldp.randomizers.words import kernel, subroutine

_PLANNED_BITS = 5  # of the index: twice as many corners take four times the work to read
_NODES = 4001
_TAIL = 9.0  # standard deviations


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

    @property
    def _nodes(self) -> SimplexNodes:  # type: ignore[override]
        return _simplex_nodes(self.dimension)

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        _name(
            vectors, rows, words, self._flip_scale, np.uint64(self.seed_bits),
            np.uint64(self.index_bits), np.uint64(self._law.threshold),
            np.uint64(self.favoured), np.uint64(self._law.share), self._law.reuses_high_half,
            spare_words(self.dimension), reports,
        )  # fmt: skip
        return np.ones(len(rows), dtype=bool)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.statistic_shape, dtype=np.int64)
        _add_corners(
            reports, np.uint64(self.index_bits), spare_words(self.dimension),
            float(self.fixed_point.largest), self.fixed_point.square_shift, total,
        )  # fmt: skip
        return total


def _bits_within(dimension: int) -> int:
    """As many as plans have the time for: d M^2 numbers are multiplied for a report."""
    return ((MOST_NUMBERS // dimension).bit_length() - 1) // 2


class SimplexNodes:
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
        self._x = np.linspace(-_TAIL, _TAIL, _NODES)
        self._weight = (
            np.exp(-(self._x**2) / 2) / math.sqrt(2 * math.pi) * (self._x[1] - self._x[0])
        )
        self._tail = special.ndtr(-self._x)
        self._sums: dict[tuple[int, int, int], float] = {}

    def top_sum(self, count: int, candidates: int, power: int = 1) -> float:
        """E of the sum over the `count` highest corners of height^power, of power 1 or 2."""
        asked = (count, candidates, power)
        if asked not in self._sums:
            among = top_sum(self._x**power, self._weight, self._tail, count, candidates)
            stretch = candidates / (candidates - 1)
            if power == 1:
                found = math.sqrt(stretch) * among / self.length
            else:  # the mean of all is independent of what each differs from it by
                found = stretch * (among - count / candidates) / self.dimension
            self._sums[asked] = found
        return self._sums[asked]


@lru_cache(maxsize=8)
def _simplex_nodes(dimension: int) -> SimplexNodes:
    return SimplexNodes(dimension)


@subroutine
def fill_axes(seed, words, scratch, axes):  # type: ignore[no-untyped-def]
    """The first axes of a uniform rotation: normals, each made orthogonal to those before it."""
    for k in range(axes.shape[0]):
        fill_candidate(seed, k, words, axes[k], scratch)
        for before in range(k):
            share = inner_product(axes[before], axes[k])
            for j in range(axes.shape[1]):
                axes[k, j] -= share * axes[before, j]
        scale = 1.0 / math.sqrt(square_sum(axes[k], 1.0))
        for j in range(axes.shape[1]):
            axes[k, j] *= scale


@kernel
def _name(  # type: ignore[no-untyped-def]  # fmt: skip
    vectors,
    rows,
    words,
    flip_scale,
    seed_bits,
    index_bits,
    threshold,
    favoured,
    share,
    reuses_high_half,
    num_words,
    reports,
):
    d = vectors.shape[1]
    own = np.empty(num_words, dtype=np.uint64)
    axis = np.empty(d)
    scratch = np.empty(d + 1, dtype=np.int64)
    heights = np.empty(1 << np.int64(index_bits))
    axes = np.empty((heights.size, d))
    for i in range(rows.size):
        row = words[i]
        seed = row[0] >> (np.uint64(64) - seed_bits)
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(row[2]))
        vector, length = named_direction(vector, length, axis)
        fill_axes(seed, own, scratch, axes)
        for k in range(heights.size):
            heights[k] = inner_product(axes[k], vector)  # corners are in the order of the axes
        index = pick(sign, heights, row[1], threshold, favoured, share, reuses_high_half)
        reports[rows[i]] = (seed << index_bits) | index


@kernel
def _add_corners(  # type: ignore[no-untyped-def]
    reports, index_bits, num_words, scale, shift, total
):
    d = total.shape[1]
    words = np.empty(num_words, dtype=np.uint64)
    scratch = np.empty(d + 1, dtype=np.int64)
    corners = 1 << np.int64(index_bits)
    axes = np.empty((corners, d))
    mask = (np.uint64(1) << index_bits) - np.uint64(1)
    factor = scale * math.sqrt(corners / (corners - 1.0))
    for i in range(reports.size):
        fill_axes(reports[i] >> index_bits, words, scratch, axes)
        named = np.int64(reports[i] & mask)
        for j in range(d):
            mean = 0.0
            for k in range(corners):
                mean += axes[k, j]
            corner = axes[named, j] - mean / corners
            add_coordinate(np.int64(np.rint(factor * corner)), j, shift, total)
