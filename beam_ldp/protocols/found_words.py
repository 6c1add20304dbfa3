"""What a search for words has found, and what it says of all the others."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers.checks import check_fraction


class Share(NamedTuple):
    """A share of the people, with its standard error and its interval."""

    value: float
    standard_error: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class FoundWords:
    """Words that are frequent, most frequent first, and what is known of all the others.

    All intervals hold at once with probability `coverage`, for they were drawn for all words that
    the last level tested, which earlier people chose. They are exact for binomial counts, and the
    standard errors include that the last level's people are a draw of all.

    Attributes:
        texts: the words, as bytes.
        frequency: unbiased, as fractions of the people.
        standard_error, low, high: of the frequencies.
        rest: people with any other word: 1 less the frequencies, so that a table adds up. Its
            interval has the estimate in it, and is certain to hold where the others do.
        tested: words that the last level tested.
        num_users: people whose reports were received, of all levels.
        answers: those of the last level.
        coverage: of all intervals together.
        threshold: f*, with the people that came.
        complete: no word of this frequency or more that has a code is missed, with the plan's
            probability 1 - miss for all of them together (f* is a promise for one word).
    """

    texts: tuple[bytes, ...]
    frequency: np.ndarray
    standard_error: np.ndarray
    low: np.ndarray
    high: np.ndarray
    rest: Share
    tested: int
    num_users: int
    answers: int
    coverage: float
    threshold: float
    complete: float

    def __len__(self) -> int:
        return len(self.texts)

    def count_above(self, frequency: float) -> tuple[int, int, int]:
        """How many words with a code have at least this frequency: `(estimate, low, high)`.

        The interval holds where the others do and, from `complete` on, no such word was missed:
        with probability `coverage` less the plan's `miss`. Below `complete` it also counts as many
        words as the rest has room for, and holds with probability `coverage`.
        """
        check_fraction("frequency", frequency)
        high = int((self.high >= frequency).sum())
        if frequency < self.complete:
            high += math.floor(self.rest.high / frequency)
        return int((self.frequency >= frequency).sum()), int((self.low >= frequency).sum()), high
