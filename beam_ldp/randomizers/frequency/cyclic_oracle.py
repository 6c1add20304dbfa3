"""What the oracles share whose values favour the translates of one difference set."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.difference_sets import DifferenceSet
from beam_ldp.randomizers.frequency.symbol_oracle import SymbolOracle
from beam_ldp.randomizers.jit import kernel, multiply_high

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


@kernel
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
