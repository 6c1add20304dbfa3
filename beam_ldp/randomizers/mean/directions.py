"""What mechanisms share that send a noisy direction with real coordinates.

For a unit vector u they send Z with E[Z] = u and E[Z Z^T] = A I + B u u^T. A vector w inside the
ball of radius R stands for u = w/|w| with probability (1 + |w|/R)/2 and for -u otherwise, drawn on
the device before anything else: that keeps the mean, and costs no privacy and no report.
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, Sampling, check_sampling
from beam_ldp.randomizers.bits import pack_uints, unpack_uints
from beam_ldp.randomizers.checks import check_positive
from beam_ldp.randomizers.mean.base import NORM_TOLERANCE, MeanRandomizer, Norm
from beam_ldp.randomizers.normals import run_rows, spare_words
from beam_ldp.randomizers.words import kernel, subroutine

# Real coordinates as integers, so that reports have a length and sums have no order -------


_MAX_REPORT_BITS = 62
_SQUARE_BITS = 31


@dataclass(frozen=True)
class FixedPoint:
    """Real coordinates of at most `limit` as signed integers of `bits` bits.

    Rounding is to nearest and deterministic, a function of the randomized report alone: it costs
    no privacy, and it makes sums exact int64 that do not depend on order. One coordinate is off
    by at most half a `step`, an error that does not average out over users.

    >>> grid = FixedPoint(limit=2.0, bits=16)
    >>> float(abs(grid.decode(grid.encode(np.array([1.234]))) - 1.234)[0]) <= grid.step / 2
    True
    """

    limit: float
    bits: int = 32

    def __post_init__(self) -> None:
        check_positive("limit", self.limit)
        if not 2 <= self.bits <= _MAX_REPORT_BITS:
            raise ValueError(f"bits must lie in [2, {_MAX_REPORT_BITS}], got {self.bits}")

    @property
    def largest(self) -> int:
        return (1 << (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        """The unit of the integers, in the unit of the coordinates."""
        return self.limit / self.largest

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.min_scalar_type(-self.largest - 1)

    @property
    def square_shift(self) -> int:
        """Low bits that squares lose before they are added up: as many users fit as into sums."""
        return max(0, 2 * (self.bits - 1) - _SQUARE_BITS)

    def encode(self, coordinates: np.ndarray) -> np.ndarray:
        scaled = np.rint(coordinates / self.step)
        return np.clip(scaled, -self.largest, self.largest).astype(self.dtype)

    def decode(self, integers: np.ndarray) -> np.ndarray:
        return integers * self.step

    def decode_squares(self, squares: np.ndarray) -> np.ndarray:
        """Sums of squares in the squared unit of the coordinates."""
        return squares * (self.step**2 * (1 << self.square_shift))


Inputs = Literal["ball", "sphere"]

MIN_COORDINATE_BITS, MAX_COORDINATE_BITS = 4, 32
_SAFE_SQUARES = (1e-280, 1e280)
_SAFE_LENGTHS = (1e-140, 1e140)
_LARGEST = sys.float_info.max
_LENGTH_ROUNDING = 1e-9  # relative; of sums of squares, and of differences of them


@dataclass(frozen=True)
class DirectionMean(MeanRandomizer):
    """A mechanism for vectors of the Euclidean ball that reports real coordinates.

    Coordinates travel as fixed point: signed integers, `(n, dimension)`, rounded to nearest after
    the randomizer (post-processing: no privacy cost). The statistic, `(2, dimension)`, holds their
    int64 sums and those of their squares, so it does not depend on batches or order. The rounding
    error does not average out over users. It is below 1e-60 of a standard deviation where
    coordinates scatter as normals do, because a step may not exceed half of one; a vector along an
    axis has one coordinate whose law has an edge, and that one is off by 0.2 % of the radius with 8
    bits (784 dimensions, local epsilon 8), by 3e-8 with 16 and by 1e-17 with 32.

    The squares say how far reports really scatter: for most data far less than for the worst, which
    is one coordinate that holds everybody's length. Both rows are functions of the multiset of
    reports, which is what the price of a shuffled release covers, so they cost nothing more. Where
    the sums arrive alone, `(dimension,)`, as those of a secure sum or of an earlier version do,
    the error bars are those of the worst data.

    Attributes:
        inputs: "ball" takes vectors up to length `radius` and estimates their mean; "sphere"
            scales every vector to length `radius` (the mean of directions is estimated; a zero
            vector counts as zero) and has the smaller error.
        coordinate_bits: bits per coordinate of a report.
    """

    inputs: Inputs = "ball"
    coordinate_bits: int = 32

    norm: ClassVar[Norm] = "l2"
    decoding: ClassVar[str] = "O(d), but O(n d) numbers to add up"
    exactness: ClassVar[str] = "real-arithmetic"

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        """With fewer bits for each coordinate, too."""
        return ({}, {"coordinate_bits": 16})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension < 2:
            raise ValueError(f"dimension must be >= 2 (else ScalarMean), got {self.dimension}")
        if self.inputs not in ("ball", "sphere"):
            raise ValueError(f'inputs must be "ball" or "sphere", got {self.inputs!r}')
        if not MIN_COORDINATE_BITS <= self.coordinate_bits <= MAX_COORDINATE_BITS:
            raise ValueError(
                f"coordinate_bits must lie in [{MIN_COORDINATE_BITS}, {MAX_COORDINATE_BITS}], "
                f"got {self.coordinate_bits}"
            )
        self._check_grid()

    def _check_grid(self) -> None:
        """Refuse a grid that is too coarse for the noise."""
        if self._unit_step > math.sqrt(self._second_moment[0]) / 2:
            raise ValueError(
                f"coordinate_bits={self.coordinate_bits} is too few for dimension "
                f"{self.dimension}: rounding would bias the mean"
            )

    # What a subclass knows -------------------------------------------------------------------

    @property
    @abstractmethod
    def _second_moment(self) -> tuple[float, float]:
        """A and B of E[Z Z^T] = A I + B u u^T for a unit vector u."""

    @property
    @abstractmethod
    def _largest_coordinate(self) -> float:
        """Bound of the coordinates of Z for a unit vector."""

    @abstractmethod
    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        """Fill `reports[rows]`; whether each row of `words` was enough."""

    # What one user sends ---------------------------------------------------------------------

    @cached_property
    def fixed_point(self) -> FixedPoint:
        """The grid of reported coordinates, in the unit of the data."""
        return FixedPoint(self._largest_coordinate * self.radius, self.coordinate_bits)

    @property
    def _unit_step(self) -> float:
        return self.fixed_point.step / self.radius

    @property
    def _rounding_variance(self) -> float:
        """What rounding adds to the variance of a coordinate, in the unit of the radius."""
        return self._unit_step**2 / 12

    @property
    def bits_per_report(self) -> int:
        return self.coordinate_bits * self.dimension

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return self.fixed_point.dtype

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @property
    def words_per_user(self) -> int:
        return spare_words(self.dimension)

    @property
    def _flip_scale(self) -> float:
        """A vector of length r is flipped with probability (1 - min(1, r * scale)) / 2."""
        return 1 / self.radius if self.inputs == "ball" else math.inf

    def _check_values(self, values: np.ndarray) -> np.ndarray:
        vectors = self._as_floats(values)
        check_lengths(vectors, self.radius, self.clipping == "raise", self.inputs)
        return vectors

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        run_rows(
            lambda rows, row_words: self._randomize_rows(values, rows, row_words, reports),
            words,
            extra,
        )

    def pack(self, reports: np.ndarray) -> bytes:
        self._check_shape(reports)
        return pack_signed(reports, self.coordinate_bits)

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        reports = unpack_signed(data, self.coordinate_bits, num_reports * self.dimension)
        return reports.reshape(num_reports, self.dimension).astype(self.report_dtype)

    def _check_shape(self, reports: np.ndarray) -> None:
        if reports.ndim != 2 or reports.shape[1] != self.dimension or reports.dtype.kind != "i":
            raise ValueError(f"reports must be signed integers of shape (n, {self.dimension})")

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Vectors of a length that the mechanism sends, without a coordinate beyond the grid."""
        lengths, slack = self._lengths_sent
        return np.asarray(_have_lengths(reports, lengths, slack, float(self.fixed_point.largest)))

    @property
    def _possible_reports(self) -> str:
        return "be vectors of a length that the mechanism sends"

    @property
    def _lengths_sent(self) -> tuple[np.ndarray, np.ndarray]:
        """Lengths of reports in steps of the grid, increasing, and how far off they can be.

        float64 `(lengths,)` each: what is off by no more than the rounding of coordinates, or in
        the range that a mechanism gives, is taken for sent.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what lengths it sends")

    def _off_by(self, length: float, times: float = 1.0) -> float:
        """How much longer or shorter a report is than its length in real numbers.

        Half a step for each coordinate, as many `times` as it is rounded, and what floating point
        loses.
        """
        return 0.5 * math.sqrt(self.dimension) * times + _LENGTH_ROUNDING * length

    # Reading back ----------------------------------------------------------------------------

    @property
    def _longest_read(self) -> float:
        """All reports have one length, but where a mechanism says otherwise."""
        return self._largest_coordinate * self.radius

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (2, self.dimension)

    @property
    def _readable_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.statistic_shape, self.statistic_shape[-1:])

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.statistic_shape, dtype=np.int64)
        _add_rows(reports, self.fixed_point.square_shift, total)
        return total

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        return self.fixed_point.decode(np.atleast_2d(statistic)[0]) / num_users

    def _measured_variance(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray | None:
        """The sample variance of decoded reports, never below the least that any data give.

        It counts how the directions of people differ, too: for "fixed" it is an upper bound.
        """
        if statistic.ndim == 1:
            return None
        mean = self._mean(statistic, num_users)
        squares = self._sums_of_squares(statistic)
        found = (squares - num_users * mean**2) / (num_users - 1)
        return np.maximum(found, self._least_variance)

    def _sums_of_squares(self, statistic: np.ndarray) -> np.ndarray:
        """Of what reports are read as, `(dimension,)`, in the squared unit of the data."""
        return self.fixed_point.decode_squares(statistic[1])

    @property
    def _least_variance(self) -> float:
        """The least variance of a decoded coordinate, whatever the data: for "ball" and "sphere".

        A + B x^2/l^2 - x^2 for a coordinate x of a vector of length l, linear in x^2.
        """
        isotropic, along = self._second_moment
        return self.radius**2 * (isotropic + min(0.0, along - 1))

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        isotropic, along = self._second_moment
        isotropic += self._rounding_variance
        if vectors is None:
            worst = along if self.inputs == "ball" else max(0.0, along - 1)
            return np.full(self.dimension, self.radius**2 * (isotropic + worst))
        square = np.mean(unit_vectors(vectors) ** 2, axis=0)
        second = self.radius**2 * (isotropic + along * square)
        return second - np.mean(vectors**2, axis=0)

    def mean_squared_error(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> float:
        """Expected squared Euclidean error; without `truth` that of the worst vectors."""
        if truth is not None:
            return super().mean_squared_error(num_users, truth, sampling)
        isotropic, along = self._second_moment
        total = self.dimension * (isotropic + self._rounding_variance) + along
        check_sampling(sampling)
        # Inputs of any spread add up to at most the squared radius, which "ball" already counts.
        if self.inputs == "sphere" and sampling == "fixed":
            total -= 1
        return self.radius**2 * total / num_users

    def _as_truth(self, truth: np.ndarray) -> np.ndarray:
        vectors = self._check_values(np.atleast_2d(np.asarray(truth, dtype=np.float64)))
        length = lengths(vectors)
        target = np.minimum(length, self.radius)
        if self.inputs == "sphere":
            target = np.where(length > 0, self.radius, 0.0)
        return vectors * (target / np.where(length > 0, length, 1.0))[:, None]


def check_lengths(vectors: np.ndarray, radius: float, strict: bool, inputs: Inputs) -> None:
    """Refuse vectors `(n, d)` that are not finite or, if `strict`, do not have a proper length."""
    length = lengths(vectors)
    if not np.isfinite(length).all():
        raise ValueError("values must be finite numbers")
    if strict and (length > radius * (1 + NORM_TOLERANCE)).any():
        raise ValueError(f"values must lie in the l2 ball of radius {radius:g}")
    if strict and inputs == "sphere" and (length < radius * (1 - NORM_TOLERANCE)).any():
        raise ValueError(f"values must have length {radius:g}")


def unit_vectors(vectors: np.ndarray) -> np.ndarray:
    """The directions of the vectors `(n, d)`; the first axis for zero vectors."""
    length = lengths(vectors)
    unit = vectors / np.where(length > 0, length, 1.0)[:, None]
    unit[length == 0, 0] = 1.0
    return unit


@subroutine
def length_of(vector):  # type: ignore[no-untyped-def]
    """Euclidean length without overflow; NaN unless all entries are finite."""
    total = square_sum(vector, 1.0)
    if _SAFE_SQUARES[0] < total < _SAFE_SQUARES[1]:
        return math.sqrt(total)
    largest = 0.0
    for x in vector:
        if not math.isfinite(x):
            return math.nan
        largest = max(largest, abs(x))
    if largest == 0.0:
        return 0.0
    return min(largest * math.sqrt(square_sum(vector, largest)), _LARGEST)


@subroutine
def square_sum(vector, unit):  # type: ignore[no-untyped-def]
    """Sum of the squares of vector / unit, in four interleaved sums (four times as fast)."""
    a = b = c = d = 0.0
    n = vector.size
    for j in range(0, n - 3, 4):
        a += (vector[j] / unit) ** 2
        b += (vector[j + 1] / unit) ** 2
        c += (vector[j + 2] / unit) ** 2
        d += (vector[j + 3] / unit) ** 2
    for j in range(n - n % 4, n):
        a += (vector[j] / unit) ** 2
    return (a + b) + (c + d)


@subroutine
def inner_product(x, y):  # type: ignore[no-untyped-def]
    """Sum of products, in four interleaved sums."""
    a = b = c = d = 0.0
    n = x.size
    for j in range(0, n - 3, 4):
        a += x[j] * y[j]
        b += x[j + 1] * y[j + 1]
        c += x[j + 2] * y[j + 2]
        d += x[j + 3] * y[j + 3]
    for j in range(n - n % 4, n):
        a += x[j] * y[j]
    return (a + b) + (c + d)


@subroutine
def signed_length(vector, flip_scale, coin):  # type: ignore[no-untyped-def]
    """(length, +-1): the sign that makes a direction stand for a vector of this length."""
    length = length_of(vector)
    kept = 0.5 if length == 0.0 else 0.5 + 0.5 * min(1.0, length * flip_scale)
    return length, (1.0 if coin < kept else -1.0)


@subroutine
def tame(vector, length, scratch):  # type: ignore[no-untyped-def]
    """(vector, length), or (its direction in `scratch`, 1) where a product could overflow."""
    if length == 0.0 or _SAFE_LENGTHS[0] < length < _SAFE_LENGTHS[1]:
        return vector, length
    largest = 0.0
    for x in vector:
        largest = max(largest, abs(x))
    norm = math.sqrt(square_sum(vector, largest))
    for j in range(vector.size):
        scratch[j] = vector[j] / largest / norm
    return scratch, 1.0


@kernel
def lengths(vectors):  # type: ignore[no-untyped-def]
    """Euclidean length of each row; NaN where an entry is not finite."""
    out = np.empty(len(vectors))
    for i in range(len(vectors)):
        out[i] = length_of(vectors[i])
    return out


@subroutine
def add_coordinate(x, j, shift, total):  # type: ignore[no-untyped-def]
    """Add coordinate j of a report, and its square less the low bits, to `total` (2, d)."""
    total[0, j] += x
    total[1, j] += (x * x + ((1 << shift) >> 1)) >> shift


@kernel
def _add_rows(reports, shift, total):  # type: ignore[no-untyped-def]
    for i in range(reports.shape[0]):
        for j in range(reports.shape[1]):
            add_coordinate(np.int64(reports[i, j]), j, shift, total)


@kernel
def _have_lengths(reports, lengths, slack, largest):  # type: ignore[no-untyped-def]
    """Rows whose length is one of `lengths`, give or take, and whose coordinates fit the grid."""
    found = np.zeros(len(reports), dtype=np.bool_)
    for i in range(len(reports)):
        total, longest = 0.0, 0.0
        for j in range(reports.shape[1]):
            x = abs(float(reports[i, j]))
            total += x * x
            longest = max(longest, x)
        length = math.sqrt(total)
        for k in range(lengths.size):
            found[i] |= abs(length - lengths[k]) <= slack[k]
        found[i] &= longest <= largest
    return found


def pack_signed(values: np.ndarray, bits: int) -> bytes:
    """Signed integers as a bit stream of `bits` bits each (offset binary)."""
    flat = np.asarray(values).reshape(-1).astype(np.int64) + (1 << (bits - 1))
    if bits in (8, 16, 32):
        return flat.astype(f">u{bits // 8}").tobytes()
    return pack_uints(flat, bits)


def unpack_signed(data: bytes, bits: int, count: int) -> np.ndarray:
    """Inverse of `pack_signed`: int64 array of `count` values.

    Raises:
        ValueError: if `data` is not exactly as long as `count` values need.
    """
    if bits in (8, 16, 32) and len(data) == bits // 8 * count:
        flat = np.frombuffer(data, dtype=f">u{bits // 8}").astype(np.int64)
    else:
        flat = unpack_uints(data, bits, count).astype(np.int64)
    return flat - (1 << (bits - 1))
