"""Hadamard response: a report favours half of the rows of a Hadamard matrix."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.frequency.symbol_oracle import BlockOracle
from beam_ldp.randomizers.walsh_hadamard import walsh_hadamard
from beam_ldp.randomizers.words import WORD_BITS, odd_parity, short_kernel

_ONE = np.uint64(1)


@dataclass(frozen=True)
class HadamardResponse(BlockOracle):
    """Hadamard response for every privacy regime, with one random word per report.

    The symbols form `num_blocks` blocks of b = `block_size`; value x belongs to block
    x mod `num_blocks` and favours those b/2 symbols of it on which its column of the b x b
    Hadamard matrix is +1. It protects the value against everybody who sees the report. One block
    is best for small local_epsilon, more for a larger one: the error is within a constant of the
    least possible one for every local_epsilon.

    Reports are `(n,)` unsigned integers of log2(K) bits, K = num_blocks * block_size < 4 k; the
    statistic is their histogram, int64 `(K,)`. To estimate takes O(K log K) time (one
    Walsh-Hadamard transform per block) and O(K) memory.

    Source: Acharya, Sun and Zhang 2019 (with the number of blocks chosen by its exact error;
    theirs is about half of min(e**local_epsilon, 2 k)); thesis, section 7.5.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        num_blocks: a power of two up to 2 k; None for the one with the least error at a uniform
            truth.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = HadamardResponse(domain_size=1000, local_epsilon=4.0)
    >>> oracle.num_blocks, oracle.num_symbols, oracle.bits_per_report
    (32, 2048, 11)
    >>> reports = oracle.randomize(np.arange(1000))
    >>> reports.dtype, oracle.accumulate(reports).sum()
    (dtype('uint16'), np.int64(1000))
    """

    also_known_as: ClassVar[str] = "HR"

    num_blocks: int | None = None

    def _choose_parameters(self) -> None:
        if self.num_blocks is None:
            blocks = best_num_blocks(self.domain_size, self.local_epsilon)
        else:
            blocks = check_integer("num_blocks", self.num_blocks, 1, 2 * self.domain_size)
            if blocks & (blocks - 1):
                raise ValueError(f"num_blocks must be a power of two, got {blocks}")
        object.__setattr__(self, "num_blocks", blocks)

    @property
    def _blocks(self) -> int:
        assert self.num_blocks is not None
        return self.num_blocks

    @property
    def block_size(self) -> int:
        """Symbols of a block: the least power of two above the number of its values."""
        return 1 << self._per_block.bit_length()

    @property
    def _per_block(self) -> int:
        """Values of the fullest block. Dealt out like cards: packed into few, they share more."""
        return -(-self.domain_size // self._blocks)

    @property
    def num_symbols(self) -> int:
        return self._blocks * self.block_size

    @property
    def num_favoured(self) -> int:
        return self.block_size // 2

    @property
    def _used_blocks(self) -> int:
        return min(self._blocks, self.domain_size)

    def favoured(self, values: np.ndarray) -> np.ndarray:
        place, block = np.divmod(np.asarray(values, dtype=np.int64), self._blocks)
        columns = np.zeros((len(block), self.block_size), dtype=np.int64)
        columns[np.arange(len(block)), place + 1] = 1
        signs = walsh_hadamard(columns)
        rows = np.nonzero(signs > 0)[1].reshape(len(block), -1)
        return rows + block[:, None] * self.block_size

    @property
    def _block_of_value(self) -> np.ndarray:
        return np.arange(self.domain_size) % self._blocks

    def _reports_by_block(self, statistic: np.ndarray) -> np.ndarray:
        by_block: np.ndarray = statistic.reshape(-1, self.block_size).sum(axis=1)
        return by_block

    @property
    def _triples_of_a_block(self) -> tuple[int, ...]:
        """The third column may be the product of the other two, or not."""
        return self.block_size // 4, self.block_size // 8

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        _respond(
            values,
            words[:, 0],
            np.uint64(self.num_symbols.bit_length() - 1),
            np.uint64(self.block_size.bit_length() - 1),
            np.uint64(self._law.threshold),
            reports,
        )

    def frequencies(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        blocks = walsh_hadamard(statistic.reshape(-1, self.block_size))
        signed = blocks[:, 1:].T.reshape(-1)[: self.domain_size]
        return signed * (self._scale / num_users)


def best_num_blocks(domain_size: int, local_epsilon: float) -> int:
    """The power of two with the least total error at a uniform truth.

    >>> best_num_blocks(1000, 1.0), best_num_blocks(1000, 5.0)
    (1, 64)
    """
    inverse = math.exp(-min(local_epsilon, 700.0))
    candidates = [1 << i for i in range((domain_size - 1).bit_length() + 1)]

    def error(num_blocks: int) -> float:
        """Mean variance of one report, plus the mean frequency; times (1 - 1/E)**2."""
        weight = 1 + (2 * num_blocks - 1) * inverse
        own, other = (1 + inverse) / weight, 2 * inverse / weight
        low, fuller = divmod(domain_size, num_blocks)
        squares = fuller * (low + 1) ** 2 + (num_blocks - fuller) * low**2
        same_block = squares / domain_size**2
        return weight**2 * (other + same_block * (own - other))

    return min(candidates, key=error)


@short_kernel
def _respond(  # type: ignore[no-untyped-def]
    values, words, symbol_bits, row_bits, threshold, reports
):
    in_block = (_ONE << row_bits) - _ONE
    blocks = (_ONE << (symbol_bits - row_bits)) - _ONE
    for i in range(values.size):
        anything = words[i] >> (np.uint64(WORD_BITS) - symbol_bits)
        block = np.uint64(values[i]) & blocks
        column = (np.uint64(values[i]) >> (symbol_bits - row_bits)) + _ONE
        row = anything & in_block
        if odd_parity(row & column):
            row ^= column & (~column + _ONE)  # one bit of the column: makes the parity even
        favoured = block << row_bits | row
        reports[i] = favoured if words[i] << symbol_bits < threshold else anything
