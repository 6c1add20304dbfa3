"""What no analysis can beat: concrete pairs of data sets, for one mechanism or for all.

Laws are listed outcome by outcome (`Atoms`) and their losses put on a grid: rounded up
(`connected_losses`) they bound what releases cost from above, pooled (`pooled_losses`) from below.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from beam_ldp.accounting.divergences.hockey_stick import (
    directions,
    epsilon_bound,
    hockey_stick,
    listed_configurations,
)
from beam_ldp.accounting.divergences.loss_grid import LossGrid
from beam_ldp.accounting.divergences.moments import (
    Atoms,
    binomial_bins,
    binomial_log_pmf,
    binomial_window,
)
from beam_ldp.accounting.divergences.shuffle_rdp import three_response_atoms
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses

# Losses of listed laws on a grid, rounded up or down --------------------------------------


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


# What no analysis can go below that knows a mechanism by its local epsilon alone ----------
#
# Binary and ternary randomized response are such mechanisms; what a concrete pair of datasets
# costs with them bounds the price of the class from below. In both, everybody else holds one
# value; with several points per client every other point does.


_TILT = 100.0
_LARGEST_LISTED_CROWD = 3000  # above, ternary response is known by the difference of two counts
_WINDOW_DEVIATIONS = 14.0


def two_response_atoms(local_epsilon: float, num_reports: int, rate: float = 1.0) -> Atoms:
    """Binary randomized response, everybody else equal; the victim reports with `rate`."""
    ratio = np.exp(local_epsilon)
    heads = 1 / (ratio + 1)
    counts = binomial_window(num_reports, heads, _TILT)
    excess = rate * (ratio - 1 / ratio) / num_reports * (counts - num_reports * heads)
    log_mass = binomial_log_pmf(counts, num_reports, heads)
    return Atoms(log_mass, 1 + excess, np.ones_like(excess))


def three_response_difference_atoms(
    local_epsilon: float, num_reports: int, rate: float = 1.0
) -> Atoms:
    """Ternary randomized response, everybody else at the third value, seen by one number.

    The reader is told only how many more reports name the victim's first value than the second.
    That is post-processing of the histogram, hence still a lower bound, and hardly a lesser one:
    the likelihood ratio depends on little else. O(sqrt(num_reports)).
    """
    ratio = math.exp(local_epsilon)
    each, both = 1 / (ratio + 2), ratio / (ratio + 2)
    others = difference_law(num_reports - 1, each, both)
    base = each * others[:-2] + both * others[1:-1] + each * others[2:]
    lower, same, upper = (part / base for part in (others[:-2], others[1:-1], others[2:]))
    first = both * lower + each * same + each * upper  # the report adds one to what others sum to
    second = each * lower + each * same + both * upper
    return Atoms(np.log(base), 1 + rate * (first - 1), 1 + rate * (second - 1))


def difference_law(trials: int, each: float, neither: float) -> np.ndarray:
    """Law of a sum of draws from {1, -1, 0} with probabilities (each, each, neither).

    At every integer of a window symmetric around zero, by the recurrence of the coefficients of
    (each z + neither + each / z)^trials. Its terms are positive on the left half, so that it is
    stable there, and it forgets where it was started.
    """
    reach = _WINDOW_DEVIATIONS * (math.sqrt(2 * each * trials) + 1) + 2
    start = -min(trials, int(reach))
    growth = 1.0 if start > -trials else math.inf  # no outcome lies below -trials
    log_growth = np.zeros(1 - start)
    for i, m in enumerate(range(start + 1, 1), start=1):
        up = neither / each * (1 - m) + (trials - m + 2) / growth
        growth = up / (trials + m)
        log_growth[i] = math.log(growth)
    left = np.exp(np.cumsum(log_growth) - np.sum(log_growth))
    law = np.concatenate([left, left[-2::-1]])
    return law / law.sum()


@lru_cache(maxsize=4096)
def class_lower_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """Certified lower bound of the epsilon of `count` releases, for the worst randomizer.

    Args:
        local_epsilon: eps0.
        num_reports: Reports in each shuffled batch.
        rate: Probability that a person (of several points per client: one data point) is drawn for
            a batch; 1 without sampling.
        count: Releases.
        delta: In (0, 1).

    >>> round(class_lower_epsilon(2.0, 2_000, 2_000 / 60_000, 6_000, 1e-5), 3)
    0.608
    """
    return max(
        two_response_epsilon(local_epsilon, num_reports, rate, count, delta),
        three_response_epsilon(local_epsilon, num_reports, rate, count, delta),
    )


@lru_cache(maxsize=4096)
def two_response_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """What binary randomized response costs at least; see `class_lower_epsilon`."""
    if rate == 1.0 and count == 1:
        return _one_shuffle(two_response_witnesses(local_epsilon), num_reports, delta)
    pair = two_response_atoms(local_epsilon, num_reports, rate)
    return lower_epsilon([(count, pair)], delta)


@lru_cache(maxsize=4096)
def three_response_epsilon(
    local_epsilon: float, num_reports: int, rate: float, count: int, delta: float
) -> float:
    """What ternary randomized response costs at least; see `class_lower_epsilon`."""
    if rate == 1.0 and count == 1:
        return _one_shuffle(three_response_witnesses(local_epsilon), num_reports, delta)
    if num_reports <= _LARGEST_LISTED_CROWD:
        pair = three_response_atoms(local_epsilon, num_reports, rate, _TILT)
    else:
        pair = three_response_difference_atoms(local_epsilon, num_reports, rate)
    return lower_epsilon([(count, pair)], delta)


def two_response_witnesses(local_epsilon: float) -> tuple[ShufflePair, ...]:
    """Binary randomized response, everybody else equal, in both directions."""
    return _both(two_level_witnesses(math.exp(local_epsilon), 1 / 2, 0.0))


def three_response_witnesses(local_epsilon: float) -> tuple[ShufflePair, ...]:
    """Ternary randomized response, everybody else at one of its values, in both directions."""
    return _both(two_level_witnesses(math.exp(local_epsilon), 1 / 3, 0.0, (0.0,)))


def _both(pairs: tuple[ShufflePair, ...]) -> tuple[ShufflePair, ...]:
    return tuple(side for pair in pairs for side in directions(pair))


def _one_shuffle(pairs: tuple[ShufflePair, ...], num_reports: int, delta: float) -> float:
    best = 0.0
    for pair in pairs:
        if hockey_stick(pair, num_reports, best).lower > delta:  # else it cannot be the largest
            best = max(best, epsilon_bound(pair, num_reports, delta, upper=False))
    return best


# What a reader of a shuffled batch sees of two concrete data sets, by likelihood ratios.
#
# Everybody but the victim holds one value, so that reports are independent draws from one law and
# the likelihood ratio is an average over them. Small batches are listed whole. In large ones
# reports are put in two classes, or three, before they are counted: that is post-processing, so
# the pair is never easier to tell apart than the batch itself.


_LARGEST_CROWD_OF_THREE = 10**10  # beyond, their law takes seconds
_TOLERANCE = 1e-12


@lru_cache(maxsize=64)
def witness_atoms(witness: ShufflePair, num_reports: int, rate: float = 1.0) -> Atoms:
    """The pair of laws of a batch in which the victim's report is with probability `rate`.

    Args:
        witness: Concrete pair of values of the victim, and the value of everybody else.
        num_reports: Reports in the batch.
        rate: In (0, 1]; where the victim's is not there, somebody else's is.
    """
    listed = listed_configurations(witness, num_reports)
    if listed is not None:
        second = listed.second / num_reports
        first = second + listed.difference / num_reports
        return _atoms(listed.probability, first, second, rate)
    listable = num_reports <= _LARGEST_CROWD_OF_THREE
    ways = [classes for classes in _classes(witness) if len(classes) == 2 or listable]
    best = max(ways, key=_information)
    counted = _two_classes if len(best) == 2 else _three_classes
    return counted(best, num_reports, rate)


def bit_atoms(first: float, second: float, num_reports: int) -> Atoms:
    """A bit that is one with probability `first` for the victim and `second` for all others.

    Or, the other way round, with probability `second` for the victim too.
    """
    ratios = ((first / second, 1.0), ((1 - first) / (1 - second), 1.0))
    return witness_atoms(ShufflePair(1.0, ratios, (second, 1 - second)), num_reports)


def _classes(witness: ShufflePair) -> Iterator[np.ndarray]:
    """Ways to put reports in classes: rows (chance, first ratio, second ratio).

    Two classes, or three of which the outer are mirror images.
    """
    table = np.array([(p, *both) for both, p in zip(witness.ratios, witness.probabilities)])
    gain = table[:, 1] - table[:, 2]
    for cut in sorted(set(gain))[:-1]:
        yield _merged(table, [gain <= cut, gain > cut])
    for cut in sorted(set(np.abs(gain)))[:-1]:
        three = _merged(table, [gain < -cut, np.abs(gain) <= cut, gain > cut])
        if len(three) == 3 and np.allclose(three[0], three[2][[0, 2, 1]], rtol=_TOLERANCE):
            yield three


def _merged(table: np.ndarray, groups: list[np.ndarray]) -> np.ndarray:
    parts = [table[group] for group in groups if group.any()]
    chances = [part[:, 0].sum() for part in parts]
    return np.array([(c, *(part[:, 0] @ part[:, 1:] / c)) for c, part in zip(chances, parts)])


def _information(classes: np.ndarray) -> float:
    """How well two values can be told apart in a large crowd."""
    return float(classes[:, 0] @ (classes[:, 1] - classes[:, 2]) ** 2)


def _two_classes(classes: np.ndarray, num_reports: int, rate: float) -> Atoms:
    chance, *high = classes[1]
    counts, log_mass = binomial_bins(num_reports, chance, _TILT)
    share = counts / num_reports - chance
    # The ratio of the upper class over that of the lower one: what a report more of it says.
    first, second = (1 + share * (h - low) for h, low in zip(high, classes[0, 1:]))
    return _atoms(np.exp(log_mass), first, second, rate)


def _three_classes(classes: np.ndarray, num_reports: int, rate: float) -> Atoms:
    """By how many more reports of one outer class there are than of the other."""
    chances = classes[:, 0]
    others = difference_law(num_reports - 1, chances[2], chances[1])
    shifted = (others[2:], others[1:-1], others[:-2])  # the victim's report: lower, middle, upper
    base = sum(chance * law for chance, law in zip(chances, shifted))
    first, second = (
        sum(c * ratio * law for c, ratio, law in zip(chances, classes[:, side], shifted)) / base
        for side in (1, 2)
    )
    return _atoms(base, first, second, rate)


def _atoms(mass: np.ndarray, first: np.ndarray, second: np.ndarray, rate: float) -> Atoms:
    """The outcomes of a batch in which the victim's report may not be.

    Outcomes whose ratios rounding has made zero are left out, which only lowers the result.
    """
    first, second = 1 + rate * (first - 1), 1 + rate * (second - 1)
    seen = (mass > 0) & (first > 0) & (second > 0)
    return Atoms(np.log(mass[seen]), first[seen], second[seen])
