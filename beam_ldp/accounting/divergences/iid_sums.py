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
nothing, and are not evaluated. With the values (tilted) `v, w, ...` of one summand, of
probabilities `p, q, ...`,

    |K(theta + i omega) / K(theta)|^2 = 1 - 4 sum of p q sin^2(omega (v - w) / 2) over all pairs,

of which any few make it an upper bound. Those of the likeliest value with the two that vary most
from it are taken. Where they are below `exp(-40)` of the first node, with the other factors of the
integrand, which is nearly everywhere but near multiples of both periods `2 pi / (v - w)` at once,
nodes are left out. What they may hold is bounded, and added.

Many laws (the hockey stick at many epsilons, or prices of many releases) are evaluated at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
_FLAT = 40.0  # nodes are left out where the integrand is below exp(-40) of that at 0
_LEAST_APART = 1.0  # n p q of two values between whose peaks something is left out
_AT_ONCE = 1 << 15  # angles, of 8 bytes: what a cache holds
_LARGER_TILTS = (0.5, 1.0, 2.0, 4.0, 8.0)
_LONGEST_STEP = 4.0  # of the search for it, in log(theta)
_SADDLE = 1e-10  # relative accuracy of theta, which any bound may be taken at

Array = NDArray[np.float64]
Places = NDArray[np.int64]


def positive_parts(
    values: Array,
    probability: Array,
    n: int | Array,
    smoothings: tuple[float, ...] = FINE,
    *,
    lower: bool = True,
) -> tuple[Array, Array]:
    """Logarithms of bounds of `E[max(S, 0)]`, which no double may hold, of many laws.

    Args:
        values: Shape (laws, kinds), each law with a value above zero.
        probability: Shape (laws, kinds), or (kinds,) of all laws.
        n: Summands; of all laws, or of shape (laws,).
        smoothings: Widths of the Gaussian, tried until both bounds are close.
        lower: Whether lower bounds are wanted, without which only the first width is tried.

    Returns:
        Lower (minus infinity where none is found) and upper ones, of shape (laws,).
    """
    lines = _lines(values, np.broadcast_to(probability, values.shape), n)
    low, high = np.full(len(values), -np.inf), np.full(len(values), np.inf)
    open_ones = np.arange(len(values))
    for smoothing in smoothings if lower else smoothings[:1]:
        below, above = _integrals(lines.at(open_ones), smoothing, lower)
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
    probability: Array  # likewise
    n: Array  # shape (laws,), as all below but `gaps` and `others`
    theta: Array
    log_mgf: Array  # of the sum, at theta
    likeliest: Array  # value, tilted
    gaps: Array  # from it to the other values, shape (laws, kinds - 1)
    others: Array  # probabilities of those, tilted
    variance: Array  # of the sum, tilted
    width: Array  # of the integrand's transform

    def at(self, places: Places) -> _Lines:
        """Some of the lines."""
        return self if len(places) == len(self.n) else _Lines(*(each[places] for each in self))


def _lines(values: Array, probability: Array, n: int | Array) -> _Lines:
    counts = np.broadcast_to(np.asarray(n, dtype=np.float64), len(values))
    theta = _saddles(values, probability, counts)
    powers = theta[:, None] * values
    tilted, _, variance = _tilted(values, powers, probability)
    variance = counts * variance
    width = np.sqrt(variance + 2.0 / theta**2)
    log_mgf = counts * _log_mean_exp(powers, probability)
    one = np.argmax(tilted, axis=1)[:, None]
    rest = np.arange(values.shape[1] - 1) + (np.arange(values.shape[1] - 1) >= one)
    likeliest = np.take_along_axis(values, one, axis=1)
    gaps = np.take_along_axis(values, rest, axis=1) - likeliest
    others = np.take_along_axis(tilted, rest, axis=1)
    return _Lines(
        values, probability, counts, theta, log_mgf, likeliest[:, 0], gaps, others, variance, width
    )


def _tilted(values: Array, powers: Array, probability: Array) -> tuple[Array, Array, Array]:
    """The tilted law of one summand, its mean and variance."""
    tilted = probability * np.exp(powers - powers.max(axis=1, keepdims=True))
    tilted /= tilted.sum(axis=1, keepdims=True)
    mean = (tilted * values).sum(axis=1)
    return tilted, mean, (tilted * (values - mean[:, None]) ** 2).sum(axis=1)


def _integrals(lines: _Lines, smoothing: float, lower: bool) -> tuple[Array, Array]:
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
    last = np.ceil(cut / spacing).astype(np.int64)
    call, density = _trapezoids(lines, tau, spacing, last, lower)
    # Beyond the cut; and between it what nodes left out may hold, exp(-_FLAT) / theta^2 each.
    reach = cut + 2.0 * spacing
    flat = math.exp(-_FLAT) * reach / (math.pi * theta**2)
    left_out = math.exp(-0.5 * _DECAY**2) / (math.pi * cut) + flat
    log_front = lines.log_mgf + 0.5 * (theta * tau) ** 2
    high = log_front + np.log(np.maximum(call, 0.0) + left_out)
    if not lower:
        return np.full(len(high), -np.inf), high
    # Of the density they may hold theta^2 + omega^2 times that.
    flat *= tau**2 * (theta**2 + reach**2)
    below = call - tau**2 * density - flat - 2.0 * left_out - _images(lines, tau, period, log_front)
    with np.errstate(divide="ignore", invalid="ignore"):
        low = np.where(below > 0.0, log_front + np.log(below), -np.inf)
    return low, high


def _trapezoids(
    lines: _Lines, tau: Array, spacing: Array, last: Places, lower: bool
) -> tuple[Array, Array]:
    """Integrals of the transform with and without 1 / z^2, nodes 0 to `last` times the spacing.

    Without: only where it is wanted for lower bounds.
    """
    laws = len(tau)
    first, stop, owner = _windows(lines, tau, spacing, last)
    lengths = stop - first
    call, density = np.zeros(laws), np.zeros(laws)
    ends = np.cumsum(lengths) * lines.values.shape[1] // _AT_ONCE
    drift = lines.n * lines.likeliest + lines.theta * tau**2
    for part in np.split(np.arange(len(lengths)), np.flatnonzero(np.diff(ends)) + 1):
        length, law = lengths[part], owner[part]

        def each(numbers: Array, length: Places = length, law: Places = law) -> Array:
            """Of the law of each node; of one law, as in most calls, it does for all nodes."""
            return np.repeat(numbers[law], length) if laws > 1 else numbers

        starts = np.cumsum(length) - length
        node = np.arange(float(length.sum())) - np.repeat((starts - first[part]) * 1.0, length)
        omega, theta = node * each(spacing), each(lines.theta)
        log_size, phase = _characteristic(omega, lines, each)
        square = omega * omega
        size = np.exp(log_size - square * each(0.5 * tau**2))
        size[node == 0.0] *= 0.5  # the others stand for the negative frequencies too
        # Cosine and sine by the tangent of the half, which is several times sooner computed.
        tangent = np.tan(0.5 * (phase + omega * each(drift)))
        sine = size * tangent / (1.0 + tangent * tangent)  # half of it, times the size
        cosine = size - 2.0 * sine * tangent
        # Re(e^(i phase) / z^2) with z = theta + i omega.
        norm = theta**2 + square
        both = (cosine * (theta**2 - square) + 4.0 * sine * theta * omega) / (norm * norm)
        call += np.bincount(law, np.add.reduceat(both, starts), laws)
        if lower:
            density += np.bincount(law, np.add.reduceat(cosine, starts), laws)
    return spacing / math.pi * call, spacing / math.pi * density


def _windows(
    lines: _Lines, tau: Array, spacing: Array, last: Places
) -> tuple[Places, Places, Places]:
    """Ranges of nodes that are evaluated, and the law that each belongs to (see the module)."""
    rows = np.arange(len(last))
    weight = lines.others * lines.gaps**2
    one = np.argmax(weight, axis=1)
    weight[rows, one] = 0.0
    two = np.argmax(weight, axis=1)
    gap, next_gap = np.abs(lines.gaps[rows, one]), np.abs(lines.gaps[rows, two])
    each = 2.0 * lines.n * (1.0 - lines.others.sum(axis=1))
    strength = each * lines.others[rows, one]
    next_strength = np.where(two == one, 0.0, each * lines.others[rows, two])
    every = ~(strength > 2.0 * _LEAST_APART) | ~(gap > 0.0)
    with np.errstate(divide="ignore"):
        apart = np.where(every, np.inf, 2.0 * math.pi / gap)
    count = (last * spacing / apart + 1.5).astype(np.int64)  # each reaches half way to the next
    law = np.repeat(rows, count)
    place = np.arange(len(law)) - np.repeat(np.cumsum(count) - count, count)
    apart, width = apart[law], spacing[law]
    with np.errstate(invalid="ignore", divide="ignore"):
        centre = np.where(place > 0, place * apart, 0.0)
        least = np.where(place > 0, centre - 0.5 * apart, 0.0)
        room = _FLAT - 0.5 * (least * tau[law]) ** 2 - np.log1p((least / lines.theta[law]) ** 2)
        share = np.sqrt(np.clip(room / strength[law], 0.0, 1.0))
        half = np.where(np.isinf(apart), last[law] * width, apart * np.arcsin(share) / math.pi)
        # Of both pairs of values, with sin(x)^2 >= x^2 - x^4 / 3: a parabola from `lowest` on.
        turn = 0.5 * next_gap[law]
        away = centre - np.round(centre * turn / math.pi) * math.pi / turn
        first_bend = strength[law] * _bend(0.5 * gap[law], half)
        next_bend = next_strength[law] * _bend(turn, half + np.abs(away))
        bend = first_bend + next_bend
        lowest = first_bend * next_bend * away**2 / bend
        radius = np.sqrt(np.maximum(room - lowest, 0.0) / bend)
        shift = -next_bend * away / bend
        # Where that says nothing it is not a number, and left out of these.
        left, right = np.fmax(-half, shift - radius), np.fmin(half, shift + radius)
        kept = (room > 0.0) & ~(lowest > room)
    first = np.maximum(np.floor((centre + left) / width), 0.0).astype(np.int64)
    stop = np.minimum(np.ceil((centre + right) / width), last[law]).astype(np.int64) + 1
    first[1:] = np.where(place[1:] > 0, np.maximum(first[1:], stop[:-1]), first[1:])  # none twice
    kept &= stop > first
    return first[kept], stop[kept], law[kept]


def _bend(rate: Array, reach: Array) -> Array:
    """By how much of x^2 the square of sin(rate x) is at least, up to `reach`."""
    return rate**2 * np.maximum(1.0 - (rate * reach) ** 2 / 3.0, 0.0)


def _saddles(values: Array, probability: Array, n: Array) -> Array:
    """For each law the theta > 0 that minimises K(theta)^n / theta^2."""
    if len(values) == 1:
        return np.array([_saddle(values[0].tolist(), probability[0].tolist(), float(n[0]))])

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


def _gaussian_saddles(values: Array, probability: Array, n: Array) -> Array:
    """Where the Gaussians of the same mean and variance have them."""
    mean = (values * probability).sum(axis=1)
    square = ((values - mean[:, None]) ** 2 * probability).sum(axis=1)
    reach = np.sqrt(mean * mean + 8.0 * square / n)
    with np.errstate(divide="ignore", invalid="ignore"):  # in the form that does not cancel
        return np.where(mean > 0.0, 4.0 / (n * (reach + mean)), (reach - mean) / (2.0 * square))


def _saddle(values: list[float], probability: list[float], n: float) -> float:
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
    near = np.log1p((np.expm1(np.where(small[..., None], powers, 0.0)) * probability).sum(axis=-1))
    if small.all():
        return np.asarray(near)
    far = top + np.log((np.exp(powers - top[..., None]) * probability).sum(axis=-1))
    return np.where(small, near, far)


def _characteristic(
    omega: Array, lines: _Lines, each: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Log-modulus and phase of the n-th power of the tilted, centred characteristic function."""
    real, imaginary = np.zeros(len(omega)), np.zeros(len(omega))
    for half, weight in zip(0.5 * lines.gaps.T, 2.0 * lines.others.T, strict=True):
        tangent = np.tan(omega * each(half))
        product = each(weight) * tangent / (1.0 + tangent * tangent)  # sine times cosine
        imaginary += product
        real -= product * tangent  # the sine's square
    with np.errstate(divide="ignore"):
        squared = np.maximum(2.0 * real + real * real + imaginary * imaginary, -1.0)
        log_size = each(0.5 * lines.n) * np.log1p(squared)
    return log_size, each(lines.n) * np.arctan2(imaginary, 1.0 + real)


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
