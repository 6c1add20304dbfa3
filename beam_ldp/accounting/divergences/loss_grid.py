"""Distributions of privacy losses on an even grid, and what becomes of them in compositions.

A distribution gives the mass that the first of two laws, P, puts on outcomes whose log-ratio to the
second, Q, is a given multiple of the step. Losses of independent releases add, so composing is
convolving (see `convolution`, which rounds every mass in the direction of the bound).

Under replace-one a release may tell a person's value from another one way round and the next
release the other way round. Upper bounds are therefore made of the higher of both hockey sticks
and are their own mirror images: composing each direction with itself would be too low.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from beam_ldp.accounting.divergences import convolution
from beam_ldp.accounting.divergences.moments import Atoms

MOST_RELEASES = 10**12  # that are composed: more are nothing but rounding
_ADDING = 1e-9  # relative: four times what adding up two million positive numbers can round
_SHORT = 1 << 18  # losses

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
    """The privacy loss of one or many releases, as a bound.

    Attributes:
        step: Distance between losses.
        lowest: Position of the first loss: `lowest * step`.
        mass: Mass under P of each loss, float64; of upper bounds it may sum to more than one.
        beyond: Mass under P of losses without bound.
        upward: Whether it bounds what releases cost from above, so that every sum is rounded up.
            Else from below, where losses without bound are left out.
    """

    step: float
    lowest: int
    mass: Array
    beyond: float = 0.0
    upward: bool = True

    @classmethod
    def connecting(cls, step: float, knots: Array, heights: Array) -> LossGrid:
        """The grid through hockey sticks at positions `knots` (see `connect_dots`)."""
        _, masses, beyond = connect_dots(knots * step, heights)
        last = int(knots[-1])
        mass = np.zeros(2 * last + 1)
        mass[last + np.concatenate([-knots[:0:-1], knots])] = masses
        return cls(step, -last, mass, beyond)

    @property
    def highest(self) -> float:
        """The largest loss but those without bound."""
        return (self.lowest + len(self.mass) - 1) * self.step

    @property
    def losses(self) -> Array:
        return (self.lowest + np.arange(len(self.mass))) * self.step

    def places(self, count: int, enough: int = 0) -> int:
        """How many losses `repeated(count)` would hold at most; roughly, where above `enough`."""
        most = count * (len(self.mass) - 1) + 1
        return most if most <= enough else convolution.places([(self.mass, count)])

    def repeated(self, count: int) -> LossGrid:
        """The losses of `count` such releases. O(window log window)."""
        return self if count == 1 else together([(self, count)])

    def on(self, step: float) -> LossGrid:
        """An upper bound on another grid: connecting the dots of the hockey stick is no lower."""
        knots = np.arange(max(1, math.ceil(self.highest / step - 1e-9)) + 1)
        return LossGrid.connecting(step, knots, self.deltas(knots * step))

    def deltas(self, epsilons: Array) -> Array:
        """The hockey stick at each epsilon >= 0."""
        tails = self._tails()
        start = np.searchsorted(tails.losses, epsilons, side="right")
        finite = np.minimum(epsilons, np.finfo(float).max)
        gaps = finite - np.append(tails.losses, np.inf)[start]  # past the last nothing is left
        inside = np.exp(gaps) * tails.sticks[start] - np.expm1(gaps) * tails.above[start]
        return np.clip(self.beyond + inside, 0.0, 1.0)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 whose hockey stick is at most `delta`; may be infinite."""
        if delta < self.beyond or not np.isfinite(self.mass).all():
            return math.inf
        losses, sticks, above, weighted = self._tails()
        if not len(losses) or self.deltas(np.zeros(1))[0] <= delta:
            return 0.0
        last = int(np.argmax(self.beyond + sticks[:-1] <= delta))  # of the last loss: `beyond`
        share = (delta - self.beyond - sticks[last]) / weighted[last]
        found = float(losses[last]) + math.log1p(-min(1.0 - 1e-16, share))
        return max(0.0, found * (1.0 + 1e-15 if self.upward else 1.0 - 1e-15))  # outwards

    def _tails(self) -> _Tails:
        first = max(0, 1 - self.lowest)
        losses, mass = self.losses[first:], self.mass[first:]
        # Sums of so many positive numbers err by less than `_ADDING` of themselves.
        mass = mass * (1.0 + _ADDING if self.upward else 1.0 - _ADDING)
        decay = math.exp(-self.step)
        above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
        gains = -math.expm1(-self.step) * np.append(above[1:], 0.0)
        sticks = _faded(gains[::-1], decay)[::-1]
        weighted = np.append(_faded(mass[::-1], decay)[::-1], 0.0)
        return _Tails(losses, sticks, above, weighted)


class _Tails(NamedTuple):
    """Of each positive loss, and past the last; every one a sum of terms that are not negative.

    The stick at the i-th loss is e^-step times the next one, and 1 - e^-step of the mass above.
    """

    losses: Array
    sticks: Array  # but `beyond`
    above: Array  # masses from here on
    weighted: Array  # the same under Q, times e to this loss: it neither vanishes nor overflows


def together(parts: Sequence[tuple[LossGrid, int]]) -> LossGrid:
    """The losses of so many releases of each of several kinds, on grids of the same step."""
    first = parts[0][0]
    if any(grid.step != first.step for grid, _ in parts):
        raise ValueError("parts must be on grids of the same step")
    lowest = sum(count * grid.lowest for grid, count in parts)
    none = math.fsum(count * math.log1p(-min(grid.beyond, 1.0 - 1e-16)) for grid, count in parts)
    upward = first.upward
    if not all(grid.mass.any() for grid, _ in parts):
        return LossGrid(first.step, lowest, np.zeros(1), 1.0 if upward else 0.0, upward)
    found = convolution.summed([(grid.mass, count) for grid, count in parts], upward)
    beyond = min(1.0, (found.above - math.expm1(none)) * (1.0 + _ADDING))
    return LossGrid(
        first.step, lowest + found.lowest, found.mass, beyond if upward else 0.0, upward
    )


def _faded(values: Array, decay: float) -> Array:
    """Each value and `decay` times the sum before it."""
    if len(values) > _SHORT:
        from scipy import signal  # takes half a second to load, longer than to add up a few

        found: Array = signal.lfilter([1.0], [1.0, -decay], values)
        return found
    sums = accumulate(values.tolist(), lambda before, value: value + decay * before)
    return np.fromiter(sums, float, len(values))


# Losses of listed laws on a grid, rounded up or down --------------------------------------
#
# Laws are listed outcome by outcome (`Atoms`). Rounded up (`connected_losses`) their losses bound
# what releases cost from above, pooled (`pooled_losses`) from below.


_STEPS_PER_DEVIATION = 40
_COMMON_STEPS_PER_DEVIATION = 60
_LARGEST_GRID = 1 << 20  # losses
_LARGEST_LOSS, _LEAST_MASS = 600.0, 1e-30  # whose products fit a double
_DEVIATIONS = 40  # beyond so many losses count as unbounded
_TRUNCATED_MASS = 1e-20
_LOSS_ERROR = 2.0**-50  # of the logarithm of a ratio of two rounded numbers near one


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
    found = max(
        composed_losses(sides).epsilon(delta)
        for sides in (parts, [(count, atoms.swapped()) for count, atoms in parts])
    )
    return less_rounding(found, sum(count for count, _ in parts))


def less_rounding(epsilon: float, count: int) -> float:
    """A lower bound where each of so many losses is the difference of two rounded logarithms."""
    return max(0.0, epsilon - count * _LOSS_ERROR)


def composed_losses(parts: Sequence[tuple[int, Atoms]]) -> LossGrid:
    """So many releases of each of several concrete pairs, each in its own direction."""
    return composed_grids([_repeated(pair, count) for count, pair in parts])


def _repeated(pair: Atoms, count: int) -> LossGrid:
    """So many releases; where the grid would fill the memory it is pooled on the way.

    Some of that many may be left out, one of a thousand of a million. Either costs no more.
    """
    count = min(count, MOST_RELEASES)
    grid = pooled_losses(pair)
    while count > 1 and grid.places(count, _LARGEST_GRID) > _LARGEST_GRID:
        at_once = math.isqrt(count)
        while at_once > 1 and grid.places(at_once, _LARGEST_GRID) > _LARGEST_GRID:
            at_once //= 2
        count //= max(at_once, 2)
        if at_once > 1:
            grid = _pooled_again(grid.repeated(at_once))
    return grid.repeated(count)


def composed_grids(grids: Sequence[LossGrid]) -> LossGrid:
    """Independent pooled losses together, pooled again on a grid that fits their spread.

    Losses that no double can hold are left out, which only lowers the result.
    """
    if len(grids) == 1:
        return grids[0]
    step = math.hypot(*(_standard_deviation(grid) for grid in grids)) / _COMMON_STEPS_PER_DEVIATION
    step = max(step, max(len(grid.mass) * grid.step for grid in grids) / _LARGEST_GRID)
    pooled = [(_pooled_again(grid, step), 1) for grid in grids]
    return together([(grid, count) for grid, count in pooled if grid.mass.any()] or pooled[:1])


def _pooled_again(grid: LossGrid, step: float | None = None) -> LossGrid:
    """The same losses on another grid, by default one that fits their spread."""
    held = (np.abs(grid.losses) < _LARGEST_LOSS) & (grid.mass > _LEAST_MASS)
    losses, mass = grid.losses[held], grid.mass[held]
    if not len(mass):
        return LossGrid(step or grid.step, 0, np.zeros(1), upward=False)
    return pooled_losses(Atoms(np.log(mass), np.ones(len(mass)), np.exp(-losses)), step)


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
    Without a step the grid fits the spread of the losses. Where that is below what rounded ratios
    resolve, nothing is told.
    """
    mass = np.exp(atoms.log_mass)
    if step is None:
        span = float(np.ptp(np.log(atoms.first) - np.log(atoms.second)))
        step = max(loss_spread(atoms) / _STEPS_PER_DEVIATION, span / _LARGEST_GRID)
        if step < _LOSS_ERROR:
            return LossGrid(1.0, 0, np.ones(1), upward=False)
    pools = _pooled(mass * atoms.first, mass * atoms.second, step)
    lowest = min(pools)
    masses = np.zeros(max(pools) - lowest + 1)
    for place, pool in pools.items():
        masses[place - lowest] = pool
    masses /= max(1.0, masses.sum())  # rounding adds nothing
    return LossGrid(step, lowest, masses, upward=False)


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
