"""Binary Hadamard mechanism: a random row of a Hadamard matrix, and one noisy sign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.entropy import binary_entropy
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.walsh_hadamard import hadamard_matrix, walsh_hadamard
from beam_ldp.randomizers.words import WORD_VALUES, multiply_high, odd_parity, short_kernel

_ONE = np.uint64(1)


@dataclass(frozen=True)
class BinaryHadamard(SymbolOracle):
    """The binary Hadamard mechanism: one noisy bit about a random set of half of the values.

    Each report holds a random row of the Hadamard matrix of order K, the least power of two that
    is at least k, and the sign of that row at the own value, told truly with probability
    E/(E + 1), E = e**local_epsilon. It protects the value against everybody who sees the report,
    row included. The error does not fall below that of one bit: n times the variance stays above
    ((E + 1)/(E - 1))**2 - 1, so it suits small local_epsilon.

    `row` says who knows whose row it is, which only matters to the price of a shuffled batch:

    * "sent": the device draws the row in private and sends it. All reports hide each other.
    * "public": the row is tied to the user in public, by a collector that knows the coin, say. It
      must be drawn as here, anew for each report and each row equally likely. Only users of one row
      hide each other, and the price is an average over how many those are. Do not combine it with
      `UserRandomness`, whose rows depend on the value in secret.

    Of rows that are sent the price lets half of the rows hide nobody, and is up to 1.34 times what
    the dearest known data set costs. That this one, in which all others hold one value, is the
    worst, is a conjecture: it is the worst of all data sets in 84 of 84 enumerations.

    Row 0 is constant and says nothing: with `drop_trivial` it is not used, which is better for
    every truth; without, this is the mechanism as published.

    Reports are `(n,)` unsigned integers, 2 * row + (sign is negative), of 1 + log2 K bits (one
    bit for two categories); the statistic is their histogram. To estimate takes O(K log K) time
    and O(K) memory. One random word per report.

    Source: thesis, sections 7.3 and 7.4.1; Bassily and Smith 2015.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        row: "sent" or "public".
        drop_trivial: leave out the constant row.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = BinaryHadamard(domain_size=1000, local_epsilon=1.0)
    >>> oracle.bits_per_report, oracle.num_rows, oracle.crowd_size(10**6)
    (11, 1023, 1000000)
    >>> public = BinaryHadamard(domain_size=1000, local_epsilon=1.0, row="public")
    >>> public.public_groups, public.telling_groups, public.crowd_size(10**6)
    (1023, 512, 978)
    """

    row: Literal["sent", "public"] = "sent"
    drop_trivial: bool = True

    decoding: ClassVar[str] = "O(k log k), Walsh-Hadamard"

    def _choose_parameters(self) -> None:
        if self.row not in ("sent", "public"):
            raise ValueError(f'row must be "sent" or "public", got {self.row!r}')
        if not isinstance(self.drop_trivial, bool):
            raise ValueError(f"drop_trivial must be True or False, got {self.drop_trivial!r}")

    @property
    def _order(self) -> int:
        return 1 << (self.domain_size - 1).bit_length()

    @property
    def num_rows(self) -> int:
        """Rows in use: K, or K - 1 without the trivial one."""
        return self._order - self.drop_trivial

    @property
    def num_symbols(self) -> int:
        return 2 * self.num_rows

    @property
    def num_favoured(self) -> int:
        """The true sign of each row."""
        return self.num_rows

    def favoured(self, values: np.ndarray) -> np.ndarray:
        signs = hadamard_matrix(self._order)[np.asarray(values), int(self.drop_trivial) :]
        return 2 * np.arange(self.num_rows) + (signs < 0)

    @property
    def overlap(self) -> int:
        """Half of all rows agree on two values, the trivial one among them."""
        return self._order // 2 - self.drop_trivial

    @property
    def triple_overlaps(self) -> tuple[int, ...]:
        return (self._order // 4 - self.drop_trivial,) if self.domain_size > 2 else ()

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        # The law makes a symbol of a row with chance (1 - h)/(2 rows), or the true one with h/rows,
        # h = threshold/2**64; told per row, the truth has chance (1 + h)/2. Whole words round both
        # alike: a sign of a row gets its share of them up to one word, as the law allows for.
        _respond(
            values,
            words[:, 0],
            np.uint64(self.num_rows),
            np.uint64(self.drop_trivial),
            np.uint64((WORD_VALUES + self._law.threshold) // 2),
            reports,
        )

    @property
    def _truth_chance(self) -> float:
        return self.num_rows * self._law.favoured_probability

    @property
    def cond_entropy_bits(self) -> float:
        """Of a public row, that of its noise."""
        if self.row == "public":
            return binary_entropy(self._truth_chance)
        return super().cond_entropy_bits

    @property
    def support_probabilities(self) -> tuple[float, float]:
        """A report supports the values at which its row has the sign that it claims."""
        p = self._truth_chance
        agree = self.overlap / self.num_rows
        return p, p * agree + (1 - p) * (1 - agree)

    def support_counts(self, statistic: np.ndarray) -> np.ndarray:
        by_row = statistic.reshape(-1, 2)
        signed = np.zeros(self._order, dtype=by_row.dtype)
        signed[int(self.drop_trivial) :] = by_row[:, 0] - by_row[:, 1]
        return (statistic.sum() + walsh_hadamard(signed)[: self.domain_size]) / 2

    @property
    def two_levels(self) -> TwoLevels | None:
        """Rows and signs alike. All pairs of values agree on equally many rows.

        Of public rows, users of one row form a crowd of their own, and the worst two values are
        any two on which that row differs: plain randomized response of one bit.
        """
        if self.row == "sent":
            return super().two_levels
        ratio, p = self._law.likelihood_ratio, self._truth_chance
        source = "own blanket of BinaryHadamard, within a row"
        return TwoLevels(ratio, 0.5, 0.0, source, p / (1 - p))

    @property
    def sends_bits(self) -> bool:
        return self.row == "public" or super().sends_bits

    @property
    def triple_shares(self) -> tuple[float, ...]:
        return super().triple_shares if self.row == "sent" else ()

    @property
    def public_groups(self) -> int:
        """Rows, where it is public who has which; else all reports hide each other."""
        return self.num_rows if self.row == "public" else 1

    @property
    def telling_groups(self) -> int:
        """Half of a Hadamard matrix's rows: those on which two values have different signs."""
        return self._order // 2 if self.row == "public" else 1


@short_kernel
def _respond(values, words, num_rows, first, truths, reports):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        row = multiply_high(words[i], num_rows)
        negative = odd_parity((row + first) & np.uint64(values[i]))
        lie = words[i] * num_rows >= truths
        reports[i] = row << _ONE | np.uint64(negative != lie)
