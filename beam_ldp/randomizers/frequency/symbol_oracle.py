"""What the oracles share whose report is one symbol and whose channel has two levels.

k-ary, Hadamard and projective geometry responses are one family: each value favours a set of
symbols, all sets of one size, and a favoured symbol is e**local_epsilon times as likely as any
other. They differ in the sets, and so in error, bits and decoding.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.base import FrequencyOracle, below
from beam_ldp.randomizers.bits import bits_for, smallest_uint
from beam_ldp.randomizers.frequency.histogram import histogram
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses
from beam_ldp.randomizers.thresholds import TwoLevelLaw

_MAX_CHANNEL_ENTRIES = 1 << 22


@dataclass(frozen=True)
class SymbolOracle(FrequencyOracle):
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
    def bits_per_report(self) -> int:
        return bits_for(self.num_symbols)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return smallest_uint(self.num_symbols)

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

    def dominating_pair(self) -> ShufflePair:
        """The own blanket: all symbols alike. No value makes a symbol less likely than that.

        Two values whose favoured sets share the least are the worst pair. Under the blanket, let
        two sets share one symbol less: the ratio pairs (h, h) and (l, l) of one symbol each become
        (h, l) and (l, h). The hockey-stick divergence is an expectation of the convex (.)+ of a
        sum of a - t b over the pairs (a, b); h(1 - t) and l(1 - t) become h - t l and l - t h,
        with the same sum and farther apart: a mean-preserving spread, so it can only grow.
        """
        return ShufflePair.two_level(
            self._law.likelihood_ratio,
            self.num_favoured / self.num_symbols,
            self.overlap / self.num_symbols,
            f"own blanket of {type(self).__name__}",
        )

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return two_level_witnesses(
            self._law.favoured_probability / self._law.other_probability,
            self.num_favoured / self.num_symbols,
            self.overlap / self.num_symbols,
            tuple(triple / self.num_symbols for triple in self.triple_overlaps),
        )

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        return below(reports, self.num_symbols)

    @property
    def _possible_reports(self) -> str:
        return f"lie in [0, {self.num_symbols})"
