"""Going down a tree by private answers: everybody at every level, or fresh people per level.

Each person knows something about one level of the tree, which nobody else knows. A protocol goes
from the root down; at each level it asks for the child to go to. If everybody is asked at every
level, and people of other levels answer with a fair coin, then all of a person's answers together
cost one epsilon: a likelihood filter sees that, and a sum of epsilons says `depth` times as much.
If everybody may be asked only once, each level needs people of its own: `depth` times as many.

This is multi-party pointer jumping. Its proved separation (exponents of `depth`) shows only at
astronomical depths (`separation_depth`); the factor `depth` is what a descent country, region,
city sees.

Source: specification of interactivity, section 6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive

MOST_VOTES = 2**40


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
    def votes_of_the_paper(self) -> int:
        """The same as the paper prints it, for a failure of 1/depth."""
        contrast = math.tanh(self.epsilon / 2)
        return math.ceil(512 * self.depth**2 * math.log(self.depth) / contrast**2)

    @property
    def people_asked_again(self) -> int:
        """People in all, where everybody is asked at every level."""
        return self.bits * self.votes

    @property
    def people_by_hadamard(self) -> int:
        """The same with another question: a sign of a public random row of a Hadamard matrix.

        Everybody answers about the whole label, and the one that agrees with most signs wins. A
        wrong label disagrees with the right one in half of the rows; there it gains on it with
        probability (1/2 - t/(4 depth))/2 and loses otherwise, and Chernoff's bound of that is at
        most exp(-t^2/(16 depth^2)) a person (t = tanh(epsilon/2)).

        >>> descent = Descent(8, 1.0, 1 / 3)
        >>> descent.people_by_hadamard, descent.people_asked_again
        (55124, 104796)
        """
        contrast = math.tanh(self.epsilon / 2)
        wrong = math.log(self.fan_out * self.depth / self.failure)
        return math.ceil(16 * self.depth**2 * wrong / contrast**2)

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

        Of depth^4 children. The proof of Theorem 4.2 with exact steps: an answer moves the
        log-likelihood of a label by at most ln(1 + (e^epsilon - 1)/(depth + 1)) and tells at most
        epsilon tanh(epsilon/2) of all labels, and success changes by the total variation, half of
        what is printed. Never below depth^3/(34 (e^epsilon - 1)^2 ln depth).

        Raises:
            ValueError: below a depth of 3, where the proof does not hold.
        """
        check_integer("depth", self.depth, 3)
        step = math.log1p(math.expm1(self.epsilon) / (self.depth + 1))
        unsure = math.log(2) ** 2 / (16 * step**2 * math.log(self.depth))
        untold = 2 * self.depth**2 / (27 * self.epsilon * math.tanh(self.epsilon / 2))
        return self.depth * min(unsure, untold)

    @property
    def people_at_least_of_the_paper(self) -> float:
        """The same as the paper prints it.

        Raises:
            ValueError: below a depth of 3.
        """
        check_integer("depth", self.depth, 3)
        return self.depth**3 / (216 * math.expm1(self.epsilon) ** 2 * math.log(self.depth))

    def _failure_of(self, half: int) -> float:
        """Bound on the failure with 2 half + 1 people in each group."""
        return float(self.bits * self.depth * stats.binom.cdf(half, 2 * half + 1, self.right))


def separation_depth(epsilon: float, *, of_the_paper: bool = False) -> int:
    """The least depth at which asking again is proved to take fewer people than asking once.

    Paths are found in 2 of 3 cases. Below it the bounds say nothing, though asking once takes
    `depth` times as many people by the protocol that is known.

    Args:
        epsilon: local epsilon of everything that a person says.
        of_the_paper: with the bounds as printed, and not with the sharpest here.

    >>> print(f"{separation_depth(1.0, of_the_paper=True):.1e} {separation_depth(1.0):.1e}")
    1.5e+11 9.7e+06
    """
    check_positive("epsilon", epsilon)

    def separates(depth: int) -> bool:
        plan = Descent(depth, epsilon, 1 / 3)
        if of_the_paper:
            again = plan.bits * plan.votes_of_the_paper
            return plan.people_at_least_of_the_paper > again
        return plan.people_at_least > plan.people_by_hadamard

    low, high = 2, 3
    while not separates(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if separates(middle) else (middle, high)
    return high
