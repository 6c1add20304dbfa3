"""Losses of pairs of laws that are listed outcome by outcome, on a grid: rounded up, or down.

Rounded up (`connected_losses`) they bound what releases cost from above, pooled (`pooled_losses`)
from below.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.divergences.moments import Atoms

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
