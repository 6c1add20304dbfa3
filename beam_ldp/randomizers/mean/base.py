"""What all mean mechanisms share: values of a ball, clipped; estimates with their errors.

A mean mechanism takes vectors of a norm ball, `(n, dimension)` floats, and reads the reports back
as the mean vector in the unit of the data. Clipping happens here, on the device, before anything
is randomized: the privacy proofs need it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Literal, cast

import numpy as np

from beam_ldp.randomizers import registry, special
from beam_ldp.randomizers.base import LocalRandomizer, Sampling, check_sampling
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.estimate import Estimate
from beam_ldp.randomizers.special import brentq

Norm = Literal["l1", "l2", "linf", "binary"]
Clipping = Literal["clip", "raise"]

ErrorBars = Literal["measured", "worst case"]

MEASURED: ErrorBars = "measured"
WORST_CASE: ErrorBars = "worst case"
LEAST_MEASURED = 30  # reports; Student's t allows for the error of a measured error

NORM_TOLERANCE = 1e-9  # relative; what the rounding of a normalized vector may exceed
SMALLEST, LARGEST = 1e-100, 1e100  # lengths whose squares, summed, neither vanish nor overflow
_SAFE_SQUARE = 1e-280


def check_radius(radius: float) -> None:
    """A ValueError unless the radius is a usable length."""
    if not SMALLEST <= radius <= LARGEST:
        raise ValueError(f"radius must lie in [{SMALLEST:g}, {LARGEST:g}], got {radius!r}")


def clip_to_ball(vectors: np.ndarray, norm: Norm, radius: float, clipping: Clipping) -> np.ndarray:
    """The vectors `(n, d)` inside the ball: as they are, clipped, or refused.

    Raises:
        ValueError: on NaN or infinite entries; under "raise", if a vector lies outside by more
            than rounding; for "binary" always, if an entry is neither 0 nor 1.
    """
    if norm == "binary":
        if not ((vectors == 0) | (vectors == 1)).all():
            raise ValueError("values must be 0 or 1")
        return vectors
    # NaN fails the comparison, and so does every vector whose squares overflow.
    outside = ~(_quick_norm(vectors, norm) <= radius)
    if not outside.any():
        return vectors
    result = vectors.copy()
    result[outside] = _clip_rows(vectors[outside], norm, radius, clipping)
    return result


def _quick_norm(vectors: np.ndarray, norm: Norm) -> np.ndarray:
    """Norm of every row in one pass; too large or NaN, never too small, where it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        if norm == "l2":
            squares = np.einsum("ij,ij->i", vectors, vectors)
            # Below this, squares of entries that matter may have vanished.
            return np.where(squares > _SAFE_SQUARE, np.sqrt(squares), np.inf)
        if norm == "l1":
            return np.abs(vectors).sum(axis=1)
        return np.maximum(vectors.max(axis=1), -vectors.min(axis=1))


def _clip_rows(vectors: np.ndarray, norm: Norm, radius: float, clipping: Clipping) -> np.ndarray:
    """The careful path: rows that may lie outside, of any magnitude."""
    if not np.isfinite(vectors).all():
        raise ValueError("values must be finite numbers")
    # Relative to the largest entry, so that no square overflows or vanishes.
    largest = np.abs(vectors).max(axis=1)
    scale = np.where(largest > 0, largest, 1.0)[:, None]
    shape = vectors / scale
    order = {"l1": 1, "l2": 2, "linf": np.inf}[norm]
    length = np.linalg.norm(shape, ord=order, axis=1, keepdims=True)
    if clipping == "raise" and (length > radius * (1 + NORM_TOLERANCE) / scale).any():
        raise ValueError(f"values must lie in the {norm} ball of radius {radius:g}")
    if norm == "linf":
        return np.clip(vectors, -radius, radius)
    outside = length > radius / scale
    shrink = np.where(outside, (radius / scale) / np.where(length > 0, length, 1.0), 1.0)
    return vectors * shrink


def nearest_in_ball(vector: np.ndarray, norm: Norm, radius: float) -> np.ndarray:
    """Euclidean projection of one vector on the ball. O(d log d)."""
    if norm == "binary":
        return np.clip(vector, 0.0, 1.0)
    if norm == "linf":
        return np.clip(vector, -radius, radius)
    if norm == "l2":
        length = float(np.linalg.norm(vector))
        return vector if length <= radius else vector * (radius / length)
    magnitude = np.abs(vector)
    if magnitude.sum() <= radius:
        return vector
    descending = np.sort(magnitude)[::-1]
    shift = (np.cumsum(descending) - radius) / np.arange(1, vector.size + 1)
    kept = np.count_nonzero(descending > shift)
    return np.sign(vector) * np.maximum(magnitude - shift[kept - 1], 0.0)


# Intervals wider than normal ones: for errors that were measured, and for readings that take few
# values, of which rare ones count for much.


def quantile(miss: float, degrees: float, skewness: np.ndarray | float = 0.0) -> np.ndarray:
    """Half of an interval in standard errors, of estimates left with probability `miss`.

    Student's t of so many degrees of freedom, and Cornish and Fisher's term for the skewness, half
    of it at 95 %: sums of rare steps of one size, alike in sign, leave a normal interval too often.
    """
    z = float(-special.ndtri(miss / 2))
    student = float(-special.stdtrit(degrees, miss / 2)) if math.isfinite(degrees) else z
    return np.asarray(student + skewness * max(0.0, z**2 - 1) / 6)


# Intervals of estimates that a public rotation may have shifted by a bias known on average.
#
# Truncation after a public rotation shifts the estimate by a bias that depends on the rotation.
# What is proved is its average over rotations (`walsh_hadamard.truncation_bias`), for all vectors
# that were not chosen for the rotation. Rotations exist, if few, at which some vectors are shifted
# far, so an interval that is widened by the average alone covers less often than it says: at an
# average of a tenth of the standard error, 93.4 % is all that is certain of "95 %". The half
# width here is proved.
#
# With h the half width, S the largest shift of all components and g(S) = min(1, sum over
# components of the chance that noise and a shift of S leave the interval), the chance to miss any
# component is E g(S) over rotations, at most. g grows in S, so
#
#     g(S) <= g(0) + S * slope,   slope = sup over s > 0 of (g(s) - g(0)) / s,
#
# and E g(S) <= g(0) + slope * E S: no other property of the law of S plays a part, and laws of
# two values attain it. h is the smallest at which that is what the level leaves.


_POINTS = 2000  # at which the slope is looked for
_BEYOND = 9.0  # standard errors past the half width: there g is one
_SAFETY = 1e-3  # relative: more than the slope can be missed by between two points


def half_width(miss: float, error: np.ndarray, expected_bias: float, count: int = 1) -> np.ndarray:
    """Half of an interval of each component, all of which are left with at most probability `miss`.

    Args:
        miss: over noise and public randomness, in (0, 1).
        error: standard error of each component, normal noise.
        expected_bias: of the component that is shifted most, on average over public randomness.
        count: components that must be covered at once; 1: each by itself.
    """
    least = float(np.min(error, initial=math.inf))
    if not 0 < least < math.inf:  # nothing to compare the bias with: Markov's inequality
        return np.asarray(-special.ndtri(miss / 4 / count) * error + 2 * expected_bias / miss)
    return np.asarray(_widths(miss, expected_bias / least, count) * error)


@lru_cache(maxsize=256)
def _widths(miss: float, bias: float, count: int) -> float:
    """Half the width in standard errors, for a bias in standard errors."""

    def excess(half: float) -> float:
        shifts = np.linspace(0.0, half + _BEYOND, _POINTS)
        outside = special.ndtr(shifts - half) + special.ndtr(-shifts - half)
        left = np.minimum(1.0, count * outside)
        slope = float(np.max((left[1:] - left[0]) / shifts[1:]))
        return float(left[0]) + slope * (1 + _SAFETY) * bias - miss

    low = float(-special.ndtri(min(0.5, miss / 2 / count)))
    high = low + 1 + 4 * bias / miss
    while excess(high) > 0:
        high *= 2
    return brentq(excess, low - 1e-9, high, xtol=1e-9) + 1e-9


MOST_NUMBERS = 1 << 18  # random numbers that a plan lets a device draw for one report: 1 ms


@dataclass(frozen=True)
class MeanEstimate(Estimate):
    """An estimated mean vector, with the error that theory predicts for it.

    Attributes:
        error_bars: "measured" where standard errors are those of the reports that came, "worst
            case" where they are those of the data that are worst for the mechanism.
        mean_squared_error: expectation of the squared Euclidean error of `value` as estimated:
            noise only and predicted in the worst case, else the sum of the squared standard errors.
        bias_bound: what the mechanism's own truncation (not the clipping of data outside the
            ball) can shift one component by; confidence intervals are widened by it.
        expected_bias: the same where it is known on average over public randomness alone: of the
            component that is shifted most. Confidence intervals cover with their level over noise
            and public randomness together, however rare and large the shift is; see `intervals`.
        failure_probability: that the values were not where the bias bound supposes them;
            confidence intervals take it out of their level.
        degrees_of_freedom: of the standard errors, where they are measured; else infinite.
        skewness: of each component, at most, where readings of reports take few values; one number
            if it is the same of all.
    """

    mean_squared_error: float = math.nan
    bias_bound: float = 0.0
    failure_probability: float = 0.0
    expected_bias: float = 0.0
    error_bars: ErrorBars = WORST_CASE
    degrees_of_freedom: float = math.inf
    skewness: np.ndarray | float = 0.0

    def confidence_interval(
        self, level: float = 0.95, *, simultaneous: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Interval of each component, `(low, high)`: Student's t, skewness and biases.

        Infinite where the failure probability alone exceeds what the level leaves.
        """
        check_fraction("level", level)
        if level + self.failure_probability >= 1 > level:
            everything = np.full(self.value.shape, np.inf)
            return -everything, everything
        miss = 1 - level - self.failure_probability
        count = max(1, self.value.size) if simultaneous else 1
        wide = quantile(miss / count, self.degrees_of_freedom, self.skewness)
        half = wide * self.raw.standard_error
        if self.expected_bias:
            normal = half / quantile(miss / count, math.inf)
            half = half_width(miss, normal, self.expected_bias, count)
        half = half + self.bias_bound
        return self.raw.value - half, self.raw.value + half

    def to_counts(self) -> MeanEstimate:
        """The same estimate as a total over users instead of a mean."""
        total = cast(MeanEstimate, super().to_counts())
        scale = float(self.num_users)
        return replace(
            total,
            mean_squared_error=self.mean_squared_error * scale**2,
            bias_bound=self.bias_bound * scale,
            expected_bias=self.expected_bias * scale,
        )

    def project_to_ball(self, norm: Norm, radius: float = 1.0) -> Estimate:
        """Nearest vector of the ball that holds the mean: less error on average, but biased.

        `norm` "binary" is the cube [0, 1]^d, whatever the radius.
        """
        return self._after("project_to_ball", nearest_in_ball(self.value, norm, radius))


def check_numbers(count: float) -> None:
    """A ValueError where one report takes a device too long."""
    if count > MOST_NUMBERS:
        raise ValueError(
            f"{count:,.0f} random numbers per report, more than {MOST_NUMBERS:,}: too slow"
        )


@dataclass(frozen=True)
class MeanRandomizer(LocalRandomizer):
    """A randomizer for a vector of a norm ball, read back as the mean vector.

    Values are `(n, dimension)` floats (or integers, or booleans; `(n,)` too where `dimension` is
    1). A vector outside the ball of `radius` is scaled onto it (`clipping="clip"`; coordinate by
    coordinate for "linf") or refused (`clipping="raise"`); NaN and infinite entries are always
    refused. Error messages never quote a value.

    Subclasses declare `norm` and define, next to what every randomizer defines, `_mean` (the
    unbiased mean from a statistic), `_user_variance`, and `mean_squared_error` where the worst
    total is less than the sum of the worst components.

    Attributes:
        dimension: coordinates per vector.
        local_epsilon: budget of everything that one user sends.
        radius: radius of the ball, in the unit of the data.
        clipping: what happens to vectors outside the ball.
    """

    dimension: int
    local_epsilon: float
    radius: float = 1.0
    clipping: Clipping = "clip"

    norm: ClassVar[Norm]
    bias_on_average: ClassVar[bool] = False
    task: ClassVar[registry.Task] = "mean"

    @classmethod
    def serves(cls, norm: Norm, dimension: int) -> bool:
        """Whether plans for so many coordinates of that ball consider it.

        In one dimension all balls but "binary" are the interval, which is "linf" here.
        """
        return norm == cls.norm

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        """Choices of the constructor that a plan tries; the first earns the local budget of all.

        Raises:
            ValueError: where there are none, with the reason.
        """
        return ({},)

    @property
    def compression(self) -> float:
        """How many times as long as a report the vector itself is, in 32 bits a coordinate."""
        return 32 * self.dimension / self.bits_per_report

    @property
    def numbers_per_report(self) -> float:
        """Random numbers that a device draws for one report, on average, if they are many."""
        return 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "dimension", check_integer("dimension", self.dimension, 1))
        object.__setattr__(self, "radius", float(self.radius))
        check_radius(self.radius)
        if self.clipping not in ("clip", "raise"):
            raise ValueError(f'clipping must be "clip" or "raise", got {self.clipping!r}')

    # On the device -------------------------------------------------------------------------

    def example_values(self, count: int) -> np.ndarray:
        inside = 1.0 if self.norm == "binary" else self.radius / self.dimension
        return np.full((count, self.dimension), inside)

    def _check_values(self, values: np.ndarray) -> np.ndarray:
        return clip_to_ball(self._as_floats(values), self.norm, self.radius, self.clipping)

    def _as_floats(self, values: np.ndarray) -> np.ndarray:
        """The vectors as float64 `(n, dimension)`; a ValueError for another shape or kind."""
        if values.ndim == 1 and self.dimension == 1:
            values = values[:, None]
        if values.ndim != 2 or values.shape[1] != self.dimension or values.dtype.kind not in "biuf":
            raise ValueError(
                f"values must be a numeric array of shape (n, {self.dimension}), got "
                f"{values.ndim} dimensions of dtype {values.dtype}"
            )
        return np.ascontiguousarray(values, dtype=np.float64)

    # Reading back --------------------------------------------------------------------------

    @property
    def bias_bound(self) -> float:
        """What the mechanism's own truncation can shift a component of the estimate by.

        With `bias_on_average`: the component that it shifts most, on average over public
        randomness.
        """
        return 0.0

    @property
    def shift_bound(self) -> float:
        """The most that the mechanism itself moves the mean by, averaged over what is public."""
        return self.bias_bound

    def component_limit(self, chance: float) -> float:
        """How far a report is read any one way, but with at most this chance.

        In a direction that does not depend on the report, whatever its sender holds; in the unit of
        the data. Of mechanisms whose noise points everywhere: others do not say.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not say how far a report points in one direction"
        )

    @property
    def _longest_read(self) -> float:
        """The greatest length that one person's reports can be read as."""
        raise NotImplementedError(f"{type(self).__name__} does not say how far a report reaches")

    @property
    def reach(self) -> float:
        """The longest reading against the farthest vector: attained in Euclidean balls, and an
        upper bound where no reading points away from a vector that is farthest."""
        return self._longest_read + self._farthest_value

    @property
    def _farthest_value(self) -> float:
        """Length of the longest vector of the domain."""
        corners = {"linf": math.sqrt(self.dimension)}
        return self.radius * corners.get(self.norm, 1.0)

    @abstractmethod
    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        """Unbiased mean, `(dimension,)`, in the unit of the data; `num_users` > 0."""

    @abstractmethod
    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        """Noise variance per component of one user's share, averaged over `vectors` (k, d).

        None stands for the worst vectors of the ball (an upper bound where the worst is unknown).
        """

    def _measured_variance(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray | None:
        """Variance of one user's share per component as these reports tell it, `(dimension,)`.

        Never less on average than what it stands for. None where they do not tell.
        """
        return None

    @property
    def _reading_step(self) -> np.ndarray | float:
        """The third moment of what one report is read as over its variance, per component, at most.

        Where it is read as a number or none, that number; where as one number with either sign,
        twice its mean. In the unit of the data; 0 of readings that are spread out.
        """
        return 0.0

    @property
    def _readable_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of what `estimate` reads."""
        return (self.statistic_shape,)

    def estimate(
        self, statistic: np.ndarray, num_users: int, *, sampling: Sampling = "fixed"
    ) -> MeanEstimate:
        """The unbiased mean, with error bars as the reports scatter where that can be told.

        From 30 reports on (`LEAST_MEASURED`) the standard error is that of the reports themselves
        (`error_bars` "measured"): no larger than for the worst data, no smaller than any data can
        make it; intervals follow Student's t. With fewer, and where a statistic says nothing of it,
        it is that of the worst data ("worst case").
        """
        statistic = np.asarray(statistic)
        if statistic.shape not in self._readable_shapes:
            raise ValueError(
                f"statistic must have shape {self.statistic_shape}, got {statistic.shape}"
            )
        check_integer("num_users", num_users, 0)
        users = int(num_users)
        if users == 0:
            nothing = np.full(self.dimension, np.nan)
            error = np.full(self.dimension, np.inf)
            return MeanEstimate(nothing, error, 0, mean_squared_error=math.inf)
        variance = self.variance(users, None, sampling)
        squared = self.mean_squared_error(users, None, sampling)
        error_bars, measured = WORST_CASE, None
        if users >= LEAST_MEASURED:
            measured = self._measured_variance(statistic, users, sampling)
        if measured is not None:
            variance, error_bars = np.minimum(measured / users, variance), MEASURED
            squared = min(squared, float(variance.sum()))
        error, step = np.sqrt(variance), self._reading_step
        return MeanEstimate(
            self._mean(statistic, users),
            error,
            users,
            error_bars=error_bars,
            degrees_of_freedom=math.inf if measured is None else users - 1,
            skewness=step / (users * error) if np.any(step) else 0.0,
            mean_squared_error=squared,
            bias_bound=0.0 if self.bias_on_average else self.bias_bound,
            expected_bias=self.bias_bound if self.bias_on_average else 0.0,
        )

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact variance per component of the estimate, in squared units of the data.

        Args:
            num_users: users whose reports were received.
            truth: the vectors that users hold, in equal shares: `(k, dimension)`, or one vector
                `(dimension,)` that everybody holds. None: the worst vectors of the ball.
            sampling: "fixed" for the error about these users' mean; "iid" for the error about the
                population mean, with `truth` as that population.
        """
        vectors = None if truth is None else self._as_truth(truth)
        one_user = self._user_variance(vectors) + self._spread(vectors, sampling)
        return one_user / num_users

    def mean_squared_error(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> float:
        """Expected squared Euclidean error; exact for a given `truth`, an upper bound for None."""
        return float(np.sum(self.variance(num_users, truth, sampling)))

    def _as_truth(self, truth: np.ndarray) -> np.ndarray:
        return self._check_values(np.atleast_2d(np.asarray(truth, dtype=np.float64)))

    def _spread(self, vectors: np.ndarray | None, sampling: Sampling) -> np.ndarray:
        """Population variance per component: what i.i.d. sampling adds."""
        check_sampling(sampling)
        if sampling == "fixed":
            return np.zeros(self.dimension)
        if vectors is None:
            half_range = 0.5 if self.norm == "binary" else self.radius
            return np.full(self.dimension, half_range**2)
        return vectors.var(axis=0)

    def _spread_left(self, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
        """Population variance per component, at most, of people whose estimated mean this is.

        The squares of a mean and of what people differ by from it are at most that of the range, in
        a ball those of all components together. `variance` of the mean itself is taken off it.
        """
        most = self._spread(None, "iid")
        squares = (mean - (0.5 if self.norm == "binary" else 0.0)) ** 2 - variance
        told = squares if self.norm in ("linf", "binary") else squares.sum()
        return np.asarray(most - np.clip(told, 0.0, most))
