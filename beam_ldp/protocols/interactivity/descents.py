"""Going down a tree by private answers: everybody at every level, or fresh people per level.

Each person knows something about one level of the tree, which nobody else knows. A protocol goes
from the root down; at each level it asks for the child to go to. If everybody is asked at every
level, and people of other levels answer with a fair coin, then all of a person's answers together
cost one epsilon: a likelihood filter sees that, and a sum of epsilons says `depth` times as much.
If everybody may be asked only once, each level needs people of its own: `depth` times as many.

This is multi-party pointer jumping. Its proved separation (exponents of `depth`) shows only at
astronomical depths, about 1.6e11 with the paper's constants; the factor `depth` is what a
descent country, region, city sees.

Source: specification of interactivity, section 6.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive

MOST_VOTES = 2**40


def path_of(labels: Sequence[Sequence[int]], children: int) -> tuple[int, ...]:
    """The labels on the way down: those of the nodes that each label leads to, from the root.

    Args:
        labels: `labels[i][node]` is the child to go to from that node of level i, from 0.
        children: of each node.

    >>> path_of([[1], [0, 2], [0, 0, 0, 0, 0, 1]], children=3)
    (1, 2, 1)
    """
    check_integer("children", children, 2)
    node, path = 0, []
    for level in labels:
        path.append(level[node])
        node = children * node + path[-1]
    return tuple(path)


def level_kernel(depth: int, level: int, epsilon: float) -> np.ndarray:
    """A question about one level, `(2 depth + 1, 2)`: data are (level, bit); nothing known is last.

    >>> level_kernel(1, 0, 1.0).round(3).tolist()
    [[0.731, 0.269], [0.269, 0.731], [0.5, 0.5]]
    """
    check_integer("depth", depth, 1)
    check_integer("level", level, 0, depth - 1)
    check_positive("epsilon", epsilon)
    kernel = np.full((2 * depth + 1, 2), 0.5)
    told = 1 / (1 + math.exp(-epsilon))
    kernel[2 * level], kernel[2 * level + 1] = (told, 1 - told), (1 - told, told)
    return kernel


@dataclass(frozen=True)
class Descent:
    """How many people find a path, where half of them know nothing and the others one level each.

    Args:
        depth: number of levels, from 2.
        epsilon: local epsilon of everything that a person says.
        beta: probability of another path; 1/depth if none.
        children: of each node; depth^4 if none, as in the paper.

    >>> descent = Descent(8, 1.0)
    >>> descent.votes, descent.people_asked_again, descent.people_asked_once
    (10863, 130356, 1042848)
    """

    depth: int
    epsilon: float
    beta: float | None = None
    children: int | None = None

    def __post_init__(self) -> None:
        check_integer("depth", self.depth, 2)
        check_positive("epsilon", self.epsilon)
        check_fraction("beta", self.failure)
        check_integer("children", self.fan_out, 2)

    @property
    def failure(self) -> float:
        """Probability of another path, at most."""
        return 1 / self.depth if self.beta is None else self.beta

    @property
    def fan_out(self) -> int:
        """Children of each node."""
        return self.depth**4 if self.children is None else self.children

    @property
    def bits(self) -> int:
        """Bits of a label: a group of people answers each."""
        return (self.fan_out - 1).bit_length()

    @property
    def right(self) -> float:
        """Probability that the bit of a random person is right."""
        return 0.5 + math.tanh(self.epsilon / 2) / (4 * self.depth)

    @property
    def votes(self) -> int:
        """People in each group: the smallest odd number by the exact binomial, over all bits."""
        low, high = -1, 0
        while self._failure_of(high) > self.failure:
            low, high = high, 2 * high + 1
            if high > MOST_VOTES:
                raise ValueError(
                    f"epsilon of {self.epsilon:g} needs more than {MOST_VOTES} people in a group"
                )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if self._failure_of(middle) <= self.failure else (middle, high)
            )
        return 2 * high + 1

    @property
    def votes_by_hoeffding(self) -> int:
        """The same in closed form, larger."""
        contrast = math.tanh(self.epsilon / 2)
        return math.ceil(
            8 * self.depth**2 / contrast**2 * math.log(self.bits * self.depth / self.failure)
        )

    @property
    def votes_of_the_paper(self) -> int:
        """The same as the paper prints it, for a failure of 1/depth."""
        contrast = math.tanh(self.epsilon / 2)
        return math.ceil(512 * self.depth**2 * math.log(self.depth) / contrast**2)

    @property
    def people_asked_again(self) -> int:
        """People in all, where everybody is asked at every level."""
        return self.bits * self.votes

    @property
    def people_asked_once(self) -> int:
        """People in all, where each level has people of its own."""
        return self.depth * self.people_asked_again

    @property
    def sum_of_epsilons(self) -> float:
        """What a ledger that adds up says of somebody who is asked at every level."""
        return self.depth * self.epsilon

    @property
    def people_at_least(self) -> float:
        """No protocol that asks everybody once finds the path in 2 of 3 cases with fewer people.

        Of depth^4 children.

        Raises:
            ValueError: below a depth of 3, where the proof does not hold.
        """
        check_integer("depth", self.depth, 3)
        return self.depth**3 / (216 * math.expm1(self.epsilon) ** 2 * math.log(self.depth))

    def _failure_of(self, half: int) -> float:
        """Bound on the failure with 2 half + 1 people in each group."""
        return float(self.bits * self.depth * stats.binom.cdf(half, 2 * half + 1, self.right))
