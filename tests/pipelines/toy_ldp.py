"""Mechanisms from outside the tree, as somebody else would write them: tests run programs with
them. No file of beam_ldp knows of this one."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.finite_fields import DifferenceSet, is_prime, paley
from beam_ldp.randomizers.frequency.symbol_oracle import CyclicOracle
from beam_ldp.randomizers.mean.base import MeanRandomizer, Norm
from beam_ldp.randomizers.words import Coin, exp_lower


@dataclass(frozen=True)
class PaleyResponse(CyclicOracle):
    """Paley response: a report favours the squares of a prime field, moved by the value."""

    @property
    def num_symbols(self) -> int:
        prime = self.domain_size | 3
        while not is_prime(prime):
            prime += 4
        return prime

    @property
    def num_favoured(self) -> int:
        return self.num_symbols // 2

    @property
    def difference_set(self) -> DifferenceSet:
        return paley(self.num_symbols)


@dataclass(frozen=True)
class CoinMean(MeanRandomizer):
    """Coin mean: one bit about a number, up or down."""

    norm: ClassVar[Norm] = "linf"
    decoding: ClassVar[str] = "O(1)"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dimension != 1:
            raise ValueError(f"dimension must be 1, got {self.dimension}")

    @classmethod
    def serves(cls, norm: Norm, dimension: int) -> bool:
        return norm == "linf" and dimension == 1

    @property
    def _coin(self) -> Coin:
        odds = exp_lower(min(self.local_epsilon, 60.0))
        return Coin.at_most(odds / (1 + odds))

    @property
    def _gap(self) -> float:
        return 2 * self._coin.probability - 1

    def log_ratio_max(self) -> float:
        p = self._coin.probability
        return min(self.local_epsilon, math.log(p / (1 - p)))

    @property
    def bits_per_report(self) -> int:
        return 1

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (1,)

    @property
    def words_per_user(self) -> int:
        return 2

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        up = (1 + values[:, 0] / self.radius) / 2
        side = words[:, 1] / 2.0**64 < up
        keep = words[:, 0] < np.uint64(self._coin.threshold)
        reports[...] = side == keep

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        return np.array([np.count_nonzero(reports)])

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        return (2 * statistic / num_users - 1) / self._gap * self.radius

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        square = np.zeros(1) if vectors is None else np.mean(vectors**2, axis=0)
        return (self.radius / self._gap) ** 2 - square
