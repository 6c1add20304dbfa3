"""Tail expectations of sums of independent, identically distributed variables with few atoms.

`E[max(S + N, 0)]`, for an independent Gaussian `N` of tiny standard deviation `tau`, is
`(1 / 2 pi) * integral of K(z)^n exp(z^2 tau^2 / 2) / z^2` along `z = theta + i omega`, where `K` is
the moment generating function of one summand and `theta > 0` its saddle point, which keeps every
digit of expectations as small as 1e-15 of the scale.

By Jensen's inequality that is an upper bound of `E[max(S, 0)]`. It exceeds it by at most `tau^2`
times the density of `S + N` at zero, which is the same integral without `1 / z^2`: that gives the
lower bound. The trapezoidal rule adds to the integral only positive terms (the values of the
function one period away, by Poisson summation), so upper bounds stay upper bounds; for the lower
bound these terms are bounded and subtracted.

Nothing grows with `n`: the number of nodes depends on the accuracy alone.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

# Widths of the Gaussian over that of the sum; 0.004 widens the variance by 1.6e-5 of itself.
FINE = (0.004, 0.001)
COARSE = (0.03,)  # eight times cheaper: good enough to tell where to look for a root

_CLOSE = 0.02
_DECAY = 7.5  # exp(-7.5^2 / 2) = 6e-13: where frequencies are cut
_PERIOD = 16.0  # standard deviations between images of the trapezoidal rule
_LEFT_IMAGE = 30.0  # exp(-30): the image to the left

Array = NDArray[np.float64]


def positive_part(
    values: Array, probability: Array, n: int, smoothings: tuple[float, ...] = FINE
) -> tuple[float, float]:
    """Lower and upper bound of E[max(S, 0)] for the sum S of n independent draws.

    Args:
        values: What one draw can be, shape (kinds,), float64; one of them positive.
        probability: How likely each is, same shape.
        n: Number of draws.
        smoothings: Widths of the Gaussian, coarsest first; a finer one is tried while the bounds
            differ by more than 2 %.
    """
    line = _line(values, probability, n)
    low, high = 0.0, math.inf
    for smoothing in smoothings:
        bounds = _integral(line, smoothing)
        low, high = max(low, bounds[0]), min(high, bounds[1])
        if high - low <= _CLOSE * high:
            break
    return low, high


class _Line(NamedTuple):
    """The vertical line of integration and the law of one summand tilted onto it."""

    values: Array
    probability: Array
    n: int
    theta: float
    log_mgf: float  # of the sum, at theta
    tilted: Array
    mean: float
    variance: float  # of the sum, tilted
    width: float  # of the integrand's transform


def _line(values: Array, probability: Array, n: int) -> _Line:
    theta = _saddle(values, probability, n)
    powers = theta * values
    tilted = probability * np.exp(powers - powers.max())
    tilted /= tilted.sum()
    mean = float(tilted @ values)
    variance = n * float(tilted @ (values - mean) ** 2)
    width = math.sqrt(variance + 2.0 / theta**2)
    log_mgf = n * _log_mean_exp(powers, probability)
    return _Line(values, probability, n, theta, log_mgf, tilted, mean, variance, width)


def _integral(line: _Line, smoothing: float) -> tuple[float, float]:
    """Bounds of E[max(S, 0)] from the trapezoidal rule with one width of the Gaussian."""
    theta, n = line.theta, line.n
    tau = smoothing * line.width
    cut = _DECAY / tau
    if tau * math.pi >= _DECAY * float(np.ptp(line.values)):
        # |K(theta + i omega) / K(theta)|^n <= exp(-(2 / pi^2) omega^2 variance) as long as
        # omega * range <= pi, and the Gaussian has decayed where that ends.
        cut = min(cut, _DECAY * math.pi / 2.0 / math.sqrt(line.variance))
    period = max(_PERIOD * line.width, _LEFT_IMAGE / theta)
    spacing = 2.0 * math.pi / period
    omega: Array = spacing * np.arange(math.ceil(cut / spacing) + 1, dtype=np.float64)
    log_size, phase = _characteristic(omega, line.values - line.mean, line.tilted, n)
    phase += omega * (n * line.mean + theta * tau**2)
    transform = np.exp(log_size - 0.5 * (omega * tau) ** 2 + 1j * phase)
    transform[1:] *= 2.0  # the negative frequencies
    scale = spacing / (2.0 * math.pi)
    call = scale * float(np.sum((transform / (theta + 1j * omega) ** 2).real))
    density = scale * float(np.sum(transform.real))
    frequencies_cut = math.exp(-0.5 * _DECAY**2) / (math.pi * cut)
    log_front = line.log_mgf + 0.5 * (theta * tau) ** 2
    high = math.exp(log_front + math.log(max(call, 0.0) + frequencies_cut))
    below = call - tau**2 * density - 2.0 * frequencies_cut
    below -= _images(line, tau, period, log_front)
    return math.exp(log_front + math.log(below)) if below > 0.0 else 0.0, high


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
    if top < 700.0:  # keeps all digits of a logarithm near 0, which is then multiplied by n
        return math.log1p(float(probability @ np.expm1(powers)))
    return top + math.log(float(probability @ np.exp(powers - top)))


def _characteristic(omega: Array, centred: Array, tilted: Array, n: int) -> tuple[Array, Array]:
    """Log-modulus and phase of the n-th power of the tilted, centred characteristic function."""
    angles = np.outer(omega, centred)
    real = -2.0 * np.sin(0.5 * angles) ** 2 @ tilted
    imaginary = np.sin(angles) @ tilted
    with np.errstate(divide="ignore"):
        squared = np.maximum(2.0 * real + real**2 + imaginary**2, -1.0)
        log_size = 0.5 * n * np.log1p(squared)
    return log_size, n * np.arctan2(imaginary, 1.0 + real)


def _images(line: _Line, tau: float, period: float, log_front: float) -> float:
    """Bound, on the scale of the tilted integral, of what trapezoids add (see the module).

    With f(a) = E[max(S + N - a, 0)], the image at distance k * period is f(k period) exp(theta k
    period). To the left f(a) <= |a| + f(0); to the right a larger tilt bounds it.
    """
    theta = line.theta
    decay = math.exp(-theta * period)
    # f(0) on this scale is at most 1 / (e theta), since x <= exp(theta x) / (e theta).
    left = math.exp(-log_front) if log_front > -700.0 else math.inf
    left = left * decay / (1.0 - decay) ** 2 * period + decay / (1.0 - decay) / theta
    right = math.inf
    for more in (0.5, 1.0, 2.0, 4.0, 8.0):
        other = theta + more / line.width
        log_image = (
            line.n * _log_mean_exp(other * line.values, line.probability)
            + 0.5 * (other * tau) ** 2
            - log_front
            - (other - theta) * period
        )
        if log_image < 0.0:
            ratio = math.exp(-(other - theta) * period)
            right = min(right, math.exp(log_image) / (math.e * other) / (1.0 - ratio))
    return left + right
