"""Random projections to few coordinates, each named by a seed that travels in the report.

A projection of a vector is W u with k orthonormal rows W. What the collector reads back of k
numbers z is W^T z, summed over users in integers:

* `SharedProjection`: rows of the Walsh-Hadamard transform after random signs that everybody
  shares. A report adds k numbers to the sum; one transform at the end reads them all.
* `OwnProjection`: the signs are every user's own too. One transform per report to read.
* `HaarProjection`: a uniformly random subspace (QR of normals with the signs fixed). No structure
  and no bias, at O(dimension k^2) per user on both sides.

How reports scatter is told by the squares of what each is read as by itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beam_ldp.randomizers.mean.codebooks import GOLDEN, fill_candidate, mix, named_direction
from beam_ldp.randomizers.mean.directions import signed_length
from beam_ldp.randomizers.normals import spare_words, uniform
from beam_ldp.randomizers.walsh_hadamard import walsh_hadamard_in_place
from beam_ldp.randomizers.words import kernel, multiply_high, subroutine

_OWN_SIGNS = np.uint64(0x5851F42D4C957F2D)  # tells the stream of signs from that of rows
_CHUNK = 1 << 18  # transformed numbers that stay in the cache


@dataclass(frozen=True)
class SharedProjection:
    """Rows of the transform after shared signs.

    Attributes:
        dimension: of the vectors.
        projected: k, rows kept.
        sign_seed: names the signs.
    """

    dimension: int
    projected: int
    sign_seed: int = 0

    # sqrt(E[h^2 (h^2 - 1)^2]) / 2 for a normal coordinate h of the transformed direction: rows
    # where the transform is large are chosen together with longer projections.
    bias = math.sqrt(10) / 2

    @property
    def size(self) -> int:
        """Coordinates that vectors are spread over: the next power of two."""
        return 1 << max(1, (int(self.dimension) - 1).bit_length())

    @property
    def statistic_size(self) -> int:
        return self.size

    @cached_property
    def _signs(self) -> np.ndarray:
        return public_signs(self.sign_seed, self.size)

    def _signs_of(self, seeds: np.ndarray) -> np.ndarray:
        return self._signs[None, :]

    def project(
        self,
        vectors: np.ndarray,
        rows: np.ndarray,
        coins: np.ndarray,
        flip: float,
        seeds: np.ndarray,
    ) -> np.ndarray:
        """W u sqrt(size) for the directions u of `vectors[rows]`, each flipped by its coin."""
        spread = np.empty((len(rows), self.size))
        _spread(vectors, rows, coins, flip, self._signs_of(seeds), spread)
        walsh_hadamard_in_place(spread)
        chosen = np.empty((len(rows), self.projected))
        _gather(seeds, spread, chosen)
        return chosen

    def add_up(
        self, coordinates: np.ndarray, seeds: np.ndarray, total: np.ndarray, square: float
    ) -> None:
        """Add reports `(n, k)`, integers, to `total` `(2, statistic_size)`, int64.

        To its second row, `(dimension,)` of it, the squares of what each report is read as, in the
        unit of the coordinates, times `square` and rounded.
        """
        for part in self._chunks(len(seeds)):
            sums, readings = self._read_each(coordinates[part], seeds[part])
            total[0] += sums
            squares = np.rint(square * readings**2).astype(np.int64)
            total[1, : self.dimension] += squares.sum(axis=0)

    def _chunks(self, count: int) -> list[slice]:
        step = max(1, _CHUNK // self.size)
        return [slice(start, start + step) for start in range(0, count, step)]

    def _read_each(self, coordinates: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, ...]:
        """What these reports add to the sum, and W^T z of each, `(n, dimension)`, but for signs."""
        back = np.zeros((len(seeds), self.size), dtype=np.int64)
        _scatter(coordinates, seeds, back)
        sums = back.sum(axis=0)
        walsh_hadamard_in_place(back)
        return sums, back[:, : self.dimension] / math.sqrt(self.size)

    def read(self, total: np.ndarray) -> np.ndarray:
        """The sum of W^T z, in the unit of the coordinates: float64 `(dimension,)`."""
        back = total.astype(np.float64)
        walsh_hadamard_in_place(back)
        back *= self._signs / math.sqrt(self.size)
        return back[: self.dimension]


@dataclass(frozen=True)
class OwnProjection(SharedProjection):
    """Rows of the transform after signs of the user's own."""

    # The largest |u^3 - (3/4) |u|_4^4 u| over unit vectors u: what is left where few coordinates
    # carry the vector.
    bias = math.sqrt(0.128)

    @property
    def statistic_size(self) -> int:
        return self.dimension

    def _signs_of(self, seeds: np.ndarray) -> np.ndarray:
        signs = np.empty((len(seeds), self.size))
        _fill_own_signs(seeds, signs)
        return signs

    def _read_each(self, coordinates: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, ...]:
        back = np.zeros((len(seeds), self.size), dtype=np.int64)
        _scatter(coordinates, seeds, back)
        walsh_hadamard_in_place(back)
        back *= self._signs_of(seeds).astype(np.int64)
        back = back[:, : self.dimension]
        return back.sum(axis=0), back / math.sqrt(self.size)

    def read(self, total: np.ndarray) -> np.ndarray:
        return total / math.sqrt(self.size)


@dataclass(frozen=True)
class HaarProjection(SharedProjection):
    """A uniformly random subspace of the user's own."""

    bias = 0.0

    @property
    def size(self) -> int:
        return self.dimension

    def bases(self, seeds: np.ndarray) -> np.ndarray:
        """Orthonormal columns that seeds stand for: float64 `(n, dimension, k)`."""
        normals = np.empty((len(seeds), self.projected, self.dimension))
        _fill_matrices(seeds, spare_words(self.dimension), normals)
        columns, triangle = np.linalg.qr(normals.transpose(0, 2, 1))
        diagonal = np.sign(np.einsum("njj->nj", triangle))
        return np.asarray(columns * np.where(diagonal == 0, 1.0, diagonal)[:, None, :])

    def _chunks(self, count: int) -> list[slice]:
        step = max(1, _CHUNK // (self.projected * self.dimension))
        return [slice(start, start + step) for start in range(0, count, step)]

    def project(
        self,
        vectors: np.ndarray,
        rows: np.ndarray,
        coins: np.ndarray,
        flip: float,
        seeds: np.ndarray,
    ) -> np.ndarray:
        directions = np.empty((len(rows), self.dimension))
        _spread(vectors, rows, coins, flip, np.ones((1, self.dimension)), directions)
        chosen = np.empty((len(rows), self.projected))
        for part in self._chunks(len(rows)):
            for basis, direction, out in zip(
                self.bases(seeds[part]), directions[part], chosen[part]
            ):
                out[:] = direction @ basis
        return chosen

    def _read_each(self, coordinates: np.ndarray, seeds: np.ndarray) -> tuple[np.ndarray, ...]:
        both = zip(self.bases(seeds), coordinates)
        readings = np.array([basis @ numbers for basis, numbers in both])
        return np.rint(readings).astype(np.int64).sum(axis=0), readings

    def read(self, total: np.ndarray) -> np.ndarray:
        return total.astype(np.float64)


def public_signs(seed: int, count: int) -> np.ndarray:
    """Signs that everybody knows, float64."""
    signs = np.empty(count)
    _fill_signs(np.uint64(seed), signs)
    return signs


@kernel
def _spread(vectors, rows, coins, flip_scale, signs, out):  # type: ignore[no-untyped-def]
    """Directions with their signs changed, zero-padded."""
    d = vectors.shape[1]
    axis = np.empty(d)
    for i in range(rows.size):
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(coins[i]))
        vector, length = named_direction(vector, length, axis)
        scale = sign / length
        own = signs[i % len(signs)]
        for j in range(d):
            out[i, j] = scale * own[j] * vector[j]
        out[i, d:] = 0.0


@subroutine
def write_signs(seed, signs):  # type: ignore[no-untyped-def]
    """Fill `signs` with the +-1 that a seed stands for."""
    state = mix(seed + GOLDEN)
    for j in range(signs.size):
        state += GOLDEN
        signs[j] = 1.0 if mix(state) >> np.uint64(63) else -1.0


@kernel
def _fill_signs(seed, signs):  # type: ignore[no-untyped-def]
    write_signs(seed, signs)


@kernel
def _fill_own_signs(seeds, signs):  # type: ignore[no-untyped-def]
    for i in range(seeds.size):
        write_signs(np.uint64(seeds[i]) ^ _OWN_SIGNS, signs[i])


@kernel
def _fill_matrices(seeds, num_words, out):  # type: ignore[no-untyped-def]
    words = np.empty(num_words, dtype=np.uint64)
    scratch = np.empty(out.shape[2] + 1, dtype=np.int64)
    for i in range(seeds.size):
        for k in range(out.shape[1]):
            fill_candidate(np.uint64(seeds[i]), k, words, out[i, k], scratch)


@subroutine
def choose_rows(seed, order, chosen):  # type: ignore[no-untyped-def]
    """Distinct rows that a seed stands for. `order` is 0, 1, ... before and after."""
    n, k = order.size, chosen.size
    state = mix(np.uint64(seed) + GOLDEN)
    swaps = np.empty(k, dtype=np.int64)
    for j in range(k):
        state += GOLDEN
        left = np.uint64(n - j)
        other = j + np.int64(multiply_high(mix(state), left))  # type: ignore[arg-type]
        order[j], order[other] = order[other], order[j]
        chosen[j] = order[j]
        swaps[j] = other
    for j in range(k - 1, -1, -1):
        order[j], order[swaps[j]] = order[swaps[j]], order[j]


@kernel
def _gather(seeds, spread, chosen):  # type: ignore[no-untyped-def]
    order = np.arange(spread.shape[1])
    rows = np.empty(chosen.shape[1], dtype=np.int64)
    for i in range(seeds.size):
        choose_rows(seeds[i], order, rows)
        for j in range(rows.size):
            chosen[i, j] = spread[i, rows[j]]


@kernel
def _scatter(coordinates, seeds, back):  # type: ignore[no-untyped-def]
    order = np.arange(back.shape[1])
    rows = np.empty(coordinates.shape[1], dtype=np.int64)
    for i in range(seeds.size):
        choose_rows(seeds[i], order, rows)
        for j in range(rows.size):
            back[i, rows[j]] = coordinates[i, j]
