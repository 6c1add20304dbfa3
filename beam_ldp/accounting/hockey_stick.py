"""The hockey-stick divergence of a shuffled batch, with a certified value on either side.

For a `ShufflePair` and `n` reports let `L = first ratio - e^eps * second ratio` under the blanket
law, and let `S` be the sum of `n` independent copies of `B * L`, `B ~ Bernoulli(blanket_mass)`.
Then

    delta(eps) = E[max(S, 0)] / (n * blanket_mass),

because the weight `1 / M` of the mixture over the crowd size `M = 1 + Bin(n - 1, blanket_mass)`
size-biases a `Bin(n, blanket_mass)`. So one sum of independent, identically distributed variables
with a handful of atoms is all there is to evaluate. Two ways:

* *Enumeration*, where the atoms other than the likeliest one occur rarely: exact up to rounding.
* *Inversion* of the moment generating function `K` along a vertical line `theta + i omega` through
  the saddle point: `E[max(S + N, 0)]` for an independent Gaussian `N` of tiny standard deviation
  `tau` is `(1 / 2 pi) * integral of K(z)^n exp(z^2 tau^2 / 2) / z^2`. By Jensen's inequality that
  is an upper bound of `E[max(S, 0)]`; it exceeds it by at most `tau^2` times the density of
  `S + N` at zero, which is the same integral without `1 / z^2`. The trapezoidal rule adds to the
  integral only positive terms (the values of the function one period away, by Poisson summation),
  so upper bounds stay upper bounds; for the lower bound these terms are bounded and subtracted.
  The saddle point keeps every digit at delta = 1e-15.

Nothing here grows with `n`: the number of nodes depends on the accuracy alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import gammaln
from scipy.stats import binom

from beam_ldp.randomizers.shuffle_pair import ShufflePair

MAX_REPORTS = 10**12

_ENUMERATED = 200_000  # configurations
_NEGLIGIBLE = 1e-24  # probability that enumeration leaves out, and accounts for
_SMOOTHING = 0.004  # of the standard deviation: widens the variance by 1.6e-5, epsilon by half that
_DECAY = 9.5  # exp(-9.5^2 / 2) = 2.5e-20: where frequencies are cut
_PERIOD = 24.0  # standard deviations between images of the trapezoidal rule
_ROUNDING = 1e-9  # relative allowance for floating-point rounding of a delta

Array = NDArray[np.float64]


class DeltaBounds(NamedTuple):
    """`lower <= delta <= upper` for the pair that was asked about."""

    lower: float
    upper: float


class _Law(NamedTuple):
    """The atoms of `B * (first, second)`; the likeliest atom comes first."""

    difference: Array  # first - second, kept apart since it may be tiny
    second: Array
    probability: Array


def hockey_stick(pair: ShufflePair, num_reports: int, epsilon: float) -> DeltaBounds:
    """Bounds of the least delta at `epsilon` for one victim among `num_reports` shuffled reports.

    The direction is that of the pair (first value against second); see `ShufflePair.swapped`.

    Args:
        pair: Dominating pair (the result bounds the mechanism's delta from above) or witness (it
            is that of two concrete data sets, hence bounds it from below).
        num_reports: Reports in the shuffled batch, the victim's included; 1 to 1e12.
        epsilon: Central epsilon >= 0.

    Returns:
        Lower and upper bound of delta, usually equal to 4 or more digits. The cost is a
        few milliseconds whatever `num_reports` is.

    >>> low, high = hockey_stick(ShufflePair.clones(4.0), 100_000, 0.16977)
    >>> 0.999e-6 < low <= high < 1.001e-6
    True
    """
    n = check_reports(num_reports)
    if not (math.isfinite(epsilon) and epsilon >= 0.0):
        raise ValueError(f"epsilon must be a finite number >= 0, got {epsilon!r}")
    law, scale = _law(pair), 1.0 / (n * pair.blanket_mass)
    step = math.expm1(min(epsilon, 700.0))
    values = law.difference - step * law.second
    if values.max() <= 0.0:
        return DeltaBounds(0.0, 0.0)
    listed = _enumeration(pair, n)
    if listed is None:
        low, high = _inverted(values, law.probability, n)
    else:
        low, high = listed.positive_part(step, float(values.max()))
    lower = min(1.0, low * scale * (1.0 - _ROUNDING))
    return DeltaBounds(max(0.0, lower), min(1.0, high * scale * (1.0 + _ROUNDING)))


def epsilon_bounds(pair: ShufflePair, num_reports: int, delta: float) -> tuple[float, float]:
    """Bounds of the least epsilon at `delta` (> 0) for the pair, lower and upper.

    >>> low, high = epsilon_bounds(ShufflePair.clones(4.0), 100_000, 1e-6)
    >>> round(high, 5), (high - low) / high < 1e-4
    (0.16977, True)
    """
    return (
        _epsilon(pair, num_reports, delta, upper=False),
        _epsilon(pair, num_reports, delta, upper=True),
    )


def largest_log_ratio(pair: ShufflePair) -> float:
    """The least epsilon at delta = 0: every report may be the telling one."""
    return max(
        math.log(first / second) if second > 0.0 else math.inf
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
        if p > 0.0 and first > 0.0
    )


def check_reports(num_reports: int) -> int:
    """The number of reports as an int, or a ValueError."""
    if isinstance(num_reports, bool) or not 1 <= num_reports <= MAX_REPORTS:
        raise ValueError(f"num_reports must be an integer in [1, 1e12], got {num_reports!r}")
    if num_reports != int(num_reports):
        raise ValueError(f"num_reports must be an integer in [1, 1e12], got {num_reports!r}")
    return int(num_reports)


@lru_cache(maxsize=4096)
def _epsilon(pair: ShufflePair, num_reports: int, delta: float, upper: bool) -> float:
    n, top = check_reports(num_reports), largest_log_ratio(pair)

    def excess(epsilon: float) -> float:
        found = hockey_stick(pair, n, epsilon)
        return math.log(max(found.upper if upper else found.lower, 1e-300) / delta)

    if top <= 0.0 or excess(0.0) <= 0.0:
        return 0.0
    low, high = _bracket(excess, _guess(pair, n, delta, top), top)
    if low == high:
        return top
    root = float(brentq(excess, low, high, xtol=1e-10 * high, rtol=1e-10))
    # A few steps outward: the root finder stops on either side.
    for away in (3e-10, 3e-9, 3e-8, 3e-7):
        moved = root * (1.0 + away if upper else 1.0 - away)
        if (excess(moved) <= 0.0) == upper:
            return min(moved, top)
    return high if upper else low


def _guess(pair: ShufflePair, n: int, delta: float, top: float) -> float:
    """The Gaussian limit, good enough to start a bracket from."""
    spread = sum(
        p * (first - second) ** 2
        for (first, second), p in zip(pair.ratios, pair.probabilities, strict=True)
    )
    mu = math.sqrt(spread / (n * pair.blanket_mass))
    return min(0.9 * top, mu * math.sqrt(2.0 * math.log(1.0 + 0.4 / delta)) + 0.5 * mu * mu)


def _bracket(excess: Callable[[float], float], guess: float, top: float) -> tuple[float, float]:
    """Two epsilons around the root; twice `top` if only pure privacy reaches it."""
    low = high = guess
    if excess(guess) > 0.0:
        while True:
            low, high = high, min(top, high * 1.5)
            if high >= top:
                inside = top * (1.0 - 1e-9)
                return (top, top) if low >= inside or excess(inside) > 0.0 else (low, inside)
            if excess(high) <= 0.0:
                return low, high
    while True:
        low, high = low / 1.5, low
        if excess(low) > 0.0:
            return low, high


@lru_cache(maxsize=4096)
def _law(pair: ShufflePair) -> _Law:
    ratios = np.array(pair.ratios, dtype=np.float64)
    probability = np.array(pair.probabilities, dtype=np.float64)
    kept = probability > 0.0
    ratios, probability = ratios[kept], probability[kept] / probability[kept].sum()
    ratios = ratios / (probability @ ratios)  # means of exactly 1 up to the last bit
    first, second = ratios[:, 0], ratios[:, 1]
    if not pair.is_witness:
        first, second = np.append(first, 0.0), np.append(second, 0.0)
        probability = np.append(probability * pair.blanket_mass, 1.0 - pair.blanket_mass)
    order = np.argsort(-probability, kind="stable")
    return _Law((first - second)[order], second[order], probability[order])


class _Listed(NamedTuple):
    """Every configuration of the rarer atoms: sums, probabilities, and the tail left out."""

    difference: Array
    second: Array
    probability: Array
    left_out: float  # bound of E[number of blanket reports; left out]

    def positive_part(self, step: float, largest: float) -> tuple[float, float]:
        sums = self.difference - step * self.second
        positive = sums > 0.0
        low = float(np.sum(sums[positive] * self.probability[positive]))
        return low, low + self.left_out * largest


@lru_cache(maxsize=32)
def _enumeration(pair: ShufflePair, n: int) -> _Listed | None:
    law = _law(pair)
    rare = max(0.0, 1.0 - float(law.probability[0]))
    kinds = len(law.probability) - 1
    most = n if rare >= 1.0 else min(n, int(binom.isf(_NEGLIGIBLE, n, rare)) + 2)
    if math.comb(most + kinds, kinds) > _ENUMERATED:
        return None
    counts = np.zeros((1, 0), dtype=np.int64)
    room = np.array([most])
    for _ in range(kinds):
        choices = room + 1
        owner = np.repeat(np.arange(len(room)), choices)
        taken = np.arange(len(owner)) - np.repeat(np.cumsum(choices) - choices, choices)
        counts = np.column_stack([counts[owner], taken])
        room = room[owner] - taken
    total = counts.sum(axis=1)
    log_weight = _log_falling(n, total) - gammaln(counts + 1.0).sum(axis=1)
    log_weight += counts @ np.log(law.probability[1:])
    if kinds:
        log_weight += (n - total) * math.log1p(-rare)
    every = np.column_stack([n - total, counts])
    # E[M'; more than `most` rare atoms] <= n * blanket_mass * Pr[Bin(n - 1, rare) >= most].
    tail = float(binom.sf(most - 1, n - 1, rare)) if most < n else 0.0
    return _Listed(
        every @ law.difference,
        every @ law.second,
        np.exp(log_weight),
        n * pair.blanket_mass * tail,
    )


def _log_falling(n: int, taken: NDArray[np.int64]) -> Array:
    """log(n! / (n - taken)!) without the cancellation of two large log-factorials."""
    steps = np.log(np.arange(n, n - int(taken.max()), -1, dtype=np.float64))
    return np.concatenate([[0.0], np.cumsum(steps)])[taken]


def _inverted(values: Array, probability: Array, n: int) -> tuple[float, float]:
    """Bounds of E[max(S, 0)] for the sum S of n draws of `values`."""
    theta = _saddle(values, probability, n)
    powers = theta * values
    log_mgf = n * _log_mean_exp(powers, probability)
    tilted = probability * np.exp(powers - powers.max())
    tilted /= tilted.sum()
    mean = float(tilted @ values)
    centred = values - mean
    variance = n * float(tilted @ centred**2)
    width = math.sqrt(variance + 2.0 / theta**2)
    span = float(values.max() - values.min())
    tau = _SMOOTHING * width
    if tau * math.pi >= _DECAY * span:
        # |K(theta + i omega) / K(theta)|^n <= exp(-(2 / pi^2) omega^2 variance) as long as
        # omega * span <= pi, and the Gaussian has decayed where that ends.
        cut = min(_DECAY / tau, _DECAY * math.pi / 2.0 / math.sqrt(variance))
    else:
        cut = _DECAY / tau
    period = max(_PERIOD * width, 40.0 / theta)
    spacing = 2.0 * math.pi / period
    omega = spacing * np.arange(math.ceil(cut / spacing) + 1)
    log_size, phase = _characteristic(omega, centred, tilted, n)
    phase += omega * (n * mean + theta * tau**2)
    log_size -= 0.5 * (omega * tau) ** 2
    transform = np.exp(log_size) * np.exp(1j * phase)
    transform[1:] *= 2.0  # the negative frequencies
    scale = spacing / (2.0 * math.pi)
    z = theta + 1j * omega
    call = scale * float(np.sum((transform / z**2).real))
    density = scale * float(np.sum(transform.real))
    frequencies_cut = math.exp(-0.5 * _DECAY**2) / (math.pi * cut)
    log_front = log_mgf + 0.5 * (theta * tau) ** 2
    high = math.exp(log_front + math.log(max(call, 0.0) + frequencies_cut))
    low_part = call - tau**2 * (density + frequencies_cut * cut**2) - frequencies_cut
    low_part -= _images(values, probability, n, theta, tau, period, width, log_front)
    low = math.exp(log_front + math.log(low_part)) if low_part > 0.0 else 0.0
    return low, high


def _saddle(values: Array, probability: Array, n: int) -> float:
    """The theta > 0 that minimises K(theta)^n / theta^2."""

    def slope(log_theta: float) -> float:
        theta = math.exp(log_theta)
        powers = theta * values
        weights = probability * np.exp(powers - powers.max())
        return n * float(weights @ powers) / float(weights.sum()) - 2.0

    largest = float(values.max())
    start = math.log(2.0 / (n * largest))
    low, high = start - 1.0, start + 1.0
    while slope(low) > 0.0:
        low -= 4.0
    while slope(high) < 0.0:
        high += 4.0
    return math.exp(float(brentq(slope, low, high, xtol=1e-4)))


def _log_mean_exp(powers: Array, probability: Array) -> float:
    top = float(powers.max())
    if top < 1.0:  # keeps all digits of a logarithm near 0
        return math.log1p(float(probability @ np.expm1(powers)))
    return top + math.log(float(probability @ np.exp(powers - top)))


def _characteristic(
    omega: Array, centred: Array, tilted: Array, n: int
) -> tuple[Array, Array]:
    """Log-modulus and phase of the n-th power of the tilted, centred characteristic function."""
    angles = np.outer(omega, centred)
    real = -2.0 * np.sin(0.5 * angles) ** 2 @ tilted
    imaginary = np.sin(angles) @ tilted
    with np.errstate(divide="ignore"):
        squared = np.maximum(2.0 * real + real**2 + imaginary**2, -1.0)
        log_size = 0.5 * n * np.log1p(squared)
    return log_size, n * np.arctan2(imaginary, 1.0 + real)


def _images(
    values: Array,
    probability: Array,
    n: int,
    theta: float,
    tau: float,
    period: float,
    width: float,
    log_front: float,
) -> float:
    """Bound, on the scale of the tilted integral, of what trapezoids add (see the module).

    With f(a) = E[max(S + N - a, 0)], the image at distance k * period is f(k period) exp(theta k
    period). To the left f(a) <= |a| + f(0); to the right a larger tilt bounds it.
    """
    decay = math.exp(-theta * period)
    upper = 1.0 / theta  # f(0) on this scale is at most 1 / (e theta)
    left = math.exp(-log_front) if log_front > -700.0 else math.inf
    left = left * decay / (1.0 - decay) ** 2 * period + upper * decay / (1.0 - decay)
    right = math.inf
    for more in (0.5, 1.0, 2.0, 4.0, 8.0):
        other = theta + more / width
        log_image = (
            n * _log_mean_exp(other * values, probability)
            + 0.5 * (other * tau) ** 2
            - log_front
            - (other - theta) * period
        )
        if log_image < 0.0:
            right = min(right, math.exp(log_image) / (math.e * other) / (1.0 - math.exp(-more)))
    return left + right
