"""A tree over the cells of a number: ranges and quantiles from few nodes.

A range of many cells, added up from single cells, carries the noise of each; a tree covers it with
a few nodes. People report about the levels of the tree (`OneQuestion`, `EveryQuestion`: a question
per level). The levels then contradict each other a little, for each has noise of its own;
`consistent` is the explicit step that settles it, by weighted least squares. Raw estimates stay.

Source: Hay, Rastogi, Miklau and Suciu 2010 (consistency); Cormode, Kulkarni and Srivastava 2019
(trees under local privacy); Wang et al. 2019. Variances are not those of the papers, which take
nodes for independent: they are computed from the oracles' law.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import FrequencyOracle, Sampling
from beam_ldp.randomizers.checks import check_fraction, check_integer
from beam_ldp.randomizers.contrasts import combination_variance
from beam_ldp.randomizers.domain import Bins
from beam_ldp.randomizers.estimate import Estimate

MAX_CELLS = 2050  # bins and the two open ends: sums of all of them stay below 50 MB


@dataclass(frozen=True)
class Hierarchy:
    """A tree over bins and the two open ends below and above them.

    Cell 0 is everything below the first edge, the last cell everything above the last edge, so that
    the cells of all people sum to one. Level i has the nodes of `fan_out**(depth - i)` neighbouring
    cells each; the last level has the cells themselves. The root, all people, needs no report.

    Args:
        bins: the public bins.
        fan_out: children of a node, at least 2; as many as cells for a flat histogram.

    Raises:
        ValueError: for more than 2,048 bins, or a fan-out below 2.

    >>> tree = Hierarchy(Bins.parse("0,10,20"), 2)
    >>> tree.num_cells, tree.sizes, tree.encode(np.array([-1.0, 5.0, 20.0, 21.0])).tolist()
    (4, (2, 4), [[0, 0], [0, 1], [1, 2], [1, 3]])
    """

    bins: Bins
    fan_out: int

    def __post_init__(self) -> None:
        if self.num_cells > MAX_CELLS:
            raise ValueError(f"there must be at most {MAX_CELLS - 2:,}, got {self.bins.count:,}")
        check_integer("fan_out", self.fan_out, 2)

    @property
    def num_cells(self) -> int:
        """Bins and the two open ends."""
        return self.bins.count + 2

    @cached_property
    def widths(self) -> tuple[int, ...]:
        """Cells in a node of each level, coarsest first; the last is 1."""
        width, found = 1, [1]
        while -(-self.num_cells // (width * self.fan_out)) > 1:
            width *= self.fan_out
            found.append(width)
        return tuple(reversed(found))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each level."""
        return tuple(-(-self.num_cells // width) for width in self.widths)

    @property
    def labels(self) -> tuple[str, ...]:
        """A name for every cell."""
        first, last = self.bins.values[0], self.bins.values[-1]
        low, high = first[1:].split(",")[0], last[:-1].split(", ")[1]
        return (f"below {low}", *self.bins.values, f"above {high}")

    @property
    def level_labels(self) -> tuple[tuple[str, ...], ...]:
        """Names of the nodes of every level."""
        lows = [label.split(", ")[0] for label in self.bins.values]
        highs = [label.split(", ")[1] for label in self.bins.values]
        starts = ["(-inf", *lows, f"({highs[-1][:-1]}"]
        ends = [f"{lows[0][1:]})", *highs, "inf)"]
        found = []
        for width in self.widths:
            firsts = range(0, self.num_cells, width)
            lasts = [min(first + width, self.num_cells) - 1 for first in firsts]
            found.append(tuple(f"{starts[i]}, {ends[j]}" for i, j in zip(firsts, lasts)))
        return tuple(found)

    def cells(self, values: np.ndarray) -> np.ndarray:
        """The cell of each number, int64; NaN is none and must have been left out."""
        inside = self.bins.encode(values)
        low, high = self.bins.edges[0], self.bins.edges[-1]
        found = np.where(values < low, 0, inside + 1)
        return np.where(values > high, self.num_cells - 1, found)

    def encode(self, values: np.ndarray) -> np.ndarray:
        """The node of each number on every level: int64, `(n, levels)`."""
        cells = self.cells(values)
        return np.stack([cells // width for width in self.widths], axis=1)

    def consistent(
        self,
        oracles: Sequence[FrequencyOracle],
        levels: Sequence[Estimate],
        answers: Sequence[int],
        sampling: Sampling = "iid",
    ) -> RangeEstimate:
        """The cells that fit all levels best, with what errors of their sums are computed from.

        Weighted least squares: every node counts by the inverse variance of a rare value of its
        level, and all cells together are exactly one. The result is linear in the raw estimates,
        so it stays unbiased. Its errors come from the law of the oracles, in which the nodes of a
        level are correlated. Where each answers one level, the levels are samples of their own;
        where everybody answers all, they share the people and differ in their noise alone.

        Args:
            oracles: of the levels, coarsest first.
            levels: raw estimates of the levels.
            answers: people who answered each level.
            sampling: "iid" for errors about the population that people were drawn from; "fixed"
                for errors about these people, which are the same (and a little too large) where
                each answers one level.
        """
        if not len(oracles) == len(levels) == len(answers) == len(self.sizes):
            raise ValueError(f"levels must number {len(self.sizes)}, one estimate per level")
        for size, level in zip(self.sizes, levels):
            if level.raw.value.shape != (size,):
                raise ValueError(f"levels must hold {self.sizes} nodes, one level has another")
        noise = [rare_variance(o, max(1, n)) for o, n in zip(oracles, answers)]
        matrix, constant = self.least_squares(tuple(noise))
        values = matrix @ np.concatenate([level.raw.value for level in levels]) + constant
        return RangeEstimate(
            self, values, matrix, tuple(oracles), tuple(answers), levels[0].num_users, sampling
        )

    def least_squares(self, variances: tuple[float, ...]) -> tuple[np.ndarray, np.ndarray]:
        """`(matrix, constant)`: cells = matrix @ all nodes, level by level, + constant.

        Args:
            variances: of a node of each level, taken as independent; only their ratios matter.

        Up the tree every node is joined with the sum of its children by inverse variances; down the
        tree what is left over is shared out among the children. O(cells * nodes).
        """
        total = sum(self.sizes)
        joined, spread = self._up(variances, total)
        # The root is known: all people are one.
        constant = np.zeros((self.sizes[0], 1))
        rest = -joined[0].sum(axis=0, keepdims=True)
        share = (spread[0] / spread[0].sum())[:, None]
        found = joined[0] + share * rest
        constant += share
        for level in range(1, len(self.sizes)):
            parent = np.arange(self.sizes[level]) // self.fan_out
            starts = np.arange(0, self.sizes[level], self.fan_out)
            sums = np.add.reduceat(joined[level], starts, axis=0)
            weight = (spread[level] / np.add.reduceat(spread[level], starts)[parent])[:, None]
            found = joined[level] + weight * (found - sums)[parent]
            constant = weight * constant[parent]
        return found, constant[:, 0]

    def _up(
        self, variances: tuple[float, ...], total: int
    ) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Every node from itself and all below it: coefficients and variances, level by level."""
        first = np.cumsum([0, *self.sizes])
        joined: list[np.ndarray] = [np.empty(0)] * len(self.sizes)
        spread: list[np.ndarray] = [np.empty(0)] * len(self.sizes)
        for level in reversed(range(len(self.sizes))):
            own = np.zeros((self.sizes[level], total))
            own[np.arange(self.sizes[level]), first[level] + np.arange(self.sizes[level])] = 1.0
            variance = np.full(self.sizes[level], variances[level])
            if level + 1 < len(self.sizes):
                starts = np.arange(0, self.sizes[level + 1], self.fan_out)
                below = np.add.reduceat(joined[level + 1], starts, axis=0)
                noise = np.add.reduceat(spread[level + 1], starts)
                weight = (noise / (noise + variance))[:, None]
                own = weight * own + (1 - weight) * below
                variance = variance * noise / (noise + variance)
            joined[level], spread[level] = own, variance
        return joined, spread


@dataclass(frozen=True, eq=False)
class RangeEstimate:
    """Cells that agree with all levels, and the exact error of every sum of them.

    Attributes:
        hierarchy: the tree.
        cells: fraction of people in each cell; they sum to one and may be negative.
        matrix: how the cells follow from the raw nodes of all levels, but for a constant.
        oracles, answers: of the levels.
        num_users: people.
        sampling: what errors are about.
    """

    hierarchy: Hierarchy
    cells: np.ndarray
    matrix: np.ndarray
    oracles: tuple[FrequencyOracle, ...]
    answers: tuple[int, ...]
    num_users: int
    sampling: Sampling

    def sums(self, weights: np.ndarray) -> Estimate:
        """Weighted sums of the cells, `(sums, cells)`, with their standard errors."""
        rows = np.atleast_2d(np.asarray(weights, dtype=float))
        raw, start = rows @ self.matrix, 0
        variance = self._common(rows)
        sampling: Sampling = "fixed" if self._shared else "iid"
        for width, size, oracle, answers in zip(
            self.hierarchy.widths, self.hierarchy.sizes, self.oracles, self.answers
        ):
            nodes = self._truth(width)
            own = raw[:, start : start + size]
            start += size
            if answers < 1:
                variance[:] = np.inf
                continue
            variance += combination_variance(oracle, own, answers, nodes, sampling)
        return Estimate(
            rows @ self.cells, np.sqrt(variance), self.num_users, ("weighted_least_squares",)
        )

    @property
    def _shared(self) -> bool:
        """Whether everybody answered all levels."""
        return all(count == self.num_users for count in self.answers)

    def _common(self, rows: np.ndarray) -> np.ndarray:
        """What the draw of people adds where all levels are about the same people."""
        if not (self._shared and self.sampling == "iid"):
            return np.zeros(len(rows))
        share = self._truth(1)
        return np.asarray(rows**2 @ share - (rows @ share) ** 2) / self.num_users

    def _truth(self, width: int) -> np.ndarray:
        """What is known of the nodes of a level: frequencies that variances are computed at."""
        starts = np.arange(0, len(self.cells), width)
        plausible = np.maximum(self.cells, 0.0)
        plausible = plausible / plausible.sum()
        return np.clip(np.add.reduceat(plausible, starts), 0.0, 1.0)

    def histogram(self) -> Estimate:
        """Every cell."""
        return self.sums(np.eye(len(self.cells)))

    def between(self, low: float, high: float) -> Estimate:
        """The fraction of people whose number lies in [low, high), both of them edges.

        An infinite end takes the open cell in.

        Raises:
            ValueError: if an end is no edge of the bins, or they are not increasing.
        """
        if not low < high:
            raise ValueError(f"low must be below high, got {low} and {high}")
        return self.sums(self.weights_between(low, high))

    def weights_between(self, low: float, high: float) -> np.ndarray:
        """One for each cell of [low, high), zero elsewhere."""
        first = 0 if low == -np.inf else self._edge(low) + 1
        last = len(self.cells) if high == np.inf else self._edge(high) + 1
        weights = np.zeros(len(self.cells))
        weights[first:last] = 1.0
        return weights

    def _edge(self, value: float) -> int:
        edges = self.hierarchy.bins.edges
        place = int(np.searchsorted(edges, value))
        if place == len(edges) or edges[place] != value:
            near = edges[min(range(len(edges)), key=lambda i: abs(edges[i] - value))]
            raise ValueError(f"{value:g} is not an edge of the bins; the nearest is {near:g}")
        return place

    @cached_property
    def cumulative(self) -> Estimate:
        """The fraction of people below each edge."""
        count = len(self.hierarchy.bins.edges)
        below = np.tril(np.ones((count, len(self.cells))))
        return self.sums(below)

    def quantiles(self, levels: Sequence[float], coverage: float = 0.95) -> list[Quantile]:
        """Quantiles with intervals that hold the true quantile.

        The lower end is the last of the edges, counted from the first one without a gap, whose own
        interval lies wholly below the level; the upper end likewise. So if the true quantile is
        below the lower end, the next edge above the quantile is among those, although at least the
        level lies below it: an interval of one fixed edge has missed. The interval therefore holds
        with at least `coverage`, however many edges there are (normal errors supposed).

        Args:
            levels: in (0, 1).
            coverage: of each interval by itself.
        """
        check_fraction("coverage", coverage)

        edges = self.hierarchy.bins.edges
        below, error = self.cumulative.value, self.cumulative.standard_error
        reach = -special.ndtri((1 - coverage) / 2) * error
        found = []
        for level in levels:
            check_fraction("quantiles", level)
            # Edges that certainly lie below the quantile, and such that certainly lie above it.
            low = np.flatnonzero(below + reach < level)
            high = np.flatnonzero(below - reach > level)
            first, last = _run_end(low), _run_start(high, len(edges))
            found.append(
                Quantile(
                    level,
                    _crossing(edges, below, level),
                    edges[first] if first >= 0 else -np.inf,
                    edges[last] if last < len(edges) else np.inf,
                )
            )
        return found


@dataclass(frozen=True)
class Quantile:
    """A quantile: where it is estimated, and an interval that holds it.

    Attributes:
        level: in (0, 1).
        value: estimate, interpolated inside its bin; an infinity where it lies beyond the bins.
        low, high: edges; an infinity where the bins do not reach that far.
    """

    level: float
    value: float
    low: float
    high: float


def rare_variance(oracle: FrequencyOracle, num_users: int) -> float:
    """Variance of the frequency of a value that nobody holds, the worst one."""
    truth = np.zeros(oracle.domain_size)
    truth[-1] = 1.0
    return float(oracle.variance(num_users, truth)[:-1].max())


def _run_end(places: np.ndarray) -> int:
    """The last place of the run that begins at the start; -1 where there is none."""
    run = np.flatnonzero(places == np.arange(len(places)))
    return int(run.max(initial=-1))


def _run_start(places: np.ndarray, total: int) -> int:
    """The first place of the run that reaches the end; `total` where there is none."""
    backwards = total - 1 - places[::-1]
    run = np.flatnonzero(backwards == np.arange(len(backwards)))
    return total - 1 - int(run.max()) if len(run) else total


def _crossing(edges: tuple[float, ...], below: np.ndarray, level: float) -> float:
    """Where the distribution function reaches the level, once it is made monotone: halfway between
    its running maximum from below and its running minimum from above, which err either way."""
    rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
    if level < rising[0]:
        return -np.inf
    if level > rising[-1]:
        return np.inf
    place = int(np.searchsorted(rising, level))
    if place == 0:
        return edges[0]
    low, high = rising[place - 1], rising[place]
    part = 0.5 if high <= low else (level - low) / (high - low)
    return float(edges[place - 1] + part * (edges[place] - edges[place - 1]))
