"""One number per person: unbiased rounding to a grid, then randomized response over its points."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, Sampling, check_below
from beam_ldp.randomizers.checks import check_fraction
from beam_ldp.randomizers.mean.base import MeanRandomizer, Norm
from beam_ldp.randomizers.normals import uniform
from beam_ldp.randomizers.report_format import NumberedReports
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.words import TwoLevelLaw, kernel, multiply_high

Grid = Literal["uniform", "relative", "corrected_relative"]

_MAX_CELLS = 4096


@dataclass(frozen=True)
class GridResponse:
    """Unbiased rounding to `points` and k-ary randomized response with these probabilities.

    Attributes:
        points: increasing, float64, at least two.
        truthful: probability of the own point.
        other: probability of any one other point.
    """

    points: np.ndarray
    truthful: float
    other: float

    @classmethod
    def ideal(cls, points: np.ndarray, epsilon: float) -> GridResponse:
        """With ideal probabilities E/(E+k) and 1/(E+k)."""
        other = 1.0 / (math.exp(epsilon) + len(points) - 1)
        return cls(points, math.exp(epsilon) * other, other)

    @property
    def gain(self) -> float:
        return self.truthful - self.other

    @property
    def decoded(self) -> np.ndarray:
        """What the collector reads each point as, so that expectations are right."""
        return (self.points - self.other * self.points.sum()) / self.gain

    @property
    def point_variance(self) -> np.ndarray:
        """Variance of the decoded report for a value on each grid point."""
        return self.least_variance(self.points)

    def least_variance(self, means: np.ndarray) -> np.ndarray:
        """The least variance of one decoded report that values of any of these means give.

        That of a value on a grid point is convex in it, so that no spread of values has less.
        """
        square, total, q = (self.points**2).sum(), self.points.sum(), self.other
        second = self.gain * means**2 + q * square
        return np.asarray(second - (self.gain * means + q * total) ** 2) / self.gain**2

    def variance(self, values: np.ndarray) -> np.ndarray:
        """Exact variance of one decoded report per value."""
        cell = np.clip(np.searchsorted(self.points, values, side="right") - 1, 0, None)
        cell = np.minimum(cell, len(self.points) - 2)
        low, high = self.points[cell], self.points[cell + 1]
        weight = (values - low) / (high - low)
        at_point = self.point_variance
        between = (1 - weight) * at_point[cell] + weight * at_point[cell + 1]
        return between + (values - low) * (high - values)

    def worst_value(self) -> float:
        """The value of largest variance (quadratic within each cell)."""
        low, high = self.points[:-1], self.points[1:]
        slope = np.diff(self.point_variance) / (high - low)
        candidates = np.clip((low + high + slope) / 2, low, high)
        return float(candidates[np.argmax(self.variance(candidates))])

    def worst_variance(self) -> float:
        return float(self.variance(np.array([self.worst_value()]))[0])


def paper_cells(epsilon: float) -> int:
    """Cells of the uniform grid in Bhowmick et al.: ceil(e^(eps/3))."""
    return min(_MAX_CELLS, math.ceil(math.exp(epsilon / 3)))


def best_cells(epsilon: float) -> int:
    """Cells of the uniform grid with the least worst-case variance: about 1.145 e^(eps/3)."""
    guess = min(1.1447 * math.exp(min(epsilon, 60.0) / 3), _MAX_CELLS)
    around = range(max(1, int(guess * 0.8) - 2), min(_MAX_CELLS, int(guess * 1.2) + 3) + 1)
    if len(around) > 40:  # flat near the optimum
        around = range(around[0], around[-1] + 1, len(around) // 40)
    return min(
        around,
        key=lambda k: GridResponse.ideal(np.linspace(0, 1, k + 1), epsilon).worst_variance(),
    )


def relative_grid(floor: float, ratio: float) -> np.ndarray:
    """The grid {0, nu a, nu^2 a, ...} of Bhowmick et al., Algorithm 4, on [0, 1].

    Its first cell [0, nu a] is too wide: Lemma B.1, which bounds the error relative to
    max(r, a), is false there. Use `corrected_relative_grid`; this one is for comparison.
    """
    count = math.ceil(math.log(1 / floor) / math.log(ratio) - 1e-12)
    return np.concatenate([[0.0], floor * ratio ** np.arange(1.0, count + 1)])


def corrected_relative_grid(floor: float, epsilon: float) -> np.ndarray:
    """Uniform below `floor` (a fraction of the range), geometric above: small relative error.

    Cells are `Delta` of max(r, floor) wide, Delta = floor^(-2/3) e^(-eps/3): the relative error
    max(r, floor)^-2 Var is then of order floor^(-4/3) e^(-2 eps/3).
    """
    width = floor ** (-2 / 3) * math.exp(-epsilon / 3)
    below = math.ceil(1 / width)
    above = math.ceil(math.log(1 / floor) / math.log1p(width))
    lower = np.linspace(0, floor, below + 1)
    return np.concatenate([lower, floor ** (1 - np.arange(1.0, above + 1) / above)])


def piecewise_variance(epsilon: float, value: float = 1.0) -> float:
    """Variance of the piecewise mechanism (Wang et al. 2019) for a value of [-1, 1]."""
    half = math.expm1(epsilon / 2)
    return value**2 / half + (half + 4) / (3 * half**2)


def laplace_variance(epsilon: float, width: float = 1.0) -> float:
    """Variance of Laplace noise for values of an interval of this width."""
    return 2 * (width / epsilon) ** 2


@dataclass(frozen=True)
class ScalarMean(NumberedReports, MeanRandomizer):
    """The mean of one number per person, from [0, radius] or, if signed, [-radius, radius].

    The number is rounded to one of two neighbouring grid points without bias (before anything is
    protected), and the point goes through k-ary randomized response: exactly eps-LDP. It protects
    the number against everybody who sees the report. The worst variance of the uniform grid is
    about 0.572 range^2 e^(-2 eps/3) for eps >= 2.

    Reports are `(n,)` unsigned integers of ceil(log2 points) bits; the statistic is their
    histogram.

    Source: Bhowmick et al. 2018, Algorithms 3 and 4 (variance recomputed exactly; the relative
    grid corrected below its floor, where their Lemma B.1 is false).

    Args:
        dimension: 1.
        local_epsilon: budget, > 0.
        radius: upper end of the range.
        clipping: "clip" or "raise".
        signed: whether values may be negative.
        grid: "uniform"; "corrected_relative" for magnitudes that span decades (small error
            relative to max(value, floor * radius)); "relative", the paper's, for comparison.
        cells: number of cells of the uniform grid; by default the best.
        floor: of the relative grids, as a fraction of the range.
        ratio: of neighbouring points of the paper's relative grid.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = ScalarMean(1, local_epsilon=4.0, radius=5.0)
    >>> reports = mechanism.randomize(np.array([0.0, 1.5, 5.0]))
    >>> mechanism.estimate(mechanism.accumulate(reports), 3).value.shape
    (1,)
    """

    signed: bool = False
    grid: Grid = "uniform"
    cells: int | None = None
    floor: float = 0.05
    ratio: float = 1.1

    norm: ClassVar[Norm] = "linf"
    decoding: ClassVar[str] = "O(points of the grid)"

    @classmethod
    def serves(cls, norm: Norm, dimension: int) -> bool:
        return norm == cls.norm and dimension == 1

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        return ({"signed": True},)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension != 1:
            raise ValueError(f"dimension must be 1, got {self.dimension}")
        if self.grid not in ("uniform", "relative", "corrected_relative"):
            raise ValueError(
                f'grid must be "uniform", "relative" or "corrected_relative", got {self.grid!r}'
            )
        if self.cells is not None and not 1 <= self.cells <= _MAX_CELLS:
            raise ValueError(f"cells must lie in [1, {_MAX_CELLS}], got {self.cells}")
        check_fraction("floor", self.floor)
        if not self.ratio > 1:
            raise ValueError(f"ratio must be > 1, got {self.ratio}")
        _ = self._law  # refuses parameters that the words cannot resolve

    @cached_property
    def points(self) -> np.ndarray:
        """The grid, in the unit of the data."""
        if self.grid == "relative":
            unit = relative_grid(self.floor, self.ratio)
        elif self.grid == "corrected_relative":
            unit = corrected_relative_grid(self.floor, self.local_epsilon)
        else:
            unit = np.linspace(0.0, 1.0, (self.cells or best_cells(self.local_epsilon)) + 1)
        return self.radius * (2 * unit - 1) if self.signed else self.radius * unit

    @cached_property
    def _law(self) -> TwoLevelLaw:
        return TwoLevelLaw(len(self.points), 1, self.local_epsilon)

    @cached_property
    def response(self) -> GridResponse:
        """The channel as implemented."""
        return GridResponse(
            self.points, self._law.favoured_probability, self._law.other_probability
        )

    @property
    def _num_reports(self) -> int:
        return len(self.points)

    @property
    def words_per_user(self) -> int:
        return 2

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (len(self.points),)

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    def _check_values(self, values: np.ndarray) -> np.ndarray:
        vectors = super()._check_values(values)
        if not self.signed:
            if self.clipping == "raise" and (vectors < 0).any():
                raise ValueError(f"values must lie in [0, {self.radius:g}]")
            vectors = np.maximum(vectors, 0.0)
        return vectors

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        _respond(
            values[:, 0], words, self.points, np.uint64(len(self.points)),
            np.uint64(self._law.threshold), reports,
        )  # fmt: skip

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = check_below(np.asarray(reports), len(self.points))
        return np.bincount(reports, minlength=len(self.points))

    @property
    def reach(self) -> float:
        """Either end of the range, against the reading that is farthest from it."""
        decoded, points = self.response.decoded, self.points
        return float(max(decoded.max() - points[0], points[-1] - decoded.min()))

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        return np.array([statistic @ self.response.decoded / num_users])

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        if vectors is None:
            return np.array([self.response.worst_variance()])
        return np.array([self.response.variance(vectors[:, 0]).mean()])

    def _measured_variance(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        """The sample variance of decoded reports, never below the least of values of their mean.

        Where all hold one value, the rare reports that name another may all be missing.
        """
        mean = self._mean(statistic, num_users)
        found = statistic @ (self.response.decoded - mean) ** 2 / (num_users - 1)
        inside = np.clip(mean, self.points[0], self.points[-1])
        return np.maximum(found, self.response.least_variance(inside))

    def _spread(self, vectors: np.ndarray | None, sampling: Sampling) -> np.ndarray:
        spread = super()._spread(vectors, sampling)
        return spread / 4 if vectors is None and not self.signed else spread

    def channel(self) -> np.ndarray:
        """P(report | grid point)."""
        same = np.eye(len(self.points), dtype=bool)
        return np.where(same, self.response.truthful, self.response.other)

    @property
    def two_levels(self) -> TwoLevels:
        """k-ary randomized response of the grid points."""
        return TwoLevels(
            self._law.likelihood_ratio, 1 / len(self.points), 0.0, "k-RR's own blanket"
        )

    @property
    def sends_bits(self) -> bool:
        return len(self.points) == 2

    @property
    def triple_shares(self) -> tuple[float, ...]:
        return (0.0,) if len(self.points) > 2 else ()


@kernel
def _respond(values, words, points, num_points, threshold, reports):  # type: ignore[no-untyped-def]
    last_cell = points.size - 2
    for i in range(values.size):
        word = words[i, 1]
        if word * num_points < threshold:
            cell = np.searchsorted(points, values[i], side="right") - 1
            cell = min(max(cell, 0), last_cell)
            offset = values[i] - points[cell]
            reports[i] = cell + (uniform(words[i, 0]) * (points[cell + 1] - points[cell]) < offset)
        else:
            reports[i] = multiply_high(word, num_points)
