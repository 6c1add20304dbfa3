"""PrivUnit for the cube: a uniform corner that agrees with the own one in many places."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from scipy import special

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.frequency.packed_bits import (
    all_rows,
    bytes_for,
    check_rows,
    column_sums,
    pack_rows,
    unpack_rows,
)
from beam_ldp.randomizers.jit import kernel, multiply_high
from beam_ldp.randomizers.mean.base import MeanRandomizer, Norm
from beam_ldp.randomizers.mean.priv_unit import CapCoin
from beam_ldp.randomizers.normals import uniform
from beam_ldp.randomizers.shuffle_pair import ShufflePair, two_level_witnesses
from beam_ldp.randomizers.spherical_caps import log1mexp

_BUDGET_ROUNDING = 2e-15
_MAX_CHANNEL_DIMENSION = 12
_LARGEST_EXPONENT = 600.0
_WORDS_PER_COORDINATE = 2
_OWN_WORDS = 2


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
class PrivUnitInf(MeanRandomizer):
    """PrivUnit for vectors with coordinates in [-radius, radius].

    Each coordinate is rounded to a side without bias; the report is a uniform corner among those
    that agree with the rounded one in at least t places, or else among the others. The two levels
    of its law have ratio e**local_epsilon. It protects the vector against everybody who sees the
    report. The error is `d radius^2/m^2 - |w|^2` per user; at corners it equals that of `PrivUnit`
    to 0.6 % for eps <= 4, with one bit per coordinate.

    Reports are `(n, ceil(d/8))` bytes; the statistic counts ones per coordinate. Cost: two words
    and 4 ns per coordinate.

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
    exactness: ClassVar[str] = "real-arithmetic"

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
        rounding = _BUDGET_ROUNDING * max(1.0, self.local_epsilon)
        return CapCoin.spending(
            self.local_epsilon - rounding - self.caps.log_odds_outside(self.places)
        )

    @cached_property
    def marginal(self) -> float:
        """m: expected value of one reported sign times the own one."""
        return self.caps.marginal(self.places, self.coin.probability)

    def log_ratio_max(self) -> float:
        return self.coin.log_odds + self.caps.log_odds_outside(self.places)

    @property
    def bits_per_report(self) -> int:
        return self.dimension

    @property
    def report_dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8)

    @property
    def report_shape(self) -> tuple[int, ...]:
        return (bytes_for(self.dimension),)

    @property
    def words_per_user(self) -> int:
        return _WORDS_PER_COORDINATE * self.dimension + _OWN_WORDS

    @property
    def statistic_shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @cached_property
    def _agreement_laws(self) -> np.ndarray:
        """Cumulative law of the number of agreements in the cap and off it: (2, d + 1)."""
        log_counts, t = self.caps.log_counts, self.places
        places = np.arange(self.dimension + 1)
        inside = np.where(places >= t, np.exp(log_counts - self.caps.log_inside[t]), 0.0)
        outside = np.where(places < t, np.exp(log_counts - self.caps.log_outside[t]), 0.0)
        laws = np.cumsum(np.stack([inside, outside]), axis=1)
        laws[0, -1] = laws[1, t - 1 :] = 2.0  # rounding must not lead out of the support
        return laws

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        reports[:] = 0
        _report(
            values,
            words,
            self.radius,
            np.uint64(self.coin.threshold),
            self._agreement_laws,
            reports,
        )

    def accumulate(self, reports: np.ndarray) -> np.ndarray:
        reports = np.asarray(reports)
        if reports.ndim != 2 or reports.shape[1:] != self.report_shape or reports.dtype != np.uint8:
            raise ValueError(f"reports must be bytes of shape (n, {self.report_shape[0]})")
        return column_sums(check_rows(reports, self.dimension), self.dimension)

    def pack(self, reports: np.ndarray) -> bytes:
        return pack_rows(reports, self.dimension)

    def unpack(self, data: bytes, num_reports: int) -> np.ndarray:
        return unpack_rows(data, self.dimension, num_reports)

    def _mean(self, statistic: np.ndarray, num_users: int) -> np.ndarray:
        return self.radius / self.marginal * (2 * statistic - num_users) / num_users

    def _user_variance(self, vectors: np.ndarray | None) -> np.ndarray:
        square = np.full(self.dimension, (self.radius / self.marginal) ** 2)
        return square if vectors is None else square - np.mean(vectors**2, axis=0)

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

    def dominating_pair(self) -> ShufflePair:
        """The own blanket, uniform on the corners; opposite corners are the worst pair."""
        return ShufflePair.two_level(*self._levels(), "PrivUnitInf's own blanket")

    def witness_pairs(self) -> tuple[ShufflePair, ...]:
        return two_level_witnesses(*self._levels())

    def _levels(self) -> tuple[float, float, float]:
        if self.local_epsilon > _LARGEST_EXPONENT:
            raise ValueError(
                f"local_epsilon must be at most {_LARGEST_EXPONENT:g} for a shuffled price"
            )
        measure = math.exp(self.caps.log_inside[self.places])
        # Caps of opposite corners meet only where they are more than half of all.
        return math.exp(self.log_ratio_max()), measure, max(0.0, 2 * measure - 1)


@kernel
def _report(values, words, radius, coin, laws, reports):  # type: ignore[no-untyped-def]
    d = values.shape[1]
    for i in range(values.shape[0]):
        row = words[i]
        law = laws[0] if row[0] < coin else laws[1]
        agreements = np.searchsorted(law, uniform(row[1]), side="right")
        # Choose that many places one after the other: each with (still to choose) / (still to see).
        for j in range(d):
            own = uniform(row[2 + j]) * 2.0 * radius < values[i, j] + radius
            left = np.uint64(d - j)
            agree = multiply_high(row[2 + d + j], left) < np.uint64(agreements)  # type: ignore[arg-type]
            if agree:
                agreements -= 1
            if own == agree:
                reports[i, j >> 3] |= np.uint8(1 << (j & 7))
