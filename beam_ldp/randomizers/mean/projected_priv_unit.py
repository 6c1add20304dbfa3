"""PrivUnit of a random projection: fewer numbers to send, one fast transform to read them all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from beam_ldp.randomizers.jit import kernel, multiply_high, subroutine
from beam_ldp.randomizers.mean.codebooks import mix, named_direction
from beam_ldp.randomizers.mean.directions import (
    DirectionMean,
    pack_signed,
    signed_length,
    unpack_signed,
)
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.normals import spare_words, uniform
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.spherical_caps import log_gamma_half_step
from beam_ldp.randomizers.walsh_hadamard import walsh_hadamard_in_place

_SEED_BITS = 32
_OWN_WORDS = 2
# sqrt(E[h^2 (h^2 - 1)^2]) / 2 for a normal coordinate h of the transformed direction.
_BIAS = math.sqrt(10) / 2
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class ProjectedPrivUnit(DirectionMean):
    """PrivUnit in `projected` of `dimension` dimensions.

    Public random signs, the same for everybody, and the Walsh-Hadamard transform spread a vector
    evenly; each user keeps `projected` random rows of the result, chosen by a fresh seed that
    travels in the report, and sends PrivUnit of their direction. The collector sums by row and
    transforms back once. It protects the vector against everybody who sees the report. Its error
    exceeds PrivUnit's by a factor of about 1 + (1 - k/d) t^2/(2k) with t^2 below 2 eps.

    The length of the projection is taken as for a uniformly random subspace, and the signs are
    the same for everybody: the estimate is unbiased on average over `sign_seed`, but for one
    choice of it a mean can be off by up to `bias_bound`, 1.6 radius (1 - k/d) / k in Euclidean
    length (0.16 % of the radius at k = 1024; rows where the transform is large are chosen
    together with longer projections).

    Reports are `(n, projected + 1)` int32, coordinates and seed; the statistic is the int64 sum by
    transformed row. Cost: O(d log d) to randomize, O(projected) per report and one transform to
    read.

    Source: Asi, Feldman, Nelson, Nguyen and Talwar 2023; the constant of the projected length, the
    exact error and the bias are our own.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: bits per reported coordinate.
        projected: coordinates sent, k; at most the dimension padded to a power of two.
        sign_seed: names the public signs.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = ProjectedPrivUnit(dimension=1000, local_epsilon=4.0, projected=64)
    >>> mechanism.report_shape, mechanism.statistic_shape
    ((65,), (1024,))
    """

    projected: int = 256
    sign_seed: int = 0

    def __post_init__(self) -> None:
        if not 2 <= self.projected <= self.padded:
            raise ValueError(f"projected must lie in [2, {self.padded}], got {self.projected}")
        if not 0 <= self.sign_seed < 1 << _SEED_BITS:
            raise ValueError(f"sign_seed must lie in [0, 2**32), got {self.sign_seed}")
        super().__post_init__()

    @property
    def padded(self) -> int:
        """The dimension padded to a power of two."""
        return 1 << max(1, (int(self.dimension) - 1).bit_length())

    @cached_property
    def base(self) -> PrivUnit:
        """The mechanism of the projected direction."""
        bits = self.coordinate_bits
        return PrivUnit(self.projected, self.local_epsilon, inputs="sphere", coordinate_bits=bits)

    @cached_property
    def expansion(self) -> float:
        """1 / E|projection of a unit vector|, for a uniformly random subspace."""
        return math.exp(
            log_gamma_half_step(self.padded / 2) - log_gamma_half_step(self.projected / 2)
        )

    @cached_property
    def _signs(self) -> np.ndarray:
        return public_signs(self.sign_seed, self.padded)

    def log_ratio_max(self) -> float:
        return self.base.log_ratio_max()

    def dominating_pair(self) -> ShufflePair:
        """The base mechanism's: rows are drawn independently of the vector and travel along."""
        return self.base.dominating_pair()

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return self.base.witness_pairs()

    @property
    def bias_bound(self) -> float:
        return _BIAS * self.radius * (1 - self.projected / self.padded) / self.projected

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        isotropic, along = self.base._second_moment
        k, n = self.projected, self.padded
        scale = self.expansion**2
        total = scale * (k * isotropic + along)
        own = scale * (isotropic + along) * k / n
        across = (total - own) / (n - 1)
        return across, own - across

    @property
    def _largest_coordinate(self) -> float:
        return 1 / self.base.marginal

    @property
    def bits_per_report(self) -> int:
        return self.coordinate_bits * self.projected + _SEED_BITS

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (self.projected + 1,)

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.padded,)

    @property
    def words_per_user(self) -> int:
        return spare_words(self.projected) + _OWN_WORDS

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        spread = np.empty((len(rows), self.padded))
        _spread(vectors, rows, words, self._flip_scale, self._signs, spread)
        walsh_hadamard_in_place(spread)
        seeds = (words[:, 1] >> np.uint64(_SEED_BITS)).astype(np.uint32)
        chosen = np.empty((len(rows), self.projected))
        _gather(seeds, spread, chosen)
        drawn = np.empty((len(rows), self.projected), dtype=self.base.report_dtype)
        own = words[:, _OWN_WORDS:]
        enough = self.base._randomize_rows(chosen, np.arange(len(rows)), own, drawn)
        reports[rows, :-1] = drawn
        reports[rows, -1] = seeds.view(np.int32)
        return enough

    def _check_shape(self, reports: np.ndarray) -> None:
        if reports.ndim != 2 or reports.shape[1:] != self.report_shape or reports.dtype != np.int32:
            raise ValueError(f"reports must be int32 of shape (n, {self.projected + 1})")

    def _check_reports(self, reports: np.ndarray) -> np.ndarray:
        self._check_shape(reports)
        self.base._check_reports(np.ascontiguousarray(reports[:, :-1]))
        return reports

    def pack(self, reports: np.ndarray) -> bytes:
        self._check_shape(reports)
        if self.coordinate_bits == _SEED_BITS:
            return pack_signed(reports, _SEED_BITS)
        coordinates = np.ascontiguousarray(reports[:, :-1])
        return pack_signed(reports[:, -1], _SEED_BITS) + pack_signed(
            coordinates, self.coordinate_bits
        )

    def unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        if self.coordinate_bits == _SEED_BITS:
            flat = unpack_signed(data, _SEED_BITS, num_reports * (self.projected + 1))
            return self._check_reports(flat.reshape(num_reports, -1).astype(np.int32))
        head = _SEED_BITS // 8 * num_reports
        seeds = unpack_signed(data[:head], _SEED_BITS, num_reports)
        rest = unpack_signed(data[head:], self.coordinate_bits, num_reports * self.projected)
        both = np.column_stack([rest.reshape(num_reports, self.projected), seeds])
        return self._check_reports(both.astype(np.int32))

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.padded, dtype=np.int64)
        _scatter(reports, total)
        return total

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        back = statistic.astype(np.float64)
        walsh_hadamard_in_place(back)
        back *= self._signs * (self.fixed_point.step * self.expansion / math.sqrt(self.padded))
        return back[: self.dimension] / num_users


def public_signs(seed: int, count: int) -> np.ndarray:
    """Signs that everybody knows, float64."""
    signs = np.empty(count)
    _fill_signs(np.uint64(seed), signs)
    return signs


@kernel
def _spread(vectors, rows, words, flip_scale, signs, out):  # type: ignore[no-untyped-def]
    """Directions with their signs changed, zero-padded."""
    d = vectors.shape[1]
    axis = np.empty(d)
    for i in range(rows.size):
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(words[i, 0]))
        vector, length = named_direction(vector, length, axis)
        scale = sign / length
        for j in range(d):
            out[i, j] = scale * signs[j] * vector[j]
        out[i, d:] = 0.0


@kernel
def _fill_signs(seed, signs):  # type: ignore[no-untyped-def]
    state = mix(seed + _GOLDEN)
    for j in range(signs.size):
        state += _GOLDEN
        signs[j] = 1.0 if mix(state) >> np.uint64(63) else -1.0


@subroutine
def choose_rows(seed, order, chosen):  # type: ignore[no-untyped-def]
    """Distinct rows that a seed stands for. `order` is 0, 1, ... before and after."""
    n, k = order.size, chosen.size
    state = mix(np.uint64(seed) + _GOLDEN)
    swaps = np.empty(k, dtype=np.int64)
    for j in range(k):
        state += _GOLDEN
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
def _scatter(reports, total):  # type: ignore[no-untyped-def]
    order = np.arange(total.size)
    k = reports.shape[1] - 1
    rows = np.empty(k, dtype=np.int64)
    for i in range(len(reports)):
        choose_rows(np.uint32(reports[i, k]), order, rows)
        for j in range(k):
            total[rows[j]] += reports[i, j]
