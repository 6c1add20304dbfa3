"""SQKR: an even (Kashin) representation of the vector, and a few noisy bits of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, Sampling, below
from beam_ldp.randomizers.mean.base import MeanRandomizer, Norm
from beam_ldp.randomizers.mean.codebooks import GOLDEN, mix
from beam_ldp.randomizers.mean.projections import public_signs
from beam_ldp.randomizers.normals import uniform
from beam_ldp.randomizers.walsh_hadamard import walsh_hadamard_in_place
from beam_ldp.randomizers.words import TwoLevelLaw, kernel, multiply_high

_SEED_BITS = 32
_MAX_BITS = 24
_SHRINK = 0.6
_KASHIN_FROM = 128  # dimensions; below, too many vectors exceed the level: no bound of the bias


def kashin_error(dimension: int, epsilon: float, level: float, bits: int) -> float:
    """Mean squared error on a unit vector: K^2 d/(k lam^2) + (k-1)/(k lam) - 1, exact."""
    gain = math.expm1(epsilon) / (math.exp(epsilon) + 2.0**bits - 1)
    return level**2 * dimension / (bits * gain**2) + (bits - 1) / (bits * gain) - 1


def best_bits(dimension: int, epsilon: float, level: float = 1.75) -> int:
    """K of least error; the rule floor(eps log2 e) of the first paper is up to 2.8 times worse."""
    return min(range(1, _MAX_BITS + 1), key=lambda k: kashin_error(dimension, epsilon, level, k))


@dataclass(frozen=True)
class KashinMean(MeanRandomizer):
    """SQKR: k random coefficients of a Kashin representation, one bit each, as one symbol.

    The vector is written in a redundant frame so that no coefficient exceeds level/sqrt(N) of its
    radius; k of the N coefficients, chosen by a fresh seed that travels along, are rounded to
    signs without bias, and the k signs go through 2^k-ary randomized response: exactly eps-LDP.
    It protects the vector against everybody who sees the report. Its error is at least 1.66 times
    PrivUnit's; what it offers is speed of reading and few bits.

    A coefficient beyond the level is cut, which biases that user's share: about one vector in a
    hundred in 128 dimensions at the default level, fewer in more dimensions, more in fewer.

    Reports are `(n,)` uint64, seed times 2^k plus the signs; the statistic is the int64 sum of
    signs per coefficient.

    Source: Chen, Kairouz and Ozgur 2020; exact error and the number of bits are our own.

    Args:
        dimension: number of coordinates.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        bits: k; by default the best.
        level: K, the bound of the coefficients times sqrt(N)/radius.
        redundancy: coefficients per (padded) coordinate, a power of two.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = KashinMean(dimension=100, local_epsilon=4.0)
    >>> mechanism.bits, mechanism.bits_per_report
    (4, 36)
    """

    bits: int | None = None
    level: float = 1.75
    redundancy: int = 4

    also_known_as: ClassVar[str] = "SQKR"
    norm: ClassVar[Norm] = "l2"
    decoding: ClassVar[str] = "O(d log d), Walsh-Hadamard"

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        if dimension < _KASHIN_FROM:
            raise ValueError(f"its bias has no bound below {_KASHIN_FROM} dimensions")
        return ({},)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.redundancy not in (2, 4, 8):
            raise ValueError(f"redundancy must be 2, 4 or 8, got {self.redundancy}")
        if not 1 <= self.level <= 10:
            raise ValueError(f"level must lie in [1, 10], got {self.level}")
        if self.bits is None:
            chosen = best_bits(self.dimension, self.local_epsilon, self.level)
            object.__setattr__(self, "bits", chosen)
        if not 1 <= self._bits <= _MAX_BITS:
            raise ValueError(f"bits must lie in [1, {_MAX_BITS}], got {self.bits}")
        _ = self._law  # refuses parameters that the words cannot resolve

    @property
    def _bits(self) -> int:
        assert self.bits is not None
        return self.bits

    @property
    def coefficients(self) -> int:
        """N, a power of two."""
        return self.redundancy << (self.dimension - 1).bit_length()

    @cached_property
    def _law(self) -> TwoLevelLaw:
        return TwoLevelLaw(1 << self._bits, 1, self.local_epsilon)

    @property
    def _gain(self) -> float:
        return self._law.favoured_probability - self._law.other_probability

    @cached_property
    def _signs(self) -> np.ndarray:
        return public_signs(0, self.coefficients)[: self.dimension]

    @cached_property
    def _columns(self) -> np.ndarray:
        """Random columns of the transform: the first ones would repeat every coefficient."""
        draws = mix(np.arange(1, self.coefficients + 1, dtype=np.uint64) * GOLDEN)
        return np.argsort(draws)[: self.dimension]

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    @property
    def bits_per_report(self) -> int:
        return _SEED_BITS + self._bits

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint64)

    @property
    def words_per_user(self) -> int:
        return 2 + self._bits

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.coefficients,)

    def _analyze(self, vectors: np.ndarray) -> np.ndarray:
        """U x: frame coefficients, `(n, N)`."""
        out = np.zeros((len(vectors), self.coefficients))
        out[:, self._columns] = vectors * (self._signs / math.sqrt(self.coefficients))
        walsh_hadamard_in_place(out)
        return out

    def _synthesize(self, coefficients: np.ndarray) -> np.ndarray:
        """U^T a: the vectors that coefficients stand for."""
        out = np.array(coefficients, dtype=np.float64)
        walsh_hadamard_in_place(out)
        return out[:, self._columns] * (self._signs / math.sqrt(self.coefficients))

    def represent(self, vectors: np.ndarray) -> np.ndarray:
        """Even coefficients a with U^T a = x, `(n, N)`, before they are cut at the level."""
        rest = np.array(vectors, dtype=np.float64)
        length = np.linalg.norm(rest, axis=1, keepdims=True)
        total = np.zeros((len(rest), self.coefficients))
        bound = _SHRINK * length / math.sqrt(self.coefficients)
        for _ in range(math.ceil(3 * math.log(self.coefficients))):
            part = np.clip(self._analyze(rest), -bound, bound)
            rest -= self._synthesize(part)
            total += part
            bound = bound * _SHRINK
        return total + self._analyze(rest)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        limit = self.level * self.radius / math.sqrt(self.coefficients)
        step = max(1, (1 << 20) // self.coefficients)
        for start in range(0, len(values), step):
            part = slice(start, start + step)
            even = self.represent(values[part]) / limit
            _respond(
                even, words[part], np.uint64(self._bits), np.uint64(self._law.threshold),
                reports[part],
            )  # fmt: skip

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.coefficients, dtype=np.int64)
        _count(reports, np.uint64(self._bits), total)
        return total

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Every seed and every row of signs."""
        return below(reports, 1 << self.bits_per_report)

    @property
    def _longest_read(self) -> float:
        """If all signs of a report were about one coefficient."""
        return self.level * self.radius * math.sqrt(self.dimension) / self._gain

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        scale = self.level * self.radius * math.sqrt(self.coefficients) / (self._bits * self._gain)
        return scale / num_users * self._synthesize(statistic[None, :])[0]

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        k, gain = self._bits, self._gain
        noise = np.full(self.dimension, (self.level * self.radius / gain) ** 2 / k)
        own = (k - 1) / (k * gain) - 1
        if vectors is None:
            return noise + max(0.0, own) * self.radius**2
        return noise + own * np.mean(vectors**2, axis=0)

    def mean_squared_error(
        self, num_users: int, truth: np.ndarray | None = None, sampling: Sampling = "fixed"
    ) -> float:
        """Expected squared Euclidean error; without `truth` that of the worst length."""
        if truth is not None or sampling != "fixed":
            return super().mean_squared_error(num_users, truth, sampling)
        k, gain = self._bits, self._gain
        own = max(0.0, (k - 1) / (k * gain) - 1)
        noise = self.dimension * (self.level / gain) ** 2 / k
        return self.radius**2 * (noise + own) / num_users


@kernel
def _respond(even, words, bits, threshold, reports):  # type: ignore[no-untyped-def]
    size = np.uint64(even.shape[1])
    symbols = np.uint64(1) << bits
    for i in range(len(even)):
        seed = words[i, 0] >> np.uint64(32)
        symbol = np.uint64(multiply_high(words[i, 1], symbols))
        if words[i, 1] * symbols < threshold:
            symbol = np.uint64(0)
            state = mix(seed + GOLDEN)
            for j in range(np.int64(bits)):
                state += GOLDEN
                at = mix(state) & (size - np.uint64(1))
                if 2.0 * uniform(words[i, 2 + j]) - 1.0 < even[i, at]:
                    symbol |= np.uint64(1) << np.uint64(j)
        reports[i] = (seed << bits) | symbol


@kernel
def _count(reports, bits, total):  # type: ignore[no-untyped-def]
    size = np.uint64(total.size)
    for i in range(reports.size):
        state = mix((reports[i] >> bits) + GOLDEN)
        for j in range(np.int64(bits)):
            state += GOLDEN
            at = mix(state) & (size - np.uint64(1))
            total[at] += 1 if (reports[i] >> np.uint64(j)) & np.uint64(1) else -1
