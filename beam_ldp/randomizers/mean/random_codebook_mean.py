"""Name one of a few random directions: one of the closest, or else any."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.jit import kernel, multiply_high
from beam_ldp.randomizers.mean.codebooks import (
    CodebookMean,
    HeightNodes,
    fill_heights,
    height_nodes,
    named_direction,
    top_sum,
)
from beam_ldp.randomizers.mean.directions import signed_length
from beam_ldp.randomizers.normals import spare_words, uniform
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses
from beam_ldp.randomizers.spherical_caps import log_gamma_half_step
from beam_ldp.randomizers.thresholds import TwoLevelLaw

_LARGEST_EXPONENT = 600.0
_ONE = np.uint64(1)


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
        return height_nodes(self.dimension)

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

    def _randomize_rows(
        self, vectors: np.ndarray, rows: np.ndarray, words: np.ndarray, reports: np.ndarray
    ) -> np.ndarray:
        _name(
            vectors, rows, words, self._flip_scale, np.uint64(self.seed_bits),
            np.uint64(self.index_bits), np.uint64(self._law.threshold),
            np.uint64(self.favoured), np.uint64(self._law.share), self._law.reuses_high_half,
            spare_words(self.dimension), reports,
        )  # fmt: skip
        return np.ones(len(rows), dtype=bool)

    def dominating_pair(self) -> ShufflePair:
        """The own blanket: any seed, any index. Opposite vectors favour disjoint candidates."""
        return ShufflePair.two_level(*self._levels(), "k-closest codebook's own blanket")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return two_level_witnesses(*self._levels())

    def _levels(self) -> tuple[float, float, float]:
        share = self.favoured / self.num_candidates
        return self._law.likelihood_ratio, share, max(0.0, 2 * share - 1)


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


def rotated_simplex_marginal(dimension: int, epsilon: float, index_bits: int) -> float:
    """M of the best k-closest mechanism on randomly rotated simplices (needs M <= dimension).

    The codebook of Isik et al. 2023, for comparison: slightly better than independent directions,
    at O(dimension M^2) to rotate.
    """
    candidates = 1 << index_bits
    if candidates > dimension:
        raise ValueError(f"index_bits must be at most log2 of dimension {dimension}")
    x = np.linspace(-12, 12, 8001)
    weight = np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi) * (x[1] - x[0])
    tail = special.ndtr(-x)
    length = math.sqrt(2) * math.exp(log_gamma_half_step(dimension / 2))
    scale = math.sqrt(candidates / (candidates - 1)) / length

    def top(k: int, among: int) -> float:
        return scale * top_sum(x, weight, tail, k, among)

    return best_count(epsilon, candidates, top)[1]


@kernel
def _name(  # type: ignore[no-untyped-def]  # fmt: skip
    vectors,
    rows,
    words,
    flip_scale,
    seed_bits,
    index_bits,
    threshold,
    favoured,
    share,
    reuses_high_half,
    num_words,
    reports,
):
    d = vectors.shape[1]
    own = np.empty(num_words, dtype=np.uint64)
    out, axis = np.empty(d), np.empty(d)
    scratch = np.empty(d + 1, dtype=np.int64)
    heights = np.empty(1 << np.int64(index_bits))
    for i in range(rows.size):
        row = words[i]
        seed = row[0] >> (np.uint64(64) - seed_bits)
        candidates = np.uint64(heights.size)
        low = row[1] * candidates
        # The favoured index is found whether it is sent or not: time must not tell which it was.
        vector = vectors[rows[i]]
        length, sign = signed_length(vector, flip_scale, uniform(row[2]))
        vector, length = named_direction(vector, length, axis)
        fill_heights(seed, vector, own, out, scratch, heights)
        order = np.argsort(-sign * heights)
        anything = np.uint64(multiply_high(row[1], candidates))  # type: ignore[arg-type]
        which = anything % favoured if reuses_high_half else min(low // share, favoured - _ONE)
        index = np.uint64(order[which]) if low < threshold else anything
        reports[rows[i]] = (seed << index_bits) | index
