"""Minimal random coding: PrivUnit's law on a few random directions, and the index of the draw."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.mean.codebooks import CodebookMean
from beam_ldp.randomizers.special import lowest
from beam_ldp.randomizers.spherical_caps import SphericalCap, expit, log1mexp, threshold_for
from beam_ldp.randomizers.words import WORD_VALUES

_BUDGET_ROUNDING = 4e-12  # covers thresholds of a small cap and places drawn with one word
_SCANNED = 500  # the error has a kink wherever N P is an integer


@dataclass(frozen=True)
class CodedCap:
    """A cap, a coin, and N candidates: the modified weights of Shah et al.

    With a share theta of the candidates in the cap of measure P, and c1 = p/P, c2 = (1-p)/(1-P):
    for theta < P each candidate in the cap has weight c1/N and the others share the rest; else
    each outside has c2/N and those in the cap share the rest. All weights lie in [c2/N, c1/N]
    whatever the candidates, so the index is eps-LDP.
    """

    dimension: int
    threshold: float
    epsilon: float
    candidates: int

    @cached_property
    def cap(self) -> SphericalCap:
        return SphericalCap(self.dimension, self.threshold)

    @cached_property
    def inside(self) -> float:
        """P."""
        return expit(self.epsilon - self.cap.log_odds_outside)

    @cached_property
    def levels(self) -> tuple[float, float]:
        """(c1, c2), c1 = e**epsilon c2, each to full precision."""
        cap, rest = self.cap.log_measure, log1mexp(self.cap.log_measure)
        high = float(np.logaddexp(cap, rest - self.epsilon))
        return math.exp(-high), math.exp(-high - self.epsilon)

    @cached_property
    def thresholds(self) -> np.ndarray:
        """Words, of 2**64, that name a candidate off the cap if 1, ..., N lie in it: uint64.

        Rounded so that the side at its bound stays within it.
        """
        share = np.arange(1, self.candidates + 1) / self.candidates
        c1, c2 = self.levels
        few = share < self.cap.measure
        inside = np.floor(share[few] * c1 * WORD_VALUES).astype(np.uint64)
        outside = np.ceil((1 - share[~few]) * c2 * WORD_VALUES).astype(np.uint64)
        return np.concatenate([np.uint64(0) - inside, outside])

    @cached_property
    def log_ratio_of_words(self) -> float:
        """Log of the largest ratio of two weights as implemented, whatever the candidates."""
        counts = np.arange(1.0, self.candidates + 1)
        outside = self.thresholds / WORD_VALUES
        inside = (np.uint64(0) - self.thresholds[:-1]) / WORD_VALUES
        weights = [
            np.append(inside, 1.0) / counts,
            outside[:-1] / (self.candidates - counts[:-1]),
            np.array([1 / self.candidates]),  # no candidate lies in the cap
        ]
        each = np.concatenate(weights)
        # A place among `count` is drawn with one word: off by one word at most.
        uneven = 2 * self.candidates / WORD_VALUES
        return math.log(each.max() / each.min()) + uneven + 4e-16

    @cached_property
    def expected_inside(self) -> float:
        """p': that probability over random candidates."""
        n, measure = self.candidates, self.cap.measure
        c1, c2 = self.levels
        few = math.ceil(n * measure) - 1  # counts that are less than their share
        below = float(special.bdtr(few - 1, n - 1, measure)) if few >= 1 else 0.0
        many = float(special.bdtrc(few, n, measure))
        many_outside = float(special.bdtrc(few, n - 1, measure)) if few < n - 1 else 0.0
        return c1 * measure * below + many - c2 * (1 - measure) * many_outside

    @cached_property
    def marginal(self) -> float:
        return self.cap.expected_marginal(self.expected_inside)


@lru_cache(maxsize=64)
def best_coded_cap(dimension: int, epsilon: float, candidates: int) -> CodedCap:
    """The cap of least error for so many candidates: wider than PrivUnit's, so that some hit it."""

    def coded(cap_epsilon: float) -> CodedCap:
        threshold = threshold_for(dimension, cap_epsilon)
        return CodedCap(dimension, threshold, epsilon, candidates)

    scanned = np.linspace(0, epsilon, _SCANNED + 2)[1:-1]
    best = int(np.argmax([coded(float(c)).marginal for c in scanned]))
    step = epsilon / (_SCANNED + 1)
    found = lowest(
        lambda c: -coded(c).marginal,
        max(scanned[best] - step, step / 100),
        min(scanned[best] + step, epsilon),
        xtol=1e-7 * epsilon,
    )
    return coded(found)


@dataclass(frozen=True)
class MinimalRandomCoding(CodebookMean):
    """MMRC: a seed stands for N random directions; the index follows PrivUnit's law among them.

    The weights are integers, within their bounds for every list of candidates: exactly eps-LDP. It
    protects the vector against everybody who sees the report.
    `RandomCodebookMean` has the smaller error at the same bits; this is for comparison, and where
    a cap is wanted. The cap is optimized for each N.

    Source: Shah, Chen, Balle, Kairouz and Theis 2022, the modified (exactly eps-LDP) weights.

    Args:
        dimension: at least 2.
        local_epsilon: budget, > 0.
        radius: of the ball.
        clipping: "clip" or "raise".
        inputs: "ball" (the mean of the vectors) or "sphere" (of their directions).
        coordinate_bits: of the fixed point in which the collector sums.
        index_bits: logarithm of the number of candidates.
        seed_bits: bits of the seed.

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = MinimalRandomCoding(dimension=10, local_epsilon=2.0)
    >>> mechanism.bits_per_report
    56
    """

    also_known_as: ClassVar[str] = "MMRC"
    exactness: ClassVar[str] = "exact"

    @cached_property
    def coded_cap(self) -> CodedCap:
        """The cap and its weights."""
        rounding = _BUDGET_ROUNDING * max(1.0, self.local_epsilon)
        return best_coded_cap(self.dimension, self.local_epsilon - rounding, self.num_candidates)

    @property
    def marginal(self) -> float:
        return self.coded_cap.marginal

    def log_ratio_max(self) -> float:
        return self.coded_cap.log_ratio_of_words

    @property
    def words_per_user(self) -> int:
        return 4

    @cached_property
    def _second_moment(self) -> tuple[float, float]:
        cap, d, p = self.coded_cap.cap, self.dimension, self.coded_cap.expected_inside
        inside, measure = cap.second_moment, cap.measure
        along = p * inside / measure + (1 - p) * (1 / d - inside) / (1 - measure)
        isotropic = (1 - along) / (d - 1)
        return isotropic / self.marginal**2, (along - isotropic) / self.marginal**2

    @property
    def _choice(self) -> tuple[tuple[int, int, int, bool], float, np.ndarray]:
        return (0, 1, 1, False), self.coded_cap.cap.threshold, self.coded_cap.thresholds
