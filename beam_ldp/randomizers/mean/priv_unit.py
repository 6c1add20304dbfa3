"""PrivUnit: a uniform point of the cap around the own direction, or else of the rest.

`FavouringMean` is what it shares with PrivUnitG, which favours the tail of a normal height.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Literal, Protocol

import numpy as np

from beam_ldp.randomizers.base import LocalRandomizer
from beam_ldp.randomizers.mean.directions import inner_product, signed_length, square_sum, tame
from beam_ldp.randomizers.mean.rounded_directions import TailedDirectionMean, write_rounded
from beam_ldp.randomizers.normals import fill_normals, next_gamma, next_normal, uniform
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.spherical_caps import (
    SphericalCap,
    cap_rounding,
    expit,
    optimal_threshold,
    sufficient_threshold,
    threshold_for,
)
from beam_ldp.randomizers.words import WORD_VALUES, kernel, subroutine

PrivUnitPreset = Literal["optimal", "experiments", "simulation", "theory"]
CapCondition = Literal["exact", "paper"]

# The share of the budget that the paper's settings give to the cap; the coin gets the rest.
_CAP_SHARES = {"experiments": 0.99, "simulation": 13 / 14, "theory": 1.0}
_LARGEST_EXPONENT = 600.0  # of a float64 that can still be multiplied
BUDGET_ROUNDING = 2e-15  # left unspent, so that the rounding of the coin cannot overspend
_NARROW = 1e-6
_NOTHING = 1e-30  # of normals of length one: rounding


@dataclass(frozen=True)
class CapCoin:
    """The coin that chooses cap or rest: heads for `threshold` of the 2**64 words."""

    threshold: int

    @classmethod
    def spending(cls, epsilon: float) -> CapCoin:
        """The coin with log odds `epsilon` >= 0, its rarer side rounded up."""
        rarer = Fraction(expit(-max(0.0, epsilon)))
        tails = max(1, math.ceil(rarer * WORD_VALUES))
        return cls(WORD_VALUES - min(tails, WORD_VALUES // 2))

    @property
    def probability(self) -> float:
        return self.threshold / WORD_VALUES

    @property
    def log_odds(self) -> float:
        tails = WORD_VALUES - self.threshold
        return math.log1p(float(Fraction(self.threshold - tails, tails)))


def ratio_of(mechanism: LocalRandomizer) -> float:
    """The ratio of a mechanism's two levels, as `TwoLevels` takes it.

    Raises:
        ValueError: if floating point could not multiply by it.
    """
    if mechanism.local_epsilon > _LARGEST_EXPONENT:
        raise ValueError(
            f"local_epsilon must be at most {_LARGEST_EXPONENT:g} for a privacy cost after "
            "shuffling"
        )
    return math.exp(mechanism.log_ratio_max())


class Favoured(Protocol):
    """What a direction favours: a cap around it, or the tail of the height along it."""

    @property
    def threshold(self) -> float: ...
    @property
    def measure(self) -> float: ...
    @property
    def log_measure(self) -> float: ...


@dataclass(frozen=True)
class FavouringMean(TailedDirectionMean):
    """A noisy direction of a favoured set, or else of the rest, as a coin says.

    Against a law that does not depend on the vector, its density has two levels.

    Attributes:
        blanket: that law, as prices name it.
    """

    blanket: ClassVar[str]

    @property
    @abstractmethod
    def favoured(self) -> Favoured:
        """The set, with its measure under that law."""

    @property
    @abstractmethod
    def coin(self) -> CapCoin:
        """Heads: a direction of the set."""

    @property
    def _log_density(self) -> float:
        return max(0.0, math.log(self.coin.probability) - self.favoured.log_measure)

    @property
    def two_levels(self) -> TwoLevels:
        """Opposite directions favour sets that do not meet: they are the worst pair."""
        return TwoLevels(ratio_of(self), self.favoured.measure, 0.0, self.blanket)


@dataclass(frozen=True)
class PrivUnit(FavouringMean):
    """PrivUnit: the unbiased local mechanism of least error for vectors of the Euclidean ball.

    The report is a vector of fixed length 1/m in a uniform direction of the cap of directions
    whose inner product with the own one is at least a threshold, or of the rest. Its density has
    two levels whose ratio is e**local_epsilon for ideal real numbers; in floating point that holds
    up to the resolution of the report. It protects the vector against everybody who sees the
    report. The mean squared error per user on the sphere is `radius**2 * (1/m**2 - 1)`: about
    2 pi d/eps^2 for small eps, d/(2 eps) for 1 << eps << d.

    Reports are `(n, dimension)` signed integers; the statistic is their sum. Cost: about one
    random word and 5 ns per coordinate; O(d) memory and time to estimate.

    Source: Bhowmick, Duchi, Freudiger, Kapoor and Rogers 2018, Algorithm 1 (their Theorem 1 is
    only sufficient; the exact loss is used). Optimality: Asi, Feldman and Talwar 2022.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: bits per reported coordinate.
        preset: "optimal", or the paper's splits of the budget between cap and coin:
            "experiments" (99 %), "simulation" (13/14), "theory" (all to the cap).
        cap_condition: "paper" takes the threshold of the presets from the paper's sufficient
            condition, which leaves up to 1.1 nats of the budget unspent.
        rounding: of coordinates, "nearest" or "random"; the latter is for few bits.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = PrivUnit(dimension=3, local_epsilon=4.0)
    >>> reports = mechanism.randomize(np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.0]]))
    >>> estimate = mechanism.estimate(mechanism.accumulate(reports), num_users=2)
    >>> estimate.value.shape, mechanism.bits_per_report
    ((3,), 96)
    """

    preset: PrivUnitPreset = "optimal"
    cap_condition: CapCondition = "exact"

    blanket: ClassVar[str] = "PrivUnit's own blanket"

    def __post_init__(self) -> None:
        if self.preset != "optimal" and self.preset not in _CAP_SHARES:
            allowed = ", ".join(["optimal", *_CAP_SHARES])
            raise ValueError(f"preset must be one of {allowed}, got {self.preset!r}")
        if self.cap_condition not in ("exact", "paper"):
            raise ValueError(
                f'cap_condition must be "exact" or "paper", got {self.cap_condition!r}'
            )
        if self.preset == "optimal" and self.cap_condition == "paper":
            raise ValueError('cap_condition="paper" needs one of the paper\'s presets')
        super().__post_init__()

    @cached_property
    def cap(self) -> SphericalCap:
        """The favoured cap."""
        if self.preset == "optimal":
            return SphericalCap(self.dimension, optimal_threshold(self.dimension, self._spent))
        choose = threshold_for if self.cap_condition == "exact" else sufficient_threshold
        share = _CAP_SHARES[self.preset] * self._spent
        return SphericalCap(self.dimension, choose(self.dimension, share))

    @property
    def favoured(self) -> SphericalCap:
        return self.cap

    @cached_property
    def coin(self) -> CapCoin:
        """The coin that decides for the cap."""
        if self.preset == "theory":
            return CapCoin(WORD_VALUES // 2)
        if self.cap_condition == "paper":
            return CapCoin.spending((1 - _CAP_SHARES[self.preset]) * self._spent)
        return CapCoin.spending(self._spent - self.cap.log_odds_outside)

    @property
    def _rounding(self) -> float:
        """Bound of the error in the logarithms of the cap's measure and of the coin's odds."""
        return BUDGET_ROUNDING * max(1.0, self.local_epsilon) + cap_rounding(self.dimension)

    @property
    def _spent(self) -> float:
        return self.local_epsilon - self._rounding

    @cached_property
    def marginal(self) -> float:
        """m: expected inner product of the drawn and the own direction; reports have length 1/m."""
        return self.cap.expected_marginal(self.coin.probability)

    def log_ratio_max(self) -> float:
        computed = self.coin.log_odds + self.cap.log_odds_outside
        return min(computed + self._rounding, self.local_epsilon)

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        return sphere_moments(self.cap, self.marginal)

    @property
    def _longest_coordinate(self) -> float:
        return 1 / self.marginal

    def _log_tail(self, coordinate: float) -> float:
        return math.log(2) + SphericalCap(self.dimension, coordinate * self.marginal).log_measure

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        return _report(
            vectors, rows, words, self._flip_scale, np.uint64(self.coin.threshold),
            self.cap.threshold, self._length, float(self.fixed_point.largest), self._at_random,
            reports,
        )  # fmt: skip

    @property
    def _lengths_sent(self) -> tuple[np.ndarray, np.ndarray]:
        """One: a report pulls the mean by `radius / m` over the number of users, and no further
        than rounding lengthens it."""
        low, high = self._off_by_rounding(self._length)
        return np.array([(low + high) / 2]), np.array([(high - low) / 2])


def sphere_moments(cap: SphericalCap, marginal: float) -> tuple[float, float]:
    """A and B of E[Z Z^T] = A I + B u u^T for V uniform in a cap or uniform off it, Z = V/m.

    Whatever the odds of the cap: E<V, u>^2 = (1 + (d - 1) g m)/d.
    """
    g, d = cap.threshold, cap.dimension
    return (1 - g * marginal) / (d * marginal**2), g / marginal


@subroutine
def height_in_cap(g, dimension, words, at):  # type: ignore[no-untyped-def]
    """`height`, given that it is at least g."""
    if g * g * dimension < 1.0:
        t, s = -1.0, 0.0
        while t < g and at <= words.size:
            t, s, at = height(dimension, words, at)
        return t, s, at
    across = math.sqrt((1.0 - g) * (1.0 + g))
    while at + 2 <= words.size:
        w = -2.0 * math.log(uniform(words[at])) / (dimension - 1)
        # g^2 - (1 - g^2) expm1(-w) = 1 - (1 - g^2) e^-w
        t = math.sqrt(g * g - across * across * math.expm1(-w))
        at += 2
        if uniform(words[at - 1]) * t < g:
            return min(t, 1.0), across * math.exp(-0.5 * w), at
    return g, across, words.size + 1


@subroutine
def height_off_cap(g, dimension, words, at):  # type: ignore[no-untyped-def]
    """`height`, given that it is below g."""
    t, s = 2.0, 0.0
    while t >= g and at <= words.size:
        t, s, at = height(dimension, words, at)
    return t, s, at


@subroutine
def height(dimension, words, at):  # type: ignore[no-untyped-def]
    """Inner product t of a uniform unit vector with an axis, its distance s from the axis, and the
    position of the next word.

    Both to full precision: in two dimensions s = sqrt(1 - t^2) of a rounded t would skip directions
    near the axis that coordinates of 32 bits tell apart.
    """
    z, at = next_normal(words, at)
    half_rest, at = next_gamma((dimension - 1) / 2, words, at)
    length = math.sqrt(z * z + 2.0 * half_rest)
    return z / length, math.sqrt(2.0 * half_rest) / length, at


@subroutine
def find_direction(vector, length, normals, t, s, scale):  # type: ignore[no-untyped-def]
    """(a, b) with scale (t u + s v) = a vector + b normals; `normals` may be changed.

    u is the direction of `vector`, the first axis for a vector of length zero; v is what `normals`
    have across it, of length one: uniform.
    """
    if length == 0.0:
        normals[0] = 0.0
        b = scale * s / math.sqrt(square_sum(normals, 1.0))
        for j in range(normals.size):
            normals[j] *= b
        normals[0] = scale * t
        return 0.0, 1.0
    along = inner_product(normals, vector) / length
    total = square_sum(normals, 1.0)
    rest = total - along * along
    if rest < _NARROW * total:  # a cancellation, in two or three dimensions
        rest = leave_across(vector, length, normals)
        along = 0.0
    b = scale * s / math.sqrt(rest)
    return (scale * t - b * along) / length, b


@subroutine
def leave_across(vector, length, normals):  # type: ignore[no-untyped-def]
    """Take what `normals` have along `vector` off them, to full precision; the square of the rest.

    Where nothing is left, once in 2**50 users, any direction across takes its place.
    """
    total = square_sum(normals, 1.0)
    for _trial in range(3):
        for _ in range(2):  # the second time it is the rounding of the first that goes
            along = inner_product(normals, vector) / length
            for j in range(normals.size):
                normals[j] -= along * (vector[j] / length)
        rest = square_sum(normals, 1.0)
        if rest > _NOTHING * total:
            break
        least = np.argmin(np.abs(vector))
        normals[:] = 0.0
        normals[least] = 1.0
        total = 1.0
    return rest


@kernel
def _report(  # type: ignore[no-untyped-def]
    vectors, rows, words, flip_scale, coin, g, scale, largest, at_random, reports
):
    d = vectors.shape[1]
    enough = np.ones(rows.size, dtype=np.bool_)
    normals, spare = np.empty(d), np.empty(d)
    scratch = np.empty(d + 1, dtype=np.int64)
    coins = (d + 1) // 2 if at_random else 0
    for i in range(rows.size):
        row = words[i]
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(row[0]))
        if row[1] < coin:
            t, s, at = height_in_cap(g, d, row, 2)
        else:
            t, s, at = height_off_cap(g, d, row, 2)
        at = fill_normals(row, at, normals, scratch)
        if at + coins > row.size:
            enough[i] = False
            continue
        vector, length = tame(vector, length, spare)
        a, b = find_direction(vector, length, normals, sign * t, s, scale)
        write_rounded(a, vector, b, normals, at_random, row, at, largest, reports[rows[i]])
    return enough
