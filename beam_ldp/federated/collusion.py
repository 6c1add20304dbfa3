"""Forged reports that work together: what they have in common gives them away.

A report that its mechanism can make is as long as the mechanism's noise. Honest ones point almost
everywhere, and cancel; liars who all point one way do not, and move a mean as far as many times as
many people could who only lie about what they hold. No honest report says much in any direction
that was chosen without it. So a direction that liars share is looked for among other reports, and
whoever points further along it than honest reports do is left out.

    half of the reports, at random  ->  their principal directions
    each report of the other half   ->  how far it points along each; too far: left out
    the same the other way round; and again with other halves, until three on end find nobody

Who knows of this may still point as far as honest reports may, or each liar another way. How far
any of those that are kept can have moved the mean together is then a matter of how far all of them
agree at most, which is measured: for reports Z_i as rows of Z, and f of them forged, the sum of
those is no longer than sqrt(f) times the spectral norm of Z, by Cauchy and Schwarz.

Nobody's privacy changes: what is done to shuffled reports is done by whoever reads them.

Why not the median of the means of groups: a median for each coordinate sees liars where they move a
coordinate by more than its noise. With as many coordinates as models have they need not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from beam_ldp.randomizers.mean.base import MeanRandomizer
from beam_ldp.randomizers.mean.directions import DirectionMean

RARELY = 1e-9  # of a round of honest reports in which one is left out
QUIET = 3  # deals into halves on end that find nobody
LEAST = 4  # reports: with fewer there is nothing to compare
FLAT = 1e-6  # relative: directions with less of the squared spectral norm are rounding
_MOST_OF = 0.75
_MOST = 30  # powers of two: reports of a round
SAFETY = 1 + 1e-5  # single precision


class Examined(NamedTuple):
    """Reports after the check.

    Attributes:
        kept: which are not left out, bool `(n,)`.
        agreement: how far those agree in any direction: the spectral norm of the matrix whose rows
            they are, as they are read, in the unit of the data.
    """

    kept: np.ndarray
    agreement: float


@dataclass(frozen=True)
class CollusionCheck:
    """Leaves out reports that point one way together, and says how far the others can have lied.

    Protects the mean against people who send what they like, not anybody's privacy. It is for
    mechanisms whose noise points everywhere (`component_limit`): of others, such as those that
    tell of one coordinate of thousands, honest reports are alike by themselves.

    In a round of honest reports one is left out with a chance of at most 1e-9, whatever people
    hold: their mean stays unbiased, and its error what it was. That supposes that nobody forges
    reports after reading honest ones: copies of an honest report would turn the check against it.

    Args:
        mechanism: that clients have.

    Raises:
        ValueError: if it does not say how far a report points one way, or honest reports may point
            beyond three quarters of what forged ones can.

    Cost of n reports of d numbers: n^2 d multiplications in single precision and a few n^3 more,
    n (n + d) numbers of memory.

    >>> from beam_ldp.randomizers.mean import PrivUnit
    >>> mechanism, rng = PrivUnit(400, local_epsilon=4.0), np.random.default_rng(1)
    >>> reports = mechanism.randomize(np.zeros((200, 400)), rng)
    >>> reports[:10] = reports[0]  # ten of them are the same
    >>> kept, _ = CollusionCheck(mechanism).examine(reports)
    >>> int(kept[:10].sum()), bool(kept[10:].all())
    (0, True)
    """

    mechanism: MeanRandomizer

    def __post_init__(self) -> None:
        try:
            few = self._limit(LEAST)
        except NotImplementedError as reason:
            raise ValueError(
                f"mechanism must send noise that points everywhere, as PrivUnit does: {reason}"
            ) from None
        if few > _MOST_OF * self.mechanism._longest_read:
            raise ValueError(
                f"dimension must be larger, got {self.mechanism.dimension}: an honest report of so "
                "few numbers may point nearly as far one way as a forged one can"
            )

    def _limit(self, num_reports: int) -> float:
        """By the union over deals, reports, and principal directions of half of them."""
        return self.mechanism.component_limit(2 * RARELY / QUIET / num_reports**2)

    @cached_property
    def limits(self) -> dict[int, float]:
        """How far a report may point one way, in the unit of the data, by the most reports."""
        return {1 << k: self._limit(1 << k) for k in range(2, _MOST + 1)}

    @property
    def step(self) -> float:
        """The unit of reports, in the unit of the data."""
        assert isinstance(self.mechanism, DirectionMean)
        return self.mechanism.fixed_point.step

    def limits_in_steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of reports, increasing, and the limits up to them in units of the reports."""
        return np.array([*self.limits]), np.array([*self.limits.values()]) / self.step

    def examine(self, reports: np.ndarray, rng: np.random.Generator | None = None) -> Examined:
        """Leave out those that point one way, and measure how far the others agree.

        Args:
            reports: `(n, dimension)`, possible ones.
            rng: deals them into halves, as no client may know; by default from fresh entropy.
        """
        rng = rng or np.random.default_rng()
        kept = np.ones(len(reports), dtype=bool)
        rows = np.asarray(reports, dtype=np.float32)
        gram = (rows @ rows.T).astype(np.float64)
        numbers, limits = self.limits_in_steps()
        limit, quiet = limits[np.searchsorted(numbers, len(reports))], 0
        while quiet < QUIET and kept.sum() >= LEAST:
            halves = np.array_split(rng.permutation(np.flatnonzero(kept)), 2)
            found = [
                other[_points_beyond(gram, half, other, limit)]
                for half, other in (halves, halves[::-1])
            ]
            quiet = 0 if sum(map(len, found)) else quiet + 1
            kept[np.concatenate(found)] = False
        squares = np.linalg.eigvalsh(gram[np.ix_(kept, kept)]) if kept.any() else np.zeros(1)
        return Examined(kept, math.sqrt(max(0.0, squares[-1])) * self.step * SAFETY)

    def usual_agreement(self, num_reports: int) -> float:
        """About what honest reports give whose vectors point many ways: that of the noise alone.

        Of normal noise, as Gaussian matrices have it. Where people agree it is larger: where all
        hold one vector, by the root of n times a report's second moment along it at most.
        """
        noise = math.sqrt(self.mechanism.mean_squared_error(1) / self.mechanism.dimension)
        return noise * (math.sqrt(num_reports) + math.sqrt(self.mechanism.dimension))

    def reach(self, share: float, num_reports: int, agreement: float) -> float:
        """How far this share of the reports that were kept moved the mean at most.

        In Euclidean length, from what the same people would have reported of a vector of the ball,
        but for noise. Never more than the plain mean's.

        Args:
            share: that are forged, whatever they are.
            num_reports: that were kept.
            agreement: theirs (`Examined`).
        """
        forged = share * num_reports
        read = min(forged * self.mechanism._longest_read, math.sqrt(forged) * agreement)
        return (read + forged * self.mechanism._farthest_value) / max(1, num_reports)


def _points_beyond(
    gram: np.ndarray, half: np.ndarray, other: np.ndarray, limit: float
) -> np.ndarray:
    """Which of the other reports point further than that along a principal direction of the half.

    With Z_half = U S V^T: Z_other V = Z_other Z_half^T U / S, all of it in inner products.
    """
    squares, left = np.linalg.eigh(gram[np.ix_(half, half)])
    large = squares > FLAT * squares[-1]
    along = gram[np.ix_(other, half)] @ (left[:, large] / np.sqrt(squares[large]))
    return np.asarray((np.abs(along) > limit).any(axis=1))
