"""Direction and length apart: for vectors whose lengths vary and are mostly below the radius."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.base import Sampling, check_sampling
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.mean.directions import lengths, unit_vectors
from beam_ldp.randomizers.mean.priv_unit import PrivUnit, PrivUnitPreset
from beam_ldp.randomizers.mean.priv_unit_gaussian import PrivUnitGaussian
from beam_ldp.randomizers.mean.rounded_directions import TailedDirectionMean, two_coins
from beam_ldp.randomizers.mean.scalar_mean import GridResponse, ScalarMean
from beam_ldp.randomizers.normals import spare_words
from beam_ldp.randomizers.shuffle_pair import ShufflePair
from beam_ldp.randomizers.spherical_caps import optimal_threshold

Strategy = Literal["product", "lift", "sign_flip"]

_SCALAR_WORDS = 2
_SPLIT_STEP = 0.25
_LARGEST_MAGNITUDE_EPSILON = 16.0
_MAX_SEARCHED_CELLS = 64


@lru_cache(maxsize=64)
def best_split(dimension: int, epsilon: float, typical_length: float) -> tuple[float, int]:
    """(budget of the length, cells of its grid) with the least error at a typical length.

    Minimizes D(epsilon - e) (r^2 + V) + V on a grid of budgets e, a quarter nat apart.

    Args:
        dimension: of the vectors.
        epsilon: total budget.
        typical_length: r, as a fraction of the radius, in (0, 1]: a public guess.
    """
    largest = min(0.9 * epsilon, _LARGEST_MAGNITUDE_EPSILON)
    step = min(_SPLIT_STEP, epsilon / 16)
    best = (math.inf, step, 1)
    at = np.array([typical_length])
    for magnitude in np.arange(step, largest + 1e-9 * step, step).tolist():
        direction = optimal_threshold(dimension, epsilon - magnitude) ** -2 - 1
        for cells in range(1, _MAX_SEARCHED_CELLS + 1):
            response = GridResponse.ideal(np.linspace(0, 1, cells + 1), magnitude)
            variance = float(response.variance(at)[0])
            error = direction * (typical_length**2 + variance) + variance
            best = min(best, (error, magnitude, cells))
    return best[1], best[2]


@dataclass(frozen=True)
class SeparatedMean(TailedDirectionMean):
    """The mean of vectors of the Euclidean ball, from a direction and a length apart.

    "product" sends PrivUnit's direction times the scalar mechanism's length; budgets add. Much
    better than `PrivUnit` where most lengths are below 0.8 of the radius: its error is
    D r^2 + (1 + D) V(r) at length r, not D times the squared radius. The other strategies spend
    nothing on the length: "lift" runs PrivUnit on the sphere of one more dimension and drops the
    added coordinate, "sign_flip" is `PrivUnit` itself. It protects the vector against everybody
    who sees the report.

    Reports are `(n, dimension)` signed integers; the statistic is their sum. One grid holds the
    reports of all lengths. Few bits cost 0.2 % of the worst error, and the largest share where the
    error is least, that of the shortest vectors (`extra_error`).

    Source: Bhowmick et al. 2018, section 4.4; the exact error and the other strategies are our
    own.

    Args:
        dimension: at least 2.
        local_epsilon: total budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball".
        coordinate_bits: bits per reported coordinate.
        strategy: "product", "lift" or "sign_flip".
        typical_length: public guess of a typical length as a fraction of the radius; "product"
            divides the budget to be best there. Any guess is unbiased and private.
        magnitude_epsilon: budget of the length, instead of the best split (the paper: 10).
        magnitude_cells: cells of its grid, instead of the best (the paper: 29).
        preset: parameters of the direction, see `PrivUnit`.
        rounding: of coordinates, "nearest" or "random"; the latter is for few bits.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = SeparatedMean(dimension=100, local_epsilon=8.0, typical_length=0.3)
    >>> round(mechanism.direction.local_epsilon + mechanism.magnitude.local_epsilon, 9)
    8.0
    """

    strategy: Strategy = "product"
    typical_length: float = 0.25
    magnitude_epsilon: float | None = None
    magnitude_cells: int | None = None
    preset: PrivUnitPreset = "optimal"

    random_coins: ClassVar[int] = 2  # the noise of a short report may be finer than the grid

    def __post_init__(self) -> None:
        if self.strategy not in ("product", "lift", "sign_flip"):
            raise ValueError(
                f'strategy must be "product", "lift" or "sign_flip", got {self.strategy!r}'
            )
        check_fraction("typical_length", self.typical_length, "(]")
        if self.magnitude_epsilon is not None and not (
            0 < self.magnitude_epsilon < self.local_epsilon
        ):
            raise ValueError(
                f"magnitude_epsilon must lie in (0, local_epsilon={self.local_epsilon:g}), "
                f"got {self.magnitude_epsilon}"
            )
        if self.inputs != "ball":
            raise ValueError(f'inputs must be "ball" (else PrivUnit), got {self.inputs!r}')
        super().__post_init__()

    @cached_property
    def _split(self) -> tuple[float, int]:
        found = None
        if self.magnitude_epsilon is None or self.magnitude_cells is None:
            found = best_split(self.dimension, self.local_epsilon, self.typical_length)
        epsilon = found[0] if self.magnitude_epsilon is None and found else self.magnitude_epsilon
        cells = self.magnitude_cells
        if cells is None and self.magnitude_epsilon is None and found:
            cells = found[1]
        assert epsilon is not None
        return epsilon, cells or ScalarMean(1, epsilon).points.size - 1

    @cached_property
    def magnitude(self) -> ScalarMean:
        """The mechanism of the length ("product" only)."""
        epsilon, cells = self._split
        return ScalarMean(1, epsilon, self.radius, cells=cells)

    @cached_property
    def direction(self) -> PrivUnit:
        """The mechanism of the direction."""
        if self.strategy == "sign_flip":
            return PrivUnit(self.dimension, self.local_epsilon, preset=self.preset)
        if self.strategy == "lift":
            options = {"preset": self.preset, "inputs": "sphere"}
            return PrivUnit(self.dimension + 1, self.local_epsilon, **options)  # type: ignore[arg-type]
        left = self.local_epsilon - self.magnitude.local_epsilon
        return PrivUnit(self.dimension, left, preset=self.preset, inputs="sphere")

    def log_ratio_max(self) -> float:
        spent = self.direction.log_ratio_max()
        return spent + self.magnitude.log_ratio_max() if self.strategy == "product" else spent

    def dominating_pair(self) -> ShufflePair:
        """The direction's own blanket, or the clone pair where two mechanisms compose."""
        if self.strategy == "product":
            return super().dominating_pair()
        return self.direction.dominating_pair()

    # What one user sends ---------------------------------------------------------------------

    @property
    def words_per_user(self) -> int:
        return spare_words(self.dimension + 1) + _SCALAR_WORDS + self._coin_words

    @property
    def _longest_length(self) -> float:
        """The longest length that is read back."""
        if self.strategy != "product":
            return self.radius
        return float(np.abs(self.magnitude.response.decoded).max())

    @property
    def _longest_coordinate(self) -> float:
        """The longest report, in units of the radius."""
        return self._longest_length / self.radius / self.direction.marginal

    def _log_tail(self, coordinate: float) -> float:
        """A direction's, times the longest length: of all other lengths it is less."""
        return self.direction._log_tail(coordinate * self.radius / self._longest_length)

    @property
    def _log_density(self) -> float:
        return self.direction._log_density

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        direction = self.direction
        length = np.minimum(lengths(vectors), self.radius)
        unit = vectors
        if self.strategy == "lift":
            last = np.sqrt((self.radius - length) * (self.radius + length))
            clipped = unit_vectors(vectors) * length[:, None]
            unit = np.column_stack([clipped, last])
        elif self.strategy == "sign_flip":
            unit = vectors / self.radius
        drawn = np.empty((len(vectors), direction.dimension), dtype=direction.report_dtype)
        scalar, coins, own = np.split(
            words, [_SCALAR_WORDS, _SCALAR_WORDS + self._coin_words], axis=1
        )
        enough = direction._randomize_rows(unit, rows, own, drawn)
        factor = np.full(len(rows), self._length / direction.fixed_point.largest)
        if self.strategy == "product":
            index = np.empty(len(rows), dtype=self.magnitude.report_dtype)
            self.magnitude._randomize_block(length[rows, None], scalar, _no_extra, index)
            decoded = self.magnitude.response.decoded
            factor *= decoded[index] / np.abs(decoded).max()
        exact = drawn[rows, : self.dimension] * factor[:, None]
        if self._at_random:
            exact += two_coins(coins)
        largest = self.fixed_point.largest
        reports[rows] = np.clip(np.rint(exact), -largest, largest)
        return enough

    @property
    def _lengths_sent(self) -> tuple[np.ndarray, np.ndarray]:
        """ "product": what the grid points are read as; "lift": up to the longest; else that one.

        A report pulls the mean by the longest over the number of users, never further.
        """
        lengths = np.array([self._length])
        if self.strategy == "product":
            decoded = np.sort(np.abs(self.magnitude.response.decoded))
            lengths = self._length * decoded / decoded[-1]
        low, high = np.array([self._off_by_rounding(x) for x in lengths.tolist()]).T
        own = self._direction_rounding * lengths
        if self.strategy == "lift":
            return np.zeros(1), high + own
        return (low + high) / 2, (high - low) / 2 + own

    def component_limit(self, chance: float) -> float:
        own = self._direction_rounding * self._length * self.fixed_point.step
        return super().component_limit(chance) + own

    @property
    def _direction_rounding(self) -> float:
        """How far a direction is off, which was rounded to nearest before: of its length."""
        return math.sqrt(self.dimension) / 2 / self.direction.fixed_point.largest

    # Reading back ----------------------------------------------------------------------------

    @property
    def _second_moment(self) -> tuple[float, float]:
        isotropic, along = self.direction._second_moment
        if self.strategy == "product":
            square = self._squares_at_points / self.radius**2
            return isotropic * float(square.min()), along * float(square.max())
        return isotropic, along

    @property
    def _least_variance(self) -> float:
        isotropic, along = self.direction._second_moment
        if self.strategy == "product":
            smallest = float(self._squares_at_points.min())
            return max(0.0, isotropic * smallest + self.radius**2 * min(0.0, along - 1))
        return self.radius**2 * max(0.0, isotropic + min(0.0, along - 1))

    @property
    def _squares_at_points(self) -> np.ndarray:
        """E[Z2^2] at the grid points; linear between them."""
        response = self.magnitude.response
        return response.points**2 + response.point_variance

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        isotropic, along = self.direction._second_moment
        rounding = self.radius**2 * self._rounding_variance
        if vectors is None:
            worst = self._worst(isotropic, along)
            return np.full(self.dimension, worst + rounding)
        length = lengths(vectors)
        if self.strategy == "lift":
            second = self.radius**2 * isotropic + along * np.mean(vectors**2, axis=0)
        else:
            square = np.full(len(vectors), self.radius**2)
            if self.strategy == "product":
                square = length**2 + self.magnitude.response.variance(length)
            unit = unit_vectors(vectors) ** 2
            second = isotropic * square.mean() + along * np.mean(square[:, None] * unit, axis=0)
        return second - np.mean(vectors**2, axis=0) + rounding

    def _worst(self, isotropic: float, along: float) -> float:
        """Largest A s(r) + max(0, B s(r) - r^2) over lengths r, with s = E[Z2^2]."""
        if self.strategy == "sign_flip":
            return self.radius**2 * (isotropic + along)
        if self.strategy == "lift":
            return self.radius**2 * (isotropic + max(0.0, along - 1))
        points, square = self.magnitude.points, self._squares_at_points
        slope = np.diff(square) / np.diff(points)
        at = np.clip((isotropic + along) * slope / 2, points[:-1], points[1:])
        both = (isotropic + along) * (square[:-1] + slope * (at - points[:-1])) - at**2
        return float(max(both.max(), isotropic * square.max()))

    def mean_squared_error(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> float:
        """Expected squared Euclidean error; without `truth` that of the worst lengths."""
        if truth is not None:
            return super().mean_squared_error(num_users, truth, sampling)
        isotropic, along = self.direction._second_moment
        rounding = self.dimension * self.radius**2 * self._rounding_variance
        worst = self._worst(self.dimension * isotropic, along)
        check_sampling(sampling)
        spread = self.radius**2 if sampling == "iid" and self.strategy != "sign_flip" else 0.0
        return (worst + rounding + spread) / num_users


def _no_extra(rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    raise AssertionError("randomized response on a grid takes two words")


# How the reports of directions scatter, and in which directions: E[Z Z^T], exactly --------
#
# A report Z of a vector w of direction u = w/|w| is unbiased for w. Its second moment is a multiple
# of the identity plus a multiple of u u^T; over a population it decides what averages of functions
# of reports are worth, private stochastic gradients among them (`federated.averaged_sgd`).


def second_moment(
    mechanism: PrivUnit | PrivUnitGaussian | SeparatedMean, vectors: np.ndarray
) -> np.ndarray:
    """E[Z Z^T] of one report, on average over vectors that people hold in equal shares.

    With R = |w|, V(R) the variance of the reported length and (A, B) the mechanism's constants, a
    report in two parts has E[(R^2 + V(R)) (A I + B u u^T)]; for the best PrivUnit B = 1, A = D/d,
    D being its squared error of a unit vector. So its price beyond the gradients' own moment is the
    length's variance along u and an isotropic term: nothing that is proportional to d/epsilon times
    the gradients' moment, which Lemma 4.5 of the paper has.

    Args:
        mechanism: whose reports; of inputs "ball", or "sphere" for vectors of its radius.
        vectors: `(k, d)`, no longer than the radius, none zero: without a direction there is no u
            (the theorems suppose that no gradient is zero).

    Returns:
        `(d, d)`, in squared units of the data, with the rounding of reports.

    Raises:
        TypeError: for a mechanism whose second moment has another form.
        ValueError: for vectors that are zero, too long, or of another shape.

    Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, Lemma 4.5, made exact.

    >>> spread = second_moment(PrivUnit(3, 2.0), np.array([[1.0, 0.0, 0.0]]))
    >>> round(float(spread[0, 0] - spread[1, 1]), 6)  # the direction itself, and it alone
    1.0
    """
    if not isinstance(mechanism, (PrivUnit, PrivUnitGaussian, SeparatedMean)):
        raise TypeError(
            "mechanism must be a PrivUnit, PrivUnitGaussian or SeparatedMean, got "
            f"{type(mechanism).__name__}"
        )
    w, radius = _checked(mechanism, vectors), mechanism.radius
    length = np.linalg.norm(w, axis=1)
    unit = w / length[:, None]
    square = np.full(len(w), radius**2)  # of the reported length
    if isinstance(mechanism, SeparatedMean):
        isotropic, along = mechanism.direction._second_moment
        if mechanism.strategy == "product":
            square = length**2 + mechanism.magnitude.response.variance(length)
        elif mechanism.strategy == "lift":
            unit = w / radius
    else:
        isotropic, along = mechanism._second_moment
    rounding = mechanism._rounding_variance * radius**2
    identity = np.eye(mechanism.dimension)
    weighted: np.ndarray = (unit * square[:, None]).T @ unit / len(w)
    return (isotropic * square.mean() + rounding) * identity + along * weighted


def _checked(
    mechanism: PrivUnit | PrivUnitGaussian | SeparatedMean, vectors: np.ndarray
) -> np.ndarray:
    w = np.asarray(vectors, dtype=np.float64)
    if w.ndim != 2 or w.shape[1] != mechanism.dimension or not len(w):
        raise ValueError(f"vectors must have shape (k, {mechanism.dimension}), got {w.shape}")
    length = np.linalg.norm(w, axis=1)
    if not (np.isfinite(length).all() and (length > 0).all()):
        raise ValueError("vectors must be finite, and none of them zero")
    if length.max() > mechanism.radius * (1 + 1e-9):
        raise ValueError(f"vectors must be no longer than the radius, {mechanism.radius:g}")
    if mechanism.inputs == "sphere" and length.min() < mechanism.radius * (1 - 1e-9):
        raise ValueError(f'vectors must have the length {mechanism.radius:g} for inputs="sphere"')
    return w
