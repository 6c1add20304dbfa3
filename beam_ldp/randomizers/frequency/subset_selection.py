"""Subset selection: the report is a set of categories, more often one that holds the own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers.base import ExtraWords, FrequencyOracle, below, check_below
from beam_ldp.randomizers.bits import pack_uints, unpack_uints
from beam_ldp.randomizers.checks import check_integer
from beam_ldp.randomizers.entropy import binary_entropy
from beam_ldp.randomizers.frequency import packed_bits
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.words import (
    CoinLaw,
    bits_for,
    check_resolution,
    kernel,
    multiply_high,
    smallest_uint,
)

_MAX_CHANNEL_VALUES = 12
_RANKED = 32  # members of a list that is sorted by comparing all pairs, the fastest way
_CHUNK = 1 << 16
_ONE = np.uint64(1)
_LOW_SIX = np.uint64(63)


@dataclass(frozen=True)
class SubsetSelection(FrequencyOracle):
    """A uniformly random set of `subset_size` categories, tilted toward sets with the own value.

    With w = `subset_size` and E = e**local_epsilon, the set holds the own value with probability
    wE / (wE + k - w); given that, it is uniform. It protects the value against everybody who sees
    the report. Among oracles of this kind none has a smaller error as the crowd grows; the price
    is a longer report.

    A set is sent in a form that says nothing but the set: its members in increasing order, or one
    bit per category where that is shorter. (Members in the order of drawing would give the own
    value away.) Reports are `(n, w)` unsigned integers, or `(n, ceil(k / 8))` uint8 rows of bits;
    the statistic counts the reports that hold each category.

    Sampling is exact: Floyd's method, every draw uniform without remainder.
    Cost: w + 1 random words and O(w) time per report; O(k) memory.

    Source: Ye and Barg 2018; Wang et al. 2016.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: local budget, > 0.
        subset_size: w, from 1 to k - 1; by default the one of least squared error, about
            k / (E + 1).

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = SubsetSelection(domain_size=1024, local_epsilon=5.0)
    >>> oracle.subset_size, oracle.bits_per_report
    (7, 70)
    >>> reports = oracle.randomize(np.array([5, 5, 1000]))
    >>> reports.shape, bool((np.diff(reports.astype(int)) > 0).all())
    ((3, 7), True)
    """

    domain_size: int
    local_epsilon: float
    subset_size: int | None = None

    mixes: ClassVar[bool] = True
    also_known_as: ClassVar[str] = "k-subset mechanism"
    decoding: ClassVar[str] = "O(n k / (e^eps0 + 1)) set members to add up"

    def __post_init__(self) -> None:
        super().__post_init__()
        size = self.subset_size
        if size is None:
            size = best_subset_size(self.domain_size, self.local_epsilon)
        size = check_integer("subset_size", size, 1, self.domain_size - 1)
        object.__setattr__(self, "subset_size", size)
        of = f" with {self.domain_size} values"
        check_resolution(self.local_epsilon, self.log_ratio_max(), of)

    @property
    def _size(self) -> int:
        assert self.subset_size is not None
        return self.subset_size

    @cached_property
    def _law(self) -> CoinLaw:
        """Heads: the set holds the own value."""
        return CoinLaw(self._size, self.domain_size - self._size, self.local_epsilon)

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    @property
    def cond_entropy_bits(self) -> float:
        """The coin, and the other members, or all of them, of a uniform set."""
        k, w, p = self.domain_size, self._size, self._law.coin.probability
        with_own, without = _log2_sets(k - 1, w - 1), _log2_sets(k - 1, w)
        return binary_entropy(p) + p * with_own + (1 - p) * without

    @property
    def _as_bits(self) -> bool:
        return self.domain_size <= self._size * bits_for(self.domain_size)

    @property
    def bits_per_report(self) -> int:
        return self.domain_size if self._as_bits else self._size * bits_for(self.domain_size)

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8) if self._as_bits else smallest_uint(self.domain_size)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (packed_bits.bytes_for(self.domain_size) if self._as_bits else self._size,)

    @property
    def words_per_user(self) -> int:
        return self._size + 1

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        failed = self._draw(values, words, reports)
        attempt = 0
        while len(failed):
            attempt += 1
            positions = np.arange(self.words_per_user) + attempt * self.words_per_user
            rows = np.repeat(failed, len(positions))
            again = extra(rows, np.tile(positions, len(failed))).reshape(len(failed), -1)
            again[:, 0] = words[failed, 0]  # the coin has fallen; only the set is drawn anew
            part = np.empty((len(failed), *self.report_shape), dtype=self.report_dtype)
            left = self._draw(values[failed], again, part)
            reports[failed] = part
            failed = failed[left]

    def _draw(self, values: np.ndarray, words: np.ndarray, reports: np.ndarray) -> np.ndarray:
        """Fill `reports`; the rows that met one of the words that would make a draw uneven."""
        k, w = np.int64(self.domain_size), np.int64(self._size)
        uneven = np.zeros(len(values), dtype=np.bool_)
        threshold = np.uint64(self._law.coin.threshold)
        if not self._as_bits and (w <= _RANKED or 8 * w * w <= k):
            _draw_lists(values, words, k, w, threshold, reports, uneven)
            return np.flatnonzero(uneven)
        rows = np.zeros((len(values), packed_bits.words_for(self.domain_size)), dtype=np.uint64)
        _draw_bits(values, words, k, w, threshold, rows, uneven)
        if self._as_bits:
            packed_bits.write_rows(rows, reports)
        else:
            reports[...] = packed_bits.positions_of_bits(rows).reshape(-1, self._size)
        return np.flatnonzero(uneven)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        if self._as_bits:
            return packed_bits.column_sums(reports, self.domain_size)
        counts = np.zeros(self.domain_size, dtype=np.int64)
        flat = check_below(reports, self.domain_size).reshape(-1)
        for start in range(0, len(flat), _CHUNK):
            _count(flat[start : start + _CHUNK], counts)
        return counts

    @property
    def support_probabilities(self) -> tuple[float, float]:
        p = self._law.coin.probability
        return p, (self._size - p) / (self.domain_size - 1)

    @property
    def pair_support(self) -> tuple[float, float]:
        """Given the coin, the other members are uniform."""
        k, w, p = self.domain_size, self._size, self._law.coin.probability
        own = p * (w - 1) / (k - 1)
        if k == 2:
            return own, 0.0
        return own, (p * (w - 1) * (w - 2) + (1 - p) * w * (w - 1)) / ((k - 1) * (k - 2))

    def channel(self) -> np.ndarray:
        """P(report | value) for up to 12 categories; rows are the sets in lexicographic order."""
        if self.domain_size > _MAX_CHANNEL_VALUES:
            return super().channel()
        k, w, p = self.domain_size, self._size, self._law.coin.probability
        holds = np.array([[x in s for x in range(k)] for s in combinations(range(k), w)])
        return np.where(holds, p / math.comb(k - 1, w - 1), (1 - p) / math.comb(k - 1, w))

    def channel_reports(self) -> np.ndarray:
        """The reports that the rows of `channel` stand for."""
        k, w = self.domain_size, self._size
        sets = np.array(list(combinations(range(k), w)))
        if not self._as_bits:
            return sets.astype(self.report_dtype)
        bits = np.zeros((len(sets), k), dtype=np.uint8)
        np.put_along_axis(bits, sets, 1, axis=1)
        return np.packbits(bits, axis=1, bitorder="little")

    @property
    def two_levels(self) -> TwoLevels:
        """Every set misses some value, so the blanket is uniform; two values split the sets into
        four hypergeometric classes, the same for every pair."""
        one = self._size / self.domain_size
        two = one * (self._size - 1) / (self.domain_size - 1)
        return TwoLevels(float(self._law.ratio), one, two, "subset selection's own blanket")

    @property
    def triple_shares(self) -> tuple[float, ...]:
        k, w = self.domain_size, self._size
        return (self.two_levels.overlap * max(w - 2, 0) / (k - 2),) if k > 2 else ()

    def pack(self, reports: np.ndarray) -> bytes:
        """Members in increasing order, or one bit per category: whichever is shorter."""
        if self._as_bits:
            return packed_bits.pack_rows(reports, self.domain_size)
        return pack_uints(reports.reshape(-1), bits_for(self.domain_size))

    @property
    def _low_bits_first(self) -> bool:
        return self._as_bits

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        if self._as_bits:
            return packed_bits.unpack_rows(data, self.domain_size, num_reports)
        members = unpack_uints(data, bits_for(self.domain_size), num_reports * self._size)
        return members.astype(self.report_dtype).reshape(num_reports, self._size)

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        if self._as_bits:
            whole = packed_bits.whole_rows(reports, self.domain_size)
            return whole & (packed_bits.row_sums(packed_bits.read_rows(reports)) == self._size)
        increasing = (reports[:, 1:] > reports[:, :-1]).all(axis=1)
        return np.asarray(increasing & below(reports[:, -1], self.domain_size))

    @property
    def _possible_reports(self) -> str:
        return f"be sets of {self._size} distinct values in increasing order"


def _log2_sets(values: int, members: int) -> float:
    """Bits of one of all sets of so many members."""
    rest = values - members
    logs = math.lgamma(values + 1) - math.lgamma(members + 1) - math.lgamma(rest + 1)
    return logs / math.log(2)


def best_subset_size(domain_size: int, local_epsilon: float) -> int:
    """The size of least squared error summed over all values, next to k / (E + 1).

    Source: Ye and Barg 2018.

    >>> best_subset_size(1000, 1.0)
    269
    """
    odds = math.exp(min(local_epsilon, 700.0))

    def error(w: int) -> float:
        p = w * odds / (w * odds + domain_size - w)
        q = (w - p) / (domain_size - 1)
        return (p * (1 - p) + (domain_size - 1) * q * (1 - q)) / (p - q) ** 2

    centre = round(domain_size / (odds + 1))
    sizes = range(max(1, centre - 3), min(domain_size - 1, centre + 3) + 1)
    return min(sizes, key=error)


@kernel
def _draw_lists(values, words, k, w, threshold, reports, uneven):  # type: ignore[no-untyped-def]
    chosen = np.empty(w, dtype=np.int64)
    for i in range(values.size):
        own = np.int64(values[i])
        count = w
        if words[i, 0] < threshold:
            count = w - 1
            chosen[count] = own
        for j in range(count):
            bound = np.uint64(k - count + j)
            number = np.int64(multiply_high(words[i, j + 1], bound))  # type: ignore[arg-type]
            remainder = words[i, j + 1] * bound
            if remainder < bound and remainder < (~bound + _ONE) % bound:
                uneven[i] = True
            number += number >= own
            seen = False
            for other in range(j):
                seen |= chosen[other] == number
            last = np.int64(bound) - 1
            chosen[j] = last + (last >= own) if seen else number
        for j in range(w):
            rank = 0
            for other in range(w):
                rank += chosen[other] < chosen[j]
            reports[i, rank] = chosen[j]


@kernel
def _draw_bits(values, words, k, w, threshold, rows, uneven):  # type: ignore[no-untyped-def]
    for i in range(values.size):
        own = np.int64(values[i])
        count = w
        if words[i, 0] < threshold:
            count = w - 1
            rows[i, own >> 6] |= _ONE << (np.uint64(own) & _LOW_SIX)
        for j in range(count):
            bound = np.uint64(k - count + j)
            number = np.int64(multiply_high(words[i, j + 1], bound))  # type: ignore[arg-type]
            remainder = words[i, j + 1] * bound
            if remainder < bound and remainder < (~bound + _ONE) % bound:
                uneven[i] = True
            number += number >= own
            if (rows[i, number >> 6] >> (np.uint64(number) & _LOW_SIX)) & _ONE:
                number = np.int64(bound) - 1
                number += number >= own
            rows[i, number >> 6] |= _ONE << (np.uint64(number) & _LOW_SIX)


@kernel
def _count(members, counts):  # type: ignore[no-untyped-def]
    for i in range(members.size):
        counts[members[i]] += 1
