"""PrivUnitG: PrivUnit with a normal height, so that the parameters do not depend on dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.mean.directions import inner_product, signed_length, square_sum, tame
from beam_ldp.randomizers.mean.priv_unit import BUDGET_ROUNDING, CapCoin, FavouringMean
from beam_ldp.randomizers.mean.rounded_directions import write_rounded
from beam_ldp.randomizers.normals import fill_normals, next_normal, uniform
from beam_ldp.randomizers.special import brentq, lowest
from beam_ldp.randomizers.spherical_caps import expit, log1mexp
from beam_ldp.randomizers.words import kernel, subroutine

_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)
_FARTHEST_NORMAL = 12.0  # one in 1e32 lies beyond


@dataclass(frozen=True)
class NormalTail:
    """The tail {X >= t} of a standard normal X; `threshold` t >= 0.

    >>> round(NormalTail(0.0).log_odds_outside, 12)
    0.0
    """

    threshold: float

    @property
    def log_density(self) -> float:
        return -0.5 * self.threshold**2 - _LOG_SQRT_2PI

    @property
    def log_measure(self) -> float:
        """Log Q, Q = Pr[X >= t]."""
        return float(special.log_ndtr(-self.threshold))

    @property
    def measure(self) -> float:
        """Q; zero where it underflows."""
        return math.exp(self.log_measure)

    @property
    def log_odds_outside(self) -> float:
        """log((1 - Q) / Q)."""
        if self.threshold < 1:
            return 2 * math.atanh(math.erf(self.threshold / math.sqrt(2)))
        return log1mexp(self.log_measure) - self.log_measure

    def marginal(self, inside_probability: float) -> float:
        """E[X] where X lies in the tail with this probability and below it otherwise."""
        inside = math.exp(self.log_density - self.log_measure)
        outside = math.exp(self.log_density - log1mexp(self.log_measure))
        return inside_probability * inside - (1 - inside_probability) * outside

    def second_moment(self, inside_probability: float) -> float:
        """E[X^2] likewise: 1 + t E[X]."""
        return 1 + self.threshold * self.marginal(inside_probability)


def normal_moments(tail: NormalTail, marginal: float) -> tuple[float, float]:
    """A and B of E[Z Z^T] = A I + B u u^T for X in the tail or below it, m = E[X] given."""
    return 1 / marginal**2, tail.threshold / marginal


def limiting_threshold(epsilon: float) -> float:
    """The best threshold in infinitely many dimensions: the root of E[X] = t."""
    budget = -epsilon - log1mexp(-epsilon)

    def excess(t: float) -> float:
        tail = NormalTail(t)
        return math.log(t) + float(np.logaddexp(budget, tail.log_measure)) - tail.log_density

    high = 2 * math.sqrt(epsilon) + 3
    return brentq(excess, min(0.5, epsilon) * 1e-3, high, xtol=1e-300, rtol=1e-14)


def best_threshold(dimension: int, epsilon: float) -> float:
    """The threshold of least error in this dimension; below the limit by O(1/dimension)."""
    limit = limiting_threshold(epsilon)

    def error(t: float) -> float:
        tail = NormalTail(t)
        p = expit(epsilon - tail.log_odds_outside)
        return (dimension - 1 + tail.second_moment(p)) / tail.marginal(p) ** 2

    return lowest(error, limit / 4, limit, xtol=1e-9 * limit)


@dataclass(frozen=True)
class PrivUnitGaussian(FavouringMean):
    """PrivUnitG: like `PrivUnit`, but normal around the sphere instead of on it.

    The report is (X u + W)/m with W standard normal across u and X normal, conditioned to its
    upper tail or else to the rest. Its density has two levels against the normal law, whose ratio
    is e**local_epsilon for ideal real numbers. It protects the vector against everybody who sees
    the report. The error is above PrivUnit's by 9 % at dimension 128 and epsilon 16, 0.1 % at
    dimension 8192; what it offers is parameters in closed form.

    Reports, statistic and cost are those of `PrivUnit`; the length of a report is random.

    Source: Asi, Feldman and Talwar 2022; that the best threshold solves E[X] = t is our own.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: bits per reported coordinate.
        rounding: of coordinates, "nearest" or "random"; the latter is for few bits.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = PrivUnitGaussian(dimension=3, local_epsilon=4.0)
    >>> mechanism.randomize(np.array([[1.0, 0.0, 0.0]])).shape
    (1, 3)
    """

    also_known_as: ClassVar[str] = "PrivUnitG"
    blanket: ClassVar[str] = "PrivUnitG's own blanket"

    @cached_property
    def tail(self) -> NormalTail:
        """The favoured tail."""
        return NormalTail(best_threshold(self.dimension, self.local_epsilon))

    @property
    def favoured(self) -> NormalTail:
        return self.tail

    @cached_property
    def coin(self) -> CapCoin:
        """The coin that decides for the tail."""
        rounding = BUDGET_ROUNDING * max(1.0, self.local_epsilon)
        return CapCoin.spending(self.local_epsilon - rounding - self.tail.log_odds_outside)

    @cached_property
    def marginal(self) -> float:
        """m: the expected height of the report before scaling."""
        return self.tail.marginal(self.coin.probability)

    def log_ratio_max(self) -> float:
        return self.coin.log_odds + self.tail.log_odds_outside

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        return normal_moments(self.tail, self.marginal)

    @property
    def _longest_coordinate(self) -> float:
        return (self.tail.threshold + 2 * _FARTHEST_NORMAL) / self.marginal

    def _log_tail(self, coordinate: float) -> float:
        return math.log(2) + NormalTail(coordinate * self.marginal).log_measure

    @property
    def _longest(self) -> float:
        """Length that no report exceeds, in steps: what one user in 1e31 would send is cut to it.

        Across u a normal vector of d - 1 coordinates is longer than sqrt(d - 1) + s with chance
        e**(-s**2 / 2) at most; along u the height has a tail of its own.
        """
        along = self.tail.threshold + _FARTHEST_NORMAL
        across = math.sqrt(self.dimension - 1) + _FARTHEST_NORMAL
        return math.hypot(along, across) / (self.marginal * self._unit_step)

    @property
    def _longest_read(self) -> float:
        longest = self._off_by_rounding(self._longest)[1] if self._at_random else self._longest
        return longest * self.fixed_point.step

    @property
    def _lengths_sent(self) -> tuple[np.ndarray, np.ndarray]:
        """All up to the longest: a report pulls the mean by that over the number of users."""
        return np.zeros(1), np.array([self._off_by_rounding(self._longest)[1]])

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        scale = 1 / (self.marginal * self._unit_step)
        return _report(
            vectors, rows, words, self._flip_scale, np.uint64(self.coin.threshold),
            self.tail.threshold, scale, self._longest, float(self.fixed_point.largest),
            self._at_random, reports,
        )  # fmt: skip


@subroutine
def normal_above(t, words, at):  # type: ignore[no-untyped-def]
    """A normal given that it is at least t >= 0, and the position of the next word."""
    if t < 0.5:
        x = -1.0
        while x < t and at <= words.size:
            x, at = next_normal(words, at)
        return x, at
    while at + 2 <= words.size:
        x = math.sqrt(t * t - 2.0 * math.log(uniform(words[at])))
        at += 2
        if uniform(words[at - 1]) * x < t:
            return x, at
    return t, words.size + 1


@subroutine
def normal_below(t, words, at):  # type: ignore[no-untyped-def]
    """A normal given that it is below t >= 0, and the position of the next word."""
    x = t
    while x >= t and at <= words.size:
        x, at = next_normal(words, at)
    return x, at


@kernel
def _report(  # type: ignore[no-untyped-def]
    vectors, rows, words, flip_scale, coin, threshold, scale, longest, largest, at_random, reports
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
            x, at = normal_above(threshold, row, 2)
        else:
            x, at = normal_below(threshold, row, 2)
        at = fill_normals(row, at, normals, scratch)
        if at + coins > row.size:
            enough[i] = False
            continue
        vector, length = tame(vector, length, spare)
        along = normals[0] if length == 0.0 else inner_product(normals, vector) / length
        across = max(0.0, square_sum(normals, 1.0) - along * along)
        # Too long, or beyond the grid, once in 1e31: cut, whatever the vector.
        b = min(scale, longest / math.sqrt(x * x + across))
        a = b * (sign * x - along)
        if length == 0.0:
            normals[0] += a / b
        else:
            a /= length
        write_rounded(a, vector, b, normals, at_random, row, at, largest, reports[rows[i]])
    return enough
