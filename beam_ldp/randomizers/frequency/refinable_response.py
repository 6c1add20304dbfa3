"""Refinable response: one public report, read at a larger epsilon by whoever has a level's key."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from numbers import Real

import numpy as np

from beam_ldp.randomizers.base import ExtraWords
from beam_ldp.randomizers.entropy import entropy_bits
from beam_ldp.randomizers.frequency.designs import OfDesign, designs
from beam_ldp.randomizers.frequency.symbol_oracle import CyclicOracle
from beam_ldp.randomizers.words import MAX_WASTE, WORD_VALUES, TwoLevelLaw, exp_lower

MAX_LEVELS = 16
_PER_STEP = 2  # words of one step of mixing: a coin, and a residue
# One more word for each of some rows, for the given attempt from 0 on.
Redraw = Callable[[np.ndarray, int], np.ndarray]


@dataclass(frozen=True)
class MixedLaw(TwoLevelLaw):
    """A two-level law at the largest level, and what is mixed in below it.

    A step of mixing keeps the report for exactly `coins[j]` of 2**64 words and otherwise adds a
    residue that is uniform, exactly. So after steps of which all keep it with chance G, a report
    has the law G Q + (1 - G)/v, Q that of the first level as its words draw it. Each coin is the
    largest that keeps the ratio of its level within e**epsilon, all rounding counted, that of the
    first level too.

    Args:
        levels: epsilons that decrease strictly; the first is `local_epsilon`.
    """

    levels: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        plain = TwoLevelLaw(self.num_outputs, self.num_favoured, self.local_epsilon)
        if self.log_ratio_max > plain.log_ratio_max or (
            self.levels[-1] - self.log_ratio_max > MAX_WASTE
        ):
            raise ValueError(
                f"levels={self.levels} with {self.num_outputs} outputs are beyond the resolution "
                "of 64-bit words; choose more moderate ones or a smaller domain"
            )

    @cached_property
    def _most_and_least(self) -> tuple[Fraction, Fraction]:
        """Words, of 2**64, that any output of the first level has at most and at least."""
        others = Fraction(WORD_VALUES - self.threshold, self.num_outputs)
        return (self.share + others + 1) / WORD_VALUES, (others - 1) / WORD_VALUES

    @cached_property
    def coins(self) -> tuple[int, ...]:
        """Of every step the words, of 2**64, that keep the report."""
        (most, least), even = self._most_and_least, Fraction(1, self.num_outputs)
        found: list[int] = []
        kept = Fraction(1)
        for level in self.levels[1:]:
            ratio = exp_lower(level)
            largest = (ratio - 1) * even / (most - ratio * least + (ratio - 1) * even)
            coin = min(WORD_VALUES - 1, math.floor(largest / kept * WORD_VALUES))
            found.append(coin)
            kept *= Fraction(coin, WORD_VALUES)
        return tuple(found)

    @cached_property
    def kept(self) -> Fraction:
        """The chance that no step replaced the report of the first level."""
        return math.prod((Fraction(coin, WORD_VALUES) for coin in self.coins), start=Fraction(1))

    def _mixed(self, probability: Fraction) -> Fraction:
        return self.kept * probability + (1 - self.kept) / self.num_outputs

    @property
    def other_probability(self) -> float:
        others = Fraction(WORD_VALUES - self.threshold, self.num_outputs * WORD_VALUES)
        return float(self._mixed(others))

    @property
    def favoured_probability(self) -> float:
        return self.other_probability + float(self.kept * self.share / WORD_VALUES)

    @cached_property
    def log_ratio_max(self) -> float:
        most, least = self._most_and_least
        return math.log1p(float(self.kept * (most - least) / self._mixed(least)))


@dataclass(frozen=True)
class RefinableResponse(OfDesign, CyclicOracle):
    """One public report for readers of different rights: successive refinement.

    With levels e_1 > ... > e_d the report Y_d protects its value with e_d against everybody. It is
    Y_1 = x + U_1, drawn at e_1, plus shifts U_2, ..., U_d modulo v, each zero or uniform. A reader
    of level j knows the shifts U_{j+1}, ..., U_d and takes them off: that is a report Y_j which
    protects with e_j, no more and no less. **Readers who join learn what the one of the largest
    level learns alone**: e_1, not the sum, for all others hold parts of what that one has. Made of
    one level it is projective geometry response, or another of its kind.

    Shifts are drawn from keys (`level_keys`), or else, by `randomize`, from words that nobody
    keeps: then there is the public report alone. The mechanism of level j's reports is
    `at_level(e_j)`: another release of these, with another local epsilon.

    Reports are `(n,)` unsigned integers below v >= k, the statistic is their histogram, one fast
    Fourier transform decodes it.

    Source: thesis, section 7.4, for two values; the additive form for k values is our own.

    Args:
        domain_size: number of categories k, at least 2.
        local_epsilon: what the public report protects with: the smallest level.
        levels: all of them, from the largest to `local_epsilon`; equal ones count once. None for
            that one alone.
        design: which difference set (see `RecoverableResponse`); None for the one whose largest
            excess of error over the best of its level is least.

    Raises:
        ValueError: if a parameter is out of range, or beyond the resolution of 64-bit words.

    >>> oracle = RefinableResponse(7, 0.3, levels=(2.0, 1.0, 0.3), design="singer:2,3")
    >>> [round(kept, 3) for kept in oracle.kept]
    [1.0, 0.579, 0.178]
    >>> oracle.at_level(1.0).local_epsilon, round(oracle.random_bits, 4)
    (1.0, 6.6506)
    """

    levels: tuple[float, ...] | None = None
    design: str | None = None

    def _choose_parameters(self) -> None:
        levels = checked_levels((self.local_epsilon,) if self.levels is None else self.levels)
        if levels[-1] != self.local_epsilon:
            raise ValueError(
                f"local_epsilon must be the smallest of levels, {levels[-1]}, got "
                f"{self.local_epsilon}"
            )
        object.__setattr__(self, "levels", levels)
        if self.design is None:
            object.__setattr__(self, "design", best_design(self.domain_size, levels))
        self._check_residues()

    @classmethod
    def of_levels(cls, domain_size: int, levels: Sequence[float]) -> RefinableResponse:
        """The mechanism of these levels."""
        found = checked_levels(levels)
        return cls(domain_size, found[-1], found)

    @property
    def all_levels(self) -> tuple[float, ...]:
        """From the largest to that of the public report."""
        assert self.levels is not None
        return self.levels

    @cached_property
    def _law(self) -> MixedLaw:
        levels = self.all_levels
        return MixedLaw(self.num_symbols, self.num_favoured, levels[0], levels)

    @property
    def kept(self) -> tuple[float, ...]:
        """Of every level the chance that its report is that of the first."""
        found = np.cumprod([1.0, *(coin / WORD_VALUES for coin in self._law.coins)])
        return tuple(found.tolist())

    # Levels -------------------------------------------------------------------------------

    def at_level(self, epsilon: float) -> RefinableResponse:
        """The mechanism whose reports a reader of this level has.

        Raises:
            ValueError: if there is no such level.
        """
        number = self.number_of(epsilon)
        return replace(
            self, local_epsilon=self.all_levels[number], levels=self.all_levels[: number + 1]
        )

    def number_of(self, epsilon: float) -> int:
        """The place of a level, from 0 for the largest. Raises ValueError."""
        if epsilon not in self.all_levels:
            listed = ", ".join(f"{level:g}" for level in self.all_levels)
            raise ValueError(f"level must be one of {listed}, got {epsilon:g}")
        return self.all_levels.index(epsilon)

    def shifts(self, step: int, words: np.ndarray, redraw: Redraw) -> np.ndarray:
        """What a step of mixing adds to reports: int64 `(n,)`, of [0, v).

        Args:
            step: from level `step` (from 0) to the next.
            words: uint64 `(n, 2)`.
            redraw: one more word for some rows, where the residue's would not be uniform; less
                than one row in 2**37 needs it.
        """
        size = self.num_symbols
        residues, rest = words[:, 1], WORD_VALUES % size
        attempt = 0
        while rest and len(rows := np.flatnonzero(residues >= np.uint64(WORD_VALUES - rest))):
            residues = residues.copy()
            residues[rows] = redraw(rows, attempt)
            attempt += 1
        added = words[:, 0] >= np.uint64(self._law.coins[step])
        return np.where(added, residues % np.uint64(size), np.uint64(0)).astype(np.int64)

    def shifted(self, reports: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """Reports plus shifts, which may be negative, modulo v."""
        return ((reports.astype(np.int64) + shifts) % self.num_symbols).astype(self.report_dtype)

    @property
    def words_per_user(self) -> int:
        return 1 + _PER_STEP * (len(self.all_levels) - 1)

    def _randomize_block(
        self, values: np.ndarray, words: np.ndarray, extra: ExtraWords, reports: np.ndarray
    ) -> None:
        super()._randomize_block(values, np.ascontiguousarray(words[:, :1]), extra, reports)
        steps = len(self.all_levels) - 1
        for step in range(steps):

            def redraw(rows: np.ndarray, attempt: int, step: int = step) -> np.ndarray:
                place = self.words_per_user + attempt * steps + step
                return extra(rows, np.full(len(rows), place))

            own = words[:, 1 + _PER_STEP * step :][:, :_PER_STEP]
            reports[:] = self.shifted(reports, self.shifts(step, own, redraw))

    # What it takes in random bits ---------------------------------------------------------

    @property
    def random_bits(self) -> float:
        """Entropy of all that is drawn for one report, U_1 and the shifts."""
        first = self.at_level(self.all_levels[0])._law
        v, s = self.num_symbols, self.num_favoured
        own = [first.favoured_probability] * s + [first.other_probability] * (v - s)
        return entropy_bits(own) + sum(
            entropy_bits([coin / WORD_VALUES + change / v] + [change / v] * (v - 1))
            for coin in self._law.coins
            for change in [1 - coin / WORD_VALUES]
        )


def checked_levels(levels: Sequence[float]) -> tuple[float, ...]:
    """Levels as floats, equal ones once. A ValueError unless they are > 0 and decrease."""
    told = list(levels) if isinstance(levels, (list, tuple)) else []
    sound = all(isinstance(one, Real) and not isinstance(one, bool) for one in told)
    found = [float(one) for one in told] if sound else []
    found = [one for i, one in enumerate(found) if not i or one != found[i - 1]]
    if not found or not all(math.isfinite(one) and one > 0 for one in found):
        raise ValueError("levels must be finite numbers > 0, from the largest to the smallest")
    if any(after >= before for before, after in zip(found, found[1:])):
        raise ValueError("levels must decrease, from the largest to that of the public report")
    if len(found) > MAX_LEVELS:
        raise ValueError(f"levels must be at most {MAX_LEVELS}, got {len(found)}")
    return tuple(found)


def best_design(domain_size: int, levels: Sequence[float]) -> str:
    """The difference set that serves all readers: its error, next to the best of each level, is
    at most so many times as large as that of no other."""
    found = [design for _, design in designs(domain_size, levels[0])]
    noise = np.array([[design.noise(math.exp(-min(e, 700.0))) for e in levels] for design in found])
    return found[int(np.argmin((noise / noise.min(axis=0)).max(axis=1)))].text


# One bit for each reader (thesis, section 7.4) --------------------------------------------
#
# With two values and the design `single` the mechanism is the text's: bits that are flipped again
# and again. What follows are its formulas.


@dataclass(frozen=True)
class BinaryLevels:
    """Flipping chances of a bit with several readers, and what they take in random bits.

    Attributes:
        errors: z_j, the chance that the bit of level j is wrong, 1 / (e**e_j + 1).
        flips: q_j, the chance that a step flips it.

    >>> found = BinaryLevels.of((2.0, 1.0, 0.5))
    >>> [round(q, 4) for q in found.flips], round(found.bits, 4), round(found.bits_apart, 4)
    ([0.1192, 0.1966, 0.235], 2.0288, 2.3233)
    """

    errors: tuple[float, ...]
    flips: tuple[float, ...]

    @classmethod
    def of(cls, levels: Sequence[float]) -> BinaryLevels:
        """Of levels that decrease; the last may be 0.

        Raises:
            ValueError: if they do not.
        """
        told, public_none = list(levels), len(levels) > 1 and levels[-1] == 0
        found = (*checked_levels(told[:-1]), 0.0) if public_none else checked_levels(told)
        errors = [1 / (math.exp(level) + 1) for level in found]
        flips = [
            (error - before) / (1 - 2 * before)
            for error, before in zip(errors, [0.0, *errors[:-1]])
        ]
        return cls(tuple(errors), tuple(flips))

    @property
    def bits(self) -> float:
        """R_prop: entropy of all flips of one report."""
        return sum(entropy_bits([q, 1 - q]) for q in self.flips)

    @property
    def bits_apart(self) -> float:
        """R_triv: that of a report for every reader, which cost together the sum of epsilons."""
        return sum(entropy_bits([z, 1 - z]) for z in self.errors)
