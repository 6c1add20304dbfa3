"""PrivUnit: a uniform point of the cap around the own direction, or else of the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np

from beam_ldp.randomizers.jit import WORD_VALUES, kernel, subroutine
from beam_ldp.randomizers.mean.directions import (
    DirectionMean,
    inner_product,
    signed_length,
    square_sum,
    tame,
)
from beam_ldp.randomizers.normals import fill_normals, next_gamma, next_normal, uniform
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses
from beam_ldp.randomizers.spherical_caps import (
    SphericalCap,
    expit,
    optimal_threshold,
    sufficient_threshold,
    threshold_for,
)

PrivUnitPreset = Literal["optimal", "experiments", "simulation", "theory"]
CapCondition = Literal["exact", "paper"]

# The share of the budget that the paper's settings give to the cap; the coin gets the rest.
_CAP_SHARES = {"experiments": 0.99, "simulation": 13 / 14, "theory": 1.0}
_LARGEST_EXPONENT = 600.0  # of a float64 that can still be multiplied
_BUDGET_ROUNDING = 2e-15  # left unspent, so that rounding cannot overspend
_NARROW = 1e-6


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


@dataclass(frozen=True)
class PrivUnit(DirectionMean):
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

    @cached_property
    def coin(self) -> CapCoin:
        """The coin that decides for the cap."""
        if self.preset == "theory":
            return CapCoin(WORD_VALUES // 2)
        if self.cap_condition == "paper":
            return CapCoin.spending((1 - _CAP_SHARES[self.preset]) * self._spent)
        return CapCoin.spending(self._spent - self.cap.log_odds_outside)

    @property
    def _spent(self) -> float:
        return self.local_epsilon - _BUDGET_ROUNDING * max(1.0, self.local_epsilon)

    @cached_property
    def marginal(self) -> float:
        """m: expected inner product of the drawn and the own direction; reports have length 1/m."""
        return self.cap.expected_marginal(self.coin.probability)

    def log_ratio_max(self) -> float:
        return self.coin.log_odds + self.cap.log_odds_outside

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        return sphere_moments(self.cap, self.marginal)

    @property
    def _largest_coordinate(self) -> float:
        return 1 / self.marginal

    def dominating_pair(self) -> ShufflePair:
        """The own blanket, uniform on the sphere; opposite directions are the worst pair."""
        ratio, support = self._levels()
        return ShufflePair.two_level(ratio, support, 0.0, "PrivUnit's own blanket")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return two_level_witnesses(*self._levels(), 0.0)

    def _levels(self) -> tuple[float, float]:
        if self.local_epsilon > _LARGEST_EXPONENT:
            raise ValueError(
                f"local_epsilon must be at most {_LARGEST_EXPONENT:g} for a shuffled price"
            )
        return math.exp(self.log_ratio_max()), self.cap.measure

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        return _report(
            vectors, rows, words, self._flip_scale, np.uint64(self.coin.threshold),
            self.cap.threshold, float(self.fixed_point.largest), reports,
        )  # fmt: skip

    @property
    def _lengths_sent(self) -> tuple[np.ndarray, np.ndarray]:
        """One: a report pulls the mean by `radius / m` over the number of users, never further."""
        length = float(self.fixed_point.largest)
        return np.array([length]), np.array([self._off_by(length)])


def sphere_moments(cap: SphericalCap, marginal: float) -> tuple[float, float]:
    """A and B of E[Z Z^T] = A I + B u u^T for V uniform in a cap or uniform off it, Z = V/m.

    Whatever the odds of the cap: E<V, u>^2 = (1 + (d - 1) g m)/d.
    """
    g, d = cap.threshold, cap.dimension
    return (1 - g * marginal) / (d * marginal**2), g / marginal


@subroutine
def height_in_cap(g, dimension, words, at):  # type: ignore[no-untyped-def]
    """Inner product of a uniform unit vector with an axis, given that it is at least g."""
    if g * g * dimension < 1.0:
        t = -1.0
        while t < g and at <= words.size:
            t, at = height(dimension, words, at)
        return t, at
    while at + 2 <= words.size:
        w = -2.0 * math.log(uniform(words[at])) / (dimension - 1)
        # g^2 - (1 - g^2) expm1(-w) = 1 - (1 - g^2) e^-w
        t = math.sqrt(g * g - (1.0 - g) * (1.0 + g) * math.expm1(-w))
        at += 2
        if uniform(words[at - 1]) * t < g:
            return min(t, 1.0), at
    return g, words.size + 1


@subroutine
def height_off_cap(g, dimension, words, at):  # type: ignore[no-untyped-def]
    """Inner product of a uniform unit vector with an axis, given that it is below g."""
    t = 2.0
    while t >= g and at <= words.size:
        t, at = height(dimension, words, at)
    return t, at


@subroutine
def height(dimension, words, at):  # type: ignore[no-untyped-def]
    """Inner product of a uniform unit vector with an axis."""
    z, at = next_normal(words, at)
    half_rest, at = next_gamma((dimension - 1) / 2, words, at)
    return z / math.sqrt(z * z + 2.0 * half_rest), at


@subroutine
def blend(vector, length, normals, t, scale):  # type: ignore[no-untyped-def]
    """Coefficients (a, b): a vector + b normals has length `scale` and height t along the vector.

    Its direction is uniform given that height. A vector of length zero stands for the first axis,
    with coefficient a of that axis.
    """
    if length == 0.0:
        along, rest = normals[0], square_sum(normals[1:], 1.0)
        b = scale * math.sqrt((1.0 - t) * (1.0 + t)) / math.sqrt(rest)
        return scale * t - b * along, b
    along = inner_product(normals, vector) / length
    total = square_sum(normals, 1.0)
    rest = total - along * along
    if rest < _NARROW * total:  # a cancellation, in two or three dimensions
        rest = 0.0
        for j in range(normals.size):
            rest += (normals[j] - along * (vector[j] / length)) ** 2
    b = scale * math.sqrt((1.0 - t) * (1.0 + t)) / math.sqrt(rest)
    return (scale * t - b * along) / length, b


@subroutine
def write_blend(vector, length, normals, a, b, out):  # type: ignore[no-untyped-def]
    """Round a vector + b normals to the integers of `out`."""
    if length == 0.0:
        out[0] = np.rint(a + b * normals[0])
        for j in range(1, normals.size):
            out[j] = np.rint(b * normals[j])
    else:
        for j in range(normals.size):
            out[j] = np.rint(a * vector[j] + b * normals[j])


@kernel
def _report(vectors, rows, words, flip_scale, coin, g, scale, reports):  # type: ignore[no-untyped-def]
    d = vectors.shape[1]
    enough = np.ones(rows.size, dtype=np.bool_)
    normals, spare = np.empty(d), np.empty(d)
    scratch = np.empty(d + 1, dtype=np.int64)
    for i in range(rows.size):
        row = words[i]
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(row[0]))
        if row[1] < coin:
            t, at = height_in_cap(g, d, row, 2)
        else:
            t, at = height_off_cap(g, d, row, 2)
        at = fill_normals(row, at, normals, scratch)
        if at > row.size:
            enough[i] = False
            continue
        vector, length = tame(vector, length, spare)
        a, b = blend(vector, length, normals, sign * t, scale)
        write_blend(vector, length, normals, a, b, reports[rows[i]])
    return enough
