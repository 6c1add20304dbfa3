"""Sums of very many independent losses on a grid, with a proven error of every mass.

The law of a sum is a product of powers of Fourier transforms. Rounding adds about 1e-16 of the
largest mass to every one, which is all there is of a mass below that. So laws are *tilted* first:
masses times e^(theta k), divided by their sum M(theta). The tilted sum is the sum, tilted, and has
its bulk where the sum has a tail. Dividing e^(theta k) out again, what rounding did falls as
fast as the tail does: three tilts, to means as unlikely as `_RATES` says, reach every delta.

**The bound.** Let u = 2^-53, N the size of the transforms, a power of two, x_i the tilted masses of
one kind, c_i how often it counts, X_i its transform, hats what is computed.

1. A transform errs by at most a = 8 u log2(N) of its Euclidean norm (Higham 2002, Theorem 24.2: 6.7
   for radix 2 and twiddles good to u; radix 4, as it is done, rounds less often). So each
   coefficient of X_i errs by at most D_i = a sqrt(N) |x_i|, for |X_i| = sqrt(N) |x_i|.
2. The product of powers moves by at most sum_i c_i |dX_i| R, where R is the product of
   (|hat X_j| + D_j)^c_j divided by the least of its factors (mean value theorem, coefficient by
   coefficient). An entry of the inverse is a mean over coefficients, and by Cauchy-Schwarz
   that of |dX_i| R is at most a |x_i| rms(R).
3. One product of complex numbers errs by at most sqrt(5) u of itself (Brent, Percival and
   Zimmermann 2007), so the product of all powers by sqrt(5) u sum_i c_i of itself.
4. The inverse errs by at most a |hat y|, up to second order.

Together every tilted mass errs by at most

    E = a rms(R) sum_i c_i |x_i| + sqrt(5) u (sum_i c_i) mean |hat Y| + a |hat y|,

and the mass at k by E M^c e^(-theta k). A hockey stick adds up what lies above epsilon, so it errs
by at most E M^c e^(-theta epsilon) / (1 - e^(-theta step)), or N in place of the quotient. As
rms(R) <= 1 that is within the bound N T u log2(N) |x| M^T e^(-theta epsilon) which is known for one
kind; rms(R) is about T^(-1/4). The rest is relative: exponents that are rounded. Every mass is then
moved by its error in the direction of the bound, so that no allowance is left to be made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

Array = np.ndarray

_RATES = (0.0, 12.0, 45.0)  # of the tilted means: minus the logarithm of how unlikely that is
_WINDOW = 56.0  # masses beyond a window: e^-56 of the tilted law on either side
_UNIT = 2.0**-53
_FOURIER = 8.0  # see the module
_LARGEST_TILT = 600.0  # exponents between the masses of one law


class Sum(NamedTuple):
    """Masses at `lowest`, `lowest` + 1, ..., and a bound of the mass above them."""

    lowest: int
    mass: Array
    above: float


def summed(parts: Sequence[tuple[Array, int]], upward: bool) -> Sum:
    """The law of independent sums: so many of each kind, whose masses are at 0, 1, 2, ...

    Args:
        parts: Masses, not all zero, and counts, 1 to 1e12 together. Masses need not sum to one.
        upward: Whether each mass is at least the true one, and what lies below the window moved
            up into it; else at most the true one.

    Returns:
        Masses to about six digits, down to e^-90 of the bulk's and far below.
        O(kinds * window * log(window)).
    """
    laws = _Laws(parts)
    tilts = sorted({laws.tilt_at(0.0, rate) for rate in _RATES})
    windows = [laws.window(tilt) for tilt in tilts]
    size = 1 << max(1, *((high - low).bit_length() for low, high in windows))
    pieces = [laws.piece(tilt, *window, size) for tilt, window in zip(tilts, windows, strict=True)]
    lowest, mass = windows[0][0], pieces[0].masses(upward)
    for (low, high), piece, before, (_, end) in zip(
        windows[1:], pieces[1:], pieces, windows, strict=False
    ):
        place = min(max(piece.as_good_from(before), low), end + 1)
        kept = piece.masses(upward)[place - low : high - low + 1]
        mass = np.concatenate([mass[: place - lowest], kept])
    if not upward:
        return Sum(lowest, mass, 0.0)
    mass[0] += math.exp(-_WINDOW)  # what lies below counts as the least
    return Sum(lowest, mass, math.exp(min(0.0, pieces[-1].log_scale(windows[-1][1]) - _WINDOW)))


def places(parts: Sequence[tuple[Array, int]]) -> int:
    """Roughly how many masses `summed` would return."""
    laws = _Laws(parts)
    low, high = laws.window(0.0)
    return max(high, laws.window(laws.tilt_at(0.0, _RATES[-1]))[1]) - low + 1


class _Laws:
    """Several laws, and the cumulants of the sum of so many of each under a tilt."""

    def __init__(self, parts: Sequence[tuple[Array, int]]) -> None:
        self.places = [np.flatnonzero(mass > 0.0) for mass, _ in parts]
        self.masses = [mass[at] for (mass, _), at in zip(parts, self.places, strict=True)]
        self.counts = np.array([float(count) for _, count in parts])
        self.least = sum(int(at[0]) * count for at, (_, count) in zip(self.places, parts))
        self.most = sum(int(at[-1]) * count for at, (_, count) in zip(self.places, parts))
        lengths = list(map(len, self.places))
        self.starts = np.cumsum([0, *lengths[:-1]])
        self.owners = np.repeat(np.arange(len(lengths)), lengths)
        self.flat = np.concatenate(self.places).astype(float)
        self.logs = np.log(np.concatenate(self.masses))
        self.reach = float(max(int(at[-1]) - int(at[0]) for at in self.places))

    def cumulants(self, tilt: float) -> tuple[float, float, float]:
        """Log of the generating function of the sum, its tilted mean and variance."""
        powers = self.logs + tilt * self.flat
        tops = np.maximum.reduceat(powers, self.starts)
        weights = np.exp(powers - tops[self.owners])
        sums = np.add.reduceat(weights, self.starts)
        means = np.add.reduceat(weights * self.flat, self.starts) / sums
        weights *= (self.flat - means[self.owners]) ** 2
        variances = np.add.reduceat(weights, self.starts) / sums
        logs = tops + np.log(sums)
        of_all = self.counts @ np.stack([logs, means, variances], axis=1)
        return float(of_all[0]), float(of_all[1]), float(of_all[2])

    def tilt_at(self, base: float, rate: float, sign: float = 1.0) -> float:
        """The tilt at whose mean the sum, tilted by `base`, has the large-deviation rate `rate`.

        Roughly: any tilt will do. The mean of the largest one is next to the end of the law.
        """
        log_base, _, variance = self.cumulants(base)
        largest = _LARGEST_TILT / max(self.reach, 1.0)
        if rate == 0.0 or variance <= 0.0:
            return base
        low, high = 0.0, largest
        away = min(math.sqrt(2.0 * rate / variance), largest)
        for _ in range(60):
            log, mean, variance = self.cumulants(base + sign * away)
            found = sign * away * mean - (log - log_base)
            low, high = (away, high) if found < rate else (low, away)
            if abs(found - rate) <= 0.1 * rate or high - low <= 1e-3 * high:
                break
            slope = away * variance  # the rate's, by the tilt
            guess = away + (rate - found) / slope if slope > 0.0 else math.inf
            away = guess if low < guess < high else (2.0 * away if high == largest else 0.0)
            if not low < away < high:
                away = 0.5 * (low + high)
        return base + sign * away

    def window(self, tilt: float) -> tuple[int, int]:
        """Positions between which all but e^-56 of the tilted law on each side lies (Chernoff)."""
        log_base, mean, _ = self.cumulants(tilt)
        ends = []
        for sign in (-1.0, 1.0):
            other = self.tilt_at(tilt, _WINDOW, sign)
            if other == tilt:  # one single loss
                ends.append(mean)
                continue
            log, _, _ = self.cumulants(other)
            # One more is far more than rounding takes from the logarithms of 1e12 releases.
            ends.append((log - log_base + _WINDOW + 1.0) / (other - tilt))
        slack = [1 + math.ceil(1e-14 * abs(end)) for end in ends]
        low = min(max(self.least, math.floor(ends[0]) - slack[0]), self.most)
        return low, max(low, min(self.most, math.ceil(ends[1]) + slack[1]))

    def piece(self, tilt: float, low: int, high: int, size: int) -> _Piece:
        """The tilted sum from `low` to `high`, by transforms of `size` > `high` - `low`."""
        from scipy import fft

        unit = _FOURIER * _UNIT * math.log2(size)
        product = np.ones(size // 2 + 1, dtype=complex)
        ratio, least = np.ones(size // 2 + 1), np.ones(size // 2 + 1)
        spread = log_scale = relative = 0.0
        for place, mass, count in zip(self.places, self.masses, self.counts.tolist(), strict=True):
            powers = tilt * place
            log = float(powers.max())
            log += math.log(float(mass @ np.exp(powers - log)))
            tilted = mass * np.exp(powers - log)
            log_scale += count * log
            folds = len(place) / size
            relative += count * (8.0 + 4.0 * (float(powers.max()) + abs(log)) + folds)
            folded = np.bincount(place % size, tilted, size)
            norm = math.sqrt(float(folded @ folded))
            spread += count * norm
            transform = fft.rfft(folded)
            product = product * _power(transform, int(count))
            sizes = np.abs(transform) + unit * math.sqrt(size) * norm
            ratio *= sizes**count
            least = np.minimum(least, sizes)
        found = np.roll(fft.irfft(product, size), -(low % size))[: high - low + 1]
        twice = np.full(len(product), 2.0)
        twice[[0, -1]] = 1.0  # the other coefficients stand for two
        rms = math.sqrt(float(twice @ (ratio / least) ** 2) / size)
        error = unit * rms * spread
        error += math.sqrt(5.0) * _UNIT * self.counts.sum() * float(twice @ np.abs(product)) / size
        error += unit * math.sqrt(float(found @ found))
        relative += 8.0 + 4.0 * (abs(log_scale) + abs(tilt) * high)
        outside = 2.0 * math.exp(-_WINDOW)  # of the tilted law: folded onto the window
        return _Piece(tilt, low, found, 1.01 * error + outside, log_scale, relative * _UNIT)


class _Piece(NamedTuple):
    """A tilted sum from `low` on, the error of each mass, and what takes the tilt off."""

    tilt: float
    low: int
    tilted: Array
    error: float
    log_sum: float
    relative: float

    def log_scale(self, place: int) -> float:
        """Log of what a tilted mass at a place is to be multiplied with."""
        return self.log_sum - self.tilt * place

    def masses(self, upward: bool) -> Array:
        """Those of the sum, none of them on the wrong side."""
        sign = 1.0 if upward else -1.0
        logs = (
            self.log_sum
            + sign * self.relative
            - self.tilt * (self.low + np.arange(len(self.tilted)))
        )
        return np.maximum(self.tilted + sign * self.error, 0.0) * np.exp(np.minimum(logs, 700.0))

    def as_good_from(self, before: _Piece) -> int:
        """The place from which this one's error is smaller than that of one tilted less."""
        gap = math.log(self.error / before.error) + self.log_sum - before.log_sum
        return math.ceil(gap / (self.tilt - before.tilt))


def _power(base: Array, exponent: int) -> Array:
    """By squaring, whose rounding is known: that of `base**exponent` is its library's."""
    found: Array | None = None
    while exponent:
        if exponent & 1:
            found = base if found is None else found * base
        exponent >>= 1
        if exponent:
            base = base * base
    assert found is not None
    return found
