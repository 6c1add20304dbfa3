"""Privacy-loss distributions of pairs, for schedules that were fixed beforehand.

Tighter than Rényi orders by 5 to 12 per cent, and valid only where the sequence of releases does
not depend on earlier results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

from beam_ldp.accounting.loss_grid import LossGrid
from beam_ldp.accounting.moments import Atoms

# Grid of losses: steps per standard deviation of one release's loss, and its reach. Coarser grids
# cost tightness; finer ones lose it again to cancellation between neighbouring points.
_STEPS_PER_DEVIATION = 40
_DEVIATIONS = 40
_TRUNCATED_MASS = 1e-20
_COMMON_STEPS_PER_DEVIATION = 60


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


def privacy_loss_distribution(atoms: Atoms) -> PrivacyLossDistribution:
    """Both directions of the pair as a pessimistic distribution on a grid fitted to its spread.

    Never below the truth (connecting the dots of the hockey stick curve; Doroshenko, Ghazi,
    Kamath, Kumar and Manurangsi 2022).
    """
    loss = np.log(atoms.first) - np.log(atoms.second)
    deviation = loss_spread(atoms)
    step = deviation / _STEPS_PER_DEVIATION
    reach = min(float(np.abs(loss).max()), _DEVIATIONS * deviation)
    limit = int(np.ceil(reach / step)) + 1
    grid = np.arange(-limit, limit + 1)
    directions = []
    for pair in (atoms, atoms.swapped()):
        sticks = np.minimum(hockey_sticks(pair, grid * step) + _TRUNCATED_MASS, 1.0)
        sticks = np.minimum.accumulate(sticks)
        directions.append(pld_pmf.create_pmf_pessimistic_connect_dots(step, grid, sticks))
    return PrivacyLossDistribution(*directions)


def composed_epsilon(atoms: Atoms, count: int, delta: float) -> float:
    """The epsilon at `delta` of `count` releases of one pair on a schedule fixed beforehand."""
    distribution = privacy_loss_distribution(atoms)
    if count > 1:
        distribution = distribution.self_compose(count)
    return float(distribution.get_epsilon_for_delta(delta))


def _sums_from(values: np.ndarray) -> np.ndarray:
    """Sums of all values from each position on, and zero past the end."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def composed_lower_epsilon(atoms: Atoms, count: int, delta: float) -> float:
    """A value that the epsilon at `delta` of `count` releases of a concrete pair is not below."""
    return mixed_lower_epsilon([(count, atoms)], delta)


def mixed_lower_epsilon(parts: Sequence[tuple[int, Atoms]], delta: float) -> float:
    """The same of so many releases of each of several concrete pairs, all in one direction."""
    return max(
        lower_epsilon(
            composed_grids([pooled_losses(side).repeated(count) for count, side in sides]), delta
        )
        for sides in (parts, [(count, atoms.swapped()) for count, atoms in parts])
    )


def composed_grids(grids: Sequence[LossGrid]) -> LossGrid:
    """Independent pooled losses together, pooled again on a grid that fits their spread."""
    if len(grids) == 1:
        return grids[0]
    step = math.hypot(*(_standard_deviation(grid) for grid in grids)) / _COMMON_STEPS_PER_DEVIATION
    total = None
    for grid in grids:
        mass = np.maximum(grid.mass, 0.0)
        losses, mass = grid.losses[mass > 0], mass[mass > 0]
        atoms = Atoms(np.log(mass), np.ones(len(mass)), np.exp(-losses))
        one = replace(pooled_losses(atoms, step), rounding=grid.rounding)
        total = one if total is None else total.composed(one)
    assert total is not None
    return total


def _standard_deviation(grid: LossGrid) -> float:
    losses, mass = grid.losses, np.maximum(grid.mass, 0.0) / np.maximum(grid.mass, 0.0).sum()
    return math.sqrt(float(mass @ (losses - mass @ losses) ** 2))


def lower_epsilon(grid: LossGrid, delta: float) -> float:
    """The epsilon at `delta` of pooled losses, less what rounding may have added."""
    return replace(grid, beyond=0.0).epsilon(delta + grid.rounding)


def pooled_losses(atoms: Atoms, step: float | None = None) -> LossGrid:
    """The losses of a concrete pair, in its own direction, never above the truth.

    Outcomes are pooled until the likelihood ratio of each pool is a point of the grid: pooling is
    post-processing, so the pooled pair is no easier to tell apart, and its losses need no rounding.
    Without a step the grid fits the spread of the losses.
    """
    mass = np.exp(atoms.log_mass)
    if step is None:
        step = loss_spread(atoms) / _STEPS_PER_DEVIATION
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
