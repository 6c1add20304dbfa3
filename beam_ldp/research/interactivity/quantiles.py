"""A quantile by bisection: each wave asks on which side of one threshold people are.

The threshold depends on the answers before, so a question is about the middle of what is left.
Either each step has people of its own, who spend their whole budget on one bit, or the same people
answer all steps with a part of the budget each. Up to an epsilon of about the number of steps the
former takes fewer people, though each is asked once: a part of a budget is worth less than that
part of the people. `beam-ldp frequency --quantiles` needs one round for all quantiles together.

Source: specification of interactivity, section 5.5; the decisions are exact binomial tests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import stats

from beam_ldp.randomizers.checks import check_fraction, check_integer, check_positive
from beam_ldp.research.interactivity.sequential import Ask, SequentialPrice
from beam_ldp.research.interactivity.waves import Answers

MOST_VOTES = 2**40


@dataclass(frozen=True)
class QuantileSearch:
    """The cell of a quantile, by one randomized bit for each question.

    Data are cells 0 .. `cells` - 1 in their order. With probability 1 - `beta` at least, at least
    `level - error` of the population lies in the cell that is found or below it, and at most
    `level + error` below it; people are drawn from the population.

    Each person is protected against everybody who reads all answers, by `epsilon` for all own ones.

    Args:
        cells: of the number.
        level: of the quantile, in (0, 1).
        epsilon: local epsilon of everything that a person says.
        error: in fractions of the population.
        beta: probability of another cell.
        again: ask the same people in all steps, with equal parts of epsilon.

    >>> search = QuantileSearch(cells=64, level=0.5, epsilon=1.0, error=0.05)
    >>> search.steps, search.votes, search.people
    (6, 2723, 16338)
    >>> QuantileSearch(64, 0.5, 1.0, 0.05, again=True).people
    144533
    """

    cells: int
    level: float
    epsilon: float
    error: float
    beta: float = 0.05
    again: bool = False

    def __post_init__(self) -> None:
        check_integer("cells", self.cells, 2)
        check_fraction("level", self.level)
        check_positive("epsilon", self.epsilon)
        check_fraction("error", self.error)
        check_fraction("beta", self.beta)

    @property
    def steps(self) -> int:
        """Waves, at most."""
        return (self.cells - 1).bit_length()

    @property
    def people(self) -> int:
        """People in all, at most."""
        return self.votes if self.again else self.steps * self.votes

    @property
    def votes(self) -> int:
        """People who answer about one threshold."""
        return self._test[0]

    @property
    def decisive(self) -> int:
        """So many of them must say that they are at or below it, for the quantile to be so too."""
        return self._test[1]

    @property
    def price(self) -> SequentialPrice:
        """What fresh people in place of those asked again would take."""
        return SequentialPrice(self.votes, self.steps * self.votes, 1.0, self.epsilon)

    @property
    def epsilon_of_an_answer(self) -> float:
        """Local epsilon of one answer."""
        return self.epsilon / self.steps if self.again else self.epsilon

    @property
    def failure_of_a_decision(self) -> float:
        """Probability of a wrong decision about a threshold that is further off than `error`.

        Fresh people decide of one threshold a step. People who are asked again have answered
        before the threshold is chosen, as it were, so it holds for all that may be chosen.
        """
        return self.beta / (self.cells - 1 if self.again else self.steps)

    def kernel(self, threshold: int) -> np.ndarray:
        """The question whether one is in a cell up to `threshold`, `(cells, 2)`: 1 is yes."""
        told = 1 / (1 + math.exp(-self.epsilon_of_an_answer))
        yes = np.where(np.arange(self.cells) <= threshold, told, 1 - told)
        return np.column_stack([1 - yes, yes])

    def rate(self, below: float) -> float:
        """Probability of a yes, where this fraction of the population is at the threshold or below.

        Fractions beyond 0 and 1 count as these.
        """
        told = 1 / (1 + math.exp(-self.epsilon_of_an_answer))
        return 1 - told + (2 * told - 1) * min(max(below, 0.0), 1.0)

    def interval(self, finished: Answers) -> tuple[int, int]:
        """The first and last cell that are left; one cell at the end."""
        low, high = 0, self.cells - 1
        for answers in finished:
            middle = (low + high) // 2
            low, high = (low, middle) if sum(answers) >= self.decisive else (middle + 1, high)
        return low, high

    def rounds(self, finished: Answers) -> list[Ask]:
        """The questions of the next wave: the protocol, for `WavePlan`."""
        low, high = self.interval(finished)
        if low == high:
            return []
        kernel, step = self.kernel((low + high) // 2), 0 if self.again else len(finished)
        return [Ask((step, number), kernel) for number in range(self.votes)]

    @cached_property
    def _test(self) -> tuple[int, int]:
        """People and threshold of the exact test: errors are a saw, so a few fewer may do too."""
        low, high = 0, 1
        while self._cut(high) is None:
            low, high = high, 2 * high
            if high > MOST_VOTES:
                raise ValueError(
                    f"error of {self.error:g} needs more than {MOST_VOTES} people for a question"
                )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._cut(middle) is not None else (middle, high)
        cut = self._cut(high)
        assert cut is not None
        return high, cut

    def _cut(self, votes: int) -> int | None:
        """The number of yes from which on to decide so, if both errors are then small enough."""
        failure = self.failure_of_a_decision
        cut = int(stats.binom.isf(failure, votes, self.rate(self.level - self.error))) + 1
        missed = stats.binom.cdf(cut - 1, votes, self.rate(self.level + self.error))
        return cut if missed <= failure else None
