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

Nothing grows with `n`: the number of nodes depends on the accuracy alone. Most of them tell
nothing, and are not evaluated. With any two values (tilted) `v, w` of one summand, of
probabilities `p, q`,

    |K(theta + i omega) / K(theta)|^2 <= 1 - 4 p q sin^2(omega (v - w) / 2),

(all pairs of them, summed, make it an equation). Of the likeliest and the one that varies most from
it, so that the n-th power is below `exp(-36)` unless omega is near a multiple of `2 pi / (v - w)`.
What is left out is bounded, and added.

Many laws with the same probabilities (the hockey stick at many epsilons) are evaluated at once.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Widths of the Gaussian over that of the sum; 0.004 widens the variance by 1.6e-5 of itself.
FINE = (0.004, 0.001)
MIDDLE = (0.004,)  # once, for curves whose knots are as far apart as bounds may be
COARSE = (0.03,)  # eight times cheaper: good enough to tell where to look for a root

_CLOSE = 0.02
_DECAY = 7.5  # exp(-7.5^2 / 2) = 6e-13: where frequencies are cut
_PERIOD = 12.0  # standard deviations between images of the trapezoidal rule
_LEFT_IMAGE = 28.0  # exp(-28): the image to the left
_FLAT = 36.0  # where log |K^n| is below minus that, nodes are left out
_AT_ONCE = 1 << 16  # angles, of 8 bytes: what a cache holds
_LARGER_TILTS = (0.5, 1.0, 2.0, 4.0, 8.0)
_LONGEST_STEP = 4.0  # of the search for it, in log(theta)
_SADDLE = 1e-10  # relative accuracy of theta, which any bound may be taken at

Array = NDArray[np.float64]


def positive_parts(
    values: Array, probability: Array, n: int, smoothings: tuple[float, ...] = FINE
) -> tuple[Array, Array]:
    """Logarithms of bounds of `E[max(S, 0)]`, which no double may hold, of many laws.

    Args:
        values: Shape (laws, kinds), each law with a value above zero.
        probability: Shape (kinds,), of all laws.
        n: Summands.
        smoothings: Widths of the Gaussian, tried until both bounds are close.

    Returns:
        Lower (minus infinity where none is found) and upper ones, of shape (laws,).
    """
    lines = _lines(values, probability, n)
    low, high = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    open_ones = np.arange(len(values))
    for smoothing in smoothings:
        below, above = _integrals(lines.at(open_ones), smoothing)
        low[open_ones] = np.maximum(low[open_ones], below)
        high[open_ones] = np.minimum(high[open_ones], above)
        apart = high[open_ones] - low[open_ones] > _CLOSE
        open_ones = open_ones[apart]
        if not len(open_ones):
            break
    return low, high


class _Lines(NamedTuple):
    """Vertical lines of integration, and the laws of one summand tilted onto them."""

    values: Array  # shape (laws, kinds)
    probability: Array  # shape (kinds,)
    n: int
    theta: Array  # shape (laws,), as all below but `tilted`
    log_mgf: Array  # of the sum, at theta
    tilted: Array  # shape (laws, kinds)
    mean: Array
    variance: Array  # of the sum, tilted
    width: Array  # of the integrand's transform

    def at(self, places: NDArray[np.intp]) -> _Lines:
        """Some of the lines."""
        return _Lines(
            self.values[places],
            self.probability,
            self.n,
            self.theta[places],
            self.log_mgf[places],
            self.tilted[places],
            self.mean[places],
            self.variance[places],
            self.width[places],
        )


def _lines(values: Array, probability: Array, n: int) -> _Lines:
    theta = _saddles(values, probability, n)
    powers = theta[:, None] * values
    tilted, mean, variance = _tilted(values, powers, probability)
    width = np.sqrt(n * variance + 2.0 / theta**2)
    log_mgf = n * _log_mean_exp(powers, probability)
    return _Lines(values, probability, n, theta, log_mgf, tilted, mean, n * variance, width)


def _tilted(values: Array, powers: Array, probability: Array) -> tuple[Array, Array, Array]:
    """The tilted law of one summand, its mean and variance."""
    tilted = probability * np.exp(powers - powers.max(axis=1, keepdims=True))
    tilted /= tilted.sum(axis=1, keepdims=True)
    mean = (tilted * values).sum(axis=1)
    return tilted, mean, (tilted * (values - mean[:, None]) ** 2).sum(axis=1)


def _integrals(lines: _Lines, smoothing: float) -> tuple[Array, Array]:
    """Log-bounds of E[max(S, 0)] from the trapezoidal rule with one width of the Gaussian."""
    theta = lines.theta
    tau = smoothing * lines.width
    cut = _DECAY / tau
    # |K(theta + i omega) / K(theta)|^n <= exp(-(2 / pi^2) omega^2 variance) as long as
    # omega * range <= pi, and the Gaussian has decayed where that ends.
    soon = tau * math.pi >= _DECAY * np.ptp(lines.values, axis=1)
    cut[soon] = np.minimum(cut[soon], _DECAY * math.pi / 2.0 / np.sqrt(lines.variance[soon]))
    period = np.maximum(_PERIOD * lines.width, _LEFT_IMAGE / theta)
    spacing = 2.0 * math.pi / period
    call, density = _trapezoids(lines, tau, spacing, np.ceil(cut / spacing).astype(np.int64))
    # Beyond the cut, and between it where nodes are left out: 1 / |z|^2 sums to pi / theta or less.
    left_out = math.exp(-0.5 * _DECAY**2) / (math.pi * cut) + math.exp(-_FLAT) / theta
    log_front = lines.log_mgf + 0.5 * (theta * tau) ** 2
    high = log_front + np.log(np.maximum(call, 0.0) + left_out)
    # Of the density all nodes left out count the same.
    flat = tau**2 * math.exp(-_FLAT) * (cut + 2.0 * spacing)
    below = call - tau**2 * density - flat - 2.0 * left_out - _images(lines, tau, period, log_front)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(below > 0.0, log_front + np.log(below), -np.inf)
    return low, high


def _trapezoids(
    lines: _Lines, tau: Array, spacing: Array, last: NDArray[np.int64]
) -> tuple[Array, Array]:
    """Integrals of the transform with and without 1 / z^2, nodes 0 to `last` times the spacing."""
    first, stop, owner = _windows(lines, spacing, last)
    lengths = stop - first
    call, density = np.zeros(len(tau)), np.zeros(len(tau))
    ends = np.cumsum(lengths) * lines.values.shape[1] // _AT_ONCE
    for part in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(ends)) + 1):
        length = lengths[part]
        offset = np.repeat(np.cumsum(length) - length - first[part], length)
        node = (np.arange(len(offset)) - offset).astype(np.float64)
        # The numbers of one law, as in most calls, do for all nodes.
        of: NDArray[np.intp] | int = np.repeat(owner[part], length) if len(tau) > 1 else 0
        omega = node * spacing[of]
        theta, mean = lines.theta[of], lines.mean[of]
        log_size, phase = _characteristic(omega, lines, of)
        phase += omega * (lines.n * mean + theta * tau[of] ** 2)
        size = np.exp(log_size - 0.5 * (omega * tau[of]) ** 2)
        size *= np.where(node > 0.0, 2.0, 1.0)  # the negative frequencies
        real = size * np.cos(phase)
        # Re(e^(i phase) / z^2) with z = theta + i omega.
        twice = real * (theta**2 - omega**2) + size * np.sin(phase) * (2.0 * theta * omega)
        twice /= (theta**2 + omega**2) ** 2
        law = np.broadcast_to(of, len(node))
        call += np.bincount(law, twice, len(tau))
        density += np.bincount(law, real, len(tau))
    scale = spacing / (2.0 * math.pi)
    return scale * call, scale * density


def _windows(
    lines: _Lines, spacing: Array, last: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.intp]]:
    """Ranges of nodes that are evaluated, and the law that each belongs to (see the module)."""
    rows = np.arange(len(last))
    one = np.argmax(lines.tilted, axis=1)
    gaps = np.abs(lines.values - lines.values[rows, one][:, None])
    other = np.argmax(lines.tilted * gaps**2, axis=1)
    gap = gaps[rows, other]
    both = lines.tilted[rows, one] * lines.tilted[rows, other]
    with np.errstate(divide="ignore"):
        largest = np.sqrt(_FLAT / (2.0 * lines.n * both))
    every = ~(largest < 1.0) | ~(gap > 0.0)
    apart = np.where(every, 1.0, 2.0 * math.pi / np.where(every, 1.0, gap) / spacing)  # in nodes
    half = np.where(every, last, apart * np.arcsin(np.minimum(largest, 1.0)) / math.pi)
    half = np.minimum(half, last)
    count = np.where(every, 1, np.floor((last + half) / apart).astype(np.int64) + 1)
    owner = np.repeat(rows, count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    centre = place * apart[owner]
    first = np.maximum(np.floor(centre - half[owner]), 0.0).astype(np.int64)
    stop = np.minimum(np.ceil(centre + half[owner]).astype(np.int64), last[owner]) + 1
    after = np.append(0, stop[:-1])
    first = np.where(place > 0, np.maximum(first, after), first)  # no node twice
    return first, np.maximum(stop, first), owner


def _saddles(values: Array, probability: Array, n: int) -> Array:
    """For each law the theta > 0 that minimises K(theta)^n / theta^2."""
    if len(values) == 1:
        return np.array([_saddle(values[0].tolist(), probability.tolist(), n)])

    def slopes(log_theta: Array) -> tuple[Array, Array]:
        """Of log(K^n / theta^2) by log theta, and its own slope."""
        powers = np.exp(log_theta)[:, None] * values
        _, mean, variance = _tilted(powers, powers, probability)
        return n * mean - 2.0, n * (mean + variance)

    least = 2.0 / (n * values.max(axis=1))  # no saddle lies below
    low, high = np.log(least), np.full(len(values), np.inf)
    found = np.log(np.maximum(_gaussian_saddles(values, probability, n), least))
    for _ in range(100):  # Newton's steps where they stay in the bracket, else its middle
        slope, curvature = slopes(found)
        low, high = np.where(slope < 0.0, found, low), np.where(slope < 0.0, high, found)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = found - slope / curvature
        inside = (step >= low) & (step <= high) & (np.abs(step - found) <= _LONGEST_STEP)
        middle = np.minimum(0.5 * (low + high), found + _LONGEST_STEP)
        following = np.where(inside, step, middle)
        done = np.abs(following - found) <= _SADDLE
        found = following
        if done.all():
            break
    return np.exp(found)


def _gaussian_saddles(values: Array, probability: Array, n: int) -> Array:
    """Where the Gaussians of the same mean and variance have them."""
    mean = values @ probability
    square = ((values - mean[:, None]) ** 2) @ probability
    reach = np.sqrt(mean * mean + 8.0 * square / n)
    with np.errstate(divide="ignore", invalid="ignore"):  # in the form that does not cancel
        return np.where(mean > 0.0, 4.0 / (n * (reach + mean)), (reach - mean) / (2.0 * square))


def _saddle(values: list[float], probability: list[float], n: int) -> float:
    """Of one law, as a search for a root asks for it: its few numbers are too few for arrays."""
    atoms = [(v, p) for v, p in zip(values, probability, strict=True) if p > 0.0]
    least = 2.0 / (n * max(v for v, _ in atoms))  # no saddle lies below
    mean = sum(p * v for v, p in atoms)
    square = sum(p * (v - mean) ** 2 for v, p in atoms)
    # Where the Gaussian of the same mean and variance has it, in the form that does not cancel.
    reach = math.sqrt(mean * mean + 8.0 * square / n)
    theta = 4.0 / (n * (reach + mean)) if mean > 0.0 else (reach - mean) / (2.0 * square)
    found, low, high = math.log(max(theta, least)), math.log(least), math.inf
    for _ in range(200):  # Newton's steps where they stay in the bracket, else its middle
        theta = math.exp(found)
        powers = [theta * v for v, _ in atoms]
        top = max(powers)
        weights = [p * math.exp(x - top) for x, (_, p) in zip(powers, atoms, strict=True)]
        total = sum(weights)
        mean = sum(w * x for w, x in zip(weights, powers, strict=True)) / total
        variance = sum(w * (x - mean) ** 2 for w, x in zip(weights, powers, strict=True)) / total
        slope, curvature = n * mean - 2.0, n * (mean + variance)
        low, high = (found, high) if slope < 0.0 else (low, found)
        following = found - slope / curvature if curvature > 0.0 else math.inf
        if not (low <= following <= high and abs(following - found) <= _LONGEST_STEP):
            following = min(0.5 * (low + high), found + _LONGEST_STEP)
        if abs(following - found) <= _SADDLE:
            return math.exp(following)
        found = following
    return math.exp(found)


def _log_mean_exp(powers: Array, probability: Array) -> Array:
    """Of the last axis."""
    top = powers.max(axis=-1)
    small = top < 700.0  # keeps all digits of a logarithm near 0, which is then multiplied by n
    with np.errstate(over="ignore"):
        near = np.log1p(np.expm1(np.where(small[..., None], powers, 0.0)) @ probability)
    if small.all():
        return np.asarray(near)
    far = top + np.log(np.exp(powers - top[..., None]) @ probability)
    return np.where(small, near, far)


def _characteristic(omega: Array, lines: _Lines, of: NDArray[np.intp] | int) -> tuple[Array, Array]:
    """Log-modulus and phase of the n-th power of the tilted, centred characteristic function."""
    real, imaginary = np.zeros(len(omega)), np.zeros(len(omega))
    centred = lines.values - lines.mean[:, None]
    for kind in range(centred.shape[1]):
        half, weight = 0.5 * omega * centred[of, kind], 2.0 * lines.tilted[of, kind]
        sine = np.sin(half)
        real -= weight * sine * sine
        imaginary += weight * sine * np.cos(half)
    with np.errstate(divide="ignore"):
        squared = np.maximum(2.0 * real + real**2 + imaginary**2, -1.0)
        log_size = 0.5 * lines.n * np.log1p(squared)
    return log_size, lines.n * np.arctan2(imaginary, 1.0 + real)


def _images(lines: _Lines, tau: Array, period: Array, log_front: Array) -> Array:
    """Bound, on the scale of the tilted integral, of what trapezoids add (see the module).

    With f(a) = E[max(S + N - a, 0)], the image at distance k * period is f(k period) exp(theta k
    period). To the left f(a) <= |a| + f(0); to the right a larger tilt bounds it.
    """
    theta = lines.theta
    decay = np.exp(-theta * period)
    with np.errstate(over="ignore", invalid="ignore"):
        # f(0) on this scale is at most 1 / (e theta), since x <= exp(theta x) / (e theta).
        left = np.exp(-log_front) * decay / (1.0 - decay) ** 2 * period
        left += decay / (1.0 - decay) / theta
    other = theta + np.array(_LARGER_TILTS)[:, None] / lines.width  # shape (tilts, laws)
    log_image = (
        lines.n * _log_mean_exp(other[:, :, None] * lines.values, lines.probability)
        + 0.5 * (other * tau) ** 2
        - log_front
        - (other - theta) * period
    )
    ratio = np.exp(-(other - theta) * period)
    right = np.exp(np.minimum(log_image, 0.0)) / (math.e * other) / (1.0 - ratio)
    return np.asarray(left + np.where(log_image < 0.0, right, np.inf).min(axis=0))
