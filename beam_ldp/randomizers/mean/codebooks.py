"""Codebooks of random directions, written down by a seed, and the mechanisms that index them.

Every user draws a fresh seed; it travels in the report and stands for a list of uniform unit
vectors: independent ones, or the corners of a simplex that is turned at random. Only the index
depends on the user's vector. Privacy does not depend on the quality of the generator, because it
holds for every list; unbiasedness does, and SplitMix64 (Steele, Lea and Flood 2014), one stream per
candidate, is ample for it.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import below
from beam_ldp.randomizers.bits import pack_uints, unpack_uints
from beam_ldp.randomizers.mean.base import MOST_NUMBERS, check_numbers
from beam_ldp.randomizers.mean.directions import (
    DirectionMean,
    add_coordinate,
    inner_product,
    signed_length,
    square_sum,
    tame,
)
from beam_ldp.randomizers.normals import fill_normals, spare_words, uniform
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.spherical_caps import log_density_constant
from beam_ldp.randomizers.words import TwoLevelLaw, kernel, multiply_high, subroutine

MAX_INDEX_BITS = 20
_REPORT_BITS = 64
_PLANNED_BITS = (4, 8, 12)  # of the index
PLANNED_SEEDS = (48, 32)
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_NODES = 8001
_TAIL = 12.0  # standard deviations
_ONE = np.uint64(1)


@dataclass(frozen=True)
class CodebookMean(DirectionMean):
    """A mechanism that sends a seed and the index of one of the directions that it stands for.

    Reports are `(n,)` uint64, seed times number of candidates plus index; the statistic is the
    sums of the named directions and of their squares, in fixed point. Cost: candidates times
    dimension normals to randomize, one list entry to read.

    A mean over all seeds is not yet one over all lists: vectors are shifted as if 2^seed_bits
    more people had reported, on average over what the generator draws (`bias_bound`,
    `shift_bound`). With 32 bits that is a thousandth of the noise of four million people.

    Attributes:
        index_bits: logarithm of the number of candidates.
        seed_bits: bits of the seed; equal seeds of two users do no harm.
    """

    index_bits: int = 8
    seed_bits: int = 48

    decoding: ClassVar[str] = "O(d), but O(n d) random numbers to draw again"
    bias_on_average: ClassVar[bool] = True
    simplex: ClassVar[bool] = False  # whether candidates are corners of one

    @classmethod
    def variants(cls, dimension: int) -> Iterable[dict[str, Any]]:
        least, _, most = _PLANNED_BITS
        check_numbers(dimension << least)
        most = min(most, (MOST_NUMBERS // dimension).bit_length() - 1)
        indices = sorted({most, *(bits for bits in _PLANNED_BITS if bits < most)}, reverse=True)
        return [{"index_bits": i, "seed_bits": s} for i in indices for s in PLANNED_SEEDS]

    @property
    def numbers_per_report(self) -> float:
        return float(self.dimension << self.index_bits)

    def __post_init__(self) -> None:
        if not 1 <= self.index_bits <= MAX_INDEX_BITS:
            raise ValueError(f"index_bits must lie in [1, {MAX_INDEX_BITS}], got {self.index_bits}")
        if not 16 <= self.seed_bits <= _REPORT_BITS - self.index_bits:
            raise ValueError(
                f"seed_bits must lie in [16, {_REPORT_BITS - self.index_bits}], "
                f"got {self.seed_bits}"
            )
        super().__post_init__()

    @property
    @abstractmethod
    def marginal(self) -> float:
        """m: expected inner product of the named and the own direction."""

    @property
    def bias_bound(self) -> float:
        """Of the component that is shifted most: Bernstein's inequality for the mean of lists."""
        count, logs = 2.0**self.seed_bits, math.log(2 * self.dimension)
        spread = float(self._user_variance(None).max()) / count
        farthest = (1 + 1 / self.marginal) * self.radius / count
        return math.sqrt(2 * spread * logs) + farthest * logs / 3

    @property
    def shift_bound(self) -> float:
        return math.sqrt(self.mean_squared_error(1) / 2.0**self.seed_bits)

    @property
    def num_candidates(self) -> int:
        return 1 << self.index_bits

    @property
    def _largest_coordinate(self) -> float:
        return 1 / self.marginal

    @property
    def bits_per_report(self) -> int:
        return self.seed_bits + self.index_bits

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint64)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def words_per_user(self) -> int:
        return 3

    def pack(self, reports: np.ndarray) -> bytes:
        return pack_uints(self._check_reports(reports), self.bits_per_report)

    def _unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        return unpack_uints(data, self.bits_per_report, num_reports)

    def _possible(self, reports: np.ndarray) -> np.ndarray:
        """Every candidate of every seed: all of them are directions of one length."""
        return below(reports, 1 << self.bits_per_report)

    @property
    @abstractmethod
    def _choice(self) -> tuple[tuple[int, int, int, bool], float, np.ndarray]:
        """How the index is chosen: one of the closest, by threshold, number, share and whether the
        high half of the word is used again; or by a cap's height and the thresholds of its counts.
        """

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        (threshold, favoured, share, reuses_high_half), height, thresholds = self._choice
        _name(
            vectors, rows, words, self._flip_scale, np.uint64(self.seed_bits),
            np.uint64(self.index_bits), spare_words(self.dimension), self.simplex,
            np.uint64(threshold), np.uint64(favoured), np.uint64(share), reuses_high_half,
            height, thresholds, reports,
        )  # fmt: skip
        return np.ones(len(rows), dtype=bool)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = self._check_reports(np.asarray(reports))
        total = np.zeros(self.statistic_shape, dtype=np.int64)
        _add_named(
            reports, np.uint64(self.index_bits), spare_words(self.dimension), self.simplex,
            float(self.fixed_point.largest), self.fixed_point.square_shift, total,
        )  # fmt: skip
        return total


class HeightNodes:
    """Quadrature over the height x = <c, u> of a uniform direction c: x = sin(angle).

    Attributes:
        x: heights, decreasing in the tail probability.
        weight: their probability.
        tail: P(x), the probability of a height of at least x.
    """

    def __init__(self, dimension: int) -> None:
        reach = min(1.0, _TAIL / math.sqrt(dimension))
        angle = np.linspace(-math.asin(reach), math.asin(reach), _NODES)
        self.x = np.sin(angle)
        cosine = np.maximum(np.cos(angle), 1e-300)
        power = (dimension - 2) * np.log(cosine)
        step = np.full(_NODES, angle[1] - angle[0])
        step[[0, -1]] /= 2
        self.weight = np.exp(log_density_constant(dimension) + power) * step
        upper = 0.5 * special.betainc((dimension - 1) / 2, 0.5, cosine**2)
        self.tail = np.where(self.x >= 0, upper, 1 - upper)
        self._sums: dict[tuple[int, int, int], float] = {}  # plans ask for few, again and again

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, dimension: int) -> HeightNodes:
        """Those of a dimension, which all budgets share."""
        return cls(dimension)

    def top_sum(self, count: int, candidates: int, power: int = 1) -> float:
        """E of the sum over the `count` highest of so many candidates of height^power."""
        asked = (count, candidates, power)
        if asked not in self._sums:
            self._sums[asked] = self._top_sum(count, candidates, power)
        return self._sums[asked]

    def _top_sum(self, count: int, candidates: int, power: int) -> float:
        return top_sum(self.x**power, self.weight, self.tail, count, candidates)


def top_sum(
    value: np.ndarray, weight: np.ndarray, tail: np.ndarray, count: int, candidates: int
) -> float:
    """E of the sum of `value` over the `count` candidates of least `tail`."""
    among = special.bdtr(count - 1, candidates - 1, tail)  # fewer than count are higher
    return candidates * float(np.sum(value * weight * among))


@subroutine
def mix(word):  # type: ignore[no-untyped-def]
    """The output function of SplitMix64."""
    word = (word ^ (word >> np.uint64(30))) * _MIX_1
    word = (word ^ (word >> np.uint64(27))) * _MIX_2
    return word ^ (word >> np.uint64(31))


@subroutine
def fill_candidate(seed, index, words, out, scratch):  # type: ignore[no-untyped-def]
    """Write candidate `index` of `seed`, a standard normal vector, into `out`."""
    attempt = np.uint64(index)
    while True:
        state = mix(mix(seed + GOLDEN) + attempt * GOLDEN)
        for j in range(words.size):
            state += GOLDEN
            words[j] = mix(state)
        if fill_normals(words, 0, out, scratch) <= words.size:
            return
        attempt += np.uint64(4294967296)  # out of words, once in 1e9: another stream


@subroutine
def named_direction(vector, length, axis):  # type: ignore[no-untyped-def]
    """(vector, length), or (its direction in `axis`, 1) where it is zero, tiny or huge."""
    if length == 0.0:
        axis[:] = 0.0
        axis[0] = 1.0
        return axis, 1.0
    return tame(vector, length, axis)


@subroutine
def fill_heights(seed, vector, words, out, scratch, heights):  # type: ignore[no-untyped-def]
    """Inner products of all candidates, as unit vectors, with `vector`."""
    for k in range(heights.size):
        fill_candidate(seed, k, words, out, scratch)
        heights[k] = inner_product(out, vector) / math.sqrt(square_sum(out, 1.0))


@subroutine
def fill_axes(seed, words, scratch, axes):  # type: ignore[no-untyped-def]
    """The first axes of a uniform rotation: normals, each made orthogonal to those before it."""
    for k in range(axes.shape[0]):
        fill_candidate(seed, k, words, axes[k], scratch)
        for before in range(k):
            share = inner_product(axes[before], axes[k])
            for j in range(axes.shape[1]):
                axes[k, j] -= share * axes[before, j]
        scale = 1.0 / math.sqrt(square_sum(axes[k], 1.0))
        for j in range(axes.shape[1]):
            axes[k, j] *= scale


@subroutine
def fill_corner(named, axes, out):  # type: ignore[no-untyped-def]
    """Write a corner of the simplex that axes span, up to a factor, into `out`."""
    for j in range(out.size):
        mean = 0.0
        for k in range(axes.shape[0]):
            mean += axes[k, j]
        out[j] = axes[named, j] - mean / axes.shape[0]


@kernel
def _name(  # type: ignore[no-untyped-def]  # fmt: skip
    vectors,
    rows,
    words,
    flip_scale,
    seed_bits,
    index_bits,
    num_words,
    simplex,
    threshold,
    favoured,
    share,
    reuses_high_half,
    height,
    thresholds,
    reports,
):
    d = vectors.shape[1]
    own = np.empty(num_words, dtype=np.uint64)
    out, axis = np.empty(d), np.empty(d)
    scratch = np.empty(d + 1, dtype=np.int64)
    heights = np.empty(1 << np.int64(index_bits))
    axes = np.empty((heights.size if simplex else 0, d))
    for i in range(rows.size):
        row = words[i]
        seed = row[0] >> (np.uint64(64) - seed_bits)
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(row[row.size - 1]))
        vector, length = named_direction(vector, length, axis)
        if simplex:
            fill_axes(seed, own, scratch, axes)
            for k in range(heights.size):
                heights[k] = inner_product(axes[k], vector)  # corners are in the order of the axes
        else:
            fill_heights(seed, vector, own, out, scratch, heights)
        if thresholds.size:
            index = pick_by_cap(sign, heights, row[1], row[2], height * length, thresholds)
        else:
            index = pick(sign, heights, row[1], threshold, favoured, share, reuses_high_half)
        reports[rows[i]] = (seed << index_bits) | index


@kernel
def _add_named(  # type: ignore[no-untyped-def]
    reports, index_bits, num_words, simplex, scale, shift, total
):
    d = total.shape[1]
    words = np.empty(num_words, dtype=np.uint64)
    out = np.empty(d)
    scratch = np.empty(d + 1, dtype=np.int64)
    candidates = 1 << np.int64(index_bits)
    axes = np.empty((candidates if simplex else 0, d))
    mask = (np.uint64(1) << index_bits) - np.uint64(1)
    for i in range(reports.size):
        seed, named = reports[i] >> index_bits, np.int64(reports[i] & mask)
        if simplex:
            fill_axes(seed, words, scratch, axes)
            fill_corner(named, axes, out)
            factor = scale * math.sqrt(candidates / (candidates - 1.0))
        else:
            fill_candidate(seed, named, words, out, scratch)
            factor = scale / math.sqrt(square_sum(out, 1.0))
        for j in range(d):
            add_coordinate(np.int64(np.rint(factor * out[j])), j, shift, total)


@dataclass(frozen=True)
class RandomCodebookMean(CodebookMean):
    """k-closest: a seed stands for M random directions, one of the k closest ones is named.

    Each of the k candidates closest to the own direction is e**local_epsilon times as likely as
    each other one, exactly, whatever the list: exactly eps-LDP. It protects the vector against
    everybody who sees the report. Within 2 % of `PrivUnit`'s error with 8 index bits for
    eps <= 4, within 12 % at eps = 8; 56 bits with the seed, whatever the dimension.

    Source: Isik, Chen, Ozgur, Weissman and No 2023 (random codes); the independent codebook and
    its exact error are our own.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: of the fixed point in which the collector sums.
        index_bits: logarithm of the number of candidates.
        seed_bits: bits of the seed.
        closest: k; by default the best.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = RandomCodebookMean(dimension=10, local_epsilon=2.0)
    >>> mechanism.bits_per_report, mechanism.randomize(np.eye(10)).dtype
    (56, dtype('uint64'))
    """

    closest: int | None = None

    nodes: ClassVar[type[HeightNodes]] = HeightNodes
    also_known_as: ClassVar[str] = "k-closest"
    exactness: ClassVar[str] = "exact"

    def __post_init__(self) -> None:
        if self.closest is not None and not 1 <= self.closest < 1 << self.index_bits:
            raise ValueError(
                f"closest must lie in [1, {(1 << self.index_bits) - 1}], got {self.closest}"
            )
        super().__post_init__()

    @property
    def _nodes(self) -> HeightNodes:
        return self.nodes.of(self.dimension)

    @cached_property
    def favoured(self) -> int:
        """k: how many of the closest candidates are favoured."""
        if self.closest is not None:
            return self.closest
        return best_count(self.local_epsilon, self.num_candidates, self._nodes.top_sum)[0]

    @cached_property
    def _law(self) -> TwoLevelLaw:
        return TwoLevelLaw(self.num_candidates, self.favoured, self.local_epsilon)

    def _expectation(self, power: int, anywhere: float) -> float:
        """E of the named height^power, whose mean over all candidates is `anywhere`."""
        p, q = self._law.favoured_probability, self._law.other_probability
        top = self._nodes.top_sum(self.favoured, self.num_candidates, power)
        return (p - q) * top + q * self.num_candidates * anywhere

    @cached_property
    def marginal(self) -> float:
        return self._expectation(1, 0.0)

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        along = self._expectation(2, 1 / self.dimension)
        isotropic = (1 - along) / (self.dimension - 1)
        return isotropic / self.marginal**2, (along - isotropic) / self.marginal**2

    def log_ratio_max(self) -> float:
        return self._law.log_ratio_max

    @property
    def _choice(self) -> tuple[tuple[int, int, int, bool], float, np.ndarray]:
        law = self._law
        closest = law.threshold, self.favoured, law.share, law.reuses_high_half
        return closest, 0.0, np.empty(0, dtype=np.uint64)

    @property
    def two_levels(self) -> TwoLevels:
        """Any seed, any index. Opposite vectors favour disjoint candidates."""
        share = self.favoured / self.num_candidates
        overlap, source = max(0.0, 2 * share - 1), "k-closest codebook's own blanket"
        return TwoLevels(self._law.likelihood_ratio, share, overlap, source)


def best_count(epsilon: float, candidates: int, top: object) -> tuple[int, float]:
    """(k, m): how many to favour, and the marginal that `top(k, candidates)` then gives.

    m(k) = (E - 1) C_k / (k E + M - k) rises to one maximum and falls; found by ternary search.
    """

    def marginal(k: int) -> float:
        odds = -math.expm1(-epsilon) / (k + (candidates - k) * math.exp(-epsilon))
        return odds * top(k, candidates)  # type: ignore[operator]

    low, high = 1, max(1, candidates // 2)
    while high - low > 4:
        third = (high - low) // 3
        if marginal(low + third) < marginal(high - third):
            low += third
        else:
            high -= third
    best = max(range(low, high + 1), key=marginal)
    return best, marginal(best)


@subroutine
def pick(sign, heights, word, threshold, favoured, share, reuses_high_half):  # type: ignore[no-untyped-def]
    """The index that is sent: one of the highest (of the lowest, if `sign` is -1), or any."""
    candidates = np.uint64(heights.size)
    low = word * candidates
    # The favoured index is found whether it is sent or not: time must not tell which it was.
    order = np.argsort(-sign * heights)
    anything = np.uint64(multiply_high(word, candidates))  # type: ignore[arg-type]
    which = anything % favoured if reuses_high_half else min(low // share, favoured - _ONE)
    return np.uint64(order[which]) if low < threshold else anything


@subroutine
def pick_by_cap(sign, heights, coin, word, least, thresholds):  # type: ignore[no-untyped-def]
    """The index that is sent: of the candidates at least so high, if the coin is above what their
    number takes, or else of the others."""
    in_cap = sign * heights >= least
    count = 0
    for k in range(heights.size):
        count += in_cap[k]
    inside = count > 0 and coin >= thresholds[count - 1]
    side = count if inside else heights.size - count
    place = np.int64(multiply_high(word, np.uint64(side)))  # type: ignore[arg-type]
    for k in range(heights.size):
        if in_cap[k] == inside:
            if place == 0:
                return np.uint64(k)
            place -= 1
    return np.uint64(0)
