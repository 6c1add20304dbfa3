"""Distributions of privacy losses on an even grid, and what becomes of them in compositions.

A distribution gives the mass that the first of two laws, P, puts on outcomes whose log-ratio to the
second, Q, is a given multiple of the step. Losses of independent releases add, so composing is
convolving; `count` equal releases are one power of a Fourier transform.

Under replace-one a release may tell a person's value from another one way round and the next
release the other way round. Upper bounds are therefore made of the higher of both hockey sticks
and are their own mirror images: composing each direction with itself would be too low.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

# Mass outside the window of a composition, which counts as unbounded.
_TRUNCATED = 1e-24
# What Fourier transforms may add to or take from a delta, per release: a fifth of it was the most
# that was seen, for up to a million releases.
_ROUNDING = 2e-16
_SHORT = 1 << 18  # losses
_TILTS = np.exp(np.linspace(-2.5, 1.5, 25))

Array = np.ndarray


def connect_dots(losses: Array, heights: Array) -> tuple[Array, Array, float]:
    """The distribution whose hockey stick is the chords between points: never below the truth.

    It is its own mirror image: the stick at loss -x is 1 - e^-x + e^-x times that at x.

    Args:
        losses: Ascending, from zero on; evenly spaced or not.
        heights: Hockey stick at each, the higher one of both directions.

    Returns:
        Losses of either sign, their masses under P, and the mass of losses without bound.

    Source: Doroshenko, Ghazi, Kamath, Kumar and Manurangsi 2022.
    """
    below = -np.expm1(-losses) + np.exp(-losses) * heights
    both = np.concatenate([-losses[:0:-1], losses])
    sticks = np.minimum.accumulate(np.clip(np.concatenate([below[:0:-1], heights]), 0.0, 1.0))
    gaps = np.diff(both)
    falls = -np.diff(sticks) / -np.expm1(-gaps)
    # Ratios e^loss cancel, so that no loss is too large. A stick starts from one at a ratio of 0.
    mass = np.append(1.0 - sticks[:1], falls) - np.append(falls * np.exp(-gaps), 0.0)
    return both, np.maximum(mass, 0.0), float(sticks[-1])


@dataclass(frozen=True, eq=False)
class LossGrid:
    """The privacy loss of one or many releases.

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

    @classmethod
    def connecting(
        cls, step: float, knots: Array, heights: Array, rounding: float = 0.0
    ) -> LossGrid:
        """The grid through hockey sticks at positions `knots` (see `connect_dots`)."""
        _, masses, beyond = connect_dots(knots * step, heights)
        last = int(knots[-1])
        mass = np.zeros(2 * last + 1)
        mass[last + np.concatenate([-knots[:0:-1], knots])] = masses
        return cls(step, -last, mass, beyond, rounding)

    @property
    def highest(self) -> float:
        """The largest loss but those without bound."""
        return (self.lowest + len(self.mass) - 1) * self.step

    @property
    def losses(self) -> Array:
        return (self.lowest + np.arange(len(self.mass))) * self.step

    def places(self, count: int) -> int:
        """How many losses `repeated(count)` would hold."""
        low, high = self._window(count)
        return high - low + 1

    def repeated(self, count: int) -> LossGrid:
        """The losses of `count` such releases. O(window log window)."""
        if count == 1:
            return self
        from scipy import fft

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
            convolved(self.mass, other.mass),
            self.beyond + other.beyond - self.beyond * other.beyond,
            self.rounding + other.rounding + _ROUNDING,
        )

    def on(self, step: float) -> LossGrid:
        """The same on another grid: connecting the dots of the hockey stick is never lower."""
        knots = np.arange(max(1, math.ceil(self.highest / step - 1e-9)) + 1)
        return LossGrid.connecting(step, knots, self.deltas(knots * step), self.rounding)

    def deltas(self, epsilons: Array) -> Array:
        """The hockey stick at each epsilon >= 0."""
        losses, above, weighted = self._tails()
        start = np.searchsorted(losses, epsilons, side="right")
        ends = np.append(losses, np.inf)[start]  # past the last loss nothing is left to weigh
        inside = above[start] - np.exp(epsilons - ends) * weighted[start]
        return np.clip(self.beyond + inside, 0.0, 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose hockey stick is at most `delta`; may be infinite."""
        if delta < self.beyond or not np.isfinite(self.mass).all():
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

    def upper_epsilon(self, delta: float) -> float:
        """The same with the allowance for rounding: what an upper bound may say."""
        return self.epsilon(delta - self.rounding) if delta > self.rounding else math.inf

    def upper_delta(self, epsilon: float) -> float:
        """The hockey stick at one epsilon, with the allowance."""
        return min(1.0, float(self.deltas(np.array([epsilon]))[0]) + self.rounding)

    def lower_epsilon(self, delta: float) -> float:
        """The least epsilon at `delta`, less what rounding and truncation may have added."""
        return replace(self, beyond=0.0).epsilon(delta + self.rounding)

    def _tails(self) -> tuple[Array, Array, Array]:
        """Positive losses; masses of each and all above, ending with zero.

        Under P, and under Q times e to that loss, so that large losses neither vanish nor overflow.
        """
        first = max(0, 1 - self.lowest)
        losses, mass = self.losses[first:], self.mass[first:]
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        weighted = np.append(_faded(mass[::-1], math.exp(-self.step))[::-1], 0.0)
        return losses, above, weighted

    def _window(self, count: int) -> tuple[int, int]:
        """Positions between which all but a negligible mass of `count` releases lies (Chernoff)."""
        places = np.flatnonzero(self.mass > 0.0).astype(float)
        mass = self.mass[self.mass > 0.0]
        mass = mass / mass.sum()
        mean = float(mass @ places)
        spread = math.sqrt(max(float(mass @ (places - mean) ** 2), 1e-12) * count)
        goal = -math.log(_TRUNCATED)
        reach = []
        for sign in (-1.0, 1.0):
            tilts = _TILTS * math.sqrt(2.0 * goal) / spread
            logs = np.array([_log_mean_exp(sign * tilt * (places - mean), mass) for tilt in tilts])
            reach.append(float(np.min((count * np.maximum(logs, 0.0) + goal) / tilts)))
        low = max(0, math.floor(count * mean - reach[0]))
        high = min(count * (len(self.mass) - 1), math.ceil(count * mean + reach[1]))
        return low, high


def _faded(values: Array, decay: float) -> Array:
    """Each value and `decay` times the sum before it."""
    if len(values) > _SHORT:
        from scipy import signal  # takes half a second to load, longer than to add up a few

        found: Array = signal.lfilter([1.0], [1.0, -decay], values)
        return found
    sums = accumulate(values.tolist(), lambda before, value: value + decay * before)
    return np.fromiter(sums, float, len(values))


def convolved(one: Array, other: Array) -> Array:
    """As `scipy.signal.fftconvolve` gives it, which takes half a second to load."""
    from scipy import fft

    if min(len(one), len(other)) == 1:
        return one * other
    size = len(one) + len(other) - 1
    room = fft.next_fast_len(size, real=True)
    found: Array = fft.irfft(fft.rfft(one, room) * fft.rfft(other, room), room)[:size]
    return found


def _log_mean_exp(exponents: Array, mass: Array) -> float:
    top = float(exponents.max())
    with np.errstate(divide="ignore"):  # one loss, too far from the rest to count
        return top + float(np.log(np.exp(exponents - top) @ mass))
