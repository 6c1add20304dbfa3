"""PrivUnit of a random projection: fewer numbers to send, one fast transform to read them all."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.bits import join_rows, split_rows
from beam_ldp.randomizers.identity import ReleaseIdentity
from beam_ldp.randomizers.mean.directions import MAX_COORDINATE_BITS, pack_signed, unpack_signed
from beam_ldp.randomizers.mean.priv_unit import PrivUnit
from beam_ldp.randomizers.mean.projections import HaarProjection, OwnProjection, SharedProjection
from beam_ldp.randomizers.mean.rounded_directions import RoundedDirectionMean
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.spherical_caps import log_gamma_half_step
from beam_ldp.randomizers.walsh_hadamard import padded_size, rotation_seed_of

ProjectionKind = Literal["shared", "own", "haar"]

_PROJECTIONS = {"shared": SharedProjection, "own": OwnProjection, "haar": HaarProjection}
_SEED_BITS = 32
_PLANNED_SIZES = tuple(1 << k for k in range(5, 13))
_OWN_WORDS = 2


@dataclass(frozen=True)
class ProjectedPrivUnit(RoundedDirectionMean):
    """PrivUnit in `projected` of `dimension` dimensions.

    Each user projects the vector on `projected` random directions, chosen by a fresh seed that
    travels in the report, and sends PrivUnit of the projection's direction. It protects the vector
    against everybody who sees the report. Its error exceeds PrivUnit's by a factor of about
    1 + (1 - k/d) t^2/(2k) with t^2 below 2 eps.

    `projection="shared"`: random signs, the same for everybody, and the Walsh-Hadamard transform
    spread a vector evenly; k rows of the result are the user's own. The collector sums by row and
    transforms back once. "own": the signs are drawn by the seed too. "haar": a uniformly random
    subspace. The length of the projection is taken as for a uniformly random subspace: "haar" is
    unbiased; "own" can be off by up to `bias_bound`, 0.36 radius (1 - k/d) / k in Euclidean length,
    for vectors of a few large coordinates; "shared" is unbiased on average over `sign_seed`, but
    for one choice of it a mean can be off by up to 1.6 radius (1 - k/d) / k (0.16 % of the radius
    at k = 1024). The bounds are to first order in 1/k.

    Reports are `(n, projected + 1)` int32, coordinates and seed; the statistic is int64 sums, by
    transformed row ("shared") or coordinate, and under them those of squares, by coordinate, of
    what each report is read as. Cost: O(d log d) to randomize and as much per report to read
    ("haar": O(d k^2)).

    Source: Asi, Feldman, Nelson, Nguyen and Talwar 2023; the constant of the projected length, the
    exact error and the bias are our own.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: bits per reported coordinate.
        projected: coordinates sent, k; at most the dimension, padded to a power of two unless
            for "haar".
        sign_seed: names the public signs ("shared" only). None: those of the release
            (`for_release`); outside of a release with a name, 0.
        projection: "shared", "own" or "haar".
        rounding: of coordinates, "nearest" or "random"; the latter is for few bits.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = ProjectedPrivUnit(dimension=1000, local_epsilon=4.0, projected=64)
    >>> mechanism.report_shape, mechanism.statistic_shape
    ((65,), (2, 1024))
    """

    projected: int = 256
    sign_seed: int | None = None
    projection: ProjectionKind = "shared"

    also_known_as: ClassVar[str] = "ProjUnit"
    decoding: ClassVar[str] = "O(n d log d), Walsh-Hadamard of every report"

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        size = max(2, padded_size(dimension))
        sizes = [k for k in _PLANNED_SIZES if k < size] or [size]
        bits = tuple(super().variants(dimension))
        return [{"projected": k, **choice} for k in sizes for choice in bits]

    def __post_init__(self) -> None:
        if self.projection not in _PROJECTIONS:
            raise ValueError(
                f'projection must be "shared", "own" or "haar", got {self.projection!r}'
            )
        size = self.projector.size
        if not 2 <= self.projected <= size:
            raise ValueError(f"projected must lie in [2, {size}], got {self.projected}")
        if not 0 <= (self.sign_seed or 0) < 1 << _SEED_BITS:
            raise ValueError(f"sign_seed must lie in [0, 2**32), got {self.sign_seed}")
        super().__post_init__()

    @cached_property
    def projector(self) -> SharedProjection:
        """The projections that seeds stand for."""
        kind = _PROJECTIONS[self.projection]
        return kind(self.dimension, self.projected, self.sign_seed or 0)

    def for_release(self, identity: ReleaseIdentity) -> ProjectedPrivUnit:
        if self.sign_seed is not None or self.projection != "shared":
            return self
        return replace(self, sign_seed=rotation_seed_of(identity) % (1 << _SEED_BITS))

    @cached_property
    def base(self) -> PrivUnit:
        """The mechanism of the projected direction."""
        return PrivUnit(
            self.projected, self.local_epsilon, inputs="sphere",
            coordinate_bits=self.coordinate_bits, rounding=self.rounding,
        )  # fmt: skip

    @cached_property
    def expansion(self) -> float:
        """1 / E|projection of a unit vector|, for a uniformly random subspace."""
        return math.exp(
            log_gamma_half_step(self.projector.size / 2) - log_gamma_half_step(self.projected / 2)
        )

    def log_ratio_max(self) -> float:
        return self.base.log_ratio_max()

    def dominating_pair(self) -> ShufflePair:
        """The base mechanism's: projections are independent of the vector and travel along."""
        return self.base.dominating_pair()

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return self.base.witness_pairs()

    @property
    def bias_bound(self) -> float:
        kept = self.projected / self.projector.size
        return self.projector.bias * self.radius * (1 - kept) / self.projected

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        isotropic, along = self.base._second_moment
        k, n = self.projected, self.projector.size
        scale = self.expansion**2
        total = scale * (k * isotropic + along)
        own = scale * (isotropic + along) * k / n
        across = (total - own) / (n - 1)
        return across, own - across

    @property
    def _largest_coordinate(self) -> float:
        return self.base._largest_coordinate

    @property
    def _rounding_variance(self) -> float:
        """Of the projected coordinates, spread over all."""
        kept = self.projected / self.projector.size
        return self.base._rounding_variance * self.expansion**2 * kept

    @property
    def _longest_read(self) -> float:
        return self.expansion * self.base._longest_read * self.radius

    @property
    def bits_per_report(self) -> int:
        return self._coordinate_bits + _SEED_BITS

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.int32)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (self.projected + 1,)

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (2, self.projector.statistic_size)

    @property
    def words_per_user(self) -> int:
        return self.base.words_per_user + _OWN_WORDS

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        seeds = (words[:, 1] >> np.uint64(_SEED_BITS)).astype(np.uint32)
        chosen = self.projector.project(vectors, rows, words[:, 0], self._flip_scale, seeds)
        drawn = np.empty((len(rows), self.projected), dtype=self.base.report_dtype)
        own = words[:, _OWN_WORDS:]
        enough = self.base._randomize_rows(chosen, np.arange(len(rows)), own, drawn)
        reports[rows, :-1] = drawn
        reports[rows, -1] = seeds.view(np.int32)
        return enough

    def _check_shape(self, reports: np.ndarray) -> None:
        if reports.ndim != 2 or reports.shape[1:] != self.report_shape or reports.dtype != np.int32:
            raise ValueError(f"reports must be int32 of shape (n, {self.projected + 1})")

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Coordinates that the base mechanism sends, and any seed."""
        return self.base.possible(np.ascontiguousarray(reports[:, :-1]))

    def pack(self, reports: np.ndarray) -> bytes:
        """Of each report the seed, then the coordinates."""
        self._check_shape(reports)
        seeds = np.frombuffer(pack_signed(reports[:, -1], _SEED_BITS), np.uint8)
        head, bits = seeds.reshape(len(reports), _SEED_BITS // 8), self._coordinate_bits
        rest = pack_signed(np.ascontiguousarray(reports[:, :-1]), self.coordinate_bits)
        both = np.concatenate([head, split_rows(rest, bits, len(reports))], axis=1)
        return join_rows(both, self.bits_per_report)

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        rows = split_rows(data, self.bits_per_report, num_reports)
        head, rest = np.split(rows, [_SEED_BITS // 8], axis=1)
        seeds = unpack_signed(head.tobytes(), _SEED_BITS, num_reports)
        stream = join_rows(rest, self._coordinate_bits)
        numbers = unpack_signed(stream, self.coordinate_bits, num_reports * self.projected)
        both = np.column_stack([numbers.reshape(num_reports, self.projected), seeds])
        return both.astype(np.int32)

    @property
    def _coordinate_bits(self) -> int:
        """Bits of all coordinates of a report."""
        return self.coordinate_bits * self.projected

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.statistic_shape, dtype=np.int64)
        seeds = np.ascontiguousarray(reports[:, -1]).view(np.uint32)
        square = self._read_step**2 / self._square_unit
        self.projector.add_up(reports[:, :-1] << self._finer_bits, seeds, total, square)
        return total

    @property
    def _read_step(self) -> float:
        """What a step of sums is read as."""
        return self.fixed_point.step / (1 << self._finer_bits) * self.expansion

    @property
    def _square_unit(self) -> float:
        """Of sums of squares: no square of a reading takes more than 31 bits."""
        return self._longest_read**2 / (1 << 31)

    def _sums_of_squares(self, statistic: np.ndarray) -> np.ndarray:
        return statistic[1, : self.dimension] * self._square_unit

    @property
    def _finer_bits(self) -> int:
        """By which sums are finer than coarse coordinates: "haar" rounds once more to add up."""
        return MAX_COORDINATE_BITS - self.coordinate_bits if self._at_random else 0

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        scale = self._read_step / num_users
        return self.projector.read(np.atleast_2d(statistic)[0]) * scale
