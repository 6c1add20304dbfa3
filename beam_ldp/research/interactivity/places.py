"""A descent country, region, city: everybody is asked at each level, and pays once.

Each person knows a place at one level of a tree: one device its country, another its region, a
third its city. A wave asks for the child of the place that was found so far. Who knows a place at
another level, or elsewhere, answers with pure public noise, so everything that a person says in all
waves costs one epsilon: a likelihood filter sees that, a sum of epsilons says `depth` times as
much. If everybody may be asked only once, each level needs people of its own.

Where the list of all places can be held, `beam-ldp frequency` asks for all levels in one round.

Source: specification of interactivity, section 6.3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.research.interactivity.sequential import Ask, SequentialPrice
from beam_ldp.research.interactivity.waves import Answers

MOST_DATA = 1 << 16  # places in all: a kernel has a row for each


@dataclass(frozen=True)
class PlaceSearch:
    """The place that is named most at each level, from the root down.

    With probability 1 - `beta` at least each step goes to the child that `share` of the population
    hold at least, if no sister is held by more than `rival`; people are drawn from the population.

    Each person is protected against everybody who reads all answers, by `epsilon` for all own ones.

    Args:
        depth: number of levels.
        children: of each place.
        epsilon: local epsilon of everything that a person says.
        share: fraction of the population that know the right place of a level, and at that level.
        rival: the largest fraction that know another child of the same place.
        beta: probability of another path.
        again: ask the same people at all levels.

    >>> search = PlaceSearch(3, 4, epsilon=1.0, share=0.2, rival=0.1, again=True)
    >>> search.people, search.price.expected("plain") > 3 * search.people
    (6263, True)
    >>> PlaceSearch(3, 4, epsilon=1.0, share=0.2, rival=0.1).people
    18789
    """

    depth: int
    children: int
    epsilon: float
    share: float
    rival: float
    beta: float = 0.05
    again: bool = False

    def __post_init__(self) -> None:
        check_integer("depth", self.depth, 1)
        check_integer("children", self.children, 2)
        check_positive("epsilon", self.epsilon)
        check_fraction("share", self.share, "(]")
        check_fraction("rival", self.rival, "[)")
        check_fraction("beta", self.beta)
        if not (self.rival < self.share and self.rival + self.share <= 1):
            raise ValueError("rival must be below share, and both together at most 1")
        if self.data > MOST_DATA:
            raise ValueError(f"depth and children must make at most {MOST_DATA - 1:,} places")

    @property
    def data(self) -> int:
        """Number of data: all places, and nothing known."""
        return 1 + sum(self.children**level for level in range(1, self.depth + 1))

    def datum(self, path: Sequence[int]) -> int:
        """The datum of somebody who knows a place: the children on the way to it, from 0.

        >>> search = PlaceSearch(2, 3, 1.0, 0.5, 0.2)
        >>> [search.datum(path) for path in ((), (0,), (2,), (0, 0), (2, 2))]
        [0, 1, 3, 4, 12]
        """
        check_integer("length of path", len(path), 0, self.depth)
        node = 0
        for child in path:
            node = self.children * node + check_integer("child", child, 0, self.children - 1)
        return sum(self.children**level for level in range(len(path))) + node

    @property
    def votes(self) -> int:
        """People who answer at one level.

        By Chernoff's bound: of two children with probabilities p > q the second is named as often
        or oftener among n people with probability at most (1 - (sqrt p - sqrt q)^2)^n.
        """
        named, other = (self._named(fraction) for fraction in (self.share, self.rival))
        gap = (math.sqrt(named) - math.sqrt(other)) ** 2
        wrong = (self.children - 1) * self.depth / self.beta
        return math.ceil(math.log(wrong) / -math.log1p(-gap))

    @property
    def people(self) -> int:
        """People in all."""
        return self.votes if self.again else self.depth * self.votes

    @property
    def sum_of_epsilons(self) -> float:
        """What a ledger that adds up says of somebody who is asked at all levels."""
        return self.depth * self.epsilon if self.again else self.epsilon

    @property
    def price(self) -> SequentialPrice:
        """What fresh people in place of those asked again would take."""
        return SequentialPrice(self.votes, self.depth * self.votes, self.depth, self.epsilon)

    def kernel(self, path: Sequence[int]) -> np.ndarray:
        """The question for a child of a place, `(data, children)`."""
        rows = np.full((self.data, self.children), 1 / self.children)
        first = self.datum((*path, 0))
        other = 1 / (math.exp(self.epsilon) + self.children - 1)
        rows[first : first + self.children] = other
        np.fill_diagonal(rows[first : first + self.children], math.exp(self.epsilon) * other)
        return rows

    def path(self, finished: Answers) -> tuple[int, ...]:
        """The children that most people named, the first of them in a tie."""
        return tuple(
            int(np.argmax(np.bincount(answers, minlength=self.children))) for answers in finished
        )

    def rounds(self, finished: Answers) -> list[Ask]:
        """The questions of the next wave: the protocol, for `WavePlan`."""
        if len(finished) == self.depth:
            return []
        kernel, step = self.kernel(self.path(finished)), 0 if self.again else len(finished)
        return [Ask((step, number), kernel) for number in range(self.votes)]

    def _named(self, fraction: float) -> float:
        """Probability that a random person names a child that this fraction know.

        Where nobody knows a third child of the place: others draw it evenly, which makes the two
        hardest to tell apart.
        """
        known, grown = self.share + self.rival, math.exp(self.epsilon)
        told = fraction * grown + (known - fraction)
        return told / (grown + self.children - 1) + (1 - known) / self.children
