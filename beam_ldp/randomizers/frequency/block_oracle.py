"""What the Hadamard responses share whose symbols form blocks, each with its own values."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import Sampling, check_sampling
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle


@dataclass(frozen=True)
class BlockOracle(SymbolOracle):
    """A two-level oracle whose values and symbols are dealt to blocks.

    A value favours half of the symbols of its block, and half of those are favoured by any other
    value of the block: a report says +1 or -1 about the values of its block, nothing about others.
    So a value's error depends on how many people hold the other values of its block.
    """

    decoding: ClassVar[str] = "O(k log k), Walsh-Hadamard"

    @property
    @abstractmethod
    def _used_blocks(self) -> int:
        """Blocks that have a value."""

    @property
    @abstractmethod
    def _block_of_value(self) -> np.ndarray:
        """The block of each value: int64 `(domain_size,)`."""

    @abstractmethod
    def _reports_by_block(self, statistic: np.ndarray) -> np.ndarray:
        """How many reports lie on each block."""

    @property
    def overlap(self) -> int:
        """None for values of two blocks; half of what they favour for any two of one block."""
        return 0 if self._used_blocks > 1 else self.num_favoured // 2

    @property
    def triple_overlaps(self) -> tuple[int, ...]:
        if self._used_blocks > 1:
            return (0,) if self._used_blocks > 2 else ()
        return self._triples_of_a_block[: max(0, self.domain_size - 2)]

    @property
    def _triples_of_a_block(self) -> tuple[int, ...]:
        """`triple_overlaps` for values of one block."""
        return (self.num_favoured // 4,)

    @property
    def _scale(self) -> float:
        """What a report on a block counts for its values: this, or minus this."""
        law = self._law
        return 1 / (self.num_favoured * (law.favoured_probability - law.other_probability))

    @property
    def _on_block(self) -> tuple[float, float]:
        """Chance that a report lies on a given block: for a value of that block, and another."""
        law = self._law
        own = self.num_favoured * (law.favoured_probability + law.other_probability)
        return own, 2 * self.num_favoured * law.other_probability

    def variance(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> np.ndarray:
        """Exact: a report counts +-scale if it lies on the value's block, else nothing.

        The other people of a block count, too: what `truth` leaves out of a sum of one is taken
        to be spread evenly over all categories.
        """
        check_sampling(sampling)
        own, other = self._on_block
        blocks = self._block_of_value
        if truth is None:  # everybody holds another value of the block, where it has one
            shared = np.bincount(blocks)[blocks] > 1
            worst = np.where(shared, self._scale**2 * own, self._worst_alone(sampling))
            return np.asarray(worst / num_users)
        truth = self._check_truth(truth)
        spread = truth + max(0.0, 1 - truth.sum()) / self.domain_size
        shares = np.minimum(np.bincount(blocks, weights=spread), 1.0)
        on_block = (other + shares * (own - other))[blocks]
        return self._variance_at(on_block, truth, num_users, sampling)

    def _worst_alone(self, sampling: Sampling) -> float:
        """Of the only value of a block."""
        own, other = self._on_block
        square = self._scale**2
        if sampling == "fixed":
            return max(square * other, square * own - 1)
        share = min(1.0, square * (own - other) / 2)
        return square * (other + share * (own - other)) - share**2

    def _variance_at(
        self, on_block: np.ndarray, truth: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        square_of_mean = truth if sampling == "fixed" else truth**2
        return np.maximum(self._scale**2 * on_block - square_of_mean, 0.0) / num_users

    def _estimated_variance(
        self, statistic: np.ndarray, value: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        """How many reports lie on each block is seen, not estimated."""
        seen = self._reports_by_block(statistic)[self._block_of_value] / num_users
        return self._variance_at(seen, np.clip(value, 0.0, 1.0), num_users, sampling)
