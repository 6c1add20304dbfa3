"""What the oracles share whose report is one symbol and whose channel has two levels.

k-ary, Hadamard and projective geometry responses are one family: each value favours a set of
symbols, all sets of one size, and a favoured symbol is e**local_epsilon times as likely as any
other. They differ in the sets, and so in error, bits and decoding.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle, Sampling, check_sampling
from beam_ldp.randomizers.entropy import entropy_bits
from beam_ldp.randomizers.finite_fields import DifferenceSet
from beam_ldp.randomizers.intervals import IntervalRule, SupportRule
from beam_ldp.randomizers.report_format import NumberedReports
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.words import (
    TwoLevelLaw,
    multiply_high,
    short_kernel,
)

# Histograms of reports, four at a time ----------------------------------------------------


_MAX_LANES_SIZE = 1 << 15  # four histograms of this size stay in the second-level cache


def histogram(reports: NDArray[np.unsignedinteger], num_outputs: int) -> NDArray[np.int64]:
    """How often each of 0 .. num_outputs - 1 occurs: int64 `(num_outputs,)`.

    Equal neighbours would wait for each other's increment, so small histograms are kept four
    times and added up: 0.3 to 1.4 ns a report where `numpy.bincount` takes 1.1 to 2.9.

    Raises:
        ValueError: if `reports` is not a vector of integers of [0, num_outputs).
    """
    reports = np.asarray(reports)
    if reports.ndim != 1 or reports.dtype.kind not in "iu":
        raise ValueError(
            f"reports must be a one-dimensional integer array, got {reports.ndim} dimensions "
            f"of dtype {reports.dtype}"
        )
    lanes = 4 if num_outputs <= _MAX_LANES_SIZE and len(reports) >= num_outputs else 1
    counts = np.zeros((lanes, num_outputs), dtype=np.int64)
    if not (_count_in_lanes(reports, counts) if lanes > 1 else _count(reports, counts[0])):
        raise ValueError(f"reports must lie in [0, {num_outputs})")
    return counts.sum(axis=0) if lanes > 1 else counts[0]


@short_kernel
def _count(reports, counts):  # type: ignore[no-untyped-def]
    size = np.uint64(counts.size)
    for i in range(reports.size):
        report = np.uint64(reports[i])
        if report >= size:
            return False
        counts[report] += 1
    return True


@short_kernel
def _count_in_lanes(reports, counts):  # type: ignore[no-untyped-def]
    size = np.uint64(counts.shape[1])
    whole = reports.size - reports.size % 4
    for i in range(0, whole, 4):
        a, b = np.uint64(reports[i]), np.uint64(reports[i + 1])
        c, d = np.uint64(reports[i + 2]), np.uint64(reports[i + 3])
        if max(max(a, b), max(c, d)) >= size:
            return False
        counts[0, a] += 1
        counts[1, b] += 1
        counts[2, c] += 1
        counts[3, d] += 1
    for i in range(whole, reports.size):
        report = np.uint64(reports[i])
        if report >= size:
            return False
        counts[0, report] += 1
    return True


_MAX_CHANNEL_ENTRIES = 1 << 22


@dataclass(frozen=True)
class SymbolOracle(NumberedReports, FrequencyOracle):
    """A two-level frequency oracle whose reports are symbols and whose statistic is a histogram.

    Subclasses say how many symbols there are, how many a value favours and which, and how much
    the favoured sets of two and of three values share.
    """

    mixes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._choose_parameters()
        _ = self._law  # refuses what words of 64 bits cannot resolve

    def _choose_parameters(self) -> None:
        """Validate or choose the parameters of a subclass; runs before the law is fixed."""

    @property
    @abstractmethod
    def num_symbols(self) -> int:
        """Number of different reports."""

    @property
    @abstractmethod
    def num_favoured(self) -> int:
        """Number of symbols that each value favours."""

    @abstractmethod
    def favoured(self, values: np.ndarray) -> np.ndarray:
        """The symbols that each value favours: int64, `(len(values), num_favoured)`."""

    @property
    @abstractmethod
    def overlap(self) -> int:
        """The least number of symbols that two values of the domain both favour."""

    @property
    @abstractmethod
    def triple_overlaps(self) -> tuple[int, ...]:
        """Symbols that three values favour of which any two share `overlap`, for each kind."""

    @cached_property
    def _law(self) -> TwoLevelLaw:
        return TwoLevelLaw(self.num_symbols, self.num_favoured, self.local_epsilon)

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    @property
    def cond_entropy_bits(self) -> float:
        law = self._law
        favoured = self.num_favoured * entropy_bits([law.favoured_probability])
        others = self.num_symbols - self.num_favoured
        return favoured + others * entropy_bits([law.other_probability])

    @property
    def _num_reports(self) -> int:
        return self.num_symbols

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.num_symbols,)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        return histogram(reports, self.num_symbols)

    def channel(self) -> np.ndarray:
        """P(report | value), `(num_symbols, domain_size)`, up to four million entries."""
        if self.num_symbols * self.domain_size > _MAX_CHANNEL_ENTRIES:
            return super().channel()
        table = np.full((self.num_symbols, self.domain_size), self._law.other_probability)
        values = np.arange(self.domain_size)
        table[self.favoured(values), values[:, None]] = self._law.favoured_probability
        return table

    @property
    def two_levels(self) -> TwoLevels | None:
        """All symbols alike: no value makes a symbol less likely than that.

        Two values whose favoured sets share the least are the worst pair. Under the blanket, let
        two sets share one symbol less: the ratio pairs (h, h) and (l, l) of one symbol each become
        (h, l) and (l, h). The hockey-stick divergence is an expectation of the convex (.)+ of a
        sum of a - t b over the pairs (a, b); h(1 - t) and l(1 - t) become h - t l and l - t h,
        with the same sum and farther apart: a mean-preserving spread, so it can only grow.
        """
        return TwoLevels(
            self._law.likelihood_ratio,
            self.num_favoured / self.num_symbols,
            self.overlap / self.num_symbols,
            f"own blanket of {type(self).__name__}",
            self._law.favoured_probability / self._law.other_probability,
        )

    @property
    def sends_bits(self) -> bool:
        return self.num_symbols == 2

    @property
    def triple_shares(self) -> tuple[float, ...]:
        return tuple(triple / self.num_symbols for triple in self.triple_overlaps)


# What the Hadamard responses share whose symbols form blocks, each with its own values ----


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
    def reach(self) -> float:
        """Whoever holds a value can speak against it."""
        return 1 + self._scale

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

    def _interval_rule(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> IntervalRule:
        """A report on the value's block is one for it or against it; nobody else's leans."""
        law = self._law
        for_it, against = (
            self.num_favoured * chance
            for chance in (law.favoured_probability, law.other_probability)
        )
        people = num_users if sampling == "fixed" else None
        seen = self._reports_by_block(statistic)[self._block_of_value]
        return SupportRule(num_users, people, (for_it, against), (against, against), seen)

    def _estimated_variance(
        self, statistic: np.ndarray, value: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        """How many reports lie on each block is seen, not estimated."""
        seen = self._reports_by_block(statistic)[self._block_of_value] / num_users
        return self._variance_at(seen, np.clip(value, 0.0, 1.0), num_users, sampling)


# What the oracles share whose values favour the translates of one difference set ----------


_THIRD_VALUES_TRIED = 256


@dataclass(frozen=True)
class CyclicOracle(SymbolOracle):
    """A two-level oracle whose value x favours the symbols x + S modulo v, S a difference set.

    A report takes one random word and one addition, and one fast Fourier transform decodes all of
    them. Any two values share equally many symbols, so the oracle is pure. A subclass chooses the
    set in `_choose_parameters`, and says its two sizes without building it: `num_symbols`, which is
    v and at least the domain, and `num_favoured`.
    """

    decoding: ClassVar[str] = "O(v log v), Fourier"

    @property
    @abstractmethod
    def difference_set(self) -> DifferenceSet:
        """What value 0 favours: `num_favoured` residues modulo `num_symbols`."""

    def favoured(self, values: np.ndarray) -> np.ndarray:
        values = np.asarray(values, dtype=np.int64)
        return (values[:, None] + self.difference_set.elements) % self.num_symbols

    @property
    def overlap(self) -> int:
        """Any two translates share equally many symbols."""
        return self.num_favoured * (self.num_favoured - 1) // (self.num_symbols - 1)

    @property
    def triple_overlaps(self) -> tuple[int, ...]:
        """What the sets of 0, 1 and a third value share, for third values up to 256."""
        last = min(self.domain_size, _THIRD_VALUES_TRIED)
        favoured = np.zeros(self.num_symbols, dtype=bool)
        favoured[self.difference_set.elements] = True
        common = np.flatnonzero(favoured & np.roll(favoured, 1))
        counts = {int(favoured[common - third].sum()) for third in range(2, last)}
        return tuple(sorted(counts))

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        _respond(
            values,
            words[:, 0],
            self.difference_set.elements.view(np.uint64),
            np.uint64(self.num_symbols),
            np.uint64(self._law.threshold),
            np.uint64(self._law.share),
            reports,
        )

    @property
    def support_probabilities(self) -> tuple[float, float]:
        """A report supports the values that favour it."""
        high, low = self._law.favoured_probability, self._law.other_probability
        only = self.num_favoured - self.overlap
        return self.num_favoured * high, self.overlap * high + only * low

    def support_counts(self, statistic: np.ndarray) -> np.ndarray:
        return self.difference_set.translate_counts(statistic)[: self.domain_size]

    def squared_support(self, weights: np.ndarray) -> np.ndarray:
        """Exact, by three transforms of the symbols: O(v log v) a sum.

        Symbol s is favoured by the values i of which s - i is in the set, so what it weighs is the
        sum of the weights over the translate of -s, once indices are negated.
        """
        lined = np.zeros((len(weights), self.num_symbols))
        lined[:, -np.arange(self.domain_size)] = weights
        weight = self.difference_set.translate_sums(lined)
        weight = np.concatenate([weight[:, :1], weight[:, :0:-1]], axis=1)
        squares = weight**2
        favoured = self.difference_set.translate_sums(squares)[:, : self.domain_size]
        high, low = self._law.favoured_probability, self._law.other_probability
        found: np.ndarray = low * squares.sum(axis=1, keepdims=True) + (high - low) * favoured
        return found


@short_kernel
def _respond(  # type: ignore[no-untyped-def]
    values, words, elements, num_symbols, threshold, share, reports
):
    for i in range(values.size):
        low = words[i] * num_symbols
        report = multiply_high(words[i], num_symbols)
        # A branch, although it is often mispredicted: without it the division takes longer.
        if low < threshold:
            report = np.uint64(values[i]) + elements[low // share]
            report -= num_symbols if report >= num_symbols else np.uint64(0)
        reports[i] = report
