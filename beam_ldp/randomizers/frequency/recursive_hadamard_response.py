"""Recursive Hadamard response: a random row of a short Hadamard matrix, and b bits about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.frequency.symbol_oracle import BlockOracle
from beam_ldp.randomizers.walsh_hadamard import hadamard_matrix, walsh_hadamard
from beam_ldp.randomizers.words import WORD_BITS, odd_parity, short_kernel

_ONE = np.uint64(1)


@dataclass(frozen=True)
class RecursiveHadamardResponse(BlockOracle):
    """Recursive Hadamard response: b bits about a random row, with one random word per report.

    The domain, filled up to D = a power of two, is cut into 2**(b-1) blocks. The device draws a
    row of the Hadamard matrix of a block's length and reports, by randomized response over 2**b
    messages, which block its value is in and the sign of the row there. The row is drawn on the
    device, in private, and travels in the report, so all reports of a batch hide each other. It
    protects the value against everybody who sees the report, row included.

    Reports are `(n,)` unsigned integers of 1 + log2 D bits, whatever b is; the statistic is their
    histogram, int64 `(2 D,)`. To estimate takes O(D log D) time and O(D) memory.

    Source: Chen, Kairouz and Ozgur 2020 (with b chosen by its exact error; their rule is
    local_epsilon in bits, rounded up); thesis, section 7.7.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        message_bits: b, from 1 (a single sign) to log2 D; None for the one with the least error.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = RecursiveHadamardResponse(domain_size=1000, local_epsilon=4.0)
    >>> oracle.message_bits, oracle.bits_per_report
    (6, 11)
    >>> reports = oracle.randomize(np.arange(1000))
    >>> print(oracle.accumulate(reports).sum())
    1000
    """

    also_known_as: ClassVar[str] = "RHR"

    message_bits: int | None = None

    def _choose_parameters(self) -> None:
        most = (self.domain_size - 1).bit_length()
        if self.message_bits is None:
            bits = best_message_bits(self.domain_size, self.local_epsilon)
        else:
            bits = check_integer("message_bits", self.message_bits, 1, most)
        object.__setattr__(self, "message_bits", bits)

    @property
    def _bits(self) -> int:
        assert self.message_bits is not None
        return self.message_bits

    @property
    def _num_blocks(self) -> int:
        return 1 << (self._bits - 1)

    @property
    def row_length(self) -> int:
        """Length of a block, and number of rows."""
        return (1 << (self.domain_size - 1).bit_length()) // self._num_blocks

    @property
    def num_symbols(self) -> int:
        return 2 * self.row_length * self._num_blocks

    @property
    def num_favoured(self) -> int:
        """One message for each row."""
        return self.row_length

    def favoured(self, values: np.ndarray) -> np.ndarray:
        block, place = np.divmod(np.asarray(values, dtype=np.int64), self.row_length)
        negative = hadamard_matrix(self.row_length)[place] < 0
        rows = np.arange(self.row_length)
        return (rows * self._num_blocks + block[:, None]) * 2 + negative

    @property
    def _used_blocks(self) -> int:
        return -(-self.domain_size // self.row_length)

    @property
    def _block_of_value(self) -> np.ndarray:
        return np.arange(self.domain_size) // self.row_length

    def _reports_by_block(self, statistic: np.ndarray) -> np.ndarray:
        by_block: np.ndarray = statistic.reshape(-1, self._num_blocks, 2).sum(axis=(0, 2))
        return by_block

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        _respond(
            values,
            words[:, 0],
            np.uint64(self.num_symbols.bit_length() - 1),
            np.uint64(self._bits),
            np.uint64(self._law.threshold),
            reports,
        )

    def frequencies(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        signed = statistic.reshape(self.row_length, self._num_blocks, 2)
        by_block = walsh_hadamard((signed[:, :, 0] - signed[:, :, 1]).T)
        return by_block.reshape(-1)[: self.domain_size] * (self._scale / num_users)


def best_message_bits(
    domain_size: int, local_epsilon: float, max_message_bits: int | None = None
) -> int:
    """The b with the least total error: the row costs what the message saves, so bits are free.

    Args:
        domain_size: number of categories.
        local_epsilon: local budget.
        max_message_bits: largest b to consider, for protocols where the row needs no bits.

    >>> [best_message_bits(1000, epsilon) for epsilon in (1.0, 2.0, 3.0, 4.0, 5.0)]
    [1, 3, 4, 6, 7]
    """
    most = (domain_size - 1).bit_length()
    if max_message_bits is not None:
        most = min(most, check_integer("max_message_bits", max_message_bits, 1, WORD_BITS))
    inverse = math.exp(-min(local_epsilon, 700.0))

    def error(bits: int) -> float:
        return (1 + (2**bits - 1) * inverse) ** 2 / 2 ** (bits - 1)

    return min(range(1, most + 1), key=error)


@short_kernel
def _respond(  # type: ignore[no-untyped-def]
    values, words, symbol_bits, message_bits, threshold, reports
):
    row_bits = symbol_bits - message_bits
    in_row = (_ONE << row_bits) - _ONE
    for i in range(values.size):
        anything = words[i] >> (np.uint64(WORD_BITS) - symbol_bits)
        row = anything >> message_bits
        value = np.uint64(values[i])
        sign = np.uint64(odd_parity(row & value & in_row))
        favoured = row << message_bits | (value >> row_bits) << _ONE | sign
        reports[i] = favoured if words[i] << symbol_bits < threshold else anything
