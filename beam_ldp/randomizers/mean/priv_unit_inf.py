"""PrivUnit for the cube: a uniform corner that agrees with the own one in many places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from beam_ldp.randomizers import special
from beam_ldp.randomizers.base import ExtraWords, Sampling
from beam_ldp.randomizers.frequency.packed_bits import (
    BitRows,
    all_rows,
    column_sums,
    words_for,
    write_rows,
)
from beam_ldp.randomizers.mean.base import MeanRandomizer, Norm
from beam_ldp.randomizers.mean.priv_unit import BUDGET_ROUNDING, CapCoin, ratio_of
from beam_ldp.randomizers.normals import run_rows, uniform
from beam_ldp.randomizers.shuffle_pair import TwoLevels
from beam_ldp.randomizers.spherical_caps import log1mexp
from beam_ldp.randomizers.words import kernel, multiply_high, subroutine

# Random corners of a cube that agree with a given one in many places, to the last bit -----
#
# Every choice compares words with integers, so that all corners of a cap are exactly as likely as
# each other. Subroutines take the position of the next word and return the one after; it exceeds
# `words.size` if the words ran out.


_ONE = np.uint64(1)
_LOW_SIX = np.uint64(63)


@subroutine
def below(bound, words, at):  # type: ignore[no-untyped-def]
    """An integer uniform in [0, bound), without any bias (Lemire 2019), and the next position."""
    while at < words.size:
        low = words[at] * bound
        at += 1
        if low >= bound or low >= (np.uint64(0) - bound) % bound:
            return np.int64(multiply_high(words[at - 1], bound)), at
    return np.int64(0), words.size + 1


@subroutine
def agreements_above(t, d, words, at):  # type: ignore[no-untyped-def]
    """Agreements of a uniform corner given that they are at least t >= (d - 1)/2; next position.

    Steps upwards are taken with the ratio C(d, k+1)/C(d, k) = (d-k)/(k+1): first as if it stayed
    what it is at t, then thinned; a step that is thinned out starts over.
    """
    while at < words.size:
        k = t
        while True:
            draw, at = below(np.uint64(t + 1), words, at)
            if draw >= d - t:
                return k, at
            draw, at = below(np.uint64((k + 1) * (d - t)), words, at)
            if draw >= (d - k) * (t + 1) or at > words.size:
                break
            k += 1
    return t, words.size + 1


@subroutine
def choose_places(count, d, words, at, row):  # type: ignore[no-untyped-def]
    """Set `count` of d bits of `row`, every choice as likely, and the next position."""
    row[:] = 0
    for j in range(d):
        draw, at = below(np.uint64(d - j), words, at)
        if draw < count:
            count -= 1
            row[j >> 6] |= _ONE << (np.uint64(j) & _LOW_SIX)
    return at


@subroutine
def ones_in(word):  # type: ignore[no-untyped-def]
    """Number of bits that are set."""
    word -= (word >> _ONE) & np.uint64(0x5555555555555555)
    pairs = np.uint64(0x3333333333333333)
    word = (word & pairs) + ((word >> np.uint64(2)) & pairs)
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@subroutine
def draw_corner(t, inside, last, words, at, row):  # type: ignore[no-untyped-def]
    """Fair bits into `row` until at least t (or, off the cap, fewer) of them are set."""
    while at + row.size <= words.size:
        count = 0
        for w in range(row.size):
            row[w] = words[at + w]
        row[row.size - 1] &= last
        for w in range(row.size):
            count += ones_in(row[w])
        at += row.size
        if (count >= t) == inside:
            return at
    return words.size + 1


_MAX_CHANNEL_DIMENSION = 12
# Caps of at least this share of the corners are hit by drawing corners until one lies in them.
_WIDE = 1 / 8
_OWN_WORDS = 1
_FIXED_SPARE = 64
_SPARE_CORNERS = 16  # trials beyond these are asked for once in 60,000 users


@dataclass(frozen=True)
class CornerCaps:
    """Corners of {-1, 1}^d that agree with a given one in at least t places, for all t at once.

    Attributes:
        log_counts: log C(d, l) - d log 2 for l = 0 .. d.
        log_inside: log of the share of corners that agree in >= t places, t = 0 .. d.
        log_outside: log of the share that agree in < t places.
    """

    log_counts: np.ndarray
    log_inside: np.ndarray
    log_outside: np.ndarray

    @classmethod
    def of(cls, dimension: int) -> CornerCaps:
        places = np.arange(dimension + 1.0)
        log_counts = (
            special.gammaln(dimension + 1)
            - special.gammaln(places + 1)
            - special.gammaln(dimension - places + 1)
        )
        log_counts -= np.logaddexp.reduce(log_counts)
        below = np.logaddexp.accumulate(log_counts)
        inside = below[::-1]  # symmetry: >= t agreements is as likely as <= d - t
        outside = np.concatenate([[-np.inf], below[:-1]])
        return cls(log_counts, inside, outside)

    def log_odds_outside(self, t: int) -> float:
        """What a uniform draw from the cap, instead of from the rest, reveals."""
        return float(self.log_outside[t] - self.log_inside[t])

    def marginal(self, t: int, inside_probability: float) -> float:
        """m: expected value of one coordinate times the own one."""
        dimension = len(self.log_counts) - 1
        log_edge = self.log_counts[t] + math.log(t / dimension)  # C(d-1, t-1) / 2^d
        inside = inside_probability * math.exp(log_edge - self.log_inside[t])
        return inside - (1 - inside_probability) * math.exp(log_edge - self.log_outside[t])


def best_places(dimension: int, epsilon: float) -> int:
    """The number of agreements t of least error; the coin gets what the cap leaves."""
    caps = CornerCaps.of(dimension)
    first = (dimension + 1) // 2  # half of the corners, or a little more
    odds = caps.log_outside[first:] - caps.log_inside[first:]
    affordable = first + np.flatnonzero(odds <= epsilon)
    # m = (E - 1) T / (1 + (E - 1) P) in logarithms, up to a common factor.
    log_edge = caps.log_counts[affordable] + np.log(affordable)
    total = np.logaddexp(-epsilon - log1mexp(-epsilon), caps.log_inside[affordable])
    return int(affordable[np.argmax(log_edge - total)])


@dataclass(frozen=True)
class PrivUnitInf(BitRows, MeanRandomizer):
    """PrivUnit for vectors with coordinates in [-radius, radius].

    Each coordinate is rounded to a side without bias; the report is a uniform corner among those
    that agree with the rounded one in at least t places, or else among the others. The two levels
    of its law have ratio e**local_epsilon, and both are uniform to the last bit: every choice is
    an integer comparison. It protects the vector against everybody who sees the report. The error
    is `d radius^2/m^2 - |w|^2` per user; at corners it equals that of `PrivUnit` to 0.6 % for
    eps <= 4, with one bit per coordinate.

    Reports are `(n, ceil(d/8))` bytes; the statistic counts ones per coordinate. Cost: two words
    and a few nanoseconds per coordinate. The sizes of the two sets are computed in floating point;
    1e-15 d log d of the budget stays unspent to cover that (below 1e-8 up to d = 400,000).

    Source: Bhowmick et al. 2018, section 4.1 and Theorem 2. Their Corollary 4.1, equation (20),
    understates the loss and is not used.

    Args:
        dimension: number of coordinates.
        local_epsilon: budget, > 0.
        radius: largest absolute coordinate.
        clipping: "clip" or "raise".

    Raises:
        ValueError: if a parameter is out of range.

    >>> mechanism = PrivUnitInf(dimension=20, local_epsilon=4.0)
    >>> mechanism.randomize(np.zeros((5, 20))).shape, mechanism.bits_per_report
    ((5, 3), 20)
    """

    norm: ClassVar[Norm] = "linf"
    decoding: ClassVar[str] = "O(d), but O(n d) bits to add up"

    @classmethod
    def serves(cls, norm: Norm, dimension: int) -> bool:
        return norm == cls.norm and dimension > 1

    @cached_property
    def caps(self) -> CornerCaps:
        """Measures of all caps of corners."""
        return CornerCaps.of(self.dimension)

    @cached_property
    def places(self) -> int:
        """t: agreements that make a corner favoured."""
        return best_places(self.dimension, self.local_epsilon)

    @cached_property
    def coin(self) -> CapCoin:
        """The coin that decides for the cap."""
        left = self.local_epsilon - self.caps.log_odds_outside(self.places)
        return CapCoin.spending(left - self._rounding)

    @property
    def _rounding(self) -> float:
        """Bound of the error in the logarithms of the measures of caps, and of the coin's odds."""
        d = self.dimension
        return 1e-15 * (d + 1) * math.log(d + 2) + BUDGET_ROUNDING * max(1.0, self.local_epsilon)

    @cached_property
    def marginal(self) -> float:
        """m: expected value of one reported sign times the own one."""
        return self.caps.marginal(self.places, self.coin.probability)

    def log_ratio_max(self) -> float:
        computed = self.coin.log_odds + self.caps.log_odds_outside(self.places)
        return min(computed + self._rounding, self.local_epsilon)

    @property
    def bits_per_report(self) -> int:
        return self.dimension

    @property
    def words_per_user(self) -> int:
        corners = _SPARE_CORNERS * words_for(self.dimension)
        choices = 0 if self._is_wide else self.dimension + 8 * math.isqrt(self.dimension)
        return _OWN_WORDS + self.dimension + corners + choices + _FIXED_SPARE

    @property
    def _is_wide(self) -> bool:
        return float(self.caps.log_inside[self.places]) >= math.log(_WIDE)

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        corners = np.empty((len(values), words_for(self.dimension)), dtype=np.uint64)
        run_rows(
            lambda rows, row_words: _report(
                values, rows, row_words, self.radius, np.uint64(self.coin.threshold), self.places,
                self._is_wide, corners,
            ),
            words,
            extra,
        )  # fmt: skip
        write_rows(corners, reports)

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = np.asarray(reports)
        if reports.ndim != 2 or reports.shape[1:] != self.report_shape or reports.dtype != np.uint8:
            raise ValueError(f"reports must be bytes of shape (n, {self.report_shape[0]})")
        return column_sums(self._check_reports(reports), self.dimension)

    @property
    def _longest_read(self) -> float:
        return self.radius / self.marginal * math.sqrt(self.dimension)

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        return self.radius / self.marginal * (2 * statistic - num_users) / num_users

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        square = np.full(self.dimension, (self.radius / self.marginal) ** 2)
        return square if vectors is None else square - np.mean(vectors**2, axis=0)

    def _measured_variance(
        self, statistic: np.ndarray, num_users: int, sampling: Sampling
    ) -> np.ndarray:
        """The sample variance of decoded reports: all squares are the same, only means differ."""
        square, mean = (self.radius / self.marginal) ** 2, self._mean(statistic, num_users)
        inside = np.minimum(mean**2, self.radius**2)
        return (square - inside) * num_users / (num_users - 1)

    @property
    def _reading_step(self) -> float:
        return 2 * self.radius

    def channel(self) -> np.ndarray:
        """P(report | corner), `(2^d, 2^d)` for d <= 12: bit j of an index is side j."""
        if self.dimension > _MAX_CHANNEL_DIMENSION:
            return super().channel()
        signs = 2.0 * all_rows(self.dimension) - 1
        agreements = np.rint((signs @ signs.T + self.dimension) / 2)
        t, p, d = self.places, self.coin.probability, self.dimension
        inside = p * math.exp(-self.caps.log_inside[t]) / 2.0**d
        outside = (1 - p) * math.exp(-self.caps.log_outside[t]) / 2.0**d
        return np.where(agreements >= t, inside, outside)

    @property
    def two_levels(self) -> TwoLevels:
        """Uniform on the corners; opposite corners are the worst pair. Their caps meet only where
        they are more than half of all."""
        ratio, measure = ratio_of(self), math.exp(self.caps.log_inside[self.places])
        return TwoLevels(ratio, measure, max(0.0, 2 * measure - 1), "PrivUnitInf's own blanket")


@kernel
def _report(values, rows, words, radius, coin, t, is_wide, corners):  # type: ignore[no-untyped-def]
    d = values.shape[1]
    enough = np.ones(rows.size, dtype=np.bool_)
    last = ~np.uint64(0) >> np.uint64(63 - (d - 1) % 64)
    for i in range(rows.size):
        row, corner = words[i], corners[rows[i]]
        inside = row[0] < coin
        # First the places that agree with the own corner, then the disagreements with them.
        if inside and not is_wide:
            count, at = agreements_above(t, d, row, d + 1)
            at = choose_places(count, d, row, at, corner)
        else:
            at = draw_corner(t, inside, last, row, d + 1, corner)
        enough[i] = at <= row.size
        for j in range(d):
            if uniform(row[1 + j]) * 2.0 * radius >= values[rows[i], j] + radius:
                corner[j >> 6] ^= _ONE << (np.uint64(j) & _LOW_SIX)
    return enough
