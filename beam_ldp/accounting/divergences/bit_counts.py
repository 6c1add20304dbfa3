"""The hockey stick of shuffled bits, the largest over all data sets: a certified maximum.

Reports that are one of two say no more than their number of ones. A person's bit is one with some
chance in [low, high]; the victim's has the chance `high` under the first value and `low` under the
second. Let m of the N other people have the chance `high`, all others `low` (chances between are no
worse: the hockey stick of a threshold is affine in each of them), and f and F be the law and the
upper tail of their count. With x = e^eps, a = high - x low, b = x - 1 and c = 1 + b / a, the best
event is "at least t", and delta the largest of

    g_m(t) = a f(t - 1) - b F(t)        (delta is 0 where a <= 0)

over m and t: f is log-concave, so the likelihood ratio grows with the count. A step of t pays while
f(t - 1) > c f(t): t - 1 is the mode of the law f(t) c^t, that of independent bits of the chances
p c / (1 - p + p c), and a mode is less than one from the mean mu (Darroch 1964): w = t - mu lies in
(0, 2]. With L_i = log(1 - p_i + p_i e^(i th)) - i th p_i of those chances and M nodes
th = (j - 1/2) pi / M,

    g_m(mu + w) = e^(E_m - s w) J_m(w),   J_m(w) = Re sum e^(m L_1 + (N - m) L_0 - i w th) k(th) / M
    s = log c,   k(th) = a c e^(i th) - b / (1 - e^(-i th) / c),   E_m linear in m

up to the values at t + 2 M j, which are small, or known: far to the left g is -b, and -b times
-e^(-2 M s j) for all j >= 1 sums to b / (e^(2 M s) + 1), the same for every m and t. The sum is
smooth in *real* m and w, and bends no more than by the sum of its terms' sizes: chords between few
points bound it, over the places w and over blocks of m. Blocks whose bound is too large are halved.
That is the whole proof; it costs the same for any number of people. The other direction is that of
the chances (1 - low, 1 - high).

Adding a person never raises delta: the count without is that with, after post-processing. Where
the number of people is a matter of chance (`CrowdSizes`), delta is the average of those of all
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_ldp.accounting.divergences.crowd_sizes import Crowd, CrowdSizes
from beam_ldp.accounting.divergences.hockey_stick import safe_roots

Array = NDArray[np.float64]
Rows = NDArray[np.intp]

_EXACT = 44.0  # what is left out is e^-_EXACT of the largest term
_ALIASES = 8.0 * math.exp(-_EXACT)  # at t + 2 M j, and nodes left out; in units of a c
_UNIT = 2.0**-52
_TABLE = 1e-14  # relative, that chances are taken apart
_ENDS = 8  # numbers of ones that are looked at one by one, at either end
_LISTED = 128  # people, of whom every number is
_BLOCKS = 24  # to begin with
_NARROW = np.array([1 / 256, 1 / 64, 1 / 16, 1 / 4]) / _BLOCKS  # where the worst often are
_EDGES = np.unique([*np.linspace(0.0, 1.0, _BLOCKS + 1), *_NARROW, *1.0 - _NARROW])
_FEW = 400  # numbers of ones, of which each costs less than bounds of blocks
_AROUND = np.arange(-3.0, 4.0)  # a number of ones that was found to be worse
_MOST_NODES = 1 << 14
_MOST_BLOCKS = 200  # looked at before a search is given up
_MOST_ENDS = 1000  # of blocks, told to another program
_AT_ONCE = 32  # releases
_LIFTED = 10.0  # the most that a log delta falls by, where the left is taken off
_CHORD = 5e-5  # relative to the largest terms, of what chords in w may add
_LOOSE = 1e-3  # relative, of a delta: how far above a data set it is certified
_OFTEN = -10.0  # log delta from which on it is more, for losses so rare hardly matter
_MORE, _MOST_ROOM = 8.0, 64.0  # times that, where else the search is too long
_LESS = (
    1e-6,
    5e-5,
    1e-4,
    2e-4,
    4e-4,
    8e-4,
    1.5e-3,
    4e-3,
    0.03,
)  # where a data set's epsilon may be
_TURNS = 6  # data sets found worse than all before
_LITTLE = 9.0  # log of a delta over that of a size that hardly matters
_SECANT, _BEYOND = 1e-4, 1.1  # a step of an epsilon, relative; more than it takes along a secant
_MOST = 1.0 - 1e-6  # of the largest loss: what is nearer to it is as likely as that
_CLOSE = 1e-9  # relative, of a delta: more than rounding
_LEAST_LOG = -690.0


class Bit(NamedTuple):
    """The chances of a one: the victim's by either value, and the ends of everybody else's."""

    high: float
    low: float

    @classmethod
    def of(cls, table: Sequence[tuple[float, float, float]]) -> Bit:
        """Of two reports, each its ratios and chance as a `ShufflePair` has them.

        A little further apart, which covers the rounding of the table.
        """
        first, second, chance = max(table, key=lambda row: row[0] / row[1])
        high, low = first * chance, second * chance
        return cls(1.0 - (1.0 - high) * (1.0 - _TABLE), low * (1.0 - _TABLE))

    @property
    def directions(self) -> tuple[Bit, ...]:
        """Both, or one where the bit is its own mirror image."""
        mirrored = Bit(1.0 - self.low, 1.0 - self.high)
        return (self,) if math.isclose(self.low, mirrored.low, rel_tol=1e-12) else (self, mirrored)

    @property
    def top(self) -> float:
        """The largest loss: of one report alone."""
        return math.log(self.high / self.low)

    def deviation(self, crowd: Crowd) -> float:
        """Standard deviation of the loss in a crowd of the least variance."""
        least = min(self.high * (1.0 - self.high), self.low * (1.0 - self.low))
        others = crowd - 1 if isinstance(crowd, int) else 1.0 / crowd.reciprocal - 1.0
        return (self.high - self.low) / math.sqrt(max(others, 1) * least)


class _Counts(NamedTuple):
    """The counts of ones of several releases, each at an epsilon of its own.

    Columns of shape (releases, 1), and what there is at each node, (releases, nodes).
    """

    others: Array  # N
    s: Array
    scale: Array  # a c; infinite where so many nodes are not looked at
    chance: tuple[Array, Array]  # of a one under the tilted law, by p = high and by low
    level: tuple[Array, Array]  # E_m is m times the first and N - m times the other
    slack: Array  # of E_m by rounding
    turn: Array  # the nodes th
    size: tuple[Array, Array]  # the real parts of L_1 and L_0
    angle: tuple[Array, Array]  # and the imaginary ones
    kernel: Array  # k / M
    noise: Array  # by how much rounding can miss a term of the size one
    spread: Array  # the least variance of the tilted count
    lift: Array  # what all values at t - 2 M j add together, where they are taken off
    unlifted: Array  # and by how much that may be wrong

    @classmethod
    def of(cls, high: Array, low: Array, others: Array, epsilons: Array) -> _Counts:
        """Of columns, at epsilons below the top."""
        b = np.expm1(epsilons)
        a = (high - low) - low * b
        s = np.log1p(b / a)
        chance, level, variance, slack = [], [], [], np.full_like(b, 64.0 * _UNIT)
        for p in (high, low):
            all_of_it = a + p * b
            q, rest = p * (a + b) / all_of_it, (1.0 - p) * a / all_of_it
            gone = p * b / all_of_it
            less = np.where(gone < 0.5, np.log1p(-np.minimum(gone, 0.5)), np.log(a / all_of_it))
            divergence = q * np.log1p((1.0 - p) * b / all_of_it) + rest * less
            chance.append(q)
            level.append(-divergence)
            variance.append(q * rest)
            slack += 8.0 * _UNIT * others * (np.abs(q - p) * (1.0 + s) + divergence)
        most, least = np.maximum(*variance) * others, np.minimum(*variance) * others
        # Far to the left F is one, which e^-(2 M s) makes small, or is taken off: `lift`.
        fall, reach = -np.minimum(*level) * others, _reach(most)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            short = np.where(b > 0.0, np.minimum(_EXACT + fall, _EXACT + s * reach) / s, 0.0)
            known = (fall + 8.0 * np.minimum(1.0, s * np.sqrt(most))) / np.where(b > 0.0, s, 1.0)
        shift = np.maximum(chance[0] - high, chance[1] - low) * others
        wide = np.maximum(high * (1.0 - high), low * (1.0 - low)) * others
        known = np.maximum(known, _reach(wide) + shift)
        lifted = (known < short) & (fall < _LIFTED)
        nodes = np.ceil(np.maximum(reach, np.where(lifted, known, short)) / 2.0 + 2.0)
        lift = np.where(lifted, b / (np.exp(np.minimum(2.0 * nodes * s, 700.0)) + 1.0), 0.0)
        cut = 2.0 * np.arcsin(np.sqrt(np.minimum(1.0, _EXACT / 2.0 / np.maximum(least, 1.0))))
        used = np.minimum(np.ceil(cut * nodes / math.pi), nodes)
        index = np.arange(min(int(used.max()), _MOST_NODES))[None, :]
        turn = (index + 0.5) * math.pi / nodes
        half = np.sin(turn / 2.0) ** 2
        size = [0.5 * np.log1p(-np.minimum(4.0 * v * half, 1.0 - _UNIT)) for v in variance]
        sine = np.sin(turn)
        angle = [np.arctan2(q * sine, 1.0 - 2.0 * q * half) - q * turn for q in chance]
        log_z = s + 1j * turn
        kernel = a * np.exp(log_z)
        kernel = np.where(b > 0.0, kernel + b / np.expm1(-log_z), kernel) / nodes
        noise = np.abs(kernel) * (32.0 + 8.0 * others * np.maximum(*chance) * turn)
        noise += 8.0 * (high + low * (1.0 + b)) * np.exp(s) / nodes  # of a, times the law f
        beyond = index >= used
        kernel[beyond] = noise[beyond] = 0.0
        scale = np.where(used > _MOST_NODES, np.inf, a + b)
        noise *= _UNIT
        return cls(
            others=others,
            s=s,
            scale=scale,
            chance=(chance[0], chance[1]),
            level=(level[0], level[1]),
            slack=slack,
            turn=turn,
            size=(size[0], size[1]),
            angle=(angle[0], angle[1]),
            kernel=kernel,
            noise=noise,
            spread=least,
            lift=lift,
            unlifted=np.where(lifted, 4.0 * math.exp(-_EXACT) * b + 64.0 * _UNIT * lift, 0.0),
        )

    def take(self, row: int) -> _Counts:
        """One of the releases, with the nodes that count there; columns have but one place."""
        one = slice(row, row + 1), slice(max(1, np.count_nonzero(self.kernel[row])))
        some = [f[one] if isinstance(f, np.ndarray) else (f[0][one], f[1][one]) for f in self]
        return _Counts(*some)  # type: ignore[arg-type]

    def listed(self) -> Array | None:
        """Of few people every number of ones."""
        most = self.others.max()
        return np.minimum(np.arange(most + 1.0), self.others) if most < _LISTED else None

    def _mixed(self, pair: tuple[Array, Array], m: Array) -> Array:
        """The first m times and the other N - m times; the last axis is nodes, if they have one."""
        if pair[0].shape[1] == 1:
            return m * pair[0] + (self.others - m) * pair[1]
        rest = self.others - m
        return m[:, :, None] * pair[0][:, None, :] + rest[:, :, None] * pair[1][:, None, :]

    def log_deltas(self, m: Array, upper: bool) -> Array:
        """Logarithms of the delta at so many ones among the others, shape (releases, numbers)."""
        mean = self._mixed(self.chance, m)
        first = np.floor(mean) - mean  # and two more: the mean is rounded
        size = np.exp(self._mixed(self.size, m))
        angle = self._mixed(self.angle, m) - first[:, :, None] * self.turn[:, None, :]
        steps = np.arange(3.0)
        heights = _heights(size, angle, self._phases(steps))
        lost = np.einsum("cmk,ck->cm", size, self.noise) + _ALIASES * self.scale
        heights += (lost if upper else -lost)[:, :, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(np.maximum(heights, 0.0)) - self.s[:, :, None] * steps
        found = np.nanmax(logs, axis=2, initial=-np.inf) - self.s * first
        found += self._mixed(self.level, m) + (self.slack if upper else -self.slack)
        return self._off(found, upper)

    def log_bounds(self, least: Array, most: Array) -> Array:
        """Logarithms of what no delta is above at so many ones, from `least` to `most` of them."""
        at = np.maximum(self._mixed(self.level, least), self._mixed(self.level, most))
        slope = np.subtract(*self.level) + np.subtract(*self.size) + 1j * np.subtract(*self.angle)
        grid, kernel = self.places(), np.abs(self.kernel)
        bend = kernel * (self.s**2 + self.turn**2)
        phases = self._phases(grid) * np.exp(-self.s * grid)[:, None, :]

        def total(sizes: Array, weights: Array) -> Array:
            return np.einsum("cbk,ck->cb", sizes, weights)

        sizes, highest = [], []
        for m in (least, most):
            size = self._mixed(self.size, m) + (self._mixed(self.level, m) - at)[:, :, None]
            sizes.append(np.exp(size))
            heights = _heights(sizes[-1], self._mixed(self.angle, m), phases).max(axis=2)
            highest.append(heights + grid[1] ** 2 / 8.0 * total(sizes[-1], bend))
        larger = np.maximum(*sizes)
        found = np.maximum(*highest) + _ALIASES * self.scale + total(larger, self.noise)
        found += (most - least) ** 2 / 8.0 * total(larger, kernel * np.abs(slope) ** 2)
        with np.errstate(divide="ignore"):
            return self._off(np.log(np.maximum(found, 0.0)) + at + self.slack, True)

    def _off(self, logs: Array, upper: bool) -> Array:
        """Logarithms of deltas without what the left adds."""
        if not self.lift.any():
            return logs
        with np.errstate(divide="ignore", over="ignore"):
            found = np.exp(logs) - self.lift + (self.unlifted if upper else -self.unlifted)
            return np.where(self.lift > 0.0, np.log(np.maximum(found, 0.0)), logs)

    def places(self) -> Array:
        """Of w from 0 to 2, so close that chords between them hardly add."""
        worst = float(np.max(self.s**2 + 4.0 / np.maximum(self.spread, 1.0)))
        return np.linspace(0.0, 2.0, 2 + min(math.ceil(2.0 * math.sqrt(worst / _CHORD / 8.0)), 62))

    def _phases(self, steps: Array) -> NDArray[np.complex128]:
        """The kernel, so many steps of w further: shape (releases, nodes, steps)."""
        angle = self.turn[:, :, None] * steps
        return self.kernel[:, :, None] * (np.cos(angle) - 1j * np.sin(angle))


def _reach(variance: Array) -> Array:
    """How far from its mean a sum of bits lies but for a chance of e^-_EXACT (Bernstein)."""
    return np.asarray(_EXACT / 3.0 + np.sqrt((_EXACT / 3.0) ** 2 + 2.0 * _EXACT * variance))


def _heights(size: Array, angle: Array, phases: NDArray[np.complex128]) -> Array:
    """The real part of size e^(i angle) times phases.

    Of shapes (releases, numbers, nodes) and (releases, nodes, steps).
    """
    one = np.matmul(size * np.cos(angle), np.ascontiguousarray(phases.real))
    return one - np.matmul(size * np.sin(angle), np.ascontiguousarray(phases.imag))


# The search -------------------------------------------------------------------------------


class Releases(NamedTuple):
    """Shuffled bits of so many honest people each: arrays of one shape (releases,)."""

    high: Array
    low: Array
    reports: Array

    @classmethod
    def of(cls, bits: Sequence[tuple[Bit, int]]) -> Releases:
        """One direction of each: of a bit and so many reports."""
        table = [(bit.high, bit.low, float(reports)) for bit, reports in bits]
        return cls(*np.array(table).T)

    @property
    def tops(self) -> Array:
        """The largest losses."""
        return np.log(self.high / self.low)

    @property
    def deviations(self) -> Array:
        """Standard deviations of one loss, in crowds of the least variance."""
        p, q = self.high * (1.0 - self.high), self.low * (1.0 - self.low)
        return (self.high - self.low) / np.sqrt(np.maximum(self.reports * np.minimum(p, q), 1e-300))

    def counts(self, rows: Rows, epsilons: Array) -> _Counts:
        high, low, reports = (column[rows, None] for column in self)
        return _Counts.of(high, low, reports - 1.0, epsilons[:, None])

    def ends(self) -> Array:
        """Numbers of ones that are looked at first: those near either end."""
        others, near = self.reports[:, None] - 1.0, np.arange(_ENDS + 1.0)
        return np.concatenate([np.minimum(near, others), np.maximum(others - near, 0.0)], axis=1)

    def batches(self, rows: Rows, epsilons: Array) -> list[Rows]:
        """Places in `rows` of releases that are of few people or not, and need as many nodes."""
        few, order = self.reports[rows] <= _LISTED, np.argsort(epsilons / self.deviations[rows])
        parts = order[few[order]], order[~few[order]]
        return [
            batch
            for part in parts
            for batch in np.array_split(part, math.ceil(len(part) / _AT_ONCE) or 1)
            if len(batch)
        ]


def log_uppers(releases: Releases, epsilons: Array) -> Array:
    """Logarithms of upper bounds of the delta over all data sets, each at an epsilon >= 0.

    Infinite where the search was given up.
    """
    found, some = np.full(len(epsilons), -np.inf), np.flatnonzero(epsilons < releases.tops)
    at = np.minimum(epsilons, releases.tops * _MOST)
    logs = _log_uppers(releases, some, at[some])
    found[some] = np.where(np.isposinf(logs), logs, np.minimum(logs, 0.0))
    return found


def _log_uppers(releases: Releases, rows: Rows, epsilons: Array) -> Array:
    found, ends = np.full(len(rows), np.inf), releases.ends()
    for batch in releases.batches(rows, epsilons):
        counts, seen = releases.counts(rows[batch], epsilons[batch]), ends[rows[batch]]
        if (listed := counts.listed()) is not None:
            found[batch] = counts.log_deltas(listed, upper=True).max(axis=1)
            continue
        goals, room = np.full(len(batch), -np.inf), np.ones(len(batch))
        for _ in range(_TURNS):
            worst = counts.log_deltas(seen, upper=False).max(axis=1)
            goals = np.maximum(goals, worst + room * _loose(worst))
            done, worse = _certified(counts, ends[rows[batch]], goals)
            found[batch[done]] = goals[done]
            too_long = ~done & np.isnan(worse)
            room[too_long] *= _MORE
            left = ~done & ~(too_long & (room > _MOST_ROOM))
            if not left.any():
                break
            seen = np.where(np.isnan(worse), seen[:, 0], worse)[:, None]
            seen = np.concatenate([ends[rows[batch]], seen], axis=1)[left]
            batch, goals, room = batch[left], goals[left], room[left]
            counts = releases.counts(rows[batch], epsilons[batch])
    return found


@lru_cache(maxsize=4096)
def bit_epsilon(bit: Bit, crowd: Crowd, delta: float) -> tuple[float, float]:
    """`epsilon_bounds` of one release, in the worse direction; of sizes by chance no lower one."""
    if isinstance(crowd, CrowdSizes):
        return 0.0, _epsilon_of_sizes(bit, crowd, delta)
    releases = Releases.of([(side, crowd) for side in bit.directions])
    lower, upper = epsilon_bounds(releases, np.full(len(releases.high), delta))
    return float(lower.max()), float(upper.max())


def bit_log_deltas(bit: Bit, crowd: Crowd, epsilons: Array) -> Array:
    """`log_uppers` of one release at many epsilons, in the worse direction."""
    if not isinstance(crowd, CrowdSizes):
        return _worse_logs(bit, np.full(len(epsilons), crowd), epsilons, log_uppers)
    rows, places = np.nonzero(sizes_that_matter(bit, crowd, epsilons))
    logs = _worse_logs(bit, np.array(crowd.sizes)[rows], epsilons[places], log_uppers)
    found = np.zeros((len(crowd.sizes), len(epsilons)))
    found[rows, places] = np.minimum(logs, 0.0)
    return crowd.above(np.minimum.accumulate(found, axis=0))  # no size costs more than one below


def sizes_that_matter(bit: Bit, crowd: CrowdSizes, epsilons: Array) -> NDArray[np.bool_]:
    """Of which sizes a delta is worth finding: in the stead of others that of the next below does.

    Returns:
        Of shape (sizes, epsilons); the least size is always one.
    """
    ends = _ends_of_sizes(bit, crowd, epsilons)
    least = (np.reshape(crowd.log_chances, (-1, 1)) + ends).max(axis=0) - _LITTLE
    found, below = np.ones(ends.shape, dtype=bool), ends[0]
    for row in range(1, len(ends)):
        found[row] = crowd.log_chances[row] + below > least
        below = np.where(found[row], ends[row], below)
    return found


def _ends_of_sizes(bit: Bit, crowd: CrowdSizes, epsilons: Array) -> Array:
    """Nearly the same of each size, of shape (sizes, epsilons)."""
    sizes, at = np.repeat(crowd.sizes, len(epsilons)), np.tile(epsilons, len(crowd.sizes))
    return _worse_logs(bit, sizes, at, _log_ends).reshape(len(crowd.sizes), -1)


def _worse_logs(
    bit: Bit,
    reports: NDArray[np.int64],
    epsilons: Array,
    log_deltas: Callable[[Releases, Array], Array],
) -> Array:
    """Of so many reports, each at an epsilon, in the worse direction."""
    sides = bit.directions
    releases = Releases.of([(side, n) for side in sides for n in reports.tolist()])
    found = log_deltas(releases, np.tile(epsilons, len(sides)))
    return np.asarray(found.reshape(len(sides), -1).max(axis=0))


def _epsilon_of_sizes(bit: Bit, crowd: CrowdSizes, delta: float) -> float:
    """What is enough for all data sets of a crowd of any size, on average; infinite if unknown.

    Found by two data sets of each size, which is nearly it, and then certified.
    """
    goal, top = math.log(delta), max(side.top for side in bit.directions)

    def rough(epsilons: Array) -> Array:
        logs = crowd.above(_ends_of_sizes(bit, crowd, epsilons))
        return np.asarray(np.maximum(logs, _LEAST_LOG) - goal + 2.0 * _loose(np.array(goal)))

    guess = bit.deviation(crowd) * math.sqrt(2.0 * math.log(1.0 + 0.4 / delta))
    at = safe_roots(lambda _, x: rough(x), np.array([guess]), np.array([top]), upper=True)
    for _ in range(_TURNS):
        if at[0] >= top * _MOST:
            return top
        above = bit_log_deltas(bit, crowd, at) - goal
        if above[0] <= 0.0:
            return float(at[0])
        step = np.maximum(at * _SECANT, 1e-300)
        falls = np.subtract(*rough(np.concatenate([at, at + step])))
        at = at + _BEYOND * above * step / np.maximum(falls, 1e-300)
    return math.inf


def _log_ends(releases: Releases, epsilons: Array) -> Array:
    """Logarithms of the delta where nobody else has the larger chance, or everybody."""
    found, ends = np.full(len(epsilons), -np.inf), releases.ends()[:, :: _ENDS + 1]
    some, at = np.flatnonzero(epsilons < releases.tops), np.minimum(epsilons, releases.tops * _MOST)
    for batch in releases.batches(some, at[some]):
        rows = some[batch]
        counts = releases.counts(rows, at[rows])
        found[rows] = counts.log_deltas(ends[rows], upper=True).max(axis=1)
    return found


def _loose(logs: Array) -> Array:
    """How far a log delta is certified above that of a data set."""
    return np.asarray(_LOOSE * np.maximum(1.0, logs / _OFTEN) ** 2)


def epsilon_bounds(releases: Releases, deltas: Array) -> tuple[Array, Array]:
    """Of each release the epsilon of a concrete data set, and one that is enough for all of them.

    The former is 0 where none is known to need any; the latter infinite where the search was given
    up.
    """
    goals, tops = np.log(deltas), releases.tops
    lower, upper = np.zeros(len(deltas)), np.full(len(deltas), np.inf)
    loose, rows = np.where(releases.reports <= _LISTED, 0.0, _loose(goals)), np.arange(len(deltas))

    def excess(rows: Rows, seen: Array, epsilons: Array) -> Array:
        counts = releases.counts(rows, np.minimum(epsilons, tops[rows] * _MOST))
        found = counts.log_deltas(seen[rows], upper=True).max(axis=1)
        return np.maximum(found, _LEAST_LOG) - goals[rows]

    def roots(rows: Rows, seen: Array, guesses: Array) -> Array:
        """The epsilons at which these numbers of ones leave room for what a bound adds."""

        def height(places: Rows, epsilons: Array) -> Array:
            return excess(rows[places], seen, epsilons) + loose[rows[places]]

        return safe_roots(height, guesses[rows], tops[rows], upper=True)

    seen, guesses = releases.ends(), _guesses(releases, deltas)
    if len(rows) > _AT_ONCE:  # of two numbers of ones, which is nearly it
        guesses = roots(rows, seen[:, :: _ENDS + 1], guesses)
    for _ in range(_TURNS):
        at = guesses[rows] = roots(rows, seen, guesses)
        inside = at < tops[rows] * _MOST
        upper[rows[~inside]] = tops[rows[~inside]]
        rows, at, worse = rows[inside], at[inside], np.full(inside.sum(), np.nan)
        for batch in releases.batches(rows, at):
            some = rows[batch]
            counts = releases.counts(some, at[batch])
            done, worse[batch] = _certified(counts, seen[some], goals[some])
            upper[some[done]] = at[batch][done]
        given_up = np.isnan(worse) & np.isinf(upper[rows])
        loose[rows[given_up]] *= _MORE
        found = ~np.isnan(worse)
        more = np.repeat(seen[:, :1], len(_AROUND), axis=1)
        around = worse[found, None] + _AROUND
        more[rows[found]] = np.clip(around, 0.0, releases.reports[rows[found], None] - 1.0)
        seen = np.concatenate([seen, more], axis=1) if found.any() else seen
        rows = rows[found | (given_up & (loose[rows] <= _MOST_ROOM * _loose(goals[rows])))]
        if not len(rows):
            break
    for less in _LESS:  # the data sets that were seen need nearly that
        some = np.flatnonzero((lower == 0.0) & (guesses > 0.0))
        if not len(some):
            break
        at = np.minimum(guesses[some], tops[some] * _MOST) * (1.0 - less)
        lower[some] = np.where(excess(some, seen, at) > _CLOSE, at, 0.0)
    return np.minimum(lower, upper), upper


def _guesses(releases: Releases, deltas: Array) -> Array:
    """Roughly the Gaussian limit."""
    mu = releases.deviations
    return mu * np.sqrt(2.0 * np.log(1.0 + 0.4 / deltas)) + 0.5 * mu * mu


def _certified(counts: _Counts, seen: Array, goals: Array) -> tuple[NDArray[np.bool_], Array]:
    """Whether no data set's log delta is above a goal; else a number of ones of one, or nan."""
    listed = counts.listed()
    seen = seen if listed is None else listed
    found = counts.log_deltas(seen, upper=True)
    done, worse = found.max(axis=1) <= goals, np.full(len(goals), np.nan)
    worse[~done] = np.take_along_axis(seen, found.argmax(axis=1)[:, None], axis=1)[~done, 0]
    if listed is not None:
        return done, worse
    first = np.minimum(_ENDS + 1.0, counts.others)
    width = np.maximum(counts.others - _ENDS - first, 1.0)
    edges = first + np.floor(width * _EDGES)
    least, most = edges[:, :-1], np.maximum(edges[:, 1:] - 1.0, edges[:, :-1])
    bad = counts.log_bounds(least, most) > goals[:, None]
    for row in np.flatnonzero(done & bad.any(axis=1)).tolist():
        blocks = least[row, bad[row]], most[row, bad[row]]
        done[row], worse[row] = _halved(counts.take(row), *blocks, goals[row])
    return done, worse


def _halved(counts: _Counts, least: Array, most: Array, goal: float) -> tuple[bool, float]:
    """The same of one release and blocks that were too long."""
    looked = 0
    while len(least):
        counted = most - least + 1.0
        if counted.sum() <= _FEW:
            starts = np.cumsum(counted) - counted
            each = np.repeat(least - starts, counted.astype(int)) + np.arange(counted.sum())
            heights = counts.log_deltas(each[None, :], upper=True)[0]
            above = heights.max() > goal
            return not above, float(each[heights.argmax()]) if above else math.nan
        looked += len(least)
        if looked > _MOST_BLOCKS:
            return False, math.nan
        middle = np.floor((least + most) / 2.0)
        if counts.log_deltas(middle[None, :], upper=False).max() > goal:
            return False, _climbed(counts, least, most)
        least, most = np.append(least, middle + 1.0), np.append(middle, most)
        least, most = least[least <= most], most[least <= most]
        bad = counts.log_bounds(least[None, :], most[None, :])[0] > goal
        least, most = least[bad], most[bad]
    return True, math.nan


def _climbed(counts: _Counts, least: Array, most: Array) -> float:
    """The worst of some numbers of ones in these blocks."""
    shares = np.linspace(0.0, 1.0, max(3, _BLOCKS * _BLOCKS // len(least)))
    some = np.unique(np.floor(least[:, None] + (most - least)[:, None] * shares))
    return float(some[counts.log_deltas(some[None, :], upper=False)[0].argmax()])


def block_ends(
    bit: Bit, reports: int, epsilon: float, delta: float | None = None
) -> list[Any] | None:
    """What another program needs to prove a delta again, in one direction; None if that is long.

    Args:
        delta: to be proved; by default the largest of any data set, and a little.

    Returns:
        Numbers of nodes in all, of those that count, of places w, and those of ones at the ends of
        blocks between which chords in m prove it too, or no other number is.
    """
    releases, at = Releases.of([(bit, reports)]), np.array([epsilon])
    if epsilon >= releases.tops[0] * _MOST:
        return [2, 1, 2, sorted({0, reports - 1})]
    counts = releases.counts(np.zeros(1, dtype=np.intp), at)
    goal = math.log(delta) if delta else float(log_uppers(releases, at)[0])
    others = float(counts.others[0, 0])
    ends, pending = {0.0, others}, [(0.0, others)]
    while pending:
        if len(ends) > _MOST_ENDS or not math.isfinite(goal):
            return None
        least, most = (np.array(side) for side in zip(*pending))
        high = (counts.log_bounds(least[None, :], most[None, :])[0] > goal) & (most - least > 1.0)
        least, most = least[high], most[high]
        middles = np.floor((least + most) / 2.0)
        ends.update(middles.tolist())
        pending = [*zip(least, middles), *zip(middles, most)]
    nodes, used = math.pi / 2.0 / float(counts.turn[0, 0]), counts.turn.shape[1]
    shift = max(counts.chance[0][0, 0] - bit.high, counts.chance[1][0, 0] - bit.low) * others
    wide = max(bit.high * (1.0 - bit.high), bit.low * (1.0 - bit.low)) * others
    whole = math.ceil(max(nodes, (float(_reach(np.array(wide))) + shift) / 2.0 + 3.0))
    used = min(whole, math.ceil(used * whole / nodes))
    return [whole, used, len(counts.places()), sorted(map(int, ends))]
