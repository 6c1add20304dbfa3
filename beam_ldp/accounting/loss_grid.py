"""Distributions of privacy losses on an even grid, and what becomes of them in compositions.

A distribution gives the mass that the first of two laws, P, puts on outcomes whose log-ratio to the
second, Q, is a given multiple of the step. Losses of independent releases add, so composing is
convolving; `count` equal releases are one power of a Fourier transform.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import fft, signal

# Mass outside the window of a composition, which counts as unbounded.
_TRUNCATED = 1e-24
# What Fourier transforms may add to or take from a delta, per release: a fifth of it was the most
# that was seen, for up to a million releases.
_ROUNDING = 2e-16
_TILTS = np.exp(np.linspace(-2.5, 1.5, 25))

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class LossGrid:
    """The privacy loss of one or many releases, in one direction.

    Attributes:
        step: Distance between losses.
        lowest: Position of the first loss: `lowest * step`.
        mass: Mass under P of each loss, float64.
        beyond: Mass under P of losses without bound.
        rounding: Allowance for rounding, in a delta.
    """

    step: float
    lowest: int
    mass: Array
    beyond: float = 0.0
    rounding: float = 0.0

    @property
    def losses(self) -> Array:
        return (self.lowest + np.arange(len(self.mass))) * self.step

    def repeated(self, count: int) -> LossGrid:
        """The losses of `count` such releases. O(window log window)."""
        if count == 1:
            return self
        low, high = self._window(count)
        size = fft.next_fast_len(max(high - low + 1, len(self.mass)), real=True)
        power = fft.rfft(self.mass, size) ** count
        mass = np.roll(fft.irfft(power, size), -low)[: high - low + 1]
        beyond = -math.expm1(count * math.log1p(-self.beyond)) if self.beyond < 1 else 1.0
        return LossGrid(
            self.step,
            count * self.lowest + low,
            mass,
            min(1.0, beyond + _TRUNCATED),
            count * (self.rounding + _ROUNDING),
        )

    def composed(self, other: LossGrid) -> LossGrid:
        """The losses of both, on the same grid."""
        if other.step != self.step:
            raise ValueError("other must be on a grid of the same step")
        return LossGrid(
            self.step,
            self.lowest + other.lowest,
            signal.fftconvolve(self.mass, other.mass),
            self.beyond + other.beyond - self.beyond * other.beyond,
            self.rounding + other.rounding + _ROUNDING,
        )

    def deltas(self, epsilons: Array) -> Array:
        """The hockey stick at each epsilon >= 0."""
        losses, above, weighted = self._tails()
        start = np.searchsorted(losses, epsilons, side="right")
        ends = np.append(losses, np.inf)[start]  # past the last loss nothing is left to weigh
        inside = above[start] - np.exp(epsilons - ends) * weighted[start]
        return np.clip(self.beyond + inside, 0.0, 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose hockey stick is at most `delta`; may be infinite."""
        if delta < self.beyond:
            return math.inf
        losses, above, weighted = self._tails()
        if not len(losses):
            return 0.0
        if self.beyond + above[0] - math.exp(-losses[0]) * weighted[0] <= delta:
            return 0.0
        at_losses = self.beyond + above[1:] - math.exp(-self.step) * weighted[1:]
        last = int(np.argmax(at_losses <= delta))  # the stick at the last of all losses is `beyond`
        share = (self.beyond + above[last] - delta) / weighted[last]
        return max(0.0, float(losses[last]) + math.log(share))

    def _tails(self) -> tuple[Array, Array, Array]:
        """Positive losses; masses of each and all above, ending with zero.

        Under P, and under Q times e to that loss, so that large losses neither vanish nor overflow.
        """
        first = max(0, 1 - self.lowest)
        losses, mass = self.losses[first:], self.mass[first:]
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        faded = signal.lfilter([1.0], [1.0, -math.exp(-self.step)], mass[::-1])
        weighted = np.append(faded[::-1], 0.0)
        return losses, above, weighted

    def _window(self, count: int) -> tuple[int, int]:
        """Positions between which all but a negligible mass of `count` releases lies (Chernoff)."""
        places = np.arange(len(self.mass), dtype=float)
        mass = np.maximum(self.mass, 0.0)
        total = mass.sum()
        mean = float(mass @ places / total)
        spread = math.sqrt(max(float(mass @ (places - mean) ** 2 / total), 1e-12) * count)
        goal = -math.log(_TRUNCATED)
        reach = []
        for sign in (-1.0, 1.0):
            tilts = _TILTS * math.sqrt(2.0 * goal) / spread
            exponents = np.outer(sign * tilts, places - mean)
            top = exponents.max(axis=1)
            logs = top + np.log(np.exp(exponents - top[:, None]) @ (mass / total))
            reach.append(float(np.min((count * np.maximum(logs, 0.0) + goal) / tilts)))
        low = max(0, math.floor(count * mean - reach[0]))
        high = min(count * (len(self.mass) - 1), math.ceil(count * mean + reach[1]))
        return low, high
