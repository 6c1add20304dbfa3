"""Laws of small releases by enumeration, and the worst neighbours among them: the judge of bounds.

Nothing here comes from the library. A release is people (or clients with several points), who
takes part, and the histogram of the reports; a mechanism is the table `rows[value, report]` or,
where every person answers by a law of their own, one row per person.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.special import logsumexp

Array = NDArray[np.float64]


class Pairs(NamedTuple):
    """Neighbouring data sets of one release: row i of `first` and of `second` are their laws."""

    first: Array
    second: Array

    def renyi(self, orders: Sequence[float]) -> Array:
        """The worst divergence of each order, over all pairs."""
        with np.errstate(divide="ignore", invalid="ignore"):
            log_q = np.log(self.second)
            ratio = np.where(self.second > 0, np.log(self.first) - log_q, 0.0)
        return np.array(
            [np.max(logsumexp(log_q + order * ratio, axis=1)) / (order - 1) for order in orders]
        )

    def sticks(self, epsilons: Iterable[float]) -> Array:
        """The worst E[(P - e^epsilon Q)_+], the delta at each epsilon, over all pairs."""
        gaps = (self.first - math.exp(min(epsilon, 700.0)) * self.second for epsilon in epsilons)
        return np.array([np.max(np.sum(np.maximum(gap, 0.0), axis=1)) for gap in gaps])

    def times(self, other: Pairs) -> Pairs:
        """Both releases about the same people, one after the other (pair i with pair i)."""
        both = (
            np.einsum("ij,ik->ijk", one, two).reshape(len(one), -1)
            for one, two in zip(self, other, strict=True)
        )
        return Pairs(*both)


def crowd_law(rows: Array) -> Array:
    """The law of the histogram of reports whose laws are the rows, over all histograms."""
    people, reports = rows.shape
    law = np.zeros((people + 1,) * (reports - 1))
    law[(0,) * (reports - 1)] = 1.0
    for row in rows:
        following = row[-1] * law  # the last count follows from the others
        for report in range(reports - 1):
            moved = np.zeros_like(law)
            after = [slice(None)] * (reports - 1)
            before = list(after)
            after[report], before[report] = slice(1, None), slice(None, -1)
            moved[tuple(after)] = law[tuple(before)]
            following += row[report] * moved
        law = following
    return law.reshape(-1)


def sampled_law(rows: Array, sampled: int) -> Array:
    """The same where only a uniformly random set of so many people reports."""
    subsets = list(itertools.combinations(range(len(rows)), sampled))
    return np.sum([crowd_law(rows[list(subset)]) for subset in subsets], axis=0) / len(subsets)


def two_level_law(clients: Sequence[Array], drawn: int, points: int) -> Array:
    """Draw clients, then points of each drawn client; `clients[i]` holds the rows of its points."""
    total, ways = np.zeros(()), 0
    for chosen in itertools.combinations(clients, drawn):
        choices = [list(itertools.combinations(client, points)) for client in chosen]
        for picked in itertools.product(*choices):
            total = total + crowd_law(np.array([row for client in picked for row in client]))
            ways += 1
    return total / ways


def channel_pairs(rows: Array, people: int, sampled: int | None = None) -> Pairs:
    """Every data set of so many people, and every exchange of one value for another."""
    values, drawn = range(len(rows)), people if sampled is None else sampled

    @cache
    def law(dataset: tuple[int, ...]) -> Array:
        return sampled_law(rows[list(dataset)], drawn)

    return _collect(
        (law(tuple(sorted((*others, x)))), law(tuple(sorted((*others, y)))))
        for others in itertools.combinations_with_replacement(values, people - 1)
        for x, y in itertools.permutations(values, 2)
    )


def public_pairs(tables: Array, people: int) -> Pairs:
    """Every data set of people whom a public coin puts in groups, and every exchange of one value.

    `tables[group]` is the table `[value, report]` of a group. The view is who is in which group and
    the histogram of each. Groups without the victim are the same twice: they are left out.
    """
    groups, values = len(tables), range(len(tables[0]))

    @cache
    def law(victim: int, others: tuple[int, ...]) -> Array:
        parts = []
        for together in itertools.product((False, True), repeat=len(others)):
            chance = math.prod(1 / groups if here else 1 - 1 / groups for here in together)
            held = [victim, *itertools.compress(others, together)]
            parts += [chance / groups * crowd_law(rows[held]) for rows in tables]
        return np.concatenate(parts)

    return _collect(
        (law(x, others), law(y, others))
        for others in itertools.combinations_with_replacement(values, people - 1)
        for x, y in itertools.permutations(values, 2)
    )


def mixed_pairs(rows: Sequence[Array]) -> Pairs:
    """Every data set of people with laws of their own, known to all, and every exchange of one.

    `rows[i]` is the table `[value, report]` of person i.
    """
    values = range(len(rows[0]))

    def pairs() -> Iterator[tuple[Array, Array]]:
        for victim in range(len(rows)):
            others = [row for i, row in enumerate(rows) if i != victim]
            for held in itertools.product(values, repeat=len(others)):
                rest = [row[value] for row, value in zip(others, held)]
                laws = [crowd_law(np.array([rows[victim][x], *rest])) for x in values]
                yield from itertools.permutations(laws, 2)

    return _collect(pairs())


def two_level_pairs(rows: Array, clients: int, points: int, drawn: int, sent: int) -> Pairs:
    """Every data set of clients with several points, and every exchange of one point."""
    values = range(len(rows))
    holdings = list(itertools.combinations_with_replacement(values, points))

    @cache
    def law(dataset: tuple[tuple[int, ...], ...]) -> Array:
        return two_level_law([rows[list(held)] for held in dataset], drawn, sent)

    def pairs() -> Iterator[tuple[Array, Array]]:
        for others in itertools.combinations_with_replacement(holdings, clients - 1):
            for rest in itertools.combinations_with_replacement(values, points - 1):
                for x, y in itertools.permutations(values, 2):
                    one, two = (tuple(sorted((*rest, value))) for value in (x, y))
                    yield law(tuple(sorted((*others, one)))), law(tuple(sorted((*others, two))))

    return _collect(pairs())


def with_coins(rows: Array, join: float) -> Array:
    """Who stays away reports nothing, and how many stayed away shows: one more report."""
    return np.column_stack([join * rows, np.full(len(rows), 1.0 - join)])


def coin_pairs(rows: Array, clients: int, points: int, join: float, each_point: bool) -> Pairs:
    """Coins decide who reports: clients, who then send one of their points, or every point."""
    if each_point or points == 1:
        return channel_pairs(with_coins(rows, join), clients * points)
    mixtures = list(itertools.combinations_with_replacement(range(len(rows)), points))
    mixed = with_coins(np.array([rows[list(held)].mean(axis=0) for held in mixtures]), join)
    near = [
        (i, j)
        for (i, one), (j, two) in itertools.permutations(enumerate(mixtures), 2)
        if sum((Counter(one) - Counter(two)).values()) == 1
    ]
    return _collect(
        (crowd_law(mixed[[*others, i]]), crowd_law(mixed[[*others, j]]))
        for others in itertools.combinations_with_replacement(range(len(mixtures)), clients - 1)
        for i, j in near
    )


def victim_pairs(rows: Array, sampled: int | None = None) -> Pairs:
    """Everybody answers by a law of their own: the victim by row 0 or 1, the others by the rest."""
    drawn = len(rows) - 1 if sampled is None else sampled
    laws = [sampled_law(np.delete(rows, 1 - victim, axis=0), drawn) for victim in (0, 1)]
    return Pairs(np.array(laws), np.array(laws[::-1]))


def response_rows(values: int, epsilon: float) -> Array:
    """Randomized response: the truth is e^epsilon times as likely as any other report."""
    weights = np.ones((values, values)) + math.expm1(epsilon) * np.eye(values)
    return weights / weights.sum(axis=1, keepdims=True)


def extreme_rows(epsilon: float, people: int, cost: Array) -> Array:
    """Laws of `people` answers with ratios of exactly e^epsilon: a vertex of all such tables.

    Every mechanism is a mixture of these, whose reports are `{1, e^epsilon}` patterns over the
    people. `cost` (one number per pattern, `2^people - 1` of them) chooses the vertex.
    """
    patterns = np.array(list(itertools.product((1.0, math.exp(epsilon)), repeat=people))[:-1])
    found = linprog(cost, A_eq=patterns.T, b_eq=np.ones(people), method="highs")
    used = found.x > 1e-12
    rows = (found.x[used, None] * patterns[used]).T
    return rows / rows.sum(axis=1, keepdims=True)


def _collect(pairs: Iterable[tuple[Array, Array]]) -> Pairs:
    first, second = zip(*pairs, strict=True)
    return Pairs(np.array(first), np.array(second))


# The same in plain words, for single data sets: a channel has one column per value.


def shuffled_law(channel: np.ndarray, dataset: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """The law of the histogram of reports, by polynomial multiplication."""
    outputs = channel.shape[0]
    law = {(0,) * outputs: 1.0}
    for value in dataset:
        following: dict[tuple[int, ...], float] = {}
        for histogram, mass in law.items():
            for report in range(outputs):
                key = tuple(h + (i == report) for i, h in enumerate(histogram))
                following[key] = following.get(key, 0.0) + mass * channel[report, value]
        law = following
    return law


def renyi(p: dict, q: dict, order: float) -> float:
    return math.log(sum(q[y] * (p[y] / q[y]) ** order for y in q)) / (order - 1)


def response(k: int, epsilon: float) -> np.ndarray:
    weights = np.ones((k, k)) + (math.exp(epsilon) - 1) * np.eye(k)
    return weights / weights.sum(axis=0)
