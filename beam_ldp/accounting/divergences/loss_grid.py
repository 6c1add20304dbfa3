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
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from beam_ldp.accounting.divergences.moments import Atoms

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


# Losses of listed laws on a grid, rounded up or down --------------------------------------
#
# Laws are listed outcome by outcome (`Atoms`). Rounded up (`connected_losses`) their losses bound
# what releases cost from above, pooled (`pooled_losses`) from below.


_STEPS_PER_DEVIATION = 40
_LEAST_STEPS_PER_DEVIATION = 4
_COMMON_STEPS_PER_DEVIATION = 60
_LARGEST_GRID = 1 << 20  # losses
_LARGEST_LOSS, _LEAST_MASS = 600.0, 1e-30  # whose products fit a double
_DEVIATIONS = 40  # beyond so many losses count as unbounded
_TRUNCATED_MASS = 1e-20


def hockey_sticks(atoms: Atoms, losses: np.ndarray) -> np.ndarray:
    """E[(P - e^loss Q)_+] at each loss. O((atoms + losses) log atoms)."""
    mass = np.exp(atoms.log_mass)
    loss = np.log(atoms.first) - np.log(atoms.second)
    order = np.argsort(loss, kind="stable")
    ascending = loss[order]
    above_first = _sums_from(mass[order] * atoms.first[order])
    above_second = _sums_from(mass[order] * atoms.second[order])
    start = np.searchsorted(ascending, losses, side="right")
    return np.clip(above_first[start] - np.exp(losses) * above_second[start], 0.0, 1.0)


def _sums_from(values: np.ndarray) -> np.ndarray:
    """Sums of all values from each position on, and zero past the end."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def connected_losses(atoms: Atoms, step: float) -> LossGrid:
    """The losses of a pair, whichever way round: never below the truth. See `connect_dots`."""
    loss = np.log(atoms.first) - np.log(atoms.second)
    reach = min(float(np.abs(loss).max()), _DEVIATIONS * loss_spread(atoms))
    knots = np.arange(math.ceil(reach / step) + 2)
    sticks = [hockey_sticks(side, knots * step) for side in (atoms, atoms.swapped())]
    heights = np.minimum(np.maximum(*sticks) + _TRUNCATED_MASS, 1.0)
    return LossGrid.connecting(step, knots, heights)


def lower_epsilon(parts: Sequence[tuple[int, Atoms]], delta: float) -> float:
    """What so many releases of each concrete pair cost at least: epsilon at `delta`."""
    return max(
        composed_losses(sides).lower_epsilon(delta)
        for sides in (parts, [(count, atoms.swapped()) for count, atoms in parts])
    )


def composed_losses(parts: Sequence[tuple[int, Atoms]]) -> LossGrid:
    """So many releases of each of several concrete pairs, each in its own direction."""
    return composed_grids([_repeated(pair, count) for count, pair in parts])


def _repeated(pair: Atoms, count: int) -> LossGrid:
    """So many releases; where the grid would fill the memory a coarser one, or fewer releases.

    Either costs no more.
    """
    grid, coarsest = pooled_losses(pair), loss_spread(pair) / _LEAST_STEPS_PER_DEVIATION
    while count > 1 and grid.places(count) > _LARGEST_GRID:
        if grid.step <= coarsest / 2:
            grid = pooled_losses(pair, 2 * grid.step)
        else:
            count //= 2
    return grid.repeated(count)


def composed_grids(grids: Sequence[LossGrid]) -> LossGrid:
    """Independent pooled losses together, pooled again on a grid that fits their spread.

    Losses that no double can hold are left out, which only lowers the result.
    """
    if len(grids) == 1:
        return grids[0]
    held = [(np.abs(g.losses) < _LARGEST_LOSS) & (g.mass > _LEAST_MASS) for g in grids]
    step = math.hypot(*(_standard_deviation(grid) for grid in grids)) / _COMMON_STEPS_PER_DEVIATION
    step = max(step, max(len(grid.mass) * grid.step for grid in grids) / _LARGEST_GRID)
    total = None
    for grid, seen in zip(grids, held, strict=True):
        losses, mass = grid.losses[seen], grid.mass[seen]
        if not len(mass):
            continue
        atoms = Atoms(np.log(mass), np.ones(len(mass)), np.exp(-losses))
        one = replace(pooled_losses(atoms, step), rounding=grid.rounding)
        total = one if total is None else total.composed(one)
    return grids[0] if total is None else total


def _standard_deviation(grid: LossGrid) -> float:
    mass = np.maximum(grid.mass, 0.0)
    if not mass.any():
        return 0.0
    losses, mass = grid.losses, mass / mass.sum()
    return math.sqrt(float(mass @ (losses - mass @ losses) ** 2))


def pooled_losses(atoms: Atoms, step: float | None = None) -> LossGrid:
    """The losses of a concrete pair, in its own direction, never above the truth.

    Outcomes are pooled until the likelihood ratio of each pool is a point of the grid: pooling is
    post-processing, so the pooled pair is no easier to tell apart, and its losses need no rounding.
    Without a step the grid fits the spread of the losses.
    """
    mass = np.exp(atoms.log_mass)
    if step is None:
        span = float(np.ptp(np.log(atoms.first) - np.log(atoms.second)))
        step = max(loss_spread(atoms) / _STEPS_PER_DEVIATION, span / _LARGEST_GRID)
    pools = _pooled(mass * atoms.first, mass * atoms.second, step)
    lowest = min(pools)
    masses = np.zeros(max(pools) - lowest + 1)
    for place, pool in pools.items():
        masses[place - lowest] = pool
    return LossGrid(step, lowest, masses / max(1.0, masses.sum()))  # rounding adds nothing


def loss_spread(atoms: Atoms) -> float:
    """Root mean square of the loss under the first law."""
    loss = np.log(atoms.first) - np.log(atoms.second)
    return float(np.sqrt(np.sum(np.exp(atoms.log_mass) * atoms.first * loss**2)))


def _pooled(first: np.ndarray, second: np.ndarray, step: float) -> dict[int, float]:
    """Mass under P of pools whose log-ratio is exactly a multiple of `step`, by that multiple."""
    seen = (first > 1e-300) & (second > 1e-300)  # leaving outcomes out only lowers the result
    first, second = first[seen], second[seen]
    fine = np.floor(np.log(first / second) / step * 16).astype(np.int64)
    _, where = np.unique(fine, return_inverse=True)  # first into bins a sixteenth as wide
    p_left = np.bincount(where, weights=first)
    q_left = np.bincount(where, weights=second)
    pools: dict[int, float] = {}
    p_pool = q_pool = 0.0
    target = int(np.floor(np.log(p_left[0] / q_left[0]) / step)) + 1
    for p, q in zip(p_left.tolist(), q_left.tolist(), strict=True):
        while p_pool + p >= np.exp(target * step) * (q_pool + q):
            # The part of this bin that takes the pool's ratio to the grid exactly.
            ratio = np.exp(target * step)
            excess = p - ratio * q
            part = min(1.0, max(0.0, (ratio * q_pool - p_pool) / excess)) if excess > 0 else 1.0
            pools[target] = pools.get(target, 0.0) + p_pool + part * p
            p_pool = q_pool = 0.0
            p, q = (1 - part) * p, (1 - part) * q
            if p <= 0.0 or q <= 0.0:
                p = q = 0.0
                break
            target = max(target, int(np.floor(np.log(p / q) / step))) + 1
        p_pool, q_pool = p_pool + p, q_pool + q
    if p_pool > 0.0 and q_pool > 0.0:  # what is left at the top: rounded down
        top = int(np.floor(np.log(p_pool / q_pool) / step))
        pools[top] = pools.get(top, 0.0) + p_pool
    return pools
