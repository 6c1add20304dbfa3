"""Spherical caps: measure, moments, and the thresholds that spend a privacy budget on them.

U is uniform on the unit sphere of R^d and U1 its inner product with a fixed direction. A cap is
{U1 >= g}. In high dimension its measure underflows (d = 3,274,634, g = 0.055: e^-4966), so
everything is computed as a logarithm: the measure by the continued fraction of the incomplete
beta function (the modified Lentz method), to a relative 1e-10 for d from 2 to 1e7.

The fixed point m(g) = g that gives the best threshold follows from setting the derivative of
m(g) = (E - 1) T(g) / (1 + (E - 1) P(g)) to zero, with T' = -g f and P' = -f.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from beam_ldp.randomizers import special
from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.randomizers.special import brentq

_LOG_SQRT_PI = 0.5 * math.log(math.pi)
_STIRLING_FROM = 30.0
_CLOSEST_TO_ONE = 1.0 - 1e-12


@dataclass(frozen=True)
class SphericalCap:
    """The cap of unit vectors whose inner product with a direction is at least `threshold`.

    Attributes:
        dimension: of the surrounding space, at least 2.
        threshold: g, in [0, 1).

    >>> cap = SphericalCap(3, 0.5)  # in three dimensions the measure is (1 - g) / 2
    >>> round(math.exp(cap.log_measure), 12)
    0.25
    """

    dimension: int
    threshold: float

    def __post_init__(self) -> None:
        check_integer("dimension", self.dimension, 2)
        check_fraction("threshold", self.threshold, "[)")

    @cached_property
    def log_first_moment(self) -> float:
        """Log T, T = E[U1; U1 >= g]."""
        half = (self.dimension - 1) / 2
        g = self.threshold
        decay = half * (math.log1p(-(g * g)) if g < 0.7 else math.log((1 - g) * (1 + g)))
        return decay - math.log(2 * half) + log_density_constant(self.dimension)

    @cached_property
    def log_measure(self) -> float:
        """Log P, P = Pr[U1 >= g]."""
        if self._is_wide:
            return math.log(0.5 * (1.0 - self._central_measure))
        return self.log_first_moment + math.log(self.threshold) + self._log_fraction

    @property
    def measure(self) -> float:
        """P; zero where it underflows."""
        return math.exp(self.log_measure)

    @cached_property
    def log_odds_outside(self) -> float:
        """log((1 - P) / P): what a uniform draw from the cap, instead of from the rest, reveals."""
        if self._is_wide:
            return 2.0 * math.atanh(self._central_measure)
        return log1mexp(self.log_measure) - self.log_measure

    @property
    def mean_inside(self) -> float:
        """E[U1 | U1 >= g]."""
        return math.exp(self.log_first_moment - self.log_measure)

    @property
    def mean_outside(self) -> float:
        """E[U1 | U1 < g], at most zero."""
        return -math.exp(self.log_first_moment - log1mexp(self.log_measure))

    @property
    def second_moment(self) -> float:
        """E[U1^2; U1 >= g]."""
        moment = math.exp(self.log_first_moment)
        return (self.measure + (self.dimension - 1) * self.threshold * moment) / self.dimension

    def expected_marginal(self, inside_probability: float) -> float:
        """E<V, u> for V uniform in the cap around u with this probability, else uniform outside."""
        inside = inside_probability * self.mean_inside
        return inside + (1.0 - inside_probability) * self.mean_outside

    @property
    def _is_wide(self) -> bool:
        return self.threshold**2 * self.dimension < 4 and self.threshold < 0.7

    @property
    def _central_measure(self) -> float:
        """Pr[|U1| < g]; accurate where it is not close to one."""
        return float(special.betainc(0.5, (self.dimension - 1) / 2, self.threshold**2))

    @property
    def _log_fraction(self) -> float:
        """Log of P / (T g): the continued fraction 1/(1+ d1/(1+ d2/(1+ ...)))."""
        x = (1 - self.threshold) * (1 + self.threshold)
        return -math.log(_one_plus_continued_fraction((self.dimension - 1) / 2, x))


def cap_rounding(dimension: int) -> float:
    """Bound of what floating point adds to `log_odds_outside`, beside a rounding of its last digit.

    The continued fraction cancels: measured against 40 digits the error grows like 3e-17 times the
    dimension (1e-12 at 1e5, 9e-11 at 1e7). Three times that.
    """
    return 1e-16 * dimension


def _one_plus_continued_fraction(a: float, x: float) -> float:
    """1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function of a, 1/2 (modified Lentz)."""
    b = 0.5
    value, numerator, denominator = 1.0, 1.0, 0.0
    for n in range(1, 100_000):
        m = n // 2
        if n % 2:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1.0 / (1.0 + coefficient * denominator)
        numerator = 1.0 + coefficient / numerator
        change = numerator * denominator
        value *= change
        if abs(change - 1.0) < 1e-16:
            return value
    raise ArithmeticError("the continued fraction of the cap measure did not converge")


def log_density_constant(dimension: int) -> float:
    """Log K, where K (1 - t^2)^((d-3)/2) is the density of U1."""
    return log_gamma_half_step((dimension - 1) / 2) - _LOG_SQRT_PI


def log_gamma_half_step(a: float) -> float:
    """log(Gamma(a + 1/2) / Gamma(a)) without the cancellation of two large logarithms."""
    if a < _STIRLING_FROM:
        return math.lgamma(a + 0.5) - math.lgamma(a)
    r = 1.0 / (a * a)
    series = (-1 / 8 + r * (1 / 192 + r * (-1 / 640 + r * 17 / 14336))) / a
    return 0.5 * math.log(a) + series


def log1mexp(x: float) -> float:
    """log(1 - e^x) for x < 0."""
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def expit(x: float) -> float:
    """1 / (1 + e^-x)."""
    return float(special.expit(x))


# Thresholds ---------------------------------------------------------------------------------


def optimal_threshold(dimension: int, epsilon: float) -> float:
    """The threshold of least error at total budget `epsilon`: the root of m(g) = g.

    The coin that decides between cap and rest then spends what the cap leaves of the budget, and
    the mean squared error on a unit vector is 1/g^2 - 1, the least of all unbiased mechanisms
    (Asi, Feldman and Talwar 2022).
    """
    _check_epsilon(epsilon)
    budget = -epsilon - log1mexp(-epsilon)  # -log(E - 1)

    def excess(g: float) -> float:
        cap = SphericalCap(dimension, g)
        total = float(_logaddexp(budget, cap.log_measure))
        return math.log(g) + total - cap.log_first_moment

    low = min(0.5, epsilon * 1e-3) / math.sqrt(dimension)
    return _root(excess, low, _bracket_above(dimension, epsilon))


def threshold_for(dimension: int, epsilon: float) -> float:
    """The largest threshold whose cap alone reveals at most `epsilon`: log((1-P)/P) = epsilon."""
    _check_epsilon(epsilon)

    def excess(g: float) -> float:
        return SphericalCap(dimension, g).log_odds_outside - epsilon

    g = _root(excess, 0.0, _bracket_above(dimension, epsilon))
    while excess(g) > 0:
        g = math.nextafter(g, 0.0)
    return g


def sufficient_threshold(dimension: int, epsilon: float) -> float:
    """The largest threshold that meets either closed-form condition of Bhowmick et al., Theorem 1.

    For comparison with the paper: `threshold_for` is exact, this one leaves about 0.87 nats of
    the budget unused. Needs dimension >= 3 (the first condition is false in two dimensions).
    """
    _check_epsilon(epsilon)
    if dimension < 3:
        raise ValueError(f"dimension must be >= 3 for the paper's condition, got {dimension}")
    first = math.tanh(epsilon / 2) * math.sqrt(math.pi / (2 * (dimension - 1)))

    def excess(g: float) -> float:
        decay = (dimension - 1) / 2 * math.log1p(-g * g)
        return 0.5 * math.log(dimension) + math.log(6) - decay + math.log(g) - epsilon

    low = math.sqrt(2 / dimension)
    if excess(low) > 0:
        return first
    return max(first, _root(excess, low, _CLOSEST_TO_ONE))


def _bracket_above(dimension: int, epsilon: float) -> float:
    guess = 2.0 * math.sqrt(epsilon / dimension) + 3.0 / math.sqrt(dimension)
    return min(_CLOSEST_TO_ONE, guess)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    if function(high) <= 0:  # two or three dimensions and a huge budget: a cap of one point
        return high
    return brentq(function, low, high, xtol=1e-300, rtol=1e-14)


def _logaddexp(x: float, y: float) -> float:
    return max(x, y) + math.log1p(math.exp(-abs(x - y)))


def _check_epsilon(epsilon: float) -> None:
    check_positive("epsilon", epsilon)
