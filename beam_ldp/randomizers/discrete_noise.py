"""Noise on integers with its exact law: discrete Gaussians in shares, and discrete Laplace.

Sums of discrete Gaussians are not discrete Gaussians, but nearly: how nearly is a theorem, and so
is that a discrete Gaussian of large variance protects as the continuous one does.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.checks import check_integer

DRAW_DISTANCE = 2.0**-100  # at most, in total variation, of a draw from its law
LARGEST_DEVIATION = 1 << 16
_TAIL_BITS = 102  # of what the table leaves out on each side
_DIGITS = 70
_WORD = 64

# What rounding a continuous Gaussian takes of the variance; see `rounding_log_ratio`.
ROUNDED_VARIANCE = 3.0


@dataclass(frozen=True)
class DiscreteGaussian:
    """Integers x with probability proportional to exp(-x^2 / (2 deviation^2)).

    A draw compares 128 random bits with a table of cumulative probabilities: its law is within
    `DRAW_DISTANCE` of the ideal one. The second 64 bits are drawn where the first leave it open,
    about once in 2^64 draws for each entry of the table.

    Args:
        deviation: of the law, up to 65,536; the standard deviation, but for exp(-19 deviation^2).

    >>> words = np.array([[0, 1 << 62, 1 << 63, 3 << 62]], dtype=np.uint64)
    >>> DiscreteGaussian(10.0).draw(words, lambda rows, positions: np.zeros(len(rows), np.uint64))
    array([[-119,   -7,    0,    7]])
    """

    deviation: float

    def __post_init__(self) -> None:
        if not 0.5 <= self.deviation <= LARGEST_DEVIATION:
            raise ValueError(
                f"deviation must lie in [0.5, {LARGEST_DEVIATION}], got {self.deviation!r}"
            )

    @property
    def reach(self) -> int:
        """The largest number that is drawn; what lies beyond has chance 2^-101 at most."""
        return math.ceil(self.deviation * math.sqrt(2 * math.log(2) * _TAIL_BITS))

    def thresholds(self) -> tuple[int, ...]:
        """2^128 times the probabilities of at most -reach, -reach + 1, ..., reach."""
        return _thresholds(self.deviation, self.reach)

    def draw(self, words: NDArray[np.uint64], extra: ExtraWords) -> NDArray[np.int64]:
        """One integer for each word.

        Args:
            words: `(n, k)` uniform.
            extra: more words, given rows and positions; from position k on.
        """
        high, low = _halves(self.deviation, self.reach)
        found = np.searchsorted(high, words, side="right")
        open_ones = (found > 0) & (high[np.maximum(found, 1) - 1] == words)
        rows, columns = np.nonzero(open_ones)
        if rows.size:
            further = extra(rows, words.shape[1] + columns)
            for row, column, word in zip(rows.tolist(), columns.tolist(), further):
                last = int(found[row, column])
                first = int(np.searchsorted(high, words[row, column], side="left"))
                inside = np.searchsorted(low[first:last], word, side="right")
                found[row, column] = first + int(inside)
        return np.asarray(found - self.reach, dtype=np.int64)


@lru_cache(maxsize=8)
def _thresholds(deviation: float, reach: int) -> tuple[int, ...]:
    with localcontext() as context:
        context.prec = _DIGITS
        base = (-1 / (2 * Decimal(deviation) ** 2)).exp()
        weight, ratio, weights = Decimal(1), base, [10**_DIGITS]
        for _ in range(reach):  # exp(-(x + 1)^2 a) = exp(-x^2 a) exp(-(2 x + 1) a)
            weight *= ratio
            ratio *= base * base
            weights.append(int(weight * 10**_DIGITS))
    both = [*reversed(weights[1:]), *weights]
    total, running, found = sum(both), 0, []
    for count in both:
        running += count
        found.append((running << 2 * _WORD) // total)
    return tuple(found)


@lru_cache(maxsize=8)
def _halves(deviation: float, reach: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """High and low words of all thresholds but the last, which is 2^128."""
    thresholds, mask = _thresholds(deviation, reach)[:-1], (1 << _WORD) - 1
    high = np.array([threshold >> _WORD for threshold in thresholds], dtype=np.uint64)
    return high, np.array([threshold & mask for threshold in thresholds], dtype=np.uint64)


def _ripple(variance: float) -> float:
    """How far sum_y exp(-(y - c)^2/(2 variance)) is from its mean over c, at most, relatively.

    By Poisson's formula it is sqrt(2 pi variance) sum_k exp(-2 pi^2 variance k^2) cos(2 pi k c);
    k^2 >= 3k - 2 makes the sum geometric.
    """
    rate = 2 * math.pi**2 * variance
    return 2 * math.exp(-rate) / -math.expm1(-3 * rate)


_LISTED = 64


def sum_log_ratio(deviation: float, count: int) -> float:
    """How far the logarithm of the sum's law is from that of one discrete Gaussian, at most.

    Between the sum of `count` independent discrete Gaussians and the discrete Gaussian of `count`
    times the square of `deviation`, at every integer.

    Proof: the sum of two, of variances a and b, is z with probability proportional to
    exp(-z^2/(2(a + b))) times sum_y exp(-(y - c z)^2/(2t)), t = ab/(a + b): the second factor is a
    constant but for its ripple. Adding one after the other, t = deviation^2 k/(k + 1); ratios of
    laws do not grow by adding the same noise to both.

    Source: Kairouz, Liu and Steinke 2021, whose constant 10 is for a sum of ripples like this one.

    >>> sum_log_ratio(0.5, 2), sum_log_ratio(2.0, 10**6)
    (0.342..., 2.8...e-17)
    """
    check_integer("count", count, 1)

    def step(k: int) -> float:
        ripple = _ripple(deviation**2 * k / (k + 1))
        return 2 * math.atanh(ripple) if ripple < 1 else math.inf

    listed = min(count - 1, _LISTED)
    rest = count - 1 - listed
    further = rest * step(_LISTED) if rest else 0.0  # ripples shrink as k grows
    return math.fsum(step(k) for k in range(1, listed + 1)) + further


def rounding_log_ratio() -> float:
    """How far a rounded continuous Gaussian is from a discrete one, at most, in log probability.

    Round x to the integer z with probability proportional to exp(-(z - x)^2/(2 r)), with
    r = `ROUNDED_VARIANCE`. What a continuous Gaussian of variance s becomes is a discrete Gaussian
    of variance s + r, but for the ripple of sum_z exp(-(z - x)^2/(2 r)). Rounding commutes with
    whole numbers, so noise of variance s + r on integers protects as the continuous noise of
    variance s does, but for this (twice in epsilon, once in log delta).

    Source: the converse of Peikert 2010, Theorem 3.1 (convolutions of Gaussians on lattices).
    """
    return 2 * math.atanh(_ripple(ROUNDED_VARIANCE))


def drawn_log_ratio(deviation: float, count: int, reach: float) -> float:
    """How far the sum of `count` draws may fall below that of ideal ones, in log probability.

    At every integer within `reach` deviations of the sum, sqrt(count) times `deviation`. Infinite
    where nothing is proved, as of one draw.

    Proof: a table gives an integer i of its own a chance T(i) >= p(i) - 2^-127, and none to others.
    Given ideal draws of sum z, draws from tables are that likely a product of ratios T/p on
    average, which is at least 1 - count E[1 - T(X)/p(X)]^+, X one of them, of probability
    p(i) p_(n-1)(z - i)/p_n(z), p_n the law of a sum. With the bound of `sum_log_ratio` on p_n and
    p_(n-1), p_(n-1)(z - i)/p_n(z) is at most 2 exp(c |i|), c = |z|/((n - 1) deviation^2). On the
    table |i| is at most its `reach`, r, and the integers lose (2r + 1) 2^-127 exp(c r) twice;
    beyond it E[exp(c |X|)] is at most twice exp(-r^2/(2 deviation^2) + c r), since discrete
    Gaussians are sub-Gaussian: 2^-101 exp(c r), twice. All together at most count 2^-99 exp(c r).

    >>> drawn_log_ratio(64.0, 8000, 16.0), drawn_log_ratio(64.0, 1, 16.0)
    (1.0...e-25, inf)
    """
    check_integer("count", count, 1)
    if count == 1 or sum_log_ratio(deviation, count) > 0.1:
        return math.inf
    table = DiscreteGaussian(deviation).reach / deviation
    power = reach * math.sqrt(count) / (count - 1) * table
    lost = 2 * count * DRAW_DISTANCE * math.exp(power) if power < 60 else 1.0
    return -math.log1p(-lost) if lost < 1 else math.inf


# Discrete Laplace: integers only, no logarithm and no float is drawn -----------------------


Below = Callable[[int], int]


def discrete_laplace(rate: Fraction, below: Below = secrets.randbelow) -> int:
    """An integer z with probability (1 - p)/(1 + p) p^|z|, where p = e^-rate.

    Added to an integer that one person moves by s at most, it costs exactly epsilon = rate * s.

    Args:
        rate: a rational number > 0.
        below: draws an integer from 0 to m - 1 uniformly, given m; securely by default.

    Complexity: a few dozen words at the mean, whatever the rate. How long it takes depends on the
    noise a little, so that it is for a server whose clock nobody watches.

    Source: Canonne, Kamath and Steinke (2020), The discrete Gaussian for differential privacy,
    Algorithm 2.

    >>> all(isinstance(discrete_laplace(Fraction(1, 3)), int) for _ in range(10))
    True
    """
    if rate <= 0:
        raise ValueError(f"rate must be > 0, got {rate}")
    while True:
        rest = below(rate.denominator)
        if not _is_exponential(Fraction(rest, rate.denominator), below):
            continue
        whole = 0
        while _is_exponential(Fraction(1), below):
            whole += 1
        size = (rest + rate.denominator * whole) // rate.numerator
        negative = _coin(Fraction(1, 2), below)
        if size or not negative:  # or zero would come in two ways
            return -size if negative else size


def _is_exponential(exponent: Fraction, below: Below) -> bool:
    """True with probability e^-exponent, for an exponent of [0, 1]: von Neumann's way."""
    trials = 1
    while _coin(exponent / trials, below):
        trials += 1
    return trials % 2 == 1


def _coin(probability: Fraction, below: Below) -> bool:
    return below(probability.denominator) < probability.numerator
