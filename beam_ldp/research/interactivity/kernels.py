"""What questions cost a person: finite kernels, alone, together, and one after the other.

A *kernel* is an `(inputs, outputs)` float64 array: row x has the probabilities of the answers of
somebody whose datum is x. All epsilons here are pure and exact maxima over the kernel as given;
what a device runs is the kernel of its integer thresholds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from beam_ldp.protocols.interaction import ROUNDING, asks_that_fit, check_kernel
from beam_ldp.randomizers.checks import check_positive
from beam_ldp.randomizers.words import WORD_VALUES, exp_lower


def kernel_epsilon(kernel: np.ndarray) -> float:
    """The minimal local epsilon of a kernel.

    >>> round(kernel_epsilon(np.array([[0.75, 0.25], [0.25, 0.75]])), 6)
    1.098612
    """
    return float(np.log(kernel.max(axis=0) / kernel.min(axis=0)).max())


def joint_epsilon(kernels: Sequence[Any]) -> float:
    """The exact epsilon of all of a person's answers, to questions that were fixed up front.

    Never above the sum of the kernels' epsilons, and far below it where each datum is asked about
    by few of them: the outputs can be chosen in each round apart, so the maximum over pairs of
    data is exact. O(rounds * inputs^2 * outputs).

    Source: specification of interactivity, section 2.

    >>> fair, told = [0.5, 0.5], [0.25, 0.75]
    >>> round(joint_epsilon([[told, fair], [fair, told]]), 6)
    1.098612
    """
    return float(np.max(sum(map(pair_costs, kernels), np.zeros((1, 1)))))


def pair_costs(kernel: Any) -> np.ndarray:
    """What the worst answer tells of one input against another: `(inputs, inputs)`, that adds up.

    >>> pair_costs([[0.75, 0.25], [0.25, 0.75]]).round(6).tolist()
    [[0.0, 1.098612], [1.098612, 0.0]]
    """
    logs = np.log(check_kernel(kernel))
    return np.asarray((logs[:, None, :] - logs[None, :, :]).max(axis=2))


def kernel_delta(kernel: np.ndarray, epsilon: float) -> float:
    """The minimal delta of a kernel at an epsilon, also where some datum excludes an answer.

    >>> round(kernel_delta(np.array([[0.75, 0.25], [0.25, 0.75]]), 0.5), 6)
    0.33782
    """
    excess = kernel[:, None, :] - np.exp(epsilon) * kernel[None, :, :]
    return float(np.maximum(excess, 0).sum(axis=2).max())


_TOGETHER = 2.0**-36  # rows are drawn together by this much, to absorb all rounding


@dataclass(frozen=True, eq=False)
class IntegerKernel:
    """A kernel as a device draws it: one 64-bit word against integer thresholds.

    Each answer has a whole number of the 2^64 words, so its probabilities are known exactly. They
    differ from those of the kernel by less than 2^-35.

    Attributes:
        thresholds: `(inputs, outputs - 1)` uint64: words below number j give an answer up to j.

    >>> told = IntegerKernel.of([[0.75, 0.25], [0.25, 0.75]], epsilon=math.log(3))
    >>> told.inputs, told.epsilon <= math.log(3)
    (2, True)
    >>> told.draw(np.array([0, 1]), np.array([2**63, 2**63], dtype=np.uint64)).tolist()
    [0, 1]
    """

    thresholds: np.ndarray

    @classmethod
    def of(cls, kernel: Any, epsilon: float) -> IntegerKernel:
        """Of a kernel whose local epsilon is at most `epsilon`: so is that of the integers.

        Raises:
            ValueError: if it is larger, or if an answer is so rare that 64-bit words cannot keep
                the promise.
        """
        rows = check_kernel(kernel)
        own = kernel_epsilon(rows)
        if own > epsilon + ROUNDING:
            raise ValueError(f"kernel has epsilon {own:g}, more than the promise of {epsilon:g}")
        rows = rows + _TOGETHER * (rows.mean(axis=0) - rows)
        sums = np.cumsum(rows / rows.sum(axis=1, keepdims=True), axis=1)[:, :-1]
        if sums.shape[1] and sums.max() < 1:
            made = cls(np.floor(sums * 2.0**64).astype(np.uint64))
            bound = exp_lower(epsilon)
            if all(low > 0 and high <= bound * low for low, high in zip(*made._words())):
                return made
        raise ValueError("kernel must have two answers or more, none too rare for 64-bit words")

    @property
    def inputs(self) -> int:
        """Number of data."""
        return len(self.thresholds)

    @property
    def epsilon(self) -> float:
        """Its minimal local epsilon."""
        least, most = self._words()
        return max(math.log(high / low) for low, high in zip(least, most))

    def draw(self, data: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Answers of people with these data, `(n,)` int64, from one uniform word each.

        Raises:
            ValueError: for a datum that is none; it is not quoted.
        """
        if len(data) and not 0 <= data.min() <= data.max() < self.inputs:
            raise ValueError(f"data must lie in 0 .. {self.inputs - 1}")
        return (words[:, None] >= self.thresholds[data]).sum(axis=1)

    def _words(self) -> tuple[list[int], list[int]]:
        """Of each answer the number of words, of the datum with the fewest and with the most."""
        first = np.zeros((self.inputs, 1), dtype=np.uint64)
        counts = np.diff(np.hstack([first, self.thresholds]), axis=1)
        last = self.thresholds[:, -1]
        least = [*counts.min(axis=0).tolist(), WORD_VALUES - int(last.max())]
        return least, [*counts.max(axis=0).tolist(), WORD_VALUES - int(last.min())]


@dataclass
class LikelihoodFilter:
    """How much of one person's budget is spent, exactly, also where questions depend on answers.

    It holds the log-likelihood of the person's answers for each datum, a function of what is
    public. A question fits if no answer to it moves the range of likelihoods above the budget.
    Every transcript that can be reached then has a range of at most `budget`, which is pure local
    differential privacy of the whole interaction. It passes protocols whose sum of epsilons is
    far above the budget: those that ask about one block of data at a time.

    Whoever keeps it knows which answers are whose: it belongs on the device, or before the shuffle.

    Args:
        inputs: number of data.
        budget: epsilon of the whole interaction.

    Source: specification of interactivity, section 2, item 4.

    >>> person = LikelihoodFilter(2, budget=1.2)
    >>> response = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> person.answered(response, 0)
    >>> round(person.spent, 6), person.fits(response)
    (1.098612, False)
    """

    inputs: int
    budget: float
    logs: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        check_positive("budget", self.budget)
        self.logs = np.zeros(self.inputs)

    @property
    def spent(self) -> float:
        """Range of the log-likelihoods so far: what the answers tell of one datum or another."""
        return float(np.ptp(self.logs))

    def fits(self, kernel: Any) -> bool:
        """Whether the question may be asked: decided by no answer to it, and by no datum."""
        return bool(asks_that_fit(self.logs[None], np.log(self._check(kernel)), self.budget)[0])

    def answered(self, kernel: Any, answer: int) -> None:
        """Note an answer.

        Raises:
            ValueError: if the question did not fit.
        """
        if not self.fits(kernel):
            raise ValueError(
                f"kernel does not fit: {self.spent:g} of a budget of {self.budget:g} is spent"
            )
        self.logs = self.logs + np.log(self._check(kernel)[:, answer])

    def _check(self, kernel: Any) -> np.ndarray:
        rows = check_kernel(kernel)
        if len(rows) != self.inputs:
            raise ValueError(f"kernel must have {self.inputs} inputs, got {len(rows)}")
        return rows
